// Products of 8-bit integers in the tile registers of AMX: 8 registers of up to 16 rows of 64 bytes. A product adds to
// the int32 sums of 16 pixels and 16 channels what 64 bytes of each of them contribute.

#ifndef CPUACC_KERNELS_TILES_Q8_HPP
#define CPUACC_KERNELS_TILES_Q8_HPP

#include "cpuacc/kernels/q8.hpp"

namespace cpuacc {

constexpr int kTileRows = 16, kTileBytes = 64;  // of a tile register

/// Tiles of pixels: tile t begins `offsets[t]` bytes after the beginning of each segment, and its pixels are `step`
/// bytes apart. Each segment has a multiple of 16 words.
struct Q8Tiles {
  const uint8_t* const* segments;
  int64_t segment_count, words;
  const int64_t* offsets;
  int64_t step;
  int count;        // at most kMaxTiles
  int rows;         // pixels of a tile, as configured
  bool is_signed;   // the bytes are int8, else uint8
  bool prefetches;  // request weights before they are needed
};
constexpr int kMaxTiles = 4;

struct TileQ8Kernels {
  /// Shape the tile registers of this thread for `rows` pixels, at most kTileRows.
  void (*configure)(int rows);
  /// Return the tile registers of this thread to their initial state, so that the system does not have to save them.
  void (*release)();
  /// sums[m][n] = bias[n] + the products of pixel m and the panel; sums are (count * rows, vectors, 16). Weights are
  /// (vectors / 2, segments, words, 2, 16, 4), or (segments, words, 16, 4) if there is one vector.
  void (*multiply)(const Q8Tiles& from, int vectors, const int8_t* weights, const int32_t* bias, int32_t* sums);
  /// Copy the bytes of all segments at each position: pixel m begins m * step bytes after the beginning of each
  /// segment, and m * step_to bytes after `to`.
  void (*gather)(const uint8_t* const* segments, int64_t segment_count, int64_t segment_bytes, int64_t step,
                 int64_t count, uint8_t* to, int64_t step_to);
};

#if defined(NATIVE_AMX)
namespace amx {
extern const TileQ8Kernels tile_q8_kernels;
}
#endif

#if !defined(ISA_NS)
/// The kernels of an instruction set; nullptr if it has no tile registers.
inline const TileQ8Kernels* tile_q8_kernels_for([[maybe_unused]] native::Isa isa) {
#if defined(NATIVE_AMX)
  if (isa >= native::Isa::amx) return &amx::tile_q8_kernels;
#endif
  return nullptr;
}
#endif

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_TILES_Q8_HPP
