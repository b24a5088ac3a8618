#include "cpuacc/lower/matrices.hpp"

#include <algorithm>

namespace cpuacc {
namespace {

/// The axes of a tensor before its matrices.
Shape batch_of(const Shape& shape) { return {shape.begin(), shape.end() - std::min<long>(2, long(shape.size()))}; }

Shape broadcast(const Shape& a, const Shape& b) {
  Shape found(std::max(a.size(), b.size()), 1);
  for (size_t n = 0; n < found.size(); ++n) {
    const int64_t x = n < a.size() ? a[a.size() - 1 - n] : 1, y = n < b.size() ? b[b.size() - 1 - n] : 1;
    found[found.size() - 1 - n] = x == 1 ? y : x;
  }
  return found;
}

/// The offsets of the matrices of an operand, each with `size` elements, for each matrix of the result.
std::vector<int64_t> places_of(const Shape& batch, const Shape& result, int64_t size) {
  std::vector<int64_t> steps(result.size(), 0), found{0};
  for (size_t n = batch.size(); n-- > 0; size *= batch[n])
    if (batch[n] != 1) steps[result.size() - batch.size() + n] = size;
  for (size_t axis = 0; axis < result.size(); ++axis) {
    std::vector<int64_t> next;
    for (int64_t place : found)
      for (int64_t n = 0; n < result[axis]; ++n) next.push_back(place + n * steps[axis]);
    found = std::move(next);
  }
  return found;
}

}  // namespace

Matrices matrices_of(const Graph& graph, const Node& node) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1);
  Matrices matrices;
  matrices.is_a_turned = node.flag("transpose_x") && a.rank() > 1;
  matrices.is_b_turned = node.flag("transpose_y") && b.rank() > 1;
  matrices.depth = a.extent(matrices.is_a_turned ? -2 : -1);
  matrices.rows = a.rank() < 2 ? 1 : a.extent(matrices.is_a_turned ? -1 : -2);
  matrices.columns = b.rank() < 2 ? 1 : b.extent(matrices.is_b_turned ? -2 : -1);
  matrices.a_by_row = matrices.is_a_turned ? 1 : matrices.depth;
  matrices.a_by_depth = matrices.is_a_turned ? matrices.rows : 1;
  matrices.b_by_column = matrices.is_b_turned ? matrices.depth : 1;
  matrices.b_by_depth = matrices.is_b_turned ? 1 : matrices.columns;
  const Shape of_a = batch_of(a.shape), of_b = batch_of(b.shape), result = broadcast(of_a, of_b);
  matrices.a_places = places_of(of_a, result, matrices.rows * matrices.depth);
  matrices.b_places = places_of(of_b, result, matrices.depth * matrices.columns);
  return matrices;
}

}  // namespace cpuacc
