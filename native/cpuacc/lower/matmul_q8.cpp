// Products of 8-bit matrices of which none is constant: quantized BatchMatMul, and products of integers whose zero
// points and scales are operands. The second operand is packed in each run.

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/gemm_q8.hpp"
#include "cpuacc/lower/matrices.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMax = 1 << 26;     // bytes of one matrix
constexpr double kMostExact = 33000;  // products of unsigned values, whose sum fits 32 bits

/// One operand: the offsets of its matrices, and its strides in elements.
struct Operand {
  std::vector<int64_t> places;
  int64_t by_outer, by_depth;  // by_outer: between rows of the first operand, columns of the second
  uint32_t flip;
};

struct State {
  const GemmQ8Kernels* kernels;
  const ElementwiseQ8Kernels* elementwise;
  Q8Channels channels;
  Q8Requantization requantization;
  Operand a, b;
  int64_t rows, depth, columns, words;
  int32_t zero_a, zero_b;  // of the bytes of a as kernels multiply them, of the signed bytes of b
  bool natural = false;    // the lanes of a panel are consecutive columns
  bool converts = false;   // the sums become int32 or float32 by `conversion` instead of 8 bits by `requantization`
  Q8Conversion conversion{};
  bool a_signed = false, b_signed = false, many_zeros = false;  // of zero points that are operands

  int64_t packed_bytes() const { return channels.lanes() * words * 4; }
  int64_t row_bytes() const { return words * 4; }
  int64_t item_size() const { return converts ? 4 : 1; }
  /// The place of word `k` of a lane in the weights of a panel.
  int64_t place_of(int64_t lanes, int64_t lane, int64_t k) const {
    return place_of_word(kernels->weight_bytes, lanes, lane, k);
  }
};

/// The scratch memory of one part.
struct Scratch {
  int8_t* weights;
  int32_t *begin, *offsets, *byte_sums;
  uint8_t* rows;
  uint32_t* column_sums;
  uint8_t* woven;  // four rows, whose bytes alternate

  static uint64_t aligned(int64_t bytes) { return (uint64_t(bytes) + 63) / 64 * 64; }
  static uint64_t bytes(const State& s) {
    return aligned(s.packed_bytes()) + 2 * aligned(s.channels.lanes() * 4) + aligned(s.rows * 4) +
           aligned(s.rows * s.row_bytes()) + 2 * aligned(s.columns * 4);
  }
  Scratch(const State& s, char* memory) {
    auto take = [&memory](auto*& to, int64_t bytes) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(memory);
      memory += aligned(bytes);
    };
    take(weights, s.packed_bytes());
    take(begin, s.channels.lanes() * 4);
    take(offsets, s.channels.lanes() * 4);
    take(byte_sums, s.rows * 4);
    take(rows, s.rows * s.row_bytes());
    take(column_sums, s.columns * 4);
    take(woven, s.columns * 4);
  }
};

/// The zero points of a run: that of the first operand, and those of the columns, which are negated.
struct Zeros {
  int32_t a;
  const int32_t* offsets;  // for each lane
  bool sums_rows;          // some offset is not 0

  /// The initial value of the sum of a lane, whose column has this sum.
  int32_t begin(const State& s, int64_t lane, int64_t sum) const {
    return int32_t(uint32_t(-int64_t(a) * (sum + s.depth * offsets[lane])));
  }
};

/// A zero point that is an operand; 0 if it is absent.
int32_t stored(const Run& run, const Step& step, size_t operand, bool is_signed, int64_t n) {
  if (operand >= step.in.size() || !step.in[operand]) return 0;
  const uint8_t byte = run.at<uint8_t>(step.in[operand])[n];
  return is_signed ? int32_t(int8_t(byte)) : int32_t(byte);
}

Zeros zeros_of(const State& s, const Step& step, const Run& run, int32_t* offsets) {
  Zeros zeros{s.zero_a + stored(run, step, 2, s.a_signed, 0), offsets, false};
  for (int64_t lane = 0; lane < s.channels.lanes(); ++lane) {
    const int64_t column = std::max<int64_t>(0, s.channels.of_lane[size_t(lane)]);
    offsets[lane] = -s.zero_b - stored(run, step, 3, s.b_signed, s.many_zeros ? column : 0);
    zeros.sums_rows = zeros.sums_rows || offsets[lane] != 0;
  }
  return zeros;
}

/// Pack a column of contiguous values, whose length is a multiple of four. Return its sum.
int64_t pack_words(const State& s, const uint8_t* from, int64_t lanes, int64_t lane, int8_t* to) {
  const uint32_t flip = s.b.flip ? 0 : 0x80808080u;
  int64_t sum = -128 * s.depth;
  for (int64_t k = 0; k < s.depth; k += 4) {
    uint32_t word;
    memcpy(&word, from + k, 4);
    word ^= flip;
    memcpy(to + s.place_of(lanes, lane, k / 4), &word, 4);
    word ^= 0x80808080u;  // four unsigned values, which are added in pairs of 16 bits
    const uint32_t pairs = (word & 0xff00ffu) + (word >> 8 & 0xff00ffu);
    sum += (pairs & 0xffffu) + (pairs >> 16);
  }
  return sum;
}

/// Pack one column as a lane of a panel. Return its sum.
int64_t pack_column(const State& s, const uint8_t* from, int64_t lanes, int64_t lane, int8_t* to) {
  const uint8_t flip = s.b.flip ? 0 : 0x80;  // unsigned values become signed
  const int64_t by = s.b.by_depth;
  if (by == 1 && s.depth % 4 == 0) return pack_words(s, from, lanes, lane, to);
  int64_t sum = 0, k = 0;
  for (; k + 4 <= s.depth; k += 4, from += 4 * by) {
    const uint8_t word[4] = {uint8_t(from[0] ^ flip), uint8_t(from[by] ^ flip), uint8_t(from[2 * by] ^ flip),
                             uint8_t(from[3 * by] ^ flip)};
    memcpy(to + s.place_of(lanes, lane, k / 4), word, 4);
    sum += int8_t(word[0]) + int8_t(word[1]) + int8_t(word[2]) + int8_t(word[3]);
  }
  to += s.place_of(lanes, lane, k / 4);
  for (int n = 0; k < s.depth; ++k, ++n, from += by) sum += to[n] = int8_t(*from ^ flip);
  return sum;
}

/// Copy words of consecutive columns to the lanes of a panel, of which groups of four are consecutive columns.
void place_words(const State& s, const Q8Panel& panel, const uint8_t* words, int64_t place, int8_t* to) {
  const int64_t lanes = panel.vectors * s.kernels->lanes, *columns = s.channels.of_lane.data() + panel.lane;
  int64_t lane = 0;
  for (; s.kernels->weight_bytes == 4 && lane < lanes; lane += 4)
    if (columns[lane] >= 0 && columns[lane + 3] >= 0)
      memcpy(to + s.place_of(lanes, lane, place), words + columns[lane] * 4, 16);
    else
      break;
  for (; lane < lanes; ++lane)
    if (columns[lane] >= 0) memcpy(to + s.place_of(lanes, lane, place), words + columns[lane] * 4, 4);
}

/// Pack up to four rows, whose values are contiguous, as word number `place` of all panels.
void pack_word(const State& s, const uint8_t* from, int64_t rows, int64_t place, const Scratch& scratch) {
  const bool is_direct = s.natural && s.kernels->weight_bytes == 4, flip = s.b.flip == 0;
  int8_t* to = scratch.weights;
  if (!is_direct) s.elementwise->weave(from, rows, s.b.by_depth, s.columns, flip, scratch.woven);
  for (const Q8Panel& panel : s.channels.panels) {
    const int64_t lanes = panel.vectors * s.kernels->lanes;
    uint8_t* words = reinterpret_cast<uint8_t*>(to + place * lanes * 4);
    if (is_direct)
      s.elementwise->weave(from + panel.first, rows, s.b.by_depth, panel.channels, flip, words);
    else
      place_words(s, panel, scratch.woven, place, to);
    to += lanes * s.words * 4;
  }
}

/// Pack an operand whose rows are contiguous.
void pack_rows(const State& s, const uint8_t* b, const Zeros& zeros, const Scratch& to) {
  memset(to.column_sums, 0, size_t(s.columns) * 4);
  s.elementwise->add_rows(b, s.depth, s.b.by_depth, s.columns, s.b.flip != 0, to.column_sums);
  for (int64_t lane = 0; lane < s.channels.lanes(); ++lane) {
    const int64_t channel = s.channels.of_lane[size_t(lane)];
    if (channel >= 0) to.begin[lane] = zeros.begin(s, lane, int64_t(to.column_sums[channel]) - 128 * s.depth);
  }
  for (int64_t word = 0; 4 * word < s.depth; ++word)
    pack_word(s, b + 4 * word * s.b.by_depth, std::min<int64_t>(4, s.depth - 4 * word), word, to);
}

/// Pack the second operand as signed values in panels, and compute the initial values of the sums of its columns.
void pack_columns(const State& s, const uint8_t* b, const Zeros& zeros, const Scratch& to) {
  int8_t* out = to.weights;
  memset(to.begin, 0, size_t(s.channels.lanes()) * 4);
  if (s.depth % s.kernels->weight_bytes != 0 || s.channels.lanes() != s.columns)
    memset(out, 0, size_t(s.packed_bytes()));
  if (s.b.by_outer == 1) return pack_rows(s, b, zeros, to);
  for (const Q8Panel& panel : s.channels.panels) {
    int64_t lanes = panel.vectors * s.kernels->lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t channel = s.channels.of_lane[size_t(panel.lane + lane)];
      if (channel < 0) continue;
      int64_t sum = pack_column(s, b + channel * s.b.by_outer, lanes, lane, out);
      to.begin[panel.lane + lane] = zeros.begin(s, panel.lane + lane, sum);
    }
    out += lanes * s.words * 4;
  }
}

/// Copy the rows of the first operand as values that kernels multiply, padded to whole words, and compute their sums if
/// these are needed.
void copy_rows(const State& s, const uint8_t* a, bool sums_rows, const Scratch& to) {
  const bool sign = s.kernels->is_signed;
  for (int64_t row = 0; row < s.rows; ++row) {
    const uint8_t* from = a + row * s.a.by_outer;
    uint8_t* out = to.rows + row * s.row_bytes();
    if (s.a.by_depth == 1)
      s.elementwise->copy(out, from, s.depth, s.a.flip);
    else
      for (int64_t k = 0; k < s.depth; ++k) out[k] = uint8_t(from[k * s.a.by_depth] ^ uint8_t(s.a.flip));
    memset(out + s.depth, 0, size_t(s.row_bytes() - s.depth));
    if (sums_rows)
      to.byte_sums[row] = int32_t(s.elementwise->sum(out, s.depth, sign)) - (sign ? 128 * int32_t(s.depth) : 0);
  }
}

void multiply(const State& s, const Scratch& scratch, const int32_t* byte_sums, const Q8Conversion& conversion,
              uint8_t* out) {
  alignas(64) int32_t sums[28 * 16];
  const uint8_t* segments[1] = {scratch.rows};
  const int8_t* weights = scratch.weights;
  const int64_t out_row = s.columns * s.item_size();
  for (const Q8Panel& panel : s.channels.panels) {
    int64_t most = s.kernels->max_rows[panel.vectors];
    uint8_t* to = out + panel.first * s.item_size();
    for (int64_t row = 0; row < s.rows; row += most) {
      int count = int(std::min(most, s.rows - row));
      const int32_t* of_rows = byte_sums ? byte_sums + row : nullptr;
      Q8Rows from{segments, 1, s.words, row * s.row_bytes(), s.row_bytes(), 0};
      s.kernels->tile(count, panel.vectors, from, weights, scratch.begin + panel.lane, sums);
      if (s.converts)
        s.kernels->convert(count, panel.vectors, sums, conversion, panel.lane, panel.first, of_rows, to + row * out_row,
                           out_row, panel.channels);
      else
        s.kernels->requantize(count, panel.vectors, sums, s.requantization, panel.lane, of_rows, to + row * out_row,
                              out_row, panel.channels, {nullptr, nullptr, 0});
    }
    weights += panel.vectors * s.kernels->lanes * s.words * 4;
  }
}

/// The conversion with the scales and the bias of the run, which are operands.
Q8Conversion conversion_of(const State& s, const Step& step, const Run& run, const Zeros& zeros) {
  Q8Conversion conversion = s.conversion;
  conversion.weight_offset = zeros.offsets;
  if (step.in.size() > 4 && step.in[4]) conversion.scale = run.at<float>(step.in[4]);
  if (step.in.size() > 5 && step.in[5]) conversion.bias = run.at<float>(step.in[5]);
  return conversion;
}

void run_products(const Step& step, const Run& run, int part, int parts) {
  const State& s = step.as<State>();
  Scratch scratch(s, run.part_scratch<char>(part));
  const Zeros zeros = zeros_of(s, step, run, scratch.offsets);
  const Q8Conversion conversion = conversion_of(s, step, run, zeros);
  Range range = split(int64_t(s.a.places.size()), part, parts);
  int64_t packed = -1;
  for (int64_t n = range.first; n < range.last; ++n) {
    int64_t place = s.b.places[size_t(n)];
    if (place != packed) pack_columns(s, run.at<uint8_t>(step.in[1]) + place, zeros, scratch);
    packed = place;
    copy_rows(s, run.at<uint8_t>(step.in[0]) + s.a.places[size_t(n)], zeros.sums_rows, scratch);
    multiply(s, scratch, zeros.sums_rows ? scratch.byte_sums : nullptr, conversion,
             run.at<uint8_t>(step.out[0]) + n * s.rows * s.columns * s.item_size());
  }
}

/// Supported are matrices of `depth` whose other dimension is at most `outer`, if they are not too large.
Refusal within_limits(double depth, double outer) {
  return (depth + 4) * (outer + 64) > kMax ? refused("matrices of this size", IPR_REASON_RESOURCE) : taken();
}

Refusal supports(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  if (!has_one_scale(a) || !has_one_scale(b) || !has_one_scale(out) || a.dtype != out.dtype || !node.posts.empty())
    return refused("takes quantized values of 8 bits with one scale each", IPR_REASON_DATA_TYPE);
  if (node.flag("adjoint_x") || node.flag("adjoint_y")) return refused("adjugate matrices", IPR_REASON_ATTRIBUTE);
  if (a.rank() < 2 || b.rank() < 2) return refused("takes matrices", IPR_REASON_SHAPE);
  const double depth = double(a.extent(node.flag("transpose_x") ? -2 : -1));
  if (rounds_to_even(node) && depth + 4 > kMostExact)
    return refused("sums that may not fit 32 bits", IPR_REASON_RESOURCE);
  return within_limits(depth, double(std::max(out.extent(-1), out.extent(-2))));
}

/// The sizes of the products of a node, and its operands with their zero points. Without a scale, 8-bit integers have
/// the zero point 0.
std::shared_ptr<State> state_of(const Node& node, Builder& builder, bool natural) {
  const Tensor &a = *builder.graph.in(node, 0), &b = *builder.graph.in(node, 1);
  const Matrices m = matrices_of(builder.graph, node);
  auto state = std::make_shared<State>();
  State& s = *state;
  s.kernels = &gemm_q8_kernels_for(builder.settings.isa);
  s.elementwise = &elementwise_q8_kernels_for(builder.settings.isa);
  s.rows = m.rows, s.columns = m.columns, s.depth = m.depth;
  s.words = words_of(*s.kernels, s.depth);
  s.a = {m.a_places, m.a_by_row, m.a_by_depth, flip_of(a, s.kernels->is_signed)};
  s.b = {m.b_places, m.b_by_column, m.b_by_depth, flip_of(b)};
  s.zero_a = unsigned_zero(a) - (s.kernels->is_signed ? 128 : 0);
  s.zero_b = unsigned_zero(b) - 128;
  s.natural = natural;
  s.channels.add(0, s.columns, s.kernels->lanes, natural);
  return state;
}

/// Append the step of the products. Operands after the first two are those of Q8Products.
void add_step(const Node& node, std::shared_ptr<State> state, const std::vector<Buffer>& more, Builder& builder) {
  const State& s = *state;
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = run_products;
  double each = double(s.rows * s.columns) * double(s.depth) / cost::kQuantizedProductsPerNs +
                double((s.rows + s.columns) * s.depth) / cost::kPackedBytesPerNs;
  step.max_parts =
      int(std::min<int64_t>(parts_for(builder.settings, each * double(s.a.places.size())), int64_t(s.a.places.size())));
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.in.insert(step.in.end(), more.begin(), more.end());
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = Scratch::bytes(s);
  step.state = std::move(state);
  builder.add(std::move(step));
}

void lower(const Node& node, Builder& builder) {
  const Tensor &a = *builder.graph.in(node, 0), &b = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  if (out.elements() == 0) return;
  auto state = state_of(node, builder, false);
  Q8Sums sums;
  for (int64_t n = 0; n < state->columns; ++n) sums.add({0, 255 * state->depth}, 0, 0, -state->zero_b);
  Q8Rounding rule = Q8Rounding::of(node, a, b, out, Q8Rounding::fixed_point, true);
  Q8Limits limits;
  const void* packed = Q8Parameters::pack(builder, state->channels, rule, out, limits, sums);
  state->requantization = Q8Parameters(packed, state->channels.lanes(), out, limits).requantization;
  add_step(node, std::move(state), {}, builder);
}

}  // namespace

Refusal support_computed_products(const Graph& graph, const Node& node) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1);
  const int64_t rows = a.rank() < 2 ? 1 : a.extent(-2), columns = b.rank() < 2 ? 1 : b.extent(-1);
  return within_limits(double(a.extent(-1)), double(std::max(rows, columns)));
}

void add_computed_products(const Node& node, const Q8Products& products, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  auto state = state_of(node, builder, true);
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), *zeros = graph.in(node, 3);
  state->converts = true;
  state->a_signed = is_signed(a), state->b_signed = is_signed(b);
  state->zero_a -= int32_t(a.zero_point()), state->zero_b -= int32_t(b.zero_point());  // integers as they are stored
  state->many_zeros = zeros && zeros->elements() > 1;
  state->conversion = {nullptr, nullptr, nullptr, products.scale_count > 1, products.low, products.high};
  const Buffer of_b = builder.buffer(node.inputs.size() > 3 ? node.inputs[3] : -1);
  add_step(node, std::move(state), {products.zero, of_b, products.scale, products.bias}, builder);
}

Family matmul_q8_family() {
  Family family;
  family.lowerings = {{"BatchMatMul", "quantized", supports, lower, nullptr, true}};
  return family;
}

}  // namespace cpuacc
