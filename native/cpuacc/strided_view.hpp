// Tensors as strided views of other tensors, so that kernels read operands where they are instead of copies that were
// transposed, broadcast or sliced.

#ifndef CPUACC_STRIDED_VIEW_HPP
#define CPUACC_STRIDED_VIEW_HPP

#include <vector>

#include "cpuacc/graph.hpp"

namespace cpuacc {

/// A factor of a dimension, with its stride in elements; 0 if it is broadcast. The factors of a dimension are ordered
/// from the outermost to the innermost one.
struct Factor {
  int64_t extent, step;
};
using Dimension = std::vector<Factor>;

/// The elements of a tensor in the memory of another one. A dimension may have several factors after a reshape, for
/// example (heads, size) after the two were exchanged in memory.
struct StridedView {
  int tensor = -1;  // whose memory is read
  std::vector<Dimension> dimensions;
  int64_t offset = 0;  // in elements

  /// The only stride of a dimension; false if it has several. Dimensions of one element have the stride 0.
  bool stride(size_t dimension, int64_t* step) const;
  /// Offsets in elements of all indices along the first `batch.size()` dimensions, in row-major order. The view has
  /// `rest` dimensions after these; it broadcasts to the shape `batch` like an operand of an elementwise layer.
  std::vector<int64_t> offsets(const Shape& batch, size_t rest) const;
};

/// A tensor as a view of its own memory.
StridedView plain_view(const Graph& graph, int tensor);

/// A tensor as a view of the first tensor of a chain of reshapes, transpositions, broadcasts, slices and selections
/// that ends in it. If `scale` is given, the chain may also have products with constants, which are multiplied into
/// `scale`.
StridedView view_of(const Graph& graph, int tensor, double* scale = nullptr);

/// View the same elements with another shape. Returns false if this needs a copy.
bool reshape(StridedView& view, const Shape& shape);

/// The constant by which a node multiplies its other operand, which becomes `other`; 0 for other nodes, and if float32
/// cannot hold the reciprocal of the factor and its products with other factors.
double factor_of(const Graph& graph, const Node& node, int* other);

}  // namespace cpuacc

#endif  // CPUACC_STRIDED_VIEW_HPP
