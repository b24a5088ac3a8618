// Convolutions of float32 images.

#ifndef CPUACC_KERNELS_CONV_F32_HPP
#define CPUACC_KERNELS_CONV_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"

namespace cpuacc {

/// A direct convolution. Weights: [panel][block of input channels][tap][input channel][16 * blocks of the panel].
/// If `planar`, for few input channels: [panel][input channel][tap][16 * blocks of the panel].
struct Convolution {
  Gemm gemm;
  int32_t height, width, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  int32_t strip;  // output rows that are computed from one copy of their input in scratch memory
  bool planar;
  const int32_t* taps;  // offsets into the scratch memory, see `make_taps` in lower/conv_f32.cpp
};

/// Strides of the input of a planar convolution in floats, from one channel, row and pixel to the next. In an nChw16c
/// image
/// (`channel_block` is not 0), channel c begins at c / 16 * channel_block + c % 16.
struct InputStrides {
  int64_t channel, row, pixel, channel_block, first_channel;
};

/// A depthwise convolution; weights are [block of channels][tap][16].
struct Depthwise {
  int32_t blocks, height, width, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  const float* weights;
  const float* bias;
  Epilogue epilogue;
};

/// An inverted residual block: a depthwise convolution between two pointwise convolutions, `expand` and `project`.
/// Either is absent if its weights are nullptr. Intermediate images stay in scratch memory: some rows of the expanded
/// image, and `strip` rows of the result of the depthwise convolution.
struct Bottleneck {
  Gemm expand;
  Depthwise depthwise;
  Gemm project;
  int32_t strip;
};

/// Columns of a row of the expanded image, with its padding on both sides.
static inline int64_t ring_width(const Depthwise& d) {
  int64_t seen = int64_t{d.out_width - 1} * d.stride_x + int64_t{d.kernel_width - 1} * d.dilation_x + 1;
  int64_t image = int64_t{d.pad_left} + d.width;
  return seen > image ? seen : image;
}

/// Rows of the expanded image that one row of output reads.
static inline int64_t ring_rows(const Depthwise& d) { return int64_t{d.kernel_height - 1} * d.dilation_y + 1; }

/// Floats of scratch memory.
static inline int64_t scratch_of(const Bottleneck& b) {
  const Depthwise& d = b.depthwise;
  int64_t strip = b.project.weights ? int64_t{b.strip} * d.out_width * d.blocks * 16 : 0;
  return strip + (b.expand.weights ? d.blocks : 1) * ring_rows(d) * ring_width(d) * 16;
}

/// Further words of scratch memory for kernels for bfloat16: the input rows that one strip reads, as pairs.
static inline int64_t staged_words(const Bottleneck& b) {
  const Depthwise& d = b.depthwise;
  int64_t strip = b.project.weights ? b.strip : d.out_height, rows = strip * d.stride_y + ring_rows(d);
  return b.expand.weights ? (rows < d.height ? rows : d.height) * d.width * 16 * ((b.expand.depth + 31) / 32) : 0;
}

struct ConvKernels {
  int32_t panel;  // blocks of a panel; if it is 2, an odd last block belongs to the panel before it
  bool bfloat16;  // weights are pairs of bfloat16
  /// A 1x1 convolution with stride 1. Rows of `range` are pixels.
  void (*pointwise)(const Gemm&, const float* in, int64_t in_block, float* out, const OutputStrides& out_strides,
                    const float* residual, float* scratch, const OutputRange& range);
  void (*direct)(const Convolution&, const float* in, const InputStrides& in_strides, float* out,
                 const OutputStrides& out_strides, const float* residual, float* scratch, const OutputRange& range);
  /// Rows [first, last) of all rows of all blocks of channels.
  void (*depthwise)(const Depthwise&, const float* in, float* out, const float* residual, float* scratch, int64_t first,
                    int64_t last);
  /// Rows of the output and blocks of the depthwise convolution; all blocks if there is `project`.
  void (*bottleneck)(const Bottleneck&, const float* in, float* out, const float* residual, float* scratch,
                     const OutputRange& range);
};

CPUACC_TABLE(ConvKernels, conv_kernels)
CPUACC_BFLOAT16_TABLE(ConvKernels, conv_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_CONV_F32_HPP
