// Images sampled at positions of a grid, and regions that are divided into bins, against plain loops.

#include "cpuacc/kernels/sample.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(SampleKernel);

double mirrored(double at, double size, bool corners) {
  const double low = corners ? 0 : -0.5, length = corners ? size - 1 : size;
  if (length == 0) return 0;
  double way = std::fmod(at - low, 2 * length);
  if (way < 0) way += 2 * length;
  return std::min(way, 2 * length - way) + low;
}

/// The value of a pixel along one axis, beyond the border as the padding says; false if it is a zero.
bool pixel_of(const GridRules& rules, double size, double& number) {
  if (rules.padding == SamplePadding::zeros && (number < 0 || number >= size)) return false;
  if (rules.padding == SamplePadding::reflection) number = mirrored(number, size, rules.align_corners);
  number = std::clamp(number, 0.0, size - 1);
  return true;
}

double weight_of(SampleMode mode, double distance) {
  distance = std::abs(distance);
  if (mode == SampleMode::linear) return std::max(0.0, 1 - distance);
  if (distance <= 1) return (1.25 * distance - 2.25) * distance * distance + 1;
  return distance < 2 ? ((-0.75 * distance + 3.75) * distance - 6) * distance + 3 : 0;
}

/// A pixel of a two-dimensional image at a position, by the definition of the operator.
double sampled(const GridRules& rules, const Floats& image, const float* grid) {
  double at[2];
  for (int axis = 0; axis < 2; ++axis) {
    const double size = double(rules.sizes[axis]), place = grid[1 - axis];
    at[axis] = rules.align_corners ? (place + 1) / 2 * (size - 1) : ((place + 1) * size - 1) / 2;
    if (rules.padding == SamplePadding::reflection) at[axis] = mirrored(at[axis], size, rules.align_corners);
  }
  double sum = 0;
  for (double y = std::floor(at[0]) - 1; y < std::floor(at[0]) + 3; ++y)
    for (double x = std::floor(at[1]) - 1; x < std::floor(at[1]) + 3; ++x) {
      double row = y, column = x;
      if (!pixel_of(rules, double(rules.sizes[0]), row) || !pixel_of(rules, double(rules.sizes[1]), column)) continue;
      sum += weight_of(rules.mode, at[0] - y) * weight_of(rules.mode, at[1] - x) *
             image[int64_t(row) * rules.sizes[1] + int64_t(column)];
    }
  return sum;
}

TEST_P(SampleKernel, mixes_the_pixels_around_each_position) {
  Random random;
  const SampleKernels& kernels = sample_kernels_for(isa());
  for (SampleMode mode : {SampleMode::linear, SampleMode::cubic})
    for (SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection})
      for (bool corners : {false, true})
        for (int64_t count : {1, 15, 64}) {
          GridRules rules{mode, padding, corners, 2, {5, 7, 0}};
          const int64_t pixels = 35, channels = 3;
          Floats in(random.reals(channels * pixels)), grid(random.reals(2 * count, -1.7f, 1.7f));
          Floats out(channels * count);
          Neighbours neighbours;
          kernels.find(rules, grid.data(), count, neighbours);
          kernels.mix(neighbours, in.data(), out.data(), count, channels, pixels, count);
          for (int64_t c = 0; c < channels; ++c) {
            Floats image(std::vector<float>(in.data() + c * pixels, in.data() + (c + 1) * pixels));
            for (int64_t n = 0; n < count; ++n)
              ASSERT_NEAR(out[c * count + n], sampled(rules, image, grid.data() + 2 * n), 2e-5)
                  << describe("mode", int(mode), "padding", int(padding), "corners", int(corners), "position", n);
          }
        }
}

TEST_P(SampleKernel, surrounds_positions_in_pixels_with_weights_times_a_scale) {
  Random random;
  const SampleKernels& kernels = sample_kernels_for(isa());
  const int64_t height = 5, width = 7;
  for (bool scales : {false, true})
    for (int64_t count : {1, 15, 64}) {
      Floats y(random.reals(count, -2, 7)), x(random.reals(count, -2, 9)), scale(random.reals(count)), out(count);
      Floats image(random.reals(height * width));
      y[0] = 2, x[0] = 3;                // the other neighbours have the weight 0
      image[2 * width + 4] = kInfinity;  // and do not count, even if they are infinite
      if (count > 2) y[1] = kNan, y[2] = -1e30f;
      for (int64_t n = 1; n < count; ++n)
        if (std::floor(y[n]) == 2 || std::floor(y[n]) == 1) y[n] += 2;
      Neighbours neighbours;
      kernels.surround(y.data(), x.data(), scales ? scale.data() : nullptr, height, width, count, neighbours);
      kernels.mix(neighbours, image.data(), out.data(), count, 1, height * width, count);
      for (int64_t n = 0; n < count; ++n) {
        double sum = 0;
        for (int64_t place = 0; place < height * width; ++place) {
          const double down = weight_of(SampleMode::linear, y[n] - double(place / width));
          const double across = weight_of(SampleMode::linear, x[n] - double(place % width));
          if (down > 0 && across > 0) sum += down * across * image[place];
        }
        ASSERT_NEAR(out[n], sum * (scales ? scale[n] : 1), 1e-5) << describe("count", count, "position", n);
      }
    }
}

TEST_P(SampleKernel, picks_the_nearest_pixel_with_ties_to_even) {
  const SampleKernels& kernels = sample_kernels_for(isa());
  GridRules rules{SampleMode::nearest, SamplePadding::zeros, true, 1, {5, 0, 0}};
  const float grid[] = {-1, -0.75f, -0.25f, 0.25f, 1, 1.5f, kNan};  // pixels 0, 0.5, 1.5, 2.5, 4, 5 and none
  const uint8_t in[] = {10, 11, 12, 13, 14}, zero[8] = {9}, expected[] = {10, 10, 12, 12, 14, 9, 9};
  Guarded<uint8_t> out(7);
  Neighbours neighbours;
  kernels.find(rules, grid, 7, neighbours);
  kernels.pick(neighbours, reinterpret_cast<const char*>(in), reinterpret_cast<char*>(out.data()),
               reinterpret_cast<const char*>(zero), 1, 7, 1, 5, 7);
  expect_equal(out, expected, 7, "nearest");
}

TEST_P(SampleKernel, sums_weighted_cells_of_bins) {
  Random random;
  const int64_t height = 9, width = 37;
  Floats image(random.reals(height * width)), weights(random.reals(40)), scratch(width), out(2 * 3);
  const BinWeights down[] = {{1, 3, weights.data()}, {4, 5, weights.data() + 3}};
  const BinWeights across[] = {{2, 20, weights.data() + 8}, {0, 0, weights.data()}, {30, 7, weights.data() + 28}};
  sample_kernels_for(isa()).bins(image.data(), width, down, 2, across, 3, scratch.data(), out.data());
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) {
      double sum = 0;
      for (int y = 0; y < down[i].count; ++y)
        for (int x = 0; x < across[j].count; ++x)
          sum += double(down[i].weights[y]) * across[j].weights[x] *
                 image[(down[i].first + y) * width + across[j].first + x];
      ASSERT_NEAR(out[i * 3 + j], sum, 1e-5) << describe("row", i, "column", j);
    }
}

}  // namespace
}  // namespace cpuacc
