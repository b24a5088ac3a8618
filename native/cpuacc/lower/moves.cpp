// Layers that move elements: they copy a view of the operand, or share its memory.

#include <algorithm>
#include <cstring>

#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

uint64_t item_of(const Tensor& tensor) { return ipr::item_size(tensor.dtype); }

/// Any dtype; quantized values keep their quantization.
Refusal any(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  for (int tensor : node.outputs)
    if (graph[tensor].rank() > 8) return refused("takes tensors of up to 8 axes", IPR_REASON_SHAPE);
  return taken();
}

// ---- The same elements in the same order ----------------------------------------------------------------------------

void lower_same(const Node& node, Builder& builder) {
  int in = node.inputs[0], out = node.outputs[0];
  if (builder.share(out, in)) return;
  const Tensor& result = builder.graph[out];
  Axes axes = {{int64_t(result.bytes() / item_of(result)), 1, 1}};
  builder.add(copy_step(builder, label(node), builder.buffer(in), builder.buffer(out), axes, item_of(result)));
}

/// A transposition between NCHW and NHWC, or NCDHW and NDHWC, leaves blocked tensors unchanged. If a pass has found out
/// that its result is read as a blocked image, a plain operand is blocked first.
Layouts transposed_blocked(const Graph& graph, const Node& node, const Settings&) {
  const std::vector<int64_t>& order = node.integers("permutation");
  Layout layout = node.flag("acc.blocks") ? Layout::blocked_nhwc : graph.in(node, 0)->layout;
  using Order = std::vector<int64_t>;
  if (layout == Layout::blocked_nchw && (order == Order{0, 2, 3, 1} || order == Order{0, 2, 3, 4, 1}))
    return {{layout}, {Layout::blocked_nhwc}};
  if (layout == Layout::blocked_nhwc && (order == Order{0, 3, 1, 2} || order == Order{0, 4, 1, 2, 3}))
    return {{layout}, {Layout::blocked_nchw}};
  return {};
}

// ---- Views of one operand -------------------------------------------------------------------------------------------

void lower_transpose(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (is_blocked(out.layout)) return lower_same(node, builder);
  Shape steps = steps_of(in.shape);
  Axes axes = axes_of(out.shape);
  std::vector<int64_t> order = node.integers("permutation");
  if (node.type == "Permute") {
    const std::vector<int64_t>& to = node.integers("dim_mappings");
    order.resize(to.size());
    for (size_t n = 0; n < to.size(); ++n) order[size_t(to[n])] = int64_t(n);
  }
  bool same = true;  // only axes of one element change places
  int64_t last = -1;
  for (size_t n = 0; n < axes.size(); ++n) {
    axes[n].from = steps[size_t(order[n])];
    if (axes[n].extent == 1) continue;
    same = same && order[n] > last;
    last = order[n];
  }
  if (same) return lower_same(node, builder);
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(out)));
}

/// Copy a strided slice of the operand: its beginning along each axis, and its strides.
void lower_box(const Node& node, Builder& builder, int result, const Shape& begin, const Shape& stride) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph[result];
  Shape steps = steps_of(in.shape);
  Axes axes;
  int64_t offset = 0;
  bool contiguous = true;
  for (size_t n = 0; n < in.shape.size(); ++n) offset += begin[n] * steps[n];
  Shape result_steps = steps_of(out.shape);
  for (size_t n = 0; n < in.shape.size(); ++n) axes.push_back({out.shape[n], steps[n] * stride[n], result_steps[n]});
  int64_t expected = 1;
  for (size_t n = axes.size(); n-- > 0;) {
    if (axes[n].extent == 1) continue;
    contiguous = contiguous && axes[n].from == expected;
    expected *= axes[n].extent;
  }
  if (contiguous && offset * int64_t(item_of(out)) % 64 == 0 &&
      builder.share(result, node.inputs[0], uint64_t(offset) * item_of(out)))
    return;
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(result), axes,
                        item_of(out), offset));
}

void lower_slice(const Node& node, Builder& builder) {
  const std::vector<int64_t>& begin = node.integers("begin");
  lower_box(node, builder, node.outputs[0], begin, Shape(begin.size(), 1));
}

void lower_splitter(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  int axis = axis_of(node.integer("axis"), in.rank());
  Shape begin(in.shape.size(), 0), stride(in.shape.size(), 1);
  for (int result : node.outputs) {
    lower_box(node, builder, result, begin, stride);
    begin[size_t(axis)] += builder.graph[result].shape[size_t(axis)];
  }
}

/// The first index of a strided slice along an axis, as Python's slice(...).indices(extent) returns it.
int64_t first_of(int64_t begin, bool from_start, int64_t stride, int64_t extent) {
  int64_t low = stride < 0 ? -1 : 0, high = stride < 0 ? extent - 1 : extent;
  if (from_start) return stride < 0 ? high : low;
  if (begin < 0) begin += extent;
  return std::clamp(begin, low, high);
}

void lower_strided_slice(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const std::vector<int64_t>&begin = node.integers("begin"), &stride = node.integers("stride");
  auto bit = [&](const char* mask, size_t n) { return (node.integer(mask) >> n & 1) != 0; };
  size_t named = 0;
  for (size_t n = 0; n < begin.size(); ++n) named += !bit("ellipsis_mask", n) && !bit("new_axis_mask", n);
  Shape steps = steps_of(in.shape), result_steps = steps_of(out.shape);
  Axes axes;
  size_t axis = 0, result = 0;
  int64_t offset = 0;
  auto whole = [&](size_t count) {
    for (; count > 0; --count, ++axis, ++result) axes.push_back({out.shape[result], steps[axis], result_steps[result]});
  };
  for (size_t n = 0; n < begin.size(); ++n) {
    if (bit("ellipsis_mask", n)) {
      whole(in.shape.size() - named);
    } else if (bit("new_axis_mask", n)) {
      ++result;
    } else if (bit("shrink_axis_mask", n)) {
      int64_t index = bit("begin_mask", n) ? 0 : begin[n];
      offset += (index < 0 ? index + in.shape[axis] : index) * steps[axis];
      ++axis;
    } else {
      offset += first_of(begin[n], bit("begin_mask", n), stride[n], in.shape[axis]) * steps[axis];
      axes.push_back({out.shape[result], steps[axis] * stride[n], result_steps[result]});
      ++axis, ++result;
    }
  }
  whole(in.shape.size() - axis);
  if (out.elements() == 0) offset = 0;
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(out), offset));
}

void lower_reverse(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  Shape steps = steps_of(in.shape);
  Axes axes = axes_of(in.shape);
  int64_t offset = 0;
  for (size_t n = 0; n < axes.size(); ++n) axes[n].from = steps[n];
  for (int64_t listed_axis : node.integers("axis")) {
    size_t axis = size_t(axis_of(listed_axis, in.rank()));
    if (axes[axis].from < 0) continue;
    offset += (in.shape[axis] - 1) * steps[axis];
    axes[axis].from = -steps[axis];
  }
  if (in.elements() == 0) offset = 0;
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(in), offset));
}

void lower_broadcast(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  Shape steps = steps_of(in.shape);
  Axes axes = axes_of(out.shape);
  size_t ahead = out.shape.size() - in.shape.size();
  for (size_t n = 0; n < in.shape.size(); ++n) axes[ahead + n].from = in.shape[n] == 1 ? 0 : steps[n];
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(out)));
}

void lower_tile(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const std::vector<int64_t>& times = node.integers("multiples");
  Shape steps = steps_of(in.shape), result_steps = steps_of(out.shape);
  Axes axes;
  for (size_t n = 0; n < in.shape.size(); ++n) {
    axes.push_back({times[n], 0, result_steps[n] * in.shape[n]});
    axes.push_back({in.shape[n], steps[n], result_steps[n]});
  }
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(out)));
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

struct ImageAxes {
  size_t h, w, c;
};

ImageAxes image_axes(const Node& node) {
  return node.text("data_layout") == "NCHW" ? ImageAxes{2, 3, 1} : ImageAxes{1, 2, 3};
}

/// `fine` is the tensor with the larger image; `into_depth` is true if the result has the larger depth.
void lower_depth(const Node& node, Builder& builder, bool into_depth) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const Tensor &fine = into_depth ? in : out, &deep = into_depth ? out : in;
  ImageAxes at = image_axes(node);
  int64_t b = node.integer("block_size"), depth = fine.shape[at.c];
  bool crd = !into_depth && node.text("mode") == "CRD";
  Shape f = steps_of(fine.shape), d = steps_of(deep.shape);
  int64_t by_row = crd ? b : b * depth, by_column = crd ? 1 : depth, by_channel = crd ? b * b : 1;
  struct Both {
    int64_t extent, fine, deep;
  };
  std::vector<Both> all;
  auto rows = [&] {
    all.push_back({deep.shape[at.h], b * f[at.h], d[at.h]});
    all.push_back({b, f[at.h], by_row * d[at.c]});
  };
  auto columns = [&] {
    all.push_back({deep.shape[at.w], b * f[at.w], d[at.w]});
    all.push_back({b, f[at.w], by_column * d[at.c]});
  };
  auto channels = [&] { all.push_back({depth, f[at.c], by_channel * d[at.c]}); };
  all.push_back({fine.shape[0], f[0], d[0]});
  if (at.c == 1) channels();
  rows();
  columns();
  if (at.c == 3) channels();
  Axes axes;
  for (const Both& block_axis : all)
    axes.push_back(into_depth ? Axis{block_axis.extent, block_axis.fine, block_axis.deep}
                              : Axis{block_axis.extent, block_axis.deep, block_axis.fine});
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(out)));
}

void lower_depth_to_space(const Node& node, Builder& builder) { lower_depth(node, builder, false); }
void lower_space_to_depth(const Node& node, Builder& builder) { lower_depth(node, builder, true); }

void lower_shuffle(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  Around at = around(in.shape, axis_of(node.integer("axis"), in.rank()));
  int64_t groups = node.integer("num_groups"), members = at.extent / std::max<int64_t>(groups, 1);
  Axes axes = {{at.outer, at.extent * at.inner, at.extent * at.inner},
               {members, at.inner, groups * at.inner},
               {groups, members * at.inner, at.inner},
               {at.inner, 1, 1}};
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                        item_of(in)));
}

// ---- Several operands in one result ---------------------------------------------------------------------------------

Refusal support_concat_values(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& out = graph.out(node);
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    const Tensor& in = *graph.in(node, n);
    if (in.is_quantized() && out.is_quantized() && !in.same_quantization(out))
      return refused("operand " + std::to_string(n) + " has another quantization than the result",
                     IPR_REASON_QUANTIZATION);
  }
  return any(graph, node, settings);
}

/// Concatenate operands along an axis of `around`, each `extents[n]` wide.
void lower_concatenation(const Node& node, Builder& builder, Around at, const std::vector<int64_t>& extents) {
  const Tensor& out = builder.graph.out(node);
  uint64_t item_size = item_of(out);
  int64_t place = 0;
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    int64_t width = extents[n] * at.inner, offset = place;
    place += width;
    bool whole = at.outer == 1 && uint64_t(offset) * item_size % 64 == 0;
    if (width == 0 || (whole && builder.share(node.outputs[0], node.inputs[n], uint64_t(offset) * item_size, true)))
      continue;
    Axes axes = {{at.outer, width, at.extent * at.inner}, {width, 1, 1}};
    builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[n]), builder.buffer(node.outputs[0]), axes,
                          item_size, 0, offset));
  }
}

/// Concatenate blocked images along the channels, if all but the last fill their blocks.
Layouts blocked_concat(const Graph& graph, const Node& node, const Settings&) {
  Layout layout = blocked_operand(graph, node);
  const Tensor& out = graph.out(node);
  if (!is_blocked(layout) || !is_image(out) || !is_f32(out)) return {};
  const int axis = channel_axis_of(layout, out.rank());
  if (axis_of(node.integer("axis"), out.rank()) != axis) return {};
  for (size_t n = 0; n + 1 < node.inputs.size(); ++n)
    if (graph[node.inputs[n]].extent(axis) % kBlock != 0) return {};
  return {std::vector<Layout>(node.inputs.size(), layout), {layout}};
}

void lower_concat(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  if (is_blocked(out.layout)) {
    Shape shape = blocked_shape(out);
    std::vector<int64_t> blocks;
    for (int tensor : node.inputs) blocks.push_back(blocked_shape(builder.graph[tensor])[1]);
    return lower_concatenation(node, builder, {shape[0], shape[1], shape[2] * shape[3] * kBlock}, blocks);
  }
  int axis = axis_of(node.integer("axis"), out.rank());
  std::vector<int64_t> extents;
  for (int tensor : node.inputs) extents.push_back(builder.graph[tensor].shape[size_t(axis)]);
  lower_concatenation(node, builder, around(out.shape, axis), extents);
}

void lower_stack(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  Around at = around(out.shape, axis_of(node.integer("axis"), out.rank()));
  lower_concatenation(node, builder, at, std::vector<int64_t>(node.inputs.size(), 1));
}

Lowering way(const char* type, Refusal (*support)(const Graph&, const Node&, const Settings&),
             void (*lower)(const Node&, Builder&)) {
  return {type, "plain", support, lower, nullptr};
}

}  // namespace

Family moves_family() {
  Family family;
  family.lowerings = {
      way("Reshape", any, lower_same),
      {"Transpose", "plain", any, lower_transpose, transposed_blocked},
      way("Permute", any, lower_transpose),
      way("Slice", any, lower_slice),
      way("Splitter", any, lower_splitter),
      way("StridedSlice", any, lower_strided_slice),
      way("ReverseV2", any, lower_reverse),
      way("BroadcastTo", any, lower_broadcast),
      way("Tile", any, lower_tile),
      way("DepthToSpace", any, lower_depth_to_space),
      way("SpaceToDepth", any, lower_space_to_depth),
      way("ChannelShuffle", any, lower_shuffle),
      {"Concat", "plain", support_concat_values, lower_concat, blocked_concat},
      way("Stack", support_concat_values, lower_stack),
  };
  return family;
}

}  // namespace cpuacc
