// Simulated quantization against plain loops.

#include "cpuacc/kernels/dynamic.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(DynamicKernel);

TEST_P(DynamicKernel, rounds_numbers_to_steps) {
  Random random;
  for (int64_t count : {1, 7, 15, 16, 17, 33, 131})
    for (float zero : {0.0f, -128.0f, 5.0f}) {
      const DynamicSteps steps{0.25f, 4.0f, zero, zero == 0 ? -127.0f : -128.0f};
      Guarded<float> in(random.reals(count)), out(count);
      for (int64_t n = 0; n < count; ++n) in[n] = n % 3 == 0 ? 0.125f * float(n - 20) : in[n] * 40;
      if (count > 20) in[3] = 1e30f, in[4] = -1e30f, in[5] = 0.25f * 0.49999997f;
      dynamic_kernels_for(isa()).round(in.data(), out.data(), count, steps);
      for (int64_t n = 0; n < count; ++n) {
        volatile float product = in[n] * steps.inverse, place = zero + product;
        const float whole = std::copysign(std::floor(double(std::fabs(place)) + 0.5), double(place));
        const float expected = (std::clamp(whole, steps.low, 127.0f) - zero) * steps.scale;
        ASSERT_EQ(out[n], expected) << describe("count", count, "zero", zero, "element", n);
      }
    }
}

TEST_P(DynamicKernel, rounds_numbers_to_steps_of_a_range) {
  Random random;
  for (int64_t count : {1, 7, 15, 16, 17, 33, 131})
    for (float low : {-2.0f, 0.0f, -0.3f}) {
      const float scale = low == 0 ? 0.25f : 5.0f / 65535;
      const RangeSteps steps{low, low + 65535 * scale, scale, 1 / scale};
      Guarded<float> in(random.reals(count, -4, 4)), out(count);
      if (count > 20) in[3] = kInfinity, in[4] = -kInfinity, in[5] = kNan, in[6] = low + 0.5f * scale;
      dynamic_kernels_for(isa()).round_in_range(in.data(), out.data(), count, steps);
      for (int64_t n = 0; n < count; ++n) {
        const float inside = in[n] < low ? low : in[n] > steps.high ? steps.high : in[n];
        volatile float place = (inside - low) * steps.inverse;
        volatile float product = float(std::floor(double(place) + 0.5)) * scale;
        ASSERT_TRUE(is_near(out[n], product + low, 0)) << describe("count", count, "low", low, "element", n);
      }
    }
}

}  // namespace
}  // namespace cpuacc
