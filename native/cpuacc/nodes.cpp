#include "cpuacc/nodes.hpp"

#include <algorithm>

namespace cpuacc {

void Nodes::push_back(Node node) {
  gain(node);
  nodes_.push_back(std::move(node));
}

void Nodes::replace(const Node& node, Node by) {
  gain(by);
  own(node) = std::move(by);
}

void Nodes::remove(const Node& node) { own(node).type.clear(); }

void Nodes::truncate(size_t count) { nodes_.resize(count); }

std::vector<Node> Nodes::take() {
  forget_readers();
  std::vector<Node> taken;
  taken.swap(nodes_);
  return taken;
}

std::vector<int> Nodes::users(int tensor) const {
  std::vector<int> users;
  auto add = [&](size_t n) {
    if (n >= nodes_.size() || nodes_[n].type.empty()) return;
    for (int input : nodes_[n].inputs)
      if (input == tensor) users.push_back(int(n));
  };
  if (!is_noted(tensor)) {
    for (size_t n = 0; n < nodes_.size(); ++n) add(n);
    return users;
  }
  const int* end = readers_.data() + begins_[size_t(tensor) + 1];
  for (const int* reader = readers_.data() + begins_[size_t(tensor)]; reader != end;
       reader = std::upper_bound(reader, end, *reader))
    add(size_t(*reader));
  return users;
}

void Nodes::note_readers(size_t tensors) {
  begins_.assign(tensors + 1, 0);
  for (const Node& node : nodes_)
    for (int tensor : node.inputs)
      if (tensor >= 0) ++begins_[size_t(tensor) + 1];
  for (size_t n = 0; n < tensors; ++n) begins_[n + 1] += begins_[n];
  readers_.resize(begins_.back());
  std::vector<size_t> next(begins_.begin(), begins_.end() - 1);
  for (size_t n = 0; n < nodes_.size(); ++n)
    for (int tensor : nodes_[n].inputs)
      if (tensor >= 0) readers_[next[size_t(tensor)]++] = int(n);
  gained_.assign(tensors, 0);
}

void Nodes::gain(const Node& node) {
  for (int tensor : node.inputs)
    if (tensor >= 0 && size_t(tensor) < gained_.size()) gained_[size_t(tensor)] = 1;
}

void Nodes::forget_readers() { gained_.clear(); }

}  // namespace cpuacc
