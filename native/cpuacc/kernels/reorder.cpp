#include "cpuacc/kernels/reorder.hpp"

#include <string.h>

#include "cpuacc/kernels/transpose.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Pixels of a channel that are copied before the next channels: a cache line, because the lines of channels whose
/// distance is a power of two evict one another.
constexpr int64_t kPixels = 16;

void to_blocked(const float* plain, float* blocked, const BlockCopy& copy, int64_t first, int64_t last) {
  int64_t p = first;
  if (copy.channels == 16 && copy.by_channel == 1) {
    for (; p < last; ++p) memcpy(blocked + p * 16, plain + p * copy.by_pixel, 16 * sizeof(float));
    return;
  }
  if (copy.channels == 16 && copy.by_pixel == 1)
    for (; p + kPixels <= last; p += kPixels)
      for (int64_t c = 0; c < 16; c += 4)
        for (int64_t k = p; k < p + kPixels; k += 4)
          transpose_4x4(plain + c * copy.by_channel + k, copy.by_channel, blocked + k * 16 + c, 16);
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
    for (; p + kPixels <= last; p += kPixels) {
      int64_t c = 0;
      for (; c + 4 <= copy.channels; c += 4)
        for (int64_t k = p; k < p + kPixels; k += 4)
          transpose_4x4(blocked + k * 16 + c, 16, plain + c * copy.by_channel + k, copy.by_channel);
      for (; c < copy.channels; ++c)
        for (int64_t k = p; k < p + kPixels; ++k) plain[c * copy.by_channel + k] = blocked[k * 16 + c];
    }
  for (; p < last; ++p)
    for (int64_t c = 0; c < copy.channels; ++c) plain[p * copy.by_pixel + c * copy.by_channel] = blocked[p * 16 + c];
}

}  // namespace

extern const ReorderKernels reorder_kernels = {to_blocked, to_plain};

}  // namespace cpuacc::ISA_NS
