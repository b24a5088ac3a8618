// GridSample, RoiAlign, and pooling over any number of axes: LpPooling and MaxPoolingWithIndices. One work item for
// each element.

#include "gpuacc/lowering.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kMostAxes = 3;

/// The text once for each of `axes` spatial axes, the last one first if `reversed`; $a is the number of the axis.
std::string each_axis(size_t axes, const std::string& text, bool reversed = false) {
  std::string all;
  for (size_t n = 0; n < axes; ++n) all += Template(text).set("a", int64_t(reversed ? axes - 1 - n : n)).text();
  return all;
}

Shape spatial(const Shape& shape) { return Shape(shape.begin() + 2, shape.end()); }

ipr::Verdict few_axes(const ipr::Layer& layer) {
  if (layer.input(0).rank() - 2 <= kMostAxes) return ipr::yes();
  return ipr::no("there are more than " + std::to_string(kMostAxes) + " spatial axes", IPR_REASON_SHAPE);
}

// ---- GridSample -----------------------------------------------------------------------------------------------------------

ipr::Verdict grid_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0), grid = layer.input(1), out = layer.output(0);
  if (!is_float(in) || out.dtype() != in.dtype())
    return ipr::no("input is " + described(in) + "; takes float32 and float16", IPR_REASON_DATA_TYPE);
  if (!is_float(grid))
    return ipr::no("grid is " + described(grid) + "; takes float32 and float16", IPR_REASON_DATA_TYPE);
  if (in.elements() == 0) return ipr::no("the image has no pixels", IPR_REASON_SHAPE);
  return few_axes(layer);
}

/// A position that is mirrored at the edges of the image, or at the centers of the outer pixels. The reference has the
/// same arithmetic in float32.
constexpr char kReflected[] = R"(
#pragma OPENCL FP_CONTRACT OFF
inline float reflected(float p, int size) {
  const float low = $LOW, half_period = size - $CORNERS, period = 2 * half_period;
  if (half_period == 0) return 0;
  float d = fmod(p - low, period);
  if (d < 0) d += period;
  return fmin(d, period - d) + low;
}
)";

/// The code for an axis: the position p, and for each of T neighbours the index, the weight, and if it is in the image.
std::string neighbours(const ipr::Layer& layer) {
  const std::string_view mode = layer.text("mode"), padding = layer.text("padding_mode");
  const bool corners = layer.flag("align_corners");
  std::string code =
      std::string("  {\n    const int size = d.s$a;\n    const float c = LD_$G(g + $LAST - $a, grid);\n") +
      "    float p = " + (corners ? "(c + 1) / 2 * (size - 1)" : "((c + 1) * size - 1) / 2") + ";\n";
  if (mode == "NEAREST") code += "    p = rint(p);\n";
  if (padding == "BORDER") {
    const std::string margin = mode == "CUBIC" ? "2" : "0";
    code += "    if (!isnan(p)) p = clamp(p, -" + margin + ".0f, size - 1 + " + margin + ".0f);\n";
  }
  if (padding == "REFLECTION") code += "    p = reflected(p, size);\n";
  code += "    const float left = floor(p), t = p - left;\n";
  if (mode == "NEAREST")
    code += "    const float first = left, w[] = {1};\n";
  else if (mode == "LINEAR")
    code += "    const float first = left, w[] = {1 - t, t};\n";
  else
    code += "    const float first = left - 1, w[] = {OUTER(t + 1), INNER(t), INNER(1 - t), OUTER(2 - t)};\n";
  const std::string index = padding == "REFLECTION" ? "reflected(first + k, size)" : "first + k";
  code += "    for (int k = 0; k < TAPS; ++k) {\n      const float at = " + index + ";\n" +
          "      inside[$a][k] = " + (padding == "ZEROS" ? "at >= 0 && at < size" : "1") + ";\n" +
          "      index[$a][k] = isnan(at) ? 0 : (int)clamp(at, 0.0f, size - 1.0f);\n      weight[$a][k] = w[k];\n    "
          "}\n  }\n";
  return code;
}

/// The sum of the neighbours of a position, each times the product of its weights along the axes.
void lower_grid(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index()), grid = plan.plain(layer.input(1).index());
  const Value out = plan.create(in.dtype, shape_of(layer.output(0)));
  const size_t axes = in.shape.size() - 2;
  const bool is_nearest = layer.text("mode") == "NEAREST", corners = layer.flag("align_corners");
  const int64_t taps = is_nearest ? 1 : layer.text("mode") == "LINEAR" ? 2 : 4;
  int64_t combinations = 1;
  for (size_t n = 0; n < axes; ++n) combinations *= taps;
  Template source(std::string(kReflected) + R"(
#define TAPS $TAPS
#define INNER(x) ((1.25f * (x) - 2.25f) * (x) * (x) + 1)
#define OUTER(x) (((-0.75f * (x) + 3.75f) * (x) - 6) * (x) + 3)
kernel void k(global const $T* restrict x, global const $G* restrict grid, global $T* restrict y, int count, int C,
              int places, int pixels, int8 d) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int place = i % places, nc = i / places, g = (nc / C * places + place) * $AXES;
  int index[$AXES][TAPS], inside[$AXES][TAPS];
  float weight[$AXES][TAPS];
$NEIGHBOURS  ACC sum = 0;
  for (int m = 0; m < $COMBINATIONS; ++m) {
    int at = 0, is_inside = 1;
    ACC w = 1;
$COMBINE    if (is_inside) sum += w * LD_$T(nc * pixels + at, x);
  }
  ST_$T((float)sum, i, y);
}
)");
  std::string combine;
  int64_t by = 1;
  for (size_t axis = axes; axis-- > 0; by *= taps) {
    const std::string a = std::to_string(axis), k = "[m / " + std::to_string(by) + " % TAPS]";
    combine = "    at = at * d.s" + a + " + index[" + a + "]" + k + "; w *= weight[" + a + "]" + k +
              "; is_inside &= inside[" + a + "]" + k + ";\n" + combine;
  }
  source.set("NEIGHBOURS", each_axis(axes, neighbours(layer))).set("COMBINE", combine);
  source.set("LOW", corners ? "0.0f" : "-0.5f").set("CORNERS", corners ? "1" : "0").set("TAPS", taps);
  source.set("AXES", int64_t(axes)).set("LAST", int64_t(axes) - 1).set("COMBINATIONS", combinations);
  source.set("T", storage(in.dtype)).set("G", storage(grid.dtype));
  plan.launch_elements(
      "sample", preamble(plan.profile, plan.device.info) + source.text(),
      {reads(in), reads(grid), writes(out), number(out.elements()), number(in.shape[1]),
       number(product(spatial(out.shape))), number(product(spatial(in.shape))), numbers(spatial(in.shape), 1)},
      out.elements());
  plan.set(layer.output(0).index(), out);
}

// ---- Pooling over any number of axes ----------------------------------------------------------------------------------------

constexpr int64_t kFarthest = 1 << 20;

/// The numbers of an attribute for each axis; an empty list means `absent` for all.
Shape per_axis(const ipr::Layer& layer, const char* name, size_t axes, int64_t absent) {
  const ipr::Span<const int64_t> values = layer.integers(name);
  return values.empty() ? Shape(axes, absent) : Shape(values.begin(), values.end());
}

ipr::Verdict window_axes_support(const ipr::Layer& layer) {
  for (const char* name : {"window_shape", "strides", "dilations", "pad_list"})
    for (int64_t value : layer.integers(name))
      if (value > kFarthest) return ipr::no(std::string(name) + " is greater than 2**20", IPR_REASON_RESOURCE);
  return few_axes(layer);
}

/// Launch a kernel in which STEP visits each element `at` of the window of the element `i`, whose index in its channel
/// is `index`; `types` are those of the kernel's buffers.
struct WindowKernel {
  std::string start, step, end;
};

std::string window_source(size_t axes, const WindowKernel& kernel) {
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y$OUT, int count, int places, int pixels, int8 d, int8 od,
              int8 K, int8 S, int8 E, int8 P, $E parameter) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int channel = i / places;
  int r = i % places;
$POSITIONS  $START
$LOOPS  {
    const int index = $INDEX, at = channel * pixels + index;
    $STEP
  }
  $END
}
)");
  std::string index = "0";
  for (size_t n = 0; n < axes; ++n)
    index = "(" + index + " * d.s" + std::to_string(n) + " + c" + std::to_string(n) + ")";
  source.set("POSITIONS", each_axis(axes, "  const int p$a = r % od.s$a * S.s$a - P.s$a; r /= od.s$a;\n", true));
  source.set("LOOPS", each_axis(axes,
                                "  for (int k$a = 0, c$a = p$a; k$a < K.s$a; ++k$a, c$a += E.s$a)\n  if (c$a >= 0 && "
                                "c$a < d.s$a)\n"));
  return source.set("INDEX", index).set("START", kernel.start).set("STEP", kernel.step).set("END", kernel.end).text();
}

void launch_window(const ipr::Layer& layer, Plan& plan, const char* name, const std::string& source, const Value& in,
                   const Value& out, const std::vector<Argument>& results, const Argument& parameter) {
  const size_t axes = in.shape.size() - 2;
  const ipr::Span<const int64_t> pads = layer.integers("pad_list");
  Shape before(axes, 0);
  for (size_t n = 0; n < pads.size() / 2; ++n) before[n] = pads[2 * n];
  std::vector<Argument> arguments = {reads(in), writes(out)};
  arguments.insert(arguments.end(), results.begin(), results.end());
  for (int64_t value : {out.elements(), product(spatial(out.shape)), product(spatial(in.shape))})
    arguments.push_back(number(value));
  for (const Shape& values : {spatial(in.shape), spatial(out.shape), per_axis(layer, "window_shape", axes, 1),
                              per_axis(layer, "strides", axes, 1), per_axis(layer, "dilations", axes, 1), before})
    arguments.push_back(numbers(values, 1));
  arguments.push_back(parameter);
  plan.launch_elements(name, preamble(plan.profile, plan.device.info) + source, arguments, out.elements());
}

ipr::Verdict norm_support(const ipr::Layer& layer, const Target&) {
  if (layer.integer("p", 2) > kFarthest) return ipr::no("p is greater than 2**20", IPR_REASON_RESOURCE);
  const ipr::Verdict verdict = window_axes_support(layer);
  return is_refused(verdict) ? verdict : all_float(layer);
}

void lower_norm(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, shape_of(layer.output(0)));
  const int64_t p = layer.integer("p", 2);
  WindowKernel kernel = {"ACC sum = 0;", "sum += pow(fabs((ACC)LD_$T(at, x)), (ACC)parameter);",
                         "ST_$T((float)pow(sum, 1 / (ACC)parameter), i, y);"};
  if (p == 1) kernel.step = "sum += fabs((ACC)LD_$T(at, x));", kernel.end = "ST_$T((float)sum, i, y);";
  if (p == 2) kernel.step = "sum += (ACC)LD_$T(at, x) * LD_$T(at, x);", kernel.end = "ST_$T((float)sqrt(sum), i, y);";
  Template source(window_source(in.shape.size() - 2, kernel));
  source.set("OUT", "").set("E", "int").set("T", storage(in.dtype));
  launch_window(layer, plan, "norm of windows", source.text(), in, out, {}, number(p));
  plan.set(layer.output(0).index(), out);
}

ipr::Verdict maximum_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0);
  if (!storage(in.dtype()) || in.dtype() == IPR_DTYPE_BOOL)
    return ipr::no("input is " + described(in) + "; no kernel compares it", IPR_REASON_DATA_TYPE);
  if (in.axis() >= 0 || !same_quantization(in, layer.output(0)))
    return ipr::no("input and output are quantized differently, or along an axis", IPR_REASON_QUANTIZATION);
  return window_axes_support(layer);
}

/// The index counts the elements of all channels; with `column_major`, those of a channel with the first axis fastest.
void lower_maximum(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(in.dtype, shape_of(layer.output(0)));
  const Value indices = plan.create(layer.output(1).dtype(), out.shape);
  const size_t axes = in.shape.size() - 2;
  std::string number_of = "index";
  if (layer.flag("column_major")) {
    number_of = "0";
    for (size_t n = axes; n-- > 0;)
      number_of = "(" + number_of + " * d.s" + std::to_string(n) + " + c" + std::to_string(n) + ")";
  }
  const WindowKernel kernel = {"$E best = parameter;\n  long found = -1;",
                               "const $E e = LD_$T(at, x);\n    if (found < 0 || e > best) best = e, found = channel * "
                               "pixels + " +
                                   number_of + ";",
                               "ST_$T(best, i, y);\n  indices[i] = found;"};
  Template source(window_source(axes, kernel));
  source.set("OUT", ", global long* restrict indices");
  source.set("E", is_float(in.dtype) ? "float" : storage(in.dtype)).set("T", storage(in.dtype));
  const int64_t zero = layer.input(0).is_quantized() ? layer.input(0).zero_point() : 0;
  Argument parameter = is_float(in.dtype) ? real(0) : element(uint64_t(zero), ipr::item_size(in.dtype));
  launch_window(layer, plan, "maxima of windows", source.text(), in, out, {writes(indices)}, parameter);
  plan.set(layer.output(0).index(), out);
  plan.set(layer.output(1).index(), indices);
}

// ---- RoiAlign -------------------------------------------------------------------------------------------------------------

constexpr int kRegions = 1;            // the operand
constexpr int64_t kMostSamples = 256;  // of a bin along an axis, if an attribute has their number

ipr::Verdict region_support(const ipr::Layer& layer, const Target& target) {
  const ipr::TensorInfo in = layer.input(0), regions = layer.input(1), batches = layer.input(2), out = layer.output(0);
  if (!is_float(in) || out.dtype() != in.dtype() || out.is_quantized())
    return ipr::no("input is " + described(in) + "; takes float32 and float16", IPR_REASON_DATA_TYPE);
  if (!is_float(regions))
    return ipr::no("regions is " + described(regions) + "; takes float32 and float16", IPR_REASON_DATA_TYPE);
  if (batches.dtype() != IPR_DTYPE_INT32 && batches.dtype() != IPR_DTYPE_INT64)
    return ipr::no("batches is " + described(batches) + "; takes int32 and int64", IPR_REASON_DATA_TYPE);
  if (in.elements() == 0) return ipr::no("the image has no pixels", IPR_REASON_SHAPE);
  for (const char* name : {"height_sampling_ratio", "width_sampling_ratio"})
    if (layer.integer(name, 0) > kMostSamples)
      return ipr::no(std::string(name) + " is greater than " + std::to_string(kMostSamples), IPR_REASON_RESOURCE);
  if (!target.device.exact_division)
    return ipr::no("the device does not divide float32 with exact rounding", IPR_REASON_RESOURCE);
  return ipr::yes();
}

/// The samples of a region along an axis, in the arithmetic of the reference. The device has exact divisions.
constexpr char kSampling[] = R"(
#pragma OPENCL FP_CONTRACT OFF
typedef struct { float start, step; int count; } Sampling;  // samples of a bin; -1: the region cannot be sampled
inline Sampling sampling(float start, float end, int bins, int ratio) {
  const float size = (end - $OFFSET) - (start - $OFFSET);
  const float step = ($WHOLE && size < 1 ? 1 : size) / bins;  // NaN stays NaN
  Sampling s = {start - $OFFSET, step, ratio ? ratio : (int)clamp(ceil(step), 0.0f, 1048576.0f)};
  if (!isfinite(step) || (!ratio && step > 1048576.0f)) s.count = -1;
  return s;
}
)";

/// A sample of a bin along an axis of pixels: the two pixels around it, the weight of the second one, and if it is in
/// the image. Samples between the first and the last one of `samples_inside` are not all of a large bin, but those
/// that are in the image, and one beyond each border.
constexpr char kSamples[] = R"(
typedef struct { int low, high, inside; float fraction; } Sample;
inline Sample sample(Sampling s, int bin, int number, int size) {
  const float place = s.start + s.step * bin + s.step / max(s.count, 1) * (number + 0.5f);
  const float inner = clamp(place, 0.0f, size - 1.0f);
  Sample t = {(int)inner, min((int)inner + 1, size - 1), place >= -1 && place <= size, inner - floor(inner)};
  return t;
}
inline int2 samples_inside(Sampling s, int bin, int size, int ratio) {
  if (ratio || s.count < 1) return (int2)(0, s.count);
  const float within = s.step / s.count, start = s.start + s.step * bin, most = s.count - 1;
  const float first = floor((-1 - start) / within) - 2, last = ceil((size - start) / within) + 2;
  return (int2)((int)clamp(first, 0.0f, most), (int)clamp(last, 0.0f, most) + 1);
}
)";

std::string sampling_source(const ipr::Layer& layer) {
  const bool half_pixel = layer.flag("half_pixel");
  return Template(kSampling).set("OFFSET", half_pixel ? "0.5f" : "0.0f").set("WHOLE", half_pixel ? "0" : "1").text();
}

/// The scale of the regions along an axis, and the number of samples of a bin.
std::vector<Argument> axis_arguments(const ipr::Layer& layer, const char* stride, const char* ratio) {
  return {real(double(1.0f / float(layer.number(stride, 1)))), number(layer.integer(ratio, 0))};
}

std::vector<Argument> rule_arguments(const ipr::Layer& layer, const Image& out) {
  std::vector<Argument> all = {number(out.h), number(out.w)};
  for (const Argument& one : axis_arguments(layer, "height_stride", "height_sampling_ratio")) all.push_back(one);
  for (const Argument& one : axis_arguments(layer, "width_stride", "width_sampling_ratio")) all.push_back(one);
  return all;
}

/// Let a run fail if a region cannot be sampled: its size is not finite, or too large.
void check_regions(const ipr::Layer& layer, Plan& plan, const Value& regions, const Image& out) {
  const Value counts = plan.create(IPR_DTYPE_INT32, {regions.shape[0]});
  Template source(R"(
kernel void k(global const $G* restrict regions, global int* restrict counts, int n, int OH, int OW, float sy, int ry,
              float sx, int rx) {
  const int i = get_global_id(0);
  if (i >= n) return;
  const Sampling down = sampling(LD_$G(4 * i + 1, regions) * sy, LD_$G(4 * i + 3, regions) * sy, OH, ry);
  const Sampling across = sampling(LD_$G(4 * i, regions) * sx, LD_$G(4 * i + 2, regions) * sx, OW, rx);
  counts[i] = min(down.count, across.count);
}
)");
  source.set("G", storage(regions.dtype));
  std::vector<Argument> arguments = {reads(regions), writes(counts), number(counts.elements())};
  for (const Argument& one : rule_arguments(layer, out)) arguments.push_back(one);
  plan.launch_elements("count samples",
                       preamble(plan.profile, plan.device.info) + sampling_source(layer) + source.text(), arguments,
                       counts.elements());
  plan.check_values(counts, {layer.index(), kRegions, "region", 0, 1 << 20, 0, 1,
                             "cannot be sampled: it is not finite, or a bin has more than 2**20 rows or columns"});
}

constexpr char kMean[] = R"(
          if (a.inside && b.inside)
            sum += (ACC)wy * wx * LD_$T(at, x);)";

constexpr char kLargest[] = R"(
          const float e = LD_$T(at, x) * (wy * a.inside * (wx * b.inside));
          if (!(e <= largest) && !isnan(largest)) largest = e;)";

void lower_region(const ipr::Layer& layer, Plan& plan) {
  const bool last = channels_last(layer), largest = layer.text("mode") == "MAX";
  const Value in = plan.plain(layer.input(0).index()), regions = plan.plain(layer.input(1).index());
  const Value batches = plan.plain(layer.input(2).index());
  const Value out = plan.create(in.dtype, shape_of(layer.output(0)));
  const Image from(in.shape, last), to(out.shape, last);
  plan.check_values(batches, {layer.index(), 2, "batches", 0, from.n - 1});
  check_regions(layer, plan, regions, to);
  Template source(R"(
kernel void k(global const $T* restrict x, global const $G* restrict regions, global const $I* restrict batches,
              global $T* restrict y, int count, int N, int C, int H, int W, int xc, int xx, int OH, int OW, float sy, int ry,
              float sx, int rx) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int c = $CHANNEL, ox = $COLUMN, oy = $ROW, n = i / (C * OH * OW);
  const Sampling down = sampling(LD_$G(4 * n + 1, regions) * sy, LD_$G(4 * n + 3, regions) * sy, OH, ry);
  const Sampling across = sampling(LD_$G(4 * n, regions) * sx, LD_$G(4 * n + 2, regions) * sx, OW, rx);
  const int2 rows = samples_inside(down, oy, H, ry), columns = samples_inside(across, ox, W, rx);
  const int image = (int)clamp(batches[n], ($I)0, ($I)(N - 1)) * C * H * W + c * xc;
  ACC sum = 0;
  float largest = -INFINITY;
  for (int j = rows.s0; j < rows.s1; ++j) {
    const Sample a = sample(down, oy, j, H);
    for (int k = columns.s0; k < columns.s1; ++k) {
      const Sample b = sample(across, ox, k, W);
      for (int corner = 0; corner < 4; ++corner) {
        const float wy = corner & 1 ? a.fraction : 1 - a.fraction, wx = corner & 2 ? b.fraction : 1 - b.fraction;
        const int at = image + ((corner & 1 ? a.high : a.low) * W + (corner & 2 ? b.high : b.low)) * xx;
        {$STEP
        }
      }
    }
  }
  ST_$T($RESULT, i, y);
}
)");
  source.set("STEP", largest ? kLargest : kMean);
  source.set("RESULT",
             largest ? "isinf(largest) ? 0 : largest" : "(float)(sum / max((ACC)down.count * across.count, (ACC)1))");
  source.set("CHANNEL", last ? "i % C" : "i / (OH * OW) % C").set("COLUMN", last ? "i / C % OW" : "i % OW");
  source.set("ROW", last ? "i / (C * OW) % OH" : "i / OW % OH");
  source.set("T", storage(in.dtype)).set("G", storage(regions.dtype)).set("I", storage(batches.dtype));
  std::vector<Argument> arguments = {
      reads(in),      reads(regions), reads(batches), writes(out),       number(out.elements()), number(from.n),
      number(from.c), number(from.h), number(from.w), number(from.by_c), number(from.by_x)};
  for (const Argument& one : rule_arguments(layer, to)) arguments.push_back(one);
  plan.launch_elements("regions",
                       preamble(plan.profile, plan.device.info) + sampling_source(layer) + kSamples + source.text(),
                       arguments, out.elements());
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings sampling_lowerings() {
  return {{"GridSample", grid_support, lower_grid},
          {"LpPooling", norm_support, lower_norm},
          {"MaxPoolingWithIndices", maximum_support, lower_maximum},
          {"RoiAlign", region_support, lower_region}};
}

}  // namespace gpuacc
