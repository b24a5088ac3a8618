// Pixels times weights: the order in which the tiles of a product are computed.

#ifndef CPUACC_KERNELS_PRODUCT_HPP
#define CPUACC_KERNELS_PRODUCT_HPP

#include "cpuacc/kernels/functions.hpp"
#include "cpuacc/kernels/tile.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kPanelBlocks = kPanel == 3 ? 2 : 1;

/// Blocks in the panel that begins at `block`: the last panel takes an odd block along.
inline int panel_at(int block, int blocks) {
  int left = blocks - block;
  return left == kPanel ? left : left < kPanelBlocks ? left : kPanelBlocks;
}

/// `count` pixels as tiles of at most `most`, as equal as can be: `larger` of `rows` pixels, the others one less.
struct Cut {
  int tiles, rows, larger;
  Cut(int count, int most)
      : tiles((count + most - 1) / most), rows((count + tiles - 1) / tiles), larger(count - (rows - 1) * tiles) {}
  int of(int tile) const { return tile < larger ? rows : rows - 1; }
};

/// Tiles of one run of pixels by one panel. `t` holds all that does not change from tile to tile.
template <int kStep>
CPUACC_INLINE void run_of_tiles(Tile& t, int count, int blocks, int pixel, const Finish& work) {
  Cut cut(count, rows_of_panel(blocks));
  TileFunction larger = find_tile<kStep>(cut.rows, blocks);
  TileFunction smaller = cut.larger < cut.tiles ? find_tile<kStep>(cut.rows - 1, blocks) : nullptr;
  for (int i = 0; i < cut.tiles; ++i) {
    int rows = cut.of(i);
    const float* residual = t.residual;
    if (work.count) t.residual = nullptr;
    (i < cut.larger ? larger : smaller)(t);
    t.residual = residual;
    if (work.count) finish(work, t.c, residual, t.c_block, t.c_pixel, rows, blocks);
    t.a += rows * pixel;
    t.c += rows * t.c_pixel;
    if (residual) t.residual += rows * t.c_pixel;
    t.ahead += t.ahead_step * t.depth * t.tap_count;
  }
}

constexpr int64_t kCached = 128 * 1024;  // floats that stay in the second-level cache beside others

/// Pixels at once, so that the least comes from beyond the cache: all of them, or so many as stay in it while all
/// panels pass by.
inline int find_strip(const Product& p, int pixels, int blocks) {
  int64_t depth = p.depth > 0 ? words_of(p.depth) : 1, in = depth * pixels, weights = depth * blocks * 16;
  int64_t most = kCached / 2 / depth / 14 * 14;
  if (in <= kCached || most < 14) return pixels;
  int64_t strips = (pixels + most - 1) / most;
  int64_t once = in * (blocks / kPanelBlocks), again = weights > kCached ? strips * weights : 0;
  if (once < again) return pixels;
  return static_cast<int>((pixels / strips + 13) / 14 * 14);
}

const int32_t kNoTaps[1] = {0};

/// Of words, a block of them after the other (see pairs.hpp).
void product(const Product& p, const float* in, int64_t in_block, float* out, const Grid& grid, const float* residual,
             const Part& part) {
  const int depth = words_of(p.depth);
  const int strip = find_strip(p, part.row_end - part.row, part.block_end - part.block);
  Tile t{};
  t.a_block = in_block;
  t.taps = kNoTaps;
  t.tap_count = 1;
  t.depth = depth;
  t.c_block = grid.block;
  t.c_pixel = grid.pixel;
  t.low = p.finish.low;
  t.high = p.finish.high;
  for (int row = part.row; row < part.row_end; row += strip) {
    int count = part.row_end - row < strip ? part.row_end - row : strip;
    for (int block = part.block; block < part.block_end;) {
      int blocks = panel_at(block, p.blocks);
      int64_t to = block * grid.block + row * grid.pixel;
      t.a = in + row * 16;
      t.b = p.weights + int64_t{block} * 16 * depth;
      t.bias = p.bias + block * 16;
      t.c = out + to;
      t.residual = residual ? residual + to : nullptr;
      int tiles = (count + rows_of_panel(blocks) - 1) / rows_of_panel(blocks);
      t.ahead = reinterpret_cast<const char*>(t.b + int64_t{blocks} * 16 * depth);
      t.ahead_step = (blocks * 64 + tiles - 1) / tiles;
      run_of_tiles<16>(t, count, blocks, 16, p.finish);
      block += blocks;
    }
  }
}

/// Pixels of a blocked image as words. `to` may be where the image lies.
void lay_out_words(const float* in, int64_t in_block, int channels, int pixels, float* to, int64_t to_block) {
  for (int block = 0; block * 16 < channels; ++block)
    for (int pixel = 0; pixel < pixels; ++pixel)
      store_row(in + block * in_block + pixel * 16, channels - block * 16 < 16 ? channels - block * 16 : 16,
                to + place_of_block(block, to_block) + pixel * 16);
}

/// Of a blocked image, whose words lie in scratch memory where they are not what it has.
void pointwise(const Product& p, const float* in, int64_t in_block, float* out, const Grid& grid, const float* residual,
               float* scratch, const Part& part) {
  if (!kPairs) return product(p, in, in_block, out, grid, residual, part);
  const int most = staged_pixels(p.depth);
  for (int row = part.row; row < part.row_end; row += most) {
    int count = part.row_end - row < most ? part.row_end - row : most;
    lay_out_words(in + row * 16, in_block, p.depth, count, scratch, int64_t{count} * 16);
    product(p, scratch, int64_t{count} * 16, out + row * grid.pixel, grid, residual ? residual + row * grid.pixel : nullptr,
            {0, count, part.block, part.block_end});
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_PRODUCT_HPP
