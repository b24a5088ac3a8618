// Products of a vector and a matrix on Arm, whose instructions multiply by one lane of a vector.

#ifndef CPUACC_KERNELS_BY_LANE_HPP
#define CPUACC_KERNELS_BY_LANE_HPP

#include "cpuacc/kernels/simd.hpp"

#if defined(__aarch64__)

namespace cpuacc::ISA_NS {
namespace {

/// Add the products of lane kLane of `x` with a row of weights. Eight vectors are loaded before they are multiplied,
/// because processors that execute in order wait for each load.
template <int kLane, int kVecs>
CPUACC_INLINE void add_row(Vec (&sums)[kVecs], Vec x, const float* row) {
  constexpr int some = kVecs < 8 ? kVecs : kVecs % 8 == 0 ? 8 : 4;
  static_assert(some % 2 == 0 && kVecs % some == 0);
#pragma GCC unroll 16
  for (int first = 0; first < kVecs; first += some) {
    Vec weights[some];
#pragma GCC unroll 4
    for (int n = 0; n < some; n += 2) load_pair<0>(row + (first + n) * kLanes, &weights[n], &weights[n + 1]);
#pragma GCC unroll 8
    for (int n = 0; n < some; ++n) sums[first + n] = vfmaq_laneq_f32(sums[first + n], weights[n], x, kLane);
  }
}

/// Return the next row. The compiler cannot see that rows are equally far apart; it would keep all distances in
/// registers.
CPUACC_INLINE const float* next_row(const float* row, int64_t step) {
  row += step;
  asm("" : "+r"(row));
  return row;
}

/// Add the products of `depth` numbers with rows of weights that are `step` floats apart. Rows add to `even` and `odd`
/// in turns, so that few additions wait for the one before.
template <int kVecs>
CPUACC_INLINE void add_rows(Vec (&even)[kVecs], Vec (&odd)[kVecs], const float* numbers, int64_t depth,
                            const float* rows, int64_t step) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4, rows = next_row(rows, step)) {
    const Vec x = load(numbers + k);
    add_row<0>(even, x, rows);
    rows = next_row(rows, step);
    add_row<1>(odd, x, rows);
    rows = next_row(rows, step);
    add_row<2>(even, x, rows);
    rows = next_row(rows, step);
    add_row<3>(odd, x, rows);
  }
#pragma GCC unroll 1
  for (; k < depth; ++k, rows += step) add_row<0>(even, broadcast(numbers[k]), rows);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif
#endif  // CPUACC_KERNELS_BY_LANE_HPP
