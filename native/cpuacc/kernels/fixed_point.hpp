// Fixed-point arithmetic in the lanes of a vector, for numbers of more bits than `fixed_point` of simd.hpp takes.

#ifndef CPUACC_KERNELS_FIXED_POINT_HPP
#define CPUACC_KERNELS_FIXED_POINT_HPP

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// x * 2**shift * multiplier / 2**31, rounded half up, like `native::high_mul`. Shifts and multipliers are not
/// negative.
CPUACC_INLINE IntVec high_product(IntVec x, IntVec multiplier, IntVec shift) {
  return reinterpret_cast<IntVec>(
      fixed_point(reinterpret_cast<Ints>(x), reinterpret_cast<Ints>(multiplier), reinterpret_cast<Ints>(shift)));
}

/// x * multiplier / 2**31 * 2**shift, like `native::multiply`, for any number and any shift to the right.
CPUACC_INLINE IntVec far_fixed_point(IntVec x, IntVec multiplier, IntVec shift) {
  const IntVec none = {}, most = none + 31, right = none - shift;
  x = high_product(x, multiplier, shift > none ? shift : none);
  const IntVec before_last = right - 1 > most ? most : right > none ? right - 1 : none;
  return right > none ? (((x + (x >> 31)) >> before_last) + 1) >> 1 : x;
}

/// Steps from a zero point as quantized values of 16 bits, clamped to their range.
CPUACC_INLINE IntVec clamped16(IntVec steps, int32_t zero) {
  const IntVec none = {}, low = none + (-32768 - zero), high = none + (32767 - zero);
  return (steps < low ? low : steps > high ? high : steps) + zero;
}

/// The elements of a table at the places in the lanes.
CPUACC_INLINE IntVec gathered(const int32_t* table, IntVec places) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_i32gather_epi32(reinterpret_cast<__m512i>(places), table, 4));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_i32gather_epi32(table, reinterpret_cast<__m256i>(places), 4));
#else
  IntVec found;
  for (int n = 0; n < kLanes; ++n) found[n] = table[places[n]];
  return found;
#endif
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_FIXED_POINT_HPP
