#include "cpuacc/rules.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace cpuacc {

bool is_known(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
}

bool has_unknown_result(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](int tensor) { return tensor >= 0 && !is_known(graph[tensor].shape); });
}

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

int channel_axis(const Node& node, int rank) {
  const std::string_view layout = node.text("data_layout", "NCHW");
  return !layout.empty() && layout.back() == 'C' ? rank - 1 : std::min(1, rank - 1);
}

int axis_or_channels(const Node& node, int rank) {
  return node.has("axis") ? axis_of(node.integer("axis"), rank) : channel_axis(node, rank);
}

Around around(const Shape& shape, int axis) {
  Around sizes{1, shape[size_t(axis)], 1};
  for (int n = 0; n < axis; ++n) sizes.outer *= shape[size_t(n)];
  for (size_t n = size_t(axis) + 1; n < shape.size(); ++n) sizes.inner *= shape[n];
  return sizes;
}

Layout blocked_operand(const Graph& graph, const Node& node) {
  for (int tensor : node.inputs)
    if (tensor >= 0 && is_blocked(graph[tensor].layout)) return graph[tensor].layout;
  return Layout::plain;
}

Shape blocked_shape(const Tensor& tensor) {
  const Shape& s = tensor.shape;
  const int64_t channels = tensor.extent(channel_axis_of(tensor.layout, tensor.rank()));
  const size_t first = tensor.layout == Layout::blocked_nhwc ? 1 : 2, last = first + s.size() - 3;
  const int64_t rows =
      std::accumulate(s.begin() + long(first), s.begin() + long(last), int64_t{1}, std::multiplies<>());
  return {s[0], (channels + kBlock - 1) / kBlock, rows, s[last], kBlock};
}

namespace {

/// The rows of an operand beside volumes. Planes and rows have to broadcast alike to become one axis.
int64_t rows_beside(const Shape& s, size_t first, size_t count) {
  if (count == 1) return s[first];
  return s[first] == 1 && s[first + 1] == 1 ? 1 : -1;
}

/// Return whether the planes and rows of a volume broadcast alike, so that they can be one axis in memory.
bool broadcasts_rows(const Tensor& tensor, const Tensor& out, Layout layout) {
  if (out.rank() == 4) return true;
  const size_t first = layout == Layout::blocked_nhwc ? 1 : 2;
  const bool planes = tensor.shape[first] == out.shape[first], rows = tensor.shape[first + 1] == out.shape[first + 1];
  return (planes && rows) || (tensor.shape[first] == 1 && tensor.shape[first + 1] == 1);
}

}  // namespace

Shape beside_blocked(const Tensor& tensor, Layout layout, int rank) {
  if (tensor.elements() == 1) return {1};
  if (tensor.rank() > rank) return {};
  Shape s(size_t(rank - tensor.rank()), 1);
  s.insert(s.end(), tensor.shape.begin(), tensor.shape.end());
  const size_t first = layout == Layout::blocked_nhwc ? 1 : 2, rows = size_t(rank) - 3;
  const int64_t n = s[0], c = s[size_t(channel_axis_of(layout, rank))], h = rows_beside(s, first, rows),
                w = s[first + rows];
  if (h < 0) return {};
  if (c == 1) return {n, 1, h, w, 1};
  if (c % kBlock == 0 && h == 1 && w == 1) return {n, c / kBlock, 1, 1, kBlock};
  return {};
}

Layouts follow_blocked(const Graph& graph, const Node& node, const Settings&) {
  Layout layout = blocked_operand(graph, node);
  const Tensor& out = graph.out(node);
  if (!is_blocked(layout) || !is_image(out) || !is_f32(out)) return {};
  Layouts wanted;
  wanted.out = {layout};
  const int rank = out.rank(), axis = channel_axis_of(layout, rank);
  int64_t channels = out.extent(axis);
  if (channels == 1) return {};  // a block of a single channel would be mostly padding
  for (int number : node.inputs) {
    const Tensor& tensor = graph[number];
    if (!is_f32(tensor)) return {};
    bool alike = tensor.rank() == rank && tensor.extent(axis) == channels && broadcasts_rows(tensor, out, layout);
    if (!alike && beside_blocked(tensor, layout, rank).empty()) return {};
    wanted.in.push_back(alike ? layout : Layout::plain);
  }
  return wanted;
}

}  // namespace cpuacc
