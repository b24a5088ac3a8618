// Rotary position embedding, against rotations of pairs in double.

#include "cpuacc/kernels/rotary.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(RotaryKernel);

void check_rotation(native::Isa isa, const RotaryRow& row) {
  Random random(uint32_t(row.pairs));
  const Floats in(random.reals(2 * row.pairs)), cos(random.reals(2 * row.pairs)), sin(random.reals(2 * row.pairs));
  Floats out(2 * row.pairs);
  rotary_kernels_for(isa).rotate(row, in.data(), cos.data(), sin.data(), out.data());
  std::vector<double> expected(size_t(2 * row.pairs));
  for (int64_t n = 0; n < row.pairs; ++n) {
    const int64_t first = row.interleaved ? 2 * n : n, second = row.interleaved ? first + 1 : n + row.pairs;
    const int64_t a = n * row.factor_step, b = a + row.second;
    expected[size_t(first)] = double(in[first]) * cos[a] - double(in[second]) * sin[a];
    expected[size_t(second)] = double(in[second]) * cos[b] + double(in[first]) * sin[b];
  }
  expect_near(out, expected, 2 * row.pairs, 1e-6,
              describe("pairs", row.pairs, "interleaved", row.interleaved, "second", row.second));
}

TEST_P(RotaryKernel, rotates_halves_and_neighbours) {
  for (int64_t pairs : {1, 3, 4, 7, 8, 15, 16, 17, 32, 33, 64})
    for (const RotaryRow& row : {RotaryRow{pairs, false, 0, 1}, RotaryRow{pairs, false, pairs, 1},
                                 RotaryRow{pairs, true, 0, 1}, RotaryRow{pairs, true, 1, 2}})
      check_rotation(isa(), row);
}

}  // namespace
}  // namespace cpuacc
