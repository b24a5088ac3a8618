// Matrix products of float64 and of integers, for sizes around tiles and vectors, against plain loops.

#include "cpuacc/kernels/plain_products.hpp"

#include <cmath>

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(PlainProductKernel);

template <class T>
std::vector<T> drawn(Random& random, int64_t count) {
  std::vector<T> values;
  for (int64_t n = 0; n < count; ++n) values.push_back(T(random.integer(-1000000, 1000000)));
  return values;
}

/// Multiply the same rows by the columns of the second operand; expect the same results.
template <class T>
void check_dot(native::Isa isa, int32_t dtype, const PlainProduct& product, const Guarded<T>& a, const Guarded<T>& b,
               const Guarded<T>& expected, int64_t rows) {
  Guarded<T> columns(product.depth * product.columns), out(rows * product.columns, T(7));
  for (int64_t k = 0; k < product.depth; ++k)
    for (int64_t column = 0; column < product.columns; ++column)
      columns[column * product.depth + k] = b[k * product.columns + column];
  plain_product_kernels_for(isa).of(dtype)->dot(product, a.data(), columns.data(), out.data(), 1, rows);
  for (int64_t n = 0; n < out.size(); ++n)
    ASSERT_EQ(out[n], expected[n]) << describe("rows", rows, "columns", product.columns, "depth", product.depth);
}

/// Multiply rows [1, rows) of a matrix that is stored by rows or by columns; the first row must not be written.
template <class T>
void check(native::Isa isa, int32_t dtype, int64_t rows, int64_t columns, int64_t depth, bool by_columns) {
  Random random;
  const Guarded<T> a(drawn<T>(random, rows * depth)), b(drawn<T>(random, depth * columns));
  Guarded<T> out(rows * columns, T(7));
  const PlainProduct product{columns, depth, by_columns ? 1 : depth, by_columns ? rows : 1};
  plain_product_kernels_for(isa).of(dtype)->multiply(product, a.data(), b.data(), out.data(), 1, rows);
  if (!by_columns) check_dot(isa, dtype, product, a, b, out, rows);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      T sum = row ? T(0) : T(7);
      for (int64_t k = 0; row && k < depth; ++k) {
        const T x = a[row * product.a_by_row + k * product.a_by_depth], y = b[k * columns + column];
        sum = std::is_floating_point<T>::value ? T(sum + x * y) : T(uint64_t(sum) + uint64_t(x) * uint64_t(y));
      }
      ASSERT_EQ(out[row * columns + column], sum) << describe("rows", rows, "columns", columns, "depth", depth);
    }
}

TEST_P(PlainProductKernel, multiplies_every_type) {
  for (int64_t rows : {2, 4, 9, 16})
    for (int64_t columns : {1, 3, 8, 17, 33, 130})
      for (int64_t depth : {0, 1, 40, 131})
        for (bool by_columns : {false, true}) {
          check<double>(isa(), IPR_DTYPE_FLOAT64, rows, columns, depth, by_columns);
          check<uint8_t>(isa(), IPR_DTYPE_INT8, rows, columns, depth, by_columns);
          check<uint16_t>(isa(), IPR_DTYPE_UINT16, rows, columns, depth, by_columns);
          check<uint32_t>(isa(), IPR_DTYPE_INT32, rows, columns, depth, by_columns);
          check<uint64_t>(isa(), IPR_DTYPE_UINT64, rows, columns, depth, by_columns);
        }
}

TEST_P(PlainProductKernel, has_no_products_of_other_types) {
  EXPECT_EQ(plain_product_kernels_for(isa()).of(IPR_DTYPE_FLOAT32), nullptr);
}

}  // namespace
}  // namespace cpuacc
