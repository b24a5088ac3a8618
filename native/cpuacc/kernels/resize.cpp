#include "cpuacc/kernels/resize.hpp"

#include <string.h>

#include "cpuacc/kernels/simd.hpp"
#include "interposer/backend.h"

// This file is compiled without contraction of products and sums to fused operations, because results of uint8 have to
// be the same bytes as those of the reference (see CMakeLists.txt).

namespace cpuacc::ISA_NS {
namespace {

// ---- float32 --------------------------------------------------------------------------------------------------------

/// The elements at `kLanes` indices. GCC does not use the instruction by itself.
CPUACC_INLINE Vec gathered(const float* from, const int32_t* index) {
#if defined(__AVX512F__)
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff, _mm512_loadu_si512(index), from, 4);
#elif defined(__AVX2__)
  const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index));
  const __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, at, all, 4);
#else
  Vec gathered;
  for (int n = 0; n < kLanes; ++n) gathered[n] = from[index[n]];
  return gathered;
#endif
}

/// Rows of one channel.
void linear_of_one(const float* upper, const float* lower, float* out, float weight, const Places& columns,
                   int64_t width) {
  const int32_t *low = columns.low, *high = columns.high;
  const float *right = columns.weight, top = 1 - weight;
  int64_t x = 0;
  for (; x + kLanes <= width; x += kLanes) {
    const Vec left_sum = gathered(upper, low + x) * top + gathered(lower, low + x) * weight;
    const Vec right_sum = gathered(upper, high + x) * top + gathered(lower, high + x) * weight;
    const Vec share = load(right + x);
    store(out + x, left_sum * (1.0f - share) + right_sum * share);
  }
  for (; x < width; ++x) {
    const float left_sum = upper[low[x]] * top + lower[low[x]] * weight;
    const float right_sum = upper[high[x]] * top + lower[high[x]] * weight;
    out[x] = left_sum * (1 - right[x]) + right_sum * right[x];
  }
}

void linear(const float* upper, const float* lower, float* out, float weight, const Places& columns,
            const ResizedRow& row) {
  const int64_t inner = row.inner;
  if (inner == 1) return linear_of_one(upper, lower, out, weight, columns, row.width);
  for (int64_t x = 0; x < row.width; ++x) {
    float right = columns.weight[x], a = (1 - weight) * (1 - right), b = weight * (1 - right), c = (1 - weight) * right,
          d = weight * right;
    const float *ul = upper + columns.low[x] * inner, *uh = upper + columns.high[x] * inner;
    const float *ll = lower + columns.low[x] * inner, *lh = lower + columns.high[x] * inner;
    float* to = out + x * inner;
    for (int64_t n = 0; n < inner; ++n) to[n] = ul[n] * a + ll[n] * b + uh[n] * c + lh[n] * d;
  }
}

// ---- Pixels of many bytes -------------------------------------------------------------------------------------------

/// The four pixels around a place, and a row of results.
template <class T>
struct Corners {
  const T *upper_left, *lower_left, *upper_right, *lower_right;
};
template <class T>
CPUACC_INLINE Corners<T> corners(const T* upper, const T* lower, const Places& columns, int64_t x, int64_t inner) {
  const int64_t left = columns.low[x] * inner, right = columns.high[x] * inner;
  return {upper + left, lower + left, upper + right, lower + right};
}

/// The integers of `kLanes` bytes.
CPUACC_INLINE IntVec integers(const uint8_t* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#elif defined(__aarch64__)
  const uint8x8_t four = vreinterpret_u8_u32(vdup_n_u32(unaligned<uint32_t>(from)));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))));
#else
  IntVec lanes;
  for (int n = 0; n < kLanes; ++n) lanes[n] = from[n];
  return lanes;
#endif
}
CPUACC_INLINE IntVec integers(const int8_t* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#elif defined(__aarch64__)
  const int8x8_t four = vreinterpret_s8_u32(vdup_n_u32(unaligned<uint32_t>(reinterpret_cast<const uint8_t*>(from))));
  return vmovl_s16(vget_low_s16(vmovl_s8(four)));
#else
  IntVec lanes;
  for (int n = 0; n < kLanes; ++n) lanes[n] = from[n];
  return lanes;
#endif
}

/// Store the lowest byte of each integer.
CPUACC_INLINE void store_bytes_of(void* to, IntVec from) {
  store_low_bytes(static_cast<uint8_t*>(to), reinterpret_cast<Ints>(from));
}

/// Compute the bytes of one pixel in vectors; the last bytes may be computed twice, so that none is computed alone.
template <class T, class Mix>
CPUACC_INLINE void mix_pixel(const Corners<T>& from, T* to, int64_t inner, Mix mix) {
  for (int64_t first = 0; first < inner; first += kLanes) {
    const int64_t n = first + kLanes <= inner ? first : inner - kLanes;
    store_bytes_of(to + n, mix(integers(from.upper_left + n), integers(from.lower_left + n),
                               integers(from.upper_right + n), integers(from.lower_right + n)));
  }
}

// ---- uint8: each product is rounded in the order of the reference ---------------------------------------------------

/// The sum of the pixels above and below, which are multiplied by their vertical weights, on the left and on the right.
template <class Number>
CPUACC_INLINE Number weighted(Number ul, Number ll, Number uh, Number lh, Number left, Number right) {
  Number total = ul * left;
  total += ll * left;
  total += uh * right;
  total += lh * right;
  return total + 0.5f;
}

CPUACC_INLINE Vec real(IntVec x) { return __builtin_convertvector(x, Vec); }

CPUACC_INLINE uint8_t byte_of(float total) { return static_cast<uint8_t>(static_cast<int32_t>(total)); }

/// Pixels of one channel: products with the vertical weights are computed once for each pixel of the input.
void linear_u8_of_one(const uint8_t* upper, const uint8_t* lower, uint8_t* out, float weight, const Places& columns,
                      const ResizedRow& row, float* scratch) {
  float* __restrict above = scratch;
  float* __restrict below = scratch + row.in_width;
  const float top = 1 - weight;
  for (int64_t x = 0; x < row.in_width; ++x) above[x] = upper[x] * top, below[x] = lower[x] * weight;
  const int32_t *low = columns.low, *high = columns.high;
  int64_t x = 0;
  for (; x + kLanes <= row.width; x += kLanes) {
    const Vec right = load(columns.weight + x), left = 1.0f - right;
    const Vec total = weighted(gathered(above, low + x), gathered(below, low + x), gathered(above, high + x),
                               gathered(below, high + x), left, right);
    store_bytes_of(out + x, __builtin_convertvector(total, IntVec));
  }
  for (; x < row.width; ++x) {
    const float right = columns.weight[x], left = 1 - right;
    out[x] = byte_of(weighted(above[low[x]], below[low[x]], above[high[x]], below[high[x]], left, right));
  }
}

void linear_u8(const uint8_t* upper, const uint8_t* lower, uint8_t* out, float weight, const Places& columns,
               const ResizedRow& row, void* scratch) {
  const int64_t inner = row.inner;
  if (inner == 1) return linear_u8_of_one(upper, lower, out, weight, columns, row, static_cast<float*>(scratch));
  const float top = 1 - weight;
  for (int64_t x = 0; x < row.width; ++x) {
    const float right = columns.weight[x], left = 1 - right;
    mix_pixel(corners(upper, lower, columns, x, inner), out + x * inner, inner,
              [=](IntVec ul, IntVec ll, IntVec uh, IntVec lh) {
                return __builtin_convertvector(weighted(real(ul) * top, real(ll) * weight, real(uh) * top,
                                                        real(lh) * weight, broadcast(left), broadcast(right)),
                                               IntVec);
              });
  }
}

// ---- int8: the products of two weights have 20 bits, so sums fit int32 ----------------------------------------------

/// Divide by 2**20, and round to the nearest integer, ties away from 0.
template <class Integer>
CPUACC_INLINE Integer rounded(Integer total) {
  const Integer size = ((total < 0 ? -total : total) + (1 << 19)) >> 20;
  return total > 0 ? size : -size;
}

CPUACC_INLINE IntVec gathered(const int32_t* from, const int32_t* index) {
  return reinterpret_cast<IntVec>(gathered(reinterpret_cast<const float*>(from), index));
}

CPUACC_INLINE IntVec load_ints(const int32_t* from) {
  IntVec loaded;
  memcpy(&loaded, from, sizeof loaded);
  return loaded;
}

/// Pixels of one channel: the sums with the vertical weights are computed once for each pixel of the input.
void linear_i8_of_one(const int8_t* upper, const int8_t* lower, int8_t* out, int32_t weight, const Places& columns,
                      const ResizedRow& row, int32_t* __restrict sums) {
  const int32_t top = 1024 - weight;
  for (int64_t x = 0; x < row.in_width; ++x) sums[x] = upper[x] * top + lower[x] * weight;
  const int32_t *low = columns.low, *high = columns.high;
  int64_t x = 0;
  for (; x + kLanes <= row.width; x += kLanes) {
    const IntVec right = load_ints(columns.weight_1024 + x);
    store_bytes_of(out + x, rounded(gathered(sums, low + x) * (1024 - right) + gathered(sums, high + x) * right));
  }
  for (; x < row.width; ++x) {
    const int32_t right = columns.weight_1024[x];
    out[x] = static_cast<int8_t>(rounded(sums[low[x]] * (1024 - right) + sums[high[x]] * right));
  }
}

void linear_i8(const int8_t* upper, const int8_t* lower, int8_t* out, int64_t weight, const Places& columns,
               const ResizedRow& row, void* scratch) {
  const int64_t inner = row.inner;
  const int32_t down = static_cast<int32_t>(weight), top = 1024 - down;
  if (inner == 1) return linear_i8_of_one(upper, lower, out, down, columns, row, static_cast<int32_t*>(scratch));
  for (int64_t x = 0; x < row.width; ++x) {
    const int32_t right = columns.weight_1024[x], left = 1024 - right;
    const int32_t a = top * left, b = down * left, c = top * right, d = down * right;
    mix_pixel(corners(upper, lower, columns, x, inner), out + x * inner, inner,
              [=](IntVec ul, IntVec ll, IntVec uh, IntVec lh) { return rounded(ul * a + ll * b + uh * c + lh * d); });
  }
}

// ---- float64, and integers of 16 to 64 bits -------------------------------------------------------------------------

/// Mix the pixels around each place of a row: mix(upper left, lower left, upper right, lower right, x).
template <class T, class Mix>
CPUACC_INLINE void mix_row(const void* upper, const void* lower, void* out, const Places& columns,
                           const ResizedRow& row, Mix mix) {
  for (int64_t x = 0; x < row.width; ++x) {
    const Corners<T> from = corners(static_cast<const T*>(upper), static_cast<const T*>(lower), columns, x, row.inner);
    T* to = static_cast<T*>(out) + x * row.inner;
    for (int64_t n = 0; n < row.inner; ++n)
      to[n] = mix(from.upper_left[n], from.lower_left[n], from.upper_right[n], from.lower_right[n], x);
  }
}

/// Each product is rounded in the order of the reference.
void linear_f64(const void* upper, const void* lower, void* out, float weight, int32_t, const Places& columns,
                const ResizedRow& row) {
  const double down = weight, top = 1 - down;
  mix_row<double>(upper, lower, out, columns, row, [&](double ul, double ll, double uh, double lh, int64_t x) {
    const double right = columns.weight[x], left = 1 - right;
    double total = ul * top * left;
    total += ll * down * left;
    total += uh * top * right;
    return total + lh * down * right;
  });
}

/// Sums are int64, and wrap around like those of the reference.
template <class T>
void linear_integers(const void* upper, const void* lower, void* out, float, int32_t weight, const Places& columns,
                     const ResizedRow& row) {
  const int64_t down = weight, top = 1024 - down;
  mix_row<T>(upper, lower, out, columns, row, [&](T ul, T ll, T uh, T lh, int64_t x) {
    const int64_t right = columns.weight_1024[x], left = 1024 - right;
    auto product = [](T pixel, int64_t share) { return uint64_t(int64_t(pixel)) * uint64_t(share); };
    const uint64_t total =
        product(ul, top * left) + product(ll, down * left) + product(uh, top * right) + product(lh, down * right);
    const uint64_t size = int64_t(total) < 0 ? 0 - total : total, half = uint64_t{1} << 19;
    const int64_t magnitude = int64_t(size + half) >> 20;
    return T(int64_t(total) > 0 ? magnitude : -magnitude);
  });
}

LinearRow linear_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT64:
      return linear_f64;
    case IPR_DTYPE_INT16:
      return linear_integers<int16_t>;
    case IPR_DTYPE_UINT16:
      return linear_integers<uint16_t>;
    case IPR_DTYPE_INT32:
      return linear_integers<int32_t>;
    case IPR_DTYPE_UINT32:
      return linear_integers<uint32_t>;
    case IPR_DTYPE_INT64:
      return linear_integers<int64_t>;
    case IPR_DTYPE_UINT64:
      return linear_integers<uint64_t>;
    default:
      return nullptr;
  }
}

// ---- nearest pixels -------------------------------------------------------------------------------------------------

template <class Item>
void pick(const char* row, char* out, const int32_t* columns, int64_t width) {
  typedef Item Loose __attribute__((aligned(1), may_alias));
  const Loose* __restrict in = reinterpret_cast<const Loose*>(row);
  Loose* __restrict to = reinterpret_cast<Loose*>(out);
  const int32_t* __restrict from = columns;
  for (int64_t x = 0; x < width; ++x) to[x] = in[from[x]];
}

/// Elements of four bytes, which are copied as floats if they are aligned like these.
void pick_four(const char* row, char* out, const int32_t* columns, int64_t width) {
  int64_t x = 0;
  if ((reinterpret_cast<uintptr_t>(row) | reinterpret_cast<uintptr_t>(out)) % sizeof(float) == 0)
    for (; x + kLanes <= width; x += kLanes)
      store(reinterpret_cast<float*>(out) + x, gathered(reinterpret_cast<const float*>(row), columns + x));
  pick<uint32_t>(row, out + x * int64_t(sizeof(float)), columns + x, width - x);
}

/// Pixels whose size is known here, so that no function is called for each of them.
template <int64_t kBytes>
void pick_bytes(const char* row, char* out, const int32_t* columns, int64_t width) {
  for (int64_t x = 0; x < width; ++x) memcpy(out + x * kBytes, row + columns[x] * kBytes, kBytes);
}

void nearest(const char* row, char* out, const int32_t* columns, int64_t width, int64_t inner) {
  switch (inner) {
    case 1:
      return pick<uint8_t>(row, out, columns, width);
    case 2:
      return pick<uint16_t>(row, out, columns, width);
    case 4:
      return pick_four(row, out, columns, width);
    case 8:
      return pick<uint64_t>(row, out, columns, width);
    case 16:
      return pick_bytes<16>(row, out, columns, width);
    case 32:
      return pick_bytes<32>(row, out, columns, width);
    case 64:
      return pick_bytes<64>(row, out, columns, width);
    default:
      for (int64_t x = 0; x < width; ++x) memcpy(out + x * inner, row + columns[x] * inner, size_t(inner));
  }
}

}  // namespace

extern const ResizeKernels resize_kernels = {linear, linear_u8, linear_i8, linear_of, nearest};

}  // namespace cpuacc::ISA_NS
