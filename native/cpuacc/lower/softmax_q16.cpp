// Softmax of int16 with the result that TFLite prescribes, in steps of 2**-15. The exponentials of the 2**16 possible
// distances from the maximum of a row are looked up; reciprocals are interpolated in a table.

#include <algorithm>
#include <cmath>

#include "common/fixed_point.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kSegments = 512, kDistances = 1 << 16;
constexpr int64_t kLongestRow = 65535;  // the exponentials of longer rows may not fit into 32 bits

int64_t saturated16(double x) { return int64_t(std::clamp(x, -32768.0, 32767.0)); }

/// A function at 513 points from `low` to `high`, in steps of 2**-15. Each point is shifted by half the error of the
/// interpolation between it and the next.
template <class Function>
std::vector<int16_t> interpolation_table(const Function& function, double low, double high) {
  const double width = (high - low) / double(kSegments), one = 32768;
  std::vector<int16_t> table;
  for (int64_t n = 0; n < kSegments; ++n) {
    const double point = low + double(n) * width;
    const double sample = native::round_half_away(function(point) * one);
    const double next = function(low + double(n + 1) * width) * one;
    const double middle = native::round_half_away((next + sample) / 2);
    const double error = middle - native::round_half_away(function(point + width / 2) * one);
    table.push_back(int16_t(saturated16(sample - native::round_half_away(error / 2))));
  }
  table.push_back(int16_t(saturated16(native::round_half_away(function(high) * one))));
  return table;
}

/// Interpolate in a table over the range of 16 bits.
int64_t interpolated(const int16_t* table, int64_t x) {
  const int64_t index = 256 + (x >> 7), low = table[index];
  return low + (((table[index + 1] - low) * (x & 127) + 64) >> 7);
}

struct Probabilities {
  const int16_t* exponentials;  // by the distance from the maximum
  const int16_t* reciprocals;   // of 1 + x
  Around at;

  void row(const int16_t* in, int16_t* out) const {
    const int64_t step = at.inner;
    int32_t most = in[0];
    for (int64_t n = 1; n < at.extent; ++n) most = std::max<int32_t>(most, in[n * step]);
    int64_t total = 0;
    for (int64_t n = 0; n < at.extent; ++n) total += exponentials[most - in[n * step]];
    const int zeros = native::leading_zeros(total);
    const int64_t mantissa = ((total << (zeros - 1)) + (1 << 13)) >> 14;
    const int64_t inverse = interpolated(reciprocals, std::clamp<int64_t>(mantissa - 3 * 32768, -32768, 32767));
    const int shift = 31 - zeros;
    const int64_t half = int64_t(1) << (shift - 1);
    for (int64_t n = 0; n < at.extent; ++n) {
      const int64_t probability = (exponentials[most - in[n * step]] * inverse + half) >> shift;
      out[n * step] = int16_t(std::clamp<int64_t>(probability, 0, 32767));
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Probabilities& self = step.as<Probabilities>();
    const Range range = split(self.at.outer * self.at.inner, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t at = n / self.at.inner * self.at.extent * self.at.inner + n % self.at.inner;
      self.row(run.at<int16_t>(step.in[0]) + at, run.at<int16_t>(step.out[0]) + at);
    }
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (in.dtype != IPR_DTYPE_INT16 || !in.is_quantized() || in.has_axis())
    return refused("operand 0 is " + described(in) + "; takes int16 with a scale", IPR_REASON_DATA_TYPE);
  if (out.dtype != IPR_DTYPE_INT16 || !out.is_quantized() || out.has_axis() || out.scale() != 1.0 / 32768 ||
      out.zero_point() != 0)
    return refused("the scale of the result is not 1/32768, or its zero point is not 0", IPR_REASON_QUANTIZATION);
  if (node.number("beta", 1) < 0) return refused("beta is negative", IPR_REASON_ATTRIBUTE);
  if (out.extent(axis_of(node.integer("axis", -1), out.rank())) > kLongestRow)
    return refused("rows have more than " + std::to_string(kLongestRow) + " elements", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

/// The exponentials of all distances from the maximum of a row.
const int16_t* pack_exponentials(const Node& node, Builder& builder) {
  const double scale = builder.graph.in(node, 0)->scale() * node.number("beta", 1) / (10.0 / 65535);
  const native::FixedPoint factor = native::quantize_multiplier(scale);
  return static_cast<const int16_t*>(builder.pack(kDistances * sizeof(int16_t), [&](void* to) {
    const std::vector<int16_t> table = interpolation_table([](double x) { return std::exp(x); }, -10, 0);
    for (int64_t below = 0; below < kDistances; ++below) {
      const int64_t scaled = native::multiply(-below, factor) + 32767;
      static_cast<int16_t*>(to)[below] =
          int16_t(interpolated(table.data(), std::clamp<int64_t>(scaled, -32768, 32767)));
    }
  }));
}

void lower(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  if (out.elements() == 0) return;
  auto state = std::make_shared<Probabilities>();
  state->at = around(out.shape, axis_of(node.integer("axis", -1), out.rank()));
  state->exponentials = pack_exponentials(node, builder);
  state->reciprocals = static_cast<const int16_t*>(builder.pack((kSegments + 1) * sizeof(int16_t), [](void* to) {
    const std::vector<int16_t> table = interpolation_table([](double x) { return 1 / (1 + x); }, 0, 1);
    std::copy(table.begin(), table.end(), static_cast<int16_t*>(to));
  }));
  Step step;
  step.name = "Softmax " + node.name;
  step.fn = &Probabilities::run;
  step.max_parts =
      int(std::min<int64_t>(parts_for(builder.settings, double(out.elements()) * cost::kSoftmaxQuantizedNs),
                            state->at.outer * state->at.inner));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family softmax_q16_family() { return {{{"Softmax", "int16", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
