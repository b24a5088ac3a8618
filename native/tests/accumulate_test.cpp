// Cumulative sums and products, and reductions of integers, against plain loops.

#include "cpuacc/kernels/accumulate.hpp"

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(AccumulateKernel);

template <class T>
void check_accumulation(native::Isa isa, int32_t dtype, double tolerance) {
  Random random;
  for (int64_t extent : {1, 2, 33})
    for (int64_t inner : {1, 5, 16, 70})
      for (int kind = 0; kind < 8; ++kind) {
        const Accumulate rules{(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0};
        const int64_t slices = inner == 1 ? 19 : 1, count = slices * extent * inner;
        std::vector<T> values;
        for (int64_t n = 0; n < count; ++n) values.push_back(T(random.integer(-3, 3)));
        Guarded<T> in(values), out(count);
        accumulate_kernels_for(isa).accumulate(dtype)(
            {in.data(), out.data(), extent, inner, 0, inner == 1 ? slices : inner}, rules);
        for (int64_t column = 0; column < slices * inner; ++column) {
          T sum = T(rules.product);
          for (int64_t n = 0; n < extent; ++n) {
            const int64_t row = rules.reverse ? extent - 1 - n : n;
            const int64_t at = column / inner * extent * inner + row * inner + column % inner;
            const T after = rules.product ? T(sum * in[at]) : T(sum + in[at]);
            const T expected = rules.exclusive ? sum : after;
            ASSERT_TRUE(is_near(double(out[at]), double(expected), tolerance))
                << describe("extent", extent, "inner", inner, "kind", kind, "element", at);
            sum = after;
          }
        }
      }
}

TEST_P(AccumulateKernel, accumulates_floats) {
  check_accumulation<float>(isa(), IPR_DTYPE_FLOAT32, 1e-6);
  check_accumulation<double>(isa(), IPR_DTYPE_FLOAT64, 1e-12);
}

TEST_P(AccumulateKernel, accumulates_integers_that_wrap_around) {
  check_accumulation<int8_t>(isa(), IPR_DTYPE_INT8, 0);
  check_accumulation<uint8_t>(isa(), IPR_DTYPE_UINT8, 0);
  check_accumulation<int16_t>(isa(), IPR_DTYPE_INT16, 0);
  check_accumulation<uint16_t>(isa(), IPR_DTYPE_UINT16, 0);
  check_accumulation<uint32_t>(isa(), IPR_DTYPE_UINT32, 0);
  check_accumulation<uint64_t>(isa(), IPR_DTYPE_UINT64, 0);
}

TEST_P(AccumulateKernel, reduces_integers) {
  Random random;
  for (int64_t extent : {0, 1, 2, 65})
    for (int64_t inner : {1, 5, 33}) {
      Guarded<int32_t> in(random.integers<int32_t>(extent * inner, -100, 100)), out(inner);
      auto check = [&](Reduction operation, auto expected_of) {
        accumulate_kernels_for(isa()).reduce(operation, IPR_DTYPE_INT32)(in.data(), out.data(), extent, inner, 0,
                                                                         inner);
        for (int64_t c = 0; c < inner; ++c) {
          std::vector<int64_t> column;
          for (int64_t n = 0; n < extent; ++n) column.push_back(in[n * inner + c]);
          ASSERT_EQ(out[c], expected_of(column)) << describe("operation", int(operation), "extent", extent);
        }
      };
      auto sum_of = [](const std::vector<int64_t>& column) {
        int64_t sum = 0;
        for (int64_t x : column) sum += x;
        return sum;
      };
      check(Reduction::sum, sum_of);
      check(Reduction::mean, [&](const std::vector<int64_t>& column) {
        return sum_of(column) / int64_t(std::max<size_t>(column.size(), 1));
      });
      check(Reduction::max, [](const std::vector<int64_t>& column) {
        return column.empty() ? int64_t(INT32_MIN) : *std::max_element(column.begin(), column.end());
      });
      check(Reduction::min, [](const std::vector<int64_t>& column) {
        return column.empty() ? int64_t(INT32_MAX) : *std::min_element(column.begin(), column.end());
      });
    }
}

TEST_P(AccumulateKernel, means_of_many_integers_do_not_overflow) {
  for (int64_t inner : {1, 40}) {
    const int64_t extent = 70000;
    Guarded<int16_t> in(extent * inner, int16_t(-32768)), out(inner);
    Guarded<uint8_t> bytes(extent * inner, uint8_t(255)), mean(inner);
    accumulate_kernels_for(isa()).reduce(Reduction::mean, IPR_DTYPE_INT16)(in.data(), out.data(), extent, inner, 0,
                                                                           inner);
    accumulate_kernels_for(isa()).reduce(Reduction::mean, IPR_DTYPE_UINT8)(bytes.data(), mean.data(), extent, inner, 0,
                                                                           inner);
    for (int64_t c = 0; c < inner; ++c) {
      ASSERT_EQ(out[c], -32768) << describe("inner", inner);
      ASSERT_EQ(mean[c], 255) << describe("inner", inner);
    }
  }
}

TEST_P(AccumulateKernel, reduces_float64) {
  Random random;
  for (int64_t extent : {1, 7, 8, 65})
    for (int64_t inner : {1, 5, 33}) {
      const std::vector<float> numbers = random.reals(extent * inner, -100, 100);
      const Guarded<double> in(std::vector<double>(numbers.begin(), numbers.end()));
      Guarded<double> out(inner);
      auto reduce = [&](Reduction operation) {
        accumulate_kernels_for(isa()).reduce(operation, IPR_DTYPE_FLOAT64)(in.data(), out.data(), extent, inner, 0,
                                                                           inner);
      };
      for (int64_t c = 0; c < inner; ++c) {
        double sum = 0, most = in[c];
        for (int64_t n = 0; n < extent; ++n) sum += in[n * inner + c], most = std::max(most, in[n * inner + c]);
        reduce(Reduction::mean);
        ASSERT_NEAR(out[c], sum / double(extent), 1e-12) << describe("extent", extent, "inner", inner);
        reduce(Reduction::max);
        ASSERT_EQ(out[c], most) << describe("extent", extent, "inner", inner);
      }
    }
}

}  // namespace
}  // namespace cpuacc
