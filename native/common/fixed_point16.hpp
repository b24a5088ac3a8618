// The 16-bit functions of TFLite's integer LSTMs. All results equal those of interposer/kernels/gates16.py and
// integer_lstm.py, bit for bit. "Q3" is a number with a sign, 3 integer bits and 12 fractional ones.

#ifndef NATIVE_COMMON_FIXED_POINT16_HPP
#define NATIVE_COMMON_FIXED_POINT16_HPP

#include <vector>

#include "common/fixed_point.hpp"

namespace native {

constexpr int64_t kOne16 = std::numeric_limits<int16_t>::max();

inline int64_t saturated16(int64_t x) { return std::clamp<int64_t>(x, -kOne16 - 1, kOne16); }

/// The product of two numbers, rounded with ties upwards.
inline int64_t high_mul16(int64_t a, int64_t b) { return std::min((a * b + (1 << 14)) >> 15, kOne16); }

inline int64_t constant16(double real, int integer_bits = 0) { return divide_by_pot(constant(real, integer_bits), 16); }

/// x * 2**exponent, saturated or rounded.
inline int64_t multiplied16(int64_t x, int exponent) {
  return exponent > 0 ? saturated16(shifted_left(x, exponent)) : divide_by_pot(x, -exponent);
}

/// exp(x) for -1/4 <= x < 0 in Q0.
inline int64_t exp_near_eighth16(int64_t x) {
  x += constant16(1.0 / 8);
  const int64_t square = high_mul16(x, x), fourth = divide_by_pot(high_mul16(square, square), 2);
  const int64_t third = high_mul16(high_mul16(square, x) + fourth, constant16(1.0 / 3));
  const int64_t scale = constant16(std::exp(-1.0 / 8));
  return saturated16(scale + high_mul16(x + divide_by_pot(third + square, 1), scale));
}

/// exp(x) in Q0 for x <= 0.
inline int64_t exp_of_negative16(int64_t x, int integer_bits) {
  constexpr int kLargestPower = 4;
  if (x == 0) return kOne16;
  const int fractional_bits = 15 - integer_bits;
  if (integer_bits > kLargestPower + 1 && x < -(int64_t(32) << fractional_bits)) return 0;
  const int64_t quarter = int64_t(1) << (fractional_bits - 2), within = (x & (quarter - 1)) - quarter;
  const int64_t above = within - x;
  int64_t result = exp_near_eighth16(multiplied16(within, integer_bits));
  for (int exponent = -2; exponent < std::min(integer_bits, kLargestPower + 1); ++exponent)
    if (above & (int64_t(1) << (fractional_bits + exponent)))
      result = high_mul16(result, constant16(std::exp(-std::ldexp(1.0, exponent))));
  return result;
}

/// 2 / (1 + x) in Q2 for 0 <= x < 1 in Q0.
inline int64_t two_over_one_plus16(int64_t x) {
  const int64_t half = (x + kOne16 + 1) >> 1;
  int64_t quotient = constant16(48.0 / 17, 2) + high_mul16(half, constant16(-32.0 / 17, 2));
  for (int n = 0; n < 3; ++n) {
    const int64_t error = (1 << 13) - high_mul16(half, quotient);
    quotient += multiplied16(high_mul16(quotient, error), 2);
  }
  return quotient;
}

/// The sigmoid in Q0 of a number in Q3.
inline int64_t sigmoid16(int64_t x) {
  if (x == 0) return 1 << 14;
  const int64_t of_positive = multiplied16(two_over_one_plus16(exp_of_negative16(-std::abs(x), 3)), 1);
  return x > 0 ? of_positive : kOne16 - of_positive;
}

/// The hyperbolic tangent in Q0 of a number with 0 to 6 integer bits.
inline int64_t tanh16(int64_t x, int integer_bits) {
  if (x == 0) return 0;
  const int64_t exponential = exp_of_negative16(-std::abs(x), integer_bits + 1);
  const int64_t size = multiplied16(two_over_one_plus16(exponential) - (1 << 13), 2);
  return x > 0 ? size : -size;
}

/// The results of a function for all 16-bit numbers, the smallest one first.
template <class Function>
std::vector<int16_t> table16(const Function& function) {
  std::vector<int16_t> table;
  for (int64_t x = -kOne16 - 1; x <= kOne16; ++x) table.push_back(int16_t(function(x)));
  return table;
}

/// 1 / sqrt(x) for an integer, by five steps of Newton's iteration in Q3; 0 counts as 1.
inline FixedPoint inverse_sqrt(int64_t x) {
  if (x <= 1) return {kOne, 0};
  const int quarters = std::max(0, (32 - leading_zeros(x) - 28) / 2);
  const int64_t reduced = x >> (2 * quarters);
  const int pairs = (leading_zeros(std::max<int64_t>(reduced, 2)) - 1) / 2 - 1, shift = 11 + quarters - pairs;
  const int64_t half = divide_by_pot((reduced << (2 * pairs)) >> 1, 1);
  int64_t inverse_root = constant(1, 3);
  for (int n = 0; n < 5; ++n) {
    const int64_t cube = rescaled(times(times(inverse_root, inverse_root), inverse_root), 9, 3);
    inverse_root = rescaled(times(constant(1.5, 3), inverse_root) - times(half, cube), 6, 3);
  }
  const int64_t root = shifted_left(times(inverse_root, constant(std::sqrt(0.5))), std::max(-shift, 0));
  return {root, -std::max(shift, 0)};
}

}  // namespace native

#endif  // NATIVE_COMMON_FIXED_POINT16_HPP
