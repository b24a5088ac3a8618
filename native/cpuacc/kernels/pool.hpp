// Pooling of images and volumes. `inner` channels are contiguous: all of them in NHWC, 16 in nChw16c, one in NCHW.

#ifndef CPUACC_KERNELS_POOL_HPP
#define CPUACC_KERNELS_POOL_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

enum class PoolKind : int32_t { max, average, l2 };

struct Pool {
  PoolKind kind;
  int64_t inner;
  int64_t extent[3], places[3];  // of the input and the result: planes, rows, columns
  int64_t size[3], stride[3], dilation[3], pad[3], pad_after[3];
  bool count_padding;  // padding counts in the divisor of an average
  int32_t zero;        // the zero point of quantized values
  bool to_even;        // averages of quantized values are exact, and rounded half to even; else half away from zero
  int32_t zero_out;    // to_even: the zero point of the result, and both scales
  double scale, scale_out;
  int64_t row_item;  // bytes of an element of the scratch memory
};

struct PoolKernels {
  /// Compute one row of the result of the image `in`. `scratch` is one row of the input, with elements of `row_item`
  /// bytes.
  using Row = void (*)(const Pool& pool, const void* in, void* out, int64_t plane, int64_t row, void* scratch);
  Row (*row)(PoolKind kind, int32_t dtype, bool to_even);  // nullptr if the dtype is not supported
};
CPUACC_TABLE(PoolKernels, pool_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_POOL_HPP
