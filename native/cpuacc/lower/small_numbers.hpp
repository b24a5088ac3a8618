// Numbers of 8 and fewer bits: floats, and integers of 2 and 4 bits. Each has a byte in memory.

#ifndef CPUACC_LOWER_SMALL_NUMBERS_HPP
#define CPUACC_LOWER_SMALL_NUMBERS_HPP

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {

/// Return whether a type is a float of 8 bits or fewer.
bool is_small_float(int32_t dtype);

/// Return whether a type is an integer of 2 or 4 bits.
inline bool is_small_integer(int32_t dtype) {
  return dtype == IPR_DTYPE_INT4 || dtype == IPR_DTYPE_UINT4 || dtype == IPR_DTYPE_INT2 || dtype == IPR_DTYPE_UINT2;
}

/// The number of a byte of a small float.
float small_float_at(int32_t dtype, uint8_t bits);

/// Round to the nearest number of a small float, ties to even. Numbers out of range become infinite or NaN, or the
/// largest number of a type that has neither.
uint8_t small_float_of(double number, int32_t dtype);

/// The conversion from a small float to float32, or from float32 to a small float; nullptr for other types.
OfOne small_cast(int32_t from, int32_t to);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_SMALL_NUMBERS_HPP
