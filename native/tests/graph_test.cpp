// Graphs: who reads a tensor, also after passes changed operands, and the order of nodes.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cpuacc/graph.hpp"

namespace cpuacc {
namespace {

Node node_of(std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
  Node node;
  node.type = "Activation";
  node.inputs = inputs;
  node.outputs = outputs;
  return node;
}

/// A chain of nodes: node n reads tensor n and writes tensor n + 1.
Graph chain(int count) {
  Graph graph;
  graph.tensors.resize(size_t(count) + 1);
  for (int n = 0; n < count; ++n) graph.nodes.push_back(node_of({n}, {n + 1}));
  graph.inputs = {0};
  graph.outputs = {count};
  graph.index();
  return graph;
}

/// The users of a tensor by a search through all nodes.
std::vector<int> searched(const Graph& graph, int tensor) {
  std::vector<int> found;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (int input : graph.nodes[n].inputs)
      if (input == tensor && !graph.nodes[n].type.empty()) found.push_back(int(n));
  return found;
}

void expect_all_users(const Graph& graph) {
  for (size_t n = 0; n < graph.tensors.size(); ++n) EXPECT_EQ(graph.users(int(n)), searched(graph, int(n))) << n;
}

/// A constant of three numbers, `shift` bytes after an aligned address.
struct Constant {
  explicit Constant(size_t shift) : bytes(16 + shift) {
    const float values[] = {1, 2, 3};
    std::memcpy(bytes.data() + shift, values, sizeof values);
    tensor.shape = {3};
    tensor.data = bytes.data() + shift;
  }

  std::vector<char> bytes;
  Tensor tensor;
};

TEST(Tensor, reads_constants_at_any_address) {
  for (size_t shift : {0, 1, 2, 3, 4, 5}) {
    Constant constant(shift);
    const float* values = constant.tensor.values<float>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(values) % alignof(float), 0u);
    EXPECT_EQ(std::vector<float>(values, values + 3), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(constant.tensor.floats()[2], 3);
    EXPECT_EQ((constant.tensor.floats() + 1)[0], 2);
    EXPECT_EQ(values == constant.tensor.data, shift % 4 == 0);
  }
}

TEST(Tensor, copies_an_unaligned_constant_once_and_again_if_its_data_is_replaced) {
  Constant constant(1), other(3);
  const float* values = constant.tensor.values<float>();
  EXPECT_EQ(constant.tensor.values<float>(), values);
  other.bytes[3] = 9;
  constant.tensor.data = other.tensor.data;
  EXPECT_EQ(std::memcmp(constant.tensor.values<float>(), other.tensor.data, 12), 0);
}

TEST(Tensor, is_mapped_until_its_data_is_replaced) {
  Constant constant(0);
  EXPECT_FALSE(constant.tensor.is_mapped());
  constant.tensor.file = constant.tensor.data;
  Tensor copy = constant.tensor;
  EXPECT_TRUE(copy.is_mapped());
  copy.data = nullptr;
  EXPECT_FALSE(copy.is_mapped());
  copy.data = constant.bytes.data() + 4;
  EXPECT_FALSE(copy.is_mapped());
}

TEST(Graph, lists_users_once_for_each_operand) {
  Graph graph = chain(3);
  graph.nodes.replace(graph.nodes[1], node_of({1, 1, -1}, {2}));
  graph.index();
  EXPECT_EQ(graph.users(1), (std::vector<int>{1, 1}));
  EXPECT_EQ(graph.users(3), std::vector<int>());
}

TEST(Graph, finds_users_after_nodes_were_changed_in_every_way) {
  using Change = void (*)(Graph&);
  const Change changes[] = {
      [](Graph& graph) { graph.nodes.replace(graph.nodes[5], node_of({2}, {6})); },
      [](Graph& graph) {
        graph.nodes.replace(graph.nodes[5], node_of({2, 4}, {6}));
      },
      [](Graph& graph) { graph.nodes.replace(graph.nodes[5], Node(graph.nodes[2])); },
      [](Graph& graph) { graph.nodes.replace(graph.nodes[2], Node()); },
      [](Graph& graph) { graph.nodes.remove(graph.nodes[2]); },
      [](Graph& graph) { graph.nodes.push_back(node_of({2}, {9})); },
      [](Graph& graph) { graph.nodes.truncate(3); },
      [](Graph& graph) {
        graph.nodes.truncate(3);
        for (int n = 0; n < 4; ++n) graph.nodes.push_back(node_of({7 - n}, {9}));
      },
      [](Graph& graph) { graph.nodes.take(); },
      [](Graph& graph) {
        std::vector<Node> nodes = graph.nodes.take();
        std::swap(nodes[5], nodes[2]);
        for (Node& node : nodes) graph.nodes.push_back(std::move(node));
      },
      [](Graph& graph) { graph.nodes = Nodes({node_of({3}, {4})}); },
  };
  for (const Change change : changes) {
    Graph graph = chain(8);
    expect_all_users(graph);
    change(graph);
    expect_all_users(graph);
    graph.note_readers();
    expect_all_users(graph);
  }
}

TEST(Graph, finds_users_of_several_graphs_and_of_copies) {
  Graph first = chain(4), second = chain(6), copy = first;
  copy.nodes.replace(copy.nodes[2], node_of({0}, {3}));
  first.nodes.replace(first.nodes[3], node_of({1}, {4}));
  for (const Graph* graph : {&first, &second, &copy}) expect_all_users(*graph);
}

TEST(Graph, sorts_nodes_and_drops_those_that_are_not_needed) {
  Graph graph;
  graph.tensors.resize(6);
  graph.nodes =
      Nodes({node_of({2, 1}, {3}), node_of({1}, {2}), node_of({0}, {1}), node_of({0}, {4}), node_of({0}, {5})});
  graph.nodes.remove(graph.nodes[4]);
  graph.inputs = {0};
  graph.outputs = {3};
  graph.index();
  ASSERT_EQ(graph.nodes.size(), 3u);
  for (int n = 0; n < 3; ++n) EXPECT_EQ(graph.nodes[size_t(n)].outputs[0], n + 1);
  for (int n = 1; n < 4; ++n) EXPECT_EQ(graph[n].producer, n - 1);
  EXPECT_EQ(graph[4].producer, -1);
  expect_all_users(graph);
}

}  // namespace
}  // namespace cpuacc
