// Pooling, row by row, against a loop over the cells of each window.

#include "cpuacc/kernels/pool.hpp"

#include <limits>

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(PoolKernel);

struct Window {
  int64_t size, stride, dilation, pad, pad_after;
};

const Window kWindows[] = {{1, 1, 1, 0, 0}, {2, 2, 1, 0, 0}, {3, 1, 1, 1, 1}, {3, 2, 1, 0, 1}, {3, 2, 2, 2, 2},
                           {5, 3, 1, 4, 0}, {3, 1, 2, 2, 1}, {2, 1, 1, 3, 4}, {5, 1, 1, 2, 2}};

int64_t places_of(const Window& w, int64_t extent) {
  int64_t span = (w.size - 1) * w.dilation + 1;
  return extent + w.pad + w.pad_after < span ? 0 : (extent + w.pad + w.pad_after - span) / w.stride + 1;
}

/// The window over all of an image.
constexpr Window kWhole{0, 1, 1, 0, 0};

/// A pool over (rows, columns, inner); the axis of planes has one place.
Pool make_pool(PoolKind kind, const Window& w, int64_t height, int64_t width, int64_t inner, bool count_padding) {
  Pool pool{};
  pool.kind = kind;
  pool.inner = inner;
  pool.count_padding = count_padding;
  pool.zero = 3;
  pool.row_item = 8;
  const int64_t extents[3] = {1, height, width};
  for (int axis = 0; axis < 3; ++axis) {
    const Window along = axis == 0 ? Window{1, 1, 1, 0, 0} : w.size ? w : Window{extents[axis], 1, 1, 0, 0};
    pool.extent[axis] = extents[axis];
    pool.places[axis] = places_of(along, extents[axis]);
    pool.size[axis] = along.size, pool.stride[axis] = along.stride, pool.dilation[axis] = along.dilation;
    pool.pad[axis] = along.pad, pool.pad_after[axis] = along.pad_after;
  }
  return pool;
}

/// One element of the result, from the cells that lie in the image and those that count.
template <class T>
double expected_at(const Pool& pool, const std::vector<T>& image, int64_t row, int64_t column, int64_t channel) {
  double total = 0, largest = -INFINITY;
  int64_t cells = 0, counted = 0;
  bool has_nan = false;
  for (int64_t i = 0; i < pool.size[1]; ++i)
    for (int64_t j = 0; j < pool.size[2]; ++j) {
      int64_t y = row * pool.stride[1] - pool.pad[1] + i * pool.dilation[1];
      int64_t x = column * pool.stride[2] - pool.pad[2] + j * pool.dilation[2];
      bool inside = y >= 0 && y < pool.extent[1] && x >= 0 && x < pool.extent[2];
      bool in_padding = y < pool.extent[1] + pool.pad_after[1] && x < pool.extent[2] + pool.pad_after[2];
      counted += inside || (pool.count_padding && in_padding);
      if (!inside) continue;
      double value = double(image[size_t((y * pool.extent[2] + x) * pool.inner + channel)]);
      ++cells;
      total += pool.kind == PoolKind::l2 ? value * value : value;
      largest = std::max(largest, value);
      has_nan |= value != value;
    }
  if (pool.kind == PoolKind::max) return has_nan ? kNan : cells > 0 ? largest : pool.zero;
  if (std::is_same_v<T, float>) {
    if (counted == 0) return 0;
    return pool.kind == PoolKind::l2 ? std::sqrt(total / double(counted)) : total / double(counted);
  }
  if (counted == 0) return pool.to_even ? pool.zero_out : pool.zero;
  if (!pool.to_even) return std::round((total + double(pool.zero * (counted - cells))) / double(counted));
  const double sum = total - double(pool.zero * cells), low = double(std::numeric_limits<T>::min());
  const double steps = std::nearbyint(sum * pool.scale / (double(counted) * pool.scale_out)) + pool.zero_out;
  return std::clamp(steps, low, double(std::numeric_limits<T>::max()));
}

template <class T>
void check_rows(const Pool& pool, PoolKernels::Row row_kernel, const std::vector<T>& image, double tolerance) {
  const int64_t inner = pool.inner;
  Guarded<T> in(image), out(pool.places[2] * inner);
  Guarded<int64_t> scratch(scratch_items(pool));
  for (int64_t row = 0; row < pool.places[1]; ++row) {
    row_kernel(pool, in.data(), out.data(), 0, row, scratch.data());
    std::vector<double> expected;
    for (int64_t x = 0; x < pool.places[2]; ++x)
      for (int64_t c = 0; c < inner; ++c) expected.push_back(expected_at(pool, image, row, x, c));
    expect_near(out, expected, out.size(), tolerance,
                describe("window", pool.size[2], "stride", pool.stride[2], "inner", inner, "width", pool.extent[2],
                         "row", row, "to even", pool.to_even));
  }
}

/// Check rows with each window alone, and floats whose windows are a column apart also with all windows together.
template <class T>
void check_alone_and_together(Pool pool, PoolKernels::Row row_kernel, const std::vector<T>& image, double tolerance) {
  check_rows(pool, row_kernel, image, tolerance);
  if (!std::is_same_v<T, float> || !has_near_windows(pool)) return;
  std::vector<float> counts(static_cast<size_t>(column_count_items(pool)));
  fill_column_counts(pool, counts.data());
  pool.column_counts = counts.data();
  check_rows(pool, row_kernel, image, tolerance);
}

template <class T>
std::vector<T> drawn_image(const Pool& pool, Random& random) {
  std::vector<T> image(static_cast<size_t>(pool.extent[1] * pool.extent[2] * pool.inner));
  for (T& x : image) x = std::is_same_v<T, float> ? T(random.real(-3, 3)) : T(random.integer(-128, 127));
  return image;
}

template <class T>
void check(native::Isa isa, PoolKind kind, int32_t dtype, double tolerance, bool with_nan = false) {
  Random random;
  auto row_kernel = pool_kernels_for(isa).row(kind, dtype, 25);
  ASSERT_NE(row_kernel, nullptr);
  for (const Window& window : kWindows)
    for (int64_t inner : {1, 3, 15, 16, 17, 64, 65})
      for (int64_t width : {5, 8, 17, 45}) {
        Pool pool = make_pool(kind, window, 6, width, inner, inner % 2 == 0);
        std::vector<T> image = drawn_image<T>(pool, random);
        if (with_nan) image[image.size() / 2] = T(kNan);
        if (std::is_same_v<T, float> && kind == PoolKind::max) pool.zero = 0;
        check_alone_and_together(pool, row_kernel, image, tolerance);
      }
}

/// Windows over whole images, with fewer elements than 16-bit sums may have, and with more.
template <class T>
void check_whole_images(native::Isa isa, PoolKind kind, int32_t dtype, double tolerance) {
  Random random;
  for (int64_t height : {1, 7, 23})
    for (int64_t width : {5, 16, 31})
      for (int64_t inner : {1, 3, 16, 65}) {
        Pool pool = make_pool(kind, kWhole, height, width, inner, false);
        if (std::is_same_v<T, float>) pool.zero = 0;
        auto row_kernel = pool_kernels_for(isa).row(kind, dtype, height * width);
        check_rows(pool, row_kernel, drawn_image<T>(pool, random), tolerance);
        check_rows(pool, row_kernel, std::vector<T>(size_t(height * width * inner), T(-128)), tolerance);
      }
}

/// Averages that are rounded half to even, with factors and without.
template <class T>
void check_to_even(native::Isa isa, int32_t dtype, float factor) {
  Random random;
  auto row_kernel = pool_kernels_for(isa).row(PoolKind::average, dtype, 4);
  for (int64_t inner : {1, 3, 16, 65})
    for (int64_t width : {2, 9, 40}) {
      Pool pool = make_pool(PoolKind::average, {2, 2, 1, 0, 0}, 4, width, inner, false);
      const std::vector<float> factors(kMostWithFactor + 1, factor);
      pool.to_even = true, pool.zero_out = -20, pool.scale = 2, pool.scale_out = 1, pool.factors = factors.data();
      check_rows(pool, row_kernel, drawn_image<T>(pool, random), 0);
    }
}

TEST_P(PoolKernel, takes_the_largest_float) { check<float>(isa(), PoolKind::max, IPR_DTYPE_FLOAT32, 0); }
TEST_P(PoolKernel, keeps_nan_beside_the_largest_float) {
  check<float>(isa(), PoolKind::max, IPR_DTYPE_FLOAT32, 0, true);
}
TEST_P(PoolKernel, averages_floats) { check<float>(isa(), PoolKind::average, IPR_DTYPE_FLOAT32, 1e-5); }
TEST_P(PoolKernel, takes_the_root_of_the_mean_square) { check<float>(isa(), PoolKind::l2, IPR_DTYPE_FLOAT32, 1e-5); }
TEST_P(PoolKernel, averages_floats_whose_sums_overflow) {
  for (PoolKind kind : {PoolKind::average, PoolKind::l2})
    for (int64_t inner : {1, 3, 16}) {
      Pool pool = make_pool(kind, {3, 1, 1, 1, 1}, 6, 21, inner, false);
      Random random;
      std::vector<float> image = drawn_image<float>(pool, random);
      for (float& x : image) x = 3e38f - std::fabs(x) * 1e37f;
      auto row_kernel = pool_kernels_for(isa()).row(kind, IPR_DTYPE_FLOAT32, 9);
      check_alone_and_together(pool, row_kernel, image, 1e-5);
    }
}
TEST_P(PoolKernel, takes_the_largest_int8) { check<int8_t>(isa(), PoolKind::max, IPR_DTYPE_INT8, 0); }
TEST_P(PoolKernel, takes_the_largest_uint8) { check<uint8_t>(isa(), PoolKind::max, IPR_DTYPE_UINT8, 0); }
TEST_P(PoolKernel, takes_the_largest_int32) { check<int32_t>(isa(), PoolKind::max, IPR_DTYPE_INT32, 0); }
TEST_P(PoolKernel, takes_the_largest_int64) { check<int64_t>(isa(), PoolKind::max, IPR_DTYPE_INT64, 0); }
TEST_P(PoolKernel, takes_the_largest_int16) { check<int16_t>(isa(), PoolKind::max, IPR_DTYPE_INT16, 0); }
TEST_P(PoolKernel, averages_int8_rounded_half_away_from_zero) {
  check<int8_t>(isa(), PoolKind::average, IPR_DTYPE_INT8, 0);
}
TEST_P(PoolKernel, averages_uint8_rounded_half_away_from_zero) {
  check<uint8_t>(isa(), PoolKind::average, IPR_DTYPE_UINT8, 0);
}

TEST_P(PoolKernel, averages_int8_rounded_half_to_even) {
  check_to_even<int8_t>(isa(), IPR_DTYPE_INT8, 0.5f);
  check_to_even<int8_t>(isa(), IPR_DTYPE_INT8, 0);
}
TEST_P(PoolKernel, averages_uint8_rounded_half_to_even) {
  check_to_even<uint8_t>(isa(), IPR_DTYPE_UINT8, 0.5f);
  check_to_even<uint8_t>(isa(), IPR_DTYPE_UINT8, 0);
}
TEST_P(PoolKernel, averages_whole_images) {
  check_whole_images<float>(isa(), PoolKind::average, IPR_DTYPE_FLOAT32, 1e-5);
  check_whole_images<int8_t>(isa(), PoolKind::average, IPR_DTYPE_INT8, 0);
  check_whole_images<uint8_t>(isa(), PoolKind::average, IPR_DTYPE_UINT8, 0);
  check_whole_images<int16_t>(isa(), PoolKind::average, IPR_DTYPE_INT16, 0);
}
TEST_P(PoolKernel, takes_the_largest_of_whole_images) {
  check_whole_images<float>(isa(), PoolKind::max, IPR_DTYPE_FLOAT32, 0);
  check_whole_images<int8_t>(isa(), PoolKind::max, IPR_DTYPE_INT8, 0);
}

TEST_P(PoolKernel, has_no_quantized_l2_pooling) {
  EXPECT_EQ(pool_kernels_for(isa()).row(PoolKind::l2, IPR_DTYPE_INT8, 4), nullptr);
  EXPECT_EQ(pool_kernels_for(isa()).row(PoolKind::l2, IPR_DTYPE_UINT8, 400), nullptr);
}

}  // namespace
}  // namespace cpuacc
