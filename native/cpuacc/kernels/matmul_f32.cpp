// Products of float32 matrices and attention for one instruction set: they share the micro-kernels for matrices, which
// are compiled once. For avx512bf16, the GEMMs multiply pairs of bfloat16, and attention stays float32.

#include "cpuacc/kernels/matmul_f32.hpp"

#include "cpuacc/kernels/matmul.hpp"
#ifndef __AVX512BF16__
#include "cpuacc/kernels/attention.hpp"
#include "cpuacc/kernels/packed_matmul_rows.hpp"
#endif

namespace cpuacc::ISA_NS {

extern const MatMulKernels matmul_kernels = {kPanelBlocks, kBfloat16Pairs, matmul, gemv};
#ifndef __AVX512BF16__
extern const AttentionKernels attention_kernels = {attention, attend_few, copy_floats};
extern const PackedMatMulKernels packed_matmul_kernels = {kPanelBlocks, kMostFewRows, few_rows, pack_rows_of_chunk,
                                                          many_rows};
#endif

}  // namespace cpuacc::ISA_NS
