// Tables instead of chains of elementwise functions: nodes that together compute a tensor of 8-bit integers from
// another one and constant numbers, such as GELU between quantized layers, or requantization in integers. Such a chain
// has 256 results. They are computed once, by a program that consists of the chain.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cpuacc/lower/table_q8.hpp"
#include "cpuacc/pointwise.hpp"
#include "cpuacc/program.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kLeastElements = 1024;  // for fewer elements, computing the table takes longer than it saves

constexpr size_t kMostNodes = 256;      // of a chain, so that the search takes linear time
constexpr size_t kLeastPlainNodes = 4;  // of a chain between integers without a scale; fewer are quicker than a table

bool is_number(const Graph& graph, int tensor) {
  return tensor >= 0 && graph[tensor].is_constant() && graph[tensor].elements() == 1;
}

/// Return whether each element of a tensor has one of 256 values.
bool has_bytes(const Tensor& tensor) {
  return (tensor.dtype == IPR_DTYPE_INT8 || tensor.dtype == IPR_DTYPE_UINT8) && !tensor.has_axis();
}

/// Return whether a tensor has the shape of a result, and one of 256 values in each element.
bool is_source(const Graph& graph, int tensor, const Node& node) {
  return tensor >= 0 && has_bytes(graph[tensor]) && graph[tensor].shape == graph.out(node).shape;
}

/// For each tensor: the tensor of 8-bit integers of which it is a function, or -1.
class Sources {
 public:
  explicit Sources(const Graph& graph) : graph_(graph), of_(graph.tensors.size(), -1) {
    for (const Node& node : graph.nodes)
      if (is_elementwise(node) && !graph.out(node).has_axis()) of_[size_t(node.outputs[0])] = source_of(node);
  }
  int operator[](int tensor) const { return of_[size_t(tensor)]; }

 private:
  int source_of(const Node& node) const {
    auto is_number = [&](int input) { return cpuacc::is_number(graph_, input); };
    auto first = std::find_if_not(node.inputs.begin(), node.inputs.end(), is_number);
    if (first == node.inputs.end() || *first < 0) return -1;
    for (int source : {of_[size_t(*first)], *first}) {
      auto is_of = [&](int input) { return input >= 0 && (input == source || of_[size_t(input)] == source); };
      auto fits = [&](int input) { return is_number(input) || is_of(input); };
      if (is_source(graph_, source, node) && std::all_of(node.inputs.begin(), node.inputs.end(), fits)) return source;
    }
    return -1;
  }

  const Graph& graph_;
  std::vector<int> of_;
};

/// Nodes that compute the result of the last one from one tensor of 8-bit integers, in topological order.
struct Chain {
  int source;
  std::vector<int> nodes;
};

Chain chain_to(const Graph& graph, int tensor, int source) {
  std::set<int> nodes;
  std::vector<int> open{tensor};
  while (!open.empty() && nodes.size() <= kMostNodes) {
    int next = open.back();
    open.pop_back();
    if (next == source || is_number(graph, next) || !nodes.insert(graph[next].producer).second) continue;
    const std::vector<int>& inputs = graph.nodes[size_t(graph[next].producer)].inputs;
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return {source, {nodes.begin(), nodes.end()}};
}

/// Return whether no other node reads a tensor inside the chain.
bool is_closed(const Graph& graph, const Chain& chain) {
  const std::vector<int>& nodes = chain.nodes;
  auto is_inside = [&](int node) { return std::binary_search(nodes.begin(), nodes.end(), node); };
  return std::all_of(nodes.begin(), nodes.end() - 1, [&](int node) {
    int tensor = graph.nodes[size_t(node)].outputs[0];
    std::vector<int> users = graph.users(tensor);
    return !graph.is_border(tensor) && std::all_of(users.begin(), users.end(), is_inside);
  });
}

/// Return whether a table is quicker than the nodes of a chain. A single node with one quantized operand is a table
/// already.
bool pays(const Graph& graph, const Chain& chain) {
  const Node& last = graph.nodes[size_t(chain.nodes.back())];
  if (!graph[chain.source].is_quantized() && !graph.out(last).is_quantized())
    return chain.nodes.size() >= kLeastPlainNodes;
  return chain.nodes.size() > 1 || last.inputs.size() > 1;
}

/// All chains that are worth a table; none of them has nodes of another one.
std::vector<Chain> chains_of(const Graph& graph) {
  Sources sources(graph);
  std::vector<Chain> chains;
  std::set<int> used;
  for (int n = int(graph.nodes.size()); n-- > 0;) {
    const Node& node = graph.nodes[size_t(n)];
    if (used.count(n) || !is_elementwise(node)) continue;
    const int end = node.outputs[0];
    if (sources[end] < 0 || !has_bytes(graph[end]) || graph[end].elements() < kLeastElements) continue;
    Chain chain = chain_to(graph, end, sources[end]);
    if (chain.nodes.size() > kMostNodes || !pays(graph, chain) || !is_closed(graph, chain)) continue;
    used.insert(chain.nodes.begin(), chain.nodes.end());
    chains.push_back(std::move(chain));
  }
  return chains;
}

/// The chain as a graph whose input has all quantized values.
Graph separate(const Graph& graph, const Chain& chain) {
  Graph part;
  std::map<int, int> numbers;
  auto tensor = [&](int number, int64_t elements) {
    auto [place, is_new] = numbers.emplace(number, int(part.tensors.size()));
    if (is_new) part.tensors.push_back(graph[number]), part.tensors.back().shape = {elements};
    return place->second;
  };
  part.inputs = {tensor(chain.source, 256)};
  for (int n : chain.nodes) {
    Node node = graph.nodes[size_t(n)];
    std::vector<int> inputs;
    for (int input : node.inputs) inputs.push_back(tensor(input, is_number(graph, input) ? 1 : 256));
    node.inputs = inputs;
    node.outputs = {tensor(node.outputs[0], 256)};
    part.nodes.push_back(std::move(node));
  }
  part.outputs = part.nodes.back().outputs;
  part.index();
  return part;
}

bool is_supported(const Graph& part, const Settings& settings) {
  return std::all_of(part.nodes.begin(), part.nodes.end(),
                     [&](const Node& node) { return find_lowering(part, node, settings) != nullptr; });
}

Table computed(Graph part, Settings settings) {
  settings.threads = 1;
  Program program(std::move(part), settings, nullptr);
  Table arguments, results;
  std::iota(arguments.begin(), arguments.end(), uint8_t(0));
  program.compute({reinterpret_cast<char*>(arguments.data()), reinterpret_cast<char*>(results.data())});
  return results;
}

/// Replace the last node of a chain by a table. The others become unused.
bool replace(Graph& graph, const Chain& chain, const Settings& settings) {
  Graph part = separate(graph, chain);
  if (!is_supported(part, settings)) return false;
  const Node& last = graph.nodes[size_t(chain.nodes.back())];
  Node table = last;
  table.extra = std::make_shared<Table>(computed(std::move(part), settings));
  table.type = "acc.Table";
  table.attributes.clear();
  table.inputs = {chain.source};
  graph.nodes.replace(last, std::move(table));
  return true;
}

bool tabulate(Graph& graph, const Settings& settings) {
  std::vector<Chain> chains = chains_of(graph);
  return std::count_if(chains.begin(), chains.end(), [&](const Chain& c) { return replace(graph, c, settings); }) > 0;
}

Refusal support(const Graph&, const Node& node, const Settings&) {
  return node.extra && node.posts.empty() ? taken() : refused("not created by CpuAcc");
}

void lower(const Node& node, Builder& builder) {
  add_table_step(node, builder, *static_cast<const Table*>(node.extra.get()));
}

}  // namespace

Family tabulate_family() {
  return {{{"acc.Table", "table of a chain", support, lower, nullptr}}, {{"tables", tabulate}}};
}

}  // namespace cpuacc
