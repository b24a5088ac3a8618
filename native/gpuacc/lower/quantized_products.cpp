// BatchMatMul of quantized tensors of 8 bits: a product of int16 without zero points, rescaled as in the reference.

#include "gpuacc/products.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

/// An operand less its zero point, with its last two axes exchanged if it is `transposed`.
Value centered(const ipr::TensorInfo& info, Plan& plan, bool transposed) {
  const Value in = plan.plain(info.index()), out = plan.create(IPR_DTYPE_INT16, in.shape);
  const int64_t zero = info.zero_points().size() > 0 ? info.zero_points()[0] : 0;
  pointwise(plan, "center", {in}, {"int"}, out, "  int v = o0 - zero;", ", int zero", {number(zero)});
  if (!transposed || in.shape.size() < 2) return out;
  Shape shape = in.shape, strides = strides_of(shape);
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  std::swap(strides[shape.size() - 1], strides[shape.size() - 2]);
  return plan.strided(out, 0, strides, shape);
}

Value numbers_of(int buffer, int64_t count) {
  Value value;
  value.buffer = buffer;
  value.dtype = IPR_DTYPE_INT32;
  value.shape = {count};
  return value;
}

}  // namespace

ipr::Verdict quantized_matrices_support(const ipr::Layer& layer) {
  const ipr::TensorInfo a = layer.input(0), b = layer.input(1), out = layer.output(0);
  if (!is_quantized8(b) || !is_quantized8(out) || out.dtype() != a.dtype())
    return ipr::no(
        "b is " + described(b) + " and the output is " + described(out) + "; takes int8 and uint8 with scales",
        IPR_REASON_DATA_TYPE);
  if (a.axis() >= 0 || out.axis() >= 0)
    return ipr::no("a or the output is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
  const int64_t columns = b.rank() - (layer.flag("transpose_y") ? 2 : 1);
  if (b.axis() >= 0 && (b.rank() < 2 || b.axis() != columns))
    return ipr::no("b is quantized along another axis than its columns", IPR_REASON_QUANTIZATION);
  for (int64_t zero : b.zero_points())
    if (zero != b.zero_points()[0]) return ipr::no("b has several zero points; takes one", IPR_REASON_QUANTIZATION);
  return ipr::yes();
}

void lower_quantized_matrices(const ipr::Layer& layer, Plan& plan) {
  const ipr::TensorInfo out = layer.output(0);
  const Value a = centered(layer.input(0), plan, layer.flag("transpose_x"));
  const Value b = centered(layer.input(1), plan, layer.flag("transpose_y"));
  const Value sums = integer_product(plan, a, b, shape_of(out));
  const int64_t scales = int64_t(layer.input(1).scales().size());
  const auto [multipliers, shifts] = channel_factors(layer, plan, scales, true);
  const Value y = plan.create(out.dtype(), sums.shape);
  const std::string type = storage(y.dtype);
  pointwise(plan, "rescale", {sums, numbers_of(multipliers, scales), numbers_of(shifts, scales)}, {"int", "int", "int"},
            y, "  " + type + " v = (" + type + ")CLAMP(multiply(o0, o1, o2) + zero);", ", int zero",
            {number(out.zero_point())}, arithmetic(y.dtype));
  plan.set(out.index(), y);
}

}  // namespace gpuacc
