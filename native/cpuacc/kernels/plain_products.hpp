// Matrix products of float64 and of unquantized integers.

#ifndef CPUACC_KERNELS_PLAIN_PRODUCTS_HPP
#define CPUACC_KERNELS_PLAIN_PRODUCTS_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// Sizes, and strides in elements. The rows of the result are contiguous, one after another.
struct PlainProduct {
  int64_t columns, depth, a_by_row, a_by_depth;
};

/// out[row][column] = sum over k of a[row][k] * b[k][column], for the rows [first, last). Integers wrap around.
using MultiplyPlain = void (*)(const PlainProduct& product, const void* a, const void* b, void* out, int64_t first,
                               int64_t last);

struct PlainProductFunctions {
  MultiplyPlain multiply;  // the rows of `b` are contiguous, one after another
  MultiplyPlain dot;       // the columns of `b` are, and `a_by_depth` is 1
  int64_t vector_columns;  // fewer columns fill no vector: `multiply` computes their elements one by one
};

struct PlainProductKernels {
  const PlainProductFunctions* (*of)(int32_t dtype);  // float64 and integers of 8 to 64 bits; nullptr for others
};
CPUACC_TABLE(PlainProductKernels, plain_product_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_PLAIN_PRODUCTS_HPP
