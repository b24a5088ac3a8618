// Gather, GatherNd and GatherElements: elements at indices that are data.

#include "gpuacc/lowering.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

ipr::Verdict gather_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo params = layer.input(0), indices = layer.input(1), out = layer.output(0);
  if (!storage(params.dtype()) || params.dtype() != out.dtype())
    return ipr::no("params is " + described(params) + "; no kernel moves it", IPR_REASON_DATA_TYPE);
  if (indices.dtype() != IPR_DTYPE_INT32 && indices.dtype() != IPR_DTYPE_INT64)
    return ipr::no("indices is " + described(indices) + "; takes int32 and int64", IPR_REASON_DATA_TYPE);
  if (params.axis() >= 0 || !same_quantization(params, out))
    return ipr::no("params and the result are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  if (params.elements() == 0 && out.elements() != 0) return ipr::no("params has no elements", IPR_REASON_SHAPE);
  return ipr::yes();
}

/// Indices that are not constant are checked in each run. Those that are wrong are clamped in the kernel.
void check_indices(const ipr::Layer& layer, Plan& plan, const Value& indices, int64_t size) {
  if (layer.input(1).is_constant()) return;
  plan.check_values(indices, {layer.index(), 1, "indices", -size, size - 1});
}

int64_t product_of(const Shape& shape, int64_t first, int64_t last) {
  return product(Shape(shape.begin() + first, shape.begin() + last));
}

/// params is (batch, before, size, after), indices is (batch, count), the result (batch, before, count, after).
void lower_gather(const ipr::Layer& layer, Plan& plan) {
  const Value params = plan.plain(layer.input(0).index()), indices = plan.plain(layer.input(1).index());
  const int64_t rank = int64_t(params.shape.size()), axis = normal_axis(layer.integer("axis"), rank);
  const int64_t batch_dims = layer.integer("batch_dims"), size = params.shape[size_t(axis)];
  const int64_t before = product_of(params.shape, batch_dims, axis), after = product_of(params.shape, axis + 1, rank);
  const int64_t count = product_of(indices.shape, batch_dims, int64_t(indices.shape.size()));
  const Value out = plan.create(params.dtype, shape_of(layer.output(0)));
  check_indices(layer, plan, indices, size);
  Template source(R"(
kernel void k(global const $T* restrict x, global const $I* restrict indices, global $T* restrict y, int n, int before,
              int size, int after, int count) {
  int i = get_global_id(0);
  if (i >= n) return;
  int c = i % after, r = i / after, j = r % count, p = r / count;
  int at = (int)indices[p / before * count + j];
  at = clamp(at < 0 ? at + size : at, 0, size - 1);
  y[i] = x[(p * size + at) * after + c];
}
)");
  source.set("T", bits_type(ipr::item_size(params.dtype))).set("I", storage(indices.dtype));
  plan.launch_elements("gather", source.text(),
                       {reads(params), reads(indices), writes(out), number(out.elements()), number(before),
                        number(size), number(after), number(count)},
                       out.elements());
  plan.set(layer.output(0).index(), out);
}

void lower_elements(const ipr::Layer& layer, Plan& plan) {
  const Value params = plan.plain(layer.input(0).index()), indices = plan.plain(layer.input(1).index());
  const int64_t rank = int64_t(params.shape.size()), axis = normal_axis(layer.integer("axis"), rank);
  const int64_t size = params.shape[size_t(axis)];
  Shape strides = strides_of(params.shape);
  const int64_t by_axis = strides[size_t(axis)];
  strides[size_t(axis)] = 0;
  const Value out = plan.create(params.dtype, indices.shape);
  check_indices(layer, plan, indices, size);
  std::string code;
  for (size_t n = size_t(rank); n-- > 0;) {
    const std::string s = ".s" + std::to_string(n);
    code += "  at += r % d" + s + " * sx" + s + "; r /= d" + s + ";\n";
  }
  Template source(R"(
kernel void k(global const $T* restrict x, global const $I* restrict indices, global $T* restrict y, int n, int size,
              int by, int8 d, int8 sx) {
  int i = get_global_id(0);
  if (i >= n) return;
  int r = i, at = 0, index = (int)indices[i];
$CODE  index = clamp(index < 0 ? index + size : index, 0, size - 1);
  y[i] = x[at + index * by];
}
)");
  source.set("T", bits_type(ipr::item_size(params.dtype))).set("I", storage(indices.dtype)).set("CODE", code);
  plan.launch_elements("gather elements", source.text(),
                       {reads(params), reads(indices), writes(out), number(out.elements()), number(size),
                        number(by_axis), numbers(indices.shape, 1), numbers(strides, 0)},
                       out.elements());
  plan.set(layer.output(0).index(), out);
}

ipr::Verdict gather_nd_support(const ipr::Layer& layer, const Target& target) {
  if (layer.input(1).extent(-1) > 8) return ipr::no("tuples have more than 8 indices", IPR_REASON_SHAPE);
  return gather_support(layer, target);
}

/// params is (batch, sizes of a tuple, after), indices is (batch, count, tuple), the result (batch, count, after).
void lower_gather_nd(const ipr::Layer& layer, Plan& plan) {
  const Value params = plan.plain(layer.input(0).index()), indices = plan.plain(layer.input(1).index());
  const int64_t rank = int64_t(params.shape.size()), batch_dims = layer.integer("batch_dims");
  const int64_t depth = indices.shape.back(), last = int64_t(indices.shape.size()) - 1;
  const Shape sizes(params.shape.begin() + batch_dims, params.shape.begin() + batch_dims + depth);
  const int64_t after = product_of(params.shape, batch_dims + depth, rank);
  const Value out = plan.create(params.dtype, shape_of(layer.output(0)));
  std::string code;
  for (int64_t n = 0; n < depth; ++n) {
    const std::string s = std::to_string(n);
    if (!layer.input(1).is_constant())
      plan.check_values(indices, {layer.index(), 1, "indices", -sizes[size_t(n)], sizes[size_t(n)] - 1, n, depth});
    code += "  { const int size = d.s" + s + "; int j = (int)tuple[" + s +
            "]; at = at * size + clamp(j < 0 ? j + size : j, 0, size - 1); }\n";
  }
  Template source(R"(
kernel void k(global const $T* restrict x, global const $I* restrict indices, global $T* restrict y, int n, int count,
              int after, int depth, int8 d) {
  int i = get_global_id(0);
  if (i >= n) return;
  int r = i / after, at = r / count;
  global const $I* tuple = indices + r * depth;
$CODE  y[i] = x[at * after + i % after];
}
)");
  source.set("T", bits_type(ipr::item_size(params.dtype))).set("I", storage(indices.dtype)).set("CODE", code);
  plan.launch_elements(
      "gather tuples", source.text(),
      {reads(params), reads(indices), writes(out), number(out.elements()),
       number(product_of(indices.shape, batch_dims, last)), number(after), number(depth), numbers(sizes, 1)},
      out.elements());
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings gather_lowerings() {
  return {{"Gather", gather_support, lower_gather},
          {"GatherNd", gather_nd_support, lower_gather_nd},
          {"GatherElements", gather_support, lower_elements}};
}

}  // namespace gpuacc
