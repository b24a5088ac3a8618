// Elementwise operations on two quantized operands in the integer arithmetic of the reference.

#ifndef CPUACC_LOWER_PAIR_RULE_HPP
#define CPUACC_LOWER_PAIR_RULE_HPP

#include "common/fixed_point.hpp"
#include "cpuacc/lower/q8.hpp"
#include "cpuacc/pointwise.hpp"

namespace cpuacc {

/// An operation and its factors, whose meaning depends on the operation.
struct PairRule {
  Binary operation = Binary::none;
  int64_t zero_a = 0, zero_b = 0, zero_out = 0;
  int headroom = 0;  // bits by which the operands of sums are shifted to the left before they are rescaled
  native::FixedPoint of_a{0, 0}, of_b{0, 0}, of_result{0, 0};
  bool to_even = false;  // computed in float32 with these scales, as ONNX does
  Q8Scales scales{};     // of the operands and the result

  static PairRule of(Binary operation, const Tensor& a, const Tensor& b, const Tensor& out, bool to_even, int headroom);

  /// The result of two numbers without their zero points, before the zero point of the result is added.
  int64_t combined(int64_t a, int64_t b) const;
  /// The same, computed in float32 and rounded half to even; 0 for NaN.
  int64_t combined_as_onnx(int64_t a, int64_t b) const;
};

}  // namespace cpuacc

#endif  // CPUACC_LOWER_PAIR_RULE_HPP
