// Softmax of quantized tensors of 8 bits with the scale that TFLite prescribes, in the fixed-point arithmetic of the
// reference. The exponentials of the 256 possible distances from the maximum of a row are looked up.

#include "common/fixed_point.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/rows.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kLongestRow = 8191;  // exponentials of up to 2**19 are summed in an unsigned number of 32 bits

/// 1 / x for x > 0, as in common/fixed_point.hpp: a fraction, to be divided by a power of 2.
std::string reciprocal() {
  Template text(R"(
inline long times(long a, long b) { return min(high_mul(a, b), 2147483647L); }
inline long moved(long x, int s) { return clamp(x << s, -2147483648L, 2147483647L); }
inline long one_over_one_plus(long x) {
  const long half_of = (x + 2147483648L) >> 1;
  long quotient = $FIRST + times(half_of, $SECOND);
  for (int n = 0; n < 3; ++n) quotient += moved(times(quotient, $ONE - times(half_of, quotient)), 2);
  return moved(quotient, 1);
}
)");
  return text.set("FIRST", std::to_string(native::constant(48.0 / 17, 2)) + "L")
      .set("SECOND", std::to_string(native::constant(-32.0 / 17, 2)) + "L")
      .set("ONE", std::to_string(native::constant(1, 2)) + "L")
      .text();
}

}  // namespace

ipr::Verdict quantized_softmax_support(const ipr::Layer& layer) {
  const ipr::Verdict verdict = one_scale(layer, 1);
  if (is_refused(verdict)) return verdict;
  const ipr::TensorInfo out = layer.output(0);
  if (layer.type() != "Softmax") return ipr::no("no kernel for quantized tensors", IPR_REASON_DATA_TYPE);
  if (out.scale() != 1.0 / 256 || out.zero_point() != (out.dtype() == IPR_DTYPE_INT8 ? -128 : 0))
    return ipr::no("the scale of the result is not 1/256, or its zero point is not the lowest value",
                   IPR_REASON_QUANTIZATION);
  if (layer.number("beta", 1) < 0) return ipr::no("beta is negative", IPR_REASON_ATTRIBUTE);
  if (out.rank() > 0 && out.extent(int32_t(normal_axis(layer.integer("axis"), out.rank()))) > kLongestRow)
    return ipr::no("rows have more than " + std::to_string(kLongestRow) + " elements", IPR_REASON_SHAPE);
  return ipr::yes();
}

void lower_quantized_softmax(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const double scale = std::min(layer.number("beta", 1) * layer.input(0).scale() * 0x1p26, 2147483647.0);
  const native::FixedPoint factor = native::quantize_multiplier(scale);
  const double least = std::floor(31 * 0x1p26 / std::ldexp(1.0, factor.shift));
  std::vector<int32_t> exponentials, summands;
  for (int below = 0; below < 256; ++below) {
    const int64_t exponential = below <= least ? native::exp_of_negative(native::multiply(-below, factor), 5) : 0;
    exponentials.push_back(int32_t(exponential));
    summands.push_back(int32_t(native::rescaled(exponential, 0, 12)));
  }
  const Value out = plan.create(in.dtype, in.shape);
  const std::string code = R"(
  int most = X(0);
  for (int r = 1; r < n; ++r) most = max(most, (int)X(r));
  uint total = 0;
  for (int r = 0; r < n; ++r) total += summands[most - X(r)];
  const int zeros = (int)clz(total);
  const long inverse = one_over_one_plus(((long)total << zeros) - 2147483648L);
  for (int r = 0; r < n; ++r) {
    const long e = exponentials[most - X(r)];
    y[AT(r)] = (int)clamp(divide_by_pot(times(inverse, e), 12 - zeros + 31 - 8), 0L, 255L) + lowest;
  }
)";
  const RowKernel kernel(code,
                         ", global const int* restrict exponentials, global const int* restrict summands, int lowest",
                         {reads(plan.integers(exponentials)), reads(plan.integers(summands)),
                          number(in.dtype == IPR_DTYPE_INT8 ? -128 : 0)},
                         true, arithmetic(in.dtype) + reciprocal());
  launch_rows(plan, "softmax", along(in, normal_axis(layer.integer("axis"), layer.input(0).rank())), out, kernel);
  plan.set(layer.output(0).index(), out);
}

}  // namespace gpuacc
