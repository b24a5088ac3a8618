#include "cpuacc/kernels/mix.hpp"

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Compute VECTORS adjacent vectors of up to four rows of the result; the last one has `count` elements.
template <int VECTORS>
CPUACC_INLINE void mix_rows(const Mix& mix, const float* weights, const float* bias, const float* in, float* out,
                            int64_t rows, int64_t count) {
  Vec sums[kMixedTogether][VECTORS];
#pragma GCC unroll 4
  for (int row = 0; row < kMixedTogether; ++row)
#pragma GCC unroll 2
    for (int n = 0; n < VECTORS; ++n) sums[row][n] = broadcast(bias[row]);
  for (int64_t k = 0; k < mix.inputs; ++k, in += mix.length, weights += kMixedTogether) {
    Vec x[VECTORS];
#pragma GCC unroll 2
    for (int n = 0; n < VECTORS; ++n)
      x[n] = n + 1 < VECTORS || count == kLanes ? load(in + n * kLanes) : load_some(in + n * kLanes, count, 0);
#pragma GCC unroll 4
    for (int row = 0; row < kMixedTogether; ++row)
#pragma GCC unroll 2
      for (int n = 0; n < VECTORS; ++n) sums[row][n] += broadcast(weights[row]) * x[n];
  }
#pragma GCC unroll 4
  for (int row = 0; row < kMixedTogether; ++row) {
    if (row >= rows) return;
#pragma GCC unroll 2
    for (int n = 0; n < VECTORS; ++n) {
      float* to = out + row * mix.length + n * kLanes;
      if (n + 1 < VECTORS || count == kLanes)
        store(to, sums[row][n]);
      else
        store_some(to, sums[row][n], count);
    }
  }
}

void mix(const Mix& mix, const float* in, float* out, int64_t first, int64_t last) {
  for (int64_t at = first; at < last; at += 2 * kLanes) {
    const int64_t left = last - at;
    for (int64_t row = 0; row < mix.outputs; row += kMixedTogether) {
      const float *weights = mix.weights + row * mix.inputs, *bias = mix.bias + row;
      float* to = out + row * mix.length + at;
      if (left >= 2 * kLanes)
        mix_rows<2>(mix, weights, bias, in + at, to, mix.outputs - row, kLanes);
      else if (left > kLanes)
        mix_rows<2>(mix, weights, bias, in + at, to, mix.outputs - row, left - kLanes);
      else
        mix_rows<1>(mix, weights, bias, in + at, to, mix.outputs - row, left);
    }
  }
}

}  // namespace

extern const MixKernels mix_kernels = {mix};

}  // namespace cpuacc::ISA_NS
