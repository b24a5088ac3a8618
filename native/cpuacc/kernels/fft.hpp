// Passes of the fast Fourier transform, of several transforms at once.

#ifndef CPUACC_KERNELS_FFT_HPP
#define CPUACC_KERNELS_FFT_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// One pass of Stockham's algorithm with real and imaginary parts in arrays of their own. Element q + s * (p + m * j)
/// of the operand, j < radix, becomes element q + s * (radix * p + k) of the result, for all q < s and p < m.
template <class T>
struct FftPass {
  int64_t radix, m, s;
  const T* twiddles;  // [p][k - 1]: cosine and sine of -2 pi p k / (m * radix)
  const T* roots;     // [k]: cosine and sine of -2 pi k / radix
};

struct FftKernels {
  void (*pass32)(const FftPass<float>& pass, const float* re, const float* im, float* out_re, float* out_im);
  void (*pass64)(const FftPass<double>& pass, const double* re, const double* im, double* out_re, double* out_im);
};
CPUACC_TABLE(FftKernels, fft_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_FFT_HPP
