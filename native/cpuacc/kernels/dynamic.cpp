#include "cpuacc/kernels/dynamic.hpp"

#include "cpuacc/kernels/simd.hpp"

// This file is compiled without contraction of products and sums to fused operations, because a number half-way between
// two steps has to be rounded like the reference does (see CMakeLists.txt).

namespace cpuacc::ISA_NS {
namespace {

/// The nearest integers of numbers within int32; halves are rounded away from zero. The float32 number just below a
/// half is added, since a half itself would round that number up to 1. Sums with other halves round up.
CPUACC_INLINE Vec nearest_integers(Vec x) {
#if defined(__aarch64__)
  return vrndaq_f32(x);
#else
  const BitVec sign = reinterpret_cast<BitVec>(x) & (BitVec{} + 0x80000000u);
  const Vec half = reinterpret_cast<Vec>(reinterpret_cast<BitVec>(broadcast(0x1.fffffep-2f)) | sign);
  return __builtin_convertvector(__builtin_convertvector(x + half, IntVec), Vec);
#endif
}

/// The vector of multiples of the scale that are nearest to the elements; halves are rounded away from zero.
CPUACC_INLINE Vec nearest_steps(Vec x, const DynamicSteps& steps) {
  const Vec zero = broadcast(steps.zero);
  const Vec step = at_most(at_least(zero + x * broadcast(steps.inverse), broadcast(steps.low)), broadcast(127.0f));
  return (nearest_integers(step) - zero) * broadcast(steps.scale);
}

/// The same for steps from one end of a range to the other.
CPUACC_INLINE Vec nearest_steps(Vec x, const RangeSteps& steps) {
  const Vec low = broadcast(steps.low), inside = at_most(at_least(x, low), broadcast(steps.high));
  const Vec nearest = nearest_integers((inside - low) * broadcast(steps.inverse)) * broadcast(steps.scale) + low;
  return x == x ? nearest : x;
}

template <class Steps>
void round(const float* from, float* to, int64_t count, const Steps& steps) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store(to + n, nearest_steps(load(from + n), steps));
  Vec rest = broadcast(0);
  for (int64_t lane = 0; lane < count - n; ++lane) rest[lane] = from[n + lane];
  rest = nearest_steps(rest, steps);
  for (int64_t lane = 0; lane < count - n; ++lane) to[n + lane] = rest[lane];
}

}  // namespace

extern const DynamicKernels dynamic_kernels = {round<DynamicSteps>, round<RangeSteps>};

}  // namespace cpuacc::ISA_NS
