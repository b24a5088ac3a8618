// Fusion of nodes that together are one function: x * sigmoid(x), the GELU of exported networks, a matrix product and
// its bias.

#include <cmath>

#include "cpuacc/packed_weights.hpp"
#include "cpuacc/patterns.hpp"

namespace cpuacc {

bool is_operation(const Node& node, const char* type, const char* operation) {
  return node.posts.empty() &&
         (node.type == type || (node.type == "ElementwiseBinary" && node.text("operation") == operation));
}

Node* private_producer(Graph& graph, int tensor) {
  if (tensor < 0 || graph[tensor].producer < 0 || graph.is_border(tensor) || graph.users(tensor).size() != 1)
    return nullptr;
  Node& node = graph.nodes[size_t(graph[tensor].producer)];
  return node.type.empty() || !node.posts.empty() ? nullptr : &node;
}

namespace {

/// Return whether a tensor is a single constant close to a value.
bool is_number(const Graph& graph, int tensor, double value) {
  if (tensor < 0) return false;
  const Tensor& constant = graph[tensor];
  return constant.is_constant() && is_f32(constant) && constant.elements() == 1 &&
         std::fabs(double(*constant.values<float>()) - value) <= 1e-6 * std::fabs(value);
}

/// Return x if a node computes x * number or number * x; otherwise -1.
int other_factor(const Graph& graph, const Node& node, double number) {
  if (!is_operation(node, "Multiplication", "MUL")) return -1;
  if (is_number(graph, node.inputs[1], number)) return node.inputs[0];
  return is_number(graph, node.inputs[0], number) ? node.inputs[1] : -1;
}

void set_text(Node& node, const char* name, const char* text) {
  Value value;
  value.name = name;
  value.kind = IPR_KIND_ENUM;
  value.text = text;
  node.attributes.push_back(value);
}

void set_number(Node& node, const char* name, double number) {
  Value value;
  value.name = name;
  value.kind = IPR_KIND_FLOAT;
  value.f = number;
  node.attributes.push_back(value);
}

/// Turn a node into an activation function of a tensor.
void become_activation(Node& node, const char* function, int of, double a) {
  node.type = "Activation";
  node.attributes.clear();
  set_text(node, "function", function);
  set_number(node, "a", a);
  set_number(node, "b", 0);
  node.inputs = {of};
}

bool fuse_swish(Graph& graph, Node& node) {
  if (!is_operation(node, "Multiplication", "MUL") || !is_f32(graph.out(node))) return false;
  for (size_t n = 0; n < 2; ++n) {
    Node* gate = private_producer(graph, node.inputs[n]);
    int x = node.inputs[1 - n];
    if (!gate || gate->type != "Activation" || gate->inputs[0] != x) continue;
    bool hard = gate->text("function") == "HARD_SIGMOID" && std::fabs(gate->number("a") - 1.0 / 6) < 1e-6 &&
                gate->number("b") == 0.5;
    if (!hard && gate->text("function") != "SIGMOID") continue;
    gate->type.clear();
    become_activation(node, hard ? "HARD_SWISH" : "SWISH", x, 1);
    return true;
  }
  return false;
}

/// Return x if a tensor is erf(x / sqrt(2)) + 1; otherwise -1. `found` receives the nodes in between.
int gate_of_gelu(Graph& graph, int tensor, Node* found[3]) {
  Node* sum = private_producer(graph, tensor);
  if (!sum || !is_operation(*sum, "Addition", "ADD")) return -1;
  size_t side = is_number(graph, sum->inputs[1], 1) ? 0 : 1;
  if (!is_number(graph, sum->inputs[1 - side], 1)) return -1;
  Node* erf = private_producer(graph, sum->inputs[side]);
  if (!erf || erf->type != "ElementwiseUnary" || erf->text("operation") != "ERF") return -1;
  Node* scaled = private_producer(graph, erf->inputs[0]);
  if (!scaled) return -1;
  found[0] = sum, found[1] = erf, found[2] = scaled;
  if (is_operation(*scaled, "Division", "DIV") && is_number(graph, scaled->inputs[1], std::sqrt(2.0)))
    return scaled->inputs[0];
  return other_factor(graph, *scaled, std::sqrt(0.5));
}

/// Fuse 0.5 * (x * (1 + erf(x / sqrt(2)))), x * (0.5 * (...)), or (0.5 * x) * (...).
bool fuse_gelu(Graph& graph, Node& node) {
  if (!is_operation(node, "Multiplication", "MUL") || !is_f32(graph.out(node))) return false;
  Node *way[3], *half = nullptr, *product = &node;
  int inner = other_factor(graph, node, 0.5);
  if (inner >= 0) {
    product = private_producer(graph, inner);
    if (!product || !is_operation(*product, "Multiplication", "MUL")) return false;
  }
  for (size_t n = 0; n < 2; ++n) {
    int gate = product->inputs[n], x = product->inputs[1 - n];
    half = nullptr;
    if (inner < 0) {
      for (int* side : {&gate, &x}) {
        Node* scaled = private_producer(graph, *side);
        int rest = scaled ? other_factor(graph, *scaled, 0.5) : -1;
        if (rest < 0 || half) continue;
        half = scaled;
        *side = rest;
      }
      if (!half) continue;
    }
    if (gate_of_gelu(graph, gate, way) != x || x < 0) continue;
    for (Node* one : way) one->type.clear();
    if (half) half->type.clear();
    if (product != &node) product->type.clear();
    become_activation(node, "GELU", x, 0);
    return true;
  }
  return false;
}

/// Fuse a product with packed weights and the addition of a vector.
bool add_bias(Graph& graph, Node& product, Node& addition, int bias, const Settings& settings) {
  const Shape& shape = graph[bias].shape;
  if (graph.in(product, 2) || graph.out(product).shape != graph.out(addition).shape) return false;
  if (!shape.empty() && shape.back() != graph[bias].elements()) return false;
  Node fused = product;
  fused.outputs = addition.outputs;
  fused.inputs.resize(2);
  fused.inputs.push_back(bias);
  if (!find_lowering(graph, fused, settings)) return false;
  product.type.clear();
  addition = std::move(fused);
  return true;
}

/// Fuse a product with a constant matrix and the addition of a vector into FullyConnected.
bool fuse_bias(Graph& graph, Node& node, const Settings& settings) {
  if (!is_operation(node, "Addition", "ADD") || !is_f32(graph.out(node))) return false;
  for (size_t n = 0; n < 2; ++n) {
    Node* product = private_producer(graph, node.inputs[n]);
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
    product->type.clear();
    node = std::move(fused);
    return true;
  }
  return false;
}

bool fuse_patterns(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (node.type.empty()) continue;
    changed = fuse_swish(graph, node) || fuse_gelu(graph, node) || fuse_bias(graph, node, settings) || changed;
  }
  return changed;
}

}  // namespace

Family patterns_family() { return {{}, {{"patterns", fuse_patterns}}}; }

}  // namespace cpuacc
