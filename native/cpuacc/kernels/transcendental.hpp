// Logarithm and trigonometric functions on vectors. Arguments outside of their range, which are rare, use the C
// library.

#ifndef CPUACC_KERNELS_TRANSCENDENTAL_HPP
#define CPUACC_KERNELS_TRANSCENDENTAL_HPP

#include "cpuacc/kernels/activations.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Apply a function of the C library to each lane.
template <float (*kFunction)(float)>
CPUACC_INLINE Vec lane_by_lane(Vec x) {
  float values[kLanes];
  store(values, x);
  for (int n = 0; n < kLanes; ++n) values[n] = kFunction(values[n]);
  return load(values);
}

inline float log_of(float x) { return logf(x); }
inline float sin_of(float x) { return sinf(x); }
inline float cos_of(float x) { return cosf(x); }
inline float tan_of(float x) { return tanf(x); }

/// log(x) within 2 units in the last place.
CPUACC_INLINE Vec logarithm(Vec x) {
  const float least = 1.17549435e-38f, most = 3.40282347e+38f;  // the normal numbers
  if (any_lane(~((x >= least) & (x <= most)))) return lane_by_lane<log_of>(x);
  BitVec bits = reinterpret_cast<BitVec>(x);
  IntVec exponent = reinterpret_cast<IntVec>(bits >> 23) - 126;
  Vec m = reinterpret_cast<Vec>((bits & 0x7fffffu) | 0x3f000000u);  // from 0.5 to 1
  IntVec low = m < 0.707106781f;
  exponent += low;  // a condition that is true is -1
  m = select(low, m + m, m) - 1.0f;
  Vec e = __builtin_convertvector(exponent, Vec), s = m * m;
  Vec p =
      ((((((((broadcast(7.0376836292e-2f) * m - 1.1514610310e-1f) * m + 1.1676998740e-1f) * m - 1.2420140846e-1f) * m +
           1.4249322787e-1f) *
              m -
          1.6668057665e-1f) *
             m +
         2.0000714765e-1f) *
            m -
        2.4999993993e-1f) *
           m +
       3.3333331174e-1f) *
      m * s;
  p += e * -2.12194440e-4f;
  p -= 0.5f * s;
  return m + p + e * 0.693359375f;
}

/// The sine and the cosine of x, less the multiple of pi / 2 that is nearest, and the number of that multiple.
struct Turned {
  Vec sine, cosine;
  IntVec quarter;
};

/// pi / 2 in three parts; the first two have few bits, so that their products with a whole number are exact.
constexpr float kHalfPi = 1.5703125f, kHalfPiMiddle = 4.837512969970703125e-4f, kHalfPiLow = 7.54978995489188216e-8f;
constexpr float kFarthest = 8192;  // the largest argument for which these parts have enough bits

CPUACC_INLINE Turned turned(Vec x) {
  const float magic = 12582912.0f;  // 1.5 * 2**23: adding it rounds to a whole number
  Vec shifted = x * 0.636619772f + magic;
  IntVec quarter = reinterpret_cast<IntVec>(reinterpret_cast<BitVec>(shifted) - 0x4b400000u);
  Vec whole = __builtin_convertvector(quarter, Vec);
  Vec r = ((x - whole * kHalfPi) - whole * kHalfPiMiddle) - whole * kHalfPiLow;
  Vec s = r * r;
  Vec sine = ((broadcast(-1.9515295891e-4f) * s + 8.3321608736e-3f) * s - 1.6666654611e-1f) * s * r + r;
  Vec cosine = ((broadcast(2.443315711809948e-5f) * s - 1.388731625493765e-3f) * s + 4.166664568298827e-2f) * s * s -
               0.5f * s + 1.0f;
  return {sine, cosine, quarter};
}

CPUACC_INLINE bool is_far(Vec x) { return any_lane(~(absolute(x) <= kFarthest)); }

CPUACC_INLINE Vec negated_if(IntVec condition, Vec x) {
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(x) ^ (condition & INT32_MIN));
}

CPUACC_INLINE Vec sine(Vec x) {
  if (is_far(x)) return lane_by_lane<sin_of>(x);
  Turned t = turned(x);
  Vec magnitude = select((t.quarter & 1) != 0, t.cosine, t.sine);
  return select(x == 0.0f, x, negated_if((t.quarter & 2) != 0, magnitude));  // of -0, it is -0
}

CPUACC_INLINE Vec cosine(Vec x) {
  if (is_far(x)) return lane_by_lane<cos_of>(x);
  Turned t = turned(x);
  Vec found = select((t.quarter & 1) != 0, t.sine, t.cosine);
  return negated_if(((t.quarter + 1) & 2) != 0, found);
}

CPUACC_INLINE Vec tangent(Vec x) {
  if (is_far(x)) return lane_by_lane<tan_of>(x);
  Turned t = turned(x);
  IntVec odd = (t.quarter & 1) != 0;
  return select(x == 0.0f, x, negated_if(odd, select(odd, t.cosine, t.sine) / select(odd, t.sine, t.cosine)));
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_TRANSCENDENTAL_HPP
