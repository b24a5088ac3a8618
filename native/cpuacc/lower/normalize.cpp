// Normalizations of float32.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpuacc/kernels/rows.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/epilogue_f32.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

bool single(const Tensor* tensor) { return tensor == nullptr || tensor->elements() == 1; }

// ---- Rows that are standardized -------------------------------------------------------------------------------------

struct Rows {
  const NormalizeKernels* kernels;
  Spread spread;
  float eps;
  int64_t rows, length;
  int64_t inner, period;      // elements of a row that share a factor; factors of a row
  int64_t sets;               // rows after which the factors repeat
  bool one_scale, one_shift;  // a single factor for all

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Rows& self = step.as<Rows>();
    const float* in = run.at<float>(step.in[0]);
    const float* scale = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
    const float* shift = step.in[2] ? run.at<float>(step.in[2]) : nullptr;
    float* out = run.at<float>(step.out[0]);
    Range range = split(self.rows, part, parts);
    const bool both = (!scale || !self.one_scale) && (!shift || !self.one_shift);
    const int64_t together = both && self.sets == 1 ? range.last - range.first : 1;
    for (int64_t row = range.first; row < range.last; row += together) {
      int64_t set = row % self.sets * self.period, at = row * self.length;
      Affine with{scale ? scale + set : nullptr, shift ? shift + set : nullptr, self.inner, self.period};
      if (both) {
        self.kernels->standardize(in + at, out + at, together, self.length, self.spread, self.eps, with);
        continue;
      }
      self.kernels->standardize(in + at, out + at, 1, self.length, self.spread, self.eps, {nullptr, nullptr, 1, 1});
      apply(self, out + at, scale, self.one_scale, set, true);
      apply(self, out + at, shift, self.one_shift, set, false);
    }
  }

  static void apply(const Rows& self, float* out, const float* values, bool is_scalar, int64_t set, bool scale) {
    if (!values) return;
    const float* from = is_scalar ? values : values + set;
    Affine with{scale ? from : nullptr, scale ? nullptr : from, is_scalar ? self.length : self.inner,
                is_scalar ? 1 : self.period};
    self.kernels->affine(out, out, self.length, 0, with);
  }
};

Step rows_step(const Node& node, Builder& builder, Rows rows, Buffer in, Buffer out) {
  const Graph& graph = builder.graph;
  const Tensor *scale = graph.in(node, 1), *shift = graph.in(node, 2);
  rows.kernels = &normalize_kernels_for(builder.settings.isa);
  rows.one_scale = scale && scale->elements() == 1;
  rows.one_shift = shift && shift->elements() == 1;
  if (rows.length == 0) rows.rows = 0;
  rows.sets = std::max<int64_t>(rows.sets, 1);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Rows::run;
  step.max_parts = parts_for(builder.settings, double(rows.rows) * double(rows.length) * cost::kStandardizeNs);
  step.in = {in, builder.buffer(scale ? node.inputs[1] : -1), builder.buffer(shift ? node.inputs[2] : -1)};
  step.out = {out};
  step.in_place = 0;
  step.state = std::make_shared<Rows>(rows);
  return step;
}

/// gamma and beta of LayerNormalization are absent, a single element, or have all of the last axes.
bool of_a_row(const Tensor* tensor, int64_t length) { return single(tensor) || tensor->elements() == length; }

int64_t row_length(const Graph& graph, const Node& node) {
  const Tensor& in = *graph.in(node, 0);
  int64_t length = 1;
  for (int n = axis_of(node.integer("axis", -1), in.rank()); n < in.rank(); ++n) length *= in.shape[size_t(n)];
  return length;
}

Refusal layer_support(const Graph& graph, const Node& node, const Settings&) {
  Refusal why = all_f32(graph, node);
  if (why) return why;
  if (!node.posts.empty()) return refused("takes no post-ops");
  int64_t length = row_length(graph, node);
  if (of_a_row(graph.in(node, 1), length) && of_a_row(graph.in(node, 2), length)) return taken();
  return refused("gamma and beta are neither single elements nor as long as what is normalized", IPR_REASON_SHAPE);
}

void lower_layer(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  Rows rows{};
  rows.spread = node.type == "RmsNormalization" ? Spread::mean_square : Spread::variance;
  rows.eps = float(node.number("eps"));
  rows.length = row_length(builder.graph, node);
  rows.rows = rows.length ? in.elements() / rows.length : 0;
  rows.inner = 1;
  rows.period = rows.length;
  rows.sets = 1;
  builder.add(rows_step(node, builder, rows, builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0])));
}

Refusal f32_support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  return all_f32(graph, node);
}

/// Move the channels of a tensor from the last axis to the second, or back.
void move_channels(const Node& node, Builder& builder, Buffer in, Buffer out, bool ahead) {
  const Tensor& tensor = builder.graph.out(node);
  int64_t n = tensor.shape[0], c = tensor.shape.back(), pixels = tensor.elements() / std::max<int64_t>(n * c, 1);
  Axes axes = ahead ? Axes{{n, pixels * c, pixels * c}, {c, 1, pixels}, {pixels, c, 1}}
                    : Axes{{n, pixels * c, pixels * c}, {pixels, 1, c}, {c, pixels, 1}};
  builder.add(copy_step(builder, "turn for " + node.name, in, out, axes, 4));
}

/// Normalization of groups of channels of images in blocks of 16 channels. A unit is the blocks that have whole groups.
struct BlockedGroups {
  static constexpr int64_t kPiece = 256;  // pixels whose sums are float32; all pieces are added in float64

  const NormalizeKernels* kernels;
  float eps;
  int64_t images, blocks, pixels, channels, members, unit;
  bool one_gamma, one_beta;

  int64_t units() const { return (blocks + unit - 1) / unit; }
  int64_t lanes() const { return unit * 16; }
  uint64_t scratch() const { return uint64_t(lanes()) * (4 * sizeof(float) + 2 * sizeof(double)); }

  /// The sums of the distances from `center`, and of their squares, in each lane of `count` blocks.
  void measure(const float* in, int64_t count, const float* center, double* sums, double* squares) const {
    std::fill_n(sums, count * 16, 0.0);
    std::fill_n(squares, count * 16, 0.0);
    for (int64_t block = 0; block < count; ++block)
      for (int64_t pixel = 0; pixel < pixels; pixel += kPiece) {
        alignas(64) float some[16] = {}, some_squares[16] = {};
        kernels->deviations_block(in + (block * pixels + pixel) * 16, std::min(kPiece, pixels - pixel),
                                  center + block * 16, some, some_squares);
        for (int64_t lane = 0; lane < 16; ++lane) sums[block * 16 + lane] += double(some[lane]);
        for (int64_t lane = 0; lane < 16; ++lane) squares[block * 16 + lane] += double(some_squares[lane]);
      }
  }

  /// Replace the sums of the channels of each group by the mean of the group.
  void average_groups(double* sums, int64_t own) const {
    for (int64_t first = 0; first < own; first += members)
      std::fill_n(sums + first, members,
                  std::accumulate(sums + first, sums + first + members, 0.0) / double(members * pixels));
  }

  /// The first element of the group of a channel: sums of distances from it are exact enough for values that are far
  /// from 0 and close to each other.
  float first_of_group(const float* in, int64_t channel) const {
    const int64_t first = channel / members * members;
    return in[first / 16 * pixels * 16 + first % 16];
  }

  /// Normalize one unit, the first channel of which is `first`.
  void standardize(const float* in, float* out, const float* gamma, const float* beta, int64_t first,
                   float* scratch) const {
    const int64_t own = std::min(lanes(), channels - first), count = (own + 15) / 16;
    float *center = scratch, *factor = center + lanes(), *scale = factor + lanes(), *shift = scale + lanes();
    double *sums = reinterpret_cast<double*>(shift + lanes()), *squares = sums + lanes();
    std::fill_n(scratch, 4 * lanes(), 0.0f);
    for (int64_t c = 0; c < own; ++c) center[c] = first_of_group(in, c);
    measure(in, count, center, sums, squares);
    average_groups(sums, own);
    for (int64_t c = 0; c < own; ++c) center[c] = float(double(center[c]) + sums[c]);
    measure(in, count, center, sums, squares);
    average_groups(sums, own);
    average_groups(squares, own);
    for (int64_t c = 0; c < own; ++c) {
      const double rest = sums[c];  // the mean is not a float
      const double variance = std::max(0.0, squares[c] - rest * rest);
      factor[c] = float(1 / std::sqrt(variance + double(eps)));
      scale[c] = gamma ? gamma[one_gamma ? 0 : first + c] : 1.0f;
      shift[c] = (beta ? beta[one_beta ? 0 : first + c] : 0.0f) - float(rest) * factor[c] * scale[c];
    }
    for (int64_t n = 0; n < count; ++n)
      kernels->batch_block(in + n * pixels * 16, out + n * pixels * 16, pixels,
                           {center + n * 16, factor + n * 16, scale + n * 16, shift + n * 16, 1, 16}, -INFINITY,
                           INFINITY);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const BlockedGroups& self = step.as<BlockedGroups>();
    const float *gamma = step.in[1] ? run.at<float>(step.in[1]) : nullptr,
                *beta = step.in[2] ? run.at<float>(step.in[2]) : nullptr;
    const Range range = split(self.images * self.units(), part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t block = n % self.units() * self.unit;
      const int64_t at = (n / self.units() * self.blocks + block) * self.pixels * 16;
      self.standardize(run.at<float>(step.in[0]) + at, run.at<float>(step.out[0]) + at, gamma, beta, block * 16,
                       run.part_scratch<float>(part));
    }
  }
};

Layouts group_layouts(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& in = *graph.in(node, 0);
  const bool agrees = is_blocked(in.layout) && in.elements() > 0 &&
                      channel_axis(node, in.rank()) == channel_axis_of(in.layout, in.rank());
  return agrees ? Layouts{{in.layout}, {in.layout}} : Layouts{};
}

void lower_blocked_groups(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), *gamma = graph.in(node, 1), *beta = graph.in(node, 2);
  const Shape memory = blocked_shape(in);
  auto state = std::make_shared<BlockedGroups>();
  state->kernels = &normalize_kernels_for(builder.settings.isa);
  state->eps = float(node.number("eps"));
  state->images = memory[0], state->blocks = memory[1], state->pixels = memory[2] * memory[3];
  state->channels = in.extent(channel_axis_of(in.layout, in.rank()));
  state->members = state->channels / node.integer("num_groups", state->channels);
  state->unit = state->members / std::gcd(state->members, int64_t{16});
  state->one_gamma = gamma && gamma->elements() == 1, state->one_beta = beta && beta->elements() == 1;
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &BlockedGroups::run;
  step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, double(in.elements()) * cost::kStandardizeNs),
                                         state->images * state->units()));
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(gamma ? node.inputs[1] : -1),
             builder.buffer(beta ? node.inputs[2] : -1)};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.scratch_per_part = state->scratch();
  step.state = std::move(state);
  builder.add(std::move(step));
}

void lower_groups(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  if (is_blocked(in.layout)) return lower_blocked_groups(node, builder);
  int axis = channel_axis(node, in.rank());
  int64_t channels = in.shape[size_t(axis)], groups = node.integer("num_groups", channels);
  if (in.elements() == 0) return;
  Rows rows{};
  rows.spread = Spread::variance;
  rows.eps = float(node.number("eps"));
  rows.rows = in.shape[0] * groups;
  rows.length = in.elements() / rows.rows;
  rows.inner = in.elements() / (in.shape[0] * channels);
  rows.period = channels / groups;
  rows.sets = groups;
  Buffer from = builder.buffer(node.inputs[0]), to = builder.buffer(node.outputs[0]);
  if (axis == 1) {
    builder.add(rows_step(node, builder, rows, from, to));
    return;
  }
  Buffer turned = builder.temporary(in.bytes());
  move_channels(node, builder, from, turned, true);
  builder.add(rows_step(node, builder, rows, turned, turned));
  move_channels(node, builder, turned, to, false);
}

void lower_mean_variance(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  if (in.elements() == 0) return;
  std::vector<char> over(in.shape.size(), 0);
  for (int64_t axis : node.integers("axis")) over[size_t(axis_of(axis, in.rank()))] = 1;
  Shape steps = steps_of(in.shape), shape;
  std::vector<size_t> order;
  for (char wanted : {0, 1})
    for (size_t n = 0; n < over.size(); ++n)
      if (over[n] == wanted) order.push_back(n), shape.push_back(in.shape[n]);
  Axes there = axes_of(shape), back;
  for (size_t n = 0; n < order.size(); ++n) there[n].from = steps[order[n]];
  for (const Axis& axis : there) back.push_back({axis.extent, axis.to, axis.from});
  Rows rows{};
  rows.spread = Spread::deviation;
  rows.eps = float(node.number("eps"));
  rows.length = 1;
  for (size_t n = 0; n < over.size(); ++n)
    if (over[n]) rows.length *= in.shape[n];
  rows.rows = in.elements() / rows.length;
  rows.inner = rows.period = rows.sets = 1;
  Buffer turned = builder.temporary(in.bytes());
  builder.add(copy_step(builder, "turn for " + node.name, builder.buffer(node.inputs[0]), turned, there, 4));
  builder.add(rows_step(node, builder, rows, turned, turned));
  builder.add(copy_step(builder, "turn back for " + node.name, turned, builder.buffer(node.outputs[0]), back, 4));
}

// ---- Batch normalization --------------------------------------------------------------------------------------------

constexpr int64_t kAtOnce = 8192;  // elements that are clamped while they are in the first-level cache: 32 KiB

/// Two factors of each channel, whose product is gamma / sqrt(variance + eps). The second one is 1 if that product is 0
/// or a normal float: x times one factor only would overflow for large x where x times both does not.
void batch_factors(const float* variance, const float* gamma, float eps, int64_t channels, float* first,
                   float* second) {
  for (int64_t c = 0; c < channels; ++c) {
    const double factor = 1 / std::sqrt(double(variance[c]) + double(eps)), both = factor * double(gamma[c]);
    const bool is_one = std::isnormal(float(both)) || both == 0;
    first[c] = float(is_one ? both : factor);
    second[c] = is_one ? 1.0f : gamma[c];
  }
}

struct Batch {
  const NormalizeKernels* kernels;
  float eps;
  int64_t count, channels, inner;
  bool clamps;
  float low, high;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Batch& self = step.as<Batch>();
    float* factors = run.part_scratch<float>(part);
    batch_factors(run.at<float>(step.in[2]), run.at<float>(step.in[4]), self.eps, self.channels, factors,
                  factors + self.channels);
    const BatchParameters parameters{run.at<float>(step.in[1]), factors,    factors + self.channels,
                                     run.at<float>(step.in[3]), self.inner, self.channels};
    Range range = split(self.count, part, parts, 64);
    for (int64_t at = range.first; at < range.last; at += kAtOnce) {
      int64_t count = std::min(kAtOnce, range.last - at);
      float* out = run.at<float>(step.out[0]) + at;
      self.kernels->batch(run.at<float>(step.in[0]) + at, out, count, at, parameters);
      if (self.clamps) self.kernels->clamp(out, count, self.low, self.high);
    }
  }
};

/// Batch normalization of blocks of 16 channels with constant parameters, followed by a clamp.
struct BlockedBatch {
  const NormalizeKernels* kernels;
  const float* parameters;  // mean, both factors and beta of each channel, padded to whole blocks
  float low, high;
  int64_t slices, blocks, pixels;  // a slice is one block of one image

  static void run(const Step& step, const Run& run, int part, int parts) {
    const BlockedBatch& self = step.as<BlockedBatch>();
    Range range = split(self.slices * self.pixels, part, parts);
    for (int64_t at = range.first; at < range.last;) {
      int64_t slice = at / self.pixels, end = std::min(range.last, (slice + 1) * self.pixels),
              c = slice % self.blocks * 16;
      const float* own = self.parameters + c;
      const int64_t all = self.blocks * 16;
      self.kernels->batch_block(run.at<float>(step.in[0]) + at * 16, run.at<float>(step.out[0]) + at * 16, end - at,
                                {own, own + all, own + 2 * all, own + 3 * all, 1, 16}, self.low, self.high);
      at = end;
    }
  }
};

bool constant_parameters(const Graph& graph, const Node& node) {
  for (size_t n = 1; n < 5; ++n)
    if (!graph.in(node, n) || !graph.in(node, n)->is_constant()) return false;
  return true;
}

Refusal batch_support(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  FusedEpilogue fused;
  if (Refusal why = find_epilogue(graph, node, &fused)) return why;
  const bool clamps = fused.residual < 0 && fused.epilogue.count == 0;
  return node.posts.empty() || clamps ? taken() : refused("takes no post-ops but a clamp");
}

Layouts batch_layouts(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& in = *graph.in(node, 0);
  if (!is_blocked(in.layout) || !constant_parameters(graph, node)) return {};
  return channel_axis(node, in.rank()) == channel_axis_of(in.layout, in.rank()) ? Layouts{{in.layout}, {in.layout}}
                                                                                : Layouts{};
}

void lower_blocks(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& in = *graph.in(node, 0);
  Shape in_memory = blocked_shape(in);
  const int64_t all = in_memory[1] * 16, channels = in.extent(channel_axis_of(in.layout, in.rank()));
  auto parameters = static_cast<const float*>(builder.pack(uint64_t(4 * all) * sizeof(float), [&](void* to) {
    auto values = static_cast<float*>(to);
    auto of = [&](size_t operand) { return graph.in(node, operand)->values<float>(); };
    std::copy_n(of(1), channels, values);
    batch_factors(of(2), of(4), float(node.number("eps")), channels, values + all, values + 2 * all);
    std::copy_n(of(3), channels, values + 3 * all);
  }));
  Epilogue epilogue = epilogue_of(graph, node).epilogue;
  Step step;
  step.name = "BatchNormalization " + node.name;
  step.fn = &BlockedBatch::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kBatchBlockNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::make_shared<BlockedBatch>(BlockedBatch{&normalize_kernels_for(builder.settings.isa), parameters,
                                                           epilogue.low, epilogue.high, in_memory[0] * in_memory[1],
                                                           in_memory[1], in_memory[2] * in_memory[3]});
  builder.add(std::move(step));
}

void lower_batch(const Node& node, Builder& builder) {
  if (is_blocked(builder.graph.in(node, 0)->layout)) return lower_blocks(node, builder);
  const Tensor& in = *builder.graph.in(node, 0);
  Around at = around(in.shape, channel_axis(node, in.rank()));
  auto state = std::make_shared<Batch>();
  state->kernels = &normalize_kernels_for(builder.settings.isa);
  state->eps = float(node.number("eps"));
  state->count = in.elements();
  state->channels = at.extent;
  state->inner = at.inner;
  Epilogue epilogue = epilogue_of(builder.graph, node).epilogue;
  state->clamps = !node.posts.empty(), state->low = epilogue.low, state->high = epilogue.high;
  Step step;
  step.name = "BatchNormalization " + node.name;
  step.fn = &Batch::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kBatchNs);
  for (int tensor : node.inputs) step.in.push_back(builder.buffer(tensor));
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.scratch_per_part = uint64_t(2 * at.extent) * sizeof(float);
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Length and local response --------------------------------------------------------------------------------------

struct UnitLength {
  const NormalizeKernels* kernels;
  float eps;
  int64_t outer, extent, inner;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const UnitLength& self = step.as<UnitLength>();
    Range range = split(self.outer, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      int64_t at = n * self.extent * self.inner;
      self.kernels->unit_length(run.at<float>(step.in[0]) + at, run.at<float>(step.out[0]) + at, self.extent,
                                self.inner, 0, self.inner, self.eps);
    }
  }
};

void lower_unit_length(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  Around at = around(in.shape, axis_or_channels(node, in.rank()));
  auto state = std::make_shared<UnitLength>();
  state->kernels = &normalize_kernels_for(builder.settings.isa);
  state->eps = float(node.number("eps"));
  state->outer = at.outer, state->extent = at.extent, state->inner = at.inner;
  Step step;
  step.name = "L2Normalization " + node.name;
  step.fn = &UnitLength::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kUnitLengthNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

/// Windows along one axis.
struct Response {
  const NormalizeKernels* kernels;
  ResponseParameters parameters;
  Around at;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Response& self = step.as<Response>();
    const Around& at = self.at;
    Range range = split(at.outer * at.inner, part, parts);
    for (int64_t n = range.first; n < range.last;) {
      const int64_t slice = n / at.inner, end = std::min(range.last, (slice + 1) * at.inner);
      const int64_t place = slice * at.extent * at.inner, first = n - slice * at.inner;
      self.kernels->response(run.at<float>(step.in[0]) + place, run.at<float>(step.out[0]) + place, at.extent, at.inner,
                             first, first + end - n, self.parameters);
      n = end;
    }
  }
};

/// Windows along two axes: sums of squares along one axis, and of these along the other one, in float64.
struct ResponseOfPlane {
  ResponseParameters parameters;
  Around axes[2];
  int64_t count;

  static void run(const Step& step, const Run& run, int, int) {
    const ResponseOfPlane& self = step.as<ResponseOfPlane>();
    const ResponseParameters& by = self.parameters;
    const float* in = run.at<float>(step.in[0]);
    double *now = run.at<double>(step.out[1]), *next = now + self.count;
    for (int64_t n = 0; n < self.count; ++n) now[n] = double(in[n]) * double(in[n]);
    for (const Around& axis : self.axes) {
      self.slide(now, next, axis);
      std::swap(now, next);
    }
    float* out = run.at<float>(step.out[0]);
    for (int64_t n = 0; n < self.count; ++n) out[n] = in[n] / std::pow(by.k + by.alpha * float(now[n]), by.beta);
  }

  void slide(const double* in, double* out, const Around& at) const {
    for (int64_t o = 0; o < at.outer; ++o)
      for (int64_t e = 0; e < at.extent; ++e) {
        const int64_t start = e - parameters.before;
        int64_t first = std::max<int64_t>(0, start), last = std::min(at.extent, start + parameters.size);
        double* to = out + (o * at.extent + e) * at.inner;
        std::fill(to, to + at.inner, 0.0);
        for (int64_t i = first; i < last; ++i)
          for (int64_t n = 0; n < at.inner; ++n) to[n] += in[(o * at.extent + i) * at.inner + n];
      }
  }
};

Refusal response_support(const Graph& graph, const Node& node, const Settings& settings) {
  if (node.text("method_type") != "LOCAL_BRIGHTNESS")
    return refused(std::string(node.text("method_type")) + " is not computed", IPR_REASON_ATTRIBUTE);
  return f32_support(graph, node, settings);
}

void lower_plane_response(const Node& node, Builder& builder, const ResponseParameters& parameters, Step step) {
  const Tensor& in = *builder.graph.in(node, 0);
  const int height = channel_axis(node, in.rank()) == 1 ? 2 : 1;
  step.fn = &ResponseOfPlane::run;
  step.out.push_back(builder.temporary(uint64_t(in.elements()) * 2 * sizeof(double)));
  step.state = std::make_shared<ResponseOfPlane>(
      ResponseOfPlane{parameters, {around(in.shape, height), around(in.shape, height + 1)}, in.elements()});
  builder.add(std::move(step));
}

void lower_response(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  const int64_t size = node.integer("norm_size");
  const ResponseParameters parameters{float(node.number("k")), float(node.number("alpha")), float(node.number("beta")),
                                      size, size > 0 ? (size - 1) / 2 : 0};
  Step step;
  step.name = "Normalization " + node.name;
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  if (node.text("channel_type") == "WITHIN") return lower_plane_response(node, builder, parameters, std::move(step));
  const int channel = node.has("axis") ? axis_of(node.integer("axis"), in.rank()) : channel_axis(node, in.rank());
  step.fn = &Response::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kResponseNs);
  step.state = std::make_shared<Response>(
      Response{&normalize_kernels_for(builder.settings.isa), parameters, around(in.shape, channel)});
  builder.add(std::move(step));
}

}  // namespace

Family normalize_family() {
  Family family;
  family.lowerings = {
      {"LayerNormalization", "plain", layer_support, lower_layer, nullptr},
      {"RmsNormalization", "plain", layer_support, lower_layer, nullptr},
      {"InstanceNormalization", "plain", f32_support, lower_groups, group_layouts},
      {"GroupNormalization", "plain", f32_support, lower_groups, group_layouts},
      {"MeanVarianceNormalization", "plain", f32_support, lower_mean_variance, nullptr},
      {"BatchNormalization", "plain", batch_support, lower_batch, batch_layouts},
      {"L2Normalization", "plain", f32_support, lower_unit_length, nullptr},
      {"Normalization", "plain", response_support, lower_response, nullptr},
  };
  return family;
}

}  // namespace cpuacc
