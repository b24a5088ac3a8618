// Which nodes a family of kernels takes, and how it turns them into steps. The list of all is in registry.cpp.

#ifndef CPUACC_LOWERING_HPP
#define CPUACC_LOWERING_HPP

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpuacc/step.hpp"

namespace cpuacc {

/// Why a node is not taken; false where it is.
struct Refusal {
  int32_t code = IPR_REASON_NONE;
  std::string text;
  explicit operator bool() const { return code != IPR_REASON_NONE; }
};

inline Refusal taken() { return {}; }
inline Refusal refused(std::string text, int32_t code = IPR_REASON_OTHER) { return {code, std::move(text)}; }

/// What layouts a node wants for its operands and results, by position; what is missing is plain.
struct Layouts {
  std::vector<Layout> in, out;
};

/// One way to run one type of node.
struct Lowering {
  const char* type;  // "Convolution2d"
  const char* name;  // of the way: "winograd", "plain"

  /// Whether it takes a node with its posts (a fusing pass asks again with one more). Shapes may be asked for;
  /// constants are there. Also asked about single layers of a network that is not compiled yet, so keep it quick.
  Refusal (*support)(const Graph&, const Node&, const Settings&);

  /// Appends steps (or shares memory). Reads layouts from the tensors of the graph.
  void (*lower)(const Node&, Builder&);

  /// nullptr: plain only. Else what it would like best, given which of its operands are blocked already (in the
  /// graph's tensors). It must then be able to run with exactly that.
  Layouts (*layouts)(const Graph&, const Node&, const Settings&);
};

/// A change of the graph before it is lowered, such as a fusion of several nodes into one. True where it changed
/// something; the caller indexes the graph again then.
struct Pass {
  const char* name;
  bool (*apply)(Graph&, const Settings&);
};

struct Family {
  std::vector<Lowering> lowerings;
  std::vector<Pass> passes;
};

/// All families in order: the first lowering that takes a node runs it. Families of one file are functions
/// `Family <name>_family()`, declared and listed in registry.cpp.
const std::vector<Lowering>& lowerings();
const std::vector<Pass>& passes();

/// The first lowering that takes a node; nullptr, and in `why` the last refusal, where there is none.
const Lowering* find_lowering(const Graph& graph, const Node& node, const Settings& settings, Refusal* why = nullptr);

}  // namespace cpuacc

#endif  // CPUACC_LOWERING_HPP
