// Exact sums of products of 16-bit integers, and their requantization.

#ifndef CPUACC_KERNELS_WIDE_HPP
#define CPUACC_KERNELS_WIDE_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

constexpr int64_t kWideGrain = 32;  // `depth` is a multiple of this

/// One tap of the window of a depthwise convolution: the channels that it reads for the first pixel, and their weights.
struct WideTap {
  const int16_t *in, *weights;
};

/// How sums of 32 bits become quantized values of 16 bits. Arrays have an element for each channel, up to a multiple of
/// 16.
struct WideScales {
  // If `ratios` is nullptr, the result is that of `native::multiply` for sum + bias, which wraps around.
  const int32_t *bias, *multipliers, *shifts;
  // Else it is (sum + real_bias) * ratio, rounded half up. The product has at most 53 bits.
  const double *ratios, *real_bias;
  int32_t zero;
};

struct WideKernels {
  /// out[n][row] = sum over k of weights[row][k] * in[n][k], for `count` vectors. `in_step` and `out_step` are the
  /// elements between vectors. `narrow`: all weights are from -255 to 255.
  void (*multiply)(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t count, int64_t depth,
                   int64_t rows, bool narrow, int64_t* out, int64_t out_step);
  /// sums[n][c] = sum over `taps` of in[n * step + c] * weights[c], for `pixels` and `channels`; the sums must fit into
  /// 32 bits. `sum_step` is the number of elements between the sums of pixels.
  void (*depthwise)(const WideTap* taps, int64_t count, int64_t pixels, int64_t step, int64_t channels, int32_t* sums,
                    int64_t sum_step);
  /// Write the results of sums of pixels, which are `sum_step` and `out_step` elements apart. The sums are read up to a
  /// multiple of 16 channels.
  void (*requantize)(const int32_t* sums, int64_t sum_step, int64_t pixels, int64_t channels, const WideScales& scales,
                     int16_t* out, int64_t out_step);
};
CPUACC_TABLE(WideKernels, wide_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_WIDE_HPP
