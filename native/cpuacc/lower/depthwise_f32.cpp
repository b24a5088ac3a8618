// DepthwiseConvolution2d of float32, and convolutions of images and volumes in groups of few channels.

#include <algorithm>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMaxExtent = 1 << 20;
constexpr int64_t kMaxCells = 1 << 24;      // floats of the rows under a window
constexpr int64_t kMaxGroupInputs = 16;     // input channels of the largest groups that are expanded
constexpr int64_t kCachedBytes = 1 << 20;   // of rows with channels last that are computed together
constexpr int64_t kMaxPointwiseInputs = 4;  // the same for windows of one element, where expanding takes most time

/// A convolution to some pixels of the output, from `out_offset` floats on.
struct Phase {
  Depthwise depthwise;
  int64_t out_offset;
};

struct State {
  const ConvKernels* kernels;
  std::vector<Phase> phases;  // one, or those of a transposed convolution
  int64_t images, in_image, out_image;
};

/// Compute an image with channels last: some rows of all blocks, which share cache lines and pages, before the next
/// rows.
void run_by_rows(const State& state, const Depthwise& d, const float* in, float* out, const float* residual,
                 float* scratch, int part, int parts) {
  const int64_t rows = int64_t{d.out_depth} * d.out_height, pixels = int64_t{d.width} + d.out_width;
  const int64_t together = std::clamp<int64_t>(kCachedBytes / (pixels * d.in_pixel * 4), 4, std::max<int64_t>(rows, 4));
  const int64_t strips = (rows + together - 1) / together;
  const Range range = split(strips * d.blocks, part, parts);
  for (int64_t n = range.first; n < range.last; ++n) {
    const int64_t block = n % d.blocks * rows, first = n / d.blocks * together;
    state.kernels->depthwise(d, in, out, residual, scratch, block + first, block + std::min(first + together, rows));
  }
}

void run_depthwise(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const float* in = run.at<float>(step.in[0]);
  const float* residual = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
  float* out = run.at<float>(step.out[0]);
  for (int64_t image = 0; image < state.images; ++image) {
    for (const Phase& phase : state.phases) {
      const Depthwise& d = phase.depthwise;
      if (d.in_pixel != 16) {
        run_by_rows(state, d, in, out, residual, run.part_scratch<float>(part), part, parts);
        continue;
      }
      Range range = split(int64_t{d.blocks} * d.out_depth * d.out_height, part, parts);
      state.kernels->depthwise(d, in, out + phase.out_offset, residual ? residual + phase.out_offset : nullptr,
                               run.part_scratch<float>(part), range.first, range.last);
    }
    in += state.in_image;
    out += state.out_image;
    if (residual) residual += state.out_image;
  }
}

/// A convolution each of whose output channels reads the `inputs` channels of its group.
struct Grouped {
  Grouped(const Graph& graph, const Node& node)
      : in(*graph.in(node, 0), channels_last(node)), out(graph.out(node), channels_last(node)),
        weights(*graph.in(node, 1)), depthwise(node.type == "DepthwiseConvolution2d"),
        groups(depthwise ? in.c : node.integer("groups", 1)), inputs(groups == 0 ? 0 : in.c / groups),
        outputs(groups == 0 ? 0 : out.c / groups), window(window_of(node)) {
    auto axis = [&](const char* stride, const char* dilation, const char* pad, int64_t kernel, int64_t size,
                    int64_t places) {
      return WindowAxis{kernel, node.integer(stride, 1), node.integer(dilation, 1), node.integer(pad), size, places};
    };
    planes = axis("stride_z", "dilation_z", "pad_front", window.d, in.d, out.d);
    rows = axis("stride_y", "dilation_y", "pad_top", window.h, in.h, out.h);
    columns = axis("stride_x", "dilation_x", "pad_left", window.w, in.w, out.w);
  }

  /// The weights of DepthwiseConvolution2d are (1, KH, KW, O) in both layouts.
  WindowShape window_of(const Node& node) const { return WindowShape(weights, depthwise || channels_last(node)); }

  Weights all_weights() const {
    if (depthwise) return {weights.floats(), out.c, 1, window.taps(), 1, 0, out.c};
    return weights_of(weights, in.last, out.c, inputs);
  }

  /// Channels are not those of the output at the same position.
  bool expands() const { return inputs != 1 || outputs != 1; }

  Image in, out;
  const Tensor& weights;
  bool depthwise;
  int64_t groups, inputs, outputs;
  WindowShape window;
  WindowAxis planes, rows, columns;
};

bool is_padded(const Node& node) {
  for (const char* name : {"pad_top", "pad_bottom", "pad_left", "pad_right", "pad_front", "pad_back"})
    if (node.integer(name)) return true;
  return false;
}

Refusal within_limits(const Graph& graph, const Node& node) {
  for (const Tensor* tensor : {graph.in(node, 0), graph.in(node, 1), &graph.out(node)})
    for (int64_t extent : tensor->shape)
      if (extent > kMaxExtent) return refused("an extent of " + std::to_string(extent), IPR_REASON_RESOURCE);
  for (const char* name : {"pad_front", "pad_top", "pad_left", "stride_z", "stride_y", "stride_x", "dilation_z",
                           "dilation_y", "dilation_x"})
    if (node.integer(name) > kMaxExtent)
      return refused(std::string(name) + " is greater than 2**20", IPR_REASON_RESOURCE);
  return taken();
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (Refusal why = constant_weights(graph, node)) return why;
  if (Refusal why = within_limits(graph, node)) return why;
  const Grouped g(graph, node);
  if (g.window.d * g.window.h * g.inputs > kMaxWindowRows)
    return refused("a window of more than 256 rows", IPR_REASON_RESOURCE);
  double rows = double(g.window.d * g.window.h * g.inputs) * double(g.rows.dilation);
  double width = double(g.in.w) + double(g.columns.pad) + double(g.window.w) * double(g.columns.dilation) +
                 double(node.integer("pad_right"));
  if (rows * width > kMaxCells) return refused("the window reaches over too much of the image", IPR_REASON_RESOURCE);
  if (is_padded(node))
    if (Refusal why = finite_weights(graph, node, "whose products with padding are not computed")) return why;
  FusedEpilogue fused;
  return find_epilogue(graph, node, &fused);
}

/// Groups that do not fill blocks of channels. Larger groups are direct convolutions.
Refusal support_groups(const Graph& graph, const Node& node, const Settings& settings) {
  const int64_t groups = node.integer("groups", 1);
  if (groups == 1) return refused("a single group", IPR_REASON_UNPROFITABLE);
  const Grouped g(graph, node);
  const int64_t most = g.window.taps() == 1 ? kMaxPointwiseInputs : kMaxGroupInputs;
  if ((g.inputs % 16 == 0 && g.outputs % 16 == 0) || g.inputs > most)
    return refused("groups of many channels", IPR_REASON_UNPROFITABLE);
  return support(graph, node, settings);
}

// ---- Expanded channels ----------------------------------------------------------------------------------------------

/// The entries of one row: the lanes of a block of output channels that read each block of input channels.
std::vector<LaneSource> lane_sources(const Grouped& g, int64_t block, int64_t input) {
  std::vector<LaneSource> sources;
  for (int64_t lane = 0; lane < 16; ++lane) {
    const int64_t output = block * 16 + lane, channel = output / g.outputs * g.inputs + input;
    if (output >= g.out.c) break;
    if (sources.empty() || sources.back().block != channel / 16) sources.push_back({int32_t(channel / 16), 0, {}, {}});
    sources.back().lanes[lane] = int32_t(channel % 16);
    sources.back().keep[lane] = -1;
  }
  for (size_t n = 0; n < sources.size(); ++n) sources[n].more = int32_t(sources.size() - 1 - n);
  return sources;
}

void expand_channels(const Grouped& g, Depthwise& d, Builder& builder) {
  std::vector<int32_t> sources;
  std::vector<LaneSource> lanes;
  for (int64_t block = 0; block < d.blocks; ++block)
    for (int64_t input = 0; input < g.inputs; ++input) {
      sources.push_back(int32_t(lanes.size()));
      for (const LaneSource& entry : lane_sources(g, block, input)) lanes.push_back(entry);
    }
  d.inputs = int32_t(g.inputs);
  d.sources = packed_copy(sources, builder);
  d.lanes = packed_copy(lanes, builder);
}

/// Return whether a node computes images with channels last, which are rows of a matrix for its neighbours; see
/// image_moves.cpp.
bool reads_rows(const Node& node) { return node.flag("acc.rows"); }

// ---- Lowering -------------------------------------------------------------------------------------------------------

void set_window(const Grouped& g, Depthwise& d) {
  d.blocks = int32_t(blocks_of(g.out.c)), d.last = last_of(g.out.c);
  d.depth = int32_t(g.in.d), d.height = int32_t(g.in.h), d.width = int32_t(g.in.w);
  d.out_depth = int32_t(g.planes.places), d.out_height = int32_t(g.rows.places),
  d.out_width = int32_t(g.columns.places);
  d.kernel_depth = int32_t(g.planes.kernel), d.kernel_height = int32_t(g.rows.kernel),
  d.kernel_width = int32_t(g.columns.kernel);
  d.stride_z = int32_t(g.planes.stride), d.stride_y = int32_t(g.rows.stride), d.stride_x = int32_t(g.columns.stride);
  d.dilation_z = int32_t(g.planes.dilation), d.dilation_y = int32_t(g.rows.dilation);
  d.dilation_x = int32_t(g.columns.dilation);
  d.pad_front = int32_t(g.planes.pad), d.pad_top = int32_t(g.rows.pad), d.pad_left = int32_t(g.columns.pad);
}

Depthwise make_window(const Grouped& g, const Weights& weights, const Node& node, Builder& builder) {
  Depthwise d{};
  set_window(g, d);
  d.epilogue = epilogue_of(builder.graph, node).epilogue;
  d.weights =
      static_cast<const float*>(builder.pack(uint64_t(d.blocks * weights.taps * weights.inputs) * 64, [&](void* to) {
        pack_depthwise(weights, g.columns.kernel, static_cast<float*>(to));
      }));
  const std::vector<Segment> segments = segments_of(g.columns);
  d.segment_count = int32_t(segments.size());
  d.segments = packed_copy(segments, builder);
  d.exact = are_exact(segments, g.columns);
  return d;
}

void add_step(const Node& node, const Grouped& g, const char* kind, std::vector<Phase> phases, Builder& builder) {
  auto state = std::make_shared<State>();
  state->kernels = &conv_kernels_for(builder.settings.isa);
  state->images = g.in.n;
  state->in_image = g.in.floats(), state->out_image = g.out.floats();
  double nanoseconds = 0, operations = 0;
  int64_t scratch = 0;
  for (const Phase& phase : phases) {
    const Depthwise& d = phase.depthwise;
    const double places = double(g.in.n * d.blocks * d.out_depth * d.out_height * d.out_width);
    const double taps = double(window_rows(d)) * d.kernel_width;
    nanoseconds += places * (cost::kDepthwiseFixedTaps + taps) / cost::kDepthwiseTapsPerNs;
    operations += 32 * places * taps;
    scratch = std::max(scratch, ring_floats(d));
  }
  state->phases = std::move(phases);
  Step step;
  step.name = kind + (" " + node.name);
  step.fn = run_depthwise;
  step.max_parts = parts_for(builder.settings, nanoseconds);
  step.operations = operations;
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(epilogue_of(builder.graph, node).residual)};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(scratch) * 4;
  step.state = std::move(state);
  builder.add(std::move(step));
}

void lower(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  const Grouped g(builder.graph, node);
  Depthwise d = make_depthwise(node, builder);
  if (reads_rows(node)) d.in_pixel = g.in.c, d.out = {16, g.out.w * g.out.c, g.out.c};
  add_step(node, g, g.inputs == 1 ? "depthwise" : "grouped", {{d, 0}}, builder);
}

Layouts depthwise_layouts(const Graph& graph, const Node& node, const Settings& settings) {
  return reads_rows(node) ? Layouts{} : blocked_layouts(graph, node, settings);
}

// ---- Transposed convolutions ----------------------------------------------------------------------------------------

Refusal support_transposed(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = support_groups(graph, node, settings)) return why;
  if (Refusal why = finite_weights(graph, node, "which would be multiplied with zeros around the image")) return why;
  if (node.integer("stride_y", 1) * node.integer("stride_x", 1) > 256)
    return refused("strides of more than 256 cells", IPR_REASON_RESOURCE);
  return taken();
}

/// The output pixels of one phase; their windows are empty if no cell of the weights falls on them.
Phase make_phase(const Grouped& g, const TransposedPhase& rows, const TransposedPhase& columns, const Node& node,
                 Builder& builder) {
  Grouped own = g;
  own.rows = rows.dense, own.columns = columns.dense;
  const bool sees = !rows.cells.empty() && !columns.cells.empty();
  const int64_t inputs = sees ? g.inputs : 0, taps = own.rows.kernel * own.columns.kernel;
  std::vector<float> values;
  for (int64_t group = 0; group < g.groups && sees; ++group)
    append_phase(values, g.weights, g.in.last, {group * g.inputs, g.inputs, g.outputs}, rows, columns);
  const Weights weights{values.data(), g.out.c, inputs, taps, taps * inputs, taps, 1};
  Phase phase{make_window(own, weights, node, builder), (rows.first * g.out.w + columns.first) * 16};
  phase.depthwise.inputs = int32_t(inputs);
  phase.depthwise.out = {g.out.pixels() * 16, g.out.w * 16 * g.rows.stride, 16 * g.columns.stride};
  return phase;
}

void lower_transposed(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  const Grouped g(builder.graph, node);
  const float* bias = pack_bias(bias_of(builder.graph, node), 0, g.out.c, builder);
  Depthwise expanded{};
  expanded.blocks = int32_t(blocks_of(g.out.c));
  if (g.expands()) expand_channels(g, expanded, builder);
  std::vector<Phase> phases;
  for (int64_t y = 0; y < g.rows.stride; ++y)
    for (int64_t x = 0; x < g.columns.stride; ++x) {
      const TransposedPhase rows(g.rows, y), columns(g.columns, x);
      if (rows.dense.places == 0 || columns.dense.places == 0) continue;
      phases.push_back(make_phase(g, rows, columns, node, builder));
      Depthwise& d = phases.back().depthwise;
      d.bias = bias, d.sources = expanded.sources, d.lanes = expanded.lanes;
    }
  add_step(node, g, "transposed groups", std::move(phases), builder);
}

}  // namespace

Depthwise make_depthwise(const Node& node, Builder& builder) {
  const Grouped g(builder.graph, node);
  Depthwise d = make_window(g, g.all_weights(), node, builder);
  d.bias = pack_bias(bias_of(builder.graph, node), 0, g.out.c, builder);
  if (g.expands()) expand_channels(g, d, builder);
  return d;
}

Family depthwise_f32_family() {
  return {{{"DepthwiseConvolution2d", "f32", support, lower, depthwise_layouts},
           {"Convolution2d", "groups", support_groups, lower, blocked_layouts},
           {"Convolution3d", "groups", support_groups, lower, blocked_layouts},
           {"TransposeConvolution2d", "groups", support_transposed, lower_transposed, blocked_layouts}},
          {}};
}

}  // namespace cpuacc
