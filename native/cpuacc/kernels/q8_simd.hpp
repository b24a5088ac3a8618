// Vectors of int32 for the kernels on codes, one definition for every instruction set. Included in kernels/q8.cpp only.

#ifndef CPUACC_KERNELS_Q8_SIMD_HPP
#define CPUACC_KERNELS_Q8_SIMD_HPP

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

// gcc 12 takes the undefined vectors in its own immintrin.h for uninitialized ones.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define INLINE static inline __attribute__((always_inline))

namespace cpuacc::ISA_NS {
namespace {

#if defined(__AVX512BW__)

typedef __m512i Vec;
typedef __m512 Floats;
constexpr int kLanes = 16;

INLINE Vec load(const void* from) { return _mm512_loadu_si512(from); }
INLINE void store(void* to, Vec x) { _mm512_storeu_si512(to, x); }
INLINE Vec splat(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
INLINE Vec bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
INLINE Vec shorts(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
INLINE Vec exclusive_or(Vec a, Vec b) { return _mm512_xor_si512(a, b); }
INLINE Vec add(Vec a, Vec b) { return _mm512_add_epi32(a, b); }
INLINE Vec subtract(Vec a, Vec b) { return _mm512_sub_epi32(a, b); }
INLINE Vec multiply(Vec a, Vec b) { return _mm512_mullo_epi32(a, b); }
template <int BITS>
INLINE Vec shift_left(Vec x) {
  return _mm512_slli_epi32(x, BITS);
}
/// Sums times multiplier / 2**31 * 2**shift, rounded after each of both, as cpuref/fixedpoint.hpp has it.
INLINE Vec fixed_point(Vec x, Vec multiplier, Vec shift) {
  Vec half = _mm512_set1_epi64(int64_t(1) << 30), none = _mm512_setzero_si512();
  x = _mm512_sllv_epi32(x, _mm512_max_epi32(shift, none));
  Vec even = _mm512_add_epi64(_mm512_mul_epi32(x, multiplier), half);
  Vec odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(multiplier, 32));
  odd = _mm512_slli_epi64(_mm512_add_epi64(odd, half), 1);
  x = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 31), 0xAAAA, odd);
  Vec right = _mm512_max_epi32(_mm512_sub_epi32(none, shift), none);
  Vec rounding = _mm512_srli_epi32(_mm512_sllv_epi32(_mm512_set1_epi32(1), right), 1);
  Vec negative = _mm512_maskz_srai_epi32(_mm512_test_epi32_mask(right, right), x, 31);
  return _mm512_srav_epi32(_mm512_add_epi32(_mm512_add_epi32(x, negative), rounding), right);
}
INLINE Vec low8(Vec a, Vec b) { return _mm512_unpacklo_epi8(a, b); }
INLINE Vec high8(Vec a, Vec b) { return _mm512_unpackhi_epi8(a, b); }
INLINE Vec low16(Vec a, Vec b) { return _mm512_unpacklo_epi16(a, b); }
INLINE Vec high16(Vec a, Vec b) { return _mm512_unpackhi_epi16(a, b); }
INLINE Vec to_shorts(Vec a, Vec b) { return _mm512_packs_epi32(a, b); }
INLINE Vec add_shorts(Vec a, Vec b) { return _mm512_adds_epi16(a, b); }
INLINE Vec to_bytes(Vec a, Vec b) { return _mm512_packus_epi16(a, b); }
INLINE Vec clamp_bytes(Vec x, Vec low, Vec high) { return _mm512_max_epu8(_mm512_min_epu8(x, high), low); }
INLINE Floats floats(Vec x) { return _mm512_cvtepi32_ps(x); }
INLINE Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
INLINE Floats splat_float(float x) { return _mm512_set1_ps(x); }
INLINE Vec truncated(Floats x) { return _mm512_cvttps_epi32(x); }

INLINE Vec nearest(Floats x) { return _mm512_cvtps_epi32(x); }
INLINE Floats difference(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
INLINE Floats larger_size(Floats size, Floats x) { return _mm512_max_ps(size, _mm512_abs_ps(x)); }
INLINE bool exceeds(Floats x, float limit) { return _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0; }
/// a * b + c, rounded towards zero: comparing it with a whole number gives what the exact value gives.
INLINE Floats fused(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
INLINE Floats with_sign(Floats size, Floats sign) {
  return _mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(sign), _mm512_castps_si512(size), 0xCA));
}

/// Four vectors of int32 that were packed to bytes are 1, 2 or 4 rows of 4, 2 or 1 vectors: puts the rows one behind
/// the other.
INLINE Vec rows_of(Vec x, int vectors) {
  if (vectors == 2) return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), x);
  if (vectors == 1)
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
  return x;
}
/// The other way round.
INLINE Vec packed(Vec x, int vectors) {
  if (vectors == 2) return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), x);
  if (vectors == 1)  // a transposed square
    return rows_of(x, 1);
  return x;
}
/// trunc(x * scale + half with the sign of x) in float64.
INLINE __m256i scaled_wide(__m256i x, const double* scale, const double* half) {
  __m512d wide = _mm512_cvtepi32_pd(x), size = _mm512_loadu_pd(half);
  __m512i with_sign = _mm512_ternarylogic_epi64(_mm512_set1_epi64(INT64_MIN), _mm512_castpd_si512(wide),
                                                _mm512_castpd_si512(size), 0xCA);
  return _mm512_cvttpd_epi32(_mm512_fmadd_pd(wide, _mm512_loadu_pd(scale), _mm512_castsi512_pd(with_sign)));
}
INLINE Vec scaled_wide(Vec x, const double* scale, const double* half) {
  __m256i low = scaled_wide(_mm512_castsi512_si256(x), scale, half);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), scaled_wide(_mm512_extracti64x4_epi64(x, 1), scale + 8, half + 8), 1);
}
INLINE void store_some(uint8_t* to, Vec x, int64_t count) {
  _mm512_mask_storeu_epi8(to, (uint64_t(1) << count) - 1, x);
}
/// Bytes [first, first + count) of a vector.
INLINE void store_piece(uint8_t* to, Vec x, int first, int count) {
  _mm512_mask_storeu_epi8(to - first, ((uint64_t(1) << count) - 1) << first, x);
}
INLINE Vec load_piece(Vec x, const uint8_t* from, int first, int count) {
  return _mm512_mask_loadu_epi8(x, ((uint64_t(1) << count) - 1) << first, from - first);
}
INLINE Vec load_some(const uint8_t* from, int64_t count) {
  return _mm512_maskz_loadu_epi8((uint64_t(1) << count) - 1, from);
}

#ifdef __AVX512VNNI__
/// As an instruction: gcc moves the sums of an intrinsic from register to register, and through memory where there are
/// many.
INLINE Vec dot(Vec sum, Vec a, Vec b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
#else
INLINE Vec dot(Vec sum, Vec a, Vec b) {
  Vec even = _mm512_madd_epi16(_mm512_and_si512(a, shorts(255)), _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
  return add(sum, add(even, _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8))));
}
#endif

#elif defined(__AVX2__)

typedef __m256i Vec;
typedef __m256 Floats;
constexpr int kLanes = 8;

INLINE Vec load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
INLINE void store(void* to, Vec x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
INLINE Vec splat(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
INLINE Vec bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
INLINE Vec shorts(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
INLINE Vec exclusive_or(Vec a, Vec b) { return _mm256_xor_si256(a, b); }
INLINE Vec add(Vec a, Vec b) { return _mm256_add_epi32(a, b); }
INLINE Vec subtract(Vec a, Vec b) { return _mm256_sub_epi32(a, b); }
INLINE Vec multiply(Vec a, Vec b) { return _mm256_mullo_epi32(a, b); }
template <int BITS>
INLINE Vec shift_left(Vec x) {
  return _mm256_slli_epi32(x, BITS);
}
INLINE Vec fixed_point(Vec x, Vec multiplier, Vec shift) {
  Vec half = _mm256_set1_epi64x(int64_t(1) << 30), none = _mm256_setzero_si256();
  x = _mm256_sllv_epi32(x, _mm256_max_epi32(shift, none));
  Vec even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), half);
  Vec odd = _mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(multiplier, 32));
  odd = _mm256_slli_epi64(_mm256_add_epi64(odd, half), 1);
  x = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), odd, 0xAA);
  Vec right = _mm256_max_epi32(_mm256_sub_epi32(none, shift), none);
  Vec rounding = _mm256_srli_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(1), right), 1);
  Vec negative = _mm256_and_si256(_mm256_srai_epi32(x, 31), _mm256_cmpgt_epi32(right, none));
  return _mm256_srav_epi32(_mm256_add_epi32(_mm256_add_epi32(x, negative), rounding), right);
}
INLINE Vec low8(Vec a, Vec b) { return _mm256_unpacklo_epi8(a, b); }
INLINE Vec high8(Vec a, Vec b) { return _mm256_unpackhi_epi8(a, b); }
INLINE Vec low16(Vec a, Vec b) { return _mm256_unpacklo_epi16(a, b); }
INLINE Vec high16(Vec a, Vec b) { return _mm256_unpackhi_epi16(a, b); }
INLINE Vec to_shorts(Vec a, Vec b) { return _mm256_packs_epi32(a, b); }
INLINE Vec add_shorts(Vec a, Vec b) { return _mm256_adds_epi16(a, b); }
INLINE Vec to_bytes(Vec a, Vec b) { return _mm256_packus_epi16(a, b); }
INLINE Vec clamp_bytes(Vec x, Vec low, Vec high) { return _mm256_max_epu8(_mm256_min_epu8(x, high), low); }
INLINE Floats floats(Vec x) { return _mm256_cvtepi32_ps(x); }
INLINE Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
INLINE Floats splat_float(float x) { return _mm256_set1_ps(x); }
INLINE Vec truncated(Floats x) { return _mm256_cvttps_epi32(x); }
INLINE Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Floats with_sign(Floats size, Floats sign) {
  return _mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), sign), size);
}
INLINE Vec rows_of(Vec x, int vectors) {
  if (vectors == 2) return _mm256_permute4x64_epi64(x, 0xD8);
  if (vectors == 1) return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return x;
}
INLINE Vec packed(Vec x, int vectors) {
  if (vectors == 2) return _mm256_permute4x64_epi64(x, 0xD8);
  if (vectors == 1) return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return x;
}
INLINE Vec nearest(Floats x) { return _mm256_cvtps_epi32(x); }
INLINE Floats difference(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
INLINE Floats larger_size(Floats size, Floats x) { return _mm256_max_ps(size, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)); }
INLINE bool exceeds(Floats x, float limit) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
}
INLINE __m128i scaled_wide(__m128i x, const double* scale, const double* half) {
  __m256d wide = _mm256_cvtepi32_pd(x), sign = _mm256_and_pd(_mm256_set1_pd(-0.0), wide);
  return _mm256_cvttpd_epi32(_mm256_fmadd_pd(wide, _mm256_loadu_pd(scale), _mm256_or_pd(sign, _mm256_loadu_pd(half))));
}
INLINE Vec scaled_wide(Vec x, const double* scale, const double* half) {
  __m128i low = scaled_wide(_mm256_castsi256_si128(x), scale, half);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), scaled_wide(_mm256_extracti128_si256(x, 1), scale + 4, half + 4), 1);
}
INLINE Vec dot(Vec sum, Vec a, Vec b) {
  Vec even = _mm256_madd_epi16(_mm256_and_si256(a, shorts(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  return add(sum, add(even, _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8))));
}

#elif defined(__SSE2__)

typedef __m128i Vec;
typedef __m128 Floats;
constexpr int kLanes = 4;

INLINE Vec load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
INLINE void store(void* to, Vec x) { _mm_storeu_si128(static_cast<__m128i*>(to), x); }
INLINE Vec splat(uint32_t x) { return _mm_set1_epi32(static_cast<int>(x)); }
INLINE Vec bytes(int x) { return _mm_set1_epi8(static_cast<char>(x)); }
INLINE Vec shorts(int x) { return _mm_set1_epi16(static_cast<short>(x)); }
INLINE Vec exclusive_or(Vec a, Vec b) { return _mm_xor_si128(a, b); }
INLINE Vec add(Vec a, Vec b) { return _mm_add_epi32(a, b); }
INLINE Vec multiply(Vec a, Vec b) {
  Vec even = _mm_mul_epu32(a, b), odd = _mm_mul_epu32(_mm_srli_epi64(a, 32), _mm_srli_epi64(b, 32));
  return _mm_unpacklo_epi32(_mm_shuffle_epi32(even, 0x08), _mm_shuffle_epi32(odd, 0x08));
}
INLINE Vec subtract(Vec a, Vec b) { return _mm_sub_epi32(a, b); }
INLINE Vec low8(Vec a, Vec b) { return _mm_unpacklo_epi8(a, b); }
INLINE Vec high8(Vec a, Vec b) { return _mm_unpackhi_epi8(a, b); }
INLINE Vec low16(Vec a, Vec b) { return _mm_unpacklo_epi16(a, b); }
INLINE Vec high16(Vec a, Vec b) { return _mm_unpackhi_epi16(a, b); }
INLINE Vec to_shorts(Vec a, Vec b) { return _mm_packs_epi32(a, b); }
INLINE Vec add_shorts(Vec a, Vec b) { return _mm_adds_epi16(a, b); }
INLINE Vec to_bytes(Vec a, Vec b) { return _mm_packus_epi16(a, b); }
INLINE Vec clamp_bytes(Vec x, Vec low, Vec high) { return _mm_max_epu8(_mm_min_epu8(x, high), low); }
INLINE Floats floats(Vec x) { return _mm_cvtepi32_ps(x); }
INLINE Floats load_floats(const float* from) { return _mm_loadu_ps(from); }
INLINE Floats splat_float(float x) { return _mm_set1_ps(x); }
INLINE Vec truncated(Floats x) { return _mm_cvttps_epi32(x); }
INLINE Floats fused(Floats a, Floats b, Floats c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
INLINE Floats with_sign(Floats size, Floats sign) { return _mm_or_ps(_mm_and_ps(_mm_set1_ps(-0.0f), sign), size); }
INLINE Vec rows_of(Vec x, int) { return x; }
INLINE Vec packed(Vec x, int) { return x; }
INLINE Vec nearest(Floats x) { return _mm_cvtps_epi32(x); }
INLINE Floats difference(Floats a, Floats b) { return _mm_sub_ps(a, b); }
INLINE Floats larger_size(Floats size, Floats x) { return _mm_max_ps(size, _mm_andnot_ps(_mm_set1_ps(-0.0f), x)); }
INLINE bool exceeds(Floats x, float limit) { return _mm_movemask_ps(_mm_cmpgt_ps(x, _mm_set1_ps(limit))) != 0; }
INLINE Vec dot(Vec sum, Vec a, Vec b) {
  Vec even = _mm_madd_epi16(_mm_and_si128(a, shorts(255)), _mm_srai_epi16(_mm_slli_epi16(b, 8), 8));
  return add(sum, add(even, _mm_madd_epi16(_mm_srli_epi16(a, 8), _mm_srai_epi16(b, 8))));
}

#else

// Any processor: vectors of 16 bytes that the compiler knows.
typedef int32_t Vec __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(16)));
constexpr int kLanes = 4;

INLINE Vec load(const void* from) {
  Vec x;
  memcpy(&x, from, sizeof(x));
  return x;
}
INLINE void store(void* to, Vec x) { memcpy(to, &x, sizeof(x)); }
INLINE Vec splat(uint32_t x) { return Vec{} + static_cast<int32_t>(x); }
INLINE Vec bytes(int x) { return reinterpret_cast<Vec>(Bytes{} + static_cast<uint8_t>(x)); }
INLINE Vec shorts(int x) { return reinterpret_cast<Vec>(Shorts{} + static_cast<int16_t>(x)); }
INLINE Vec exclusive_or(Vec a, Vec b) { return a ^ b; }
INLINE Vec add(Vec a, Vec b) {
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  return reinterpret_cast<Vec>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
}
INLINE Vec multiply(Vec a, Vec b) {
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  return reinterpret_cast<Vec>(reinterpret_cast<Unsigned>(a) * reinterpret_cast<Unsigned>(b));
}
INLINE Vec subtract(Vec a, Vec b) { return add(a, add(~b, splat(1))); }
template <class Parts>
INLINE Vec interleaved(Vec a, Vec b, int first) {
  Parts x = reinterpret_cast<Parts>(a), y = reinterpret_cast<Parts>(b), z;
  constexpr int count = static_cast<int>(16 / sizeof(x[0]));
  for (int n = 0; n < count / 2; ++n) z[2 * n] = x[first * (count / 2) + n], z[2 * n + 1] = y[first * (count / 2) + n];
  return reinterpret_cast<Vec>(z);
}
INLINE Vec low8(Vec a, Vec b) { return interleaved<Bytes>(a, b, 0); }
INLINE Vec high8(Vec a, Vec b) { return interleaved<Bytes>(a, b, 1); }
INLINE Vec low16(Vec a, Vec b) { return interleaved<Shorts>(a, b, 0); }
INLINE Vec high16(Vec a, Vec b) { return interleaved<Shorts>(a, b, 1); }
INLINE int bounded(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
INLINE Vec to_shorts(Vec a, Vec b) {
  Shorts z;
  for (int n = 0; n < 4; ++n)
    z[n] = static_cast<int16_t>(bounded(a[n], -32768, 32767)), z[n + 4] = static_cast<int16_t>(bounded(b[n], -32768, 32767));
  return reinterpret_cast<Vec>(z);
}
INLINE Vec add_shorts(Vec a, Vec b) {
  Shorts x = reinterpret_cast<Shorts>(a), y = reinterpret_cast<Shorts>(b), z;
  for (int n = 0; n < 8; ++n) z[n] = static_cast<int16_t>(bounded(x[n] + y[n], -32768, 32767));
  return reinterpret_cast<Vec>(z);
}
INLINE Vec to_bytes(Vec a, Vec b) {
  Shorts x = reinterpret_cast<Shorts>(a), y = reinterpret_cast<Shorts>(b);
  Bytes z;
  for (int n = 0; n < 8; ++n)
    z[n] = static_cast<uint8_t>(bounded(x[n], 0, 255)), z[n + 8] = static_cast<uint8_t>(bounded(y[n], 0, 255));
  return reinterpret_cast<Vec>(z);
}
INLINE Vec clamp_bytes(Vec x, Vec low, Vec high) {
  Bytes z = reinterpret_cast<Bytes>(x), l = reinterpret_cast<Bytes>(low), h = reinterpret_cast<Bytes>(high);
  for (int n = 0; n < 16; ++n) z[n] = static_cast<uint8_t>(bounded(z[n], l[n], h[n]));
  return reinterpret_cast<Vec>(z);
}
INLINE Floats floats(Vec x) { return __builtin_convertvector(x, Floats); }
INLINE Floats load_floats(const float* from) { return reinterpret_cast<Floats>(load(from)); }
INLINE Floats splat_float(float x) { return Floats{} + x; }
INLINE Vec truncated(Floats x) {
  Vec z;
  for (int n = 0; n < 4; ++n) z[n] = x[n] < 2147483648.0f && x[n] >= -2147483648.0f ? static_cast<int32_t>(x[n]) : INT32_MIN;
  return z;
}
INLINE Floats fused(Floats a, Floats b, Floats c) { return a * b + c; }
INLINE Floats with_sign(Floats size, Floats sign) {
  return reinterpret_cast<Floats>((reinterpret_cast<Vec>(sign) & splat(0x80000000u)) | reinterpret_cast<Vec>(size));
}
INLINE Vec rows_of(Vec x, int) { return x; }
INLINE Vec packed(Vec x, int) { return x; }
INLINE Vec nearest(Floats x) {
  Vec z;
  for (int n = 0; n < 4; ++n) z[n] = static_cast<int32_t>(rintf(x[n]));
  return z;
}
INLINE Floats difference(Floats a, Floats b) { return a - b; }
INLINE Floats larger_size(Floats size, Floats x) {
  for (int n = 0; n < 4; ++n) size[n] = fabsf(x[n]) > size[n] ? fabsf(x[n]) : size[n];
  return size;
}
INLINE bool exceeds(Floats x, float limit) { return x[0] > limit || x[1] > limit || x[2] > limit || x[3] > limit; }
INLINE Vec dot(Vec sum, Vec a, Vec b) {
  Bytes x = reinterpret_cast<Bytes>(a), y = reinterpret_cast<Bytes>(b);
  for (int n = 0; n < 4; ++n)
    for (int k = 0; k < 4; ++k) sum[n] += x[4 * n + k] * static_cast<int8_t>(y[4 * n + k]);
  return sum;
}

#endif

#if !defined(__AVX2__)
INLINE Vec scaled_wide(Vec x, const double* scale, const double* half) {
  int32_t whole[4];
  store(whole, x);
  for (int n = 0; n < 4; ++n) {
    double size = whole[n] < 0 ? -half[n] : half[n];
    whole[n] = static_cast<int32_t>(whole[n] * scale[n] + size);
  }
  return load(whole);
}
template <int BITS>
INLINE Vec shift_left(Vec x) {
  return multiply(x, splat(uint32_t(1) << BITS));
}
INLINE Vec fixed_point(Vec x, Vec multiplier, Vec shift) {
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

#if !defined(__AVX512BW__)
INLINE void store_some(uint8_t* to, Vec x, int64_t count) {
  uint8_t all[4 * kLanes];
  store(all, x);
  memcpy(to, all, static_cast<size_t>(count));
}
INLINE Vec load_some(const uint8_t* from, int64_t count) {
  uint8_t all[4 * kLanes] = {};
  memcpy(all, from, static_cast<size_t>(count));
  return load(all);
}
INLINE void store_piece(uint8_t* to, Vec x, int first, int count) {
  uint8_t all[4 * kLanes];
  store(all, x);
  memcpy(to, all + first, static_cast<size_t>(count));
}
INLINE Vec load_piece(Vec x, const uint8_t* from, int first, int count) {
  uint8_t all[4 * kLanes];
  store(all, x);
  memcpy(all + first, from, static_cast<size_t>(count));
  return load(all);
}
#endif

INLINE void store_bytes(uint8_t* to, Vec x, int64_t count) {
  if (count >= 4 * kLanes)
    store(to, x);
  else
    store_some(to, x, count);
}
INLINE Vec load_bytes(const uint8_t* from, int64_t count) {
  return count >= 4 * kLanes ? load(from) : load_some(from, count);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_Q8_SIMD_HPP
