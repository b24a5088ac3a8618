#include "cpuacc/kernels/thresholds.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Find the thresholds of consecutive distances of one sign: `sign` is -1 for positive ones and 1 for others.
void find(const ThresholdRules& rules, int width, Distances distances, double sign, int32_t* thresholds, double* least,
          double* most) {
  for (int64_t row = 0; row < distances.count; ++row, thresholds += width) {
    const double middle = double(distances.first + row) - 0.5;
    for (int c = 0; c < width; ++c) {
      const double real = ((middle - rules.shift[c]) + sign * rules.rest[c]) * rules.inverse[c];
      const double low = -rules.reach[c] - 0.5, high = rules.reach[c] + 0.5;
      const double above = real < low ? low : real, within = above > high ? high : above;
      const double nearest = (within + 0x1.8p52) - 0x1.8p52;  // rounded to an integer
      const double threshold = within > nearest ? nearest + 1 : nearest, gap = threshold - within;
      thresholds[c] = int32_t(threshold);
      least[c] = gap < least[c] ? gap : least[c];
      most[c] = gap > most[c] ? gap : most[c];
    }
  }
}

void find(const ThresholdRules& rules, int width, Distances distances, int32_t* thresholds, ThresholdGaps& gaps) {
  for (int positive = 0; positive < 2; ++positive)
    for (int c = 0; c < width; ++c) gaps.least[positive][c] = kNoGap, gaps.most[positive][c] = -kNoGap;
  const int64_t end = distances.first + distances.count;
  const int64_t first = distances.first > 1 ? distances.first : end < 1 ? end : 1;  // positive distance, or the end
  const int64_t others = first - distances.first;
  find(rules, width, {distances.first, others}, 1, thresholds, gaps.least[0], gaps.most[0]);
  find(rules, width, {first, end - first}, -1, thresholds + others * width, gaps.least[1], gaps.most[1]);
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

extern const ThresholdKernels threshold_kernels = {find, neighbours, is_within};

}  // namespace cpuacc::ISA_NS
