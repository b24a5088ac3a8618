#include "cpuacc/kernels/lstm.hpp"

#include <string.h>

#include "cpuacc/kernels/functions.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kVectors = 16 / kLanes;  // in a block of units

void step(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
          int64_t block) {
  int64_t first = block * 16, count = size - first < 16 ? size - first : 16;
  float start[4][16], cells[16] = {}, result[16];
  for (int gate = 0; gate < 4; ++gate)
    for (int64_t n = 0; n < 16; ++n) start[gate][n] = n < count ? given[gate * size + first + n] : 0;
  memcpy(cells, cell + first, size_t(count) * sizeof(float));
  for (int v = 0; v < kVectors; ++v) {
    Vec sums[2][4];
    for (int gate = 0; gate < 4; ++gate) sums[0][gate] = load(start[gate] + v * kLanes), sums[1][gate] = Vec{};
    const float* row = weights + v * kLanes;
    int64_t k = 0;
    for (; k + 2 <= size; k += 2, row += 128) {
      __builtin_prefetch(row + 1024, 0, 2);
      __builtin_prefetch(row + 1088, 0, 2);
      for (int gate = 0; gate < 4; ++gate) sums[0][gate] += hidden[k] * load(row + gate * 16);
      for (int gate = 0; gate < 4; ++gate) sums[1][gate] += hidden[k + 1] * load(row + 64 + gate * 16);
    }
    if (k < size)
      for (int gate = 0; gate < 4; ++gate) sums[0][gate] += hidden[k] * load(row + gate * 16);
    Vec entry = sigmoid(sums[0][0] + sums[1][0]), exit = sigmoid(sums[0][1] + sums[1][1]);
    Vec forget = sigmoid(sums[0][2] + sums[1][2]), fresh = hyperbolic_tangent(sums[0][3] + sums[1][3]);
    Vec now = forget * load(cells + v * kLanes) + entry * fresh;
    store(cells + v * kLanes, now);
    store(result + v * kLanes, exit * hyperbolic_tangent(now));
  }
  memcpy(cell + first, cells, size_t(count) * sizeof(float));
  memcpy(out + first, result, size_t(count) * sizeof(float));
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
