// Kernels on quantized values of 8 bits.

#include <algorithm>

#include "bench.hpp"
#include "cpuacc/kernels/tiles_q8.hpp"

namespace native::bench {
namespace {

using namespace cpuacc;

/// Factors of the requantization of `lanes` lanes.
struct Factors {
  Factors(Q8Requantization::Mode mode, int64_t lanes)
      : scale(buffer<float>(lanes, 0.001f)), rest(buffer<float>(lanes)), half(buffer<float>(lanes, 0.5f)),
        wide_scale(buffer<double>(lanes, 0.001)), wide_half(buffer<double>(lanes, 0.5)),
        multiplier(buffer<int32_t>(lanes, 1 << 30)), shift(buffer<int32_t>(lanes, -9)), requantization{mode,
                                                                                                       0,
                                                                                                       0,
                                                                                                       255,
                                                                                                       0,
                                                                                                       scale.get(),
                                                                                                       rest.get(),
                                                                                                       half.get(),
                                                                                                       wide_scale.get(),
                                                                                                       wide_half.get(),
                                                                                                       multiplier.get(),
                                                                                                       shift.get(),
                                                                                                       nullptr} {}

  std::shared_ptr<float[]> scale, rest, half;
  std::shared_ptr<double[]> wide_scale, wide_half;
  std::shared_ptr<int32_t[]> multiplier, shift;
  Q8Requantization requantization;
};

/// One panel of a product of matrices: tiles of as many rows as the registers hold.
Case gemm(int64_t pixels, int64_t depth, int vectors) {
  return {
      "gemm_q8/tile_" + std::to_string(vectors) + "_vectors/" + std::to_string(pixels) + "x" + std::to_string(depth),
      [=](Isa isa) -> Call {
        if (isa >= Isa::avx512bf16) return {};
        const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa);
        const int64_t channels = vectors * kernels.lanes, rows = kernels.max_rows[vectors],
                      whole = pixels / rows * rows;
        auto in = buffer<uint8_t>(pixels * depth, 3);
        auto weights = buffer<int8_t>(channels * depth, 2);
        auto bias = buffer<int32_t>(channels), sums = buffer<int32_t>(rows * channels);
        return {Limit::dot, 2.0 * double(whole * depth * channels), [=, &kernels] {
                  for (int64_t row = 0; row < whole; row += rows) {
                    const uint8_t* segment = in.get() + row * depth;
                    kernels.tile(int(rows), vectors, {&segment, 1, depth / 4, 0, depth, 0}, weights.get(), bias.get(),
                                 sums.get());
                  }
                }};
      }};
}

/// A panel of 64 channels of a product of matrices in tile registers.
Case tiles(int64_t pixels, int64_t depth) {
  return {"tiles_q8/" + std::to_string(pixels) + "x" + std::to_string(depth), [=](Isa isa) -> Call {
            const TileQ8Kernels* kernels = tile_q8_kernels_for(isa);
            if (!kernels) return {};
            auto in = buffer<uint8_t>(pixels * depth, 3);
            auto weights = buffer<int8_t>(64 * depth, 2);
            auto bias = buffer<int32_t>(64), sums = buffer<int32_t>(2 * kTileRows * 64);
            return {Limit::dot, 2.0 * double(pixels * depth * 64), [=] {
                      const uint8_t* segment = in.get();
                      kernels->configure(kTileRows);
                      for (int64_t row = 0; row < pixels; row += 2 * kTileRows) {
                        const int64_t offsets[] = {row * depth, (row + kTileRows) * depth};
                        kernels->multiply({&segment, 1, depth / 4, offsets, depth, 2, kTileRows, false, false}, 4,
                                          weights.get(), bias.get(), sums.get());
                      }
                      kernels->release();
                    }};
          }};
}

/// Requantizes sums in the cache to one byte each; bytes read and written are counted.
Case requantize(const char* name, Q8Requantization::Mode mode) {
  return {std::string("gemm_q8/requantize_") + name, [=](Isa isa) -> Call {
            if (isa >= Isa::avx512bf16) return {};
            const GemmQ8Kernels& kernels = gemm_q8_kernels_for(isa);
            const int64_t channels = 4 * kernels.lanes, rows = 32;
            auto sums = buffer<int32_t>(rows * channels, 12345);
            auto out = buffer<uint8_t>(rows * channels);
            auto factors = std::make_shared<Factors>(mode, channels);
            return {Limit::copy, 5.0 * double(rows * channels), [=, &kernels] {
                      kernels.requantize(int(rows), 4, sums.get(), factors->requantization, 0, nullptr, out.get(),
                                         channels, int(channels), {nullptr, nullptr, 0});
                    }};
          }};
}

/// One row of an image, with a window of 3 x 3, whose taps are nine rows filled up to three groups of four.
Case depthwise(int64_t bytes, int64_t channels) {
  return {"depthwise_q8/3x3/" + std::to_string(bytes / channels) + "x" + std::to_string(channels),
          [=](Isa isa) -> Call {
            if (isa >= Isa::avx512bf16) return {};
            const DepthwiseQ8Kernels& depthwise = depthwise_q8_kernels_for(isa);
            const int64_t size = 4 * depthwise.lanes, period = std::max<int64_t>(1, channels / size);
            auto in = buffer<uint8_t>(12 * bytes, 3), out = buffer<uint8_t>(bytes);
            auto weights = buffer<int8_t>(period * 3 * 4 * size, 2);
            auto bias = buffer<int32_t>(period * size);
            auto factors = std::make_shared<Factors>(Q8Requantization::single, period * size);
            return {Limit::dot, 2.0 * 9 * double(bytes), [=, &depthwise] {
                      const uint8_t* taps[12];
                      for (int n = 0; n < 12; ++n) taps[n] = in.get() + n * bytes;
                      uint8_t* to[1] = {out.get()};
                      depthwise.convolve({3, 1, period, 1, weights.get(), bias.get()}, taps, factors->requantization,
                                         to, bytes);
                    }};
          }};
}

enum class Bytes { copy, add, clamp, look_up, gather };

Case bytes(const char* name, Bytes what, int64_t count) {
  return {std::string("elementwise_q8/") + name + "/" + std::to_string(count), [=](Isa isa) -> Call {
            if (isa >= Isa::avx512bf16) return {};
            auto a = buffer<uint8_t>(2 * count, 100), b = buffer<uint8_t>(count, 90), out = buffer<uint8_t>(count),
                 table = buffer<uint8_t>(256);
            Q8Add add{};
            add.a = add.b = {0, 1 << 30, 0}, add.out = {0, 1 << 30, -19};
            add.high = 255, add.scale_a = add.scale_b = 0.5f, add.limit = 0.49f;
            return {Limit::copy, double(count) * (what == Bytes::add ? 3 : 2), [=] {
                      const ElementwiseQ8Kernels& elementwise = elementwise_q8_kernels_for(isa);
                      switch (what) {
                        case Bytes::copy:
                          return elementwise.copy(out.get(), a.get(), count, 0x80808080u);
                        case Bytes::add:
                          return elementwise.add(a.get(), b.get(), out.get(), count, 0, add);
                        case Bytes::clamp:
                          return elementwise.clamp(a.get(), out.get(), count, 0, 10, 200);
                        case Bytes::look_up:
                          return elementwise.look_up(a.get(), out.get(), count, table.get());
                        case Bytes::gather:
                          return elementwise.gather(out.get(), a.get(), count / 32, 32, 64, 1, 0);
                      }
                    }};
          }};
}

}  // namespace

std::vector<Case> cases_q8() {
  return {gemm(196, 384, 1),
          gemm(196, 384, 2),
          gemm(196, 384, 4),
          tiles(192, 384),
          tiles(192, 2304),
          requantize("float32", Q8Requantization::single),
          requantize("float64", Q8Requantization::twofold),
          requantize("fixed_point", Q8Requantization::fixed_point),
          depthwise(28 * 192, 192),
          bytes("copy", Bytes::copy, 32768),
          bytes("add", Bytes::add, 32768),
          bytes("clamp", Bytes::clamp, 32768),
          bytes("look_up", Bytes::look_up, 32768),
          bytes("gather", Bytes::gather, 32768)};
}

}  // namespace native::bench
