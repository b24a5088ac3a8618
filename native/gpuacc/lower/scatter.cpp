// ScatterNd and ScatterElements: updates of elements at indices that are data, in the order of the updates.

#include "gpuacc/lowering.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kMostIndices = 1 << 20;  // a work item applies its updates one after the other

bool is_update(const ipr::Layer& layer) { return layer.text("function") == "UPDATE"; }

/// The code that combines the element o with the update u.
std::string combination(const ipr::Layer& layer, bool of_floats) {
  const std::string_view function = layer.text("function");
  if (function == "ADD") return "o + u";
  if (function == "SUB") return "o - u";
  if (function == "MUL") return "o * u";
  const std::string sign = function == "MAX" ? ">" : "<";
  return of_floats ? "isnan(o) || o " + sign + " u ? o : u" : "o " + sign + " u ? o : u";
}

/// The statement that writes the update `from` to the element `at`.
std::string statement(const ipr::Layer& layer, int32_t dtype) {
  if (is_update(layer)) return "y[at] = updates[from];";
  const std::string type = storage(dtype), wide = is_float(dtype) ? "float" : type;
  return Template("{ const $E o = LD_$T(at, y), u = LD_$T(from, updates); ST_$T(($E)($CODE), at, y); }")
      .set("E", wide)
      .set("T", type)
      .set("CODE", combination(layer, is_float(dtype)))
      .text();
}

/// Updates are moved as bits; all other functions compute.
const char* element_type(const ipr::Layer& layer, int32_t dtype) {
  return is_update(layer) ? bits_type(ipr::item_size(dtype)) : storage(dtype);
}

ipr::Verdict scatter_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo indices = layer.input(1), updates = layer.input(2), out = layer.output(0);
  const bool has_input = layer.type() == "ScatterElements" || layer.flag("input_enabled", true);
  if (indices.dtype() != IPR_DTYPE_INT32 && indices.dtype() != IPR_DTYPE_INT64)
    return ipr::no("indices is " + described(indices) + "; takes int32 and int64", IPR_REASON_DATA_TYPE);
  if (!storage(out.dtype())) return ipr::no("no kernel writes " + described(out), IPR_REASON_DATA_TYPE);
  if (updates.dtype() != out.dtype() || (has_input && layer.input(0).dtype() != out.dtype()))
    return ipr::no("updates is " + described(updates) + ", but the output is " + described(out), IPR_REASON_DATA_TYPE);
  if (out.axis() >= 0 || !same_quantization(updates, out) || (has_input && !same_quantization(layer.input(0), out)))
    return ipr::no("tensors are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  if (!is_update(layer) && (out.is_quantized() || out.dtype() == IPR_DTYPE_BOOL))
    return ipr::no("no kernel for " + std::string(layer.text("function")) + " of " + described(out),
                   IPR_REASON_DATA_TYPE);
  if (indices.elements() > kMostIndices)
    return ipr::no("there are more than " + std::to_string(kMostIndices) + " indices", IPR_REASON_SHAPE);
  return ipr::yes();
}

/// A copy of the operand that is updated; zeros if the operand is a shape.
Value target_of(const ipr::Layer& layer, Plan& plan) {
  const ipr::TensorInfo info = layer.output(0);
  const Value out = plan.create(info.dtype(), shape_of(info));
  if (layer.type() == "ScatterElements" || layer.flag("input_enabled", true))
    plan.copy(plan.plain(layer.input(0).index()), 0, {1}, out, 0, {1}, {out.elements()});
  else
    plan.fill(out, info.is_quantized() ? uint64_t(info.zero_point()) : 0);
  return out;
}

// ---- ScatterNd ------------------------------------------------------------------------------------------------------------

ipr::Verdict tuple_support(const ipr::Layer& layer, const Target& target) {
  if (layer.input(1).extent(-1) > 8) return ipr::no("tuples have more than 8 indices", IPR_REASON_SHAPE);
  return scatter_support(layer, target);
}

/// The output is (sizes of a tuple, after), indices (count, tuple), updates (count, after). One work item for each
/// column of the rows.
void lower_tuples(const ipr::Layer& layer, Plan& plan) {
  const Value indices = plan.plain(layer.input(1).index()), updates = plan.plain(layer.input(2).index());
  const Value out = target_of(layer, plan);
  const int64_t depth = indices.shape.back(), count = product(Shape(indices.shape.begin(), indices.shape.end() - 1));
  const Shape sizes(out.shape.begin(), out.shape.begin() + depth);
  const int64_t after = product(Shape(out.shape.begin() + depth, out.shape.end()));
  std::string code;
  for (int64_t n = 0; n < depth; ++n) {
    const std::string s = std::to_string(n);
    plan.check_values(indices, {layer.index(), 1, "indices", -sizes[size_t(n)], sizes[size_t(n)] - 1, n, depth});
    code += "    { const int size = d.s" + s + "; const int j = (int)tuple[" + s +
            "]; row = row * size + clamp(j < 0 ? j + size : j, 0, size - 1); }\n";
  }
  Template source(R"(
kernel void k(global $T* y, global const $I* restrict indices, global const $T* restrict updates, int count, int after,
              int depth, int8 d) {
  const int i = get_global_id(0);
  if (i >= after) return;
  for (int c = 0; c < count; ++c) {
    global const $I* tuple = indices + c * depth;
    int row = 0;
$CODE    const int at = row * after + i, from = c * after + i;
    $STATEMENT
  }
}
)");
  source.set("STATEMENT", statement(layer, out.dtype)).set("CODE", code);
  source.set("T", element_type(layer, out.dtype)).set("I", storage(indices.dtype));
  if (out.elements() > 0)
    plan.launch_elements(
        "scatter tuples", preamble(plan.profile, plan.device.info) + source.text(),
        {writes(out), reads(indices), reads(updates), number(count), number(after), number(depth), numbers(sizes, 1)},
        after);
  plan.set(layer.output(0).index(), out);
}

// ---- ScatterElements ------------------------------------------------------------------------------------------------------

/// One work item for each row of the indices along the axis.
void lower_elements(const ipr::Layer& layer, Plan& plan) {
  const Value indices = plan.plain(layer.input(1).index()), updates = plan.plain(layer.input(2).index());
  const Value out = target_of(layer, plan);
  const size_t axis = size_t(normal_axis(layer.integer("axis"), layer.input(0).rank()));
  const int64_t size = out.shape[axis], count = indices.shape[axis];
  Shape rows = indices.shape, from = strides_of(indices.shape), to = strides_of(out.shape);
  const int64_t from_axis = from[axis], to_axis = to[axis];
  rows[axis] = 1, from[axis] = to[axis] = 0;
  plan.check_values(indices, {layer.index(), 1, "indices", -size, size - 1});
  std::string code;
  for (size_t n = rows.size(); n-- > 0;) {
    const std::string s = ".s" + std::to_string(n);
    code += "  { const int c = r % d" + s + "; r /= d" + s + "; from += c * sx" + s + "; base += c * sy" + s + "; }\n";
  }
  Template source(R"(
kernel void k(global $T* y, global const $I* restrict indices, global const $T* restrict updates, int n, int count,
              int size, int bx, int by, int8 d, int8 sx, int8 sy) {
  int r = get_global_id(0), from = 0, base = 0;
  if (r >= n) return;
$CODE  for (int c = 0; c < count; ++c, from += bx) {
    const int j = (int)indices[from];
    const int at = base + clamp(j < 0 ? j + size : j, 0, size - 1) * by;
    $STATEMENT
  }
}
)");
  source.set("STATEMENT", statement(layer, out.dtype)).set("CODE", code);
  source.set("T", element_type(layer, out.dtype)).set("I", storage(indices.dtype));
  if (out.elements() > 0)
    plan.launch_elements(
        "scatter elements", preamble(plan.profile, plan.device.info) + source.text(),
        {writes(out), reads(indices), reads(updates), number(product(rows)), number(count), number(size),
         number(from_axis), number(to_axis), numbers(rows, 1), numbers(from, 0), numbers(to, 0)},
        product(rows));
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings scatter_lowerings() {
  return {{"ScatterNd", tuple_support, lower_tuples}, {"ScatterElements", scatter_support, lower_elements}};
}

}  // namespace gpuacc
