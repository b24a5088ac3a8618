#include "peak.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cpuacc::ISA_NS {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kSums = 12;  // latency times instructions per cycle of a multiply-add, rounded up

typedef float Floats __attribute__((vector_size(kBytes)));
typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef char Bytes __attribute__((vector_size(kBytes), aligned(1), may_alias));

/// Hides the value of a register from the compiler, so that it keeps every operation.
template <class Vector>
inline __attribute__((always_inline)) void keep(Vector& x) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(x));
#else
  asm volatile("" : "+w"(x));
#endif
}

template <class Vector, class Operation>
inline __attribute__((always_inline)) void run(int64_t count, Vector a, Vector b, const Operation& operation) {
  Vector sums[kSums] = {};
  for (int64_t n = 0; n < count; ++n) {
#pragma GCC unroll 12
    for (int k = 0; k < kSums; ++k) {
      keep(a);  // else the product of two constants is computed once
      sums[k] = operation(sums[k], a, b);
    }
  }
#pragma GCC unroll 12
  for (int k = 0; k < kSums; ++k) keep(sums[k]);
}

double multiply_add(int64_t count) {
  run(count, Floats{} + 0.5f, Floats{} + 0.25f, [](Floats sum, Floats a, Floats b) { return sum + a * b; });
  return 2.0 * kSums * (kBytes / 4) * double(count);
}

double multiply_add_bfloat16([[maybe_unused]] int64_t count) {
#if defined(__AVX512BF16__)
  const Floats half = reinterpret_cast<Floats>(Ints{} + 0x3f003f00);
  run(count, half, half, [](Floats sum, Floats a, Floats b) {
    return Floats(_mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
  });
  return 2.0 * kSums * (kBytes / 2) * double(count);
#else
  return 0;
#endif
}

#if defined(__AMX_INT8__)
/// The operand of LDTILECFG, with eight registers of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Products of tiles that are in registers, with four sums.
double dot(int64_t count) {
  const TileShapes shapes;
  asm volatile("ldtilecfg %0" ::"m"(shapes));
  for (int64_t n = 0; n < count; n += 16)
    asm volatile(
        "tdpbusd %tmm6, %tmm4, %tmm0\n\ttdpbusd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbusd %tmm6, %tmm5, %tmm2\n\ttdpbusd %tmm7, %tmm5, %tmm3");
  asm volatile("tilerelease");
  return 2.0 * 4 * 16 * 16 * 64 * double((count + 15) / 16);
}
#else
/// Where no instruction multiplies four bytes, bytes are extended to 16 bits and multiplied in pairs, as the kernels
/// do.
double dot(int64_t count) {
  run(count, Ints{} + 0x01020304, Ints{} + 0x01020304, [](Ints sum, Ints a, Ints b) {
#if defined(__AVX512VNNI__)
    return Ints(_mm512_dpbusd_epi32(__m512i(sum), __m512i(a), __m512i(b)));
#elif defined(__AVX512BW__)
    __m512i even = __m512i(a & 0xff00ff), odd = _mm512_srli_epi16(__m512i(a), 8);
    return sum + Ints(_mm512_madd_epi16(even, __m512i(b))) + Ints(_mm512_madd_epi16(odd, __m512i(b)));
#elif defined(__AVX2__)
    __m256i even = __m256i(a & 0xff00ff), odd = _mm256_srli_epi16(__m256i(a), 8);
    return sum + Ints(_mm256_madd_epi16(even, __m256i(b))) + Ints(_mm256_madd_epi16(odd, __m256i(b)));
#elif defined(__SSE2__)
    __m128i even = __m128i(a & 0xff00ff), odd = _mm_srli_epi16(__m128i(a), 8);
    return sum + Ints(_mm_madd_epi16(even, __m128i(b))) + Ints(_mm_madd_epi16(odd, __m128i(b)));
#else
    return sum + a * b;
#endif
  });
  return 2.0 * kSums * kBytes * double(count);
}
#endif

void copy(const char* from, char* to, int64_t bytes) {
  for (int64_t n = 0; n < bytes; n += kBytes) {
    Bytes x = *reinterpret_cast<const Bytes*>(from + n);
    asm volatile("" : "+m"(*reinterpret_cast<Bytes*>(to + n)));
    *reinterpret_cast<Bytes*>(to + n) = x;
  }
}

void read(const char* from, int64_t bytes) {
  for (int64_t n = 0; n < bytes; n += kBytes) {
    Bytes x = *reinterpret_cast<const Bytes*>(from + n);
    keep(x);
  }
}

}  // namespace

extern const PeakKernels peak_kernels = {multiply_add, multiply_add_bfloat16, dot, copy, read};

}  // namespace cpuacc::ISA_NS
