// Cumulative sums and products, and reductions of integers and of float64.

#ifndef CPUACC_KERNELS_ACCUMULATE_HPP
#define CPUACC_KERNELS_ACCUMULATE_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"
#include "cpuacc/kernels/rows.hpp"

namespace cpuacc {

struct Accumulate {
  bool product, exclusive, reverse;
};

/// `extent` rows of `inner` columns, of which the columns [first, last) are accumulated. If `inner` is 1, `first` and
/// `last` count slices of `extent` elements instead.
struct AccumulatedColumns {
  const void* in;
  void* out;
  int64_t extent, inner, first, last;
};

using AccumulateColumns = void (*)(const AccumulatedColumns& columns, Accumulate rules);

/// Reduce the columns [first, last) of `extent` rows of `inner` integers or of float64. Sums and products of integers
/// wrap around; their mean is truncated. Maxima and minima with NaN are NaN. Of truth values, the maximum is "any" and
/// the minimum is "all".
using ReduceColumns = void (*)(const void* in, void* out, int64_t extent, int64_t inner, int64_t first, int64_t last);

struct AccumulateKernels {
  AccumulateColumns (*accumulate)(int32_t dtype);  // nullptr if the dtype is not supported
  ReduceColumns (*reduce)(Reduction operation, int32_t dtype);
};
CPUACC_TABLE(AccumulateKernels, accumulate_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_ACCUMULATE_HPP
