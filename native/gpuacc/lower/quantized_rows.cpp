// Reductions of quantized tensors of 8 bits in the integer arithmetic of the reference, and of integers without a
// scale.

#include "common/fixed_point.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/rows.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kMostReduced = 1 << 22;  // elements whose sum has 32 bits

bool chooses(std::string_view operation) { return operation == "MAX" || operation == "MIN"; }

int64_t reduced_count(const ipr::Layer& layer) {
  const std::vector<bool> axes = axes_of(layer, "axis");
  int64_t count = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis]) count *= layer.input(0).extent(int32_t(axis));
  return count;
}

ipr::Verdict no_kernel(const ipr::Layer& layer, const char* tensors) {
  return ipr::no("no kernel for " + std::string(reduction_of(layer)) + " of " + tensors, IPR_REASON_ATTRIBUTE);
}

/// The greatest or least of the elements.
std::string choice(std::string_view operation, const std::string& type) {
  return "  " + type + " v = X(0);\n  for (int r = 1; r < n; ++r) v = X(r) " + (operation == "MAX" ? ">" : "<") +
         " v ? X(r) : v;\n  y[row] = v;";
}

/// The factor of the sum; that of a mean is divided by the count, after it was shifted to the left as far as it fits.
native::FixedPoint factor_of(const ipr::Layer& layer, int64_t count) {
  const native::FixedPoint factor =
      native::quantize_multiplier(double(scale32(layer.input(0))) / double(scale32(layer.output(0))));
  if (reduction_of(layer) != "MEAN") return factor;
  const int bits = std::min(31 - native::leading_zeros(count), 31 + factor.shift);
  return {(factor.multiplier << bits) / count, factor.shift - bits};
}

/// The sum of int8 values is rescaled in float32, as in TFLite, all others in fixed-point arithmetic.
RowKernel rescaled_sum(const ipr::Layer& layer, int64_t count) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  const std::string store = std::string("  y[row] = (") + storage(out.dtype()) + ")CLAMP(v + zy);";
  if (reduction_of(layer) == "SUM" && in.dtype() == IPR_DTYPE_INT8)
    return {
        "  int sum = 0;\n  for (int r = 0; r < n; ++r) sum += X(r);\n"
        "  const float w = (float)sum * scale + (float)-zx * scale * (float)n, whole = copysign(floor(fabs(w) + 0.5f), "
        "w);\n"
        "  const long v = isnan(w) ? -4294967296L : (long)clamp(fabs(w) < 4194304.0f ? whole : w, -4294967296.0f, "
        "4294967296.0f);\n" +
            store,
        ", int zx, int zy, float scale",
        {number(in.zero_point()), number(out.zero_point()), real(double(scale32(in) / scale32(out)))},
        true,
        arithmetic(in.dtype())};
  const native::FixedPoint factor = factor_of(layer, count);
  return {"  int sum = 0;\n  for (int r = 0; r < n; ++r) sum += X(r) - zx;\n  const long v = multiply(sum, m, s);\n" +
              store,
          ", int zx, int zy, int m, int s",
          {number(in.zero_point()), number(out.zero_point()), number(factor.multiplier), number(factor.shift)},
          true,
          arithmetic(in.dtype())};
}

}  // namespace

ipr::Verdict quantized_reduce_support(const ipr::Layer& layer) {
  const ipr::Verdict verdict = one_scale(layer, 1);
  if (is_refused(verdict)) return verdict;
  const std::string_view operation = reduction_of(layer);
  const int64_t count = reduced_count(layer);
  if (count == 0 || count > kMostReduced)
    return ipr::no("a result is of no elements or of more than " + std::to_string(kMostReduced), IPR_REASON_SHAPE);
  if (chooses(operation) && !same_quantization(layer.input(0), layer.output(0)))
    return ipr::no("input and output are quantized differently", IPR_REASON_QUANTIZATION);
  if (chooses(operation) || operation == "MEAN" || operation == "SUM") return ipr::yes();
  return no_kernel(layer, "quantized tensors");
}

void lower_quantized_reduce(const ipr::Layer& layer, Plan& plan) {
  const Rows rows = over(plan, plan.plain(layer.input(0).index()), axes_of(layer, "axis")).rows;
  const Value out = plan.create(rows.value.dtype, shape_of(layer.output(0)));
  const std::string_view operation = reduction_of(layer);
  launch_rows(plan, "reduce", rows, out,
              chooses(operation) ? RowKernel(choice(operation, "int"), "", {}, true)
                                 : rescaled_sum(layer, reduced_count(layer)));
  plan.set(layer.output(0).index(), out);
}

// ---- L2Normalization --------------------------------------------------------------------------------------------------------

constexpr int64_t kLongestLength = 1 << 15;  // squares of up to 16 bits, whose sum has 31 bits

ipr::Verdict quantized_length_support(const ipr::Layer& layer) {
  const ipr::Verdict verdict = one_scale(layer, 1);
  if (is_refused(verdict)) return verdict;
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (out.scale() != 1.0 / 128 || out.zero_point() != (out.dtype() == IPR_DTYPE_INT8 ? 0 : 128))
    return ipr::no("the scale of the result is not 1/128, or its zero point is not the middle value",
                   IPR_REASON_QUANTIZATION);
  for (int64_t size : shape_of(in))
    if (size > kLongestLength)
      return ipr::no("an axis has more than " + std::to_string(kLongestLength) + " elements", IPR_REASON_SHAPE);
  return ipr::yes();
}

/// Integers divided by their length: the scale of the operand cancels in the quotient.
void lower_quantized_length(const ipr::Layer& layer, Plan& plan, const Rows& rows) {
  const ipr::TensorInfo in = layer.input(0);
  const Value out = plan.create(rows.value.dtype, rows.value.shape);
  Template functions(R"(
inline long times(long a, long b) { return min(high_mul(a, b), 2147483647L); }
inline long moved(long x, int s) { return clamp(x << s, -2147483648L, 2147483647L); }
)");
  Template code(R"(
  int squares = 0;
  for (int r = 0; r < n; ++r) squares += (X(r) - zx) * (X(r) - zx);
  long m = 2147483647L;
  int s = 0;
  if (squares > 1) {
    const int quarters = max(0, (32 - (int)clz((uint)squares) - 28) / 2);
    const int reduced = squares >> (2 * quarters);
    const int pairs = ((int)clz((uint)max(reduced, 2)) - 1) / 2 - 1, shift = 11 + quarters - pairs;
    const long halved = divide_by_pot(((long)reduced << (2 * pairs)) >> 1, 1);
    long root = $ONE;
    for (int step = 0; step < 5; ++step) {
      const long cube = moved(times(times(root, root), root), 6);
      root = moved(times($MORE, root) - times(halved, cube), 3);
    }
    m = times(root, $HALF) << max(-shift, 0);
    s = -max(shift, 0);
  }
  for (int r = 0; r < n; ++r) y[AT(r)] = ($T)CLAMP(multiply((X(r) - zx) * $BEFORE, (int)m, s + $AFTER) + zy);
)");
  const bool is_signed = in.dtype() == IPR_DTYPE_INT8;
  code.set("ONE", std::to_string(native::constant(1, 3)) + "L").set("T", storage(out.dtype));
  code.set("MORE", std::to_string(native::constant(1.5, 3)) + "L");
  code.set("HALF", std::to_string(native::constant(std::sqrt(0.5))) + "L");
  code.set("BEFORE", is_signed ? "1" : "128").set("AFTER", is_signed ? "7" : "0");
  launch_rows(plan, "l2 norm", rows, out,
              {code.text(),
               ", int zx, int zy",
               {number(in.zero_point()), number(layer.output(0).zero_point())},
               true,
               arithmetic(out.dtype) + functions.text()});
  plan.set(layer.output(0).index(), out);
}

// ---- Integers without a scale -------------------------------------------------------------------------------------------------

ipr::Verdict integer_reduce_support(const ipr::Layer& layer) {
  const std::string_view operation = reduction_of(layer);
  if (layer.input(0).is_quantized() || layer.input(0).dtype() != layer.output(0).dtype())
    return ipr::no("input is " + described(layer.input(0)) + ", but the output is " + described(layer.output(0)),
                   IPR_REASON_DATA_TYPE);
  if (chooses(operation) && reduced_count(layer) == 0) return ipr::no("a result is of no elements", IPR_REASON_SHAPE);
  if (chooses(operation) || operation == "SUM" || operation == "PROD" || operation == "MEAN") return ipr::yes();
  return no_kernel(layer, "integers");
}

void lower_integer_reduce(const ipr::Layer& layer, Plan& plan) {
  const Rows rows = over(plan, plan.plain(layer.input(0).index()), axes_of(layer, "axis")).rows;
  const Value out = plan.create(rows.value.dtype, shape_of(layer.output(0)));
  const std::string_view operation = reduction_of(layer);
  const std::string type = storage(out.dtype), wide = type[0] == 'u' ? "ulong" : "long";
  const std::string code = "  " + wide + " v = " + (operation == "PROD" ? "1" : "0") +
                           ";\n  for (int r = 0; r < n; ++r) v " + (operation == "PROD" ? "*= " : "+= ") + "X(r);\n" +
                           (operation == "MEAN" ? "  v /= max(n, 1);\n" : "") + "  y[row] = (" + type + ")v;";
  launch_rows(plan, "reduce", rows, out, {chooses(operation) ? choice(operation, type) : code, "", {}, true});
  plan.set(layer.output(0).index(), out);
}

}  // namespace gpuacc
