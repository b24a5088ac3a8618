// The matrices of a BatchMatMul: where they are in their tensors.

#ifndef CPUACC_LOWER_MATRICES_HPP
#define CPUACC_LOWER_MATRICES_HPP

#include "cpuacc/lowering.hpp"

namespace cpuacc {

/// Sizes, and strides in elements. A vector is a matrix of one row (operand 0) or of one column (operand 1).
struct Matrices {
  int64_t rows, depth, columns;
  int64_t a_by_row, a_by_depth, b_by_column, b_by_depth;
  bool is_a_turned, is_b_turned;
  std::vector<int64_t> a_places, b_places;  // offsets of both operands, for each matrix of the result
};

Matrices matrices_of(const Graph& graph, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_MATRICES_HPP
