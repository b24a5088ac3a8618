// Vectors of floats and integers, as wide as the registers of the instruction set that this is compiled for.

#ifndef CPUACC_KERNELS_SIMD_HPP
#define CPUACC_KERNELS_SIMD_HPP

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// GCC 12 reports the undefined vectors in its own immintrin.h as uninitialized.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

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
typedef uint32_t BitVec __attribute__((vector_size(kLanes * 4)));  // wraps around; overflow of IntVec is undefined

#define CPUACC_INLINE static inline __attribute__((always_inline))

CPUACC_INLINE Vec load(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
CPUACC_INLINE void store(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
CPUACC_INLINE Vec broadcast(float x) { return x - Vec{}; }

/// The larger number; NaN if v is NaN. Of two zeros, either.
CPUACC_INLINE Vec at_least(Vec v, Vec low) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, low, v);
#elif defined(__AVX2__)
  return _mm256_max_ps(low, v);
#elif defined(__x86_64__)
  return _mm_max_ps(low, v);
#elif defined(__aarch64__)
  return vmaxq_f32(low, v);
#else
  return v < low ? low : v;
#endif
}

/// The smaller number; NaN if v is NaN. Of two zeros, either.
CPUACC_INLINE Vec at_most(Vec v, Vec high) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, high, v);
#elif defined(__AVX2__)
  return _mm256_min_ps(high, v);
#elif defined(__x86_64__)
  return _mm_min_ps(high, v);
#elif defined(__aarch64__)
  return vminq_f32(high, v);
#else
  return v > high ? high : v;
#endif
}

/// Return v. The compiler cannot see that, so it cannot contract a product with a sum that follows.
CPUACC_INLINE Vec rounded(Vec v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#else
  asm("" : "+w"(v));
#endif
  return v;
}

/// Select elements of the concatenation of `a` and `b` by index. GCC has a builtin for this; Clang does not.
template <typename V, typename Numbers>
CPUACC_INLINE V shuffled(V a, V b, Numbers from) {
#if defined(__clang__)
  constexpr int count = sizeof(V) / sizeof(a[0]);
  V out;
  for (int n = 0; n < count; ++n) out[n] = from[n] < count ? a[from[n]] : b[from[n] - count];
  return out;
#else
  return __builtin_shuffle(a, b, from);
#endif
}

template <int kBy>
CPUACC_INLINE Vec rotated(Vec v) {
  IntVec from;
#pragma GCC unroll 16
  for (int n = 0; n < kLanes; ++n) from[n] = (n + kBy) % kLanes;
  return shuffled(v, v, from);
}

/// All bits of the first `count` lanes.
CPUACC_INLINE IntVec first_lanes(int64_t count) {
  IntVec numbers;
#pragma GCC unroll 16
  for (int n = 0; n < kLanes; ++n) numbers[n] = n;
  return numbers < static_cast<int32_t>(count);
}

/// Load the first `count` lanes from memory, and set the others to `filling`. Nothing else is read.
CPUACC_INLINE Vec load_some(const float* from, int64_t count, float filling) {
  if (count >= kLanes) return load(from);
#if defined(__AVX512F__)
  return _mm512_mask_loadu_ps(broadcast(filling), static_cast<__mmask16>((1u << count) - 1), from);
#elif defined(__AVX2__)
  const IntVec first = first_lanes(count);
  const __m256 loaded = _mm256_maskload_ps(from, reinterpret_cast<__m256i>(first));
  return _mm256_blendv_ps(broadcast(filling), loaded, reinterpret_cast<__m256>(first));
#elif defined(__aarch64__)
  const float32x4_t others = broadcast(filling);
  if (count < 2) return count == 1 ? vld1q_lane_f32(from, others, 0) : others;
  const float32x4_t two = vcombine_f32(vld1_f32(from), vget_high_f32(others));
  return count == 3 ? vld1q_lane_f32(from + 2, two, 2) : two;
#else
  Vec v = broadcast(filling);
  for (int64_t n = 0; n < count; ++n) v[n] = from[n];
  return v;
#endif
}

/// Store the first `count` lanes. Nothing else is written.
CPUACC_INLINE void store_some(float* to, Vec x, int64_t count) {
  if (count >= kLanes) return store(to, x);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), x);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(to, reinterpret_cast<__m256i>(first_lanes(count)), x);
#elif defined(__aarch64__)
  if (count == 1) return vst1q_lane_f32(to, x, 0);
  if (count >= 2) vst1_f32(to, vget_low_f32(x));
  if (count == 3) vst1q_lane_f32(to + 2, x, 2);
#else
  for (int64_t n = 0; n < count; ++n) to[n] = x[n];
#endif
}

CPUACC_INLINE float greatest_lane(Vec v) {
#if defined(__aarch64__)
  return vmaxvq_f32(v);
#else
  if constexpr (kLanes == 16) v = at_least(v, rotated<8>(v));
  if constexpr (kLanes >= 8) v = at_least(v, rotated<4>(v));
  v = at_least(v, rotated<2>(v));
  return at_least(v, rotated<1>(v))[0];
#endif
}

CPUACC_INLINE float sum_of_lanes(Vec v) {
#if defined(__aarch64__)
  return vaddvq_f32(v);
#else
  if constexpr (kLanes == 16) v += rotated<8>(v);
  if constexpr (kLanes >= 8) v += rotated<4>(v);
  v += rotated<2>(v);
  return (v + rotated<1>(v))[0];
#endif
}

/// Return whether a condition is true in any lane.
CPUACC_INLINE bool any_lane(IntVec condition) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(condition), reinterpret_cast<__m512i>(condition)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(condition)) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_ps(reinterpret_cast<__m128>(condition)) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32(reinterpret_cast<uint32x4_t>(condition)) != 0;
#else
  return (condition[0] | condition[1] | condition[2] | condition[3]) != 0;
#endif
}

CPUACC_INLINE void prefetch_line(const void* p) { __builtin_prefetch(p, 0, 2); }

// ---- Integers of 8, 16 and 32 bits, for the kernels on quantized values ---------------------------------------------

#if defined(__AVX512BW__)

typedef __m512i Ints;

CPUACC_INLINE Ints load(const void* from) { return _mm512_loadu_si512(from); }
CPUACC_INLINE void store(void* to, Ints x) { _mm512_storeu_si512(to, x); }
CPUACC_INLINE Ints splat(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
CPUACC_INLINE Ints bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
CPUACC_INLINE Ints shorts(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
CPUACC_INLINE Ints exclusive_or(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
CPUACC_INLINE Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
CPUACC_INLINE Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
CPUACC_INLINE Ints multiply(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
template <int BITS>
CPUACC_INLINE Ints shift_left(Ints x) {
  return _mm512_slli_epi32(x, BITS);
}
/// sum * multiplier / 2**31 * 2**shift, rounded after each factor, like `native::multiply` in common/fixed_point.hpp.
CPUACC_INLINE Ints fixed_point(Ints x, Ints multiplier, Ints shift) {
  Ints half = _mm512_set1_epi64(int64_t(1) << 30), none = _mm512_setzero_si512();
  x = _mm512_sllv_epi32(x, _mm512_max_epi32(shift, none));
  Ints even = _mm512_add_epi64(_mm512_mul_epi32(x, multiplier), half);
  Ints odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(multiplier, 32));
  odd = _mm512_slli_epi64(_mm512_add_epi64(odd, half), 1);
  x = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 31), 0xAAAA, odd);
  Ints right = _mm512_max_epi32(_mm512_sub_epi32(none, shift), none);
  Ints rounding = _mm512_srli_epi32(_mm512_sllv_epi32(_mm512_set1_epi32(1), right), 1);
  Ints negative = _mm512_maskz_srai_epi32(_mm512_test_epi32_mask(right, right), x, 31);
  return _mm512_srav_epi32(_mm512_add_epi32(_mm512_add_epi32(x, negative), rounding), right);
}
CPUACC_INLINE Ints low8(Ints a, Ints b) { return _mm512_unpacklo_epi8(a, b); }
CPUACC_INLINE Ints high8(Ints a, Ints b) { return _mm512_unpackhi_epi8(a, b); }
CPUACC_INLINE Ints low16(Ints a, Ints b) { return _mm512_unpacklo_epi16(a, b); }
CPUACC_INLINE Ints high16(Ints a, Ints b) { return _mm512_unpackhi_epi16(a, b); }
CPUACC_INLINE Ints to_shorts(Ints a, Ints b) { return _mm512_packs_epi32(a, b); }
CPUACC_INLINE Ints add_shorts(Ints a, Ints b) { return _mm512_adds_epi16(a, b); }
CPUACC_INLINE Ints to_bytes(Ints a, Ints b) { return _mm512_packus_epi16(a, b); }
CPUACC_INLINE Ints clamp_bytes(Ints x, Ints low, Ints high) { return _mm512_max_epu8(_mm512_min_epu8(x, high), low); }
CPUACC_INLINE Vec floats(Ints x) { return _mm512_cvtepi32_ps(x); }
CPUACC_INLINE Ints truncated(Vec x) { return _mm512_cvttps_epi32(x); }

CPUACC_INLINE Ints nearest(Vec x) { return _mm512_cvtps_epi32(x); }
CPUACC_INLINE Vec difference(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
CPUACC_INLINE Vec larger_size(Vec size, Vec x) { return _mm512_max_ps(size, _mm512_abs_ps(x)); }
CPUACC_INLINE bool exceeds(Vec x, float limit) { return _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0; }
/// a * b + c, rounded toward zero, so that truncating the result equals truncating the exact value.
CPUACC_INLINE Vec fused(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
CPUACC_INLINE Vec with_sign(Vec size, Vec sign) {
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(sign),
                                                       _mm512_castps_si512(size), 0xCA));
}

/// Four vectors of int32 that were packed to bytes hold 1, 2 or 4 rows of 4, 2 or 1 vectors. Make the rows consecutive.
CPUACC_INLINE Ints rows_of(Ints x, int vectors) {
  if (vectors == 2) return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), x);
  if (vectors == 1)
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
  return x;
}
/// The inverse of `rows_of`.
CPUACC_INLINE Ints packed(Ints x, int vectors) {
  if (vectors == 2) return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), x);
  if (vectors == 1)  // the permutation is a 4x4 transposition, its own inverse
    return rows_of(x, 1);
  return x;
}
/// trunc(x * scale + copysign(half, x)) in float64.
CPUACC_INLINE __m256i scaled_wide(__m256i x, const double* scale, const double* half) {
  __m512d wide = _mm512_cvtepi32_pd(x), size = _mm512_loadu_pd(half);
  __m512i with_sign = _mm512_ternarylogic_epi64(_mm512_set1_epi64(INT64_MIN), _mm512_castpd_si512(wide),
                                                _mm512_castpd_si512(size), 0xCA);
  return _mm512_cvttpd_epi32(_mm512_fmadd_pd(wide, _mm512_loadu_pd(scale), _mm512_castsi512_pd(with_sign)));
}
CPUACC_INLINE Ints scaled_wide(Ints x, const double* scale, const double* half) {
  __m256i low = scaled_wide(_mm512_castsi512_si256(x), scale, half);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low),
                            scaled_wide(_mm512_extracti64x4_epi64(x, 1), scale + 8, half + 8), 1);
}
CPUACC_INLINE __m256i scaled_wide_even(__m256i x, const double* scale, const double* shift) {
  return _mm512_cvtpd_epi32(_mm512_fmadd_pd(_mm512_cvtepi32_pd(x), _mm512_loadu_pd(scale), _mm512_loadu_pd(shift)));
}
CPUACC_INLINE Ints scaled_wide_even(Ints x, const double* scale, const double* shift) {
  __m256i low = scaled_wide_even(_mm512_castsi512_si256(x), scale, shift);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low),
                            scaled_wide_even(_mm512_extracti64x4_epi64(x, 1), scale + 8, shift + 8), 1);
}
/// A mask of the lowest `count` bytes; `count` is at most 64.
CPUACC_INLINE uint64_t lowest_bytes(int64_t count) { return _bzhi_u64(~uint64_t{0}, static_cast<uint32_t>(count)); }
CPUACC_INLINE void store_some(uint8_t* to, Ints x, int64_t count) {
  _mm512_mask_storeu_epi8(to, lowest_bytes(count), x);
}
/// Store the bytes [first, first + count) of a vector.
CPUACC_INLINE void store_piece(uint8_t* to, Ints x, int first, int count) {
  _mm512_mask_storeu_epi8(to - first, lowest_bytes(count) << first, x);
}
/// Load the bytes [first, first + count) into a vector.
CPUACC_INLINE Ints load_piece(Ints x, const uint8_t* from, int first, int count) {
  return _mm512_mask_loadu_epi8(x, lowest_bytes(count) << first, from - first);
}
CPUACC_INLINE Ints load_some(const uint8_t* from, int64_t count) {
  return _mm512_maskz_loadu_epi8(lowest_bytes(count), from);
}

#ifdef __AVX512VNNI__
/// vpdpbusd as inline assembly: with the intrinsic, GCC 12 copies the sums between registers, and spills them in large
/// tiles.
CPUACC_INLINE Ints dot(Ints sum, Ints a, Ints b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
#else
CPUACC_INLINE Ints dot(Ints sum, Ints a, Ints b) {
  Ints even = _mm512_madd_epi16(_mm512_and_si512(a, shorts(255)), _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
  return add(sum, add(even, _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8))));
}
#endif

#elif defined(__AVX2__)

typedef __m256i Ints;

CPUACC_INLINE Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
CPUACC_INLINE void store(void* to, Ints x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
CPUACC_INLINE Ints splat(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
CPUACC_INLINE Ints bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
CPUACC_INLINE Ints shorts(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
CPUACC_INLINE Ints exclusive_or(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
CPUACC_INLINE Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
CPUACC_INLINE Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
CPUACC_INLINE Ints multiply(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
template <int BITS>
CPUACC_INLINE Ints shift_left(Ints x) {
  return _mm256_slli_epi32(x, BITS);
}
CPUACC_INLINE Ints fixed_point(Ints x, Ints multiplier, Ints shift) {
  Ints half = _mm256_set1_epi64x(int64_t(1) << 30), none = _mm256_setzero_si256();
  x = _mm256_sllv_epi32(x, _mm256_max_epi32(shift, none));
  Ints even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), half);
  Ints odd = _mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(multiplier, 32));
  odd = _mm256_slli_epi64(_mm256_add_epi64(odd, half), 1);
  x = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), odd, 0xAA);
  Ints right = _mm256_max_epi32(_mm256_sub_epi32(none, shift), none);
  Ints rounding = _mm256_srli_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(1), right), 1);
  Ints negative = _mm256_and_si256(_mm256_srai_epi32(x, 31), _mm256_cmpgt_epi32(right, none));
  return _mm256_srav_epi32(_mm256_add_epi32(_mm256_add_epi32(x, negative), rounding), right);
}
CPUACC_INLINE Ints low8(Ints a, Ints b) { return _mm256_unpacklo_epi8(a, b); }
CPUACC_INLINE Ints high8(Ints a, Ints b) { return _mm256_unpackhi_epi8(a, b); }
CPUACC_INLINE Ints low16(Ints a, Ints b) { return _mm256_unpacklo_epi16(a, b); }
CPUACC_INLINE Ints high16(Ints a, Ints b) { return _mm256_unpackhi_epi16(a, b); }
CPUACC_INLINE Ints to_shorts(Ints a, Ints b) { return _mm256_packs_epi32(a, b); }
CPUACC_INLINE Ints add_shorts(Ints a, Ints b) { return _mm256_adds_epi16(a, b); }
CPUACC_INLINE Ints to_bytes(Ints a, Ints b) { return _mm256_packus_epi16(a, b); }
CPUACC_INLINE Ints clamp_bytes(Ints x, Ints low, Ints high) { return _mm256_max_epu8(_mm256_min_epu8(x, high), low); }
CPUACC_INLINE Vec floats(Ints x) { return _mm256_cvtepi32_ps(x); }
CPUACC_INLINE Ints truncated(Vec x) { return _mm256_cvttps_epi32(x); }
CPUACC_INLINE Vec fused(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
CPUACC_INLINE Vec with_sign(Vec size, Vec sign) {
  return _mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), sign), size);
}
CPUACC_INLINE Ints rows_of(Ints x, int vectors) {
  if (vectors == 2) return _mm256_permute4x64_epi64(x, 0xD8);
  if (vectors == 1) return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return x;
}
CPUACC_INLINE Ints packed(Ints x, int vectors) {
  if (vectors == 2) return _mm256_permute4x64_epi64(x, 0xD8);
  if (vectors == 1) return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return x;
}
CPUACC_INLINE Ints nearest(Vec x) { return _mm256_cvtps_epi32(x); }
CPUACC_INLINE Vec difference(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
CPUACC_INLINE Vec larger_size(Vec size, Vec x) {
  return _mm256_max_ps(size, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x));
}
CPUACC_INLINE bool exceeds(Vec x, float limit) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
}
CPUACC_INLINE __m128i scaled_wide(__m128i x, const double* scale, const double* half) {
  __m256d wide = _mm256_cvtepi32_pd(x), sign = _mm256_and_pd(_mm256_set1_pd(-0.0), wide);
  return _mm256_cvttpd_epi32(_mm256_fmadd_pd(wide, _mm256_loadu_pd(scale), _mm256_or_pd(sign, _mm256_loadu_pd(half))));
}
CPUACC_INLINE Ints scaled_wide(Ints x, const double* scale, const double* half) {
  __m128i low = scaled_wide(_mm256_castsi256_si128(x), scale, half);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                 scaled_wide(_mm256_extracti128_si256(x, 1), scale + 4, half + 4), 1);
}
CPUACC_INLINE __m128i scaled_wide_even(__m128i x, const double* scale, const double* shift) {
  return _mm256_cvtpd_epi32(_mm256_fmadd_pd(_mm256_cvtepi32_pd(x), _mm256_loadu_pd(scale), _mm256_loadu_pd(shift)));
}
CPUACC_INLINE Ints scaled_wide_even(Ints x, const double* scale, const double* shift) {
  __m128i low = scaled_wide_even(_mm256_castsi256_si128(x), scale, shift);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                 scaled_wide_even(_mm256_extracti128_si256(x, 1), scale + 4, shift + 4), 1);
}
CPUACC_INLINE Ints dot(Ints sum, Ints a, Ints b) {
  Ints even = _mm256_madd_epi16(_mm256_and_si256(a, shorts(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  return add(sum, add(even, _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8))));
}

#elif defined(__x86_64__)

typedef __m128i Ints;

CPUACC_INLINE Ints load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
CPUACC_INLINE void store(void* to, Ints x) { _mm_storeu_si128(static_cast<__m128i*>(to), x); }
CPUACC_INLINE Ints splat(uint32_t x) { return _mm_set1_epi32(static_cast<int>(x)); }
CPUACC_INLINE Ints bytes(int x) { return _mm_set1_epi8(static_cast<char>(x)); }
CPUACC_INLINE Ints shorts(int x) { return _mm_set1_epi16(static_cast<short>(x)); }
CPUACC_INLINE Ints exclusive_or(Ints a, Ints b) { return _mm_xor_si128(a, b); }
CPUACC_INLINE Ints add(Ints a, Ints b) { return _mm_add_epi32(a, b); }
CPUACC_INLINE Ints multiply(Ints a, Ints b) {
  Ints even = _mm_mul_epu32(a, b), odd = _mm_mul_epu32(_mm_srli_epi64(a, 32), _mm_srli_epi64(b, 32));
  return _mm_unpacklo_epi32(_mm_shuffle_epi32(even, 0x08), _mm_shuffle_epi32(odd, 0x08));
}
CPUACC_INLINE Ints subtract(Ints a, Ints b) { return _mm_sub_epi32(a, b); }
CPUACC_INLINE Ints low8(Ints a, Ints b) { return _mm_unpacklo_epi8(a, b); }
CPUACC_INLINE Ints high8(Ints a, Ints b) { return _mm_unpackhi_epi8(a, b); }
CPUACC_INLINE Ints low16(Ints a, Ints b) { return _mm_unpacklo_epi16(a, b); }
CPUACC_INLINE Ints high16(Ints a, Ints b) { return _mm_unpackhi_epi16(a, b); }
CPUACC_INLINE Ints to_shorts(Ints a, Ints b) { return _mm_packs_epi32(a, b); }
CPUACC_INLINE Ints add_shorts(Ints a, Ints b) { return _mm_adds_epi16(a, b); }
CPUACC_INLINE Ints to_bytes(Ints a, Ints b) { return _mm_packus_epi16(a, b); }
CPUACC_INLINE Ints clamp_bytes(Ints x, Ints low, Ints high) { return _mm_max_epu8(_mm_min_epu8(x, high), low); }
CPUACC_INLINE Vec floats(Ints x) { return _mm_cvtepi32_ps(x); }
CPUACC_INLINE Ints truncated(Vec x) { return _mm_cvttps_epi32(x); }
CPUACC_INLINE Vec fused(Vec a, Vec b, Vec c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
CPUACC_INLINE Vec with_sign(Vec size, Vec sign) { return _mm_or_ps(_mm_and_ps(_mm_set1_ps(-0.0f), sign), size); }
CPUACC_INLINE Ints rows_of(Ints x, int) { return x; }
CPUACC_INLINE Ints packed(Ints x, int) { return x; }
CPUACC_INLINE Ints nearest(Vec x) { return _mm_cvtps_epi32(x); }
CPUACC_INLINE Vec difference(Vec a, Vec b) { return _mm_sub_ps(a, b); }
CPUACC_INLINE Vec larger_size(Vec size, Vec x) { return _mm_max_ps(size, _mm_andnot_ps(_mm_set1_ps(-0.0f), x)); }
CPUACC_INLINE bool exceeds(Vec x, float limit) { return _mm_movemask_ps(_mm_cmpgt_ps(x, _mm_set1_ps(limit))) != 0; }
CPUACC_INLINE Ints dot(Ints sum, Ints a, Ints b) {
  Ints even = _mm_madd_epi16(_mm_and_si128(a, shorts(255)), _mm_srai_epi16(_mm_slli_epi16(b, 8), 8));
  return add(sum, add(even, _mm_madd_epi16(_mm_srli_epi16(a, 8), _mm_srai_epi16(b, 8))));
}

#elif defined(__aarch64__)

typedef int32x4_t Ints;

CPUACC_INLINE uint8x16_t as_u8(Ints x) { return vreinterpretq_u8_s32(x); }
CPUACC_INLINE int8x16_t as_s8(Ints x) { return vreinterpretq_s8_s32(x); }
CPUACC_INLINE int16x8_t as_s16(Ints x) { return vreinterpretq_s16_s32(x); }
CPUACC_INLINE Ints as_ints(uint8x16_t x) { return vreinterpretq_s32_u8(x); }
CPUACC_INLINE Ints as_ints(int16x8_t x) { return vreinterpretq_s32_s16(x); }

CPUACC_INLINE Ints load(const void* from) { return as_ints(vld1q_u8(static_cast<const uint8_t*>(from))); }
CPUACC_INLINE void store(void* to, Ints x) { vst1q_u8(static_cast<uint8_t*>(to), as_u8(x)); }
CPUACC_INLINE Ints splat(uint32_t x) { return vdupq_n_s32(static_cast<int32_t>(x)); }
CPUACC_INLINE Ints bytes(int x) { return as_ints(vdupq_n_u8(static_cast<uint8_t>(x))); }
CPUACC_INLINE Ints shorts(int x) { return as_ints(vdupq_n_s16(static_cast<int16_t>(x))); }
CPUACC_INLINE Ints exclusive_or(Ints a, Ints b) { return veorq_s32(a, b); }
CPUACC_INLINE Ints add(Ints a, Ints b) { return vaddq_s32(a, b); }
CPUACC_INLINE Ints subtract(Ints a, Ints b) { return vsubq_s32(a, b); }
CPUACC_INLINE Ints multiply(Ints a, Ints b) { return vmulq_s32(a, b); }
template <int BITS>
CPUACC_INLINE Ints shift_left(Ints x) {
  return vshlq_n_s32(x, BITS);
}
/// Load two neighbouring vectors, BYTES after `from`, with one instruction: GCC often takes two. Both are operands, so
/// that the compiler knows what is read. Ump is an address of LDP, which Clang does not know.
template <int BYTES, class V>
CPUACC_INLINE void load_pair(const void* from, V* first, V* second) {
  typedef V Loose __attribute__((aligned(1), may_alias));
  const Loose* at = reinterpret_cast<const Loose*>(static_cast<const char*>(from) + BYTES);
#if defined(__clang__)
  *first = at[0], *second = at[1];
#else
  asm("ldp %q0, %q1, %2" : "=w"(*first), "=w"(*second) : "Ump"(at[0]), "m"(at[1]));
#endif
}
/// SQRDMULH rounds half up, as the reference does: it adds half a step before the shift. SRSHL by a negative number
/// rounds half up too, so negative numbers are first moved by one to round half away from zero.
CPUACC_INLINE Ints fixed_point(Ints x, Ints multiplier, Ints left, Ints right) {
  x = vqrdmulhq_s32(vshlq_s32(x, left), multiplier);
  const Ints negative = vshrq_n_s32(vandq_s32(x, right), 31);  // -1 where both are negative
  return vrshlq_s32(vqaddq_s32(x, negative), right);
}
CPUACC_INLINE Ints fixed_point(Ints x, Ints multiplier, Ints shift) {
  const Ints none = vdupq_n_s32(0);
  return fixed_point(x, multiplier, vmaxq_s32(shift, none), vminq_s32(shift, none));
}
CPUACC_INLINE Ints low8(Ints a, Ints b) { return as_ints(vzip1q_u8(as_u8(a), as_u8(b))); }
CPUACC_INLINE Ints high8(Ints a, Ints b) { return as_ints(vzip2q_u8(as_u8(a), as_u8(b))); }
CPUACC_INLINE Ints low16(Ints a, Ints b) { return as_ints(vzip1q_s16(as_s16(a), as_s16(b))); }
CPUACC_INLINE Ints high16(Ints a, Ints b) { return as_ints(vzip2q_s16(as_s16(a), as_s16(b))); }
CPUACC_INLINE Ints to_shorts(Ints a, Ints b) { return as_ints(vqmovn_high_s32(vqmovn_s32(a), b)); }
CPUACC_INLINE Ints add_shorts(Ints a, Ints b) { return as_ints(vqaddq_s16(as_s16(a), as_s16(b))); }
CPUACC_INLINE Ints to_bytes(Ints a, Ints b) { return as_ints(vqmovun_high_s16(vqmovun_s16(as_s16(a)), as_s16(b))); }
CPUACC_INLINE Ints clamp_bytes(Ints x, Ints low, Ints high) {
  return as_ints(vmaxq_u8(vminq_u8(as_u8(x), as_u8(high)), as_u8(low)));
}
CPUACC_INLINE Vec floats(Ints x) { return vcvtq_f32_s32(x); }
/// Numbers beyond int32 saturate, and NaN becomes 0. On x86, both become the least integer.
CPUACC_INLINE Ints truncated(Vec x) { return vcvtq_s32_f32(x); }
CPUACC_INLINE Ints nearest(Vec x) { return vcvtnq_s32_f32(x); }
CPUACC_INLINE Vec fused(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
/// a * b[LANE] + c, where `a` and `b` are vectors. As inline assembly: with the intrinsic, GCC 12 copies the sums of
/// large tiles between registers.
template <int LANE>
CPUACC_INLINE Vec fused_by_lane(Vec a, Vec b, Vec c) {
  asm("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(c) : "w"(a), "w"(b), "i"(LANE));
  return c;
}
CPUACC_INLINE Vec with_sign(Vec size, Vec sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, size); }
CPUACC_INLINE Ints rows_of(Ints x, int) { return x; }
CPUACC_INLINE Ints packed(Ints x, int) { return x; }
CPUACC_INLINE Vec difference(Vec a, Vec b) { return vsubq_f32(a, b); }
CPUACC_INLINE Vec larger_size(Vec size, Vec x) { return vmaxnmq_f32(size, vabsq_f32(x)); }
CPUACC_INLINE bool exceeds(Vec x, float limit) { return vmaxvq_u32(vcgtq_f32(x, vdupq_n_f32(limit))) != 0; }

/// Two lanes of int32 as float64.
CPUACC_INLINE float64x2_t low_wide(Ints x) { return vcvtq_f64_s64(vmovl_s32(vget_low_s32(x))); }
CPUACC_INLINE float64x2_t high_wide(Ints x) { return vcvtq_f64_s64(vmovl_high_s32(x)); }
CPUACC_INLINE Ints narrow(int64x2_t low, int64x2_t high) { return vqmovn_high_s64(vqmovn_s64(low), high); }
CPUACC_INLINE int64x2_t scaled_wide(float64x2_t x, const double* scale, const double* half) {
  const float64x2_t size = vbslq_f64(vdupq_n_u64(uint64_t(1) << 63), x, vld1q_f64(half));
  return vcvtq_s64_f64(vfmaq_f64(size, x, vld1q_f64(scale)));
}
CPUACC_INLINE Ints scaled_wide(Ints x, const double* scale, const double* half) {
  return narrow(scaled_wide(low_wide(x), scale, half), scaled_wide(high_wide(x), scale + 2, half + 2));
}
CPUACC_INLINE int64x2_t scaled_wide_even(float64x2_t x, const double* scale, const double* shift) {
  return vcvtnq_s64_f64(vfmaq_f64(vld1q_f64(shift), x, vld1q_f64(scale)));
}
CPUACC_INLINE Ints scaled_wide_even(Ints x, const double* scale, const double* shift) {
  return narrow(scaled_wide_even(low_wide(x), scale, shift), scaled_wide_even(high_wide(x), scale + 2, shift + 2));
}

template <class T>
CPUACC_INLINE T unaligned(const uint8_t* from) {
  T x;
  memcpy(&x, from, sizeof(x));
  return x;
}
template <class T>
CPUACC_INLINE void unaligned(uint8_t* to, uint64_t bits) {
  const T x = static_cast<T>(bits);
  memcpy(to, &x, sizeof(x));
}
/// Load up to 7 bytes. Two loads overlap in the middle.
CPUACC_INLINE uint64_t load_few(const uint8_t* from, int64_t count) {
  if (count >= 4)
    return unaligned<uint32_t>(from) | uint64_t{unaligned<uint32_t>(from + count - 4)} << (8 * (count - 4));
  if (count < 1) return 0;
  return from[0] | uint64_t{from[count / 2]} << (8 * (count / 2)) | uint64_t{from[count - 1]} << (8 * (count - 1));
}
CPUACC_INLINE void store_few(uint8_t* to, uint64_t bits, int64_t count) {
  if (count >= 4) {
    unaligned<uint32_t>(to, bits);
    unaligned<uint32_t>(to + count - 4, bits >> (8 * (count - 4)));
  } else if (count > 0) {
    to[0] = static_cast<uint8_t>(bits);
    to[count / 2] = static_cast<uint8_t>(bits >> (8 * (count / 2)));
    to[count - 1] = static_cast<uint8_t>(bits >> (8 * (count - 1)));
  }
}
/// Load up to 16 bytes, and fill the others with zeros.
CPUACC_INLINE Ints load_some(const uint8_t* from, int64_t count) {
  if (count >= 16) return load(from);
  const uint64_t low = count < 8 ? load_few(from, count) : unaligned<uint64_t>(from);
  const uint64_t high = count < 9 ? 0 : unaligned<uint64_t>(from + count - 8) >> (8 * (16 - count));
  return vreinterpretq_s32_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}
CPUACC_INLINE void store_some(uint8_t* to, Ints x, int64_t count) {
  if (count >= 16) return store(to, x);
  const uint64x2_t halves = vreinterpretq_u64_s32(x);
  const uint64_t low = vgetq_lane_u64(halves, 0), high = vgetq_lane_u64(halves, 1);
  if (count < 8) return store_few(to, low, count);
  unaligned<uint64_t>(to, low);
  if (count > 8) unaligned<uint64_t>(to + count - 8, low >> (8 * (count - 8)) | high << (8 * (16 - count)));
}
/// The numbers of the bytes of a vector.
CPUACC_INLINE uint8x16_t byte_numbers() {
  return vcombine_u8(vcreate_u8(0x0706050403020100u), vcreate_u8(0x0f0e0d0c0b0a0908u));
}
CPUACC_INLINE void store_piece(uint8_t* to, Ints x, int first, int count) {
  const uint8x16_t from = vaddq_u8(byte_numbers(), vdupq_n_u8(static_cast<uint8_t>(first)));
  store_some(to, as_ints(vqtbl1q_u8(as_u8(x), from)), count);
}
CPUACC_INLINE Ints load_piece(Ints x, const uint8_t* from, int first, int count) {
  const uint8x16_t at = vsubq_u8(byte_numbers(), vdupq_n_u8(static_cast<uint8_t>(first)));
  const uint8x16_t inside = vcltq_u8(at, vdupq_n_u8(static_cast<uint8_t>(count)));
  return as_ints(vbslq_u8(inside, vqtbl1q_u8(as_u8(load_some(from, count)), at), as_u8(x)));
}

#else

// Other processors: vectors of 16 bytes of the compiler.
typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(16)));

CPUACC_INLINE Ints load(const void* from) {
  Ints x;
  memcpy(&x, from, sizeof(x));
  return x;
}
CPUACC_INLINE void store(void* to, Ints x) { memcpy(to, &x, sizeof(x)); }
CPUACC_INLINE Ints splat(uint32_t x) { return Ints{} + static_cast<int32_t>(x); }
CPUACC_INLINE Ints bytes(int x) { return reinterpret_cast<Ints>(Bytes{} + static_cast<uint8_t>(x)); }
CPUACC_INLINE Ints shorts(int x) { return reinterpret_cast<Ints>(Shorts{} + static_cast<int16_t>(x)); }
CPUACC_INLINE Ints exclusive_or(Ints a, Ints b) { return a ^ b; }
CPUACC_INLINE Ints add(Ints a, Ints b) {
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  return reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
}
CPUACC_INLINE Ints multiply(Ints a, Ints b) {
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  return reinterpret_cast<Ints>(reinterpret_cast<Unsigned>(a) * reinterpret_cast<Unsigned>(b));
}
CPUACC_INLINE Ints subtract(Ints a, Ints b) { return add(a, add(~b, splat(1))); }
template <class Parts>
CPUACC_INLINE Ints interleaved(Ints a, Ints b, int first) {
  Parts x = reinterpret_cast<Parts>(a), y = reinterpret_cast<Parts>(b), z;
  constexpr int count = static_cast<int>(16 / sizeof(x[0]));
  for (int n = 0; n < count / 2; ++n) z[2 * n] = x[first * (count / 2) + n], z[2 * n + 1] = y[first * (count / 2) + n];
  return reinterpret_cast<Ints>(z);
}
CPUACC_INLINE Ints low8(Ints a, Ints b) { return interleaved<Bytes>(a, b, 0); }
CPUACC_INLINE Ints high8(Ints a, Ints b) { return interleaved<Bytes>(a, b, 1); }
CPUACC_INLINE Ints low16(Ints a, Ints b) { return interleaved<Shorts>(a, b, 0); }
CPUACC_INLINE Ints high16(Ints a, Ints b) { return interleaved<Shorts>(a, b, 1); }
CPUACC_INLINE int bounded(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
CPUACC_INLINE Ints to_shorts(Ints a, Ints b) {
  Shorts z;
  for (int n = 0; n < 4; ++n)
    z[n] = static_cast<int16_t>(bounded(a[n], -32768, 32767)),
    z[n + 4] = static_cast<int16_t>(bounded(b[n], -32768, 32767));
  return reinterpret_cast<Ints>(z);
}
CPUACC_INLINE Ints add_shorts(Ints a, Ints b) {
  Shorts x = reinterpret_cast<Shorts>(a), y = reinterpret_cast<Shorts>(b), z;
  for (int n = 0; n < 8; ++n) z[n] = static_cast<int16_t>(bounded(x[n] + y[n], -32768, 32767));
  return reinterpret_cast<Ints>(z);
}
CPUACC_INLINE Ints to_bytes(Ints a, Ints b) {
  Shorts x = reinterpret_cast<Shorts>(a), y = reinterpret_cast<Shorts>(b);
  Bytes z;
  for (int n = 0; n < 8; ++n)
    z[n] = static_cast<uint8_t>(bounded(x[n], 0, 255)), z[n + 8] = static_cast<uint8_t>(bounded(y[n], 0, 255));
  return reinterpret_cast<Ints>(z);
}
CPUACC_INLINE Ints clamp_bytes(Ints x, Ints low, Ints high) {
  Bytes z = reinterpret_cast<Bytes>(x), l = reinterpret_cast<Bytes>(low), h = reinterpret_cast<Bytes>(high);
  for (int n = 0; n < 16; ++n) z[n] = static_cast<uint8_t>(bounded(z[n], l[n], h[n]));
  return reinterpret_cast<Ints>(z);
}
CPUACC_INLINE Vec floats(Ints x) { return __builtin_convertvector(x, Vec); }
CPUACC_INLINE Ints truncated(Vec x) {
  Ints z;
  for (int n = 0; n < 4; ++n)
    z[n] = x[n] < 2147483648.0f && x[n] >= -2147483648.0f ? static_cast<int32_t>(x[n]) : INT32_MIN;
  return z;
}
CPUACC_INLINE Vec fused(Vec a, Vec b, Vec c) { return a * b + c; }
CPUACC_INLINE Vec with_sign(Vec size, Vec sign) {
  return reinterpret_cast<Vec>((reinterpret_cast<Ints>(sign) & splat(0x80000000u)) | reinterpret_cast<Ints>(size));
}
CPUACC_INLINE Ints rows_of(Ints x, int) { return x; }
CPUACC_INLINE Ints packed(Ints x, int) { return x; }
CPUACC_INLINE Ints nearest(Vec x) {
  Ints z;
  for (int n = 0; n < 4; ++n) z[n] = static_cast<int32_t>(rintf(x[n]));
  return z;
}
CPUACC_INLINE Vec difference(Vec a, Vec b) { return a - b; }
CPUACC_INLINE Vec larger_size(Vec size, Vec x) {
  for (int n = 0; n < 4; ++n) size[n] = fabsf(x[n]) > size[n] ? fabsf(x[n]) : size[n];
  return size;
}
CPUACC_INLINE bool exceeds(Vec x, float limit) { return x[0] > limit || x[1] > limit || x[2] > limit || x[3] > limit; }
CPUACC_INLINE Ints dot(Ints sum, Ints a, Ints b) {
  Bytes x = reinterpret_cast<Bytes>(a), y = reinterpret_cast<Bytes>(b);
  for (int n = 0; n < 4; ++n)
    for (int k = 0; k < 4; ++k) sum[n] += x[4 * n + k] * static_cast<int8_t>(y[4 * n + k]);
  return sum;
}

#endif

#if !defined(__AVX2__) && !defined(__aarch64__)
CPUACC_INLINE Ints scaled_wide(Ints x, const double* scale, const double* half) {
  int32_t whole[4];
  store(whole, x);
  for (int n = 0; n < 4; ++n) {
    double size = whole[n] < 0 ? -half[n] : half[n];
    whole[n] = static_cast<int32_t>(whole[n] * scale[n] + size);
  }
  return load(whole);
}
CPUACC_INLINE Ints scaled_wide_even(Ints x, const double* scale, const double* shift) {
  int32_t whole[4];
  store(whole, x);
  for (int n = 0; n < 4; ++n) whole[n] = static_cast<int32_t>(__builtin_nearbyint(whole[n] * scale[n] + shift[n]));
  return load(whole);
}
template <int BITS>
CPUACC_INLINE Ints shift_left(Ints x) {
  return multiply(x, splat(uint32_t(1) << BITS));
}
CPUACC_INLINE Ints fixed_point(Ints x, Ints multiplier, Ints shift) {
  int32_t from[4], by[4], left[4];
  store(from, x);
  store(by, multiplier);
  store(left, shift);
  for (int n = 0; n < 4; ++n) {
    int32_t whole = left[n] > 0 ? static_cast<int32_t>(static_cast<uint32_t>(from[n]) << left[n]) : from[n];
    int64_t high = (static_cast<int64_t>(whole) * by[n] + (int64_t(1) << 30)) >> 31;
    if (left[n] < 0) high = (high + (int64_t(1) << (-left[n] - 1)) - (high < 0 ? 1 : 0)) >> -left[n];
    from[n] = static_cast<int32_t>(high);
  }
  return load(from);
}
#endif

#if !defined(__AVX512BW__) && !defined(__aarch64__)
CPUACC_INLINE void store_some(uint8_t* to, Ints x, int64_t count) {
  uint8_t all[4 * kLanes];
  store(all, x);
  memcpy(to, all, static_cast<size_t>(count));
}
CPUACC_INLINE Ints load_some(const uint8_t* from, int64_t count) {
  uint8_t all[4 * kLanes] = {};
  memcpy(all, from, static_cast<size_t>(count));
  return load(all);
}
CPUACC_INLINE void store_piece(uint8_t* to, Ints x, int first, int count) {
  uint8_t all[4 * kLanes];
  store(all, x);
  memcpy(to, all + first, static_cast<size_t>(count));
}
CPUACC_INLINE Ints load_piece(Ints x, const uint8_t* from, int first, int count) {
  uint8_t all[4 * kLanes];
  store(all, x);
  memcpy(all + first, from, static_cast<size_t>(count));
  return load(all);
}
#endif

// ---- Sums of four products of bytes in each lane --------------------------------------------------------------------

#if defined(__aarch64__) && !defined(__ARM_FEATURE_DOTPROD)
/// Without dot products, a lane has two partial sums. `low` has those of lanes 0 and 1, `high` those of lanes 2 and 3.
struct DotSums {
  Ints low, high;
};
CPUACC_INLINE DotSums dot_sums(Ints begin) {
  return {vzip1q_s32(begin, vdupq_n_s32(0)), vzip2q_s32(begin, vdupq_n_s32(0))};
}
CPUACC_INLINE Ints total(DotSums sums) { return vpaddq_s32(sums.low, sums.high); }
/// Add products of signed bytes.
CPUACC_INLINE DotSums dot(DotSums sums, Ints a, Ints b) {
  sums.low = vpadalq_s16(sums.low, vmull_s8(vget_low_s8(as_s8(a)), vget_low_s8(as_s8(b))));
  sums.high = vpadalq_s16(sums.high, vmull_high_s8(as_s8(a), as_s8(b)));
  return sums;
}
#else
typedef Ints DotSums;
CPUACC_INLINE DotSums dot_sums(Ints begin) { return begin; }
CPUACC_INLINE Ints total(DotSums sums) { return sums; }
#endif
#if defined(__ARM_FEATURE_DOTPROD)
/// Add products of signed bytes.
CPUACC_INLINE DotSums dot(DotSums sums, Ints a, Ints b) { return vdotq_s32(sums, as_s8(a), as_s8(b)); }
#endif
/// Whether `dot` multiplies signed bytes with signed weights; otherwise, the bytes are unsigned.
#if defined(__aarch64__)
constexpr bool kSignedDots = true;
#else
constexpr bool kSignedDots = false;
#endif

CPUACC_INLINE void store_bytes(uint8_t* to, Ints x, int64_t count) {
  if (count >= 4 * kLanes)
    store(to, x);
  else
    store_some(to, x, count);
}
/// Store the lowest byte of each lane.
CPUACC_INLINE void store_low_bytes(uint8_t* to, Ints x) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
#elif defined(__AVX2__)
  const __m128i low = _mm_set1_epi32(0xff);
  __m128i a = _mm_and_si128(_mm256_castsi256_si128(x), low), b = _mm_and_si128(_mm256_extracti128_si256(x, 1), low);
  __m128i shorts = _mm_packs_epi32(a, b);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(shorts, shorts));
#elif defined(__aarch64__)
  const uint16x4_t halves = vmovn_u32(vreinterpretq_u32_s32(x));
  const uint8x8_t low = vmovn_u16(vcombine_u16(halves, halves));
  unaligned<uint32_t>(to, vget_lane_u32(vreinterpret_u32_u8(low), 0));
#else
  int32_t lanes[kLanes];
  store(lanes, x);
  for (int n = 0; n < kLanes; ++n) to[n] = static_cast<uint8_t>(lanes[n]);
#endif
}
CPUACC_INLINE Ints load_bytes(const uint8_t* from, int64_t count) {
  return count >= 4 * kLanes ? load(from) : load_some(from, count);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_SIMD_HPP
