// Elementwise layers on quantized tensors of 16 bits, in the integer arithmetic of the reference: arithmetic of two
// tensors, and activation functions.

#include <algorithm>
#include <array>
#include <cmath>

#include "common/quotient.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/pair_rule.hpp"

namespace cpuacc {
namespace {

bool is_quantized16(const Tensor& tensor) {
  return tensor.dtype == IPR_DTYPE_INT16 && tensor.is_quantized() && !tensor.has_axis();
}

int16_t clamped16(int64_t code) { return int16_t(std::clamp<int64_t>(code, -32768, 32767)); }

// ---- Two operands ---------------------------------------------------------------------------------------------------

constexpr int64_t kLeastQuotients = 1 << 13;  // for fewer, computing the table of inverses takes longer than it saves

struct Pairs {
  PairRule rule;
  Rows rows;
  const ElementwiseQ8Kernels* kernels;  // nullptr if vectors do not compute the operation
  Q16Pair pair;

  int16_t code(int64_t a, int64_t b) const {
    if (rule.to_even) return clamped16(rule.combined_as_onnx(a - rule.zero_a, b - rule.zero_b) + rule.zero_out);
    return clamped16(rule.combined(a - rule.zero_a, b - rule.zero_b) + rule.zero_out);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Pairs& self = step.as<Pairs>();
    const Rows& rows = self.rows;
    const Range range = split(rows.rows * rows.length, part, parts, 32);
    const int64_t next_a = rows.one[0] ? 0 : 1, next_b = rows.one[1] ? 0 : 1;
    for (int64_t n = range.first; n < range.last;) {
      const int64_t row = n / rows.length, column = n % rows.length;
      const int64_t count = std::min(rows.length - column, range.last - n);
      const int16_t* a = run.at<int16_t>(step.in[0]) + rows.begin(0, row) + column * next_a;
      const int16_t* b = run.at<int16_t>(step.in[1]) + rows.begin(1, row) + column * next_b;
      int16_t* out = run.at<int16_t>(step.out[0]) + n;
      self.of_row(a, b, next_a, next_b, out, count);
      n += count;
    }
  }

 private:
  void of_row(const int16_t* a, const int16_t* b, int64_t next_a, int64_t next_b, int16_t* out, int64_t count) const {
    if (kernels) return kernels->combine_shorts(a, b, out, count, pair);
    for (int64_t i = 0; i < count; ++i) out[i] = code(a[i * next_a], b[i * next_b]);
  }
};

/// Return whether vectors compute an operation like the rule: in float32, or in integers of 32 bits.
bool is_vectorized(const PairRule& rule, int64_t count) {
  const bool divides = rule.operation == Binary::div;
  if (!divides && rule.operation != Binary::add && rule.operation != Binary::sub && rule.operation != Binary::mul)
    return false;
  if (rule.to_even) return true;
  if (divides) return count >= kLeastQuotients;
  return rule.zero_a == 0 && rule.zero_b == 0 && rule.zero_out == 0 && rule.of_result.shift >= -30;
}

Q16Pair pair_of(const PairRule& rule, const Rows& rows) {
  const auto factor = [](int64_t zero, const native::FixedPoint& by) {
    return Q8Add::Factor{int32_t(zero), int32_t(by.multiplier), by.shift};
  };
  Q8Scales scales = rule.scales;
  if (rule.operation == Binary::sub) scales.b = -scales.b;
  const bool divides = rule.operation == Binary::div;
  const Q16Operation operation = divides                         ? Q16Operation::quotient
                                 : rule.operation == Binary::mul ? Q16Operation::product
                                                                 : Q16Operation::sum;
  return {factor(rule.zero_a, rule.of_a),
          factor(rule.zero_b, rule.of_b),
          factor(rule.zero_out, rule.of_result),
          rows.one[0] != 0,
          rows.one[1] != 0,
          operation,
          rule.to_even,
          scales,
          divides && !rule.to_even ? native::Reciprocals::all().inverses() : nullptr};
}

bool is_choice(Binary operation) { return operation == Binary::maximum || operation == Binary::minimum; }

bool has_rule(Binary operation, bool to_even) {
  switch (operation) {
    case Binary::add:
    case Binary::sub:
    case Binary::mul:
    case Binary::div:
      return true;
    case Binary::sq_diff:
      return to_even;
    default:
      return is_choice(operation);
  }
}

Refusal support_pairs(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  const Binary operation = binary_of(node);
  const bool to_even = rounds_to_even(node);
  if (!is_quantized16(a) || !is_quantized16(b) || !is_quantized16(out) || !has_rule(operation, to_even))
    return refused("takes arithmetic of int16 with one scale", IPR_REASON_DATA_TYPE);
  if (is_choice(operation) && !to_even)
    return refused("takes maxima and minima that are rounded half to even", IPR_REASON_QUANTIZATION);
  const PairRule rule = PairRule::of(operation, a, b, out, to_even, 15);
  if (operation == Binary::div && !to_even && rule.of_result.shift < -20)
    return refused("the quotients are too small for the scale of the result", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_pairs(const Node& node, Builder& builder) {
  const Tensor &a = *builder.graph.in(node, 0), &b = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  auto pairs = std::make_shared<Pairs>();
  pairs->rule = PairRule::of(binary_of(node), a, b, out, rounds_to_even(node), 15);
  pairs->rows = rows_of(out.shape, {&a.shape, &b.shape});
  if (is_vectorized(pairs->rule, out.elements())) {
    pairs->kernels = &elementwise_q8_kernels_for(builder.settings.isa);
    pairs->pair = pair_of(pairs->rule, pairs->rows);
  }
  if (out.elements() == 0) pairs->rows.rows = 0;
  const double cost_ns = pairs->kernels ? cost::kCombineShortsNs : cost::kCombinePairNs;
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Pairs::run;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost_ns);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = a.shape == out.shape ? 0 : b.shape == out.shape ? 1 : -1;
  step.state = std::move(pairs);
  builder.add(std::move(step));
}

// ---- Activation functions -------------------------------------------------------------------------------------------

/// sigmoid(i / 24) in 16 bits, each shifted by half the error of an interpolation.
const std::array<int32_t, 256>& sigmoid_points() {
  static const std::array<int32_t, 256> points = [] {
    auto at = [](int half) { return 65536.0 / (1 + std::exp(-double(half) / 48)); };
    std::array<int32_t, 256> table;
    for (int n = 0; n < 256; ++n) {
      const double error = (at(2 * n) + at(2 * n + 2)) / 2 - at(2 * n + 1);
      table[size_t(n)] = int32_t(std::nearbyint(at(2 * n) - error / 2));
    }
    table[255] = 65535;
    return table;
  }();
  return points;
}

/// A function of one number without its zero point. Tables of all 65536 results are computed when a network is loaded.
struct Curve {
  Function function;
  int64_t zero, zero_out, least, most;
  native::FixedPoint factor, below;  // of numbers, and of negative ones
  float scale;
  bool same;  // the quantizations of operand and result

  int64_t operator()(int64_t code) const {
    const int64_t x = code - zero;
    switch (function) {
      case Function::sigmoid:
        return logistic(x);
      case Function::tanh:
        return tangent(x);
      case Function::abs:
        return native::multiply(std::abs(x), factor) + zero_out;
      case Function::leaky_relu:
        return native::multiply(x, x >= 0 ? factor : below) + zero_out;
      default:
        return std::clamp(same ? code : native::multiply(x, factor) + zero_out, least, most);
    }
  }

 private:
  /// The number in steps of 1/12288.
  int64_t fine(int64_t x) const {
    const float exponent = std::log2(scale) + 12;
    if (exponent == 0 || exponent == 1) return native::shifted_left(x * 3, int(exponent));
    constexpr double most = 0x1p40;  // by which every number but 0 is beyond the table, and no product overflows
    double by = std::min(double(scale) * 4096 * 3, most);
    int shift = 0;
    for (; by <= 32767.0 / 2 && shift <= 30; ++shift) by *= 2;
    return (x * int64_t(by) + ((int64_t(1) << shift) >> 1)) >> shift;
  }

  static int64_t between(int64_t x, int shift) {
    const std::array<int32_t, 256>& points = sigmoid_points();
    const auto index = size_t(std::min<int64_t>(x >> shift, 254));
    const int64_t low = points[index], high = points[index + 1];
    return (low << shift) + (x & ((int64_t(1) << shift) - 1)) * (high - low);
  }

  int64_t logistic(int64_t x) const {
    const int64_t steps = fine(x), size = std::abs(steps);
    const int64_t magnitude = size >> 9 >= 255 ? int64_t(0x7FFF) << 10 : between(size, 9);
    return (steps >= 0 ? magnitude + (1 << 9) : (1 << 25) - magnitude + (1 << 9) - 1) >> 10;
  }

  int64_t tangent(int64_t x) const {
    const int64_t steps = fine(x), size = std::abs(steps);
    const int64_t magnitude = size >> 8 >= 255 ? int64_t(0xFFFF) << 8 : between(size, 8);
    return (steps >= 0 ? magnitude - (1 << 23) + (1 << 7) : -magnitude + (1 << 23) + (1 << 7) - 1) >> 8;
  }
};

/// The code of a bound of the result.
int64_t code_of(double bound, const Tensor& out, int64_t unbounded) {
  if (!std::isfinite(bound)) return unbounded;
  const double steps = native::round_half_away(double(float(bound) / float(out.scale())));
  return int64_t(std::clamp(steps + double(out.zero_point()), -32768.0, 32767.0));
}

std::string_view function_name(const Node& node) {
  return node.text(node.type == "Activation" ? "function" : "operation");
}

/// The function of an Activation, or of an ElementwiseUnary that is computed like one: ABS.
Function curve_function(const Node& node) { return function_of(function_name(node)); }

Curve curve_of(const Graph& graph, const Node& node) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const float ratio = float(in.scale()) / float(out.scale());
  Curve curve{};
  curve.function = curve_function(node);
  curve.zero = in.zero_point(), curve.zero_out = out.zero_point();
  curve.factor = native::quantize_multiplier(double(ratio));
  curve.below = native::quantize_multiplier(double(float(in.scale()) * float(node.number("a")) / float(out.scale())));
  curve.scale = float(in.scale());
  curve.same = in.same_quantization(out);
  const bool bounded = curve.function == Function::bounded_relu;
  curve.least = code_of(bounded ? node.number("b") : 0, out, -32768);
  curve.most = bounded ? code_of(node.number("a"), out, 32767) : 32767;
  return curve;
}

struct Table {
  const int16_t* results;  // of -32768, and so on
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Table& self = step.as<Table>();
    const Range range = split(self.count, part, parts, 32);
    const int16_t* in = run.at<int16_t>(step.in[0]);
    int16_t* out = run.at<int16_t>(step.out[0]);
    for (int64_t n = range.first; n < range.last; ++n) out[n] = self.results[in[n] + 32768];
  }
};

struct Clamp {
  int16_t least, most;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Clamp& self = step.as<Clamp>();
    const Range range = split(self.count, part, parts, 32);
    const int16_t* in = run.at<int16_t>(step.in[0]);
    int16_t* out = run.at<int16_t>(step.out[0]);
    for (int64_t n = range.first; n < range.last; ++n) out[n] = std::min(std::max(in[n], self.least), self.most);
  }
};

Refusal support_curve(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!is_quantized16(in) || !is_quantized16(out))
    return refused("operand 0 is " + described(in) + "; takes int16 with one scale", IPR_REASON_DATA_TYPE);
  const bool unit = in.zero_point() == 0 && out.zero_point() == 0 && out.scale() == 1.0 / 32768;
  switch (curve_function(node)) {
    case Function::relu:
    case Function::bounded_relu:
    case Function::leaky_relu:
    case Function::abs:
      break;
    case Function::sigmoid:
      if (unit) break;
      return refused("takes results with the scale 2**-15", IPR_REASON_QUANTIZATION);
    case Function::tanh:
      if (unit && node.number("a", 1) == 1 && node.number("b", 1) == 1) break;
      return refused("takes results with the scale 2**-15", IPR_REASON_QUANTIZATION);
    default:
      return refused(std::string(function_name(node)) + " of int16 is not supported", IPR_REASON_ATTRIBUTE);
  }
  return without_posts(graph, node, settings);
}

void lower_curve(const Node& node, Builder& builder) {
  const Curve curve = curve_of(builder.graph, node);
  const int64_t count = builder.graph.out(node).elements();
  const bool clamps = curve.same && (curve.function == Function::relu || curve.function == Function::bounded_relu);
  Step step;
  step.name = node.type + " " + node.name;
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.max_parts = parts_for(builder.settings, double(count) * (clamps ? cost::kElementNs : cost::kLookUpNs));
  if (clamps) {
    step.fn = &Clamp::run;
    step.state = std::make_shared<Clamp>(Clamp{int16_t(curve.least), int16_t(curve.most), count});
    return builder.add(std::move(step));
  }
  step.fn = &Table::run;
  const void* results = builder.pack(65536 * sizeof(int16_t), [&](void* to) {
    for (int64_t code = -32768; code <= 32767; ++code) static_cast<int16_t*>(to)[code + 32768] = clamped16(curve(code));
  });
  step.state = std::make_shared<Table>(Table{static_cast<const int16_t*>(results), count});
  builder.add(std::move(step));
}

}  // namespace

Family elementwise_q16_family() {
  Family family;
  for (const char* type :
       {"ElementwiseBinary", "Addition", "Subtraction", "Multiplication", "Division", "Maximum", "Minimum"})
    family.lowerings.push_back({type, "16 bits", support_pairs, lower_pairs, nullptr, true});
  for (const char* type : {"Activation", "ElementwiseUnary"})
    family.lowerings.push_back({type, "16 bits", support_curve, lower_curve, nullptr});
  return family;
}

}  // namespace cpuacc
