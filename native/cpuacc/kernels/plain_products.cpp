#include "cpuacc/kernels/plain_products.hpp"

#include <string.h>

#include "cpuacc/kernels/simd.hpp"
#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

template <class T>
struct Wide {
  static constexpr int64_t kCount = kLanes * 4 / int64_t(sizeof(T));
  typedef T Vector __attribute__((vector_size(kLanes * 4)));
  typedef T Loose __attribute__((vector_size(kLanes * 4), aligned(sizeof(T)), may_alias));
};

/// a * b + c. Floats are rounded once where the processor has an instruction for that.
template <class V>
CPUACC_INLINE V multiply_add(V a, V b, V c) {
  return a * b + c;
}
#if defined(__AVX512F__)
CPUACC_INLINE __m512d multiply_add(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__AVX2__)
CPUACC_INLINE __m256d multiply_add(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#elif defined(__aarch64__)
CPUACC_INLINE float64x2_t multiply_add(float64x2_t a, float64x2_t b, float64x2_t c) { return vfmaq_f64(c, a, b); }
#endif

template <class T>
CPUACC_INLINE typename Wide<T>::Vector loaded(const T* from) {
  return *reinterpret_cast<const typename Wide<T>::Loose*>(from);
}

/// sum + x * y. Products of narrow integers are computed in 32 bits, which do not overflow.
template <class T>
CPUACC_INLINE T sum_with(T sum, T x, T y) {
  if constexpr (sizeof(T) < 4)
    return T(sum + uint32_t{x} * uint32_t{y});
  else
    return sum + x * y;
}

/// Multiply `kRows` rows by the `kVectors` vectors of columns from `b` on; the sums stay in registers.
template <class T, int kRows, int kVectors>
CPUACC_INLINE void multiply_tile(const PlainProduct& product, const T* a, const T* b, T* out) {
  using Vector = typename Wide<T>::Vector;
  using Loose = typename Wide<T>::Loose;
  Vector sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < product.depth; ++k) {
    Vector row_of_b[kVectors];
    for (int v = 0; v < kVectors; ++v) row_of_b[v] = loaded(b + k * product.columns + v * Wide<T>::kCount);
    for (int row = 0; row < kRows; ++row) {
      const Vector factor = a[row * product.a_by_row + k * product.a_by_depth] - Vector{};
      for (int v = 0; v < kVectors; ++v) sums[row][v] = multiply_add(factor, row_of_b[v], sums[row][v]);
    }
  }
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Loose*>(out + row * product.columns + v * Wide<T>::kCount) = sums[row][v];
}

/// Multiply `rows` rows by the `kVectors` vectors of columns from `b` on, `kRows` rows at once, then half as many.
template <class T, int kRows, int kVectors>
void multiply_panel(const PlainProduct& product, const T* a, const T* b, T* out, int64_t rows) {
  for (; rows >= kRows; rows -= kRows, a += kRows * product.a_by_row, out += kRows * product.columns)
    multiply_tile<T, kRows, kVectors>(product, a, b, out);
  if constexpr (kRows > 1) multiply_panel<T, kRows / 2, kVectors>(product, a, b, out, rows);
}

/// Multiply rows by at least one vector of columns. The last panel begins a vector before the end, so it may compute
/// columns a second time.
template <class T, int kRows, int kVectors>
void multiply_panels(const PlainProduct& product, const T* a, const T* b, T* out, int64_t rows) {
  constexpr int64_t kCount = Wide<T>::kCount;
  int64_t column = 0;
  for (; column + kVectors * kCount <= product.columns; column += kVectors * kCount)
    multiply_panel<T, kRows, kVectors>(product, a, b + column, out + column, rows);
  for (; column < product.columns; column += kCount) {
    const int64_t first = column + kCount <= product.columns ? column : product.columns - kCount;
    multiply_panel<T, kRows, 1>(product, a, b + first, out + first, rows);
  }
}

template <class T>
T multiply_one(const PlainProduct& product, const T* a, const T* b) {
  T sum = 0;
  for (int64_t k = 0; k < product.depth; ++k) sum = sum_with(sum, a[k * product.a_by_depth], b[k * product.columns]);
  return sum;
}

template <class T>
void multiply(const PlainProduct& product, const void* a, const void* b, void* out, int64_t first, int64_t last) {
  constexpr int kMostRows = kRegisters == 32 ? 8 : 4;  // sums of so many rows of two vectors stay in registers
  const T *left = static_cast<const T*>(a) + first * product.a_by_row, *right = static_cast<const T*>(b);
  T* result = static_cast<T*>(out) + first * product.columns;
  const int64_t rows = last - first;
  if (product.columns >= Wide<T>::kCount)
    return rows < 4 ? multiply_panels<T, 2, 4>(product, left, right, result, rows)
                    : multiply_panels<T, kMostRows, 2>(product, left, right, result, rows);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < product.columns; ++column)
      result[row * product.columns + column] = multiply_one(product, left + row * product.a_by_row, right + column);
}

template <class T>
CPUACC_INLINE T sum_of_lanes(typename Wide<T>::Vector sums) {
  T lanes[Wide<T>::kCount];
  memcpy(lanes, &sums, sizeof lanes);
  for (int64_t half = Wide<T>::kCount / 2; half > 0; half /= 2)
    for (int64_t n = 0; n < half; ++n) lanes[n] = T(lanes[n] + lanes[n + half]);
  return lanes[0];
}

/// The dot products of `kRows` rows and `kColumns` columns, all of adjacent elements.
template <class T, int kRows, int kColumns>
CPUACC_INLINE void dot_tile(const PlainProduct& product, const T* a, const T* b, T* out) {
  using Vector = typename Wide<T>::Vector;
  Vector sums[kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + Wide<T>::kCount <= product.depth; k += Wide<T>::kCount) {
    Vector columns[kColumns];
    for (int n = 0; n < kColumns; ++n) columns[n] = loaded(b + n * product.depth + k);
    for (int row = 0; row < kRows; ++row) {
      const Vector x = loaded(a + row * product.a_by_row + k);
      for (int n = 0; n < kColumns; ++n) sums[row][n] = multiply_add(x, columns[n], sums[row][n]);
    }
  }
  for (int row = 0; row < kRows; ++row)
    for (int n = 0; n < kColumns; ++n) {
      T sum = sum_of_lanes<T>(sums[row][n]);
      for (int64_t last = k; last < product.depth; ++last)
        sum = sum_with(sum, a[row * product.a_by_row + last], b[n * product.depth + last]);
      out[row * product.columns + n] = sum;
    }
}

template <class T, int kRows>
void dot_rows(const PlainProduct& product, const T* a, const T* b, T* out) {
  int64_t column = 0;
  for (; column + 4 <= product.columns; column += 4)
    dot_tile<T, kRows, 4>(product, a, b + column * product.depth, out + column);
  for (; column + 2 <= product.columns; column += 2)
    dot_tile<T, kRows, 2>(product, a, b + column * product.depth, out + column);
  if (column < product.columns) dot_tile<T, kRows, 1>(product, a, b + column * product.depth, out + column);
}

template <class T>
void dot(const PlainProduct& product, const void* a, const void* b, void* out, int64_t first, int64_t last) {
  const T *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
  T* result = static_cast<T*>(out);
  int64_t row = first;
  for (; row + 2 <= last; row += 2)
    dot_rows<T, 2>(product, left + row * product.a_by_row, right, result + row * product.columns);
  if (row < last) dot_rows<T, 1>(product, left + row * product.a_by_row, right, result + row * product.columns);
}

template <class T>
constexpr PlainProductFunctions kFunctions = {multiply<T>, dot<T>, Wide<T>::kCount};

const PlainProductFunctions* functions_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT64:
      return &kFunctions<double>;
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_UINT8:
      return &kFunctions<uint8_t>;
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_UINT16:
      return &kFunctions<uint16_t>;
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_UINT32:
      return &kFunctions<uint32_t>;
    case IPR_DTYPE_INT64:
    case IPR_DTYPE_UINT64:
      return &kFunctions<uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

extern const PlainProductKernels plain_product_kernels = {functions_of};

}  // namespace cpuacc::ISA_NS
