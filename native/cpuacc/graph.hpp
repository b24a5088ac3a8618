// CpuAcc's copy of the graph that the host offers. Passes change it before it is lowered to steps.

#ifndef CPUACC_GRAPH_HPP
#define CPUACC_GRAPH_HPP

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cpuacc/nodes.hpp"
#include "interposer/backend.hpp"

namespace cpuacc {

using Shape = std::vector<int64_t>;

/// The memory layout of a tensor. Shapes are always those of the network. A blocked image of rank 4 is stored as (N,
/// ceil(C / 16), H, W, 16), also known as nChw16c, with zeros in the padding of the last block; a blocked volume of
/// rank 5 as (N, ceil(C / 16), D, H, W, 16). The layout says which axis of the shape is C: axis 1 for `blocked_nchw`,
/// the last axis for `blocked_nhwc`. The bytes are the same.
enum class Layout : uint8_t { plain, blocked_nchw, blocked_nhwc };

constexpr int64_t kBlock = 16;

inline bool is_blocked(Layout layout) { return layout != Layout::plain; }

/// float32 values at any address, such as in the middle of a mapped file.
class UnalignedFloats {
 public:
  UnalignedFloats() = default;
  UnalignedFloats(const void* first) : bytes_(static_cast<const char*>(first)) {}  // NOLINT: converts from float*

  float operator[](int64_t n) const {
    float value;
    std::memcpy(&value, bytes_ + 4 * n, sizeof value);
    return value;
  }
  UnalignedFloats operator+(int64_t n) const { return bytes_ + 4 * n; }
  UnalignedFloats& operator+=(int64_t n) { return *this = *this + n; }
  const char* bytes() const { return bytes_; }

 private:
  const char* bytes_ = nullptr;
};

/// A tensor; constants have `data`. Real value = scale * (quantized value - zero point).
struct Tensor {
  std::string name;
  int32_t dtype = IPR_DTYPE_FLOAT32;
  Shape shape;
  std::vector<double> scales;
  std::vector<int64_t> zero_points;
  int32_t axis = -1;            // the axis of the scales; -1: one scale for the tensor
  const void* data = nullptr;   // not necessarily aligned; see `values` and `floats`
  const void* file = nullptr;   // the `data` that is mapped from a file, which a pass may have replaced
  std::shared_ptr<void> owner;  // owns `data` if a pass created it
  Layout layout = Layout::plain;
  int producer = -1;  // index of the producing node; updated by Graph::index

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t extent(int at) const { return shape[static_cast<size_t>(at < 0 ? at + rank() : at)]; }
  int64_t elements() const;
  /// Bytes in the memory layout of the tensor.
  uint64_t bytes() const;
  bool is_constant() const { return data != nullptr; }
  bool is_mapped() const { return data != nullptr && data == file; }
  bool is_quantized() const { return !scales.empty(); }
  bool has_axis() const { return axis >= 0; }
  double scale() const { return scales.empty() ? 1.0 : scales[0]; }
  int64_t zero_point() const { return zero_points.empty() ? 0 : zero_points[0]; }
  bool same_quantization(const Tensor& other) const;
  /// The elements of a constant at an aligned address: `data`, or else a copy, which lasts until `drop_copy`. Not
  /// thread-safe.
  template <class T>
  const T* values() const {
    return static_cast<const T*>(aligned(alignof(T)));
  }
  /// The elements of a float32 constant without a copy.
  UnalignedFloats floats() const { return data; }
  const void* aligned(uint64_t alignment) const;
  bool is_aligned(uint64_t alignment) const { return reinterpret_cast<uintptr_t>(data) % alignment == 0; }
  void drop_copy() { copy_ = nullptr; }

 private:
  mutable std::shared_ptr<const char> copy_;
  mutable const void* copied_ = nullptr;  // the `data` of which `copy_` is a copy
};

/// A graph; nodes are in topological order.
struct Graph {
  std::vector<Tensor> tensors;
  Nodes nodes;
  std::vector<int> inputs, outputs;  // tensors at the border, in the order of the arguments of a run

  Graph() = default;
  /// Copy the tables of the host. Constants stay in the memory of the host. Unknown dimensions are -1.
  explicit Graph(const ipr::Graph& offered);

  Tensor& operator[](int tensor) { return tensors[static_cast<size_t>(tensor)]; }
  const Tensor& operator[](int tensor) const { return tensors[static_cast<size_t>(tensor)]; }
  /// The operand of a node by position; nullptr if absent.
  const Tensor* in(const Node& node, size_t position) const;
  const Tensor& out(const Node& node, size_t position = 0) const { return (*this)[node.outputs[position]]; }
  bool is_border(int tensor) const;  // an input or output of the graph
  /// Indices of the nodes that read a tensor, once for each operand.
  std::vector<int> users(int tensor) const { return nodes.users(tensor); }
  /// Add a tensor with the properties of another one.
  int add_tensor(const Tensor& like);
  /// Update the graph after nodes were changed: drop nodes without a type and nodes whose outputs are not needed, sort
  /// the others, and update producers.
  void index();
  /// Update the table that makes `users` fast. `index` does so, too.
  void note_readers() { nodes.note_readers(tensors.size()); }

 private:
  void note_producers();

  std::vector<char>
      border_;  // by tensor: 1 for inputs and outputs of the graph; tensors that are added later are neither
};

}  // namespace cpuacc

#endif  // CPUACC_GRAPH_HPP
