#include "cpuacc/kernels/recurrent.hpp"

#include "cpuacc/kernels/activations.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// The sums of `kVectors` vectors of rows and `kCount` input vectors stay in registers.
template <int kVectors, int kCount>
CPUACC_INLINE void multiply_tile(const float* weights, int64_t block_step, const float* in, int64_t in_step,
                                 int64_t depth, float* out, int64_t out_step) {
  Vec sums[kCount][kVectors];
  for (int n = 0; n < kCount; ++n)
    for (int v = 0; v < kVectors; ++v) sums[n][v] = load(out + n * out_step + v * kLanes);
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load(weights + v * kLanes / 16 * block_step + k * 16 + v * kLanes % 16);
    for (int n = 0; n < kCount; ++n)
      for (int v = 0; v < kVectors; ++v) sums[n][v] += in[n * in_step + k] * row[v];
  }
  for (int n = 0; n < kCount; ++n)
    for (int v = 0; v < kVectors; ++v) store(out + n * out_step + v * kLanes, sums[n][v]);
}

/// Blocks of 16 rows that one tile of a single vector computes, so that additions do not wait for each other.
constexpr int kBlocks = 4;
constexpr int kVectorsOfBlock = 16 / kLanes;

void multiply(const float* weights, const float* in, int64_t in_step, int64_t count, int64_t depth, int64_t rows,
              float* out, int64_t out_step) {
  const int64_t block_step = depth * 16, blocks = rows / 16;
  int64_t n = 0;
  for (; n + 4 <= count; n += 4) {
    int64_t block = 0;
    for (; kLanes == 16 && block + 4 <= blocks; block += 4)
      multiply_tile<4 * kVectorsOfBlock, 4>(weights + block * block_step, block_step, in + n * in_step, in_step, depth,
                                            out + n * out_step + block * 16, out_step);
    for (; block < blocks; ++block)
      multiply_tile<kVectorsOfBlock, 4>(weights + block * block_step, block_step, in + n * in_step, in_step, depth,
                                        out + n * out_step + block * 16, out_step);
  }
  for (; n < count; ++n) {
    int64_t block = 0;
    for (; block + kBlocks <= blocks; block += kBlocks)
      multiply_tile<kBlocks * kVectorsOfBlock, 1>(weights + block * block_step, block_step, in + n * in_step, in_step,
                                                  depth, out + n * out_step + block * 16, out_step);
    for (; block < blocks; ++block)
      multiply_tile<kVectorsOfBlock, 1>(weights + block * block_step, block_step, in + n * in_step, in_step, depth,
                                        out + n * out_step + block * 16, out_step);
  }
}

template <Squash kFunction>
CPUACC_INLINE Vec squashed(Vec x) {
  const Vec zero = {};
  switch (kFunction) {
    case Squash::none:
      return x;
    case Squash::relu:
      return at_least(x, zero);
    case Squash::relu_one:
      return at_most(at_least(x, broadcast(-1)), broadcast(1));
    case Squash::relu_six:
      return at_most(at_least(x, zero), broadcast(6));
    case Squash::tanh:
      return hyperbolic_tangent(x);
    case Squash::sigmoid:
      return sigmoid(x);
  }
  return x;
}

template <Squash kFunction>
void activate_all(float* x, int64_t count) {
  for (int64_t n = 0; n < count; n += kLanes) store(x + n, squashed<kFunction>(load(x + n)));
}

void activate(float* x, int64_t count, Squash function) {
  switch (function) {
    case Squash::none:
      return;
    case Squash::relu:
      return activate_all<Squash::relu>(x, count);
    case Squash::relu_one:
      return activate_all<Squash::relu_one>(x, count);
    case Squash::relu_six:
      return activate_all<Squash::relu_six>(x, count);
    case Squash::tanh:
      return activate_all<Squash::tanh>(x, count);
    case Squash::sigmoid:
      return activate_all<Squash::sigmoid>(x, count);
  }
}

void add_products(float* x, const float* a, const float* b, int64_t count) {
  for (int64_t n = 0; n < count; n += kLanes) store(x + n, load(x + n) + load(a + n) * load(b + n));
}

void update(const float* forget, const float* input, const float* candidate, float* cell, int64_t count, float bound) {
  for (int64_t n = 0; n < count; n += kLanes) {
    const Vec forget_gate = load(forget + n), input_gate = input ? load(input + n) : 1.0f - forget_gate;
    const Vec now = forget_gate * load(cell + n) + input_gate * load(candidate + n);
    store(cell + n, at_most(at_least(now, broadcast(-bound)), broadcast(bound)));
  }
}

void scale(const float* gate, const float* x, float* out, int64_t count) {
  for (int64_t n = 0; n < count; n += kLanes) store(out + n, load(gate + n) * load(x + n));
}

float sum_of(const float* x, int64_t count) {
  Vec sums = {};
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) sums += load(x + n);
  float sum = sum_of_lanes(sums);
  for (; n < count; ++n) sum += x[n];
  return sum;
}

float sum_of_squares(const float* x, int64_t count) {
  Vec sums = {};
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) sums += load(x + n) * load(x + n);
  float sum = sum_of_lanes(sums);
  for (; n < count; ++n) sum += x[n] * x[n];
  return sum;
}

void normalize(float* x, const float* weights, const float* bias, int64_t units) {
  const float mean = sum_of(x, units) / static_cast<float>(units);
  for (int64_t n = 0; n < units; ++n) x[n] -= mean;
  const float variance = sum_of_squares(x, units) / static_cast<float>(units);
  const float inverse = 1 / __builtin_sqrtf(variance + 1e-8f);
  for (int64_t n = 0; n < units; ++n) x[n] = x[n] * inverse * weights[n] + bias[n];
}

int32_t dot(const int16_t* a, const int16_t* b, int64_t count) {
  int32_t sum = 0;
  for (int64_t n = 0; n < count; ++n) sum += int32_t{a[n]} * int32_t{b[n]};
  return sum;
}

void multiply_integers(const int16_t* weights, const int16_t* in, int64_t depth, int64_t rows, int32_t* out) {
  for (int64_t row = 0; row < rows; ++row) out[row] = dot(weights + row * depth, in, depth);
}

}  // namespace

extern const RecurrentKernels recurrent_kernels = {multiply, activate,  add_products,     update,
                                                   scale,    normalize, multiply_integers};

}  // namespace cpuacc::ISA_NS
