// float16 and bfloat16: tensors are stored so at the border and as constants of the network, and computed in float32.

#ifndef CPUACC_HALF_PRECISION_HPP
#define CPUACC_HALF_PRECISION_HPP

#include "cpuacc/lowering.hpp"

namespace cpuacc {

inline bool is_half(const Tensor& tensor) {
  return !tensor.is_quantized() && (tensor.dtype == IPR_DTYPE_FLOAT16 || tensor.dtype == IPR_DTYPE_BFLOAT16);
}

/// Whether any tensor is one of these.
bool has_halves(const Graph& graph);

/// All of them as float32, of which constants are converted: what a node is asked about.
Graph widened(const Graph& graph, const Settings& settings);

/// Why a node with such operands or results is not computed in float32; taken where it is, or has none of them.
Refusal refuses_halves(const Graph& graph, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_HALF_PRECISION_HPP
