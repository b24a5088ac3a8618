// Parts of recurrent steps, for sizes around a block of 16, against plain loops.

#include "cpuacc/kernels/recurrent.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(RecurrentKernel);

TEST_P(RecurrentKernel, multiplies_several_vectors_by_blocks_of_rows) {
  Random random;
  for (int64_t rows : {16, 48, 64, 80, 144})
    for (int64_t depth : {0, 1, 7, 33})
      for (int64_t count : {1, 3, 4, 6}) {
        const int64_t in_step = depth + 3, out_step = rows + 16;
        const std::vector<float> weights = random.reals(rows * depth), in = random.reals(count * in_step),
                                 before = random.reals(count * out_step);
        Guarded<float> packed(rows * depth);
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t k = 0; k < depth; ++k)
            packed[(row / 16 * depth + k) * 16 + row % 16] = weights[size_t(row * depth + k)];
        Guarded<float> out(before);
        recurrent_kernels_for(isa()).multiply(packed.data(), in.data(), in_step, count, depth, rows, out.data(),
                                              out_step);
        for (int64_t n = 0; n < count; ++n)
          for (int64_t row = 0; row < out_step; ++row) {
            double sum = before[size_t(n * out_step + row)];
            for (int64_t k = 0; row < rows && k < depth; ++k)
              sum += double(weights[size_t(row * depth + k)]) * in[size_t(n * in_step + k)];
            ASSERT_NEAR(out[n * out_step + row], sum, 1e-4) << describe("rows", rows, "depth", depth, "row", row);
          }
      }
}

TEST_P(RecurrentKernel, sums_products_of_integers_exactly) {
  Random random;
  for (int64_t depth : {0, 1, 15, 16, 17, 300}) {
    Guarded<int16_t> weights(5 * depth), in(depth);
    for (int64_t n = 0; n < 5 * depth; ++n) weights[n] = int16_t(random.integer(-255, 255));
    for (int64_t n = 0; n < depth; ++n) in[n] = int16_t(random.integer(-255, 255));
    Guarded<int32_t> out(5);
    recurrent_kernels_for(isa()).multiply_integers(weights.data(), in.data(), depth, 5, out.data());
    for (int64_t row = 0; row < 5; ++row) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += weights[row * depth + k] * in[k];
      ASSERT_EQ(out[row], sum) << describe("depth", depth, "row", row);
    }
  }
}

TEST_P(RecurrentKernel, updates_cells_within_a_bound_with_and_without_an_input_gate) {
  Random random;
  const std::vector<float> forget = random.reals(32), input = random.reals(32), candidate = random.reals(32),
                           before = random.reals(32);
  for (float bound : {kInfinity, 0.25f})
    for (bool coupled : {false, true}) {
      Guarded<float> cell(before);
      recurrent_kernels_for(isa()).update(forget.data(), coupled ? nullptr : input.data(), candidate.data(),
                                          cell.data(), 32, bound);
      for (size_t n = 0; n < 32; ++n) {
        const float added = coupled ? 1 - forget[n] : input[n], now = forget[n] * before[n] + added * candidate[n];
        ASSERT_NEAR(cell[int64_t(n)], std::clamp(now, -bound, bound), 1e-6);
      }
    }
}

TEST_P(RecurrentKernel, normalizes_any_number_of_units) {
  Random random;
  for (int64_t units : {1, 5, 16, 37}) {
    const std::vector<float> before = random.reals(units), weights = random.reals(units), bias = random.reals(units);
    double mean = 0, variance = 0;
    for (float value : before) mean += value / double(units);
    for (float value : before) variance += (value - mean) * (value - mean) / double(units);
    Guarded<float> x(before);
    recurrent_kernels_for(isa()).normalize(x.data(), weights.data(), bias.data(), units);
    for (size_t n = 0; n < size_t(units); ++n)
      ASSERT_NEAR(x[int64_t(n)], (before[n] - mean) / std::sqrt(variance + 1e-8) * weights[n] + bias[n], 1e-4);
  }
}

}  // namespace
}  // namespace cpuacc
