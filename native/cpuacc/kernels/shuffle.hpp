// Elements of vectors in another order, by what GCC has for it and Clang has not.

#ifndef CPUACC_KERNELS_SHUFFLE_HPP
#define CPUACC_KERNELS_SHUFFLE_HPP

namespace cpuacc::ISA_NS {
namespace {

/// The elements of `a`, and behind them those of `b`, by their numbers.
template <typename V, typename Numbers>
static inline __attribute__((always_inline)) V shuffled(V a, V b, Numbers from) {
#if defined(__clang__)
  constexpr int count = sizeof(V) / sizeof(a[0]);
  V out;
  for (int n = 0; n < count; ++n) out[n] = from[n] < count ? a[from[n]] : b[from[n] - count];
  return out;
#else
  return __builtin_shuffle(a, b, from);
#endif
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_SHUFFLE_HPP
