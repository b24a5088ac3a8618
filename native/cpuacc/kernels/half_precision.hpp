// Conversions between float16, bfloat16 and float32, rounded to the nearest, ties to even.

#ifndef CPUACC_KERNELS_HALF_PRECISION_HPP
#define CPUACC_KERNELS_HALF_PRECISION_HPP

#include <string.h>

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

CPUACC_INLINE float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

CPUACC_INLINE uint32_t as_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

CPUACC_INLINE float from_half(uint16_t half) {
  uint32_t magnitude = half & 0x7fffu, sign = (half & 0x8000u) << 16;
  float scaled = as_float(magnitude << 13) * 0x1p112f;
  uint32_t bits = magnitude < 0x7c00 ? as_bits(scaled) : (magnitude << 13) | 0x7f800000u;
  return as_float(bits | sign);
}

CPUACC_INLINE uint16_t to_half(float x) {
  uint32_t bits = as_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  uint32_t small =
      as_bits(as_float(magnitude) + 0.5f) - 0x3f000000u;  // one unit in the last place of the sum is the least float16
  uint32_t finite = magnitude < 0x38800000u ? small : normal;
  uint32_t beyond = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return uint16_t((magnitude < 0x47800000u ? finite : beyond) | sign);
}

CPUACC_INLINE float from_brain(uint16_t brain) { return as_float(uint32_t{brain} << 16); }

CPUACC_INLINE uint16_t to_brain(float x) {
  uint32_t bits = as_bits(x), rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

/// Load kLanes float16 as float32.
CPUACC_INLINE Vec load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
  Vec x;
  for (int n = 0; n < kLanes; ++n) x[n] = from_half(from[n]);
  return x;
#endif
}

/// Load kLanes bfloat16 as float32.
CPUACC_INLINE Vec load_brain(const uint16_t* from) {
#if defined(__AVX512F__)
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return reinterpret_cast<Vec>(_mm512_slli_epi32(wide, 16));
#elif defined(__AVX2__)
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return reinterpret_cast<Vec>(_mm256_slli_epi32(wide, 16));
#elif defined(__aarch64__)
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16));
#else
  Vec x;
  for (int n = 0; n < kLanes; ++n) x[n] = from_brain(from[n]);
  return x;
#endif
}

[[maybe_unused]] void halves_to_floats(const void* from, void* to, int64_t count) {
  const uint16_t* in = static_cast<const uint16_t*>(from);
  float* out = static_cast<float*>(to);
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store(out + n, load_half(in + n));
  for (; n < count; ++n) out[n] = from_half(in[n]);
}

[[maybe_unused]] void floats_to_halves(const void* from, void* to, int64_t count) {
  const float* in = static_cast<const float*>(from);
  uint16_t* out = static_cast<uint16_t*>(to);
  int64_t n = 0;
#if defined(__AVX512F__)
  for (; n + 16 <= count; n += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + n),
                        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(in + n), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  for (; n + 8 <= count; n += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + n),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + n), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  for (; n + 8 <= count; n += 8) {
    const float16x4_t low = vcvt_f16_f32(load(in + n));
    vst1q_u16(out + n, vreinterpretq_u16_f16(vcvt_high_f16_f32(low, load(in + n + 4))));
  }
#endif
  for (; n < count; ++n) out[n] = to_half(in[n]);
}

[[maybe_unused]] void brains_to_floats(const void* from, void* to, int64_t count) {
  for (int64_t n = 0; n < count; ++n) static_cast<float*>(to)[n] = from_brain(static_cast<const uint16_t*>(from)[n]);
}

[[maybe_unused]] void floats_to_brains(const void* from, void* to, int64_t count) {
  for (int64_t n = 0; n < count; ++n) static_cast<uint16_t*>(to)[n] = to_brain(static_cast<const float*>(from)[n]);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_HALF_PRECISION_HPP
