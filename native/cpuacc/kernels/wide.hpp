// Exact sums of products of 16-bit integers.

#ifndef CPUACC_KERNELS_WIDE_HPP
#define CPUACC_KERNELS_WIDE_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

constexpr int64_t kWideGrain = 32;  // `depth` is a multiple of this

struct WideKernels {
  /// out[n][row] = sum over k of weights[row][k] * in[n][k], for `count` vectors. `in_step` and `out_step` are the
  /// elements between vectors. `narrow`: all weights are from -255 to 255.
  void (*multiply)(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t count, int64_t depth,
                   int64_t rows, bool narrow, int64_t* out, int64_t out_step);
  /// sums[n] += x[n] * weights[n]; the sums must fit into 32 bits.
  void (*add_products)(int32_t* sums, const int16_t* x, const int16_t* weights, int64_t count);
};
CPUACC_TABLE(WideKernels, wide_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_WIDE_HPP
