// Resize, plain and blocked.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/kernels/resize.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

bool channels_last(const Node& node) { return node.text("data_layout") == "NHWC"; }
bool is_linear(const Node& node) { return node.text("method") == "BILINEAR"; }

/// Sampling positions along one axis, in the float32 arithmetic of TFLite's reference.
struct Axis {
  std::vector<int32_t> low, high, weight_1024;
  std::vector<float> weight;

  Places places() const { return {low.data(), high.data(), weight.data(), weight_1024.data()}; }
};

float step_of(const Node& node, int64_t size, int64_t target) {
  if (node.flag("align_corners") && target > 1) return float(size - 1) / float(target - 1);
  return float(size) / float(target);
}

int32_t clamped(double place, int64_t size) { return int32_t(std::clamp(place, 0.0, double(size - 1))); }

Axis nearest_axis(const Node& node, int64_t size, int64_t target) {
  Axis axis;
  float offset = node.flag("half_pixel_centers") ? 0.5f : 0.0f, step = step_of(node, size, target);
  for (int64_t n = 0; n < target; ++n) {
    float place = (float(n) + offset) * step;
    double whole = node.flag("align_corners") ? std::floor(double(place) + 0.5) : std::floor(double(place));
    axis.low.push_back(clamped(whole, size));
  }
  axis.high = axis.low;
  axis.weight.assign(size_t(target), 0);
  axis.weight_1024.assign(size_t(target), 0);
  return axis;
}

Axis linear_axis(const Node& node, int64_t size, int64_t target) {
  Axis axis;
  float step = step_of(node, size, target);
  bool half = node.flag("half_pixel_centers");
  for (int64_t n = 0; n < target; ++n) {
    float place = half ? (float(n) + 0.5f) * step - 0.5f : float(n) * step;
    axis.low.push_back(clamped(std::floor(place), size));
    axis.high.push_back(clamped(std::ceil(place), size));
    axis.weight.push_back(place - float(axis.low.back()));
  }
  return axis;
}

/// The same with weights of 10 bits.
Axis fixed_axis(const Node& node, int64_t size, int64_t target) {
  bool corners = node.flag("align_corners") && target > 1;
  int64_t over = corners ? size - 1 : size, under = corners ? target - 1 : target;
  int64_t step = ((int64_t(1) << 10) * over + under / 2) / under;
  Axis axis;
  for (int64_t n = 0; n < target; ++n) {
    int64_t place = n * step + (node.flag("half_pixel_centers") ? step / 2 - (1 << 9) : 0);
    axis.low.push_back(int32_t(std::clamp<int64_t>(place >> 10, 0, size - 1)));
    axis.high.push_back(int32_t(std::clamp<int64_t>((place + (1 << 10) - 1) >> 10, 0, size - 1)));
    axis.weight_1024.push_back(int32_t(place - (int64_t(axis.low.back()) << 10)));
  }
  return axis;
}

/// Treat the elements of pixels with few channels as pixels of one channel, which are computed in vectors.
Axis by_element(const Axis& pixels, int64_t inner) {
  Axis axis;
  for (size_t x = 0; x < pixels.low.size(); ++x)
    for (int64_t n = 0; n < inner; ++n) {
      axis.low.push_back(int32_t(pixels.low[x] * inner + n));
      axis.high.push_back(int32_t(pixels.high[x] * inner + n));
      if (!pixels.weight.empty()) axis.weight.push_back(pixels.weight[x]);
      if (!pixels.weight_1024.empty()) axis.weight_1024.push_back(pixels.weight_1024[x]);
    }
  return axis;
}

struct Resize {
  const ResizeKernels* kernels;
  LinearRow any;  // of other types than float32, uint8 and int8
  Axis rows, columns;
  int32_t dtype;
  bool linear;
  int64_t images, height, width, out_height, out_width, inner, item_size;

  /// Two rows of the input, multiplied by their weights, as float32; of int8, their sum as int32.
  uint64_t scratch() const { return linear && item_size == 1 && inner == 1 ? uint64_t(2 * width) * 4 : 0; }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Resize& self = step.as<Resize>();
    Range range = split(self.images * self.out_height, part, parts);
    int64_t in_row = self.width * self.inner * self.item_size, out_row = self.out_width * self.inner * self.item_size;
    for (int64_t n = range.first; n < range.last; ++n) {
      const char* image = run.at<char>(step.in[0]) + n / self.out_height * self.height * in_row;
      const size_t y = size_t(n % self.out_height);
      char* out = run.at<char>(step.out[0]) + n * out_row;
      const bool repeated = !self.linear && y > 0 && n > range.first && self.rows.low[y] == self.rows.low[y - 1];
      if (repeated)
        std::memcpy(out, out - out_row, size_t(out_row));
      else
        self.row(image, in_row, y, out, run.part_scratch<char>(part));
    }
  }

  void row(const char* image, int64_t in_row, size_t y, char* out, char* scratch) const {
    const char *upper = image + rows.low[y] * in_row, *lower = image + rows.high[y] * in_row;
    const Places across = columns.places();
    const ResizedRow sizes{width * inner, out_width, inner};
    if (!linear) return kernels->nearest(upper, out, across.low, out_width, inner * item_size);
    if (dtype == IPR_DTYPE_FLOAT32)
      return kernels->linear(reinterpret_cast<const float*>(upper), reinterpret_cast<const float*>(lower),
                             reinterpret_cast<float*>(out), rows.weight[y], across, sizes);
    if (dtype == IPR_DTYPE_UINT8)
      return kernels->linear_u8(reinterpret_cast<const uint8_t*>(upper), reinterpret_cast<const uint8_t*>(lower),
                                reinterpret_cast<uint8_t*>(out), rows.weight[y], across, sizes, scratch);
    if (any)
      return any(upper, lower, out, rows.weight.empty() ? 0 : rows.weight[y],
                 rows.weight_1024.empty() ? 0 : rows.weight_1024[y], across, sizes);
    kernels->linear_i8(reinterpret_cast<const int8_t*>(upper), reinterpret_cast<const int8_t*>(lower),
                       reinterpret_cast<int8_t*>(out), rows.weight_1024[y], across, sizes, scratch);
  }
};

/// Return whether pixels are weighted with integers of 10 bits, as the reference does for integers other than uint8.
bool has_fixed_weights(const Tensor& tensor) {
  return tensor.dtype != IPR_DTYPE_UINT8 && !is_f32(tensor) && tensor.dtype != IPR_DTYPE_FLOAT64;
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!in.same_quantization(graph.out(node)))
    return refused("the operand and the result are quantized differently", IPR_REASON_QUANTIZATION);
  bool known = is_f32(in) || in.dtype == IPR_DTYPE_UINT8 || in.dtype == IPR_DTYPE_INT8 ||
               resize_kernels_for(settings.isa).linear_of(in.dtype);
  if (!is_linear(node) || known) return taken();
  return refused("BILINEAR of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  bool last = channels_last(node);
  size_t h = last ? 1 : 2;
  auto make = !is_linear(node) ? nearest_axis : has_fixed_weights(in) ? fixed_axis : linear_axis;
  auto state = std::make_shared<Resize>();
  state->kernels = &resize_kernels_for(builder.settings.isa);
  state->any = state->kernels->linear_of(in.dtype);
  state->rows = make(node, in.shape[h], out.shape[h]);
  state->columns = make(node, in.shape[h + 1], out.shape[h + 1]);
  state->dtype = in.dtype;
  state->linear = is_linear(node);
  state->height = in.shape[h], state->width = in.shape[h + 1];
  state->out_height = out.shape[h], state->out_width = out.shape[h + 1];
  state->item_size = int64_t(ipr::item_size(in.dtype));
  state->inner = is_blocked(in.layout) ? kBlock : last ? in.shape[3] : 1;
  state->images =
      in.elements() == 0 ? 0 : int64_t(in.bytes()) / (state->height * state->width * state->inner * state->item_size);
  const int64_t bytes = state->inner * state->item_size;
  const bool is_item = !state->linear && (bytes == 2 || bytes == 4 || bytes == 8);  // a pixel is picked as a whole
  if (state->inner > 1 && state->inner < kBlock && !is_item) {
    state->columns = by_element(state->columns, state->inner);
    state->width *= state->inner, state->out_width *= state->inner, state->inner = 1;
  }
  Step step;
  step.name = "Resize " + node.name;
  step.fn = &Resize::run;
  step.max_parts = parts_for(builder.settings,
                             double(out.elements()) * (state->linear ? cost::kResizeLinearNs : cost::kResizeNearestNs));
  step.scratch_per_part = state->scratch();
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

Layouts layouts(const Graph& graph, const Node& node, const Settings&) {
  Layout layout = graph.in(node, 0)->layout;
  if (!agree_on_channels(layout, node.text("data_layout"))) return {};
  return {{layout}, {layout}};
}

}  // namespace

Family resize_family() { return {{{"Resize", "plain", support, lower, layouts}}, {}}; }

}  // namespace cpuacc
