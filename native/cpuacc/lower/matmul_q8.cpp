// Quantized BatchMatMul. The second operand is packed in each run.

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"

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
  const int32_t* begin;  // initial values of all sums
  Operand a, b;
  int64_t rows, depth, columns, words;
  int32_t zero_a, zero_b;  // of the bytes of a as kernels multiply them, of the signed bytes of b

  int64_t packed_bytes() const { return channels.lanes() * words * 4; }
  int64_t row_bytes() const { return words * 4; }
  /// The place of word `k` of a lane in the weights of a panel.
  int64_t place_of(int64_t lanes, int64_t lane, int64_t k) const {
    return place_of_word(kernels->weight_bytes, lanes, lane, k);
  }
};

/// The scratch memory of one part.
struct Scratch {
  int8_t* weights;
  int32_t *begin, *byte_sums;
  uint8_t* rows;
  uint32_t* column_sums;

  static uint64_t aligned(int64_t bytes) { return (uint64_t(bytes) + 63) / 64 * 64; }
  static uint64_t bytes(const State& s) {
    return aligned(s.packed_bytes()) + aligned(s.channels.lanes() * 4) + aligned(s.rows * 4) +
           aligned(s.rows * s.row_bytes()) + aligned(s.columns * 4);
  }
  Scratch(const State& s, char* memory)
      : weights(reinterpret_cast<int8_t*>(memory)),
        begin(reinterpret_cast<int32_t*>(memory + aligned(s.packed_bytes()))),
        byte_sums(reinterpret_cast<int32_t*>(reinterpret_cast<char*>(begin) + aligned(s.channels.lanes() * 4))),
        rows(reinterpret_cast<uint8_t*>(byte_sums) + aligned(s.rows * 4)),
        column_sums(reinterpret_cast<uint32_t*>(rows + aligned(s.rows * s.row_bytes()))) {}
};

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

/// The initial value of the sum of a column with this sum.
int32_t begin_of(const State& s, int64_t sum) {
  return int32_t(uint32_t(s.depth * int64_t(s.zero_a) * s.zero_b - s.zero_a * sum));
}

/// Pack up to four rows, whose values are contiguous, as word number `place` of all panels.
void pack_word(const State& s, const uint8_t* from, int64_t rows, int64_t place, int8_t* to) {
  const uint32_t flip = s.b.flip ? 0 : 0x80808080u, mask = rows < 4 ? (1u << (8 * rows)) - 1 : ~0u;
  const uint8_t* row[4];
  for (int64_t n = 0; n < 4; ++n) row[n] = from + std::min(n, rows - 1) * s.b.by_depth;
  for (const Q8Panel& panel : s.channels.panels) {
    const int64_t lanes = panel.vectors * s.kernels->lanes, *channels = s.channels.of_lane.data() + panel.lane;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t c = channels[lane];
      if (c < 0) continue;
      uint32_t word = row[0][c] | uint32_t(row[1][c]) << 8 | uint32_t(row[2][c]) << 16 | uint32_t(row[3][c]) << 24;
      word = (word ^ flip) & mask;
      memcpy(to + s.place_of(lanes, lane, place), &word, 4);
    }
    to += lanes * s.words * 4;
  }
}

/// Pack an operand whose rows are contiguous.
void pack_rows(const State& s, const uint8_t* b, const Scratch& to) {
  memset(to.column_sums, 0, size_t(s.columns) * 4);
  s.elementwise->add_rows(b, s.depth, s.b.by_depth, s.columns, s.b.flip != 0, to.column_sums);
  for (int64_t lane = 0; lane < s.channels.lanes(); ++lane) {
    const int64_t channel = s.channels.of_lane[size_t(lane)];
    if (channel >= 0) to.begin[lane] = begin_of(s, int64_t(to.column_sums[channel]) - 128 * s.depth);
  }
  for (int64_t word = 0; 4 * word < s.depth; ++word)
    pack_word(s, b + 4 * word * s.b.by_depth, std::min<int64_t>(4, s.depth - 4 * word), word, to.weights);
}

/// Pack the second operand as signed values in panels, and compute the initial values of the sums of its columns.
void pack_columns(const State& s, const uint8_t* b, const Scratch& to) {
  int8_t* out = to.weights;
  memcpy(to.begin, s.begin, size_t(s.channels.lanes()) * 4);
  if (s.depth % s.kernels->weight_bytes != 0 || s.channels.lanes() != s.columns)
    memset(out, 0, size_t(s.packed_bytes()));
  if (s.b.by_outer == 1) return pack_rows(s, b, to);
  for (const Q8Panel& panel : s.channels.panels) {
    int64_t lanes = panel.vectors * s.kernels->lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t channel = s.channels.of_lane[size_t(panel.lane + lane)];
      if (channel < 0) continue;
      int64_t sum = pack_column(s, b + channel * s.b.by_outer, lanes, lane, out);
      to.begin[panel.lane + lane] = begin_of(s, sum);
    }
    out += lanes * s.words * 4;
  }
}

/// Copy the rows of the first operand as values that kernels multiply, padded to whole words, and compute their sums if
/// these are needed.
void copy_rows(const State& s, const uint8_t* a, const Scratch& to) {
  const uint8_t flip = uint8_t(s.a.flip), sign = s.kernels->is_signed ? 0x80 : 0;
  for (int64_t row = 0; row < s.rows; ++row) {
    const uint8_t* from = a + row * s.a.by_outer;
    uint8_t* out = to.rows + row * s.row_bytes();
    int32_t sum = 0;
    if (s.a.by_depth == 1) {
      s.elementwise->copy(out, from, s.depth, s.a.flip);
      for (int64_t k = 0; s.zero_b != 0 && k < s.depth; ++k) sum += out[k] ^ sign;
    } else {
      for (int64_t k = 0; k < s.depth; ++k) sum += (out[k] = uint8_t(from[k * s.a.by_depth] ^ flip)) ^ sign;
    }
    if (sign) sum -= 128 * int32_t(s.depth);
    memset(out + s.depth, 0, size_t(s.row_bytes() - s.depth));
    to.byte_sums[row] = sum;
  }
}

void multiply(const State& s, const Scratch& scratch, uint8_t* out) {
  alignas(64) int32_t sums[28 * 16];
  const uint8_t* segments[1] = {scratch.rows};
  const int8_t* weights = scratch.weights;
  for (const Q8Panel& panel : s.channels.panels) {
    int64_t most = s.kernels->max_rows[panel.vectors];
    for (int64_t row = 0; row < s.rows; row += most) {
      int count = int(std::min(most, s.rows - row));
      Q8Rows from{segments, 1, s.words, row * s.row_bytes(), s.row_bytes(), 0};
      s.kernels->tile(count, panel.vectors, from, weights, scratch.begin + panel.lane, sums);
      s.kernels->requantize(count, panel.vectors, sums, s.requantization, panel.lane,
                            s.zero_b ? scratch.byte_sums + row : nullptr, out + row * s.columns + panel.first,
                            s.columns, panel.channels, {nullptr, nullptr, 0});
    }
    weights += panel.vectors * s.kernels->lanes * s.words * 4;
  }
}

void run_products(const Step& step, const Run& run, int part, int parts) {
  const State& s = step.as<State>();
  Scratch scratch(s, run.part_scratch<char>(part));
  Range range = split(int64_t(s.a.places.size()), part, parts);
  int64_t packed = -1;
  for (int64_t n = range.first; n < range.last; ++n) {
    int64_t place = s.b.places[size_t(n)];
    if (place != packed) pack_columns(s, run.at<uint8_t>(step.in[1]) + place, scratch);
    packed = place;
    copy_rows(s, run.at<uint8_t>(step.in[0]) + s.a.places[size_t(n)], scratch);
    multiply(s, scratch, run.at<uint8_t>(step.out[0]) + n * s.rows * s.columns);
  }
}

Refusal supports(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  if (!has_one_scale(a) || !has_one_scale(b) || !has_one_scale(out) || a.dtype != out.dtype || !node.posts.empty())
    return refused("takes quantized values of 8 bits with one scale each", IPR_REASON_DATA_TYPE);
  if (node.flag("adjoint_x") || node.flag("adjoint_y")) return refused("adjugate matrices", IPR_REASON_ATTRIBUTE);
  if (a.rank() < 2 || b.rank() < 2) return refused("takes matrices", IPR_REASON_SHAPE);
  double depth = double(a.extent(node.flag("transpose_x") ? -2 : -1)) + 4;
  if (rounds_to_even(node) && depth > kMostExact) return refused("sums that may not fit 32 bits", IPR_REASON_RESOURCE);
  if (depth * double(std::max(out.extent(-1), out.extent(-2)) + 64) > kMax)
    return refused("matrices of this size", IPR_REASON_RESOURCE);
  return taken();
}

/// The offsets of the matrices of an operand for each matrix of the result.
std::vector<int64_t> places_of(const Shape& shape, const Shape& result) {
  std::vector<int64_t> offsets{0};
  size_t batch = result.size() - 2, own = shape.size() - 2;
  std::vector<int64_t> steps(batch, 0);
  int64_t size = shape[own] * shape[own + 1];
  for (size_t n = own; n-- > 0; size *= shape[n])
    if (shape[n] != 1) steps[batch - own + n] = size;
  for (size_t axis = 0; axis < batch; ++axis) {
    std::vector<int64_t> next;
    for (int64_t place : offsets)
      for (int64_t n = 0; n < result[axis]; ++n) next.push_back(place + n * steps[axis]);
    offsets = std::move(next);
  }
  return offsets;
}

void lower(const Node& node, Builder& builder) {
  const Tensor &a = *builder.graph.in(node, 0), &b = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  if (out.elements() == 0) return;
  auto state = std::make_shared<State>();
  State& s = *state;
  bool turn_a = node.flag("transpose_x"), turn_b = node.flag("transpose_y");
  s.kernels = &gemm_q8_kernels_for(builder.settings.isa);
  s.elementwise = &elementwise_q8_kernels_for(builder.settings.isa);
  s.rows = out.extent(-2), s.columns = out.extent(-1), s.depth = a.extent(turn_a ? -2 : -1);
  s.words = words_of(*s.kernels, s.depth);
  s.a = {places_of(a.shape, out.shape), turn_a ? 1 : s.depth, turn_a ? s.rows : 1, flip_of(a, s.kernels->is_signed)};
  s.b = {places_of(b.shape, out.shape), turn_b ? s.depth : 1, turn_b ? 1 : s.columns, flip_of(b)};
  s.zero_a = unsigned_zero(a) - (s.kernels->is_signed ? 128 : 0);
  s.zero_b = unsigned_zero(b) - 128;
  s.channels.add(0, s.columns, s.kernels->lanes);
  Q8Sums sums;
  for (int64_t n = 0; n < s.columns; ++n) sums.add({0, 255 * s.depth}, 0, 0, -s.zero_b);
  Q8Rounding rule = Q8Rounding::of(node, a, b, out, Q8Rounding::fixed_point, true);
  Q8Limits limits;
  Q8Parameters parameters(Q8Parameters::pack(builder, s.channels, rule, out, limits, sums), s.channels.lanes(), out,
                          limits);
  s.requantization = parameters.requantization;
  s.begin = parameters.bias;
  Step step;
  step.name = "BatchMatMul " + node.name;
  step.fn = run_products;
  double each = double(s.rows * s.columns) * double(s.depth) / cost::kQuantizedProductsPerNs +
                double((s.rows + s.columns) * s.depth) / cost::kPackedBytesPerNs;
  step.max_parts =
      int(std::min<int64_t>(parts_for(builder.settings, each * double(s.a.places.size())), int64_t(s.a.places.size())));
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = Scratch::bytes(s);
  step.state = state;
  builder.add(std::move(step));
}

}  // namespace

Family matmul_q8_family() {
  Family family;
  family.lowerings = {{"BatchMatMul", "quantized", supports, lower, nullptr, true}};
  return family;
}

}  // namespace cpuacc
