#include "cpuacc/strided_view.hpp"

#include <cmath>

#include "cpuacc/patterns.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

constexpr int kLongestChain = 32;  // nodes that are followed

/// Merge factors that are contiguous, and drop those of one element.
Dimension merged(const Dimension& factors) {
  Dimension merged_factors;
  for (const Factor& factor : factors) {
    if (factor.extent == 1) continue;
    if (!merged_factors.empty() && merged_factors.back().step == factor.step * factor.extent)
      merged_factors.back() = {merged_factors.back().extent * factor.extent, factor.step};
    else
      merged_factors.push_back(factor);
  }
  return merged_factors;
}

/// Take factors with the product `extent` from `all`, beginning at `next`, into a dimension.
bool take_factors(Dimension& all, size_t* next, int64_t extent, Dimension* to) {
  while (extent > 1) {
    if (*next == all.size()) return false;
    Factor& factor = all[*next];
    if (extent % factor.extent == 0) {
      extent /= factor.extent;
      to->push_back(factor);
      ++*next;
      continue;
    }
    if (factor.extent % extent != 0) return false;
    factor.extent /= extent;
    to->push_back({extent, factor.step * factor.extent});
    extent = 1;
  }
  return true;
}

using Move = bool (*)(const Graph&, const Node&, int result, StridedView&);

bool move_reshape(const Graph& graph, const Node&, int result, StridedView& view) {
  return reshape(view, graph[result].shape);
}

bool move_transpose(const Graph&, const Node& node, int, StridedView& view) {
  std::vector<Dimension> turned;
  for (int64_t axis : node.integers("permutation")) turned.push_back(view.dimensions[size_t(axis)]);
  view.dimensions = std::move(turned);
  return true;
}

bool move_broadcast(const Graph& graph, const Node& node, int result, StridedView& view) {
  const Shape &from = graph.in(node, 0)->shape, &to = graph[result].shape;
  view.dimensions.insert(view.dimensions.begin(), to.size() - from.size(), Dimension());
  for (size_t n = 0; n < to.size(); ++n) {
    const size_t missing = to.size() - from.size();
    if (n < missing || from[n - missing] != to[n]) view.dimensions[n] = {{to[n], 0}};
  }
  return true;
}

/// Repeat dimensions; those of several elements get a factor for the repetitions.
bool move_tile(const Graph&, const Node& node, int, StridedView& view) {
  const std::vector<int64_t>& times = node.integers("multiples");
  for (size_t n = 0; n < times.size(); ++n) view.dimensions[n].insert(view.dimensions[n].begin(), {times[n], 0});
  return true;
}

bool cut(StridedView& view, size_t axis, int64_t begin, int64_t size) {
  int64_t step = 0;
  if (!view.stride(axis, &step)) return false;
  view.offset += begin * step;
  view.dimensions[axis] = {{size, step}};
  return true;
}

bool move_slice(const Graph& graph, const Node& node, int result, StridedView& view) {
  const Shape &from = graph.in(node, 0)->shape, &to = graph[result].shape;
  const std::vector<int64_t>& begin = node.integers("begin");
  for (size_t n = 0; n < to.size(); ++n)
    if (to[n] != from[n] && !cut(view, n, begin[n], to[n])) return false;
  return true;
}

/// Slices with a positive stride along each axis.
bool move_strided_slice(const Graph& graph, const Node& node, int result, StridedView& view) {
  for (const char* mask : {"ellipsis_mask", "new_axis_mask", "shrink_axis_mask"})
    if (node.integer(mask) != 0) return false;
  const Shape &from = graph.in(node, 0)->shape, &to = graph[result].shape;
  const std::vector<int64_t>&begin = node.integers("begin"), &stride = node.integers("stride");
  for (size_t n = 0; n < begin.size(); ++n) {
    if (stride[n] <= 0) return false;
    if (to[n] == from[n]) continue;
    int64_t first = (node.integer("begin_mask") >> n & 1) ? 0 : begin[n] < 0 ? begin[n] + from[n] : begin[n], step = 0;
    if (first < 0 || !view.stride(n, &step)) return false;
    view.offset += first * step;
    view.dimensions[n] = {{to[n], step * stride[n]}};
  }
  return true;
}

bool move_split(const Graph& graph, const Node& node, int result, StridedView& view) {
  const int axis = axis_of(node.integer("axis"), graph.in(node, 0)->rank());
  int64_t begin = 0;
  for (size_t n = 0; node.outputs[n] != result; ++n) begin += graph[node.outputs[n]].extent(axis);
  return cut(view, size_t(axis), begin, graph[result].extent(axis));
}

/// Select one index of an axis; a scalar index removes the axis.
bool move_gather(const Graph& graph, const Node& node, int, StridedView& view) {
  const Tensor& index = *graph.in(node, 1);
  if (!index.is_constant() || index.elements() != 1 || index.rank() > 1 || node.integer("batch_dims") != 0)
    return false;
  if (index.dtype != IPR_DTYPE_INT64 && index.dtype != IPR_DTYPE_INT32) return false;
  const int axis = axis_of(node.integer("axis"), graph.in(node, 0)->rank());
  const int64_t size = graph.in(node, 0)->extent(axis);
  int64_t at = index.dtype == IPR_DTYPE_INT64 ? *index.values<int64_t>() : *index.values<int32_t>();
  if (at < 0) at += size;
  if (at < 0 || at >= size || !cut(view, size_t(axis), at, 1)) return false;
  if (index.rank() == 0) view.dimensions.erase(view.dimensions.begin() + axis);
  return true;
}

struct Mover {
  const char* type;
  Move move;
};

const Mover kMovers[] = {{"Reshape", move_reshape}, {"Transpose", move_transpose}, {"BroadcastTo", move_broadcast},
                         {"Tile", move_tile},       {"Slice", move_slice},         {"StridedSlice", move_strided_slice},
                         {"Splitter", move_split},  {"Gather", move_gather}};

Move move_of(const Node& node) {
  for (const Mover& mover : kMovers)
    if (node.type == mover.type) return mover.move;
  return nullptr;
}

StridedView followed(const Graph& graph, int tensor, double* scale, int left) {
  const int producer = graph[tensor].producer;
  if (left == 0 || producer < 0 || graph[tensor].elements() == 0) return plain_view(graph, tensor);
  const Node& node = graph.nodes[size_t(producer)];
  if (!node.posts.empty() || node.type.empty()) return plain_view(graph, tensor);
  int other = -1;
  if (double factor = scale ? factor_of(graph, node, &other) : 0) {
    *scale *= factor;
    return followed(graph, other, scale, left - 1);
  }
  Move move = move_of(node);
  if (move == nullptr) return plain_view(graph, tensor);
  double product = scale ? *scale : 1;
  StridedView view = followed(graph, node.inputs[0], scale ? &product : nullptr, left - 1);
  if (move(graph, node, tensor, view)) {
    if (scale) *scale = product;
    return view;
  }
  view = plain_view(graph, node.inputs[0]);
  return move(graph, node, tensor, view) ? view : plain_view(graph, tensor);
}

}  // namespace

bool StridedView::stride(size_t dimension, int64_t* step) const {
  Dimension factors = merged(dimensions[dimension]);
  *step = factors.empty() ? 0 : factors[0].step;
  return factors.size() <= 1;
}

std::vector<int64_t> StridedView::offsets(const Shape& batch, size_t rest) const {
  const size_t own = dimensions.size() - rest;
  std::vector<int64_t> offsets{offset};
  auto spread = [&](int64_t extent, int64_t step) {
    std::vector<int64_t> next;
    for (int64_t at : offsets)
      for (int64_t n = 0; n < extent; ++n) next.push_back(at + n * step);
    offsets = std::move(next);
  };
  for (size_t n = 0; n < batch.size(); ++n) {
    Dimension factors;
    if (n + own >= batch.size()) factors = merged(dimensions[n + own - batch.size()]);
    if (factors.empty()) factors = {{batch[n], 0}};
    for (const Factor& factor : factors) spread(factor.extent, factor.step);
  }
  return offsets;
}

StridedView plain_view(const Graph& graph, int tensor) {
  StridedView view;
  view.tensor = tensor;
  const Shape &shape = graph[tensor].shape, steps = steps_of(shape);
  for (size_t n = 0; n < shape.size(); ++n) view.dimensions.push_back({{shape[n], steps[n]}});
  return view;
}

StridedView view_of(const Graph& graph, int tensor, double* scale) {
  return followed(graph, tensor, scale, kLongestChain);
}

bool reshape(StridedView& view, const Shape& shape) {
  Dimension all;
  for (const Dimension& dimension : view.dimensions)
    for (const Factor& factor : dimension)
      if (factor.extent != 1) all.push_back(factor);
  std::vector<Dimension> found(shape.size());
  size_t next = 0;
  for (size_t n = 0; n < shape.size(); ++n)
    if (!take_factors(all, &next, shape[n], &found[n])) return false;
  view.dimensions = std::move(found);
  return true;
}

double factor_of(const Graph& graph, const Node& node, int* other) {
  const bool divides = is_operation(node, "Division", "DIV");
  if (!divides && !is_operation(node, "Multiplication", "MUL")) return 0;
  for (size_t n : {1, 0}) {
    const Tensor& number = graph[node.inputs[n]];
    if (!number.is_constant() || !is_f32(number) || number.elements() != 1 || (divides && n == 0)) continue;
    if (!is_f32(graph.out(node)) || graph[node.inputs[1 - n]].shape != graph.out(node).shape) continue;
    const double value = double(*number.values<float>());
    if (!(std::fabs(value) > 1e-15 && std::fabs(value) < 1e15)) return 0;
    *other = node.inputs[1 - n];
    return divides ? 1 / value : value;
  }
  return 0;
}

}  // namespace cpuacc
