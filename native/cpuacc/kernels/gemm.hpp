// The loops around the micro-kernel: tiles of pixels by panels of output channels.

#ifndef CPUACC_KERNELS_GEMM_HPP
#define CPUACC_KERNELS_GEMM_HPP

#include "cpuacc/kernels/activations.hpp"
#include "cpuacc/kernels/micro_kernel.hpp"
#include "cpuacc/kernels/row_tiles.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kPanelBlocks = kMaxPanelBlocks == 3 ? 2 : 1;

/// Blocks in the panel that begins at `block`. An odd last block belongs to the panel before it.
inline int blocks_of_panel_at(int block, int blocks) {
  int left = blocks - block;
  return left == kMaxPanelBlocks ? left : left < kPanelBlocks ? left : kPanelBlocks;
}

/// Compute the tiles of `count` pixels by one panel. `t` holds all arguments that are the same for every tile.
template <int kStep>
CPUACC_INLINE void run_micro_kernels(MicroKernelArgs& t, int count, int blocks, int pixel, const Epilogue& epilogue) {
  RowTiles cut(count, mr_of_panel(blocks));
  MicroKernel larger = find_micro_kernel<kStep>(cut.rows, blocks);
  MicroKernel smaller = cut.larger < cut.tiles ? find_micro_kernel<kStep>(cut.rows - 1, blocks) : nullptr;
  for (int i = 0; i < cut.tiles; ++i) {
    int rows = cut.of(i);
    const float* residual = t.residual;
    if (epilogue.count) t.residual = nullptr;
    (i < cut.larger ? larger : smaller)(t);
    t.residual = residual;
    if (epilogue.count) apply_post_ops(epilogue, t.c, residual, t.c_block, t.c_pixel, rows, blocks);
    t.a += rows * pixel;
    t.c += rows * t.c_pixel;
    if (residual) t.residual += rows * t.c_pixel;
    t.prefetch += t.prefetch_step * t.depth * t.tap_count;
  }
}

constexpr int64_t kCachedFloats =
    128 * 1024;  // floats that stay in the second-level cache: 512 KiB, half of the 1 MiB that common server cores have

/// Pixels that are multiplied with all panels before the next ones: all of them, or as many as stay in the cache. The
/// choice minimizes the floats that are read from beyond the cache.
inline int pixels_per_pass(const Gemm& p, int pixels, int blocks) {
  int64_t depth = p.depth > 0 ? words_of(p.depth) : 1, in = depth * pixels, weights = depth * blocks * 16;
  int64_t most = kCachedFloats / 2 / depth / 14 * 14;
  if (in <= kCachedFloats || most < 14) return pixels;
  int64_t strips = (pixels + most - 1) / most;
  int64_t once = in * (blocks / kPanelBlocks), again = weights > kCachedFloats ? strips * weights : 0;
  if (once < again) return pixels;
  return static_cast<int>((pixels / strips + 13) / 14 * 14);
}

const int32_t kNoTaps[1] = {0};

/// The GEMM of words, which lie in blocks of 16 (see bfloat16_pairs.hpp).
void gemm(const Gemm& p, const float* in, int64_t in_block, float* out, const OutputStrides& out_strides,
          const float* residual, const OutputRange& range) {
  const int depth = words_of(p.depth);
  const int strip = pixels_per_pass(p, range.row_end - range.row, range.block_end - range.block);
  MicroKernelArgs t{};
  t.a_block = in_block;
  t.taps = kNoTaps;
  t.tap_count = t.window = 1;
  t.positions = kNoTaps;
  t.depth = depth;
  t.c_block = out_strides.block;
  t.c_pixel = out_strides.pixel;
  t.low = p.epilogue.low;
  t.high = p.epilogue.high;
  for (int row = range.row; row < range.row_end; row += strip) {
    int count = range.row_end - row < strip ? range.row_end - row : strip;
    for (int block = range.block; block < range.block_end;) {
      int blocks = blocks_of_panel_at(block, p.blocks);
      int64_t to = block * out_strides.block + row * out_strides.pixel;
      t.a = in + row * 16;
      t.b = p.weights + int64_t{block} * 16 * depth;
      t.bias = p.bias + block * 16;
      t.c = out + to;
      t.residual = residual ? residual + to : nullptr;
      int tiles = (count + mr_of_panel(blocks) - 1) / mr_of_panel(blocks);
      t.prefetch = reinterpret_cast<const char*>(t.b + int64_t{blocks} * 16 * depth);
      t.prefetch_step = (blocks * 64 + tiles - 1) / tiles;
      run_micro_kernels<16>(t, count, blocks, 16, p.epilogue);
      block += blocks;
    }
  }
}

/// Convert pixels of an nChw16c image to words. `to` may be `in`.
void pack_words(const float* in, int64_t in_block, int channels, int pixels, float* to, int64_t to_block) {
  for (int block = 0; block * 16 < channels; ++block)
    for (int pixel = 0; pixel < pixels; ++pixel)
      store_row(in + block * in_block + pixel * 16, channels - block * 16 < 16 ? channels - block * 16 : 16,
                to + place_of_block(block, to_block) + pixel * 16);
}

/// The GEMM of an nChw16c image. Kernels for bfloat16 convert pixels to words in scratch memory first.
void pointwise(const Gemm& p, const float* in, int64_t in_block, float* out, const OutputStrides& out_strides,
               const float* residual, float* scratch, const OutputRange& range) {
  if (!kBfloat16Pairs) return gemm(p, in, in_block, out, out_strides, residual, range);
  const int most = staged_pixels(p.depth);
  for (int row = range.row; row < range.row_end; row += most) {
    int count = range.row_end - row < most ? range.row_end - row : most;
    pack_words(in + row * 16, in_block, p.depth, count, scratch, int64_t{count} * 16);
    gemm(p, scratch, int64_t{count} * 16, out + row * out_strides.pixel, out_strides,
         residual ? residual + row * out_strides.pixel : nullptr, {0, count, range.block, range.block_end});
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_GEMM_HPP
