// Operands of the GEMMs: floats, or pairs of bfloat16 if compiled for avx512bf16. A pair holds two neighbouring
// channels in one word of 32 bits, so that a block of 16 words holds 32 channels. Code that counts words is the same
// for both. Sums are float32.

#ifndef CPUACC_KERNELS_BFLOAT16_PAIRS_HPP
#define CPUACC_KERNELS_BFLOAT16_PAIRS_HPP

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

#if defined(__AVX512BF16__)
constexpr bool kBfloat16Pairs = true;
#else
constexpr bool kBfloat16Pairs = false;
#endif

/// Words that hold `channels` channels.
CPUACC_INLINE int words_of(int channels) { return kBfloat16Pairs ? (channels + 1) / 2 : channels; }
/// Blocks of 16 words that hold `channels` channels.
CPUACC_INLINE int word_blocks_of(int channels) { return (words_of(channels) + 15) / 16; }
/// The offset of the words of a block of 16 channels, in blocks of words that are `step` words apart.
CPUACC_INLINE int64_t place_of_block(int block, int64_t step) {
  return kBfloat16Pairs ? block / 2 * step + block % 2 * 8 : block * step;
}

/// Load the weights of two neighbouring input channels: two vectors that are `step` floats apart, or the two halves of
/// one vector of pairs.
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

/// Store a vector of 16 channels as words.
CPUACC_INLINE void store_words(float* to, Vec x) {
#if defined(__AVX512BF16__)
  __m256i pairs = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs);
#else
  store(to, x);
#endif
}

/// Set all lanes but the first `count` to zero if channels become pairs. Padding may hold any value, and would become
/// half of a word.
CPUACC_INLINE Vec only(Vec x, [[maybe_unused]] int count) {
#if defined(__AVX512BF16__)
  return _mm512_maskz_mov_ps(static_cast<__mmask16>((1u << count) - 1), x);
#else
  return x;
#endif
}

/// Store 16 numbers, of which the first `count` are valid, as words.
CPUACC_INLINE void store_row(const float* from, int count, float* to) {
  if (count == 16)
    for (int v = 0; v < 16; v += kLanes) store_words(to + v, load(from + v));
  else
    for (int v = 0; v < 16; v += kLanes) store_words(to + v, load_some(from + v, count > v ? count - v : 0, 0));
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
