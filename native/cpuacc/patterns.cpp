// Fusion of nodes that together are one function: x * sigmoid(a * x), the GELU of exported networks, a matrix product
// and its bias.

#include <cmath>

#include "cpuacc/packed_weights.hpp"
#include "cpuacc/patterns.hpp"

#include "cpuacc/strided_view.hpp"

namespace cpuacc {

bool is_operation(const Node& node, const char* type, const char* operation) {
  return node.posts.empty() &&
         (node.type == type || (node.type == "ElementwiseBinary" && node.text("operation") == operation));
}

int only_user(const Graph& graph, int tensor) {
  if (graph.is_border(tensor)) return -1;
  std::vector<int> users = graph.users(tensor);
  return users.size() == 1 ? users[0] : -1;
}

int only_user(const Graph& graph, const Node& node) {
  return node.type.empty() || node.outputs.size() != 1 ? -1 : only_user(graph, node.outputs[0]);
}

const Node* private_producer(const Graph& graph, int tensor) {
  if (tensor < 0 || graph[tensor].producer < 0 || graph.is_border(tensor) || graph.users(tensor).size() != 1)
    return nullptr;
  const Node& node = graph.nodes[size_t(graph[tensor].producer)];
  return node.type.empty() || !node.posts.empty() ? nullptr : &node;
}

bool is_number(const Graph& graph, int tensor, double value) {
  if (tensor < 0) return false;
  const Tensor& constant = graph[tensor];
  return constant.is_constant() && is_f32(constant) && constant.elements() == 1 &&
         std::fabs(double(*constant.values<float>()) - value) <= 1e-6 * std::fabs(value);
}

int other_factor(const Graph& graph, const Node& node, double number) {
  if (!is_operation(node, "Multiplication", "MUL")) return -1;
  if (is_number(graph, node.inputs[1], number)) return node.inputs[0];
  return is_number(graph, node.inputs[0], number) ? node.inputs[1] : -1;
}

void set_number(Node& node, const char* name, double number) {
  Value value;
  value.name = name;
  value.kind = IPR_KIND_FLOAT;
  value.f = number;
  node.attributes.push_back(value);
}

namespace {

void set_text(Node& node, const char* name, const char* text) {
  Value value;
  value.name = name;
  value.kind = IPR_KIND_ENUM;
  value.text = text;
  node.attributes.push_back(value);
}

/// An activation function of the tensor `of`, which computes what a node did.
Node activation_instead(const Node& node, const char* function, int of, double a) {
  Node replacement = node;
  replacement.type = "Activation";
  replacement.attributes.clear();
  set_text(replacement, "function", function);
  set_number(replacement, "a", a);
  set_number(replacement, "b", 0);
  replacement.inputs = {of};
  return replacement;
}

bool fuse_swish(Graph& graph, const Node& node) {
  if (!is_operation(node, "Multiplication", "MUL") || !is_f32(graph.out(node))) return false;
  for (size_t n = 0; n < 2; ++n) {
    const Node* gate = private_producer(graph, node.inputs[n]);
    int x = node.inputs[1 - n];
    if (!gate || gate->type != "Activation") continue;
    int factor_of_x = gate->inputs[0];
    double factor = 1;
    if (factor_of_x != x) {  // x * sigmoid(factor * x)
      const Node* scaled = private_producer(graph, gate->inputs[0]);
      factor = scaled && gate->text("function") == "SIGMOID" ? factor_of(graph, *scaled, &factor_of_x) : 0;
      if (factor == 0 || factor_of_x != x) continue;
    }
    bool hard = gate->text("function") == "HARD_SIGMOID" && std::fabs(gate->number("a") - 1.0 / 6) < 1e-6 &&
                gate->number("b") == 0.5;
    if (!hard && gate->text("function") != "SIGMOID") continue;
    graph.nodes.remove(*gate);
    graph.nodes.replace(node, activation_instead(node, hard ? "HARD_SWISH" : "SWISH", x, factor));
    return true;
  }
  return false;
}

/// The producer of a tensor that other nodes may read too; nullptr if it has post-ops.
const Node* producer_of(const Graph& graph, int tensor) {
  const int producer = tensor < 0 ? -1 : graph[tensor].producer;
  if (producer < 0) return nullptr;
  const Node& node = graph.nodes[size_t(producer)];
  return node.type.empty() || !node.posts.empty() ? nullptr : &node;
}

/// A polynomial of degree 3 or less.
struct Polynomial {
  double c[4] = {};
};

bool multiply(const Polynomial& a, const Polynomial& b, Polynomial* product) {
  *product = Polynomial();
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 4; ++k) {
      if (a.c[i] == 0 || b.c[k] == 0) continue;
      if (i + k > 3) return false;
      product->c[i + k] += a.c[i] * b.c[k];
    }
  return true;
}

/// Express a tensor as a polynomial of x. Returns false if it is something else.
bool find_polynomial(const Graph& graph, int tensor, int x, int depth, Polynomial* polynomial) {
  *polynomial = Polynomial();
  if (tensor < 0) return false;  // an operand that is absent
  if (tensor == x) return polynomial->c[1] = 1, true;
  const Tensor& constant = graph[tensor];
  if (constant.is_constant())
    return is_f32(constant) && constant.elements() == 1 && (polynomial->c[0] = double(*constant.values<float>()), true);
  const Node* node = producer_of(graph, tensor);
  if (!node || depth == 0 || node->inputs.empty()) return false;
  Polynomial a, b;
  if (!find_polynomial(graph, node->inputs[0], x, depth - 1, &a)) return false;
  if (node->type == "ElementwiseUnary" && node->text("operation") == "SQUARE") return multiply(a, a, polynomial);
  if (node->inputs.size() != 2 || !find_polynomial(graph, node->inputs[1], x, depth - 1, &b)) return false;
  if (is_operation(*node, "Multiplication", "MUL")) return multiply(a, b, polynomial);
  if (node->type == "ElementwiseBinary" && node->text("operation") == "POWER") {
    const bool cubes = is_number(graph, node->inputs[1], 3);
    if (!cubes && !is_number(graph, node->inputs[1], 2)) return false;
    return multiply(a, a, &b) && (cubes ? multiply(a, b, polynomial) : (*polynomial = b, true));
  }
  if (!is_operation(*node, "Addition", "ADD")) return false;
  for (int n = 0; n < 4; ++n) polynomial->c[n] = a.c[n] + b.c[n];
  return true;
}

/// Return whether a tensor is tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)).
bool is_tangent_of_gelu(const Graph& graph, const Node& node, int x) {
  if (node.type != "Activation" || node.text("function") != "TANH" || node.number("a") != 1 || node.number("b") != 1)
    return false;
  Polynomial polynomial;
  const double linear = 0.7978845608028654, cubic = linear * 0.044715;
  return find_polynomial(graph, node.inputs[0], x, 8, &polynomial) && polynomial.c[0] == 0 && polynomial.c[2] == 0 &&
         std::fabs(polynomial.c[1] / linear - 1) < 1e-5 && std::fabs(polynomial.c[3] / cubic - 1) < 1e-5;
}

/// Return whether a node computes erf(x / sqrt(2)).
bool is_error_of_gelu(const Graph& graph, const Node& node, int x) {
  if (node.type != "ElementwiseUnary" || node.text("operation") != "ERF") return false;
  const Node* scaled = producer_of(graph, node.inputs[0]);
  if (!scaled) return false;
  if (is_operation(*scaled, "Division", "DIV") && is_number(graph, scaled->inputs[1], std::sqrt(2.0)))
    return scaled->inputs[0] == x;
  return other_factor(graph, *scaled, std::sqrt(0.5)) == x;
}

/// The function whose gate a tensor is: "GELU" for erf(x / sqrt(2)) + 1, "GELU_TANH" for its approximation by a
/// hyperbolic tangent; otherwise nullptr.
const char* function_of_gate(const Graph& graph, int tensor, int x) {
  const Node* sum = producer_of(graph, tensor);
  if (x < 0 || !sum || !is_operation(*sum, "Addition", "ADD")) return nullptr;
  const size_t side = is_number(graph, sum->inputs[1], 1) ? 0 : 1;
  if (!is_number(graph, sum->inputs[1 - side], 1)) return nullptr;
  const Node* inner = producer_of(graph, sum->inputs[side]);
  if (!inner) return nullptr;
  return is_error_of_gelu(graph, *inner, x) ? "GELU" : is_tangent_of_gelu(graph, *inner, x) ? "GELU_TANH" : nullptr;
}

/// Fuse 0.5 * (x * gate), x * (0.5 * gate), or (0.5 * x) * gate. Layers whose results nothing else reads are dropped.
bool fuse_gelu(Graph& graph, const Node& node) {
  const Node* product = &node;
  if (!is_operation(*product, "Multiplication", "MUL") || !is_f32(graph.out(node))) return false;
  const int inner = other_factor(graph, *product, 0.5);
  if (inner >= 0) {
    product = producer_of(graph, inner);
    if (!product || !is_operation(*product, "Multiplication", "MUL")) return false;
  }
  for (size_t n = 0; n < 2; ++n) {
    int gate = product->inputs[n], x = product->inputs[1 - n];
    bool halved = inner >= 0;
    for (int* side : {&gate, &x}) {
      const Node* scaled = halved ? nullptr : producer_of(graph, *side);
      const int rest = scaled ? other_factor(graph, *scaled, 0.5) : -1;
      if (rest < 0) continue;
      halved = true;
      *side = rest;
    }
    const char* function = halved ? function_of_gate(graph, gate, x) : nullptr;
    if (!function || graph[x].shape != graph.out(node).shape) continue;
    graph.nodes.replace(node, activation_instead(node, function, x, 0));
    return true;
  }
  return false;
}

/// Fuse a product with packed weights and the addition of a vector.
bool add_bias(Graph& graph, const Node& product, const Node& addition, int bias, const Settings& settings) {
  const Shape& shape = graph[bias].shape;
  if (graph.in(product, 2) || graph.out(product).shape != graph.out(addition).shape) return false;
  if (!shape.empty() && shape.back() != graph[bias].elements()) return false;
  Node fused = product;
  fused.outputs = addition.outputs;
  fused.inputs.resize(2);
  fused.inputs.push_back(bias);
  if (!find_lowering(graph, fused, settings)) return false;
  graph.nodes.remove(product);
  graph.nodes.replace(addition, std::move(fused));
  return true;
}

/// Fuse a product with a constant matrix and the addition of a vector into FullyConnected.
bool fuse_bias(Graph& graph, const Node& node, const Settings& settings) {
  if (!is_operation(node, "Addition", "ADD") || !is_f32(graph.out(node))) return false;
  for (size_t n = 0; n < 2; ++n) {
    const Node* product = private_producer(graph, node.inputs[n]);
    int bias = node.inputs[1 - n];
    if (!product || bias < 0 || !graph[bias].is_constant()) continue;
    if (product->type == kPackedMatMul && add_bias(graph, *product, node, bias, settings)) return true;
    const bool connected = product->type == "FullyConnected" && !graph.in(*product, 2);
    if (!connected && product->type != "BatchMatMul") continue;
    const Tensor &weights = *graph.in(*product, 1), &in = *graph.in(*product, 0);
    bool plain = !product->flag("transpose_x") && !product->flag("adjoint_x") && !product->flag("adjoint_y");
    if (!plain || weights.rank() != 2 || !weights.is_constant() || in.rank() < 2) continue;
    const Shape& shape = graph[bias].shape;  // a scalar adds to a single column
    const bool is_row = shape.empty() || shape.back() == graph[bias].elements();
    if (!is_row || graph[bias].elements() != graph.out(node).shape.back()) continue;
    if (graph.out(*product).shape != graph.out(node).shape) continue;
    Node fused;
    fused.type = "FullyConnected";
    fused.name = product->name;
    fused.layer = product->layer;
    fused.outputs = node.outputs;
    Tensor vector = graph[bias];
    vector.shape = {vector.elements()};
    fused.inputs = {product->inputs[0], product->inputs[1], graph.add_tensor(vector)};
    fused.set("keep_dims", 1);
    fused.set("transpose_weight_matrix", product->flag(connected ? "transpose_weight_matrix" : "transpose_y"));
    if (!find_lowering(graph, fused, settings)) continue;
    graph.nodes.remove(*product);
    graph.nodes.replace(node, std::move(fused));
    return true;
  }
  return false;
}

bool fuse_patterns(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (const Node& node : graph.nodes) {
    if (node.type.empty()) continue;
    changed = fuse_swish(graph, node) || fuse_gelu(graph, node) || fuse_bias(graph, node, settings) || changed;
  }
  return changed;
}

}  // namespace

Family patterns_family() { return {{}, {{"patterns", fuse_patterns}}}; }

}  // namespace cpuacc
