// Rotary position embedding of float32: rotations of pairs of elements.

#ifndef CPUACC_KERNELS_ROTARY_HPP
#define CPUACC_KERNELS_ROTARY_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// The pairs of a row. Pair n has the elements n and n + `pairs`, or, if `interleaved`, 2n and 2n + 1. The factors of
/// its first element have the index n, those of its second element n + `second`; both are the same if `second` is 0.
/// With `factor_step` 2, the indices are 2n and 2n + `second`.
struct RotaryRow {
  int64_t pairs;
  bool interleaved;
  int64_t second, factor_step;
};

struct RotaryKernels {
  /// (x, y) becomes (cos * x - sin * y, cos * y + sin * x) for each pair. `out` is not `in`.
  void (*rotate)(const RotaryRow& row, const float* in, const float* cos, const float* sin, float* out);
};
CPUACC_TABLE(RotaryKernels, rotary_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_ROTARY_HPP
