// DeformableConvolution2d: the image is sampled at positions that are data, and the samples of a few pixels are
// multiplied by the weights of all outputs.

#include <algorithm>
#include <cmath>

#include "cpuacc/kernels/recurrent.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kPixels = 8;  // pixels whose samples are multiplied together

/// One neighbour of a position: its place in a plane, and its weight; 0 outside of the image.
struct Neighbour {
  int64_t place;
  float weight;
};

struct Deformable {
  const RecurrentKernels* kernels;
  const float* weights;  // of each group: [block of 16 outputs][channel][tap][16]
  int64_t batch, channels, height, width, outputs, out_height, out_width, groups, offset_groups;
  int64_t kernel_h, kernel_w, stride_y, stride_x, dilation_y, dilation_x, top, left;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t depth() const { return channels / groups * taps(); }
  int64_t rows() const { return (outputs / groups + 15) / 16 * 16; }
  int64_t pixels() const { return out_height * out_width; }
  uint64_t scratch() const { return uint64_t(kPixels * (channels * taps() + rows())) * sizeof(float) + 64; }

  /// The four neighbours of a position.
  void neighbours(float y, float x, Neighbour (&found)[4]) const {
    const float low_y = std::floor(y), low_x = std::floor(x);
    for (int n = 0; n < 4; ++n) {
      const float row = low_y + float(n / 2), column = low_x + float(n % 2);
      const float by_row = n / 2 ? y - low_y : 1 - (y - low_y), by_column = n % 2 ? x - low_x : 1 - (x - low_x);
      const bool inside = row >= 0 && row < float(height) && column >= 0 && column < float(width);
      found[n] = inside ? Neighbour{int64_t(row) * width + int64_t(column), by_row * by_column} : Neighbour{0, 0};
    }
  }

  /// The samples of one pixel: [channel][tap].
  void sample(const float* image, const float* offsets, const float* mask, int64_t pixel, float* out) const {
    const int64_t members = channels / offset_groups, plane = height * width;
    for (int64_t group = 0; group < offset_groups; ++group)
      for (int64_t tap = 0; tap < taps(); ++tap) {
        const float* offset = offsets + (group * taps() + tap) * 2 * pixels() + pixel;
        const int64_t row = pixel / out_width * stride_y + tap / kernel_w * dilation_y - top;
        const int64_t column = pixel % out_width * stride_x + tap % kernel_w * dilation_x - left;
        Neighbour around[4];
        neighbours(float(row) + offset[0], float(column) + offset[pixels()], around);
        const float scale = mask ? mask[(group * taps() + tap) * pixels() + pixel] : 1;
        for (int64_t c = group * members; c < (group + 1) * members; ++c) {
          const float* in = image + c * plane;
          float sum = 0;
          for (const Neighbour& neighbour : around)
            if (neighbour.weight != 0) sum += in[neighbour.place] * neighbour.weight;
          out[c * taps() + tap] = sum * scale;
        }
      }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Deformable& self = step.as<Deformable>();
    const int64_t pixels = self.pixels(), pieces = (pixels + kPixels - 1) / kPixels;
    const Range range = split(self.batch * pieces, part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      self.piece(step, run, n / pieces, n % pieces * kPixels, run.part_scratch<float>(part));
  }

  void piece(const Step& step, const Run& run, int64_t image, int64_t first, float* scratch) const {
    const int64_t count = std::min(kPixels, pixels() - first), size = channels * taps(), width_of_sums = rows();
    float* sums = scratch + kPixels * size;
    const float* in = run.at<float>(step.in[0]) + image * channels * height * width;
    const float* offsets = run.at<float>(step.in[1]) + image * offset_groups * taps() * 2 * pixels();
    const float* mask = step.in[3] ? run.at<float>(step.in[3]) + image * offset_groups * taps() * pixels() : nullptr;
    const float* bias = step.in[2] ? run.at<float>(step.in[2]) : nullptr;
    float* out = run.at<float>(step.out[0]) + image * outputs * pixels();
    for (int64_t n = 0; n < count; ++n) sample(in, offsets, mask, first + n, scratch + n * size);
    for (int64_t group = 0; group < groups; ++group) {
      std::fill_n(sums, count * width_of_sums, 0.0f);
      kernels->multiply(weights + group * width_of_sums * depth(), scratch + group * depth(), size, count, depth(),
                        width_of_sums, sums, width_of_sums);
      for (int64_t o = 0; o < outputs / groups; ++o)
        for (int64_t n = 0; n < count; ++n) {
          const int64_t channel = group * (outputs / groups) + o;
          out[channel * pixels() + first + n] = sums[n * width_of_sums + o] + (bias ? bias[channel] : 0);
        }
    }
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (!graph.in(node, 1)->is_constant()) return refused("weights are not constant", IPR_REASON_NOT_CONSTANT);
  return without_posts(graph, node, settings);
}

const float* packed(const Deformable& layer, const Tensor& weights, Builder& builder) {
  const int64_t rows = layer.rows(), depth = layer.depth(), outputs = layer.outputs / layer.groups;
  return static_cast<const float*>(builder.pack(uint64_t(layer.groups * rows * depth) * sizeof(float), [&](void* to) {
    const UnalignedFloats from = weights.floats();
    for (int64_t o = 0; o < layer.outputs; ++o)
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t row = o % outputs;
        static_cast<float*>(to)[(o / outputs * rows / 16 + row / 16) * depth * 16 + k * 16 + row % 16] =
            from[o * depth + k];
      }
  }));
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), &out = graph.out(node);
  auto layer = std::make_shared<Deformable>();
  layer->kernels = &recurrent_kernels_for(builder.settings.isa);
  layer->batch = in.shape[0], layer->channels = in.shape[1], layer->height = in.shape[2], layer->width = in.shape[3];
  layer->outputs = out.shape[1], layer->out_height = out.shape[2], layer->out_width = out.shape[3];
  layer->groups = node.integer("groups", 1), layer->offset_groups = node.integer("offset_groups", 1);
  layer->kernel_h = weights.shape[2], layer->kernel_w = weights.shape[3];
  layer->stride_y = node.integer("stride_y", 1), layer->stride_x = node.integer("stride_x", 1);
  layer->dilation_y = node.integer("dilation_y", 1), layer->dilation_x = node.integer("dilation_x", 1);
  layer->top = node.integer("pad_top"), layer->left = node.integer("pad_left");
  layer->weights = packed(*layer, weights, builder);
  const double samples = double(out.shape[0] * layer->pixels() * layer->channels * layer->taps());
  const double products = samples * double(layer->outputs) / double(layer->groups);
  auto operand = [&](size_t n) { return builder.buffer(node.inputs.size() > n ? node.inputs[n] : -1); };
  Step step;
  step.name = "DeformableConvolution2d " + node.name;
  step.fn = &Deformable::run;
  step.operations = 2 * products;
  step.max_parts = parts_for(builder.settings, samples + 2 * products / cost::kOperationsPerNs);
  step.scratch_per_part = layer->scratch();
  step.in = {operand(0), operand(2), operand(3), operand(4)};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(layer);
  builder.add(std::move(step));
}

}  // namespace

Family deformable_family() { return {{{"DeformableConvolution2d", "samples", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
