// Conversion of the post-ops of a node to the epilogue of the float32 kernels.

#ifndef CPUACC_LOWER_EPILOGUE_F32_HPP
#define CPUACC_LOWER_EPILOGUE_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {

/// An epilogue, and the tensor with which results are combined, usually the residual that is added (-1: none).
struct FusedEpilogue {
  Epilogue epilogue;
  int residual = -1;
};

/// Convert the post-ops of a node. Supported are up to four, among them at most one with an operand, which
/// has the shape of the result. Only matrix products support `multiply`.
Refusal find_epilogue(const Graph& graph, const Node& node, FusedEpilogue* fused);

/// The epilogue of a node whose post-ops are supported.
FusedEpilogue epilogue_of(const Graph& graph, const Node& node);

/// The third operand, which precedes those of post-ops; nullptr if absent.
const Tensor* bias_of(const Graph& graph, const Node& node);

/// Supported if the second operand and the bias are constant.
Refusal constant_weights(const Graph& graph, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_EPILOGUE_F32_HPP
