// What passes that look for several nodes that are one function have in common.

#ifndef CPUACC_PATTERNS_HPP
#define CPUACC_PATTERNS_HPP

#include "cpuacc/rules.hpp"

namespace cpuacc {

/// Whether a node is a layer of this type, or an ElementwiseBinary with this operation, and nothing else.
bool is_operation(const Node& node, const char* type, const char* operation);

/// The node that gives a tensor which only one operand of one node reads; nullptr otherwise.
Node* private_producer(Graph& graph, int tensor);

}  // namespace cpuacc

#endif  // CPUACC_PATTERNS_HPP
