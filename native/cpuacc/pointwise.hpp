// Elementwise functions: lookup by name, and rows of operands that broadcast.

#ifndef CPUACC_POINTWISE_HPP
#define CPUACC_POINTWISE_HPP

#include <string_view>

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/step.hpp"

namespace cpuacc {

/// The operation of a node (Addition, ElementwiseBinary, Comparison ...); `none` if it is unknown.
Binary binary_of(const Node& node);
Unary unary_of(const Node& node);

/// The activation function of this name; Function::add if it is unknown.
Function function_of(std::string_view name);

/// Return whether a node without post-ops computes each element of its only result from one element of each operand,
/// where operands are broadcast.
bool is_elementwise(const Node& node);

/// Return whether all post-ops are activation functions of float32.
bool only_activations(const Graph& graph, const Node& node);

/// A result divided into rows, in each of which every operand is either a full row or a single element. All sizes are
/// in elements.
struct Rows {
  int operands = 0;
  int64_t rows = 1, length = 1;
  std::vector<int64_t> extents;   // sizes of the axes before the row
  std::vector<int64_t> steps[3];  // strides of each operand along these axes
  bool one[3] = {false, false, false};

  /// If several short rows were merged to one: the number of elements of each, and how an operand with fewer elements
  /// is read. Periodic: it is the same in each short row. Repeated: it has one element for each short row.
  int64_t period = 0;
  bool periodic[3] = {false, false, false}, repeated[3] = {false, false, false};

  /// The offset of an operand in a row.
  int64_t begin(int operand, int64_t row) const;
};
Rows rows_of(const Shape& result, const std::vector<const Shape*>& operands);

/// Merge rows of fewer than `least` elements, such as the three channels of each pixel, if every operand is full, a
/// single element, periodic or repeated in the merged row.
void merge_short_rows(Rows& rows, int64_t least = 64);

}  // namespace cpuacc

#endif  // CPUACC_POINTWISE_HPP
