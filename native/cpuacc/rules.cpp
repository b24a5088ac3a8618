#include "cpuacc/rules.hpp"

namespace cpuacc {

std::string described(const Tensor& tensor) {
  std::string text(ipr::dtype_name(tensor.dtype));
  if (tensor.has_axis()) return text + " quantized along an axis";
  return tensor.is_quantized() ? text + " with a scale" : text;
}

Refusal all_f32(const Graph& graph, const Node& node) {
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    const Tensor* operand = graph.in(node, n);
    if (operand && !is_f32(*operand))
      return refused("operand " + std::to_string(n) + " is " + described(*operand) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  }
  for (int tensor : node.outputs)
    if (!is_f32(graph[tensor]))
      return refused("the result is " + described(graph[tensor]) + "; takes float32", IPR_REASON_DATA_TYPE);
  return taken();
}

Around around(const Shape& shape, int axis) {
  Around found{1, shape[size_t(axis)], 1};
  for (int n = 0; n < axis; ++n) found.outer *= shape[size_t(n)];
  for (size_t n = size_t(axis) + 1; n < shape.size(); ++n) found.inner *= shape[n];
  return found;
}

}  // namespace cpuacc
