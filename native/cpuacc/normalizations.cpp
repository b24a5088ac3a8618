// Fusion of the layers by which networks express normalizations: RMS and layer normalization of rows, rows that are
// divided by their lengths, and group normalization of images, as an instance normalization of images that were
// reshaped to a channel for each group.
//
// Only the last layer of a pattern is replaced. The others are dropped if nothing else reads their results.

#include <algorithm>
#include <functional>
#include <numeric>

#include "cpuacc/patterns.hpp"
#include "cpuacc/pointwise.hpp"

namespace cpuacc {
namespace {

const Node* producer_of(const Graph& graph, int tensor) {
  const int producer = tensor < 0 ? -1 : graph[tensor].producer;
  if (producer < 0 || !is_f32(graph[tensor])) return nullptr;
  const Node& node = graph.nodes[size_t(producer)];
  return node.type.empty() || !node.posts.empty() ? nullptr : &node;
}

bool is_unary(const Node* node, Unary operation) {
  return node && (node->type == "ElementwiseUnary" || node->type == "Floor") && unary_of(*node) == operation;
}

/// Return x if a tensor is x * x; otherwise -1.
int base_of_square(const Graph& graph, int tensor) {
  const Node* node = producer_of(graph, tensor);
  if (!node) return -1;
  if (is_unary(node, Unary::square)) return node->inputs[0];
  if (node->type == "Activation" && node->text("function") == "SQUARE") return node->inputs[0];
  const bool multiplies = is_operation(*node, "Multiplication", "MUL") && node->inputs[0] == node->inputs[1];
  const bool raises =
      node->type == "ElementwiseBinary" && node->text("operation") == "POWER" && is_number(graph, node->inputs[1], 2);
  return (multiplies || raises) && graph[node->inputs[0]].shape == graph[tensor].shape ? int(node->inputs[0]) : -1;
}

/// Return x if a tensor is the mean of x over its last axes, which keep one element; otherwise -1. `first` receives the
/// first of these axes.
int base_of_mean(const Graph& graph, int tensor, int* first) {
  const Node* node = producer_of(graph, tensor);
  if (!node || node->type != "Mean") return -1;
  const Tensor& in = *graph.in(*node, 0);
  std::vector<char> over(size_t(in.rank()), 0);
  for (int64_t axis : node->integers("axis")) over[size_t(axis_of(axis, in.rank()))] = 1;
  *first = int(std::find(over.begin(), over.end(), 1) - over.begin());
  const bool last = *first < in.rank() && std::find(over.begin() + *first, over.end(), 0) == over.end();
  return last && graph[tensor].rank() == in.rank() && in.elements() > 0 ? int(node->inputs[0]) : -1;
}

/// Return x if a tensor is computed by this operation from x and a constant number, which `number` receives; otherwise
/// -1.
int base_beside_number(const Graph& graph, int tensor, const char* type, const char* operation, double* number) {
  const Node* node = producer_of(graph, tensor);
  if (!node || !is_operation(*node, type, operation)) return -1;
  for (size_t n : {0, 1}) {
    const Tensor& constant = *graph.in(*node, n);
    if (!constant.is_constant() || !is_f32(constant) || constant.elements() != 1) continue;
    *number = double(*constant.values<float>());
    return graph[node->inputs[1 - n]].shape == graph[tensor].shape ? int(node->inputs[1 - n]) : -1;
  }
  return -1;
}

/// Return x if a tensor is the square root of x; otherwise -1.
int base_of_root(const Graph& graph, int tensor) {
  const Node* node = producer_of(graph, tensor);
  if (!node) return -1;
  if (is_unary(node, Unary::sqrt)) return node->inputs[0];
  if (node->type == "Activation" && node->text("function") == "SQRT") return node->inputs[0];
  const bool raises = node->type == "ElementwiseBinary" && node->text("operation") == "POWER";
  return raises && is_number(graph, node->inputs[1], 0.5) ? int(node->inputs[0]) : -1;
}

/// Return x if a tensor is the reciprocal of the square root of x; otherwise -1.
int base_of_reciprocal_root(const Graph& graph, int tensor) {
  const Node* node = producer_of(graph, tensor);
  if (!node) return -1;
  if (is_unary(node, Unary::rsqrt)) return node->inputs[0];
  if (is_unary(node, Unary::reciprocal)) return base_of_root(graph, node->inputs[0]);
  if (is_operation(*node, "Division", "DIV") && is_number(graph, node->inputs[0], 1))
    return base_of_root(graph, node->inputs[1]);
  const bool raises = node->type == "ElementwiseBinary" && node->text("operation") == "POWER";
  return raises && is_number(graph, node->inputs[1], -0.5) ? int(node->inputs[0]) : -1;
}

/// What is under the root: mean(square of `base`) + eps, over the axes from `first` on.
struct Measure {
  int base = -1, first = 0;
  double eps = 0;
};

bool find_measure(const Graph& graph, int tensor, Measure* measure) {
  const int mean = base_beside_number(graph, tensor, "Addition", "ADD", &measure->eps);
  const int square = mean < 0 ? -1 : base_of_mean(graph, mean, &measure->first);
  measure->base = square < 0 ? -1 : base_of_square(graph, square);
  return measure->base >= 0 && measure->eps >= 0;
}

/// A division of x by the root of a measure, or a product with its reciprocal.
bool find_normalized(const Graph& graph, const Node& node, Measure* measure, int* x) {
  if (!is_f32(graph.out(node))) return false;
  if (is_operation(node, "Division", "DIV")) {
    *x = node.inputs[0];
    const int under = base_of_root(graph, node.inputs[1]);
    return under >= 0 && find_measure(graph, under, measure) && graph[*x].shape == graph.out(node).shape;
  }
  if (!is_operation(node, "Multiplication", "MUL")) return false;
  for (size_t n : {0, 1}) {
    *x = node.inputs[n];
    const int under = base_of_reciprocal_root(graph, node.inputs[1 - n]);
    if (under >= 0 && find_measure(graph, under, measure) && graph[*x].shape == graph.out(node).shape) return true;
  }
  return false;
}

/// Return x if a tensor is x less its mean over the axes from `first` on; otherwise -1.
int base_of_centered(const Graph& graph, int tensor, int first) {
  const Node* node = producer_of(graph, tensor);
  if (!node || !is_operation(*node, "Subtraction", "SUB") || graph.in(*node, 0)->shape != graph[tensor].shape)
    return -1;
  int axis = 0;
  return base_of_mean(graph, node->inputs[1], &axis) == node->inputs[0] && axis == first ? int(node->inputs[0]) : -1;
}

Node normalization(const Node& node, const char* type, int x, const Measure& measure) {
  Node replacement;
  replacement.type = type;
  replacement.name = node.name;
  replacement.layer = node.layer;
  replacement.inputs = {x};
  replacement.outputs = node.outputs;
  replacement.set("axis", measure.first);
  set_number(replacement, "eps", measure.eps);
  return replacement;
}

bool replace(Graph& graph, const Node& node, Node by, const Settings& settings) {
  if (!find_lowering(graph, by, settings)) return false;
  graph.nodes.replace(node, std::move(by));
  return true;
}

bool fuse_normalized(Graph& graph, const Node& node, const Settings& settings) {
  Measure measure;
  int x = -1;
  if (!find_normalized(graph, node, &measure, &x)) return false;
  const int centered = base_of_centered(graph, x, measure.first);
  if (x == measure.base && centered < 0)
    return replace(graph, node, normalization(node, "RmsNormalization", x, measure), settings);
  // The deviations may be computed twice, once for their squares.
  if (centered < 0 || base_of_centered(graph, measure.base, measure.first) != centered) return false;
  return replace(graph, node, normalization(node, "LayerNormalization", centered, measure), settings);
}

/// Return whether a tensor has one element for each normalized element of a row.
bool is_of_a_row(const Graph& graph, const Node& node, int tensor) {
  const Tensor &factors = graph[tensor], &in = *graph.in(node, 0);
  const int axes = in.rank() - axis_of(node.integer("axis", -1), in.rank());
  int64_t length = 1;
  for (int n = 1; n <= axes; ++n) length *= in.extent(-n);
  if (!is_f32(factors) || factors.elements() != length || factors.rank() > in.rank()) return false;
  for (int n = 1; n <= factors.rank(); ++n)
    if (factors.extent(-n) != (n <= axes ? in.extent(-n) : 1)) return false;
  return true;
}

/// Fuse the product with gamma, or the addition of beta, into the normalization before it.
bool fuse_factor(Graph& graph, const Node& node, const Settings& settings) {
  const bool multiplies = is_operation(node, "Multiplication", "MUL");
  if ((!multiplies && !is_operation(node, "Addition", "ADD")) || !is_f32(graph.out(node))) return false;
  for (size_t n : {0, 1}) {
    const Node* before = private_producer(graph, node.inputs[n]);
    const int factor = node.inputs[1 - n];
    if (!before || (before->type != "LayerNormalization" && before->type != "RmsNormalization")) continue;
    const size_t operand = multiplies ? 1 : 2;
    if (before->inputs.size() > operand || (before->type == "RmsNormalization" && !multiplies)) continue;
    if (graph.out(*before).shape != graph.out(node).shape || !is_of_a_row(graph, *before, factor)) continue;
    Node fused = *before;
    fused.inputs.resize(operand, -1);
    fused.inputs.push_back(factor);
    fused.outputs = node.outputs;
    if (!find_lowering(graph, fused, settings)) continue;
    graph.nodes.remove(*before);
    graph.nodes.replace(node, std::move(fused));
    return true;
  }
  return false;
}

/// Return x if a tensor is the length of x along its last axis, which keeps one element; otherwise -1.
int base_of_length(const Graph& graph, int tensor) {
  const Node* node = producer_of(graph, tensor);
  if (!node || node->type != "Reduce" || node->text("operation") != "L2") return -1;
  const Tensor& in = *graph.in(*node, 0);
  const auto axes = node->integers("axis");
  const bool is_last = axes.size() == 1 && in.rank() > 0 && axis_of(axes[0], in.rank()) == in.rank() - 1;
  return is_last && graph[tensor].rank() == in.rank() ? int(node->inputs[0]) : -1;
}

/// Replace a division of rows by their lengths, which may be at least eps and broadcast to the shape of the rows.
bool fuse_length(Graph& graph, const Node& node, const Settings& settings) {
  if (!is_operation(node, "Division", "DIV") || !is_f32(graph.out(node))) return false;
  const int x = node.inputs[0];
  int length = node.inputs[1];
  if (const Node* broadcast = producer_of(graph, length); broadcast && broadcast->type == "BroadcastTo")
    length = broadcast->inputs[0];
  double eps = 0;
  if (const int within = base_beside_number(graph, length, "Maximum", "MAXIMUM", &eps); within >= 0) length = within;
  if (base_of_length(graph, length) != x || graph[x].shape != graph.out(node).shape) return false;
  if (eps != 0 && !(eps > 0 && std::isnormal(float(eps * eps)))) return false;
  Node by = node;
  by.type = "L2Normalization";
  by.inputs = {x};
  by.attributes.clear();
  by.set("axis", graph[x].rank() - 1);
  set_number(by, "eps", eps * eps);
  return replace(graph, node, std::move(by), settings);
}

/// Return whether an operand is absent, or a constant of elements that all are `value`.
bool is_absent_or(const Tensor* tensor, float value) {
  if (!tensor) return true;
  if (!tensor->is_constant() || !is_f32(*tensor)) return false;
  const UnalignedFloats from = tensor->floats();
  for (int64_t n = 0; n < tensor->elements(); ++n)
    if (from[n] != value) return false;
  return true;
}

/// Return whether a tensor broadcasts as one element for each channel, which is axis 1 of an image.
bool is_of_channels(const Tensor& tensor, const Tensor& image) {
  const int axis = 1 - image.rank();
  return is_f32(tensor) && tensor.rank() <= image.rank() && tensor.rank() >= -axis &&
         tensor.elements() == image.shape[1] && tensor.extent(axis) == image.shape[1];
}

/// The operands of a sum or a product of an image with one element for each channel; -1 if a node is neither.
struct OfChannels {
  int image = -1, channels = -1;
};

OfChannels of_channels(const Graph& graph, const Node& node, const char* type, const char* operation) {
  if (!is_operation(node, type, operation) || graph.out(node).rank() < 3) return {};
  for (size_t n : {0, 1})
    if (graph.in(node, n)->shape == graph.out(node).shape && is_of_channels(*graph.in(node, 1 - n), graph.out(node)))
      return {node.inputs[n], node.inputs[1 - n]};
  return {};
}

/// The instance normalization without gamma and beta that computes a tensor, which only one node reads.
const Node* standardization_of(const Graph& graph, int tensor) {
  const Node* node = private_producer(graph, tensor);
  if (!node || node->type != "InstanceNormalization" || !node->posts.empty()) return nullptr;
  const bool is_bare = is_absent_or(graph.in(*node, 1), 1) && is_absent_or(graph.in(*node, 2), 0);
  return is_bare && channel_axis(*node, graph.out(*node).rank()) == 1 ? node : nullptr;
}

bool is_reshape(const Node* node) { return node && node->type == "Reshape" && node->posts.empty(); }

/// Return whether both have the same samples and channels, and the same number of elements of each.
bool have_same_channels(const Shape& a, const Shape& b) {
  auto elements = [](const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  return a.size() > 2 && b.size() > 2 && a[0] == b[0] && a[1] == b[1] && is_known(a) && elements(a) == elements(b);
}

/// Replace two nodes by a group normalization, and by a reshape of its result if its operand has other axes after the
/// channels.
void replace_by_groups(Graph& graph, const Node& multiply, const Node& add, const Node& reshape, Node normalization) {
  if (graph[normalization.inputs[0]].shape == graph.out(add).shape) {
    normalization.outputs = add.outputs;
    graph.nodes.remove(multiply);
    graph.nodes.replace(add, std::move(normalization));
    return;
  }
  const int normalized = graph.add_tensor(graph[normalization.inputs[0]]);
  normalization.outputs = {normalized};
  Node back = reshape;
  back.inputs = {normalized};
  back.outputs = add.outputs;
  graph.nodes.replace(multiply, std::move(normalization));
  graph.nodes.replace(add, std::move(back));
}

/// Replace a normalization of reshaped groups, its product with gamma and the addition of beta.
bool fuse_groups(Graph& graph, const Node& node, const Settings& settings) {
  const OfChannels sum = of_channels(graph, node, "Addition", "ADD");
  const Node* multiply = sum.image < 0 ? nullptr : private_producer(graph, sum.image);
  const OfChannels product = multiply ? of_channels(graph, *multiply, "Multiplication", "MUL") : OfChannels();
  const Node* back = product.image < 0 ? nullptr : private_producer(graph, product.image);
  const Node* bare = is_reshape(back) ? standardization_of(graph, back->inputs[0]) : nullptr;
  const Node* there = bare ? producer_of(graph, bare->inputs[0]) : nullptr;
  if (!is_reshape(there) || !have_same_channels(graph.in(*there, 0)->shape, graph.out(node).shape)) return false;
  const Shape &groups = graph.in(*bare, 0)->shape, &image = graph.out(node).shape;
  if (groups[0] != image[0] || groups[1] == 0 || image[1] % groups[1] != 0) return false;
  Node by = *bare;
  by.type = "GroupNormalization";
  by.inputs = {there->inputs[0], product.channels, sum.channels};
  by.set("num_groups", groups[1]);
  if (!find_lowering(graph, by, settings)) return false;
  replace_by_groups(graph, *multiply, node, *back, std::move(by));
  return true;
}

bool fuse_normalizations(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (const Node& node : graph.nodes)
    changed = fuse_normalized(graph, node, settings) || fuse_length(graph, node, settings) || changed;
  if (changed) graph.index();
  for (const Node& node : graph.nodes)
    changed = fuse_factor(graph, node, settings) || fuse_groups(graph, node, settings) || changed;
  return changed;
}

}  // namespace

Family normalizations_family() { return {{}, {{"normalizations", fuse_normalizations}}}; }

}  // namespace cpuacc
