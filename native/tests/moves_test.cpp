// Copies, fills and gathers of elements, reorders between layouts, and resized rows, against plain loops.

#include "cpuacc/kernels/moves.hpp"

#include "cpuacc/kernels/reorder.hpp"
#include "cpuacc/kernels/resize.hpp"
#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(MoveKernel);
KERNEL_SUITE(ReorderKernel);
KERNEL_SUITE(ResizeKernel);

/// A contiguous result of the given extents, from an operand whose axes are permuted.
Box permuted(int64_t item_size, const std::vector<int64_t>& extents, const std::vector<int>& order) {
  Box box{};
  box.rank = int(extents.size());
  box.item_size = item_size;
  int64_t to = item_size, from = item_size;
  for (int axis = box.rank - 1; axis >= 0; --axis) {
    box.extent[axis] = extents[size_t(axis)];
    box.to[axis] = to;
    to *= extents[size_t(axis)];
  }
  for (size_t n = order.size(); n-- > 0;) {
    box.from[order[n]] = from;
    from *= extents[size_t(order[n])];
  }
  return box;
}

TEST_P(MoveKernel, copies_boxes_of_every_item_size_and_order) {
  Random random;
  for (int64_t item_size : {1, 2, 4, 8})
    for (int64_t side : {1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 67, 139, 261})
      for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}}) {
        const int64_t rows = 2 * side, bytes = rows * side * item_size, step = side < 139 ? 7 : rows;
        Box box = permuted(item_size, {2, side, side}, order);
        Guarded<uint8_t> in(random.integers<uint8_t>(bytes)), out(bytes);
        for (int64_t first = 0; first < rows; first += step)
          move_kernels_for(isa()).copy(box, reinterpret_cast<char*>(in.data()), reinterpret_cast<char*>(out.data()),
                                       first, std::min(first + step, rows));
        std::vector<uint8_t> expected(static_cast<size_t>(bytes));
        for (int64_t a = 0; a < 2; ++a)
          for (int64_t b = 0; b < side; ++b)
            for (int64_t c = 0; c < side; ++c)
              std::memcpy(expected.data() + a * box.to[0] + b * box.to[1] + c * box.to[2],
                          in.data() + a * box.from[0] + b * box.from[1] + c * box.from[2], size_t(item_size));
        expect_equal(out, expected, bytes, describe("item", item_size, "side", side, "last axis", order.back()));
      }
}

TEST_P(MoveKernel, transposes_rectangles_of_every_shape) {
  Random random;
  for (int64_t item_size : {1, 2, 4, 8})
    for (int64_t rows : {2, 3, 4, 7, 8, 15, 16, 17, 31, 64, 65, 100, 257})
      for (int64_t columns : {2, 3, 4, 5, 8, 10, 16, 23, 64, 70, 129}) {
        Box box = permuted(item_size, {rows, columns}, {1, 0});
        Guarded<uint8_t> in(random.integers<uint8_t>(rows * columns * item_size)), out(rows * columns * item_size);
        move_kernels_for(isa()).copy(box, reinterpret_cast<char*>(in.data()), reinterpret_cast<char*>(out.data()), 0,
                                     rows);
        std::vector<uint8_t> expected(size_t(rows * columns * item_size));
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            std::memcpy(expected.data() + (r * columns + c) * item_size, in.data() + (c * rows + r) * item_size,
                        size_t(item_size));
        expect_equal(out, expected, rows * columns * item_size,
                     describe("item", item_size, "rows", rows, "columns", columns));
      }
}

TEST_P(MoveKernel, fills_and_picks_items) {
  Random random;
  for (int64_t item_size : {1, 2, 4, 8})
    for (int64_t count : {0, 1, 15, 16, 17, 100}) {
      Guarded<uint8_t> in(random.integers<uint8_t>(200 * item_size)), filled(count * item_size),
          picked(count * item_size);
      Guarded<int64_t> offsets(count);
      for (int64_t n = 0; n < count; ++n) offsets[n] = random.integer(0, 199) * item_size;
      const char* from = reinterpret_cast<const char*>(in.data());
      move_kernels_for(isa()).fill(reinterpret_cast<char*>(filled.data()), from, item_size, count);
      move_kernels_for(isa()).pick(from, reinterpret_cast<char*>(picked.data()), offsets.data(), item_size, count);
      for (int64_t n = 0; n < count * item_size; ++n) {
        ASSERT_EQ(filled[n], in[n % item_size]) << describe("item", item_size, "count", count);
        ASSERT_EQ(picked[n], in[offsets[n / item_size] + n % item_size]) << describe("item", item_size, "count", count);
      }
    }
}

TEST_P(ReorderKernel, moves_one_block_to_nChw16c_and_back) {
  Random random;
  for (int64_t channels : {1, 3, 4, 5, 15, 16})
    for (int64_t pixels : {1, 3, 4, 5, 16, 49})
      for (bool channels_last : {false, true}) {
        BlockCopy copy{channels, channels_last ? 1 : pixels, channels_last ? channels : 1};
        Floats plain(random.reals(channels * pixels)), blocked(pixels * 16, kNan), back(channels * pixels, kNan);
        const ReorderKernels& kernels = reorder_kernels_for(isa());
        const int64_t middle = pixels / 2;
        kernels.to_blocked(plain.data(), blocked.data(), copy, 0, middle);
        kernels.to_blocked(plain.data(), blocked.data(), copy, middle, pixels);
        for (int64_t p = 0; p < pixels; ++p)
          for (int64_t c = 0; c < 16; ++c)
            ASSERT_EQ(blocked[p * 16 + c], c < channels ? plain[p * copy.by_pixel + c * copy.by_channel] : 0.0f)
                << describe("channels", channels, "pixels", pixels, "pixel", p, "lane", c);
        kernels.to_plain(blocked.data(), back.data(), copy, 0, middle);
        kernels.to_plain(blocked.data(), back.data(), copy, middle, pixels);
        expect_equal(back, plain, plain.size(), describe("channels", channels, "pixels", pixels));
      }
}

struct Columns {
  Columns(Random& random, int64_t in_width, int64_t width)
      : low(random.integers<int32_t>(width, 0, in_width - 1)), high(random.integers<int32_t>(width, 0, in_width - 1)),
        weight(random.reals(width, 0, 1)), weight_1024(random.integers<int32_t>(width, 0, 1024)) {}

  Places places() const { return {low.data(), high.data(), weight.data(), weight_1024.data()}; }

  std::vector<int32_t> low, high;
  std::vector<float> weight;
  std::vector<int32_t> weight_1024;
};

/// Bilinear interpolation in double; weights of the lower row and the right column are in [0, 1].
template <class T>
double between(const Guarded<T>& upper, const Guarded<T>& lower, int64_t left_at, int64_t right_at, double down,
               double right) {
  double top = double(upper[left_at]) * (1 - right) + double(upper[right_at]) * right;
  double bottom = double(lower[left_at]) * (1 - right) + double(lower[right_at]) * right;
  return top * (1 - down) + bottom * down;
}

TEST_P(ResizeKernel, interpolates_and_picks_columns) {
  Random random;
  const int64_t in_width = 13;
  for (int64_t inner : {1, 3, 15, 16, 17, 40})
    for (int64_t width : {1, 7, 16, 31}) {
      Columns columns(random, in_width, width);
      Places places = columns.places();
      const float down = 0.375f;
      const std::string what = describe("inner", inner, "width", width);
      Floats upper(random.reals(in_width * inner)), lower(random.reals(in_width * inner)), out(width * inner);
      Guarded<uint8_t> upper_u8(random.integers<uint8_t>(in_width * inner)),
          lower_u8(random.integers<uint8_t>(in_width * inner)), out_u8(width * inner);
      Guarded<int8_t> upper_i8(random.integers<int8_t>(in_width * inner)),
          lower_i8(random.integers<int8_t>(in_width * inner)), out_i8(width * inner), nearest(width * inner);
      const ResizeKernels& kernels = resize_kernels_for(isa());
      const ResizedRow row{in_width * inner, width, inner};
      Guarded<int32_t> scratch(2 * in_width * inner);
      kernels.linear(upper.data(), lower.data(), out.data(), down, places, row);
      const bool takes_bytes = inner == 1 || inner >= 16;
      if (takes_bytes) {
        kernels.linear_u8(upper_u8.data(), lower_u8.data(), out_u8.data(), down, places, row, scratch.data());
        kernels.linear_i8(upper_i8.data(), lower_i8.data(), out_i8.data(), int64_t(down * 1024), places, row,
                          scratch.data());
      }
      kernels.nearest(reinterpret_cast<char*>(upper_i8.data()), reinterpret_cast<char*>(nearest.data()), places.low,
                      width, inner);
      for (int64_t n = 0; n < width * inner; ++n) {
        int64_t x = n / inner, left = places.low[x] * inner + n % inner, right = places.high[x] * inner + n % inner;
        ASSERT_NEAR(out[n], between(upper, lower, left, right, down, places.weight[x]), 1e-6) << what;
        ASSERT_EQ(nearest[n], upper_i8[left]) << what;
        if (!takes_bytes) continue;
        ASSERT_NEAR(out_u8[n], between(upper_u8, lower_u8, left, right, down, places.weight[x]), 0.5001) << what;
        ASSERT_EQ(out_i8[n], std::round(between(upper_i8, lower_i8, left, right, down, places.weight_1024[x] / 1024.0)))
            << what;
      }
    }
}

/// Rows of a type that has no kernel of its own, beside the same sums in float64.
template <class T>
void check_linear_row(const ResizeKernels& kernels, int32_t dtype, int64_t most) {
  Random random;
  const int64_t in_width = 13;
  const float down = 0.375f;
  for (int64_t inner : {1, 3, 16})
    for (int64_t width : {1, 7, 31}) {
      Columns columns(random, in_width, width);
      const Places places = columns.places();
      const int64_t least = std::is_signed_v<T> ? -most : 0;
      Guarded<T> upper(random.integers<T>(in_width * inner, least, most)),
          lower(random.integers<T>(in_width * inner, least, most)), out(width * inner);
      kernels.linear_of(dtype)(upper.data(), lower.data(), out.data(), down, int32_t(down * 1024), places,
                               {in_width * inner, width, inner});
      for (int64_t n = 0; n < width * inner; ++n) {
        const int64_t x = n / inner, left = places.low[x] * inner + n % inner,
                      right = places.high[x] * inner + n % inner;
        const bool real = std::is_floating_point_v<T>;
        const double share = real ? places.weight[x] : places.weight_1024[x] / 1024.0;
        const double expected = between(upper, lower, left, right, down, share);
        ASSERT_EQ(out[n], real ? T(expected) : T(std::round(expected))) << describe("inner", inner, "width", width);
      }
    }
}

TEST_P(ResizeKernel, interpolates_wide_types) {
  const ResizeKernels& kernels = resize_kernels_for(isa());
  check_linear_row<int16_t>(kernels, IPR_DTYPE_INT16, 32767);
  check_linear_row<uint16_t>(kernels, IPR_DTYPE_UINT16, 65535);
  check_linear_row<int32_t>(kernels, IPR_DTYPE_INT32, 1 << 30);
  check_linear_row<uint32_t>(kernels, IPR_DTYPE_UINT32, int64_t{1} << 30);
  check_linear_row<int64_t>(kernels, IPR_DTYPE_INT64, int64_t{1} << 30);
  check_linear_row<uint64_t>(kernels, IPR_DTYPE_UINT64, int64_t{1} << 30);
  ASSERT_EQ(kernels.linear_of(IPR_DTYPE_BOOL), nullptr);
}

TEST_P(ResizeKernel, picks_pixels_of_every_size) {
  Random random;
  for (int64_t bytes : {1, 2, 4, 8, 12, 16, 32, 64}) {
    Columns columns(random, 9, 31);
    Guarded<char> in(random.integers<char>(9 * bytes)), out(31 * bytes);
    resize_kernels_for(isa()).nearest(in.data(), out.data(), columns.places().low, 31, bytes);
    for (int64_t n = 0; n < 31 * bytes; ++n)
      ASSERT_EQ(out[n], in[columns.places().low[n / bytes] * bytes + n % bytes]) << describe("bytes", bytes);
  }
}

}  // namespace
}  // namespace cpuacc
