// Sums of products of 16-bit integers, for sizes around vectors, tiles and pieces, against plain loops.

#include "cpuacc/kernels/wide.hpp"

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

TEST_P(WideKernel, adds_products_of_single_elements) {
  Random random;
  for (int64_t count : {0, 1, 15, 16, 33}) {
    const Guarded<int16_t> x(extremes(random, count, -32768, 32767)), weights(extremes(random, count, -255, 255));
    Guarded<int32_t> sums(count, -5);
    wide_kernels_for(isa()).add_products(sums.data(), x.data(), weights.data(), count);
    for (int64_t n = 0; n < count; ++n) ASSERT_EQ(sums[n], x[n] * weights[n] - 5);
  }
}

}  // namespace
}  // namespace cpuacc
