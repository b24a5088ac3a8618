// Kernels on quantized values of 8 bits, bit by bit against plain loops over integers.

#include "cpuacc/kernels/tiles_q8.hpp"

#include <utility>

#include "common/fixed_point.hpp"
#include "common/quotient.hpp"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(Q8GemmKernel);
KERNEL_SUITE(Q8RequantizeKernel);
KERNEL_SUITE(Q8DepthwiseKernel);
KERNEL_SUITE(Q8ElementwiseKernel);

constexpr uint32_t kFlip = 0x80808080u;

uint8_t flipped(uint8_t value, uint32_t flip) { return uint8_t(value ^ (flip & 0xff)); }

/// A byte of an activation as the kernels multiply it.
int32_t as_multiplied(uint8_t byte, bool is_signed) { return is_signed ? int32_t(int8_t(byte)) : int32_t(byte); }

// ---- Sums of products -----------------------------------------------------------------------------------------------

/// Weights of one panel: [segment][words][vector][lane][bytes of these words].
int32_t expected_sum(const GemmQ8Kernels& kernels, const Q8Rows& from, const Guarded<int8_t>& weights, int vectors,
                     int row, int vector, int lane) {
  const int lanes = kernels.lanes;
  int32_t sum = 0;
  for (int64_t s = 0; s < from.segment_count; ++s)
    for (int64_t k = 0; k < from.words * 4; ++k) {
      const uint8_t x = flipped(from.segments[s][from.offset + row * from.step + k], from.flip);
      const int64_t place = place_of_word(kernels.weight_bytes, vectors * lanes, vector * lanes + lane, k / 4);
      sum += as_multiplied(x, kernels.is_signed) * weights[s * from.words * vectors * lanes * 4 + place + k % 4];
    }
  return sum;
}

/// At least so many words, and as many as packed weights may have.
int64_t whole_words(const GemmQ8Kernels& kernels, int64_t least) {
  const int64_t together = kernels.weight_bytes / 4;
  return (least + together - 1) / together * together;
}

TEST_P(Q8GemmKernel, multiplies_every_tile) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (int vectors : {1, 2, 4})
    for (int rows = 1; rows <= kernels.max_rows[vectors]; ++rows)
      for (int64_t least : {1, 2, 3, 9})
        for (auto [flip, small] : {std::pair{0u, false}, {0u, true}, {kFlip, false}, {kFlip, true}}) {
          const int64_t words = whole_words(kernels, least), segments = 2, step = words * 4 + 8, offset = 4;
          Guarded<uint8_t> image(random.integers<uint8_t>(segments * (offset + rows * step) + 64));
          // Most are extreme, so that pairs of products have the largest sums.
          const int low = small ? -127 : -128;
          Guarded<int8_t> weights(segments * words * vectors * lanes * 4);
          for (int64_t n = 0; n < weights.size(); ++n)
            weights[n] = int8_t(random.integer(0, 3) ? low : random.integer(low, 127));
          for (int64_t n = 0; n < image.size(); ++n)
            if (random.integer(0, 3)) image[n] = uint8_t(flip ? 0 : 128);
          Guarded<int32_t> bias(random.integers<int32_t>(vectors * lanes, -1000, 1000)), sums(rows * vectors * lanes);
          const uint8_t* starts[2] = {image.data(), image.data() + offset + rows * step};
          const Q8Rows from{starts, segments, words, offset, step, flip, small};
          kernels.tile(rows, vectors, from, weights.data(), bias.data(), sums.data());
          for (int64_t n = 0; n < sums.size(); ++n) {
            const int row = int(n / (vectors * lanes)), vector = int(n / lanes % vectors), lane = int(n % lanes);
            ASSERT_EQ(sums[n],
                      bias[n % (vectors * lanes)] + expected_sum(kernels, from, weights, vectors, row, vector, lane))
                << describe("vectors", vectors, "rows", rows, "words", words, "element", n);
          }
        }
}

TEST_P(Q8GemmKernel, multiplies_three_neighbouring_taps_at_once) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  if (!kernels.row_tile) GTEST_SKIP() << "this instruction set has no such kernel";
  const int lanes = kernels.lanes;
  for (int rows = 1; rows <= kernels.max_rows[1]; ++rows)
    for (int64_t words : {3, 6, 12}) {
      const int64_t step = words / 3 * 4;
      Guarded<uint8_t> image(random.integers<uint8_t>(2 * (rows + 2) * step + 64));
      Guarded<int8_t> weights(random.integers<int8_t>(2 * words * lanes * 4));
      Guarded<int32_t> bias(random.integers<int32_t>(lanes, -1000, 1000)), sums(rows * lanes);
      const uint8_t* starts[2] = {image.data(), image.data() + (rows + 2) * step};
      const Q8Rows from{starts, 2, words, 0, step, kFlip};
      kernels.row_tile(rows, from, weights.data(), bias.data(), sums.data());
      for (int64_t n = 0; n < sums.size(); ++n)
        ASSERT_EQ(sums[n], bias[n % lanes] + expected_sum(kernels, from, weights, 1, int(n / lanes), 0, int(n % lanes)))
            << describe("rows", rows, "words", words, "element", n);
    }
}

TEST_P(Q8GemmKernel, multiplies_one_row) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (int vectors : {1, 2, 4})
    for (int64_t least : {1, 2, 3, 16, 33})
      for (uint32_t flip : {0u, kFlip}) {
        const int64_t words = whole_words(kernels, least);
        Guarded<uint8_t> image(random.integers<uint8_t>(words * 4));
        Guarded<int8_t> weights(random.integers<int8_t>(words * vectors * lanes * 4));
        Guarded<int32_t> bias(random.integers<int32_t>(vectors * lanes, -1000, 1000)), sums(vectors * lanes);
        kernels.gemv_tile(vectors, image.data(), words, flip, weights.data(), bias.data(), sums.data());
        const uint8_t* starts[1] = {image.data()};
        const Q8Rows from{starts, 1, words, 0, 0, flip};
        for (int64_t n = 0; n < sums.size(); ++n)
          ASSERT_EQ(sums[n], bias[n] + expected_sum(kernels, from, weights, vectors, 0, int(n / lanes), int(n % lanes)))
              << describe("vectors", vectors, "words", words, "element", n);
      }
}

// ---- Sums of products in tile registers -----------------------------------------------------------------------------

/// The kernels; the test is skipped where the processor or the system has no tile registers.
#define TILE_KERNELS(kernels)                                             \
  const TileQ8Kernels* kernels = tile_q8_kernels_for(native::best_isa()); \
  if (!kernels) GTEST_SKIP() << "this processor has no tile registers"

/// The sum for pixel m of tile t, and a channel of a panel whose pairs of vectors are consecutive.
int32_t expected_tile_sum(const Q8Tiles& from, const Guarded<int8_t>& weights, int vectors, int tile, int row,
                          int channel) {
  const int together = vectors == 1 ? 16 : 32;
  int64_t at = channel / together * together * from.segment_count * from.words * 4 + channel % together * 4;
  int32_t sum = 0;
  for (int64_t s = 0; s < from.segment_count; ++s)
    for (int64_t k = 0; k < from.words; ++k, at += together * 4)
      for (int n = 0; n < 4; ++n) {
        const uint8_t x = from.segments[s][from.offsets[tile] + row * from.step + 4 * k + n];
        sum += (from.is_signed ? int32_t(int8_t(x)) : int32_t(x)) * weights[at + n];
      }
  return sum;
}

TEST(Q8TileKernel, multiplies_tiles_of_every_shape) {
  TILE_KERNELS(kernels);
  Random random;
  for (int rows : {1, 2, 7, 15, 16})
    for (int vectors : {1, 2, 4})
      for (int count = 1; count <= (vectors == 1 ? kMaxTiles : 2); ++count)
        for (int64_t words : {16, 48})
          for (int64_t segment_count : {1, 3})
            for (bool is_signed : {false, true}) {
              const int64_t step = words * 4 - 5, size = kMaxTiles * (rows + 1) * step + 256;
              Guarded<uint8_t> image(random.integers<uint8_t>(segment_count * size));
              Guarded<int8_t> weights(random.integers<int8_t>(segment_count * words * vectors * 64));
              Guarded<int32_t> bias(random.integers<int32_t>(vectors * 16, -1000, 1000));
              Guarded<int32_t> sums(count * rows * vectors * 16);
              const uint8_t* segments[3] = {image.data(), image.data() + 2 * size, image.data() + size};
              const int64_t offsets[kMaxTiles] = {3, rows * step, (2 * rows + 1) * step, 0};
              const Q8Tiles from{segments, segment_count, words, offsets, step, count, rows, is_signed, rows == 7};
              kernels->configure(rows);
              kernels->multiply(from, vectors, weights.data(), bias.data(), sums.data());
              kernels->release();
              for (int64_t n = 0; n < sums.size(); ++n) {
                const int row = int(n / (vectors * 16)), channel = int(n % (vectors * 16));
                ASSERT_EQ(sums[n],
                          bias[channel] + expected_tile_sum(from, weights, vectors, row / rows, row % rows, channel))
                    << describe("rows", rows, "vectors", vectors, "tiles", count, "words", words, "element", n);
              }
            }
}

TEST(Q8TileKernel, gathers_the_bytes_of_all_segments) {
  TILE_KERNELS(kernels);
  Random random;
  for (int64_t bytes : {1, 9, 63, 64, 65, 192, 200})
    for (int64_t segment_count : {1, 3})
      for (int64_t step : {1, 17, 64}) {
        constexpr int64_t count = 5;
        const int64_t wide = segment_count * bytes + 7;
        Guarded<uint8_t> image(random.integers<uint8_t>(segment_count * (bytes + count * step)));
        Guarded<uint8_t> out((count - 1) * wide + segment_count * bytes, 99);
        const uint8_t* segments[3];
        for (int64_t s = 0; s < segment_count; ++s) segments[s] = image.data() + s * (bytes + count * step);
        kernels->gather(segments, segment_count, bytes, step, count, out.data(), wide);
        for (int64_t n = 0; n < out.size(); ++n) {
          const int64_t m = n / wide, s = n % wide / bytes;
          const bool is_padding = s >= segment_count;
          ASSERT_EQ(out[n], is_padding ? 99 : segments[s][m * step + n % wide % bytes])
              << describe("bytes", bytes, "segments", segment_count, "step", step, "element", n);
        }
      }
}

// ---- Factors -------------------------------------------------------------------------------------------------

/// Rounds half up, as the high half of a doubled product does; then half away from zero, as the rounding shift does.
int64_t fixed_point(int64_t sum, int32_t multiplier, int32_t shift) {
  const int64_t scaled = int64_t(int32_t(shift > 0 ? uint32_t(sum) << shift : uint32_t(sum)));
  const int64_t high = (scaled * multiplier + (int64_t{1} << 30)) >> 31;
  if (shift >= 0) return high;
  const int64_t half = int64_t{1} << (-shift - 1);
  return high < 0 ? -((-high + half) >> -shift) : (high + half) >> -shift;
}

bool only_right(Q8Requantization::Mode mode) {
  return mode == Q8Requantization::shift_up || mode == Q8Requantization::shift_away;
}

/// The factors of every lane, dyadic so that all modes can be compared exactly.
struct Factors {
  Factors(Q8Requantization::Mode mode, int lanes, Random& random)
      : scale(size_t(lanes)), rest(size_t(lanes)), half(size_t(lanes), 0.5f), wide_scale(size_t(lanes)),
        wide_half(size_t(lanes), 0.5), multiplier(size_t(lanes)), shift(size_t(lanes)),
        weight_offset(random.integers<int32_t>(lanes, -9, 9)) {
    for (size_t n = 0; n < size_t(lanes); ++n) {
      const int64_t numerator = random.integer(1, 7);
      scale[n] = float(numerator) / 512, wide_scale[n] = double(numerator) / 512;
      multiplier[n] = int32_t(random.integer(1 << 30, INT32_MAX));
      shift[n] = int32_t(random.integer(-8, only_right(mode) ? -1 : 1));
    }
    requantization = {mode,
                      5,
                      mode == Q8Requantization::shift_up ? 5 : 2,
                      250,
                      0,
                      scale.data(),
                      rest.data(),
                      half.data(),
                      wide_scale.data(),
                      wide_half.data(),
                      multiplier.data(),
                      shift.data(),
                      nullptr};
  }

  uint8_t value_of(int64_t sum, size_t lane) const {
    const double x = double(sum) * wide_scale[lane];
    const bool even = requantization.mode >= Q8Requantization::single_even;
    const int64_t distance = requantization.mode == Q8Requantization::fixed_point || only_right(requantization.mode)
                                 ? fixed_point(sum, multiplier[lane], shift[lane])
                                 : int64_t(even ? std::nearbyint(x + 0.5) : std::trunc(x + std::copysign(0.5, x)));
    return flipped(
        uint8_t(std::clamp<int64_t>(distance + requantization.zero, requantization.low, requantization.high)),
        requantization.flip);
  }

  std::vector<float> scale, rest, half;
  std::vector<double> wide_scale, wide_half;
  std::vector<int32_t> multiplier, shift, weight_offset;
  Q8Requantization requantization;
};

/// The modes of an instruction set.
std::vector<Q8Requantization::Mode> modes_of(native::Isa isa) {
  std::vector<Q8Requantization::Mode> modes = {Q8Requantization::single,      Q8Requantization::twofold,
                                               Q8Requantization::fixed_point, Q8Requantization::real,
                                               Q8Requantization::single_even, Q8Requantization::twofold_even,
                                               Q8Requantization::exact_even};
  if (gemm_q8_kernels_for(isa).has_shifts)
    modes.insert(modes.end(), {Q8Requantization::shift_up, Q8Requantization::shift_away});
  return modes;
}

std::vector<Q8Requantization::Mode> simple_modes_of(native::Isa isa) {
  std::vector<Q8Requantization::Mode> modes = modes_of(isa);
  const auto is_complex = [](Q8Requantization::Mode mode) {
    Q8Requantization requantization{};
    requantization.mode = mode;
    return !requantization.is_simple();
  };
  modes.erase(std::remove_if(modes.begin(), modes.end(), is_complex), modes.end());
  return modes;
}

TEST_P(Q8RequantizeKernel, rounds_sums_of_every_mode) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (Q8Requantization::Mode mode : modes_of(isa()))
    for (int vectors : {1, 2, 4})
      for (int rows : {1, 2, 3, 4, 5, 7, 8})
        for (int channels : {1, vectors * lanes - 1, vectors * lanes})
          for (bool with_sums : {false, true}) {
            if (channels == 0) continue;
            Factors factors(mode, vectors * lanes, random);
            factors.requantization.flip = with_sums ? kFlip : 0;
            factors.requantization.weight_offset = factors.weight_offset.data();
            const int64_t step = channels + (rows % 2 ? 0 : 3);
            Guarded<int32_t> sums(random.integers<int32_t>(rows * vectors * lanes, -30000, 30000));
            Guarded<int32_t> byte_sums(random.integers<int32_t>(rows, 0, 500));
            Guarded<uint8_t> out((rows - 1) * step + channels);
            kernels.requantize(rows, vectors, sums.data(), factors.requantization, 0,
                               with_sums ? byte_sums.data() : nullptr, out.data(), step, channels,
                               {nullptr, nullptr, 0});
            for (int row = 0; row < rows; ++row)
              for (int vector = 0; vector < vectors; ++vector)
                for (int lane = 0; lane < lanes; ++lane) {
                  const int channel = channel_of(vectors, vector, lane), at = vector * lanes + lane;
                  if (channel >= channels) continue;
                  int64_t sum = sums[row * vectors * lanes + at];
                  if (with_sums) sum += int64_t{byte_sums[row]} * factors.weight_offset[size_t(at)];
                  ASSERT_EQ(out[row * step + channel], factors.value_of(sum, size_t(at))) << describe(
                      "mode", int(mode), "vectors", vectors, "rows", rows, "channels", channels, "sum", sum);
                }
          }
}

TEST_P(Q8RequantizeKernel, multiplies_and_requantizes_panels_of_one_row) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (Q8Requantization::Mode mode : simple_modes_of(isa()))
    for (int64_t least : {1, 2, 7, 16})
      for (int last : {1, 3, lanes}) {
        const int64_t words = whole_words(kernels, least);
        const int vectors[3] = {4, 2, 1};
        Q8GemvPanel panels[3];
        int64_t channel = 0, lane = 0, offset = 0;
        for (int n = 0; n < 3; ++n) {
          const int channels = n == 2 ? last : vectors[n] * lanes;
          panels[n] = {channel, channels, vectors[n], lane, offset};
          channel += channels, lane += vectors[n] * lanes, offset += words * vectors[n] * lanes * 4;
        }
        Factors factors(mode, int(lane), random);
        Guarded<uint8_t> image(random.integers<uint8_t>(words * 4)), out(channel);
        Guarded<int8_t> weights(random.integers<int8_t>(offset, -20, 20));
        Guarded<int32_t> bias(random.integers<int32_t>(lane, -1000, 1000));
        const Q8Gemv vector{panels, words, kFlip, weights.data(), bias.data(), &factors.requantization};
        kernels.gemv(vector, image.data(), out.data(), 0, 2);
        kernels.gemv(vector, image.data(), out.data(), 2, 3);
        for (const Q8GemvPanel& p : panels)
          for (int v = 0; v < p.vectors; ++v)
            for (int l = 0; l < lanes; ++l) {
              const int own = channel_of(p.vectors, v, l);
              if (own >= p.channels) continue;
              int64_t sum = bias[p.lane + v * lanes + l];
              for (int64_t k = 0; k < words * 4; ++k)
                sum += as_multiplied(flipped(image[k], kFlip), kernels.is_signed) *
                       weights[p.offset + k % 4 +
                               place_of_word(kernels.weight_bytes, p.vectors * lanes, v * lanes + l, k / 4)];
              ASSERT_EQ(out[p.first + own], factors.value_of(sum, size_t(p.lane + v * lanes + l)))
                  << describe("mode", int(mode), "words", words, "vectors", p.vectors, "channel", own);
            }
      }
}

// ---- Addition -------------------------------------------------------------------------------------------------------

struct FixedPoint {
  int32_t multiplier, shift;
  explicit FixedPoint(double real) {
    int exponent;
    const double mantissa = std::frexp(real, &exponent);
    multiplier = int32_t(std::min<int64_t>(std::llround(mantissa * 2147483648.0), INT32_MAX)), shift = exponent;
  }
};

/// a * scale_a + b * scale_b at a result's scale of 1, in the integers of TFLite's ADD; `limit` allows float32.
Q8Add make_add(double scale_a, double scale_b, float limit) {
  const int32_t zero_a = 100, zero_b = 130, zero = 120;
  const double common = 2 * std::max(scale_a, scale_b);
  const FixedPoint a(scale_a / common), b(scale_b / common), out(common / (1 << 20));
  Q8Add add{};
  add.a = {zero_a, a.multiplier, a.shift}, add.b = {zero_b, b.multiplier, b.shift},
  add.out = {zero, out.multiplier, out.shift};
  add.low = 3, add.high = 251, add.flip = kFlip;
  add.scale_a = float(scale_a), add.scale_b = float(scale_b);
  add.shift = float(-zero_a * scale_a - zero_b * scale_b), add.limit = limit;
  return add;
}

uint8_t expected_add(const Q8Add& q, uint8_t a, uint8_t b) {
  auto rescaled = [](uint8_t value, const Q8Add::Factor& f) {
    return fixed_point(int64_t{value - f.zero} * (1 << 20), f.multiplier, f.shift);
  };
  const int64_t sum = fixed_point(rescaled(a, q.a) + rescaled(b, q.b), q.out.multiplier, q.out.shift);
  return flipped(uint8_t(std::clamp<int64_t>(sum + q.out.zero, q.low, q.high)), q.flip);
}

TEST_P(Q8ElementwiseKernel, adds_and_multiplies_in_float32_with_ties_to_even) {
  Random random;
  for (auto [scale_a, scale_b] : {std::pair<float, float>{0.5f, 0.25f}, {0.7f, 1.3f}, {0.011f, 0.9f}})
    for (int64_t count : {1, 17, 64, 65, 1000}) {
      Q8Add add = make_add(double(scale_a), double(scale_b), -1);
      add.to_even = true, add.scales = {scale_a, scale_b, 0.5f};
      Q8Multiply product{};
      product.zero_a = 100, product.zero_b = 130, product.zero = 120;
      product.to_even = true, product.scales = {scale_a, scale_b, 8};
      Guarded<uint8_t> a(random.integers<uint8_t>(count)), b(random.integers<uint8_t>(count)), out(count);
      const auto code = [](float steps, int low, int high) {
        return uint8_t(std::clamp(std::nearbyint(double(steps)) + 120, double(low), double(high)));
      };
      elementwise_q8_kernels_for(isa()).add(a.data(), b.data(), out.data(), count, 0, add);
      for (int64_t n = 0; n < count; ++n) {
        const volatile float x = scale_a * float(a[n] - 100), y = scale_b * float(b[n] - 130), sum = x + y;
        ASSERT_EQ(out[n], flipped(code(sum / 0.5f, add.low, add.high), kFlip)) << describe("sum, element", n);
      }
      elementwise_q8_kernels_for(isa()).multiply(a.data(), b.data(), out.data(), count, product);
      for (int64_t n = 0; n < count; ++n) {
        const volatile float x = scale_a * float(a[n] - 100), y = scale_b * float(b[n] - 130), both = x * y;
        ASSERT_EQ(out[n], code(both / 8, 0, 255)) << describe("product, element", n);
      }
    }
}

TEST_P(Q8ElementwiseKernel, adds_as_the_integers_of_the_reference) {
  Random random;
  for (float limit : {-1.0f, 0.49f})
    for (auto [scale_a, scale_b] : {std::pair<double, double>{0.5, 0.25}, {0.7, 1.3}, {0.011, 0.9}})
      for (int64_t count : {1, 15, 16, 17, 63, 64, 65, 200, 5000}) {
        Q8Add add = make_add(scale_a, scale_b, limit);
        add.flip_b = kFlip;
        Guarded<uint8_t> a(random.integers<uint8_t>(count)), b(random.integers<uint8_t>(count)), out(count);
        elementwise_q8_kernels_for(isa()).add(a.data(), b.data(), out.data(), count, 0, add);
        for (int64_t n = 0; n < count; ++n)
          ASSERT_EQ(out[n], expected_add(add, a[n], flipped(b[n], kFlip)))
              << describe("limit", limit, "count", count, "element", n);
      }
}

/// An operation on int16 as the kernels compute it in integers.
Q16Pair make_pair(Q16Operation operation, double scale_a, double scale_b) {
  const double common = 2 * std::max(scale_a, std::fabs(scale_b));
  const FixedPoint a(scale_a / common), b(scale_b / common);
  const FixedPoint out(operation == Q16Operation::sum       ? common / (1 << 15)
                       : operation == Q16Operation::product ? scale_a * scale_b
                                                            : std::fabs(scale_a / scale_b));
  Q16Pair pair{};
  pair.a = {0, a.multiplier, a.shift}, pair.b = {0, b.multiplier, b.shift}, pair.out = {0, out.multiplier, out.shift};
  pair.operation = operation;
  pair.inverses = native::Reciprocals::all().inverses();
  return pair;
}

int16_t expected_combined(const Q16Pair& q, int16_t a, int16_t b) {
  const auto rescaled = [](int64_t x, const Q8Add::Factor& f) { return fixed_point(x, f.multiplier, f.shift); };
  const auto moved = [&](int16_t x, const Q8Add::Factor& f) { return rescaled(int64_t{x} * (1 << 15), f); };
  const auto whole = [&] {
    if (q.operation == Q16Operation::sum) return rescaled(moved(a, q.a) + moved(b, q.b), q.out);
    if (q.operation == Q16Operation::product) return rescaled(int64_t{a} * b, q.out);
    return native::quotient(a - q.a.zero, b - q.b.zero, {q.out.multiplier, q.out.shift}) + q.out.zero;
  };
  return int16_t(std::clamp<int64_t>(whole(), -32768, 32767));
}

int16_t expected_combined_in_float32(const Q16Pair& q, int16_t a, int16_t b) {
  const volatile float x = q.scales.a * float(a - q.a.zero), y = q.scales.b * float(b - q.b.zero);
  const volatile float real = q.operation == Q16Operation::sum       ? x + y
                              : q.operation == Q16Operation::product ? x * y
                                                                     : x / y;
  const double steps = std::isnan(real) ? 0 : std::nearbyint(double(real / q.scales.out));
  return int16_t(std::clamp(steps + q.out.zero, -32768.0, 32767.0));
}

std::vector<int16_t> shorts_with_limits(int64_t count, Random& random) {
  std::vector<int16_t> values = random.integers<int16_t>(count);
  for (size_t n = 0; n < values.size(); n += 5) values[n] = n % 2 ? 32767 : -32768;
  return values;
}

TEST_P(Q8ElementwiseKernel, combines_values_of_16_bits) {
  Random random;
  for (Q16Operation operation : {Q16Operation::sum, Q16Operation::product, Q16Operation::quotient})
    for (auto [scale_a, scale_b] :
         {std::pair<double, double>{0.5, 0.25}, {0.5, -0.5}, {0.7, 1e-5}, {3.1, -2.7}, {2e-4, 1e-5}, {1e-5, 90}})
      for (int64_t count : {1, 15, 16, 17, 31, 33, 64, 3000})
        for (bool one : {false, true}) {
          Q16Pair pair = make_pair(operation, scale_a, scale_b);
          pair.one_b = one;
          if (operation == Q16Operation::quotient)
            pair.a.zero = -32768, pair.b.zero = one ? 0 : 32767, pair.out.zero = 9;
          const Guarded<int16_t> a(shorts_with_limits(count, random)), b(shorts_with_limits(one ? 1 : count, random));
          Guarded<int16_t> out(count);
          elementwise_q8_kernels_for(isa()).combine_shorts(a.data(), b.data(), out.data(), count, pair);
          for (int64_t n = 0; n < count; ++n)
            ASSERT_EQ(out[n], expected_combined(pair, a[n], b[one ? 0 : n]))
                << describe("operation", int(operation), "count", count, "element", n);
          pair.to_even = true, pair.scales = {float(scale_a), float(scale_b), 0.5f};
          pair.a.zero = 1000, pair.b.zero = -32768, pair.out.zero = 7;
          elementwise_q8_kernels_for(isa()).combine_shorts(a.data(), b.data(), out.data(), count, pair);
          for (int64_t n = 0; n < count; ++n)
            ASSERT_EQ(out[n], expected_combined_in_float32(pair, a[n], b[one ? 0 : n]))
                << describe("float32, operation", int(operation), "count", count, "element", n);
        }
}

void make_exact(Q8Add& add) {
  add.is_exact = true;
  add.exact_a = add.scale_a, add.exact_b = add.scale_b, add.exact_shift = add.shift;
}

/// The result of the formula in float32; -1 where its rounding decides.
int expected_sum(const Q8Add& q, uint8_t a, uint8_t b) {
  const double sum = double(a) * q.exact_a + double(b) * q.exact_b + q.exact_shift;
  if (std::fabs(sum - std::floor(sum) - 0.5) < 1e-3) return -1;
  return flipped(uint8_t(std::clamp(std::nearbyint(sum) + q.out.zero, double(q.low), double(q.high))), q.flip);
}

TEST_P(Q8ElementwiseKernel, adds_by_an_exact_formula) {
  Random random;
  for (auto [scale_a, scale_b] : {std::pair<double, double>{0.5, 0.25}, {0.7, 1.3}, {0.011, 90}})
    for (int64_t count : {1, 63, 64, 65, 5000}) {
      Q8Add add = make_add(scale_a, scale_b, -1);
      make_exact(add), add.flip_b = kFlip;
      Guarded<uint8_t> a(random.integers<uint8_t>(count)), b(random.integers<uint8_t>(count)), out(count);
      elementwise_q8_kernels_for(isa()).add(a.data(), b.data(), out.data(), count, 0, add);
      for (int64_t n = 0; n < count; ++n) {
        const int expected = expected_sum(add, a[n], flipped(b[n], kFlip));
        ASSERT_TRUE(expected < 0 || expected == out[n]) << describe("count", count, "element", n);
      }
    }
}

TEST_P(Q8RequantizeKernel, adds_a_residual_by_an_exact_formula) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (Q8Requantization::Mode mode : simple_modes_of(isa()))
    for (int vectors : {1, 2, 4})
      for (int rows : {1, 3, 4, 6})
        for (int channels : {vectors * lanes - 3, vectors * lanes}) {
          Factors factors(mode, vectors * lanes, random);
          Q8Add add = make_add(0.7, 1.3, -1);
          make_exact(add);
          Guarded<int32_t> sums(random.integers<int32_t>(rows * vectors * lanes, -30000, 30000));
          Guarded<uint8_t> out(rows * channels), residual(random.integers<uint8_t>(rows * channels + 64));
          kernels.requantize(rows, vectors, sums.data(), factors.requantization, 0, nullptr, out.data(), channels,
                             channels, {&add, residual.data(), channels});
          for (int64_t n = 0; n < sums.size(); ++n) {
            const int row = int(n / (vectors * lanes)), at = int(n % (vectors * lanes)),
                      channel = channel_of(vectors, at / lanes, at % lanes);
            if (channel >= channels) continue;
            const uint8_t own = factors.value_of(sums[n], size_t(at)), other = residual[row * channels + channel];
            const int expected = expected_sum(add, own, other);
            ASSERT_TRUE(expected < 0 || expected == out[row * channels + channel])
                << describe("mode", int(mode), "vectors", vectors, "rows", rows, "channels", channels);
          }
        }
}

TEST_P(Q8RequantizeKernel, adds_a_residual) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (int vectors : {1, 2, 4})
    for (int rows : {1, 3, 4, 6})
      for (int channels : {vectors * lanes - 3, vectors * lanes})
        for (float limit : {-1.0f, 0.49f}) {
          Factors factors(Q8Requantization::single, vectors * lanes, random);
          const Q8Add add = make_add(0.7, 1.3, limit);
          const int64_t step = channels, residual_step = channels + 5;
          Guarded<int32_t> sums(random.integers<int32_t>(rows * vectors * lanes, -30000, 30000));
          Guarded<uint8_t> out(rows * step), residual(random.integers<uint8_t>(rows * residual_step + 64));
          kernels.requantize(rows, vectors, sums.data(), factors.requantization, 0, nullptr, out.data(), step, channels,
                             {&add, residual.data(), residual_step});
          for (int64_t n = 0; n < sums.size(); ++n) {
            const int row = int(n / (vectors * lanes)), at = int(n % (vectors * lanes)),
                      channel = channel_of(vectors, at / lanes, at % lanes);
            if (channel >= channels) continue;
            ASSERT_EQ(out[row * step + channel],
                      expected_add(add, factors.value_of(sums[n], size_t(at)), residual[row * residual_step + channel]))
                << describe("vectors", vectors, "rows", rows, "channels", channels, "limit", limit);
          }
        }
}

// ---- Depthwise ------------------------------------------------------------------------------------------------------

TEST_P(Q8DepthwiseKernel, multiplies_taps_of_each_channel) {
  Random random;
  const DepthwiseQ8Kernels& depthwise = depthwise_q8_kernels_for(isa());
  const int lanes = depthwise.lanes, size = 4 * lanes;
  for (Q8Requantization::Mode mode : modes_of(isa()))
    for (int64_t groups : {1, 3})
      for (int64_t sets : {1, 2, 3})
        for (int64_t rows : {1, 2})
          for (int64_t period : {1, 2})
            for (int64_t count : {1, size - 1, size, 3 * size + 5}) {
              Factors factors(mode, int(period) * size, random);
              factors.requantization.flip = kFlip;
              Guarded<int8_t> weights(random.integers<int8_t>(period * groups * rows * sets * 4 * size, -60, 60));
              Guarded<int32_t> bias(random.integers<int32_t>(period * size, -1000, 1000));
              const int64_t padded = (count + size - 1) / size * size;
              Guarded<uint8_t> image(random.integers<uint8_t>(groups * 4 * padded)), first(count), second(count);
              std::vector<const uint8_t*> taps;
              for (int64_t n = 0; n < groups * 4; ++n) taps.push_back(image.data() + n * padded);
              uint8_t* out[2] = {first.data(), second.data()};
              depthwise.convolve({groups, sets, period, rows, weights.data(), bias.data()}, taps.data(),
                                 factors.requantization, out, count);
              for (int64_t row = 0; row < rows; ++row)
                for (int64_t n = 0; n < count; ++n) {
                  const int64_t phase = n / size % period, byte = n % size;
                  const int64_t vector = byte % 16 / 4, lane = byte / 16 * 4 + byte % 4;
                  ASSERT_EQ(channel_of(4, int(vector), int(lane)), byte);
                  const int64_t at = (phase * 4 + vector) * lanes + lane;
                  int64_t sum = bias[at];
                  for (int64_t g = 0; g < groups; ++g)
                    for (int64_t set = 0; set < sets; ++set)
                      for (int64_t tap = 0; tap < 4; ++tap) {
                        const int64_t place = (((phase * groups + g) * rows + row) * sets + set) * 4 + vector;
                        sum += as_multiplied(taps[size_t(g * 4 + tap)][n], depthwise.is_signed) *
                               weights[(place * lanes + lane) * 4 + tap];
                      }
                  ASSERT_EQ(out[row][n], factors.value_of(sum, size_t(at))) << describe(
                      "mode", int(mode), "groups", groups, "sets", sets, "rows", rows, "period", period, "byte", n);
                }
            }
}

// ---- Bytes ----------------------------------------------------------------------------------------------------------

TEST_P(Q8ElementwiseKernel, copies_clamps_and_looks_up) {
  Random random;
  const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa());
  const std::vector<uint8_t> table = random.integers<uint8_t>(256);
  for (int64_t count : {1, 15, 16, 17, 63, 64, 65, 127, 129, 300})
    for (uint32_t flip : {0u, kFlip}) {
      Guarded<uint8_t> in(random.integers<uint8_t>(count)), copied(count), clamped(count), looked_up(count);
      elementwise.copy(copied.data(), in.data(), count, flip);
      elementwise.clamp(in.data(), clamped.data(), count, flip, 40, 200);
      elementwise.look_up(in.data(), looked_up.data(), count, table.data());
      for (int64_t n = 0; n < count; ++n) {
        ASSERT_EQ(copied[n], flipped(in[n], flip)) << describe("count", count);
        ASSERT_EQ(clamped[n], flipped(std::clamp<uint8_t>(flipped(in[n], flip), 40, 200), flip))
            << describe("count", count);
        ASSERT_EQ(looked_up[n], table[in[n]]) << describe("count", count);
      }
    }
}

TEST_P(Q8ElementwiseKernel, sums_squares_and_multiplies_distances_by_a_factor) {
  Random random;
  const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa());
  for (int64_t count : {1, 15, 16, 63, 64, 65, 300})
    for (uint32_t flip : {0u, kFlip})
      for (int shift : {-12, -1, 0, 1, 7}) {
        const int32_t zero = int32_t(random.integer(0, 255));
        const native::FixedPoint factor{random.integer(1 << 30, INT32_MAX), shift};
        Guarded<uint8_t> in(random.integers<uint8_t>(count)), out(count);
        const Q8Factor parts{std::max(shift, 0), int32_t(factor.multiplier >> 15), int32_t(factor.multiplier & 0x7fff),
                             std::max(-shift, 0)};
        elementwise.scale(in.data(), out.data(), count, flip, zero, parts);
        int32_t sum = 0;
        for (int64_t n = 0; n < count; ++n) {
          const int32_t distance = flipped(in[n], flip) - zero;
          sum += distance * distance;
          const int64_t expected = std::clamp<int64_t>(128 + native::multiply(distance, factor), 0, 255);
          ASSERT_EQ(out[n], flipped(uint8_t(expected), flip)) << describe("count", count, "shift", shift);
        }
        ASSERT_EQ(elementwise.sum_squares(in.data(), count, flip, zero), sum) << describe("count", count);
      }
}

TEST_P(Q8ElementwiseKernel, gathers_pixels) {
  Random random;
  for (int64_t channels : {1, 3, 8, 16, 17, 32, 70})
    for (int64_t pixels : {1, 2, 9})
      for (int64_t times : {1, 3})
        for (uint32_t flip : {0u, kFlip}) {
          const int64_t step = channels + 4;
          Guarded<uint8_t> in(random.integers<uint8_t>(pixels * step)), out(pixels * channels * times);
          elementwise_q8_kernels_for(isa()).gather(out.data(), in.data(), pixels, channels, step, times, flip);
          for (int64_t n = 0; n < out.size(); ++n)
            ASSERT_EQ(out[n], flipped(in[n / (channels * times) * step + n / times % channels], flip))
                << describe("channels", channels, "pixels", pixels, "times", times, "flip", flip);
        }
}

// ---- Conversions ----------------------------------------------------------------------------------------------------

TEST_P(Q8GemmKernel, converts_sums_to_integers_and_floats) {
  Random random;
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa());
  const int lanes = kernels.lanes;
  for (int vectors : {1, 2, 4})
    for (int channels : {1, lanes - 1, lanes, vectors * lanes - 1, vectors * lanes})
      for (bool has_sums : {false, true})
        for (int mode : {0, 1, 2}) {  // int32; one scale; scales and a bias
          if (channels > vectors * lanes) continue;
          const int rows = 3, first = 5;
          const int64_t step = channels + 2;
          Guarded<int32_t> sums(random.integers<int32_t>(rows * vectors * lanes, -100000, 100000));
          Guarded<int32_t> offsets(random.integers<int32_t>(2 * vectors * lanes, -100, 100));
          Guarded<int32_t> byte_sums(random.integers<int32_t>(rows, 0, 1000));
          Guarded<float> scales(random.reals(first + channels)), bias(random.reals(first + channels));
          Guarded<int32_t> out(rows * step, -7);
          const Q8Conversion conversion{offsets.data(),
                                        mode == 0 ? nullptr : scales.data(),
                                        mode == 2 ? bias.data() : nullptr,
                                        mode == 2,
                                        -900.0f,
                                        900.0f};
          kernels.convert(rows, vectors, sums.data(), conversion, lanes, first, has_sums ? byte_sums.data() : nullptr,
                          reinterpret_cast<uint8_t*>(out.data()), step * 4, channels);
          for (int64_t n = 0; n < out.size(); ++n) {
            const int64_t row = n / step, channel = n % step;
            if (channel >= channels) {
              ASSERT_EQ(out[n], -7);
              continue;
            }
            int32_t sum = sums[row * vectors * lanes + channel];
            if (has_sums) sum += byte_sums[row] * offsets[lanes + channel];
            volatile float real = float(sum) * scales[mode == 2 ? first + channel : 0];
            if (mode == 2) real = real + bias[first + channel];
            const float bounded = std::clamp(float(real), -900.0f, 900.0f);
            int32_t expected = sum;
            if (mode > 0) std::memcpy(&expected, &bounded, 4);
            ASSERT_EQ(out[n], expected) << describe("vectors", vectors, "channels", channels, "mode", mode, "row", row);
          }
        }
}

TEST_P(Q8ElementwiseKernel, quantizes_and_dequantizes) {
  Random random;
  const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa());
  for (int64_t count : {1, 15, 16, 17, 64, 131})
    for (bool to_even : {false, true})
      for (bool is_signed : {false, true}) {
        const int zero = is_signed ? -3 : 130, low = is_signed ? -128 : 0;
        Guarded<float> in(random.reals(count)), back(count);
        for (int64_t n = 0; n < count; ++n) in[n] = n % 3 == 0 ? 0.125f * float(n - 20) : in[n] * 20;
        if (count > 20) in[3] = NAN, in[4] = INFINITY, in[5] = -INFINITY, in[18] = 0.25f * 0.49999997f;
        Guarded<uint8_t> out(count);
        const Q8Quantization q{0.25f, zero, float(low - zero), float(low + 255 - zero), 0, to_even};
        elementwise.quantize(in.data(), out.data(), count, q);
        elementwise.dequantize(out.data(), back.data(), count, is_signed, 0.3f, zero);
        for (int64_t n = 0; n < count; ++n) {
          const double steps = double(in[n] / 0.25f);
          double whole = to_even ? std::nearbyint(steps) : std::copysign(std::floor(std::fabs(steps) + 0.5), steps);
          whole = std::isnan(steps) ? zero : std::clamp(whole + zero, double(low), double(low + 255));
          ASSERT_EQ(out[n], uint8_t(int(whole))) << describe("count", count, "even", to_even, "element", n);
          ASSERT_EQ(back[n], float(int(whole) - zero) * 0.3f) << describe("count", count, "element", n);
        }
      }
}

TEST_P(Q8ElementwiseKernel, finds_the_range_of_numbers) {
  Random random;
  for (int64_t count : {1, 3, 16, 17, 33, 100})
    for (float shift : {-5.0f, 0.0f, 5.0f}) {
      Guarded<float> in(random.reals(count));
      float low = 0, high = 0, found[2], spoiled[2];
      for (int64_t n = 0; n < count; ++n) in[n] += shift, low = std::min(low, in[n]), high = std::max(high, in[n]);
      elementwise_q8_kernels_for(isa()).find_range(in.data(), count, found);
      in[count / 2] = NAN;
      elementwise_q8_kernels_for(isa()).find_range(in.data(), count, spoiled);
      ASSERT_EQ(found[0], low) << describe("count", count);
      ASSERT_EQ(found[1], high) << describe("count", count);
      ASSERT_TRUE(std::isnan(spoiled[0]) && std::isnan(spoiled[1])) << describe("count", count);
    }
}

TEST_P(Q8ElementwiseKernel, adds_rows_and_products) {
  Random random;
  const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa());
  for (int64_t count : {1, 63, 64, 65, 130})
    for (int64_t rows : {1, 2, 255, 256, 257, 600}) {
      const int64_t step = count + 3;
      Guarded<uint8_t> in(random.integers<uint8_t>(rows * step));
      Guarded<uint32_t> sums(count, 9);
      elementwise.add_rows(in.data(), rows, step, count, rows % 2 == 0, sums.data());
      Guarded<int32_t> products(count, 4);
      Guarded<int16_t> factors(random.integers<int16_t>(count, -255, 255));
      elementwise.add_product(products.data(), factors.data(), -255, count);
      for (int64_t n = 0; n < count; ++n) {
        uint32_t expected = 9;
        for (int64_t row = 0; row < rows; ++row) expected += in[row * step + n] ^ (rows % 2 == 0 ? 0x80 : 0);
        ASSERT_EQ(sums[n], expected) << describe("count", count, "rows", rows);
        ASSERT_EQ(products[n], 4 - 255 * factors[n]) << describe("count", count);
      }
    }
}

TEST_P(Q8ElementwiseKernel, weaves_up_to_four_rows) {
  Random random;
  const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa());
  for (int64_t count : {1, 15, 16, 64, 65, 130})
    for (int64_t rows : {1, 2, 3, 4})
      for (const bool flip : {false, true}) {
        const int64_t step = count + 3;
        Guarded<uint8_t> in(random.integers<uint8_t>(rows * step)), out(4 * count);
        elementwise.weave(in.data(), rows, step, count, flip, out.data());
        for (int64_t n = 0; n < 4 * count; ++n) {
          const int64_t row = n % 4;
          const int expected = row < rows ? in[row * step + n / 4] ^ (flip ? 0x80 : 0) : 0;
          ASSERT_EQ(out[n], expected) << describe("count", count, "rows", rows, "flip", flip);
        }
      }
}

TEST_P(Q8ElementwiseKernel, sums_a_row_and_takes_the_greatest_bytes) {
  Random random;
  const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa());
  for (int64_t count : {1, 15, 16, 63, 64, 200, 20000})
    for (const bool flip : {false, true}) {
      Guarded<uint8_t> in(random.integers<uint8_t>(count));
      const uint8_t mask = flip ? 0x80 : 0xff;
      uint32_t sum = 0;
      uint8_t greatest = 0, most = 0;
      for (int64_t n = 0; n < count; ++n) {
        sum += in[n] ^ (flip ? 0x80 : 0);
        greatest = std::max(greatest, uint8_t(in[n] ^ mask));
      }
      EXPECT_EQ(elementwise.sum(in.data(), count, flip), sum) << describe("count", count);
      elementwise.raise(in.data(), count, 1, 1, mask, &most);
      EXPECT_EQ(most, greatest) << describe("count", count);
      const int64_t rows = 3, width = count / rows;
      Guarded<uint8_t> columns(width, 7);
      elementwise.raise(in.data(), rows, width, width, mask, columns.data());
      for (int64_t n = 0; n < width; ++n) {
        uint8_t expected = 7;
        for (int64_t row = 0; row < rows; ++row) expected = std::max(expected, uint8_t(in[row * width + n] ^ mask));
        ASSERT_EQ(columns[n], expected) << describe("width", width, "column", n);
      }
    }
}

}  // namespace
}  // namespace cpuacc
