// The quotient of quantized values, as in TFLite's reference kernels.

#ifndef NATIVE_COMMON_QUOTIENT_HPP
#define NATIVE_COMMON_QUOTIENT_HPP

#include <vector>

#include "common/fixed_point.hpp"

namespace native {

/// Multiply the quotient of a dividend of up to 17 bits and a divisor by a factor. The quotient is computed with the
/// reciprocal of the divisor, which is positive: see `reciprocal`.
inline int64_t quotient_by_reciprocal(int64_t dividend, int64_t inverse, int exponent, const FixedPoint& factor) {
  if (dividend == 0) return 0;
  const int64_t sign = dividend >> 63, size = (dividend << (sign & 1)) ^ sign;  // -2 * dividend - 1 if negative
  const int headroom = __builtin_clz(uint32_t(size)) - 1;                       // at least 13
  const int64_t scaled = high_mul(shifted_left(dividend, headroom), inverse);
  return multiply(scaled, {factor.multiplier, factor.shift - exponent - headroom});
}

/// The inverses of divisors of up to 16 bits, as `quotient` computes them.
class Reciprocals {
 public:
  static const Reciprocals& all() {
    static const Reciprocals all;
    return all;
  }
  const int32_t* inverses() const { return inverses_.data(); }

 private:
  Reciprocals() : inverses_(1 << 16) {
    for (int64_t divisor = 1; divisor < 1 << 16; ++divisor)
      inverses_[size_t(divisor)] = int32_t(reciprocal(divisor, 31).first);
  }
  std::vector<int32_t> inverses_;
};

/// Multiply the quotient of two integers of up to 17 bits by a factor; a quotient by zero is zero.
inline int64_t quotient(int64_t a, int64_t b, const FixedPoint& factor) {
  const int64_t sign = b >> 63, dividend = b == 0 ? 0 : (a ^ sign) - sign, divisor = std::max<int64_t>(std::abs(b), 1);
  const auto [inverse, exponent] = reciprocal(divisor, 31);
  return quotient_by_reciprocal(dividend, inverse, exponent, factor);
}

}  // namespace native

#endif  // NATIVE_COMMON_QUOTIENT_HPP
