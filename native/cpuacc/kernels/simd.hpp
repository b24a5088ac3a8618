// Vectors of floats, as wide as the registers of the instruction set that is compiled for.

#ifndef CPUACC_KERNELS_SIMD_HPP
#define CPUACC_KERNELS_SIMD_HPP

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "shuffle.hpp"

namespace cpuacc::ISA_NS {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRegisters = 16;
#elif defined(__x86_64__)
constexpr int kLanes = 4, kRegisters = 16;
#else
constexpr int kLanes = 4, kRegisters = 32;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef float LooseVec __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t BitVec __attribute__((vector_size(kLanes * 4)));  // wraps around where IntVec must not

#define CPUACC_INLINE static inline __attribute__((always_inline))

CPUACC_INLINE Vec load(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
CPUACC_INLINE void store(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
CPUACC_INLINE Vec all(float x) { return x - Vec{}; }

/// The larger one; v where it is not a number.
CPUACC_INLINE Vec at_least(Vec v, Vec low) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, low, v);
#elif defined(__AVX2__)
  return _mm256_max_ps(low, v);
#elif defined(__x86_64__)
  return _mm_max_ps(low, v);
#else
  return v < low ? low : v;
#endif
}

/// The smaller one; v where it is not a number.
CPUACC_INLINE Vec at_most(Vec v, Vec high) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, high, v);
#elif defined(__AVX2__)
  return _mm256_min_ps(high, v);
#elif defined(__x86_64__)
  return _mm_min_ps(high, v);
#else
  return v > high ? high : v;
#endif
}

template <int kBy>
CPUACC_INLINE Vec rotated(Vec v) {
  IntVec from;
#pragma GCC unroll 16
  for (int n = 0; n < kLanes; ++n) from[n] = (n + kBy) % kLanes;
  return shuffled(v, v, from);
}

CPUACC_INLINE float greatest_lane(Vec v) {
  if constexpr (kLanes == 16) v = at_least(v, rotated<8>(v));
  if constexpr (kLanes >= 8) v = at_least(v, rotated<4>(v));
  v = at_least(v, rotated<2>(v));
  return at_least(v, rotated<1>(v))[0];
}

CPUACC_INLINE float sum_of_lanes(Vec v) {
  if constexpr (kLanes == 16) v += rotated<8>(v);
  if constexpr (kLanes >= 8) v += rotated<4>(v);
  v += rotated<2>(v);
  return (v + rotated<1>(v))[0];
}

/// Whether a comparison holds in some lane.
CPUACC_INLINE bool any_lane(IntVec condition) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(condition), reinterpret_cast<__m512i>(condition)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(condition)) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_ps(reinterpret_cast<__m128>(condition)) != 0;
#else
  return (condition[0] | condition[1] | condition[2] | condition[3]) != 0;
#endif
}

CPUACC_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_SIMD_HPP
