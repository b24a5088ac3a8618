// The passes that let convolutions read and write images whose pixels are the rows of a matrix, as networks that mix
// attention with convolutions make them: [N, pixels, C] is transposed to [N, C, pixels], and reshaped to [N, C, H, W].
// Where the reshape comes first, the transposition is one between images, which blocked images need no copy for. A
// depthwise convolution between two such transpositions needs neither.

#include <algorithm>

#include "cpuacc/patterns.hpp"

namespace cpuacc {
namespace {

const Shape kSwapped = {0, 2, 1};

/// The permutation of the axes of an image or a volume from channels last to channels first.
Shape to_first(int rank) {
  Shape order = {0, rank - 1};
  for (int axis = 1; axis < rank - 1; ++axis) order.push_back(axis);
  return order;
}

Shape to_last(int rank) {
  Shape order = {0};
  for (int axis = 2; axis < rank; ++axis) order.push_back(axis);
  order.push_back(1);
  return order;
}

bool is_move(const Node& node, std::string_view type) {
  return node.type == type && node.posts.empty() && node.inputs.size() == 1 && node.outputs.size() == 1;
}

bool is_transpose(const Node& node, const Shape& order) {
  return is_move(node, "Transpose") && node.integers("permutation") == order;
}

/// Return whether both are float32, `image` has the shape (N, C, H, W) or (N, C, D, H, W), and `rows` (N, C, pixels).
bool joins_pixels(const Tensor& image, const Tensor& rows) {
  if (!is_f32(image) || !is_f32(rows) || !is_image(image) || rows.rank() != 3) return false;
  if (!is_known(image.shape) || !is_known(rows.shape) || image.elements() == 0) return false;
  return image.shape[0] == rows.shape[0] && image.shape[1] == rows.shape[1];
}

/// Add a tensor for the same image with channels last.
int add_with_channels_last(Graph& graph, int image) {
  const int last = graph.add_tensor(graph[image]);
  Shape& shape = graph[last].shape;
  std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return last;
}

/// A node that transposes `from` to `to`, in the place of another one.
Node transposition(Node node, const Shape& order, int from, int to) {
  for (Value& value : node.attributes)
    if (value.name == "permutation") value.ints = order;
  node.inputs = {from};
  node.outputs = {to};
  return node;
}

Node reshape_between(Node node, int from, int to) {
  node.inputs = {from};
  node.outputs = {to};
  return node;
}

/// Replace a transposition to [N, C, pixels] and a reshape to an image by a reshape and a transposition to the image.
bool reshape_first(Graph& graph, const Node& node) {
  const int next = is_transpose(node, kSwapped) ? only_user(graph, node) : -1;
  if (next < 0) return false;
  const Node& reshape = graph.nodes[size_t(next)];
  if (!is_move(reshape, "Reshape") || !joins_pixels(graph.out(reshape), graph.out(node))) return false;
  const int image = reshape.outputs[0], rows = node.inputs[0], rank = graph[image].rank();
  const int last = add_with_channels_last(graph, image);
  Node first = reshape_between(reshape, rows, last), second = transposition(node, to_first(rank), last, image);
  graph.nodes.replace(node, std::move(first));
  graph.nodes.replace(reshape, std::move(second));
  return true;
}

/// Replace a reshape of an image to [N, C, pixels] and a transposition by a transposition of the image and a reshape.
bool transpose_first(Graph& graph, const Node& node) {
  const int next = is_move(node, "Reshape") ? only_user(graph, node) : -1;
  if (next < 0) return false;
  const Node& transpose = graph.nodes[size_t(next)];
  if (!is_transpose(transpose, kSwapped) || !joins_pixels(*graph.in(node, 0), graph.out(node))) return false;
  const int image = node.inputs[0], rows = transpose.outputs[0], rank = graph[image].rank();
  const int last = add_with_channels_last(graph, image);
  Node first = transposition(transpose, to_last(rank), image, last), second = reshape_between(node, last, rows);
  graph.nodes.replace(node, std::move(first));
  graph.nodes.replace(transpose, std::move(second));
  return true;
}

bool move_reshapes(Graph& graph, const Settings&) {
  bool changed = false;
  for (const Node& node : graph.nodes)
    if (reshape_first(graph, node) || transpose_first(graph, node)) changed = true;
  return changed;
}

/// Return whether a node is a depthwise convolution with channels first, which fill blocks, each computed from the one
/// at its position.
bool convolves_whole_blocks(const Graph& graph, const Node& node) {
  if (node.type != "DepthwiseConvolution2d" || node.text("data_layout") != "NCHW" || !is_f32(graph.out(node)))
    return false;
  const bool has_residual = node.inputs.size() > 3;
  const int64_t channels = graph.out(node).extent(1);
  return !has_residual && graph.in(node, 0)->extent(1) == channels && channels % kBlock == 0;
}

/// Let a depthwise convolution between two transpositions compute images with channels last.
bool leave_channels_last(Graph& graph, const Node& node, const Settings& settings) {
  if (!convolves_whole_blocks(graph, node)) return false;
  const int producer = graph[node.inputs[0]].producer, user = only_user(graph, node);
  if (producer < 0 || user < 0) return false;
  const Node &before = graph.nodes[size_t(producer)], &after = graph.nodes[size_t(user)];
  if (!is_transpose(before, to_first(4)) || !is_transpose(after, to_last(4))) return false;
  Node by = node;
  for (Value& value : by.attributes)
    if (value.name == "data_layout") value.text = "NHWC";
  by.inputs[0] = before.inputs[0];
  by.outputs = after.outputs;
  by.set("acc.rows", 1);
  if (!find_lowering(graph, by, settings)) return false;
  graph.nodes.remove(node);
  graph.nodes.replace(after, std::move(by));
  return true;
}

bool leave_all_channels_last(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (const Node& node : graph.nodes) changed = leave_channels_last(graph, node, settings) || changed;
  return changed;
}

/// Return whether blocks of an image with channels first would be mostly padding.
bool is_mostly_padding(const Tensor& image) {
  return 2 * image.shape[1] < (image.shape[1] + kBlock - 1) / kBlock * kBlock;
}

/// Return whether a node reads all its operands that are `image` as blocked images, given the image's layout.
bool wants_blocked(const Graph& graph, const Node& node, int image, const Settings& settings) {
  const Lowering* lowering = find_lowering(graph, node, settings);
  if (!lowering || !lowering->layouts) return false;
  const Layouts wanted = lowering->layouts(graph, node, settings);
  for (size_t n = 0; n < node.inputs.size(); ++n)
    if (node.inputs[n] == image && (n >= wanted.in.size() || wanted.in[n] != Layout::blocked_nchw)) return false;
  return true;
}

/// Let a transposition to channels first write a blocked image, if all nodes that read it want one. An image of few
/// channels is blocked only for nodes that would block it themselves, such as convolutions.
bool block(Graph& graph, const Node& node, const Settings& settings) {
  const int image = node.type == "Transpose" && node.outputs.size() == 1 ? node.outputs[0] : -1;
  if (image < 0 || graph.is_border(image) || !is_f32(graph[image]) || !is_image(graph[image])) return false;
  if (!is_transpose(node, to_first(graph[image].rank())) || graph.in(node, 0)->is_constant()) return false;
  const std::vector<int> users = graph.users(image);
  if (!is_mostly_padding(graph[image])) graph[image].layout = Layout::blocked_nchw;
  const bool wanted = !users.empty() && std::all_of(users.begin(), users.end(), [&](int user) {
    return wants_blocked(graph, graph.nodes[size_t(user)], image, settings);
  });
  graph[image].layout = Layout::plain;
  if (!wanted) return false;
  Node blocking = node;
  blocking.set("acc.blocks", 1);
  graph.nodes.replace(node, std::move(blocking));
  return true;
}

bool block_images(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (const Node& node : graph.nodes)
    if (block(graph, node, settings)) changed = true;
  return changed;
}

}  // namespace

Family image_moves_family() {
  return {{},
          {{"reshapes of images", move_reshapes},
           {"depthwise rows", leave_all_channels_last},
           {"blocked images", block_images}}};
}

}  // namespace cpuacc
