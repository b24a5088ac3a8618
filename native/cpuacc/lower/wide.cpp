// Layers on quantized tensors of 16 bits: Convolution2d, DepthwiseConvolution2d and FullyConnected. Windows are copied
// to consecutive memory, and their sums are exact. Results equal those of TFLite's reference kernels, or the exact
// value rounded half to even.

#include "cpuacc/kernels/wide.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/requantize_wide.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

// ---- What is taken --------------------------------------------------------------------------------------------------

bool has_one_scale(const Tensor& tensor) { return tensor.is_quantized() && !tensor.has_axis(); }

/// The number of a weight, without its zero point.
int32_t weight_at(const Tensor& weights, int64_t n) {
  const int64_t zero = weights.zero_point();
  switch (weights.dtype) {
    case IPR_DTYPE_INT8:
      return int32_t(weights.values<int8_t>()[n] - zero);
    case IPR_DTYPE_UINT8:
      return int32_t(weights.values<uint8_t>()[n] - zero);
    default:
      return int32_t(weights.values<int16_t>()[n] - zero);
  }
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), *bias = graph.in(node, 2),
               &out = graph.out(node);
  if (in.dtype != IPR_DTYPE_INT16 || !has_one_scale(in) || in.zero_point() != 0)
    return refused("operand 0 is " + described(in) + "; takes int16 with a scale", IPR_REASON_DATA_TYPE);
  if (out.dtype != IPR_DTYPE_INT16 || !has_one_scale(out))
    return refused("the result is " + described(out) + "; takes int16 with a scale", IPR_REASON_DATA_TYPE);
  if (!weights.is_constant() || (bias && !bias->is_constant()))
    return refused("weights or bias are not constant", IPR_REASON_NOT_CONSTANT);
  const bool taken_weights = weights.dtype == IPR_DTYPE_INT8 || weights.dtype == IPR_DTYPE_UINT8 ||
                             (weights.dtype == IPR_DTYPE_INT16 && weights.zero_point() == 0);
  if (!taken_weights || !weights.is_quantized() ||
      std::any_of(weights.zero_points.begin(), weights.zero_points.end(),
                  [&](int64_t zero) { return zero != weights.zero_point(); }))
    return refused("weights are " + described(weights), IPR_REASON_DATA_TYPE);
  const bool fits = !bias || bias->dtype == IPR_DTYPE_INT32 || bias->dtype == IPR_DTYPE_INT64 ||
                    (is_f32(*bias) && node.text("requantization") == "HALF_TO_EVEN");
  if (!fits) return refused("the bias is " + described(*bias), IPR_REASON_DATA_TYPE);
  if (has_too_large_scale(graph, node)) return refused("a scale is too large", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

Refusal support_depthwise(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& weights = *graph.in(node, 1);
  if (weights.dtype == IPR_DTYPE_INT16 || weights.extent(1) * weights.extent(2) > 128)
    return refused("takes weights of 8 bits, and up to 128 taps", IPR_REASON_DATA_TYPE);
  return support(graph, node, settings);
}

// ---- Windows --------------------------------------------------------------------------------------------------------

/// Strides of an image in elements.
struct ImageSteps {
  int64_t n, h, w, c;
};

ImageSteps steps_of_image(const Tensor& tensor, bool channels_first) {
  const Shape steps = steps_of(tensor.shape);
  return channels_first ? ImageSteps{steps[0], steps[2], steps[3], steps[1]}
                        : ImageSteps{steps[0], steps[1], steps[2], steps[3]};
}

constexpr int64_t kPixels = 8;  // windows that are copied and multiplied together

struct Wide {
  const WideKernels* kernels;
  WideRequantization requantization;
  const int16_t* weights;  // [output][padded depth]; depthwise: [tap][channel]
  bool narrow, depthwise;
  int64_t batch, in_h, in_w, channels, out_h, out_w, outputs, groups;
  int64_t kernel_h, kernel_w, stride_y, stride_x, dilation_y, dilation_x, top, left;
  ImageSteps from, to;

  int64_t depth() const { return kernel_h * kernel_w * channels / groups; }
  int64_t padded() const { return (depth() + kWideGrain - 1) / kWideGrain * kWideGrain; }
  uint64_t scratch() const {
    if (depthwise) return uint64_t(outputs) * 6 + 64;
    return uint64_t(kPixels) * (uint64_t(padded()) * 2 + uint64_t(outputs / groups) * 8) + 64;
  }

  /// The first channel of a pixel under a tap; nullptr in the padding.
  const int16_t* pixel(const int16_t* image, int64_t y, int64_t x, int64_t ky, int64_t kx) const {
    const int64_t row = y * stride_y + ky * dilation_y - top, column = x * stride_x + kx * dilation_x - left;
    if (row < 0 || row >= in_h || column < 0 || column >= in_w) return nullptr;
    return image + row * from.h + column * from.w;
  }

  /// Copy the window of one group at a place.
  void gather(const int16_t* image, int64_t y, int64_t x, int64_t group, int16_t* out) const {
    const int64_t count = channels / groups;
    for (int64_t ky = 0; ky < kernel_h; ++ky)
      for (int64_t kx = 0; kx < kernel_w; ++kx, out += count) {
        const int16_t* in = pixel(image, y, x, ky, kx);
        if (!in)
          std::memset(out, 0, size_t(count) * sizeof *out);
        else if (from.c == 1)
          std::memcpy(out, in + group * count, size_t(count) * sizeof *out);
        else
          for (int64_t c = 0; c < count; ++c) out[c] = in[(group * count + c) * from.c];
      }
    std::memset(out, 0, size_t(padded() - depth()) * sizeof *out);
  }

  void one_row(const int16_t* image, int64_t y, int16_t* out, char* scratch) const {
    const int64_t size = padded(), rows = outputs / groups;
    int64_t* sums = reinterpret_cast<int64_t*>(scratch);
    int16_t* windows = reinterpret_cast<int16_t*>(sums + kPixels * rows);
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t x = 0; x < out_w; x += kPixels) {
        const int64_t count = std::min(kPixels, out_w - x);
        for (int64_t n = 0; n < count; ++n) gather(image, y, x + n, group, windows + n * size);
        kernels->multiply(weights + group * rows * size, windows, size, count, size, rows, narrow, sums, rows);
        for (int64_t n = 0; n < count; ++n)
          for (int64_t row = 0; row < rows; ++row) {
            const int64_t channel = group * rows + row;
            out[(x + n) * to.w + channel * to.c] = int16_t(requantization.code(sums[n * rows + row], channel));
          }
      }
  }

  /// One row of a depthwise convolution; each channel has `outputs / channels` filters.
  void one_depthwise_row(const int16_t* image, int64_t y, int16_t* out, char* scratch) const {
    int32_t* sums = reinterpret_cast<int32_t*>(scratch);
    int16_t* spread = reinterpret_cast<int16_t*>(sums + outputs);
    const int64_t filters = outputs / channels;
    for (int64_t x = 0; x < out_w; ++x) {
      std::fill_n(sums, outputs, 0);
      for (int64_t ky = 0; ky < kernel_h; ++ky)
        for (int64_t kx = 0; kx < kernel_w; ++kx) {
          const int16_t* in = pixel(image, y, x, ky, kx);
          if (!in) continue;
          if (filters != 1 || from.c != 1) {
            for (int64_t n = 0; n < outputs; ++n) spread[n] = in[n / filters * from.c];
            in = spread;
          }
          kernels->add_products(sums, in, weights + (ky * kernel_w + kx) * outputs, outputs);
        }
      for (int64_t n = 0; n < outputs; ++n) out[x * to.w + n * to.c] = int16_t(requantization.code(sums[n], n));
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Wide& self = step.as<Wide>();
    const Range range = split(self.batch * self.out_h, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t image = n / self.out_h, y = n % self.out_h;
      const int16_t* in = run.at<int16_t>(step.in[0]) + image * self.from.n;
      int16_t* out = run.at<int16_t>(step.out[0]) + image * self.to.n + y * self.to.h;
      self.depthwise ? self.one_depthwise_row(in, y, out, run.part_scratch<char>(part))
                     : self.one_row(in, y, out, run.part_scratch<char>(part));
    }
  }
};

void add_step(const Node& node, Builder& builder, Wide wide) {
  wide.kernels = &wide_kernels_for(builder.settings.isa);
  wide.narrow = builder.graph.in(node, 1)->dtype != IPR_DTYPE_INT16;
  wide.requantization = wide_requantization_of(node, builder, wide.outputs);
  const double products = double(wide.batch * wide.out_h * wide.out_w * wide.outputs) *
                          double(wide.depthwise ? wide.kernel_h * wide.kernel_w : wide.depth());
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Wide::run;
  step.operations = 2 * products;
  step.max_parts = parts_for(builder.settings, products / cost::kQuantizedProductsPerNs);
  step.scratch_per_part = wide.scratch();
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Wide>(wide);
  builder.add(std::move(step));
}

/// Geometry and memory of an image. The window is set by the caller.
Wide wide_of_image(const Graph& graph, const Node& node) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const bool first = node.text("data_layout") == "NCHW";
  const int h = first ? 2 : 1, w = first ? 3 : 2, c = first ? 1 : 3;
  Wide wide{};
  wide.batch = in.shape[0], wide.in_h = in.extent(h), wide.in_w = in.extent(w), wide.channels = in.extent(c);
  wide.out_h = out.extent(h), wide.out_w = out.extent(w), wide.outputs = out.extent(c), wide.groups = 1;
  wide.stride_y = node.integer("stride_y", 1), wide.stride_x = node.integer("stride_x", 1);
  wide.dilation_y = node.integer("dilation_y", 1), wide.dilation_x = node.integer("dilation_x", 1);
  wide.top = node.integer("pad_top"), wide.left = node.integer("pad_left");
  wide.from = steps_of_image(in, first), wide.to = steps_of_image(out, first);
  return wide;
}

void lower_convolution(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  const bool first = node.text("data_layout") == "NCHW";
  Wide wide = wide_of_image(builder.graph, node);
  wide.groups = node.integer("groups", 1);
  wide.kernel_h = weights.extent(first ? 2 : 1), wide.kernel_w = weights.extent(first ? 3 : 2);
  const ImageSteps by = steps_of_image(weights, first);
  const int64_t depth = wide.padded();
  wide.weights = static_cast<const int16_t*>(builder.pack(uint64_t(wide.outputs * depth) * 2, [&](void* to) {
    for (int64_t o = 0; o < wide.outputs; ++o) {
      int16_t* out = static_cast<int16_t*>(to) + o * depth;
      for (int64_t y = 0; y < wide.kernel_h; ++y)
        for (int64_t x = 0; x < wide.kernel_w; ++x)
          for (int64_t c = 0; c < wide.channels / wide.groups; ++c)
            *out++ = int16_t(weight_at(weights, o * by.n + y * by.h + x * by.w + c * by.c));
    }
  }));
  add_step(node, builder, wide);
}

void lower_depthwise(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  Wide wide = wide_of_image(builder.graph, node);
  wide.depthwise = true;
  wide.kernel_h = weights.extent(1), wide.kernel_w = weights.extent(2);
  wide.weights = static_cast<const int16_t*>(builder.pack(uint64_t(weights.elements()) * 2, [&](void* to) {
    for (int64_t n = 0; n < weights.elements(); ++n) static_cast<int16_t*>(to)[n] = int16_t(weight_at(weights, n));
  }));
  add_step(node, builder, wide);
}

/// A matrix product is a 1 x 1 convolution of an image of one row.
void lower_product(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  const bool transposed = node.flag("transpose_weight_matrix");
  Wide wide{};
  wide.channels = weights.extent(transposed ? 1 : 0), wide.outputs = weights.extent(transposed ? 0 : 1);
  wide.batch = wide.groups = wide.kernel_h = wide.kernel_w = wide.stride_y = wide.stride_x = 1;
  wide.in_h = wide.out_h = 1;
  wide.in_w = wide.out_w = wide.outputs ? builder.graph.out(node).elements() / wide.outputs : 0;
  wide.from = {0, 0, wide.channels, 1}, wide.to = {0, 0, wide.outputs, 1};
  const int64_t depth = wide.padded();
  wide.weights = static_cast<const int16_t*>(builder.pack(uint64_t(wide.outputs * depth) * 2, [&](void* to) {
    for (int64_t o = 0; o < wide.outputs; ++o)
      for (int64_t k = 0; k < wide.channels; ++k)
        static_cast<int16_t*>(to)[o * depth + k] =
            int16_t(weight_at(weights, transposed ? o * wide.channels + k : k * wide.outputs + o));
  }));
  add_step(node, builder, wide);
}

}  // namespace

Family wide_family() {
  return {{{"Convolution2d", "16 bits", support, lower_convolution, nullptr, true},
           {"DepthwiseConvolution2d", "16 bits", support_depthwise, lower_depthwise, nullptr, true},
           {"FullyConnected", "16 bits", support, lower_product, nullptr, true}},
          {}};
}

}  // namespace cpuacc
