// Fusion of post-ops: activation functions, and additions of or products with another tensor become part of the node
// that produces their operand. Each fusion is accepted only if the lowering of the node supports it.

#include <algorithm>

#include "cpuacc/patterns.hpp"

namespace cpuacc {
namespace {

/// Describe a node that is an activation function, an addition or a product as a post-op on tensor `of`. Return false
/// for other nodes.
bool post_of(const Graph& graph, const Node& node, int of, Post& post) {
  if (!node.posts.empty() || node.outputs.size() != 1) return false;
  post.through = of;
  post.to_even = node.text("requantization") == "HALF_TO_EVEN";
  if (node.type == "Activation") {
    post.function = std::string(node.text("function"));
    post.a = node.number("a");
    post.b = node.number("b");
    return true;
  }
  const bool multiplies = is_operation(node, "Multiplication", "MUL");
  if (!multiplies && !is_operation(node, "Addition", "ADD")) return false;
  post.kind = multiplies ? Post::multiply : Post::add;
  post.tensor = node.inputs[0] == of ? node.inputs[1] : node.inputs[0];
  if (graph[of].shape != graph.out(node).shape) return false;
  const Tensor& other = graph[post.tensor];  // lowerings of quantized layers accept a row, or refuse the post-op
  return other.shape == graph.out(node).shape || (is_quantized8(other) && is_row(other, graph.out(node)));
}

/// Fuse the consumer of a node into the node if its lowering supports both.
bool fuse_next(Graph& graph, const Node& node, const Settings& settings) {
  int next = only_user(graph, node);
  Post post;
  if (next < 0 || !post_of(graph, graph.nodes[size_t(next)], node.outputs[0], post)) return false;
  Node fused = node;
  fused.posts.push_back(post);
  if (post.has_operand()) fused.inputs.push_back(post.tensor);
  fused.outputs = graph.nodes[size_t(next)].outputs;
  if (!find_lowering(graph, fused, settings)) return false;
  graph.nodes.replace(node, std::move(fused));
  graph.nodes.replace(graph.nodes[size_t(next)], Node());
  return true;
}

/// Return whether a node only moves the elements of its operand.
bool moves(const Node& node) {
  return (node.type == "Reshape" || node.type == "Transpose" || node.type == "Permute") && node.posts.empty() &&
         node.inputs.size() == 1;
}

/// Fuse an activation function into a float node if only nodes that move elements are between them.
bool fuse_past_moves(Graph& graph, const Node& node, const Settings& settings) {
  int last = -1, next = moves(node) ? -1 : only_user(graph, node);
  for (; next >= 0 && moves(graph.nodes[size_t(next)]); next = only_user(graph, graph.nodes[size_t(next)])) last = next;
  if (last < 0 || next < 0 || graph.nodes[size_t(next)].type != "Activation") return false;
  Post post;
  const Node& function = graph.nodes[size_t(next)];
  if (!is_f32(graph.out(node)) || !is_f32(graph.out(function)) || !post_of(graph, function, node.outputs[0], post))
    return false;
  Node fused = node, move = graph.nodes[size_t(last)];
  fused.posts.push_back(post);
  if (!find_lowering(graph, fused, settings)) return false;
  move.outputs = function.outputs;
  graph.nodes.replace(node, std::move(fused));
  graph.nodes.replace(graph.nodes[size_t(last)], std::move(move));
  graph.nodes.replace(function, Node());
  return true;
}

bool fuse_posts(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (const Node& node : graph.nodes)
    while (fuse_next(graph, node, settings) || fuse_past_moves(graph, node, settings)) changed = true;
  return changed;
}

}  // namespace

Family fusion_family() {
  Family family;
  family.passes = {{"posts", fuse_posts}};
  return family;
}

}  // namespace cpuacc
