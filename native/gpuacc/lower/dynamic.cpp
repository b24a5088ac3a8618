// Integers whose scale and zero point follow from values at run time: DynamicQuantize, DynamicFakeQuantization, and
// products and convolutions of integers with zero points.

#include "gpuacc/products.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/rows.hpp"
#include "gpuacc/source.hpp"
#include "gpuacc/windows.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kChunk = 1024;  // elements whose range a work item finds

ipr::Verdict exact_support(const Target& target) {
  if (target.device.exact_division) return ipr::yes();
  return ipr::no("the device does not divide float32 with exact rounding", IPR_REASON_RESOURCE);
}

/// The code of the lowest and the highest of some numbers and 0; NaN stays NaN.
constexpr char kRange[] = "low = isnan(low) || low < e ? low : e; high = isnan(high) || high > e ? high : e;";

// ---- DynamicQuantize --------------------------------------------------------------------------------------------------

ipr::Verdict quantize_support(const ipr::Layer& layer, const Target& target) {
  if (layer.input(0).dtype() != IPR_DTYPE_FLOAT32 || layer.input(0).is_quantized())
    return ipr::no("input is " + described(layer.input(0)) + "; takes float32", IPR_REASON_DATA_TYPE);
  return exact_support(target);
}

/// The ranges of chunks, as two floats each.
Value ranges_of(Plan& plan, const Value& in) {
  const int64_t chunks = std::max<int64_t>((in.elements() + kChunk - 1) / kChunk, 1);
  const Value ranges = plan.create(IPR_DTYPE_FLOAT32, {chunks, 2});
  Template source(R"(
kernel void k(global const float* restrict x, global float* restrict y, int n, int chunks, int size) {
  const int i = get_global_id(0);
  if (i >= chunks) return;
  float low = 0, high = 0;
  for (int c = i * size; c < min(n, i * size + size); ++c) {
    const float e = x[c];
    $RANGE
  }
  y[2 * i] = low;
  y[2 * i + 1] = high;
}
)");
  source.set("RANGE", kRange);
  plan.launch_elements("range", source.text(),
                       {reads(in), writes(ranges), number(in.elements()), number(chunks), number(kChunk)}, chunks);
  return ranges;
}

void lower_quantize(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(IPR_DTYPE_UINT8, in.shape);
  const Value scale = plan.create(IPR_DTYPE_FLOAT32, {}), zero = plan.create(IPR_DTYPE_UINT8, {});
  const Value ranges = ranges_of(plan, in);
  Template source(R"(
kernel void k(global const float* restrict x, global float* restrict scale, global uchar* restrict zero, int n) {
  float low = 0, high = 0;
  for (int c = 0; c < 2 * n; ++c) {
    const float e = x[c];
    $RANGE
  }
  const float step = (high - low) / 255.0f, w = rint((0.0f - low) / step);
  *scale = step;
  *zero = isnan(w) ? 0 : (uchar)clamp(w, 0.0f, 255.0f);
}
)");
  source.set("RANGE", kRange);
  plan.launch("scale", source.text(), {reads(ranges), writes(scale), writes(zero), number(ranges.shape[0])}, {1, 1, 1});
  pointwise(plan, "quantize", {in, scale, zero}, {"float", "float", "float"}, out,
            "  const float w = rint(o0 / o1) + o2;\n  uchar v = isnan(w) ? 0 : (uchar)clamp(w, 0.0f, 255.0f);");
  plan.set(layer.output(0).index(), out);
  plan.set(layer.output(1).index(), scale);
  plan.set(layer.output(2).index(), zero);
}

// ---- DynamicFakeQuantization ------------------------------------------------------------------------------------------

ipr::Verdict fake_support(const ipr::Layer& layer, const Target& target) {
  const ipr::Verdict verdict = all_float(layer);
  if (is_refused(verdict)) return verdict;
  if (layer.flag("asymmetric") && !target.device.has_double)
    return ipr::no("the device has no float64, which asymmetric scales need", IPR_REASON_RESOURCE);
  return exact_support(target);
}

void lower_fake(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const ReducedRows rows = over(plan, in, axes_of(layer, "axes"));
  const Value out = plan.create(in.dtype, rows.rows.value.shape);
  const char* scales = layer.flag("asymmetric") ? R"(
  const double wide = ((double)high - low) / 255, ls = low / wide, hs = high / wide;
  const double z = 128 + fabs(ls) < 127 + fabs(hs) ? -128 - ls : 127 - hs;
  const float scale = (float)wide, inverse = 1.0f / scale, least = -128;
  const float zero = (float)round(isnan(z) ? z : clamp(z, -128.0, 127.0));
)"
                                                : R"(
  const float most = fmax(-low, high), scale = most / 127.0f, inverse = 127.0f / most, zero = 0, least = -127;
)";
  const std::string code = std::string(
                               "  float low = 0, high = 0;\n  for (int r = 0; r < n; ++r) {\n    const float e = "
                               "X(r);\n    ") +
                           kRange + "\n  }" + scales + R"(
  const int finite = isfinite(low) && isfinite(high), scaled = isfinite(inverse);
  for (int r = 0; r < n; ++r) {
    const float w = zero + X(r) * inverse, whole = fabs(w) < 4194304.0f ? copysign(floor(fabs(w) + 0.5f), w) : w;
    ST_$O(!finite ? NAN : !scaled ? 0.0f : (clamp(isnan(whole) ? 0.0f : whole, least, 127.0f) - zero) * scale, AT(r), y);
  }
)";
  launch_rows(plan, "round to 8 bits", rows.rows, out, {code, "", {}, true, "#pragma OPENCL FP_CONTRACT OFF\n"});
  plan.set(layer.output(0).index(), rows.restored(plan, out));
}

// ---- Products and convolutions of integers -----------------------------------------------------------------------------

bool is_bytes(const ipr::TensorInfo& info) {
  return !info.is_quantized() && (info.dtype() == IPR_DTYPE_INT8 || info.dtype() == IPR_DTYPE_UINT8);
}

ipr::Verdict integer_support(const ipr::Layer& layer, const Target&) {
  for (size_t n = 0; n < layer.input_count(); ++n)
    if (layer.input(n) && !is_bytes(layer.input(n)))
      return ipr::no("input " + std::to_string(n) + " is " + described(layer.input(n)) + "; takes int8 and uint8",
                     IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

ipr::Verdict convolution_support(const ipr::Layer& layer, const Target& target) {
  ipr::Verdict verdict = window_support(layer);
  return is_refused(verdict) ? verdict : integer_support(layer, target);
}

/// An operand less its zero points, which broadcast to it.
Value shifted(const ipr::Layer& layer, Plan& plan, size_t position) {
  const Value in = plan.plain(layer.input(position).index());
  const Value out = plan.create(IPR_DTYPE_INT16, in.shape);
  std::vector<Value> operands = {in};
  if (position + 2 < layer.input_count() && layer.input(position + 2))
    operands.push_back(plan.plain(layer.input(position + 2).index()));
  pointwise(plan, "shift", operands, std::vector<std::string>(operands.size(), "int"), out,
            operands.size() > 1 ? "  int v = o0 - o1;" : "  int v = o0;");
  return out;
}

void lower_product(const ipr::Layer& layer, Plan& plan) {
  const Value a = shifted(layer, plan, 0), b = shifted(layer, plan, 1);
  plan.set(layer.output(0).index(), integer_product(plan, a, b, shape_of(layer.output(0))));
}

void lower_convolution(const ipr::Layer& layer, Plan& plan) {
  const Value x = shifted(layer, plan, 0), w = shifted(layer, plan, 1);
  const Value y = plan.create(IPR_DTYPE_INT32, shape_of(layer.output(0)));
  launch_integer_convolution(layer, plan, "integer convolution", false, x, w, y, {"", {}, "0", "a * b", "sum"});
  plan.set(layer.output(0).index(), y);
}

}  // namespace

/// One work item for B columns of a row of the result.
Value integer_product(Plan& plan, const Value& left, const Value& right, const Shape& shape) {
  Value a = left, b = right;
  const Value y = plan.create(IPR_DTYPE_INT32, shape);
  if (a.shape.size() == 1) a.shape.insert(a.shape.begin(), 1);
  if (b.shape.size() == 1) b.shape.push_back(1);
  const int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
  const Shape a_batch(a.shape.begin(), a.shape.end() - 2), b_batch(b.shape.begin(), b.shape.end() - 2);
  const Shape batch = common_batch(a_batch, b_batch);
  const int places_a = plan.integers(matrices_of(a_batch, batch, m * k));
  const int places_b = plan.integers(matrices_of(b_batch, batch, k * n));
  Template source(R"(
kernel void k(global const short* restrict a, global const short* restrict b, global int* restrict y,
              global const int* restrict placesa, global const int* restrict placesb, int M, int N, int K) {
  const int n0 = get_global_id(0) * B, m = get_global_id(1), z = get_global_id(2);
  global const short* pa = a + placesa[z] + m * K;
  global const short* pb = b + placesb[z] + n0;
  global int* to = y + (z * M + m) * N + n0;
  if (n0 + B <= N) {
    IB sum = (IB)0;
    for (int k = 0; k < K; ++k) sum += (IB)(int)pa[k] * CAT(convert_int, B)(CAT(vload, B)(0, pb + k * N));
    CAT(vstore, B)(sum, 0, to);
    return;
  }
  for (int c = 0; n0 + c < N; ++c) {
    int sum = 0;
    for (int k = 0; k < K; ++k) sum += pa[k] * pb[k * N + c];
    to[c] = sum;
  }
}
)");
  plan.launch("integer product", preamble(plan.profile, plan.device.info) + source.text(),
              {reads(a), reads(b), writes(y), reads(places_a), reads(places_b), number(m), number(n), number(k)},
              {(n + plan.profile.block - 1) / plan.profile.block, m, product(batch)});
  return y;
}

Lowerings dynamic_lowerings() {
  return {{"DynamicQuantize", quantize_support, lower_quantize},
          {"DynamicFakeQuantization", fake_support, lower_fake},
          {"IntegerMatMul", integer_support, lower_product},
          {"IntegerConvolution2d", convolution_support, lower_convolution}};
}

}  // namespace gpuacc
