// Steps of recurrent layers of float32. "Hidden state" is the output of the layer at the previous step.

#ifndef CPUACC_KERNELS_LSTM_HPP
#define CPUACC_KERNELS_LSTM_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

struct LstmKernels {
  // Kernels that stream weights exist twice: for float32, and for pairs of bfloat16, [pair of hidden units][gate][16].

  /// Compute units [16 * block, 16 * (block + 1)) of one sequence. `weights` are those of the block: [hidden unit][gate
  /// i, o, f, c][16]. `input_sums` is the contribution of the input to the gates, each `size` long. `cell` is read and
  /// written.
  void (*step[2])(const float* weights, const float* input_sums, const float* hidden, float* cell, float* out,
                  int64_t size, int64_t block);
  /// Compute the same units of `batch` consecutive sequences from the products with the hidden state, 16 numbers for
  /// each gate. These are `sequence` floats apart from one sequence to the next, and `gate_step` floats from one gate
  /// to the next.
  void (*finish)(const float* products, int64_t sequence, int64_t gate_step, const float* input_sums, float* cell,
                 float* out, int64_t size, int64_t block, int64_t batch);
  /// Compute the sums of one block of units, [gate][16], over the hidden units, whose weights are [hidden
  /// unit][gate][16].
  void (*multiply[2])(const float* weights, const float* hidden, int64_t gates, int64_t size, float* sums);
  /// Apply the sigmoid, or the hyperbolic tangent, to 16 sums of `sums` and `input_sums`.
  void (*gate)(const float* sums, const float* input_sums, bool tangent, float* out);
  /// Compute the units [16 * block, 16 * (block + 1)) of `batch` consecutive sequences of a GRU whose reset gate is
  /// applied after the product. `products` are those of the gates z, r and h with the hidden state, as in `finish`.
  /// `bias` of the hidden gate is added to its product; it may be nullptr.
  void (*finish_gru)(const float* products, int64_t sequence, int64_t gate_step, const float* input_sums,
                     const float* bias, const float* hidden, float* out, int64_t size, int64_t block, int64_t batch);
};
CPUACC_TABLE(LstmKernels, lstm_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_LSTM_HPP
