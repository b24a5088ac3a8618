#include "cpuacc/kernels/plain_products.hpp"

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

/// Multiply `kRows` rows by the `kVectors` vectors of columns from `b` on; the sums stay in registers.
template <class T, int kRows, int kVectors>
CPUACC_INLINE void multiply_tile(const PlainProduct& product, const T* a, const T* b, T* out) {
  using Vector = typename Wide<T>::Vector;
  using Loose = typename Wide<T>::Loose;
  Vector sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < product.depth; ++k) {
    Vector row_of_b[kVectors];
    for (int v = 0; v < kVectors; ++v)
      row_of_b[v] = *reinterpret_cast<const Loose*>(b + k * product.columns + v * Wide<T>::kCount);
    for (int row = 0; row < kRows; ++row) {
      const T factor = a[row * product.a_by_row + k * product.a_by_depth];
      for (int v = 0; v < kVectors; ++v) sums[row][v] += factor * row_of_b[v];
    }
  }
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Loose*>(out + row * product.columns + v * Wide<T>::kCount) = sums[row][v];
}

/// Multiply one row by one column. Products of narrow integers are computed in 32 bits, which do not overflow.
template <class T>
T multiply_one(const PlainProduct& product, const T* a, const T* b) {
  T sum = 0;
  for (int64_t k = 0; k < product.depth; ++k) {
    const T x = a[k * product.a_by_depth], y = b[k * product.columns];
    if constexpr (sizeof(T) < 4)
      sum = T(sum + uint32_t{x} * uint32_t{y});
    else
      sum += x * y;
  }
  return sum;
}

template <class T, int kRows>
void multiply_rows(const PlainProduct& product, const T* a, const T* b, T* out) {
  constexpr int kVectors = kRows == 1 ? 4 : 2;
  constexpr int64_t kCount = Wide<T>::kCount;
  int64_t column = 0;
  for (; column + kVectors * kCount <= product.columns; column += kVectors * kCount)
    multiply_tile<T, kRows, kVectors>(product, a, b + column, out + column);
  for (; column + kCount <= product.columns; column += kCount)
    multiply_tile<T, kRows, 1>(product, a, b + column, out + column);
  for (; column < product.columns; ++column)
    for (int row = 0; row < kRows; ++row)
      out[row * product.columns + column] = multiply_one(product, a + row * product.a_by_row, b + column);
}

template <class T>
void multiply(const PlainProduct& product, const void* a, const void* b, void* out, int64_t first, int64_t last) {
  const T *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
  T* result = static_cast<T*>(out);
  int64_t row = first;
  for (; row + 4 <= last; row += 4)
    multiply_rows<T, 4>(product, left + row * product.a_by_row, right, result + row * product.columns);
  for (; row < last; ++row)
    multiply_rows<T, 1>(product, left + row * product.a_by_row, right, result + row * product.columns);
}

MultiplyPlain multiply_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT64:
      return multiply<double>;
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_UINT8:
      return multiply<uint8_t>;
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_UINT16:
      return multiply<uint16_t>;
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_UINT32:
      return multiply<uint32_t>;
    case IPR_DTYPE_INT64:
    case IPR_DTYPE_UINT64:
      return multiply<uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

extern const PlainProductKernels plain_product_kernels = {multiply_of};

}  // namespace cpuacc::ISA_NS
