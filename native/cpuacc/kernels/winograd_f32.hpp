// 3x3 convolutions of float32 images with stride 1 by Winograd's algorithm.

#ifndef CPUACC_KERNELS_WINOGRAD_F32_HPP
#define CPUACC_KERNELS_WINOGRAD_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"

namespace cpuacc {

/// F(tile x tile, 3x3): each square of `tile` x `tile` output pixels (2 or 4) becomes (tile + 2)**2 elements, and each
/// element is a GEMM over all squares. Weights are [panel][element][input channel][16 * blocks of the panel], each
/// transformed by `transform_weights`.
struct Winograd {
  Gemm gemm;
  int32_t tile, height, width, out_height, out_width, pad_top, pad_left;
  int32_t chunk;  // squares whose transforms are in scratch memory at once
};

static inline int32_t squares_across(const Winograd& w) { return (w.out_width + w.tile - 1) / w.tile; }
static inline int32_t squares_of(const Winograd& w) { return (w.out_height + w.tile - 1) / w.tile * squares_across(w); }

/// Floats of scratch memory: for the transformed input of a chunk and, for one panel, its transformed output.
static inline int64_t scratch_of(const Winograd& w) {
  int64_t elements = int64_t{w.tile + 2} * (w.tile + 2);
  return elements * w.chunk * 16 * ((w.gemm.depth + 15) / 16 + 3);
}

struct WinogradKernels {
  int32_t panel;  // as in ConvKernels
  bool bfloat16;  // weights are pairs of bfloat16
  /// Rows of `range` are squares.
  void (*convolve)(const Winograd&, const float* in, float* out, const float* residual, float* scratch,
                   const OutputRange& range);
  /// One of three stages on all squares, so that threads can divide few squares: stage 0 transforms the blocks
  /// [first, last) of the input into `inputs`, stage 1 multiplies the elements [first, last) into `sums`, stage 2
  /// transforms the blocks [first, last) of the output.
  void (*stage)(const Winograd&, int stage, const float* in, float* out, const float* residual, float* inputs,
                float* sums, int first, int last);
  /// From 3x3 weights, [9][16], to those of (tile + 2)**2 elements, `step` floats apart.
  void (*transform_weights)(int32_t tile, const float* taps, float* to, int64_t step);
};

CPUACC_TABLE(WinogradKernels, winograd_kernels)
CPUACC_BFLOAT16_TABLE(WinogradKernels, winograd_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_WINOGRAD_F32_HPP
