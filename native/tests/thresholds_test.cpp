// The sums at which requantized results change, against a search.

#include "cpuacc/kernels/thresholds.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(ThresholdKernel);

constexpr Distances kDistances{-7, 16};

ThresholdRules random_rules(Random& random) {
  ThresholdRules rules{};
  for (int c = 0; c < kThresholdColumns; ++c) {
    rules.slope[c] = double(random.real(0.01f, 3));
    rules.shift[c] = double(random.real(-4, 4));
    rules.inverse[c] = 1 / rules.slope[c];
    rules.reach[c] = double(random.integer(0, 900));
  }
  return rules;
}

/// The distance of a sum, rounded to the nearest integer. Ties do not occur with random slopes.
double distance(const ThresholdRules& rules, int column, int64_t sum) {
  return std::nearbyint(double(sum) * rules.slope[column] + rules.shift[column]);
}

/// The least sum whose distance is at least that of a row.
int64_t searched(const ThresholdRules& rules, int column, int64_t row) {
  const int64_t reach = int64_t(rules.reach[column]);
  int64_t sum = -reach;
  while (sum <= reach && distance(rules, column, sum) < double(kDistances.first + row)) ++sum;
  return sum;
}

TEST_P(ThresholdKernel, finds_the_least_sums_of_each_distance) {
  Random random;
  for (int width : {4, 16, 64}) {
    const ThresholdRules rules = random_rules(random);
    Guarded<int32_t> thresholds(kDistances.count * width);
    ThresholdGaps gaps;
    threshold_kernels_for(isa()).find(rules, width, kDistances, thresholds.data(), gaps);
    for (int64_t n = 0; n < thresholds.size(); ++n)
      ASSERT_EQ(thresholds[n], searched(rules, int(n % width), n / width))
          << describe("width", width, "row", n / width, "column", n % width);
  }
}

TEST_P(ThresholdKernel, says_that_a_tie_is_close_to_an_integer) {
  ThresholdRules rules{};
  std::fill_n(rules.slope, kThresholdColumns, 0.5);
  std::fill_n(rules.inverse, kThresholdColumns, 2.0);
  std::fill_n(rules.reach, kThresholdColumns, 1000.0);
  rules.shift[1] = 0.125;
  Guarded<int32_t> thresholds(kDistances.count * 4);
  ThresholdGaps gaps;
  threshold_kernels_for(isa()).find(rules, 4, kDistances, thresholds.data(), gaps);
  for (int positive = 0; positive < 2; ++positive) {
    EXPECT_EQ(gaps.least[positive][0], 0);
    EXPECT_EQ(gaps.most[positive][0], 0);
    EXPECT_EQ(gaps.least[positive][1], 0.25);
    EXPECT_EQ(gaps.most[positive][1], 0.25);
  }
}

TEST_P(ThresholdKernel, moves_thresholds_by_a_first_rounding) {
  ThresholdRules rules{};
  rules.slope[0] = rules.inverse[0] = 1, rules.reach[0] = 1000, rules.rest[0] = 0.25;
  Guarded<int32_t> thresholds(kDistances.count);
  ThresholdGaps gaps;
  threshold_kernels_for(isa()).find(rules, 1, kDistances, thresholds.data(), gaps);
  for (int64_t n = 0; n < kDistances.count; ++n) {
    const double distance = double(kDistances.first + n);
    ASSERT_EQ(thresholds[n], std::ceil(distance - 0.5 + (distance > 0 ? -0.25 : 0.25))) << "distance " << distance;
  }
}

TEST_P(ThresholdKernel, writes_the_gaps_of_distances_by_their_sign) {
  Random random;
  const int width = 16;
  const ThresholdRules rules = random_rules(random);
  Guarded<int32_t> thresholds(kDistances.count * width);
  ThresholdGaps gaps;
  threshold_kernels_for(isa()).find(rules, width, kDistances, thresholds.data(), gaps);
  for (int c = 0; c < width; ++c) {
    double least[2] = {kNoGap, kNoGap}, most[2] = {-kNoGap, -kNoGap};
    for (int64_t row = 0; row < kDistances.count; ++row) {
      const double distance = double(kDistances.first + row), real = (distance - 0.5 - rules.shift[c]) / rules.slope[c];
      const double gap =
          double(thresholds[row * width + c]) - std::clamp(real, -rules.reach[c] - 0.5, rules.reach[c] + 0.5);
      least[distance > 0] = std::min(least[distance > 0], gap), most[distance > 0] = std::max(most[distance > 0], gap);
    }
    for (int positive = 0; positive < 2; ++positive) {
      EXPECT_NEAR(gaps.least[positive][c], least[positive], 1e-9) << describe("column", c, "positive", positive);
      EXPECT_NEAR(gaps.most[positive][c], most[positive], 1e-9) << describe("column", c, "positive", positive);
    }
  }
}

TEST_P(ThresholdKernel, writes_the_sums_around_thresholds_and_checks_results) {
  ThresholdRules rules{};
  std::fill_n(rules.reach, kThresholdColumns, 100.0);
  const std::vector<int32_t> thresholds{-100, -99, 7, 100, 101};  // reached by all, ..., by none
  const int width = 5;
  Guarded<int32_t> before(width), at(width);
  Guarded<uint8_t> most(width), least(width);
  const ThresholdKernels& kernels = threshold_kernels_for(isa());
  kernels.neighbours(rules, width, thresholds.data(), 9, before.data(), at.data(), most.data(), least.data());
  expect_equal(before, std::vector<int32_t>{-100, -100, 6, 99, 100}, width, "before");
  expect_equal(at, std::vector<int32_t>{-100, -99, 7, 100, 100}, width, "at");
  expect_equal(most, std::vector<uint8_t>{255, 8, 8, 8, 8}, width, "most");
  expect_equal(least, std::vector<uint8_t>{9, 9, 9, 9, 0}, width, "least");

  const std::vector<uint8_t> codes_before{200, 8, 0, 8, 8}, codes_at{9, 9, 255, 10, 0};
  EXPECT_TRUE(kernels.is_within(codes_before.data(), codes_at.data(), most.data(), least.data(), width));
  for (size_t n = 1; n < 4; ++n) {
    std::vector<uint8_t> high = codes_before, low = codes_at;
    high[n] = 9, low[n] = 8;
    EXPECT_FALSE(kernels.is_within(high.data(), codes_at.data(), most.data(), least.data(), width)) << n;
    EXPECT_FALSE(kernels.is_within(codes_before.data(), low.data(), most.data(), least.data(), width)) << n;
  }
}

}  // namespace
}  // namespace cpuacc
