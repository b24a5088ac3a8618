#include "cpuacc/lower/image_f32.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cpuacc {

const float* pack_bias(const Tensor* bias, int64_t first, int64_t count, Builder& builder) {
  return static_cast<const float*>(builder.pack(uint64_t(blocks_of(count)) * 64, [&](void* to) {
    if (bias) std::memcpy(to, bias->values<float>() + first, size_t(count) * 4);
  }));
}

namespace {

bool are_finite(const Tensor& weights) {
  const UnalignedFloats values = weights.floats();
  const int64_t count = weights.elements();
  bool finite = true;
  for (int64_t n = 0; n < count; ++n) finite &= std::isfinite(values[n]);
  return finite;
}

}  // namespace

bool packed_finite(const Tensor& weights, Builder& builder) {
  auto* finite = static_cast<const int32_t*>(
      builder.pack(sizeof(int32_t), [&](void* to) { *static_cast<int32_t*>(to) = are_finite(weights); }));
  return *finite != 0;
}

Refusal finite_weights(const Graph& graph, const Node& node, const char* because) {
  if (are_finite(*graph.in(node, 1))) return taken();
  return refused(std::string("weights hold infinities or NaNs, ") + because);
}

void append_phase(std::vector<float>& to, const Tensor& weights, bool channels_last, const GroupChannels& group,
                  const TransposedPhase& rows, const TransposedPhase& columns) {
  const WindowShape shape(weights, channels_last);
  const UnalignedFloats values = weights.floats();
  for (int64_t o = 0; o < group.outputs; ++o)
    for (int64_t i = group.first_input; i < group.first_input + group.inputs; ++i)
      for (int64_t y : rows.cells)
        for (int64_t x : columns.cells) {
          const int64_t first = (o * shape.h + y) * shape.w + x,
                        planar = ((o * shape.i + i) * shape.h + y) * shape.w + x;
          to.push_back(values[channels_last ? first * shape.i + i : planar]);
        }
}

Layouts blocked_layouts(const Graph& graph, const Node& node, const Settings&) {
  Layouts layouts;
  layouts.in.assign(node.inputs.size(), Layout::plain);
  layouts.in[0] = blocked(node);
  if (epilogue_of(graph, node).residual >= 0) layouts.in.back() = blocked(node);
  layouts.out = {blocked(node)};
  return layouts;
}

}  // namespace cpuacc
