// Images sampled at positions that are data: GridSample, AffineGrid and RoiAlign.

#include "cpuacc/kernels/sample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMaxExtent = 1 << 24;  // of an axis, so that positions of all pixels are exact in float32

std::string label(const Node& node) { return node.type + " " + node.name; }

// ---- GridSample -----------------------------------------------------------------------------------------------------

struct Grid {
  const SampleKernels* kernels;
  GridRules rules;
  int64_t images, channels, pixels, positions, item_size;
  char zero[8];

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Grid& self = step.as<Grid>();
    const int64_t pieces = (self.positions + kSamplePositions - 1) / kSamplePositions;
    const Range range = split(self.images * pieces, part, parts);
    Neighbours neighbours;
    for (int64_t n = range.first; n < range.last; ++n)
      self.sample(step, run, n / pieces, n % pieces * kSamplePositions, neighbours);
  }

  void sample(const Step& step, const Run& run, int64_t image, int64_t first, Neighbours& neighbours) const {
    const int64_t count = std::min(kSamplePositions, positions - first);
    kernels->find(rules, run.at<float>(step.in[1]) + (image * positions + first) * rules.axes, count, neighbours);
    const char* in = run.at<char>(step.in[0]) + image * channels * pixels * item_size;
    char* out = run.at<char>(step.out[0]) + (image * channels * positions + first) * item_size;
    if (rules.mode == SampleMode::nearest)
      return kernels->pick(neighbours, in, out, zero, item_size, count, channels, pixels, positions);
    kernels->mix(neighbours, reinterpret_cast<const float*>(in), reinterpret_cast<float*>(out), count, channels, pixels,
                 positions);
  }
};

SampleMode mode_of(const Node& node) {
  const std::string_view mode = node.text("mode");
  return mode == "LINEAR" ? SampleMode::linear : mode == "CUBIC" ? SampleMode::cubic : SampleMode::nearest;
}

SamplePadding padding_of(const Node& node) {
  const std::string_view padding = node.text("padding_mode");
  if (padding == "BORDER") return SamplePadding::border;
  return padding == "REFLECTION" ? SamplePadding::reflection : SamplePadding::zeros;
}

Refusal support_grid(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &grid = *graph.in(node, 1), &out = graph.out(node);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!is_f32(grid)) return refused("the grid is " + described(grid) + "; takes float32", IPR_REASON_DATA_TYPE);
  if (in.rank() > 5) return refused("takes images of up to three spatial dimensions", IPR_REASON_SHAPE);
  const int64_t images = in.extent(0) * in.extent(1), pixels = images ? in.elements() / images : 0;
  const int64_t extent = *std::max_element(in.shape.begin() + 2, in.shape.end());
  if (pixels == 0 || pixels > INT32_MAX || extent > kMaxExtent)
    return refused("images of this size are not supported", IPR_REASON_SHAPE);
  const bool moves = mode_of(node) == SampleMode::nearest && in.same_quantization(out) && !out.has_axis();
  if (moves && in.dtype <= IPR_DTYPE_BFLOAT16) return taken();
  if (is_f32(in)) return taken();
  return refused(std::string(node.text("mode")) + " of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
}

void lower_grid(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  auto state = std::make_shared<Grid>();
  state->kernels = &sample_kernels_for(builder.settings.isa);
  state->rules = {mode_of(node), padding_of(node), node.flag("align_corners"), in.rank() - 2, {}};
  std::copy(in.shape.begin() + 2, in.shape.end(), state->rules.sizes);
  state->images = in.extent(0), state->channels = in.extent(1);
  state->pixels = in.elements() / (state->images * state->channels);
  state->positions = out.elements() / (state->images * state->channels);
  state->item_size = int64_t(ipr::item_size(in.dtype));
  const int64_t zero = in.zero_point();  // little endian, so its first bytes are the element
  std::memcpy(state->zero, &zero, sizeof zero);
  const double taps = mode_of(node) == SampleMode::nearest ? 1 : mode_of(node) == SampleMode::linear ? 2 : 4;
  Step step;
  step.name = label(node);
  step.fn = &Grid::run;
  step.max_parts = parts_for(builder.settings,
                             double(out.elements()) * std::pow(taps, double(state->rules.axes)) * cost::kSampledNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- AffineGrid -----------------------------------------------------------------------------------------------------

/// The coordinates of the centers of the pixels along an axis.
template <class T>
std::vector<T> middles(int64_t size, bool align_corners) {
  std::vector<T> centers;
  for (int64_t n = 0; n < size; ++n) {
    const double place = double(2 * n + 1) / double(size) - 1, corner = size > 1 ? 2.0 / double(size - 1) : 0;
    const double aligned = size == 1 ? 0 : n + 1 == size ? 1 : corner * double(n) - 1;
    centers.push_back(T(align_corners ? aligned : place));
  }
  return centers;
}

template <class T>
struct Affine {
  std::vector<std::vector<T>> places;  // along each axis, the last one first
  int64_t matrices, rows;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Affine& self = step.as<Affine>();
    const Range range = split(self.matrices * self.rows, part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      self.places.size() == 2 ? self.row<2>(step, run, n) : self.row<3>(step, run, n);
  }

  /// Compute the positions of one row of pixels, in which only the coordinate along the last axis changes.
  template <int kAxes>
  void row(const Step& step, const Run& run, int64_t n) const {
    const T* theta = run.at<T>(step.in[0]) + n / rows * kAxes * (kAxes + 1);
    T change[kAxes], terms[kAxes][kAxes];
    int64_t rest = n % rows;
    for (int j = 1; j < kAxes; rest /= int64_t(places[size_t(j)].size()), ++j)
      for (int i = 0; i < kAxes; ++i)
        terms[i][j - 1] =
            theta[i * (kAxes + 1) + j] * places[size_t(j)][size_t(rest % int64_t(places[size_t(j)].size()))];
    for (int i = 0; i < kAxes; ++i)
      change[i] = theta[i * (kAxes + 1)], terms[i][kAxes - 1] = theta[i * (kAxes + 1) + kAxes];
    const std::vector<T>& along = places[0];
    T* out = run.at<T>(step.out[0]) + n * int64_t(along.size()) * kAxes;
    for (const T place : along)
      for (int i = 0; i < kAxes; ++i, ++out) {
        T sum = change[i] * place;
        for (int j = 0; j < kAxes; ++j) sum += terms[i][j];
        *out = sum;
      }
  }
};

Refusal support_affine(const Graph& graph, const Node& node, const Settings&) {
  const int32_t dtype = graph.in(node, 0)->dtype;
  if (!node.posts.empty()) return refused("takes no post-ops");
  return dtype == IPR_DTYPE_FLOAT64 && graph.out(node).dtype == dtype ? taken() : all_f32(graph, node);
}

template <class T>
void add_affine(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  auto state = std::make_shared<Affine<T>>();
  for (int64_t size : node.integers("extents"))
    state->places.insert(state->places.begin(), middles<T>(size, node.flag("align_corners")));
  state->matrices = out.extent(0);
  state->rows = out.elements() ? out.elements() / (out.extent(0) * out.extent(-1) * out.extent(-2)) : 0;
  Step step;
  step.name = label(node);
  step.fn = &Affine<T>::run;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost::kIndexedNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

void lower_affine(const Node& node, Builder& builder) {
  is_f32(builder.graph.out(node)) ? add_affine<float>(node, builder) : add_affine<double>(node, builder);
}

// ---- RoiAlign -------------------------------------------------------------------------------------------------------

constexpr int64_t kMostSamples = 1 << 20;  // of a bin along one axis, if their number follows from its size
constexpr char kUnsampled[] =
    "a region cannot be sampled: it is not finite, or a bin has more than 2**20 rows or columns";

/// The rules of one axis: bins, samples of each bin (0: as many as the bin has cells), and the size of the images.
struct AxisRules {
  int64_t bins, ratio, size;
  float scale;
  bool half_pixel;
};

/// Samples of a region along one axis.
struct Sampling {
  float start, step;
  int64_t count;  // for each bin; -1: the region cannot be sampled
};

struct Sample {
  int32_t low, high;  // the two cells around the sample
  float fraction;     // the weight of the second one
  bool inside;
};

Sampling sampling_of(const AxisRules& rules, float start, float end) {
  const float offset = rules.half_pixel ? 0.5f : 0.0f;
  const float size = (end - offset) - (start - offset);
  const float step = (size < 1 && !rules.half_pixel ? 1 : size) / float(rules.bins);  // NaN stays NaN
  if (!std::isfinite(step) || (!rules.ratio && step > float(kMostSamples))) return {0, 0, -1};
  return {start - offset, step, rules.ratio ? rules.ratio : std::max<int64_t>(0, int64_t(std::ceil(step)))};
}

Sample sample_of(const AxisRules& rules, const Sampling& sampling, int64_t bin, int64_t number) {
  const float within = sampling.step / float(std::max<int64_t>(sampling.count, 1)) * (float(number) + 0.5f);
  const float place = sampling.start + sampling.step * float(bin) + within;
  const float last = float(rules.size - 1), inner = std::clamp(place, 0.0f, last);
  const int32_t low = int32_t(inner);
  return {low, std::min(low + 1, int32_t(rules.size) - 1), inner - float(low),
          place >= -1 && place <= float(rules.size)};
}

struct Regions {
  const SampleKernels* kernels;
  AxisRules down, across;
  bool largest, wide;
  int64_t images, channels, count;

  int64_t bin_count() const { return down.bins * across.bins; }
  uint64_t weights() const { return uint64_t(down.bins * down.size + across.bins * across.size); }
  /// Weights, one row of an image, and the bins.
  uint64_t scratch() const {
    return uint64_t(down.bins + across.bins) * sizeof(BinWeights) + (weights() + uint64_t(across.size)) * sizeof(float);
  }

  /// Write the weights of the cells for each bin, and return the memory after them.
  static float* weigh(const AxisRules& rules, const Sampling& sampling, BinWeights* bins, float* memory) {
    for (int64_t bin = 0; bin < rules.bins; ++bin) {
      int32_t first = int32_t(rules.size), last = -1;
      for (int64_t n = 0; n < sampling.count; ++n) {
        const Sample sample = sample_of(rules, sampling, bin, n);
        if (!sample.inside) continue;
        first = std::min(first, sample.low), last = std::max(last, sample.high);
      }
      const int32_t count = std::max(0, last + 1 - first);
      bins[bin] = {count ? first : 0, count, memory};
      std::fill_n(memory, count, 0.0f);
      const float each = 1.0f / float(std::max<int64_t>(sampling.count, 1));
      for (int64_t n = 0; n < sampling.count; ++n) {
        const Sample sample = sample_of(rules, sampling, bin, n);
        if (!sample.inside) continue;
        memory[sample.low - first] += (1 - sample.fraction) * each;
        memory[sample.high - first] += sample.fraction * each;
      }
      memory += count;
    }
    return memory;
  }

  /// The largest of all weighted neighbours of the samples of a bin.
  float greatest(const float* image, const Sampling& rows, const Sampling& columns, int64_t bin) const {
    float greatest_value = -INFINITY;
    for (int64_t i = 0; i < rows.count; ++i)
      for (int64_t j = 0; j < columns.count; ++j) {
        const Sample y = sample_of(down, rows, bin / across.bins, i);
        const Sample x = sample_of(across, columns, bin % across.bins, j);
        for (int corner = 0; corner < 4; ++corner) {
          const float wy = (corner & 1 ? y.fraction : 1 - y.fraction) * float(y.inside);
          const float wx = (corner & 2 ? x.fraction : 1 - x.fraction) * float(x.inside);
          const float cell = image[(corner & 1 ? y.high : y.low) * across.size + (corner & 2 ? x.high : x.low)];
          const float value = cell * (wy * wx);
          if (!(value <= greatest_value) && greatest_value == greatest_value) greatest_value = value;
        }
      }
    return std::isinf(greatest_value) ? 0 : greatest_value;
  }

  /// Compute the channels [first, last) of one region.
  void region(const Step& step, const Run& run, char* scratch, int64_t number, Range range) const {
    const float* box = run.at<float>(step.in[1]) + 4 * number;
    const void* batches = run.at(step.in[2]);
    const int64_t image =
        wide ? static_cast<const int64_t*>(batches)[number] : static_cast<const int32_t*>(batches)[number];
    if (image < 0 || image >= images) return run.fail(2, number, image, 0, images - 1);
    const Sampling columns = sampling_of(across, box[0] * across.scale, box[2] * across.scale);
    const Sampling rows = sampling_of(down, box[1] * down.scale, box[3] * down.scale);
    if (rows.count < 0 || columns.count < 0) return run.fail(1, 4 * number, kUnsampled);
    BinWeights *vertical = reinterpret_cast<BinWeights*>(scratch), *horizontal = vertical + down.bins;
    float* memory = reinterpret_cast<float*>(horizontal + across.bins);
    if (!largest) memory = weigh(across, columns, horizontal, weigh(down, rows, vertical, memory));
    const int64_t pixels = down.size * across.size;
    for (int64_t channel = range.first; channel < range.last; ++channel) {
      const float* from = run.at<float>(step.in[0]) + (image * channels + channel) * pixels;
      float* to = run.at<float>(step.out[0]) + (number * channels + channel) * bin_count();
      if (!largest)
        kernels->bins(from, across.size, vertical, down.bins, horizontal, across.bins, memory, to);
      else
        for (int64_t bin = 0; bin < bin_count(); ++bin) to[bin] = greatest(from, rows, columns, bin);
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Regions& self = step.as<Regions>();
    const Range range = split(self.count * self.channels, part, parts);
    for (int64_t n = range.first; n < range.last;) {
      const int64_t number = n / self.channels, first = n % self.channels;
      const int64_t last = std::min(self.channels, first + range.last - n);
      self.region(step, run, run.part_scratch<char>(part), number, {first, last});
      n += last - first;
    }
  }
};

Refusal support_regions(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  for (size_t n : {0, 1})
    if (!is_f32(*graph.in(node, n)))
      return refused("operand " + std::to_string(n) + " is " + described(*graph.in(node, n)) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  if (!is_f32(graph.out(node))) return refused("the result is " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  if (node.text("data_layout") != "NCHW") return refused("takes images in NCHW", IPR_REASON_ATTRIBUTE);
  const Tensor& in = *graph.in(node, 0);
  if (std::max(in.extent(2), in.extent(3)) > kMaxExtent)
    return refused("images of this size are not supported", IPR_REASON_SHAPE);
  return taken();
}

void lower_regions(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const bool half_pixel = node.flag("half_pixel");
  auto state = std::make_shared<Regions>();
  state->kernels = &sample_kernels_for(builder.settings.isa);
  state->down = {out.extent(2), node.integer("height_sampling_ratio"), in.extent(2),
                 1.0f / float(node.number("height_stride", 1)), half_pixel};
  state->across = {out.extent(3), node.integer("width_sampling_ratio"), in.extent(3),
                   1.0f / float(node.number("width_stride", 1)), half_pixel};
  state->largest = node.text("mode") == "MAX";
  state->wide = builder.graph.in(node, 2)->dtype == IPR_DTYPE_INT64;
  state->images = in.extent(0), state->channels = in.extent(1), state->count = out.extent(0);
  Step step;
  step.name = label(node);
  step.fn = &Regions::run;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost::kRegionNs);
  step.scratch_per_part = state->scratch();
  for (int tensor : node.inputs) step.in.push_back(builder.buffer(tensor));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family sample_family() {
  return {{{"GridSample", "plain", support_grid, lower_grid, nullptr},
           {"AffineGrid", "plain", support_affine, lower_affine, nullptr},
           {"RoiAlign", "plain", support_regions, lower_regions, nullptr}},
          {}};
}

}  // namespace cpuacc
