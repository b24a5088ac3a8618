// Products of matrices that lie in rows. The operands are packed into blocks and panels; for one row, weights are
// streamed.

#ifndef CPUACC_KERNELS_MATMUL_HPP
#define CPUACC_KERNELS_MATMUL_HPP

#include <string.h>

#include "cpuacc/kernels/by_lane.hpp"
#include "cpuacc/kernels/gemm.hpp"
#include "cpuacc/kernels/matmul_f32.hpp"
#include "cpuacc/kernels/transpose.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Pack contiguous rows, eight at a time, so that reads and writes are streams.
void pack_whole_rows(const float* a, int64_t a_row, int rows, int depth, float* to, int64_t step) {
  constexpr int kTogether = 8;
  for (int row = 0; row < rows; row += kTogether, a += kTogether * a_row, to += kTogether * 16) {
    const int count = rows - row < kTogether ? rows - row : kTogether;
    for (int k = 0; k < depth; k += 16) {
      float* at = to + place_of_block(k / 16, step);
      const int there = depth - k < 16 ? depth - k : 16;
      for (int r = 0; r < count; ++r) store_row(a + r * a_row + k, there, at + r * 16);
    }
  }
}

/// Pack rows as a blocked image: [block of depth][row][16], `step` words from block to block. For pairs of bfloat16,
/// rows have to be contiguous.
void pack_rows(const MatMul& m, const float* a, int rows, float* to, int64_t step) {
  if (kBfloat16Pairs || m.a_depth == 1) return pack_whole_rows(a, m.a_row, rows, m.depth, to, step);
  for (int block = 0; block < m.depth; block += 16, to += step) {
    int count = m.depth - block < 16 ? m.depth - block : 16;
    const float* from = a + block * m.a_depth;
    int row = 0;
    if (m.a_row == 1 && count == 16)
      for (; row + 4 <= rows; row += 4)
        for (int k = 0; k < 16; k += 4) transpose_4x4(from + k * m.a_depth + row, m.a_depth, to + row * 16 + k, 16);
    for (int k = 0; k < count; ++k)
      for (int left = row; left < rows; ++left) to[left * 16 + k] = from[k * m.a_depth + left * m.a_row];
  }
}

/// Pack one panel of `columns` columns as [depth][16 * blocks], padded with zeros.
void pack_panel(const MatMul& m, const float* b, int columns, int blocks, float* to) {
  const int wide = blocks * 16;
  if (m.b_column == 1 && columns == wide) {
    for (int k = 0; k < m.depth; ++k, to += wide)
      for (int v = 0; v < wide; v += kLanes) store(to + v, load(b + k * m.b_depth + v));
    return;
  }
  if (m.b_column == 1) {
    for (int k = 0; k < m.depth; ++k, to += wide) {
      memcpy(to, b + k * m.b_depth, sizeof(float) * static_cast<size_t>(columns));
      memset(to + columns, 0, sizeof(float) * static_cast<size_t>(wide - columns));
    }
    return;
  }
  for (int first = 0; first < m.depth; first += 16) {
    int last = first + 16 < m.depth ? first + 16 : m.depth;
    int column = 0;
    if (m.b_depth == 1 && last - first == 16)
      for (; column + 4 <= columns; column += 4)
        for (int k = first; k < last; k += 4)
          transpose_4x4(b + column * m.b_column + k, m.b_column, to + k * wide + column, wide);
    for (; column < columns; ++column)
      for (int k = first; k < last; ++k) to[k * wide + column] = b[column * m.b_column + k * m.b_depth];
    for (int k = first; k < last; ++k)
      memset(to + k * wide + columns, 0, sizeof(float) * static_cast<size_t>(wide - columns));
  }
}

/// Pack the panels that begin in the blocks [first, last), at their offsets in the whole matrix.
void pack_panels(const MatMul& m, const float* b, float* to, int first, int last) {
  const int all = (m.columns + 15) / 16;
  for (int block = first; block < last;) {
    int blocks = blocks_of_panel_at(block, all), left = m.columns - block * 16;
    pack_panel(m, b + block * 16 * m.b_column, left < blocks * 16 ? left : blocks * 16, blocks,
               to + int64_t{block} * 16 * m.depth);
    block += blocks;
  }
}

/// Copy the columns of the last panel of a row. They are few, so that `memcpy` would take most of its time to begin.
CPUACC_INLINE void copy_row(const float* from, int columns, float* to) {
  for (int n = 0; n < columns; n += kLanes) store_some(to + n, load_some(from + n, columns - n, 0), columns - n);
}

/// Compute a panel whose last block is not full. The result is stored in `own` first, because rows must not be written
/// past their end.
void ragged_panel(const MatMul& m, Gemm p, const float* a, int64_t a_block, float* out, const float* residual,
                  float* own, int rows, int block, int blocks) {
  const int wide = blocks * 16, columns = m.columns - block * 16;
  const Epilogue epilogue = p.epilogue;
  p.epilogue.count = 0;
  if (epilogue.count) p.epilogue.low = -__builtin_inff(), p.epilogue.high = __builtin_inff();
  float* residual_rows = own + int64_t{rows} * wide;
  for (int row = 0; residual && row < rows; ++row)
    copy_row(residual + row * m.out_row + block * 16, columns, residual_rows + row * wide);
  const float* added = residual ? residual_rows - block * 16 : nullptr;
  gemm(p, a, a_block, own - block * 16, {16, 0, wide}, epilogue.count ? nullptr : added,
       {0, rows, block, block + blocks});
  if (epilogue.count) apply_post_ops(epilogue, own, residual ? residual_rows : nullptr, 16, wide, rows, blocks);
  for (int row = 0; row < rows; ++row) copy_row(own + row * wide, columns, out + row * m.out_row + block * 16);
}

void matmul(const MatMul& m, const float* a, const float* b, float* out, const float* residual, float* scratch,
            const OutputRange& range) {
  const int all = (m.columns + 15) / 16, most = rows_per_pass(m);
  float* packed_rows = scratch;
  float* own = scratch + int64_t{most | 1} * ((m.depth + 15) / 16) * 16;
  float* panels = own + int64_t{most} * 6 * 16;
  Gemm p{m.depth, all, m.packed, m.bias, m.epilogue, m.columns - (all - 1) * 16};
  if (!m.packed) {
    p.weights = panels;
    pack_panels(m, b, panels, range.block, range.block_end);
  }
  const bool ragged = range.block_end == all && m.columns % 16;
  const int full = ragged ? last_panel(range.block, all, all) : range.block_end;
  const RowTiles cut(range.row_end - range.row, most);
  for (int n = 0, row = range.row; n < cut.tiles; row += cut.of(n), ++n) {
    const int rows = cut.of(n);
    float* to = out + row * m.out_row;
    const float* added = residual ? residual + row * m.out_row : nullptr;
    const int64_t step = int64_t{rows | 1} * 16;  // odd, so that blocks do not map to the same cache sets
    pack_rows(m, a + row * m.a_row, rows, packed_rows, step);
    gemm(p, packed_rows, step, to, {16, 0, m.out_row}, added, {0, rows, range.block, full});
    if (ragged) ragged_panel(m, p, packed_rows, step, to, added, own, rows, full, all - full);
  }
}

constexpr int kGemvBlocks = kBlockVecs == 1 ? kMaxGemvPanel : 2;  // blocks of one row whose sums fit the registers

/// Compute kBlocks blocks of one row from a panel that is `wide` columns wide. Each output has two sums, so that
/// additions overlap. The weights are one stream, which the hardware prefetches; software prefetches make it slower.
template <int kBlocks, bool kBfloat16>
__attribute__((noinline)) void gemv_panel(const float* a, int depth, const float* b, int wide, const float* bias,
                                          float* out) {
  constexpr int kVecs = kBlocks * kBlockVecs;
  Vec even[kVecs], odd[kVecs];
#pragma GCC unroll 16
  for (int n = 0; n < kVecs; ++n) even[n] = load(bias + n * kLanes), odd[n] = Vec{};
  int k = 0;
#if defined(__aarch64__)
  if constexpr (!kBfloat16) {
    add_rows(even, odd, a, depth, b, wide);
    k = depth;
  }
#endif
  for (; k + 2 <= depth; k += 2, b += (kBfloat16 ? 1 : 2) * wide) {
    Vec x = broadcast(a[k]), y = broadcast(a[k + 1]);
#pragma GCC unroll 16
    for (int n = 0; n < kVecs; ++n) {
      Vec first, second;
      load_both<kBfloat16>(b + n * kLanes, wide, &first, &second);
      even[n] += x * first;
      odd[n] += y * second;
    }
  }
  if (k < depth)
#pragma GCC unroll 16
    for (int n = 0; n < kVecs; ++n) {
      Vec first, second;
      load_both<kBfloat16>(b + n * kLanes, 0, &first, &second);
      even[n] += broadcast(a[k]) * first;
    }
#pragma GCC unroll 16
  for (int n = 0; n < kVecs; ++n) store(out + n * kLanes, even[n] + odd[n]);
}

typedef void (*GemvPanel)(const float*, int, const float*, int, const float*, float*);
template <bool kBfloat16>
constexpr GemvPanel kGemvPanels[kMaxGemvPanel + 1] = {nullptr,
                                                      gemv_panel<1, kBfloat16>,
                                                      gemv_panel<2, kBfloat16>,
#if defined(__AVX512F__)
                                                      gemv_panel<3, kBfloat16>,
                                                      gemv_panel<4, kBfloat16>,
                                                      gemv_panel<5, kBfloat16>,
                                                      gemv_panel<6, kBfloat16>,
                                                      gemv_panel<7, kBfloat16>,
                                                      gemv_panel<8, kBfloat16>
#endif
};

void gemv(const MatMul& m, const float* a, float* out, const float* residual, const OutputRange& range) {
  const int all_blocks = (m.columns + 15) / 16;
  const int64_t words = m.bfloat16 ? (m.depth + 1) / 2 : m.depth;
  const GemvPanel* panels = m.bfloat16 ? kGemvPanels<true> : kGemvPanels<false>;
  for (int block = range.block; block < range.block_end; block += m.panel) {
    int blocks = all_blocks - block < m.panel ? all_blocks - block : m.panel;
    float sums[kMaxGemvPanel * 16], added[kMaxGemvPanel * 16];
    const float* b = m.packed + block * 16 * words;
    const float* bias = m.bias + block * 16;
    for (int first = 0; first < blocks; first += kGemvBlocks) {
      int count = blocks - first < kGemvBlocks ? blocks - first : kGemvBlocks;
      panels[count](a, m.depth, b + first * 16, blocks * 16, bias + first * 16, sums + first * 16);
    }
    int columns = m.columns - block * 16 < blocks * 16 ? m.columns - block * 16 : blocks * 16;
    size_t bytes = sizeof(float) * static_cast<size_t>(columns);
    if (residual) memcpy(added, residual + block * 16, bytes);
    if (m.epilogue.count) {
      apply_post_ops(m.epilogue, sums, residual ? added : nullptr, 16, 16, 1, blocks);
    } else {
      for (int n = 0; n < blocks * 16; n += kLanes) {
        Vec sum = load(sums + n);
        if (residual) sum += load(added + n);
        store(sums + n, at_most(at_least(sum, broadcast(m.epilogue.low)), broadcast(m.epilogue.high)));
      }
    }
    memcpy(out + block * 16, sums, bytes);
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_MATMUL_HPP
