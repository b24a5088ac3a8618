// EmbeddingLookup, OneHot and BlockDequantize: tables, codes, and weights of few bits.

#include <algorithm>
#include <cmath>

#include "gpuacc/lowering.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

// ---- EmbeddingLookup ------------------------------------------------------------------------------------------------------

ipr::Verdict lookup_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo lookups = layer.input(0), values = layer.input(1), out = layer.output(0);
  if (lookups.dtype() != IPR_DTYPE_INT32 && lookups.dtype() != IPR_DTYPE_INT64)
    return ipr::no("lookups is " + described(lookups) + "; takes int32 and int64", IPR_REASON_DATA_TYPE);
  if (!storage(values.dtype()) || values.dtype() != out.dtype())
    return ipr::no("values is " + described(values) + "; no kernel moves it", IPR_REASON_DATA_TYPE);
  if (values.axis() >= 0 || !same_quantization(values, out))
    return ipr::no("values and the result are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  if (values.elements() == 0 && out.elements() != 0) return ipr::no("values has no elements", IPR_REASON_SHAPE);
  return ipr::yes();
}

void lower_lookup(const ipr::Layer& layer, Plan& plan) {
  const Value lookups = plan.plain(layer.input(0).index()), values = plan.plain(layer.input(1).index());
  const int64_t rows = values.shape[0], after = product(Shape(values.shape.begin() + 1, values.shape.end()));
  const Value out = plan.create(values.dtype, shape_of(layer.output(0)));
  plan.check_values(lookups, {layer.index(), 0, "lookups", 0, rows - 1});
  Template source(R"(
kernel void k(global const $T* restrict x, global const $I* restrict lookups, global $T* restrict y, int n, int rows,
              int after) {
  const int i = get_global_id(0);
  if (i < n) y[i] = x[(int)clamp(lookups[i / after], ($I)0, ($I)(rows - 1)) * after + i % after];
}
)");
  source.set("T", bits_type(ipr::item_size(values.dtype))).set("I", storage(lookups.dtype));
  plan.launch_elements(
      "look up", source.text(),
      {reads(values), reads(lookups), writes(out), number(out.elements()), number(rows), number(after)},
      out.elements());
  plan.set(layer.output(0).index(), out);
}

// ---- OneHot ---------------------------------------------------------------------------------------------------------------

bool is_small_whole(double value) { return value == std::trunc(value) && value >= 0 && value <= 127; }

ipr::Verdict hot_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo indices = layer.input(0), out = layer.output(0);
  if (!storage(indices.dtype()) || is_float(indices.dtype()) || indices.dtype() == IPR_DTYPE_UINT64)
    return ipr::no("indices is " + described(indices) + "; takes integers of 8 bits and more, but uint64",
                   IPR_REASON_DATA_TYPE);
  if (!storage(out.dtype()) || out.is_quantized())
    return ipr::no("the output is " + described(out) + "; no kernel writes it", IPR_REASON_DATA_TYPE);
  for (const char* name : {"on_value", "off_value"})
    if (!is_float(out.dtype()) && !is_small_whole(layer.number(name)))
      return ipr::no(std::string(name) + " is not one of the integers 0 to 127", IPR_REASON_ATTRIBUTE);
  return ipr::yes();
}

void lower_hot(const ipr::Layer& layer, Plan& plan) {
  const Value indices = plan.plain(layer.input(0).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const int64_t depth = layer.integer("depth"),
                axis = normal_axis(layer.integer("axis", -1), int64_t(out.shape.size()));
  const int64_t after = product(Shape(out.shape.begin() + axis + 1, out.shape.end()));
  Template source(R"(
kernel void k(global const $I* restrict x, global $T* restrict y, int n, int depth, int after, float on, float off) {
  const int i = get_global_id(0);
  if (i >= n) return;
  long index = x[i / after / depth * after + i % after];
  if ($FROMEND && index < 0) index += depth;
  ST_$T(index == i / after % depth ? $ONE : $OTHER, i, y);
}
)");
  const bool is_bool = out.dtype == IPR_DTYPE_BOOL;
  source.set("FROMEND", layer.flag("from_end") ? "1" : "0");
  source.set("ONE", is_bool ? "on != 0" : "on").set("OTHER", is_bool ? "off != 0" : "off");
  source.set("I", storage(indices.dtype)).set("T", storage(out.dtype));
  plan.launch_elements("one hot", preamble(plan.profile, plan.device.info) + source.text(),
                       {reads(indices), writes(out), number(out.elements()), number(depth), number(after),
                        real(layer.number("on_value", 1)), real(layer.number("off_value"))},
                       out.elements());
  plan.set(layer.output(0).index(), out);
}

// ---- BlockDequantize ------------------------------------------------------------------------------------------------------

/// The code of an element e that a byte holds in its low bits; nullptr for types of more bits.
const char* number_in_byte(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_INT8:
      return "(int)(char)e";
    case IPR_DTYPE_UINT8:
      return "(int)e";
    case IPR_DTYPE_INT4:
      return "(int)((e & 15) ^ 8) - 8";
    case IPR_DTYPE_UINT4:
      return "(int)(e & 15)";
    case IPR_DTYPE_INT2:
      return "(int)((e & 3) ^ 2) - 2";
    case IPR_DTYPE_UINT2:
      return "(int)(e & 3)";
    default:
      return nullptr;
  }
}

ipr::Verdict block_support(const ipr::Layer& layer, const Target& target) {
  const ipr::TensorInfo in = layer.input(0), scale = layer.input(1), out = layer.output(0);
  if (!number_in_byte(in.dtype()))
    return ipr::no("input is " + described(in) + "; takes integers of 2, 4 and 8 bits", IPR_REASON_DATA_TYPE);
  if (!is_float(scale) || !is_float(out))
    return ipr::no("scale is " + described(scale) + " and the output " + described(out) + "; takes float32 and float16",
                   IPR_REASON_DATA_TYPE);
  if (out.dtype() == IPR_DTYPE_FLOAT16 && !target.device.has_double)
    return ipr::no("the device has no float64, in which products for float16 are exact", IPR_REASON_RESOURCE);
  return ipr::yes();
}

void lower_block(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index()), scale = plan.plain(layer.input(1).index());
  const ipr::TensorInfo zero_point = layer.input(2);
  const Value zeros = zero_point ? plan.plain(zero_point.index()) : in;
  const Value out = plan.create(layer.output(0).dtype(), in.shape);
  const size_t axis = size_t(normal_axis(layer.integer("axis", 1), int64_t(in.shape.size())));
  const int64_t block = std::min(layer.integer("block_size"), in.shape[axis]);
  Template source(R"(
inline int value(uchar e) { return $VALUE; }
kernel void k(global const uchar* restrict x, global const $S* restrict scale, global const uchar* restrict zeros,
              global $T* restrict y, int n, int size, int blocks, int block, int after) {
  const int i = get_global_id(0);
  if (i >= n) return;
  const int at = (i / after / size * blocks + i / after % size / block) * after + i % after;
  const int steps = value(x[i])$ZERO;
  ST_$T((float)((ACC)steps * LD_$S(at, scale)), i, y);
}
)");
  source.set("VALUE", number_in_byte(in.dtype)).set("ZERO", zero_point ? " - value(zeros[at])" : "");
  source.set("S", storage(scale.dtype)).set("T", storage(out.dtype));
  plan.launch_elements(
      "dequantize blocks", preamble(plan.profile, plan.device.info) + source.text(),
      {reads(in), reads(scale), reads(zeros), writes(out), number(out.elements()), number(in.shape[axis]),
       number(scale.shape[axis]), number(block), number(strides_of(in.shape)[axis])},
      out.elements());
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings lookup_lowerings() {
  return {{"EmbeddingLookup", lookup_support, lower_lookup},
          {"OneHot", hot_support, lower_hot},
          {"BlockDequantize", block_support, lower_block}};
}

}  // namespace gpuacc
