#include "cpuacc/kernels/resize.hpp"

#include <string.h>

namespace cpuacc::ISA_NS {
namespace {

void linear(const float* upper, const float* lower, float* out, float weight, const Places& columns, int64_t width,
            int64_t inner) {
  for (int64_t x = 0; x < width; ++x) {
    float right = columns.weight[x], a = (1 - weight) * (1 - right), b = weight * (1 - right), c = (1 - weight) * right,
          d = weight * right;
    const float *ul = upper + columns.low[x] * inner, *uh = upper + columns.high[x] * inner;
    const float *ll = lower + columns.low[x] * inner, *lh = lower + columns.high[x] * inner;
    float* to = out + x * inner;
    for (int64_t n = 0; n < inner; ++n) to[n] = ul[n] * a + ll[n] * b + uh[n] * c + lh[n] * d;
  }
}

/// Each product is rounded in the order of the reference, because the results have to be the same bytes.
__attribute__((optimize("fp-contract=off"))) void linear_u8(const uint8_t* upper, const uint8_t* lower, uint8_t* out,
                                                            float weight, const Places& columns, int64_t width,
                                                            int64_t inner) {
  for (int64_t x = 0; x < width; ++x) {
    float right = columns.weight[x], top = 1 - weight, left = 1 - right;
    const uint8_t *ul = upper + columns.low[x] * inner, *uh = upper + columns.high[x] * inner;
    const uint8_t *ll = lower + columns.low[x] * inner, *lh = lower + columns.high[x] * inner;
    uint8_t* to = out + x * inner;
    for (int64_t n = 0; n < inner; ++n) {
      float total = float(ul[n]) * top * left;
      total += float(ll[n]) * weight * left;
      total += float(uh[n]) * top * right;
      total += float(lh[n]) * weight * right;
      to[n] = uint8_t(int32_t(total + 0.5f));
    }
  }
}

void linear_i8(const int8_t* upper, const int8_t* lower, int8_t* out, int64_t weight, const Places& columns,
               int64_t width, int64_t inner) {
  for (int64_t x = 0; x < width; ++x) {
    int64_t right = columns.weight_1024[x], top = 1024 - weight, left = 1024 - right;
    const int8_t *ul = upper + columns.low[x] * inner, *uh = upper + columns.high[x] * inner;
    const int8_t *ll = lower + columns.low[x] * inner, *lh = lower + columns.high[x] * inner;
    int8_t* to = out + x * inner;
    for (int64_t n = 0; n < inner; ++n) {
      int64_t total = ul[n] * top * left + ll[n] * weight * left + uh[n] * top * right + lh[n] * weight * right;
      int64_t size = ((total < 0 ? -total : total) + (1 << 19)) >> 20;
      to[n] = int8_t(total > 0 ? size : -size);
    }
  }
}

template <class Item>
void pick(const char* row, char* out, const int32_t* columns, int64_t width) {
  for (int64_t x = 0; x < width; ++x)
    memcpy(out + x * int64_t(sizeof(Item)), row + columns[x] * int64_t(sizeof(Item)), sizeof(Item));
}

void nearest(const char* row, char* out, const int32_t* columns, int64_t width, int64_t inner) {
  switch (inner) {
    case 1:
      return pick<uint8_t>(row, out, columns, width);
    case 4:
      return pick<uint32_t>(row, out, columns, width);
    default:
      for (int64_t x = 0; x < width; ++x) memcpy(out + x * inner, row + columns[x] * inner, size_t(inner));
  }
}

}  // namespace

extern const ResizeKernels resize_kernels = {linear, linear_u8, linear_i8, nearest};

}  // namespace cpuacc::ISA_NS
