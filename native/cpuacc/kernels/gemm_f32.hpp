// Parameters that the float32 kernels share: the GEMM with packed weights, its epilogue, and strides of images.
//
// Images are nChw16c: (channels / 16, height, width, 16), one image of the batch at a time. Lanes past the last channel
// are never read as input. As output, they get what the weights and biases of these lanes give, which are zero.

#ifndef CPUACC_KERNELS_GEMM_F32_HPP
#define CPUACC_KERNELS_GEMM_F32_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

// Functions here are static: the code that is compiled for one instruction set must not be merged with that of another.

namespace cpuacc {

// clang-format off
enum class Function : int32_t {
  sigmoid, tanh, linear, relu, bounded_relu, soft_relu, leaky_relu, abs, sqrt, square, elu, hard_swish, gelu,
  gelu_tanh, selu, celu, softsign, hard_sigmoid, swish, mish, thresholded_relu, shrink, add,
  multiply
};
// clang-format on

/// One operation on a result: an activation function with its parameters, or `add` or `multiply`, which
/// combine it with the residual.
struct PostOp {
  Function function;
  float a, b;
};

/// What is applied to the sums of a tile. If `count` is 0, the residual is added and the result clamped to [low, high]
/// in registers. Otherwise the post-ops are applied in order to each tile after it was stored, while it is in the
/// cache.
struct Epilogue {
  float low, high;
  int32_t count;
  PostOp ops[4];
};

/// Strides of an output image in floats, from one block of 16 channels, row and pixel to the next.
struct OutputStrides {
  int64_t block, row, pixel;
};

/// The output that one call computes: rows (or pixels, or rows of a matrix) and blocks of 16 output channels. Blocks
/// begin and end at the borders of panels.
struct OutputRange {
  int32_t row, row_end;
  int32_t block, block_end;
};

/// out[pixel][o] = bias[o] + sum over channels c of in[pixel][c] * weights[c][o], with K = `depth` and N = 16 *
/// `blocks`. Weights are packed in panels of NR = 16 * blocks output channels, each as [input channel][NR]; for the
/// widths of panels, see `ConvKernels::panel`. Kernels for bfloat16 take words of two channels each, [pair of input
/// channels][NR].
struct Gemm {
  int32_t depth, blocks;  // input channels; blocks of output channels
  const float* weights;
  const float* bias;
  Epilogue epilogue;
  int32_t last = 16;  // output channels of the last block; kernels may leave out lanes that have none
};

/// Pixels whose words of bfloat16 pairs are in scratch memory at once: 4 MiB of words at most, in whole tiles of 14
/// pixels.
static inline int32_t staged_pixels(int32_t depth) {
  int32_t most = (1 << 20) / (depth + 31);
  return most < 14 ? 14 : most / 14 * 14;
}

/// Words of scratch memory for these pixels.
static inline int64_t staged_words(int32_t depth, int64_t pixels) {
  int64_t most = staged_pixels(depth);
  return (depth + 31) / 32 * 16 * (pixels < most ? pixels : most);
}

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_GEMM_F32_HPP
