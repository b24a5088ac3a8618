// Layers on quantized tensors of 16 bits: Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d and
// FullyConnected. Windows are copied to consecutive memory, and their sums are exact. Results equal those of TFLite's
// reference kernels, or the exact value rounded half to even.

#include "cpuacc/kernels/wide.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

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

/// The outputs of a step along an axis: `first`, `first + apart` and so on. A tap reads the input at its place for the
/// first output, and `stride` further for each other one.
struct Line {
  int64_t extent = 1, count = 1, stride = 1, first = 0, apart = 1;
  std::vector<int64_t> places = {0};

  int64_t taps() const { return int64_t(places.size()); }
};

constexpr int64_t kPixels = 8;  // windows that are copied and multiplied together
constexpr int64_t kStrip = 16;  // pixels of a depthwise convolution that are computed together
constexpr uint64_t kLine = 64;  // the alignment of the parts of scratch memory

uint64_t aligned(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

struct Wide {
  const WideKernels* kernels;
  WideRequantization requantization;
  const int16_t* weights;  // [output][padded depth]; depthwise: [tap][channel]
  bool narrow;
  int64_t batch, channels, outputs, groups;
  Line rows, columns;
  ImageSteps from, to;

  int64_t depth() const { return rows.taps() * columns.taps() * channels / groups; }
  int64_t padded() const { return (depth() + kWideGrain - 1) / kWideGrain * kWideGrain; }
  uint64_t scratch() const {
    return uint64_t(kPixels) * (uint64_t(padded()) * 2 + uint64_t(outputs / groups) * 8) + 64;
  }

  /// The first channel of a pixel under a tap; nullptr in the padding.
  const int16_t* pixel(const int16_t* image, int64_t y, int64_t x, int64_t ky, int64_t kx) const {
    const int64_t row = y * rows.stride + rows.places[size_t(ky)];
    const int64_t column = x * columns.stride + columns.places[size_t(kx)];
    if (row < 0 || row >= rows.extent || column < 0 || column >= columns.extent) return nullptr;
    return image + row * from.h + column * from.w;
  }

  /// Copy the window of one group at a place.
  void gather(const int16_t* image, int64_t y, int64_t x, int64_t group, int16_t* out) const {
    const int64_t count = channels / groups;
    for (int64_t ky = 0; ky < rows.taps(); ++ky)
      for (int64_t kx = 0; kx < columns.taps(); ++kx, out += count) {
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
    const int64_t size = padded(), filters = outputs / groups;
    int64_t* sums = reinterpret_cast<int64_t*>(scratch);
    int16_t* windows = reinterpret_cast<int16_t*>(sums + kPixels * filters);
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t x = 0; x < columns.count; x += kPixels) {
        const int64_t count = std::min(kPixels, columns.count - x);
        for (int64_t n = 0; n < count; ++n) gather(image, y, x + n, group, windows + n * size);
        kernels->multiply(weights + group * filters * size, windows, size, count, size, filters, narrow, sums, filters);
        for (int64_t n = 0; n < count; ++n) {
          int16_t* pixel = out + (columns.first + (x + n) * columns.apart) * to.w;
          requantization.codes(sums + n * filters, group * filters, filters, pixel + group * filters * to.c, to.c);
        }
      }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Wide& self = step.as<Wide>();
    const Range range = split(self.batch * self.rows.count, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t image = n / self.rows.count, y = n % self.rows.count;
      const int16_t* in = run.at<int16_t>(step.in[0]) + image * self.from.n;
      int16_t* out =
          run.at<int16_t>(step.out[0]) + image * self.to.n + (self.rows.first + y * self.rows.apart) * self.to.h;
      self.one_row(in, y, out, run.part_scratch<char>(part));
    }
  }
};

/// A depthwise convolution. Each channel has `outputs / channels` filters.
struct Depthwise : Wide {
  std::optional<WideScales> scales;
  Range inner;  // columns of the result for which all columns of the window are inside the image

  int64_t cells() const { return rows.taps() * columns.taps(); }
  int64_t padded_outputs() const { return (outputs + 15) / 16 * 16; }

  /// Whether rows of the image are copied: input channels are not adjacent, or repeated for several filters.
  bool copies() const { return outputs != channels || from.c != 1; }
  /// As many as the window spans, or as there are: padding may let a window span more.
  int64_t copied_rows() const {
    return copies() ? std::min(rows.places.back() - rows.places.front() + 1, rows.extent) : 0;
  }
  int64_t pixel_step() const { return copies() ? outputs : from.w; }

  uint64_t scratch() const {
    return scratch_of_sums() + scratch_of_taps() +
           uint64_t(copied_rows()) * (sizeof(int16_t*) + uint64_t(columns.extent * outputs) * sizeof(int16_t));
  }
  uint64_t scratch_of_sums() const { return aligned(uint64_t(kStrip * padded_outputs()) * sizeof(int32_t)); }
  uint64_t scratch_of_taps() const { return aligned(uint64_t(cells()) * sizeof(WideTap)); }

  /// The scratch memory of one part. A copied row of the image is at its number modulo `copied_rows()`.
  struct Memory {
    int32_t* sums;
    WideTap* taps;
    const int16_t** sources;  // the rows of the image that were copied
    int16_t* copies;

    Memory(const Depthwise& layer, char* scratch)
        : sums(reinterpret_cast<int32_t*>(scratch)),
          taps(reinterpret_cast<WideTap*>(scratch + layer.scratch_of_sums())),
          sources(reinterpret_cast<const int16_t**>(scratch + layer.scratch_of_sums() + layer.scratch_of_taps())),
          copies(reinterpret_cast<int16_t*>(sources + layer.copied_rows())) {
      std::fill_n(sources, layer.copied_rows(), nullptr);
    }
  };

  void copy_row(const int16_t* in, int16_t* out) const {
    const int64_t filters = outputs / channels;
    for (int64_t x = 0; x < columns.extent; ++x, in += from.w, out += outputs)
      for (int64_t filter = 0; filter < filters; ++filter)
        for (int64_t c = 0; c < channels; ++c) out[c * filters + filter] = in[c * from.c];
  }

  /// A row of the image as kernels read it.
  const int16_t* line(const int16_t* image, int64_t row, const Memory& memory) const {
    const int16_t* in = image + row * from.h;
    if (!copies()) return in;
    const int64_t place = row % copied_rows();
    int16_t* copy = memory.copies + place * columns.extent * outputs;
    if (memory.sources[place] != in) copy_row(in, copy);
    memory.sources[place] = in;
    return copy;
  }

  /// Write the taps of a pixel that are inside the image, and return their number.
  int64_t taps_of(const int16_t* image, int64_t y, int64_t x, const Memory& memory) const {
    int64_t count = 0;
    for (int64_t ky = 0; ky < rows.taps(); ++ky) {
      const int64_t row = y * rows.stride + rows.places[size_t(ky)];
      if (row < 0 || row >= rows.extent) continue;
      const int16_t* in = line(image, row, memory);
      for (int64_t kx = 0; kx < columns.taps(); ++kx) {
        const int64_t column = x * columns.stride + columns.places[size_t(kx)];
        if (column < 0 || column >= columns.extent) continue;
        memory.taps[count++] = {in + column * pixel_step(), weights + (ky * columns.taps() + kx) * outputs};
      }
    }
    return count;
  }

  void requantize(const int32_t* sums, int64_t pixels, int16_t* out) const {
    if (scales && to.c == 1) return kernels->requantize(sums, padded_outputs(), pixels, outputs, *scales, out, to.w);
    for (int64_t n = 0; n < pixels; ++n)
      requantization.codes(sums + n * padded_outputs(), 0, outputs, out + n * to.w, to.c);
  }

  void one_row(const int16_t* image, int64_t y, int16_t* out, const Memory& memory) const {
    for (int64_t x = 0, count; x < columns.count; x += count) {
      count = x >= inner.first && x < inner.last ? std::min(kStrip, inner.last - x) : 1;
      const int64_t taps = taps_of(image, y, x, memory);
      kernels->depthwise(memory.taps, taps, count, columns.stride * pixel_step(), outputs, memory.sums,
                         padded_outputs());
      requantize(memory.sums, count, out + x * to.w);
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Depthwise& self = step.as<Depthwise>();
    const Range range = split(self.batch * self.rows.count, part, parts);
    const Memory memory(self, run.part_scratch<char>(part));
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t image = n / self.rows.count, y = n % self.rows.count;
      self.one_row(run.at<int16_t>(step.in[0]) + image * self.from.n, y,
                   run.at<int16_t>(step.out[0]) + image * self.to.n + y * self.to.h, memory);
    }
  }
};

template <class Layer>
void add_step(const Node& node, Builder& builder, Layer wide, int64_t depth) {
  wide.kernels = &wide_kernels_for(builder.settings.isa);
  wide.narrow = builder.graph.in(node, 1)->dtype != IPR_DTYPE_INT16;
  const double products = double(wide.batch * wide.rows.count * wide.columns.count * wide.outputs) * double(depth);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Layer::run;
  step.operations = 2 * products;
  step.max_parts = parts_for(builder.settings, products / cost::kQuantizedProductsPerNs);
  step.scratch_per_part = wide.scratch();
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Layer>(wide);
  builder.add(std::move(step));
}

void add_step(const Node& node, Builder& builder, const Wide& wide) { add_step(node, builder, wide, wide.depth()); }

/// An axis of an image in a layer: its sizes in the operand, the result and the window, and how the window moves.
struct Axis {
  int64_t in, out, window, stride, dilation, pad;
};

Axis axis_of_image(const Graph& graph, const Node& node, bool vertical, int64_t window) {
  const int at = (node.text("data_layout") == "NCHW" ? 2 : 1) + !vertical;
  return {graph.in(node, 0)->extent(at),
          graph.out(node).extent(at),
          window,
          node.integer(vertical ? "stride_y" : "stride_x", 1),
          node.integer(vertical ? "dilation_y" : "dilation_x", 1),
          node.integer(vertical ? "pad_top" : "pad_left")};
}

Line line_of(const Axis& axis) {
  Line line{axis.in, axis.out, axis.stride, 0, 1, {}};
  for (int64_t cell = 0; cell < axis.window; ++cell) line.places.push_back(cell * axis.dilation - axis.pad);
  return line;
}

/// The outputs of a transposed convolution whose position is `phase` modulo the stride. Only the weights `cells` of the
/// window contribute to them.
struct Phase {
  Line line;
  std::vector<int64_t> cells;
};

Phase phase_of(const Axis& axis, int64_t phase) {
  Phase found{{axis.in, (axis.out - phase + axis.stride - 1) / axis.stride, 1, phase, axis.stride, {}}, {}};
  for (int64_t cell = 0; cell < axis.window; ++cell) {
    const int64_t from = phase + axis.pad - cell * axis.dilation;
    if (from % axis.stride != 0) continue;
    found.cells.push_back(cell);
    found.line.places.push_back(from / axis.stride);
  }
  return found;
}

/// Channels and memory of an image. The window is set by the caller.
Wide wide_of_image(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const bool first = node.text("data_layout") == "NCHW";
  Wide wide{};
  wide.batch = in.shape[0], wide.channels = in.extent(first ? 1 : 3), wide.outputs = out.extent(first ? 1 : 3);
  wide.groups = 1;
  wide.from = steps_of_image(in, first), wide.to = steps_of_image(out, first);
  wide.requantization = wide_requantization_of(node, builder, wide.outputs);
  return wide;
}

/// The weights of the cells of a window: those of each output, and in these those of each cell.
struct Cells {
  std::vector<int64_t> rows, columns;
};

std::vector<int64_t> all_of(int64_t count) {
  std::vector<int64_t> all(size_t(count), 0);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Pack the weights of some cells of a convolution's window. Output `o` begins at `first(o)` among the weights.
template <class First>
const int16_t* packed(const Wide& wide, const Tensor& weights, const ImageSteps& by, const Cells& cells,
                      Builder& builder, const First& first) {
  const int64_t depth = wide.padded();
  return static_cast<const int16_t*>(builder.pack(uint64_t(wide.outputs * depth) * 2, [&](void* to) {
    for (int64_t o = 0; o < wide.outputs; ++o) {
      int16_t* out = static_cast<int16_t*>(to) + o * depth;
      for (int64_t y : cells.rows)
        for (int64_t x : cells.columns)
          for (int64_t c = 0; c < wide.channels / wide.groups; ++c)
            *out++ = int16_t(weight_at(weights, first(o) + y * by.h + x * by.w + c * by.c));
    }
  }));
}

void lower_convolution(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  const bool first = node.text("data_layout") == "NCHW";
  const int64_t height = weights.extent(first ? 2 : 1), width = weights.extent(first ? 3 : 2);
  Wide wide = wide_of_image(node, builder);
  wide.groups = node.integer("groups", 1);
  wide.rows = line_of(axis_of_image(builder.graph, node, true, height));
  wide.columns = line_of(axis_of_image(builder.graph, node, false, width));
  const ImageSteps by = steps_of_image(weights, first);
  wide.weights = packed(wide, weights, by, {all_of(height), all_of(width)}, builder,
                        [&](int64_t output) { return output * by.n; });
  add_step(node, builder, wide);
}

/// Every phase of the stride is a convolution with the weights that contribute to it.
void lower_transposed(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  const bool first = node.text("data_layout") == "NCHW";
  const ImageSteps by = steps_of_image(weights, first);
  const Axis vertical = axis_of_image(builder.graph, node, true, weights.extent(first ? 2 : 1));
  const Axis horizontal = axis_of_image(builder.graph, node, false, weights.extent(first ? 3 : 2));
  Wide wide = wide_of_image(node, builder);
  wide.groups = node.integer("groups", 1);
  const int64_t filters = wide.outputs / wide.groups, depth = wide.channels / wide.groups;
  for (int64_t y = 0; y < std::min(vertical.stride, vertical.out); ++y)
    for (int64_t x = 0; x < std::min(horizontal.stride, horizontal.out); ++x) {
      const Phase rows = phase_of(vertical, y), columns = phase_of(horizontal, x);
      wide.rows = rows.line, wide.columns = columns.line;
      wide.weights = packed(wide, weights, by, {rows.cells, columns.cells}, builder,
                            [&](int64_t output) { return output % filters * by.n + output / filters * depth * by.c; });
      add_step(node, builder, wide);
    }
}

/// The outputs along an axis for which all cells of the window are inside the image.
Range inner_of(const Line& line) {
  const int64_t before = std::max<int64_t>(-line.places.front(), 0), last = line.extent - 1 - line.places.back();
  const int64_t first = std::min((before + line.stride - 1) / line.stride, line.count);
  return {first, std::clamp(last < 0 ? 0 : last / line.stride + 1, first, line.count)};
}

void lower_depthwise(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  Depthwise wide{wide_of_image(node, builder), std::nullopt, {}};
  wide.scales = wide_scales_of(wide.requantization, builder, wide.outputs);
  wide.rows = line_of(axis_of_image(builder.graph, node, true, weights.extent(1)));
  wide.columns = line_of(axis_of_image(builder.graph, node, false, weights.extent(2)));
  wide.weights = static_cast<const int16_t*>(builder.pack(uint64_t(weights.elements()) * 2, [&](void* to) {
    for (int64_t n = 0; n < weights.elements(); ++n) static_cast<int16_t*>(to)[n] = int16_t(weight_at(weights, n));
  }));
  wide.inner = inner_of(wide.columns);
  add_step(node, builder, wide, wide.cells());
}

/// A matrix product is a 1 x 1 convolution of an image of one row.
void lower_product(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 1);
  const bool transposed = node.flag("transpose_weight_matrix");
  Wide wide{};
  wide.channels = weights.extent(transposed ? 1 : 0), wide.outputs = weights.extent(transposed ? 0 : 1);
  wide.batch = wide.groups = 1;
  wide.columns.extent = wide.columns.count = wide.outputs ? builder.graph.out(node).elements() / wide.outputs : 0;
  wide.requantization = wide_requantization_of(node, builder, wide.outputs);
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
           {"TransposeConvolution2d", "16 bits", support, lower_transposed, nullptr, true},
           {"DepthwiseConvolution2d", "16 bits", support_depthwise, lower_depthwise, nullptr, true},
           {"FullyConnected", "16 bits", support, lower_product, nullptr, true}},
          {}};
}

}  // namespace cpuacc
