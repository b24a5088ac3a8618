#include "cpuacc/kernels/pool.hpp"

#include <math.h>

#include <type_traits>

#include "cpuacc/kernels/simd.hpp"
#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

/// The taps [first, end) of a window that lie within the image along one axis, and the position of tap 0.
struct Seen {
  int64_t first, end, start;
  int64_t count() const { return end > first ? end - first : 0; }
};

/// The number of taps in a distance, rounded up. A dilation of 1 is treated separately because a division takes as long
/// as several taps.
int64_t cells_of(int64_t distance, int64_t dilation) {
  return dilation == 1 ? distance : (distance + dilation - 1) / dilation;
}

Seen seen(const Pool& pool, int axis, int64_t place) {
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
int64_t counted(const Pool& pool, int axis, int64_t place) {
  if (!pool.count_padding) return seen(pool, axis, place).count();
  int64_t start = place * pool.stride[axis] - pool.pad[axis], d = pool.dilation[axis];
  int64_t reach = pool.extent[axis] + pool.pad_after[axis] - start;
  int64_t cells = reach <= 0 ? 0 : cells_of(reach, d);
  return cells < pool.size[axis] ? cells : pool.size[axis];
}

template <class T>
struct Least {
  static constexpr T value = T(-1) < T(0) ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
};
template <>
struct Least<float> {
  static constexpr float value = -INFINITY;
};
template <>
struct Least<double> {
  static constexpr double value = -INFINITY;
};

template <class T>
struct MaxOf {
  using Total = T;
  static T start() { return Least<T>::value; }
  static T both(T total, T x) { return x > total || x != x ? x : total; }
  static T joined(T total, T x) { return both(total, x); }
  static T finish(T total, int64_t count, const Pool& pool, int64_t) { return count > 0 ? total : T(pool.zero); }
};

template <class T>
struct MeanOf;
template <>
struct MeanOf<float> {
  static constexpr bool squares = false;
  using Total = float;
  static float start() { return 0; }
  static float both(float total, float x) { return total + x; }
  static float joined(float total, float x) { return total + x; }
  static float finish(float total, int64_t, const Pool&, int64_t counted) {
    return counted > 0 ? total / float(counted) : 0;
  }
};
struct LengthOf : MeanOf<float> {
  static constexpr bool squares = true;
  static float both(float total, float x) { return total + x * x; }
  static float finish(float total, int64_t, const Pool&, int64_t counted) {
    return counted > 0 ? sqrtf(total / float(counted)) : 0;
  }
};
/// Divide a non-negative sum of up to `count` values of type T. The quotients of floats are exact after truncation: a
/// sum below 2**24 is too small for its quotient to be rounded up to the next integer. Vectors divide floats only.
template <class T>
int32_t quotient(int32_t sum, int32_t count) {
  return sizeof(T) == 1 ? int32_t(float(sum) / float(count)) : int32_t(double(sum) / double(count));
}
constexpr int64_t kMostExactlyDivided = 1
                                        << 15;  // values of 8 bits whose sum, and half of their number, is below 2**24

template <class T>
struct QuantizedMeanOf {
  using Total = int32_t;
  static int32_t start() { return 0; }
  static int32_t both(int32_t total, T x) { return total + x; }
  static int32_t joined(int32_t total, int32_t x) { return total + x; }
  static T finish(int32_t total, int64_t count, const Pool& pool, int64_t counted) {
    if (counted <= 0) return T(pool.zero);
    const int32_t all = int32_t(counted), sum = total + pool.zero * int32_t(counted - count), half = all / 2;
    const int32_t distance = (sum < 0 ? -sum : sum) + half;
    const int32_t mean = counted <= kMostExactlyDivided ? quotient<T>(distance, all) : distance / all;
    return T(sum < 0 ? -mean : mean);
  }
};
template <class T>
struct ExactMeanOf : QuantizedMeanOf<T> {
  static T finish(int32_t total, int64_t count, const Pool& pool, int64_t counted) {
    if (counted <= 0) return T(pool.zero_out);
    const double sum = double(total - pool.zero * int32_t(count));
    const double code =
        __builtin_nearbyint(sum * pool.scale / (double(counted) * pool.scale_out)) + double(pool.zero_out);
    const double least = double(Least<T>::value), most = least + (sizeof(T) == 1 ? 255 : 65535);
    return T(int32_t(code < least ? least : code > most ? most : code));
  }
};
template <>
struct MeanOf<int8_t> : QuantizedMeanOf<int8_t> {};
template <>
struct MeanOf<uint8_t> : QuantizedMeanOf<uint8_t> {};
template <>
struct MeanOf<int16_t> : QuantizedMeanOf<int16_t> {};

/// The columns of the image and the taps of all axes that one window covers.
struct Window {
  Seen planes, rows, columns;
};

/// The mean of a window of channel `c`, or for L2 the root of the mean square, in double precision.
template <class F>
float mean_wide(const Pool& pool, const float* in, const Window& window, int64_t c, int64_t counted) {
  double total = 0;
  for (int64_t z = window.planes.first; z < window.planes.end; ++z)
    for (int64_t y = window.rows.first; y < window.rows.end; ++y)
      for (int64_t x = window.columns.first; x < window.columns.end; ++x) {
        const int64_t plane = window.planes.start + z * pool.dilation[0],
                      row = window.rows.start + y * pool.dilation[1],
                      column = window.columns.start + x * pool.dilation[2];
        const double value = double(in[((plane * pool.extent[1] + row) * pool.extent[2] + column) * pool.inner + c]);
        total += F::squares ? value * value : value;
      }
  const double mean = counted > 0 ? total / double(counted) : 0;
  return float(F::squares ? sqrt(mean) : mean);
}

template <class F>
bool left_range(float result) {
  return !(fabsf(result) < INFINITY) || (F::squares && result < 1e-15f);
}

/// Compute results again whose sums left the range of float; the exact results may be floats.
template <class F>
__attribute__((noinline)) void mend(const Pool& pool, const float* in, float* out, const Window& window, int64_t first,
                                    int64_t count, int64_t counted) {
  for (int64_t c = 0; c < count; ++c)
    if (left_range<F>(out[c])) out[c] = mean_wide<F>(pool, in, window, first + c, counted);
}

template <class F>
bool any_left_range(const float* results, int64_t count) {
  int any = 0;
  for (int64_t c = 0; c < count; ++c) any |= left_range<F>(results[c]);
  return any != 0;
}

/// Combine the rows under the windows of one row of the result into one row.
template <class T, class F>
void join_rows(const Pool& pool, const T* in, const Seen& planes, const Seen& rows, typename F::Total* joined) {
  const int64_t width = pool.extent[2] * pool.inner;
  for (int64_t n = 0; n < width; ++n) joined[n] = F::start();
  for (int64_t z = planes.first; z < planes.end; ++z)
    for (int64_t y = rows.first; y < rows.end; ++y) {
      int64_t at = (planes.start + z * pool.dilation[0]) * pool.extent[1] + rows.start + y * pool.dilation[1];
      const T* from = in + at * width;
      for (int64_t n = 0; n < width; ++n) joined[n] = F::both(joined[n], from[n]);
    }
}

/// Combine the columns of one window for `some` channels. A constant number of channels stays in registers.
template <class T, class F>
inline __attribute__((always_inline)) void join_columns(const Pool& pool, const typename F::Total* first, int64_t by,
                                                        int64_t taps, int64_t some, T* to, int64_t count,
                                                        int64_t counts) {
  constexpr int64_t kMost = 64;
  typename F::Total totals[kMost];
  for (int64_t c = 0; c < some; ++c) totals[c] = F::start();
  for (int64_t k = 0; k < taps; ++k)
    for (int64_t c = 0; c < some; ++c) totals[c] = F::joined(totals[c], first[k * by + c]);
  for (int64_t c = 0; c < some; ++c) to[c] = F::finish(totals[c], count, pool, counts);
}

/// Combine the rows under the window into one row in scratch memory, then the columns of that row.
template <class T, class F>
void pool_channels(const Pool& pool, const T* in, T* out, int64_t plane, int64_t row, typename F::Total* joined) {
  const int64_t inner = pool.inner;
  const Seen planes = seen(pool, 0, plane), rows = seen(pool, 1, row);
  join_rows<T, F>(pool, in, planes, rows, joined);
  const int64_t cells = planes.count() * rows.count(), all = counted(pool, 0, plane) * counted(pool, 1, row);
  for (int64_t x = 0; x < pool.places[2]; ++x) {
    const Seen columns = seen(pool, 2, x);
    const int64_t count = cells * columns.count(), counts = all * counted(pool, 2, x);
    const typename F::Total* first = joined + (columns.start + columns.first * pool.dilation[2]) * inner;
    const int64_t by = pool.dilation[2] * inner, taps = columns.count();
    T* to = out + x * inner;
    int64_t c = 0;
    for (; c + 64 <= inner; c += 64) join_columns<T, F>(pool, first + c, by, taps, 64, to + c, count, counts);
    for (; c + 16 <= inner; c += 16) join_columns<T, F>(pool, first + c, by, taps, 16, to + c, count, counts);
    if (c < inner) join_columns<T, F>(pool, first + c, by, taps, inner - c, to + c, count, counts);
    if constexpr (std::is_base_of_v<MeanOf<float>, F>)
      if (__builtin_expect(any_left_range<F>(to, inner), 0))
        mend<F>(pool, in, to, {planes, rows, columns}, 0, inner, counts);
  }
}

/// The windows [first, end) of a row.
struct Windows {
  int64_t first, end;
};

/// The windows whose columns all lie within the image.
Windows whole_windows(const Pool& pool) {
  const int64_t stride = pool.stride[2], reach = (pool.size[2] - 1) * pool.dilation[2] + 1;
  const int64_t first = (pool.pad[2] + stride - 1) / stride, room = pool.extent[2] + pool.pad[2] - reach;
  const int64_t end = room < 0 ? 0 : room / stride + 1, most = pool.places[2];
  return {first < most ? first : most, end < most ? end : most};
}

/// Compute windows of one row of an image with one channel, which all lie within the image.
template <class T, class F, int kStride>
__attribute__((noinline)) void pool_whole(const Pool& pool, const typename F::Total* joined, T* out, Windows windows,
                                          int64_t count, int64_t counts) {
  using Total = typename F::Total;
  constexpr int64_t kPiece = 32;
  const int64_t stride = kStride ? kStride : pool.stride[2];
  for (int64_t x = windows.first; x < windows.end; x += kPiece) {
    const int64_t some = windows.end - x < kPiece ? windows.end - x : kPiece;
    Total totals[kPiece];
    for (int64_t n = 0; n < some; ++n) totals[n] = F::start();
    for (int64_t k = 0; k < pool.size[2]; ++k) {
      const Total* from = joined + x * stride - pool.pad[2] + k * pool.dilation[2];
      for (int64_t n = 0; n < some; ++n) totals[n] = F::joined(totals[n], from[n * stride]);
    }
    for (int64_t n = 0; n < some; ++n) out[x + n] = F::finish(totals[n], count, pool, counts);
  }
}

/// As `pool_channels`, for images with one channel: windows within the image are combined in vectors of windows.
template <class T, class F>
void pool_one_channel(const Pool& pool, const T* in, T* out, int64_t plane, int64_t row, typename F::Total* joined) {
  const Seen planes = seen(pool, 0, plane), rows = seen(pool, 1, row);
  join_rows<T, F>(pool, in, planes, rows, joined);
  const int64_t cells = planes.count() * rows.count(), all = counted(pool, 0, plane) * counted(pool, 1, row);
  const Windows whole = whole_windows(pool);
  auto single = [&](int64_t x) {
    const Seen columns = seen(pool, 2, x);
    join_columns<T, F>(pool, joined + columns.start + columns.first * pool.dilation[2], pool.dilation[2],
                       columns.count(), 1, out + x, cells * columns.count(), all * counted(pool, 2, x));
  };
  for (int64_t x = 0; x < whole.first; ++x) single(x);
  const int64_t count = cells * pool.size[2], counts = all * pool.size[2];
  auto inside = pool.stride[2] == 1   ? pool_whole<T, F, 1>
                : pool.stride[2] == 2 ? pool_whole<T, F, 2>
                                      : pool_whole<T, F, 0>;
  inside(pool, joined, out, whole, count, counts);
  for (int64_t x = whole.first > whole.end ? whole.first : whole.end; x < pool.places[2]; ++x) single(x);
  if constexpr (std::is_base_of_v<MeanOf<float>, F>)
    if (__builtin_expect(any_left_range<F>(out, pool.places[2]), 0))
      for (int64_t x = 0; x < pool.places[2]; ++x)
        mend<F>(pool, in, out + x, {planes, rows, seen(pool, 2, x)}, 0, 1, all * counted(pool, 2, x));
}

template <class T, class F>
void pool_row(const Pool& pool, const void* image, void* result, int64_t plane, int64_t row, void* scratch) {
  auto compute = pool.inner == 1 ? pool_one_channel<T, F> : pool_channels<T, F>;
  compute(pool, static_cast<const T*>(image), static_cast<T*>(result), plane, row,
          static_cast<typename F::Total*>(scratch));
}

/// Accumulators of one window for a vector of channels. NaN is tracked separately from the maximum.
struct MaxOfBlock : MaxOf<float> {
  void add(Vec x) {
    total = at_least(x, total);
    unordered |= x != x;
  }
  Vec sum() const { return unordered ? broadcast(NAN) : total; }

  Vec total = broadcast(-INFINITY);
  IntVec unordered = {};
};
struct MeanOfBlock : MeanOf<float> {
  void add(Vec x) { total += x; }
  Vec sum() const { return total; }

  Vec total = {};
};

/// Pool nChw16c images; windows are combined in registers.
template <class F>
void pool_blocks(const Pool& pool, const float* in, float* out, int64_t plane, int64_t row) {
  constexpr int kVecs = 16 / kLanes;
  const Seen planes = seen(pool, 0, plane), rows = seen(pool, 1, row);
  const int64_t by_row = pool.extent[2] * 16, cells = planes.count() * rows.count();
  const int64_t all_cells = counted(pool, 0, plane) * counted(pool, 1, row);
  for (int64_t x = 0; x < pool.places[2]; ++x, out += 16) {
    const Seen columns = seen(pool, 2, x);
    F windows[kVecs];
    for (int64_t z = planes.first; z < planes.end; ++z)
      for (int64_t y = rows.first; y < rows.end; ++y) {
        int64_t at = (planes.start + z * pool.dilation[0]) * pool.extent[1] + rows.start + y * pool.dilation[1];
        for (int64_t k = columns.first; k < columns.end; ++k) {
          const float* from = in + at * by_row + (columns.start + k * pool.dilation[2]) * 16;
          for (int v = 0; v < kVecs; ++v) windows[v].add(load(from + v * kLanes));
        }
      }
    float sums[16];
    for (int v = 0; v < kVecs; ++v) store(sums + v * kLanes, windows[v].sum());
    const int64_t count = cells * columns.count(), counts = all_cells * counted(pool, 2, x);
    for (int c = 0; c < 16; ++c) out[c] = F::finish(sums[c], count, pool, counts);
    if constexpr (std::is_base_of_v<MeanOf<float>, F>)
      if (__builtin_expect(any_left_range<F>(out, 16), 0))
        mend<F>(pool, in, out, {planes, rows, columns}, 0, 16, counts);
  }
}

template <class F>
void pool_floats(const Pool& pool, const void* image, void* result, int64_t plane, int64_t row, void* scratch) {
  if (pool.inner != 16) return pool_row<float, F>(pool, image, result, plane, row, scratch);
  pool_blocks<F>(pool, static_cast<const float*>(image), static_cast<float*>(result), plane, row);
}

/// Maxima of the types that have no means.
PoolKernels::Row max_row(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_UINT16:
      return pool_row<uint16_t, MaxOf<uint16_t>>;
    case IPR_DTYPE_INT32:
      return pool_row<int32_t, MaxOf<int32_t>>;
    case IPR_DTYPE_UINT32:
      return pool_row<uint32_t, MaxOf<uint32_t>>;
    case IPR_DTYPE_INT64:
      return pool_row<int64_t, MaxOf<int64_t>>;
    case IPR_DTYPE_UINT64:
      return pool_row<uint64_t, MaxOf<uint64_t>>;
    case IPR_DTYPE_FLOAT64:
      return pool_row<double, MaxOf<double>>;
    default:
      return nullptr;
  }
}

PoolKernels::Row row(PoolKind kind, int32_t dtype, bool to_even) {
  if (to_even && kind == PoolKind::average && dtype == IPR_DTYPE_INT8) return pool_row<int8_t, ExactMeanOf<int8_t>>;
  if (to_even && kind == PoolKind::average && dtype == IPR_DTYPE_UINT8) return pool_row<uint8_t, ExactMeanOf<uint8_t>>;
  if (to_even && kind == PoolKind::average && dtype == IPR_DTYPE_INT16) return pool_row<int16_t, ExactMeanOf<int16_t>>;
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      if (kind == PoolKind::l2) return pool_row<float, LengthOf>;
      return kind == PoolKind::max ? pool_floats<MaxOfBlock> : pool_floats<MeanOfBlock>;
    case IPR_DTYPE_INT8:
      if (kind == PoolKind::l2) return nullptr;
      return kind == PoolKind::max ? pool_row<int8_t, MaxOf<int8_t>> : pool_row<int8_t, MeanOf<int8_t>>;
    case IPR_DTYPE_UINT8:
      if (kind == PoolKind::l2) return nullptr;
      return kind == PoolKind::max ? pool_row<uint8_t, MaxOf<uint8_t>> : pool_row<uint8_t, MeanOf<uint8_t>>;
    case IPR_DTYPE_INT16:
      if (kind == PoolKind::l2) return nullptr;
      return kind == PoolKind::max ? pool_row<int16_t, MaxOf<int16_t>> : pool_row<int16_t, MeanOf<int16_t>>;
    default:
      return kind == PoolKind::max ? max_row(dtype) : nullptr;
  }
}

}  // namespace

extern const PoolKernels pool_kernels = {row};

}  // namespace cpuacc::ISA_NS
