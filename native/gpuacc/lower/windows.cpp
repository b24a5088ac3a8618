// Convolutions and pooling of float images, in blocks of channels.

#include "gpuacc/windows.hpp"
#include "gpuacc/pointwise.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {

ipr::Verdict window_support(const ipr::Layer& layer) {
  for (const char* name : {"pad_front", "pad_back", "pad_top", "pad_bottom", "pad_left", "pad_right", "stride_x",
                           "stride_y", "stride_z", "dilation_x", "dilation_y", "dilation_z"})
    if (layer.integer(name) > 1 << 20)
      return ipr::no(std::string(name) + " is greater than 2**20", IPR_REASON_RESOURCE);
  return ipr::yes();
}

std::string loads_in_blocks(const Chain& chain) {
  return chain.loads([](const Chain::Operand& operand, size_t n) {
    return load_of(operand, n, operand.kind == Chain::Operand::channel ? "cb" : "at");
  });
}

namespace {

/// The name of a launch: "convolution 3x3 64-128 56x56", the channels and the size of the result.
std::string named(const char* kind, int64_t kh, int64_t kw, const Image& in, const Image& out) {
  auto by = [](int64_t a, const char* sign, int64_t b) { return std::to_string(a) + sign + std::to_string(b); };
  return std::string(kind) + " " + by(kh, "x", kw) + " " + by(in.c, "-", out.c) + " " + by(out.h, "x", out.w);
}

void append(std::vector<Argument>& all, const std::vector<Argument>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// The bias, padded to whole steps of output channels; zeros if there is none.
int packed_bias(const ipr::Layer& layer, Plan& plan, int64_t channels, int64_t step) {
  std::vector<float> values(size_t(divided_up(channels, step) * step));
  if (const ipr::TensorInfo bias = layer.input(2)) {
    const std::vector<float> bias_values = constant_floats(bias);
    std::copy(bias_values.begin(), bias_values.end(), values.begin());
  }
  return plan.floats(values);
}

/// Loads of single elements, for kernels with a work item for each element.
std::string plain_loads(const Chain& chain) {
  return chain.loads([](const Chain::Operand& one, size_t n) {
    const std::string index = one.kind == Chain::Operand::scalar ? "0" : "at";
    return std::string("LD_") + storage(one.value.dtype) + "(" + index + ", z" + std::to_string(n) + ")";
  });
}

// ---- Convolution in blocks ------------------------------------------------------------------------------------------------

/// The number of pixels of a work item: the one with the fewest steps for a row of `width` pixels.
int64_t pixels_of(int64_t width, const Profile& profile) {
  int64_t best = 1;
  double least = 1e30;
  for (int64_t pixels : {int64_t(profile.pixels), int64_t(profile.pixels) / 2, int64_t(4), int64_t(1)}) {
    const double steps = double(divided_up(width, pixels)) * (double(pixels) + 2.0);
    if (steps < least) least = steps, best = pixels;
  }
  return best;
}

/// The kernel: each work item computes `pixels` pixels of a row for `vectors` blocks of output channels. Unless these
/// are `whole_blocks`, the padding of the last one becomes 0: an infinite pixel times a weight of 0 is NaN.
std::string convolution_source(const Plan& plan, const Chain& chain, const char* in, const char* out, int64_t pixels,
                               int64_t vectors, int64_t channels, int64_t stride, bool inside, bool whole_blocks) {
  auto each = [](int64_t count, const std::string& text) {
    std::string all;
    for (int64_t n = 0; n < count; ++n) all += Template(text).set("p", n).text();
    return all;
  };
  auto sums = [&](const std::string& text) {
    std::string all;
    for (int64_t v = 0; v < vectors; ++v) all += Template(each(pixels, text)).set("v", v).text();
    return all;
  };
  auto per_vector = [&](const std::string& text) {
    std::string all;
    for (int64_t v = 0; v < vectors; ++v) all += Template(text).set("v", v).text();
    return all;
  };
  const bool scalar = plan.profile.scalar_loads;
  std::string fast, slow, edge;
  if (scalar) {
    // each value is used right after its load, so that few registers hold values
    const std::string products = per_vector(" a$p$v = MAD((FB)x, w$v, a$p$v);") + " }\n";
    auto steps = [&](const std::string& loads) {
      return "      for (int c = 0; c < IC; ++c) {\n" +
             per_vector("        const FB w$v = vload_B(c * V + $v, wp);\n") + loads + "      }\n";
    };
    auto from = [&](const std::string& load) { return "        { const float x = " + load + ";" + products; };
    const std::string near = from("LD_$TX($p * SX * B + c, xp)");
    fast = "      global const $TX* xp = row + base * B;\n" + steps(each(pixels, near));
    slow = each(pixels,
                "      const int i$p = base + $p * SX, k$p = i$p >= 0 && i$p < W, j$p = clamp(i$p, 0, W - 1) * B;\n") +
           steps(each(pixels, from("k$p ? LD_$TX(j$p + c, row) : 0.0f")));
    if (pixels > 2) {  // only the first and the last pixel are outside
      std::string inner = from("first ? LD_$TX(c, x0) : 0.0f"), outer = from("last ? LD_$TX(c, x1) : 0.0f");
      inner = Template(inner).set("p", 0).text(), outer = Template(outer).set("p", pixels - 1).text();
      for (int64_t n = 1; n + 1 < pixels; ++n) inner += Template(near).set("p", n).text();
      edge =
          "} else if (base + SX >= 0 && base + (P - 2) * SX < W) {\n"
          "      global const $TX* xp = row + base * B;\n"
          "      const int first = base >= 0, last = base + (P - 1) * SX < W;\n"
          "      global const $TX *x0 = first ? xp : xp + SX * B, *x1 = last ? xp + (P - 1) * SX * B : x0;\n" +
          steps(inner + outer) + "        ";
    }
  } else {
    std::string products;
    for (int64_t c = 0; c < std::min<int64_t>(channels, plan.profile.block); ++c)
      products += "      {\n" +
                  per_vector("        const FB w$v = vload_B(" + std::to_string(c) + " * V + $v, wp);\n") +
                  sums("        a$p$v = MAD((FB)x$p.s" + std::to_string(c) + ", w$v, a$p$v);\n") + "      }\n";
    fast = each(pixels, "      const FB x$p = LDV_$TX(base + $p * SX, row);\n") + products;
    slow = each(pixels,
                "      const int i$p = base + $p * SX;\n      const FB x$p = i$p >= 0 && i$p < W ? LDV_$TX(i$p, row) : "
                "(FB)0;\n") +
           products;
  }
  Template source(R"(
#define F FB
#define P $PIXELS
#define V $VECTORS
#define IC $CHANNELS
#define vload_B CAT(vload, B)
kernel void k(global const $TX* restrict x, global const float* restrict w, global const float* restrict bias,
              global $TY* restrict y, int IBS, int H, int W, int OBS, int OH, int OW, int KH, int KW, $WINDOW, int O,
              int XB, int OG$PARAMETERS) {
#define SX $STRIDE  // a constant, so that the distances of pixels are, too
  const int ox = get_global_id(0) * P, ob = get_global_id(1) * V, ny = get_global_id(2);
  const int n = ny / OH, oy = ny % OH;
$START  const int group = ob / OG * IBS;
  for (int ib = 0; ib < IBS; ++ib)
    for (int ky = 0; ky < KH; ++ky) {
      const int iy = oy * SY - PT + ky * DY;
      if (iy < 0 || iy >= H) continue;
      global const $TX* row = x + ((n * XB + group + ib) * H + iy) * W * B;
      for (int kx = 0; kx < KW; ++kx) {
        const int base = ox * SX - PL + kx * DX;
        global const float* wp = w + (size_t)(((ob / V * IBS + ib) * KH + ky) * KW + kx) * (IC * V * B);
$SUM      }
    }
$STORE}
)");
  // where all pixels of all tiles are inside, no other sums are compiled
  source.set("SUM", inside ? "{\n$FAST        }\n"
                           : "        if (base >= 0 && base + (P - 1) * SX < W) {\n$FAST        $EDGE} else {\n"
                             "$SLOW        }\n");
  const std::string store = Template(R"(
  if (ob + $v < OBS && ox + $p < OW) {
    const int cb = ob + $v, at = ((n * OBS + cb) * OH + oy) * OW + ox + $p;
    FB v = a$p$v;
$EPILOGUE    STV_$TY(v, at, y);
  }
)")
                                .set("EPILOGUE", chain.empty() && whole_blocks ? ""
                                                                               : loads_in_blocks(chain) + chain.code() +
                                                                                     "    v = KEEP(v, O - cb * B);\n")
                                .text();
  source.set("START", sums("  FB a$p$v = vload_B(ob + $v, bias);\n")).set("FAST", fast).set("EDGE", edge);
  source.set("SLOW", slow).set("STORE", sums(store)).set("PARAMETERS", chain.parameters()).set("WINDOW", kWindow);
  source.set("PIXELS", pixels).set("VECTORS", vectors).set("STRIDE", stride);
  source.set("CHANNELS", std::min<int64_t>(channels, plan.profile.block)).set("TX", in).set("TY", out);
  return preamble(plan.profile, plan.device.info) + source.text();
}

/// Weights as (O / (V * b), I / b, KH, KW, min(I, b), V * b), with zeros where there is no channel.
int packed_weights(const ipr::Layer& layer, Plan& plan, int64_t vectors) {
  const Weights weights(layer, false);
  const int64_t b = plan.profile.block, step = vectors * b, blocks = divided_up(weights.i, b);
  const int64_t inner = std::min(weights.i, b), panels = divided_up(weights.o, step);
  const std::string packing =
      "conv " + std::to_string(step) + "/" + std::to_string(b) + (channels_last(layer) ? "l" : "f");
  const ipr::TensorInfo info = layer.input(1);
  return plan.constant(
      plan.key(info, packing), uint64_t(panels * blocks * weights.h * weights.w * inner * step) * 4, [&](char* bytes) {
        const std::vector<float> values = constant_floats(info);
        float* to = reinterpret_cast<float*>(bytes);
        for (int64_t panel = 0; panel < panels; ++panel)
          for (int64_t block = 0; block < blocks; ++block)
            for (int64_t y = 0; y < weights.h; ++y)
              for (int64_t x = 0; x < weights.w; ++x)
                for (int64_t c = 0; c < inner; ++c)
                  for (int64_t o = 0; o < step; ++o, ++to) {
                    const int64_t in = block * b + c, out = panel * step + o;
                    if (in >= weights.i || out >= weights.o) continue;
                    *to = values[size_t(out * weights.by_o + in * weights.by_i + y * weights.by_y + x * weights.by_x)];
                  }
      });
}

void convolve_in_blocks(const ipr::Layer& layer, Plan& plan) {
  const bool last = channels_last(layer);
  const Profile& profile = plan.profile;
  const Weights weights(layer, false);
  const int64_t groups = layer.integer("groups", 1), b = profile.block;
  const Value x = plan.blocked(layer.input(0).index(), last);
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const int64_t out_blocks = divided_up(out.c, b);
  int64_t vectors = std::min<int64_t>(profile.vectors, out_blocks);
  if (groups > 1)
    while (weights.o / groups / b % vectors) --vectors;
  // a 1x1 convolution is the same for an image of one long row
  const bool flat = weights.h == 1 && weights.w == 1 && layer.integer("stride_x") == 1 &&
                    layer.integer("stride_y") == 1 && layer.integer("pad_top") == 0 && layer.integer("pad_left") == 0 &&
                    out.h == in.h && out.w == in.w;
  const int64_t oh = flat ? 1 : out.h, ow = flat ? out.h * out.w : out.w;
  const int64_t h = flat ? 1 : in.h, w = flat ? in.h * in.w : in.w, pixels = pixels_of(ow, profile);
  const int packed = packed_weights(layer, plan, vectors), bias = packed_bias(layer, plan, out.c, vectors * b);
  const int64_t furthest = (divided_up(ow, pixels) * pixels - 1) * layer.integer("stride_x");
  const bool inside = weights.w == 1 && layer.integer("pad_left") == 0 && furthest < w;
  Chain chain(plan, layer.output(0).index(), last ? 3 : 1);
  chain.channel_padding = int(b);
  chain.fuse(true);
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)), Layout::blocked, last);
  std::vector<Argument> arguments = {
      reads(x),          reads(packed),    reads(bias),        writes(y),  number(divided_up(weights.i, b)),
      number(h),         number(w),        number(out_blocks), number(oh), number(ow),
      number(weights.h), number(weights.w)};
  append(arguments, window_arguments(layer));
  append(arguments,
         {number(out.c), number(divided_up(in.c, b)), number(groups > 1 ? weights.o / groups / b : out_blocks)});
  append(arguments, chain.arguments());
  plan.launch(named("convolution", weights.h, weights.w, in, out),
              convolution_source(plan, chain, storage(x.dtype), storage(y.dtype), pixels, vectors, weights.i,
                                 layer.integer("stride_x"), inside, out.c % b == 0),
              arguments, {divided_up(ow, pixels), divided_up(out_blocks, vectors), out.n * oh});
  plan.set(chain.tensor(), y);
}

// ---- Depthwise convolution in blocks ---------------------------------------------------------------------------------------

void convolve_depthwise(const ipr::Layer& layer, Plan& plan, const std::vector<float>& filters, int64_t kh,
                        int64_t kw) {
  const bool last = channels_last(layer);
  const int64_t b = plan.profile.block;
  const Value x = plan.blocked(layer.input(0).index(), last);
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const int64_t blocks = divided_up(out.c, b),
                pixels = plan.profile.kind == Profile::cpu ? pixels_of(out.w, plan.profile) : 1;
  std::vector<float> packed(size_t(blocks * kh * kw * b));  // (C / b, KH, KW, b)
  for (int64_t c = 0; c < out.c; ++c)
    for (int64_t tap = 0; tap < kh * kw; ++tap)
      packed[size_t((c / b * kh * kw + tap) * b + c % b)] = filters[size_t(tap * out.c + c)];
  const int weights = plan.floats(packed), bias = packed_bias(layer, plan, out.c, b);
  Chain chain(plan, layer.output(0).index(), last ? 3 : 1);
  chain.channel_padding = int(b);
  chain.fuse(true);
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)), Layout::blocked, last);
  auto each = [&](const std::string& text) {
    std::string all;
    for (int64_t n = 0; n < pixels; ++n) all += Template(text).set("p", n).text();
    return all;
  };
  Template source(R"(
#define F FB
#define P $PIXELS
kernel void k(global const $T* restrict x, global const float* restrict w, global const float* restrict bias,
              global $T* restrict y, int H, int W, int CBS, int OH, int OW, int KH, int KW, $WINDOW, int C$PARAMETERS) {
  const int ox = get_global_id(0) * P, cb = get_global_id(1), ny = get_global_id(2);
  const int n = ny / OH, oy = ny % OH;
$START  for (int ky = 0; ky < KH; ++ky) {
    const int iy = oy * SY - PT + ky * DY;
    if (iy < 0 || iy >= H) continue;
    global const $T* row = x + ((n * CBS + cb) * H + iy) * W * B;
    for (int kx = 0; kx < KW; ++kx) {
      const int base = ox * SX - PL + kx * DX;
      const FB f = CAT(vload, B)((cb * KH + ky) * KW + kx, w);
      if (base >= 0 && base + (P - 1) * SX < W) {
$FAST      } else {
$SLOW      }
    }
  }
$STORE}
)");
  source.set("START", each("  FB a$p = CAT(vload, B)(cb, bias);\n"));
  source.set("FAST", each("        a$p = MAD(LDV_$T(base + $p * SX, row), f, a$p);\n"));
  source.set(
      "SLOW",
      each("        if (base + $p * SX >= 0 && base + $p * SX < W) a$p = MAD(LDV_$T(base + $p * SX, row), f, a$p);\n"));
  source.set("STORE", each(Template(R"(  if (ox + $p < OW) {
    const int at = ((n * CBS + cb) * OH + oy) * OW + ox + $p;
    FB v = a$p;
$EPILOGUE    STV_$T(v, at, y);
  }
)")
                               .set("EPILOGUE", chain.empty() ? ""
                                                              : loads_in_blocks(chain) + chain.code() +
                                                                    "    v = KEEP(v, C - cb * B);\n")
                               .text()));
  source.set("T", storage(x.dtype)).set("PIXELS", pixels).set("WINDOW", kWindow).set("PARAMETERS", chain.parameters());
  std::vector<Argument> arguments = {reads(x),      reads(weights), reads(bias),    writes(y),
                                     number(in.h),  number(in.w),   number(blocks), number(out.h),
                                     number(out.w), number(kh),     number(kw)};
  append(arguments, window_arguments(layer));
  append(arguments, {number(out.c)});
  append(arguments, chain.arguments());
  plan.launch(named("depthwise", kh, kw, in, out), preamble(plan.profile, plan.device.info) + source.text(), arguments,
              {divided_up(out.w, pixels), blocks, out.n * out.h});
  plan.set(chain.tensor(), y);
}

// ---- All other convolutions ----------------------------------------------------------------------------------------------------

/// One work item for each element; weights and bias need not be constant. `channels` are those of the input in a group.
void convolve_elements(const ipr::Layer& layer, Plan& plan, const Weights& weights, const Meeting& meeting,
                       int64_t groups, int64_t channels, const std::string& name) {
  const bool last = channels_last(layer);
  const Value x = plan.plain(layer.input(0).index()), w = plan.plain(layer.input(1).index());
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const bool has_bias = bool(layer.input(2));
  const Value bias = has_bias ? plan.plain(layer.input(2).index()) : w;
  Chain chain(plan, layer.output(0).index(), -1);
  chain.fuse(false);
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)));
  Template source(R"(
#define F float
kernel void k(global const $T* restrict x, global const $T* restrict w, global const $T* restrict bias,
              global $T* restrict y, int count, int C, int H, int W, int O, int OH, int OW, int I, int KH, int KW, $WINDOW,
              int OG, int xc, int xx, int wo, int wi, int wy, int wx$PARAMETERS) {
  const int at = get_global_id(0);
  if (at >= count) return;
  const int o = $CHANNEL, ox = $COLUMN, oy = $ROW, n = at / (O * OH * OW), c0 = o / OG * I;
  ACC sum = $BIAS;
  for (int ky = 0; ky < KH; ++ky) {
    $INPUTROW
    for (int kx = 0; kx < KW; ++kx) {
      $INPUTCOLUMN
      const int xi = n * C * H * W + c0 * xc + (iy * W + ix) * xx, wp = $WEIGHT + ky * wy + kx * wx;
      for (int c = 0; c < I; ++c) sum += ($INSIDE ? (ACC)LD_$T(xi + c * xc, x) : 0) * (ACC)LD_$T(wp + c * wi, w);
    }
  }
  float v = (float)sum;
$EPILOGUE  ST_$T(v, at, y);
}
)");
  source.set("INPUTROW", meeting.row).set("INPUTCOLUMN", meeting.column).set("WEIGHT", meeting.weight);
  source.set("INSIDE", meeting.inside);
  source.set("CHANNEL", last ? "at % O" : "at / (OH * OW) % O").set("COLUMN", last ? "at / O % OW" : "at % OW");
  source.set("ROW", last ? "at / (O * OW) % OH" : "at / OW % OH").set("BIAS", has_bias ? "LD_$T(o, bias)" : "0");
  source.set("EPILOGUE", plain_loads(chain) + chain.code());
  source.set("T", storage(x.dtype)).set("WINDOW", kWindow).set("PARAMETERS", chain.parameters());
  const int64_t count = y.elements();
  std::vector<Argument> arguments = {reads(x),          reads(w),         reads(bias),   writes(y),
                                     number(count),     number(in.c),     number(in.h),  number(in.w),
                                     number(out.c),     number(out.h),    number(out.w), number(channels),
                                     number(weights.h), number(weights.w)};
  append(arguments, window_arguments(layer));
  append(arguments, {number(std::max<int64_t>(out.c / groups, 1)), number(in.by_c), number(in.by_x),
                     number(weights.by_o), number(weights.by_i), number(weights.by_y), number(weights.by_x)});
  append(arguments, chain.arguments());
  plan.launch_elements(name, preamble(plan.profile, plan.device.info) + source.text(), arguments, count);
  plan.set(chain.tensor(), y);
}

void convolve_plain(const ipr::Layer& layer, Plan& plan, bool depthwise) {
  const Weights weights(layer, depthwise);
  const Image in(shape_of(layer.input(0)), channels_last(layer));
  const int64_t groups = depthwise ? in.c : layer.integer("groups", 1);
  convolve_elements(layer, plan, weights, kWithPadding, groups, weights.i, "convolution");
}

ipr::Verdict convolution_support(const ipr::Layer& layer, const Target& target) {
  ipr::Verdict verdict = window_support(layer);
  if (is_refused(verdict)) return verdict;
  return is_quantized8(layer.input(0)) ? quantized_window_support(layer, target) : all_float(layer);
}

/// Weights and bias are constant, and no product of a weight with padding is NaN.
bool has_simple_weights(const ipr::Layer& layer) {
  if (!layer.input(1).is_constant() || (layer.input(2) && !layer.input(2).is_constant())) return false;
  bool has_padding = false;
  for (const char* name : {"pad_top", "pad_bottom", "pad_left", "pad_right"})
    has_padding = has_padding || layer.integer(name) > 0;
  if (!has_padding) return true;
  const std::vector<float> weights = constant_floats(layer.input(1));
  return std::all_of(weights.begin(), weights.end(), [](float weight) { return std::isfinite(weight); });
}

constexpr int64_t kLeastMeasured = 1 << 23;  // multiplications of a convolution

/// Compute a convolution of Winograd's form by direct sums, or by Winograd's algorithm, whichever is faster.
void convolve_faster(const ipr::Layer& layer, Plan& plan) {
  const Weights weights(layer, false);
  const Image out(shape_of(layer.output(0)), channels_last(layer));
  auto lower = [&](Plan& to, int way) {
    if (way == 0) return convolve_in_blocks(layer, to);
    convolve_by_winograd(layer, to, packed_bias(layer, to, weights.o, to.profile.block));
  };
  if (!plan.measures) return lower(plan, suits_winograd(layer, plan));
  if (out.n * out.h * out.w * out.c * weights.i * 9 < kLeastMeasured) return lower(plan, 0);
  std::string key = "winograd";
  for (int64_t size : {out.n, weights.i, weights.o, out.h, out.w}) key += " " + std::to_string(size);
  lower(plan, plan.fastest(key + " " + storage(layer.input(0).dtype()), 2, lower));
}

void lower_convolution(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_window(layer, plan);
  const Weights weights(layer, false);
  const int64_t groups = layer.integer("groups", 1), b = plan.profile.block;
  if (!has_simple_weights(layer) || layer.output(0).elements() == 0 || layer.input(0).elements() == 0)
    return convolve_plain(layer, plan, false);
  if (has_winograd_form(layer, plan)) return convolve_faster(layer, plan);
  if (groups == 1 || (weights.i % b == 0 && weights.o / groups % b == 0)) return convolve_in_blocks(layer, plan);
  if (weights.i != 1 || weights.o != groups) return convolve_plain(layer, plan, false);
  const std::vector<float> values = constant_floats(layer.input(1));
  std::vector<float> filters(values.size());
  for (int64_t o = 0; o < weights.o; ++o)
    for (int64_t y = 0; y < weights.h; ++y)
      for (int64_t x = 0; x < weights.w; ++x)
        filters[size_t((y * weights.w + x) * weights.o + o)] =
            values[size_t(o * weights.by_o + y * weights.by_y + x * weights.by_x)];
  convolve_depthwise(layer, plan, filters, weights.h, weights.w);
}

void lower_depthwise(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_window(layer, plan);
  const Weights weights(layer, true);
  const Image in(shape_of(layer.input(0)), channels_last(layer));
  if (!has_simple_weights(layer) || in.c != weights.o || layer.output(0).elements() == 0)
    return convolve_plain(layer, plan, true);
  convolve_depthwise(layer, plan, constant_floats(layer.input(1)), weights.h, weights.w);
}

// ---- Transposed convolution ------------------------------------------------------------------------------------------------

/// One work item for each element: the sum of the pixels whose windows contain it.
void lower_transposed(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_window(layer, plan);
  const Weights weights(layer, false);  // (O / groups, KH, KW, I)
  const bool last = channels_last(layer);
  const Image in(shape_of(layer.input(0)), last), out(shape_of(layer.output(0)), last);
  const int64_t groups = layer.integer("groups", 1);
  convolve_elements(layer, plan, weights, kTransposed, groups, in.c / groups,
                    named("transposed", weights.h, weights.w, in, out));
}

// ---- Pooling -----------------------------------------------------------------------------------------------------------------------

ipr::Verdict pooling_support(const ipr::Layer& layer, const Target& target) {
  ipr::Verdict verdict = window_support(layer);
  if (is_refused(verdict)) return verdict;
  return is_quantized8(layer.input(0)) ? quantized_pooling_support(layer, target) : all_float(layer);
}

void lower_pooling(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_pooling(layer, plan);
  const bool last = channels_last(layer);
  const std::string type(layer.text("pool_type"));
  const Value x = plan.blocked(layer.input(0).index(), last);
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const PoolWindow window(layer, in);
  const int64_t blocks = divided_up(in.c, plan.profile.block);
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)), Layout::blocked, last);
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int count, int CBS, int H, int W, int OH, int OW, int KH,
              int KW, $WINDOW, int PB, int PR) {
  const int at = get_global_id(0);
  if (at >= count) return;
  const int ox = at % OW, oy = at / OW % OH, cb = at / OW / OH;
  const int y0 = oy * SY - PT, x0 = ox * SX - PL;
  int seen = 0, counted = 0;
  $START
  for (int ky = 0; ky < KH; ++ky) {
    const int iy = y0 + ky * DY;
    for (int kx = 0; kx < KW; ++kx) {
      const int ix = x0 + kx * DX;
      counted += iy < H + PB && ix < W + PR;
      if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue;
      const FB e = LDV_$T((cb * H + iy) * W + ix, x);
      $STEP
      ++seen;
    }
  }
  $END
  STV_$T(v, at, y);
}
)");
  if (type == "MAX") {
    source.set("START", "FB v = (FB)0;");
    source.set("STEP", "v = seen == 0 ? e : select(select(v, e, isgreater(e, v)), e, isnan(e));").set("END", "");
  } else {
    const bool square = type == "L2";
    source.set("START", "ACCV sum = 0;");
    source.set("STEP", square ? "sum += TO_ACCV(e) * TO_ACCV(e);" : "sum += TO_ACCV(e);");
    const std::string mean = window.counts_padding ? "sum / (ACC)max(counted, 1)" : "sum / (ACC)max(seen, 1)";
    source.set("END", "const FB v = FROM_ACCV(" + (square ? "sqrt(" + mean + ")" : mean) + ");");
  }
  source.set("T", storage(x.dtype)).set("WINDOW", kWindow);
  const int64_t count = out.n * blocks * out.h * out.w;
  std::vector<Argument> arguments = {reads(x),     writes(y),    number(count), number(blocks),
                                     number(in.h), number(in.w), number(out.h), number(out.w)};
  append(arguments, window.arguments());
  plan.launch_elements("pooling", preamble(plan.profile, plan.device.info) + source.text(), arguments, count);
  plan.set(layer.output(0).index(), y);
}

}  // namespace

Lowerings window_lowerings() {
  return {{"Convolution2d", convolution_support, lower_convolution},
          {"DepthwiseConvolution2d", convolution_support, lower_depthwise},
          {"TransposeConvolution2d", convolution_support, lower_transposed},
          {"Pooling2d", pooling_support, lower_pooling}};
}

}  // namespace gpuacc
