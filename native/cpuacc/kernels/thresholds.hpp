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

constexpr double kNoGap = 1e300;

/// The range of the thresholds of each column minus the real ones, which are no integers: of distances that are not
/// positive, and of positive ones. Without such distances, it is from kNoGap to -kNoGap. The gap of a distance that all
/// possible sums reach, or none, is 0.5, as if the real threshold was half a sum beyond them.
struct ThresholdGaps {
  double least[2][kThresholdColumns], most[2][kThresholdColumns];
};

struct ThresholdKernels {
  /// Write the thresholds of `width` channels to each row, and their gaps to the real thresholds. If a gap is as close
  /// to 0 or 1 as rounding errors, thresholds of the channel may be wrong.
  void (*find)(const ThresholdRules& rules, int width, Distances distances, int32_t* thresholds, ThresholdGaps& gaps);
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
