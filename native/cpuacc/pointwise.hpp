// Functions of single elements: their names, and runs of operands that broadcast.

#ifndef CPUACC_POINTWISE_HPP
#define CPUACC_POINTWISE_HPP

#include <string_view>

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/step.hpp"

namespace cpuacc {

/// The number of the operation of a node (Addition, ElementwiseBinary, Comparison ...); `none` where there is none.
Binary binary_of(const Node& node);
Unary unary_of(const Node& node);

/// The function of an Activation; Function::add where there is none of this name.
Function function_of(std::string_view name);

/// Whether all posts are activation functions of float32.
bool only_activations(const Graph& graph, const Node& node);

/// A result as rows, in which every operand is either as long as the row or a single element. All in elements.
struct Rows {
  int operands = 0;
  int64_t rows = 1, length = 1;
  std::vector<int64_t> extents;     // of the axes ahead of the row
  std::vector<int64_t> steps[3];    // for each operand, along these
  bool one[3] = {false, false, false};

  /// Where an operand begins in a row.
  int64_t begin(int operand, int64_t row) const;
};
Rows rows_of(const Shape& result, const std::vector<const Shape*>& operands);

}  // namespace cpuacc

#endif  // CPUACC_POINTWISE_HPP
