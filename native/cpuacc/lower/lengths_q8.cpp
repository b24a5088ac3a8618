// L2Normalization of quantized values of 8 bits, whose result has the quantization that TFLite prescribes: steps of
// 1/128. The scale of the operand cancels in the quotient, so that the integers are divided by their length.

#include <algorithm>

#include "common/fixed_point16.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"

namespace cpuacc {
namespace {

/// The inverse of a length, times the 128 steps of 1. The reference multiplies the distances of uint8 by 128 first, and
/// the factor of int8.
Q8Factor factor_of(int32_t sum_of_squares, bool is_signed) {
  const native::FixedPoint inverse = native::inverse_sqrt(sum_of_squares);
  const int shift = is_signed ? inverse.shift + 7 : inverse.shift;
  return {is_signed ? std::max(shift, 0) : 7, int32_t(inverse.multiplier >> 15), int32_t(inverse.multiplier & 0x7fff),
          std::max(-shift, 0)};
}

struct Lengths {
  const ElementwiseQ8Kernels* kernels;
  Around at;
  uint32_t flip;
  int32_t zero_point;

  void row(const uint8_t* from, uint8_t* to) const {
    const Q8Factor factor = factor_of(kernels->sum_squares(from, at.extent, flip, zero_point), flip != 0);
    kernels->scale(from, to, at.extent, flip, zero_point, factor);
  }

  /// Normalize elements that are `at.inner` bytes apart.
  void column(const uint8_t* from, uint8_t* to, uint8_t* scratch) const {
    for (int64_t n = 0; n < at.extent; ++n) scratch[n] = from[n * at.inner];
    row(scratch, scratch);
    for (int64_t n = 0; n < at.extent; ++n) to[n * at.inner] = scratch[n];
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Lengths& self = step.as<Lengths>();
    const Around& at = self.at;
    const Range range = split(at.outer * at.inner, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t first = n / at.inner * at.extent * at.inner + n % at.inner;
      const uint8_t* from = run.at<uint8_t>(step.in[0]) + first;
      uint8_t* to = run.at<uint8_t>(step.out[0]) + first;
      at.inner == 1 ? self.row(from, to) : self.column(from, to, run.part_scratch<uint8_t>(part));
    }
  }
};

constexpr int64_t kLongestRow = int64_t(1) << 15;  // squares of up to 16 bits, whose sum has 31 bits

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!has_one_scale(in) || !has_one_scale(out) || in.dtype != out.dtype || !node.posts.empty())
    return refused("takes quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  if (out.scale() != 1.0 / 128 || unsigned_zero(out) != 128)
    return refused("the scale of the result is not 1/128, or its zero point is not the middle value",
                   IPR_REASON_QUANTIZATION);
  if (out.extent(axis_or_channels(node, out.rank())) > kLongestRow)
    return refused("rows have more than " + std::to_string(kLongestRow) + " elements", IPR_REASON_SHAPE);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  if (in.elements() == 0) return;
  auto state = std::make_shared<Lengths>();
  state->kernels = &elementwise_q8_kernels_for(builder.settings.isa);
  state->at = around(in.shape, axis_or_channels(node, in.rank()));
  state->flip = flip_of(in), state->zero_point = unsigned_zero(in);
  Step step;
  step.name = "L2Normalization " + node.name;
  step.fn = &Lengths::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kUnitLengthNs);
  step.scratch_per_part = state->at.inner == 1 ? 0 : uint64_t(state->at.extent);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family lengths_q8_family() { return {{{"L2Normalization", "quantized", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
