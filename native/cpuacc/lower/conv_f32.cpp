// Convolution2d, Convolution3d and TransposeConvolution2d of float32.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMaxExtent = 1 << 20;   // largest dimension, so that positions fit 32 bits
constexpr int64_t kMaxScratch = 1 << 28;  // largest strip of one thread in floats
constexpr int64_t kStripFloats =
    64 * 1024;  // floats of a strip: 256 KiB, which leave room for the weights in the second-level cache
constexpr int64_t kLargeWeights =
    128 * 1024;  // floats of weights, from which on larger strips are used, so that the weights are read less often

/// The movement of a window along all axes of a volume; images have one plane.
struct WindowAxes {
  WindowAxis planes, rows, columns;
  int64_t taps() const { return planes.kernel * rows.kernel * columns.kernel; }
};

/// A convolution of some input channels to some output channels, at a grid of positions of the output.
struct Unit {
  Convolution convolution;
  std::vector<int32_t> taps, positions;
  std::vector<Segment> segments;
  int64_t first_input, first_output;  // first channels
  int64_t out_offset;                 // in floats
  OutputStrides out_strides;
  bool pointwise;
  bool scattered;  // the output channels do not begin or end at the border of a block
};

struct State {
  const ConvKernels* kernels;
  std::vector<Unit> units;
  int64_t images, in_image, out_image;
  InputStrides in_strides;
  int64_t out_block, outputs, group_outputs;
  bool by_units, by_blocks;
  int64_t strip_floats;
};

// ---- Running --------------------------------------------------------------------------------------------------------

OutputRange part_of(const State& state, const Unit& unit, int part, int parts) {
  const Convolution& c = unit.convolution;
  int rows = unit.pointwise ? c.depth * c.height * c.width : c.out_depth * c.out_height;
  if (state.by_units) return {0, rows, 0, c.gemm.blocks};
  if (!state.by_blocks) {
    Range range = split(rows, part, parts, unit.pointwise ? 14 : 1);
    return {int32_t(range.first), int32_t(range.last), 0, c.gemm.blocks};
  }
  int panel = state.kernels->panel, panels = std::max(1, c.gemm.blocks / panel);
  Range range = split(panels, part, parts);
  int last = range.last == panels ? c.gemm.blocks : int(range.last) * panel;
  return {0, rows, int32_t(range.first) * panel, int32_t(last)};
}

/// Copy `count` neighbouring channels of all pixels of some rows. Counts that networks commonly have are compile-time
/// constants.
template <int kCount>
void copy_channels(const Unit& unit, const float* from, float* to, int64_t count, const OutputRange& rows) {
  const int64_t width = unit.convolution.out_width, channels = kCount ? kCount : count;
  for (int64_t y = rows.row; y < rows.row_end; ++y)
    for (int64_t x = 0; x < width; ++x)
      std::memcpy(to + y * unit.out_strides.row + x * unit.out_strides.pixel, from + (y * width + x) * 16,
                  size_t(channels) * sizeof(float));
}

/// Set the channels that fill up the last block to zero.
void clear_padding(const State& state, const Unit& unit, float* out, const OutputRange& rows) {
  float* block = out + unit.out_offset + state.outputs / 16 * state.out_block;
  const int64_t first = state.outputs % 16;
  for (int64_t y = rows.row; first > 0 && y < rows.row_end; ++y)
    for (int64_t x = 0; x < unit.convolution.out_width; ++x)
      std::fill_n(block + y * unit.out_strides.row + x * unit.out_strides.pixel + first, 16 - first, 0.0f);
}

/// Copy the output channels of a unit from blocks of their own to their place in the output. The padding of the last
/// block becomes 0.
void scatter(const State& state, const Unit& unit, const float* from, float* out, const OutputRange& rows) {
  const Convolution& c = unit.convolution;
  const int64_t size = int64_t{c.out_depth} * c.out_height * c.out_width * 16,
                end = unit.first_output + state.group_outputs;
  for (int64_t channel = unit.first_output; channel < end;) {
    const int64_t own = channel - unit.first_output;
    const int64_t count = std::min({16 - channel % 16, 16 - own % 16, end - channel});
    auto copy = count == 8    ? copy_channels<8>
                : count == 16 ? copy_channels<16>
                : count == 4  ? copy_channels<4>
                              : copy_channels<0>;
    copy(unit, from + own / 16 * size + own % 16, out + unit.out_offset + channel / 16 * state.out_block + channel % 16,
         count, rows);
    channel += count;
  }
  if (end == state.outputs) clear_padding(state, unit, out, rows);
}

void run_unit(const State& state, const Unit& unit, const float* in, float* out, const float* residual, float* scratch,
              const OutputRange& range) {
  const Convolution& c = unit.convolution;
  if (range.row >= range.row_end || range.block >= range.block_end) return;
  InputStrides in_strides = state.in_strides;
  in_strides.first_channel = unit.first_input;
  int64_t offset = unit.out_offset + unit.first_output / 16 * state.out_block;
  if (unit.pointwise) {
    const float* from = in + unit.first_input / 16 * in_strides.channel_block;
    state.kernels->pointwise(c.gemm, from, in_strides.channel_block, out + offset, unit.out_strides,
                             residual ? residual + offset : nullptr, scratch, range);
    return;
  }
  if (!unit.scattered) {
    state.kernels->direct(c, in, in_strides, out + offset, unit.out_strides, residual ? residual + offset : nullptr,
                          scratch, range);
    return;
  }
  OutputStrides own{int64_t{c.out_depth} * c.out_height * c.out_width * 16, int64_t{c.out_width} * 16, 16};
  float* block = scratch + state.strip_floats;
  state.kernels->direct(c, in, in_strides, block, own, nullptr, scratch, range);
  scatter(state, unit, block, out, range);
}

void run_units(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const float* in = run.at<float>(step.in[0]);
  const float* residual = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
  float* out = run.at<float>(step.out[0]);
  Range range =
      state.by_units ? split(int64_t(state.units.size()), part, parts) : Range{0, int64_t(state.units.size())};
  for (int64_t image = 0; image < state.images; ++image) {
    for (int64_t n = range.first; n < range.last; ++n)
      run_unit(state, state.units[size_t(n)], in, out, residual, run.part_scratch<float>(part),
               part_of(state, state.units[size_t(n)], part, parts));
    in += state.in_image;
    out += state.out_image;
    if (residual) residual += state.out_image;
  }
}

// ---- Preparing ------------------------------------------------------------------------------------------------------

/// The operands of a convolution.
struct Layer {
  Layer(const Graph& graph, const Node& node)
      : in(*graph.in(node, 0), channels_last(node)), out(graph.out(node), channels_last(node)),
        bias(bias_of(graph, node)), groups(node.integer("groups", 1)), fused(epilogue_of(graph, node)) {}

  int64_t inputs() const { return in.c / groups; }
  int64_t outputs() const { return out.c / groups; }
  /// The input is plain, or groups do not begin at the border of a block.
  bool is_planar() const { return in.plain || (groups > 1 && inputs() % 16 != 0); }
  bool is_scattered() const { return groups > 1 && outputs() % 16 != 0; }

  Image in, out;
  const Tensor* bias;
  int64_t groups;
  FusedEpilogue fused;
};

bool few_channels(int64_t channels) { return channels < 8; }

/// Words of the input of one position; if planar, of all taps.
int64_t strip_words(const Convolution& c, bool bfloat16) {
  return c.planar ? c.gemm.depth : blocks_of(bfloat16 ? (c.gemm.depth + 1) / 2 : c.gemm.depth) * 16;
}

/// Words of scratch memory: the strip, and the taps of a tile or pixels that are loaded after the end of the strip.
int64_t strip_floats(const Convolution& c, bool bfloat16) {
  int64_t list = c.planar ? kReadAhead : 2 * int64_t{c.kernel_depth} * c.kernel_height * c.kernel_width;
  return (c.in_place ? 0 : StripLayout(c).channel * strip_words(c, bfloat16)) + list;
}

/// Rows of a strip, so that the strips of a thread have about the same size. A strip of `n` rows has (n + over) * row
/// floats.
int64_t strip_rows(int64_t row, int64_t over, int64_t places, int64_t weights, int threads) {
  int64_t floats = weights >= kLargeWeights ? 4 * kStripFloats : kStripFloats;
  int64_t rows = std::max<int64_t>(1, (places + threads - 1) / threads);
  int64_t most = std::max<int64_t>(1, floats / std::max<int64_t>(1, row) - over);
  int64_t strips = (rows + most - 1) / most;
  return (rows + strips - 1) / strips;
}

void set_axes(Convolution& c, const WindowAxes& axes) {
  c.depth = int32_t(axes.planes.size), c.height = int32_t(axes.rows.size), c.width = int32_t(axes.columns.size);
  c.out_depth = int32_t(axes.planes.places), c.out_height = int32_t(axes.rows.places),
  c.out_width = int32_t(axes.columns.places);
  c.kernel_depth = int32_t(axes.planes.kernel), c.kernel_height = int32_t(axes.rows.kernel),
  c.kernel_width = int32_t(axes.columns.kernel);
  c.stride_z = int32_t(axes.planes.stride), c.stride_y = int32_t(axes.rows.stride),
  c.stride_x = int32_t(axes.columns.stride);
  c.dilation_z = int32_t(axes.planes.dilation), c.dilation_y = int32_t(axes.rows.dilation),
  c.dilation_x = int32_t(axes.columns.dilation);
  c.pad_front = int32_t(axes.planes.pad), c.pad_top = int32_t(axes.rows.pad), c.pad_left = int32_t(axes.columns.pad);
}

/// Elements between the first and the last tap of a window, in outputs.
int64_t reach(const WindowAxis& axis) { return (axis.kernel - 1) * axis.dilation / axis.stride; }

bool fits_32_bits(const WindowAxes& axes, int64_t strides) {
  int64_t rows =
      (axes.planes.kernel * axes.planes.dilation + 1) * axes.rows.size + axes.rows.kernel * axes.rows.dilation;
  return (rows + 1) * axes.columns.size * strides < INT32_MAX;
}

/// Rows of so few pixels are computed in tiles of several rows.
constexpr int64_t kNarrow = 10;

/// Choose how the taps are read.
void plan_strip(Unit& unit, const WindowAxes& axes, int64_t weights, bool bfloat16, int threads) {
  Convolution& c = unit.convolution;
  const WindowAxis &rows = axes.rows, &columns = axes.columns;
  unit.segments = c.drops ? segments_of(columns) : one_segment(columns);
  c.in_place =
      c.drops && columns.stride == 1 && !bfloat16 && fits_32_bits(axes, 16) && are_exact(unit.segments, columns);
  const int64_t column_slots = StripLayout::slots(c.kernel_width, c.dilation_x, c.stride_x, false);
  const int64_t dense = column_slots * (columns.places + reach(columns)), slabs = columns.kernel * columns.places;
  const bool narrow = columns.places < kNarrow && rows.places > 1 && unit.segments.size() == 1 && columns.kernel <= 16;
  c.column_slabs = !c.planar && columns.kernel > 1 && (narrow || slabs < dense);
  const int64_t words = axes.planes.kernel * (c.column_slabs ? slabs : dense) * strip_words(c, bfloat16);
  const int64_t row_slots = StripLayout::slots(c.kernel_height, c.dilation_y, c.stride_y, false);
  const int64_t strip = strip_rows(row_slots * words, reach(rows), rows.places, weights, threads);
  c.row_slabs = rows.kernel * strip < row_slots * (strip + reach(rows));
  c.strip = int32_t(c.row_slabs ? strip_rows(rows.kernel * words, 0, rows.places, weights, threads) : strip);
  if (c.in_place) {
    int64_t row = axes.planes.kernel * rows.stride * columns.size * blocks_of(c.gemm.depth) * 16;
    c.strip = int32_t(strip_rows(row, 0, rows.places, weights, threads));
  }
}

/// The numbers in the window of the taps that are used.
std::vector<int64_t> tap_numbers(const WindowAxes& axes, const Taps& planes, const Taps& rows, const Taps& columns) {
  std::vector<int64_t> numbers;
  for (int64_t z = planes.first; z < planes.last; ++z)
    for (int64_t y = rows.first; y < rows.last; ++y)
      for (int64_t x = columns.first; x < columns.last; ++x)
        numbers.push_back((z * axes.rows.kernel + y) * axes.columns.kernel + x);
  return numbers;
}

/// Return whether each output pixel reads the input pixel at its own position.
bool is_pointwise(const WindowAxes& axes) {
  auto same = [](const WindowAxis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.pad == 0 && axis.places == axis.size;
  };
  return same(axes.planes) && same(axes.rows) && same(axes.columns);
}

/// `finite` weights need not be multiplied with padding.
Unit make_unit(const Layer& layer, WindowAxes axes, Weights weights, bool finite, Builder& builder) {
  const ConvKernels& kernels = kernels_for(builder.settings);
  Unit unit{};
  unit.scattered = layer.is_scattered();
  std::vector<int64_t> numbers;
  if (finite) {
    const Taps used[3] = {used_taps(axes.planes), used_taps(axes.rows), used_taps(axes.columns)};
    numbers = tap_numbers(axes, used[0], used[1], used[2]);
    axes = {cropped(axes.planes, used[0]), cropped(axes.rows, used[1]), cropped(axes.columns, used[2])};
    weights.numbers = numbers.data();
    weights.taps = axes.taps();
  }
  unit.pointwise = is_pointwise(axes) && !layer.is_planar() && !unit.scattered;
  Convolution& c = unit.convolution;
  c.planar = layer.is_planar();
  c.drops = finite && !c.planar;
  weights.bfloat16 = kernels.bfloat16 && !c.planar;
  c.gemm.depth = int32_t(weights.inputs);
  c.gemm.blocks = int32_t(blocks_of(weights.outputs)), c.gemm.last = last_of(weights.outputs);
  c.gemm.epilogue = layer.fused.epilogue;
  c.gemm.weights = static_cast<const float*>(builder.pack(uint64_t(weights.packed()) * 4, [&](void* to) {
    pack_panels(builder, weights, kernels.panel, c.planar ? 1 : 16, static_cast<float*>(to));
  }));
  set_axes(c, axes);
  plan_strip(unit, axes, weights.packed(), weights.bfloat16, builder.settings.threads);
  unit.taps = make_taps(c);
  unit.positions.resize(unit.taps.size());
  std::iota(unit.positions.begin(), unit.positions.end(), 0);
  return unit;
}

void add_step(const Node& node, const char* kind, const Layer& layer, std::vector<Unit> units, Builder& builder) {
  auto state = std::make_shared<State>();
  state->kernels = &kernels_for(builder.settings);
  state->images = layer.in.n;
  state->in_image = layer.in.floats();
  state->out_image = layer.out.floats();
  state->in_strides = layer.in.strides();
  state->out_block = layer.out.pixels() * 16;
  state->outputs = layer.out.c;
  state->group_outputs = layer.outputs();
  state->units = std::move(units);
  const bool bfloat16 = state->kernels->bfloat16;
  int64_t weights = 0, operations = 0, extra = 0;
  for (Unit& unit : state->units) {
    Convolution& c = unit.convolution;
    c.taps = unit.taps.data(), c.positions = unit.positions.data();
    c.segments = unit.segments.data(), c.segment_count = int32_t(unit.segments.size());
    int64_t taps = int64_t{c.kernel_depth} * c.kernel_height * c.kernel_width;
    int64_t places = int64_t{c.out_depth} * c.out_height * c.out_width;
    weights += int64_t{c.gemm.depth} * c.gemm.blocks * 16 * taps;
    operations += 2 * int64_t{c.gemm.depth} * c.gemm.blocks * 16 * taps * places;
    int64_t strip = !unit.pointwise ? strip_floats(c, bfloat16) : bfloat16 ? staged_words(c.gemm.depth, places) : 0;
    state->strip_floats = std::max(state->strip_floats, strip);
    if (unit.scattered) extra = std::max(extra, c.gemm.blocks * 16 * places);
  }
  state->strip_floats = (state->strip_floats + 15) / 16 * 16;
  const Unit& first = state->units[0];
  int64_t rows =
      first.pointwise ? layer.in.pixels() / 14 : int64_t{first.convolution.out_depth} * first.convolution.out_height;
  int64_t panels = first.convolution.gemm.blocks / state->kernels->panel, threads = builder.settings.threads;
  state->by_units = int64_t(state->units.size()) >= 8 * threads;
  state->by_blocks = !first.scattered && panels >= threads && (weights > state->in_image || rows < 2 * threads);
  Step step;
  step.name = std::string(kind) + " " + node.name;
  step.fn = run_units;
  step.max_parts = parts_for(builder.settings, double(operations * layer.in.n) / cost::kOperationsPerNs);
  step.operations = double(operations * layer.in.n);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(layer.fused.residual)};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(state->strip_floats + extra) * 4;
  step.state = state;
  builder.add(std::move(step));
}

// ---- Convolution2d and Convolution3d --------------------------------------------------------------------------------

/// The names of the attributes of one axis.
struct AxisNames {
  const char *stride, *dilation, *before, *after;
};

const AxisNames kPlanes{"stride_z", "dilation_z", "pad_front", "pad_back"},
    kRows{"stride_y", "dilation_y", "pad_top", "pad_bottom"},
    kColumns{"stride_x", "dilation_x", "pad_left", "pad_right"};

WindowAxis axis_of(const Node& node, const AxisNames& names, int64_t kernel, int64_t size, int64_t places) {
  return {kernel, node.integer(names.stride, 1), node.integer(names.dilation, 1), node.integer(names.before), size,
          places};
}

WindowAxes axes_of(const Node& node, const Layer& layer, const WindowShape& window) {
  return {axis_of(node, kPlanes, window.d, layer.in.d, layer.out.d),
          axis_of(node, kRows, window.h, layer.in.h, layer.out.h),
          axis_of(node, kColumns, window.w, layer.in.w, layer.out.w)};
}

bool is_padded(const Node& node) {
  for (const AxisNames& names : {kPlanes, kRows, kColumns})
    if (node.integer(names.before) != 0 || node.integer(names.after) != 0) return true;
  return false;
}

Refusal within_limits(const Graph& graph, const Node& node) {
  for (const Tensor* tensor : {graph.in(node, 0), graph.in(node, 1), &graph.out(node)})
    for (int64_t extent : tensor->shape)
      if (extent > kMaxExtent) return refused("an extent of " + std::to_string(extent), IPR_REASON_RESOURCE);
  for (const AxisNames& names : {kPlanes, kRows, kColumns})
    for (const char* name : {names.before, names.after, names.stride, names.dilation})
      if (node.integer(name) > kMaxExtent)
        return refused(std::string(name) + " is greater than 2**20", IPR_REASON_RESOURCE);
  return taken();
}

Refusal common_support(const Graph& graph, const Node& node, FusedEpilogue* fused) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (Refusal why = constant_weights(graph, node)) return why;
  if (Refusal why = within_limits(graph, node)) return why;
  if (Refusal why = find_epilogue(graph, node, fused)) return why;
  if (Layer(graph, node).is_scattered() && !node.posts.empty())
    return refused("groups that are not whole blocks of channels, with post-ops");
  return taken();
}

/// Positions of a slot of a strip of one output, and of all slots.
double strip_positions(const WindowAxis& axis, double outputs) {
  double reach = double(axis.kernel - 1) * double(axis.dilation);
  double dense = std::min(double(axis.stride), reach + 1) * (outputs + reach / double(axis.stride) + 1);
  return std::min(dense, double(axis.kernel) * outputs);
}

/// Refuse windows whose strips exceed the scratch memory.
Refusal support_window(const Layer& layer, const WindowAxes& axes) {
  double pixels = double(axes.planes.kernel) * strip_positions(axes.rows, 1) *
                  strip_positions(axes.columns, double(axes.columns.places));
  if (pixels * double(layer.inputs() + 16) > kMaxScratch)
    return refused("the window reaches over too much of the image", IPR_REASON_RESOURCE);
  return taken();
}

Refusal support_convolution(const Graph& graph, const Node& node, const Settings&) {
  FusedEpilogue fused;
  if (Refusal why = common_support(graph, node, &fused)) return why;
  const WindowShape window(*graph.in(node, 1), channels_last(node));
  if (window.volume && is_padded(node))
    if (Refusal why = finite_weights(graph, node, "whose products with padding are not computed")) return why;
  Layer layer(graph, node);
  return support_window(layer, axes_of(node, layer, window));
}

/// Images of few channels are read in their plain layout.
Layouts layouts_of(const Graph& graph, const Node& node, const Settings& settings) {
  Layouts layouts = blocked_layouts(graph, node, settings);
  bool plain = few_channels(Image(*graph.in(node, 0), channels_last(node)).c) && !is_blocked(graph.in(node, 0)->layout);
  if (plain) layouts.in[0] = Layout::plain;
  return layouts;
}

void lower_convolution(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  Layer layer(graph, node);
  if (graph.out(node).elements() == 0) return;
  const Tensor& tensor = *graph.in(node, 1);
  const bool last = channels_last(node), finite = packed_finite(tensor, builder);
  const WindowAxes axes = axes_of(node, layer, WindowShape(tensor, last));
  std::vector<Unit> units;
  for (int64_t group = 0; group < layer.groups; ++group) {
    Weights weights = weights_of(tensor, last, layer.outputs(), layer.inputs());
    weights.data += group * layer.outputs() * weights.by_output;
    Unit unit = make_unit(layer, axes, weights, finite, builder);
    unit.convolution.gemm.bias = pack_bias(layer.bias, group * layer.outputs(), layer.outputs(), builder);
    unit.first_input = group * layer.inputs();
    unit.first_output = group * layer.outputs();
    unit.out_strides = {layer.out.pixels() * 16, layer.out.w * 16, 16};
    units.push_back(std::move(unit));
  }
  const char* name = units[0].pointwise ? "conv1x1" : "conv";
  add_step(node, name, layer, std::move(units), builder);
}

// ---- TransposeConvolution2d -----------------------------------------------------------------------------------------

Refusal support_transposed(const Graph& graph, const Node& node, const Settings&) {
  FusedEpilogue fused;
  if (Refusal why = common_support(graph, node, &fused)) return why;
  Layer layer(graph, node);
  const WindowAxes axes = axes_of(node, layer, WindowShape(*graph.in(node, 1), channels_last(node)));
  if (Refusal why = finite_weights(graph, node, "which would be multiplied with zeros around the image")) return why;
  if (axes.rows.stride * axes.columns.stride > 256)
    return refused("strides of more than 256 cells", IPR_REASON_RESOURCE);
  return support_window(layer, axes);
}

void lower_transposed(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  Layer layer(graph, node);
  const Tensor& tensor = *graph.in(node, 1);
  bool last = channels_last(node);
  const WindowAxes axes = axes_of(node, layer, WindowShape(tensor, last));
  const WindowAxis &rows = axes.rows, &columns = axes.columns;
  std::vector<Unit> units;
  for (int64_t group = 0; group < layer.groups; ++group) {
    const float* bias = pack_bias(layer.bias, group * layer.outputs(), layer.outputs(), builder);
    for (int64_t y = 0; y < rows.stride; ++y)
      for (int64_t x = 0; x < columns.stride; ++x) {
        TransposedPhase down(rows, y), across(columns, x);
        if (down.dense.places == 0 || across.dense.places == 0) continue;
        bool sees = !down.cells.empty() && !across.cells.empty();
        int64_t inputs = sees ? layer.inputs() : 0, taps = down.dense.kernel * across.dense.kernel;
        std::vector<float> values;
        append_phase(values, tensor, last, {group * layer.inputs(), layer.inputs(), layer.outputs()}, down, across);
        Weights weights{values.data(), layer.outputs(), inputs, taps, taps * inputs, taps, 1};
        Unit unit = make_unit(layer, {axes.planes, down.dense, across.dense}, weights, true, builder);
        unit.pointwise = false;
        unit.convolution.gemm.bias = bias;
        unit.first_input = group * layer.inputs();
        unit.first_output = group * layer.outputs();
        unit.out_offset = (down.first * layer.out.w + across.first) * 16;
        unit.out_strides = {layer.out.h * layer.out.w * 16, layer.out.w * 16 * rows.stride, 16 * columns.stride};
        units.push_back(std::move(unit));
      }
  }
  add_step(node, "transposed conv", layer, std::move(units), builder);
}

}  // namespace

void lower_direct_convolution(const Node& node, Builder& builder) { lower_convolution(node, builder); }

Family conv_f32_family() {
  return {{{"Convolution2d", "f32", support_convolution, lower_convolution, layouts_of},
           {"Convolution3d", "f32", support_convolution, lower_convolution, layouts_of},
           {"TransposeConvolution2d", "f32", support_transposed, lower_transposed, layouts_of}},
          {}};
}

}  // namespace cpuacc
