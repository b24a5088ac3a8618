#include "cpuacc/kernels/select.hpp"

#include <string.h>

#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

constexpr int64_t kWidth = 64;  // columns that are searched together; their results stay in the first-level cache

// ---- The index of the largest element -------------------------------------------------------------------------------

/// The type of an index among the rows that are searched at once: as wide as an element, so that vectors of both have
/// the same length. `kRows` is the number of these rows.
template <size_t kBytes>
struct IndexOf;
template <>
struct IndexOf<1> {
  using Type = uint8_t;
  static constexpr int64_t kRows = 256;
};
template <>
struct IndexOf<2> {
  using Type = uint16_t;
  static constexpr int64_t kRows = 65536;
};
template <>
struct IndexOf<4> {
  using Type = int32_t;
  static constexpr int64_t kRows = INT32_MAX;
};
template <>
struct IndexOf<8> {
  using Type = int64_t;
  static constexpr int64_t kRows = INT32_MAX;
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
  using Index = typename IndexOf<sizeof(T)>::Type;
  T value[kWidth];
  Index index[kWidth];
};

/// Search `count` adjacent columns. A constant count becomes vector code.
template <bool kLeast, bool kLast, class T>
inline __attribute__((always_inline)) void search_block(const T* in, int64_t length, int64_t inner, int64_t count,
                                                        Best<T>& best) {
  using Index = typename Best<T>::Index;
  for (int64_t c = 0; c < count; ++c) best.value[c] = in[c], best.index[c] = 0;
  for (int64_t n = 1; n < length; ++n) {
    const T* row = in + n * inner;
    for (int64_t c = 0; c < count; ++c) {
      const T v = row[c];
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

/// The best elements of up to `kWidth` columns, and their indices.
template <class T>
struct Found {
  T value[kWidth];
  int32_t index[kWidth];
};

/// Search `count` adjacent columns of any length: rows whose indices fit the type of an index are searched at once.
template <bool kLeast, bool kLast, class T>
void search_pieces(const T* in, int64_t length, int64_t inner, int64_t count, Found<T>& found) {
  constexpr int64_t kRows = IndexOf<sizeof(T)>::kRows;
  for (int64_t first = 0; first < length; first += kRows) {
    const int64_t rows = length - first < kRows ? length - first : kRows;
    Best<T> best;
    if (count == kWidth)
      search_full_block<kLeast, kLast>(in + first * inner, rows, inner, best);
    else
      search_block<kLeast, kLast>(in + first * inner, rows, inner, count, best);
    for (int64_t c = 0; c < count && first == 0; ++c)
      found.value[c] = best.value[c], found.index[c] = int32_t(best.index[c]);
    for (int64_t c = 0; c < count && first > 0; ++c) {
      if (!replaces<kLeast, kLast>(best.value[c], found.value[c])) continue;
      found.value[c] = best.value[c], found.index[c] = int32_t(first + best.index[c]);
    }
  }
}

/// Let the elements at `by` replace those before them, if they are better, or as good and at a better place.
template <bool kLeast, bool kLast, class T>
inline __attribute__((always_inline)) void fold(Found<T>& found, int64_t count, int64_t by) {
  for (int64_t c = 0; c < count; ++c) {
    const T a = found.value[c], b = found.value[c + by];
    const int32_t at = found.index[c], other = found.index[c + by];
    const bool same = (a == b) | ((a != a) & (b != b)), preferred = kLast ? other > at : other < at;
    const bool better = replaces<kLeast, false>(b, a) | (same & preferred);
    found.value[c] = better ? b : a;
    found.index[c] = better ? other : at;
  }
}

/// Search up to `kWidth` columns of at least `2 * kWidth` elements in all, as if as many rows as possible were next to
/// each other in one row of a matrix. Vectors then are full, but for the last columns, which are ignored.
template <bool kLeast, bool kLast, class T>
inline __attribute__((always_inline)) void search_narrow(const T* in, int64_t length, int64_t inner, int32_t* out) {
  const int64_t beside = kWidth / inner, lanes = beside * inner, total = length * inner;
  Found<T> found;
  search_pieces<kLeast, kLast>(in, (total - kWidth) / lanes + 1, lanes, kWidth, found);
  const T* rest = in + total - lanes;
  for (int64_t c = 0; c < lanes; ++c) {
    const bool better = replaces<kLeast, kLast>(rest[c], found.value[c]);
    found.value[c] = better ? rest[c] : found.value[c];
    found.index[c] = better ? int32_t(length - beside) : found.index[c] * int32_t(beside);
  }
  for (int64_t group = 1; group < beside; ++group)
    for (int64_t column = 0; column < inner; ++column) found.index[group * inner + column] += int32_t(group);
  for (int64_t groups = beside; groups > 1; groups -= groups / 2)
    fold<kLeast, kLast>(found, groups / 2 * inner, (groups - groups / 2) * inner);
  memcpy(out, found.index, size_t(inner) * sizeof *out);
}

/// Search one contiguous row of bytes: find the extreme value, and then its first or last place.
template <bool kLeast, bool kLast, class T>
int32_t search_long_bytes(const T* in, int64_t length) {
  constexpr int64_t kBytes = 64;
  T lanes[kBytes];
  memcpy(lanes, in, kBytes);
  for (int64_t n = kBytes; n + kBytes <= length; n += kBytes)
    for (int64_t c = 0; c < kBytes; ++c)
      lanes[c] = (kLeast ? in[n + c] < lanes[c] : in[n + c] > lanes[c]) ? in[n + c] : lanes[c];
  const T* rest = in + length - kBytes;
  T extreme = rest[0];
  for (int64_t c = 0; c < kBytes; ++c) {
    const T v = (kLeast ? rest[c] < lanes[c] : rest[c] > lanes[c]) ? rest[c] : lanes[c];
    extreme = (kLeast ? v < extreme : v > extreme) ? v : extreme;
  }
  const int sought = static_cast<unsigned char>(extreme);
  const void* place = kLast ? memrchr(in, sought, size_t(length)) : memchr(in, sought, size_t(length));
  return int32_t(static_cast<const T*>(place) - in);
}

constexpr int64_t kLeastNarrow = 2 * kWidth;  // elements of columns that are searched in one vector

constexpr int64_t kFewRows = 16;  // fewer rows are searched one by one, as transposing takes longer

/// The length from which on even `kWidth` rows take less time one by one than transposed.
template <class T>
constexpr int64_t kLongRow = sizeof(T) == 2 || sizeof(T) == 4 ? 3 * kWidth : kLeastNarrow;

template <bool kLeast, bool kLast, class T>
void search_all_narrow(const Columns& columns, int32_t* out) {
  int32_t found[kWidth];
  search_narrow<kLeast, kLast>(static_cast<const T*>(columns.in), columns.length, columns.inner, found);
  memcpy(out, found + columns.first, size_t(columns.last - columns.first) * sizeof *out);
}

/// Up to `kWidth` contiguous rows of less than `kLongRow` elements, transposed, so that they become columns.
template <class T>
struct TransposedRows {
  T elements[kLongRow<T> * kWidth];

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
    Found<T> found;
    search_pieces<kLeast, kLast>(in + first, columns.length, columns.inner, count, found);
    for (int64_t c = 0; c < count; ++c) *out++ = found.index[c];
  }
}

/// Search one contiguous row.
template <bool kLeast, bool kLast, class T>
int32_t search_row(const T* in, int64_t length) {
  if (length < kLeastNarrow) {
    Best<T> best;
    search_block<kLeast, kLast>(in, length, 1, 1, best);
    return int32_t(best.index[0]);
  }
  if constexpr (sizeof(T) == 1) {
    return search_long_bytes<kLeast, kLast>(in, length);
  } else {
    int32_t found;
    search_narrow<kLeast, kLast>(in, length, 1, &found);
    return found;
  }
}

/// Search up to `kWidth` contiguous rows of less than `kLongRow` elements at once. This takes as long for one row as
/// for `kWidth`.
template <bool kLeast, bool kLast, class T>
void search_transposed(const T* in, int64_t length, int64_t count, int32_t* out) {
  Best<T> best;
  const TransposedRows<T> rows(in, length, count);
  search_full_block<kLeast, kLast>(rows.elements, length, kWidth, best);
  for (int64_t c = 0; c < count; ++c) out[c] = int32_t(best.index[c]);
}

/// Rows of one column each: `first` and `last` count rows of `length` elements.
template <bool kLeast, bool kLast, class T>
void search_rows(const Columns& columns, int32_t* out) {
  const int64_t length = columns.length;
  for (int64_t first = columns.first; first < columns.last; first += kWidth) {
    const int64_t left = columns.last - first, count = left < kWidth ? left : kWidth;
    const T* in = static_cast<const T*>(columns.in) + first * length;
    int32_t* found = out + (first - columns.first);
    if (count >= kFewRows && length < (count == kWidth ? kLongRow<T> : kLeastNarrow))
      search_transposed<kLeast, kLast>(in, length, count, found);
    else
      for (int64_t row = 0; row < count; ++row) found[row] = search_row<kLeast, kLast>(in + row * length, length);
  }
}

template <bool kLeast, bool kLast, class T>
void search_either(const Columns& columns, int32_t* out) {
  if (columns.inner == 1) return search_rows<kLeast, kLast, T>(columns, out);
  const bool is_narrow = columns.inner <= kWidth && columns.length * columns.inner >= kLeastNarrow;
  is_narrow ? search_all_narrow<kLeast, kLast, T>(columns, out) : search_all<kLeast, kLast, T>(columns, out);
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

// ---- The largest elements of each column ----------------------------------------------------------------------------

/// Return whether `v` is ordered before `other`; either may be NaN.
template <bool kLeast, class T>
inline __attribute__((always_inline)) bool precedes(T v, T other) {
  return kLeast ? !(v >= other) & (v == v) : !(v <= other) & (other == other);
}

/// The selected elements of all columns, in rows of `step` elements. Functions take the first of `kWidth` columns.
template <class T>
struct Selected {
  T* values;
  int32_t* indices;
  int64_t step;
};

template <bool kLeast, class T>
inline __attribute__((always_inline)) bool any_precedes(const T* row, const T* others) {
  typename IndexOf<sizeof(T)>::Type any = 0;
  for (int64_t c = 0; c < kWidth; ++c) any |= precedes<kLeast>(row[c], others[c]);
  return any != 0;
}

/// Move the elements of row `to - 1` that an element of row `n` precedes to row `to`, and put those of row `n` where
/// they belong in row `to`. `kFirst`: `to` is 0. `kNew`: row `to` is empty.
template <bool kLeast, bool kFirst, bool kNew, class T>
inline __attribute__((always_inline)) void insert_at(const T* row, int32_t n, T* to, int32_t* index, int64_t step) {
  for (int64_t c = 0; c < kWidth; ++c) {
    const T above = kFirst ? row[c] : to[c - step];
    const int32_t index_above = kFirst ? n : index[c - step];
    const bool shifts = !kFirst && precedes<kLeast>(row[c], above), inserts = kNew || precedes<kLeast>(row[c], to[c]);
    to[c] = shifts ? above : inserts ? row[c] : to[c];
    index[c] = shifts ? index_above : inserts ? n : index[c];
  }
}

/// Insert the elements of row `n` among `held` selected ones, of which the last ones are dropped.
template <bool kLeast, class T>
void insert_row(const T* row, int32_t n, int64_t held, const Selected<T>& best) {
  for (int64_t place = held - 1; place > 0; --place)
    insert_at<kLeast, false, false>(row, n, best.values + place * best.step, best.indices + place * best.step,
                                    best.step);
  insert_at<kLeast, true, false>(row, n, best.values, best.indices, best.step);
}

/// The same for one of the first rows, of which none is dropped.
template <bool kLeast, class T>
void append_row(const T* row, int32_t n, const Selected<T>& best) {
  if (n == 0) return insert_at<kLeast, true, true>(row, n, best.values, best.indices, best.step);
  insert_at<kLeast, false, true>(row, n, best.values + n * best.step, best.indices + n * best.step, best.step);
  insert_row<kLeast>(row, n, n, best);
}

/// Select from all rows; the columns are a multiple of `kWidth`.
template <bool kLeast, class T>
void select_top(const TopColumns& columns, const Selected<T>& best) {
  for (int64_t n = 0; n < columns.length; ++n) {
    const T* row = static_cast<const T*>(columns.in) + n * columns.inner;
    for (int64_t c = 0; c < columns.count; c += kWidth) {
      const Selected<T> own{best.values + c, best.indices + c, best.step};
      if (n < columns.k)
        append_row<kLeast>(row + c, int32_t(n), own);
      else if (any_precedes<kLeast>(row + c, own.values + (columns.k - 1) * best.step))
        insert_row<kLeast>(row + c, int32_t(n), columns.k, own);
    }
  }
}

template <class T>
void top(const TopColumns& columns, void* values, int32_t* indices) {
  const Selected<T> best{static_cast<T*>(values), indices, columns.count};
  columns.least ? select_top<true>(columns, best) : select_top<false>(columns, best);
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

SelectTop top_of(int32_t dtype) {
  switch (dtype) {
#define CASE(name, T) \
  case name:          \
    return top<T>;
    CPUACC_DTYPES(CASE)
#undef CASE
    default:
      return nullptr;
  }
}

#undef CPUACC_DTYPES

}  // namespace

extern const SelectKernels select_kernels = {search, next_before_of, top_of};

}  // namespace cpuacc::ISA_NS
