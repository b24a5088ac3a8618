// One step of recurrent layers of float32.

#ifndef CPUACC_KERNELS_LSTM_HPP
#define CPUACC_KERNELS_LSTM_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

struct LstmKernels {
  // Those that stream weights are there twice: for floats, and for pairs of bfloat16, [pair of units before][gate][16].

  /// Units [16 * block, 16 * (block + 1)) of one sequence. `weights` are those of the block: [unit before][gate i, o, f,
  /// c][16]; `given` is what the input gives to the gates, each `size` long; `cell` is read and written.
  void (*step[2])(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
                  int64_t block);
  /// The same units of `batch` sequences, whose rows lie behind each other, where the products with the units before are
  /// known: 16 numbers, `sequence` floats from one sequence to the next and `gate_step` from gate to gate.
  void (*finish)(const float* products, int64_t sequence, int64_t gate_step, const float* given, float* cell, float* out,
                 int64_t size, int64_t block, int64_t batch);
  /// Of one block of units, [gate][16]: sums over the units before, whose weights are [unit before][gate][16].
  void (*multiply[2])(const float* weights, const float* hidden, int64_t gates, int64_t size, float* sums);
  /// 16 values: sigmoid, or hyperbolic tangent, of the sum of both.
  void (*gate)(const float* sums, const float* given, bool tangent, float* out);
};
CPUACC_TABLE(LstmKernels, lstm_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_LSTM_HPP
