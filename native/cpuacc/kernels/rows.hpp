// Softmax, reductions and normalizations of float32. A slice is (extent, inner): `inner` columns, each of `extent`
// elements that are `inner` apart.

#ifndef CPUACC_KERNELS_ROWS_HPP
#define CPUACC_KERNELS_ROWS_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

enum class Reduction : int32_t { sum, max, mean, min, prod, l1, l2, log_sum, log_sum_exp, sum_square, none };

/// Factors and offsets by the index of an element in its row: element n uses index n / inner % period. Either may be
/// nullptr.
struct Affine {
  const float *scale, *shift;
  int64_t inner, period;
};

/// Parameters of a batch normalization by channel: (x - mean) * factor * gamma + beta. The product of `factor` and
/// `gamma` is gamma / sqrt(variance + eps). They are not folded into one scale and shift: infinite ones, and those that
/// overflow together, would give other results. Element n belongs to channel n / inner % channels.
struct BatchParameters {
  const float *mean, *factor, *gamma, *beta;
  int64_t inner, channels;
};

/// Parameters of a local response normalization: x / (k + alpha * sum of squares)^beta. The window of element n begins
/// `before` elements before it and has `size` elements, of which only those inside of the tensor count.
struct ResponseParameters {
  float k, alpha, beta;
  int64_t size, before;
};

enum class Spread : int32_t { variance, deviation, mean_square };  // sqrt(var + eps), sqrt(var) + eps, without the mean

struct SoftmaxKernels {
  /// Columns [first, last) of a slice.
  void (*softmax)(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last, float beta,
                  bool logarithm);
};

struct ReduceKernels {
  /// Columns [first, last) of a slice.
  void (*reduce)(Reduction operation, const float* in, float* out, int64_t extent, int64_t inner, int64_t first,
                 int64_t last);
};

struct NormalizeKernels {
  /// x / sqrt(max(sum of squares, eps)) for columns [first, last).
  void (*unit_length)(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last,
                      float eps);
  /// Local response normalization along the extent, for columns [first, last).
  void (*response)(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last,
                   const ResponseParameters& parameters);
  /// Normalize rows: subtract the mean of each, divide by the measure that `spread` names, then scale and shift.
  void (*standardize)(const float* in, float* out, int64_t rows, int64_t length, Spread spread, float eps,
                      const Affine& affine);
  /// out = in * scale + shift, with factors by the index of the element.
  void (*affine)(const float* in, float* out, int64_t count, int64_t begin, const Affine& affine);
  /// Batch normalization of `count` elements, the first of which has index `begin`.
  void (*batch)(const float* in, float* out, int64_t count, int64_t begin, const BatchParameters& parameters);
  /// Batch normalization of pixels of one block of 16 channels, clamped to [low, high]; `inner` is not read.
  void (*batch_block)(const float* in, float* out, int64_t pixels, const BatchParameters& parameters, float low,
                      float high);
  /// Clamp to [low, high]; NaN stays NaN.
  void (*clamp)(float* values, int64_t count, float low, float high);
  /// Scale, shift and clamp pixels of one block of 16 channels.
  void (*affine_block)(const float* in, float* out, int64_t pixels, const float* scale, const float* shift, float low,
                       float high);
  /// Add the distances of pixels of one block of 16 channels from `center` to `sums`, and their squares to `squares`.
  void (*deviations_block)(const float* in, int64_t pixels, const float* center, float* sums, float* squares);
};
CPUACC_TABLE(SoftmaxKernels, softmax_kernels)
CPUACC_TABLE(ReduceKernels, reduce_kernels)
CPUACC_TABLE(NormalizeKernels, normalize_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_ROWS_HPP
