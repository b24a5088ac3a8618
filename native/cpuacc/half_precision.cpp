#include "cpuacc/half_precision.hpp"

#include <algorithm>
#include <map>

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/lower/small_numbers.hpp"
#include "cpuacc/pointwise.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

OfOne cast_to_float32(int32_t dtype, const Settings& settings) {
  OfOne cast = small_cast(dtype, IPR_DTYPE_FLOAT32);
  return cast ? cast : element_kernels_for(settings.isa).cast(dtype, IPR_DTYPE_FLOAT32);
}

/// Convert a constant to float32.
void widen_constant(Tensor& tensor, int32_t dtype, const Settings& settings) {
  auto values = std::make_shared<std::vector<float>>(size_t(tensor.elements()));
  OfOne cast = cast_to_float32(dtype, settings);
  cast(tensor.aligned(ipr::item_size(dtype)), values->data(), tensor.elements());
  static const float nothing = 0;
  tensor.data = values->empty() ? &nothing : values->data();
  tensor.owner = std::move(values);
}

void widen(Tensor& tensor, const Settings& settings) {
  int32_t dtype = tensor.dtype;
  tensor.dtype = IPR_DTYPE_FLOAT32;
  if (tensor.is_constant()) widen_constant(tensor, dtype, settings);
}

Node cast_node(const Graph& graph, int from, int to) {
  Node node;
  node.type = "Cast";
  node.name = graph[from].name;
  node.inputs = {from};
  node.outputs = {to};
  return node;
}

/// Return whether a layer needs operands that are rounded to their narrow type. A small difference of its operands may
/// be a large one of its result, or a wider result may show the rounding.
bool reads_rounded(const Graph& graph, const Node& node) {
  for (const char* type :
       {"Comparison", "ArgMinMax", "TopK", "GridSample", "RoiAlign", "NonMaxSuppression", "NonZero", "Hardmax",
        "MaxPoolingWithIndices", "DetectionPostProcess", "DeformableConvolution2d", "FakeQuantization"})
    if (node.type == type) return true;
  if (node.type == "Cast") return !is_narrow(graph.out(node));
  if (node.type == "Activation") {
    Function function = function_of(node.text("function"));
    return function == Function::thresholded_relu || function == Function::shrink;
  }
  switch (binary_of(node)) {
    case Binary::floor_div:
    case Binary::mod:
    case Binary::fmod:
      return true;
    default:
      break;
  }
  switch (unary_of(node)) {
    case Unary::floor:
    case Unary::ceil:
    case Unary::round:
    case Unary::sign:
    case Unary::is_nan:
    case Unary::is_inf:
    case Unary::is_positive_inf:
    case Unary::is_negative_inf:
      return true;
    default:
      return false;
  }
}

/// Inserts conversions at the border of the graph, and casts where values have to be rounded.
class Widener {
 public:
  Widener(Graph& graph, const Settings& settings) : graph_(graph), settings_(settings) {}

  void run() {
    for (const std::vector<int>* border : {&graph_.inputs, &graph_.outputs})
      for (int tensor : *border)
        if (is_narrow(graph_[tensor]) && !wide_.count(tensor) && is_known(graph_[tensor].shape))
          wide_[tensor] = twin(tensor, IPR_DTYPE_FLOAT32);
    std::vector<Node> old = graph_.nodes.take();
    for (int tensor : graph_.inputs)
      if (wide_.count(tensor)) graph_.nodes.push_back(cast_node(graph_, tensor, wide_[tensor]));
    for (Node& node : old) {
      if (has_unknown_result(graph_, node))
        keep_types(node);
      else if (node.type == "Bitcast")
        keep_bits(node);
      else
        convert(node);
      graph_.nodes.push_back(std::move(node));
      for (Node& cast : rounded_) graph_.nodes.push_back(std::move(cast));
      rounded_.clear();
    }
    for (int tensor : graph_.outputs)
      if (wide_.count(tensor) && !is_input(tensor) && !exact_.count(tensor))
        graph_.nodes.push_back(cast_node(graph_, wide_[tensor], tensor));
    for (size_t n = 0; n < graph_.tensors.size(); ++n)
      if (is_narrow(graph_.tensors[n]) && !stays_.count(int(n)) && !wide_.count(int(n)))
        widen(graph_.tensors[n], settings_);
  }

 private:
  int wide(int tensor) const {
    auto entry = wide_.find(tensor);
    return entry == wide_.end() || stays_.count(tensor) ? tensor : entry->second;
  }

  bool is_input(int tensor) const {
    return std::find(graph_.inputs.begin(), graph_.inputs.end(), tensor) != graph_.inputs.end();
  }

  /// Let a node read and write float32.
  void convert(Node& node) {
    round_numbers(node);
    round_results(node);
    if (reads_rounded(graph_, node)) round_operands(node);
    for (int& tensor : node.inputs) tensor = wide(tensor);
    for (int& tensor : node.outputs) tensor = wide(tensor);
  }

  /// Return whether a result is rounded to its type: that of a cast, or any of 8 bits, whose range is small.
  bool rounds(const Node& node, int result) const {
    if (result < 0 || !is_narrow(graph_[result])) return false;
    if (!is_half(graph_[result])) return true;
    return node.type == "Cast" && graph_.in(node, 0)->dtype != graph_[result].dtype;
  }

  /// Round the numbers that a node writes to its result, such as those of a border, to the type of the result. A number
  /// that is rounded to float32 first may become its neighbor.
  void round_numbers(Node& node) {
    if (node.outputs.empty() || node.outputs[0] < 0 || !is_narrow(graph_.out(node))) return;
    for (Value& attribute : node.attributes)
      for (const char* name : {"on_value", "off_value", "pad_value", "value"}) {
        char element[8] = {};
        if (attribute.name != name || !encode(attribute.f, graph_.out(node), element)) continue;
        float rounded = 0;
        cast_to_float32(graph_.out(node).dtype, settings_)(element, &rounded, 1);
        attribute.f = double(rounded);
      }
  }

  /// Round results to their type by casting them there and back.
  void round_results(Node& node) {
    for (int& result : node.outputs) {
      if (!rounds(node, result)) continue;
      int wide_result = twin(result, IPR_DTYPE_FLOAT32), narrow = twin(result, graph_[result].dtype);
      stays_[narrow] = true;
      rounded_.push_back(cast_node(graph_, wide_result, narrow));
      rounded_.push_back(cast_node(graph_, narrow, wide(result)));
      result = wide_result;
    }
  }

  /// Round the operands of a layer, so that it computes what it would if all results were rounded.
  void round_operands(Node& node) {
    for (int& tensor : node.inputs) {
      if (tensor < 0 || !is_narrow(graph_[tensor]) || graph_[tensor].is_constant() || is_input(tensor)) continue;
      int narrow = twin(tensor, graph_[tensor].dtype), made = twin(tensor, IPR_DTYPE_FLOAT32);
      stays_[narrow] = true;
      graph_.nodes.push_back(cast_node(graph_, wide(tensor), narrow));
      graph_.nodes.push_back(cast_node(graph_, narrow, made));
      tensor = made;
    }
  }

  /// Let a node read and write its own types, because results of unknown size cannot be converted.
  void keep_types(Node& node) {
    read_narrow(node);
    for (int tensor : node.outputs)
      if (tensor >= 0) stays_[tensor] = true;
  }

  /// Let a node read and write bits of its own types. Other nodes read a result as float32; its bits may be of a NaN,
  /// which conversions do not preserve.
  void keep_bits(Node& node) {
    read_narrow(node);
    const int result = node.outputs[0];
    if (!is_narrow(graph_[result])) return;
    const bool at_border = wide_.count(result) > 0;
    const int bits = at_border ? result : twin(result, graph_[result].dtype);
    rounded_.push_back(cast_node(graph_, bits, wide(result)));
    if (!at_border) stays_[bits] = true;
    node.outputs[0] = exact_[result] = bits;
  }

  /// Let a node read its narrow operands as they are.
  void read_narrow(Node& node) {
    for (int& tensor : node.inputs)
      if (tensor >= 0 && is_narrow(graph_[tensor]) && !is_input(tensor)) tensor = narrow_version(tensor);
  }

  int narrow_version(int tensor) {
    if (auto entry = exact_.find(tensor); entry != exact_.end()) return entry->second;
    const bool constant = graph_[tensor].is_constant();
    const int narrow = constant ? graph_.add_tensor(graph_[tensor]) : twin(tensor, graph_[tensor].dtype);
    if (!constant) graph_.nodes.push_back(cast_node(graph_, wide(tensor), narrow));
    stays_[narrow] = true;
    return narrow;
  }

  int twin(int tensor, int32_t dtype) {
    int copy = graph_.add_tensor(graph_[tensor]);
    graph_[copy].dtype = dtype;
    graph_[copy].data = nullptr;
    graph_[copy].owner = nullptr;
    return copy;
  }

  Graph& graph_;
  const Settings& settings_;
  std::map<int, int> wide_;    // tensors at the border, and their float32 versions
  std::map<int, bool> stays_;  // tensors that keep their dtype
  std::map<int, int> exact_;   // narrow tensors that layers write without a conversion
  std::vector<Node> rounded_;
};

bool is_supported_as_is(const Graph& graph, const Settings& settings) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& node) { return find_lowering(graph, node, settings) != nullptr; });
}

bool widen_all(Graph& graph, const Settings& settings) {
  if (!has_half_precision(graph) || is_supported_as_is(graph, settings)) return false;
  Widener(graph, settings).run();
  return true;
}

}  // namespace

bool has_half_precision(const Graph& graph) {
  return std::any_of(graph.tensors.begin(), graph.tensors.end(), is_narrow);
}

Graph widened(const Graph& graph, const Settings& settings) {
  Graph wide_graph = graph;
  for (Tensor& tensor : wide_graph.tensors)
    if (is_narrow(tensor)) widen(tensor, settings);
  return wide_graph;
}

Refusal refuse_half_precision(const Graph& graph, const Node& node) {
  const bool reads_bits = node.type == "Quantize" || node.type == "Dequantize" || node.type == "Bitcast";
  for (const std::vector<int>* tensors : {&node.inputs, &node.outputs})
    for (int tensor : *tensors)
      if (tensor >= 0 && is_narrow(graph[tensor]) && reads_bits)
        return refused(graph[tensor].name + " is " + described(graph[tensor]) + "; takes float32",
                       IPR_REASON_DATA_TYPE);
  return taken();
}

Family half_precision_family() { return {{}, {{"halves", widen_all}}}; }

}  // namespace cpuacc
