// Chains of elementwise nodes that run block by block, so that the tensors between them stay in the first-level cache:
// the arithmetic in wide integers or float64 that models contain in place of quantized layers, and functions that are
// written as several layers. A chain is a program of its own, whose tensors have the size of a block.

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/pointwise.hpp"
#include "cpuacc/program.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr size_t kLeastNodes = 3;
constexpr size_t kMostNodes = 64;
constexpr int64_t kBlockElements = 2048;
constexpr uint64_t kLeastBytes = 128 * 1024;  // of a tensor between the nodes; smaller ones stay in the cache anyway

/// How a chain reads a tensor: element by element, a row again for each row of the result, or a number.
enum class Reading { full, row, number, none };

bool is_number(const Tensor& tensor) { return tensor.elements() == 1 && !tensor.has_axis(); }

Reading reading_of(const Tensor& tensor, const Tensor& result) {
  if (tensor.has_axis() || is_blocked(tensor.layout)) return Reading::none;
  if (is_number(tensor)) return Reading::number;
  if (tensor.shape == result.shape) return Reading::full;
  const bool repeats = tensor.rank() > 0 && tensor.rank() <= result.rank() && tensor.elements() == tensor.extent(-1) &&
                       tensor.extent(-1) == result.extent(-1) && tensor.extent(-1) <= kBlockElements;
  return repeats ? Reading::row : Reading::none;
}

/// Nodes in topological order, of which the last one gives the result, and the tensors that they read from outside.
struct Chain {
  std::set<int> nodes;
  std::vector<int> inputs;
};

class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph) {}

  /// The chain that ends with a node: nodes that no other node reads are added as long as there are any.
  Chain chain_to(int last) const {
    Chain chain;
    std::set<int> open{last};
    while (!open.empty() && chain.nodes.size() < kMostNodes) {
      const int next = *std::prev(open.end());  // all nodes that may read its result are known
      open.erase(next);
      if (next != last && !is_inside(next, last, chain)) continue;
      chain.nodes.insert(next);
      for (int input : graph_.nodes[size_t(next)].inputs)
        if (graph_[input].producer >= 0) open.insert(graph_[input].producer);
    }
    return chain;
  }

  bool fits(const Node& node, const Tensor& result) const {
    if (!is_elementwise(node) || graph_.out(node).shape != result.shape || graph_.out(node).has_axis()) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](int input) { return input >= 0 && reading_of(graph_[input], result) != Reading::none; });
  }

 private:
  bool is_inside(int number, int last, const Chain& chain) const {
    const Node& node = graph_.nodes[size_t(number)];
    if (!fits(node, graph_.out(graph_.nodes[size_t(last)])) || graph_.is_border(node.outputs[0])) return false;
    const std::vector<int> users = graph_.users(node.outputs[0]);
    return std::all_of(users.begin(), users.end(), [&](int user) { return chain.nodes.count(user) > 0; });
  }

  const Graph& graph_;
};

/// Return whether running a chain block by block is quicker. Images of float32 are left to kernels that know their
/// layouts.
bool pays(const Graph& graph, const Chain& chain) {
  if (chain.nodes.size() < kLeastNodes) return false;
  uint64_t largest = 0;
  for (int n : chain.nodes) {
    const Tensor& out = graph.out(graph.nodes[size_t(n)]);
    if (is_f32(out) && is_image(out)) return false;
    if (n != *chain.nodes.rbegin()) largest = std::max(largest, out.bytes());
  }
  return largest >= kLeastBytes;
}

/// The graph of a chain for a block of rows, or of elements if the chain reads no rows.
class Cut {
 public:
  Cut(const Graph& graph, Chain& chain) : graph_(graph), chain_(chain) {
    const Tensor& result = graph.out(graph.nodes[size_t(*chain.nodes.rbegin())]);
    for (int n : chain.nodes)
      for (int input : graph.nodes[size_t(n)].inputs)
        if (reading_of(graph[input], result) == Reading::row) row_ = result.extent(-1);
    rows_ = kBlockElements / row_;
    for (int n : chain.nodes) add(graph.nodes[size_t(n)], result);
    block.outputs = block.nodes.back().outputs;
    block.index();
  }

  Graph block;
  int64_t elements() const { return rows_ * row_; }

 private:
  void add(Node node, const Tensor& result) {
    for (int& input : node.inputs) input = numbered(input, reading_of(graph_[input], result));
    node.outputs = {numbered(node.outputs[0], Reading::full)};
    block.nodes.push_back(std::move(node));
  }

  int numbered(int tensor, Reading reading) {
    const auto [place, is_new] = numbers_.emplace(tensor, int(block.tensors.size()));
    if (!is_new) return place->second;
    block.tensors.push_back(graph_[tensor]);
    Tensor& own = block.tensors.back();
    own.shape = shape_of(reading);
    if (own.is_constant() && reading != Reading::full) return copy_constant(own), place->second;
    const bool is_input = graph_[tensor].producer < 0 || chain_.nodes.count(graph_[tensor].producer) == 0;
    if (is_input) own.data = nullptr;
    if (is_input) block.inputs.push_back(place->second), chain_.inputs.push_back(tensor);
    return place->second;
  }

  Shape shape_of(Reading reading) const {
    if (reading == Reading::number) return {1};
    if (reading == Reading::row) return {row_};
    return row_ == 1 ? Shape{rows_} : Shape{rows_, row_};
  }

  /// Copy a constant, which the program of the chain reads when it runs.
  static void copy_constant(Tensor& constant) {
    std::shared_ptr<char> copy(new char[constant.bytes()], std::default_delete<char[]>());
    std::memcpy(copy.get(), constant.data, constant.bytes());
    constant.data = copy.get(), constant.file = nullptr, constant.owner = std::move(copy);
  }

  const Graph& graph_;
  Chain& chain_;
  std::map<int, int> numbers_;
  int64_t row_ = 1, rows_ = 1;
};

// ---- The step -------------------------------------------------------------------------------------------------------

/// The program of a chain for one block. The last elements of a result, which fill no block, are computed with those
/// before them, that is twice.
struct Blocks {
  std::unique_ptr<Program> program;
  int64_t elements, count;     // of a block and of the result
  std::vector<int64_t> sizes;  // bytes of an element of each operand, and of the result; 0: all blocks read the same

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Blocks& self = step.as<Blocks>();
    const int64_t whole = self.count / self.elements;
    const Range range = split(whole, part, parts);
    std::vector<char*> bases{nullptr, run.part_scratch<char>(part)}, begins;
    for (const Buffer& in : step.in) begins.push_back(run.at<char>(in));
    begins.push_back(run.at<char>(step.out[0]));
    bases.resize(2 + begins.size());
    for (int64_t n = range.first; n < range.last; ++n) self.block(n * self.elements, begins, bases, run);
    if (range.first < range.last && range.last == whole && whole * self.elements < self.count)
      self.block(self.count - self.elements, begins, bases, run);
  }

 private:
  void block(int64_t first, const std::vector<char*>& begins, std::vector<char*>& bases, const Run& run) const {
    for (size_t n = 0; n < begins.size(); ++n) bases[2 + n] = begins[n] + first * sizes[n];
    program->compute_inside(bases, run.fault);
  }
};

// ---- The pass -------------------------------------------------------------------------------------------------------

bool is_supported(const Graph& block, const Settings& settings) {
  return std::all_of(block.nodes.begin(), block.nodes.end(),
                     [&](const Node& node) { return find_lowering(block, node, settings) != nullptr; });
}

/// Replace the last node of a chain by one that computes all of it. The others become unused.
bool replace(Graph& graph, Chain chain, Settings settings) {
  settings.threads = 1;
  Cut cut(graph, chain);
  if (!is_supported(cut.block, settings)) return false;
  const Node& last = graph.nodes[size_t(*chain.nodes.rbegin())];
  const Tensor& result = graph.out(last);
  auto blocks = std::make_shared<Blocks>();
  blocks->elements = cut.elements(), blocks->count = result.elements();
  for (int input : chain.inputs) {
    const bool moves = reading_of(graph[input], result) == Reading::full;
    blocks->sizes.push_back(moves ? int64_t(ipr::item_size(graph[input].dtype)) : 0);
  }
  blocks->sizes.push_back(int64_t(ipr::item_size(result.dtype)));
  blocks->program = std::make_unique<Program>(std::move(cut.block), settings, nullptr);
  Node whole = last;
  whole.type = "acc.Chain";
  whole.attributes.clear();
  whole.inputs = chain.inputs;
  whole.extra = std::move(blocks);
  graph.nodes.replace(last, std::move(whole));
  return true;
}

bool cut_chains(Graph& graph, const Settings& settings) {
  const Search search(graph);
  std::set<int> used;
  std::vector<Chain> chains;
  for (int n = int(graph.nodes.size()); n-- > 0;) {
    const Node& node = graph.nodes[size_t(n)];
    if (used.count(n) > 0 || !is_elementwise(node) || !search.fits(node, graph.out(node))) continue;
    Chain chain = search.chain_to(n);
    if (!pays(graph, chain)) continue;
    used.insert(chain.nodes.begin(), chain.nodes.end());
    chains.push_back(std::move(chain));
  }
  return std::count_if(chains.begin(), chains.end(),
                       [&](const Chain& chain) { return replace(graph, chain, settings); }) > 0;
}

Refusal support(const Graph&, const Node& node, const Settings&) {
  return node.extra && node.posts.empty() ? taken() : refused("not created by CpuAcc");
}

void lower(const Node& node, Builder& builder) {
  auto blocks = std::static_pointer_cast<Blocks>(node.extra);
  const double cost_ns = double(blocks->program->steps().size()) * cost::kElementNs;
  Step step;
  step.name = "Chain " + node.name;
  step.fn = &Blocks::run;
  step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, double(blocks->count) * cost_ns),
                                         blocks->count / blocks->elements));
  step.scratch_per_part = blocks->program->workspace_size;
  for (int input : node.inputs) step.in.push_back(builder.buffer(input));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(blocks);
  builder.add(std::move(step));
}

}  // namespace

Family chains_family() {
  return {{{"acc.Chain", "block by block", support, lower, nullptr}}, {{"chains", cut_chains}}};
}

}  // namespace cpuacc
