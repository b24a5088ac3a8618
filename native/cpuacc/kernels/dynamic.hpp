// Simulated quantization to 8 bits, with scales that follow from the numbers.

#ifndef CPUACC_KERNELS_DYNAMIC_HPP
#define CPUACC_KERNELS_DYNAMIC_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// Steps of `scale`, from `low` to 127, in which zero is the step `zero`.
struct DynamicSteps {
  float scale, inverse, zero, low;
};

struct DynamicKernels {
  /// to = (round(from * inverse + zero) within [low, 127] - zero) * scale; halves are rounded away from zero.
  void (*round)(const float* from, float* to, int64_t count, const DynamicSteps& steps);
};
CPUACC_TABLE(DynamicKernels, dynamic_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_DYNAMIC_HPP
