// Quantized Convolution2d and TransposeConvolution2d.

#include "cpuacc/lower/gemm_q8.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

/// The axes of rows, columns and channels. Images have channels last, see channels_last.cpp.
struct Order {
  int h, w, c;
};
constexpr Order kImage = {1, 2, 3};
Order order_of_weights(const Node& node) { return node.flag("acc.weights_first") ? Order{2, 3, 1} : kImage; }

Refusal supports(const Graph& graph, const Node& node, const Settings&) {
  Refusal why = q8_sums(graph, node);
  if (why) return why;
  if (node.type == "TransposeConvolution2d" && node.integer("groups") > 1 && graph.in(node, 1)->has_axis())
    return refused("takes one scale for weights of several groups", IPR_REASON_QUANTIZATION);
  return taken();
}

/// Strides of the weights (O, KH, KW, I) in elements, for either layout.
struct WeightSteps {
  int64_t o, h, w, c;
};
WeightSteps weight_steps(const Tensor& weights, const Order& at) {
  Shape steps = steps_of(weights.shape);
  return {steps[0], steps[size_t(at.h)], steps[size_t(at.w)], steps[size_t(at.c)]};
}

/// A window without its positions and taps.
Q8Window window_of(const Graph& graph, const Node& node) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  Q8Window window(*graph.in(node, 1));
  window.batch = in.shape[0];
  window.depth = in.extent(kImage.c), window.outputs = out.extent(kImage.c), window.groups = node.integer("groups");
  window.weight.outputs = window.outputs / window.groups;
  return window;
}

}  // namespace

Q8Window convolution_q8(const Graph& graph, const Node& node) {
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), &out = graph.out(node);
  const Order at = order_of_weights(node);
  Q8Window window = window_of(graph, node);
  window.rows = {in.extent(kImage.h), out.extent(kImage.h), node.integer("stride_y"), out.extent(kImage.h), 0, 1};
  window.columns = {in.extent(kImage.w), out.extent(kImage.w), node.integer("stride_x"), out.extent(kImage.w), 0, 1};
  WeightSteps by = weight_steps(weights, at);
  window.weight.by_output = by.o, window.weight.by_group = by.o * window.weight.outputs, window.weight.by_input = by.c;
  for (int64_t y = 0; y < weights.extent(at.h); ++y)
    for (int64_t x = 0; x < weights.extent(at.w); ++x) {
      window.taps.push_back({y * node.integer("dilation_y") - node.integer("pad_top"),
                             x * node.integer("dilation_x") - node.integer("pad_left")});
      window.weight.taps.push_back(y * by.h + x * by.w);
    }
  return window;
}

namespace {

/// The outputs whose position is `phase` modulo the stride, and the taps that contribute to them.
struct Phase {
  Q8Axis axis;
  std::vector<int64_t> cells, places;  // indices of taps, and their offsets in the image
};
Phase phase_of(int64_t phase, int64_t extent, int64_t result, int64_t size, int64_t stride, int64_t dilation,
               int64_t pad) {
  Phase window;
  window.axis = {extent, result > phase ? (result - phase - 1) / stride + 1 : 0, 1, result, phase, stride};
  for (int64_t cell = size; cell-- > 0;) {
    int64_t from = phase + pad - cell * dilation;
    if (from % stride != 0) continue;
    window.cells.push_back(cell);
    window.places.push_back(from / stride);
  }
  return window;
}

Q8Window transposed(const Graph& graph, const Node& node, const Phase& rows, const Phase& columns) {
  Q8Window window = window_of(graph, node);
  window.rows = rows.axis, window.columns = columns.axis;
  WeightSteps by = weight_steps(*graph.in(node, 1), order_of_weights(node));
  window.weight.by_output = by.o, window.weight.by_input = by.c;
  window.weight.by_group = window.depth / window.groups * by.c;
  for (size_t y = 0; y < rows.cells.size(); ++y)
    for (size_t x = 0; x < columns.cells.size(); ++x) {
      window.taps.push_back({rows.places[y], columns.places[x]});
      window.weight.taps.push_back(rows.cells[y] * by.h + columns.cells[x] * by.w);
    }
  return window;
}

std::vector<Q8Window> windows_of(const Graph& graph, const Node& node) {
  if (node.type == "Convolution2d") return {convolution_q8(graph, node)};
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), &out = graph.out(node);
  const Order at = order_of_weights(node);
  int64_t down = node.integer("stride_y"), across = node.integer("stride_x");
  std::vector<Q8Window> windows;
  for (int64_t y = 0; y < std::min(down, out.extent(kImage.h)); ++y)
    for (int64_t x = 0; x < std::min(across, out.extent(kImage.w)); ++x)
      windows.push_back(transposed(graph, node,
                                   phase_of(y, in.extent(kImage.h), out.extent(kImage.h), weights.extent(at.h), down,
                                            node.integer("dilation_y"), node.integer("pad_top")),
                                   phase_of(x, in.extent(kImage.w), out.extent(kImage.w), weights.extent(at.w), across,
                                            node.integer("dilation_x"), node.integer("pad_left"))));
  return windows;
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &input = *graph.in(node, 0), &weights = *graph.in(node, 1), &output = graph.out(node);
  Q8Posts posts = q8_posts(graph, node);
  Q8Rounding rule = Q8Rounding::of(node, input, weights, graph[posts.result], Q8Rounding::fixed_point,
                                   !is_signed(weights), q8_bias(graph, node));
  if (output.elements() == 0) return;
  Buffer other = posts.other < 0 ? Buffer() : builder.buffer(posts.other);
  Buffer in = builder.buffer(node.inputs[0]), out = builder.buffer(node.outputs[0]);
  for (const Q8Window& window : windows_of(graph, node))
    add_gemm(builder, node.type + " " + node.name, window, rule, posts, input, q8_bias(graph, node), output, in, out,
             other);
}

}  // namespace

Family conv_q8_family() {
  Family family;
  family.lowerings = {{"Convolution2d", "quantized", supports, lower, nullptr, true},
                      {"TransposeConvolution2d", "quantized", supports, lower, nullptr, true}};
  return family;
}

}  // namespace cpuacc
