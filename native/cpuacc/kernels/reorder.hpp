// Conversions of images between plain layouts and nChw16c.

#ifndef CPUACC_KERNELS_REORDER_HPP
#define CPUACC_KERNELS_REORDER_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// One block of channels of one image: the number of valid channels (1 to 16), and the strides of the plain image.
struct BlockCopy {
  int64_t channels, by_channel, by_pixel;  // strides in elements
};

struct ReorderKernels {
  /// Convert pixels [first, last). The padding of the block becomes 0.
  void (*to_blocked)(const float* plain, float* blocked, const BlockCopy& copy, int64_t first, int64_t last);
  void (*to_plain)(const float* blocked, float* plain, const BlockCopy& copy, int64_t first, int64_t last);
};
CPUACC_TABLE(ReorderKernels, reorder_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_REORDER_HPP
