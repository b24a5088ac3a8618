// Plans: the launches to which a network is lowered, and the memory of its values.

#ifndef GPUACC_PLAN_HPP
#define GPUACC_PLAN_HPP

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpuacc/device.hpp"
#include "interposer/backend.hpp"

namespace gpuacc {

using Shape = std::vector<int64_t>;

int64_t product(const Shape& shape);

/// How the elements of a value are stored. Shapes are always those of the network. An image in blocks is stored as
/// (N, ceil(C / b), H * W, b) with zeros in the padding of the last block, where b is Profile::block.
enum class Layout : uint8_t { plain, blocked };

/// A tensor in memory of the device.
struct Value {
  int buffer = -1;
  int32_t dtype = IPR_DTYPE_FLOAT32;
  Shape shape;
  Layout layout = Layout::plain;
  bool channels_last = false;  // of an image: whether the last axis of the shape is C, or axis 1

  int64_t elements() const { return product(shape); }
  explicit operator bool() const { return buffer >= 0; }
};

/// The sizes of an image of either order of axes.
struct Image {
  Image(const Shape& shape, bool channels_last)
      : n(shape[0]), c(shape[channels_last ? 3 : 1]), h(shape[channels_last ? 1 : 2]), w(shape[channels_last ? 2 : 3]),
        by_c(channels_last ? 1 : h * w), by_x(channels_last ? c : 1) {}
  int64_t n, c, h, w;
  int64_t by_c, by_x;  // distances in a plain image
};

/// An argument of a kernel: a buffer, or bytes.
struct Argument {
  int buffer = -1;
  bool written = false;
  uint32_t size = 0;
  std::array<char, 32> bytes{};
};

Argument reads(const Value& value);
Argument writes(const Value& value);
Argument reads(int buffer);
Argument number(int64_t value);
Argument real(double value);
/// A number of float64.
Argument wide(double value);
/// The element with these bits, of this number of bytes.
Argument element(uint64_t bits, uint64_t bytes);
/// Eight numbers, the missing ones being `rest`: the vector `int8`.
Argument numbers(const std::vector<int64_t>& values, int64_t rest);

/// A kernel launch.
struct Launch {
  std::string name;  // what it does, and the name of the layer: for profiles
  std::string source;
  std::vector<Argument> arguments;
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  int64_t layer = -1;
};

/// Memory that launches use.
struct Buffer {
  enum Kind { arena, constant, input, output, status } kind = arena;
  uint64_t bytes = 0;
  int position = -1;               // of an input or output
  std::shared_ptr<Memory> memory;  // of a constant
  int first = -1, last = -1;       // the first and last launch that uses it
  uint64_t offset = 0;             // in the arena
};

/// Elements that have to be in a range, such as indices. If a kernel computes them from operands, `problem` ends the
/// message, which has the name and the index of the element before it.
struct ValueCheck {
  int64_t layer;
  int operand;
  std::string name;
  int64_t lowest, highest;
  int64_t first = 0, step = 1;  // of the elements that are checked
  std::string problem = {};
};

/// Ways in which layers are computed, by what they depend on: the one that was fastest when it was measured.
using Choices = std::map<std::string, int>;

/// The status buffer has the first wrong element of each check, as an int, and then the values of these elements, as
/// longs.
constexpr int64_t kMostChecks = 4096;

/// Lowers a network. Lowerings get values by `plain` or `image`, create values, and add launches.
class Plan {
 public:
  Plan(const ipr::Graph& graph, Device& device, const Profile& profile, Choices choices = {});

  const ipr::Graph graph;
  Device& device;
  const Profile profile;
  std::vector<Launch> launches;
  std::vector<Buffer> buffers;
  Choices choices;       // made by `fastest`, or known before
  bool measures = true;  // whether `fastest` may be used

  /// The value of a tensor, row-major. Converts it with a launch where it is in blocks.
  Value plain(int64_t tensor);
  /// The value of a float image in blocks.
  Value blocked(int64_t tensor, bool channels_last);
  /// Return whether the value exists in blocks already.
  bool is_blocked(int64_t tensor) const;
  /// The value in the layout in which it was computed.
  Value as_computed(int64_t tensor);
  bool is_computed(int64_t tensor) const;
  /// Set the value of a result. The first one that is set is the one that was computed.
  void set(int64_t tensor, const Value& value);

  /// A value in the arena with undefined content.
  Value create(int32_t dtype, const Shape& shape, Layout layout = Layout::plain, bool channels_last = false);
  /// Constant bytes that `make` computes, shared with all plans that have the same `key`; no key: not shared.
  int constant(const std::string& key, uint64_t bytes, const std::function<void(char*)>& make);
  /// A key for constants that are computed from a tensor in the way that `packing` names. Empty if the tensor has no
  /// hash.
  std::string key(const ipr::TensorInfo& info, const std::string& packing) const;
  /// Constant floats.
  int floats(const std::vector<float>& values);
  int integers(const std::vector<int32_t>& values);

  /// Add a launch over `global` work items, which is rounded up to a multiple of `local`.
  void launch(std::string name, std::string source, std::vector<Argument> arguments, std::array<int64_t, 3> global,
              std::array<int64_t, 3> local = {1, 1, 1});
  /// A launch of one work item for each of `count` elements; the kernel returns if `get_global_id(0) >= count`.
  void launch_elements(std::string name, std::string source, std::vector<Argument> arguments, int64_t count);

  /// Copy: result[y0 + sum(i * to)] = value[x0 + sum(i * from)] for all indices i of `shape`.
  void copy(const Value& from, int64_t x0, const Shape& by_from, const Value& to, int64_t y0, const Shape& by_to,
            const Shape& shape);
  /// A contiguous value with the elements of `value` along permuted or broadcast axes.
  Value strided(const Value& value, int64_t offset, const Shape& strides, const Shape& shape);
  /// Fill a value with one element.
  void fill(const Value& value, uint64_t bits);
  Value reshaped(Value value, const Shape& shape);
  /// Let a run fail unless all elements of an integer operand are in a range. Of tuples, only one number is checked.
  void check_values(const Value& value, const ValueCheck& wanted);

  /// The number of the fastest of `count` ways to lower the current layer, which `lower` does. It is measured at the
  /// first time for each `key` and device. Inputs that are not constant are images in blocks.
  int fastest(const std::string& key, int count, const std::function<void(Plan&, int)>& lower);

  /// After all layers: let results be computed in the outputs, and plan the arena.
  void finish();
  /// Plan the arena: place each buffer in the lowest gap among those that are alive, in the order of the launches.
  void place();
  uint64_t arena_bytes = 0;
  std::vector<ValueCheck> checks;
  int status = -1;  // the status buffer

  int64_t layer = -1;                // the layer that is lowered
  std::vector<bool> lowered_before;  // layers that were lowered together with an earlier one
  std::vector<int> readers;          // layers that read each tensor; outputs count as one
  std::vector<int64_t> only_reader;  // the layer that reads it, if it is one

 private:
  Value tensor_constant(const ipr::TensorInfo& info);
  Value unblocked(const Value& value);
  Value as_blocks(const Value& value);
  int add(Buffer buffer);

  struct Forms {
    Value plain, blocked;
    bool computed_blocked = false;
  };
  std::vector<Forms> values_;
};

/// Merge axes that are adjacent in all of the strides; drop axes of size 1.
void collapse(Shape& shape, std::vector<Shape*> strides);

/// Contiguous strides of a shape.
Shape strides_of(const Shape& shape);

/// Strides with which a tensor of a shape is read as one of the shape that it broadcasts to.
Shape broadcast_strides(const Shape& shape, const Shape& to);

inline Shape shape_of(const ipr::TensorInfo& info) { return {info.shape().begin(), info.shape().end()}; }

/// Bytes of a value in its layout.
uint64_t bytes_of(const Value& value, const Profile& profile);

}  // namespace gpuacc

#endif  // GPUACC_PLAN_HPP
