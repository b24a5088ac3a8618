// The quotient of quantized values, as in TFLite's reference kernels.

#ifndef NATIVE_COMMON_QUOTIENT_HPP
#define NATIVE_COMMON_QUOTIENT_HPP

#include "common/fixed_point.hpp"

namespace native {

/// Multiply the quotient of two integers of up to 16 bits by a factor. The quotient is computed with the reciprocal of
/// the divisor; a quotient by zero is zero.
inline int64_t quotient(int64_t a, int64_t b, const FixedPoint& factor) {
  const int64_t dividend = b < 0 ? -a : b == 0 ? 0 : a, divisor = std::max<int64_t>(std::abs(b), 1);
  const auto [inverse, exponent] = reciprocal(divisor, 31);
  const int64_t size = dividend < 0 ? -2 * dividend - 1 : dividend;
  const int headroom = dividend == 0 ? 31 : leading_zeros(size) - 1;
  const int64_t scaled = multiply(dividend, {inverse, std::min(headroom, 30)});
  return multiply(scaled, {factor.multiplier, factor.shift - exponent - headroom});
}

}  // namespace native

#endif  // NATIVE_COMMON_QUOTIENT_HPP
