#include "cpuacc/kernels/dynamic.hpp"

#include "cpuacc/kernels/simd.hpp"

// This file is compiled without contraction of products and sums to fused operations, because a number half-way between
// two steps has to be rounded like the reference does (see CMakeLists.txt).

namespace cpuacc::ISA_NS {
namespace {

/// The vector of multiples of the scale that are nearest to the elements; halves are rounded away from zero.
CPUACC_INLINE Vec nearest_steps(Vec x, const DynamicSteps& steps) {
  const Vec zero = broadcast(steps.zero), low = broadcast(steps.low), high = broadcast(127.0f);
  Vec step = zero + x * broadcast(steps.inverse);
  step = step < low ? low : step;
  step = step > high ? high : step;
  const Vec whole = __builtin_convertvector(__builtin_convertvector(step, IntVec), Vec), rest = step - whole;
  const Vec up = rest >= broadcast(0.5f) ? broadcast(1) : broadcast(0);
  const Vec down = rest <= broadcast(-0.5f) ? broadcast(1) : broadcast(0);
  return (whole + up - down - zero) * broadcast(steps.scale);
}

void round(const float* from, float* to, int64_t count, const DynamicSteps& steps) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store(to + n, nearest_steps(load(from + n), steps));
  Vec rest = broadcast(0);
  for (int64_t lane = 0; lane < count - n; ++lane) rest[lane] = from[n + lane];
  rest = nearest_steps(rest, steps);
  for (int64_t lane = 0; lane < count - n; ++lane) to[n + lane] = rest[lane];
}

}  // namespace

extern const DynamicKernels dynamic_kernels = {round};

}  // namespace cpuacc::ISA_NS
