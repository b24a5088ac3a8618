// Products of float32 matrices that lie in rows.

#ifndef CPUACC_KERNELS_MATMUL_F32_HPP
#define CPUACC_KERNELS_MATMUL_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"

namespace cpuacc {

/// out[row][column] = bias[column] + sum over k of a[row][k] * b[k][column]. Strides are in floats. `packed` are the
/// panels of b (see Gemm; for one row, panels of `panel` blocks), or nullptr if b is packed in each call.
struct MatMul {
  int32_t rows, columns, depth;  // M, N and K
  int64_t a_row, a_depth, b_depth, b_column, out_row;
  const float* packed;
  const float* bias;
  Epilogue epilogue;
  int32_t panel = 0;      // blocks of a panel of `gemv`
  bool bfloat16 = false;  // `packed` are pairs of bfloat16; then a_depth has to be 1
};

/// Rows of the first operand that are packed at once: 128 Ki floats of them stay in a second-level cache of 1 MiB while
/// the weights are streamed.
static inline int32_t rows_per_pass(const MatMul& m) {
  int32_t most = 128 * 1024 / (m.depth > 0 ? m.depth : 1);
  if (most < 70) most = 70;
  return m.rows < most ? m.rows : most;
}

/// Floats of scratch memory for one product.
static inline int64_t scratch_of(const MatMul& m) {
  int64_t blocks = (m.columns + 15) / 16;
  return int64_t{rows_per_pass(m) | 1} * ((m.depth + 15) / 16 + 6) * 16 + (m.packed ? 0 : blocks * 16 * m.depth);
}

constexpr int32_t kMaxGemvPanel = 8;  // blocks of a panel of `gemv`

struct MatMulKernels {
  int32_t panel;  // as in ConvKernels
  bool bfloat16;  // `packed` has to be pairs of bfloat16
  /// Rows and blocks of columns of `range`.
  void (*matmul)(const MatMul&, const float* a, const float* b, float* out, const float* residual, float* scratch,
                 const OutputRange& range);
  /// One row; blocks of `range` begin and end with panels. All instruction sets take pairs of bfloat16; only the
  /// weights are rounded.
  void (*gemv)(const MatMul&, const float* a, float* out, const float* residual, const OutputRange& range);
};

CPUACC_TABLE(MatMulKernels, matmul_kernels)
CPUACC_BFLOAT16_TABLE(MatMulKernels, matmul_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_MATMUL_F32_HPP
