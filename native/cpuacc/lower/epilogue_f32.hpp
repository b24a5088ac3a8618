// Posts of a node as the float32 kernels do them.

#ifndef CPUACC_LOWER_EPILOGUE_F32_HPP
#define CPUACC_LOWER_EPILOGUE_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {

/// What is done with sums, and which tensor is added to them (-1: none).
struct FusedEpilogue {
  Epilogue epilogue;
  int residual = -1;
};

/// The posts of a node. Taken where there is at most one `add`, of the result's shape, and four in all.
Refusal find_epilogue(const Graph& graph, const Node& node, FusedEpilogue* found);

/// Of a node that was taken.
FusedEpilogue epilogue_of(const Graph& graph, const Node& node);

/// The third operand, behind which those of posts come; nullptr where it is absent.
const Tensor* bias_of(const Graph& graph, const Node& node);

/// Taken where the second operand and the bias are constant.
Refusal constant_weights(const Graph& graph, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_EPILOGUE_F32_HPP
