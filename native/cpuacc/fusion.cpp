// Work on results that is fused into the nodes which give them: activation functions, and the addition of another
// tensor. The lowering that would take the node is asked each time.

#include <algorithm>

#include "cpuacc/lowering.hpp"

namespace cpuacc {
namespace {

/// The node that alone reads the only result of a node; -1 where there is none.
int only_user(const Graph& graph, const Node& node) {
  if (node.type.empty() || node.outputs.size() != 1 || graph.is_border(node.outputs[0])) return -1;
  std::vector<int> users = graph.users(node.outputs[0]);
  return users.size() == 1 ? users[0] : -1;
}

bool is_addition(const Node& node) {
  return node.type == "Addition" || (node.type == "ElementwiseBinary" && node.text("operation") == "ADD");
}

/// A node that is only an activation function or an addition, as work on the result `of` another one.
bool post_of(const Graph& graph, const Node& node, int of, Post& post) {
  if (!node.posts.empty() || node.outputs.size() != 1) return false;
  post.through = of;
  if (node.type == "Activation") {
    post.function = std::string(node.text("function"));
    post.a = node.number("a");
    post.b = node.number("b");
    return true;
  }
  if (!is_addition(node)) return false;
  post.kind = Post::add;
  post.tensor = node.inputs[0] == of ? node.inputs[1] : node.inputs[0];
  return graph[post.tensor].shape == graph.out(node).shape && graph[of].shape == graph.out(node).shape;
}

/// Fuses the node behind another one into it, where its lowering can do both.
bool fuse_next(Graph& graph, Node& node, const Settings& settings) {
  int next = only_user(graph, node);
  Post post;
  if (next < 0 || !post_of(graph, graph.nodes[size_t(next)], node.outputs[0], post)) return false;
  Node fused = node;
  fused.posts.push_back(post);
  if (post.kind == Post::add) fused.inputs.push_back(post.tensor);
  fused.outputs = graph.nodes[size_t(next)].outputs;
  if (!find_lowering(graph, fused, settings)) return false;
  node = std::move(fused);
  graph.nodes[size_t(next)] = Node();
  return true;
}

bool fuse_posts(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (Node& node : graph.nodes)
    while (fuse_next(graph, node, settings)) changed = true;
  return changed;
}

}  // namespace

Family fusion_family() {
  Family family;
  family.passes = {{"posts", fuse_posts}};
  return family;
}

}  // namespace cpuacc
