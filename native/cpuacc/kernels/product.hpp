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

/// Bytes of pixels that stay in the second-level cache while all panels pass by.
constexpr int64_t kStripBytes = 256 * 1024;

const int32_t kNoTaps[1] = {0};

void product(const Product& p, const float* in, int64_t in_block, float* out, const Grid& grid, const float* residual,
             const Part& part) {
  int most = static_cast<int>(kStripBytes / 4 / (p.depth > 0 ? p.depth : 1)) / 14 * 14;
  int strips = (part.row_end - part.row + most) / (most > 0 ? most : 14);
  int strip = strips > 1 && most >= 14 ? ((part.row_end - part.row) / strips + 13) / 14 * 14 : part.row_end - part.row;
  Tile t{};
  t.a_block = in_block;
  t.taps = kNoTaps;
  t.tap_count = 1;
  t.depth = p.depth;
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
      t.b = p.weights + int64_t{block} * 16 * p.depth;
      t.bias = p.bias + block * 16;
      t.c = out + to;
      t.residual = residual ? residual + to : nullptr;
      int tiles = (count + rows_of_panel(blocks) - 1) / rows_of_panel(blocks);
      t.ahead = reinterpret_cast<const char*>(t.b + int64_t{blocks} * 16 * p.depth);
      t.ahead_step = (blocks * 64 + tiles - 1) / tiles;
      run_of_tiles<16>(t, count, blocks, 16, p.finish);
      block += blocks;
    }
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_PRODUCT_HPP
