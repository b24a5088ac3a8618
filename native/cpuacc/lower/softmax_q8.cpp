// Quantized Softmax with the output quantization that TFLite prescribes: steps of 1/256, beginning with the lowest
// value. The exponentials of the 256 possible distances from the maximum of a row are looked up.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"

namespace cpuacc {
namespace {

struct State {
  int64_t exponentials[256], summands[256];  // by the distance from the maximum
  int64_t rows, inner, extent;               // of an axis whose elements are `inner` apart
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

void run_row(const State& s, Row row) {
  int most = 0;
  for (int64_t n = 0; n < s.extent; ++n) most = std::max(most, int(row.from[n * s.inner] ^ s.flip));
  int64_t total = 0;
  for (int64_t n = 0; n < s.extent; ++n) total += s.summands[most - (row.from[n * s.inner] ^ s.flip)];
  auto [inverse, exponent] = native::reciprocal(total, 12);
  bool tabulates = s.extent > 256;
  uint8_t codes[256];
  for (int below = 0; tabulates && below <= most; ++below) codes[below] = code_of(s, below, inverse, exponent);
  for (int64_t n = 0; n < s.extent; ++n) {
    int below = most - (row.from[n * s.inner] ^ s.flip);
    row.to[n * s.inner] = uint8_t((tabulates ? codes[below] : code_of(s, below, inverse, exponent)) ^ s.flip);
  }
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
  if (out.scale() != 1.0 / 256 || unsigned_zero(out) != 0)
    return refused("the scale of the result is not 1/256, or its zero point is not the lowest value",
                   IPR_REASON_QUANTIZATION);
  if (node.number("beta") < 0) return refused("beta is negative", IPR_REASON_ATTRIBUTE);
  if (out.extent(axis_of(node.integer("axis"), out.rank())) > kLongestRow)
    return refused("rows have more than " + std::to_string(kLongestRow) + " elements", IPR_REASON_SHAPE);
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
  for (int below = 0; below < 256; ++below) {
    bool counts = below <= least;
    state->exponentials[below] = counts ? native::exp_of_negative(native::multiply(-below, factor), 5) : 0;
    state->summands[below] = native::rescaled(state->exponentials[below], 0, 12);
  }
  Step step;
  step.name = "Softmax " + node.name;
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
  family.lowerings = {{"Softmax", "quantized", supports, lower, nullptr}};
  return family;
}

}  // namespace cpuacc
