// The pass that stores quantized images with channels last. Convolutions with channels first are replaced by
// convolutions with channels last, between transpositions. So are layers of bytes that move or pool pixels, if another
// layer transposes their image to channels first. Layers that read such an image, and can, follow. So the
// transpositions remain only where an image enters or leaves a chain of such layers.

#include <algorithm>
#include <map>
#include <optional>

#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

const Shape kToLast = {0, 2, 3, 1}, kToFirst = {0, 3, 1, 2};  // permutations of the axes of an image
constexpr int kMoved[] = {0, 3, 1, 2};                        // the axis with channels last of each axis

Value* attribute(Node& node, std::string_view name) {
  auto named = [&](const Value& value) { return value.name == name && value.kind != IPR_KIND_NONE; };
  auto position = std::find_if(node.attributes.begin(), node.attributes.end(), named);
  return position == node.attributes.end() ? nullptr : &*position;
}

template <class Item>
std::vector<Item> permuted(const std::vector<Item>& items, size_t each = 1) {
  std::vector<Item> found;
  for (int64_t axis : kToLast)
    found.insert(found.end(), items.begin() + long(size_t(axis) * each), items.begin() + long(size_t(axis + 1) * each));
  return found;
}

// ---- Layers with channels last --------------------------------------------------------------------------------------

enum class Kind { none, convolution, image, elementwise, concat, splitter, reduction, slice, pad };

Kind kind_of(const Node& node) {
  static const std::map<std::string_view, Kind> kinds = {
      {"Convolution2d", Kind::convolution},
      {"DepthwiseConvolution2d", Kind::convolution},
      {"TransposeConvolution2d", Kind::convolution},
      {"IntegerConvolution2d", Kind::convolution},
      {"Pooling2d", Kind::image},
      {"Resize", Kind::image},
      {"DepthToSpace", Kind::image},
      {"SpaceToDepth", Kind::image},
      {"Activation", Kind::elementwise},
      {"ElementwiseUnary", Kind::elementwise},
      {"Floor", Kind::elementwise},
      {"Cast", Kind::elementwise},
      {"Quantize", Kind::elementwise},
      {"DynamicQuantize", Kind::elementwise},
      {"Dequantize", Kind::elementwise},
      {"Addition", Kind::elementwise},
      {"Subtraction", Kind::elementwise},
      {"Multiplication", Kind::elementwise},
      {"Division", Kind::elementwise},
      {"Maximum", Kind::elementwise},
      {"Minimum", Kind::elementwise},
      {"ElementwiseBinary", Kind::elementwise},
      {"Prelu", Kind::elementwise},
      {"Concat", Kind::concat},
      {"ChannelShuffle", Kind::concat},
      {"Splitter", Kind::splitter},
      {"Mean", Kind::reduction},
      {"Reduce", Kind::reduction},
      {"Slice", Kind::slice},
      {"Pad", Kind::pad},
  };
  auto entry = kinds.find(node.type);
  return entry == kinds.end() || !node.posts.empty() ? Kind::none : entry->second;
}

/// Let the attributes of a node refer to operands with channels last.
void turn_attributes(Node& node, Kind kind) {
  switch (kind) {
    case Kind::convolution:
    case Kind::image:
      if (Value* layout = attribute(node, "data_layout")) layout->text = "NHWC";
      return;
    case Kind::concat:
    case Kind::splitter:
      if (Value* axis = attribute(node, "axis")) axis->i = kMoved[axis_of(axis->i, 4)];
      return;
    case Kind::reduction:
      if (Value* axes = attribute(node, "axis"))
        for (int64_t& axis : axes->ints) axis = kMoved[axis_of(axis, 4)];
      return;
    case Kind::slice:
      for (const char* name : {"begin", "size"})
        if (Value* places = attribute(node, name)) places->ints = permuted(places->ints);
      return;
    case Kind::pad:
      if (Value* pads = attribute(node, "pad_list")) pads->ints = permuted(pads->ints, 2);
      return;
    default:
      return;
  }
}

/// Return whether a reduction of an image that drops axes leaves the others in the same order in both layouts.
bool keeps_order(const Node& node) {
  if (node.flag("keep_dims")) return true;
  std::vector<char> dropped(4, node.integers("axis").empty());
  for (int64_t axis : node.integers("axis")) dropped[size_t(axis_of(axis, 4))] = 1;
  return dropped[1] || (dropped[2] && dropped[3]);
}

bool is_first(const Node& node) { return node.text("data_layout", "NCHW") == "NCHW"; }

/// Return whether a convolution computes in integers of 8 bits.
bool has_integers(const Node& node, const Tensor& in, const Tensor& out) {
  return node.type == "IntegerConvolution2d" || (is_quantized8(in) && is_quantized8(out));
}

/// Return whether an image without its transposition is worthwhile: one of bytes, or one that a layer makes smaller, so
/// that fewer elements are transposed after it.
bool is_worthwhile(const Graph& graph, const Node& node, const Tensor& in) {
  if (in.dtype == IPR_DTYPE_INT8 || in.dtype == IPR_DTYPE_UINT8) return true;
  return node.type == "Resize" && graph.out(node).elements() < in.elements();
}

/// Return whether a layer reads the transposition of an image to channels first, and would rather read the image.
template <class Nodes>
bool reads_transposed(const Graph& graph, const Nodes& nodes, const Node& node) {
  const Tensor* in = graph.in(node, 0);
  if (!in || in->producer < 0 || !is_worthwhile(graph, node, *in)) return false;
  const Node& producer = nodes[size_t(in->producer)];
  return producer.type == "Transpose" && producer.integers("permutation") == kToFirst;
}

// ---- The pass -------------------------------------------------------------------------------------------------------

class Turner {
 public:
  Turner(Graph& graph, const Settings& settings) : graph_(graph), settings_(settings), users_(graph.tensors.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (int tensor : graph.nodes[n].inputs)
        if (tensor >= 0) users_[size_t(tensor)].push_back(n);
  }

  bool run() {
    old_ = graph_.nodes.take();
    bool any = false;
    for (const Node& node : old_) {
      if (turn(node))
        any = true;
      else
        graph_.nodes.push_back(node);
    }
    return any;
  }

 private:
  bool is_image(int tensor) const { return tensor >= 0 && graph_[tensor].rank() == 4; }
  bool is_turned(int tensor) const { return turned_.count(tensor) != 0; }

  /// Add the version of a node with channels last, and the transpositions of its results.
  bool turn(const Node& node) {
    if (node.type == "Transpose") return turn_transpose(node);
    Kind kind = kind_of(node);
    if (kind == Kind::none || !is_wanted(node, kind)) return false;
    Node turned_node = node;
    turn_attributes(turned_node, kind);
    size_t before = graph_.nodes.size();
    if (!turn_inputs(turned_node, kind) || !turn_results(node, turned_node, kind)) {
      forget(before);
      return false;
    }
    graph_.nodes.push_back(std::move(turned_node));
    for (int tensor : node.outputs)
      if (is_turned(tensor)) add_move("Transpose", turned_[tensor], tensor, kToFirst);
    return true;
  }

  /// Read an image with channels last directly, if another layer transposes it.
  bool turn_transpose(const Node& node) {
    auto entry = turned_.find(node.inputs[0]);
    if (entry == turned_.end() || !node.posts.empty()) return false;
    Node without_transpose = node;
    without_transpose.inputs[0] = entry->second;
    Value* order = attribute(without_transpose, "permutation");
    if (!order) return false;
    for (int64_t& axis : order->ints) axis = kMoved[axis];
    graph_.nodes.push_back(std::move(without_transpose));
    return true;
  }

  bool is_wanted(const Node& node, Kind kind) const {
    if (kind == Kind::convolution) return starts(node);
    if (kind == Kind::image && !is_first(node)) return false;
    if (kind == Kind::image && reads_transposed(graph_, old_, node)) return true;
    if (kind == Kind::reduction && !(is_image(node.inputs[0]) && keeps_order(node))) return false;
    if (kind != Kind::reduction && !is_image(node.outputs[0])) return false;
    if (node.type == "Dequantize" && !stays_quantized(node.outputs[0], kReach)) return false;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](int tensor) { return is_turned(tensor); });
  }

  bool starts(const Node& node) const {
    const Tensor* in = graph_.in(node, 0);
    return is_first(node) && in && has_integers(node, *in, graph_.out(node)) &&
           find_lowering(graph_, node, settings_) != nullptr;
  }

  /// Return whether all layers that read floats are elementwise or reductions, up to layers that quantize them.
  bool stays_quantized(int tensor, int reach) const {
    if (graph_.is_border(tensor) || reach == 0) return false;
    return std::all_of(users_[size_t(tensor)].begin(), users_[size_t(tensor)].end(), [&](size_t user) {
      const Node& node = old_[user];
      Kind kind = kind_of(node);
      if (node.type == "Quantize" || kind == Kind::reduction) return true;
      return kind == Kind::elementwise && is_image(node.outputs[0]) && stays_quantized(node.outputs[0], reach - 1);
    });
  }

  bool turn_inputs(Node& node, Kind kind) {
    for (size_t n = 0; n < node.inputs.size(); ++n) {
      if (node.inputs[n] < 0 || (kind == Kind::convolution && n > 0)) continue;
      if (kind == Kind::elementwise && graph_[node.inputs[n]].elements() == 1) continue;  // the same in both layouts
      std::optional<int> turned_input = version(node.inputs[n]);
      if (!turned_input) return false;
      node.inputs[n] = *turned_input;
    }
    if (kind == Kind::convolution && node.type != "DepthwiseConvolution2d") node.set("acc.weights_first", 1);
    return true;
  }

  /// The version of an operand with channels last. Operands of fewer axes broadcast along the others.
  std::optional<int> version(int tensor) {
    auto found = turned_.find(tensor);
    if (found != turned_.end()) return found->second;
    const int rank = graph_[tensor].rank(), producer = graph_[tensor].producer;
    if (rank > 4) return std::nullopt;
    if (producer >= 0 && old_[size_t(producer)].type == "Transpose" &&
        old_[size_t(producer)].integers("permutation") == kToFirst)
      return turned_[tensor] = old_[size_t(producer)].inputs[0];
    int image = rank == 4 ? tensor : widened(tensor);
    int turned_image = graph_.add_tensor(turned(graph_[image]));
    if (graph_[image].is_constant())
      copy_constant(image, turned_image);
    else
      add_move("Transpose", image, turned_image, kToLast);
    turned_[tensor] = turned_image;
    return turned_image;
  }

  /// A tensor of rank 4 with the same elements.
  int widened(int tensor) {
    Tensor wide = graph_[tensor];
    const int more = 4 - wide.rank();
    wide.shape.insert(wide.shape.begin(), size_t(more), 1);
    if (wide.has_axis()) wide.axis += more;
    int made = graph_.add_tensor(wide);
    if (!wide.is_constant()) add_move("Reshape", tensor, made, {});
    return made;
  }

  static Tensor turned(const Tensor& tensor) {
    Tensor channels_last = tensor;
    channels_last.shape = permuted(tensor.shape);
    if (channels_last.has_axis()) channels_last.axis = kMoved[channels_last.axis];
    channels_last.data = nullptr;
    channels_last.owner = nullptr;
    return channels_last;
  }

  void copy_constant(int from, int to) {
    const Tensor& tensor = graph_[from];
    const size_t item_size = size_t(ipr::item_size(tensor.dtype)), count = size_t(tensor.elements());
    std::shared_ptr<char> memory(new char[count * item_size + 64], std::default_delete<char[]>());
    const Shape& shape = tensor.shape;
    char* out = memory.get();
    for (int64_t n = 0; n < shape[0]; ++n)
      for (int64_t pixel = 0; pixel < shape[2] * shape[3]; ++pixel)
        for (int64_t c = 0; c < shape[1]; ++c, out += item_size) {
          const char* place =
              tensor.values<char>() + size_t((n * shape[1] + c) * shape[2] * shape[3] + pixel) * item_size;
          std::copy(place, place + item_size, out);
        }
    graph_[to].data = memory.get();
    graph_[to].owner = std::move(memory);
  }

  /// Let the node write results with channels last, if a kernel supports it with them.
  bool turn_results(const Node& node, Node& made, Kind kind) {
    const bool drops = kind == Kind::reduction && !node.flag("keep_dims");
    for (int& tensor : made.outputs)
      if (!drops && is_image(tensor)) tensor = graph_.add_tensor(turned(graph_[tensor]));
    if (!find_lowering(graph_, made, settings_)) return false;
    for (size_t n = 0; n < node.outputs.size(); ++n)
      if (made.outputs[n] != node.outputs[n]) turned_[node.outputs[n]] = made.outputs[n];
    return true;
  }

  /// Remove the transpositions of operands of a node that cannot have channels last.
  void forget(size_t first) {
    for (size_t n = first; n < graph_.nodes.size(); ++n) {
      int transposed = graph_.nodes[n].outputs[0];
      auto refers = [&](const auto& entry) { return entry.second == transposed; };
      auto position = std::find_if(turned_.begin(), turned_.end(), refers);
      if (position != turned_.end()) turned_.erase(position);
    }
    graph_.nodes.truncate(first);
  }

  void add_move(const char* type, int from, int to, const Shape& order) {
    Node node;
    node.type = type;
    node.name = graph_[from].name;
    node.inputs = {from};
    node.outputs = {to};
    if (!order.empty()) {
      Value value;
      value.name = "permutation";
      value.kind = IPR_KIND_INTS;
      value.ints = order;
      node.attributes.push_back(std::move(value));
    }
    graph_.nodes.push_back(std::move(node));
  }

  static constexpr int kReach = 16;  // layers of float32 that are followed

  Graph& graph_;
  const Settings& settings_;
  std::vector<Node> old_;
  std::vector<std::vector<size_t>> users_;  // nodes that read each tensor
  std::map<int, int> turned_;               // the version of each tensor with channels last
};

bool turn_images(Graph& graph, const Settings& settings) {
  bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const Kind kind = kind_of(node);
    if (kind == Kind::none || !is_first(node)) return false;
    return kind == Kind::convolution ? has_integers(node, *graph.in(node, 0), graph.out(node))
                                     : kind == Kind::image && reads_transposed(graph, graph.nodes, node);
  });
  return any && Turner(graph, settings).run();
}

}  // namespace

Family channels_last_family() { return {{}, {{"channels last", turn_images}}}; }

}  // namespace cpuacc
