#include "cpuacc/kernels/pool.hpp"

#include <math.h>
#include <string.h>

#include <type_traits>

#include "cpuacc/kernels/simd.hpp"
#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

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

/// The elements of a window in the image, and the number by which its total is divided.
struct Divisor {
  int64_t count, counted;
};

/// `finish` may write whole vectors after the last result, and `finish_each` writes `some` results only.
template <class T>
struct MaxOf {
  static constexpr bool kInShorts = false;
  using Total = T;
  static T start() { return Least<T>::value; }
  static T both(T total, T x) { return x > total || x != x ? x : total; }
  static T joined(T total, T x) { return both(total, x); }
  static bool is_empty(const Divisor& by) { return by.count == 0; }
  static T none(const Pool& pool) { return T(pool.zero); }
  static void finish(const T* totals, T* to, int64_t some, const Pool&, const Divisor&) {
    for (int64_t n = 0; n < some; ++n) to[n] = totals[n];
  }
  static void finish_each(const T* totals, T* to, int64_t some, const Pool& pool, const Divisor& by) {
    finish(totals, to, some, pool, by);
  }
};

struct MeanOfFloats {
  static constexpr bool squares = false, kInShorts = false;
  using Total = float;
  static float start() { return 0; }
  static float both(float total, float x) { return total + x; }
  static float joined(float total, float x) { return total + x; }
  static bool is_empty(const Divisor& by) { return by.counted <= 0; }
  static float none(const Pool&) { return 0; }
  static void finish(const float* totals, float* to, int64_t some, const Pool&, const Divisor& by) {
    const float divisor = float(by.counted);
    for (int64_t n = 0; n < some; ++n) to[n] = totals[n] / divisor;
  }
  static void finish_each(const float* totals, float* to, int64_t some, const Pool& pool, const Divisor& by) {
    finish(totals, to, some, pool, by);
  }
};
struct LengthOf : MeanOfFloats {
  static constexpr bool squares = true;
  static float both(float total, float x) { return total + x * x; }
  static void finish(const float* totals, float* to, int64_t some, const Pool&, const Divisor& by) {
    const float divisor = float(by.counted);
    for (int64_t n = 0; n < some; ++n) to[n] = sqrtf(totals[n] / divisor);
  }
  static void finish_each(const float* totals, float* to, int64_t some, const Pool& pool, const Divisor& by) {
    finish(totals, to, some, pool, by);
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

/// A vector of integers of fewer bits as int32.
template <class Narrow>
CPUACC_INLINE Ints widened(const Narrow* from) {
  typedef Narrow Few __attribute__((vector_size(kLanes * sizeof(Narrow)), aligned(alignof(Narrow)), may_alias));
  return reinterpret_cast<Ints>(__builtin_convertvector(*reinterpret_cast<const Few*>(from), IntVec));
}

/// Means of quantized values. Sums of up to kMostInShorts values of 8 bits have 16 bits.
template <class T, class Sum>
struct QuantizedMeanOf {
  static constexpr bool kInShorts = sizeof(Sum) < sizeof(int32_t);
  using Total = Sum;
  static constexpr int32_t kLeast = int32_t(Least<T>::value), kMost = kLeast + (sizeof(T) == 1 ? 255 : 65535);

  static Sum start() { return 0; }
  static Sum both(Sum total, T x) { return Sum(total + x); }
  static Sum joined(Sum total, Sum x) { return Sum(total + x); }
  static bool is_empty(const Divisor& by) { return by.counted <= 0; }
  static T none(const Pool& pool) { return T(pool.to_even ? pool.zero_out : pool.zero); }

  static void finish(const Sum* totals, T* to, int64_t some, const Pool& pool, const Divisor& by) {
    if constexpr (kInShorts) {
      if (!pool.to_even) return finish_in_floats<false>(totals, to, some, pool, by, 1.0f / float(by.counted));
      const float factor = by.counted <= kMostWithFactor ? pool.factors[by.counted] : 0;
      if (factor > 0) return finish_in_floats<true>(totals, to, some, pool, by, factor);
    }
    finish_each(totals, to, some, pool, by);
  }
  static __attribute__((noinline)) void finish_each(const Sum* totals, T* to, int64_t some, const Pool& pool,
                                                    const Divisor& by) {
    if (pool.to_even)
      for (int64_t n = 0; n < some; ++n) to[n] = exact(totals[n], pool, by);
    else
      for (int64_t n = 0; n < some; ++n) to[n] = half_away(totals[n], pool, by);
  }

 private:
  static T half_away(int32_t total, const Pool& pool, const Divisor& by) {
    const int32_t all = int32_t(by.counted), sum = total + pool.zero * int32_t(by.counted - by.count), half = all / 2;
    const int32_t distance = (sum < 0 ? -sum : sum) + half;
    const int32_t mean = by.counted <= kMostExactlyDivided ? quotient<T>(distance, all) : distance / all;
    return T(sum < 0 ? -mean : mean);
  }
  static T exact(int32_t total, const Pool& pool, const Divisor& by) {
    const double sum = double(total - pool.zero * int32_t(by.count));
    const double code =
        __builtin_nearbyint(sum * pool.scale / (double(by.counted) * pool.scale_out)) + double(pool.zero_out);
    return T(int32_t(code < kLeast ? kLeast : code > kMost ? kMost : code));
  }

  /// Rounded half away from zero, the mean is the sum plus half of the divisor, divided and truncated. A quarter more
  /// keeps quotients far from integers: at least 0.25 / counted, while their error in float32 is below 2**-14.
  template <bool kToEven>
  static void finish_in_floats(const Sum* totals, T* to, int64_t some, const Pool& pool, const Divisor& by,
                               float by_factor) {
    const int64_t distance = kToEven ? -pool.zero * by.count : pool.zero * (by.counted - by.count);
    const Ints offset = splat(uint32_t(distance)), zero = splat(uint32_t(pool.zero_out));
    const Vec factor = broadcast(by_factor), half = broadcast((float(by.counted / 2) + 0.25f) * by_factor);
    const Vec low = broadcast(float(kLeast - pool.zero_out)), high = broadcast(float(kMost - pool.zero_out));
    for (int64_t n = 0; n < some; n += kLanes) {
      const Vec x = floats(add(widened(totals + n), offset));
      const Ints mean = kToEven ? add(nearest(at_most(at_least(x * factor, low), high)), zero)
                                : truncated(fused(x, factor, with_sign(half, x)));
      store_low_bytes(reinterpret_cast<uint8_t*>(to + n), mean);
    }
  }
};

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

/// The rows of the image under the windows of one row of the result.
struct RowsUnder {
  Seen planes, rows;
  int64_t count() const { return planes.count() * rows.count(); }

  /// Call `function` with the address of each.
  template <class T, class Function>
  __attribute__((always_inline)) void each(const Pool& pool, const T* in, const Function& function) const {
    for (int64_t z = planes.first; z < planes.end; ++z)
      for (int64_t y = rows.first; y < rows.end; ++y) {
        int64_t at = (planes.start + z * pool.dilation[0]) * pool.extent[1] + rows.start + y * pool.dilation[1];
        function(in + at * pool.extent[2] * pool.inner);
      }
  }
};

/// Combine the rows under the windows of one row of the result into one row.
template <class T, class F>
void join_rows(const Pool& pool, const T* in, const RowsUnder& under, typename F::Total* joined) {
  const int64_t width = pool.extent[2] * pool.inner;
  if (under.count() == 0)
    for (int64_t n = 0; n < width; ++n) joined[n] = F::start();
  bool is_first = true;
  under.each(
      pool, in, [&](const T* from) __attribute__((always_inline)) {
        if (is_first)
          for (int64_t n = 0; n < width; ++n) joined[n] = F::both(F::start(), from[n]);
        else
          for (int64_t n = 0; n < width; ++n) joined[n] = F::both(joined[n], from[n]);
        is_first = false;
      });
}

constexpr int64_t kMostChannels = 64;

/// Finish `some` totals, whose array has room for whole vectors. A constant number of totals stays in registers.
template <class T, class F>
CPUACC_INLINE void finish(const typename F::Total* totals, T* to, int64_t some, const Pool& pool, const Divisor& by) {
  if (some % 16 == 0) return F::finish(totals, to, some, pool, by);
  T results[kMostChannels];
  F::finish(totals, results, some, pool, by);
  for (int64_t n = 0; n < some; ++n) to[n] = results[n];
}

/// Combine the columns of one window for `some` channels, or of as many neighbouring windows of one channel.
template <class T, class F>
CPUACC_INLINE void join_columns(const Pool& pool, const typename F::Total* first, int64_t by, int64_t taps,
                                int64_t some, T* to, const Divisor& divisor) {
  typename F::Total totals[kMostChannels];
  for (int64_t c = 0; c < some; ++c) totals[c] = F::start();
  for (int64_t c = some; c % 16 != 0; ++c) totals[c] = F::start();
  for (int64_t k = 0; k < taps; ++k)
    for (int64_t c = 0; c < some; ++c) totals[c] = F::joined(totals[c], first[k * by + c]);
  finish<T, F>(totals, to, some, pool, divisor);
}

/// Call `function(number, first)` for parts of 16 or more channels; the number is a constant of inlined calls. Some of
/// the last 16 channels may be computed twice.
template <class Function>
CPUACC_INLINE void in_parts(int64_t channels, Function function) {
  int64_t c = 0;
  for (; c + kMostChannels <= channels; c += kMostChannels) function(kMostChannels, c);
  for (; c < channels; c += 16) function(16, c + 16 <= channels ? c : channels - 16);
}

/// Compute the window over all of an image, whose elements are contiguous.
template <class T, class F>
void pool_all(const Pool& pool, const T* in, T* out) {
  using Total = typename F::Total;
  const int64_t inner = pool.inner, pixels = pool.extent[0] * pool.extent[1] * pool.extent[2];
  const Divisor by{pixels, counted(pool, 0, 0) * counted(pool, 1, 0) * counted(pool, 2, 0)};
  Total totals[kMostChannels];
  if (inner == 1) {
    for (Total& total : totals) total = F::start();
    int64_t n = 0;
    for (; n + kMostChannels <= pixels; n += kMostChannels)
      for (int64_t c = 0; c < kMostChannels; ++c) totals[c] = F::both(totals[c], in[n + c]);
    for (int64_t c = 0; n < pixels; ++n, ++c) totals[c] = F::both(totals[c], in[n]);
    for (int64_t half = kMostChannels / 2; half > 0; half /= 2)
      for (int64_t c = 0; c < half; ++c) totals[c] = F::joined(totals[c], totals[c + half]);
    return finish<T, F>(totals, out, 1, pool, by);
  }
  in_parts(
      inner, [&](int64_t some, int64_t first) __attribute__((always_inline)) {
        for (int64_t c = 0; c < kMostChannels; ++c) totals[c] = F::start();
        for (int64_t n = 0; n < pixels; ++n)
          for (int64_t c = 0; c < some; ++c) totals[c] = F::both(totals[c], in[n * inner + first + c]);
        finish<T, F>(totals, out + first, some, pool, by);
      });
}

/// Combine the rows under the window into one row in scratch memory, then the columns of that row.
template <class T, class F>
void pool_channels(const Pool& pool, const T* in, T* out, const Seen& planes, const Seen& rows, int64_t all,
                   typename F::Total* joined) {
  const int64_t inner = pool.inner, cells = planes.count() * rows.count();
  for (int64_t x = 0; x < pool.places[2]; ++x) {
    const Seen columns = seen(pool, 2, x);
    const Divisor divisor{cells * columns.count(), all * counted(pool, 2, x)};
    const typename F::Total* first = joined + (columns.start + columns.first * pool.dilation[2]) * inner;
    const int64_t by = pool.dilation[2] * inner, taps = columns.count();
    T* to = out + x * inner;
    if (F::is_empty(divisor)) {
      for (int64_t c = 0; c < inner; ++c) to[c] = F::none(pool);
      continue;
    }
    if (inner < 16)
      join_columns<T, F>(pool, first, by, taps, inner, to, divisor);
    else
      in_parts(
          inner, [&](int64_t some, int64_t c) __attribute__((always_inline)) {
            join_columns<T, F>(pool, first + c, by, taps, some, to + c, divisor);
          });
    if constexpr (std::is_base_of_v<MeanOfFloats, F>)
      if (__builtin_expect(any_left_range<F>(to, inner), 0))
        mend<F>(pool, in, to, {planes, rows, columns}, 0, inner, divisor.counted);
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
                                          const Divisor& divisor) {
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
    F::finish_each(totals, out + x, some, pool, divisor);
  }
}

/// Split a row into `stride` rows of every stride-th element, so that neighbouring windows have neighbouring elements.
/// Each is followed by zeros, which windows past the end of the row read.
template <class Total>
void split(const Total* row, int64_t width, int64_t stride, Total* to) {
  const int64_t length = split_length(width, stride);
  for (int64_t phase = 0; phase < stride; ++phase)
    for (int64_t n = width / stride; n < length; ++n) to[phase * length + n] = 0;
  if (stride == 1) return;  // `to` is the row itself
  if (stride == 2) {
    for (int64_t n = 0; n < width / 2; ++n) to[n] = row[2 * n], to[length + n] = row[2 * n + 1];
    if (width % 2) to[width / 2] = row[width - 1];
    return;
  }
  for (int64_t phase = 0; phase < stride; ++phase)
    for (int64_t n = 0, x = phase; x < width; ++n, x += stride) to[phase * length + n] = row[x];
}

/// As `pool_whole`, in vectors of neighbouring windows of the row that is split by the stride.
template <class T, class F>
void pool_split(const Pool& pool, typename F::Total* joined, T* out, Windows windows, const Divisor& divisor) {
  using Total = typename F::Total;
  const int64_t width = pool.extent[2], stride = pool.stride[2], length = split_length(width, stride);
  Total* const phases = stride == 1 ? joined : joined + width;
  split(joined, width, stride, phases);
  for (int64_t x = windows.first; x < windows.end; x += kSplitPiece) {
    Total totals[kSplitPiece];
    for (Total& total : totals) total = F::start();
    for (int64_t k = 0; k < pool.size[2]; ++k) {
      const int64_t column = x * stride - pool.pad[2] + k * pool.dilation[2];
      const Total* from = phases + column % stride * length + column / stride;
      for (int64_t n = 0; n < kSplitPiece; ++n) totals[n] = F::joined(totals[n], from[n]);
    }
    T results[kSplitPiece];
    F::finish(totals, results, kSplitPiece, pool, divisor);
    const int64_t some = windows.end - x < kSplitPiece ? windows.end - x : kSplitPiece;
    memcpy(out + x, results, size_t(some) * sizeof(T));
  }
}

#if defined(__aarch64__)
constexpr bool kSplitsToEven = true;
#else
constexpr bool kSplitsToEven = false;  // vectors of float64 round as fast
#endif

/// Return whether rows are split by the stride, which is worthwhile where sums have 16 bits and float32 divides them.
template <class F>
bool splits_rows(const Pool& pool) {
  return F::kInShorts && (kSplitsToEven || !pool.to_even);
}

/// Compute one window of an image with one channel; `cells` and `all` are those of `Divisor` along the other axes.
template <class T, class F>
__attribute__((noinline)) void pool_window(const Pool& pool, const typename F::Total* joined, T* out, int64_t x,
                                           int64_t cells, int64_t all) {
  const Seen columns = seen(pool, 2, x);
  const Divisor divisor{cells * columns.count(), all * counted(pool, 2, x)};
  if (F::is_empty(divisor)) return void(out[x] = F::none(pool));
  join_columns<T, F>(pool, joined + columns.start + columns.first * pool.dilation[2], pool.dilation[2], columns.count(),
                     1, out + x, divisor);
}

/// As `pool_channels`, for images with one channel: windows within the image are combined in vectors of windows.
template <class T, class F>
void pool_one_channel(const Pool& pool, const T* in, T* out, const Seen& planes, const Seen& rows, int64_t all,
                      typename F::Total* joined) {
  const int64_t cells = planes.count() * rows.count();
  Windows whole = whole_windows(pool);
  const Divisor divisor{cells * pool.size[2], all * pool.size[2]};
  if (whole.end - whole.first < 4 || F::is_empty(divisor)) whole.end = whole.first;
  for (int64_t x = 0; x < whole.first; ++x) pool_window<T, F>(pool, joined, out, x, cells, all);
  if (whole.first < whole.end) {
    if (splits_rows<F>(pool))
      pool_split<T, F>(pool, joined, out, whole, divisor);
    else
      (pool.stride[2] == 1   ? pool_whole<T, F, 1>
       : pool.stride[2] == 2 ? pool_whole<T, F, 2>
                             : pool_whole<T, F, 0>)(pool, joined, out, whole, divisor);
  }
  for (int64_t x = whole.end; x < pool.places[2]; ++x) pool_window<T, F>(pool, joined, out, x, cells, all);
  if constexpr (std::is_base_of_v<MeanOfFloats, F>)
    if (__builtin_expect(any_left_range<F>(out, pool.places[2]), 0))
      for (int64_t x = 0; x < pool.places[2]; ++x)
        mend<F>(pool, in, out + x, {planes, rows, seen(pool, 2, x)}, 0, 1, all * counted(pool, 2, x));
}

/// Return whether the result has one place, whose window covers the image. Few channels, whose pixels are shorter than
/// a vector, are combined in rows.
bool covers_all(const Pool& pool) {
  if (pool.inner > 1 && pool.inner < 16) return false;
  for (int axis = 0; axis < 3; ++axis)
    if (pool.places[axis] != 1 || pool.size[axis] != pool.extent[axis] || pool.pad[axis] || pool.dilation[axis] != 1)
      return false;
  return true;
}

template <class T, class F>
void pool_row(const Pool& pool, const void* image, void* result, int64_t plane, int64_t row, void* scratch) {
  const T* in = static_cast<const T*>(image);
  T* out = static_cast<T*>(result);
  auto* joined = static_cast<typename F::Total*>(scratch);
  const Seen planes = seen(pool, 0, plane), rows = seen(pool, 1, row);
  const int64_t all = counted(pool, 0, plane) * counted(pool, 1, row);
  if (covers_all(pool)) {
    pool_all<T, F>(pool, in, out);
    if constexpr (std::is_base_of_v<MeanOfFloats, F>)
      if (__builtin_expect(any_left_range<F>(out, pool.inner), 0))
        mend<F>(pool, in, out, {planes, rows, seen(pool, 2, 0)}, 0, pool.inner, all * counted(pool, 2, 0));
    return;
  }
  join_rows<T, F>(pool, in, {planes, rows}, joined);
  (pool.inner == 1 ? pool_one_channel<T, F> : pool_channels<T, F>)(pool, in, out, planes, rows, all, joined);
}

#if defined(__aarch64__)
constexpr bool kMaximaKeepNan = true;  // `at_least` is NaN if any operand is NaN
#else
constexpr bool kMaximaKeepNan = false;
#endif

/// Accumulators of one window for a vector of channels, or of neighbouring windows. `add` takes elements, and `join`
/// totals. NaN is tracked separately from maxima that drop it.
struct MaxOfBlock : MaxOf<float> {
  void add(Vec x) {
    total = at_least(x, total);
    if constexpr (!kMaximaKeepNan) unordered |= x != x;
  }
  void join(Vec x) { add(x); }
  Vec sum() const { return unordered ? broadcast(NAN) : total; }
  /// The results of windows; `counts` are 0 for those without elements.
  Vec result(Vec counts) const { return counts > Vec{} ? sum() : Vec{}; }

  Vec total = broadcast(-INFINITY);
  IntVec unordered = {};
};
struct MeanOfBlock : MeanOfFloats {
  void add(Vec x) { total += x; }
  void join(Vec x) { total += x; }
  Vec sum() const { return total; }
  Vec result(Vec counts) const { return total / counts; }

  Vec total = {};
};
struct LengthOfBlock : LengthOf {
  void add(Vec x) { total += x * x; }
  void join(Vec x) { total += x; }
  Vec sum() const { return total; }
  Vec result(Vec counts) const {
    const Vec mean = total / counts;
    Vec root;
    for (int n = 0; n < kLanes; ++n) root[n] = sqrtf(mean[n]);
    return root;
  }

  Vec total = {};
};

/// What divides the totals of windows with `cells` elements, of which `counted` count. For maxima it is 0 without
/// elements, else 1.
template <class F>
float count_of(int64_t cells, int64_t counted) {
  if constexpr (std::is_base_of_v<MeanOfFloats, F>) return float(counted > 1 ? counted : 1);
  return float(cells > 0);
}

/// Lanes whose sums left the range of float, or may have.
template <class F>
CPUACC_INLINE IntVec suspects(Vec results) {
  if constexpr (std::is_base_of_v<MeanOfFloats, F>) {
    const IntVec infinite = results - results != Vec{};
    return F::squares ? infinite | (results < broadcast(1e-15f)) : infinite;
  } else {
    return IntVec{};
  }
}

/// Compute suspects of one row again.
template <class F>
__attribute__((noinline)) void mend_row(const Pool& pool, const float* in, float* out, int64_t plane, int64_t row) {
  if constexpr (std::is_base_of_v<MeanOfFloats, F>) {
    const Seen planes = seen(pool, 0, plane), rows = seen(pool, 1, row);
    const int64_t all = counted(pool, 0, plane) * counted(pool, 1, row);
    for (int64_t x = 0; x < pool.places[2]; ++x)
      mend<F>(pool, in, out + x * pool.inner, {planes, rows, seen(pool, 2, x)}, 0, pool.inner,
              all * counted(pool, 2, x));
  }
}

constexpr int kGroup = 4;  // vectors of a row that are combined at once

/// Combine the rows under the windows of one row of the result. Vectors may be stored past the end.
template <class F>
void join_under(const Pool& pool, const float* in, const RowsUnder& under, float* joined) {
  const int64_t width = pool.extent[2] * pool.inner;
  int64_t n = 0;
  for (; n + kGroup * kLanes <= width; n += kGroup * kLanes) {
    F totals[kGroup];
    under.each(
        pool, in, [&](const float* row) __attribute__((always_inline)) {
          for (int v = 0; v < kGroup; ++v) totals[v].add(load(row + n + v * kLanes));
        });
    for (int v = 0; v < kGroup; ++v) store(joined + n + v * kLanes, totals[v].sum());
  }
  for (; n < width; n += kLanes) {
    F total;
    under.each(pool, in, [&](const float* row) { total.add(load_some(row + n, width - n, F::start())); });
    store(joined + n, total.sum());
  }
}

/// The same between columns of padding.
template <class F>
void join_padded(const Pool& pool, const float* in, const RowsUnder& under, float* joined) {
  const int64_t width = pool.extent[2] * pool.inner, before = pool.pad[2] * pool.inner, end = scratch_items(pool);
  for (int64_t n = 0; n < before; n += kLanes) store(joined + n, F().sum());
  join_under<F>(pool, in, under, joined + before);
  int64_t n = before + width;
  for (; n + kLanes <= end; n += kLanes) store(joined + n, F().sum());
  for (; n < end; ++n) joined[n] = F::start();
}

/// Combine the columns of neighbouring windows, beginning with element `n` of a row of the result.
template <class F, int kVectors>
CPUACC_INLINE void join_near(const Pool& pool, const float* joined, int64_t n, Vec by_rows, Vec (&results)[kVectors]) {
  const int64_t step = pool.dilation[2] * pool.inner, end = n + pool.size[2] * step;
  F windows[kVectors];
  for (int64_t at = n; at < end; at += step)
    for (int v = 0; v < kVectors; ++v) windows[v].join(load(joined + at + v * kLanes));
  for (int v = 0; v < kVectors; ++v)
    results[v] = windows[v].result(load(pool.column_counts + n + v * kLanes) * by_rows);
}

/// Pool windows that are a column apart: vectors of the row of totals combine the columns of neighbouring windows.
template <class F>
void pool_near(const Pool& pool, const float* in, float* out, int64_t plane, int64_t row, float* joined) {
  const RowsUnder under{seen(pool, 0, plane), seen(pool, 1, row)};
  join_padded<F>(pool, in, under, joined);
  const int64_t all = counted(pool, 0, plane) * counted(pool, 1, row), end = pool.places[2] * pool.inner;
  const Vec by_rows = broadcast(count_of<F>(under.count(), all));
  IntVec suspected = {};
  int64_t n = 0;
  for (; n + kGroup * kLanes <= end; n += kGroup * kLanes) {
    Vec results[kGroup];
    join_near<F>(pool, joined, n, by_rows, results);
    for (int v = 0; v < kGroup; ++v) suspected |= suspects<F>(results[v]), store(out + n + v * kLanes, results[v]);
  }
  for (; n < end; n += kLanes) {
    Vec results[1];
    join_near<F>(pool, joined, n, by_rows, results);
    suspected |= suspects<F>(results[0]) & first_lanes(end - n);
    store_some(out + n, results[0], end - n);
  }
  if (__builtin_expect(any_lane(suspected), 0)) mend_row<F>(pool, in, out, plane, row);
}

constexpr int kVecs = 16 / kLanes;             // vectors of a block of channels
constexpr int kTogether = kVecs == 1 ? 4 : 2;  // windows that are combined at once

/// Combine the columns `seen` of `kWindows` windows of a row of blocks.
template <class F, int kWindows>
CPUACC_INLINE IntVec pool_some(const Pool& pool, const float* in, float* out, const RowsUnder& under,
                               const Seen& columns, float counts) {
  F windows[kWindows][kVecs];
  under.each(
      pool, in, [&](const float* row) __attribute__((always_inline)) {
        for (int64_t k = columns.first; k < columns.end; ++k)
          for (int w = 0; w < kWindows; ++w) {
            const float* from = row + (columns.start + k * pool.dilation[2] + w * pool.stride[2]) * 16;
            for (int v = 0; v < kVecs; ++v) windows[w][v].add(load(from + v * kLanes));
          }
      });
  IntVec suspected = {};
  for (int w = 0; w < kWindows; ++w)
    for (int v = 0; v < kVecs; ++v) {
      const Vec results = windows[w][v].result(broadcast(counts));
      suspected |= suspects<F>(results);
      store(out + w * 16 + v * kLanes, results);
    }
  return suspected;
}

/// Pool nChw16c images; windows are combined in registers.
template <class F>
void pool_blocks(const Pool& pool, const float* in, float* out, int64_t plane, int64_t row) {
  const RowsUnder under{seen(pool, 0, plane), seen(pool, 1, row)};
  const int64_t all = counted(pool, 0, plane) * counted(pool, 1, row);
  const Windows whole = whole_windows(pool);
  IntVec suspected = {};
  for (int64_t x = 0; x < pool.places[2];) {
    const Seen columns = seen(pool, 2, x);
    const float counts = count_of<F>(under.count() * columns.count(), all * counted(pool, 2, x));
    const bool are_together = x >= whole.first && x + kTogether <= whole.end;
    suspected |= are_together ? pool_some<F, kTogether>(pool, in, out + x * 16, under, columns, counts)
                              : pool_some<F, 1>(pool, in, out + x * 16, under, columns, counts);
    x += are_together ? kTogether : 1;
  }
  if (__builtin_expect(any_lane(suspected), 0)) mend_row<F>(pool, in, out, plane, row);
}

template <class F>
void pool_floats(const Pool& pool, const void* image, void* result, int64_t plane, int64_t row, void* scratch) {
  const float* in = static_cast<const float*>(image);
  float* out = static_cast<float*>(result);
  if (pool.column_counts) return pool_near<F>(pool, in, out, plane, row, static_cast<float*>(scratch));
  if (pool.inner == 16) return pool_blocks<F>(pool, in, out, plane, row);
  pool_row<float, F>(pool, image, result, plane, row, scratch);
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

/// Quantized values have no L2 pooling.
template <class T, class Sum>
PoolKernels::Row quantized_row(PoolKind kind) {
  if (kind == PoolKind::l2) return nullptr;
  return kind == PoolKind::max ? pool_row<T, MaxOf<T>> : pool_row<T, QuantizedMeanOf<T, Sum>>;
}

PoolKernels::Row row(PoolKind kind, int32_t dtype, int64_t taps) {
  const bool is_small = taps <= kMostInShorts;
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      if (kind == PoolKind::l2) return pool_floats<LengthOfBlock>;
      return kind == PoolKind::max ? pool_floats<MaxOfBlock> : pool_floats<MeanOfBlock>;
    case IPR_DTYPE_INT8:
      return (is_small ? quantized_row<int8_t, int16_t> : quantized_row<int8_t, int32_t>)(kind);
    case IPR_DTYPE_UINT8:
      return (is_small ? quantized_row<uint8_t, uint16_t> : quantized_row<uint8_t, int32_t>)(kind);
    case IPR_DTYPE_INT16:
      return quantized_row<int16_t, int32_t>(kind);
    default:
      return kind == PoolKind::max ? max_row(dtype) : nullptr;
  }
}

}  // namespace

extern const PoolKernels pool_kernels = {row};

}  // namespace cpuacc::ISA_NS
