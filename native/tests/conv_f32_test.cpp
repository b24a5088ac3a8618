// Convolutions of float32 on nChw16c images, over sizes around the tiles of the micro-kernels, against plain loops.

#include "cpuacc/kernels/conv_f32.hpp"

#include "cpuacc/kernels/winograd_f32.hpp"
#include "cpuacc/lower/window_f32.hpp"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(PointwiseKernel);
KERNEL_SUITE(ConvolveKernel);
KERNEL_SUITE(DepthwiseKernel);
KERNEL_SUITE(WinogradKernel);
KERNEL_SUITE(BottleneckKernel);

/// The kernels of an instruction set; for avx512bf16, those that multiply pairs of bfloat16.
const ConvKernels& kernels_of(native::Isa isa) { return conv_kernels_for(isa, true); }

/// What the kernels multiply: the values, or the values rounded to bfloat16.
std::vector<float> operands(const ConvKernels& kernels, const std::vector<float>& values) {
  return kernels.bfloat16 ? rounded_to_bfloat16(values) : values;
}

/// Where consecutive products round to bfloat16 between them, one rounding may differ from that of the plain loop.
double tolerance_of(const ConvKernels& kernels, int64_t depth, bool rounds_between = false) {
  return kernels.bfloat16 && rounds_between ? 2e-2 : 2e-6 * double(depth + 8);
}

enum class PostOps { none, clamp, residual, post_ops, kCount };

Epilogue make_epilogue(PostOps kind) {
  if (kind == PostOps::clamp) return {-0.25f, 0.5f, 0, {}};
  if (kind == PostOps::post_ops)
    return {-kInfinity,
            kInfinity,
            3,
            {{Function::leaky_relu, 0.1f, 0}, {Function::add, 0, 0}, {Function::linear, 2, 0.5f}}};
  return {-kInfinity, kInfinity, 0, {}};
}

double apply_epilogue(PostOps kind, double sum, double residual) {
  if (kind == PostOps::clamp) return std::clamp(sum, -0.25, 0.5);
  if (kind == PostOps::residual) return sum + residual;
  if (kind == PostOps::post_ops) return 2 * ((sum > 0 ? sum : 0.1f * sum) + residual) + 0.5;
  return sum;
}

bool takes_residual(PostOps kind) { return kind == PostOps::residual || kind == PostOps::post_ops; }

struct Geometry {
  int channels, outputs, height, width, kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x,
      pad_top, pad_left, out_height, out_width;
  int depth = 1, kernel_depth = 1, stride_z = 1, dilation_z = 1, pad_front = 0, out_depth = 1;

  int taps() const { return kernel_depth * kernel_height * kernel_width; }
  int places() const { return out_depth * out_height * out_width; }
  int pixels() const { return depth * height * width; }
};

/// Padding of half the window, so that windows lie partly outside of the image on all sides.
Geometry make_geometry(int channels, int outputs, int height, int width, int kernel, int stride, int dilation) {
  const int span = (kernel - 1) * dilation + 1, pad = span / 2;
  return {channels,
          outputs,
          height,
          width,
          kernel,
          kernel,
          stride,
          stride,
          dilation,
          dilation,
          pad,
          pad,
          (height + 2 * pad - span) / stride + 1,
          (width + 2 * pad - span) / stride + 1};
}

/// The value of an image (channels, depth, height, width) at a tap of the window of an output pixel; 0 in the padding.
double seen(const Geometry& g, const std::vector<float>& image, int channel, int out, int tap) {
  const int rows = out / g.out_width, tap_rows = tap / g.kernel_width;
  int z = rows / g.out_height * g.stride_z - g.pad_front + tap_rows / g.kernel_height * g.dilation_z;
  int y = rows % g.out_height * g.stride_y - g.pad_top + tap_rows % g.kernel_height * g.dilation_y;
  int x = out % g.out_width * g.stride_x - g.pad_left + tap % g.kernel_width * g.dilation_x;
  if (z < 0 || z >= g.depth || y < 0 || y >= g.height || x < 0 || x >= g.width) return 0;
  return image[size_t(((channel * g.depth + z) * g.height + y) * g.width + x)];
}

/// A volume with the same window along its depth.
Geometry make_volume(int channels, int outputs, int depth, int height, int width, int kernel, int stride,
                     int dilation) {
  Geometry g = make_geometry(channels, outputs, height, width, kernel, stride, dilation);
  const Geometry planes = make_geometry(channels, outputs, depth, depth, kernel, stride, dilation);
  g.depth = depth, g.kernel_depth = kernel, g.stride_z = stride, g.dilation_z = dilation;
  g.pad_front = planes.pad_top, g.out_depth = planes.out_height;
  return g;
}

/// Sums (outputs, places) of a convolution whose weights are (outputs, channels, taps).
std::vector<float> convolved(const Geometry& g, const std::vector<float>& image, const std::vector<float>& weights,
                             const std::vector<float>& bias) {
  std::vector<float> sums(static_cast<size_t>(g.outputs * g.places()));
  for (int o = 0; o < g.outputs; ++o)
    for (int p = 0; p < g.places(); ++p) {
      double sum = bias[size_t(o)];
      for (int c = 0; c < g.channels; ++c)
        for (int tap = 0; tap < g.taps(); ++tap)
          sum += seen(g, image, c, p, tap) * weights[size_t((o * g.channels + c) * g.taps() + tap)];
      sums[size_t(o * g.places() + p)] = float(sum);
    }
  return sums;
}

std::vector<float> depthwise_convolved(const Geometry& g, const std::vector<float>& image,
                                       const std::vector<float>& weights, const std::vector<float>& bias) {
  std::vector<float> sums(static_cast<size_t>(g.channels * g.places()));
  for (int c = 0; c < g.channels; ++c)
    for (int p = 0; p < g.places(); ++p) {
      double sum = bias[size_t(c)];
      for (int tap = 0; tap < g.taps(); ++tap) sum += seen(g, image, c, p, tap) * weights[size_t(c * g.taps() + tap)];
      sums[size_t(c * g.places() + p)] = float(sum);
    }
  return sums;
}

std::vector<float> with_epilogue(PostOps kind, std::vector<float> sums, const std::vector<float>& residual) {
  for (size_t n = 0; n < sums.size(); ++n) sums[n] = float(apply_epilogue(kind, sums[n], residual[n]));
  return sums;
}

// ---- 1x1 ------------------------------------------------------------------------------------------------------------

void check_pointwise(native::Isa isa, int pixels, int depth, int outputs, PostOps kind) {
  Random random(uint32_t(pixels * 1000 + depth));
  const ConvKernels& kernels = kernels_of(isa);
  const Geometry g = make_geometry(depth, outputs, 1, pixels, 1, 1, 1);
  const std::vector<float> image = random.reals(depth * pixels), weights = random.reals(outputs * depth);
  const std::vector<float> bias = random.reals(outputs), added = random.reals(outputs * pixels);
  Floats in(to_blocked(image, depth, pixels, kNan)), residual(to_blocked(added, outputs, pixels, 0));
  Floats packed(pack_panels(weights, outputs, depth, 1, kernels.panel, 16, kernels.bfloat16)),
      biases(padded_to_block(bias));
  Floats out(blocks_of(outputs) * pixels * 16), scratch(staged_words(depth, pixels) + 16);
  const Gemm gemm{depth,         int32_t(blocks_of(outputs)), packed.data(),
                  biases.data(), make_epilogue(kind),         last_of(outputs)};
  const int64_t block = int64_t{pixels} * 16;
  const int middle = pixels / 3;
  for (const OutputRange& range : {OutputRange{0, middle, 0, gemm.blocks}, OutputRange{middle, pixels, 0, gemm.blocks}})
    if (range.row < range.row_end)
      kernels.pointwise(gemm, in.data(), block, out.data(), {block, block, 16},
                        takes_residual(kind) ? residual.data() : nullptr, scratch.data(), range);
  const auto sums = convolved(g, operands(kernels, image), operands(kernels, weights), bias);
  expect_near(from_blocked(out, outputs, pixels), with_epilogue(kind, sums, added), outputs * pixels,
              tolerance_of(kernels, depth),
              describe("pixels", pixels, "depth", depth, "outputs", outputs, "epilogue", int(kind)));
}

TEST_P(PointwiseKernel, multiplies_every_number_of_pixels_around_a_tile) {
  for (int pixels = 1; pixels <= 30; ++pixels) {
    check_pointwise(isa(), pixels, 16, 16, PostOps::none);
    check_pointwise(isa(), pixels, 24, 48, PostOps::residual);
  }
}

TEST_P(PointwiseKernel, multiplies_pixels_around_a_tile_whose_last_block_is_not_full) {
  for (int pixels = 1; pixels <= 26; ++pixels)
    for (int outputs : {3, 8, 20, 23, 28}) check_pointwise(isa(), pixels, 22, outputs, PostOps::residual);
}

TEST_P(PointwiseKernel, multiplies_every_depth_around_a_block) {
  for (int depth = 1; depth <= 36; ++depth) check_pointwise(isa(), 17, depth, 40, PostOps::clamp);
  check_pointwise(isa(), 9, 700, 32, PostOps::none);
}

TEST_P(PointwiseKernel, multiplies_every_number_of_panels) {
  for (int outputs : {1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 80, 81, 96, 112})
    for (int kind = 0; kind < int(PostOps::kCount); ++kind) check_pointwise(isa(), 15, 20, outputs, PostOps(kind));
}

TEST_P(PointwiseKernel, divides_many_pixels_among_passes_that_fit_the_cache) {
  check_pointwise(isa(), 300, 600, 80, PostOps::post_ops);
}

TEST_P(PointwiseKernel, sums_deep_images_in_several_passes) {
  for (int kind = 0; kind < int(PostOps::kCount); ++kind) {
    check_pointwise(isa(), 300, 2000, 80, PostOps(kind));
    check_pointwise(isa(), 129, 1111, 33, PostOps(kind));
  }
}

// ---- Windows --------------------------------------------------------------------------------------------------------

enum class Input { blocked, nchw, nhwc, planes_of_blocks };

/// How the taps are read: from a strip with dense rows and columns, or with slabs; and whether taps that only read
/// padding are left out, and rows divided into segments. `in_place` reads the image if no segment reads padding.
struct Reading {
  int strip = 1;
  bool drops = false, row_slabs = false, column_slabs = false, in_place = false;
};

WindowAxis columns_of(const Geometry& g) {
  return {g.kernel_width, g.stride_x, g.dilation_x, g.pad_left, g.width, g.out_width};
}

Convolution make_convolution(const Geometry& g, const Reading& reading, bool planar,
                             const std::vector<Segment>& segments) {
  Convolution c{};
  c.gemm.depth = g.channels, c.gemm.blocks = int32_t(blocks_of(g.outputs));
  c.depth = g.depth, c.height = g.height, c.width = g.width;
  c.out_depth = g.out_depth, c.out_height = g.out_height, c.out_width = g.out_width;
  c.kernel_depth = g.kernel_depth, c.kernel_height = g.kernel_height, c.kernel_width = g.kernel_width;
  c.stride_z = g.stride_z, c.stride_y = g.stride_y, c.stride_x = g.stride_x;
  c.dilation_z = g.dilation_z, c.dilation_y = g.dilation_y, c.dilation_x = g.dilation_x;
  c.pad_front = g.pad_front, c.pad_top = g.pad_top, c.pad_left = g.pad_left;
  c.strip = reading.strip, c.planar = planar, c.drops = reading.drops;
  c.row_slabs = reading.row_slabs, c.column_slabs = reading.column_slabs;
  c.segments = segments.data(), c.segment_count = int32_t(segments.size());
  c.in_place = reading.in_place && reading.drops && g.stride_x == 1 && are_exact(segments, columns_of(g));
  return c;
}

void check_convolve(native::Isa isa, const Geometry& g, Input layout, Reading reading, PostOps kind) {
  Random random(uint32_t(g.channels * 100 + g.outputs));
  const ConvKernels& kernels = kernels_of(isa);
  const bool planar = layout != Input::blocked, pairs = kernels.bfloat16 && !planar;
  const int size = g.pixels(), places = g.places();
  const std::vector<float> image = random.reals(g.channels * size),
                           weights = random.reals(g.outputs * g.channels * g.taps());
  const std::vector<float> bias = random.reals(g.outputs), added = random.reals(g.outputs * places);
  const bool blocked = layout == Input::blocked || layout == Input::planes_of_blocks;
  std::vector<float> laid_out = blocked ? to_blocked(image, g.channels, size, kNan) : image;
  for (int n = 0; n < g.channels * size && layout == Input::nhwc; ++n)
    laid_out[size_t(n % size * g.channels + n / size)] = image[size_t(n)];
  const int plane = g.height * g.width;
  const InputStrides strides = blocked ? InputStrides{0, g.width * 16, 16, size * 16, 0, plane * 16}
                               : layout == Input::nchw
                                   ? InputStrides{size, g.width, 1, 0, 0, plane}
                                   : InputStrides{1, g.width * g.channels, g.channels, 0, 0, plane * g.channels};
  Floats in(laid_out), residual(to_blocked(added, g.outputs, places, 0)), biases(padded_to_block(bias));
  Floats packed(pack_panels(weights, g.outputs, g.channels, g.taps(), kernels.panel, planar ? 1 : 16, pairs));
  reading.drops = reading.drops && !planar, reading.in_place = reading.in_place && !pairs;
  const std::vector<Segment> segments = reading.drops ? segments_of(columns_of(g)) : one_segment(columns_of(g));
  Convolution c = make_convolution(g, reading, planar, segments);
  c.gemm = {g.channels,    int32_t(blocks_of(g.outputs)), packed.data(),
            biases.data(), make_epilogue(kind),           last_of(g.outputs)};
  const std::vector<int32_t> taps = make_taps(c);
  std::vector<int32_t> positions(taps.size());
  for (size_t n = 0; n < positions.size(); ++n) positions[n] = int32_t(n);
  c.taps = taps.data(), c.positions = positions.data();
  Floats out(blocks_of(g.outputs) * places * 16);
  Floats scratch(StripLayout(c).channel * (planar ? g.channels : blocks_of(g.channels) * 16) +
                 (planar ? int{kReadAhead} : 2 * g.taps()));
  const int rows = g.out_depth * g.out_height, middle = rows / 2;
  for (const OutputRange& range :
       {OutputRange{0, middle, 0, c.gemm.blocks}, OutputRange{middle, rows, 0, c.gemm.blocks}})
    kernels.direct(c, in.data(), strides, out.data(), {places * 16, g.out_width * 16, 16},
                   takes_residual(kind) ? residual.data() : nullptr, scratch.data(), range);
  const auto sums = pairs ? convolved(g, rounded_to_bfloat16(image), rounded_to_bfloat16(weights), bias)
                          : convolved(g, image, weights, bias);
  expect_near(from_blocked(out, g.outputs, places), with_epilogue(kind, sums, added), g.outputs * places,
              tolerance_of(kernels, g.channels * g.taps()),
              describe("channels", g.channels, "outputs", g.outputs, "height", g.height, "width", g.width, "window",
                       g.kernel_width, "stride", g.stride_x, "dilation", g.dilation_x, "depth", g.depth, "layout",
                       int(layout), "strip", reading.strip, "drops", reading.drops, "row slabs", reading.row_slabs,
                       "column slabs", reading.column_slabs, "in place", c.in_place));
}

TEST_P(ConvolveKernel, slides_windows_over_blocked_images) {
  int n = 0;
  for (int channels : {1, 15, 16, 17, 33})
    for (int outputs : {1, 16, 33, 64})
      for (int kernel : {1, 3})
        for (int stride : {1, 2, 3}) {
          const Geometry g = make_geometry(channels, outputs, 7, 9, kernel, stride, 1 + n % 2);
          check_convolve(isa(), g, Input::blocked, {1 + n % 4}, PostOps(n % int(PostOps::kCount)));
          ++n;
        }
}

TEST_P(ConvolveKernel, slides_windows_over_planes) {
  int n = 0;
  for (int channels : {1, 2, 3, 5})
    for (int outputs : {8, 32, 48})
      for (int kernel : {3, 5, 7})
        for (int stride : {1, 2}) {
          const Geometry g = make_geometry(channels, outputs, 9, 11, kernel, stride, 1 + n % 2);
          check_convolve(isa(), g, n % 2 ? Input::nchw : Input::nhwc, {1 + n % 5, false, n % 3 == 0, n % 4 == 0},
                         PostOps(n % int(PostOps::kCount)));
          ++n;
        }
}

TEST_P(ConvolveKernel, copies_patches_and_planes_of_blocks) {
  int n = 0;
  for (int channels : {2, 4, 11, 24})
    for (int width : {3, 8, 30})
      for (int stride : {1, 2, 4, 8})
        for (int kernel : {1, 4, 9}) {
          Geometry g = make_geometry(channels, 20, 9, width, kernel, stride, 1);
          if (n % 2 && width > kernel) g.pad_left = 0, g.out_width = (width - kernel) / stride + 1;
          for (Input layout : {Input::nchw, Input::planes_of_blocks})
            check_convolve(isa(), g, layout, {1 + n % 3, false, n % 3 == 0, n % 5 == 0}, PostOps::none);
          ++n;
        }
}

TEST_P(ConvolveKernel, takes_every_width_around_a_tile) {
  for (int width = 1; width <= 30; ++width)
    check_convolve(isa(), make_geometry(8, 32, 3, width, 3, 1, 1), Input::blocked, {2}, PostOps::residual);
}

TEST_P(ConvolveKernel, takes_every_width_of_planes_around_a_tile_for_every_last_block) {
  for (int width = 1; width <= 30; ++width)
    for (int outputs : {3, 8, 16, 21}) {
      const Geometry g = make_geometry(3, outputs, 5, 2 * width, 3, 2, 1);
      check_convolve(isa(), g, width % 4 ? Input::nhwc : Input::nchw, {2}, PostOps(width % int(PostOps::kCount)));
    }
}

TEST_P(ConvolveKernel, leaves_out_taps_that_only_read_padding) {
  int n = 0;
  for (int kernel : {1, 2, 3, 5})
    for (int stride : {1, 2, 3})
      for (int dilation : {1, 2, 5, 9, 14})
        for (int width : {1, 3, 13}) {
          const Geometry g = make_geometry(n % 2 ? 16 : 21, 40, 7, width, kernel, stride, dilation);
          for (bool in_place : {false, true})
            check_convolve(isa(), g, Input::blocked, {1 + n % 7, true, n % 2 == 0, n % 3 == 0, in_place},
                           PostOps(n % int(PostOps::kCount)));
          ++n;
        }
}

TEST_P(ConvolveKernel, sums_deep_images_in_several_passes) {
  for (int kind = 0; kind < int(PostOps::kCount); ++kind)
    for (bool in_place : {false, true})
      for (int dilation : {1, 3}) {
        const Reading reading{5, in_place, kind % 2 == 0, kind % 3 == 0, in_place};
        check_convolve(isa(), make_geometry(950, 33, 6, 8, 3, 1, dilation), Input::blocked, reading, PostOps(kind));
      }
}

TEST_P(ConvolveKernel, slides_windows_over_volumes) {
  int n = 0;
  for (int kernel : {1, 2, 3})
    for (int stride : {1, 2})
      for (int dilation : {1, 3})
        for (int depth : {1, 2, 5}) {
          const Geometry g = make_volume(17, 40, depth, 4, 5, kernel, stride, dilation);
          for (bool in_place : {false, true})
            check_convolve(isa(), g, Input::blocked,
                           {1 + n % 4, n % 4 != 0 || in_place, n % 2 == 0, n % 3 == 0, in_place},
                           PostOps(n % int(PostOps::kCount)));
          check_convolve(isa(), make_volume(3, 20, depth, 4, 5, kernel, stride, dilation),
                         n % 2 ? Input::nchw : Input::nhwc, {1 + n % 3, false, n % 2 == 0, n % 3 == 0},
                         PostOps(n % int(PostOps::kCount)));
          ++n;
        }
}

TEST_P(ConvolveKernel, adds_planes_in_place_over_rows_that_meet_the_same_taps) {
  Geometry g = make_volume(32, 48, 4, 5, 6, 3, 1, 1);
  g.kernel_height = g.kernel_width = 1, g.pad_top = g.pad_left = 0;
  g.out_height = g.height, g.out_width = g.width;
  check_convolve(isa(), g, Input::blocked, {5, true, false, false, true}, PostOps::post_ops);
}

// ---- Depthwise ------------------------------------------------------------------------------------------------------

Depthwise make_depthwise(const Geometry& g, const float* weights, const float* bias, PostOps kind) {
  Depthwise d{};
  d.blocks = int32_t(blocks_of(g.channels)), d.last = last_of(g.channels);
  d.depth = g.depth, d.height = g.height, d.width = g.width;
  d.out_depth = g.out_depth, d.out_height = g.out_height, d.out_width = g.out_width;
  d.kernel_depth = g.kernel_depth, d.kernel_height = g.kernel_height, d.kernel_width = g.kernel_width;
  d.stride_z = g.stride_z, d.stride_y = g.stride_y, d.stride_x = g.stride_x;
  d.dilation_z = g.dilation_z, d.dilation_y = g.dilation_y, d.dilation_x = g.dilation_x;
  d.pad_front = g.pad_front, d.pad_top = g.pad_top, d.pad_left = g.pad_left;
  d.weights = weights, d.bias = bias, d.epilogue = make_epilogue(kind);
  return d;
}

/// The two halves of the rows of all blocks.
void run_depthwise(const ConvKernels& kernels, const Depthwise& d, const Floats& in, Floats& out, const float* residual,
                   Floats& scratch) {
  const int64_t rows = int64_t{d.blocks} * d.out_depth * d.out_height,
                middle = rows / 2 + 1 < rows ? rows / 2 + 1 : rows;
  kernels.depthwise(d, in.data(), out.data(), residual, scratch.data(), 0, middle);
  kernels.depthwise(d, in.data(), out.data(), residual, scratch.data(), middle, rows);
}

/// Without segments, rows are copied with their padding.
void check_depthwise(native::Isa isa, const Geometry& g, PostOps kind, bool with_segments = true) {
  Random random(uint32_t(g.width));
  const ConvKernels& kernels = kernels_of(isa);
  const int size = g.pixels(), places = g.places();
  const std::vector<float> image = random.reals(g.channels * size), weights = random.reals(g.channels * g.taps());
  const std::vector<float> bias = random.reals(g.channels), added = random.reals(g.channels * places);
  Floats in(to_blocked(image, g.channels, size, kNan)), residual(to_blocked(added, g.channels, places, 0));
  Floats packed(pack_depthwise(weights, g.channels, g.taps())), biases(padded_to_block(bias));
  Depthwise d = make_depthwise(g, packed.data(), biases.data(), kind);
  const std::vector<Segment> segments = segments_of(columns_of(g));
  if (with_segments) d.segments = segments.data(), d.segment_count = int32_t(segments.size());
  d.exact = with_segments && are_exact(segments, columns_of(g));
  Floats out(int64_t{d.blocks} * places * 16), scratch(ring_floats(d));
  run_depthwise(kernels, d, in, out, takes_residual(kind) ? residual.data() : nullptr, scratch);
  const auto sums = depthwise_convolved(g, image, weights, bias);
  expect_near(from_blocked(out, g.channels, places), with_epilogue(kind, sums, added), g.channels * places, 2e-5,
              describe("channels", g.channels, "height", g.height, "width", g.width, "window", g.kernel_width, "stride",
                       g.stride_x, "dilation", g.dilation_x, "depth", g.depth, "epilogue", int(kind), "segments",
                       with_segments));
}

/// `outputs` of the geometry in groups of `inputs` input channels and `group_outputs` output channels.
void check_groups(native::Isa isa, const Geometry& g, int inputs, int group_outputs, PostOps kind) {
  Random random(uint32_t(g.width + inputs));
  const ConvKernels& kernels = kernels_of(isa);
  const int size = g.pixels(), places = g.places(), taps = g.taps(), outputs = g.outputs;
  const int channels = outputs / group_outputs * inputs;
  const std::vector<float> image = random.reals(channels * size), weights = random.reals(outputs * inputs * taps);
  const std::vector<float> bias = random.reals(outputs), added = random.reals(outputs * places);
  std::vector<float> expected(size_t(outputs * places)), table(size_t(blocks_of(outputs) * inputs * taps * 16));
  for (int o = 0; o < outputs; ++o)
    for (int p = 0; p < places; ++p) {
      double sum = bias[size_t(o)];
      for (int i = 0; i < inputs; ++i)
        for (int tap = 0; tap < taps; ++tap) {
          const float weight = weights[size_t((o * inputs + i) * taps + tap)];
          sum += seen(g, image, o / group_outputs * inputs + i, p, tap) * weight;
          const int row = (o / 16 * (taps / g.kernel_width) + tap / g.kernel_width) * inputs + i;
          table[size_t((row * g.kernel_width + tap % g.kernel_width) * 16 + o % 16)] = weight;
        }
      expected[size_t(o * places + p)] = float(sum);
    }
  std::vector<int32_t> sources;
  std::vector<LaneSource> lanes;  // one entry for each lane
  for (int block = 0; block < blocks_of(outputs); ++block)
    for (int i = 0; i < inputs; ++i) {
      const int valid = std::min(16, outputs - block * 16);
      sources.push_back(int32_t(lanes.size()));
      for (int lane = 0; lane < valid; ++lane) {
        const int channel = (block * 16 + lane) / group_outputs * inputs + i;
        LaneSource entry{channel / 16, valid - 1 - lane, {}, {}};
        entry.lanes[lane] = channel % 16, entry.keep[lane] = -1;
        lanes.push_back(entry);
      }
    }
  Floats in(to_blocked(image, channels, size, kNan)), residual(to_blocked(added, outputs, places, 0));
  Floats packed(table), biases(padded_to_block(bias));
  Depthwise d = make_depthwise(g, packed.data(), biases.data(), kind);
  d.blocks = int32_t(blocks_of(outputs)), d.last = last_of(outputs), d.inputs = inputs, d.sources = sources.data(),
  d.lanes = lanes.data();
  Floats out(int64_t{d.blocks} * places * 16), scratch(ring_floats(d));
  run_depthwise(kernels, d, in, out, takes_residual(kind) ? residual.data() : nullptr, scratch);
  expect_near(from_blocked(out, outputs, places), with_epilogue(kind, expected, added), outputs * places, 2e-5,
              describe("inputs", inputs, "group outputs", group_outputs, "outputs", outputs, "width", g.width, "window",
                       g.kernel_width, "stride", g.stride_x, "dilation", g.dilation_x, "depth", g.depth));
}

TEST_P(DepthwiseKernel, takes_every_width_around_a_tile) {
  int n = 0;
  for (int width = 1; width <= 30; ++width)
    for (int kernel : {3, 4, 5, 7})
      for (int stride : {1, 2})
        check_depthwise(isa(), make_geometry(20, 20, 5, width, kernel, stride, 1), PostOps(n++ % int(PostOps::kCount)));
}

TEST_P(DepthwiseKernel, takes_any_window_stride_and_dilation) {
  int n = 0;
  for (int kernel : {1, 2, 3, 4, 5, 7, 9})
    for (int stride : {1, 2, 3})
      for (int dilation : {1, 2, 3, 6})
        for (bool segments : {false, true})
          check_depthwise(isa(), make_geometry(33, 33, 11, 13, kernel, stride, dilation),
                          PostOps(n++ % int(PostOps::kCount)), segments);
}

TEST_P(DepthwiseKernel, slides_windows_over_volumes) {
  int n = 0;
  for (int kernel : {1, 2, 3, 5})
    for (int stride : {1, 2})
      for (int dilation : {1, 2})
        for (int depth : {1, 2, 4})
          check_depthwise(isa(), make_volume(20, 20, depth, 6, 9, kernel, stride, dilation),
                          PostOps(n++ % int(PostOps::kCount)));
}

TEST_P(DepthwiseKernel, expands_the_channels_of_groups) {
  int n = 0;
  for (int inputs : {1, 2, 3, 8, 10, 24})
    for (int outputs : {1, 2, 5, 8, 24})
      for (int kernel : {1, 3})
        for (int stride : {1, 2})
          check_groups(isa(), make_geometry(0, 5 * outputs, 5, 6 + n % 12, kernel, stride, 1 + n % 2), inputs, outputs,
                       PostOps(n % int(PostOps::kCount))),
              ++n;
  check_groups(isa(), make_volume(0, 24, 3, 4, 5, 3, 1, 1), 4, 6, PostOps::post_ops);
}

TEST_P(DepthwiseKernel, computes_two_rows_of_narrow_images_at_once) {
  for (int width = 1; width <= 8; ++width)
    for (int height : {1, 2, 3, 4, 7})
      for (int channels : {16, 24})
        check_depthwise(isa(), make_geometry(channels, channels, height, width, 3, 1, 1), PostOps::residual);
}

TEST_P(DepthwiseKernel, computes_narrow_images_with_dilated_columns_and_without_padding) {
  for (int width = 5; width <= 12; ++width)
    for (int dilation : {1, 2}) {
      Geometry g = make_geometry(16, 16, 4, width, 3, 1, 1);
      g.dilation_x = 2, g.dilation_y = dilation, g.pad_left = g.pad_top = 0;
      g.out_width = width - 4, g.out_height = 4 - 2 * dilation;
      if (g.out_height > 0) check_depthwise(isa(), g, PostOps::residual);
      g.height = 7, g.out_height = 7 - 2 * dilation;
      check_depthwise(isa(), g, PostOps::none);
    }
}

TEST_P(DepthwiseKernel, crops_the_columns_of_a_negative_padding) {
  for (int kernel : {1, 2, 3, 5})
    for (int dilation : {1, 2})
      for (int cropped : {1, 2, 6, 7, 9})
        for (int out : {1, 3, 9}) {
          Geometry g = make_geometry(20, 20, 4, 7, kernel, 1, dilation);
          g.pad_left = g.pad_top = -cropped, g.out_width = g.out_height = out;
          for (bool segments : {false, true}) check_depthwise(isa(), g, PostOps::residual, segments);
          g.outputs = 24;
          for (int inputs : {1, 3}) check_groups(isa(), g, inputs, 2, PostOps::none);
        }
}

TEST_P(DepthwiseKernel, takes_padding_wider_than_half_a_window) {
  Geometry g = make_geometry(16, 16, 6, 6, 3, 1, 1);
  g.pad_left = g.pad_top = 2, g.out_height = g.out_width = 8;
  check_depthwise(isa(), g, PostOps::none);
}

// ---- Winograd -------------------------------------------------------------------------------------------------------

std::vector<float> pack_winograd(const WinogradKernels& kernels, int tile, const Geometry& g,
                                 const std::vector<float>& weights) {
  const int elements = (tile + 2) * (tile + 2);
  std::vector<float> transformed(static_cast<size_t>(elements * g.outputs * g.channels));
  for (int o = 0; o < g.outputs; ++o)
    for (int c = 0; c < g.channels; ++c) {
      std::vector<float> taps(9 * 16), to(static_cast<size_t>(elements * 16));
      for (int tap = 0; tap < 9; ++tap)
        taps[size_t(tap * 16 + o % 16)] = weights[size_t((o * g.channels + c) * 9 + tap)];
      kernels.transform_weights(tile, taps.data(), to.data(), 16);
      for (int e = 0; e < elements; ++e)
        transformed[size_t((e * g.outputs + o) * g.channels + c)] = to[size_t(e * 16 + o % 16)];
    }
  std::vector<float> packed;
  for (int64_t block = 0, wide; block < blocks_of(g.outputs); block += wide) {
    wide = blocks_of_panel(block, blocks_of(g.outputs), kernels.panel);
    for (int e = 0; e < elements; ++e) {
      std::vector<float> panel(static_cast<size_t>(wide * 16 * g.channels));
      for (int64_t o = block * 16; o < std::min<int64_t>((block + wide) * 16, g.outputs); ++o)
        for (int c = 0; c < g.channels; ++c)
          panel[size_t((o - block * 16) * g.channels + c)] = transformed[size_t((e * g.outputs + o) * g.channels + c)];
      auto words = pack_panels(panel, wide * 16, g.channels, 1, wide, 16, kernels.bfloat16);
      packed.insert(packed.end(), words.begin(), words.end());
    }
  }
  return packed;
}

/// All squares at once in three stages, as several threads would, or in chunks.
void check_winograd(native::Isa isa, int tile, const Geometry& g, int chunk, bool in_stages, PostOps kind,
                    bool infinite = false) {
  Random random(uint32_t(g.width + g.channels));
  const WinogradKernels& kernels = winograd_kernels_for(isa, true);
  const int size = g.height * g.width, places = g.places();
  std::vector<float> image = random.reals(g.channels * size);
  if (infinite) image[size_t(size / 2)] = kInfinity, image[size_t(size / 2 + 1)] = kNan;
  const std::vector<float> weights = random.reals(g.outputs * g.channels * 9);
  const std::vector<float> bias = random.reals(g.outputs), added = random.reals(g.outputs * places);
  Floats in(to_blocked(image, g.channels, size, kNan)), residual(to_blocked(added, g.outputs, places, 0));
  Floats packed(pack_winograd(kernels, tile, g, weights)), biases(padded_to_block(bias));
  Winograd w{{g.channels, int32_t(blocks_of(g.outputs)), packed.data(), biases.data(), make_epilogue(kind)},
             tile,
             g.height,
             g.width,
             g.out_height,
             g.out_width,
             g.pad_top,
             g.pad_left,
             chunk};
  const int squares = squares_of(w), elements = (tile + 2) * (tile + 2), depth_blocks = int(blocks_of(g.channels));
  if (in_stages) w.chunk = squares;
  Floats out(int64_t{w.gemm.blocks} * places * 16), scratch(scratch_of(w));
  const float* with = takes_residual(kind) ? residual.data() : nullptr;
  if (in_stages) {
    Floats inputs(int64_t{elements} * depth_blocks * squares * 16),
        sums(int64_t{elements} * w.gemm.blocks * squares * 16);
    const int counts[3] = {depth_blocks, elements, w.gemm.blocks};
    for (int stage = 0; stage < 3; ++stage)
      for (int first = 0; first < counts[stage]; ++first)
        kernels.stage(w, stage, in.data(), out.data(), with, inputs.data(), sums.data(), first, first + 1);
  } else {
    kernels.convolve(w, in.data(), out.data(), with, scratch.data(), {0, squares / 2, 0, w.gemm.blocks});
    kernels.convolve(w, in.data(), out.data(), with, scratch.data(), {squares / 2, squares, 0, w.gemm.blocks});
  }
  const auto sums = with_epilogue(kind, convolved(g, image, weights, bias), added);
  expect_near(from_blocked(out, g.outputs, places), sums, g.outputs * places,
              kernels.bfloat16 ? 0.06 * std::sqrt(double(g.channels)) * tile : 2e-5 * std::sqrt(double(g.channels)),
              describe("tile", tile, "channels", g.channels, "outputs", g.outputs, "height", g.height, "width", g.width,
                       "chunk", chunk, "stages", in_stages, "infinite", infinite));
}

TEST_P(WinogradKernel, agrees_with_the_direct_sum) {
  int n = 0;
  for (int tile : {2, 4})
    for (int channels : {1, 16, 17, 40})
      for (int outputs : {16, 33, 48})
        for (int width : {1, 3, 4, 5, 8, 9})
          check_winograd(isa(), tile, make_geometry(channels, outputs, 6, width, 3, 1, 1), 1 + n % 7, n % 3 == 0,
                         PostOps(n % int(PostOps::kCount))),
              ++n;
}

TEST_P(WinogradKernel, confines_infinity_and_nan_to_the_windows_that_hold_them) {
  if (winograd_kernels_for(isa(), true).bfloat16)
    GTEST_SKIP() << "bfloat16 kernels do not repeat squares as a direct sum";
  for (int tile : {2, 4})
    check_winograd(isa(), tile, make_geometry(16, 32, 9, 11, 3, 1, 1), 4, false, PostOps::none, true);
}

// ---- Bottlenecks ----------------------------------------------------------------------------------------------------

/// `outputs` of the geometry are those of the projection; 0: there is none. `inputs` 0: there is no expansion.
void check_bottleneck(native::Isa isa, int inputs, const Geometry& g, int strip, PostOps kind) {
  Random random(uint32_t(g.channels));
  const ConvKernels& kernels = kernels_of(isa);
  const int size = g.height * g.width, places = g.places(), first_channels = inputs ? inputs : g.channels;
  const int last_channels = g.outputs ? g.outputs : g.channels;
  const std::vector<float> image = random.reals(first_channels * size), added = random.reals(last_channels * places);
  const std::vector<float> expand = random.reals(g.channels * inputs), project = random.reals(g.outputs * g.channels);
  const std::vector<float> filters = random.reals(g.channels * g.taps());
  const std::vector<float> bias[3] = {random.reals(g.channels), random.reals(g.channels), random.reals(last_channels)};
  Floats in(to_blocked(image, first_channels, size, kNan)), residual(to_blocked(added, last_channels, places, 0));
  Floats packed_expand(pack_panels(expand, g.channels, inputs, 1, kernels.panel, 16, kernels.bfloat16));
  Floats packed_project(pack_panels(project, g.outputs, g.channels, 1, kernels.panel, 16, kernels.bfloat16));
  Floats packed_filters(pack_depthwise(filters, g.channels, g.taps()));
  Floats biases[3] = {padded_to_block(bias[0]), padded_to_block(bias[1]), padded_to_block(bias[2])};
  const int32_t blocks = int32_t(blocks_of(g.channels));
  const Epilogue clamp{-0.5f, 1.5f, 0, {}};
  Bottleneck b{};
  if (inputs) b.expand = {inputs, blocks, packed_expand.data(), biases[0].data(), clamp};
  b.depthwise = make_depthwise(g, packed_filters.data(), biases[1].data(), PostOps::none);
  b.depthwise.epilogue = clamp;
  if (g.outputs)
    b.project = {g.channels, int32_t(blocks_of(g.outputs)), packed_project.data(), biases[2].data(),
                 make_epilogue(kind)};
  b.strip = strip;
  Floats out(blocks_of(last_channels) * places * 16), scratch(scratch_of(b) + staged_words(b));
  const bool with_residual = g.outputs && takes_residual(kind);
  const int middle = g.out_height / 2;
  for (const OutputRange& range : {OutputRange{0, middle, 0, blocks}, OutputRange{middle, g.out_height, 0, blocks}})
    if (range.row < range.row_end)
      kernels.bottleneck(b, in.data(), out.data(), with_residual ? residual.data() : nullptr, scratch.data(), range);

  auto clamped = [](std::vector<float> sums) {
    for (float& x : sums) x = std::clamp(x, -0.5f, 1.5f);
    return sums;
  };
  std::vector<float> expected = image;
  if (inputs) {
    const Geometry first = make_geometry(inputs, g.channels, g.height, g.width, 1, 1, 1);
    expected = clamped(convolved(first, operands(kernels, image), operands(kernels, expand), bias[0]));
  }
  expected = clamped(depthwise_convolved(g, expected, filters, bias[1]));
  if (g.outputs) {
    const Geometry last = make_geometry(g.channels, g.outputs, g.out_height, g.out_width, 1, 1, 1);
    expected = convolved(last, operands(kernels, expected), operands(kernels, project), bias[2]);
    expected = with_epilogue(kind, expected, added);
  }
  expect_near(from_blocked(out, last_channels, places), expected, last_channels * places,
              tolerance_of(kernels, inputs + g.channels, true),
              describe("inputs", inputs, "channels", g.channels, "outputs", g.outputs, "width", g.width, "window",
                       g.kernel_width, "stride", g.stride_x, "strip", strip));
}

TEST_P(BottleneckKernel, expands_filters_and_projects) {
  int n = 0;
  for (int inputs : {0, 8, 16, 24})
    for (int channels : {16, 33, 48})
      for (int outputs : {0, 16, 24})
        for (int stride : {1, 2})
          for (int kernel : {3, 5}) {
            if (!inputs && !outputs) continue;
            check_bottleneck(isa(), inputs, make_geometry(channels, outputs, 7, 5 + n % 12, kernel, stride, 1),
                             1 + n % 3, PostOps(n % int(PostOps::kCount)));
            ++n;
          }
}

}  // namespace
}  // namespace cpuacc
