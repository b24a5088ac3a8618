// Tile registers are named by numbers within instructions. They are inline assembly here, because the intrinsics take
// literal numbers only, no constants of templates.

#include "cpuacc/kernels/tiles_q8.hpp"

#include <immintrin.h>
#include <string.h>

namespace cpuacc::ISA_NS {
namespace {

#define CPUACC_TILE static inline __attribute__((always_inline))

template <int TILE>
CPUACC_TILE void load_tile(const void* from, int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(TILE) : "memory");
}

template <int TILE>
CPUACC_TILE void store_tile(void* to, int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step), "i"(TILE) : "memory");
}

/// Add the products of two tiles to the sums of a third one.
template <int SUM, int PIXELS, int WEIGHTS, bool SIGNED>
CPUACC_TILE void multiply_tiles() {
  if constexpr (SIGNED)
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(PIXELS), "i"(WEIGHTS));
  else
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(PIXELS), "i"(WEIGHTS));
}

/// Call `work` with the numbers 0 .. COUNT - 1 as types, so that they are constants.
template <int N>
struct Number {
  static constexpr int value = N;
};
template <int COUNT, int N = 0, class Work>
CPUACC_TILE void repeat(const Work& work) {
  if constexpr (N < COUNT) {
    work(Number<N>());
    repeat<COUNT, N + 1>(work);
  }
}

/// The registers of TILES tiles of pixels and VECTORS vectors of channels. Weights alternate between two registers.
template <int TILES, int VECTORS>
struct Registers {
  static constexpr int sum(int tile, int vector) { return tile * VECTORS + vector; }
  static constexpr int pixels(int tile) { return 4 + tile % 2; }
  static constexpr int weights(int vector) { return 6 + vector % 2; }
};

constexpr int64_t kAhead = 8192;  // bytes between the weights that are multiplied and those that are requested

/// Weights of a panel: pairs of vectors are `pair` bytes apart.
template <int TILES, int VECTORS, bool SIGNED>
static void multiply_block(const Q8Tiles& from, int64_t pair, const int8_t* weights, const int32_t* bias, int32_t* sums,
                           int64_t sum_step) {
  using Own = Registers<TILES, VECTORS>;
  constexpr int64_t line = (VECTORS == 1 ? 1 : 2) * kTileBytes;
  const int64_t step = from.step;
  repeat<TILES>(
      [&](auto m) { repeat<VECTORS>([&](auto n) { load_tile<Own::sum(m.value, n.value)>(bias + n.value * 16, 0); }); });
  for (int64_t s = 0; s < from.segment_count; ++s) {
    const uint8_t* pixels[TILES];
    for (int m = 0; m < TILES; ++m) pixels[m] = from.segments[s] + from.offsets[m];
    for (int64_t k = 0; k < from.words; k += 16, weights += 16 * line) {
      if (from.prefetches)
        for (int64_t at = 0; at < 16 * line; at += 64) __builtin_prefetch(weights + kAhead + at, 0, 3);
      repeat<VECTORS>([&](auto n) {
        load_tile<Own::weights(n.value)>(weights + n.value / 2 * pair + n.value % 2 * kTileBytes, line);
        repeat<TILES>([&](auto m) {
          if constexpr (n.value == 0) load_tile<Own::pixels(m.value)>(pixels[m.value] + 4 * k, step);
          multiply_tiles<Own::sum(m.value, n.value), Own::pixels(m.value), Own::weights(n.value), SIGNED>();
        });
      });
    }
  }
  repeat<TILES>([&](auto m) {
    repeat<VECTORS>([&](auto n) {
      char* to = reinterpret_cast<char*>(sums) + m.value * from.rows * sum_step + n.value * kTileBytes;
      store_tile<Own::sum(m.value, n.value)>(to, sum_step);
    });
  });
}

typedef void (*Block)(const Q8Tiles&, int64_t, const int8_t*, const int32_t*, int32_t*, int64_t);

template <bool SIGNED>
static void multiply_panel(const Q8Tiles& from, int vectors, const int8_t* weights, const int32_t* bias,
                           int32_t* sums) {
  constexpr Block narrow[] = {nullptr, multiply_block<1, 1, SIGNED>, multiply_block<2, 1, SIGNED>,
                              multiply_block<3, 1, SIGNED>, multiply_block<4, 1, SIGNED>};
  const int64_t pair = from.segment_count * from.words * 4 * 32, sum_step = int64_t{vectors} * kTileBytes;
  if (vectors == 1) return narrow[from.count](from, pair, weights, bias, sums, sum_step);
  if (vectors == 4 && from.count == 1) return multiply_block<1, 4, SIGNED>(from, pair, weights, bias, sums, sum_step);
  const Block wide = from.count == 1 ? multiply_block<1, 2, SIGNED> : multiply_block<2, 2, SIGNED>;
  for (int n = 0; n < vectors; n += 2) wide(from, pair, weights + n / 2 * pair, bias + n * 16, sums + n * 16, sum_step);
}

static void multiply(const Q8Tiles& from, int vectors, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  (from.is_signed ? multiply_panel<true> : multiply_panel<false>)(from, vectors, weights, bias, sums);
}

static void gather(const uint8_t* const* segments, int64_t segment_count, int64_t segment_bytes, int64_t step,
                   int64_t count, uint8_t* to, int64_t step_to) {
  const int64_t last = (segment_bytes - 1) / 64 * 64;
  const __mmask64 mask = _bzhi_u64(~uint64_t{0}, static_cast<uint32_t>(segment_bytes - last));
  for (int64_t m = 0; m < count; ++m, to += step_to) {
    uint8_t* out = to;
    for (int64_t s = 0; s < segment_count; ++s, out += segment_bytes) {
      const uint8_t* from = segments[s] + m * step;
      for (int64_t n = 0; n < last; n += 64) _mm512_storeu_si512(out + n, _mm512_loadu_si512(from + n));
      _mm512_mask_storeu_epi8(out + last, mask, _mm512_maskz_loadu_epi8(mask, from + last));
    }
  }
}

/// The operand of LDTILECFG.
struct alignas(64) Configuration {
  uint8_t palette, first_row, reserved[14];
  uint16_t bytes[16];  // of a row of each register
  uint8_t rows[16];
};

/// Registers of sums and pixels have a row for each pixel, and those of weights a row for each word.
static void configure(int rows) {
  Configuration to;
  memset(&to, 0, sizeof(to));
  to.palette = 1;
  for (int n = 0; n < 8; ++n) to.bytes[n] = kTileBytes, to.rows[n] = static_cast<uint8_t>(n < 6 ? rows : kTileRows);
  asm volatile("ldtilecfg %0" ::"m"(to) : "memory");
}

static void release() { asm volatile("tilerelease" ::: "memory"); }

}  // namespace

extern const TileQ8Kernels tile_q8_kernels = {configure, release, multiply, gather};

}  // namespace cpuacc::ISA_NS
