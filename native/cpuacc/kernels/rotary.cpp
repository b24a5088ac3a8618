#include "cpuacc/kernels/rotary.hpp"

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Rotate the halves of a row, in vectors.
void rotate_halves(const RotaryRow& row, const float* in, const float* cos, const float* sin, float* out) {
  const int64_t half = row.pairs;
  const float *other_cos = cos + row.second, *other_sin = sin + row.second;
  int64_t n = 0;
  for (; n + kLanes <= half; n += kLanes) {
    const Vec x = load(in + n), y = load(in + half + n);
    store(out + n, x * load(cos + n) - y * load(sin + n));
    store(out + half + n, y * load(other_cos + n) + x * load(other_sin + n));
  }
  for (; n < half; ++n) {
    const float x = in[n], y = in[half + n];
    out[n] = x * cos[n] - y * sin[n];
    out[half + n] = y * other_cos[n] + x * other_sin[n];
  }
}

/// Numbers with even or odd indices of 2 * kLanes numbers.
template <int kOdd>
CPUACC_INLINE Vec every_other(const float* from) {
  IntVec places;
#pragma GCC unroll 16
  for (int n = 0; n < kLanes; ++n) places[n] = 2 * n + kOdd;
  return shuffled(load(from), load(from + kLanes), places);
}

/// Store the numbers of two vectors in turns.
CPUACC_INLINE void store_in_turns(float* to, Vec first, Vec second) {
  IntVec low, high;
#pragma GCC unroll 16
  for (int n = 0; n < kLanes; ++n) {
    low[n] = n / 2 + n % 2 * kLanes;
    high[n] = low[n] + kLanes / 2;
  }
  store(to, shuffled(first, second, low));
  store(to + kLanes, shuffled(first, second, high));
}

/// Rotate neighbours in vectors. Return the number of pairs that were rotated.
int64_t rotate_neighbours(const RotaryRow& row, const float* in, const float* cos, const float* sin, float* out) {
  const bool apart = row.factor_step == 2;  // both elements of a pair have their own factors
  if (apart ? row.second != 1 : row.second != 0) return 0;
  int64_t n = 0;
  for (; n + kLanes <= row.pairs; n += kLanes) {
    const Vec x = every_other<0>(in + 2 * n), y = every_other<1>(in + 2 * n);
    const Vec c = apart ? every_other<0>(cos + 2 * n) : load(cos + n),
              s = apart ? every_other<0>(sin + 2 * n) : load(sin + n);
    const Vec other_c = apart ? every_other<1>(cos + 2 * n) : c, other_s = apart ? every_other<1>(sin + 2 * n) : s;
    store_in_turns(out + 2 * n, x * c - y * s, y * other_c + x * other_s);
  }
  return n;
}

void rotate(const RotaryRow& row, const float* in, const float* cos, const float* sin, float* out) {
  if (!row.interleaved && row.factor_step == 1) return rotate_halves(row, in, cos, sin, out);
  const int64_t step = row.interleaved ? 2 : 1, other = row.interleaved ? 1 : row.pairs;
  for (int64_t n = row.interleaved ? rotate_neighbours(row, in, cos, sin, out) : 0; n < row.pairs; ++n) {
    const float x = in[n * step], y = in[n * step + other];
    const int64_t at = n * row.factor_step;
    out[n * step] = x * cos[at] - y * sin[at];
    out[n * step + other] = y * cos[at + row.second] + x * sin[at + row.second];
  }
}

}  // namespace

extern const RotaryKernels rotary_kernels = {rotate};

}  // namespace cpuacc::ISA_NS
