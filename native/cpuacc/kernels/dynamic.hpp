// Simulated quantization: to 8 bits with scales that follow from the numbers, or to steps of a range.

#ifndef CPUACC_KERNELS_DYNAMIC_HPP
#define CPUACC_KERNELS_DYNAMIC_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// Steps of `scale`, from `low` to 127, in which zero is the step `zero`.
struct DynamicSteps {
  float scale, inverse, zero, low;
};

/// Steps of `scale`, from `low` to `high`.
struct RangeSteps {
  float low, high, scale, inverse;
};

struct DynamicKernels {
  /// to = (round(from * inverse + zero) within [low, 127] - zero) * scale; halves are rounded away from zero.
  void (*round)(const float* from, float* to, int64_t count, const DynamicSteps& steps);
  /// to = round((from within [low, high] - low) * inverse) * scale + low; halves are rounded up, and NaN stays NaN.
  void (*round_in_range)(const float* from, float* to, int64_t count, const RangeSteps& steps);
};
CPUACC_TABLE(DynamicKernels, dynamic_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_DYNAMIC_HPP
