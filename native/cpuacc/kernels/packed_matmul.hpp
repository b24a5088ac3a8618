// Products of float32 matrices with weights of few bits, which stay packed in memory: integers of 4 or 8 bits with a
// scale for each block of the depth, float16 and bfloat16. One or a few rows decode the weights in registers, so that
// their time is that of reading the packed weights. For many rows, weights are decoded into the cache, and multiplied
// with all rows.

#ifndef CPUACC_KERNELS_PACKED_MATMUL_HPP
#define CPUACC_KERNELS_PACKED_MATMUL_HPP

#include <stdint.h>

#include "cpuacc/kernels/gemm_f32.hpp"
#include "cpuacc/kernels/matmul_f32.hpp"

namespace cpuacc {

/// The form of packed weights. A column block is 16 columns.
///
/// - four: [column block][scale block][group of 8 elements of the depth][16 columns] words of 32 bits, whose n-th four
///   bits are element n of the group. A scale block begins with a new group; the last group is padded.
/// - eight: [column block][depth][16 columns] signed bytes.
/// - half, brain: [column block][depth][16 columns] float16 or bfloat16, without scales.
enum class WeightForm : int32_t { four, eight, half, brain };

enum class ScaleType : int32_t { single, half, brain };

constexpr int32_t kGroup = 8;  // elements of the depth in a word of four bits each

/// Packed weights: weight = scale * (integer - zero). Columns that fill up the last block have any integers and the
/// scale 0.
struct PackedWeights {
  WeightForm form;
  ScaleType scale_type;
  int32_t depth, columns;
  int32_t block;        // elements of the depth that share a scale
  const void* codes;    // see WeightForm
  const void* scales;   // [column block][scale block][16], of `scale_type`
  const int8_t* zeros;  // [column block][scale block][16]; nullptr: all are `zero`
  float zero;           // 0 unless the form is `four`
};

static inline int64_t scale_blocks(const PackedWeights& w) { return (int64_t{w.depth} + w.block - 1) / w.block; }

/// Bytes of the first `count` elements of the depth of one column block. With four bits, they end with a group.
static inline int64_t bytes_of_depth(const PackedWeights& w, int64_t count) {
  if (w.form == WeightForm::eight) return count * 16;
  if (w.form != WeightForm::four) return count * 32;
  const int64_t whole = count / w.block, rest = count % w.block;
  return 64 * (whole * ((w.block + kGroup - 1) / kGroup) + (rest + kGroup - 1) / kGroup);
}

/// Bytes of the integers of one column block.
static inline int64_t bytes_of_column_block(const PackedWeights& w) { return bytes_of_depth(w, w.depth); }

/// out[m][n] = bias[n] + sum over k of a[m][k] * weights[k][n], then the epilogue.
struct PackedMatMul {
  PackedWeights weights;
  MatMul product;  // rows, columns, depth, a_row, out_row, bias and epilogue; a_depth is 1
};

/// The division of rows into chunks of about the same size, which `many_rows` multiplies with weights in the cache.
struct RowChunks {
  int32_t chunks, rows, larger;  // the first `larger` chunks have `rows` rows, the others one less
  explicit RowChunks(const MatMul& m) {
    const int32_t most = rows_per_pass(m);
    chunks = most > 0 ? (m.rows + most - 1) / most : 0;
    rows = chunks > 0 ? (m.rows + chunks - 1) / chunks : 0;
    larger = m.rows - (rows - 1) * chunks;
  }
  int32_t of(int32_t chunk) const { return chunk < larger ? rows : rows - 1; }
};

/// Floats of a packed chunk of `rows` rows.
static inline int64_t floats_of_chunk(const MatMul& m, int64_t rows) {
  return (rows | 1) * ((int64_t{m.depth} + 15) / 16) * 16;
}

/// Elements of the depth that `many_rows` sums in one pass: about 256, in whole groups of all scale blocks.
static inline int32_t depth_of_pass(const PackedWeights& w) {
  const bool divisible = w.form != WeightForm::four || w.block % kGroup == 0 || w.block >= w.depth;
  const int32_t passes = divisible ? (w.depth + 255) / 256 : 1;
  return passes > 1 ? ((w.depth + passes - 1) / passes + 15) / 16 * 16 : w.depth;
}

/// Column blocks that are decoded at once with `depth` elements of the depth: one panel, which stays in the first-level
/// cache. If these elements of all rows do not stay in the second-level cache, panels of 256 KiB, so that rows are read
/// less often.
static inline int32_t decoded_blocks(int32_t rows, int32_t depth, int32_t panel) {
  const int64_t most_floats = int64_t{1} << 16, blocks = most_floats / 16 / (depth > 0 ? depth : 1) / panel * panel;
  return int64_t{rows} * depth <= 2 * most_floats || blocks < panel ? panel : int32_t(blocks);
}

/// Floats of decoded weights that are in scratch memory at once: some panels in passes, or fewer with all their depth.
static inline int64_t floats_of_decoded(const PackedMatMul& p, int32_t panel) {
  const int32_t rows = p.product.rows, part = depth_of_pass(p.weights), all = p.weights.depth;
  const int64_t of_pass = int64_t{decoded_blocks(rows, part, panel) + 1} * part * 16;
  const int64_t of_panel = int64_t{decoded_blocks(rows, all, panel) + 1} * all * 16;
  return of_pass > of_panel ? of_pass : of_panel;
}

/// Floats of scratch memory of `many_rows`: decoded weights, and results of a panel that is not full.
static inline int64_t scratch_of_many_rows(const PackedMatMul& p, int32_t panel) {
  return floats_of_decoded(p, panel) + int64_t{RowChunks(p.product).rows} * 6 * 16;
}

struct PackedMatMulKernels {
  int32_t panel;          // column blocks of a panel of `many_rows`
  int32_t most_few_rows;  // up to so many rows, `few_rows` is faster
  /// A few rows; `range` holds rows and column blocks.
  void (*few_rows)(const PackedMatMul&, const float* a, float* out, const float* residual, const OutputRange& range);
  /// Pack contiguous rows, at most eight of them, of a chunk of `rows` rows. `to` is the place of the first one.
  void (*pack_rows)(const MatMul&, const float* a, float* to, int32_t count, int32_t rows);
  /// All rows, packed in chunks, by the column blocks of `range`, which begin and end with panels.
  void (*many_rows)(const PackedMatMul&, const float* packed, float* out, const float* residual, float* scratch,
                    const OutputRange& range);
};

CPUACC_TABLE(PackedMatMulKernels, packed_matmul_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_PACKED_MATMUL_HPP
