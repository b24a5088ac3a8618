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

/// Load signed bytes.
CPUACC_INLINE Vec load_signed(const int8_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#elif defined(__aarch64__)
  const uint32_t four = unaligned<uint32_t>(reinterpret_cast<const uint8_t*>(from));
  const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
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

CPUACC_INLINE void prefetch_scale(const PackedWeights& w, int64_t at) {
  prefetch_line(static_cast<const char*>(w.scales) + at * (w.scale_type == ScaleType::single ? 4 : 2));
}

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr bool kHasTable = true;  // four bits select one of 16 numbers
#else
constexpr bool kHasTable = false;
#endif

constexpr float kMagic = 8388608;  // 2**23: its lowest bits are an integer

/// What is subtracted from decoded integers with this zero point.
template <WeightForm kForm>
CPUACC_INLINE Vec subtrahend(Vec zero) {
  return kForm == WeightForm::four && !kHasTable ? zero + broadcast(kMagic) : zero;
}

#if defined(__aarch64__)
/// The upper 16 bits of 16 floats, as their lower and upper bytes.
struct DecodingTable {
  uint8x16_t low, high;
};

/// The integers 0 to 15 less a number. The upper 16 bits of a float hold integers of up to 8 bits.
CPUACC_INLINE DecodingTable table_of(float zero) {
  uint8_t low[16], high[16];
  for (int n = 0; n < 16; ++n) {
    const float number = float(n) - zero;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    low[n] = uint8_t(bits >> 16), high[n] = uint8_t(bits >> 24);
  }
  return {vld1q_u8(low), vld1q_u8(high)};
}

/// The words of one column block with eight elements of the depth. Vector n has byte n of each word.
using GroupWords = uint8x16x4_t;

CPUACC_INLINE GroupWords load_group(const uint8_t* from) { return vld4q_u8(from); }

/// Decode element `k` of the group in vector `n` of the columns, as numbers in the table. The compiler merges what the
/// vectors of an element have in common.
CPUACC_INLINE Vec decoded(const GroupWords& words, int k, int n, const DecodingTable& table) {
  const uint8x16_t two = words.val[k / 2], bits = k % 2 ? vshrq_n_u8(two, 4) : vandq_u8(two, vdupq_n_u8(15));
  const uint8x16_t low = vqtbl1q_u8(table.low, bits), high = vqtbl1q_u8(table.high, bits);
  const uint16x8_t half = vreinterpretq_u16_u8(n < 2 ? vzip1q_u8(low, high) : vzip2q_u8(low, high));
  const uint16x8_t zero = vdupq_n_u16(0);
  return reinterpret_cast<Vec>(n % 2 ? vzip2q_u16(zero, half) : vzip1q_u16(zero, half));
}
#else
using DecodingTable = Vec;

/// The integers 0 to 15 less a number.
CPUACC_INLINE DecodingTable table_of([[maybe_unused]] float zero) {
  Vec table{};
  if constexpr (kHasTable)
    for (int n = 0; n < kLanes; ++n) table[n] = float(n) - zero;
  return table;
}

/// The words of one column block with eight elements of the depth.
struct GroupWords {
  BitVec val[kBlockVecs];
};

CPUACC_INLINE GroupWords load_group(const uint8_t* from) {
  GroupWords words;
#pragma GCC unroll 16
  for (int n = 0; n < kBlockVecs; ++n) memcpy(&words.val[n], from + n * kLanes * 4, sizeof(BitVec));
  return words;
}

/// Decode element `k` of the group in vector `n` of the columns, as the number in the table, or as the integer plus
/// kMagic.
CPUACC_INLINE Vec decoded(const GroupWords& group, int k, int n, [[maybe_unused]] const DecodingTable& table) {
  const BitVec words = group.val[n] >> uint32_t(4 * k);
#if defined(__AVX512F__)
  return _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(words), table);
#else
  return reinterpret_cast<Vec>((words & 15u) | 0x4b000000u);
#endif
}
#endif

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
                                   int64_t step, int count, const Vec (&zero)[kVecs], const DecodingTable& table) {
  if constexpr (kForm == WeightForm::four) {
    for (; count > 0; count -= kGroup, a += kGroup, codes += 64) {
      constexpr int kBlocks = kVecs / kBlockVecs;
      GroupWords words[kBlocks];
#pragma GCC unroll 4
      for (int block = 0; block < kBlocks; ++block) words[block] = load_group(codes + block * step);
      const int inside = count < kGroup ? count : kGroup;
      auto add = [&](int k) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int n = 0; n < kVecs; ++n) {
          Vec weight = decoded(words[n / kBlockVecs], k, n % kBlockVecs, table);
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
  const DecodingTable table = table_of(w.zero);
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

/// Decode `count` elements of the depth of one group. kShift: subtract `zero` from each integer.
template <bool kShift>
CPUACC_INLINE void decode_group(const uint8_t* codes, int count, const DecodingTable& table,
                                const Vec (&zero)[kBlockVecs], const Vec (&scale)[kBlockVecs], float* to,
                                int64_t step) {
  const GroupWords words = load_group(codes);
  auto put = [&](int k) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int n = 0; n < kBlockVecs; ++n) {
      Vec weight = decoded(words, k, n, table);
      if (kShift || !kHasTable) weight -= zero[n];
      store(to + k * step + n * kLanes, weight * scale[n]);
    }
  };
  if (count == kGroup) {
    put(0), put(1), put(2), put(3), put(4), put(5), put(6), put(7);
    return;
  }
  for (int k = 0; k < count; ++k) put(k);
}

/// Decode the elements [first, last) of the depth of one column block to `to`, `step` floats from one element to the
/// next. With four bits, `first` begins a group. The column block `ahead` further is prefetched.
template <WeightForm kForm, bool kShift>
void decode_column_block(const PackedWeights& w, int64_t block, int ahead, int first, int last, float* to,
                         int64_t step) {
  constexpr bool kScaled = kForm == WeightForm::four || kForm == WeightForm::eight;
  constexpr int kBytes = kForm == WeightForm::eight ? 1 : 2;  // of an element
  const uint8_t* all_codes = static_cast<const uint8_t*>(w.codes) + block * bytes_of_column_block(w);
  const int64_t next = ahead * bytes_of_column_block(w), next_scale = ahead * scale_blocks(w) * 16;
  const DecodingTable table = table_of(w.zero);
  for (int from = first, count; from < last; from += count) {
    const int scale_block = from / w.block, left = (scale_block + 1) * int64_t{w.block} - from;
    const int64_t scale_at = (block * scale_blocks(w) + scale_block) * 16;
    const uint8_t* codes = all_codes + bytes_of_depth(w, from);
    count = left < last - from ? left : last - from;
    prefetch_scale(w, scale_at + next_scale);
    Vec scale[kBlockVecs], zero[kBlockVecs];
    for (int n = 0; n < kBlockVecs; ++n) {
      scale[n] = kScaled ? load_scale(w.scale_type, w.scales, scale_at + n * kLanes) : broadcast(1);
      zero[n] = kShift ? load_signed(w.zeros + scale_at + n * kLanes) : broadcast(w.zero);
      zero[n] = subtrahend<kForm>(zero[n]);
    }
    if constexpr (kForm == WeightForm::four) {
      for (int group = 0; group < count; group += kGroup) {
        const int inside = count - group < kGroup ? count - group : kGroup;
        prefetch_line(reinterpret_cast<const char*>(codes) + group * 8 + next);
        decode_group<kShift>(codes + group * 8, inside, table, zero, scale, to, step);
        to += inside * step;
      }
    }
    for (int k = 0; k < count && kForm != WeightForm::four; ++k, to += step) {
      prefetch_line(reinterpret_cast<const char*>(codes) + k * kBytes * 16 + next);
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
    }
  }
}

using Decode = void (*)(const PackedWeights&, int64_t block, int ahead, int first, int last, float* to, int64_t step);
template <bool kShift>
constexpr Decode kDecode[] = {
    decode_column_block<WeightForm::four, kShift>, decode_column_block<WeightForm::eight, kShift>,
    decode_column_block<WeightForm::half, false>, decode_column_block<WeightForm::brain, false>};

void pack_rows_of_chunk(const MatMul& m, const float* a, float* to, int32_t count, int32_t rows) {
  pack_whole_rows(a, m.a_row, count, m.depth, to, int64_t{rows | 1} * 16);
}

/// Products of many rows. Weights are decoded once, and so many at a time that they stay in the cache while all rows
/// are multiplied with them.
struct ManyRows {
  const PackedMatMul& p;
  const float* packed;  // rows in chunks
  float* out;
  const float* residual;
  float* decoded;
  const MatMul& m = p.product;
  const int all = (m.columns + 15) / 16;

  /// Decode the elements [first, last) of the depth of some panels, each as [element][16 * column blocks].
  void decode(int block, int block_end, int first, int last) const {
    float* to = decoded;
    const Decode decode_block = (p.weights.zeros ? kDecode<true> : kDecode<false>)[int(p.weights.form)];
    for (int blocks; block < block_end; block += blocks, to += int64_t{last - first} * blocks * 16) {
      blocks = blocks_of_panel_at(block, all);
      for (int n = 0; n < blocks; ++n)
        decode_block(p.weights, block + n, blocks, first, last, to + n * 16, blocks * 16);
    }
  }

  /// Call `multiply(rows, step from block to block, number of rows, offset of their results)` for each chunk.
  template <typename Multiply>
  void for_each_chunk(const Multiply& multiply) const {
    const RowChunks cut(m);
    const float* rows = packed;
    for (int chunk = 0, row = 0; chunk < cut.chunks; row += cut.of(chunk), ++chunk) {
      multiply(rows, int64_t{cut.of(chunk) | 1} * 16, cut.of(chunk), row * m.out_row);
      rows += floats_of_chunk(m, cut.of(chunk));
    }
  }

  /// Multiply all rows with the elements [first, last) of the depth of the panels [block, block_end).
  void multiply(int block, int block_end, int first, int last) const {
    decode(block, block_end, first, last);
    const Gemm g{m.depth, all, decoded, m.bias, m.epilogue};
    for_each_chunk([&](const float* rows, int64_t step, int count, int64_t at) {
      const OutputStrides strides{16, 0, m.out_row};
      GemmPass pass(g, rows, step, out + at, strides, residual ? residual + at : nullptr);
      const float* weights = decoded;
      for (int n = block, blocks; n < block_end; n += blocks) {
        blocks = blocks_of_panel_at(n, all);
        const float* next = weights + int64_t{last - first} * blocks * 16;
        pass.panel(weights, next, first, last, 0, count, n, blocks);
        weights = next;
      }
    });
  }

  /// Multiply all rows with the last panel, whose last block is not full.
  void multiply_ragged(int block, float* own) const {
    decode(block, all, 0, m.depth);
    const int32_t last = m.columns - (all - 1) * 16;
    const Gemm g{m.depth, all, decoded - int64_t{block} * 16 * m.depth, m.bias, m.epilogue, last};
    for_each_chunk([&](const float* rows, int64_t step, int count, int64_t at) {
      ragged_panel(m, g, rows, step, out + at, residual ? residual + at : nullptr, own, count, block, all - block);
    });
  }
};

void many_rows(const PackedMatMul& p, const float* packed, float* out, const float* residual, float* scratch,
               const OutputRange& range) {
  const MatMul& m = p.product;
  const ManyRows product{p, packed, out, residual, scratch};
  const bool ragged = range.block_end == product.all && m.columns % 16;
  const int end = ragged ? last_panel(range.block, range.block_end, product.all) : range.block_end;
  const int depth = is_divisible(residual, m.epilogue) ? depth_of_pass(p.weights) : m.depth;
  const int most = decoded_blocks(m.rows, depth, kPanelBlocks);
  for (int first = 0, next; first < m.depth; first = next) {
    next = m.depth - first < depth ? m.depth : first + depth;
    for (int block = range.block, last = block; block < end; block = last) {
      while (last < end && (last == block || last + blocks_of_panel_at(last, product.all) - block <= most + 1))
        last += blocks_of_panel_at(last, product.all);
      product.multiply(block, last, first, next);
    }
  }
  if (ragged) product.multiply_ragged(end, scratch + floats_of_decoded(p, kPanelBlocks));
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_PACKED_MATMUL_ROWS_HPP
