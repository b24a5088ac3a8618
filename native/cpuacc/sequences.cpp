// The pass that lets one-dimensional convolutions and the layers between them compute on blocked images. Convolutions
// of sequences (N, C, L) are convolutions of images (N, C, 1, L) between two reshapes. The reshape after a convolution
// moves after the layers that treat elements or channels alike, until it meets the reshape before the next
// convolution.

#include <algorithm>
#include <utility>

#include "cpuacc/patterns.hpp"

namespace cpuacc {
namespace {

Shape image_shape(Shape shape) {
  shape.insert(shape.end() - 1, 1);
  return shape;
}

/// Return whether a tensor is a sequence, or broadcasts with one.
bool is_sequence(const Tensor& tensor) {
  return is_f32(tensor) && tensor.rank() == 3 && is_known(tensor.shape) && tensor.elements() > 0;
}

/// The image that a reshape turned to a sequence; -1 if there is none.
int image_of(const Graph& graph, int tensor) {
  const int producer = tensor < 0 ? -1 : graph[tensor].producer;
  if (producer < 0 || !is_sequence(graph[tensor])) return -1;
  const Node& node = graph.nodes[size_t(producer)];
  const bool is_move = node.type == "Reshape" && node.posts.empty() && node.inputs.size() == 1;
  return is_move && graph.in(node, 0)->shape == image_shape(graph[tensor].shape) ? int(node.inputs[0]) : -1;
}

bool is_channels_first(const Node& node) { return channel_axis(node, 3) == 1; }

/// Return whether a layer computes the same on images of one row. `by_channel` becomes whether its further operands
/// have one element for each channel, whatever their shape.
bool is_alike(const Node& node, bool* by_channel) {
  const char* elementwise[] = {"ElementwiseBinary", "Addition", "Subtraction",      "Multiplication", "Division",
                               "Maximum",           "Minimum",  "ElementwiseUnary", "Activation",     "Prelu"};
  const char* normalizations[] = {"GroupNormalization", "InstanceNormalization", "BatchNormalization"};
  auto is_of = [&](const char* type) { return node.type == type; };
  *by_channel = std::any_of(std::begin(normalizations), std::end(normalizations), is_of);
  if (!node.posts.empty() || node.outputs.size() != 1) return false;
  return *by_channel ? is_channels_first(node) : std::any_of(std::begin(elementwise), std::end(elementwise), is_of);
}

/// Lets layers compute on images of one row.
class Images {
 public:
  explicit Images(Graph& graph) : graph_(graph) {}

  /// Move reshapes after all layers that directly follow them. Return whether there were any.
  bool advance() {
    bool changed = false;
    for (const Node& node : graph_.nodes)
      if (joins(node) || turns(node)) changed = true;
    for (Node& node : added_) graph_.nodes.push_back(std::move(node));
    added_.clear();
    return changed;
  }

 private:
  /// Drop the reshape of a sequence to an image that exists.
  bool joins(const Node& node) {
    if (node.type != "Reshape" || !node.posts.empty() || node.inputs.size() != 1) return false;
    const int image = image_of(graph_, node.inputs[0]), same = node.outputs[0];
    if (image < 0 || graph_.is_border(same) || graph_[same].shape != graph_[image].shape) return false;
    const std::vector<int> users = graph_.users(same);
    for (int user : users) {
      Node reader = graph_.nodes[size_t(user)];
      std::replace(reader.inputs.begin(), reader.inputs.end(), same, image);
      for (Post& post : reader.posts)
        if (post.tensor == same) post.tensor = image;
      graph_.nodes.replace(graph_.nodes[size_t(user)], std::move(reader));
    }
    return !users.empty();
  }

  /// Let a layer compute on images, of which at least one exists.
  bool turns(const Node& node) {
    bool by_channel = false;
    if (!is_alike(node, &by_channel) || !is_sequence(graph_.out(node))) return false;
    const size_t operands = by_channel ? 1 : node.inputs.size();
    bool any = false;
    for (size_t n = 0; n < operands; ++n) {
      if (!takes(node.inputs[n])) return false;
      any = any || image_of(graph_, node.inputs[n]) >= 0;
    }
    if (any) turn(node, operands);
    return any;
  }

  /// Return whether an operand can be one of an image.
  bool takes(int tensor) const {
    if (tensor < 0 || !is_f32(graph_[tensor])) return false;
    return is_sequence(graph_[tensor]) || graph_[tensor].is_constant();
  }

  void turn(const Node& node, size_t operands) {
    Node turned = node;
    const int sequence = node.outputs[0];
    for (size_t n = 0; n < operands; ++n) turned.inputs[n] = as_image(node, node.inputs[n]);
    turned.outputs = {add_image(sequence)};
    added_.push_back(reshape(node, turned.outputs[0], sequence));
    graph_.nodes.replace(node, std::move(turned));
  }

  int as_image(const Node& node, int tensor) {
    if (graph_[tensor].rank() < 2) return tensor;
    if (const int image = image_of(graph_, tensor); image >= 0) return image;
    const int image = add_image(tensor);
    if (!graph_[tensor].is_constant()) added_.push_back(reshape(node, tensor, image));
    return image;
  }

  int add_image(int sequence) {
    const int image = graph_.add_tensor(graph_[sequence]);
    graph_[image].shape = image_shape(graph_[image].shape);
    return image;
  }

  static Node reshape(const Node& like, int from, int to) {
    Node node;
    node.type = "Reshape";
    node.name = like.name;
    node.layer = like.layer;
    node.inputs = {from};
    node.outputs = {to};
    return node;
  }

  Graph& graph_;
  std::vector<Node> added_;
};

bool make_images(Graph& graph, const Settings&) {
  bool changed = false;
  while (Images(graph).advance()) {
    changed = true;
    graph.index();
  }
  return changed;
}

}  // namespace

Family sequences_family() { return {{}, {{"sequences as images", make_images}}}; }

}  // namespace cpuacc
