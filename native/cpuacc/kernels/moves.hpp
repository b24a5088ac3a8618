// Elements that are moved as they are, whatever they stand for.

#ifndef CPUACC_KERNELS_MOVES_HPP
#define CPUACC_KERNELS_MOVES_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

constexpr int kMaxAxes = 16;

/// A box that is copied: extents, and steps in bytes along each axis of the operand and of the result.
struct Box {
  int rank;
  int64_t item;  // bytes of an element: 1, 2, 4 or 8
  int64_t extent[kMaxAxes], from[kMaxAxes], to[kMaxAxes];
};

struct MoveKernels {
  /// The rows [first, last) of a box: all axes but the last, counted together.
  void (*copy)(const Box& box, const char* in, char* out, int64_t first, int64_t last);
  /// `count` elements of `item` bytes, all alike.
  void (*fill)(char* out, const char* value, int64_t item, int64_t count);
  /// Rows of `inner` elements, each picked from the row of the operand by byte offsets.
  void (*pick)(const char* in, char* out, const int64_t* offsets, int64_t item, int64_t inner);
};
CPUACC_TABLE(MoveKernels, move_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_MOVES_HPP
