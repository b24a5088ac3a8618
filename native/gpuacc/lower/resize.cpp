// Resizing of images. The positions of pixels are computed here, in the arithmetic of the reference, and looked up.

#include "gpuacc/lowering.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

/// For each pixel of the result along an axis: the two pixels around it, and the weight of the second one.
struct Neighbours {
  std::vector<int32_t> low, high;
  std::vector<float> weight;
  std::vector<int32_t> fixed;  // the weight in steps of 1/1024
};

struct Axis {
  int64_t size, target;
  bool align_corners, half_pixel;
};

int64_t clamped(int64_t at, int64_t size) { return std::clamp<int64_t>(at, 0, size - 1); }

float scale_of(const Axis& axis) {
  if (axis.align_corners && axis.target > 1) return float(axis.size - 1) / float(axis.target - 1);
  return float(axis.size) / float(axis.target);
}

Neighbours nearest(const Axis& axis) {
  Neighbours neighbours;
  const float scale = scale_of(axis), offset = axis.half_pixel ? 0.5f : 0.0f;
  for (int64_t n = 0; n < axis.target; ++n) {
    const float position = (float(n) + offset) * scale;
    const float whole =
        axis.align_corners ? std::copysign(std::floor(std::fabs(position) + 0.5f), position) : std::floor(position);
    neighbours.low.push_back(int32_t(clamped(int64_t(whole), axis.size)));
  }
  return neighbours;
}

Neighbours around(const Axis& axis) {
  Neighbours neighbours;
  const float scale = scale_of(axis);
  for (int64_t n = 0; n < axis.target; ++n) {
    float position = float(n) * scale;
    if (axis.half_pixel) {
      position = (float(n) + 0.5f) * scale;
      position -= 0.5f;
    }
    const int64_t low = clamped(int64_t(std::floor(position)), axis.size);
    neighbours.low.push_back(int32_t(low));
    neighbours.high.push_back(int32_t(clamped(int64_t(std::ceil(position)), axis.size)));
    neighbours.weight.push_back(position - float(low));
  }
  return neighbours;
}

Neighbours around_in_fixed_point(const Axis& axis) {
  Neighbours found;
  const bool aligned = axis.align_corners && axis.target > 1;
  const int64_t numerator = aligned ? axis.size - 1 : axis.size, denominator = aligned ? axis.target - 1 : axis.target;
  const int64_t scale = (1024 * numerator + denominator / 2) / denominator;
  for (int64_t n = 0; n < axis.target; ++n) {
    const int64_t position = n * scale + (axis.half_pixel ? scale / 2 - 512 : 0);
    const int64_t low = clamped(position >> 10, axis.size);
    found.low.push_back(int32_t(low));
    found.high.push_back(int32_t(clamped((position + 1023) >> 10, axis.size)));
    found.fixed.push_back(int32_t(position - low * 1024));
  }
  return found;
}

bool is_nearest(const ipr::Layer& layer) { return layer.text("method") == "NEAREST_NEIGHBOR"; }

ipr::Verdict resize_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (in.axis() >= 0 || !same_quantization(in, out))
    return ipr::no("input and output are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  if (in.elements() == 0) return ipr::no("the image has no pixels", IPR_REASON_SHAPE);
  if (is_nearest(layer) && storage(in.dtype())) return ipr::yes();
  if (!is_nearest(layer) && layer.text("method") != "BILINEAR")
    return ipr::no("no kernel for the method " + std::string(layer.text("method")), IPR_REASON_ATTRIBUTE);
  if (is_float(in.dtype()) || in.dtype() == IPR_DTYPE_INT8 || in.dtype() == IPR_DTYPE_UINT8) return ipr::yes();
  return ipr::no("input is " + described(in) + "; takes float32, float16, int8 and uint8", IPR_REASON_DATA_TYPE);
}

/// Images in blocks stay in blocks: then a work item computes one vector, else one element.
void lower_resize(const ipr::Layer& layer, Plan& plan) {
  const bool last = channels_last(layer), picks = is_nearest(layer);
  const int64_t tensor = layer.input(0).index();
  const bool in_blocks = is_float(layer.input(0)) && plan.is_computed(tensor) &&
                         plan.as_computed(tensor).layout == Layout::blocked &&
                         plan.as_computed(tensor).channels_last == last;
  const Value from = in_blocks ? plan.as_computed(tensor) : plan.plain(tensor);
  const Value out = plan.create(from.dtype, shape_of(layer.output(0)), from.layout, last && in_blocks);
  const Image in(from.shape, last), to(out.shape, last);
  const bool is_integer = from.dtype == IPR_DTYPE_INT8 && !picks;
  auto axis = [&](int64_t size, int64_t target) {
    const Axis resized = {size, target, layer.flag("align_corners"), layer.flag("half_pixel_centers")};
    return picks ? nearest(resized) : is_integer ? around_in_fixed_point(resized) : around(resized);
  };
  const Neighbours rows = axis(in.h, to.h), columns = axis(in.w, to.w);
  std::vector<int32_t> places = rows.low;
  for (const std::vector<int32_t>* some : {&columns.low, &rows.high, &columns.high})
    places.insert(places.end(), some->begin(), some->end());
  std::vector<float> weights = rows.weight;
  weights.insert(weights.end(), columns.weight.begin(), columns.weight.end());
  std::vector<int32_t> fixed = rows.fixed;
  fixed.insert(fixed.end(), columns.fixed.begin(), columns.fixed.end());
  Template source(R"(
#pragma OPENCL FP_CONTRACT OFF
kernel void k(global const $T* restrict x, global $T* restrict y, global const int* restrict places,
              global const $W* restrict weights, int n, int C, int H, int W, int OH, int OW, int byc, int byx) {
  int i = get_global_id(0);
  if (i >= n) return;
  const int c = $CHANNEL, ox = $COLUMN, oy = $ROW;
  const int base = $BASE;
  const int y0 = places[oy], x0 = places[OH + ox];
$CODE
}
)");
  if (in_blocks) {
    source.set("CHANNEL", "i / (OH * OW)").set("COLUMN", "i % OW").set("ROW", "i / OW % OH").set("BASE", "c * H * W");
  } else {
    source.set("CHANNEL", last ? "i % C" : "i / (OH * OW) % C").set("COLUMN", last ? "i / C % OW" : "i % OW");
    source.set("ROW", last ? "i / (C * OW) % OH" : "i / OW % OH");
    source.set("BASE", "i / (C * OH * OW) * (C * H * W) + c * byc");
  }
  const std::string load = in_blocks ? "LDV_$S(base + ($Y * W + $X), x)" : "LD_$S(base + ($Y * W + $X) * byx, x)";
  auto at = [&](const char* row, const char* column) { return Template(load).set("Y", row).set("X", column).text(); };
  const std::string f = in_blocks ? "FB" : "float";
  std::string code;
  if (picks) {
    code = in_blocks ? "  STV_$S(" + at("y0", "x0") + ", i, y);" : "  y[i] = x[base + (y0 * W + x0) * byx];";
  } else {
    code = "  const int y1 = places[OH + OW + oy], x1 = places[2 * OH + OW + ox];\n";
    const std::string type = is_integer ? "long" : "float", one = is_integer ? "1024" : "1.0f",
                      sum = is_integer ? "long" : f;
    code += "  const " + type + " v = weights[oy], u = weights[OH + ox];\n";
    auto part = [&](const char* row, const char* column, const std::string& a, const std::string& b) {
      return "(" + sum + ")" + at(row, column) + " * " + a + " * " + b;
    };
    const std::string v0 = "(" + one + " - v)", u0 = "(" + one + " - u)";
    code += "  " + sum + " s = " + part("y0", "x0", v0, u0) + ";\n  s += " + part("y1", "x0", "v", u0) +
            ";\n  s += " + part("y0", "x1", v0, "u") + ";\n  s += " + part("y1", "x1", "v", "u") + ";\n";
    if (in_blocks)
      code += "  STV_$S(s, i, y);";
    else if (is_integer)
      code += "  const long m = (abs(s) + (1 << 19)) >> 20;\n  y[i] = (char)(s > 0 ? m : -m);";
    else if (from.dtype == IPR_DTYPE_UINT8)
      code += "  y[i] = (uchar)(s + 0.5f);";
    else
      code += "  ST_$S(s, i, y);";
  }
  source.set("CODE", code).set("S", storage(from.dtype)).set("W", is_integer ? "int" : "float");
  const bool moves_bits = picks && !in_blocks;
  source.set("T", moves_bits ? bits_type(ipr::item_size(from.dtype)) : storage(from.dtype));
  const int64_t b = plan.profile.block, blocks = (in.c + b - 1) / b;
  const int64_t count = in_blocks ? to.n * blocks * to.h * to.w : out.elements();
  const int table = is_integer ? plan.integers(fixed) : plan.floats(weights);
  plan.launch_elements(
      "resize", preamble(plan.profile, plan.device.info) + source.text(),
      {reads(from), writes(out), reads(plan.integers(places)), reads(table), number(count), number(in.c), number(in.h),
       number(in.w), number(to.h), number(to.w), number(in.by_c), number(in.by_x)},
      count);
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings resize_lowerings() { return {{"Resize", resize_support, lower_resize}}; }

}  // namespace gpuacc
