// Sums of products along an axis that is not the last one, such as a matrix that mixes the heads of an attention.

#ifndef CPUACC_KERNELS_MIX_HPP
#define CPUACC_KERNELS_MIX_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

constexpr int64_t kMixedTogether = 4;  // rows of the result

/// A matrix that multiplies `inputs` rows of `length` elements, and gives `outputs` rows.
struct Mix {
  int64_t inputs, outputs, length;
  const float* weights;  // (outputs / 4, inputs, 4), padded with zeros
  const float* bias;     // (outputs / 4, 4)
};

struct MixKernels {
  /// Compute the elements [first, last) of all rows of the result.
  void (*mix)(const Mix& mix, const float* in, float* out, int64_t first, int64_t last);
};
CPUACC_TABLE(MixKernels, mix_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_MIX_HPP
