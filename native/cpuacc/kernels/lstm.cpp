#include "cpuacc/kernels/lstm.hpp"

#include <string.h>

#include "cpuacc/kernels/functions.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kVectors = 16 / kLanes;  // in a block of units

constexpr int kTogether = kRegisters == 32 ? 4 : 2;  // sequences, which share what is read of the weights

/// One step of kCount sequences, which lie behind each other.
template <int kCount>
void step_of(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
             int64_t block) {
  constexpr int kChains = kCount == 1 ? 2 : 1;  // sums of a gate, so that one addition need not wait for the other
  int64_t first = block * 16, count = size - first < 16 ? size - first : 16;
  float start[kCount][4][16], cells[kCount][16] = {}, result[kCount][16];
  for (int b = 0; b < kCount; ++b) {
    for (int gate = 0; gate < 4; ++gate)
      for (int64_t n = 0; n < 16; ++n) start[b][gate][n] = n < count ? given[(b * 4 + gate) * size + first + n] : 0;
    memcpy(cells[b], cell + b * size + first, size_t(count) * sizeof(float));
  }
  for (int v = 0; v < kVectors; ++v) {
    Vec sums[kCount][kChains][4];
    for (int b = 0; b < kCount; ++b)
      for (int gate = 0; gate < 4; ++gate) {
        sums[b][0][gate] = load(start[b][gate] + v * kLanes);
        if constexpr (kChains == 2) sums[b][1][gate] = Vec{};
      }
    const float* row = weights + v * kLanes;
    int64_t k = 0;
    for (; k + kChains <= size; k += kChains, row += 64 * kChains) {
      __builtin_prefetch(row + 1024, 0, 2);
      if constexpr (kChains == 2) __builtin_prefetch(row + 1088, 0, 2);
      for (int chain = 0; chain < kChains; ++chain)
        for (int gate = 0; gate < 4; ++gate) {
          Vec w = load(row + chain * 64 + gate * 16);
          for (int b = 0; b < kCount; ++b) sums[b][chain][gate] += hidden[b * size + k + chain] * w;
        }
    }
    if (k < size)
      for (int gate = 0; gate < 4; ++gate) sums[0][0][gate] += hidden[k] * load(row + gate * 16);
    for (int b = 0; b < kCount; ++b) {
      if constexpr (kChains == 2)
        for (int gate = 0; gate < 4; ++gate) sums[b][0][gate] += sums[b][1][gate];
      const Vec* of = sums[b][0];
      Vec now = sigmoid(of[2]) * load(cells[b] + v * kLanes) + sigmoid(of[0]) * hyperbolic_tangent(of[3]);
      store(cells[b] + v * kLanes, now);
      store(result[b] + v * kLanes, sigmoid(of[1]) * hyperbolic_tangent(now));
    }
  }
  for (int b = 0; b < kCount; ++b) {
    memcpy(cell + b * size + first, cells[b], size_t(count) * sizeof(float));
    memcpy(out + b * size + first, result[b], size_t(count) * sizeof(float));
  }
}

void step(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
          int64_t block, int64_t batch) {
  int64_t b = 0;
  for (; b + kTogether <= batch; b += kTogether)
    step_of<kTogether>(weights, given + b * 4 * size, hidden + b * size, cell + b * size, out + b * size, size, block);
  for (; b < batch; ++b)
    step_of<1>(weights, given + b * 4 * size, hidden + b * size, cell + b * size, out + b * size, size, block);
}

template <int kGates>
void multiply_gates(const float* weights, const float* hidden, int64_t size, float* sums) {
  for (int v = 0; v < 16; v += kLanes) {
    Vec even[kGates] = {}, odd[kGates] = {};
    const float* row = weights + v;
    int64_t k = 0;
    for (; k + 2 <= size; k += 2, row += 32 * kGates) {
      __builtin_prefetch(row + 1024, 0, 2);
      for (int gate = 0; gate < kGates; ++gate) even[gate] += hidden[k] * load(row + gate * 16);
      for (int gate = 0; gate < kGates; ++gate) odd[gate] += hidden[k + 1] * load(row + (kGates + gate) * 16);
    }
    if (k < size)
      for (int gate = 0; gate < kGates; ++gate) even[gate] += hidden[k] * load(row + gate * 16);
    for (int gate = 0; gate < kGates; ++gate) store(sums + gate * 16 + v, even[gate] + odd[gate]);
  }
}

void multiply(const float* weights, const float* hidden, int64_t gates, int64_t size, float* sums) {
  if (gates == 1) return multiply_gates<1>(weights, hidden, size, sums);
  if (gates == 2) return multiply_gates<2>(weights, hidden, size, sums);
  multiply_gates<3>(weights, hidden, size, sums);
}

void gate(const float* sums, const float* given, bool tangent, float* out) {
  for (int v = 0; v < 16; v += kLanes) {
    Vec x = load(sums + v) + load(given + v);
    store(out + v, tangent ? hyperbolic_tangent(x) : sigmoid(x));
  }
}

}  // namespace

extern const LstmKernels lstm_kernels = {step, multiply, gate};

}  // namespace cpuacc::ISA_NS
