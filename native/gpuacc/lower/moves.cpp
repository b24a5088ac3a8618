// Layers that only move elements: one copy with strides for each operand, or none.

#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

ipr::Verdict move_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo out = layer.output(0);
  for (size_t n = 0; n < layer.input_count(); ++n) {
    const ipr::TensorInfo in = layer.input(n);
    if (!in) continue;
    if (!storage(in.dtype()) || in.dtype() != out.dtype())
      return ipr::no("input " + std::to_string(n) + " is " + described(in) + "; no kernel moves it",
                     IPR_REASON_DATA_TYPE);
    if (in.axis() >= 0 || out.axis() >= 0)
      return ipr::no("a tensor is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
    for (size_t result = 0; result < layer.output_count(); ++result)
      if (!same_quantization(in, layer.output(result)))
        return ipr::no("input " + std::to_string(n) + " and a result are quantized differently",
                       IPR_REASON_QUANTIZATION);
  }
  return ipr::yes();
}

void lower_reshape(const ipr::Layer& layer, Plan& plan) {
  plan.set(layer.output(0).index(), plan.reshaped(plan.plain(layer.input(0).index()), shape_of(layer.output(0))));
}

/// Operands of 8 bits with one scale each are requantized.
ipr::Verdict concat_support(const ipr::Layer& layer, const Target& target) {
  const ipr::Verdict verdict = move_support(layer, target);
  if (is_refused(verdict) && is_quantized8(layer.output(0))) return one_scale(layer, layer.input_count());
  return verdict;
}

/// The result reads the operand with these strides from `offset` on.
void view(const ipr::Layer& layer, Plan& plan, int64_t offset, const Shape& strides) {
  const Value from = plan.plain(layer.input(0).index());
  plan.set(layer.output(0).index(), plan.strided(from, offset, strides, shape_of(layer.output(0))));
}

void lower_transpose(const ipr::Layer& layer, Plan& plan) {
  const bool is_permute = layer.type() == "Permute";
  const Shape strides = strides_of(shape_of(layer.input(0)));
  const ipr::Span<const int64_t> axes = layer.integers(is_permute ? "dim_mappings" : "permutation");
  Shape permuted(axes.size());
  for (size_t n = 0; n < axes.size(); ++n) {
    if (is_permute)
      permuted[size_t(axes[n])] = strides[n];
    else
      permuted[n] = strides[size_t(axes[n])];
  }
  view(layer, plan, 0, permuted);
}

void lower_broadcast(const ipr::Layer& layer, Plan& plan) {
  view(layer, plan, 0, broadcast_strides(shape_of(layer.input(0)), shape_of(layer.output(0))));
}

void lower_slice(const ipr::Layer& layer, Plan& plan) {
  const Shape strides = strides_of(shape_of(layer.input(0)));
  int64_t offset = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) offset += layer.integers("begin")[axis] * strides[axis];
  view(layer, plan, offset, strides);
}

void lower_reverse(const ipr::Layer& layer, Plan& plan) {
  const Shape shape = shape_of(layer.input(0));
  Shape strides = strides_of(shape);
  std::vector<bool> reversed(shape.size());
  for (int64_t axis : layer.integers("axis")) reversed[size_t(normal_axis(axis, int64_t(shape.size())))] = true;
  int64_t offset = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (reversed[axis]) offset += (shape[axis] - 1) * strides[axis], strides[axis] = -strides[axis];
  view(layer, plan, offset, strides);
}

/// Items of a strided slice are matched with the axes of the operand from both ends.
void lower_strided_slice(const ipr::Layer& layer, Plan& plan) {
  const Shape shape = shape_of(layer.input(0)), own = strides_of(shape);
  const ipr::Span<const int64_t> begin = layer.integers("begin"), step = layer.integers("stride");
  auto bit = [&](const char* name, size_t position) { return (layer.integer(name) >> position & 1) != 0; };
  size_t taken = 0;
  for (size_t position = 0; position < begin.size(); ++position)
    taken += !bit("new_axis_mask", position) && !bit("ellipsis_mask", position);
  Shape strides;
  int64_t offset = 0;
  size_t axis = 0;
  for (size_t position = 0; position < begin.size(); ++position) {
    if (bit("ellipsis_mask", position)) {
      for (size_t skipped = shape.size() - taken; skipped > 0; --skipped) strides.push_back(own[axis++]);
      continue;
    }
    if (bit("new_axis_mask", position)) {
      strides.push_back(0);
      continue;
    }
    const bool shrinks = bit("shrink_axis_mask", position);
    const int64_t size = shape[axis], by = shrinks ? 1 : step[position];
    int64_t first = begin[position] < 0 ? begin[position] + size : begin[position];
    if (bit("begin_mask", position) && !shrinks) first = by > 0 ? 0 : size - 1;
    if (!shrinks) first = by > 0 ? std::max<int64_t>(first, 0) : std::min(first, size - 1);
    offset += first * own[axis];
    if (!shrinks) strides.push_back(own[axis] * by);
    ++axis;
  }
  for (; axis < shape.size(); ++axis) strides.push_back(own[axis]);
  view(layer, plan, product(shape_of(layer.output(0))) ? offset : 0, strides);
}

void lower_concat(const ipr::Layer& layer, Plan& plan) {
  const bool stacks = layer.type() == "Stack";
  const Shape shape = shape_of(layer.output(0)), to = strides_of(shape);
  const size_t axis = size_t(normal_axis(layer.integer("axis", stacks ? 0 : 1), int64_t(shape.size())));
  // images in whole blocks are concatenated as they are
  const int64_t channel = shape.size() == 4 ? int64_t(axis) : -1;
  bool in_blocks = !stacks && (channel == 1 || channel == 3) && is_float(layer.output(0));
  for (size_t n = 0; n < layer.input_count() && in_blocks; ++n) {
    const int64_t tensor = layer.input(n).index();
    in_blocks = plan.is_computed(tensor) && plan.as_computed(tensor).layout == Layout::blocked &&
                plan.as_computed(tensor).channels_last == (channel == 3) &&
                (layer.input(n).extent(int32_t(axis)) % plan.profile.block == 0 || n + 1 == layer.input_count());
  }
  const Value out = in_blocks ? plan.create(layer.output(0).dtype(), shape, Layout::blocked, channel == 3)
                              : plan.create(layer.output(0).dtype(), shape);
  int64_t at = 0;
  for (size_t n = 0; n < layer.input_count(); ++n) {
    const int64_t tensor = layer.input(n).index();
    if (in_blocks) {
      const Value from = plan.as_computed(tensor);
      const Image whole(shape, channel == 3), part(from.shape, channel == 3);
      const int64_t b = plan.profile.block, pixels = whole.h * whole.w * b;
      const int64_t rows = (part.c + b - 1) / b * pixels;
      plan.copy(from, 0, {rows, 1}, out, at / b * pixels, {(whole.c + b - 1) / b * pixels, 1}, {whole.n, rows});
      at += part.c;
      continue;
    }
    const Value from =
        is_quantized8(layer.output(0)) ? requantized(plan, layer.input(n), layer.output(0)) : plan.plain(tensor);
    Shape part = from.shape;
    if (stacks) part.insert(part.begin() + int64_t(axis), 1);
    plan.copy(from, 0, strides_of(part), out, at * to[axis], to, part);
    at += part[axis];
  }
  plan.set(layer.output(0).index(), out);
}

void lower_split(const ipr::Layer& layer, Plan& plan) {
  const Value from = plan.plain(layer.input(0).index());
  const Shape strides = strides_of(from.shape);
  const size_t axis = size_t(normal_axis(layer.integer("axis"), int64_t(strides.size())));
  int64_t at = 0;
  for (size_t n = 0; n < layer.output_count(); ++n) {
    const Shape shape = shape_of(layer.output(n));
    plan.set(layer.output(n).index(), plan.strided(from, at * strides[axis], strides, shape));
    at += shape[axis];
  }
}

void lower_tile(const ipr::Layer& layer, Plan& plan) {
  const Value from = plan.plain(layer.input(0).index());
  const Shape own = strides_of(from.shape);
  Shape shape, strides;
  for (size_t axis = 0; axis < from.shape.size(); ++axis) {
    shape.push_back(layer.integers("multiples")[axis]);
    shape.push_back(from.shape[axis]);
    strides.push_back(0);
    strides.push_back(own[axis]);
  }
  const Value out = plan.create(from.dtype, shape);
  plan.copy(from, 0, strides, out, 0, strides_of(shape), shape);
  plan.set(layer.output(0).index(), plan.reshaped(out, shape_of(layer.output(0))));
}

ipr::Verdict tile_support(const ipr::Layer& layer, const Target& target) {
  if (layer.input(0).rank() > 4) return ipr::no("no kernel for tiles of more than 4 axes", IPR_REASON_SHAPE);
  return move_support(layer, target);
}

ipr::Verdict pad_support(const ipr::Layer& layer, const Target& target) {
  if (layer.text("padding_mode") != "CONSTANT")
    return ipr::no("no kernel for the mode " + std::string(layer.text("padding_mode")), IPR_REASON_ATTRIBUTE);
  const ipr::TensorInfo in = layer.input(0);
  if (!is_float(in) && !(is_quantized8(in) && layer.number("pad_value") == 0))
    return ipr::no("input is " + described(in) + "; takes float32, float16, and int8 and uint8 padded with 0",
                   IPR_REASON_DATA_TYPE);
  return move_support(layer, target);
}

uint64_t bits_of(const ipr::TensorInfo& info, double value) {
  if (info.is_quantized()) return uint64_t(uint8_t(info.zero_point()));
  const float real = float(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &real, 4);
  return bits;
}

void lower_pad(const ipr::Layer& layer, Plan& plan) {
  const Value from = plan.plain(layer.input(0).index());
  const Shape shape = shape_of(layer.output(0)), to = strides_of(shape);
  const Value out = plan.create(from.dtype, shape);
  if (from.dtype == IPR_DTYPE_FLOAT16) {
    Template source(
        "kernel void k(global half* y, int n, float value) {\n"
        "  int i = get_global_id(0);\n  if (i < n) vstore_half_rte(value, i, y);\n}\n");
    plan.launch_elements("fill", source.text(), {writes(out), number(out.elements()), real(layer.number("pad_value"))},
                         out.elements());
  } else {
    plan.fill(out, bits_of(layer.input(0), layer.number("pad_value")));
  }
  int64_t offset = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) offset += layer.integers("pad_list")[2 * axis] * to[axis];
  plan.copy(from, 0, strides_of(from.shape), out, offset, to, from.shape);
  plan.set(layer.output(0).index(), out);
}

// ---- Blocks of pixels ---------------------------------------------------------------------------------------------------

ipr::Verdict depth_support(const ipr::Layer& layer, const Target& target) { return move_support(layer, target); }

/// Move the pixels of a block to channels, or back. DCR: the channels of a pixel are together; CRD: those of a channel.
void lower_depth(const ipr::Layer& layer, Plan& plan) {
  const bool to_depth = layer.type() == "SpaceToDepth", last = channels_last(layer);
  const bool crd = layer.text("mode") == "CRD";
  const int64_t block = layer.integer("block_size");
  const Value from = plan.plain(layer.input(0).index());
  const Value out = plan.create(from.dtype, shape_of(layer.output(0)));
  const Value& wide = to_depth ? from : out;  // with few channels and many pixels
  const Value& deep = to_depth ? out : from;
  const Image a(wide.shape, last), b(deep.shape, last);
  const int64_t a_row = a.by_x * a.w, b_row = b.by_x * b.w;
  const Shape shape = {a.n, a.c, b.h, block, b.w, block};
  const Shape by_wide = {a.c * a.h * a.w, a.by_c, a_row * block, a_row, a.by_x * block, a.by_x};
  const int64_t dy = crd ? block : block * a.c, dx = crd ? 1 : a.c, dc = crd ? block * block : 1;
  const Shape by_deep = {b.c * b.h * b.w, dc * b.by_c, b_row, dy * b.by_c, b.by_x, dx * b.by_c};
  plan.copy(from, 0, to_depth ? by_wide : by_deep, out, 0, to_depth ? by_deep : by_wide, shape);
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings move_lowerings() {
  return {{"Reshape", move_support, lower_reshape},     {"Transpose", move_support, lower_transpose},
          {"Permute", move_support, lower_transpose},   {"BroadcastTo", move_support, lower_broadcast},
          {"Slice", move_support, lower_slice},         {"StridedSlice", move_support, lower_strided_slice},
          {"ReverseV2", move_support, lower_reverse},   {"Concat", concat_support, lower_concat},
          {"Stack", move_support, lower_concat},        {"Splitter", move_support, lower_split},
          {"Tile", tile_support, lower_tile},           {"Pad", pad_support, lower_pad},
          {"SpaceToDepth", depth_support, lower_depth}, {"DepthToSpace", depth_support, lower_depth}};
}

}  // namespace gpuacc
