// Searches: the index of the largest element of each column, the largest elements of each column in order, and the next
// element that passes a threshold.

#ifndef CPUACC_KERNELS_SELECT_HPP
#define CPUACC_KERNELS_SELECT_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// `length` rows of `inner` columns, of which the columns [first, last) are searched.
struct Columns {
  const void* in;
  int64_t length, inner, first, last;
};

/// Which element is searched for: the smallest or the largest one; of equal elements, the last or the first one. NaN is
/// both smaller and larger than all numbers.
struct Search {
  bool least, last;
};

/// Write the index of an element of each column to out[0 .. last - first).
using SearchColumns = void (*)(const Columns& columns, Search search, int32_t* out);

/// Return the first index in [first, count) whose element is ordered before `threshold`, or `count`. `least`: smaller
/// elements come first and NaN last; otherwise larger elements come first, and NaN before all of them.
using NextBefore = int64_t (*)(const void* in, int64_t first, int64_t count, const void* threshold, bool least);

constexpr int64_t kTopColumns = 64;       // columns of a `SelectTop` are a multiple of this
constexpr int64_t kMostTopColumns = 512;  // and at most these
constexpr int64_t kMostTop = 16;          // elements of each column that `SelectTop` selects

/// `length` rows, `inner` elements apart, of `count` adjacent columns. The `k` first elements of each column are
/// selected, in the order of `NextBefore`; of equal elements, the one in the earlier row comes first.
struct TopColumns {
  const void* in;
  int64_t length, inner, count, k;
  bool least;
};

/// Write the selected elements, as `k` rows of `count` values, and the numbers of their rows.
using SelectTop = void (*)(const TopColumns& columns, void* values, int32_t* indices);

struct SelectKernels {
  SearchColumns (*search)(int32_t dtype);  // nullptr if the dtype is not supported
  NextBefore (*next_before)(int32_t dtype);
  SelectTop (*top)(int32_t dtype);
};
CPUACC_TABLE(SelectKernels, select_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_SELECT_HPP
