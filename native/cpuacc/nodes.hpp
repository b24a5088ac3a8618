// The nodes of a graph, and a table of the nodes that read each tensor.
//
// Passes change nodes in many places, and ask who reads a tensor in between. All changes go through the methods of
// `Nodes`, which record the tensors that gain readers, so that the table remains valid for all other tensors.

#ifndef CPUACC_NODES_HPP
#define CPUACC_NODES_HPP

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "interposer/backend.hpp"

namespace cpuacc {

/// A post-op that was fused into a node; post-ops are applied in order.
struct Post {
  enum Kind { activation, add, multiply } kind = activation;
  std::string function;  // activation: the attribute "function" of Activation ("ReLu", "BoundedReLu" ...)
  double a = 0, b = 0;   // activation: its parameters
  int tensor = -1;       // add, multiply: the other operand, which has the shape of the result and is also the last of
                         // Node::inputs
  int through = -1;      // the tensor between this post-op and the previous operation, whose quantization matters
  bool to_even = false;  // quantized results are rounded half to even

  bool has_operand() const { return kind != activation; }
};

/// An attribute of a node.
struct Value {
  std::string name;
  int32_t kind = IPR_KIND_NONE;
  int64_t i = 0;
  double f = 0;
  std::string text;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> texts;
  uint64_t columns = 0;
};

/// An operation: a layer of the network, or an operation that a pass created (its type begins with "acc.").
struct Node {
  std::string type, name;
  std::vector<Value> attributes;
  std::vector<int> inputs;  // tensors by position; -1 for absent optional operands
  std::vector<int> outputs;
  std::vector<Post> posts;
  int64_t layer = -1;           // index in the offered graph, for error messages
  std::vector<int64_t> fused;   // further layers of a block of convolutions that this node computes; see `Step::fused`
  std::shared_ptr<void> extra;  // data of the pass that created the node, for its lowering

  const Value* find(std::string_view name) const;
  /// The value of an attribute, or `absent` if the attribute is absent or has no value.
  int64_t integer(std::string_view name, int64_t absent = 0) const;
  bool flag(std::string_view name, bool absent = false) const { return integer(name, absent) != 0; }
  double number(std::string_view name, double absent = 0) const;
  std::string_view text(std::string_view name, std::string_view absent = {}) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  bool has(std::string_view name) const;  // is present and has a value
  void set(std::string_view name, int64_t value);
};

/// The nodes of a graph in topological order. A node is read like an element of a constant vector. It is changed by
/// `replace` and `remove`, which take a node of this object.
class Nodes {
 public:
  Nodes() = default;
  Nodes(std::vector<Node> nodes) : nodes_(std::move(nodes)) {}  // NOLINT: converts from a vector

  const Node& operator[](size_t n) const { return nodes_[n]; }
  const Node& back() const { return nodes_.back(); }
  std::vector<Node>::const_iterator begin() const { return nodes_.begin(); }
  std::vector<Node>::const_iterator end() const { return nodes_.end(); }
  size_t size() const { return nodes_.size(); }
  bool empty() const { return nodes_.empty(); }

  void push_back(Node node);
  /// Put another node in the place of a node. References to the node stay valid, and refer to the new one.
  void replace(const Node& node, Node by);
  /// Remove the type of a node: it has no users any more, and the next `Graph::index` drops it.
  void remove(const Node& node);
  /// Drop all nodes from position `count` on.
  void truncate(size_t count);
  /// Move all nodes out; none is left.
  std::vector<Node> take();

  /// Positions of the nodes that read a tensor, in ascending order, once for each operand.
  std::vector<int> users(int tensor) const;
  /// Update the table that makes `users` fast, for a graph with this many tensors.
  void note_readers(size_t tensors);

 private:
  bool is_noted(int tensor) const { return size_t(tensor) < gained_.size() && !gained_[size_t(tensor)]; }
  void gain(const Node& node);
  void forget_readers();
  Node& own(const Node& node) { return nodes_[size_t(&node - nodes_.data())]; }

  std::vector<Node> nodes_;
  std::vector<size_t> begins_;  // by tensor: where its readers begin in `readers_`
  std::vector<int> readers_;
  std::vector<char> gained_;  // by tensor: 1 if it may have readers that the table lacks; empty: there is no table
};

}  // namespace cpuacc

#endif  // CPUACC_NODES_HPP
