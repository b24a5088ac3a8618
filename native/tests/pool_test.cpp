// Pooling, row by row, against a loop over the cells of each window.

#include "cpuacc/kernels/pool.hpp"

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(PoolKernel);

struct Window {
  int64_t size, stride, dilation, pad, pad_after;
};

const Window kWindows[] = {{1, 1, 1, 0, 0}, {2, 2, 1, 0, 0}, {3, 1, 1, 1, 1},
                           {3, 2, 1, 0, 1}, {3, 2, 2, 2, 2}, {5, 3, 1, 4, 0}};

int64_t places_of(const Window& w, int64_t extent) {
  int64_t span = (w.size - 1) * w.dilation + 1;
  return extent + w.pad + w.pad_after < span ? 0 : (extent + w.pad + w.pad_after - span) / w.stride + 1;
}

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
    const Window along = axis == 0 ? Window{1, 1, 1, 0, 0} : w;
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
  return counted == 0 ? pool.zero : std::round((total + double(pool.zero * (counted - cells))) / double(counted));
}

template <class T>
void check(native::Isa isa, PoolKind kind, int32_t dtype, double tolerance, bool with_nan = false) {
  Random random;
  auto row_kernel = pool_kernels_for(isa).row(kind, dtype, false);
  ASSERT_NE(row_kernel, nullptr);
  for (const Window& window : kWindows)
    for (int64_t inner : {1, 3, 15, 16, 17, 64, 65})
      for (int64_t width : {5, 8, 17}) {
        const int64_t height = 6;
        Pool pool = make_pool(kind, window, height, width, inner, inner % 2 == 0);
        std::vector<T> image(static_cast<size_t>(height * width * inner));
        for (T& x : image) x = std::is_same_v<T, float> ? T(random.real(-3, 3)) : T(random.integer(-100, 100));
        if (with_nan) image[image.size() / 2] = T(kNan);
        if (std::is_same_v<T, float> && kind == PoolKind::max) pool.zero = 0;
        Guarded<T> in(image), out(pool.places[2] * inner);
        Guarded<int64_t> scratch(width * inner);
        for (int64_t row = 0; row < pool.places[1]; ++row) {
          row_kernel(pool, in.data(), out.data(), 0, row, scratch.data());
          std::vector<double> expected;
          for (int64_t x = 0; x < pool.places[2]; ++x)
            for (int64_t c = 0; c < inner; ++c) expected.push_back(expected_at(pool, image, row, x, c));
          expect_near(
              out, expected, out.size(), tolerance,
              describe("window", window.size, "stride", window.stride, "inner", inner, "width", width, "row", row));
        }
      }
}

TEST_P(PoolKernel, takes_the_largest_float) { check<float>(isa(), PoolKind::max, IPR_DTYPE_FLOAT32, 0); }
TEST_P(PoolKernel, keeps_nan_beside_the_largest_float) {
  check<float>(isa(), PoolKind::max, IPR_DTYPE_FLOAT32, 0, true);
}
TEST_P(PoolKernel, averages_floats) { check<float>(isa(), PoolKind::average, IPR_DTYPE_FLOAT32, 1e-5); }
TEST_P(PoolKernel, takes_the_root_of_the_mean_square) { check<float>(isa(), PoolKind::l2, IPR_DTYPE_FLOAT32, 1e-5); }
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

TEST_P(PoolKernel, has_no_quantized_l2_pooling) {
  EXPECT_EQ(pool_kernels_for(isa()).row(PoolKind::l2, IPR_DTYPE_INT8, true), nullptr);
  EXPECT_EQ(pool_kernels_for(isa()).row(PoolKind::l2, IPR_DTYPE_UINT8, false), nullptr);
}

}  // namespace
}  // namespace cpuacc
