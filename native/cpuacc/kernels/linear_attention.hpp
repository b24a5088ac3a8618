// Steps of linear attention, which keeps a matrix as its state.

#ifndef CPUACC_KERNELS_LINEAR_ATTENTION_HPP
#define CPUACC_KERNELS_LINEAR_ATTENTION_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// One step of one head of key and value. The state has `keys` rows of `values` columns.
template <class T>
struct LinearStep {
  int64_t keys, values, queries;  // `queries`: heads of the query that read the state
  const T *key, *value, *query;   // the heads of the query follow one another
  const T* decay;                 // factors of the rows of the state; nullptr: none
  int64_t decay_step;             // 0: one factor for all rows
  const T* rate;                  // of the update by what the state does not recall; nullptr: the value is added
  T scale;
};

struct LinearAttentionKernels {
  /// Update the state, and write a row of `values` for each head of the query. `memory` has room for one row.
  void (*step32)(const LinearStep<float>& step, float* state, float* memory, float* out);
  void (*step64)(const LinearStep<double>& step, double* state, double* memory, double* out);
};
CPUACC_TABLE(LinearAttentionKernels, linear_attention_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_LINEAR_ATTENTION_HPP
