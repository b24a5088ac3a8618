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
  const float* values = weights.values<float>();
  return std::all_of(values, values + weights.elements(), [](float value) { return std::isfinite(value); });
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

Layouts blocked_layouts(const Graph& graph, const Node& node, const Settings&) {
  Layouts found;
  found.in.assign(node.inputs.size(), Layout::plain);
  found.in[0] = blocked(node);
  if (epilogue_of(graph, node).residual >= 0) found.in.back() = blocked(node);
  found.out = {blocked(node)};
  return found;
}

}  // namespace cpuacc
