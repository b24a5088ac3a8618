// Products with a small constant matrix along an axis that is not the last one. Networks move the axis to the end, and
// back after a FullyConnected, such as for attention whose heads are mixed.

#include "cpuacc/kernels/mix.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/patterns.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMostRows = 64;     // more rows are multiplied faster as a matrix product of contiguous rows
constexpr int64_t kLeastLength = 64;  // elements of a row

struct State {
  const MixKernels* kernels;
  Mix mix;
  int64_t outer, pieces;  // each of the outer products is divided into pieces
};

void run_mix(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Mix& mix = state.mix;
  const Range range = split(state.outer * state.pieces, part, parts);
  for (int64_t n = range.first; n < range.last; ++n) {
    const int64_t number = n / state.pieces;
    const Range own = split(mix.length, int(n % state.pieces), int(state.pieces), 32);
    state.kernels->mix(mix, run.at<float>(step.in[0]) + number * mix.inputs * mix.length,
                       run.at<float>(step.out[0]) + number * mix.outputs * mix.length, own.first, own.last);
  }
}

bool is_transposed(const Node& node) { return node.flag("transpose_weight_matrix"); }

/// Pack the matrix and the bias of a node: the products of four rows of the result are adjacent.
const float* packed(const Node& node, const Mix& mix, Builder& builder) {
  const int64_t padded = (mix.outputs + kMixedTogether - 1) / kMixedTogether * kMixedTogether;
  const Tensor &weights = *builder.graph.in(node, 1), *bias = builder.graph.in(node, 2);
  return static_cast<const float*>(builder.pack(uint64_t(padded * (mix.inputs + 1)) * 4, [&](void* memory) {
    float* to = static_cast<float*>(memory);
    for (int64_t row = 0; row < mix.outputs; ++row) {
      float* of_row = to + row / kMixedTogether * kMixedTogether * mix.inputs + row % kMixedTogether;
      for (int64_t k = 0; k < mix.inputs; ++k)
        of_row[k * kMixedTogether] =
            weights.floats()[is_transposed(node) ? row * mix.inputs + k : k * mix.outputs + row];
      if (bias) to[padded * mix.inputs + row] = bias->floats()[row];
    }
  }));
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const int axis = int(node.integer("axis"));
  const Around around_in = around(in.shape, axis), around_out = around(out.shape, axis);
  auto state = std::make_shared<State>();
  state->kernels = &mix_kernels_for(builder.settings.isa);
  state->mix = {around_in.extent, around_out.extent, around_in.inner, nullptr, nullptr};
  Mix& mix = state->mix;
  mix.weights = packed(node, mix, builder);
  mix.bias = mix.weights + (mix.outputs + kMixedTogether - 1) / kMixedTogether * kMixedTogether * mix.inputs;
  state->outer = around_in.outer;
  Step step;
  step.name = "mix " + node.name;
  step.fn = run_mix;
  step.max_parts = parts_for(builder.settings, double(in.elements() + out.elements()) * cost::kElementNs +
                                                   2 * double(out.elements() * mix.inputs) / cost::kOperationsPerNs);
  state->pieces = (step.max_parts + state->outer - 1) / state->outer;
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

/// The axis that a Transpose moves to the end, without a change of the others; -1 if it does something else.
int axis_moved_to_end(const Node& node, int rank) {
  if (node.type != "Transpose" || !node.posts.empty()) return -1;
  const std::vector<int64_t>& permutation = node.integers("permutation");
  const int axis = int(permutation.back());
  for (int n = 0; n + 1 < rank; ++n)
    if (permutation[size_t(n)] != n + (n >= axis)) return -1;
  return axis;
}

/// Return whether a Transpose moves the last axis to `axis`.
bool moves_back(const Node& node, int rank, int axis) {
  if (node.type != "Transpose" || !node.posts.empty()) return false;
  const std::vector<int64_t>& permutation = node.integers("permutation");
  for (int n = 0; n < rank; ++n)
    if (permutation[size_t(n)] != (n < axis ? n : n == axis ? rank - 1 : n - 1)) return false;
  return true;
}

/// The node that computes x * weights before an addition of a constant row; `bias` receives this row, if any.
const Node* product_of(const Graph& graph, int tensor, int* bias) {
  const Node* node = private_producer(graph, tensor);
  if (!node || !node->posts.empty()) return nullptr;
  for (size_t n : {0, 1}) {
    if (!is_operation(*node, "Addition", "ADD") || !is_row(*graph.in(*node, n), graph.out(*node))) continue;
    *bias = node->inputs[n];
    node = private_producer(graph, node->inputs[1 - n]);
    break;
  }
  const bool multiplies = node && node->type == "FullyConnected" && node->posts.empty();
  return multiplies && (node->inputs.size() < 3 || *bias < 0) ? node : nullptr;
}

bool is_small(const Graph& graph, const Node& product, int axis, const Tensor& x) {
  const Tensor& weights = *graph.in(product, 1);
  if (!weights.is_constant() || weights.extent(0) > kMostRows || weights.extent(1) > kMostRows) return false;
  const int64_t inputs = weights.extent(is_transposed(product) ? 1 : 0);
  if (x.extent(axis) != inputs) return false;  // FullyConnected divides longer rows into those of the matrix
  return around(x.shape, axis).inner >= kLeastLength;
}

bool fuse_mix(Graph& graph, const Node& node) {
  if (node.type != "Transpose" || graph.out(node).elements() == 0) return false;
  int bias = -1;
  const Node* product = product_of(graph, node.inputs[0], &bias);
  if (!product || all_f32(graph, *product) || (bias >= 0 && !is_f32(graph[bias]))) return false;
  const int producer = graph[product->inputs[0]].producer, rank = graph.out(node).rank();
  if (producer < 0 || graph.in(*product, 0)->rank() != rank) return false;
  if (graph.out(*product).shape != graph.in(node, 0)->shape) return false;  // the row makes it larger
  const Node& moved = graph.nodes[size_t(producer)];
  const int axis = axis_moved_to_end(moved, rank);
  if (axis < 0 || axis + 1 == rank || !moves_back(node, rank, axis)) return false;
  if (!is_small(graph, *product, axis, *graph.in(moved, 0))) return false;
  Node fused = *product;
  fused.type = "acc.Mix";
  fused.set("axis", axis);
  fused.inputs[0] = moved.inputs[0];
  if (bias >= 0) fused.inputs = {moved.inputs[0], product->inputs[1], bias};
  fused.outputs = node.outputs;
  graph.nodes.replace(node, std::move(fused));
  return true;
}

bool fuse_mixes(Graph& graph, const Settings&) {
  bool changed = false;
  for (const Node& node : graph.nodes) changed = fuse_mix(graph, node) || changed;
  return changed;
}

}  // namespace

Family mix_family() {
  return {{{"acc.Mix", "f32", without_posts, lower, nullptr}}, {{"products along other axes", fuse_mixes}}};
}

}  // namespace cpuacc
