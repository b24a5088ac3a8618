#include "cpuacc/kernels/lstm.hpp"

#include <string.h>

#include "cpuacc/kernels/activations.hpp"
#include "cpuacc/kernels/bfloat16_pairs.hpp"
#include "cpuacc/kernels/by_lane.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kVectors = 16 / kLanes;  // of a block of 16 units

/// Add the products of two hidden states and their weights.
template <int kGates, bool kOfPairs>
CPUACC_INLINE void multiply_both(const float* row, float x, float y, Vec (&even)[kGates], Vec (&odd)[kGates]) {
  for (int gate = 0; gate < kGates; ++gate) {
    Vec first, second;
    load_both<kOfPairs>(row + gate * 16, kGates * 16, &first, &second);
    even[gate] += x * first;
    odd[gate] += y * second;
  }
}

/// Add the product of the last hidden state, if their number is odd.
template <int kGates, bool kOfPairs>
CPUACC_INLINE void multiply_last(const float* row, float x, Vec (&sums)[kGates]) {
  for (int gate = 0; gate < kGates; ++gate) {
    Vec first, second;
    load_both<kOfPairs>(row + gate * 16, 0, &first, &second);
    sums[gate] += x * first;
  }
}

/// Compute the cell and the output of a vector of units from the sums of the gates i, o, f and c.
CPUACC_INLINE void units_of(const Vec (&sums)[4], float* cell, float* out) {
  Vec now = sigmoid(sums[2]) * load(cell) + sigmoid(sums[0]) * hyperbolic_tangent(sums[3]);
  store(cell, now);
  store(out, sigmoid(sums[1]) * hyperbolic_tangent(now));
}

/// A block of units of one sequence: its own memory, or a padded copy if it has fewer than 16 units.
class Units {
 public:
  Units(const float* input_sums, float* cell, float* out, int64_t size, int64_t block)
      : cell(cell + block * 16), out(out + block * 16), last_cell_(this->cell), last_out_(this->out) {
    for (int gate = 0; gate < 4; ++gate) start[gate] = input_sums + gate * size + block * 16;
    const int64_t count = size - block * 16;
    if (count >= 16) return;
    bytes_ = size_t(count) * sizeof(float);
    memset(copy_, 0, sizeof copy_);
    for (int gate = 0; gate < 4; ++gate) start[gate] = static_cast<float*>(memcpy(copy_[gate], start[gate], bytes_));
    this->cell = static_cast<float*>(memcpy(copy_[4], this->cell, bytes_));
    this->out = copy_[5];
  }
  void keep() const {
    if (bytes_ == 0) return;
    memcpy(last_cell_, cell, bytes_);
    memcpy(last_out_, out, bytes_);
  }

  const float* start[4];
  float *cell, *out;

 private:
  float *last_cell_, *last_out_;
  size_t bytes_ = 0;
  float copy_[6][16];
};

#if defined(__aarch64__)
/// Compute a step of a block with all of its sums in registers.
void step_by_lane(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
                  int64_t block) {
  Units units(given, cell, out, size, block);
  Vec sums[4 * kVectors];
#pragma GCC unroll 16
  for (int n = 0; n < 4 * kVectors; ++n) sums[n] = load(units.start[n / kVectors] + n % kVectors * kLanes);
  add_rows(sums, sums, hidden, size, weights, 64);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const Vec gates[4] = {sums[v], sums[kVectors + v], sums[2 * kVectors + v], sums[3 * kVectors + v]};
    units_of(gates, units.cell + v * kLanes, units.out + v * kLanes);
  }
  units.keep();
}
#endif

template <bool kOfPairs>
void step(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
          int64_t block) {
#if defined(__aarch64__)
  if constexpr (!kOfPairs) return step_by_lane(weights, given, hidden, cell, out, size, block);
#endif
  Units units(given, cell, out, size, block);
  for (int v = 0; v < kVectors; ++v) {
    Vec even[4], odd[4] = {};  // two sums for each gate, so that an addition does not wait for the one before
    for (int gate = 0; gate < 4; ++gate) even[gate] = load(units.start[gate] + v * kLanes);
    const float* row = weights + v * kLanes;
    int64_t k = 0;
    for (; k + 2 <= size; k += 2, row += kOfPairs ? 64 : 128) {
      multiply_both<4, kOfPairs>(row, hidden[k], hidden[k + 1], even, odd);
    }
    if (k < size) multiply_last<4, kOfPairs>(row, hidden[k], even);
    for (int gate = 0; gate < 4; ++gate) even[gate] += odd[gate];
    units_of(even, units.cell + v * kLanes, units.out + v * kLanes);
  }
  units.keep();
}

void finish(const float* products, int64_t sequence, int64_t gate_step, const float* input_sums, float* cell,
            float* out, int64_t size, int64_t block, int64_t batch) {
  for (int64_t b = 0; b < batch; ++b, input_sums += 4 * size, cell += size, out += size, products += sequence) {
    Units units(input_sums, cell, out, size, block);
    for (int v = 0; v < 16; v += kLanes) {
      Vec sums[4];
      for (int gate = 0; gate < 4; ++gate)
        sums[gate] = load(units.start[gate] + v) + load(products + gate * gate_step + v);
      units_of(sums, units.cell + v, units.out + v);
    }
    units.keep();
  }
}

template <int kGates, bool kOfPairs>
void multiply_gates(const float* weights, const float* hidden, int64_t size, float* sums) {
#if defined(__aarch64__)
  if constexpr (!kOfPairs) {
    Vec first[kGates * kVectors] = {}, second[kGates * kVectors] = {};
    add_rows(first, second, hidden, size, weights, 16 * kGates);
#pragma GCC unroll 16
    for (int n = 0; n < kGates * kVectors; ++n) store(sums + n * kLanes, first[n] + second[n]);
    return;
  }
#endif
  for (int v = 0; v < 16; v += kLanes) {
    Vec even[kGates] = {}, odd[kGates] = {};
    const float* row = weights + v;
    int64_t k = 0;
    for (; k + 2 <= size; k += 2, row += (kOfPairs ? 16 : 32) * kGates) {
      multiply_both<kGates, kOfPairs>(row, hidden[k], hidden[k + 1], even, odd);
    }
    if (k < size) multiply_last<kGates, kOfPairs>(row, hidden[k], even);
    for (int gate = 0; gate < kGates; ++gate) store(sums + gate * 16 + v, even[gate] + odd[gate]);
  }
}

template <bool kOfPairs>
void multiply(const float* weights, const float* hidden, int64_t gates, int64_t size, float* sums) {
  if (gates == 1) return multiply_gates<1, kOfPairs>(weights, hidden, size, sums);
  if (gates == 2) return multiply_gates<2, kOfPairs>(weights, hidden, size, sums);
  multiply_gates<3, kOfPairs>(weights, hidden, size, sums);
}

void gate(const float* sums, const float* input_sums, bool tangent, float* out) {
  for (int v = 0; v < 16; v += kLanes) {
    Vec x = load(sums + v) + load(input_sums + v);
    store(out + v, tangent ? hyperbolic_tangent(x) : sigmoid(x));
  }
}

/// `count` floats, or a padded copy in `copy` if there are fewer than 16.
CPUACC_INLINE const float* padded(const float* from, int64_t count, float* copy) {
  if (count >= 16) return from;
  memset(copy, 0, 16 * sizeof(float));
  return static_cast<float*>(memcpy(copy, from, size_t(count) * sizeof(float)));
}

void finish_gru(const float* products, int64_t sequence, int64_t gate_step, const float* input_sums, const float* bias,
                const float* hidden, float* out, int64_t size, int64_t block, int64_t batch) {
  const int64_t first = block * 16, count = size - first < 16 ? size - first : 16;
  float copies[5][16], found[16];
  const float* added = bias ? padded(bias + first, count, copies[0]) : nullptr;
  for (int64_t b = 0; b < batch; ++b, input_sums += 3 * size, hidden += size, out += size, products += sequence) {
    const float *z = padded(input_sums + first, count, copies[1]),
                *r = padded(input_sums + size + first, count, copies[2]);
    const float *h = padded(input_sums + 2 * size + first, count, copies[3]),
                *before = padded(hidden + first, count, copies[4]);
    for (int v = 0; v < 16; v += kLanes) {
      const Vec update = sigmoid(load(z + v) + load(products + v));
      const Vec reset = sigmoid(load(r + v) + load(products + gate_step + v));
      Vec state = load(products + 2 * gate_step + v);
      if (added) state += load(added + v);
      const Vec fresh = hyperbolic_tangent(load(h + v) + reset * state);
      store(found + v, (1.0f - update) * fresh + update * load(before + v));
    }
    memcpy(out + first, found, size_t(count) * sizeof(float));
  }
}

}  // namespace

extern const LstmKernels lstm_kernels = {
    {step<false>, step<true>}, finish, {multiply<false>, multiply<true>}, gate, finish_gru};

}  // namespace cpuacc::ISA_NS
