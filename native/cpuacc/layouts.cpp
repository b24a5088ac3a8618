// The pass that chooses the memory layout of each tensor, and inserts conversions between regions of different layouts.

#include <algorithm>
#include <map>

#include "cpuacc/lowering.hpp"

namespace cpuacc {
namespace {

class Chooser {
 public:
  Chooser(Graph& graph, const Settings& settings) : graph_(graph), settings_(settings) {}

  void run() {
    std::vector<Node> old = graph_.nodes.take();
    for (Node& node : old) {
      prefer_blocked(node);
      Layouts wanted = wanted_by(node);
      for (size_t n = 0; n < node.inputs.size(); ++n)
        if (node.inputs[n] >= 0) node.inputs[n] = version(node.inputs[n], at(wanted.in, n));
      for (Post& post : node.posts)
        if (post.has_operand()) post.tensor = node.inputs.back();
      std::vector<int> wanted_plain = node.outputs;
      for (size_t n = 0; n < node.outputs.size(); ++n) node.outputs[n] = result(node.outputs[n], at(wanted.out, n));
      std::vector<int> computed = node.outputs;
      graph_.nodes.push_back(std::move(node));
      for (size_t n = 0; n < computed.size(); ++n)  // tensors at the border are plain
        if (computed[n] != wanted_plain[n]) convert(computed[n], wanted_plain[n]);
    }
  }

 private:
  static Layout at(const std::vector<Layout>& layouts, size_t n) {
    return n < layouts.size() ? layouts[n] : Layout::plain;
  }

  /// Let operands refer to their blocked version if it exists. Constants remain as they are: a kernel is chosen by
  /// which of its operands are constant, and a blocked version is computed by a step.
  void prefer_blocked(Node& node) {
    for (int& tensor : node.inputs) {
      if (tensor < 0 || graph_[original(tensor)].data) continue;
      for (Layout layout : {Layout::blocked_nchw, Layout::blocked_nhwc}) {
        auto entry = versions_.find({original(tensor), layout});
        if (entry != versions_.end()) tensor = entry->second;
      }
    }
    for (Post& post : node.posts)
      if (post.has_operand()) post.tensor = node.inputs.back();
  }

  Layouts wanted_by(const Node& node) const {
    const Lowering* lowering = find_lowering(graph_, node, settings_);
    return lowering && lowering->layouts ? lowering->layouts(graph_, node, settings_) : Layouts();
  }

  int original(int tensor) const {
    auto found = originals_.find(tensor);
    return found == originals_.end() ? tensor : found->second;
  }

  /// The version of a tensor in a layout; inserts a conversion if it does not exist.
  int version(int tensor, Layout layout) {
    int first = original(tensor);
    if (graph_[first].layout == layout) return first;
    auto entry = versions_.find({first, layout});
    if (entry != versions_.end()) return entry->second;
    if (is_blocked(graph_[tensor].layout) && is_blocked(layout)) tensor = version(tensor, Layout::plain);
    int converted = graph_.add_tensor(graph_[first]);
    graph_[converted].layout = layout;
    graph_[converted].data = nullptr;
    graph_[converted].owner = nullptr;
    convert(tensor, converted);
    remember(first, layout, converted);
    return converted;
  }

  /// The tensor to which a node writes a result: the tensor itself, or a blocked version if the tensor is at the
  /// border.
  int result(int tensor, Layout layout) {
    if (!is_blocked(layout)) return tensor;
    bool border = std::find(graph_.outputs.begin(), graph_.outputs.end(), tensor) != graph_.outputs.end();
    if (!border) {
      graph_[tensor].layout = layout;
      return tensor;
    }
    int computed = graph_.add_tensor(graph_[tensor]);
    graph_[computed].layout = layout;
    remember(tensor, layout, computed);
    return computed;
  }

  void remember(int first, Layout layout, int made) {
    versions_[{first, layout}] = made;
    originals_[made] = first;
  }

  void convert(int from, int to) {
    Node node;
    node.type = "acc.Reorder";
    node.name = graph_[from].name;
    node.inputs = {from};
    node.outputs = {to};
    graph_.nodes.push_back(std::move(node));
  }

  Graph& graph_;
  const Settings& settings_;
  std::map<std::pair<int, Layout>, int> versions_;
  std::map<int, int> originals_;
};

bool choose_layouts(Graph& graph, const Settings& settings) {
  bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const Lowering* lowering = find_lowering(graph, node, settings);
    return lowering && lowering->layouts;
  });
  if (any) Chooser(graph, settings).run();
  return any;
}

}  // namespace

Family layouts_family() { return {{}, {{"layouts", choose_layouts}}}; }

}  // namespace cpuacc
