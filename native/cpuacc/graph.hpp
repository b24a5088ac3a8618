// The offered graph as CpuAcc's own copy, which passes change before it is lowered into steps.

#ifndef CPUACC_GRAPH_HPP
#define CPUACC_GRAPH_HPP

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "interposer/backend.hpp"

namespace cpuacc {

using Shape = std::vector<int64_t>;

/// How the elements of a tensor lie in memory. Shapes are always those of the network; a blocked tensor of rank 4 lies
/// as (N, ceil(C / 16), H, W, 16), with zeros in the channels that fill up the last block. Which axis C is follows
/// from the layout: `blocked_nchw` is C = axis 1, `blocked_nhwc` is C = axis 3; the bytes are the same.
enum class Layout : uint8_t { plain, blocked_nchw, blocked_nhwc };

constexpr int64_t kBlock = 16;

inline bool is_blocked(Layout layout) { return layout != Layout::plain; }

/// A value: its data where it is constant. Real = scale * (stored - zero point).
struct Tensor {
  std::string name;
  int32_t dtype = IPR_DTYPE_FLOAT32;
  Shape shape;
  std::vector<double> scales;
  std::vector<int64_t> zero_points;
  int32_t axis = -1;  // that the scales belong to; -1: one scale for the tensor
  const void* data = nullptr;
  std::shared_ptr<void> owner;  // owns `data` where a pass made it
  Layout layout = Layout::plain;
  int producer = -1;  // index of the node that gives it; kept by Graph::index

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t extent(int at) const { return shape[static_cast<size_t>(at < 0 ? at + rank() : at)]; }
  int64_t elements() const;
  /// Bytes in its layout.
  uint64_t bytes() const;
  bool is_constant() const { return data != nullptr; }
  bool is_quantized() const { return !scales.empty(); }
  bool has_axis() const { return axis >= 0; }
  double scale() const { return scales.empty() ? 1.0 : scales[0]; }
  int64_t zero_point() const { return zero_points.empty() ? 0 : zero_points[0]; }
  bool same_quantization(const Tensor& other) const;
  template <class T>
  const T* values() const {
    return static_cast<const T*>(data);
  }
};

/// Work on a result that was fused into the node which gives it, in the order in which it is done.
struct Post {
  enum Kind { activation, add } kind = activation;
  std::string function;   // activation: as in the attribute "function" of Activation ("ReLu", "BoundedReLu" ...)
  double a = 0, b = 0;    // activation: its parameters
  int tensor = -1;        // add: the other operand (of the result's shape), which is also the last of Node::inputs
  int through = -1;       // the tensor between this and what came before: its quantization matters to codes
};

/// One named value of a node.
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

/// One operation: a layer of the network, or one that a pass made (types of our own begin with "acc.").
struct Node {
  std::string type, name;
  std::vector<Value> attributes;
  std::vector<int> inputs;  // tensors by position; -1 where an optional operand is absent
  std::vector<int> outputs;
  std::vector<Post> posts;
  int64_t layer = -1;          // index in the offered graph, for errors
  std::vector<int64_t> also;   // other layers of it whose work this one does, where a pass made one of several
  std::shared_ptr<void> extra;  // what a pass wants its own lowering to know

  const Value* find(std::string_view name) const;
  /// The value of an attribute that is there, or `absent` where it is not or has no value.
  int64_t integer(std::string_view name, int64_t absent = 0) const;
  bool flag(std::string_view name, bool absent = false) const { return integer(name, absent) != 0; }
  double number(std::string_view name, double absent = 0) const;
  std::string_view text(std::string_view name, std::string_view absent = {}) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  bool has(std::string_view name) const;  // is there and has a value
  void set(std::string_view name, int64_t value);
};

/// Nodes in an order in which they can run.
struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<int> inputs, outputs;  // the border, by position in a run

  Graph() = default;
  /// A copy of the tables of the host; constants stay where they are. Unknown extents are -1.
  explicit Graph(const ipr::Graph& offered);

  Tensor& operator[](int tensor) { return tensors[static_cast<size_t>(tensor)]; }
  const Tensor& operator[](int tensor) const { return tensors[static_cast<size_t>(tensor)]; }
  /// The operand of a node by position, nullptr where it is absent.
  const Tensor* in(const Node& node, size_t position) const;
  const Tensor& out(const Node& node, size_t position = 0) const { return (*this)[node.outputs[position]]; }
  bool is_border(int tensor) const;  // an input or output of the whole
  /// Indices of the nodes that read a tensor (one for each operand).
  std::vector<int> users(int tensor) const;
  /// A new tensor like another one.
  int add_tensor(const Tensor& like);
  /// After nodes were changed: drop those without type, sort, drop those whose results nobody wants, find producers.
  void index();
};

}  // namespace cpuacc

#endif  // CPUACC_GRAPH_HPP
