// Tiles of products of bytes on Arm: signed bytes of pixels and signed weights.

#ifndef CPUACC_KERNELS_TILES_NEON_HPP
#define CPUACC_KERNELS_TILES_NEON_HPP

#include "cpuacc/kernels/q8.hpp"
#include "cpuacc/kernels/simd.hpp"

#if defined(__aarch64__)

namespace cpuacc::ISA_NS {
namespace {

/// Four bytes in each lane.
CPUACC_INLINE Ints load_word(const uint8_t* from) { return vld1q_dup_s32(reinterpret_cast<const int32_t*>(from)); }

#if defined(__ARM_FEATURE_DOTPROD)
/// Add the products of four signed bytes in each lane of `a` and those in lane LANE of `b`. As inline assembly: with
/// the intrinsic, GCC 12 copies the sums of large tiles between registers.
template <int LANE>
CPUACC_INLINE Ints dot_by_lane(Ints sum, int8x16_t a, int8x16_t b) {
  asm("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(a), "w"(b), "i"(LANE));
  return sum;
}

/// Add the products of word LANE of each pixel with vectors FIRST and FIRST + 1, whose weights begin at byte AT.
template <int LANE, int FIRST, int AT, int ROWS, int VECTORS>
CPUACC_INLINE void add_to_pair(DotSums (&sum)[ROWS][VECTORS], const Ints (&x)[ROWS], const int8_t* weights) {
  int8x16_t v, w;
  load_pair<AT>(weights, &v, &w);
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m) {
    sum[m][FIRST] = dot_by_lane<LANE>(sum[m][FIRST], v, as_s8(x[m]));
    sum[m][FIRST + 1] = dot_by_lane<LANE>(sum[m][FIRST + 1], w, as_s8(x[m]));
  }
}
#endif

/// Add the products of word LANE of each pixel with the weights of word WORD, which are (word, vector, lane, 4).
template <int LANE, int WORD, int ROWS, int VECTORS>
CPUACC_INLINE void add_word(DotSums (&sum)[ROWS][VECTORS], const Ints (&x)[ROWS], const int8_t* weights) {
  constexpr int at = WORD * VECTORS * 16;
#if defined(__ARM_FEATURE_DOTPROD)
  if constexpr (VECTORS > 1) add_to_pair<LANE, 0, at>(sum, x, weights);
  if constexpr (VECTORS > 2) add_to_pair<LANE, 2, at + 32>(sum, x, weights);
  if constexpr (VECTORS > 1) return;
  const int8x16_t w = as_s8(load(weights + at));
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m) sum[m][0] = dot_by_lane<LANE>(sum[m][0], w, as_s8(x[m]));
#else
  Ints word[ROWS];
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m) word[m] = vdupq_laneq_s32(x[m], LANE);
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n) {
    const Ints w = load(weights + at + n * 16);
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; ++m) sum[m][n] = dot(sum[m][n], word[m], w);
  }
#endif
}

#if !defined(__ARM_FEATURE_DOTPROD)
/// Add the products of words LANE and LANE + 1. Their sums fit 16 bits unless two weights are -128.
template <int LANE, int ROWS, int VECTORS>
CPUACC_INLINE void add_two_words(DotSums (&sum)[ROWS][VECTORS], const Ints (&x)[ROWS], const int8_t* weights) {
  int8x16_t first[ROWS], second[ROWS];
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m)
    first[m] = as_s8(vdupq_laneq_s32(x[m], LANE)), second[m] = as_s8(vdupq_laneq_s32(x[m], LANE + 1));
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n) {
    const int8x16_t v = as_s8(load(weights + n * 16)), w = as_s8(load(weights + (VECTORS + n) * 16));
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; ++m) {
      const int16x8_t low = vmull_s8(vget_low_s8(first[m]), vget_low_s8(v)), high = vmull_high_s8(first[m], v);
      sum[m][n].low = vpadalq_s16(sum[m][n].low, vmlal_s8(low, vget_low_s8(second[m]), vget_low_s8(w)));
      sum[m][n].high = vpadalq_s16(sum[m][n].high, vmlal_high_s8(high, second[m], w));
    }
  }
}
#endif

/// Add the products of four words.
template <bool SMALL, int ROWS, int VECTORS>
CPUACC_INLINE void add_four_words(DotSums (&sum)[ROWS][VECTORS], const Ints (&x)[ROWS], const int8_t* weights) {
#if !defined(__ARM_FEATURE_DOTPROD)
  if constexpr (SMALL) {
    add_two_words<0>(sum, x, weights);
    add_two_words<2>(sum, x, weights + 2 * VECTORS * 16);
    return;
  }
#endif
  add_word<0, 0>(sum, x, weights);
  add_word<1, 1>(sum, x, weights);
  add_word<2, 2>(sum, x, weights);
  add_word<3, 3>(sum, x, weights);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kWeightBytes = 8;  // consecutive bytes of a channel in packed weights

CPUACC_INLINE int64x1_t load_eight(const uint8_t* from) { return vreinterpret_s64_u8(vld1_u8(from)); }
CPUACC_INLINE int8x16_t both(int64x1_t first, int64x1_t second) {
  return vreinterpretq_s8_s64(vcombine_s64(first, second));
}

/// Add the products of two rows of eight signed bytes in `a` and two in `b`, as inline assembly like `dot_by_lane`.
CPUACC_INLINE Ints multiply_matrices(Ints sum, int8x16_t a, int8x16_t b) {
  asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
}

/// Add the products of eight bytes of pairs of pixels with four channels, whose weights begin at byte AT. A vector of
/// sums has two channels of the first pixel, and two of the second.
template <int VECTOR, int AT, int PAIRS, int VECTORS>
CPUACC_INLINE void add_matrices(Ints (&sum)[PAIRS][VECTORS][2], const int8x16_t (&x)[PAIRS], const int8_t* weights) {
  int8x16_t v, w;
  load_pair<AT + VECTOR * 32>(weights, &v, &w);
#pragma GCC unroll 8
  for (int m = 0; m < PAIRS; ++m) {
    sum[m][VECTOR][0] = multiply_matrices(sum[m][VECTOR][0], x[m], v);
    sum[m][VECTOR][1] = multiply_matrices(sum[m][VECTOR][1], x[m], w);
  }
  if constexpr (VECTOR + 1 < VECTORS) add_matrices<VECTOR + 1, AT>(sum, x, weights);
}

/// Compute a tile of ROWS pixels by VECTORS vectors of output channels in registers. FLIP: the highest bit of each byte
/// is inverted. An odd row is multiplied twice.
template <int ROWS, int VECTORS, bool FLIP, bool>
static void neon_tile(const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  constexpr int pairs = (ROWS + 1) / 2, block = VECTORS * 32;
  Ints sum[pairs][VECTORS][2];
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n) {
    const int64x2_t begin = vreinterpretq_s64_s32(load(bias + n * kLanes));
#pragma GCC unroll 8
    for (int m = 0; m < pairs; ++m) {
      sum[m][n][0] = vreinterpretq_s32_s64(vdupq_laneq_s64(begin, 0));
      sum[m][n][1] = vreinterpretq_s32_s64(vdupq_laneq_s64(begin, 1));
    }
  }
  const int64_t step = from.step;
  const Ints flip = splat(0x80808080u);
  for (int64_t s = 0; s < from.segment_count; ++s) {
    const uint8_t* p = from.segments[s] + from.offset;
    int64_t k = from.words;
    for (; k >= 4; k -= 4, p += 16, weights += 2 * block) {
      int8x16_t low[pairs], high[pairs];
#pragma GCC unroll 8
      for (int m = 0; m < pairs; ++m) {
        Ints a = load(p + 2 * m * step), b = load(p + (2 * m + (2 * m + 1 < ROWS)) * step);
        if (FLIP) a = exclusive_or(a, flip), b = exclusive_or(b, flip);
        low[m] = vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
        high[m] = vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
      }
      add_matrices<0, 0>(sum, low, weights);
      add_matrices<0, block>(sum, high, weights);
    }
    if (k > 0) {
      int8x16_t x[pairs];
#pragma GCC unroll 8
      for (int m = 0; m < pairs; ++m) {
        x[m] = both(load_eight(p + 2 * m * step), load_eight(p + (2 * m + (2 * m + 1 < ROWS)) * step));
        if (FLIP) x[m] = as_s8(exclusive_or(vreinterpretq_s32_s8(x[m]), flip));
      }
      add_matrices<0, 0>(sum, x, weights);
      weights += block;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) {
      const int64x2_t a = vreinterpretq_s64_s32(sum[m / 2][n][0]), b = vreinterpretq_s64_s32(sum[m / 2][n][1]);
      store(sums + (m * VECTORS + n) * kLanes, vreinterpretq_s32_s64(m % 2 ? vzip2q_s64(a, b) : vzip1q_s64(a, b)));
    }
}
#else
constexpr int kWeightBytes = 4;  // consecutive bytes of a channel in packed weights

/// Compute a tile of ROWS pixels by VECTORS vectors of output channels in registers. FLIP: the highest bit of each byte
/// is inverted. SMALL: no weight is -128.
template <int ROWS, int VECTORS, bool FLIP, bool SMALL>
static void neon_tile(const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  constexpr int word = VECTORS * 16;
  DotSums sum[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n)
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; ++m) sum[m][n] = dot_sums(load(bias + n * kLanes));
  const int64_t step = from.step;
  const Ints flip = splat(0x80808080u);
  for (int64_t s = 0; s < from.segment_count; ++s) {
    const uint8_t* p = from.segments[s] + from.offset;
    int64_t k = from.words;
    for (; k >= 4; k -= 4, p += 16, weights += 4 * word) {
      Ints x[ROWS];
#pragma GCC unroll 16
      for (int m = 0; m < ROWS; ++m) x[m] = FLIP ? exclusive_or(load(p + m * step), flip) : load(p + m * step);
      add_four_words<SMALL>(sum, x, weights);
    }
#pragma GCC unroll 1
    for (; k > 0; --k, p += 4, weights += word) {
      Ints x[ROWS];
#pragma GCC unroll 16
      for (int m = 0; m < ROWS; ++m)
        x[m] = FLIP ? exclusive_or(load_word(p + m * step), flip) : load_word(p + m * step);
      add_word<0, 0>(sum, x, weights);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) store(sums + (m * VECTORS + n) * kLanes, total(sum[m][n]));
}
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
// Sums, both halves of the pixels and a pair of weights fit 32 registers.
constexpr int kTileRows[5] = {0, 8, 8, 0, 6};
#elif defined(__ARM_FEATURE_DOTPROD)
// Sums, pixels, a pair of weights and the flip fit 32 registers.
constexpr int kTileRows[5] = {0, 8, 8, 0, 5};
#else
// Sums are twice as many.
constexpr int kTileRows[5] = {0, 4, 4, 0, 2};
#endif

/// The sums of one pixel and a panel.
template <int VECTORS>
struct RowSums {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  static constexpr int kWords = 2;
  // A vector has two sums of two channels.
  Ints low[VECTORS], high[VECTORS];

  explicit __attribute__((always_inline)) RowSums(const int32_t* bias) {
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) {
      const Ints begin = load(bias + n * kLanes);
      low[n] = vzip1q_s32(begin, vdupq_n_s32(0)), high[n] = vzip2q_s32(begin, vdupq_n_s32(0));
    }
  }
  static __attribute__((always_inline)) Ints load_some(const uint8_t* from) {
    return vreinterpretq_s32_s64(vld1q_dup_s64(reinterpret_cast<const int64_t*>(from)));
  }
  /// Eight bytes, which both halves of `x` hold.
  __attribute__((always_inline)) void add_some(Ints x, const int8_t* weights) {
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) {
      Ints v, w;
      load_pair<0>(weights + 32 * n, &v, &w);
      low[n] = dot(low[n], x, v);
      high[n] = dot(high[n], x, w);
    }
  }
  __attribute__((always_inline)) void add_four(Ints x, const int8_t* weights) {
    const int64x2_t halves = vreinterpretq_s64_s32(x);
    add_some(vreinterpretq_s32_s64(vdupq_laneq_s64(halves, 0)), weights);
    add_some(vreinterpretq_s32_s64(vdupq_laneq_s64(halves, 1)), weights + VECTORS * 32);
  }
  __attribute__((always_inline)) Ints total(int n) const { return vpaddq_s32(low[n], high[n]); }
#else
  static constexpr int kWords = 1;
  DotSums even[1][VECTORS], odd[1][VECTORS];  // so that a product does not wait for the one before

  explicit __attribute__((always_inline)) RowSums(const int32_t* bias) {
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) {
      even[0][n] = dot_sums(load(bias + n * kLanes));
      odd[0][n] = dot_sums(splat(0));
    }
  }
  static __attribute__((always_inline)) Ints load_some(const uint8_t* from) { return load_word(from); }
  __attribute__((always_inline)) void add_some(Ints x, const int8_t* weights) {
    const Ints pixel[1] = {x};
    add_word<0, 0>(even, pixel, weights);
  }
  __attribute__((always_inline)) void add_four(Ints x, const int8_t* weights) {
    const Ints pixel[1] = {x};
    add_word<0, 0>(even, pixel, weights);
    add_word<1, 1>(odd, pixel, weights);
    add_word<2, 2>(even, pixel, weights);
    add_word<3, 3>(odd, pixel, weights);
  }
  __attribute__((always_inline)) Ints total(int n) const {
    return add(ISA_NS::total(even[0][n]), ISA_NS::total(odd[0][n]));
  }
#endif
};

typedef void (*NeonTile)(const Q8Rows&, const int8_t*, const int32_t*, int32_t*);

/// The tiles of a panel by their rows.
template <int VECTORS, bool FLIP, bool SMALL>
struct NeonTiles {
  template <int ROWS>
  static constexpr NeonTile at() {
    if constexpr (ROWS <= kTileRows[VECTORS])
      return neon_tile<ROWS, VECTORS, FLIP, SMALL>;
    else
      return nullptr;
  }
  static constexpr NeonTile of[9] = {nullptr, at<1>(), at<2>(), at<3>(), at<4>(), at<5>(), at<6>(), at<7>(), at<8>()};
};

template <bool FLIP, bool SMALL>
CPUACC_INLINE NeonTile find_neon_tile(int rows, int vectors) {
  if (vectors == 4) return NeonTiles<4, FLIP, SMALL>::of[rows];
  return vectors == 2 ? NeonTiles<2, FLIP, SMALL>::of[rows] : NeonTiles<1, FLIP, SMALL>::of[rows];
}

#if defined(__ARM_FEATURE_DOTPROD)
constexpr bool kSmallMatters = false;
#else
constexpr bool kSmallMatters = true;
#endif

CPUACC_INLINE NeonTile find_neon_tile(int rows, int vectors, const Q8Rows& from) {
  if (kSmallMatters && from.small)
    return from.flip ? find_neon_tile<true, kSmallMatters>(rows, vectors)
                     : find_neon_tile<false, kSmallMatters>(rows, vectors);
  return from.flip ? find_neon_tile<true, false>(rows, vectors) : find_neon_tile<false, false>(rows, vectors);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif
#endif  // CPUACC_KERNELS_TILES_NEON_HPP
