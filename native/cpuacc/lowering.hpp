// Lowerings: which nodes a family of kernels supports, and how it turns them into steps. registry.cpp lists all
// families.

#ifndef CPUACC_LOWERING_HPP
#define CPUACC_LOWERING_HPP

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpuacc/step.hpp"

namespace cpuacc {

/// The reason why a node is not supported; converts to false if it is supported.
struct Refusal {
  int32_t code = IPR_REASON_NONE;
  std::string text;
  explicit operator bool() const { return code != IPR_REASON_NONE; }
};

inline Refusal taken() { return {}; }
inline Refusal refused(std::string text, int32_t code = IPR_REASON_OTHER) { return {code, std::move(text)}; }

/// The layouts that a node requests for its operands and results, by position. Missing entries are plain.
struct Layouts {
  std::vector<Layout> in, out;
};

/// One implementation of one type of node.
struct Lowering {
  const char* type;  // "Convolution2d"
  const char* name;  // of the implementation: "winograd", "plain"

  /// Return whether it supports a node with its post-ops. Fusion asks again with one more post-op. Shapes are known and
  /// constants are present. Also called for single layers of networks that are not compiled, so it has to be fast.
  Refusal (*support)(const Graph&, const Node&, const Settings&);

  /// Append steps, or share memory. The layouts of the tensors are final.
  void (*lower)(const Node&, Builder&);

  /// nullptr: plain layouts only. Otherwise return the preferred layouts, given the present layouts of the operands.
  /// The lowering then has to support exactly these.
  Layouts (*layouts)(const Graph&, const Node&, const Settings&);

  bool to_even = false;      // quantized results may be rounded half to even (the attribute `requantization`)
  bool sets_shapes = false;  // results may have unknown dimensions, which a step determines
};

/// A change of the graph before it is lowered, such as fusion. `apply` returns true if it changed the graph; the caller
/// then updates the index of the graph.
struct Pass {
  const char* name;
  bool (*apply)(Graph&, const Settings&);
};

struct Family {
  std::vector<Lowering> lowerings;
  std::vector<Pass> passes;
};

/// All families in order of priority: the first lowering that supports a node computes it. Each file has a function
/// `Family <name>_family()`, which registry.cpp declares and lists.
const std::vector<Lowering>& lowerings();
const std::vector<Pass>& passes();

/// The first lowering that supports a node; nullptr if there is none, with the last refusal in `why`.
const Lowering* find_lowering(const Graph& graph, const Node& node, const Settings& settings, Refusal* why = nullptr);

/// Return whether a lowering of this type of node determines dimensions of results, so that they may be unknown.
bool sets_shapes(const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_LOWERING_HPP
