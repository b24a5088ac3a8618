// Transposition of 4 x 4 floats, for matrices and images.

#ifndef CPUACC_KERNELS_TRANSPOSE_HPP
#define CPUACC_KERNELS_TRANSPOSE_HPP

#include <stdint.h>

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));

/// Write the rows of `in` as the columns of `out`.
static inline __attribute__((always_inline)) void transpose_4x4(const float* in, int64_t in_row, float* out,
                                                                int64_t out_row) {
  Four a = *reinterpret_cast<const LooseFour*>(in), b = *reinterpret_cast<const LooseFour*>(in + in_row);
  Four c = *reinterpret_cast<const LooseFour*>(in + 2 * in_row),
       d = *reinterpret_cast<const LooseFour*>(in + 3 * in_row);
  typedef int32_t Mask __attribute__((vector_size(16)));
  Four ab_low = shuffled(a, b, Mask{0, 4, 1, 5}), ab_high = shuffled(a, b, Mask{2, 6, 3, 7});
  Four cd_low = shuffled(c, d, Mask{0, 4, 1, 5}), cd_high = shuffled(c, d, Mask{2, 6, 3, 7});
  *reinterpret_cast<LooseFour*>(out) = shuffled(ab_low, cd_low, Mask{0, 1, 4, 5});
  *reinterpret_cast<LooseFour*>(out + out_row) = shuffled(ab_low, cd_low, Mask{2, 3, 6, 7});
  *reinterpret_cast<LooseFour*>(out + 2 * out_row) = shuffled(ab_high, cd_high, Mask{0, 1, 4, 5});
  *reinterpret_cast<LooseFour*>(out + 3 * out_row) = shuffled(ab_high, cd_high, Mask{2, 3, 6, 7});
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_TRANSPOSE_HPP
