#include "cpuacc/lower/pair_rule.hpp"

#include <algorithm>
#include <cmath>

#include "common/quotient.hpp"

namespace cpuacc {
namespace {

using native::FixedPoint;

FixedPoint factor(double real) { return native::quantize_multiplier(real); }

/// The factors of an operation; those in float32 are float32 in the reference, too.
void fill_factors(PairRule& rule, const Tensor& a, const Tensor& b, const Tensor& out) {
  float of_a = float(a.scale()), of_b = float(b.scale()), of_out = float(out.scale());
  double common = 2 * std::max(double(of_a), double(of_b));
  switch (rule.operation) {
    case Binary::add:
    case Binary::sub:
    case Binary::sq_diff: {
      bool square = rule.operation == Binary::sq_diff;
      rule.of_a = factor(double(of_a) / common), rule.of_b = factor(double(of_b) / common);
      if (rule.operation == Binary::sub) rule.of_b.multiplier = -rule.of_b.multiplier;
      rule.of_result = factor(square ? common * common / (16384.0 * double(of_out))
                                     : common / (std::ldexp(1.0, rule.headroom) * double(of_out)));
      return;
    }
    case Binary::mul:
      rule.of_result = factor(double(of_a * of_b / of_out));
      return;
    case Binary::div:
      rule.of_result = factor(double(of_a / (of_b * of_out)));
      return;
    case Binary::prelu:
      rule.of_a = factor(double(of_a / of_out)), rule.of_b = factor(double(of_a * of_b / of_out));
      return;
    default:
      rule.of_a = factor(double(of_a)), rule.of_b = factor(double(of_b));  // comparisons
  }
}

}  // namespace

PairRule PairRule::of(Binary operation, const Tensor& a, const Tensor& b, const Tensor& out, bool to_even,
                      int headroom) {
  PairRule rule;
  rule.operation = operation;
  rule.zero_a = a.zero_point(), rule.zero_b = b.zero_point(), rule.zero_out = out.zero_point();
  rule.headroom = headroom;
  rule.to_even = to_even;
  rule.scales = {float(a.scale()), float(b.scale()), float(out.scale())};
  fill_factors(rule, a, b, out);
  return rule;
}

/// The result before its zero point is added.
int64_t PairRule::combined(int64_t a, int64_t b) const {
  using native::multiply;
  auto moved = [](int64_t x, int bits, const FixedPoint& factor) {
    return multiply(native::shifted_left(x, bits), factor);
  };
  switch (operation) {
    case Binary::add:
    case Binary::sub:
      return multiply(moved(a, headroom, of_a) + moved(b, headroom, of_b), of_result);
    case Binary::sq_diff: {
      int64_t difference = moved(a, 7, of_a) - moved(b, 7, of_b);
      return multiply(difference * difference, of_result);
    }
    case Binary::mul:
      return multiply(a * b, of_result);
    case Binary::div:
      return native::quotient(a, b, of_result);
    default:
      return a >= 0 ? multiply(a, of_a) : multiply(a * b, of_b);  // prelu
  }
}

/// The same, computed in float32 and rounded half to even; 0 for NaN.
int64_t PairRule::combined_as_onnx(int64_t a, int64_t b) const {
  const volatile float x = scales.a * float(a), y = scales.b * float(b);  // rounded before they are combined
  float real = 0;
  switch (operation) {
    case Binary::add:
      real = x + y;
      break;
    case Binary::sub:
      real = x - y;
      break;
    case Binary::sq_diff: {
      const volatile float difference = x - y;
      real = difference * difference;
      break;
    }
    case Binary::mul:
      real = x * y;
      break;
    case Binary::div:
      real = x / y;
      break;
    case Binary::maximum:
      real = std::max(float(x), float(y));
      break;
    default:
      real = std::min(float(x), float(y));
  }
  const float steps = real / scales.out;
  return std::isnan(steps) ? 0 : int64_t(std::nearbyint(std::clamp(steps, -1048576.0f, 1048576.0f)));
}

}  // namespace cpuacc
