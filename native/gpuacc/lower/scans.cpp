// Layers along an axis whose results depend on the order of elements: cumulative sums and products, sorting, and the
// layers that select elements by their place.

#include "gpuacc/rows.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

bool is_number(const ipr::TensorInfo& info) {
  return storage(info.dtype()) && info.dtype() != IPR_DTYPE_BOOL && !info.is_quantized();
}

ipr::Verdict number_support(const ipr::Layer& layer, const Target&) {
  if (is_number(layer.input(0))) return ipr::yes();
  return ipr::no("input is " + described(layer.input(0)) + "; takes float32, float16, and integers without a scale",
                 IPR_REASON_DATA_TYPE);
}

// ---- CumSum, CumProd ----------------------------------------------------------------------------------------------------

void lower_accumulation(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, in.shape);
  const bool is_sum = layer.type() == "CumSum", is_exclusive = layer.flag("exclusive");
  const std::string type = is_float(in.dtype) ? "float" : ipr::item_size(in.dtype) == 8 ? "ulong" : "uint";
  Template code(R"(
  $S total = $FIRST;
  for (int c = 0; c < n; ++c) {
    const int r = $PLACE;
    const $S e = X(r);
    $EXCLUSIVE
    total = c == 0 ? e : total $SIGN e;
    $INCLUSIVE
  }
)");
  code.set("FIRST", is_sum ? "0" : "1").set("SIGN", is_sum ? "+" : "*");
  code.set("PLACE", layer.flag("reverse") ? "n - 1 - c" : "c");
  code.set("EXCLUSIVE", is_exclusive ? "ST_$O(total, AT(r), y);" : "");
  code.set("INCLUSIVE", is_exclusive ? "" : "ST_$O(total, AT(r), y);");
  launch_rows(plan, "accumulate", along(in, normal_axis(layer.integer("axis"), layer.input(0).rank())), out,
              {code.set("S", type).text(), "", {}, true});
  plan.set(layer.output(0).index(), out);
}

// ---- TopK ---------------------------------------------------------------------------------------------------------------

constexpr int64_t kLongestSortedRow = 1 << 15;
constexpr int64_t kMostCompared = int64_t(1) << 34;  // pairs of elements, which take seconds on a processor

ipr::Verdict sort_support(const ipr::Layer& layer, const Target& target) {
  const ipr::TensorInfo in = layer.input(0);
  const int64_t size = in.extent(int32_t(normal_axis(layer.integer("axis"), in.rank())));
  if (size > kLongestSortedRow)
    return ipr::no("rows have more than " + std::to_string(kLongestSortedRow) + " elements", IPR_REASON_SHAPE);
  if (in.elements() * size > kMostCompared)
    return ipr::no("more than " + std::to_string(kMostCompared) + " pairs of elements would be compared",
                   IPR_REASON_SHAPE);
  const int32_t indices = layer.output(1).dtype();
  if (indices != IPR_DTYPE_INT32 && indices != IPR_DTYPE_INT64)
    return ipr::no("the indices are " + described(layer.output(1)) + "; gives int32 and int64", IPR_REASON_DATA_TYPE);
  return number_support(layer, target);
}

/// Each work item counts the elements that come before its own. NaN is greater than all other elements.
void lower_top(const ipr::Layer& layer, Plan& plan) {
  const Rows rows =
      along(plan.plain(layer.input(0).index()), normal_axis(layer.integer("axis"), layer.input(0).rank()));
  const Value& in = rows.value;
  const Value values = plan.create(in.dtype, shape_of(layer.output(0)));
  const Value indices = plan.create(layer.output(1).dtype(), shape_of(layer.output(1)));
  const std::string sign = layer.flag("largest") ? ">" : "<";
  const std::string greater = sign == ">" ? "isnan(f) ? !isnan(e) : f > e" : "isnan(e) ? !isnan(f) : f < e";
  Template source(R"(
kernel void k(global const $T* restrict x, global const $Q* restrict bits, global $Q* restrict values,
              global $I* restrict indices, int count, int n, int inner, int K) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int own = i / inner % n, base = i - own * inner;
  const $E e = LD_$T(i, x);
  int before = 0;
  for (int r = 0; r < n; ++r) {
    const $E f = LD_$T(base + r * inner, x);
    before += ($GREATER) || (r < own && ($EQUAL));
  }
  if (before >= K) return;
  const int at = (i / inner / n * K + before) * inner + i % inner;
  values[at] = bits[i];
  indices[at] = own;
}
)");
  source.set("GREATER", is_float(in.dtype) ? greater : "f " + sign + " e");
  source.set("EQUAL", is_float(in.dtype) ? "f == e || (isnan(f) && isnan(e))" : "f == e");
  source.set("E", is_float(in.dtype) ? "float" : storage(in.dtype)).set("T", storage(in.dtype));
  source.set("Q", bits_type(ipr::item_size(in.dtype))).set("I", storage(indices.dtype));
  plan.launch_elements("top", preamble(plan.profile, plan.device.info) + source.text(),
                       {reads(in), reads(in), writes(values), writes(indices), number(in.elements()),
                        number(rows.count), number(rows.inner), number(layer.integer("k"))},
                       in.elements());
  plan.set(layer.output(0).index(), values);
  plan.set(layer.output(1).index(), indices);
}

// ---- Hardmax ------------------------------------------------------------------------------------------------------------

ipr::Verdict float_support(const ipr::Layer& layer, const Target&) { return all_float(layer); }

void lower_hardmax(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, in.shape);
  const char* code = R"(
  int best = 0;
  for (int r = 1; r < n && !isnan(X(best)); ++r) best = isnan(X(r)) || X(r) > X(best) ? r : best;
  for (int r = 0; r < n; ++r) ST_$O(r == best ? 1.0f : 0.0f, AT(r), y);
)";
  launch_rows(plan, "hardmax", along(in, normal_axis(layer.integer("axis"), layer.input(0).rank())), out,
              {code, "", {}, true});
  plan.set(layer.output(0).index(), out);
}

// ---- Normalization of local responses -------------------------------------------------------------------------------------

ipr::Verdict response_support(const ipr::Layer& layer, const Target&) {
  if (layer.text("method_type") != "LOCAL_BRIGHTNESS")
    return ipr::no("no kernel for the method " + std::string(layer.text("method_type")), IPR_REASON_ATTRIBUTE);
  if (layer.integer("norm_size") > 1 << 20) return ipr::no("norm_size is greater than 2**20", IPR_REASON_RESOURCE);
  return all_float(layer);
}

/// The axes of the window: the channels, or height and width.
std::vector<int64_t> window_axes(const ipr::Layer& layer) {
  const bool last = !layer.text("data_layout").empty() && layer.text("data_layout").back() == 'C';
  if (layer.text("channel_type") == "WITHIN") return last ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 3};
  const ipr_attribute* axis = layer.find("axis");
  const int64_t rank = layer.input(0).rank();
  if (axis && axis->kind != IPR_KIND_NONE) return {normal_axis(axis->i, rank)};
  return {last ? rank - 1 : std::min<int64_t>(1, rank - 1)};
}

void lower_responses(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, in.shape);
  const std::vector<int64_t> axes = window_axes(layer);
  std::vector<Argument> arguments = {reads(in), writes(out), number(in.elements())};
  for (size_t n = 0; n < 2; ++n) {  // a second axis of one element, if there is one only
    const bool has_axis = n < axes.size();
    arguments.push_back(number(has_axis ? in.shape[size_t(axes[n])] : 1));
    arguments.push_back(number(has_axis ? strides_of(in.shape)[size_t(axes[n])] : 1));
  }
  const int64_t size = layer.integer("norm_size");
  for (int64_t value : {(size - 1) / 2, size - 1 - (size - 1) / 2}) arguments.push_back(number(value));
  for (const char* name : {"k", "alpha", "beta"}) arguments.push_back(real(layer.number(name)));
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int count, int na, int sa, int nb, int sb, int before,
              int after, float offset, float alpha, float beta) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int a = i / sa % na, b = $SECOND;
  ACC sum = 0;
  for (int p = max(a - before, 0); p <= min(a + after, na - 1); ++p)
    for (int q = max(b - before, 0); q <= min(b + after, nb - 1); ++q) {
      const ACC e = LD_$T(i + (p - a) * sa + (q - b) * sb, x);
      sum += e * e;
    }
  ST_$T((float)(LD_$T(i, x) / pow(offset + alpha * sum, (ACC)beta)), i, y);
}
)");
  source.set("SECOND", axes.size() > 1 ? "i / sb % nb" : "0").set("T", storage(in.dtype));
  plan.launch_elements("local responses", preamble(plan.profile, plan.device.info) + source.text(), arguments,
                       in.elements());
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings scan_lowerings() {
  return {{"CumSum", number_support, lower_accumulation},
          {"CumProd", number_support, lower_accumulation},
          {"TopK", sort_support, lower_top},
          {"Hardmax", float_support, lower_hardmax},
          {"Normalization", response_support, lower_responses}};
}

}  // namespace gpuacc
