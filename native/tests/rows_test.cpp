// Softmax, reductions and normalizations of rows and columns, against sums in double.

#include "cpuacc/kernels/rows.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(SoftmaxKernel);
KERNEL_SUITE(ReduceKernel);
KERNEL_SUITE(NormalizeKernel);

const int64_t kExtents[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130};
const int64_t kInners[] = {1, 3, 8, 16, 17, 255, 257};

/// Calls work(extent, inner) for the sizes around the widths of vectors.
template <class Work>
void for_shapes(const Work& work) {
  for (int64_t extent : kExtents)
    for (int64_t inner : kInners) work(extent, inner);
}

TEST_P(SoftmaxKernel, follows_the_definition) {
  Random random;
  for_shapes([&](int64_t extent, int64_t inner) {
    for (float beta : {1.0f, -0.5f})
      for (bool logarithm : {false, true}) {
        Floats in(random.reals(extent * inner, -8, 8)), out(extent * inner);
        const int64_t middle = inner / 2;
        if (middle > 0)
          softmax_kernels_for(isa()).softmax(in.data(), out.data(), extent, inner, 0, middle, beta, logarithm);
        softmax_kernels_for(isa()).softmax(in.data(), out.data(), extent, inner, middle, inner, beta, logarithm);
        std::vector<double> expected(static_cast<size_t>(extent * inner));
        for (int64_t c = 0; c < inner; ++c) {
          double total = 0;
          for (int64_t e = 0; e < extent; ++e) total += std::exp(double(beta) * in[e * inner + c]);
          for (int64_t e = 0; e < extent; ++e) {
            double power = double(beta) * in[e * inner + c];
            expected[size_t(e * inner + c)] = logarithm ? power - std::log(total) : std::exp(power) / total;
          }
        }
        expect_near(out, expected, out.size(), 4e-6,
                    describe("extent", extent, "inner", inner, "logarithm", logarithm));
      }
  });
}

TEST_P(SoftmaxKernel, does_not_overflow_with_a_negative_factor) {
  for (int64_t inner : {1, 4})
    for (bool logarithm : {false, true}) {
      Floats in(20 * inner, 2000.0f), out(20 * inner);
      for (int64_t c = 0; c < inner; ++c) in[3 * inner + c] = 0;
      softmax_kernels_for(isa()).softmax(in.data(), out.data(), 20, inner, 0, inner, -1, logarithm);
      EXPECT_EQ(out[3 * inner], logarithm ? 0.0f : 1.0f);
      EXPECT_EQ(out[0], logarithm ? -2000.0f : 0.0f);
    }
}

TEST_P(SoftmaxKernel, gives_zero_at_minus_infinity_and_nan_for_nan) {
  for (int64_t inner : {1, 4}) {
    Floats in(20 * inner, 0.5f), out(20 * inner);
    in[3 * inner] = -kInfinity;
    if (inner > 1) in[inner + 1] = kNan;
    softmax_kernels_for(isa()).softmax(in.data(), out.data(), 20, inner, 0, inner, 1, false);
    EXPECT_EQ(out[3 * inner], 0.0f);
    EXPECT_NEAR(out[0], 1.0 / 19, 1e-6);
    for (int64_t c = 1; c < inner; ++c) EXPECT_EQ(std::isnan(out[c]), c == 1);
  }
}

double reduced(Reduction operation, const std::vector<double>& values) {
  double sum = 0, size = 0, squares = 0, product = 1, largest = -INFINITY, least = INFINITY, powers = 0;
  for (double x : values) {
    sum += x, size += std::abs(x), squares += x * x, product *= x, powers += std::exp(x);
    largest = std::max(largest, x), least = std::min(least, x);
  }
  switch (operation) {
    case Reduction::max:
      return largest;
    case Reduction::min:
      return least;
    case Reduction::mean:
      return sum / double(values.size());
    case Reduction::prod:
      return product;
    case Reduction::l1:
      return size;
    case Reduction::l2:
      return std::sqrt(squares);
    case Reduction::log_sum:
      return std::log(sum);
    case Reduction::log_sum_exp:
      return std::log(powers);
    case Reduction::sum_square:
      return squares;
    default:
      return sum;
  }
}

TEST_P(ReduceKernel, follows_the_definition) {
  Random random;
  for (int operation = 0; operation < int(Reduction::none); ++operation)
    for_shapes([&](int64_t extent, int64_t inner) {
      Floats in(random.reals(extent * inner, 0.5f, 1.25f)), out(inner);
      const int64_t middle = inner / 2;
      if (middle > 0)
        reduce_kernels_for(isa()).reduce(Reduction(operation), in.data(), out.data(), extent, inner, 0, middle);
      reduce_kernels_for(isa()).reduce(Reduction(operation), in.data(), out.data(), extent, inner, middle, inner);
      std::vector<double> expected;
      for (int64_t c = 0; c < inner; ++c) {
        std::vector<double> values;
        for (int64_t e = 0; e < extent; ++e) values.push_back(in[e * inner + c]);
        expected.push_back(reduced(Reduction(operation), values));
      }
      expect_near(out, expected, inner, 1e-5, describe("reduction", operation, "extent", extent, "inner", inner));
    });
}

TEST_P(ReduceKernel, keeps_nan_in_the_largest_and_the_smallest) {
  for (int64_t extent : {3, 20, 70})
    for (int64_t inner : {1, 5})
      for (Reduction operation : {Reduction::max, Reduction::min}) {
        Floats in(extent * inner, 1.0f), out(inner);
        in[(extent / 2) * inner] = kNan;
        reduce_kernels_for(isa()).reduce(operation, in.data(), out.data(), extent, inner, 0, inner);
        EXPECT_TRUE(std::isnan(out[0])) << describe("extent", extent, "inner", inner);
        for (int64_t c = 1; c < inner; ++c) EXPECT_EQ(out[c], 1.0f);
      }
}

TEST_P(NormalizeKernel, divides_by_the_length) {
  Random random;
  for_shapes([&](int64_t extent, int64_t inner) {
    Floats in(random.reals(extent * inner)), out(extent * inner);
    normalize_kernels_for(isa()).unit_length(in.data(), out.data(), extent, inner, 0, inner, 1e-3f);
    std::vector<double> expected(static_cast<size_t>(extent * inner));
    for (int64_t n = 0; n < extent * inner; ++n) {
      double squares = 0;
      for (int64_t e = 0; e < extent; ++e) squares += double(in[e * inner + n % inner]) * in[e * inner + n % inner];
      expected[size_t(n)] = in[n] / std::sqrt(std::max(squares, 1e-3));
    }
    expect_near(out, expected, out.size(), 1e-5, describe("extent", extent, "inner", inner));
  });
}

TEST_P(NormalizeKernel, divides_by_the_response_of_neighbors) {
  Random random;
  for (float beta : {0.75f, 0.5f, 1.0f, 0.9f, 0.0f})
    for (int64_t size : {1, 2, 5, 300})
      for_shapes([&](int64_t extent, int64_t inner) {
        const ResponseParameters by{1.5f, 0.3f, beta, size, (size - 1) / 2};
        Floats in(random.reals(extent * inner)), out(extent * inner);
        const int64_t middle = inner / 2;
        normalize_kernels_for(isa()).response(in.data(), out.data(), extent, inner, 0, middle, by);
        normalize_kernels_for(isa()).response(in.data(), out.data(), extent, inner, middle, inner, by);
        std::vector<double> expected;
        for (int64_t n = 0; n < extent * inner; ++n) {
          const int64_t start = n / inner - by.before;
          double squares = 0;
          for (int64_t e = std::max<int64_t>(0, start); e < std::min(extent, start + size); ++e)
            squares += double(in[e * inner + n % inner]) * in[e * inner + n % inner];
          expected.push_back(in[n] / std::pow(1.5 + double(by.alpha) * squares, double(beta)));
        }
        expect_near(out, expected, out.size(), 1e-5, describe("extent", extent, "inner", inner, "size", size));
      });
}

TEST_P(NormalizeKernel, standardizes_a_row) {
  Random random;
  for (int64_t length : kExtents)
    for (Spread spread : {Spread::variance, Spread::deviation, Spread::mean_square})
      for (bool affine : {false, true}) {
        Floats in(random.reals(length, -2, 3)), out(length), scale(random.reals(length)), shift(random.reals(length));
        const float eps = 0.01f;
        Affine with{affine ? scale.data() : nullptr, affine ? shift.data() : nullptr, 1, length};
        normalize_kernels_for(isa()).standardize(in.data(), out.data(), 1, length, spread, eps, with);
        double mean = 0, variance = 0;
        for (int64_t n = 0; n < length && spread != Spread::mean_square; ++n) mean += in[n] / double(length);
        for (int64_t n = 0; n < length; ++n) variance += (in[n] - mean) * (in[n] - mean) / double(length);
        double size = spread == Spread::deviation ? std::sqrt(variance) + eps : std::sqrt(variance + eps);
        std::vector<double> expected;
        for (int64_t n = 0; n < length; ++n)
          expected.push_back(affine ? (in[n] - mean) / size * scale[n] + shift[n] : (in[n] - mean) / size);
        expect_near(out, expected, length, 2e-5, describe("length", length, "spread", int(spread), "affine", affine));
      }
}

TEST_P(NormalizeKernel, standardizes_rows_together_as_each_alone) {
  Random random;
  for (int64_t length : kExtents)
    for (int64_t rows : {2, 3, 5, 9}) {
      Floats in(random.reals(rows * length, -2, 3)), out(rows * length), alone(rows * length);
      Floats scale(random.reals(length)), shift(random.reals(length));
      in[(rows - 1) * length] = 1e30f;  // the squares of one row leave the range of float
      const Affine with{scale.data(), shift.data(), 1, length};
      const auto standardize = normalize_kernels_for(isa()).standardize;
      standardize(in.data(), out.data(), rows, length, Spread::variance, 1e-5f, with);
      for (int64_t at = 0; at < rows * length; at += length)
        standardize(in.data() + at, alone.data() + at, 1, length, Spread::variance, 1e-5f, with);
      for (int64_t n = 0; n < rows * length; ++n)
        EXPECT_EQ(out[n], alone[n]) << describe("length", length, "rows", rows, "element", n);
    }
}

TEST_P(ReduceKernel, adds_rows_as_exactly_as_a_tree_of_sums) {
  Random random;
  for (int64_t extent : {15, 32, 100, 1000, 100000})
    for (Reduction operation : {Reduction::sum, Reduction::mean, Reduction::log_sum_exp}) {
      Floats in(random.reals(extent, 0.5f, 1.25f)), out(1);
      reduce_kernels_for(isa()).reduce(operation, in.data(), out.data(), extent, 1, 0, 1);
      const double expected = reduced(operation, std::vector<double>(in.data(), in.data() + extent));
      EXPECT_NEAR(out[0], expected, 4e-7 * std::abs(expected))
          << describe("extent", extent, "operation", int(operation));
    }
}

TEST_P(NormalizeKernel, makes_zeros_of_a_row_of_equal_numbers) {
  for (int64_t length : kExtents)
    for (float value : {0.1f, 10.121602f, 12.040234f, -3e5f}) {
      Floats in(length, value), out(length);
      normalize_kernels_for(isa()).standardize(in.data(), out.data(), 1, length, Spread::variance, 1e-12f,
                                               {nullptr, nullptr, 1, 1});
      for (int64_t n = 0; n < length; ++n) EXPECT_EQ(out[n], 0.0f) << describe("length", length, "value", value);
    }
}

TEST_P(NormalizeKernel, scales_and_shifts_by_the_number_of_the_element) {
  Random random;
  for (int64_t inner : {1, 3, 16})
    for (int64_t period : {1, 5, 16, 40})
      for (int kind = 0; kind < 4; ++kind) {
        const int64_t count = 203, begin = 11;
        Floats in(random.reals(count)), out(count), scale(random.reals(period)), shift(random.reals(period));
        Affine with{kind & 1 ? scale.data() : nullptr, kind & 2 ? shift.data() : nullptr, inner, period};
        normalize_kernels_for(isa()).affine(in.data(), out.data(), count, begin, with);
        std::vector<double> expected;
        for (int64_t n = 0; n < count; ++n) {
          int64_t at = (begin + n) / inner % period;
          expected.push_back(double(in[n]) * (kind & 1 ? scale[at] : 1) + (kind & 2 ? shift[at] : 0));
        }
        expect_near(out, expected, count, 1e-6, describe("inner", inner, "period", period, "kind", kind));
      }
}

TEST_P(NormalizeKernel, normalizes_batches_by_channel) {
  Random random;
  for (int64_t inner : {1, 3, 16, 49})
    for (int64_t channels : {1, 5, 16, 40}) {
      const int64_t count = 203, begin = 11;
      Floats in(random.reals(count)), out(count), mean(random.reals(channels)), factor(random.reals(channels, 0.5f, 2));
      Floats gamma(random.reals(channels)), beta(random.reals(channels));
      const BatchParameters with{mean.data(), factor.data(), gamma.data(), beta.data(), inner, channels};
      normalize_kernels_for(isa()).batch(in.data(), out.data(), count, begin, with);
      std::vector<double> expected;
      for (int64_t n = 0; n < count; ++n) {
        int64_t c = (begin + n) / inner % channels;
        expected.push_back((double(in[n]) - mean[c]) * factor[c] * gamma[c] + beta[c]);
      }
      expect_near(out, expected, count, 2e-6, describe("inner", inner, "channels", channels));
    }
}

TEST_P(NormalizeKernel, adds_the_deviations_of_blocks) {
  Random random;
  for (int64_t pixels : {1, 3, 4, 7, 40}) {
    Floats in(random.reals(pixels * 16)), center(random.reals(16)), sums(16, 2.0f), squares(16, 3.0f);
    normalize_kernels_for(isa()).deviations_block(in.data(), pixels, center.data(), sums.data(), squares.data());
    for (int64_t lane = 0; lane < 16; ++lane) {
      double sum = 2, square = 3;
      for (int64_t n = 0; n < pixels; ++n) {
        const double distance = double(in[n * 16 + lane]) - double(center[lane]);
        sum += distance, square += distance * distance;
      }
      ASSERT_NEAR(sums[lane], sum, 1e-4) << describe("pixels", pixels, "lane", lane);
      ASSERT_NEAR(squares[lane], square, 1e-4) << describe("pixels", pixels, "lane", lane);
    }
  }
}

TEST_P(NormalizeKernel, normalizes_and_clamps_a_block_of_channels) {
  Random random;
  for (int64_t pixels : {1, 2, 7, 50}) {
    Floats in(random.reals(pixels * 16)), out(pixels * 16), mean(random.reals(16)), factor(random.reals(16, 0.5f, 2));
    Floats gamma(random.reals(16)), beta(random.reals(16));
    const BatchParameters with{mean.data(), factor.data(), gamma.data(), beta.data(), 0, 16};
    normalize_kernels_for(isa()).batch_block(in.data(), out.data(), pixels, with, -0.5f, 0.75f);
    std::vector<double> expected;
    for (int64_t n = 0; n < pixels * 16; ++n) {
      int64_t c = n % 16;
      expected.push_back(std::clamp((double(in[n]) - mean[c]) * factor[c] * gamma[c] + beta[c], -0.5, 0.75));
    }
    expect_near(out, expected, pixels * 16, 2e-6, describe("pixels", pixels));
  }
}

TEST_P(NormalizeKernel, clamps_and_keeps_nan) {
  Random random;
  for (int64_t count : kExtents) {
    Floats values(random.reals(count, -4, 4));
    values[count / 2] = kNan;
    std::vector<float> expected;
    for (int64_t n = 0; n < count; ++n) expected.push_back(n == count / 2 ? kNan : std::clamp(values[n], -1.0f, 2.0f));
    normalize_kernels_for(isa()).clamp(values.data(), count, -1, 2);
    expect_equal(values, expected, count, describe("count", count));
  }
}

TEST_P(NormalizeKernel, scales_shifts_and_clamps_a_block_of_channels) {
  Random random;
  for (int64_t pixels : {1, 2, 7, 14, 50}) {
    Floats in(random.reals(pixels * 16)), out(pixels * 16), scale(random.reals(16)), shift(random.reals(16));
    normalize_kernels_for(isa()).affine_block(in.data(), out.data(), pixels, scale.data(), shift.data(), -0.5f, 0.75f);
    std::vector<double> expected;
    for (int64_t n = 0; n < pixels * 16; ++n)
      expected.push_back(std::clamp(double(in[n]) * scale[n % 16] + shift[n % 16], -0.5, 0.75));
    expect_near(out, expected, pixels * 16, 1e-6, describe("pixels", pixels));
  }
}

}  // namespace
}  // namespace cpuacc
