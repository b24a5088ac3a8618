// Products of matrices, as lowerings of several files use them.

#ifndef GPUACC_PRODUCTS_HPP
#define GPUACC_PRODUCTS_HPP

#include "gpuacc/pointwise.hpp"

namespace gpuacc {

/// The sizes of products of matrices (M, K) and (K, N), one for each batch.
struct Product {
  int64_t m, n, k;
  std::vector<int32_t> offsets_a, offsets_b;  // of each batch: elements of a, and matrices of the packed b
  bool skips_negative_zeros = false;          // an element -0.0 of a leaves out its row of b, which may hold NaN
};

/// The number of vectors of B output columns of a work item.
int64_t vectors_of(const Plan& plan, int64_t n);

/// Matrices of `k` rows and `n` columns in memory; `by_k` and `by_n` are distances of elements.
struct Matrices {
  int64_t count, k, n, by_k, by_n;
};

/// Pack computed matrices in a launch, in panels of `step` columns; return the buffer.
int packed_by_kernel(Plan& plan, const Value& b, const Matrices& matrices, int64_t step);

/// The same for an operand, which is packed once if it is constant.
int packed(Plan& plan, const ipr::TensorInfo& info, const Matrices& matrices, int64_t step);

/// Multiply row-major matrices `a` by packed ones, (matrices, N / (V * B), K, V * B), and add `bias`, a buffer of
/// floats that are padded to whole panels.
void multiply(Plan& plan, const Value& a, int packed, int bias, const Product& sizes, int64_t vectors,
              const Chain& chain, const Value& y);

/// The batch to which two batches broadcast.
Shape common_batch(const Shape& a, const Shape& b);

/// The index of the matrix of an operand for each batch of the result, times `scale`.
std::vector<int32_t> matrices_of(const Shape& own, const Shape& whole, int64_t scale);

/// Products of matrices of int16, with sums in int32: `a` is (..., M, K), `b` is (..., K, N).
Value integer_product(Plan& plan, const Value& a, const Value& b, const Shape& out);

/// A buffer of zeros as the bias of `multiply`.
int no_bias(Plan& plan, int64_t n, int64_t step);

}  // namespace gpuacc

#endif  // GPUACC_PRODUCTS_HPP
