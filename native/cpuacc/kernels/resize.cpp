#include "cpuacc/kernels/resize.hpp"

#include <string.h>

#include "cpuacc/kernels/simd.hpp"

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

// ---- uint8: each product is rounded in the order of the reference ---------------------------------------------------

inline __attribute__((always_inline)) uint8_t mixed(float ul, float ll, float uh, float lh, float weight, float right) {
  const float top = 1 - weight, left = 1 - right;
  float total = ul * top * left;
  total += ll * weight * left;
  total += uh * top * right;
  total += lh * weight * right;
  return uint8_t(int32_t(total + 0.5f));
}

void linear_u8_of_one(const uint8_t* upper, const uint8_t* lower, uint8_t* out, float weight, const Places& columns,
                      const ResizedRow& row, float* scratch) {
  float *above = scratch, *below = scratch + row.in_width;
  for (int64_t x = 0; x < row.in_width; ++x) above[x] = upper[x], below[x] = lower[x];
  const int32_t *low = columns.low, *high = columns.high;
  const float* right = columns.weight;
  for (int64_t x = 0; x < row.width; ++x)
    out[x] = mixed(above[low[x]], below[low[x]], above[high[x]], below[high[x]], weight, right[x]);
}

void linear_u8(const uint8_t* upper, const uint8_t* lower, uint8_t* out, float weight, const Places& columns,
               const ResizedRow& row, void* scratch) {
  const int64_t inner = row.inner;
  if (inner == 1) return linear_u8_of_one(upper, lower, out, weight, columns, row, static_cast<float*>(scratch));
  for (int64_t x = 0; x < row.width; ++x) {
    const uint8_t *ul = upper + columns.low[x] * inner, *uh = upper + columns.high[x] * inner;
    const uint8_t *ll = lower + columns.low[x] * inner, *lh = lower + columns.high[x] * inner;
    const float right = columns.weight[x];  // outside of the loop, as bytes might alias it
    uint8_t* __restrict to = out + x * inner;
    for (int64_t n = 0; n < inner; ++n) to[n] = mixed(ul[n], ll[n], uh[n], lh[n], weight, right);
  }
}

// ---- int8: the products of two weights have 20 bits, so sums fit int32 ----------------------------------------------

inline __attribute__((always_inline)) int8_t mixed(int32_t ul, int32_t ll, int32_t uh, int32_t lh, int32_t weight,
                                                   int32_t right) {
  const int32_t top = 1024 - weight, left = 1024 - right;
  const int32_t total = ul * (top * left) + ll * (weight * left) + uh * (top * right) + lh * (weight * right);
  const int32_t size = ((total < 0 ? -total : total) + (1 << 19)) >> 20;
  return int8_t(total > 0 ? size : -size);
}

void linear_i8_of_one(const int8_t* upper, const int8_t* lower, int8_t* out, int32_t weight, const Places& columns,
                      const ResizedRow& row, int32_t* scratch) {
  int32_t *above = scratch, *below = scratch + row.in_width;
  for (int64_t x = 0; x < row.in_width; ++x) above[x] = upper[x], below[x] = lower[x];
  const int32_t *low = columns.low, *high = columns.high, *right = columns.weight_1024;
  for (int64_t x = 0; x < row.width; ++x)
    out[x] = mixed(above[low[x]], below[low[x]], above[high[x]], below[high[x]], weight, right[x]);
}

void linear_i8(const int8_t* upper, const int8_t* lower, int8_t* out, int64_t weight, const Places& columns,
               const ResizedRow& row, void* scratch) {
  const int64_t inner = row.inner;
  const int32_t down = int32_t(weight);
  if (inner == 1) return linear_i8_of_one(upper, lower, out, down, columns, row, static_cast<int32_t*>(scratch));
  for (int64_t x = 0; x < row.width; ++x) {
    const int8_t *ul = upper + columns.low[x] * inner, *uh = upper + columns.high[x] * inner;
    const int8_t *ll = lower + columns.low[x] * inner, *lh = lower + columns.high[x] * inner;
    const int32_t right = columns.weight_1024[x];  // outside of the loop, as bytes might alias it
    int8_t* __restrict to = out + x * inner;
    for (int64_t n = 0; n < inner; ++n) to[n] = mixed(ul[n], ll[n], uh[n], lh[n], down, right);
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
    default:
      for (int64_t x = 0; x < width; ++x) memcpy(out + x * inner, row + columns[x] * inner, size_t(inner));
  }
}

}  // namespace

extern const ResizeKernels resize_kernels = {linear, linear_u8, linear_i8, nearest};

}  // namespace cpuacc::ISA_NS
