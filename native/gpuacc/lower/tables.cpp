// Functions of single quantized values of 8 bits, whose results are looked up.

#include "common/tables8.hpp"
#include "gpuacc/pointwise.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

native::Quantized8 quantized8(const ipr::TensorInfo& info) {
  return {scale32(info), info.zero_point(), info.dtype() == IPR_DTYPE_INT8};
}

native::Activation8 activation_of(const ipr::Layer& layer) {
  return {layer.text("function"), layer.number("a"), layer.number("b"), layer.text("requantization") == "HALF_TO_EVEN"};
}

std::string_view operation_name(const ipr::Layer& layer) {
  return layer.type() == "Floor" ? std::string_view("FLOOR") : layer.text("operation");
}

/// Operand and result of 8 bits, of the same or of different types, with one scale each.
ipr::Verdict two_scales(const ipr::Layer& layer) {
  for (const ipr::TensorInfo& info : {layer.input(0), layer.output(0)}) {
    if (!is_quantized8(info))
      return ipr::no("a tensor is " + described(info) + "; takes int8 and uint8", IPR_REASON_DATA_TYPE);
    if (info.axis() >= 0)
      return ipr::no("a tensor is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
    if (!(scale32(info) > 0)) return ipr::no("a scale is 0 in float32", IPR_REASON_QUANTIZATION);
  }
  return ipr::yes();
}

Value looked_up(Plan& plan, const ipr::TensorInfo& from, const ipr::TensorInfo& to, const native::Table8& table) {
  const int results = plan.constant("", 256, [&](char* bytes) { std::memcpy(bytes, table.data(), 256); });
  const Value out = plan.create(to.dtype(), shape_of(from));
  pointwise(plan, "table", {plan.plain(from.index())}, {"uchar"}, out, "  uchar v = table[o0];",
            ", global const uchar* restrict table", {reads(results)});
  return out;
}

}  // namespace

ipr::Verdict quantized_activation_support(const ipr::Layer& layer) {
  const ipr::Verdict verdict = two_scales(layer);
  if (is_refused(verdict)) return verdict;
  const native::Activation8 activation = activation_of(layer);
  if (!native::has_table(activation))
    return ipr::no("no kernel for the function " + std::string(activation.function) + " of quantized tensors",
                   IPR_REASON_ATTRIBUTE);
  if (!native::is_in_range(activation, quantized8(layer.input(0)), quantized8(layer.output(0))))
    return ipr::no("the scale of the result is too small", IPR_REASON_QUANTIZATION);
  return ipr::yes();
}

void lower_quantized_activation(const ipr::Layer& layer, Plan& plan) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  plan.set(out.index(),
           looked_up(plan, in, out, native::activation_table(activation_of(layer), quantized8(in), quantized8(out))));
}

ipr::Verdict quantized_unary_support(const ipr::Layer& layer) {
  const ipr::Verdict verdict = two_scales(layer);
  if (is_refused(verdict)) return verdict;
  if (native::has_unary_table(operation_name(layer))) return ipr::yes();
  return ipr::no("no kernel for " + std::string(operation_name(layer)) + " of quantized tensors", IPR_REASON_ATTRIBUTE);
}

void lower_quantized_unary(const ipr::Layer& layer, Plan& plan) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  plan.set(out.index(),
           looked_up(plan, in, out, native::unary_table(operation_name(layer), quantized8(in), quantized8(out))));
}

Value requantized(Plan& plan, const ipr::TensorInfo& from, const ipr::TensorInfo& to) {
  if (same_quantization(from, to)) return plan.plain(from.index());
  return looked_up(plan, from, to, native::requantization_table(quantized8(from), quantized8(to)));
}

}  // namespace gpuacc
