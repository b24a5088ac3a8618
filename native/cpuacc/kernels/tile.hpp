// The inner kernel of matrix products and convolutions: some pixels times a panel of output channels, in registers.

#ifndef CPUACC_KERNELS_TILE_HPP
#define CPUACC_KERNELS_TILE_HPP

#include "cpuacc/kernels/pairs.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kBlockVecs = 16 / kLanes;  // vectors in one block of 16 channels

/// How many blocks of output channels a panel has at most, and how many pixels a tile of that many blocks: as many as
/// the registers hold beside one row of weights and one pixel.
constexpr int kPanel = kLanes == 16 ? 3 : 1;
constexpr int rows_of_panel(int blocks) {
  return kLanes == 16 ? (blocks == 3 ? 9 : 14) : (kRegisters - kBlockVecs - 2) / kBlockVecs;
}

struct Tile {
  const float* a;         // the first pixel; pixels lie kStep floats apart
  int64_t a_block;        // floats from one block of 16 input channels to the next
  const int32_t* taps;    // where a is for each place of the window, in floats
  int32_t tap_count;
  int32_t depth;          // input channels, or pairs of them
  const float* b;         // weights: [block of input channels][tap][channel][panel]
  const float* bias;
  float* c;
  int64_t c_block, c_pixel;  // floats from one block of 16 output channels, and from one pixel, to the next
  const float* residual;     // laid out as c, or nullptr
  float low, high;
  const char* ahead;   // what to fetch while this is computed, a line for each input channel and tap
  int64_t ahead_step;  // bytes
};

template <int kRows, int kVecs, int kStep, int kCount>
CPUACC_INLINE void multiply(Vec (&sums)[kRows][kVecs], const float* a, const float* b) {
#pragma GCC unroll 16
  for (int u = 0; u < kCount; ++u) {
    Vec weights[kVecs];
#pragma GCC unroll 16
    for (int n = 0; n < kVecs; ++n) weights[n] = load(b + (u * kVecs + n) * kLanes);
#pragma GCC unroll 32
    for (int m = 0; m < kRows; ++m) {
      auto x = broadcast<kStep>(a + m * kStep + u);
#pragma GCC unroll 16
      for (int n = 0; n < kVecs; ++n) sums[m][n] = multiply_add(x, weights[n], sums[m][n]);
    }
  }
}

/// kStep 16: pixels of blocked images. kStep 1: planes; every tap is one input channel at one place of the window.
template <int kRows, int kBlocks, int kStep>
__attribute__((noinline)) void tile(const Tile& t) {
  constexpr int kVecs = kBlocks * kBlockVecs, kUnroll = 4;
  Vec sums[kRows][kVecs];
#pragma GCC unroll 16
  for (int n = 0; n < kVecs; ++n) {
    Vec bias = load(t.bias + n * kLanes);
#pragma GCC unroll 32
    for (int m = 0; m < kRows; ++m) sums[m][n] = bias;
  }
  const float* b = t.b;
  const char* ahead = t.ahead;
  const int64_t ahead_step = t.ahead_step;
  if constexpr (kStep == 1) {
    for (int tap = 0; tap < t.tap_count; ++tap, b += kVecs * kLanes, ahead += ahead_step) {
      prefetch(ahead);
      multiply<kRows, kVecs, 1, 1>(sums, t.a + t.taps[tap], b);
    }
  } else {
    const float* block = t.a;
    for (int left = t.depth; left > 0; left -= 16, block += t.a_block)
      for (int tap = 0; tap < t.tap_count; ++tap) {
        const float* a = block + t.taps[tap];
        int k = left < 16 ? left : 16;
        for (; k >= kUnroll; k -= kUnroll, a += kUnroll, b += kUnroll * kVecs * kLanes, ahead += kUnroll * ahead_step) {
#pragma GCC unroll 4
          for (int u = 0; u < kUnroll; ++u) prefetch(ahead + u * ahead_step);
          multiply<kRows, kVecs, kStep, kUnroll>(sums, a, b);
        }
        for (; k > 0; --k, ++a, b += kVecs * kLanes) multiply<kRows, kVecs, kStep, 1>(sums, a, b);
      }
  }
  Vec low = all(t.low), high = all(t.high);
  float* c = t.c;
  const float* residual = t.residual;
#pragma GCC unroll 32
  for (int m = 0; m < kRows; ++m, c += t.c_pixel) {
#pragma GCC unroll 16
    for (int n = 0; n < kVecs; ++n) {
      int64_t at = n / kBlockVecs * t.c_block + n % kBlockVecs * kLanes;
      if (residual) sums[m][n] += load(residual + at);
      store(c + at, at_most(at_least(sums[m][n], low), high));
    }
    if (residual) residual += t.c_pixel;
  }
}

using TileFunction = void (*)(const Tile&);

template <int kBlocks, int kStep>
struct Tiles;

#define CPUACC_ROW(m) (m <= rows_of_panel(kBlocks) ? tile<(m <= rows_of_panel(kBlocks) ? m : 1), kBlocks, kStep> : nullptr)
template <int kBlocks, int kStep>
struct Tiles {
  static constexpr TileFunction of[15] = {
      nullptr,       CPUACC_ROW(1), CPUACC_ROW(2),  CPUACC_ROW(3),  CPUACC_ROW(4),  CPUACC_ROW(5),  CPUACC_ROW(6), CPUACC_ROW(7),
      CPUACC_ROW(8), CPUACC_ROW(9), CPUACC_ROW(10), CPUACC_ROW(11), CPUACC_ROW(12), CPUACC_ROW(13), CPUACC_ROW(14)};
};
#undef CPUACC_ROW

template <int kStep>
inline TileFunction find_tile(int rows, int blocks) {
  if constexpr (kPanel > 1) {
    if (blocks == 2) return Tiles<2, kStep>::of[rows];
    if (blocks == 3) return Tiles<3, kStep>::of[rows];
  }
  return Tiles<1, kStep>::of[rows];
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_TILE_HPP
