// The division of a row of pixels into tiles.

#ifndef CPUACC_KERNELS_ROW_TILES_HPP
#define CPUACC_KERNELS_ROW_TILES_HPP

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Division of `count` pixels into the least number of tiles of at most `most` rows, as equal as possible: the first
/// `larger` tiles have `rows` rows, the others one less.
struct RowTiles {
  int tiles, rows, larger;
  RowTiles(int count, int most)
      : tiles((count + most - 1) / most), rows((count + tiles - 1) / tiles), larger(count - (rows - 1) * tiles) {}
  int of(int tile) const { return tile < larger ? rows : rows - 1; }
};

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_ROW_TILES_HPP
