// RoiPooling, HeatmapMaxKeypoint and Det. Numbers are float32, or float64 if the operands are; determinants are
// computed in float64 and rounded once.

#include <cmath>
#include <cstring>

#include "common/fixed_point.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/element_key.hpp"
#include "cpuacc/lower/overlap.hpp"
#include "cpuacc/lower/reals.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

/// Strides of an image in elements.
struct ImageSteps {
  int64_t n, h, w, c;

  ImageSteps() = default;
  ImageSteps(const Tensor& tensor, bool channels_first) {
    const Shape steps = steps_of(tensor.shape);
    *this = channels_first ? ImageSteps(steps[0], steps[2], steps[3], steps[1])
                           : ImageSteps(steps[0], steps[1], steps[2], steps[3]);
  }
  ImageSteps(int64_t n, int64_t h, int64_t w, int64_t c) : n(n), h(h), w(w), c(c) {}
};

bool is_int32(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT32 && !tensor.is_quantized(); }

// ---- RoiPooling -----------------------------------------------------------------------------------------------------

struct Pooling {
  ElementKeys keys;
  Reals regions;
  ImageSteps from, to;
  int64_t count, images, height, width, channels, out_h, out_w, item_size;
  double strides[2];  // of rows and of columns of the image
  char empty[8];      // the result of a bin without cells

  struct Bin {
    int64_t first, last;
  };

  /// The cells of bin `n` of `bins` along an axis.
  static Bin bin(double start, double end, int64_t n, int64_t bins, int64_t size) {
    const float step = float(std::max(end - start + 1, 1.0)) / float(bins);
    const float begin = step * float(n) + float(start), stop = step * float(n + 1) + float(start);
    auto cell = [&](float place) { return int64_t(std::clamp(double(place), 0.0, double(size))); };
    return {cell(std::floor(begin)), cell(std::ceil(stop))};
  }

  static void check(const Step& step, const Run& run, int, int) {
    const Pooling& self = step.as<Pooling>();
    const int32_t* batches = run.at<int32_t>(step.in[2]);
    for (int64_t n = 0; n < self.count; ++n)
      if (batches[n] < 0 || batches[n] >= self.images) return run.fail(2, n, batches[n], 0, self.images - 1);
  }

  void one_bin(const char* image, Bin rows, Bin columns, char* out) const {
    for (int64_t c = 0; c < channels; ++c) {
      const char* best = empty;
      uint64_t key = 0;
      for (int64_t row = rows.first; row < rows.last; ++row)
        for (int64_t column = columns.first; column < columns.last; ++column) {
          const char* cell = image + (row * from.h + column * from.w + c * from.c) * item_size;
          uint64_t own;
          keys.all(cell, 1, 1, &own);
          if (best != empty && own <= key) continue;
          best = cell, key = own;
        }
      std::memcpy(out + c * to.c * item_size, best, size_t(item_size));
    }
  }

  template <class T>
  void all(const Step& step, const Run& run, Range range) const {
    std::vector<T> memory(size_t(regions.count()));
    const T* corners = regions.read(run.at<void>(step.in[1]), regions.count(), memory.data());
    const T scales[2] = {T(1) / T(strides[0]), T(1) / T(strides[1])};
    for (int64_t n = range.first; n < range.last; ++n) {
      double edges[4];
      for (int k = 0; k < 4; ++k) edges[k] = native::round_half_away(double(corners[4 * n + k] * scales[1 - k % 2]));
      const char* image = run.at<char>(step.in[0]) + run.at<int32_t>(step.in[2])[n] * from.n * item_size;
      char* out = run.at<char>(step.out[0]) + n * to.n * item_size;
      for (int64_t y = 0; y < out_h; ++y)
        for (int64_t x = 0; x < out_w; ++x)
          one_bin(image, bin(edges[1], edges[3], y, out_h, height), bin(edges[0], edges[2], x, out_w, width),
                  out + (y * to.h + x * to.w) * item_size);
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Pooling& self = step.as<Pooling>();
    const Range range = split(self.count, part, parts);
    self.regions.is_double() ? self.all<double>(step, run, range) : self.all<float>(step, run, range);
  }
};

Refusal support_pooling(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!ElementKeys(in).is_ordered() || in.has_axis())
    return refused("operand 0 is " + described(in), IPR_REASON_DATA_TYPE);
  if (!Reals(*graph.in(node, 1), settings.isa).is_taken() || !is_int32(*graph.in(node, 2)))
    return refused("operand 1 is " + described(*graph.in(node, 1)), IPR_REASON_DATA_TYPE);
  if (!in.same_quantization(graph.out(node)))
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_pooling(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const bool first = node.text("data_layout") == "NCHW";
  auto state = std::make_shared<Pooling>();
  state->keys = ElementKeys(in);
  state->regions = Reals(*graph.in(node, 1), builder.settings.isa);
  state->from = ImageSteps(in, first), state->to = ImageSteps(out, first);
  state->images = in.shape[0], state->count = out.shape[0];
  state->height = in.extent(first ? 2 : 1), state->width = in.extent(first ? 3 : 2);
  state->channels = in.extent(first ? 1 : 3);
  state->out_h = out.extent(first ? 2 : 1), state->out_w = out.extent(first ? 3 : 2);
  state->item_size = int64_t(ipr::item_size(in.dtype));
  state->strides[0] = node.number("height_stride", 1), state->strides[1] = node.number("width_stride", 1);
  const int64_t zero = in.zero_point();
  std::memcpy(state->empty, &zero, sizeof zero);
  Step step;
  step.name = "RoiPooling " + node.name;
  step.fn = &Pooling::run;
  step.check = &Pooling::check;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost::kRegionNs);
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- HeatmapMaxKeypoint ---------------------------------------------------------------------------------------------

constexpr double kFarthest = 1.5;  // cells from the largest cell to the summit

struct Keypoints {
  Reals maps, boxes, of_scores, of_points;
  ImageSteps at;
  int64_t count, keypoints, size;
  float tolerance;

  template <class T>
  struct Summit {
    T x, y, value;
  };

  /// The maximum of the quadratic function through 3 x 3 cells; their center if its matrix is singular.
  template <class T>
  Summit<T> summit_of(const T (&cells)[3][3]) const {
    const T center = cells[1][1];
    const T gx = (cells[1][2] - cells[1][0]) / 2, gy = (cells[2][1] - cells[0][1]) / 2;
    const T a = cells[1][0] - 2 * center + cells[1][2], c = cells[0][1] - 2 * center + cells[2][1];
    const T b = (cells[2][2] - cells[2][0] - cells[0][2] + cells[0][0]) / 4;
    const T determinant = a * c - b * b;
    if (std::fabs(determinant) < T(tolerance) + T(tolerance) * (a * c)) return {0, 0, center};
    T x = (b * gy - c * gx) / determinant, y = (b * gx - a * gy) / determinant;
    const T factor = T(kFarthest) / most_of(most_of(std::fabs(x), std::fabs(y)), T(kFarthest));
    x = x * factor, y = y * factor;
    return {x, y, center + gx * x + gy * y + ((a * x + b * y) * x + (b * x + c * y) * y) / 2};
  }

  template <class T>
  Summit<T> keypoint(const T* map) const {
    auto cell = [&](int64_t row, int64_t column) {
      auto mirrored = [&](int64_t n) { return n < 0 ? -n : n >= size ? 2 * (size - 1) - n : n; };
      return map[mirrored(row) * at.h + mirrored(column) * at.w];
    };
    int64_t row = 0, column = 0;
    for (int64_t y = 0; y < size; ++y)
      for (int64_t x = 0; x < size; ++x) {
        const T best = cell(row, column), value = cell(y, x);
        if (best == best && (value > best || value != value)) row = y, column = x;
      }
    T cells[3][3];
    for (int64_t y = 0; y < 3; ++y)
      for (int64_t x = 0; x < 3; ++x) cells[y][x] = cell(row + y - 1, column + x - 1);
    Summit<T> summit = summit_of(cells);
    summit.x = (T(float(column)) + summit.x + T(0.5)) / T(float(size));
    summit.y = (T(float(row)) + summit.y + T(0.5)) / T(float(size));
    return summit;
  }

  template <class T>
  void all(const Step& step, const Run& run) const {
    std::vector<T> memory[2], scores, points;
    memory[0].resize(size_t(maps.count())), memory[1].resize(size_t(boxes.count()));
    const T* map = maps.read(run.at<void>(step.in[0]), maps.count(), memory[0].data());
    const T* corners = boxes.read(run.at<void>(step.in[1]), boxes.count(), memory[1].data());
    for (int64_t n = 0; n < count; ++n) {
      const Corners<T> box = Corners<T>::at(corners + 4 * n);
      if (!box.is_ordered()) return run.fail(1, 4 * n, "a box ends before it begins");
      for (int64_t k = 0; k < keypoints; ++k) {
        const Summit<T> summit = keypoint(map + n * at.n + k * at.c);
        scores.push_back(summit.value);
        points.push_back(summit.x * (box.high[0] - box.low[0]) + box.low[0]);
        points.push_back(summit.y * (box.high[1] - box.low[1]) + box.low[1]);
      }
    }
    if (step.out[0]) of_scores.write(scores.data(), int64_t(scores.size()), run.at<void>(step.out[0]));
    if (step.out[1]) of_points.write(points.data(), int64_t(points.size()), run.at<void>(step.out[1]));
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Keypoints& self = step.as<Keypoints>();
    self.maps.is_double() ? self.all<double>(step, run) : self.all<float>(step, run);
  }
};

Refusal support_keypoints(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = takes_reals(graph, node, 2, settings.isa)) return why;
  for (int tensor : node.outputs)
    if (tensor >= 0 && !Reals(graph[tensor], settings.isa).is_taken())
      return refused("the result is " + described(graph[tensor]), IPR_REASON_DATA_TYPE);
  if (graph.in(node, 0)->extent(2) < 2) return refused("heatmaps have one row", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

void lower_keypoints(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const native::Isa isa = builder.settings.isa;
  const Tensor& maps = *graph.in(node, 0);
  const bool first = node.text("data_layout") == "NCHW";
  auto state = std::make_shared<Keypoints>();
  state->maps = Reals(maps, isa), state->boxes = Reals(*graph.in(node, 1), isa);
  state->of_scores = Reals(graph.out(node, 0), isa), state->of_points = Reals(graph.out(node, 1), isa);
  state->at = ImageSteps(maps, first);
  state->count = maps.shape[0], state->keypoints = maps.extent(first ? 1 : 3), state->size = maps.extent(2);
  state->tolerance = maps.dtype == IPR_DTYPE_FLOAT16 ? 1e-3f : 1e-5f;
  Step step;
  step.name = "HeatmapMaxKeypoint " + node.name;
  step.fn = &Keypoints::run;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  for (size_t n : {0, 1}) step.out.push_back(builder.buffer(n < node.outputs.size() ? node.outputs[n] : -1));
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Det ------------------------------------------------------------------------------------------------------------

/// The determinant of a square matrix, by elimination with the largest pivots.
double determinant(double* matrix, int64_t size) {
  double product = 1;
  for (int64_t k = 0; k < size; ++k) {
    int64_t pivot = k;
    for (int64_t row = k + 1; row < size; ++row)
      if (std::fabs(matrix[row * size + k]) > std::fabs(matrix[pivot * size + k])) pivot = row;
    if (matrix[pivot * size + k] == 0) return 0;
    if (pivot != k) {
      std::swap_ranges(matrix + k * size, matrix + (k + 1) * size, matrix + pivot * size);
      product = -product;
    }
    product *= matrix[k * size + k];
    for (int64_t row = k + 1; row < size; ++row) {
      const double factor = matrix[row * size + k] / matrix[k * size + k];
      for (int64_t n = k + 1; n < size; ++n) matrix[row * size + n] -= factor * matrix[k * size + n];
    }
  }
  return product;
}

struct Determinants {
  int64_t count, size;
  bool is_double;

  template <class T>
  void all(const Step& step, const Run& run, Range range, double* memory) const {
    for (int64_t n = range.first; n < range.last; ++n) {
      std::copy_n(run.at<T>(step.in[0]) + n * size * size, size * size, memory);
      run.at<T>(step.out[0])[n] = T(determinant(memory, size));
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Determinants& self = step.as<Determinants>();
    const Range range = split(self.count, part, parts);
    double* memory = run.part_scratch<double>(part);
    self.is_double ? self.all<double>(step, run, range, memory) : self.all<float>(step, run, range, memory);
  }
};

constexpr int64_t kLargestMatrix = 32;  // NumPy has blocks and vectors for larger ones

Refusal support_determinant(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (in.is_quantized() || (in.dtype != IPR_DTYPE_FLOAT32 && in.dtype != IPR_DTYPE_FLOAT64))
    return refused("operand 0 is " + described(in), IPR_REASON_DATA_TYPE);
  if (in.extent(-1) > kLargestMatrix) return refused("the matrices are larger than 32 x 32", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

void lower_determinant(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Determinants>();
  state->count = builder.graph.out(node).elements(), state->size = in.extent(-1);
  state->is_double = in.dtype == IPR_DTYPE_FLOAT64;
  Step step;
  step.name = "Det " + node.name;
  step.fn = &Determinants::run;
  step.max_parts = parts_for(builder.settings, double(in.elements() * state->size) * cost::kElementNs);
  step.scratch_per_part = uint64_t(state->size * state->size) * sizeof(double);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family keypoints_family() {
  return {{{"RoiPooling", "plain", support_pooling, lower_pooling, nullptr},
           {"HeatmapMaxKeypoint", "plain", support_keypoints, lower_keypoints, nullptr},
           {"Det", "elimination", support_determinant, lower_determinant, nullptr}},
          {}};
}

}  // namespace cpuacc
