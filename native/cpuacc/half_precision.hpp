// float16, bfloat16 and floats of 8 bits: tensors have these types at the border and as constants of the network;
// layers compute in float32. Results of 8 bits are rounded after every layer, because their range is small.

#ifndef CPUACC_HALF_PRECISION_HPP
#define CPUACC_HALF_PRECISION_HPP

#include "cpuacc/lowering.hpp"

namespace cpuacc {

inline bool is_half(const Tensor& tensor) {
  return !tensor.is_quantized() && (tensor.dtype == IPR_DTYPE_FLOAT16 || tensor.dtype == IPR_DTYPE_BFLOAT16);
}

/// Return whether a tensor has one of these types or is a float of 8 bits with a sign.
inline bool is_narrow(const Tensor& tensor) {
  switch (tensor.dtype) {
    case IPR_DTYPE_FLOAT8_E4M3FN:
    case IPR_DTYPE_FLOAT8_E4M3FNUZ:
    case IPR_DTYPE_FLOAT8_E5M2:
    case IPR_DTYPE_FLOAT8_E5M2FNUZ:
      return !tensor.is_quantized();
    default:
      return is_half(tensor);
  }
}

/// Return whether a tensor of the graph is narrow.
bool has_half_precision(const Graph& graph);

/// Return the graph with float32 instead of these types; constants are converted. Support is queried on this graph.
Graph widened(const Graph& graph, const Settings& settings);

/// Return why a node with operands or results of these types cannot be computed in float32; no refusal if it can.
Refusal refuse_half_precision(const Graph& graph, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_HALF_PRECISION_HPP
