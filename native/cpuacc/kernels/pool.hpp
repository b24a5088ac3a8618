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
  /// Of floats whose windows are a column apart: see `fill_column_counts`; nullptr where each window is combined alone.
  const float* column_counts;
};

/// The taps [first, end) of a window that lie within the image along one axis, and the position of tap 0.
struct Seen {
  int64_t first, end, start;
  int64_t count() const { return end > first ? end - first : 0; }
};

/// The number of taps in a distance, rounded up. A dilation of 1 is treated separately because a division takes as long
/// as several taps.
static inline int64_t cells_of(int64_t distance, int64_t dilation) {
  return dilation == 1 ? distance : (distance + dilation - 1) / dilation;
}

static inline Seen seen(const Pool& pool, int axis, int64_t place) {
  int64_t start = place * pool.stride[axis] - pool.pad[axis], d = pool.dilation[axis], first = 0, end = pool.size[axis];
  if (start < 0) first = cells_of(-start, d);
  int64_t reach = pool.extent[axis] - start;  // distance to the end of the image
  if (reach <= 0)
    end = 0;
  else if (cells_of(reach, d) < end)
    end = cells_of(reach, d);
  return {first, end, start};
}

/// The number of taps along one axis by which an average is divided.
static inline int64_t counted(const Pool& pool, int axis, int64_t place) {
  if (!pool.count_padding) return seen(pool, axis, place).count();
  int64_t start = place * pool.stride[axis] - pool.pad[axis], d = pool.dilation[axis];
  int64_t reach = pool.extent[axis] + pool.pad_after[axis] - start;
  int64_t cells = reach <= 0 ? 0 : cells_of(reach, d);
  return cells < pool.size[axis] ? cells : pool.size[axis];
}

/// The distance between the first and the last tap of a window along the columns.
static inline int64_t reach_of(const Pool& pool) { return (pool.size[2] - 1) * pool.dilation[2]; }

/// Return whether the windows of a row of floats are a column apart, so that vectors combine neighbouring windows. They
/// need a row with its padding, which must not be much longer than the image.
static inline bool has_near_windows(const Pool& pool) {
  const bool is_row = (pool.inner == 16 || pool.inner == 1) && pool.places[2] >= 4;
  return is_row && pool.stride[2] == 1 && reach_of(pool) <= pool.extent[2] + pool.places[2];
}

constexpr int64_t kRowEnd = 16;  // elements after a row, for vectors that pass its end

static inline int64_t column_count_items(const Pool& pool) { return pool.places[2] * pool.inner + kRowEnd; }

/// Set the number of columns by which the average is divided, at least 1, for each element of a row of the result. For
/// maxima it is 0 where the window has no column of the image, else 1.
static inline void fill_column_counts(const Pool& pool, float* counts) {
  for (int64_t n = 0; n < column_count_items(pool); ++n) {
    const int64_t x = n / pool.inner;
    int64_t count = 1;
    if (pool.kind == PoolKind::max)
      count = x >= pool.places[2] || seen(pool, 2, x).count() > 0;
    else if (x < pool.places[2] && counted(pool, 2, x) > 1)
      count = counted(pool, 2, x);
    counts[n] = float(count);
  }
}

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
  if (pool.column_counts) {
    const int64_t padded = pool.pad[2] + width, read = pool.places[2] + reach_of(pool);
    return (padded > read ? padded : read) * pool.inner + kRowEnd;
  }
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
