// DeformableConvolution2d: the image is sampled at positions that are data. The samples of some pixels are the columns
// of a matrix, which the weights multiply.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/kernels/matmul_f32.hpp"
#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/kernels/sample.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kSampledBytes = 256 * 1024;    // of samples that are multiplied together, which caches hold
constexpr int64_t kFewFilters = 16;              // below this, vectors have pixels instead of filters
constexpr double kMostPixels = double(1 << 30);  // of an image, whose places are int32

struct Deformable {
  const SampleKernels* kernels;
  const MatMulKernels* products;
  const MoveKernels* moves;
  std::vector<const float*> weights, bias;  // of each group: in panels and in blocks; of few filters as they are, and 0
  bool computes_weights;                    // they are an operand of the step, as they are
  int64_t batch, channels, height, width, outputs, out_height, out_width, groups, offset_groups;
  int64_t kernel_h, kernel_w, stride_y, stride_x, dilation_y, dilation_x, top, left;
  int64_t columns;  // pixels whose samples are multiplied together, a multiple of kSamplePositions

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t depth() const { return channels / groups * taps(); }
  int64_t pixels() const { return out_height * out_width; }
  int64_t filters() const { return outputs / groups; }
  int64_t samples() const { return channels * taps() * columns; }
  int64_t sums() const { return (filters() * columns + 15) / 16 * 16; }
  uint64_t scratch() const { return uint64_t(samples() + sums() + scratch_of(product(0, columns))) * sizeof(float); }

  bool has_pixels_in_vectors() const { return computes_weights || filters() < kFewFilters; }

  /// The product of the samples of `count` pixels and the weights of a group, or of the weights and the samples.
  MatMul product(int64_t group, int64_t count) const {
    MatMul m{};
    m.depth = int32_t(depth()), m.bias = bias[size_t(group)];
    m.epilogue.low = -INFINITY, m.epilogue.high = INFINITY;
    m.panel = products->panel;
    if (has_pixels_in_vectors()) {
      m.rows = int32_t(filters()), m.columns = int32_t(count);
      m.a_row = depth(), m.a_depth = 1, m.b_depth = columns, m.b_column = 1, m.out_row = pixels();
      return m;
    }
    m.rows = int32_t(count), m.columns = int32_t(filters());
    m.a_row = 1, m.a_depth = columns, m.out_row = filters();
    m.packed = weights[size_t(group)];
    return m;
  }

  /// The rows and columns of the image at which a tap reads for `count` pixels from `pixel` on.
  void positions(int64_t tap, int64_t pixel, int64_t count, const float* offsets, float* y, float* x) const {
    const int64_t down = tap / kernel_w * dilation_y - top, across = tap % kernel_w * dilation_x - left;
    int64_t row = pixel / out_width, column = pixel % out_width;
    for (int64_t n = 0; n < count; ++n) {
      y[n] = float(row * stride_y + down) + offsets[pixel + n];
      x[n] = float(column * stride_x + across) + offsets[pixels() + pixel + n];
      if (++column == out_width) column = 0, ++row;
    }
  }

  /// Write the samples of `count` pixels, at most kSamplePositions: (channel, tap, pixel).
  void sample(const float* image, const float* offsets, const float* mask, int64_t pixel, int64_t count,
              float* to) const {
    const int64_t members = channels / offset_groups, plane = height * width;
    float y[kSamplePositions], x[kSamplePositions];
    Neighbours neighbours;
    for (int64_t n = 0; n < offset_groups * taps(); ++n) {
      const int64_t group = n / taps(), tap = n % taps(), first = group * members;
      positions(tap, pixel, count, offsets + n * 2 * pixels(), y, x);
      kernels->surround(y, x, mask ? mask + n * pixels() + pixel : nullptr, height, width, count, neighbours);
      kernels->mix(neighbours, image + first * plane, to + (first * taps() + tap) * columns, count, members, plane,
                   taps() * columns);
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Deformable& self = step.as<Deformable>();
    const int64_t pieces = (self.pixels() + self.columns - 1) / self.columns;
    const Range range = split(self.batch * pieces, part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      self.piece(step, run, n / pieces, n % pieces * self.columns, run.part_scratch<float>(part));
  }

  void piece(const Step& step, const Run& run, int64_t image, int64_t first, float* scratch) const {
    const int64_t count = std::min(columns, pixels() - first);
    const float* in = run.at<float>(step.in[0]) + image * channels * height * width;
    const float* offsets = run.at<float>(step.in[1]) + image * offset_groups * taps() * 2 * pixels();
    const float* mask = step.in[3] ? run.at<float>(step.in[3]) + image * offset_groups * taps() * pixels() : nullptr;
    for (int64_t n = 0; n < count; n += kSamplePositions)
      sample(in, offsets, mask, first + n, std::min(kSamplePositions, count - n), scratch + n);
    float* out = run.at<float>(step.out[0]) + image * outputs * pixels() + first;
    multiply(scratch, count, computes_weights ? run.at<float>(step.in[4]) : nullptr, scratch + samples(), out);
    if (step.in[2]) add_bias(run.at<float>(step.in[2]), count, out);
  }

  /// `computed` are the weights that no step has packed; nullptr if they are constant.
  void multiply(const float* from, int64_t count, const float* computed, float* scratch, float* out) const {
    for (int64_t group = 0; group < groups; ++group) {
      const MatMul m = product(group, count);
      const OutputRange whole{0, m.rows, 0, int32_t(blocks_of(m.columns))};
      const float* samples_of_group = from + group * depth() * columns;
      float* to = out + group * filters() * pixels();
      if (has_pixels_in_vectors()) {
        const float* own = computed ? computed + group * filters() * depth() : weights[size_t(group)];
        products->matmul(m, own, samples_of_group, to, nullptr, scratch + sums(), whole);
        continue;
      }
      products->matmul(m, samples_of_group, nullptr, scratch, nullptr, scratch + sums(), whole);
      turn(scratch, count, to);
    }
  }

  /// Transpose the sums of the filters of `count` pixels.
  void turn(const float* from, int64_t count, float* to) const {
    const int64_t item = sizeof(float);
    const Box turned{2, item, {filters(), count}, {item, filters() * item}, {pixels() * item, item}};
    moves->copy(turned, reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to), 0, filters());
  }

  void add_bias(const float* added, int64_t count, float* out) const {
    for (int64_t channel = 0; channel < outputs; ++channel, out += pixels())
      for (int64_t n = 0; n < count; ++n) out[n] += added[channel];
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = all_f32(graph, node)) return why;
  const Tensor& in = *graph.in(node, 0);
  if (double(in.shape[2]) * double(in.shape[3]) > kMostPixels)
    return refused("an image of this size", IPR_REASON_RESOURCE);
  return without_posts(graph, node, settings);
}

/// Return whether the products add the bias.
bool adds_bias(const Deformable& layer, const Tensor* bias) {
  return bias && bias->is_constant() && !layer.has_pixels_in_vectors();
}

/// Pack the weights of each group, and the bias that the products add.
void pack(Deformable& layer, const Tensor& weights, const Tensor* bias, Builder& builder) {
  const int64_t depth = layer.depth(), filters = layer.filters();
  const bool as_they_are = layer.has_pixels_in_vectors();
  for (int64_t group = 0; group < layer.groups; ++group) {
    layer.bias.push_back(adds_bias(layer, bias) ? pack_bias(bias, group * filters, filters, builder)
                                                : pack_bias(nullptr, 0, std::max(filters, layer.columns), builder));
    if (layer.computes_weights) continue;
    const Weights own{weights.floats() + group * filters * depth, filters, depth, 1, depth, 1, 0};
    const uint64_t bytes = uint64_t(as_they_are ? filters * depth : own.packed()) * sizeof(float);
    layer.weights.push_back(static_cast<const float*>(builder.pack(bytes, [&](void* to) {
      if (as_they_are)
        std::memcpy(to, own.data.bytes(), bytes);
      else
        pack_panels(builder, own, layer.products->panel, 1, static_cast<float*>(to));
    })));
  }
}

/// The pixels whose samples are multiplied together.
int64_t columns_of(const Deformable& layer) {
  const int64_t bytes = layer.channels * layer.taps() * kSamplePositions * int64_t(sizeof(float));
  const int64_t most = (layer.pixels() + kSamplePositions - 1) / kSamplePositions;
  return std::clamp<int64_t>(kSampledBytes / std::max<int64_t>(bytes, 1), 1, std::max<int64_t>(most, 1)) *
         kSamplePositions;
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), &out = graph.out(node);
  auto layer = std::make_shared<Deformable>();
  if (out.elements() == 0) return;
  layer->kernels = &sample_kernels_for(builder.settings.isa);
  layer->moves = &move_kernels_for(builder.settings.isa);
  layer->products = &matmul_kernels_for(builder.settings.isa, false);
  layer->batch = in.shape[0], layer->channels = in.shape[1], layer->height = in.shape[2], layer->width = in.shape[3];
  layer->outputs = out.shape[1], layer->out_height = out.shape[2], layer->out_width = out.shape[3];
  layer->groups = node.integer("groups", 1), layer->offset_groups = node.integer("offset_groups", 1);
  layer->kernel_h = weights.shape[2], layer->kernel_w = weights.shape[3];
  layer->stride_y = node.integer("stride_y", 1), layer->stride_x = node.integer("stride_x", 1);
  layer->dilation_y = node.integer("dilation_y", 1), layer->dilation_x = node.integer("dilation_x", 1);
  layer->top = node.integer("pad_top"), layer->left = node.integer("pad_left");
  layer->columns = columns_of(*layer);
  layer->computes_weights = !weights.is_constant();
  const Tensor* bias = graph.in(node, 3);
  pack(*layer, weights, bias, builder);
  const double samples = double(out.shape[0] * layer->pixels() * layer->channels * layer->taps());
  const double products = samples * double(layer->outputs) / double(layer->groups);
  auto operand = [&](size_t n) { return builder.buffer(node.inputs.size() > n ? node.inputs[n] : -1); };
  Step step;
  step.name = "DeformableConvolution2d " + node.name;
  step.fn = &Deformable::run;
  step.operations = 2 * products;
  step.max_parts = parts_for(builder.settings, samples + 2 * products / cost::kOperationsPerNs);
  step.scratch_per_part = layer->scratch();
  step.in = {operand(0), operand(2), adds_bias(*layer, bias) ? Buffer() : operand(3), operand(4)};
  step.in.push_back(layer->computes_weights ? operand(1) : Buffer());
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(layer);
  builder.add(std::move(step));
}

}  // namespace

Family deformable_family() { return {{{"DeformableConvolution2d", "samples", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
