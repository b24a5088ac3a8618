// Windows that slide along up to three axes of images with channels first: MaxPoolingWithIndices and LpPooling, and
// MaxUnpooling.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/fixed_point.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

/// The window along one axis of an image, and the places where it is put.
struct Along {
  int64_t extent = 1, places = 1, size = 1, stride = 1, dilation = 1, before = 0;

  int64_t position(int64_t place, int64_t cell) const { return place * stride + cell * dilation - before; }
  bool has(int64_t position) const { return position >= 0 && position < extent; }
  /// The first place whose cell is in the image, and the one after the last.
  Range places_of(int64_t cell) const {
    const int64_t offset = cell * dilation - before;
    const int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const int64_t last = offset >= extent ? 0 : (extent - offset + stride - 1) / stride;
    return {first, std::max(first, std::min(places, last))};
  }
};

/// Depth, height and width; images of fewer axes have sizes of 1 in front.
using Window = std::array<Along, 3>;

Window window_of(const Graph& graph, const Node& node) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const std::vector<int64_t>&size = node.integers("window_shape"), &strides = node.integers("strides"),
        &dilations = node.integers("dilations"), &pads = node.integers("pad_list");
  Window window;
  for (size_t n = 0; n < size.size(); ++n) {
    Along& along = window[3 - size.size() + n];
    along.extent = in.shape[2 + n], along.places = out.shape[2 + n], along.size = size[n];
    along.stride = strides.empty() ? 1 : strides[n], along.dilation = dilations.empty() ? 1 : dilations[n];
    along.before = pads.empty() ? 0 : pads[2 * n];
  }
  return window;
}

int64_t product(const Window& window, int64_t Along::*of) { return window[0].*of * (window[1].*of) * (window[2].*of); }

Refusal support_window(const Graph& graph, const Node& node, const Settings& settings) {
  if (node.integers("window_shape").size() > 3) return refused("takes up to three axes", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

// ---- MaxPoolingWithIndices ------------------------------------------------------------------------------------------

struct Greatest {
  Window window;
  int64_t planes;
  std::array<int64_t, 3> numbers;  // the step of the indices along each axis
  int32_t dtype;
  int64_t zero;  // the value of a window without elements

  /// One row of places: the cells are tried in order, so the first of equal elements is chosen.
  template <class T>
  void row(const T* plane, int64_t first_number, int64_t d, int64_t h, T* best, int64_t* indices) const {
    const Along &depth = window[0], &height = window[1], &width = window[2];
    std::fill_n(indices, width.places, int64_t(-1));
    std::fill_n(best, width.places, T(zero));
    for (int64_t kd = 0; kd < depth.size; ++kd)
      for (int64_t kh = 0; kh < height.size; ++kh) {
        const int64_t z = depth.position(d, kd), y = height.position(h, kh);
        if (!depth.has(z) || !height.has(y)) continue;
        const T* line = plane + (z * height.extent + y) * width.extent;
        const int64_t number = first_number + z * numbers[0] + y * numbers[1];
        for (int64_t kw = 0; kw < width.size; ++kw) {
          const Range places = width.places_of(kw);
          for (int64_t place = places.first; place < places.last; ++place) {
            const int64_t x = width.position(place, kw);
            const bool better = (indices[place] < 0) | (line[x] > best[place]);
            best[place] = better ? line[x] : best[place];
            indices[place] = better ? number + x * numbers[2] : indices[place];
          }
        }
      }
  }

  template <class T>
  void all(const Step& step, const Run& run, Range range) const {
    const int64_t rows = window[0].places * window[1].places, size = product(window, &Along::extent);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t plane = n / rows, d = n % rows / window[1].places, h = n % window[1].places;
      row<T>(run.at<T>(step.in[0]) + plane * size, plane * size, d, h, run.at<T>(step.out[0]) + n * window[2].places,
             run.at<int64_t>(step.out[1]) + n * window[2].places);
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Greatest& self = step.as<Greatest>();
    const Range range = split(self.planes * self.window[0].places * self.window[1].places, part, parts);
    switch (self.dtype) {
      case IPR_DTYPE_FLOAT32:
        return self.all<float>(step, run, range);
      case IPR_DTYPE_FLOAT64:
        return self.all<double>(step, run, range);
      case IPR_DTYPE_INT8:
        return self.all<int8_t>(step, run, range);
      case IPR_DTYPE_INT16:
        return self.all<int16_t>(step, run, range);
      case IPR_DTYPE_INT32:
        return self.all<int32_t>(step, run, range);
      case IPR_DTYPE_INT64:
        return self.all<int64_t>(step, run, range);
      case IPR_DTYPE_UINT16:
        return self.all<uint16_t>(step, run, range);
      case IPR_DTYPE_UINT32:
        return self.all<uint32_t>(step, run, range);
      case IPR_DTYPE_UINT64:
        return self.all<uint64_t>(step, run, range);
      default:
        return self.all<uint8_t>(step, run, range);
    }
  }
};

Refusal support_greatest(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  const bool whole = in.dtype >= IPR_DTYPE_INT8 && in.dtype <= IPR_DTYPE_UINT64;
  if (!whole && !is_f32(in) && in.dtype != IPR_DTYPE_FLOAT64)
    return refused("MaxPoolingWithIndices of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  if (in.has_axis() || !in.same_quantization(graph.out(node)))
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return support_window(graph, node, settings);
}

void lower_greatest(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& in = *graph.in(node, 0);
  auto state = std::make_shared<Greatest>();
  Window& window = state->window = window_of(graph, node);
  state->planes = in.shape[0] * in.shape[1];
  state->dtype = in.dtype, state->zero = in.is_quantized() ? in.zero_point() : 0;
  if (node.flag("column_major"))
    state->numbers = {1, window[0].extent, window[0].extent * window[1].extent};
  else
    state->numbers = {window[1].extent * window[2].extent, window[2].extent, 1};
  Step step;
  step.name = label(node);
  step.fn = &Greatest::run;
  step.max_parts = parts_for(builder.settings, double(graph.out(node).elements() * product(window, &Along::size)));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0]), builder.buffer(node.outputs[1])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- LpPooling ------------------------------------------------------------------------------------------------------

struct Norms {
  Window window;
  int64_t planes, p;
  int32_t dtype;
  float from_scale, to_scale;
  int64_t from_zero, to_zero;

  /// Add powers of a line of elements to sums.
  template <class Element>
  void add_line(const Element& element, int64_t line, double* sums) const {
    const int64_t count = window[2].extent;
    if (p == 2)
      for (int64_t x = 0; x < count; ++x) sums[x] += element(line + x) * element(line + x);
    else if (p == 1)
      for (int64_t x = 0; x < count; ++x) sums[x] += std::fabs(element(line + x));
    else
      for (int64_t x = 0; x < count; ++x) sums[x] += std::pow(std::fabs(element(line + x)), double(p));
  }

  double root(double x) const { return p == 1 ? x : p == 2 ? std::sqrt(x) : std::pow(x, 1.0 / double(p)); }

  /// One row of places: the lines under the window are added first, then the cells along the width. `sums` has
  /// the sums of the places, and after them those of the lines.
  template <class Element>
  void row(const Element& element, int64_t d, int64_t h, double* sums) const {
    const Along &depth = window[0], &height = window[1], &width = window[2];
    double* lines = sums + width.places;
    std::fill_n(sums, width.places, 0.0);
    std::fill_n(lines, width.extent, 0.0);
    for (int64_t kd = 0; kd < depth.size; ++kd)
      for (int64_t kh = 0; kh < height.size; ++kh) {
        const int64_t z = depth.position(d, kd), y = height.position(h, kh);
        if (depth.has(z) && height.has(y)) add_line(element, (z * height.extent + y) * width.extent, lines);
      }
    for (int64_t kw = 0; kw < width.size; ++kw) {
      const Range places = width.places_of(kw);
      for (int64_t place = places.first; place < places.last; ++place) sums[place] += lines[width.position(place, kw)];
    }
  }

  template <class T>
  void quantized(const Step& step, const Run& run, int64_t from, int64_t to, int64_t d, int64_t h, double* sums) const {
    const T* in = run.at<T>(step.in[0]) + from;
    T* out = run.at<T>(step.out[0]) + to;
    row([&](int64_t n) { return double(float((double(in[n]) - double(from_zero)) * double(from_scale))); }, d, h, sums);
    for (int64_t n = 0; n < window[2].places; ++n) {
      const double code = native::round_half_away(double(float(root(sums[n])) / to_scale)) + double(to_zero);
      out[n] = T(std::clamp(code, double(std::numeric_limits<T>::min()), double(std::numeric_limits<T>::max())));
    }
  }

  void one(const Step& step, const Run& run, int64_t from, int64_t to, int64_t d, int64_t h, double* sums) const {
    if (dtype == IPR_DTYPE_INT8) return quantized<int8_t>(step, run, from, to, d, h, sums);
    if (dtype == IPR_DTYPE_UINT8) return quantized<uint8_t>(step, run, from, to, d, h, sums);
    if (dtype == IPR_DTYPE_INT16) return quantized<int16_t>(step, run, from, to, d, h, sums);
    if (dtype == IPR_DTYPE_UINT16) return quantized<uint16_t>(step, run, from, to, d, h, sums);
    const int64_t places = window[2].places;
    if (dtype == IPR_DTYPE_FLOAT64) {
      const double* in = run.at<double>(step.in[0]) + from;
      row([in](int64_t n) { return in[n]; }, d, h, sums);
      for (int64_t n = 0; n < places; ++n) run.at<double>(step.out[0])[to + n] = root(sums[n]);
      return;
    }
    const float* in = run.at<float>(step.in[0]) + from;
    row([in](int64_t n) { return double(in[n]); }, d, h, sums);
    for (int64_t n = 0; n < places; ++n) run.at<float>(step.out[0])[to + n] = float(root(sums[n]));
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Norms& self = step.as<Norms>();
    const int64_t rows = self.window[0].places * self.window[1].places, size = product(self.window, &Along::extent);
    const Range range = split(self.planes * rows, part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      self.one(step, run, n / rows * size, n * self.window[2].places, n % rows / self.window[1].places,
               n % self.window[1].places, run.part_scratch<double>(part));
  }
};

Refusal support_norms(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const bool narrow = in.dtype == IPR_DTYPE_INT8 || in.dtype == IPR_DTYPE_UINT8 || in.dtype == IPR_DTYPE_INT16 ||
                      in.dtype == IPR_DTYPE_UINT16;
  const bool codes = narrow && in.is_quantized() && out.is_quantized() && !in.has_axis() && !out.has_axis();
  if (!(is_f32(in) || in.dtype == IPR_DTYPE_FLOAT64 || codes) || in.dtype != out.dtype)
    return refused("LpPooling of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  return support_window(graph, node, settings);
}

void lower_norms(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const Window window = window_of(builder.graph, node);
  auto state = std::make_shared<Norms>(Norms{window, in.shape[0] * in.shape[1], node.integer("p", 2), in.dtype,
                                             float(in.scale()), float(out.scale()), in.zero_point(), out.zero_point()});
  Step step;
  step.name = label(node);
  step.fn = &Norms::run;
  step.max_parts = parts_for(builder.settings, double(out.elements() * product(window, &Along::size)));
  step.scratch_per_part = uint64_t(window[2].places + window[2].extent) * sizeof(double);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- MaxUnpooling ---------------------------------------------------------------------------------------------------

struct Unpooling {
  int64_t count, room, item_size;
  bool wide;  // indices are int64

  static void run(const Step& step, const Run& run, int, int) {
    const Unpooling& self = step.as<Unpooling>();
    const char* in = run.at<char>(step.in[0]);
    char* out = run.at<char>(step.out[0]);
    for (int64_t n = 0; n < self.count; ++n) {
      const int64_t to = self.wide ? run.at<int64_t>(step.in[1])[n] : run.at<int32_t>(step.in[1])[n];
      if (to < 0 || to >= self.room) return run.fail(1, n, to, 0, self.room - 1);
      std::memcpy(out + to * self.item_size, in + n * self.item_size, size_t(self.item_size));
    }
  }
};

Refusal support_unpooling(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const int32_t indices = graph.in(node, 1)->dtype;
  char zero[8];
  if (indices != IPR_DTYPE_INT32 && indices != IPR_DTYPE_INT64)
    return refused("indices are of another type", IPR_REASON_DATA_TYPE);
  if (!in.same_quantization(out) || !encode(0, out, zero))
    return refused("MaxUnpooling of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_unpooling(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  char zero[8];
  encode(0, out, zero);
  const uint64_t item_size = ipr::item_size(out.dtype);
  builder.add(
      fill_step(builder, "zeros of " + node.name, builder.buffer(node.outputs[0]), zero, item_size, out.elements()));
  Step step;
  step.name = label(node);
  step.fn = &Unpooling::run;
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Unpooling>(Unpooling{in.elements(), out.elements(), int64_t(item_size),
                                                     builder.graph.in(node, 1)->dtype == IPR_DTYPE_INT64});
  builder.add(std::move(step));
}

}  // namespace

Family windows_family() {
  return {{{"MaxPoolingWithIndices", "plain", support_greatest, lower_greatest, nullptr},
           {"LpPooling", "plain", support_norms, lower_norms, nullptr},
           {"MaxUnpooling", "plain", support_unpooling, lower_unpooling, nullptr}},
          {}};
}

}  // namespace cpuacc
