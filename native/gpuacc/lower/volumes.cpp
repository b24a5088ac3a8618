// Convolution and pooling of volumes, (N, D, H, W, C) or (N, C, D, H, W): one work item for each element of the result.

#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"
#include "gpuacc/windows.hpp"

namespace gpuacc {
namespace {

bool has_channels_last(const ipr::Layer& layer) { return layer.text("data_layout") == "NDHWC"; }

/// The sizes of a volume of either order of axes, and distances of its elements.
struct Volume {
  Volume(const Shape& shape, bool last) : c(shape[last ? 4 : 1]) {
    for (size_t axis = 0; axis < 3; ++axis) sizes[axis] = shape[axis + (last ? 1 : 2)];
    by_c = last ? 1 : sizes[0] * sizes[1] * sizes[2];
    by_x = last ? c : 1;
  }
  int64_t c, by_c, by_x;
  std::array<int64_t, 3> sizes{};  // depth, height, width
};

void append(std::vector<Argument>& all, const std::array<int64_t, 3>& values) {
  for (int64_t value : values) all.push_back(number(value));
}

/// Parameters of kernels for the movement of a window, in the order of `Window::arguments`.
constexpr char kVolumeWindow[] =
    "int KD, int KH, int KW, int SZ, int SY, int SX, int EZ, int EY, int EX, int PF, int PT, int PL";

/// A window that slides through a volume: for each axis its size, stride, dilation and padding at both ends.
struct Window {
  Window(const ipr::Layer& layer, const std::array<int64_t, 3>& sizes) : sizes(sizes) {
    const char *axes[] = {"z", "y", "x"}, *before[] = {"front", "top", "left"}, *after[] = {"back", "bottom", "right"};
    for (size_t axis = 0; axis < 3; ++axis) {
      strides[axis] = std::max<int64_t>(layer.integer(std::string("stride_") + axes[axis], 1), 1);
      dilations[axis] = layer.integer(std::string("dilation_") + axes[axis], 1);
      front[axis] = layer.integer(std::string("pad_") + before[axis], 0);
      back[axis] = layer.integer(std::string("pad_") + after[axis], 0);
    }
  }

  /// Replace each size of 0 by that of the volume, as for global pooling.
  void cover(const std::array<int64_t, 3>& volume) {
    for (size_t axis = 0; axis < 3; ++axis)
      if (sizes[axis] == 0)
        sizes[axis] = volume[axis], strides[axis] = dilations[axis] = 1, front[axis] = back[axis] = 0;
  }

  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const auto* values : {&sizes, &strides, &dilations, &front}) append(all, *values);
    return all;
  }

  std::array<int64_t, 3> sizes, strides{}, dilations{}, front{}, back{};
};

/// The channel and the place of the element `at` of the result with O channels.
std::string places(bool last) {
  return std::string("  const int o = ") + (last ? "at % O" : "at / (OD * OH * OW) % O") +
         ", p = " + (last ? "at / O" : "at / (OD * OH * OW * O) * (OD * OH * OW) + at % (OD * OH * OW)") +
         ";\n  const int ox = p % OW, oy = p / OW % OH, oz = p / (OW * OH) % OD, n = p / (OW * OH * OD);\n";
}

// ---- Convolution3d ------------------------------------------------------------------------------------------------------

ipr::Verdict convolution_support(const ipr::Layer& layer, const Target& target) {
  ipr::Verdict verdict = window_support(layer);
  if (is_refused(verdict)) return verdict;
  if (is_quantized8(layer.input(0))) return quantized_window_support(layer, target);
  return all_float(layer);
}

/// How the kernel sums products and makes an element of the result.
struct Sum {
  const char *type, *start, *product;
  std::string result, parameters, functions;
  std::vector<Argument> arguments;
};

Sum quantized_sum(const ipr::Layer& layer, Plan& plan, const Value& x, int64_t channels, bool has_bias) {
  const auto [multipliers, shifts] = channel_factors(layer, plan, channels, false);
  Sum sum;
  sum.type = "int", sum.start = has_bias ? "bias[o]" : "0", sum.product = "(x[xi] - zx) * (w[wp] - zw)";
  sum.result = std::string("y[at] = (") + storage(x.dtype) + ")CLAMP(multiply(sum, m[o], s[o]) + zy);";
  sum.parameters = ", global const int* restrict m, global const int* restrict s, int zx, int zw, int zy";
  sum.functions = arithmetic(x.dtype);
  sum.arguments = {reads(multipliers), reads(shifts), number(layer.input(0).zero_point()),
                   number(layer.input(1).zero_point()), number(layer.output(0).zero_point())};
  return sum;
}

Sum float_sum(bool has_bias) {
  return {"ACC",
          has_bias ? "LD_$B(o, bias)" : "0",
          "(ACC)LD_$T(xi, x) * (ACC)LD_$T(wp, w)",
          "ST_$T((float)sum, at, y);",
          "",
          "",
          {}};
}

void lower_convolution(const ipr::Layer& layer, Plan& plan) {
  const bool last = has_channels_last(layer), has_bias = bool(layer.input(2));
  const Value x = plan.plain(layer.input(0).index()), w = plan.plain(layer.input(1).index());
  const Value bias = has_bias ? plan.plain(layer.input(2).index()) : w;
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)));
  const Volume in(x.shape, last), out(y.shape, last);
  const Window window(layer, {w.shape[0], w.shape[1], w.shape[2]});
  const Sum sum = is_quantized8(layer.input(0)) ? quantized_sum(layer, plan, x, out.c, has_bias) : float_sum(has_bias);
  Template source(R"(
kernel void k(global const $T* restrict x, global const $T* restrict w, global const $B* restrict bias,
              global $T* restrict y, int count, int C, int D, int H, int W, int O, int OD, int OH, int OW, int I, int OG,
              int xc, int xx, $WINDOW$PARAMETERS) {
  const int at = get_global_id(0);
  if (at >= count) return;
$PLACES  const int c0 = o / OG * I;
  $SUM sum = $START;
  for (int kz = 0; kz < KD; ++kz) {
    const int iz = oz * SZ - PF + kz * EZ;
    if (iz < 0 || iz >= D) continue;
    for (int ky = 0; ky < KH; ++ky) {
      const int iy = oy * SY - PT + ky * EY;
      if (iy < 0 || iy >= H) continue;
      for (int kx = 0; kx < KW; ++kx) {
        const int ix = ox * SX - PL + kx * EX;
        if (ix < 0 || ix >= W) continue;
        int xi = n * C * D * H * W + c0 * xc + ((iz * H + iy) * W + ix) * xx;
        int wp = ((kz * KH + ky) * KW + kx) * I * O + o;
        for (int c = 0; c < I; ++c, xi += xc, wp += O) sum += $PRODUCT;
      }
    }
  }
  $RESULT
}
)");
  source.set("WINDOW", kVolumeWindow).set("PARAMETERS", sum.parameters).set("PLACES", places(last));
  source.set("SUM", sum.type).set("START", sum.start).set("PRODUCT", sum.product).set("RESULT", sum.result);
  source.set("T", storage(x.dtype)).set("B", storage(bias.dtype));
  std::vector<Argument> arguments = {reads(x), reads(w), reads(bias), writes(y), number(y.elements()), number(in.c)};
  append(arguments, in.sizes);
  arguments.push_back(number(out.c));
  append(arguments, out.sizes);
  const int64_t groups = layer.integer("groups", 1);
  for (int64_t value : {w.shape[3], std::max<int64_t>(out.c / groups, 1), in.by_c, in.by_x})
    arguments.push_back(number(value));
  for (const std::vector<Argument>& more : {window.arguments(), sum.arguments})
    arguments.insert(arguments.end(), more.begin(), more.end());
  plan.launch_elements("convolution of a volume",
                       preamble(plan.profile, plan.device.info) + sum.functions + source.text(), arguments,
                       y.elements());
  plan.set(layer.output(0).index(), y);
}

// ---- Pooling3d ------------------------------------------------------------------------------------------------------------

ipr::Verdict pooling_support(const ipr::Layer& layer, const Target&) {
  ipr::Verdict verdict = window_support(layer);
  if (is_refused(verdict)) return verdict;
  if (!is_quantized8(layer.input(0))) return all_float(layer);
  if (layer.text("pool_type") != "MAX")
    return ipr::no("no kernel for the pooling " + std::string(layer.text("pool_type")) + " of quantized tensors",
                   IPR_REASON_ATTRIBUTE);
  if (!same_quantization(layer.input(0), layer.output(0)) || layer.input(0).axis() >= 0)
    return ipr::no("input and output are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  return ipr::yes();
}

void lower_pooling(const ipr::Layer& layer, Plan& plan) {
  const bool last = has_channels_last(layer);
  const Value x = plan.plain(layer.input(0).index());
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)));
  const Volume in(x.shape, last), out(y.shape, last);
  Window window(layer, {layer.integer("pool_depth"), layer.integer("pool_height"), layer.integer("pool_width")});
  window.cover(in.sizes);
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int count, int D, int H, int W, int O, int OD, int OH,
              int OW, int xc, int xx, $WINDOW, int PB, int PM, int PR, int zero) {
  const int at = get_global_id(0);
  if (at >= count) return;
$PLACES  int seen = 0, counted = 0;
  $START
  for (int kz = 0; kz < KD; ++kz) {
    const int iz = oz * SZ - PF + kz * EZ;
    for (int ky = 0; ky < KH; ++ky) {
      const int iy = oy * SY - PT + ky * EY;
      for (int kx = 0; kx < KW; ++kx) {
        const int ix = ox * SX - PL + kx * EX;
        counted += iz < D + PB && iy < H + PM && ix < W + PR;
        if (iz < 0 || iz >= D || iy < 0 || iy >= H || ix < 0 || ix >= W) continue;
        const $E e = LD_$T(n * O * D * H * W + o * xc + ((iz * H + iy) * W + ix) * xx, x);
        $STEP
        ++seen;
      }
    }
  }
  $END
  ST_$T(v, at, y);
}
)");
  const std::string type(layer.text("pool_type")), element = is_float(x.dtype) ? "float" : "int";
  if (type == "MAX") {
    source.set("START", element + " v = zero;").set("END", "");
    source.set("STEP",
               is_float(x.dtype) ? "if (seen == 0 || e > v || isnan(e)) v = e;" : "if (seen == 0 || e > v) v = e;");
  } else {
    const std::string count = layer.text("padding_method") == "IGNORE_VALUE" ? "counted" : "seen";
    const std::string mean = "sum / (ACC)max(" + count + ", 1)";
    source.set("START", "ACC sum = 0;").set("STEP", type == "L2" ? "sum += (ACC)e * e;" : "sum += e;");
    source.set("END", "const float v = (float)" + (type == "L2" ? "sqrt(" + mean + ");" : "(" + mean + ");"));
  }
  source.set("WINDOW", kVolumeWindow).set("PLACES", places(last)).set("E", element).set("T", storage(x.dtype));
  std::vector<Argument> arguments = {reads(x), writes(y), number(y.elements())};
  append(arguments, in.sizes);
  arguments.push_back(number(out.c));
  append(arguments, out.sizes);
  for (int64_t value : {in.by_c, in.by_x}) arguments.push_back(number(value));
  const std::vector<Argument> moves = window.arguments();
  arguments.insert(arguments.end(), moves.begin(), moves.end());
  append(arguments, window.back);
  arguments.push_back(number(is_float(x.dtype) ? 0 : layer.input(0).zero_point()));
  plan.launch_elements("pooling of a volume", preamble(plan.profile, plan.device.info) + source.text(), arguments,
                       y.elements());
  plan.set(layer.output(0).index(), y);
}

}  // namespace

Lowerings volume_lowerings() {
  return {{"Convolution3d", convolution_support, lower_convolution}, {"Pooling3d", pooling_support, lower_pooling}};
}

}  // namespace gpuacc
