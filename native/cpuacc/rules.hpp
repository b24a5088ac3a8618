// Rules that several families share.

#ifndef CPUACC_RULES_HPP
#define CPUACC_RULES_HPP

#include <initializer_list>
#include <string>
#include <string_view>

#include "cpuacc/lowering.hpp"

namespace cpuacc {

inline bool is_f32(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_FLOAT32; }
inline bool is_quantized8(const Tensor& tensor) {
  return (tensor.dtype == IPR_DTYPE_INT8 || tensor.dtype == IPR_DTYPE_UINT8) && tensor.is_quantized();
}

/// Return whether a constant has one element for each index along the last axis of a tensor with which it broadcasts.
inline bool is_row(const Tensor& row, const Tensor& tensor) {
  return row.is_constant() && row.rank() > 0 && row.rank() <= tensor.rank() && row.elements() == row.extent(-1) &&
         row.extent(-1) == tensor.extent(-1);
}

/// Return whether all dimensions are known.
bool is_known(const Shape& shape);

/// Return whether a result has an unknown dimension, which the node determines when it runs.
bool has_unknown_result(const Graph& graph, const Node& node);

std::string described(const Tensor& tensor);

/// Supported if all present operands and all results are float32.
Refusal all_f32(const Graph& graph, const Node& node);

/// Supported if the node has no post-ops.
inline Refusal without_posts(const Graph&, const Node& node, const Settings&) {
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

/// Return `choose(item)`, where the item is an unsigned integer of `size` bytes: 1, 2, 4 or 8.
template <class Choose>
auto by_item_size(int64_t size, Choose choose) {
  switch (size) {
    case 1:
      return choose(uint8_t{});
    case 2:
      return choose(uint16_t{});
    case 4:
      return choose(uint32_t{});
    default:
      return choose(uint64_t{});
  }
}

/// Normalize an axis that may be negative, counted from the end.
inline int axis_of(int64_t axis, int rank) { return int(axis < 0 ? axis + rank : axis); }

/// The axis of the channels by the attribute `data_layout`, for tensors of any rank.
int channel_axis(const Node& node, int rank);

/// The attribute `axis`, or the axis of the channels if it is absent.
int axis_or_channels(const Node& node, int rank);

/// The products of the dimensions before and after an axis, and the size of the axis.
struct Around {
  int64_t outer, extent, inner;
};
Around around(const Shape& shape, int axis);

/// The layout of the first blocked operand; plain if none is blocked.
Layout blocked_operand(const Graph& graph, const Node& node);

/// Return whether a node with this attribute `data_layout` ("NCHW", "NDHWC") can read an image of this layout: both
/// have to agree on the axis of the channels.
inline bool agree_on_channels(Layout layout, std::string_view data_layout) {
  bool last = !data_layout.empty() && data_layout.back() == 'C';
  return layout == (last ? Layout::blocked_nhwc : Layout::blocked_nchw);
}

inline bool is_image(const Tensor& tensor) { return tensor.rank() == 4 || tensor.rank() == 5; }

/// The axis of the channels of a blocked image (rank 4) or volume (rank 5).
inline int channel_axis_of(Layout layout, int rank) { return layout == Layout::blocked_nhwc ? rank - 1 : 1; }

/// The shape of a blocked tensor in memory: (N, blocks, H, W, 16); the rows of a volume are those of all planes.
Shape blocked_shape(const Tensor& tensor);

/// The shape of a plain operand that broadcasts with blocked tensors of this rank in `layout`; empty if it cannot.
Shape beside_blocked(const Tensor& tensor, Layout layout, int rank);

/// The layouts of an elementwise node: those of its first blocked operand. Every operand with as many channels as the
/// result is blocked like the result; operands that broadcast along the channels stay plain. All are plain if the
/// result has one channel.
Layouts follow_blocked(const Graph& graph, const Node& node, const Settings& settings);

}  // namespace cpuacc

#endif  // CPUACC_RULES_HPP
