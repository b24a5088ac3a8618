// The fixed-point arithmetic of TFLite's reference kernels. All results equal those of interposer/kernels/fixedpoint.py
// and fixedfunctions.py, bit for bit.

#ifndef NATIVE_COMMON_FIXED_POINT_HPP
#define NATIVE_COMMON_FIXED_POINT_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace native {

constexpr int64_t kOne = std::numeric_limits<int32_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();

/// The factor multiplier / 2**31 * 2**shift.
struct FixedPoint {
  int64_t multiplier;
  int shift;
};

/// Return the fixed-point number that is nearest to a real factor. Factors below the range become 0, those above it the
/// largest number.
inline FixedPoint quantize_multiplier(double real) {
  if (!std::isfinite(real)) return {kOne, 30};
  int shift = 0;
  double mantissa = std::frexp(real, &shift);
  int64_t multiplier = int64_t(std::floor(mantissa * 2147483648.0 + 0.5));
  if (multiplier == int64_t(1) << 31) multiplier >>= 1, ++shift;
  if (shift < -31) return {0, 0};
  if (shift > 30) return {kOne, 30};
  return {multiplier, shift};
}

/// x * 2**shift; bits that leave the 32 bits are lost, as in a processor.
inline int64_t shifted_left(int64_t x, int shift) { return int64_t(uint64_t(x) << shift); }

inline int64_t wrapped(int64_t x) { return int32_t(uint32_t(uint64_t(x))); }

inline int64_t saturated(int64_t x) { return std::clamp(x, kLeast, kOne); }

/// a * b / 2**31, rounded to the nearest, ties toward plus infinity.
inline int64_t high_mul(int64_t a, int64_t b) { return (a * b + (int64_t(1) << 30)) >> 31; }

/// x / 2**exponent, rounded to the nearest, ties away from zero. The size of x is less than 2**61, so that its
/// quotients by 2**62 and more are 0.
inline int64_t divide_by_pot(int64_t x, int exponent) {
  if (exponent == 0) return x;
  exponent = std::min(exponent, 62);
  return (x + (int64_t(1) << (exponent - 1)) - (x < 0 ? 1 : 0)) >> exponent;
}

/// Multiply a 32-bit integer by a factor. Bits that a shift to the left moves beyond the 32nd are lost.
inline int64_t multiply(int64_t x, const FixedPoint& factor) {
  if (factor.shift > 0) return high_mul(wrapped(shifted_left(x, factor.shift)), factor.multiplier);
  return divide_by_pot(high_mul(x, factor.multiplier), -factor.shift);
}

/// Round to the nearest integer, ties away from zero. The argument has the precision of float32, or is less than 2**52.
inline double round_half_away(double x) { return std::copysign(std::floor(std::fabs(x) + 0.5), x); }

/// Round and saturate to int8; NaN becomes -128.
template <class Number>
int8_t clamped(Number x) {
  return x >= Number(-128) ? int8_t(std::min(x, Number(127))) : int8_t(-128);
}

/// Quantize a float to int8; NaN counts as 0.
inline int8_t quantized(float real, float scale, int64_t zero_point, bool to_even = false) {
  float steps = real / scale;
  if (std::isnan(steps)) steps = 0;
  double whole = to_even ? double(std::nearbyint(steps)) : round_half_away(steps);
  return clamped(whole + double(zero_point));
}

// ---- Functions of numbers with a sign, some integer bits and a fraction, in 32 bits. "Q5" has 5 integer bits. -------

inline int64_t times(int64_t a, int64_t b) { return std::min(high_mul(a, b), kOne); }

inline int64_t constant(double real, int integer_bits = 0) {
  return int64_t(std::nearbyint(std::ldexp(real, 31 - integer_bits)));
}

/// Convert a fixed-point number to another number of integer bits, rounded and saturated.
inline int64_t rescaled(int64_t x, int source_bits, int target_bits) {
  if (source_bits < target_bits) return divide_by_pot(x, target_bits - source_bits);
  return saturated(shifted_left(x, source_bits - target_bits));
}

/// The number of leading zeros of a 32-bit integer.
inline int leading_zeros(int64_t x) {
  const int bits = x == 0 ? 0 : 64 - __builtin_clzll(uint64_t(x));
  return 32 - std::min(bits, 33);
}

/// exp(x) for -1/4 <= x < 0 in Q0, by the Taylor series around -1/8 up to the fourth power.
inline int64_t exp_near_eighth(int64_t x) {
  x += constant(1.0 / 8);
  int64_t square = times(x, x);
  int64_t fourth = divide_by_pot(times(square, square), 2);
  int64_t third = times(times(square, x) + fourth, constant(1.0 / 3));
  int64_t scale = constant(std::exp(-1.0 / 8));
  return scale + times(x + divide_by_pot(third + square, 1), scale);
}

/// exp(x) in Q0 for x <= 0: the series for the remainder modulo 1/4, and a factor for each higher bit.
inline int64_t exp_of_negative(int64_t x, int integer_bits) {
  if (x == 0) return kOne;
  int64_t quarter = constant(0.25, integer_bits);
  int64_t within = (x & (quarter - 1)) - quarter;
  int64_t above = within - x, result = exp_near_eighth(rescaled(within, integer_bits, 0));
  for (int exponent = -2; exponent < integer_bits; ++exponent)
    if (above & (int64_t(1) << (31 - integer_bits + exponent)))
      result = times(result, constant(std::exp(-std::ldexp(1.0, exponent))));
  return result;
}

/// 1 / (1 + x) for 0 <= x < 1 in Q0, by three steps of Newton's iteration in Q2.
inline int64_t one_over_one_plus(int64_t x) {
  int64_t half = (x + kOne + 1) >> 1;
  int64_t quotient = constant(48.0 / 17, 2) + times(half, constant(-32.0 / 17, 2));
  for (int n = 0; n < 3; ++n) {
    int64_t error = constant(1, 2) - times(half, quotient);
    quotient += rescaled(times(quotient, error), 4, 2);
  }
  return rescaled(quotient, 1, 0);
}

/// 1 / x for x > 0: a number in Q0, and the exponent of 2 by which it still has to be divided.
inline std::pair<int64_t, int> reciprocal(int64_t x, int integer_bits) {
  int zeros = leading_zeros(x);
  return {one_over_one_plus(shifted_left(x, zeros) - (int64_t(1) << 31)), integer_bits - zeros};
}

/// log(r * 2**(1/4)) in Q0 for r near the fourth root of 1/2: a numerator, and the inverse of a denominator.
inline std::pair<int64_t, int64_t> log_fraction(int64_t r) {
  const double root = std::sqrt(std::sqrt(2.0));
  const int64_t p = (r + constant(1 / root) + 1) >> 1, q = 2 * (r - constant(1 / root)), square = times(q, q);
  const int64_t numerator = times(q, r) + times(times(q, square), constant(11.0 / 240 * root));
  const int64_t inner = constant(2 / root - root) + q + times(constant(root / 20), square);
  return {numerator, one_over_one_plus(times(p, inner) + times(constant(root / 4), q))};
}

/// The natural logarithm of x >= 1, which has `integer_bits` integer bits; the result has `result_bits`. Of the two
/// ways to split x into a power of 2 and a rest near the fourth root of 1/2, the one with the smaller rest is taken.
inline int64_t log(int64_t x, int integer_bits, int result_bits) {
  const int inner_bits = result_bits + 1, zeros = leading_zeros(x);
  const int64_t root_half = constant(std::sqrt(0.5)), quarter = constant(0.25, inner_bits);
  const int headroom = leading_zeros(times(x, root_half)) - 1;
  const int64_t mantissa_a = saturated(shifted_left(times(shifted_left(x, zeros - 1), root_half), 1));
  const int64_t power_a = saturated(shifted_left(integer_bits - zeros, 31 - inner_bits)) + quarter;
  const int64_t mantissa_b = saturated(shifted_left(x, headroom));
  const int64_t power_b = saturated(shifted_left(integer_bits - headroom, 31 - inner_bits)) - quarter;
  const int64_t power = saturated(std::max(power_a, power_b));
  const auto [numerator, inverse_denominator] = log_fraction(std::min(mantissa_a, mantissa_b));
  const int64_t fraction = times(rescaled(numerator, 0, inner_bits), inverse_denominator);
  return rescaled(times(power, constant(std::log(2.0))) + fraction, inner_bits, result_bits);
}

}  // namespace native

#endif  // NATIVE_COMMON_FIXED_POINT_HPP
