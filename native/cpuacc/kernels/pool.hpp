// Pooling of images and volumes. `inner` channels are contiguous: all of them in NHWC, 16 in nChw16c, one in NCHW.

#ifndef CPUACC_KERNELS_POOL_HPP
#define CPUACC_KERNELS_POOL_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

enum class PoolKind : int32_t { max, average, l2 };

struct Pool {
  PoolKind kind;
  int64_t inner;
  int64_t extent[3], places[3];  // of the input and the result: planes, rows, columns
  int64_t size[3], stride[3], dilation[3], pad[3], pad_after[3];
  bool count_padding;  // padding counts in the divisor of an average
  int32_t zero;        // the zero point of quantized values
  bool to_even;        // averages of quantized values are exact, and rounded half to even; else half away from zero
  int32_t zero_out;    // to_even: the zero point of the result, and both scales
  double scale, scale_out;
  /// to_even, of 8 bits: by the number of averaged values up to kMostWithFactor, a factor that gives the exact results
  /// in float32, or 0 if there is none.
  const float* factors;
  int64_t row_item;  // bytes of an element of the scratch memory, at least those of a total
};

constexpr int64_t kMostInShorts = 256;  // values of 8 bits whose sum fits 16 bits
constexpr int64_t kMostWithFactor = 64;

constexpr int64_t kSplitPiece = 16;  // windows of one channel that are computed at once
/// The length of each of the rows into which a row of one channel is split; windows past its end are computed too.
static inline int64_t split_length(int64_t width, int64_t stride) {
  return (width + stride - 1) / stride + kSplitPiece;
}

/// The elements of the scratch memory.
static inline int64_t scratch_items(const Pool& pool) {
  const int64_t width = pool.extent[2], stride = pool.stride[2];
  if (pool.inner > 1) return width * pool.inner;
  return (stride > 1 ? width : 0) + stride * split_length(width, stride);
}

struct PoolKernels {
  /// Compute one row of the result of the image `in`. `scratch` has `scratch_items(pool)` elements of `row_item` bytes.
  using Row = void (*)(const Pool& pool, const void* in, void* out, int64_t plane, int64_t row, void* scratch);
  /// The function for windows of up to `taps` elements; nullptr if the dtype is not supported.
  Row (*row)(PoolKind kind, int32_t dtype, int64_t taps);
};
CPUACC_TABLE(PoolKernels, pool_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_POOL_HPP
