// Operands of the products of blocked images and packed weights: floats, or, where this is compiled for avx512bf16, pairs
// of bfloat16, the numbers of two neighbouring channels in one word. A block of 16 words then holds 32 channels, and
// everything that counts words, from tiles to strips, is the same for both; sums are of float32.

#ifndef CPUACC_KERNELS_BFLOAT16_PAIRS_HPP
#define CPUACC_KERNELS_BFLOAT16_PAIRS_HPP

#include <string.h>

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

#if defined(__AVX512BF16__)
constexpr bool kBfloat16Pairs = true;
#else
constexpr bool kBfloat16Pairs = false;
#endif

/// Words for so many channels.
CPUACC_INLINE int words_of(int channels) { return kBfloat16Pairs ? (channels + 1) / 2 : channels; }
/// Blocks of 16 words for so many channels.
CPUACC_INLINE int word_blocks_of(int channels) { return (words_of(channels) + 15) / 16; }
/// Where the words of a block of 16 channels begin, among blocks that lie `step` words apart.
CPUACC_INLINE int64_t place_of_block(int block, int64_t step) {
  return kBfloat16Pairs ? block / 2 * step + block % 2 * 8 : block * step;
}

/// What two vectors of weights, one behind the other, hold: floats, or the pairs that `p` holds for both.
template <bool kBfloat16>
CPUACC_INLINE void load_both(const float* p, int64_t step, Vec* first, Vec* second) {
  if constexpr (kBfloat16) {
    const IntVec words = reinterpret_cast<IntVec>(load(p));
    *first = reinterpret_cast<Vec>(words << 16);
    *second = reinterpret_cast<Vec>(words & int32_t(0xffff0000));
  } else {
    *first = load(p);
    *second = load(p + step);
  }
}

/// 16 channels, from lane `v` on, as words.
CPUACC_INLINE void store_words(float* to, Vec x) {
#if defined(__AVX512BF16__)
  __m256i pairs = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs);
#else
  store(to, x);
#endif
}

/// A vector of channels of which the first `count` are there, and, where they become pairs, zeros instead of the others:
/// what fills a block up may be anything, and would be half of a word.
CPUACC_INLINE Vec only(Vec x, [[maybe_unused]] int count) {
#if defined(__AVX512BF16__)
  return _mm512_maskz_mov_ps(static_cast<__mmask16>((1u << count) - 1), x);
#else
  return x;
#endif
}

/// 16 numbers as words, of which the first `count` are there.
CPUACC_INLINE void store_row(const float* from, int count, float* to) {
  float own[16] = {};
  if (count < 16) from = static_cast<const float*>(memcpy(own, from, sizeof(float) * static_cast<size_t>(count)));
  for (int v = 0; v < 16; v += kLanes) store_words(to + v, load(from + v));
}

#if defined(__AVX512BF16__)
typedef int32_t AnyWord __attribute__((may_alias));
struct Pair {
  __m512i of;
};

template <int kStep>
CPUACC_INLINE auto broadcast(const float* p) {
  if constexpr (kStep == 1)
    return broadcast(*p);
  else
    return Pair{_mm512_set1_epi32(*reinterpret_cast<const AnyWord*>(p))};
}
CPUACC_INLINE Vec multiply_add(Pair x, Vec weights, Vec sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x.of), reinterpret_cast<__m512bh>(weights));
}
#else
template <int>
CPUACC_INLINE Vec broadcast(const float* p) {
  return broadcast(*p);
}
#endif
CPUACC_INLINE Vec multiply_add(Vec x, Vec weights, Vec sum) { return sum + x * weights; }

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_BFLOAT16_PAIRS_HPP
