#include "cpuacc/kernels/linear_attention.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Multiply the rows of the state by their factors, and sum the products with the key in `memory`.
template <class T>
void decay_and_recall(const LinearStep<T>& step, T* state, T* memory) {
  for (int64_t e = 0; e < step.values; ++e) memory[e] = 0;
  for (int64_t d = 0; d < step.keys; ++d) {
    T* row = state + d * step.values;
    const T factor = step.decay ? step.decay[d * step.decay_step] : T(1), key = step.key[d];
#pragma GCC ivdep
    for (int64_t e = 0; e < step.values; ++e) {
      const T decayed = row[e] * factor;
      row[e] = decayed;
      memory[e] += key * decayed;
    }
  }
}

template <class T>
void update(const LinearStep<T>& step, T* state, const T* added, bool decays) {
  for (int64_t d = 0; d < step.keys; ++d) {
    T* row = state + d * step.values;
    const T factor = decays && step.decay ? step.decay[d * step.decay_step] : T(1), key = step.key[d];
#pragma GCC ivdep
    for (int64_t e = 0; e < step.values; ++e) row[e] = row[e] * factor + key * added[e];
  }
}

template <class T>
void read(const LinearStep<T>& step, const T* state, T* out) {
  for (int64_t r = 0; r < step.queries; ++r, out += step.values) {
    const T* query = step.query + r * step.keys;
    for (int64_t e = 0; e < step.values; ++e) out[e] = 0;
    for (int64_t d = 0; d < step.keys; ++d) {
      const T* row = state + d * step.values;
      const T factor = query[d];
#pragma GCC ivdep
      for (int64_t e = 0; e < step.values; ++e) out[e] += factor * row[e];
    }
    for (int64_t e = 0; e < step.values; ++e) out[e] *= step.scale;
  }
}

template <class T>
void step(const LinearStep<T>& step, T* state, T* memory, T* out) {
  if (step.rate) {
    decay_and_recall(step, state, memory);
    for (int64_t e = 0; e < step.values; ++e) memory[e] = *step.rate * (step.value[e] - memory[e]);
    update(step, state, memory, false);
  } else {
    update(step, state, step.value, true);
  }
  read(step, state, out);
}

}  // namespace

extern const LinearAttentionKernels linear_attention_kernels = {step<float>, step<double>};

}  // namespace cpuacc::ISA_NS
