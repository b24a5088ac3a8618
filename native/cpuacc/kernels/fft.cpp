#include "cpuacc/kernels/fft.hpp"

namespace cpuacc::ISA_NS {
namespace {

template <class T>
struct Arrays {
  const T *re, *im;
  T *out_re, *out_im;
};

template <class T>
struct Complex {
  T re, im;
};

template <class T>
inline __attribute__((always_inline)) Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
inline __attribute__((always_inline)) Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
inline __attribute__((always_inline)) Complex<T> times(Complex<T> a, const T* w) {
  return {a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]};
}
/// a * -i
template <class T>
inline __attribute__((always_inline)) Complex<T> turned(Complex<T> a) {
  return {a.im, -a.re};
}

template <class T>
void pass2(const FftPass<T>& pass, Arrays<T> a) {
  const int64_t s = pass.s, step = pass.m * s;
  for (int64_t p = 0; p < pass.m; ++p) {
    const T* w = pass.twiddles + 2 * p;
    const T w0 = w[0], w1 = w[1];
    const T *x = a.re + p * s, *y = a.im + p * s;
    T *u = a.out_re + 2 * p * s, *v = a.out_im + 2 * p * s;
#pragma GCC ivdep
    for (int64_t q = 0; q < s; ++q) {
      const Complex<T> even{x[q], y[q]}, odd{x[step + q], y[step + q]};
      const Complex<T> sum = even + odd, difference = even - odd;
      u[q] = sum.re, v[q] = sum.im;
      u[s + q] = difference.re * w0 - difference.im * w1, v[s + q] = difference.re * w1 + difference.im * w0;
    }
  }
}

template <class T>
void pass4(const FftPass<T>& pass, Arrays<T> a) {
  const int64_t s = pass.s, step = pass.m * s;
  for (int64_t p = 0; p < pass.m; ++p) {
    T w[6];
    for (int n = 0; n < 6; ++n) w[n] = pass.twiddles[6 * p + n];
    const T *x = a.re + p * s, *y = a.im + p * s;
    T *u = a.out_re + 4 * p * s, *v = a.out_im + 4 * p * s;
#pragma GCC ivdep
    for (int64_t q = 0; q < s; ++q) {
      const Complex<T> x0{x[q], y[q]}, x1{x[step + q], y[step + q]}, x2{x[2 * step + q], y[2 * step + q]},
          x3{x[3 * step + q], y[3 * step + q]};
      const Complex<T> even = x0 + x2, odd = x1 + x3, low = x0 - x2, high = turned(x1 - x3);
      const Complex<T> y0 = even + odd, y1 = times(low + high, w), y2 = times(even - odd, w + 2),
                       y3 = times(low - high, w + 4);
      u[q] = y0.re, v[q] = y0.im;
      u[s + q] = y1.re, v[s + q] = y1.im;
      u[2 * s + q] = y2.re, v[2 * s + q] = y2.im;
      u[3 * s + q] = y3.re, v[3 * s + q] = y3.im;
    }
  }
}

/// Any radix: the sums over j for each k.
template <class T>
void pass_of_any(const FftPass<T>& pass, Arrays<T> a) {
  const int64_t s = pass.s, step = pass.m * s, radix = pass.radix;
  for (int64_t p = 0; p < pass.m; ++p)
    for (int64_t k = 0; k < radix; ++k) {
      T *u = a.out_re + (radix * p + k) * s, *v = a.out_im + (radix * p + k) * s;
      for (int64_t q = 0; q < s; ++q) u[q] = v[q] = 0;
      for (int64_t j = 0; j < radix; ++j) {
        const T *x = a.re + p * s + j * step, *y = a.im + p * s + j * step;
        const T *root = pass.roots + 2 * (j * k % radix), c = root[0], d = root[1];
#pragma GCC ivdep
        for (int64_t q = 0; q < s; ++q) u[q] += x[q] * c - y[q] * d, v[q] += x[q] * d + y[q] * c;
      }
      if (k == 0) continue;
      const T *w = pass.twiddles + 2 * ((radix - 1) * p + k - 1), c = w[0], d = w[1];
#pragma GCC ivdep
      for (int64_t q = 0; q < s; ++q) {
        const T re = u[q] * c - v[q] * d;
        v[q] = u[q] * d + v[q] * c, u[q] = re;
      }
    }
}

template <class T>
void pass(const FftPass<T>& pass, const T* re, const T* im, T* out_re, T* out_im) {
  const Arrays<T> arrays{re, im, out_re, out_im};
  if (pass.radix == 2) return pass2(pass, arrays);
  if (pass.radix == 4) return pass4(pass, arrays);
  pass_of_any(pass, arrays);
}

}  // namespace

extern const FftKernels fft_kernels = {pass<float>, pass<double>};

}  // namespace cpuacc::ISA_NS
