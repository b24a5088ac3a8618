// Sums of products of 16-bit integers, for sizes around vectors, tiles and pieces, against plain loops.

#include "cpuacc/kernels/wide.hpp"

#include "common/fixed_point.hpp"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(WideKernel);

/// Random integers up to `largest`, many of them at the limits, where sums are largest.
std::vector<int16_t> extremes(Random& random, int64_t count, int64_t least, int64_t largest) {
  std::vector<int16_t> values;
  for (int64_t n = 0; n < count; ++n)
    values.push_back(int16_t(random.integer(0, 3) ? least : random.integer(least, largest)));
  return values;
}

TEST_P(WideKernel, sums_products_exactly) {
  Random random;
  for (bool narrow : {true, false})
    for (int64_t depth : {0, 32, 96, 256, 288, 4096})
      for (int64_t rows : {1, 2, 5})
        for (int64_t count : {1, 4, 6}) {
          const int64_t in_step = depth + 32, out_step = rows + 1, most = narrow ? 255 : 32767;
          const Guarded<int16_t> weights(extremes(random, rows * depth, narrow ? -255 : -32768, most));
          const Guarded<int16_t> in(extremes(random, count * in_step, -32768, 32767));
          Guarded<int64_t> out(count * out_step, 7);
          wide_kernels_for(isa()).multiply(weights.data(), in.data(), in_step, count, depth, rows, narrow, out.data(),
                                           out_step);
          for (int64_t n = 0; n < count; ++n)
            for (int64_t row = 0; row < out_step; ++row) {
              int64_t sum = row < rows ? 0 : 7;
              for (int64_t k = 0; row < rows && k < depth; ++k)
                sum += int64_t{weights[row * depth + k]} * in[n * in_step + k];
              ASSERT_EQ(out[n * out_step + row], sum) << describe("depth", depth, "rows", rows, "narrow", narrow);
            }
        }
}

TEST_P(WideKernel, sums_taps_of_depthwise_convolutions) {
  Random random;
  for (int64_t channels : {1, 4, 15, 16, 33})
    for (int64_t pixels : {1, 4, 7})
      for (int64_t count : {0, 1, 9, 128}) {
        const int64_t step = channels + 1, sum_step = channels + 2;
        const Guarded<int16_t> in(extremes(random, pixels * step + count, -32768, 32767));
        const Guarded<int16_t> weights(extremes(random, count * channels, -255, 255));
        std::vector<WideTap> taps;
        for (int64_t tap = 0; tap < count; ++tap) taps.push_back({in.data() + tap, weights.data() + tap * channels});
        Guarded<int32_t> sums(pixels * sum_step, 7);
        wide_kernels_for(isa()).depthwise(taps.data(), count, pixels, step, channels, sums.data(), sum_step);
        for (int64_t n = 0; n < pixels; ++n)
          for (int64_t c = 0; c < sum_step; ++c) {
            int32_t sum = c < channels ? 0 : 7;
            for (int64_t tap = 0; c < channels && tap < count; ++tap)
              sum += in[n * step + c + tap] * weights[tap * channels + c];
            ASSERT_EQ(sums[n * sum_step + c], sum) << describe("channels", channels, "taps", count, "pixel", n);
          }
      }
}

/// Sums for a test of requantization: small and large ones, and multiples of halves.
std::vector<int32_t> sums_with_limits(Random& random, int64_t count) {
  std::vector<int32_t> sums = random.integers<int32_t>(count, -(1 << 30), 1 << 30);
  for (size_t n = 0; n < sums.size(); n += 3) sums[n] = int32_t(random.integer(-70000, 70000));
  for (size_t n = 1; n < sums.size(); n += 7) sums[n] = int32_t(random.integer(-32, 32)) << 20;
  return sums;
}

TEST_P(WideKernel, requantizes_in_fixed_point) {
  Random random;
  for (int64_t channels : {1, 15, 16, 40})
    for (int32_t zero : {0, -300}) {
      const int64_t padded = (channels + 15) / 16 * 16, pixels = 50;
      const Guarded<int32_t> sums(sums_with_limits(random, pixels * padded));
      const Guarded<int32_t> bias(random.integers<int32_t>(padded)), shifts(random.integers<int32_t>(padded, -31, 14));
      const Guarded<int32_t> multipliers(random.integers<int32_t>(padded, 1 << 30, INT32_MAX));
      const WideScales scales{bias.data(), multipliers.data(), shifts.data(), nullptr, nullptr, zero};
      Guarded<int16_t> out(pixels * channels);
      wide_kernels_for(isa()).requantize(sums.data(), padded, pixels, channels, scales, out.data(), channels);
      for (int64_t n = 0; n < pixels * channels; ++n) {
        const int64_t c = n % channels, sum = native::wrapped(int64_t{sums[n / channels * padded + c]} + bias[c]);
        const int64_t expected = native::multiply(sum, {multipliers[c], shifts[c]}) + zero;
        ASSERT_EQ(out[n], std::clamp<int64_t>(expected, -32768, 32767)) << describe("sum", sum, "shift", shifts[c]);
      }
    }
}

TEST_P(WideKernel, requantizes_with_exact_products) {
  Random random;
  for (int64_t channels : {1, 15, 16, 40})
    for (int32_t zero : {0, 300}) {
      const int64_t padded = (channels + 15) / 16 * 16, pixels = 50, most = int64_t(1) << 37;
      const Guarded<int32_t> sums(sums_with_limits(random, pixels * padded));
      Guarded<double> ratios(padded), bias(padded);
      std::vector<int64_t> multipliers, shifts;
      for (int64_t c = 0; c < padded; ++c) {
        multipliers.push_back(c % 4 ? random.integer(1 << 14, 0x7FFF) : 1 << 14),
            shifts.push_back(random.integer(1, 46));
        ratios[c] = std::ldexp(double(multipliers.back()), -int(shifts.back()));
        bias[c] = double(c % 3 ? random.integer(-most, most) : 0);
      }
      const WideScales scales{nullptr, nullptr, nullptr, ratios.data(), bias.data(), zero};
      Guarded<int16_t> out(pixels * channels);
      wide_kernels_for(isa()).requantize(sums.data(), padded, pixels, channels, scales, out.data(), channels);
      for (int64_t n = 0; n < pixels * channels; ++n) {
        const size_t c = size_t(n % channels);
        const int64_t sum = sums[n / channels * padded + int64_t(c)] + int64_t(bias[int64_t(c)]);
        const int64_t expected = ((sum * multipliers[c] + (int64_t(1) << (shifts[c] - 1))) >> shifts[c]) + zero;
        ASSERT_EQ(out[n], std::clamp<int64_t>(expected, -32768, 32767)) << describe("sum", sum, "shift", shifts[c]);
      }
    }
}

}  // namespace
}  // namespace cpuacc
