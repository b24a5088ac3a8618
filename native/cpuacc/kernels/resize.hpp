// Resized images. `inner` channels are contiguous: all of them in NHWC, 16 in nChw16c, one in NCHW.

#ifndef CPUACC_KERNELS_RESIZE_HPP
#define CPUACC_KERNELS_RESIZE_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// Sampling along one axis: two input pixels for each output pixel, and the weight of the second (in 1/1024 for
/// integers other than uint8).
struct Places {
  const int32_t *low, *high;
  const float* weight;
  const int32_t* weight_1024;
};

/// The sizes of one row: elements of a row of the input, and pixels and channels of a row of the result. The kernels
/// take one channel, or at least 16: the caller treats the elements of pixels with fewer channels as pixels.
struct ResizedRow {
  int64_t in_width, width, inner;
};

/// Compute one row of the result from two rows of the input, with the weight of the lower row in both units.
using LinearRow = void (*)(const void* upper, const void* lower, void* out, float weight, int32_t weight_1024,
                           const Places& columns, const ResizedRow& row);

struct ResizeKernels {
  /// Compute one row of the result from two rows of the input. `scratch` has memory for two rows of the input in int32
  /// or float32.
  void (*linear)(const float* upper, const float* lower, float* out, float weight, const Places& columns,
                 const ResizedRow& row);
  void (*linear_u8)(const uint8_t* upper, const uint8_t* lower, uint8_t* out, float weight, const Places& columns,
                    const ResizedRow& row, void* scratch);
  void (*linear_i8)(const int8_t* upper, const int8_t* lower, int8_t* out, int64_t weight, const Places& columns,
                    const ResizedRow& row, void* scratch);
  LinearRow (*linear_of)(int32_t dtype);  // float64, and integers of 16 to 64 bits; nullptr for others
  /// `inner` is in bytes.
  void (*nearest)(const char* row, char* out, const int32_t* columns, int64_t width, int64_t inner);
};
CPUACC_TABLE(ResizeKernels, resize_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_RESIZE_HPP
