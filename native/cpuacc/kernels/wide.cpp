#include "cpuacc/kernels/wide.hpp"

#include "cpuacc/kernels/fixed_point.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Add the products of `2 * kLanes` pairs of 16-bit integers, two to each lane.
CPUACC_INLINE IntVec add_pairs(IntVec sums, const int16_t* a, const int16_t* b) {
#if defined(__AVX512BW__)
  return reinterpret_cast<IntVec>(_mm512_add_epi32(reinterpret_cast<__m512i>(sums),
                                                   _mm512_madd_epi16(_mm512_loadu_si512(a), _mm512_loadu_si512(b))));
#elif defined(__AVX2__)
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)),
                y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  return reinterpret_cast<IntVec>(_mm256_add_epi32(reinterpret_cast<__m256i>(sums), _mm256_madd_epi16(x, y)));
#elif defined(__x86_64__)
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a)),
                y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  return reinterpret_cast<IntVec>(_mm_add_epi32(reinterpret_cast<__m128i>(sums), _mm_madd_epi16(x, y)));
#elif defined(__aarch64__)
  const int16x8_t x = vld1q_s16(a), y = vld1q_s16(b);
  return vmlal_high_s16(vmlal_s16(sums, vget_low_s16(x), vget_low_s16(y)), x, y);
#else
  for (int n = 0; n < kLanes; ++n) sums[n] += a[2 * n] * b[2 * n] + a[2 * n + 1] * b[2 * n + 1];
  return sums;
#endif
}

/// The exact sum of the lanes.
CPUACC_INLINE int64_t wide_sum_of_lanes(IntVec x) {
#if defined(__AVX512F__)
  const __m512i all = reinterpret_cast<__m512i>(x);
  return _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(all)),
                                                  _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(all, 1))));
#elif defined(__aarch64__)
  return vaddlvq_s32(x);
#else
  int64_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += x[lane];
  return sum;
#endif
}

/// The sums of the lanes of four vectors, which fit into 32 bits. Vectors are paired within each 16 bytes, which are
/// added at the end.
CPUACC_INLINE void sums_of_lanes(const IntVec (&x)[4], int32_t (&sums)[4]) {
#if defined(__AVX512F__)
  __m512i all[4], pairs[2];
  memcpy(all, x, sizeof all);
  for (int n = 0; n < 2; ++n)
    pairs[n] = _mm512_add_epi32(_mm512_unpacklo_epi32(all[2 * n], all[2 * n + 1]),
                                _mm512_unpackhi_epi32(all[2 * n], all[2 * n + 1]));
  const __m512i wide =
      _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[0], pairs[1]), _mm512_unpackhi_epi64(pairs[0], pairs[1]));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(wide), _mm512_extracti64x4_epi64(wide, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sums),
                   _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
#elif defined(__AVX2__)
  __m256i all[4], pairs[2];
  memcpy(all, x, sizeof all);
  for (int n = 0; n < 2; ++n)
    pairs[n] = _mm256_add_epi32(_mm256_unpacklo_epi32(all[2 * n], all[2 * n + 1]),
                                _mm256_unpackhi_epi32(all[2 * n], all[2 * n + 1]));
  const __m256i half =
      _mm256_add_epi32(_mm256_unpacklo_epi64(pairs[0], pairs[1]), _mm256_unpackhi_epi64(pairs[0], pairs[1]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sums),
                   _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
#elif defined(__x86_64__)
  __m128i all[4], pairs[2];
  memcpy(all, x, sizeof all);
  for (int n = 0; n < 2; ++n)
    pairs[n] =
        _mm_add_epi32(_mm_unpacklo_epi32(all[2 * n], all[2 * n + 1]), _mm_unpackhi_epi32(all[2 * n], all[2 * n + 1]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(sums),
                   _mm_add_epi32(_mm_unpacklo_epi64(pairs[0], pairs[1]), _mm_unpackhi_epi64(pairs[0], pairs[1])));
#elif defined(__aarch64__)
  vst1q_s32(sums, vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3])));
#else
  for (int n = 0; n < 4; ++n) {
    sums[n] = 0;
    for (int lane = 0; lane < kLanes; ++lane) sums[n] += x[n][lane];
  }
#endif
}

/// The number of elements after which a lane may not fit into 32 bits: each product has less than 23 bits.
constexpr int64_t kPiece = 128 * kLanes;
/// The number of elements up to which the sum of all lanes fits.
constexpr int64_t kShort = 256;

/// The sums of `kRows` rows and `kCount` vectors stay in registers.
template <int kRows, int kCount>
CPUACC_INLINE void multiply_tile(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t depth,
                                 int64_t* out, int64_t out_step) {
  int64_t totals[kRows][kCount] = {};
  for (int64_t first = 0; first < depth; first += kPiece) {
    const int64_t last = depth - first < kPiece ? depth : first + kPiece;
    IntVec sums[kRows][kCount] = {};
    for (int64_t k = first; k < last; k += 2 * kLanes)
      for (int row = 0; row < kRows; ++row)
        for (int n = 0; n < kCount; ++n)
          sums[row][n] = add_pairs(sums[row][n], weights + row * depth + k, in + n * in_step + k);
    for (int row = 0; row < kRows; ++row)
      for (int n = 0; n < kCount; ++n) totals[row][n] += wide_sum_of_lanes(sums[row][n]);
  }
  for (int row = 0; row < kRows; ++row)
    for (int n = 0; n < kCount; ++n) out[n * out_step + row] = totals[row][n];
}

/// The same for four vectors of at most kShort elements.
template <int kRows>
CPUACC_INLINE void multiply_short_tile(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t depth,
                                       int64_t* out, int64_t out_step) {
  IntVec sums[kRows][4] = {};
  for (int64_t k = 0; k < depth; k += 2 * kLanes)
    for (int row = 0; row < kRows; ++row)
      for (int n = 0; n < 4; ++n)
        sums[row][n] = add_pairs(sums[row][n], weights + row * depth + k, in + n * in_step + k);
  for (int row = 0; row < kRows; ++row) {
    int32_t totals[4];
    sums_of_lanes(sums[row], totals);
    for (int n = 0; n < 4; ++n) out[n * out_step + row] = totals[n];
  }
}

void multiply_short(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t depth, int64_t rows,
                    int64_t* out, int64_t out_step) {
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2)
    multiply_short_tile<2>(weights + row * depth, in, in_step, depth, out + row, out_step);
  for (; row < rows; ++row) multiply_short_tile<1>(weights + row * depth, in, in_step, depth, out + row, out_step);
}

template <int kCount>
void multiply_narrow(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t depth, int64_t rows,
                     int64_t* out, int64_t out_step) {
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2)
    multiply_tile<2, kCount>(weights + row * depth, in, in_step, depth, out + row, out_step);
  for (; row < rows; ++row) multiply_tile<1, kCount>(weights + row * depth, in, in_step, depth, out + row, out_step);
}

int64_t dot(const int16_t* a, const int16_t* b, int64_t depth) {
  int64_t sum = 0;
  for (int64_t k = 0; k < depth; ++k) sum += int64_t{int32_t{a[k]} * int32_t{b[k]}};
  return sum;
}

void multiply(const int16_t* weights, const int16_t* in, int64_t in_step, int64_t count, int64_t depth, int64_t rows,
              bool narrow, int64_t* out, int64_t out_step) {
  if (!narrow) {
    for (int64_t n = 0; n < count; ++n)
      for (int64_t row = 0; row < rows; ++row)
        out[n * out_step + row] = dot(weights + row * depth, in + n * in_step, depth);
    return;
  }
  int64_t n = 0;
  for (; n + 4 <= count && depth <= kShort; n += 4)
    multiply_short(weights, in + n * in_step, in_step, depth, rows, out + n * out_step, out_step);
  for (; n + 4 <= count; n += 4)
    multiply_narrow<4>(weights, in + n * in_step, in_step, depth, rows, out + n * out_step, out_step);
  for (; n < count; ++n)
    multiply_narrow<1>(weights, in + n * in_step, in_step, depth, rows, out + n * out_step, out_step);
}

// ---- Depthwise convolutions -----------------------------------------------------------------------------------------

/// `kLanes` integers of 16 bits, as `add_halves` multiplies them.
#if defined(__aarch64__)
typedef int16x4_t Halves;
#else
typedef IntVec Halves;  // in the low bits of each lane; the high bits are 0
#endif

CPUACC_INLINE Halves load_halves(const int16_t* from) {
#if defined(__AVX512BW__)
  return reinterpret_cast<IntVec>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__x86_64__)
  return reinterpret_cast<IntVec>(
      _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), _mm_setzero_si128()));
#elif defined(__aarch64__)
  return vld1_s16(from);
#else
  IntVec x;
  for (int n = 0; n < kLanes; ++n) x[n] = from[n];
  return x;
#endif
}

/// Load the first `count` elements; the others are 0.
CPUACC_INLINE Halves load_halves(const int16_t* from, int64_t count) {
#if defined(__AVX512BW__)
  const __m512i x = _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << count) - 1), from);
  return reinterpret_cast<IntVec>(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(x)));
#else
  int16_t all[kLanes] = {};
  for (int64_t n = 0; n < count; ++n) all[n] = from[n];
  return load_halves(all);
#endif
}

/// sums + a * b in each lane.
CPUACC_INLINE IntVec add_halves(IntVec sums, Halves a, Halves b) {
#if defined(__AVX512BW__)
  const __m512i product = _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
  return sums + reinterpret_cast<IntVec>(product);
#elif defined(__AVX2__)
  return sums + reinterpret_cast<IntVec>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__x86_64__)
  return sums + reinterpret_cast<IntVec>(_mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#elif defined(__aarch64__)
  return vmlal_s16(sums, a, b);
#else
  return sums + a * b;
#endif
}

/// The channels from `first` on of some pixels.
template <int kPixels, bool kWhole>
CPUACC_INLINE void depthwise_tile(const WideTap* taps, int64_t count, int64_t step, int64_t first, int64_t channels,
                                  int32_t* sums, int64_t sum_step) {
  IntVec own[kPixels] = {};
  for (int64_t tap = 0; tap < count; ++tap) {
    const int16_t *in = taps[tap].in + first, *weights = taps[tap].weights + first;
    const Halves w = kWhole ? load_halves(weights) : load_halves(weights, channels);
    for (int n = 0; n < kPixels; ++n)
      own[n] = add_halves(own[n], kWhole ? load_halves(in + n * step) : load_halves(in + n * step, channels), w);
  }
  for (int n = 0; n < kPixels; ++n)
    memcpy(sums + n * sum_step + first, &own[n], kWhole ? sizeof own[n] : size_t(channels) * sizeof *sums);
}

template <int kPixels>
CPUACC_INLINE void depthwise_pixels(const WideTap* taps, int64_t count, int64_t step, int64_t channels, int32_t* sums,
                                    int64_t sum_step) {
  int64_t first = 0;
  for (; first + kLanes <= channels; first += kLanes)
    depthwise_tile<kPixels, true>(taps, count, step, first, kLanes, sums, sum_step);
  if (first < channels) depthwise_tile<kPixels, false>(taps, count, step, first, channels - first, sums, sum_step);
}

constexpr int64_t kMostTaps = 128;
constexpr int kTogether = 4;  // pixels that share the loads of weights

void depthwise(const WideTap* taps, int64_t count, int64_t pixels, int64_t step, int64_t channels, int32_t* sums,
               int64_t sum_step) {
  WideTap own[kMostTaps];
  memcpy(own, taps, size_t(count) * sizeof *own);
  int64_t n = 0;
  for (; n + kTogether <= pixels; n += kTogether, sums += kTogether * sum_step) {
    depthwise_pixels<kTogether>(own, count, step, channels, sums, sum_step);
    for (int64_t tap = 0; tap < count; ++tap) own[tap].in += kTogether * step;
  }
  for (; n < pixels; ++n, sums += sum_step) {
    depthwise_pixels<1>(own, count, step, channels, sums, sum_step);
    for (int64_t tap = 0; tap < count; ++tap) own[tap].in += step;
  }
}

// ---- Requantization -------------------------------------------------------------------------------------------------

CPUACC_INLINE IntVec load_lanes(const int32_t* from) {
  IntVec x;
  memcpy(&x, from, sizeof x);
  return x;
}

CPUACC_INLINE IntVec scaled_in_integers(const int32_t* sums, const WideScales& scales, int64_t channel) {
  const BitVec sum =
      reinterpret_cast<BitVec>(load_lanes(sums)) + reinterpret_cast<BitVec>(load_lanes(scales.bias + channel));
  const IntVec steps = far_fixed_point(reinterpret_cast<IntVec>(sum), load_lanes(scales.multipliers + channel),
                                       load_lanes(scales.shifts + channel));
  return clamped16(steps, scales.zero);
}

/// Numbers below 2**51 that are added to this lose their fraction.
constexpr double kWhole = 6755399441055744.0;

/// All steps but the last are exact, and the sum of 1/2 is rounded down to an integer.
CPUACC_INLINE IntVec scaled_in_reals(const int32_t* sums, const WideScales& scales, int64_t channel) {
  const double low = -32768.0 - scales.zero, high = 32767.0 - scales.zero;
  const double *ratios = scales.ratios + channel, *bias = scales.real_bias + channel;
  int32_t results[kLanes];
  for (int n = 0; n < kLanes; ++n) {
    const double exact = (static_cast<double>(sums[n]) + bias[n]) * ratios[n] + 0.5;
    const double inside = exact < low ? low : exact > high ? high : exact, nearest = (inside + kWhole) - kWhole;
    results[n] = static_cast<int32_t>(nearest > inside ? nearest - 1 : nearest) + scales.zero;
  }
  return load_lanes(results);
}

template <bool kReal>
CPUACC_INLINE void requantize_pixel(const int32_t* sums, int64_t channels, const WideScales& scales, int16_t* out) {
  typedef int16_t Shorts16 __attribute__((vector_size(kLanes * 2)));
  for (int64_t c = 0; c < channels; c += kLanes) {
    const IntVec x = kReal ? scaled_in_reals(sums + c, scales, c) : scaled_in_integers(sums + c, scales, c);
    const Shorts16 results = __builtin_convertvector(x, Shorts16);
    memcpy(out + c, &results, size_t(channels - c < kLanes ? channels - c : kLanes) * sizeof *out);
  }
}

void requantize(const int32_t* sums, int64_t sum_step, int64_t pixels, int64_t channels, const WideScales& scales,
                int16_t* out, int64_t out_step) {
  const WideScales own = scales;  // a copy, which the results do not overlap
  for (int64_t n = 0; n < pixels; ++n, sums += sum_step, out += out_step)
    own.ratios ? requantize_pixel<true>(sums, channels, own, out) : requantize_pixel<false>(sums, channels, own, out);
}

}  // namespace

extern const WideKernels wide_kernels = {multiply, depthwise, requantize};

}  // namespace cpuacc::ISA_NS
