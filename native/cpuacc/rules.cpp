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

Layout blocked_operand(const Graph& graph, const Node& node) {
  for (int tensor : node.inputs)
    if (tensor >= 0 && is_blocked(graph[tensor].layout)) return graph[tensor].layout;
  return Layout::plain;
}

Shape blocked_shape(const Tensor& tensor) {
  bool last = tensor.layout == Layout::blocked_nhwc;
  const Shape& s = tensor.shape;
  int64_t c = s[last ? 3 : 1];
  return {s[0], (c + kBlock - 1) / kBlock, s[last ? 1 : 2], s[last ? 2 : 3], kBlock};
}

Shape beside_blocked(const Tensor& tensor, Layout layout) {
  if (tensor.elements() == 1) return {1};
  if (tensor.rank() > 4) return {};
  Shape s(size_t(4 - tensor.rank()), 1);
  s.insert(s.end(), tensor.shape.begin(), tensor.shape.end());
  bool last = layout == Layout::blocked_nhwc;
  int64_t n = s[0], c = s[last ? 3 : 1], h = s[last ? 1 : 2], w = s[last ? 2 : 3];
  if (c == 1) return {n, 1, h, w, 1};
  if (c % kBlock == 0 && h == 1 && w == 1) return {n, c / kBlock, 1, 1, kBlock};
  return {};
}

Layouts follow_blocked(const Graph& graph, const Node& node, const Settings&) {
  Layout layout = blocked_operand(graph, node);
  const Tensor& out = graph.out(node);
  if (!is_blocked(layout) || out.rank() != 4 || !is_f32(out)) return {};
  Layouts wanted;
  wanted.out = {layout};
  int64_t channels = out.extent(channel_axis_of(layout));
  if (channels == 1) return {};  // a block of a single channel would be mostly padding
  for (int number : node.inputs) {
    const Tensor& tensor = graph[number];
    if (!is_f32(tensor)) return {};
    bool alike = tensor.rank() == 4 && tensor.extent(channel_axis_of(layout)) == channels;
    if (!alike && beside_blocked(tensor, layout).empty()) return {};
    wanted.in.push_back(alike ? layout : Layout::plain);
  }
  return wanted;
}

}  // namespace cpuacc
