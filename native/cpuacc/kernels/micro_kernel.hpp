// The micro-kernel of GEMMs and convolutions: a tile of MR pixels by NR output channels in registers.

#ifndef CPUACC_KERNELS_MICRO_KERNEL_HPP
#define CPUACC_KERNELS_MICRO_KERNEL_HPP

#include "cpuacc/kernels/bfloat16_pairs.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kBlockVecs = 16 / kLanes;  // vectors in one block of 16 channels

#if defined(__aarch64__)
constexpr bool kByLane = true;  // an instruction multiplies a vector by one lane of another
#else
constexpr bool kByLane = false;
#endif

/// The widest panel in blocks of 16 output channels.
constexpr int kMaxPanelBlocks = kLanes == 16 ? 3 : 1;

/// The vectors of a panel that a tile computes, if its last block has `channels` channels. By lane, vectors without a
/// channel are left out.
constexpr int vectors_of_panel(int blocks, int channels) {
  const int whole = blocks * kBlockVecs;
  return !kByLane || channels > 8 ? whole : channels > 4 ? whole - 2 : whole - 3;
}

/// MR for a panel of so many vectors. MR * NR sums fill the registers, except for those of one row of weights and one
/// broadcast pixel. If products are by lane, a register holds four channels of a pixel, or with a kStep of 1, four
/// pixels.
template <int kStep>
constexpr int mr_of_panel(int vectors) {
  if (kByLane && kStep == 1) return vectors == 4 ? 6 : 12;
  if (kByLane) return vectors == 4 ? 5 : vectors == 2 ? 8 : 12;
  return kLanes == 16 ? (vectors == 3 ? 9 : 14) : (kRegisters - kBlockVecs - 2) / kBlockVecs;
}

struct MicroKernelArgs {
  const float* a;       // the first pixel; pixels are kStep floats apart
  int64_t a_block;      // floats from one block of 16 input channels to the next
  const int32_t* taps;  // offsets of the taps from `a`, in floats
  int32_t tap_count;
  const int32_t* positions;  // the numbers of the taps in the window; if kStep is 1, they are 0, 1, 2 ...
  int32_t window;            // taps of the window, some of which may be left out
  int32_t depth;             // input channels, or pairs of them
  const float* b;            // packed weights: [block of input channels][tap][channel][NR]
  const float* bias;
  float* c;
  int64_t c_block, c_pixel;  // floats from one block of 16 output channels, and from one pixel, to the next
  const float* residual;     // has the strides of c; nullptr if absent
  float low, high;
  const char* prefetch;   // first cache line to prefetch; one line is fetched for each input channel and tap
  int64_t prefetch_step;  // bytes from one line to the next
};

/// Floats of a row of packed weights, of which a tile computes kNRVecs vectors.
template <int kNRVecs>
constexpr int kRowFloats = (kNRVecs + kBlockVecs - 1) / kBlockVecs * 16;

#if defined(__aarch64__)
/// Add the products of channel `kLane` of each pixel.
template <int kLane, int kMR, int kNRVecs>
CPUACC_INLINE void accumulate_lane(Vec (&sums)[kMR][kNRVecs], const Vec (&x)[kMR], const float* b) {
  Vec weights[kNRVecs];
#pragma GCC unroll 16
  for (int n = 0; n < kNRVecs; ++n) weights[n] = load(b + kLane * kRowFloats<kNRVecs> + n * kLanes);
#pragma GCC unroll 32
  for (int m = 0; m < kMR; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < kNRVecs; ++n) sums[m][n] = fused_by_lane<kLane>(weights[n], x[m], sums[m][n]);
}

/// Add the products of four contiguous channels of pixels that are `step` floats apart. Each pixel is loaded once.
template <int kMR, int kNRVecs>
CPUACC_INLINE void accumulate_four(Vec (&sums)[kMR][kNRVecs], const float* a, int64_t step, const float* b) {
  Vec x[kMR];
#pragma GCC unroll 32
  for (int m = 0; m < kMR; ++m) x[m] = load(a + m * step);
  accumulate_lane<0>(sums, x, b);
  accumulate_lane<1>(sums, x, b);
  accumulate_lane<2>(sums, x, b);
  accumulate_lane<3>(sums, x, b);
}

/// Add the products of a whole block of 16 channels. There is no loop, so that addresses need no instructions.
template <int kMR, int kNRVecs>
CPUACC_INLINE void accumulate_block(Vec (&sums)[kMR][kNRVecs], const float* a, int64_t step, const float* b) {
#pragma GCC unroll 4
  for (int k = 0; k < 16; k += 4) accumulate_four(sums, a + k, step, b + k * kRowFloats<kNRVecs>);
}

/// Load consecutive vectors, two at a time.
template <int kCount>
CPUACC_INLINE void load_vectors(const float* from, Vec (&to)[kCount]) {
#pragma GCC unroll 4
  for (int n = 0; n + 1 < kCount; n += 2) load_pair<0>(from + n * kLanes, &to[n], &to[n + 1]);
  if (kCount % 2) to[kCount - 1] = load(from + (kCount - 1) * kLanes);
}

/// Add the products of pixels from kPixel on, which are the lanes of `x`.
template <int kPixel, int kMR, int kNRVecs, int kCount>
CPUACC_INLINE void accumulate_pixels(Vec (&sums)[kMR][kNRVecs], const Vec (&x)[kCount], const Vec (&weights)[kNRVecs]) {
  if constexpr (kPixel < kMR) {
#pragma GCC unroll 4
    for (int n = 0; n < kNRVecs; ++n)
      sums[kPixel][n] = fused_by_lane<kPixel % 4>(weights[n], x[kPixel / 4], sums[kPixel][n]);
    accumulate_pixels<kPixel + 1>(sums, x, weights);
  }
}

/// Add the products of neighbouring pixels of one channel. Up to kReadAhead pixels more are loaded.
template <int kMR, int kNRVecs>
CPUACC_INLINE void accumulate_tap(Vec (&sums)[kMR][kNRVecs], const float* a, const float* b) {
  Vec x[(kMR + 3) / 4], weights[kNRVecs];
  load_vectors(a, x);
  load_vectors(b, weights);
  accumulate_pixels<0>(sums, x, weights);
}
#endif

template <int kMR, int kNRVecs, int kStep, int kCount>
CPUACC_INLINE void accumulate(Vec (&sums)[kMR][kNRVecs], const float* a, const float* b) {
#pragma GCC unroll 16
  for (int u = 0; u < kCount; ++u) {
    Vec weights[kNRVecs];
#pragma GCC unroll 16
    for (int n = 0; n < kNRVecs; ++n) weights[n] = load(b + u * kRowFloats<kNRVecs> + n * kLanes);
#pragma GCC unroll 32
    for (int m = 0; m < kMR; ++m) {
      auto x = broadcast<kStep>(a + m * kStep + u);
#pragma GCC unroll 16
      for (int n = 0; n < kNRVecs; ++n) sums[m][n] = multiply_add(x, weights[n], sums[m][n]);
    }
  }
}

/// Add the products of all taps, each of which is one input channel at one place of the window.
template <int kMR, int kNRVecs>
CPUACC_INLINE void accumulate_taps(Vec (&sums)[kMR][kNRVecs], const MicroKernelArgs& t) {
  const float* b = t.b;
#if defined(__aarch64__)
  for (const int32_t *tap = t.taps, *end = tap + t.tap_count; tap != end; ++tap, b += kRowFloats<kNRVecs>)
    accumulate_tap(sums, t.a + *tap, b);
#else
  const char* prefetch_at = t.prefetch;
  const int64_t prefetch_step = t.prefetch_step;
  for (int tap = 0; tap < t.tap_count; ++tap, b += kRowFloats<kNRVecs>, prefetch_at += prefetch_step) {
    prefetch_line(prefetch_at);
    accumulate<kMR, kNRVecs, 1, 1>(sums, t.a + t.taps[tap], b);
  }
#endif
}

/// Add the residual, clamp the sums and store them. Lanes that are left out become zero.
template <int kMR, int kNRVecs>
CPUACC_INLINE void store_tile(Vec (&sums)[kMR][kNRVecs], const MicroKernelArgs& t) {
  Vec low = broadcast(t.low), high = broadcast(t.high);
  float* c = t.c;
  const float* residual = t.residual;
#pragma GCC unroll 32
  for (int m = 0; m < kMR; ++m, c += t.c_pixel) {
#pragma GCC unroll 16
    for (int n = 0; n < kNRVecs; ++n) {
      int64_t at = n / kBlockVecs * t.c_block + n % kBlockVecs * kLanes;
      if (residual) sums[m][n] += load(residual + at);
      store(c + at, at_most(at_least(sums[m][n], low), high));
    }
    for (int n = kNRVecs; n < kBlockVecs; ++n) store(c + n * kLanes, Vec{});
    if (residual) residual += t.c_pixel;
  }
}

/// kStep is 16 for pixels of nChw16c images. With a kStep of 1, each tap is one input channel at one place of the
/// window.
template <int kMR, int kNRVecs, int kStep>
__attribute__((noinline)) void micro_kernel(const MicroKernelArgs& t) {
  constexpr int kUnroll = 4, kRow = kRowFloats<kNRVecs>;
  Vec sums[kMR][kNRVecs];
#pragma GCC unroll 16
  for (int n = 0; n < kNRVecs; ++n) {
    Vec bias = load(t.bias + n * kLanes);
#pragma GCC unroll 32
    for (int m = 0; m < kMR; ++m) sums[m][n] = bias;
  }
  if constexpr (kStep == 1) {
    accumulate_taps(sums, t);
  } else {
    const float *b = t.b, *block = t.a;
    const char* prefetch_at = t.prefetch;
    const int64_t prefetch_step = t.prefetch_step;
    for (int left = t.depth; left > 0; left -= 16, block += t.a_block) {
      const float* weights = b;
      const int64_t tap_size = (left < 16 ? left : 16) * kRow;
      for (int tap = 0; tap < t.tap_count; ++tap) {
        const float* a = block + t.taps[tap];
        b = weights + t.positions[tap] * tap_size;
        int k = left < 16 ? left : 16;
#if defined(__aarch64__)
        if (k == 16) {
          accumulate_block(sums, a, kStep, b);
          continue;
        }
#endif
        for (; k >= kUnroll; k -= kUnroll, a += kUnroll, b += kUnroll * kRow, prefetch_at += kUnroll * prefetch_step) {
#if defined(__aarch64__)
          accumulate_four(sums, a, kStep, b);  // weights are read in order, which the processor prefetches by itself
#else
#pragma GCC unroll 4
          for (int u = 0; u < kUnroll; ++u) prefetch_line(prefetch_at + u * prefetch_step);
          accumulate<kMR, kNRVecs, kStep, kUnroll>(sums, a, b);
#endif
        }
        for (; k > 0; --k, ++a, b += kRow) accumulate<kMR, kNRVecs, kStep, 1>(sums, a, b);
      }
      b = weights + t.window * tap_size;
    }
  }
  store_tile(sums, t);
}

using MicroKernel = void (*)(const MicroKernelArgs&);

template <int kNRVecs, int kStep>
struct MicroKernels;

#define CPUACC_MR(m)                                                                                           \
  (m <= mr_of_panel<kStep>(kNRVecs) ? micro_kernel<(m <= mr_of_panel<kStep>(kNRVecs) ? m : 1), kNRVecs, kStep> \
                                    : nullptr)
template <int kNRVecs, int kStep>
struct MicroKernels {
  static constexpr MicroKernel of[15] = {nullptr,       CPUACC_MR(1),  CPUACC_MR(2),  CPUACC_MR(3),  CPUACC_MR(4),
                                         CPUACC_MR(5),  CPUACC_MR(6),  CPUACC_MR(7),  CPUACC_MR(8),  CPUACC_MR(9),
                                         CPUACC_MR(10), CPUACC_MR(11), CPUACC_MR(12), CPUACC_MR(13), CPUACC_MR(14)};
};
#undef CPUACC_MR

template <int kStep>
inline MicroKernel find_micro_kernel(int rows, int vectors) {
  if constexpr (kMaxPanelBlocks > 1) {
    if (vectors == 2) return MicroKernels<2, kStep>::of[rows];
    if (vectors == 3) return MicroKernels<3, kStep>::of[rows];
  }
  if constexpr (kByLane) {
    if (vectors == 1) return MicroKernels<1, kStep>::of[rows];
    if (vectors == 2) return MicroKernels<2, kStep>::of[rows];
  }
  return MicroKernels<kBlockVecs, kStep>::of[rows];
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_MICRO_KERNEL_HPP
