// How exact sums of products of 16-bit integers become quantized results.

#ifndef CPUACC_LOWER_REQUANTIZE_WIDE_HPP
#define CPUACC_LOWER_REQUANTIZE_WIDE_HPP

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/fixed_point.hpp"
#include "cpuacc/kernels/wide.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {

/// How sums become quantized results.
struct WideRequantization {
  enum Kind { fixed_point, wide_fixed_point, real, exact } kind = real;
  bool wraps = false;          // sums have 32 bits
  const double* ratios;        // for each channel; `exact`: the products of the scales
  const int64_t* multipliers;  // fixed point
  const int32_t* shifts;
  const int64_t* bias;  // nullptr: none; `exact`: as `real_bias`
  const double* real_bias;
  double scale;
  int64_t zero;

  int64_t code(int64_t sum, int64_t channel) const {
    return std::clamp<int64_t>(kind == exact ? rounded(sum, channel) : scaled(sum, channel), -32768, 32767);
  }

  /// Write the results of the sums of `count` channels from `channel` on, `step` elements apart.
  template <class Sum>
  void codes(const Sum* sums, int64_t channel, int64_t count, int16_t* out, int64_t step) const {
    if (kind == wide_fixed_point && !wraps) return wide_codes(sums, channel, count, out, step);
    const WideRequantization own = *this;  // a copy, which the results do not overlap
    for (int64_t n = 0; n < count; ++n) out[n * step] = int16_t(own.code(int64_t(sums[n]), channel + n));
  }

 private:
  template <class Sum>
  void wide_codes(const Sum* sums, int64_t channel, int64_t count, int16_t* out, int64_t step) const {
    const int64_t *factors = multipliers + channel, *added = bias ? bias + channel : nullptr, zero_point = zero;
    const int32_t* exponents = shifts + channel;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t sum = int64_t(sums[n]) + (added ? added[n] : 0);
      const int64_t result = wide(sum, factors[n], 15 - exponents[n]) + zero_point;
      out[n * step] = int16_t(std::clamp<int64_t>(result, -32768, 32767));
    }
  }

  int64_t rounded(int64_t sum, int64_t channel) const {
    double value = double(sum) * ratios[channel];
    if (real_bias) value += real_bias[channel];
    return whole(std::nearbyint(value / scale) + double(zero));
  }

  static int64_t whole(double value) { return int64_t(std::clamp(value, -1e9, 1e9)); }

  /// The nearest integer, within 1e9; halves are rounded away from zero.
  static int64_t nearest(double value) {
    const double bounded = std::clamp(value, -1e9, 1e9);
    return int64_t(bounded + std::copysign(0.5, bounded));
  }

  int64_t scaled(int64_t sum, int64_t channel) const {
    if (wraps) sum = native::wrapped(sum);
    if (bias) sum += bias[channel];
    if (wraps) sum = native::wrapped(sum);
    switch (kind) {
      case fixed_point:
        return native::multiply(sum, {multipliers[channel], shifts[channel]}) + zero;
      case wide_fixed_point:
        return wide(sum, multipliers[channel], 15 - shifts[channel]) + zero;
      default:
        return nearest(double(sum) * ratios[channel]) + zero;
    }
  }

  static int64_t wide(int64_t sum, int64_t multiplier, int shift) {
    return (sum * multiplier + (int64_t(1) << (shift - 1))) >> shift;
  }
};

/// The requantization of a layer whose operands 0 and 1 are multiplied, and whose optional operand 2 is the bias.
/// Operand 1 has one scale, or one for each of the `channels`.
WideRequantization wide_requantization_of(const Node& node, Builder& builder, int64_t channels);

/// The same for sums that fit into 31 bits, as kernels compute it in vectors; std::nullopt if they cannot.
std::optional<WideScales> wide_scales_of(const WideRequantization& requantization, Builder& builder, int64_t channels);

/// Return whether a scale of the layer is too large for the arithmetic of the reference.
bool has_too_large_scale(const Graph& graph, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_REQUANTIZE_WIDE_HPP
