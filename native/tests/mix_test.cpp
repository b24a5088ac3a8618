// Products with a small matrix along an axis that is not the last one, against plain loops.

#include "cpuacc/kernels/mix.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(MixKernel);

TEST_P(MixKernel, multiplies_rows_by_a_matrix) {
  Random random;
  for (int64_t inputs : {1, 3, 16})
    for (int64_t outputs : {1, 3, 4, 9})
      for (int64_t length : {64, 67, 95, 129}) {
        const int64_t padded = (outputs + kMixedTogether - 1) / kMixedTogether * kMixedTogether;
        const std::vector<float> matrix = random.reals(inputs * outputs);
        Floats in(random.reals(inputs * length)), out(outputs * length), bias(random.reals(padded));
        Floats weights(padded * inputs, 0.0f);
        for (int64_t row = 0; row < outputs; ++row)
          for (int64_t k = 0; k < inputs; ++k)
            weights[(row / kMixedTogether * inputs + k) * kMixedTogether + row % kMixedTogether] =
                matrix[size_t(row * inputs + k)];
        const Mix mix{inputs, outputs, length, weights.data(), bias.data()};
        const int64_t middle = length / 2;
        mix_kernels_for(isa()).mix(mix, in.data(), out.data(), 0, middle);
        mix_kernels_for(isa()).mix(mix, in.data(), out.data(), middle, length);
        for (int64_t n = 0; n < outputs * length; ++n) {
          double sum = double(bias[n / length]);
          for (int64_t k = 0; k < inputs; ++k)
            sum += double(matrix[size_t(n / length * inputs + k)]) * double(in[k * length + n % length]);
          ASSERT_TRUE(is_near(double(out[n]), sum, 1e-5))
              << describe("inputs", inputs, "outputs", outputs, "length", length, "element", n);
        }
      }
}

}  // namespace
}  // namespace cpuacc
