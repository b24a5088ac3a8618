// Helpers of passes that search for several nodes that are one function.

#ifndef CPUACC_PATTERNS_HPP
#define CPUACC_PATTERNS_HPP

#include "cpuacc/rules.hpp"

namespace cpuacc {

/// Return whether a node is a layer of this type, or an ElementwiseBinary with this operation, without post-ops.
bool is_operation(const Node& node, const char* type, const char* operation);

/// The position of the only node that reads a tensor; -1 if there are several, or if the tensor is at the border.
int only_user(const Graph& graph, int tensor);

/// The position of the only node that reads the only result of a node; -1 if there is no such node.
int only_user(const Graph& graph, const Node& node);

/// The producer of a tensor that is read by only one operand of one node; nullptr if the tensor is read elsewhere.
const Node* private_producer(const Graph& graph, int tensor);

/// Return whether a tensor is a single constant close to a value.
bool is_number(const Graph& graph, int tensor, double value);

/// Return x if a node computes x * number or number * x; otherwise -1.
int other_factor(const Graph& graph, const Node& node, double number);

/// Add an attribute that is a number.
void set_number(Node& node, const char* name, double number);

}  // namespace cpuacc

#endif  // CPUACC_PATTERNS_HPP
