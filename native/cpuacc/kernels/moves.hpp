// Copies of elements of any dtype.

#ifndef CPUACC_KERNELS_MOVES_HPP
#define CPUACC_KERNELS_MOVES_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

constexpr int kMaxAxes = 16;

/// A copy between two strided views: sizes, and strides in bytes along each dimension of the operand and of the result.
struct Box {
  int rank;
  int64_t item_size;  // bytes of an element: 1, 2, 4 or 8
  int64_t extent[kMaxAxes], from[kMaxAxes], to[kMaxAxes];
};

struct MoveKernels {
  /// Copy the rows [first, last). Rows are counted over all dimensions but the last.
  void (*copy)(const Box& box, const char* in, char* out, int64_t first, int64_t last);
  /// Write `count` copies of one element of `item_size` bytes.
  void (*fill)(char* out, const char* value, int64_t item_size, int64_t count);
  /// Copy `inner` elements from the byte offsets `offsets` of the operand.
  void (*pick)(const char* in, char* out, const int64_t* offsets, int64_t item_size, int64_t inner);
};
CPUACC_TABLE(MoveKernels, move_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_MOVES_HPP
