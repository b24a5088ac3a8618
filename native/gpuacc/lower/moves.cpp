// Layers that only move elements: one copy with strides for each operand, or none.

#include <cmath>

#include "common/fixed_point.hpp"
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

// ---- Pad ----------------------------------------------------------------------------------------------------------------

/// The integer that stands for a float value: for quantized tensors, the nearest quantized value.
int64_t integer_of(const ipr::TensorInfo& info, double value) {
  const int64_t bits = int64_t(8 * ipr::item_size(info.dtype())), wide = std::min<int64_t>(bits, 32);
  const bool is_signed = info.dtype() <= IPR_DTYPE_INT64;
  const double low = is_signed ? -std::ldexp(1.0, int(wide) - 1) : 0,
               high = std::ldexp(1.0, int(is_signed ? wide - 1 : wide)) - 1;
  if (info.dtype() == IPR_DTYPE_BOOL) return value != 0;
  if (!info.is_quantized()) return int64_t(value);
  const double steps = native::round_half_away(value / double(float(info.scale()))) + double(info.zero_point());
  return int64_t(std::clamp(steps, low, high));
}

ipr::Verdict pad_support(const ipr::Layer& layer, const Target& target) {
  const ipr::TensorInfo in = layer.input(0);
  const double value = layer.number("pad_value");
  const bool is_constant = layer.text("padding_mode") == "CONSTANT", is_whole = value == std::trunc(value);
  if (is_constant && !in.is_quantized() && !is_float(in) && !(is_whole && value >= 0 && value <= 127))
    return ipr::no("no kernel for integers padded with other values than 0 to 127", IPR_REASON_ATTRIBUTE);
  if (is_constant && in.is_quantized() && ipr::item_size(in.dtype()) > 2 && value != 0)
    return ipr::no("input is " + described(in) + "; takes 8 and 16 bits for other values than 0", IPR_REASON_DATA_TYPE);
  return move_support(layer, target);
}

uint64_t bits_of(const ipr::TensorInfo& info, double value) {
  if (!is_float(info)) return uint64_t(integer_of(info, value));
  const float real = float(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &real, 4);
  return bits;
}

void fill_with(const ipr::Layer& layer, Plan& plan, const Value& out) {
  const double value = layer.number("pad_value");
  if (out.dtype != IPR_DTYPE_FLOAT16) return plan.fill(out, bits_of(layer.input(0), value));
  Template source(
      "kernel void k(global half* y, int n, float value) {\n"
      "  int i = get_global_id(0);\n  if (i < n) vstore_half_rte(value, i, y);\n}\n");
  plan.launch_elements("fill", source.text(), {writes(out), number(out.elements()), real(value)}, out.elements());
}

/// The elements at `places` of an axis, in this order.
Value taken(Plan& plan, const Value& from, size_t axis, const std::vector<int32_t>& places) {
  Shape shape = from.shape;
  shape[axis] = int64_t(places.size());
  const Value out = plan.create(from.dtype, shape);
  Template source(R"(
kernel void k(global const $T* restrict x, global const int* restrict places, global $T* restrict y, int n, int count,
              int size, int inner) {
  const int i = get_global_id(0);
  if (i >= n) return;
  y[i] = x[(i / inner / count * size + places[i / inner % count]) * inner + i % inner];
}
)");
  source.set("T", bits_type(ipr::item_size(from.dtype)));
  plan.launch_elements("take", source.text(),
                       {reads(from), reads(plan.integers(places)), writes(out), number(out.elements()),
                        number(shape[axis]), number(from.shape[axis]), number(strides_of(shape)[axis])},
                       out.elements());
  return out;
}

/// The place that position `at` of a padded axis repeats; `at` is negative before the elements of the axis.
int64_t repeated_place(std::string_view mode, int64_t at, int64_t size) {
  if (mode == "EDGE") return std::clamp<int64_t>(at, 0, size - 1);
  if (mode == "WRAP") return (at + size) % size;
  const int64_t shared = mode == "REFLECT" ? 0 : 1;  // SYMMETRIC repeats the elements at the borders
  return at < 0 ? -at - shared : at < size ? at : 2 * size - 2 + shared - at;
}

void lower_pad(const ipr::Layer& layer, Plan& plan) {
  Value from = plan.plain(layer.input(0).index());
  const Shape shape = shape_of(layer.output(0)), to = strides_of(shape);
  const ipr::Span<const int64_t> pads = layer.integers("pad_list");
  const std::string_view mode = layer.text("padding_mode");
  if (product(shape) == 0) return plan.set(layer.output(0).index(), plan.create(from.dtype, shape));
  if (mode == "CONSTANT") {
    const Value out = plan.create(from.dtype, shape);
    fill_with(layer, plan, out);
    int64_t offset = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) offset += pads[2 * axis] * to[axis];
    plan.copy(from, 0, strides_of(from.shape), out, offset, to, from.shape);
    return plan.set(layer.output(0).index(), out);
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (pads[2 * axis] == 0 && pads[2 * axis + 1] == 0) continue;
    std::vector<int32_t> places;
    for (int64_t at = 0; at < shape[axis]; ++at)
      places.push_back(int32_t(repeated_place(mode, at - pads[2 * axis], from.shape[axis])));
    from = taken(plan, from, axis, places);
  }
  plan.set(layer.output(0).index(), from);
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
