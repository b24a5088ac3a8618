// Pooling: windows that slide over images and volumes, of which several channels lie together (`inner`): all of them in
// NHWC, 16 in blocked images, one in NCHW.

#ifndef CPUACC_KERNELS_POOL_HPP
#define CPUACC_KERNELS_POOL_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

enum class PoolKind : int32_t { max, average, l2 };

struct Pool {
  PoolKind kind;
  int64_t inner;
  int64_t extent[3], places[3];  // of input and result: planes, rows, columns
  int64_t size[3], stride[3], dilation[3], pad[3], pad_after[3];
  bool count_padding;  // cells of padding count in a mean
  int32_t zero;        // the zero point of codes
  int64_t row_item;    // bytes of an element of the scratch memory
};

struct PoolKernels {
  /// One row of the result of one image. `in` is the image; `scratch` is a row of the input, of `row_item` each.
  using Row = void (*)(const Pool& pool, const void* in, void* out, int64_t plane, int64_t row, void* scratch);
  Row (*row)(PoolKind kind, int32_t dtype);  // nullptr where it is not computed
};
CPUACC_TABLE(PoolKernels, pool_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_POOL_HPP
