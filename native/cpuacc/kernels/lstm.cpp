#include "cpuacc/kernels/lstm.hpp"

#include <string.h>

#include "cpuacc/kernels/functions.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kVectors = 16 / kLanes;  // in a block of units

/// What one block of units gives, a vector at a time: `sums` are those of the gates i, o, f and c.
CPUACC_INLINE void units_of(const Vec (&sums)[4], float* cell, float* out) {
  Vec now = sigmoid(sums[2]) * load(cell) + sigmoid(sums[0]) * hyperbolic_tangent(sums[3]);
  store(cell, now);
  store(out, sigmoid(sums[1]) * hyperbolic_tangent(now));
}

/// A block of units of one sequence where it lies, or, where there are fewer than 16, in a copy that is filled up.
class Units {
 public:
  Units(const float* given, float* cell, float* out, int64_t size, int64_t block)
      : cell(cell + block * 16), out(out + block * 16), last_cell_(this->cell), last_out_(this->out) {
    for (int gate = 0; gate < 4; ++gate) start[gate] = given + gate * size + block * 16;
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

void step(const float* weights, const float* given, const float* hidden, float* cell, float* out, int64_t size,
          int64_t block) {
  Units units(given, cell, out, size, block);
  for (int v = 0; v < kVectors; ++v) {
    Vec even[4], odd[4] = {};  // two sums of a gate, so that one addition need not wait for the other
    for (int gate = 0; gate < 4; ++gate) even[gate] = load(units.start[gate] + v * kLanes);
    const float* row = weights + v * kLanes;
    int64_t k = 0;
    for (; k + 2 <= size; k += 2, row += 128) {
      for (int gate = 0; gate < 4; ++gate) even[gate] += hidden[k] * load(row + gate * 16);
      for (int gate = 0; gate < 4; ++gate) odd[gate] += hidden[k + 1] * load(row + 64 + gate * 16);
    }
    if (k < size)
      for (int gate = 0; gate < 4; ++gate) even[gate] += hidden[k] * load(row + gate * 16);
    for (int gate = 0; gate < 4; ++gate) even[gate] += odd[gate];
    units_of(even, units.cell + v * kLanes, units.out + v * kLanes);
  }
  units.keep();
}

void finish(const float* products, int64_t sequence, int64_t gate_step, const float* given, float* cell, float* out,
            int64_t size, int64_t block, int64_t batch) {
  for (int64_t b = 0; b < batch; ++b, given += 4 * size, cell += size, out += size, products += sequence) {
    Units units(given, cell, out, size, block);
    for (int v = 0; v < 16; v += kLanes) {
      Vec sums[4];
      for (int gate = 0; gate < 4; ++gate) sums[gate] = load(units.start[gate] + v) + load(products + gate * gate_step + v);
      units_of(sums, units.cell + v, units.out + v);
    }
    units.keep();
  }
}

template <int kGates>
void multiply_gates(const float* weights, const float* hidden, int64_t size, float* sums) {
  for (int v = 0; v < 16; v += kLanes) {
    Vec even[kGates] = {}, odd[kGates] = {};
    const float* row = weights + v;
    int64_t k = 0;
    for (; k + 2 <= size; k += 2, row += 32 * kGates) {
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

extern const LstmKernels lstm_kernels = {step, finish, multiply, gate};

}  // namespace cpuacc::ISA_NS
