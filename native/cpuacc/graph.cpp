#include "cpuacc/graph.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace cpuacc {
namespace {

Tensor tensor_of(const ipr::TensorInfo& info) {
  Tensor tensor;
  tensor.name = std::string(info.name());
  tensor.dtype = info.dtype();
  tensor.shape.assign(info.shape().begin(), info.shape().end());
  tensor.scales.assign(info.scales().begin(), info.scales().end());
  tensor.zero_points.assign(info.zero_points().begin(), info.zero_points().end());
  tensor.axis = info.is_quantized() ? info.axis() : -1;
  static const char nothing = 0;  // constants without elements may have no address
  if (!info.is_constant()) return tensor;
  tensor.data = info.constant().data ? info.constant().data : &nothing;
  if (info.constant().fd >= 0) tensor.file = tensor.data;
  return tensor;
}

Value value_of(const ipr_attribute& raw) {
  Value made;
  made.name = std::string(ipr::view(raw.name));
  made.kind = raw.kind;
  made.i = raw.i;
  made.f = raw.f;
  made.text = std::string(ipr::view(raw.text));
  if (raw.ints) made.ints.assign(raw.ints, raw.ints + raw.count);
  if (raw.floats) made.floats.assign(raw.floats, raw.floats + raw.count);
  for (uint64_t n = 0; raw.texts && n < raw.count; ++n) made.texts.emplace_back(ipr::view(raw.texts[n]));
  made.columns = raw.columns;
  return made;
}

/// Return whether a layer is a cast between float types under a name of its own, such as ConvertFp32ToFp16.
bool is_conversion(std::string_view type) {
  for (const char* name : {"ConvertFp16ToFp32", "ConvertFp32ToFp16", "ConvertBf16ToFp32", "ConvertFp32ToBf16"})
    if (type == name) return true;
  return false;
}

Node node_of(const ipr_graph& graph, const ipr::Layer& layer) {
  Node node;
  node.type = is_conversion(layer.type()) ? "Cast" : std::string(layer.type());
  node.name = std::string(layer.name());
  node.layer = layer.index();
  for (uint64_t n = 0; n < layer.raw().attribute_count; ++n)
    node.attributes.push_back(value_of(*ipr_attribute_at(&graph, &layer.raw(), n)));
  for (int64_t tensor : layer.inputs()) node.inputs.push_back(int(tensor));
  for (int64_t tensor : layer.outputs()) node.outputs.push_back(int(tensor));
  return node;
}

}  // namespace

int64_t Tensor::elements() const { return ipr_elements(shape.data(), rank()); }

uint64_t Tensor::bytes() const {
  uint64_t item_size = ipr::item_size(dtype);
  if (layout == Layout::plain) return uint64_t(std::max<int64_t>(elements(), 0)) * item_size;
  int64_t c = extent(layout == Layout::blocked_nchw ? 1 : -1);
  return c == 0 ? 0 : uint64_t(elements() / c * ((c + kBlock - 1) / kBlock * kBlock)) * item_size;
}

const void* Tensor::aligned(uint64_t alignment) const {
  if (is_aligned(alignment)) return data;
  if (copied_ != data || !copy_) {
    const size_t size = size_t(std::max<int64_t>(elements(), 0)) * size_t(ipr::item_size(dtype));
    std::shared_ptr<char> copy(new char[size + 1], std::default_delete<char[]>());
    std::memcpy(copy.get(), data, size);
    copy_ = std::move(copy), copied_ = data;
  }
  return copy_.get();
}

bool Tensor::same_quantization(const Tensor& other) const {
  return axis == other.axis && scales == other.scales && zero_points == other.zero_points;
}

const Value* Node::find(std::string_view wanted) const {
  for (const Value& attribute : attributes)
    if (attribute.name == wanted) return &attribute;
  return nullptr;
}

bool Node::has(std::string_view wanted) const {
  const Value* attribute = find(wanted);
  return attribute != nullptr && attribute->kind != IPR_KIND_NONE;
}

int64_t Node::integer(std::string_view wanted, int64_t absent) const { return has(wanted) ? find(wanted)->i : absent; }

double Node::number(std::string_view wanted, double absent) const {
  if (!has(wanted)) return absent;
  const Value& found = *find(wanted);
  return found.kind == IPR_KIND_FLOAT ? found.f : double(found.i);
}

std::string_view Node::text(std::string_view wanted, std::string_view absent) const {
  return has(wanted) ? std::string_view(find(wanted)->text) : absent;
}

const std::vector<int64_t>& Node::integers(std::string_view wanted) const {
  static const std::vector<int64_t> none;
  const Value* found = find(wanted);
  return found ? found->ints : none;
}

const std::vector<double>& Node::numbers(std::string_view wanted) const {
  static const std::vector<double> none;
  const Value* found = find(wanted);
  return found ? found->floats : none;
}

void Node::set(std::string_view wanted, int64_t value) {
  for (Value& attribute : attributes)
    if (attribute.name == wanted) {
      attribute.kind = IPR_KIND_INT;
      attribute.i = value;
      return;
    }
  Value added;
  added.name = std::string(wanted);
  added.kind = IPR_KIND_INT;
  added.i = value;
  attributes.push_back(std::move(added));
}

Graph::Graph(const ipr::Graph& offered) {
  for (size_t n = 0; n < offered.tensor_count(); ++n) tensors.push_back(tensor_of(offered.tensor(int64_t(n))));
  for (ipr::Layer layer : offered) nodes.push_back(node_of(offered.raw(), layer));
  inputs.assign(offered.inputs().begin(), offered.inputs().end());
  outputs.assign(offered.outputs().begin(), offered.outputs().end());
  border_.assign(tensors.size(), 0);
  for (const std::vector<int>* side : {&inputs, &outputs})
    for (int tensor : *side) border_[size_t(tensor)] = 1;
  note_producers();
  note_readers();
}

const Tensor* Graph::in(const Node& node, size_t position) const {
  if (position >= node.inputs.size() || node.inputs[position] < 0) return nullptr;
  return &(*this)[node.inputs[position]];
}

bool Graph::is_border(int tensor) const {
  if (size_t(tensor) < border_.size()) return border_[size_t(tensor)];
  return std::find(inputs.begin(), inputs.end(), tensor) != inputs.end() ||
         std::find(outputs.begin(), outputs.end(), tensor) != outputs.end();
}

void Graph::note_producers() {
  for (Tensor& tensor : tensors) tensor.producer = -1;
  for (size_t n = 0; n < nodes.size(); ++n)
    for (int tensor : nodes[n].outputs) (*this)[tensor].producer = int(n);
}

int Graph::add_tensor(const Tensor& like) {
  tensors.push_back(like);
  tensors.back().producer = -1;
  return int(tensors.size()) - 1;
}

namespace {

/// Sorts nodes topologically, stable with respect to their present order, and drops nodes whose outputs are not needed.
struct Sorter {
  const Graph& graph;
  std::vector<Node> nodes;
  std::vector<char> wanted;
  std::vector<Node> sorted;

  void mark() {
    std::vector<int> open;
    for (int tensor : graph.outputs)
      if (graph[tensor].producer >= 0) open.push_back(graph[tensor].producer);
    while (!open.empty()) {
      int node = open.back();
      open.pop_back();
      if (wanted[size_t(node)]++) continue;
      for (int tensor : nodes[size_t(node)].inputs)
        if (tensor >= 0 && graph[tensor].producer >= 0) open.push_back(graph[tensor].producer);
    }
  }

  void emit() {
    std::vector<int> waiting(nodes.size(), 0);
    std::vector<std::vector<int>> readers(nodes.size());
    std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (!wanted[n]) continue;
      for (int tensor : nodes[n].inputs) {
        if (tensor < 0 || graph[tensor].producer < 0) continue;
        readers[size_t(graph[tensor].producer)].push_back(int(n));
        ++waiting[n];
      }
      if (waiting[n] == 0) ready.push(int(n));
    }
    while (!ready.empty()) {
      size_t node = size_t(ready.top());
      ready.pop();
      for (int reader : readers[node])
        if (--waiting[size_t(reader)] == 0) ready.push(reader);
      sorted.push_back(std::move(nodes[node]));
    }
  }
};

}  // namespace

void Graph::index() {
  for (Tensor& tensor : tensors) tensor.producer = -1;
  for (size_t n = 0; n < nodes.size(); ++n)
    if (!nodes[n].type.empty())
      for (int tensor : nodes[n].outputs) (*this)[tensor].producer = int(n);
  const size_t count = nodes.size();
  Sorter sorter{*this, nodes.take(), std::vector<char>(count, 0), {}};
  sorter.mark();
  sorter.emit();
  nodes = Nodes(std::move(sorter.sorted));
  note_producers();
  note_readers();
}

}  // namespace cpuacc
