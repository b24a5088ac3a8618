// Rounding of activations to 8 bits, with a scale that follows from the numbers, such as those of a row.

#ifndef CPUACC_LOWER_ROW_ROUNDING_HPP
#define CPUACC_LOWER_ROW_ROUNDING_HPP

#include <algorithm>
#include <cmath>

#include "cpuacc/kernels/dynamic.hpp"
#include "cpuacc/kernels/q8.hpp"
#include "cpuacc/step.hpp"

namespace cpuacc {

/// The quantization of numbers from `low` to `high` to uint8, as DynamicQuantize rounds them; both bounds include 0.
inline Q8Quantization dynamic_quantization(float low, float high) {
  const float scale = (high - low) / 255, point = (0 - low) / scale;
  const float zero = point == point ? std::nearbyint(std::clamp(point, 0.0f, 255.0f)) : 0;
  return {scale, int32_t(zero), -zero, 255 - zero, -zero, true};
}

class RowRounding {
 public:
  RowRounding(Isa isa, bool asymmetric)
      : elementwise(&elementwise_q8_kernels_for(isa)), kernels_(&dynamic_kernels_for(isa)), asymmetric_(asymmetric) {}

  /// Round a row; `out` may be `in`.
  void row(const float* in, float* out, int64_t count) const {
    float range[2];
    elementwise->find_range(in, count, range);
    elements(in, out, count, range[0], range[1]);
  }

  /// Round elements of a row whose numbers are from `low` to `high`; both include 0.
  void elements(const float* in, float* out, int64_t count, float low, float high) const {
    if (!std::isfinite(low) || !std::isfinite(high)) {
      std::fill_n(out, count, std::nanf(""));
      return;
    }
    const DynamicSteps steps = asymmetric_ ? shifted(low, high) : symmetric(low, high);
    if (std::isfinite(steps.inverse))
      kernels_->round(in, out, count, steps);
    else
      std::fill_n(out, count, 0.0f);
  }

  const ElementwiseQ8Kernels* elementwise;

 private:
  static DynamicSteps symmetric(float low, float high) {
    const float largest = std::max(-low, high);
    return {largest / 127, 127 / largest, 0, -127};
  }

  static DynamicSteps shifted(float low, float high) {
    const double width = (double(high) - double(low)) / 255, below = double(low) / width, above = double(high) / width;
    const double zero = 128 + std::abs(below) < 127 + std::abs(above) ? -128 - below : 127 - above;
    const float scale = float(width);
    return {scale, 1 / scale, float(std::round(std::clamp(zero, -128.0, 127.0))), -128};
  }

  const DynamicKernels* kernels_;
  bool asymmetric_;
};

}  // namespace cpuacc

#endif  // CPUACC_LOWER_ROW_ROUNDING_HPP
