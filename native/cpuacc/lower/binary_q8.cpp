// Elementwise operations on two quantized operands of 8 bits in the integer arithmetic of the reference. Large tensors
// use a table of all pairs of values.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/pair_rule.hpp"
#include "cpuacc/lower/q8.hpp"
#include "cpuacc/pointwise.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kLeastElementsForTable = 1 << 15;  // elements from which on computing the table of 2**16 pairs pays
constexpr uint64_t kPairs = 1 << 16;
constexpr int64_t kLeastSums = 32;  // elements from which on sums are computed in vectors
constexpr int64_t kShortRow = 512;  // rows with fewer elements are merged
constexpr int64_t kPiece = 1024;    // elements for which short rows and single elements are repeated at once

/// An operation on the bytes of two operands.
struct Rule : PairRule {
  bool signed_a = false, signed_b = false, signed_out = false, truth = false;

  uint8_t operator()(uint8_t a, uint8_t b) const;

 private:
  bool compared(int64_t a, int64_t b) const;
};

bool Rule::compared(int64_t a, int64_t b) const {
  int64_t first = native::multiply(256 * a, of_a), second = native::multiply(256 * b, of_b);
  switch (operation) {
    case Binary::equal:
      return first == second;
    case Binary::not_equal:
      return first != second;
    case Binary::greater:
      return first > second;
    case Binary::greater_or_equal:
      return first >= second;
    case Binary::less:
      return first < second;
    default:
      return first <= second;
  }
}

int64_t number_of(uint8_t bits, bool is_signed) { return is_signed ? int64_t(int8_t(bits)) : int64_t(bits); }

uint8_t Rule::operator()(uint8_t first, uint8_t second) const {
  int64_t a = number_of(first, signed_a), b = number_of(second, signed_b);
  if (to_even) {
    const int64_t code = combined_as_onnx(a - zero_a, b - zero_b) + zero_out;
    return uint8_t(std::clamp<int64_t>(code, signed_out ? -128 : 0, signed_out ? 127 : 255));
  }
  if (operation == Binary::maximum) return uint8_t(std::max(a, b));
  if (operation == Binary::minimum) return uint8_t(std::min(a, b));
  a -= zero_a, b -= zero_b;
  if (truth) return compared(a, b);
  int64_t code = combined(a, b) + zero_out;
  return uint8_t(std::clamp<int64_t>(code, signed_out ? -128 : 0, signed_out ? 127 : 255));
}

Rule rule_of(const Graph& graph, const Node& node) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  Rule rule;
  static_cast<PairRule&>(rule) = PairRule::of(binary_of(node), a, b, out, rounds_to_even(node), 20);
  rule.signed_a = is_signed(a), rule.signed_b = is_signed(b), rule.signed_out = is_signed(out);
  rule.truth = out.dtype == IPR_DTYPE_BOOL;
  return rule;
}

bool is_comparison(Binary operation) { return operation >= Binary::equal && operation <= Binary::not_equal; }

bool is_choice(Binary operation) { return operation == Binary::maximum || operation == Binary::minimum; }

bool has_rule(Binary operation) {
  switch (operation) {
    case Binary::add:
    case Binary::sub:
    case Binary::mul:
    case Binary::div:
    case Binary::sq_diff:
    case Binary::prelu:
      return true;
    default:
      return is_choice(operation) || is_comparison(operation);
  }
}

/// Return whether the operands and the result of a maximum or minimum have one quantization, so that bytes are
/// compared.
bool compares_bytes(const Tensor& a, const Tensor& b, const Tensor& out) {
  return a.dtype == b.dtype && a.dtype == out.dtype && a.same_quantization(b) && a.same_quantization(out);
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  Binary operation = binary_of(node);
  bool known = is_comparison(operation) ? out.dtype == IPR_DTYPE_BOOL : has_one_scale(out);
  if (!has_one_scale(a) || !has_one_scale(b) || !known || !has_rule(operation))
    return refused("takes arithmetic and comparisons of quantized values of 8 bits with one scale",
                   IPR_REASON_DATA_TYPE);
  if (is_choice(operation) && !compares_bytes(a, b, out) && !rounds_to_even(node))
    return refused("takes maxima and minima of operands with the same scale", IPR_REASON_QUANTIZATION);
  if (operation == Binary::div && !rounds_to_even(node) && rule_of(graph, node).of_result.shift < -20)
    return refused("the quotients are too small for the scale of the result", IPR_REASON_QUANTIZATION);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

struct Pairs {
  Rule rule;
  Rows rows;
  const uint8_t* table;                 // results by both values, the first one as the high byte; or nullptr
  const ElementwiseQ8Kernels* kernels;  // of products and of sums of rows; or nullptr
  Q8Multiply product;
  Q8Add sum;
  uint32_t flip;  // of the first operand of a sum
  OfTwo choice;   // of maxima and minima of operands with one quantization; or nullptr

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Pairs& self = step.as<Pairs>();
    const Rows& rows = self.rows;
    Range range = split(rows.rows * rows.length, part, parts, 64);
    for (int64_t n = range.first; n < range.last;) {
      int64_t row = n / rows.length, column = n % rows.length;
      int64_t count = std::min(rows.length - column, range.last - n);
      const uint8_t* a = run.at<uint8_t>(step.in[0]) + rows.begin(0, row);
      const uint8_t* b = run.at<uint8_t>(step.in[1]) + rows.begin(1, row);
      uint8_t* out = run.at<uint8_t>(step.out[0]) + n;
      if (rows.period > 0 || self.adds())
        self.of_pieces(a, b, out, column, count);
      else
        self.of_row(a + (rows.one[0] ? 0 : column), b + (rows.one[1] ? 0 : column), out, count);
      n += count;
    }
  }

 private:
  /// Sums read as many elements of each operand; other operations also read single elements.
  bool adds() const { return kernels && (rule.operation == Binary::add || rule.operation == Binary::sub); }

  /// Compute some elements of a row, from `column` on. Operands with fewer elements are repeated, piece by piece.
  void of_pieces(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t column, int64_t count) const {
    uint8_t of_a[kPiece], of_b[kPiece];
    const bool repeats = repeated(0) || repeated(1);
    for (int64_t end = column + count; column < end;) {
      const int64_t piece = repeats ? std::min(kPiece, end - column) : end - column;
      of_row(elements(0, a, column, piece, of_a), elements(1, b, column, piece, of_b), out, piece);
      column += piece, out += piece;
    }
  }

  bool repeated(int operand) const {
    return rows.periodic[operand] || rows.repeated[operand] || (rows.one[operand] && adds());
  }

  /// The elements of an operand from a column of its row on: in place, or repeated in `room`.
  const uint8_t* elements(int operand, const uint8_t* from, int64_t column, int64_t count, uint8_t* room) const {
    if (!repeated(operand)) return rows.one[operand] ? from : from + column;
    if (rows.one[operand])
      std::memset(room, *from, size_t(count));
    else if (rows.periodic[operand])
      repeat_row(from, column % rows.period, count, room);
    else
      repeat_elements(from + column / rows.period, rows.period - column % rows.period, count, room);
    return room;
  }

  void repeat_row(const uint8_t* from, int64_t phase, int64_t count, uint8_t* to) const {
    int64_t filled = std::min(rows.period, count);
    for (int64_t n = 0; n < filled; ++n) to[n] = from[phase], phase = phase + 1 == rows.period ? 0 : phase + 1;
    for (int64_t added; filled < count; filled += added)
      std::memcpy(to + filled, to, size_t(added = std::min(filled, count - filled)));
  }

  /// Write each element as often as a short row has elements; the first one only `first` times.
  void repeat_elements(const uint8_t* from, int64_t first, int64_t count, uint8_t* to) const {
    for (int64_t filled = 0, times = first; filled < count; times = rows.period) {
      times = std::min(times, count - filled);
      std::memset(to + filled, *from++, size_t(times));
      filled += times;
    }
  }

  void of_row(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t count) const {
    if (choice) return choice(a, b, out, count, rows.one[0] != 0, rows.one[1] != 0);
    if (adds()) return kernels->add(a, b, out, count, flip, sum);
    if (kernels) return kernels->multiply(a, b, out, count, product);
    int64_t next_a = rows.one[0] ? 0 : 1, next_b = rows.one[1] ? 0 : 1;
    if (table)
      for (int64_t n = 0; n < count; ++n) out[n] = table[a[n * next_a] << 8 | b[n * next_b]];
    else
      for (int64_t n = 0; n < count; ++n) out[n] = rule(a[n * next_a], b[n * next_b]);
  }
};

const uint8_t* table_of(Builder& builder, const Rule& rule) {
  return static_cast<const uint8_t*>(builder.pack(kPairs, [&](void* memory) {
    uint8_t* table = static_cast<uint8_t*>(memory);
    for (uint64_t pair = 0; pair < kPairs; ++pair) table[pair] = rule(uint8_t(pair >> 8), uint8_t(pair));
  }));
}

/// Products that are not shifted out of 32 bits are computed in vectors.
bool is_product(const Rule& rule) {
  return rule.operation == Binary::mul && (rule.to_even || rule.of_result.shift <= 14);
}

/// Sums and differences are computed in vectors.
bool is_sum(const Rule& rule, const Tensor& out) {
  return (rule.operation == Binary::add || rule.operation == Binary::sub) && out.elements() >= kLeastSums;
}

Q8Multiply product_of(const Rule& rule, const Rows& rows) {
  auto zero = [](bool is_signed, int64_t point) { return int32_t(point) + (is_signed ? 128 : 0); };
  auto flip = [](bool is_signed) { return is_signed ? 0x80808080u : 0u; };
  return {zero(rule.signed_a, rule.zero_a),
          zero(rule.signed_b, rule.zero_b),
          zero(rule.signed_out, rule.zero_out),
          int32_t(rule.of_result.multiplier),
          rule.of_result.shift,
          flip(rule.signed_a),
          flip(rule.signed_b),
          flip(rule.signed_out),
          rows.one[0] != 0,
          rows.one[1] != 0,
          rule.to_even,
          rule.scales};
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  auto pairs = std::make_shared<Pairs>();
  pairs->rule = rule_of(graph, node);
  pairs->rows = rows_of(out.shape, {&a.shape, &b.shape});
  merge_short_rows(pairs->rows, kShortRow);
  const bool sums = is_sum(pairs->rule, out);
  if (sums || is_product(pairs->rule)) pairs->kernels = &elementwise_q8_kernels_for(builder.settings.isa);
  pairs->product = product_of(pairs->rule, pairs->rows);
  const bool subtracts = pairs->rule.operation == Binary::sub;
  if (sums) pairs->sum = q8_addition(builder, a, b, out, {}, rounds_to_even(node), subtracts), pairs->flip = flip_of(a);
  if (is_choice(pairs->rule.operation) && compares_bytes(a, b, out))
    pairs->choice = element_kernels_for(builder.settings.isa).binary(pairs->rule.operation, out.dtype);
  const bool large = out.elements() >= kLeastElementsForTable && !pairs->kernels && !pairs->choice;
  pairs->table = large ? table_of(builder, pairs->rule) : nullptr;
  if (out.elements() == 0) pairs->rows.rows = 0;
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Pairs::run;
  step.max_parts =
      parts_for(builder.settings, double(out.elements()) * (pairs->kernels || pairs->choice ? cost::kAddQuantizedNs
                                                            : pairs->table                  ? cost::kLookUpPairNs
                                                                                            : cost::kCombinePairNs));
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = a.shape == out.shape ? 0 : b.shape == out.shape ? 1 : -1;
  step.state = std::move(pairs);
  builder.add(std::move(step));
}

}  // namespace

Family binary_q8_family() {
  Family family;
  for (const char* type : {"ElementwiseBinary", "Addition", "Subtraction", "Multiplication", "Division", "Maximum",
                           "Minimum", "Prelu", "Comparison"})
    family.lowerings.push_back({type, "quantized pairs", support, lower, nullptr, true});
  return family;
}

}  // namespace cpuacc
