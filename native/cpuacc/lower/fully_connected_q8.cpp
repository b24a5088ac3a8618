// Quantized FullyConnected.

#include "cpuacc/lower/gemm_q8.hpp"

namespace cpuacc {
namespace {

Refusal supports(const Graph& graph, const Node& node, const Settings&) { return q8_sums(graph, node); }

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &input = *graph.in(node, 0), &weights = *graph.in(node, 1), &output = graph.out(node);
  Q8Posts posts = q8_posts(graph, node);
  Q8Rounding rule =
      Q8Rounding::of(node, input, weights, graph[posts.result], Q8Rounding::real, false, q8_bias(graph, node));
  bool transposed = node.flag("transpose_weight_matrix");
  Q8Window window(weights);
  window.depth = weights.extent(transposed ? 1 : 0);
  window.outputs = weights.extent(transposed ? 0 : 1);
  int64_t rows = window.outputs ? output.elements() / window.outputs : 0;
  window.columns = {rows, rows, 1, rows, 0, 1};
  window.taps = {{0, 0}};
  window.weight.taps = {0};
  window.weight.outputs = window.outputs;
  window.weight.by_output = transposed ? window.depth : 1;
  window.weight.by_input = transposed ? 1 : window.outputs;
  add_gemm(builder, "FullyConnected " + node.name, window, rule, posts, input, q8_bias(graph, node), output,
           builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]),
           posts.other < 0 ? Buffer() : builder.buffer(posts.other));
}

}  // namespace

Family fully_connected_q8_family() {
  Family family;
  family.lowerings = {{"FullyConnected", "quantized", supports, lower, nullptr, true}};
  return family;
}

}  // namespace cpuacc
