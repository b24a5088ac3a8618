// Quantized Softmax and LogSoftmax with the output quantization that TFLite prescribes: steps of 1/256, beginning with
// the lowest value, and steps of 1/16, ending with the highest value. The exponentials of the 256 possible distances
// from the maximum of a row are looked up.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"

namespace cpuacc {
namespace {

struct State {
  int64_t exponentials[256], summands[256], products[256];  // by the distance from the maximum
  native::FixedPoint inverse_factor;                        // of LogSoftmax
  int64_t least;                                            // the distance beyond which exponentials are 0
  bool logarithm;
  int64_t rows, inner, extent;  // of an axis whose elements are `inner` apart
  uint8_t flip;
};

struct Row {
  const uint8_t* from;
  uint8_t* to;
};

/// The probability of a value at a distance from the maximum, as an unsigned quantized value.
uint8_t code_of(const State& s, int64_t below, int64_t inverse, int exponent) {
  int64_t code = native::divide_by_pot(native::times(inverse, s.exponentials[below]), exponent + 31 - 8);
  return uint8_t(std::clamp<int64_t>(code, 0, 255));
}

/// What the logarithms of all elements of a row have in common.
struct LogSum {
  int64_t total, farthest;
};

LogSum log_sum(const State& s, int64_t total) {
  const int64_t logarithm = native::log(total, 12, 5);
  const int64_t least = native::multiply(logarithm - (int64_t(1) << 31), s.inverse_factor);
  return {logarithm, -std::max(-s.least - 1, least)};
}

/// The logarithm of the probability of a value at a distance from the maximum, as an unsigned quantized value.
uint8_t log_code_of(const State& s, int64_t below, LogSum sum) {
  if (below >= sum.farthest) return 0;
  const int64_t code = 255 + native::divide_by_pot(s.products[below] - sum.total, 31 - 5 - 4);
  return uint8_t(std::clamp<int64_t>(code, 0, 255));
}

/// Write a row of quantized values, given a function of their distances from the maximum.
template <class Code>
void write_row(const State& s, Row row, int most, Code code) {
  uint8_t codes[256];
  const bool tabulates = s.extent > 256;
  for (int below = 0; tabulates && below <= most; ++below) codes[below] = code(below);
  for (int64_t n = 0; n < s.extent; ++n) {
    const int below = most - (row.from[n * s.inner] ^ s.flip);
    row.to[n * s.inner] = uint8_t((tabulates ? codes[below] : code(below)) ^ s.flip);
  }
}

void run_row(const State& s, Row row) {
  int most = 0;
  for (int64_t n = 0; n < s.extent; ++n) most = std::max(most, int(row.from[n * s.inner] ^ s.flip));
  int64_t total = 0;
  for (int64_t n = 0; n < s.extent; ++n) total += s.summands[most - (row.from[n * s.inner] ^ s.flip)];
  if (s.logarithm) {
    const LogSum sum = log_sum(s, total);
    return write_row(s, row, most, [&](int64_t below) { return log_code_of(s, below, sum); });
  }
  auto [inverse, exponent] = native::reciprocal(total, 12);
  write_row(s, row, most, [&, inverse = inverse, exponent = exponent](int64_t below) {
    return code_of(s, below, inverse, exponent);
  });
}

void run_softmax(const Step& step, const Run& run, int part, int parts) {
  const State& s = step.as<State>();
  Range range = split(s.rows, part, parts);
  for (int64_t n = range.first; n < range.last; ++n) {
    int64_t at = n / s.inner * s.extent * s.inner + n % s.inner;
    run_row(s, {run.at<uint8_t>(step.in[0]) + at, run.at<uint8_t>(step.out[0]) + at});
  }
}

constexpr int64_t kLongestRow =
    8191;  // longest row whose exponentials, of up to 19 bits each, can be summed in 32 bits

Refusal supports(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!has_one_scale(in) || !has_one_scale(out) || in.dtype != out.dtype || !node.posts.empty())
    return refused("takes quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  const bool logarithm = node.type == "LogSoftmax";
  if (logarithm && (out.scale() != 1.0 / 16 || unsigned_zero(out) != 255))
    return refused("the scale of the result is not 1/16, or its zero point is not the highest value",
                   IPR_REASON_QUANTIZATION);
  if (!logarithm && (out.scale() != 1.0 / 256 || unsigned_zero(out) != 0))
    return refused("the scale of the result is not 1/256, or its zero point is not the lowest value",
                   IPR_REASON_QUANTIZATION);
  if (node.number("beta") < 0) return refused("beta is negative", IPR_REASON_ATTRIBUTE);
  const int64_t longest = logarithm ? kLongestRow / 2 : kLongestRow;
  if (out.extent(axis_of(node.integer("axis"), out.rank())) > longest)
    return refused("rows have more than " + std::to_string(longest) + " elements", IPR_REASON_SHAPE);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (out.elements() == 0) return;
  auto state = std::make_shared<State>();
  Around at = around(out.shape, axis_of(node.integer("axis"), out.rank()));
  state->rows = at.outer * at.inner, state->inner = at.inner, state->extent = at.extent;
  state->flip = uint8_t(flip_of(in));
  double scale = std::min(node.number("beta") * in.scale() * 0x1p26, 2147483647.0);
  native::FixedPoint factor = native::quantize_multiplier(scale);
  double least = std::floor(31 * 0x1p26 / std::ldexp(1.0, factor.shift));
  state->logarithm = node.type == "LogSoftmax";
  state->least = int64_t(std::min(least, 1e9));
  if (state->logarithm)
    state->inverse_factor = native::quantize_multiplier(std::ldexp(1.0, 31 - factor.shift) / double(factor.multiplier));
  for (int below = 0; below < 256; ++below) {
    bool counts = below <= least;
    state->products[below] = native::multiply(-below, factor);
    state->exponentials[below] = counts ? native::exp_of_negative(state->products[below], 5) : 0;
    state->summands[below] = native::rescaled(state->exponentials[below], 0, 12);
  }
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = run_softmax;
  step.max_parts = int(
      std::min<int64_t>(parts_for(builder.settings, double(out.elements()) * cost::kSoftmaxQuantizedNs), state->rows));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = state;
  step.in_place = 0;
  builder.add(std::move(step));
}

}  // namespace

Family softmax_q8_family() {
  Family family;
  family.lowerings = {{"Softmax", "quantized", supports, lower, nullptr},
                      {"LogSoftmax", "quantized", supports, lower, nullptr}};
  return family;
}

}  // namespace cpuacc
