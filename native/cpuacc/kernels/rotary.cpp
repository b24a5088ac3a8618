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

void rotate(const RotaryRow& row, const float* in, const float* cos, const float* sin, float* out) {
  if (!row.interleaved && row.factor_step == 1) return rotate_halves(row, in, cos, sin, out);
  const int64_t step = row.interleaved ? 2 : 1, other = row.interleaved ? 1 : row.pairs;
  for (int64_t n = 0; n < row.pairs; ++n) {
    const float x = in[n * step], y = in[n * step + other];
    const int64_t at = n * row.factor_step;
    out[n * step] = x * cos[at] - y * sin[at];
    out[n * step + other] = y * cos[at + row.second] + x * sin[at + row.second];
  }
}

}  // namespace

extern const RotaryKernels rotary_kernels = {rotate};

}  // namespace cpuacc::ISA_NS
