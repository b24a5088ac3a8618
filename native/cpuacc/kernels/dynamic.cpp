#include "cpuacc/kernels/dynamic.hpp"

// This file is compiled without contraction of products and sums to fused operations, because a number half-way between
// two steps has to be rounded like the reference does (see CMakeLists.txt).

namespace cpuacc::ISA_NS {
namespace {

void round(const float* from, float* to, int64_t count, const DynamicSteps& steps) {
  const float scale = steps.scale, inverse = steps.inverse, zero = steps.zero, low = steps.low;
  for (int64_t n = 0; n < count; ++n) {
    float x = zero + from[n] * inverse;
    x = x < low ? low : x;
    x = x > 127.0f ? 127.0f : x;
    const float whole = static_cast<float>(static_cast<int32_t>(x)), rest = x - whole;
    const float up = rest >= 0.5f ? 1.0f : 0.0f, down = rest <= -0.5f ? 1.0f : 0.0f;
    to[n] = (whole + up - down - zero) * scale;
  }
}

}  // namespace

extern const DynamicKernels dynamic_kernels = {round};

}  // namespace cpuacc::ISA_NS
