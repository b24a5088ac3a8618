#include "cpuacc/kernels/accumulate.hpp"

#include <type_traits>

#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

// clang-format off
template <class T> struct Wrapped { using U = T; };  // the type in which integers wrap around
template <> struct Wrapped<int8_t> { using U = uint32_t; };
template <> struct Wrapped<uint8_t> { using U = uint32_t; };
template <> struct Wrapped<int16_t> { using U = uint32_t; };
template <> struct Wrapped<uint16_t> { using U = uint32_t; };
template <> struct Wrapped<int32_t> { using U = uint32_t; };
template <> struct Wrapped<int64_t> { using U = uint64_t; };
// clang-format on

template <bool kProduct, class T>
inline __attribute__((always_inline)) T combined(T a, T b) {
  using U = typename Wrapped<T>::U;
  return kProduct ? T(U(a) * U(b)) : T(U(a) + U(b));
}

/// Adjacent columns: each row is combined with the previous row of the result.
template <bool kProduct, class T>
void accumulate_columns(const AccumulatedColumns& columns, Accumulate rules) {
  const int64_t step = rules.reverse ? -columns.inner : columns.inner;
  const int64_t start = rules.reverse ? (columns.extent - 1) * columns.inner : 0;
  const T* in = static_cast<const T*>(columns.in) + start;
  T* out = static_cast<T*>(columns.out) + start;
  for (int64_t c = columns.first; c < columns.last; ++c) out[c] = rules.exclusive ? T(kProduct) : in[c];
  for (int64_t n = 1; n < columns.extent; ++n) {
    const T *previous = out, *change = rules.exclusive ? in : in + step;
    in += step, out += step;
    for (int64_t c = columns.first; c < columns.last; ++c) out[c] = combined<kProduct>(previous[c], change[c]);
  }
}

/// Accumulate `kRows` rows at once, because each sum waits for the previous one of its row.
template <bool kProduct, int kRows, class T>
void accumulate_rows(const T* in, T* out, int64_t extent, Accumulate rules) {
  const int64_t start = rules.reverse ? extent - 1 : 0, step = rules.reverse ? -1 : 1;
  T sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    sum[r] = in[r * extent + start];
    out[r * extent + start] = rules.exclusive ? T(kProduct) : sum[r];
  }
  for (int64_t n = 1, at = start + step; n < extent; ++n, at += step) {
    for (int r = 0; r < kRows; ++r) {
      const T before = sum[r];
      sum[r] = combined<kProduct>(before, in[r * extent + at]);
      out[r * extent + at] = rules.exclusive ? before : sum[r];
    }
  }
}

/// Rows that are accumulated at once: as many as keep the adders busy. More would evict one another from a cache if
/// their distance is a power of two.
template <class T>
constexpr int kRowsOf = std::is_integral_v<T> ? 4 : 8;

template <bool kProduct, class T>
void accumulate_of(const AccumulatedColumns& columns, Accumulate rules) {
  constexpr int kRows = kRowsOf<T>;
  if (columns.extent == 0) return;
  if (columns.inner > 1) return accumulate_columns<kProduct, T>(columns, rules);
  const T* in = static_cast<const T*>(columns.in);
  T* out = static_cast<T*>(columns.out);
  int64_t row = columns.first;
  for (; row + kRows <= columns.last; row += kRows)
    accumulate_rows<kProduct, kRows>(in + row * columns.extent, out + row * columns.extent, columns.extent, rules);
  for (; row < columns.last; ++row)
    accumulate_rows<kProduct, 1>(in + row * columns.extent, out + row * columns.extent, columns.extent, rules);
}

template <class T>
void accumulate_either(const AccumulatedColumns& columns, Accumulate rules) {
  rules.product ? accumulate_of<true, T>(columns, rules) : accumulate_of<false, T>(columns, rules);
}

AccumulateColumns accumulate(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return accumulate_either<float>;
    case IPR_DTYPE_FLOAT64:
      return accumulate_either<double>;
    // Signed and unsigned integers wrap around alike.
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_UINT8:
      return accumulate_either<int8_t>;
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_UINT16:
      return accumulate_either<int16_t>;
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_UINT32:
      return accumulate_either<int32_t>;
    case IPR_DTYPE_INT64:
    case IPR_DTYPE_UINT64:
      return accumulate_either<int64_t>;
    default:
      return nullptr;
  }
}

// ---- Reductions of integers and of float64 --------------------------------------------------------------------------

template <class T>
struct Limits {
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr T most =
      T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1 + (is_signed ? 0 : uint64_t(1) << (8 * sizeof(T) - 1)));
  static constexpr T least = is_signed ? T(-most - 1) : T(0);
};

template <>
struct Limits<double> {
  static constexpr bool is_signed = true;
  static constexpr double most = __builtin_inf(), least = -most;
};

template <Reduction kOperation, class T>
constexpr T identity() {
  if (kOperation == Reduction::max) return Limits<T>::least;
  if (kOperation == Reduction::min) return Limits<T>::most;
  return T(kOperation == Reduction::prod);
}

template <Reduction kOperation, class T>
inline __attribute__((always_inline)) T reduced(T sum, T x) {
  using U = typename Wrapped<T>::U;
  if constexpr (kOperation == Reduction::max) return x > sum || x != x ? x : sum;
  if constexpr (kOperation == Reduction::min) return x < sum || x != x ? x : sum;
  if constexpr (kOperation == Reduction::prod) return T(U(sum) * U(x));
  if constexpr (kOperation == Reduction::l1) return T(U(sum) + (x < T(0) ? U(0) - U(x) : U(x)));
  if constexpr (kOperation == Reduction::sum_square) return T(U(sum) + U(x) * U(x));
  return T(U(sum) + U(x));
}

template <Reduction kOperation, class T>
T reduced_row(const T* in, int64_t extent) {
  constexpr int kSums = 8;  // independent sums, as each addition of floats waits for the one before
  T sums[kSums];
  for (T& sum : sums) sum = identity<kOperation, T>();
  int64_t n = 0;
  for (; n + kSums <= extent; n += kSums)
    for (int k = 0; k < kSums; ++k) sums[k] = reduced<kOperation>(sums[k], in[n + k]);
  for (; n < extent; ++n) sums[0] = reduced<kOperation>(sums[0], in[n]);
  constexpr Reduction joins =
      kOperation == Reduction::l1 || kOperation == Reduction::sum_square ? Reduction::sum : kOperation;
  for (int k = 1; k < kSums; ++k) sums[0] = reduced<joins>(sums[0], sums[k]);
  return sums[0];
}

template <Reduction kOperation, class T>
void reduce_columns(const void* pi, void* po, int64_t extent, int64_t inner, int64_t first, int64_t last) {
  const T* in = static_cast<const T*>(pi);
  T* out = static_cast<T*>(po);
  if (inner == 1 && first < last) {
    out[0] = reduced_row<kOperation>(in, extent);
    return;
  }
  for (int64_t c = first; c < last; ++c) out[c] = identity<kOperation, T>();
  for (int64_t n = 0; n < extent; ++n)
    for (int64_t c = first; c < last; ++c) out[c] = reduced<kOperation>(out[c], in[n * inner + c]);
}

/// The type of sums of integers, and how many rows a sum holds.
template <class T>
struct Sums {
  using Sum = std::conditional_t<sizeof(T) <= 2, uint32_t, uint64_t>;
  static constexpr int64_t kMostRows = sizeof(T) <= 2 ? 1 << 15 : INT64_MAX;
  /// A sum as 64 bits.
  static uint64_t widened(Sum sum) {
    return Limits<T>::is_signed && sizeof(T) <= 2 ? uint64_t(int64_t(int32_t(sum))) : uint64_t{sum};
  }
};

constexpr int64_t kSummed = 32;     // columns whose sums are computed at once
constexpr int64_t kShortRow = 128;  // shorter rows are not worth so many sums

/// Add `kSummed` columns of up to `Sums<T>::kMostRows` rows.
template <class T>
void add_columns(const T* in, int64_t rows, int64_t inner, uint64_t* totals) {
  using Sum = typename Sums<T>::Sum;
  Sum sums[kSummed] = {};
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t c = 0; c < kSummed; ++c) sums[c] += Sum(int64_t(in[n * inner + c]));
  for (int64_t c = 0; c < kSummed; ++c) totals[c] += Sums<T>::widened(sums[c]);
}

/// Return the sum of a few adjacent elements.
template <class T>
uint64_t sum_of_few(const T* in, int64_t count) {
  uint64_t sum = 0;
  for (int64_t n = 0; n < count; ++n) sum += uint64_t(int64_t(in[n]));
  return sum;
}

/// Return the sum of adjacent elements.
template <class T>
uint64_t sum_of_row(const T* in, int64_t extent) {
  if (extent < kShortRow) return sum_of_few(in, extent);
  uint64_t totals[kSummed] = {}, sum = 0;
  int64_t n = 0;
  while (n + kSummed <= extent) {
    const int64_t rows = (extent - n) / kSummed, some = rows < Sums<T>::kMostRows ? rows : Sums<T>::kMostRows;
    add_columns(in + n, some, kSummed, totals);
    n += some * kSummed;
  }
  for (uint64_t total : totals) sum += total;
  return sum + sum_of_few(in + n, extent - n);
}

/// Write the quotient of a sum, truncated.
template <class T>
T truncated_mean(uint64_t sum, uint64_t count) {
  const bool is_negative = Limits<T>::is_signed && int64_t(sum) < 0;
  const uint64_t size = (is_negative ? 0 - sum : sum) / count;
  return T(is_negative ? 0 - size : size);
}

template <class T>
void mean_of_integers(const void* pi, void* po, int64_t extent, int64_t inner, int64_t first, int64_t last) {
  const T* in = static_cast<const T*>(pi);
  T* out = static_cast<T*>(po);
  const uint64_t count = uint64_t(extent > 0 ? extent : 1);
  int64_t c = first;
  for (; inner > 1 && c + kSummed <= last; c += kSummed) {
    uint64_t totals[kSummed] = {};
    for (int64_t n = 0, some; n < extent; n += some) {
      some = extent - n < Sums<T>::kMostRows ? extent - n : Sums<T>::kMostRows;
      add_columns(in + n * inner + c, some, inner, totals);
    }
    for (int64_t k = 0; k < kSummed; ++k) out[c + k] = truncated_mean<T>(totals[k], count);
  }
  for (; c < last; ++c) {
    uint64_t sum = inner == 1 ? sum_of_row(in, extent) : 0;
    for (int64_t n = 0; inner > 1 && n < extent; ++n) sum += uint64_t(int64_t(in[n * inner + c]));
    out[c] = truncated_mean<T>(sum, count);
  }
}

void mean_of_float64(const void* in, void* out, int64_t extent, int64_t inner, int64_t first, int64_t last) {
  reduce_columns<Reduction::sum, double>(in, out, extent, inner, first, last);
  for (int64_t c = first; c < last; ++c) static_cast<double*>(out)[c] /= double(extent);
}

template <class T>
ReduceColumns reduction_of(Reduction operation) {
  switch (operation) {
    case Reduction::sum:
      return reduce_columns<Reduction::sum, T>;
    case Reduction::prod:
      return reduce_columns<Reduction::prod, T>;
    case Reduction::max:
      return reduce_columns<Reduction::max, T>;
    case Reduction::min:
      return reduce_columns<Reduction::min, T>;
    case Reduction::l1:
      return reduce_columns<Reduction::l1, T>;
    case Reduction::sum_square:
      return reduce_columns<Reduction::sum_square, T>;
    case Reduction::mean:
      return mean_of_integers<T>;
    default:
      return nullptr;
  }
}

/// The least of truth values is 1, which stands for true, if there are none.
void all_of_truth(const void* in, void* out, int64_t extent, int64_t inner, int64_t first, int64_t last) {
  reduce_columns<Reduction::min, uint8_t>(in, out, extent, inner, first, last);
  for (int64_t c = first; extent == 0 && c < last; ++c) static_cast<uint8_t*>(out)[c] = 1;
}

ReduceColumns reduction_of_truth(Reduction operation) {
  if (operation == Reduction::max) return reduce_columns<Reduction::max, uint8_t>;
  return operation == Reduction::min ? all_of_truth : nullptr;
}

ReduceColumns reduce(Reduction operation, int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_INT8:
      return reduction_of<int8_t>(operation);
    case IPR_DTYPE_UINT8:
      return reduction_of<uint8_t>(operation);
    case IPR_DTYPE_INT16:
      return reduction_of<int16_t>(operation);
    case IPR_DTYPE_UINT16:
      return reduction_of<uint16_t>(operation);
    case IPR_DTYPE_INT32:
      return reduction_of<int32_t>(operation);
    case IPR_DTYPE_UINT32:
      return reduction_of<uint32_t>(operation);
    case IPR_DTYPE_INT64:
      return reduction_of<int64_t>(operation);
    case IPR_DTYPE_UINT64:
      return reduction_of<uint64_t>(operation);
    case IPR_DTYPE_FLOAT64:
      return operation == Reduction::mean ? mean_of_float64 : reduction_of<double>(operation);
    case IPR_DTYPE_BOOL:
      return reduction_of_truth(operation);
    default:
      return nullptr;
  }
}

}  // namespace

extern const AccumulateKernels accumulate_kernels = {accumulate, reduce};

}  // namespace cpuacc::ISA_NS
