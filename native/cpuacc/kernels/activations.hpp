// Activation functions on vectors, and the post-ops that are applied to the sums of a tile after they were stored.

#ifndef CPUACC_KERNELS_ACTIVATIONS_HPP
#define CPUACC_KERNELS_ACTIVATIONS_HPP

#include "cpuacc/kernels/gemm_f32.hpp"
#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

CPUACC_INLINE Vec select(IntVec condition, Vec yes, Vec no) {
  return reinterpret_cast<Vec>((condition & reinterpret_cast<IntVec>(yes)) |
                               (~condition & reinterpret_cast<IntVec>(no)));
}

CPUACC_INLINE Vec absolute(Vec x) { return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(x) & 0x7fffffff); }

CPUACC_INLINE Vec power_of_two(IntVec n) { return reinterpret_cast<Vec>((reinterpret_cast<BitVec>(n) + 127u) << 23); }

/// exp(x) within 2 units in the last place; 0 or infinity if the result underflows or overflows.
CPUACC_INLINE Vec exponential(Vec x) {
  const float magic = 12582912.0f;  // 1.5 * 2**23: adding it rounds to a whole number
  x = at_most(at_least(x, broadcast(-104.0f)), broadcast(89.0f));
  Vec shifted = x * 1.44269504f + magic;
  Vec whole = shifted - magic;
  Vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vec p = ((((broadcast(1.9875691500e-4f) * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
           1.6666665459e-1f) *
              r +
          5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(0xffff, p, whole);
#else
  IntVec n = reinterpret_cast<IntVec>(reinterpret_cast<BitVec>(shifted) - 0x4b400000u);  // any bits if x is NaN
  IntVec half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
#endif
}

/// exp(x) for x <= 0; 0 if the result is less than the smallest normal number.
CPUACC_INLINE Vec exponential_below_zero(Vec x) {
  const float magic = 12582912.0f;  // 1.5 * 2**23: adding it rounds to a whole number
  Vec within = at_least(x, broadcast(-87.0f));
  Vec shifted = within * 1.44269504f + magic, whole = shifted - magic;
  Vec r = within - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vec p = ((((broadcast(1.9875691500e-4f) * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
           1.6666665459e-1f) *
              r +
          5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  BitVec power = (reinterpret_cast<BitVec>(shifted) << 23) + (127u << 23);  // the shift keeps the low bits only
#if defined(__aarch64__)
  const IntVec is_kept = ~(x < -87.0f);
#else
  const IntVec is_kept = (x >= -87.0f) | (x != x);
#endif
  return reinterpret_cast<Vec>(is_kept & reinterpret_cast<IntVec>(p * reinterpret_cast<Vec>(power)));
}

/// exp(x) - 1 without cancellation near 0.
CPUACC_INLINE Vec exponential_less_one(Vec x) {
  Vec near =
      x + x * x *
              (broadcast(0.5f) +
               x * (broadcast(1.0f / 6) + x * (broadcast(1.0f / 24) + x * (broadcast(1.0f / 120) + x * (1.0f / 720)))));
  return select(absolute(x) < 0.25f, near, exponential(x) - 1.0f);
}

CPUACC_INLINE Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(-x)); }

CPUACC_INLINE Vec hyperbolic_tangent(Vec x) {
  Vec s = x * x;
  Vec near =
      x +
      x * s *
          ((((broadcast(-5.70498872745e-3f) * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s + 1.33314422036e-1f) *
               s -
           3.33332819422e-1f);
  return select(absolute(x) < 0.625f, near, 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f));
}

/// log(1 + exp(x)).
CPUACC_INLINE Vec soft_relu(Vec x) {
  Vec e = exponential(-absolute(x)), z = e / (e + 2.0f), s = z * z;
  Vec series =
      1.0f + s * (broadcast(1.0f / 3) +
                  s * (broadcast(0.2f) + s * (broadcast(1.0f / 7) + s * (broadcast(1.0f / 9) + s * (1.0f / 11)))));
  return at_least(x, broadcast(0.0f)) + 2.0f * z * series;
}

/// 1 / x for numbers whose reciprocal neither overflows nor underflows.
CPUACC_INLINE Vec reciprocal(Vec x) {
#if defined(__AVX512F__)
  Vec near = _mm512_maskz_rcp14_ps(0xffff, x);
  return near * (2.0f - x * near);
#else
  return 1.0f / x;
#endif
}

/// erf(x) as x * P(x * x) / Q(x * x), fitted for |x| <= 4, with an absolute error below 4e-7.
CPUACC_INLINE Vec error_function(Vec x) {
  Vec within = at_most(at_least(x, broadcast(-4.0f)), broadcast(4.0f)), s = within * within;
  Vec p = ((((broadcast(1.97482536e-6f) * s + 2.88037915e-4f) * s + 4.00356081e-3f) * s + 5.34672274e-2f) * s +
           1.96247207e-1f) *
              s +
          1.12837898f;
  Vec q = ((((broadcast(3.74806245e-5f) * s + 1.21633594e-3f) * s + 1.54442592e-2f) * s + 1.16475677e-1f) * s +
           5.07250719e-1f) *
              s +
          1.0f;
  Vec sign = select(x < 0.0f, broadcast(-1.0f), broadcast(1.0f));
  return select(absolute(x) >= 4.0f, sign, within * p * reciprocal(q));
}

/// The cumulative distribution function of the standard normal distribution for x < -2.7, as exp(-x * x / 2) / |x| *
/// P(1 / (x * x)). The relative error is below 5e-6 until exp(-x * x / 2) underflows.
CPUACC_INLINE Vec normal_tail(Vec x) {
  Vec r = 1.0f / x, s = r * r;
  Vec p = ((((broadcast(-29.198675f) * s + 16.573282f) * s - 4.7548237f) * s + 1.1648006f) * s - 0.39860401f) * s +
          0.39894155f;
  return exponential(-0.5f * x * x) * -r * p;
}

/// GELU: x times the cumulative distribution function of the standard normal distribution. The form with 1 + erf has no
/// correct digits for small results.
CPUACC_INLINE Vec gelu(Vec x) {
  Vec product = 0.5f * x * (1.0f + error_function(x * 0.70710678f));
  IntVec small = x < -2.75f;
  return __builtin_expect(any_lane(small), 0) ? select(small, x * normal_tail(x), product) : product;
}

CPUACC_INLINE Vec mish(Vec x) {
  Vec e = exponential(at_most(x, broadcast(20.0f))), w = e * (e + 2.0f);
  return x * (w / (w + 2.0f));  // x * w may overflow
}

CPUACC_INLINE Vec square_root(Vec x) {
  for (int n = 0; n < kLanes; ++n) x[n] = __builtin_sqrtf(x[n]);
  return x;
}

CPUACC_INLINE Vec apply(Function function, Vec x, Vec a, Vec b) {
  const Vec zero = {};
  switch (function) {
    case Function::sigmoid:
      return sigmoid(x);
    case Function::tanh:
      return a * hyperbolic_tangent(b * x);
    case Function::linear:
      return a * x + b;
    case Function::relu:
      return at_least(x, zero);
    case Function::bounded_relu:
      return at_most(at_least(x, b), a);
    case Function::soft_relu:
      return soft_relu(x);
    case Function::leaky_relu:
      return select(x > zero, x, a * x);
    case Function::abs:
      return absolute(x);
    case Function::sqrt:
      return square_root(x);
    case Function::square:
      return x * x;
    case Function::elu:
      return select(x >= zero, x, a * exponential_less_one(x));
    case Function::hard_swish:
      return x * (at_most(at_least(x + 3.0f, zero), broadcast(6.0f)) * (1.0f / 6));
    case Function::gelu:
      return gelu(x);
    case Function::gelu_tanh:
      return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
    case Function::selu:
      return b * select(x > zero, x, a * exponential_less_one(x));
    case Function::celu:
      return at_least(x, zero) + at_most(a * exponential_less_one(x / a), zero);
    case Function::softsign:
      return x / (1.0f + absolute(x));
    case Function::hard_sigmoid:
      return at_most(at_least(a * x + b, zero), broadcast(1.0f));
    case Function::swish:
      return x / (1.0f + exponential(-a * x));
    case Function::mish:
      return mish(x);
    case Function::thresholded_relu:
      return select(x > a, x, zero);
    case Function::shrink:
      return select(x > a, x - b, select(x < -a, x + b, zero));
    case Function::add:
    case Function::multiply:
      break;
  }
  return x;
}

/// Apply one function to rows of `length` floats. The function is a template parameter, so that the loop does not
/// branch.
template <Function kFunction>
void apply_rows(float* c, int64_t pitch, int rows, int length, float a, float b) {
  for (int m = 0; m < rows; ++m, c += pitch)
    for (int n = 0; n < length; n += kLanes) store(c + n, apply(kFunction, load(c + n), broadcast(a), broadcast(b)));
}

void apply_function(const PostOp& op, float* c, int64_t pitch, int rows, int length) {
  switch (op.function) {
#define CPUACC_CASE(name) \
  case Function::name:    \
    return apply_rows<Function::name>(c, pitch, rows, length, op.a, op.b);
    // clang-format off
    CPUACC_CASE(sigmoid) CPUACC_CASE(tanh) CPUACC_CASE(linear) CPUACC_CASE(relu)
    CPUACC_CASE(bounded_relu) CPUACC_CASE(soft_relu) CPUACC_CASE(leaky_relu) CPUACC_CASE(abs)
    CPUACC_CASE(sqrt) CPUACC_CASE(square) CPUACC_CASE(elu) CPUACC_CASE(hard_swish)
    CPUACC_CASE(gelu) CPUACC_CASE(gelu_tanh) CPUACC_CASE(selu) CPUACC_CASE(celu)
    CPUACC_CASE(softsign) CPUACC_CASE(hard_sigmoid) CPUACC_CASE(swish) CPUACC_CASE(mish)
    CPUACC_CASE(thresholded_relu) CPUACC_CASE(shrink)
#undef CPUACC_CASE
    case Function::add: case Function::multiply: return;
    // clang-format on
  }
}

/// Apply the post-ops that do not fit into registers to `rows` pixels of some blocks of channels that were just stored.
__attribute__((noinline, unused)) void apply_post_ops(const Epilogue& epilogue, float* c, const float* residual,
                                                      int64_t c_block, int64_t c_pixel, int rows, int blocks) {
  for (int i = 0; i < epilogue.count; ++i)
    for (int n = 0; n < blocks; ++n) {
      float* to = c + n * c_block;
      const bool multiplies = epilogue.ops[i].function == Function::multiply;
      if (!multiplies && epilogue.ops[i].function != Function::add) {
        apply_function(epilogue.ops[i], to, c_pixel, rows, 16);
        continue;
      }
      const float* from = residual + n * c_block;
      for (int m = 0; m < rows; ++m)
        for (int v = 0; v < 16; v += kLanes)
          store(to + m * c_pixel + v, multiplies ? load(to + m * c_pixel + v) * load(from + m * c_pixel + v)
                                                 : load(to + m * c_pixel + v) + load(from + m * c_pixel + v));
    }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_ACTIVATIONS_HPP
