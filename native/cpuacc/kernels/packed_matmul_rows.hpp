// Products with packed weights (see packed_matmul.hpp).

#ifndef CPUACC_KERNELS_PACKED_MATMUL_ROWS_HPP
#define CPUACC_KERNELS_PACKED_MATMUL_ROWS_HPP

#include <string.h>

#include "cpuacc/kernels/half_precision.hpp"
#include "cpuacc/kernels/matmul.hpp"
#include "cpuacc/kernels/packed_matmul.hpp"

namespace cpuacc::ISA_NS {
namespace {

// ---- Decoding -------------------------------------------------------------------------------------------------------

/// Load 16-bit floats.
CPUACC_INLINE Vec load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  Vec x;
  for (int n = 0; n < kLanes; ++n) x[n] = from_half(from[n]);
  return x;
#endif
}

CPUACC_INLINE Vec load_brain(const uint16_t* from) {
#if defined(__AVX512F__)
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return reinterpret_cast<Vec>(_mm512_slli_epi32(wide, 16));
#elif defined(__AVX2__)
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return reinterpret_cast<Vec>(_mm256_slli_epi32(wide, 16));
#else
  Vec x;
  for (int n = 0; n < kLanes; ++n) x[n] = from_brain(from[n]);
  return x;
#endif
}

/// Load signed bytes.
CPUACC_INLINE Vec load_signed(const int8_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  Vec x;
  for (int n = 0; n < kLanes; ++n) x[n] = from[n];
  return x;
#endif
}

CPUACC_INLINE Vec load_scale(ScaleType type, const void* scales, int64_t at) {
  if (type == ScaleType::single) return load(static_cast<const float*>(scales) + at);
  const uint16_t* from = static_cast<const uint16_t*>(scales) + at;
  return type == ScaleType::half ? load_half(from) : load_brain(from);
}

#if defined(__AVX512F__)
constexpr bool kHasTable = true;  // four bits select one of 16 floats
#else
constexpr bool kHasTable = false;
#endif

/// The integers 0 to 15 less a number.
CPUACC_INLINE Vec table_of([[maybe_unused]] float zero) {
  Vec table{};
  if constexpr (kHasTable)
    for (int n = 0; n < kLanes; ++n) table[n] = float(n) - zero;
  return table;
}

constexpr float kMagic = 8388608;  // 2**23: its lowest bits are an integer

/// Decode the lowest four bits of each lane, as the number in the table, or as the integer plus kMagic.
CPUACC_INLINE Vec decoded(BitVec words, [[maybe_unused]] Vec table) {
#if defined(__AVX512F__)
  return _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(words), table);
#else
  return reinterpret_cast<Vec>((words & 15u) | 0x4b000000u);
#endif
}
/// What is subtracted from decoded integers with this zero point.
template <WeightForm kForm>
CPUACC_INLINE Vec subtrahend(Vec zero) {
  return kForm == WeightForm::four && !kHasTable ? zero + broadcast(kMagic) : zero;
}

CPUACC_INLINE BitVec load_words(const uint8_t* from) {
  BitVec x;
  memcpy(&x, from, sizeof x);
  return x;
}

// ---- A few rows -----------------------------------------------------------------------------------------------------

/// Rows of `a`, and where the weights of some column blocks are.
struct FewRows {
  const PackedWeights* weights;
  const float* a;
  int64_t a_row;
  int64_t block;  // the first column block
  float* out;     // [row][16 * column blocks]
};

/// Add the products of one scale block to `sums`. `codes` are those of the first column block; `step` bytes further are
/// those of the next one. kShift: subtract `zero` from each integer.
template <WeightForm kForm, bool kShift, int kRows, int kVecs>
CPUACC_INLINE void add_scale_block(Vec (&sums)[kRows][kVecs], const float* a, int64_t a_row, const uint8_t* codes,
                                   int64_t step, int count, const Vec (&zero)[kVecs], Vec table) {
  if constexpr (kForm == WeightForm::four) {
    for (; count > 0; count -= kGroup, a += kGroup, codes += 64) {
      BitVec words[kVecs];
#pragma GCC unroll 16
      for (int n = 0; n < kVecs; ++n)
        words[n] = load_words(codes + n / kBlockVecs * step + n % kBlockVecs * kLanes * 4);
      const int inside = count < kGroup ? count : kGroup;
      auto add = [&](int k) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int n = 0; n < kVecs; ++n) {
          Vec weight = decoded(words[n] >> uint32_t(4 * k), table);
          if (kShift || !kHasTable) weight -= zero[n];
#pragma GCC unroll 8
          for (int m = 0; m < kRows; ++m) sums[m][n] += broadcast(a[m * a_row + k]) * weight;
        }
      };
      if (inside == kGroup) {  // not a loop, so that the shifts have constant counts
        add(0), add(1), add(2), add(3), add(4), add(5), add(6), add(7);
      } else {
        for (int k = 0; k < inside; ++k) add(k);
      }
    }
  } else {
    constexpr int kBytes = kForm == WeightForm::eight ? 1 : 2;
#pragma GCC unroll 4
    for (int k = 0; k < count; ++k, codes += 16 * kBytes) {
#pragma GCC unroll 16
      for (int n = 0; n < kVecs; ++n) {
        const uint8_t* from = codes + n / kBlockVecs * step + n % kBlockVecs * kLanes * kBytes;
        Vec weight;
        if constexpr (kForm == WeightForm::eight) weight = load_signed(reinterpret_cast<const int8_t*>(from));
        if constexpr (kForm == WeightForm::half) weight = load_half(reinterpret_cast<const uint16_t*>(from));
        if constexpr (kForm == WeightForm::brain) weight = load_brain(reinterpret_cast<const uint16_t*>(from));
        if (kShift) weight -= zero[n];
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) sums[m][n] += broadcast(a[m * a_row + k]) * weight;
      }
    }
  }
}

/// kRows rows by kBlocks column blocks. The products of a scale block are summed first, and then scaled.
template <WeightForm kForm, bool kShift, int kRows, int kBlocks>
__attribute__((noinline)) void few_rows_tile(const FewRows& t) {
  constexpr int kVecs = kBlocks * kBlockVecs;
  constexpr bool kScaled = kForm == WeightForm::four || kForm == WeightForm::eight;
  const PackedWeights& w = *t.weights;
  const int64_t blocks = scale_blocks(w), step = bytes_of_column_block(w);
  const uint8_t* codes = static_cast<const uint8_t*>(w.codes) + t.block * step;
  const Vec table = table_of(w.zero);
  Vec totals[kRows][kVecs] = {}, zero[kVecs];
#pragma GCC unroll 16
  for (int n = 0; n < kVecs; ++n) zero[n] = subtrahend<kForm>(broadcast(w.zero));
  int64_t scale_at = t.block * blocks * 16;
  for (int first = 0; first < w.depth; first += w.block, scale_at += 16) {
    const int count = w.depth - first < w.block ? w.depth - first : w.block;
    if constexpr (kShift)
#pragma GCC unroll 16
      for (int n = 0; n < kVecs; ++n)
        zero[n] =
            subtrahend<kForm>(load_signed(w.zeros + scale_at + n / kBlockVecs * blocks * 16 + n % kBlockVecs * kLanes));
    Vec sums[kRows][kVecs] = {};
    add_scale_block<kForm, kShift, kRows, kVecs>(sums, t.a + first, t.a_row, codes, step, count, zero, table);
    codes += kForm == WeightForm::four    ? (count + kGroup - 1) / kGroup * 64
             : kForm == WeightForm::eight ? count * 16
                                          : count * 32;
#pragma GCC unroll 16
    for (int n = 0; n < kVecs; ++n) {
      Vec scale = broadcast(1);
      if constexpr (kScaled)
        scale = load_scale(w.scale_type, w.scales, scale_at + n / kBlockVecs * blocks * 16 + n % kBlockVecs * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) totals[m][n] += sums[m][n] * scale;
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < kVecs; ++n) store(t.out + m * kBlocks * 16 + n * kLanes, totals[m][n]);
}

constexpr int kMostRows = kBlockVecs == 1 ? 8 : 4;  // of a tile
constexpr int kMostBlocks = 4;
/// Column blocks of a tile: enough sums to hide the latency of a multiply-add, and few enough for the registers.
constexpr int tile_blocks(int rows) {
  return kBlockVecs == 1 ? (rows <= 2 ? 4 : 2) : kBlockVecs == 2 ? (rows == 1 ? 2 : 1) : 1;
}
/// Rows of the next tile. There are tiles of 1, 2, 3, 4, 6 and 8 rows.
constexpr int tile_rows(int left) {
  return kMostRows == 8 && (left == 6 || left >= 8) ? (left == 6 ? 6 : 8) : left < 4 ? left : 4;
}

using FewRowsTile = void (*)(const FewRows&);

template <WeightForm kForm, bool kShift, bool kWide, int kRows>
constexpr FewRowsTile kTile =
    few_rows_tile<kForm, kShift, kRows <= kMostRows ? kRows : 1, kWide ? tile_blocks(kRows) : 1>;
template <WeightForm kForm, bool kShift, bool kWide>
constexpr FewRowsTile kTiles[9] = {nullptr,
                                   kTile<kForm, kShift, kWide, 1>,
                                   kTile<kForm, kShift, kWide, 2>,
                                   kTile<kForm, kShift, kWide, 3>,
                                   kTile<kForm, kShift, kWide, 4>,
                                   nullptr,
                                   kTile<kForm, kShift, kWide, 6>,
                                   nullptr,
                                   kTile<kForm, kShift, kWide, 8>};

template <WeightForm kForm, bool kShift>
FewRowsTile few_rows_tile_of(int rows, int blocks) {
  return (blocks == 1 ? kTiles<kForm, kShift, false> : kTiles<kForm, kShift, true>)[rows];
}

FewRowsTile find_few_rows_tile(const PackedWeights& w, int rows, int blocks) {
  const bool shift = w.zeros != nullptr;
  switch (w.form) {
    case WeightForm::four:
      return shift ? few_rows_tile_of<WeightForm::four, true>(rows, blocks)
                   : few_rows_tile_of<WeightForm::four, false>(rows, blocks);
    case WeightForm::eight:
      return shift ? few_rows_tile_of<WeightForm::eight, true>(rows, blocks)
                   : few_rows_tile_of<WeightForm::eight, false>(rows, blocks);
    case WeightForm::half:
      return few_rows_tile_of<WeightForm::half, false>(rows, blocks);
    default:
      return few_rows_tile_of<WeightForm::brain, false>(rows, blocks);
  }
}

/// Add the bias to a tile, apply the epilogue, and store the columns that exist.
void finish_tile(const MatMul& m, float* sums, int rows, int block, int blocks, float* out, const float* residual) {
  const int wide = blocks * 16, left = m.columns - block * 16, columns = left < wide ? left : wide;
  const size_t bytes = sizeof(float) * static_cast<size_t>(columns);
  float added[kMostRows * kMostBlocks * 16];
  for (int row = 0; row < rows; ++row) {
    float *own = sums + row * wide, *other = added + row * wide;
    for (int n = 0; n < wide; n += kLanes) store(own + n, load(own + n) + load(m.bias + block * 16 + n));
    if (residual) memcpy(other, residual + row * m.out_row, bytes);
  }
  if (m.epilogue.count) apply_post_ops(m.epilogue, sums, residual ? added : nullptr, 16, wide, rows, blocks);
  for (int row = 0; row < rows; ++row) {
    float* own = sums + row * wide;
    for (int n = 0; n < wide && !m.epilogue.count; n += kLanes) {
      Vec sum = load(own + n);
      if (residual) sum += load(added + row * wide + n);
      store(own + n, at_most(at_least(sum, broadcast(m.epilogue.low)), broadcast(m.epilogue.high)));
    }
    memcpy(out + row * m.out_row, own, bytes);
  }
}

constexpr int kMostFewRows = kBlockVecs == 1 ? 32 : 8;

void few_rows(const PackedMatMul& p, const float* a, float* out, const float* residual, const OutputRange& range) {
  const MatMul& m = p.product;
  float sums[kMostRows * kMostBlocks * 16];
  for (int block = range.block; block < range.block_end;) {
    const int left = range.block_end - block, blocks = left < kMostBlocks ? left : kMostBlocks;
    for (int row = range.row, rows = 0; row < range.row_end; row += rows) {
      rows = tile_rows(range.row_end - row);
      const int usual = tile_blocks(rows);
      for (int first = 0; first < blocks;) {
        const int some = blocks - first < usual ? 1 : usual;
        FewRows t{&p.weights, a + row * m.a_row, m.a_row, block + first, sums};
        find_few_rows_tile(p.weights, rows, some)(t);
        const int64_t at = row * m.out_row + (block + first) * 16;
        finish_tile(m, sums, rows, block + first, some, out + at, residual ? residual + at : nullptr);
        first += some;
      }
    }
    block += blocks;
  }
}

// ---- Many rows ------------------------------------------------------------------------------------------------------

/// Decode `count` elements of the depth of one group.
CPUACC_INLINE void decode_group(const uint8_t* codes, int count, Vec table, const Vec (&zero)[kBlockVecs],
                                const Vec (&scale)[kBlockVecs], float* to, int64_t step) {
  BitVec words[kBlockVecs];
#pragma GCC unroll 4
  for (int n = 0; n < kBlockVecs; ++n) words[n] = load_words(codes + n * kLanes * 4);
  auto put = [&](int k) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int n = 0; n < kBlockVecs; ++n)
      store(to + k * step + n * kLanes, (decoded(words[n] >> uint32_t(4 * k), table) - zero[n]) * scale[n]);
  };
  if (count == kGroup) {
    put(0), put(1), put(2), put(3), put(4), put(5), put(6), put(7);
    return;
  }
  for (int k = 0; k < count; ++k) put(k);
}

/// Decode one column block to `to`, `step` floats from one element of the depth to the next.
template <WeightForm kForm>
void decode_column_block(const PackedWeights& w, int64_t block, float* to, int64_t step) {
  constexpr bool kScaled = kForm == WeightForm::four || kForm == WeightForm::eight;
  const int64_t blocks = scale_blocks(w);
  const uint8_t* codes = static_cast<const uint8_t*>(w.codes) + block * bytes_of_column_block(w);
  const Vec table = table_of(0);
  int64_t scale_at = block * blocks * 16;
  for (int first = 0; first < w.depth; first += w.block, scale_at += 16) {
    const int count = w.depth - first < w.block ? w.depth - first : w.block;
    Vec scale[kBlockVecs], zero[kBlockVecs];
    for (int n = 0; n < kBlockVecs; ++n) {
      scale[n] = kScaled ? load_scale(w.scale_type, w.scales, scale_at + n * kLanes) : broadcast(1);
      zero[n] = w.zeros ? load_signed(w.zeros + scale_at + n * kLanes) : broadcast(w.zero);
      zero[n] = subtrahend<kForm>(zero[n]);
    }
    if constexpr (kForm == WeightForm::four) {
      for (int group = 0; group < count; group += kGroup) {
        const int inside = count - group < kGroup ? count - group : kGroup;
        decode_group(codes + group * 8, inside, table, zero, scale, to, step);
        to += inside * step;
      }
    }
    for (int k = 0; k < count && kForm != WeightForm::four; ++k, to += step)
      for (int n = 0; n < kBlockVecs; ++n) {
        Vec x{};
        if constexpr (kForm == WeightForm::eight)
          x = load_signed(reinterpret_cast<const int8_t*>(codes) + k * 16 + n * kLanes);
        if constexpr (kForm == WeightForm::half)
          x = load_half(reinterpret_cast<const uint16_t*>(codes) + k * 16 + n * kLanes);
        if constexpr (kForm == WeightForm::brain)
          x = load_brain(reinterpret_cast<const uint16_t*>(codes) + k * 16 + n * kLanes);
        store(to + n * kLanes, kScaled ? (x - zero[n]) * scale[n] : x);
      }
    codes += kForm == WeightForm::four    ? (count + kGroup - 1) / kGroup * 64
             : kForm == WeightForm::eight ? count * 16
                                          : count * 32;
  }
}

using Decode = void (*)(const PackedWeights&, int64_t block, float* to, int64_t step);
constexpr Decode kDecode[] = {decode_column_block<WeightForm::four>, decode_column_block<WeightForm::eight>,
                              decode_column_block<WeightForm::half>, decode_column_block<WeightForm::brain>};

/// Decode the panels of the column blocks [first, last), each as [depth][16 * column blocks].
void decode_panels(const PackedWeights& w, int first, int last, float* to) {
  const int all = (w.columns + 15) / 16;
  for (int block = first; block < last;) {
    const int blocks = blocks_of_panel_at(block, all);
    for (int n = 0; n < blocks; ++n) kDecode[int(w.form)](w, block + n, to + n * 16, blocks * 16);
    to += int64_t{blocks} * 16 * w.depth;
    block += blocks;
  }
}

void pack_rows_of_chunk(const MatMul& m, const float* a, float* to, int32_t count, int32_t rows) {
  pack_whole_rows(a, m.a_row, count, m.depth, to, int64_t{rows | 1} * 16);
}

/// Multiply a chunk of rows with decoded weights of the column blocks [first, last).
void multiply_decoded(const MatMul& m, const float* packed, int rows, const float* decoded, float* out,
                      const float* residual, float* own, int first, int last) {
  const int all = (m.columns + 15) / 16;
  int full = last;  // column blocks from here on are the last panel, whose last block is not full
  if (last == all && m.columns % 16)
    for (full = first; full + blocks_of_panel_at(full, all) < all;) full += blocks_of_panel_at(full, all);
  const Gemm g{m.depth, all, decoded - int64_t{first} * 16 * m.depth, m.bias, m.epilogue};
  const int64_t step = int64_t{rows | 1} * 16;
  gemm(g, packed, step, out, {16, 0, m.out_row}, residual, {0, rows, first, full});
  if (full < last) ragged_panel(m, g, packed, step, out, residual, own, rows, full, last - full);
}

/// Weights are decoded for each chunk of rows: that takes less time than reading decoded weights from beyond the cache.
void many_rows(const PackedMatMul& p, const float* packed, float* out, const float* residual, float* scratch,
               const OutputRange& range) {
  const MatMul& m = p.product;
  const int all = (m.columns + 15) / 16, most = decoded_blocks(m, kPanelBlocks);
  float* own = scratch + int64_t{most + 1} * 16 * m.depth;
  const RowChunks cut(m);
  for (int chunk = 0, row = 0; chunk < cut.chunks; row += cut.of(chunk), ++chunk) {
    const int rows = cut.of(chunk);
    const float* added = residual ? residual + row * m.out_row : nullptr;
    for (int block = range.block, last = block; block < range.block_end; block = last) {
      while (last < range.block_end && (last == block || last + blocks_of_panel_at(last, all) - block <= most + 1))
        last += blocks_of_panel_at(last, all);
      decode_panels(p.weights, block, last, scratch);
      multiply_decoded(m, packed, rows, scratch, out + row * m.out_row, added, own, block, last);
    }
    packed += floats_of_chunk(m, rows);
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_PACKED_MATMUL_ROWS_HPP
