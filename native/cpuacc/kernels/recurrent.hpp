// Parts of the steps of recurrent layers: products with many rows of weights, functions of gates, updates of cells.

#ifndef CPUACC_KERNELS_RECURRENT_HPP
#define CPUACC_KERNELS_RECURRENT_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// The functions of recurrent layers of TFLite.
enum class Squash : int32_t { none, relu, relu_one, relu_six, tanh, sigmoid };

/// Vectors have a length that is a multiple of 16, unless stated otherwise.
struct RecurrentKernels {
  /// out[n][row] += sum over k of weights[row / 16][k][row % 16] * in[n][k], for `count` vectors. `in_step` and
  /// `out_step` are the floats between vectors; `depth` is any number.
  void (*multiply)(const float* weights, const float* in, int64_t in_step, int64_t count, int64_t depth, int64_t rows,
                   float* out, int64_t out_step);
  /// Apply a function to all elements.
  void (*activate)(float* x, int64_t count, Squash function);
  /// x += a * b
  void (*add_products)(float* x, const float* a, const float* b, int64_t count);
  /// cell = forget * cell + input * candidate, within -bound and bound. Without `input`, it is 1 - forget.
  void (*update)(const float* forget, const float* input, const float* candidate, float* cell, int64_t count,
                 float bound);
  /// out = gate * x
  void (*scale)(const float* gate, const float* x, float* out, int64_t count);
  /// Normalize `units` elements, any number, to mean 0 and variance 1; then x = x * weights + bias.
  void (*normalize)(float* x, const float* weights, const float* bias, int64_t units);
  /// out[row] = sum over k of weights[row][k] * in[k], exactly, for any numbers of rows and elements. The sums must fit
  /// into 32 bits.
  void (*multiply_integers)(const int16_t* weights, const int16_t* in, int64_t depth, int64_t rows, int32_t* out);
};
CPUACC_TABLE(RecurrentKernels, recurrent_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_RECURRENT_HPP
