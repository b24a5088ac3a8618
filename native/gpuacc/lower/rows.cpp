// Layers that reduce or normalize rows: softmax, reductions, normalizations, searches.

#include "gpuacc/rows.hpp"

#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {

Rows along(const Value& value, int64_t axis) {
  Rows rows;
  rows.value = value;
  for (int64_t n = 0; n < int64_t(value.shape.size()); ++n)
    (n < axis ? rows.outer : n == axis ? rows.count : rows.inner) *= value.shape[size_t(n)];
  return rows;
}

void launch_rows(Plan& plan, const std::string& name, const Rows& rows, const Value& out, const RowKernel& kernel) {
  const int64_t group =
      kernel.alone ? 1 : std::min<int64_t>(plan.profile.row_group, int64_t(plan.device.info.group_limit));
  Template source(R"(
#define LS $GROUP
#define EACH for (int r = lid; r < n; r += LS)
#define AT(r) (base + (r) * inner)
#define X(r) LD_$T(AT(r), x)
#if LS > 1
#define ALL(value, combine) { \
    part[lid] = value; \
    barrier(CLK_LOCAL_MEM_FENCE); \
    for (int d = LS / 2; d > 0; d >>= 1) { \
      if (lid < d) { const ACC a = part[lid], b = part[lid + d]; part[lid] = combine; } \
      barrier(CLK_LOCAL_MEM_FENCE); \
    } \
    value = part[0]; \
    barrier(CLK_LOCAL_MEM_FENCE); \
  }
#else
#define ALL(value, combine)
#endif
#define SUM_ALL(value) ALL(value, a + b)
#define MAX_ALL(value) ALL(value, isnan(a) || a > b ? a : b)
#define MIN_ALL(value) ALL(value, isnan(a) || a < b ? a : b)
kernel void k(global const $T* restrict x, global $O* restrict y, int rows, int inner, int n$MORE) {
#if LS > 1
  local ACC part[LS];
  const int row = get_group_id(0), lid = get_local_id(0);
#else
  const int row = get_global_id(0), lid = 0;
  if (row >= rows) return;
#endif
  const int base = row / inner * n * inner + row % inner;
$CODE
}
)");
  source.set("CODE", kernel.code).set("GROUP", group).set("MORE", kernel.declarations);
  source.set("T", storage(rows.value.dtype)).set("O", storage(out.dtype));
  std::vector<Argument> arguments = {reads(rows.value), writes(out), number(rows.rows()), number(rows.inner),
                                     number(rows.count)};
  arguments.insert(arguments.end(), kernel.more.begin(), kernel.more.end());
  const int64_t local = group > 1 ? group : std::min<int64_t>(rows.rows(), 8);
  plan.launch(name, preamble(plan.profile, plan.device.info) + kernel.functions + source.text(), arguments,
              {group > 1 ? rows.rows() * group : rows.rows(), 1, 1}, {std::max<int64_t>(local, 1), 1, 1});
}

namespace {

/// The axes that are not in `axes`, then those in `axes`.
std::vector<size_t> last_axes(size_t rank, const std::vector<bool>& axes) {
  std::vector<size_t> order;
  for (bool wanted : {false, true})
    for (size_t axis = 0; axis < rank; ++axis)
      if (axes[axis] == wanted) order.push_back(axis);
  return order;
}

Value permuted(Plan& plan, const Value& value, const std::vector<size_t>& order) {
  const Shape strides = strides_of(value.shape);
  Shape shape, by;
  for (size_t axis : order) shape.push_back(value.shape[axis]), by.push_back(strides[axis]);
  return plan.strided(value, 0, by, shape);
}

}  // namespace

ReducedRows over(Plan& plan, const Value& value, const std::vector<bool>& axes) {
  ReducedRows found;
  Rows& rows = found.rows;
  rows.value = value;
  const size_t rank = axes.size();
  size_t first = 0, last = rank;
  while (first < rank && !axes[first]) ++first;
  while (last > first && !axes[last - 1]) --last;
  bool adjacent = true;
  for (size_t axis = first; axis < last; ++axis) adjacent = adjacent && (axes[axis] || value.shape[axis] == 1);
  if (!adjacent) {
    found.order = last_axes(rank, axes);
    rows.value = permuted(plan, value, found.order);
    for (size_t axis = 0; axis < rank; ++axis) (axes[axis] ? rows.count : rows.outer) *= value.shape[axis];
    return found;
  }
  for (size_t axis = 0; axis < rank; ++axis)
    (axis < first ? rows.outer : axis < last ? rows.count : rows.inner) *= value.shape[axis];
  return found;
}

std::vector<bool> axes_of(const ipr::Layer& layer, const char* name) {
  const int64_t rank = layer.input(0).rank();
  std::vector<bool> axes(size_t(rank), layer.integers(name).empty());
  for (int64_t axis : layer.integers(name)) axes[size_t(normal_axis(axis, rank))] = true;
  return axes;
}

std::string_view reduction_of(const ipr::Layer& layer) {
  return layer.type() == "Mean" ? std::string_view("MEAN") : layer.text("operation");
}

Value ReducedRows::restored(Plan& plan, const Value& value) const {
  if (order.empty()) return value;
  std::vector<size_t> back(order.size());
  for (size_t n = 0; n < order.size(); ++n) back[order[n]] = n;
  return permuted(plan, value, back);
}

namespace {

ipr::Verdict float_support(const ipr::Layer& layer, const Target&) { return all_float(layer); }

// ---- Softmax ------------------------------------------------------------------------------------------------------------

ipr::Verdict softmax_support(const ipr::Layer& layer, const Target&) {
  return is_quantized8(layer.output(0)) ? quantized_softmax_support(layer) : all_float(layer);
}

void lower_softmax(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.output(0))) return lower_quantized_softmax(layer, plan);
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, in.shape);
  std::string code = R"(
  ACC most = -INFINITY;
  EACH most = fmax(most, (ACC)(X(r) * beta));
  MAX_ALL(most)
  const float top = (float)most;
  ACC sum = 0;
)";
  if (layer.type() == "LogSoftmax")
    code += R"(
  EACH sum += (ACC)exp(X(r) * beta - top);
  SUM_ALL(sum)
  const float total = log((float)sum);
  EACH ST_$O(X(r) * beta - top - total, AT(r), y);)";
  else if (out.dtype == IPR_DTYPE_FLOAT32)  // exponentials wait in the result
    code += R"(
  EACH { const float e = exp(X(r) * beta - top); sum += (ACC)e; y[AT(r)] = e; }
  SUM_ALL(sum)
  const float scale = 1.0f / (float)sum;
  EACH y[AT(r)] *= scale;)";
  else
    code += R"(
  EACH sum += (ACC)exp(X(r) * beta - top);
  SUM_ALL(sum)
  const float scale = 1.0f / (float)sum;
  EACH ST_$O(exp(X(r) * beta - top) * scale, AT(r), y);)";
  launch_rows(plan, "softmax", along(in, normal_axis(layer.integer("axis"), layer.input(0).rank())), out,
              {code, ", float beta", {real(layer.number("beta", 1))}});
  plan.set(layer.output(0).index(), out);
}

bool is_plain_integer(const ipr::TensorInfo& info) {
  return !info.is_quantized() && info.dtype() != IPR_DTYPE_BOOL && !is_float(info) && storage(info.dtype());
}

// ---- Reductions -----------------------------------------------------------------------------------------------------------

const char* reduction_code(std::string_view operation) {
  if (operation == "SUM") return "ACC v = 0; EACH v += X(r); SUM_ALL(v)";
  if (operation == "MEAN") return "ACC v = 0; EACH v += X(r); SUM_ALL(v) v /= n;";
  if (operation == "SUM_SQUARE") return "ACC v = 0; EACH v += (ACC)X(r) * X(r); SUM_ALL(v)";
  if (operation == "L1") return "ACC v = 0; EACH v += fabs((ACC)X(r)); SUM_ALL(v)";
  if (operation == "L2") return "ACC v = 0; EACH v += (ACC)X(r) * X(r); SUM_ALL(v) v = sqrt(v);";
  if (operation == "LOG_SUM") return "ACC v = 0; EACH v += X(r); SUM_ALL(v) v = log(v);";
  if (operation == "PROD") return "ACC v = 1; EACH v *= X(r); ALL(v, a * b)";
  if (operation == "MAX")
    return "ACC v = -INFINITY; EACH { const ACC e = X(r); v = isnan(v) || v > e ? v : e; } MAX_ALL(v)";
  if (operation == "MIN")
    return "ACC v = INFINITY; EACH { const ACC e = X(r); v = isnan(v) || v < e ? v : e; } MIN_ALL(v)";
  if (operation == "LOG_SUM_EXP")
    return "ACC m = -INFINITY; EACH m = fmax(m, (ACC)X(r)); MAX_ALL(m) ACC v = 0;"
           "EACH v += isinf(m) && X(r) == m ? (ACC)1 : exp((ACC)X(r) - m); SUM_ALL(v) v = log(v) + m;";
  return nullptr;
}

/// Whether a layer reduces truth values; MAX is ANY, MIN is ALL.
bool is_of_truth(const ipr::Layer& layer) {
  const std::string_view operation = reduction_of(layer);
  return layer.input(0).dtype() == IPR_DTYPE_BOOL && layer.output(0).dtype() == IPR_DTYPE_BOOL &&
         (operation == "ANY" || operation == "ALL" || operation == "MAX" || operation == "MIN");
}

void lower_truth(const ipr::Layer& layer, Plan& plan) {
  const bool is_any = reduction_of(layer) == "ANY" || reduction_of(layer) == "MAX";
  const Rows rows = over(plan, plan.plain(layer.input(0).index()), axes_of(layer, "axis")).rows;
  const Value out = plan.create(IPR_DTYPE_BOOL, shape_of(layer.output(0)));
  const std::string code = std::string("  uchar v = ") + (is_any ? "0" : "1") + ";\n  for (int r = 0; r < n; ++r) v " +
                           (is_any ? "|" : "&") + "= X(r) != 0;\n  y[row] = v;";
  launch_rows(plan, "reduce", rows, out, {code, "", {}, true});
  plan.set(layer.output(0).index(), out);
}

ipr::Verdict reduce_support(const ipr::Layer& layer, const Target&) {
  if (is_quantized8(layer.input(0))) return quantized_reduce_support(layer);
  if (is_of_truth(layer)) return ipr::yes();
  if (is_plain_integer(layer.input(0))) return integer_reduce_support(layer);
  if (!reduction_code(reduction_of(layer)))
    return ipr::no("no kernel for " + std::string(reduction_of(layer)), IPR_REASON_ATTRIBUTE);
  return all_float(layer);
}

void lower_reduce(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_reduce(layer, plan);
  if (is_of_truth(layer)) return lower_truth(layer, plan);
  if (is_plain_integer(layer.input(0))) return lower_integer_reduce(layer, plan);
  const Rows rows = over(plan, plan.plain(layer.input(0).index()), axes_of(layer, "axis")).rows;
  const Value out = plan.create(rows.value.dtype, shape_of(layer.output(0)));
  launch_rows(plan, "reduce", rows, out,
              {std::string("  ") + reduction_code(reduction_of(layer)) + "\n  if (lid == 0) ST_$O((float)v, row, y);"});
  plan.set(layer.output(0).index(), out);
}

// ---- Normalizations ---------------------------------------------------------------------------------------------------------

constexpr char kMoments[] = R"(
  ACC mean = 0;
  EACH mean += X(r);
  SUM_ALL(mean)
  mean /= n;
  ACC variance = 0;
  EACH variance += ((ACC)X(r) - mean) * ((ACC)X(r) - mean);
  SUM_ALL(variance)
  variance /= n;
)";

/// A parameter that is absent, or one element, or has an index that `index` names.
struct Parameter {
  Value value;
  std::string code;  // of an element, or of what is absent
};

Parameter parameter(Plan& plan, const ipr::Layer& layer, size_t position, const char* name, const std::string& index,
                    const char* absent, const Value& other) {
  const ipr::TensorInfo info = layer.input(position);
  if (!info) return {other, absent};
  const Value value = plan.plain(info.index());
  const std::string at = value.elements() == 1 ? "0" : index;
  return {value, std::string("LD_$T(") + at + ", " + name + ")"};
}

/// Rows of the axes from `axis` on. Parameters have the shape of a row, or broadcast to the input.
void lower_layer_norm(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const int64_t rank = layer.input(0).rank(), axis = normal_axis(layer.integer("axis"), rank);
  Rows rows;
  rows.value = in;
  for (int64_t n = 0; n < rank; ++n) (n < axis ? rows.outer : rows.count) *= in.shape[size_t(n)];
  const bool is_rms = layer.type() == "RmsNormalization";
  const Value out = plan.create(in.dtype, in.shape);
  auto optional_parameter = [&](size_t position, const char* name, const char* absent) {
    Parameter found = parameter(plan, layer, position, name, "r", absent, in);
    const ipr::TensorInfo info = layer.input(position);
    if (!info || found.value.elements() == 1) return found;
    const Shape shape = shape_of(info), row(in.shape.begin() + axis, in.shape.end());
    if (shape == row) return found;
    found.value = plan.strided(found.value, 0, broadcast_strides(shape, in.shape), in.shape);
    found.code = std::string("LD_$T(AT(r), ") + name + ")";
    return found;
  };
  const Parameter gamma = optional_parameter(1, "gamma", "1.0f"),
                  beta = is_rms ? Parameter{in, "0.0f"} : optional_parameter(2, "beta", "0.0f");
  const std::string code =
      is_rms
          ? "  ACC square = 0;\n  EACH square += (ACC)X(r) * X(r);\n  SUM_ALL(square)\n"
            "  const ACC scale = 1 / sqrt(square / n + eps);\n  EACH ST_$O((float)(X(r) * scale * " +
                gamma.code + "), AT(r), y);"
          : kMoments + ("  const ACC scale = 1 / sqrt(variance + eps);\n  EACH ST_$O((float)((X(r) - mean) * scale * " +
                        gamma.code + " + " + beta.code + "), AT(r), y);");
  launch_rows(plan, "layer norm", rows, out,
              {code,
               ", float eps, global const $T* restrict gamma, global const $T* restrict beta",
               {real(layer.number("eps")), reads(gamma.value), reads(beta.value)}});
  plan.set(layer.output(0).index(), out);
}

bool is_channels_last(const ipr::Layer& layer) {
  const std::string_view layout = layer.text("data_layout");
  return !layout.empty() && layout.back() == 'C';
}

/// InstanceNormalization and GroupNormalization: a row for each group of channels of a sample.
void lower_group_norm(const ipr::Layer& layer, Plan& plan) {
  Value in = plan.plain(layer.input(0).index());
  const size_t rank = in.shape.size();
  const bool last = is_channels_last(layer);
  const int64_t channels = in.shape[last ? rank - 1 : 1];
  const int64_t groups = layer.type() == "InstanceNormalization" ? channels : layer.integer("num_groups");
  Rows rows;
  std::vector<size_t> order;
  if (last && groups == channels) {
    rows.inner = channels;
    rows.outer = in.shape[0];
  } else if (last) {
    order = {0, rank - 1};
    for (size_t axis = 1; axis + 1 < rank; ++axis) order.push_back(axis);
    in = permuted(plan, in, order);
  }
  if (rows.inner == 1) rows.outer = in.shape[0] * groups;
  rows.value = in;
  rows.count = rows.rows() ? in.elements() / rows.rows() : 0;
  const int64_t per_group = channels / std::max<int64_t>(groups, 1);
  const int64_t pixels = per_group ? rows.count / per_group : 0;
  const Value out = plan.create(in.dtype, in.shape);
  const std::string channel = "row % G * (C / G) + r / pixels";
  const Parameter gamma = parameter(plan, layer, 1, "gamma", channel, "1.0f", in);
  const Parameter beta = parameter(plan, layer, 2, "beta", channel, "0.0f", in);
  launch_rows(
      plan, "group norm", rows, out,
      {kMoments + ("  const ACC scale = 1 / sqrt(variance + eps);\n  EACH ST_$O((float)((X(r) - mean) * scale * " +
                   gamma.code + " + " + beta.code + "), AT(r), y);"),
       ", float eps, global const $T* restrict gamma, global const $T* restrict beta, int C, int G, int pixels",
       {real(layer.number("eps")), reads(gamma.value), reads(beta.value), number(channels), number(groups),
        number(std::max<int64_t>(pixels, 1))}});
  if (order.empty()) return plan.set(layer.output(0).index(), out);
  std::vector<size_t> back = {0};
  for (size_t axis = 2; axis < rank; ++axis) back.push_back(axis);
  back.push_back(1);
  plan.set(layer.output(0).index(), permuted(plan, out, back));
}

ipr::Verdict length_support(const ipr::Layer& layer, const Target&) {
  return is_quantized8(layer.output(0)) ? quantized_length_support(layer) : all_float(layer);
}

void lower_l2(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const int64_t rank = layer.input(0).rank();
  const ipr_attribute* axis = layer.find("axis");
  const bool has_axis = axis && axis->kind != IPR_KIND_NONE;
  const int64_t channel = is_channels_last(layer) ? rank - 1 : std::min<int64_t>(1, rank - 1);
  const Rows rows = along(in, has_axis ? normal_axis(axis->i, rank) : channel);
  if (is_quantized8(layer.output(0))) return lower_quantized_length(layer, plan, rows);
  const Value out = plan.create(in.dtype, in.shape);
  launch_rows(plan, "l2 norm", rows, out,
              {"  ACC square = 0;\n  EACH square += (ACC)X(r) * X(r);\n  SUM_ALL(square)\n"
               "  const ACC scale = 1 / sqrt(fmax(square, (ACC)eps));\n  EACH ST_$O((float)(X(r) * scale), AT(r), y);",
               ", float eps",
               {real(layer.number("eps"))}});
  plan.set(layer.output(0).index(), out);
}

/// Without axes, each element is normalized by itself.
void lower_moments(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const bool has_axes = !layer.integers("axis").empty();
  const ReducedRows reduced =
      over(plan, in, has_axes ? axes_of(layer, "axis") : std::vector<bool>(in.shape.size(), false));
  const Rows& rows = reduced.rows;
  const Value out = plan.create(in.dtype, rows.value.shape);
  launch_rows(plan, "mean variance", rows, out,
              {kMoments + std::string("  const ACC scale = 1 / (sqrt(variance) + eps);\n"
                                      "  EACH ST_$O((float)((X(r) - mean) * scale), AT(r), y);"),
               ", float eps",
               {real(layer.number("eps"))}});
  plan.set(layer.output(0).index(), reduced.restored(plan, out));
}

// ---- Searches -------------------------------------------------------------------------------------------------------------------

ipr::Verdict search_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0);
  if (in.dtype() == IPR_DTYPE_BOOL || !storage(in.dtype()))
    return ipr::no("input is " + described(in) + "; takes floats and integers", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

void lower_search(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = is_float(in.dtype) ? "float" : storage(in.dtype);
  const std::string sign = layer.text("function") == "MAX" ? ">" : "<",
                    last = layer.flag("select_last_index") ? "=" : "";
  const std::string code = "  " + type + " best = X(0);\n  int v = 0;\n  for (int r = 1; r < n; ++r) {\n    const " +
                           type + " e = X(r);\n    if (" +
                           (is_float(in.dtype) ? "isnan(best) ? isnan(e) && " + std::string(last.empty() ? "0" : "1") +
                                                     " : isnan(e) || e " + sign + last + " best"
                                               : "e " + sign + last + " best") +
                           ") best = e, v = r;\n  }\n  y[row] = v;";
  launch_rows(plan, "search", along(in, normal_axis(layer.integer("axis"), layer.input(0).rank())), out,
              {code, "", {}, true});
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings row_lowerings() {
  return {{"Softmax", softmax_support, lower_softmax},
          {"LogSoftmax", softmax_support, lower_softmax},
          {"Reduce", reduce_support, lower_reduce},
          {"Mean", reduce_support, lower_reduce},
          {"LayerNormalization", float_support, lower_layer_norm},
          {"RmsNormalization", float_support, lower_layer_norm},
          {"InstanceNormalization", float_support, lower_group_norm},
          {"GroupNormalization", float_support, lower_group_norm},
          {"L2Normalization", length_support, lower_l2},
          {"MeanVarianceNormalization", float_support, lower_moments},
          {"ArgMinMax", search_support, lower_search}};
}

}  // namespace gpuacc
