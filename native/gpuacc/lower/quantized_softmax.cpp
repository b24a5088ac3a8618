// Softmax and LogSoftmax of quantized tensors of 8 bits with the scale that TFLite prescribes, in the fixed-point
// arithmetic of the reference. The exponentials of the 256 possible distances from the maximum of a row are looked up.

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

/// log(x) for x >= 1 with 12 integer bits, as in common/fixed_point.hpp; the result has 5.
std::string logarithm() {
  const double root = std::sqrt(std::sqrt(2.0));
  Template text(R"(
inline long logarithm(uint x) {
  const int zeros = (int)clz(x), headroom = (int)clz((uint)times((long)x, $HALF)) - 1;
  const long a = moved(times((long)x << (zeros - 1), $HALF), 1), b = moved((long)x, headroom);
  const long power = clamp(max(moved(12 - zeros, 25) + $QUARTER, moved(12 - headroom, 25) - $QUARTER), -2147483648L, 2147483647L);
  const long r = min(a, b), p = (r + $INVERSE + 1) >> 1, q = 2 * (r - $INVERSE), square = times(q, q);
  const long numerator = times(q, r) + times(times(q, square), $CUBIC);
  const long inner = $INNER + q + times($SQUARE, square);
  const long inverse = one_over_one_plus(times(p, inner) + times($LINEAR, q));
  return moved(times(power, $LOG) + times(divide_by_pot(numerator, 6), inverse), 1);
}
)");
  auto set = [&](const char* name, double value, int bits) {
    text.set(name, std::to_string(native::constant(value, bits)) + "L");
  };
  set("HALF", std::sqrt(0.5), 0), set("QUARTER", 0.25, 6), set("INVERSE", 1 / root, 0);
  set("CUBIC", 11.0 / 240 * root, 0), set("INNER", 2 / root - root, 0), set("SQUARE", root / 20, 0);
  set("LINEAR", root / 4, 0), set("LOG", std::log(2.0), 0);
  return text.text();
}

}  // namespace

ipr::Verdict quantized_softmax_support(const ipr::Layer& layer) {
  const ipr::Verdict verdict = one_scale(layer, 1);
  if (is_refused(verdict)) return verdict;
  const ipr::TensorInfo out = layer.output(0);
  const bool is_log = layer.type() == "LogSoftmax";
  if (is_log && (out.scale() != 1.0 / 16 || out.zero_point() != (out.dtype() == IPR_DTYPE_INT8 ? 127 : 255)))
    return ipr::no("the scale of the result is not 1/16, or its zero point is not the highest value",
                   IPR_REASON_QUANTIZATION);
  if (!is_log && (out.scale() != 1.0 / 256 || out.zero_point() != (out.dtype() == IPR_DTYPE_INT8 ? -128 : 0)))
    return ipr::no("the scale of the result is not 1/256, or its zero point is not the lowest value",
                   IPR_REASON_QUANTIZATION);
  if (layer.number("beta", 1) < 0) return ipr::no("beta is negative", IPR_REASON_ATTRIBUTE);
  const int64_t longest = is_log ? kLongestRow / 2 : kLongestRow;  // a sum for a logarithm is signed
  if (out.rank() > 0 && out.extent(int32_t(normal_axis(layer.integer("axis"), out.rank()))) > longest)
    return ipr::no("rows have more than " + std::to_string(longest) + " elements", IPR_REASON_SHAPE);
  return ipr::yes();
}

namespace {

/// Of each distance from the maximum of a row: times scale and beta, its exponential, and that in a sum.
struct Exponentials {
  explicit Exponentials(const native::FixedPoint& factor) {
    const double farthest = std::floor(31 * 0x1p26 / std::ldexp(1.0, factor.shift));
    least = int64_t(std::min(farthest, 1e9));
    for (int below = 0; below < 256; ++below) {
      const int64_t product = native::multiply(-below, factor);
      const int64_t exponential = below <= farthest ? native::exp_of_negative(product, 5) : 0;
      products.push_back(int32_t(product));
      values.push_back(int32_t(exponential));
      summands.push_back(int32_t(native::rescaled(exponential, 0, 12)));
    }
  }
  int64_t least;  // exponentials of longer distances are 0
  std::vector<int32_t> products, values, summands;
};

constexpr char kTotal[] = R"(
  int most = X(0);
  for (int r = 1; r < n; ++r) most = max(most, (int)X(r));
  uint total = 0;
  for (int r = 0; r < n; ++r) total += summands[most - X(r)];
)";

RowKernel softmax_kernel(Plan& plan, int32_t dtype, const Exponentials& tables) {
  const char* code = R"(
  const int zeros = (int)clz(total);
  const long inverse = one_over_one_plus(((long)total << zeros) - 2147483648L);
  for (int r = 0; r < n; ++r) {
    const long e = exponentials[most - X(r)];
    y[AT(r)] = (int)clamp(divide_by_pot(times(inverse, e), 12 - zeros + 31 - 8), 0L, 255L) + lowest;
  }
)";
  return {std::string(kTotal) + code,
          ", global const int* restrict exponentials, global const int* restrict summands, int lowest",
          {reads(plan.integers(tables.values)), reads(plan.integers(tables.summands)),
           number(dtype == IPR_DTYPE_INT8 ? -128 : 0)},
          true,
          arithmetic(dtype) + reciprocal()};
}

RowKernel log_kernel(Plan& plan, int32_t dtype, const Exponentials& tables, const native::FixedPoint& factor) {
  const native::FixedPoint inverse =
      native::quantize_multiplier(std::ldexp(1.0, 31 - factor.shift) / double(factor.multiplier));
  const char* code = R"(
  const long sum = logarithm(total), farthest = -max(-(long)least - 1, multiply(sum - 2147483648L, m, s));
  for (int r = 0; r < n; ++r) {
    const int below = most - X(r);
    const long v = divide_by_pot(products[below] - sum, 22) + highest;
    y[AT(r)] = below >= farthest ? highest - 255 : (int)CLAMP(v);
  }
)";
  return {std::string(kTotal) + code,
          ", global const int* restrict products, global const int* restrict summands, int least, int m, int s, int "
          "highest",
          {reads(plan.integers(tables.products)), reads(plan.integers(tables.summands)), number(tables.least),
           number(inverse.multiplier), number(inverse.shift), number(dtype == IPR_DTYPE_INT8 ? 127 : 255)},
          true,
          arithmetic(dtype) + reciprocal() + logarithm()};
}

}  // namespace

void lower_quantized_softmax(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const double scale = std::min(layer.number("beta", 1) * layer.input(0).scale() * 0x1p26, 2147483647.0);
  const native::FixedPoint factor = native::quantize_multiplier(scale);
  const Exponentials tables(factor);
  const Value out = plan.create(in.dtype, in.shape);
  launch_rows(plan, "softmax", along(in, normal_axis(layer.integer("axis"), layer.input(0).rank())), out,
              layer.type() == "LogSoftmax" ? log_kernel(plan, in.dtype, tables, factor)
                                           : softmax_kernel(plan, in.dtype, tables));
  plan.set(layer.output(0).index(), out);
}

}  // namespace gpuacc
