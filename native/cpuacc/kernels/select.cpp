#include "cpuacc/kernels/select.hpp"

#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

constexpr int64_t kWidth = 64;  // columns that are searched together; their results stay in the first-level cache

// ---- The index of the largest element -------------------------------------------------------------------------------

/// The type in which elements are compared: as wide as an index, so that vectors of both have the same length.
template <class T>
struct Compared {
  using Type = int32_t;
  using Index = int32_t;
};
template <>
struct Compared<float> {
  using Type = float;
  using Index = int32_t;
};
template <>
struct Compared<uint32_t> {
  using Type = uint32_t;
  using Index = int32_t;
};
template <>
struct Compared<double> {
  using Type = double;
  using Index = int64_t;
};
template <>
struct Compared<int64_t> {
  using Type = int64_t;
  using Index = int64_t;
};
template <>
struct Compared<uint64_t> {
  using Type = uint64_t;
  using Index = int64_t;
};

/// Return whether a later element `v` replaces the best one so far.
template <bool kLeast, bool kLast, class T>
inline __attribute__((always_inline)) bool replaces(T v, T best) {
  if constexpr (kLast)  // at least as good; a NaN replaces everything, and only a NaN replaces a NaN
    return (kLeast ? v <= best : v >= best) | (v != v);
  else
    return !(kLeast ? v >= best : v <= best) & (best == best);
}

template <class T>
struct Best {
  typename Compared<T>::Type value[kWidth];
  typename Compared<T>::Index index[kWidth];
};

/// Search `count` adjacent columns. A constant count becomes vector code.
template <bool kLeast, bool kLast, class T>
inline __attribute__((always_inline)) void search_block(const T* in, int64_t length, int64_t inner, int64_t count,
                                                        Best<T>& best) {
  using Index = typename Compared<T>::Index;
  for (int64_t c = 0; c < count; ++c) best.value[c] = in[c], best.index[c] = 0;
  for (int64_t n = 1; n < length; ++n) {
    const T* row = in + n * inner;
    for (int64_t c = 0; c < count; ++c) {
      typename Compared<T>::Type v = row[c];
      const bool better = replaces<kLeast, kLast>(v, best.value[c]);
      best.value[c] = better ? v : best.value[c];
      best.index[c] = better ? Index(n) : best.index[c];
    }
  }
}

/// Search `kWidth` adjacent columns. All callers share one copy of this vector code.
template <bool kLeast, bool kLast, class T>
__attribute__((noinline)) void search_full_block(const T* in, int64_t length, int64_t inner, Best<T>& best) {
  search_block<kLeast, kLast>(in, length, inner, kWidth, best);
}

/// Search one contiguous row as if it were a matrix of `kWidth` columns, whose results are then compared.
template <bool kLeast, bool kLast, class T>
int32_t search_long_row(const T* in, int64_t length) {
  Best<T> best;
  const int64_t rows = length / kWidth;
  search_full_block<kLeast, kLast>(in, rows, kWidth, best);
  int64_t best_index = best.index[0] * kWidth;
  auto consider = [&](int64_t index) {
    const T v = in[index], old = in[best_index];
    const bool earlier = index < best_index;  // then it wins only if `best_index` would not have replaced it
    const bool better = earlier ? !replaces<kLeast, kLast>(old, v) : replaces<kLeast, kLast>(v, old);
    if (better) best_index = index;
  };
  for (int64_t c = 1; c < kWidth; ++c) consider(best.index[c] * kWidth + c);
  for (int64_t n = rows * kWidth; n < length; ++n) consider(n);
  return int32_t(best_index);
}

constexpr int64_t kLongestShortRow = 2 * kWidth;

/// Up to `kWidth` contiguous rows of at most `kLongestShortRow` elements, transposed, so that they become columns.
template <class T>
struct TransposedRows {
  T elements[kLongestShortRow * kWidth];

  __attribute__((noinline)) TransposedRows(const T* in, int64_t length, int64_t count) {
    for (int64_t n = 0; n < length; ++n)
      for (int64_t c = 0; c < kWidth; ++c) elements[n * kWidth + c] = c < count ? in[c * length + n] : T(0);
  }
};

template <bool kLeast, bool kLast, class T>
void search_all(const Columns& columns, int32_t* out) {
  const T* in = static_cast<const T*>(columns.in);
  for (int64_t first = columns.first; first < columns.last; first += kWidth) {
    const int64_t left = columns.last - first, count = left < kWidth ? left : kWidth;
    Best<T> best;
    if (count == kWidth)
      search_full_block<kLeast, kLast>(in + first, columns.length, columns.inner, best);
    else
      search_block<kLeast, kLast>(in + first, columns.length, columns.inner, count, best);
    for (int64_t c = 0; c < count; ++c) *out++ = int32_t(best.index[c]);
  }
}

/// Rows of one column each: `first` and `last` count rows of `length` elements.
template <bool kLeast, bool kLast, class T>
void search_rows(const Columns& columns, int32_t* out) {
  const T* in = static_cast<const T*>(columns.in);
  if (columns.length >= kLongestShortRow) {
    for (int64_t row = columns.first; row < columns.last; ++row)
      *out++ = search_long_row<kLeast, kLast>(in + row * columns.length, columns.length);
    return;
  }
  for (int64_t first = columns.first; first < columns.last; first += kWidth) {
    const int64_t left = columns.last - first, count = left < kWidth ? left : kWidth;
    Best<T> best;
    const TransposedRows<T> rows(in + first * columns.length, columns.length, count);
    search_full_block<kLeast, kLast>(rows.elements, columns.length, kWidth, best);
    for (int64_t c = 0; c < count; ++c) *out++ = int32_t(best.index[c]);
  }
}

template <bool kLeast, bool kLast, class T>
void search_either(const Columns& columns, int32_t* out) {
  columns.inner == 1 ? search_rows<kLeast, kLast, T>(columns, out) : search_all<kLeast, kLast, T>(columns, out);
}

template <class T>
void search_columns(const Columns& columns, Search search, int32_t* out) {
  if (search.least)
    search.last ? search_either<true, true, T>(columns, out) : search_either<true, false, T>(columns, out);
  else
    search.last ? search_either<false, true, T>(columns, out) : search_either<false, false, T>(columns, out);
}

// ---- Elements that pass a threshold ---------------------------------------------------------------------------------

/// Return whether `v` is ordered before a threshold that is not NaN.
template <bool kLeast, class T>
inline __attribute__((always_inline)) bool comes_before(T v, T threshold) {
  return kLeast ? v < threshold : !(v <= threshold);
}

template <bool kLeast, class T>
int64_t next_of(const T* in, int64_t n, int64_t count, T threshold) {
  for (; n + kWidth <= count; n += kWidth) {
    int any = 0;
    for (int64_t i = 0; i < kWidth; ++i) any |= comes_before<kLeast>(in[n + i], threshold);
    if (any) break;
  }
  while (n < count && !comes_before<kLeast>(in[n], threshold)) ++n;
  return n;
}

template <class T>
int64_t next_before(const void* in, int64_t first, int64_t count, const void* threshold, bool least) {
  const T* values = static_cast<const T*>(in);
  const T limit = *static_cast<const T*>(threshold);
  if (limit != limit) {  // NaN: the first in the descending order, the last in the ascending one
    if (!least) return count;
    while (first < count && values[first] != values[first]) ++first;
    return first;
  }
  return least ? next_of<true>(values, first, count, limit) : next_of<false>(values, first, count, limit);
}

#define CPUACC_DTYPES(CASE)        \
  CASE(IPR_DTYPE_FLOAT32, float)   \
  CASE(IPR_DTYPE_FLOAT64, double)  \
  CASE(IPR_DTYPE_INT8, int8_t)     \
  CASE(IPR_DTYPE_UINT8, uint8_t)   \
  CASE(IPR_DTYPE_BOOL, uint8_t)    \
  CASE(IPR_DTYPE_INT16, int16_t)   \
  CASE(IPR_DTYPE_UINT16, uint16_t) \
  CASE(IPR_DTYPE_INT32, int32_t)   \
  CASE(IPR_DTYPE_UINT32, uint32_t) \
  CASE(IPR_DTYPE_INT64, int64_t)   \
  CASE(IPR_DTYPE_UINT64, uint64_t)

SearchColumns search(int32_t dtype) {
  switch (dtype) {
#define CASE(name, T) \
  case name:          \
    return search_columns<T>;
    CPUACC_DTYPES(CASE)
#undef CASE
    default:
      return nullptr;
  }
}

NextBefore next_before_of(int32_t dtype) {
  switch (dtype) {
#define CASE(name, T) \
  case name:          \
    return next_before<T>;
    CPUACC_DTYPES(CASE)
#undef CASE
    default:
      return nullptr;
  }
}

#undef CPUACC_DTYPES

}  // namespace

extern const SelectKernels select_kernels = {search, next_before_of};

}  // namespace cpuacc::ISA_NS
