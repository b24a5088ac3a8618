#include "cpuacc/kernels/reorder.hpp"

#include <string.h>

namespace cpuacc::ISA_NS {
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));

/// Four by four elements, turned.
static inline __attribute__((always_inline)) void turn(const float* in, int64_t in_row, float* out, int64_t out_row) {
  Four a = *reinterpret_cast<const LooseFour*>(in), b = *reinterpret_cast<const LooseFour*>(in + in_row);
  Four c = *reinterpret_cast<const LooseFour*>(in + 2 * in_row), d = *reinterpret_cast<const LooseFour*>(in + 3 * in_row);
  typedef int32_t Mask __attribute__((vector_size(16)));
  Four ab_low = __builtin_shuffle(a, b, Mask{0, 4, 1, 5}), ab_high = __builtin_shuffle(a, b, Mask{2, 6, 3, 7});
  Four cd_low = __builtin_shuffle(c, d, Mask{0, 4, 1, 5}), cd_high = __builtin_shuffle(c, d, Mask{2, 6, 3, 7});
  *reinterpret_cast<LooseFour*>(out) = __builtin_shuffle(ab_low, cd_low, Mask{0, 1, 4, 5});
  *reinterpret_cast<LooseFour*>(out + out_row) = __builtin_shuffle(ab_low, cd_low, Mask{2, 3, 6, 7});
  *reinterpret_cast<LooseFour*>(out + 2 * out_row) = __builtin_shuffle(ab_high, cd_high, Mask{0, 1, 4, 5});
  *reinterpret_cast<LooseFour*>(out + 3 * out_row) = __builtin_shuffle(ab_high, cd_high, Mask{2, 3, 6, 7});
}

void to_blocked(const float* plain, float* blocked, const BlockCopy& copy, int64_t first, int64_t last) {
  int64_t p = first;
  if (copy.channels == 16 && copy.by_channel == 1) {
    for (; p < last; ++p) memcpy(blocked + p * 16, plain + p * copy.by_pixel, 16 * sizeof(float));
    return;
  }
  if (copy.channels == 16 && copy.by_pixel == 1)
    for (; p + 4 <= last; p += 4)
      for (int64_t c = 0; c < 16; c += 4) turn(plain + c * copy.by_channel + p, copy.by_channel, blocked + p * 16 + c, 16);
  for (; p < last; ++p) {
    float* to = blocked + p * 16;
    for (int64_t c = 0; c < copy.channels; ++c) to[c] = plain[p * copy.by_pixel + c * copy.by_channel];
    for (int64_t c = copy.channels; c < 16; ++c) to[c] = 0;
  }
}

void to_plain(const float* blocked, float* plain, const BlockCopy& copy, int64_t first, int64_t last) {
  int64_t p = first;
  if (copy.by_channel == 1) {
    for (; p < last; ++p) memcpy(plain + p * copy.by_pixel, blocked + p * 16, size_t(copy.channels) * sizeof(float));
    return;
  }
  if (copy.by_pixel == 1)
    for (; p + 4 <= last; p += 4) {
      int64_t c = 0;
      for (; c + 4 <= copy.channels; c += 4) turn(blocked + p * 16 + c, 16, plain + c * copy.by_channel + p, copy.by_channel);
      for (; c < copy.channels; ++c)
        for (int64_t k = p; k < p + 4; ++k) plain[c * copy.by_channel + k] = blocked[k * 16 + c];
    }
  for (; p < last; ++p)
    for (int64_t c = 0; c < copy.channels; ++c) plain[p * copy.by_pixel + c * copy.by_channel] = blocked[p * 16 + c];
}

}  // namespace

extern const ReorderKernels reorder_kernels = {to_blocked, to_plain};

}  // namespace cpuacc::ISA_NS
