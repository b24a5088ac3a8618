// Borders of tensors that repeat elements.

#ifndef CPUACC_LOWER_BORDER_HPP
#define CPUACC_LOWER_BORDER_HPP

#include <string_view>
#include <vector>

#include "cpuacc/graph.hpp"
#include "cpuacc/kernels/moves.hpp"

namespace cpuacc {

/// Rows of blocks, the elements along the last axis that has a border. `inner` is the number of bytes of a block.
struct Border {
  const MoveKernels* kernels;
  std::vector<std::vector<int64_t>> offsets;  // in the operand, in bytes, for each index of the result along each axis
  int64_t rows, before, extent, after, inner;

  /// Write the rows [first, last) of the result.
  void copy(const char* in, char* out, int64_t first, int64_t last) const;

 private:
  int64_t place(int64_t row) const;
  void blocks(const char* in, char* out, const int64_t* from, int64_t count) const;
};

/// The border of a tensor of this shape, which is not a scalar. `pads` has the widths before and after each axis,
/// `mode` is a padding mode other than CONSTANT, and `item_size` the bytes of an element.
Border border_of(const MoveKernels& kernels, const Shape& shape, const std::vector<int64_t>& pads,
                 std::string_view mode, int64_t item_size);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_BORDER_HPP
