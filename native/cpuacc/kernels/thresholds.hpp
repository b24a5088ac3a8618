// The sums at which requantized results change, and where the arithmetic of kernels has to be checked against them.

#ifndef CPUACC_KERNELS_THRESHOLDS_HPP
#define CPUACC_KERNELS_THRESHOLDS_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

constexpr int kThresholdColumns = 64;

/// The rules of up to 64 channels: a sum is `sum * slope + shift` steps of the result. Distances are results minus
/// their zero point. The threshold of a distance is the least sum that reaches it, -reach if all do, and reach + 1 if
/// none does.
struct ThresholdRules {
  double slope[kThresholdColumns], shift[kThresholdColumns];
  double inverse[kThresholdColumns];  // of the slope
  double reach[kThresholdColumns];    // the largest absolute sum, less than INT32_MAX
  double rest[kThresholdColumns];     // steps by which the first of two roundings makes results larger
};

/// The distances first, first + 1 ... of so many rows.
struct Distances {
  int64_t first, count;
};

struct ThresholdKernels {
  /// Write the thresholds of `width` channels to each row, and how close the real thresholds of a channel are to an
  /// integer. Where this is less than rounding errors, its thresholds may be wrong.
  void (*find)(const ThresholdRules& rules, int width, Distances distances, int32_t* thresholds, double* closest);
  /// Narrow the range of the term with which truncation, or rounding half to even, yields the thresholds.
  void (*narrow)(const ThresholdRules& rules, int width, Distances distances, const int32_t* thresholds, bool to_even,
                 double* least, double* most);
  /// Write the sums before and at the thresholds of a row, or the closest possible ones, and the range of the results:
  /// that before is at most `most`, and that at a threshold is at least `least`. `code` is the value at the thresholds.
  void (*neighbours)(const ThresholdRules& rules, int width, const int32_t* thresholds, uint8_t code, int32_t* before,
                     int32_t* at, uint8_t* most, uint8_t* least);
  /// Return whether the results of `count` channels are in these ranges.
  bool (*is_within)(const uint8_t* before, const uint8_t* at, const uint8_t* most, const uint8_t* least, int count);
};
CPUACC_TABLE(ThresholdKernels, threshold_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_THRESHOLDS_HPP
