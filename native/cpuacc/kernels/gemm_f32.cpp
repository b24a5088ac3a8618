// All kernels that are built from the float32 micro-kernels, for one instruction set. They are one translation unit, so
// that the micro-kernels (up to 74 instances) are compiled once. For avx512bf16, the GEMMs multiply pairs of bfloat16.

#include "cpuacc/kernels/bottleneck.hpp"
#include "cpuacc/kernels/direct.hpp"
#include "cpuacc/kernels/matmul.hpp"
#include "cpuacc/kernels/winograd.hpp"
#ifndef __AVX512BF16__
#include "cpuacc/kernels/attention.hpp"
#include "cpuacc/kernels/packed_matmul_rows.hpp"
#endif

namespace cpuacc::ISA_NS {

extern const ConvKernels conv_kernels = {kPanelBlocks, kBfloat16Pairs, pointwise, direct, depthwise, bottleneck};
extern const WinogradKernels winograd_kernels = {kPanelBlocks, kBfloat16Pairs, winograd, winograd_stage,
                                                 winograd_weights};
extern const MatMulKernels matmul_kernels = {kPanelBlocks, kBfloat16Pairs, matmul, gemv};
#ifndef __AVX512BF16__
extern const AttentionKernels attention_kernels = {attention, attend_few, copy_floats};
extern const PackedMatMulKernels packed_matmul_kernels = {kPanelBlocks, kMostFewRows, few_rows, pack_rows_of_chunk,
                                                          many_rows};
#endif

}  // namespace cpuacc::ISA_NS
