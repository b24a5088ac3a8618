// Winograd's convolutions F(2x2, 3x3) and F(4x4, 3x3). F(4x4, 3x3) interpolates at 0, +-3/4, +-3/2 and infinity. Its
// error is a fifth of that at the usual points 0, +-1, +-2, and less than twice that of the direct sum.

#ifndef CPUACC_KERNELS_WINOGRAD_HPP
#define CPUACC_KERNELS_WINOGRAD_HPP

#include "cpuacc/kernels/gemm.hpp"
#include "cpuacc/kernels/winograd_f32.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr float kA = 0.75f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB;
/// The relative error of the weights that `original_weights` recovers, as a part of the largest weight in the window.
constexpr float kRoundingError = 1e-6f;

/// One dimension of the transforms for kTile outputs.
template <int kTile>
struct Points;

template <>
struct Points<2> {
  CPUACC_INLINE void input(const Vec* d, Vec* to) {
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
  }
  CPUACC_INLINE void output(const Vec* m, Vec* to) {
    to[0] = m[0] + m[1] + m[2];
    to[1] = m[1] - m[2] - m[3];
  }
  CPUACC_INLINE void weights(const Vec* w, Vec* to) {
    Vec even = 0.5f * (w[0] + w[2]), odd = 0.5f * w[1];
    to[0] = w[0];
    to[1] = even + odd;
    to[2] = even - odd;
    to[3] = w[2];
  }
  CPUACC_INLINE Vec original(const Vec* t, int tap) { return tap == 0 ? t[0] : tap == 1 ? t[1] - t[2] : t[3]; }
};

template <>
struct Points<4> {
  CPUACC_INLINE void input(const Vec* d, Vec* to) {
    Vec even_a = d[4] - kB2 * d[2], odd_a = kA * d[3] - kA * kB2 * d[1];
    Vec even_b = d[4] - kA2 * d[2], odd_b = kB * d[3] - kB * kA2 * d[1];
    to[0] = kA2 * kB2 * d[0] - (kA2 + kB2) * d[2] + d[4];
    to[1] = even_a + odd_a;
    to[2] = even_a - odd_a;
    to[3] = even_b + odd_b;
    to[4] = even_b - odd_b;
    to[5] = kA2 * kB2 * d[1] - (kA2 + kB2) * d[3] + d[5];
  }
  CPUACC_INLINE void output(const Vec* m, Vec* to) {
    Vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    to[0] = m[0] + even_a + even_b;
    to[1] = kA * odd_a + kB * odd_b;
    to[2] = kA2 * even_a + kB2 * even_b;
    to[3] = kA * kA2 * odd_a + kB * kB2 * odd_b + m[5];
  }
  CPUACC_INLINE void weights(const Vec* w, Vec* to) {
    const float of_a = 1 / (2 * kA2 * (kA2 - kB2)), of_b = 1 / (2 * kB2 * (kB2 - kA2));
    Vec even_a = of_a * (w[0] + kA2 * w[2]), odd_a = of_a * kA * w[1];
    Vec even_b = of_b * (w[0] + kB2 * w[2]), odd_b = of_b * kB * w[1];
    to[0] = w[0] * (1 / (kA2 * kB2));
    to[1] = even_a + odd_a;
    to[2] = even_a - odd_a;
    to[3] = even_b + odd_b;
    to[4] = even_b - odd_b;
    to[5] = w[2];
  }
  CPUACC_INLINE Vec original(const Vec* t, int tap) {
    constexpr float by = kA * (kA2 - kB2);  // 1 / (2 * of_a * kA) of `weights`
    return tap == 0 ? t[0] * (kA2 * kB2) : tap == 1 ? (t[1] - t[2]) * by : t[5];
  }
};

template <int kTile>
void transform_weights(const float* taps, float* to, int64_t step) {
  constexpr int kSide = kTile + 2;
  for (int v = 0; v < 16; v += kLanes) {
    Vec rows[3][kSide];
    for (int y = 0; y < 3; ++y) {
      Vec w[3] = {load(taps + y * 48 + v), load(taps + y * 48 + 16 + v), load(taps + y * 48 + 32 + v)};
      Points<kTile>::weights(w, rows[y]);
    }
    for (int x = 0; x < kSide; ++x) {
      Vec column[3] = {rows[0][x], rows[1][x], rows[2][x]}, made[kSide];
      Points<kTile>::weights(column, made);
      for (int y = 0; y < kSide; ++y) store(to + (y * kSide + x) * step + v, made[y]);
    }
  }
}

void winograd_weights(int32_t tile, const float* taps, float* to, int64_t step) {
  tile == 4 ? transform_weights<4>(taps, to, step) : transform_weights<2>(taps, to, step);
}

/// Transform the input of one square for one vector of channels, of which `channels` are valid. The elements are stored
/// `step` floats apart.
template <int kTile>
CPUACC_INLINE void transform_input(const Winograd& w, const float* image, int top, int left, int channels, float* to,
                                   int64_t step) {
  constexpr int kSide = kTile + 2;
  Vec rows[kSide][kSide];
  const bool inside = top >= 0 && left >= 0 && top + kSide <= w.height && left + kSide <= w.width;
  const float* from = image + (int64_t{top} * w.width + left) * 16;
#pragma GCC unroll 6
  for (int y = 0; y < kSide; ++y, from += w.width * 16) {
    Vec seen[kSide];
    if (inside) {
#pragma GCC unroll 6
      for (int x = 0; x < kSide; ++x) seen[x] = only(load(from + x * 16), channels);
    } else {
      const bool row = top + y >= 0 && top + y < w.height;
#pragma GCC unroll 6
      for (int x = 0; x < kSide; ++x)
        seen[x] = row && left + x >= 0 && left + x < w.width ? only(load(from + x * 16), channels) : Vec{};
    }
    Points<kTile>::input(seen, rows[y]);
  }
#pragma GCC unroll 6
  for (int x = 0; x < kSide; ++x) {
    Vec column[kSide], made[kSide];
#pragma GCC unroll 6
    for (int y = 0; y < kSide; ++y) column[y] = rows[y][x];
    Points<kTile>::input(column, made);
#pragma GCC unroll 6
    for (int y = 0; y < kSide; ++y) store_words(to + (y * kSide + x) * step, made[y]);
  }
}

/// Store the results of one square, and return whether all sums are finite.
template <int kTile>
CPUACC_INLINE bool transform_output(const Winograd& w, const float* from, int64_t step, Vec bias, int top, int left,
                                    float* out, const float* residual) {
  constexpr int kSide = kTile + 2;
  Vec rows[kSide][kTile];
#pragma GCC unroll 6
  for (int y = 0; y < kSide; ++y) {
    Vec seen[kSide];
#pragma GCC unroll 6
    for (int x = 0; x < kSide; ++x) seen[x] = load(from + (y * kSide + x) * step);
    Points<kTile>::output(seen, rows[y]);
  }
  const int height = w.out_height - top, width = w.out_width - left;
  Vec low = broadcast(w.gemm.epilogue.low), high = broadcast(w.gemm.epilogue.high), check = {};
#pragma GCC unroll 4
  for (int x = 0; x < kTile; ++x) {
    Vec column[kSide], made[kTile];
#pragma GCC unroll 6
    for (int y = 0; y < kSide; ++y) column[y] = rows[y][x];
    Points<kTile>::output(column, made);
#pragma GCC unroll 4
    for (int y = 0; y < kTile; ++y) check += made[y] * 0.0f;
#pragma GCC unroll 4
    for (int y = 0; y < kTile; ++y)
      if (y < height && x < width) {
        int64_t at = (int64_t{top + y} * w.out_width + left + x) * 16;
        Vec sum = made[y] + bias;
        if (residual) sum += load(residual + at);
        store(out + at, at_most(at_least(sum, low), high));
      }
  }
  return sum_of_lanes(check) == 0;
}

/// Recover the 3x3 weights of one vector of output channels and one input channel from the transformed weights, which
/// are `step` floats apart. A weight of 0 comes back as a rounding error of the others, with either sign. Weights this
/// small become 0, because an infinity times 0 is NaN.
template <int kTile>
CPUACC_INLINE void original_weights(const float* from, int64_t step, Vec (&to)[9]) {
  constexpr int kSide = kTile + 2;
  Vec rows[3][kSide];
  for (int y = 0; y < kSide; ++y) {
    Vec seen[kSide];
    for (int x = 0; x < kSide; ++x) seen[x] = load(from + (y * kSide + x) * step);
    for (int tap = 0; tap < 3; ++tap) rows[tap][y] = Points<kTile>::original(seen, tap);
  }
  Vec largest = {};
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      Vec weight = to[i * 3 + j] = Points<kTile>::original(rows[j], i);
      largest = at_least(at_least(weight, -weight), largest);
    }
  for (int n = 0; n < 9; ++n) {
    IntVec counts = at_least(to[n], -to[n]) > largest * kRoundingError;
    to[n] = reinterpret_cast<Vec>(reinterpret_cast<IntVec>(to[n]) & counts);
  }
}

/// Compute one square of one vector of output channels as a direct sum. The transforms spread an infinity or NaN over
/// all pixels of a square, including those whose windows do not contain it, and overflow earlier than the direct sum.
/// `weights` are those of the first transformed element and input channel.
template <int kTile>
__attribute__((noinline)) void sum_directly(const Winograd& w, const float* in, const float* weights, int64_t wide,
                                            Vec bias, int top, int left, float* out, const float* residual) {
  const int depth = w.gemm.depth;
  Vec sums[kTile][kTile];
  for (int y = 0; y < kTile; ++y)
    for (int x = 0; x < kTile; ++x) sums[y][x] = bias;
  for (int channel = 0; channel < depth; ++channel) {
    const float* image = in + int64_t{channel / 16} * w.height * w.width * 16 + channel % 16;
    Vec taps[9];
    original_weights<kTile>(weights + channel * wide, depth * wide, taps);
    for (int y = 0; y < kTile; ++y)
      for (int x = 0; x < kTile; ++x)
        for (int tap = 0; tap < 9; ++tap) {
          int row = top + y + tap / 3 - w.pad_top, column = left + x + tap % 3 - w.pad_left;
          if (row >= 0 && row < w.height && column >= 0 && column < w.width)
            sums[y][x] += taps[tap] * image[(int64_t{row} * w.width + column) * 16];
        }
  }
  const Vec low = broadcast(w.gemm.epilogue.low), high = broadcast(w.gemm.epilogue.high);
  for (int y = 0; y < kTile && top + y < w.out_height; ++y)
    for (int x = 0; x < kTile && left + x < w.out_width; ++x) {
      int64_t at = (int64_t{top + y} * w.out_width + left + x) * 16;
      Vec sum = residual ? sums[y][x] + load(residual + at) : sums[y][x];
      store(out + at, at_most(at_least(sum, low), high));
    }
}

template <int kTile>
__attribute__((noinline)) void transform_inputs(const Winograd& w, const float* in, int first, int count, int block,
                                                int block_end, float* to) {
  constexpr int kElements = (kTile + 2) * (kTile + 2);
  const int across = squares_across(w);
  const int64_t step = int64_t{word_blocks_of(w.gemm.depth)} * count * 16;
  static_assert(kElements <= 36);
  in += int64_t{block} * w.height * w.width * 16;
  for (; block < block_end; ++block, in += int64_t{w.height} * w.width * 16) {
    float* of_block = to + place_of_block(block, int64_t{count} * 16);
    const int channels = w.gemm.depth - block * 16 < 16 ? w.gemm.depth - block * 16 : 16;
    for (int n = 0; n < count; ++n, of_block += 16) {
      int y = (first + n) / across, x = (first + n) % across;
      for (int v = 0; v < 16; v += kLanes)
        transform_input<kTile>(w, in + v, y * kTile - w.pad_top, x * kTile - w.pad_left, channels, of_block + v, step);
    }
  }
}

template <int kTile>
__attribute__((noinline)) void transform_outputs(const Winograd& w, const float* in, const float* from, int first,
                                                 int count, int block, int blocks, int begin, int end, float* out,
                                                 const float* residual) {
  const int across = squares_across(w);
  const int64_t step = int64_t{blocks} * count * 16, image = int64_t{w.out_height} * w.out_width * 16;
  const Epilogue& epilogue = w.gemm.epilogue;
  from += int64_t{begin - block} * count * 16;
  for (int b = begin; b < end; ++b)
    for (int n = 0; n < count; ++n, from += 16) {
      int top = (first + n) / across * kTile, left = (first + n) % across * kTile;
      float* to = out + b * image;
      const float* added = residual ? residual + b * image : nullptr;
      for (int v = 0; v < 16; v += kLanes) {
        const Vec bias = load(w.gemm.bias + b * 16 + v);
        const float* with = added && !epilogue.count ? added + v : nullptr;
        if (transform_output<kTile>(w, from + v, step, bias, top, left, to + v, with) || kBfloat16Pairs) continue;
        const float* weights = w.gemm.weights + int64_t{block} * 16 * w.gemm.depth * (kTile + 2) * (kTile + 2);
        sum_directly<kTile>(w, in, weights + (b - block) * 16 + v, blocks * 16, bias, top, left, to + v, with);
      }
      if (!epilogue.count) continue;
      int width = w.out_width - left < kTile ? w.out_width - left : kTile;
      for (int y = top; y < top + kTile && y < w.out_height; ++y) {
        int64_t at = (int64_t{y} * w.out_width + left) * 16;
        apply_post_ops(epilogue, to + at, added ? added + at : nullptr, 0, 16, width, 1);
      }
    }
}

/// Multiply the elements [first, last) of the transformed squares by one panel.
template <int kTile>
void multiply_elements(const Winograd& w, int block, int blocks, int count, int first, int last, const float* seen,
                       float* sums) {
  constexpr int kElements = (kTile + 2) * (kTile + 2);
  const int depth = words_of(w.gemm.depth), depth_blocks = word_blocks_of(w.gemm.depth);
  const float* weights = w.gemm.weights + int64_t{block} * 16 * depth * kElements;
  Gemm p{w.gemm.depth, blocks, nullptr, kNoBias, kNoEpilogue};
  for (int e = first; e < last; ++e) {
    p.weights = weights + int64_t{e} * blocks * 16 * depth;
    gemm(p, seen + int64_t{e} * depth_blocks * count * 16, int64_t{count} * 16, sums + int64_t{e} * blocks * count * 16,
         {int64_t{count} * 16, 0, 16}, nullptr, {0, count, 0, blocks});
  }
}

template <int kTile>
void winograd_of(const Winograd& w, const float* in, float* out, const float* residual, float* scratch,
                 const OutputRange& range) {
  constexpr int kElements = (kTile + 2) * (kTile + 2);
  const int depth_blocks = (w.gemm.depth + 15) / 16;
  float* seen = scratch;
  float* sums = scratch + int64_t{kElements} * depth_blocks * w.chunk * 16;
  for (int first = range.row; first < range.row_end; first += w.chunk) {
    int count = range.row_end - first < w.chunk ? range.row_end - first : w.chunk;
    transform_inputs<kTile>(w, in, first, count, 0, depth_blocks, seen);
    for (int block = range.block; block < range.block_end;) {
      int blocks = blocks_of_panel_at(block, w.gemm.blocks);
      multiply_elements<kTile>(w, block, blocks, count, 0, kElements, seen, sums);
      transform_outputs<kTile>(w, in, sums, first, count, block, blocks, block, block + blocks, out, residual);
      block += blocks;
    }
  }
}

/// Run one of three stages on all squares (see WinogradKernels).
template <int kTile>
void winograd_stage_of(const Winograd& w, int stage, const float* in, float* out, const float* residual, float* seen,
                       float* sums, int first, int last) {
  constexpr int kElements = (kTile + 2) * (kTile + 2);
  const int count = squares_of(w);
  if (stage == 0) return transform_inputs<kTile>(w, in, 0, count, first, last, seen);
  for (int block = 0; block < w.gemm.blocks;) {
    int blocks = blocks_of_panel_at(block, w.gemm.blocks);
    float* of_panel = sums + int64_t{block} * kElements * count * 16;
    if (stage == 1) multiply_elements<kTile>(w, block, blocks, count, first, last, seen, of_panel);
    int begin = first > block ? first : block, end = last < block + blocks ? last : block + blocks;
    if (stage == 2 && begin < end)
      transform_outputs<kTile>(w, in, of_panel, 0, count, block, blocks, begin, end, out, residual);
    block += blocks;
  }
}

void winograd_stage(const Winograd& w, int stage, const float* in, float* out, const float* residual, float* seen,
                    float* sums, int first, int last) {
  w.tile == 4 ? winograd_stage_of<4>(w, stage, in, out, residual, seen, sums, first, last)
              : winograd_stage_of<2>(w, stage, in, out, residual, seen, sums, first, last);
}

void winograd(const Winograd& w, const float* in, float* out, const float* residual, float* scratch,
              const OutputRange& range) {
  w.tile == 4 ? winograd_of<4>(w, in, out, residual, scratch, range)
              : winograd_of<2>(w, in, out, residual, scratch, range);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_WINOGRAD_HPP
