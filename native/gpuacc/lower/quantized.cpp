// Layers of 8-bit quantized tensors, in the fixed-point arithmetic of the reference, bit for bit.

#include "gpuacc/quantized.hpp"
#include "common/fixed_point.hpp"
#include "common/quotient.hpp"
#include "gpuacc/pointwise.hpp"
#include "gpuacc/source.hpp"
#include "gpuacc/windows.hpp"

namespace gpuacc {

std::string arithmetic(int32_t dtype) {
  return std::string(R"(
#pragma OPENCL FP_CONTRACT OFF
inline long high_mul(long a, long b) { return (a * b + (1L << 30)) >> 31; }
inline long divide_by_pot(long x, int e) { return e == 0 ? x : (x + (1L << (e - 1)) - (x < 0 ? 1 : 0)) >> e; }
inline long multiply(long x, int m, int s) {
  return s > 0 ? high_mul((int)(x << s), m) : divide_by_pot(high_mul(x, m), -s);
}
)") + (dtype == IPR_DTYPE_INT8 ? "#define CLAMP(v) clamp(v, -128L, 127L)\n" : "#define CLAMP(v) clamp(v, 0L, 255L)\n");
}

std::pair<int, int> channel_factors(const ipr::Layer& layer, Plan& plan, int64_t channels, bool of_singles) {
  std::vector<int32_t> multipliers, shifts;
  const ipr::Span<const double> scales = layer.input(1).scales();
  for (size_t c = 0; c < size_t(channels); ++c) {
    double product = double(float(scales[c % scales.size()])) * double(scale32(layer.input(0)));
    if (of_singles) product = double(float(product));
    const native::FixedPoint factor = native::quantize_multiplier(product / double(scale32(layer.output(0))));
    multipliers.push_back(int32_t(factor.multiplier));
    shifts.push_back(factor.shift);
  }
  return {plan.integers(multipliers), plan.integers(shifts)};
}

ipr::Verdict one_scale(const ipr::Layer& layer, size_t inputs) {
  const ipr::TensorInfo out = layer.output(0);
  auto judged = [&](const std::string& name, const ipr::TensorInfo& info) {
    if (!is_quantized8(info) || info.dtype() != out.dtype())
      return ipr::no(name + " is " + described(info) + ", but the output is " + described(out) +
                         "; takes int8 or uint8 with a scale",
                     IPR_REASON_DATA_TYPE);
    if (info.axis() >= 0)
      return ipr::no(name + " is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
    return ipr::yes();
  };
  for (size_t n = 0; n < inputs; ++n)
    if (ipr::Verdict verdict = judged("input " + std::to_string(n), layer.input(n)); is_refused(verdict))
      return verdict;
  return judged("the output", out);
}

namespace {

/// The same for layers with weights, which may have a scale for each output channel, and a bias of int32.
ipr::Verdict weighted(const ipr::Layer& layer) {
  ipr::Verdict verdict = one_scale(layer, 1);
  if (is_refused(verdict)) return verdict;
  const ipr::TensorInfo weights = layer.input(1), bias = layer.input(2);
  if (!is_quantized8(weights) || weights.dtype() != layer.input(0).dtype())
    return ipr::no("weights are " + described(weights) + ", but the input is " + described(layer.input(0)),
                   IPR_REASON_DATA_TYPE);
  if (weights.axis() >= 0)
    for (int64_t zero : weights.zero_points())
      if (zero != 0) return ipr::no("weights have a zero point for each channel; takes 0", IPR_REASON_QUANTIZATION);
  if (bias && bias.dtype() != IPR_DTYPE_INT32)
    return ipr::no("bias is " + described(bias) + "; takes int32", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

void append(std::vector<Argument>& all, const std::vector<Argument>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// ---- Elements -------------------------------------------------------------------------------------------------------------

void lower_addition(const ipr::Layer& layer, Plan& plan, int sign) {
  const double a = scale32(layer.input(0)), b = scale32(layer.input(1)), common = 2 * std::max(a, b);
  const native::FixedPoint first = native::quantize_multiplier(a / common);
  const native::FixedPoint second = native::quantize_multiplier(b / common);
  const native::FixedPoint back = native::quantize_multiplier(common / (1048576.0 * double(scale32(layer.output(0)))));
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = storage(out.dtype);
  pointwise(plan, "add", {plan.plain(layer.input(0).index()), plan.plain(layer.input(1).index())}, {type, type}, out,
            "  long s = multiply((long)(o0 - za) << 20, ma, sa) + multiply((long)(o1 - zb) << 20, mb, sb);\n"
            "  " +
                type + " v = (" + type + ")CLAMP(multiply(s, mc, sc) + zc);",
            ", int za, int ma, int sa, int zb, int mb, int sb, int zc, int mc, int sc",
            {number(layer.input(0).zero_point()), number(first.multiplier), number(first.shift),
             number(layer.input(1).zero_point()), number(sign * second.multiplier), number(second.shift),
             number(layer.output(0).zero_point()), number(back.multiplier), number(back.shift)},
            arithmetic(out.dtype));
  plan.set(layer.output(0).index(), out);
}

void lower_multiplication(const ipr::Layer& layer, Plan& plan) {
  const float product = scale32(layer.input(0)) * scale32(layer.input(1));
  const native::FixedPoint factor = native::quantize_multiplier(double(product / scale32(layer.output(0))));
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = storage(out.dtype);
  pointwise(plan, "multiply", {plan.plain(layer.input(0).index()), plan.plain(layer.input(1).index())}, {type, type},
            out, "  " + type + " v = (" + type + ")CLAMP(multiply((long)(o0 - za) * (o1 - zb), mc, sc) + zc);",
            ", int za, int zb, int zc, int mc, int sc",
            {number(layer.input(0).zero_point()), number(layer.input(1).zero_point()),
             number(layer.output(0).zero_point()), number(factor.multiplier), number(factor.shift)},
            arithmetic(out.dtype));
  plan.set(layer.output(0).index(), out);
}

/// A function of two quantized values without their zero points, whose results are looked up for all pairs.
void lower_pairs(const ipr::Layer& layer, Plan& plan, const std::function<int64_t(int64_t, int64_t)>& function) {
  const ipr::TensorInfo a = layer.input(0), b = layer.input(1), to = layer.output(0);
  const bool is_signed = to.dtype() == IPR_DTYPE_INT8;
  const int64_t lowest = is_signed ? -128 : 0;
  auto value = [&](int bits) { return is_signed ? int64_t(int8_t(bits)) : int64_t(bits); };
  const int results = plan.constant("", 1 << 16, [&](char* table) {
    for (int pair = 0; pair < 1 << 16; ++pair) {
      const int64_t result = function(value(pair >> 8) - a.zero_point(), value(pair & 255) - b.zero_point());
      table[pair] = char(std::clamp(result + to.zero_point(), lowest, lowest + 255));
    }
  });
  const Value out = plan.create(to.dtype(), shape_of(to));
  pointwise(plan, "pairs", {plan.plain(a.index()), plan.plain(b.index())}, {"uchar", "uchar"}, out,
            "  uchar v = table[(int)o0 << 8 | o1];", ", global const uchar* restrict table", {reads(results)});
  plan.set(to.index(), out);
}

void lower_quotient(const ipr::Layer& layer, Plan& plan) {
  const float divisor = scale32(layer.input(1)) * scale32(layer.output(0));
  const native::FixedPoint factor = native::quantize_multiplier(double(scale32(layer.input(0)) / divisor));
  lower_pairs(layer, plan, [&](int64_t a, int64_t b) { return native::quotient(a, b, factor); });
}

void lower_squared_difference(const ipr::Layer& layer, Plan& plan) {
  const double a = scale32(layer.input(0)), b = scale32(layer.input(1)), common = 2 * std::max(a, b);
  const native::FixedPoint first = native::quantize_multiplier(a / common);
  const native::FixedPoint second = native::quantize_multiplier(b / common);
  const native::FixedPoint back =
      native::quantize_multiplier(common * common / (16384.0 * double(scale32(layer.output(0)))));
  lower_pairs(layer, plan, [&](int64_t left, int64_t right) {
    const int64_t difference = native::multiply(native::shifted_left(left, 7), first) -
                               native::multiply(native::shifted_left(right, 7), second);
    return native::multiply(difference * difference, back);
  });
}

void lower_choice(const ipr::Layer& layer, Plan& plan) {
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = storage(out.dtype), function = operation_of(layer) == "MAXIMUM" ? "max" : "min";
  pointwise(plan, "choose", {plan.plain(layer.input(0).index()), plan.plain(layer.input(1).index())}, {type, type}, out,
            "  " + type + " v = " + function + "(o0, o1);");
  plan.set(layer.output(0).index(), out);
}

/// Scales or zero points of a tensor that is quantized along an axis, as an operand that broadcasts to it.
Value along_axis(const ipr::TensorInfo& info, const Value& value) {
  Shape shape(size_t(info.rank()), 1);
  shape[size_t(normal_axis(info.axis(), info.rank()))] = value.elements();
  Value broadcast = value;
  broadcast.shape = shape;
  return broadcast;
}

Value scales_of(const ipr::TensorInfo& info, Plan& plan) {
  Value value;
  value.shape = {int64_t(info.scales().size())};
  value.buffer = plan.floats({info.scales().begin(), info.scales().end()});
  return along_axis(info, value);
}

Value zeros_of(const ipr::TensorInfo& info, Plan& plan) {
  std::vector<int32_t> zeros(info.scales().size());
  for (size_t n = 0; n < zeros.size() && info.zero_points().size() > 0; ++n)
    zeros[n] = int32_t(info.zero_points()[n % info.zero_points().size()]);
  Value value;
  value.dtype = IPR_DTYPE_INT32;
  value.shape = {int64_t(zeros.size())};
  value.buffer = plan.integers(zeros);
  return along_axis(info, value);
}

/// Quantized to 8 or 16 bits, so that float32 holds the difference of a value and its zero point.
bool is_quantized_8_or_16(const ipr::TensorInfo& info) {
  return is_quantized8(info) ||
         (info.is_quantized() && (info.dtype() == IPR_DTYPE_INT16 || info.dtype() == IPR_DTYPE_UINT16));
}

// ---- Quantize and Dequantize ------------------------------------------------------------------------------------------------

ipr::Verdict quantize_support(const ipr::Layer& layer, const Target& target) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (!is_quantized_8_or_16(out))
    return ipr::no("the output is " + described(out) + "; gives integers of 8 and 16 bits", IPR_REASON_DATA_TYPE);
  if (is_quantized8(in) && is_quantized8(out)) {
    if (out.axis() < 0 && in.axis() < 0) return ipr::yes();
    return ipr::no("a tensor is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
  }
  if (in.dtype() != IPR_DTYPE_FLOAT32)
    return ipr::no("input is " + described(in) + "; takes float32, int8 and uint8", IPR_REASON_DATA_TYPE);
  if (!target.device.exact_division)
    return ipr::no("the device does not divide float32 with exact rounding", IPR_REASON_RESOURCE);
  return ipr::yes();
}

void lower_quantize(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const ipr::TensorInfo from = layer.input(0), to = layer.output(0);
  const std::string type = storage(out.dtype);
  if (is_quantized8(from)) {
    const native::FixedPoint factor = native::quantize_multiplier(double(scale32(from)) / double(scale32(to)));
    const bool same = same_quantization(from, to) && from.dtype() == to.dtype();
    pointwise(plan, "requantize", {in}, {storage(in.dtype)}, out,
              same ? "  " + type + " v = o0;" : "  " + type + " v = (" + type + ")CLAMP(multiply(o0 - za, m, s) + zb);",
              ", int za, int m, int s, int zb",
              {number(from.zero_point()), number(factor.multiplier), number(factor.shift), number(to.zero_point())},
              arithmetic(out.dtype));
  } else {
    const bool to_even = layer.text("rounding") == "HALF_TO_EVEN";
    const std::string whole = to_even ? "rint(w)" : "copysign(floor(fabs(w) + 0.5f), w)";
    const int bits = int(8 * ipr::item_size(out.dtype));
    const bool is_signed = type[0] != 'u', per_axis = to.axis() >= 0;
    const std::string least = std::to_string(is_signed ? -(1 << (bits - 1)) : 0),
                      most = std::to_string((1 << (is_signed ? bits - 1 : bits)) - 1);
    const std::string bounds = least + ".0f - zero, " + most + ".0f - zero";
    std::vector<Value> operands = {in};
    if (per_axis) operands.insert(operands.end(), {scales_of(to, plan), zeros_of(to, plan)});
    const std::string of_axis = per_axis ? "  const float scale = o1, zero = o2;\n" : "";
    // whole numbers of 2**23 and more need no rounding, which would add 0.5 inexactly
    pointwise(
        plan, "quantize", operands, std::vector<std::string>(operands.size(), "float"), out,
        of_axis + "  float w = o0 / scale;\n  if (isnan(w)) w = 0;\n  if (fabs(w) < 4194304.0f) w = " + whole +
            ";\n  " + type + " v = (" + type + ")((int)clamp(w, " + bounds + ") + (int)zero);",
        per_axis ? "" : ", float scale, float zero",
        per_axis ? std::vector<Argument>() : std::vector<Argument>{real(scale32(to)), real(double(to.zero_point()))},
        "#pragma OPENCL FP_CONTRACT OFF\n");
  }
  plan.set(layer.output(0).index(), out);
}

ipr::Verdict dequantize_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (!is_quantized_8_or_16(in))
    return ipr::no("input is " + described(in) + "; takes integers of 8 and 16 bits", IPR_REASON_DATA_TYPE);
  if (!is_float(out))
    return ipr::no("the output is " + described(out) + "; gives float32 and float16", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

void lower_dequantize(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  if (layer.input(0).axis() >= 0) {
    pointwise(plan, "dequantize", {in, zeros_of(layer.input(0), plan), scales_of(layer.input(0), plan)},
              {"int", "int", "float"}, out, "  float v = (float)(o0 - o1) * o2;");
    return plan.set(layer.output(0).index(), out);
  }
  pointwise(plan, "dequantize", {in}, {"int"}, out, "  float v = (float)(o0 - zero) * scale;",
            ", int zero, float scale", {number(layer.input(0).zero_point()), real(scale32(layer.input(0)))},
            arithmetic(in.dtype));
  plan.set(layer.output(0).index(), out);
}

}  // namespace

// ---- Called by other files -----------------------------------------------------------------------------------------------------

ipr::Verdict quantized_binary_support(const ipr::Layer& layer) {
  const std::string operation(operation_of(layer));
  const bool chooses = operation == "MAXIMUM" || operation == "MINIMUM";
  if (!chooses && operation != "ADD" && operation != "SUB" && operation != "MUL" && operation != "DIV" &&
      operation != "SQ_DIFF")
    return ipr::no("no kernel for " + operation + " of quantized tensors", IPR_REASON_ATTRIBUTE);
  for (size_t n = 0; chooses && n < 2; ++n)
    if (!same_quantization(layer.input(n), layer.output(0)))
      return ipr::no("input " + std::to_string(n) + " and the output are quantized differently",
                     IPR_REASON_QUANTIZATION);
  return one_scale(layer, 2);
}

void lower_quantized_binary(const ipr::Layer& layer, Plan& plan) {
  const std::string_view operation = operation_of(layer);
  if (operation == "MUL") return lower_multiplication(layer, plan);
  if (operation == "DIV") return lower_quotient(layer, plan);
  if (operation == "SQ_DIFF") return lower_squared_difference(layer, plan);
  if (operation == "MAXIMUM" || operation == "MINIMUM") return lower_choice(layer, plan);
  lower_addition(layer, plan, operation == "SUB" ? -1 : 1);
}

ipr::Verdict quantized_window_support(const ipr::Layer& layer, const Target&) { return weighted(layer); }

Value bias_of(const ipr::Layer& layer, Plan& plan, const Value& absent) {
  return layer.input(2) ? plan.plain(layer.input(2).index()) : absent;
}

void launch_integer_convolution(const ipr::Layer& layer, Plan& plan, const char* name, bool depthwise, Value x, Value w,
                                Value y, const IntegerConvolution& element) {
  const bool last = channels_last(layer);
  const Weights weights(layer, depthwise);
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const int64_t groups = depthwise ? in.c : std::max<int64_t>(layer.integer("groups", 1), 1);
  Template source(R"(
kernel void k(global const $T* restrict x, global const $T* restrict w, global $Y* restrict y$PARAMETERS, int count, int C,
              int H, int W, int O, int OH, int OW, int I, int KH, int KW, $WINDOW, int OG, int xc, int xx, int wo, int wi,
              int wy, int wx) {
  const int at = get_global_id(0);
  if (at >= count) return;
  const int o = $CHANNEL, ox = $COLUMN, oy = $ROW, n = at / (O * OH * OW), c0 = o / OG * I;
  int sum = $START;
  for (int ky = 0; ky < KH; ++ky) {
    $INPUTROW
    for (int kx = 0; kx < KW; ++kx) {
      $INPUTCOLUMN
      global const $T* xp = x + n * C * H * W + c0 * xc + (iy * W + ix) * xx;
      global const $T* wp = w + $WEIGHT + ky * wy + kx * wx;
      for (int c = 0; c < I; ++c) {
        const int a = xp[c * xc], b = wp[c * wi];
        sum += $PRODUCT;
      }
    }
  }
  y[at] = $RESULT;
}
)");
  const bool is_transposed = layer.type() == "TransposeConvolution2d";
  const Meeting& meeting = is_transposed ? kTransposed : kForward;
  source.set("INPUTROW", meeting.row).set("INPUTCOLUMN", meeting.column).set("WEIGHT", meeting.weight);
  source.set("CHANNEL", last ? "at % O" : "at / (OH * OW) % O").set("COLUMN", last ? "at / O % OW" : "at % OW");
  source.set("ROW", last ? "at / (O * OW) % OH" : "at / OW % OH").set("WINDOW", kWindow);
  source.set("PARAMETERS", element.parameters).set("START", element.start);
  source.set("PRODUCT", element.product).set("RESULT", element.result);
  source.set("T", storage(x.dtype)).set("Y", storage(y.dtype));
  const int64_t count = y.elements();
  std::vector<Argument> arguments = {reads(x), reads(w), writes(y)};
  append(arguments, element.arguments);
  append(arguments,
         {number(count), number(in.c), number(in.h), number(in.w), number(out.c), number(out.h), number(out.w),
          number(is_transposed ? in.c / groups : weights.i), number(weights.h), number(weights.w)});
  append(arguments, window_arguments(layer));
  append(arguments,
         {number(std::max<int64_t>(out.c / std::max<int64_t>(groups, 1), 1)), number(in.by_c), number(in.by_x),
          number(weights.by_o), number(weights.by_i), number(weights.by_y), number(weights.by_x)});
  plan.launch_elements(name, element.functions + source.text(), arguments, count);
}

void lower_quantized_window(const ipr::Layer& layer, Plan& plan) {
  const bool depthwise = layer.type() == "DepthwiseConvolution2d", has_bias = bool(layer.input(2));
  const Value x = plan.plain(layer.input(0).index()), w = plan.plain(layer.input(1).index());
  const Value bias = bias_of(layer, plan, w);
  // TFLite's kernels for uint8 round the product of the scales to float32
  const auto [multipliers, shifts] = channel_factors(
      layer, plan, Image(shape_of(layer.output(0)), channels_last(layer)).c, layer.input(1).dtype() == IPR_DTYPE_UINT8);
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)));
  launch_integer_convolution(
      layer, plan, "convolution", depthwise, x, w, y,
      {std::string(", global const ") + storage(bias.dtype) +
           "* restrict bias, global const int* restrict m, global const int* restrict s, int zx, int zw, int zy",
       {reads(bias), reads(multipliers), reads(shifts), number(layer.input(0).zero_point()),
        number(layer.input(1).zero_point()), number(layer.output(0).zero_point())},
       has_bias ? "bias[o]" : "0",
       "(a - zx) * (b - zw)",
       std::string("(") + storage(x.dtype) + ")CLAMP(multiply(sum, m[o], s[o]) + zy)",
       arithmetic(x.dtype)});
  plan.set(layer.output(0).index(), y);
}

ipr::Verdict quantized_product_support(const ipr::Layer& layer, const Target& target) {
  if (!target.device.has_double)
    return ipr::no("the device has no float64, which requantization needs", IPR_REASON_RESOURCE);
  return weighted(layer);
}

/// FullyConnected, which is requantized in float64, as in the reference.
void lower_quantized_product(const ipr::Layer& layer, Plan& plan) {
  const Shape shape = shape_of(layer.input(1));
  const bool transposed = layer.flag("transpose_weight_matrix");
  const int64_t size = shape[transposed ? 1 : 0], outputs = shape[transposed ? 0 : 1];
  const Value x = plan.plain(layer.input(0).index()), w = plan.plain(layer.input(1).index());
  const bool has_bias = bool(layer.input(2));
  const Value bias = bias_of(layer, plan, w);
  const ipr::Span<const double> scales = layer.input(1).scales();
  std::vector<double> ratios;
  for (int64_t c = 0; c < outputs; ++c)
    ratios.push_back(double(float(scales[scales.size() == 1 ? 0 : size_t(c)])) * double(scale32(layer.input(0))) /
                     double(scale32(layer.output(0))));
  const int factors = plan.constant("", ratios.size() * 8, [&](char* to) {
    std::copy_n(reinterpret_cast<const char*>(ratios.data()), ratios.size() * 8, to);
  });
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)));
  Template source(R"(
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel void k(global const $T* restrict x, global const $T* restrict w, global const $B* restrict bias,
              global $T* restrict y, global const double* restrict ratios, int count, int O, int I, int wi, int wo, int zx,
              int zw, int zy) {
  const int at = get_global_id(0);
  if (at >= count) return;
  const int o = at % O, row = at / O;
  int sum = $BIAS;
  for (int c = 0; c < I; ++c) sum += (x[row * I + c] - zx) * (w[c * wi + o * wo] - zw);
  const double v = (double)sum * ratios[o], whole = copysign(floor(fabs(v) + 0.5), v) + zy;
  y[at] = ($T)clamp(whole, (double)$LOW, (double)$HIGH);
}
)");
  const bool is_signed = x.dtype == IPR_DTYPE_INT8;
  source.set("T", storage(x.dtype)).set("B", storage(bias.dtype)).set("BIAS", has_bias ? "bias[o]" : "0");
  source.set("LOW", is_signed ? "-128" : "0").set("HIGH", is_signed ? "127" : "255");
  plan.launch_elements(
      "product", arithmetic(x.dtype) + source.text(),
      {reads(x), reads(w), reads(bias), writes(y), reads(factors), number(y.elements()), number(outputs), number(size),
       number(transposed ? 1 : outputs), number(transposed ? size : 1), number(layer.input(0).zero_point()),
       number(layer.input(1).zero_point()), number(layer.output(0).zero_point())},
      y.elements());
  plan.set(layer.output(0).index(), y);
}

/// Means of squares, and means whose result has another scale, are computed of dequantized values.
bool pools_reals(const ipr::Layer& layer) {
  const std::string_view type = layer.text("pool_type");
  return type == "L2" || (type == "AVERAGE" && !same_quantization(layer.input(0), layer.output(0)));
}

ipr::Verdict quantized_pooling_support(const ipr::Layer& layer, const Target& target) {
  ipr::Verdict verdict = one_scale(layer, 1);
  if (is_refused(verdict)) return verdict;
  if (!pools_reals(layer)) return ipr::yes();
  if (!target.device.has_double)
    return ipr::no("the device has no float64, in which reals are pooled", IPR_REASON_RESOURCE);
  if (!target.device.exact_division)
    return ipr::no("the device does not divide float32 with exact rounding", IPR_REASON_RESOURCE);
  return ipr::yes();
}

void lower_quantized_pooling(const ipr::Layer& layer, Plan& plan) {
  const bool last = channels_last(layer), is_max = layer.text("pool_type") == "MAX";
  const Value x = plan.plain(layer.input(0).index());
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const PoolWindow window(layer, in);
  const ipr::TensorInfo from = layer.input(0), to = layer.output(0);
  const native::FixedPoint factor = native::quantize_multiplier(double(scale32(from)) / double(scale32(to)));
  const Value y = plan.create(x.dtype, shape_of(to));
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int count, int C, int H, int W, int OH, int OW, int xc,
              int xx, int zx, int zy, int m, int s, int KH, int KW, $WINDOW, int PB, int PR$SCALES) {
  const int at = get_global_id(0);
  if (at >= count) return;
  const int c = $CHANNEL, ox = $COLUMN, oy = $ROW, n = at / (C * OH * OW);
  $SUM
  int seen = 0, counted = 0, most = 0;
  long sum = 0;
  for (int ky = 0; ky < KH; ++ky) {
    const int iy = oy * SY - PT + ky * DY;
    for (int kx = 0; kx < KW; ++kx) {
      const int ix = ox * SX - PL + kx * DX;
      counted += iy < H + PB && ix < W + PR;
      if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue;
      const int e = x[(n * C * H * W) + c * xc + (iy * W + ix) * xx];
      most = seen == 0 || e > most ? e : most;
      sum += e - zx;
      $REAL
      ++seen;
    }
  }
  $END
  y[at] = ($T)CLAMP(v);
}
)");
  source.set("CHANNEL", last ? "at % C" : "at / (OH * OW) % C").set("COLUMN", last ? "at / C % OW" : "at % OW");
  source.set("ROW", last ? "at / (C * OW) % OH" : "at / OW % OH").set("WINDOW", kWindow).set("T", storage(x.dtype));
  const bool same = same_quantization(from, to);
  const bool of_reals = pools_reals(layer), is_l2 = layer.text("pool_type") == "L2";
  source.set("SCALES", of_reals ? ", double scale, float out_scale" : "")
      .set("SUM", of_reals ? "double reals = 0;" : "");
  source.set("REAL", !of_reals ? ""
                     : is_l2   ? "{ const double real = (e - zx) * scale; reals += real * real; }"
                               : "reals += (e - zx) * scale;");
  if (of_reals)
    source.set(
        "END",
        std::string("const double mean = reals / max(") + (window.counts_padding ? "counted" : "seen") +
            ", 1);\n  const float steps = (float)" + (is_l2 ? "sqrt(mean)" : "mean") +
            " / out_scale, whole = fabs(steps) < 4194304.0f ? copysign(floor(fabs(steps) + 0.5f), steps)"
            " : steps;\n  const long v = (long)clamp(isnan(whole) ? 0.0f : whole, -1048576.0f, 1048576.0f) + zy;");
  else if (is_max)
    source.set("END", std::string("long v = seen ? most : zx;") + (same ? "" : " v = multiply(v - zx, m, s) + zy;"));
  else
    source.set(
        "END",
        std::string("const long count_of = ") + (window.counts_padding ? "counted" : "seen") +
            ";\n  sum += zx * count_of;\n  const long half_up = count_of ? (abs(sum) + count_of / 2) / count_of : zx;\n"
            "  const long v = count_of == 0 ? zx : sum < 0 ? -half_up : half_up;");
  std::vector<Argument> arguments = {reads(x),
                                     writes(y),
                                     number(y.elements()),
                                     number(in.c),
                                     number(in.h),
                                     number(in.w),
                                     number(out.h),
                                     number(out.w),
                                     number(in.by_c),
                                     number(in.by_x),
                                     number(from.zero_point()),
                                     number(to.zero_point()),
                                     number(factor.multiplier),
                                     number(factor.shift)};
  append(arguments, window.arguments());
  if (of_reals) append(arguments, {wide(from.scale()), real(scale32(to))});
  const std::string pragma = of_reals ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "";
  plan.launch_elements("pooling", pragma + arithmetic(x.dtype) + source.text(), arguments, y.elements());
  plan.set(to.index(), y);
}

Lowerings quantized_lowerings() {
  return {{"Quantize", quantize_support, lower_quantize}, {"Dequantize", dequantize_support, lower_dequantize}};
}

}  // namespace gpuacc
