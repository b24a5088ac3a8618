// What the rules of several families have in common.

#ifndef CPUACC_RULES_HPP
#define CPUACC_RULES_HPP

#include <initializer_list>
#include <string>
#include <string_view>

#include "cpuacc/lowering.hpp"

namespace cpuacc {

inline bool is_f32(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_FLOAT32; }
inline bool is_code8(const Tensor& tensor) {
  return (tensor.dtype == IPR_DTYPE_INT8 || tensor.dtype == IPR_DTYPE_UINT8) && tensor.is_quantized();
}

std::string described(const Tensor& tensor);

/// Taken where all operands (absent ones do not count) and results are float32.
Refusal all_f32(const Graph& graph, const Node& node);

/// An axis, counted from the end where it is negative.
inline int axis_of(int64_t axis, int rank) { return int(axis < 0 ? axis + rank : axis); }

/// Extents before, at and behind an axis, multiplied.
struct Around {
  int64_t outer, extent, inner;
};
Around around(const Shape& shape, int axis);

/// The layout of the first operand that is blocked; plain where none is.
Layout blocked_operand(const Graph& graph, const Node& node);

/// Whether an image of this layout can be read by a node with that attribute `data_layout` ("NCHW", "NDHWC"): both agree on
/// which axis holds the channels.
inline bool agree_on_channels(Layout layout, std::string_view data_layout) {
  bool last = !data_layout.empty() && data_layout.back() == 'C';
  return layout == (last ? Layout::blocked_nhwc : Layout::blocked_nchw);
}

inline int channel_axis_of(Layout layout) { return layout == Layout::blocked_nhwc ? 3 : 1; }

/// As (N, blocks, H, W, 16): the shape of a blocked tensor as it lies.
Shape blocked_shape(const Tensor& tensor);

/// The shape in which a plain operand lies beside blocked ones in `layout`, which it broadcasts with; empty where it
/// cannot.
Shape beside_blocked(const Tensor& tensor, Layout layout);

/// The layouts of an elementwise node: those of its first blocked operand. Every operand with as many channels as the
/// result is blocked like the result; operands that broadcast along the channels stay plain. All are plain if the result
/// has one channel.
Layouts follow_blocked(const Graph& graph, const Node& node, const Settings& settings);

}  // namespace cpuacc

#endif  // CPUACC_RULES_HPP
