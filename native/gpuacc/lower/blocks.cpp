// Layers that move elements to places that follow from their coordinates: blocks of pixels in the batch, shuffled
// channels, reversed sequences, triangles of matrices.

#include "gpuacc/lowering.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

ipr::Verdict move_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (!storage(in.dtype())) return ipr::no("input is " + described(in) + "; no kernel moves it", IPR_REASON_DATA_TYPE);
  if (in.axis() >= 0 || !same_quantization(in, out))
    return ipr::no("input and output are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  return ipr::yes();
}

/// The bits of 0.
uint64_t zero_of(const ipr::TensorInfo& info) { return info.is_quantized() ? uint64_t(info.zero_point()) : 0; }

// ---- SpaceToBatchNd, BatchToSpaceNd ---------------------------------------------------------------------------------------

constexpr size_t kMostCopiedAxes = 8;

/// An image with all its pixels, and a batch of images with the pixels of one place in each block.
struct Blocks {
  /// `whole` is the shape of the image with its padding, or before it is cropped.
  Blocks(const ipr::Layer& layer, const Shape& whole, const Shape& batched) {
    const ipr::Span<const int64_t> block = layer.integers("block_shape");
    const Shape own = strides_of(whole), other = strides_of(batched);
    const size_t first = first_axis(layer);
    int64_t per_block = whole[0];  // images of the batch from one place of a block to the next
    Shape steps(block.size());
    for (size_t n = block.size(); n-- > 0;) steps[n] = per_block * other[0], per_block *= block[n];
    add(whole[0], own[0], other[0]);
    for (size_t n = 0; n < block.size(); ++n) {
      add(block[n], own[first + n], steps[n]);
      add(whole[first + n] / block[n], own[first + n] * block[n], other[first + n]);
    }
    for (size_t axis = 1; axis < whole.size(); ++axis)
      if (axis < first || axis >= first + block.size()) add(whole[axis], own[axis], other[axis]);
    // the other axes are adjacent in both, and are merged by the copy
  }

  /// The first spatial axis.
  static size_t first_axis(const ipr::Layer& layer) {
    const std::string_view layout = layer.text("data_layout");
    return !layout.empty() && layout.back() == 'C' ? 1 : 2;
  }

  void add(int64_t size, int64_t by_whole_axis, int64_t by_batched_axis) {
    shape.push_back(size), by_whole.push_back(by_whole_axis), by_batched.push_back(by_batched_axis);
  }

  Shape shape, by_whole, by_batched;
};

ipr::Verdict batch_support(const ipr::Layer& layer, const Target& target) {
  const size_t axes = layer.integers("block_shape").size(), first = Blocks::first_axis(layer);
  const size_t copied = 1 + 2 * axes + (first > 1) + (size_t(layer.input(0).rank()) > first + axes);
  if (copied > kMostCopiedAxes) return ipr::no("there are too many axes of blocks", IPR_REASON_SHAPE);
  return move_support(layer, target);
}

/// The shape of the image with `list` added: pairs of numbers for each axis of blocks, all times `sign`.
Shape extended(const ipr::Layer& layer, Shape shape, const char* list) {
  const ipr::Span<const int64_t> pads = layer.integers(list);
  const size_t first = Blocks::first_axis(layer);
  for (size_t n = 0; n < pads.size() / 2; ++n) shape[first + n] += pads[2 * n] + pads[2 * n + 1];
  return shape;
}

/// The index of the first element of the image in the image with `list` added.
int64_t first_element(const ipr::Layer& layer, const Shape& whole, const char* list) {
  const ipr::Span<const int64_t> pads = layer.integers(list);
  const Shape strides = strides_of(whole);
  int64_t first = 0;
  for (size_t n = 0; n < pads.size() / 2; ++n) first += pads[2 * n] * strides[Blocks::first_axis(layer) + n];
  return first;
}

void lower_space_to_batch(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Shape whole = extended(layer, in.shape, "pad_list");
  Value padded = in;
  if (whole != in.shape) {
    padded = plan.create(in.dtype, whole);
    plan.fill(padded, zero_of(layer.input(0)));
    plan.copy(in, 0, strides_of(in.shape), padded, first_element(layer, whole, "pad_list"), strides_of(whole),
              in.shape);
  }
  const Value out = plan.create(in.dtype, shape_of(layer.output(0)));
  const Blocks blocks(layer, whole, out.shape);
  plan.copy(padded, 0, blocks.by_whole, out, 0, blocks.by_batched, blocks.shape);
  plan.set(layer.output(0).index(), out);
}

void lower_batch_to_space(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Shape out = shape_of(layer.output(0));
  const Value whole = plan.create(in.dtype, extended(layer, out, "crops"));
  const Blocks blocks(layer, whole.shape, in.shape);
  plan.copy(in, 0, blocks.by_batched, whole, 0, blocks.by_whole, blocks.shape);
  plan.set(layer.output(0).index(),
           plan.strided(whole, first_element(layer, whole.shape, "crops"), strides_of(whole.shape), out));
}

// ---- ChannelShuffle -------------------------------------------------------------------------------------------------------

void lower_shuffle(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const size_t axis = size_t(normal_axis(layer.integer("axis"), layer.input(0).rank()));
  const int64_t groups = layer.integer("num_groups"), each = in.shape[axis] / groups;
  const int64_t inner = product(Shape(in.shape.begin() + int64_t(axis) + 1, in.shape.end()));
  const int64_t outer = product(Shape(in.shape.begin(), in.shape.begin() + int64_t(axis)));
  const int64_t row = in.shape[axis] * inner;
  const Value out = plan.strided(in, 0, {row, inner, each * inner, 1}, {outer, each, groups, inner});
  plan.set(layer.output(0).index(), plan.reshaped(out, in.shape));
}

// ---- ReverseSequence ------------------------------------------------------------------------------------------------------

ipr::Verdict reverse_support(const ipr::Layer& layer, const Target& target) {
  const int32_t lengths = layer.input(1).dtype();
  if (lengths != IPR_DTYPE_INT32 && lengths != IPR_DTYPE_INT64)
    return ipr::no("lengths is " + described(layer.input(1)) + "; takes int32 and int64", IPR_REASON_DATA_TYPE);
  return move_support(layer, target);
}

void lower_reverse(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index()), lengths = plan.plain(layer.input(1).index());
  const int64_t rank = layer.input(0).rank();
  const size_t time = size_t(normal_axis(layer.integer("time_axis"), rank)),
               batch = size_t(normal_axis(layer.integer("batch_axis"), rank));
  const Shape strides = strides_of(in.shape);
  const Value out = plan.create(in.dtype, in.shape);
  plan.check_values(lengths, {layer.index(), 1, "lengths", 0, in.shape[time]});
  Template source(R"(
kernel void k(global const $T* restrict x, global const $I* restrict lengths, global $T* restrict y, int n, int steps,
              int by, int samples, int apart) {
  const int i = get_global_id(0);
  if (i >= n) return;
  const int step = i / by % steps, length = min((int)lengths[i / apart % samples], steps);
  y[i] = x[i + (step < length ? length - 1 - 2 * step : 0) * by];
}
)");
  source.set("T", bits_type(ipr::item_size(in.dtype))).set("I", storage(lengths.dtype));
  plan.launch_elements("reverse sequences", source.text(),
                       {reads(in), reads(lengths), writes(out), number(in.elements()), number(in.shape[time]),
                        number(strides[time]), number(in.shape[batch]), number(strides[batch])},
                       in.elements());
  plan.set(layer.output(0).index(), out);
}

// ---- Trilu ----------------------------------------------------------------------------------------------------------------

constexpr int64_t kFarthestDiagonal = 1 << 30;

void lower_triangle(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, in.shape);
  const std::string type = bits_type(ipr::item_size(in.dtype));
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int n, int rows, int columns, int diagonal, int zero) {
  const int i = get_global_id(0);
  if (i >= n) return;
  const int above = i % columns - i / columns % rows - diagonal;
  y[i] = above $SIGN 0 ? x[i] : ($T)zero;
}
)");
  source.set("T", type).set("SIGN", layer.flag("upper", true) ? ">=" : "<=");
  const size_t rank = in.shape.size();
  plan.launch_elements(
      "triangle", source.text(),
      {reads(in), writes(out), number(in.elements()), number(in.shape[rank - 2]), number(in.shape[rank - 1]),
       number(std::clamp(layer.integer("k"), -kFarthestDiagonal, kFarthestDiagonal)),
       number(int64_t(zero_of(layer.input(0))))},
      in.elements());
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings block_lowerings() {
  return {{"SpaceToBatchNd", batch_support, lower_space_to_batch},
          {"BatchToSpaceNd", batch_support, lower_batch_to_space},
          {"ChannelShuffle", move_support, lower_shuffle},
          {"ReverseSequence", reverse_support, lower_reverse},
          {"Trilu", move_support, lower_triangle}};
}

}  // namespace gpuacc
