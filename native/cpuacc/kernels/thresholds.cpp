#include "cpuacc/kernels/thresholds.hpp"

#include <math.h>

namespace cpuacc::ISA_NS {
namespace {

void find(const ThresholdRules& rules, int width, Distances distances, int32_t* thresholds, double* closest) {
  for (int c = 0; c < width; ++c) closest[c] = 1;
  for (int64_t row = 0; row < distances.count; ++row, thresholds += width) {
    const int64_t distance = distances.first + row;
    const double middle = double(distance) - 0.5, sign = distance > 0 ? -1 : 1;
    for (int c = 0; c < width; ++c) {
      const double real = ((middle - rules.shift[c]) + sign * rules.rest[c]) * rules.inverse[c];
      const double low = -rules.reach[c] - 0.5, high = rules.reach[c] + 0.5;
      const double above = real < low ? low : real, within = above > high ? high : above;
      const double nearest = (within + 0x1.8p52) - 0x1.8p52;  // rounded to an integer
      const double away = fabs(within - nearest);
      thresholds[c] = int32_t(within > nearest ? nearest + 1 : nearest);
      closest[c] = away < closest[c] ? away : closest[c];
    }
  }
}

/// The range of a term: `least` is raised and `most` lowered where `inside`.
inline __attribute__((always_inline)) void narrow(bool inside, double low, double high, double& least, double& most) {
  least = inside && low > least ? low : least;
  most = inside && high < most ? high : most;
}

void narrow(const ThresholdRules& rules, int width, Distances distances, const int32_t* thresholds, bool to_even,
            double* least, double* most) {
  for (int64_t row = 0; row < distances.count; ++row, thresholds += width) {
    const int64_t distance = distances.first + row;
    const double half = to_even ? 0.5 : 0, own = double(distance) - half, previous = double(distance - 1);
    const bool up = to_even || distance > 0;  // truncation of negative results rounds up
    for (int c = 0; c < width; ++c) {
      const double sum = thresholds[c], at = sum * rules.slope[c], before = (sum - 1) * rules.slope[c];
      const bool inside = sum > -rules.reach[c] && sum <= rules.reach[c];
      narrow(inside, up ? own - at : before - previous, up ? own - before : at - previous, least[c], most[c]);
    }
  }
}

void neighbours(const ThresholdRules& rules, int width, const int32_t* thresholds, uint8_t code, int32_t* before,
                int32_t* at, uint8_t* most, uint8_t* least) {
  for (int c = 0; c < width; ++c) {
    const int32_t threshold = thresholds[c], reach = int32_t(rules.reach[c]);
    before[c] = threshold - 1 < -reach ? -reach : threshold - 1;
    at[c] = threshold > reach ? reach : threshold;
  }
  // These differ from the neighbours of the threshold only where all sums, or none, reach the distance.
  for (int c = 0; c < width; ++c) {
    most[c] = before[c] == thresholds[c] ? 255 : uint8_t(code - 1);
    least[c] = at[c] == thresholds[c] ? code : 0;
  }
}

bool is_within(const uint8_t* before, const uint8_t* at, const uint8_t* most, const uint8_t* least, int count) {
  uint8_t wrong = 0;
  for (int c = 0; c < count; ++c) wrong |= uint8_t(before[c] > most[c]) | uint8_t(at[c] < least[c]);
  return wrong == 0;
}

}  // namespace

extern const ThresholdKernels threshold_kernels = {find, narrow, neighbours, is_within};

}  // namespace cpuacc::ISA_NS
