// Helpers of passes that search for several nodes that are one function.

#ifndef CPUACC_PATTERNS_HPP
#define CPUACC_PATTERNS_HPP

#include "cpuacc/rules.hpp"

namespace cpuacc {

/// Return whether a node is a layer of this type, or an ElementwiseBinary with this operation, without post-ops.
bool is_operation(const Node& node, const char* type, const char* operation);

/// The producer of a tensor that is read by only one operand of one node; nullptr if the tensor is read elsewhere.
Node* private_producer(Graph& graph, int tensor);

}  // namespace cpuacc

#endif  // CPUACC_PATTERNS_HPP
