// Convolution2d and TransposeConvolution2d of float32.

#include <algorithm>
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

/// The movement of a window along one axis: tap `k` at position `p` reads p * stride + k * dilation - pad.
struct Axis {
  int64_t kernel, stride, dilation, pad, places;
};

/// A convolution of some input channels to some output channels, at a grid of positions of the output.
struct Unit {
  Convolution convolution;
  std::vector<int32_t> taps;
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
  int rows = unit.pointwise ? c.height * c.width : c.out_height;
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

/// Copy the output channels of a unit from blocks of their own to their place in the output. The padding of the last
/// block becomes 0.
void scatter(const State& state, const Unit& unit, const float* from, float* out, const OutputRange& rows) {
  const int64_t width = unit.convolution.out_width, size = unit.convolution.out_height * width;
  const int64_t channels = state.group_outputs, end = unit.first_output + channels;
  int64_t last = end == state.outputs ? blocks_of(end) * 16 : end;
  for (int64_t channel = unit.first_output; channel < last; ++channel) {
    int64_t own = channel - unit.first_output;
    float* to = out + unit.out_offset + channel / 16 * state.out_block + channel % 16;
    for (int64_t y = rows.row; y < rows.row_end; ++y)
      for (int64_t x = 0; x < width; ++x)
        to[y * unit.out_strides.row + x * unit.out_strides.pixel] =
            own < channels ? from[(own / 16 * size + y * width + x) * 16 + own % 16] : 0;
  }
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
  OutputStrides own{int64_t{c.out_height} * c.out_width * 16, int64_t{c.out_width} * 16, 16};
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

/// The floats of a strip in the layout of the kernel: for each output row, and for the rows that the window reads
/// beyond.
struct StripSize {
  StripSize(const Axis& rows, const Axis& columns, int64_t channels)
      : row_phases(std::min((rows.kernel - 1) * rows.dilation + 1, rows.stride)),
        column_phases(std::min((columns.kernel - 1) * columns.dilation + 1, columns.stride)),
        columns(columns.places + (columns.kernel - 1) * columns.dilation / columns.stride),
        over((rows.kernel - 1) * rows.dilation / rows.stride),
        row(row_phases * column_phases * this->columns * channels) {}

  int64_t floats(int64_t strip) const { return (strip + over) * row; }

  int64_t row_phases, column_phases, columns, over, row;
};

std::vector<int32_t> make_taps(const Axis& rows, const Axis& columns, const StripSize& size, int64_t strip,
                               int64_t channels, int64_t step) {
  std::vector<int32_t> taps;
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int64_t i = 0; i < rows.kernel; ++i)
      for (int64_t j = 0; j < columns.kernel; ++j) {
        int64_t y = i * rows.dilation, x = j * columns.dilation;
        int64_t phase = (channel * size.row_phases + y % rows.stride) * size.column_phases + x % columns.stride;
        taps.push_back(
            int32_t(((phase * (strip + size.over) + y / rows.stride) * size.columns + x / columns.stride) * step));
      }
  return taps;
}

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

/// Rows of a strip, so that the strips of a thread have about the same size.
int64_t strip_rows(const StripSize& size, int64_t places, int64_t weights, int threads) {
  int64_t floats = weights >= kLargeWeights ? 4 * kStripFloats : kStripFloats;
  int64_t rows = std::max<int64_t>(1, (places + threads - 1) / threads);
  int64_t most = std::max<int64_t>(1, floats / std::max<int64_t>(1, size.row) - size.over);
  int64_t strips = (rows + most - 1) / most;
  return (rows + strips - 1) / strips;
}

/// Words of the input of one position; if planar, of all taps.
int64_t strip_words(const Convolution& c, const ConvKernels& kernels) {
  return c.planar ? c.gemm.depth : blocks_of(kernels.bfloat16 ? (c.gemm.depth + 1) / 2 : c.gemm.depth) * 16;
}

Unit make_unit(const Layer& layer, const Axis& rows, const Axis& columns, Weights weights, Builder& builder) {
  const ConvKernels& kernels = kernels_for(builder.settings);
  Unit unit{};
  unit.scattered = layer.is_scattered();
  bool single = rows.kernel == 1 && columns.kernel == 1 && rows.stride == 1 && columns.stride == 1;
  unit.pointwise = single && rows.pad == 0 && columns.pad == 0 && rows.places == layer.in.h &&
                   columns.places == layer.in.w && !layer.is_planar() && !unit.scattered;
  Convolution& c = unit.convolution;
  c.planar = layer.is_planar();
  int64_t step = c.planar ? 1 : 16;
  weights.bfloat16 = kernels.bfloat16 && !c.planar;
  c.gemm.depth = int32_t(weights.inputs);
  c.gemm.blocks = int32_t(blocks_of(weights.outputs));
  c.gemm.epilogue = layer.fused.epilogue;
  c.gemm.weights = static_cast<const float*>(builder.pack(uint64_t(weights.packed()) * 4, [&](void* to) {
    pack_panels(builder, weights, kernels.panel, step, static_cast<float*>(to));
  }));
  c.height = int32_t(layer.in.h), c.width = int32_t(layer.in.w);
  c.out_height = int32_t(rows.places), c.out_width = int32_t(columns.places);
  c.kernel_height = int32_t(rows.kernel), c.kernel_width = int32_t(columns.kernel);
  c.stride_y = int32_t(rows.stride), c.stride_x = int32_t(columns.stride);
  c.dilation_y = int32_t(rows.dilation), c.dilation_x = int32_t(columns.dilation);
  c.pad_top = int32_t(rows.pad), c.pad_left = int32_t(columns.pad);
  StripSize size(rows, columns, strip_words(c, kernels));
  c.strip = int32_t(strip_rows(size, rows.places, weights.packed(), builder.settings.threads));
  unit.taps = make_taps(rows, columns, size, c.strip, c.planar ? weights.inputs : 1, step);
  return unit;
}

void add_step(const Node& node, const char* kind, const Layer& layer, std::vector<Unit> units, Builder& builder) {
  auto state = std::make_shared<State>();
  state->kernels = &kernels_for(builder.settings);
  state->images = layer.in.n;
  state->in_image = layer.in.floats();
  state->out_image = layer.out.floats();
  state->in_strides = layer.in.strides();
  state->out_block = layer.out.h * layer.out.w * 16;
  state->outputs = layer.out.c;
  state->group_outputs = layer.outputs();
  state->units = std::move(units);
  int64_t weights = 0, operations = 0, extra = 0;
  for (Unit& unit : state->units) {
    Convolution& c = unit.convolution;
    c.taps = unit.taps.data();
    int64_t taps = int64_t{c.kernel_height} * c.kernel_width, places = int64_t{c.out_height} * c.out_width;
    weights += int64_t{c.gemm.depth} * c.gemm.blocks * 16 * taps;
    operations += 2 * int64_t{c.gemm.depth} * c.gemm.blocks * 16 * taps * places;
    Axis rows{c.kernel_height, c.stride_y, c.dilation_y, c.pad_top, c.out_height};
    Axis columns{c.kernel_width, c.stride_x, c.dilation_x, c.pad_left, c.out_width};
    int64_t strip = !unit.pointwise ? StripSize(rows, columns, strip_words(c, *state->kernels)).floats(c.strip)
                    : state->kernels->bfloat16 ? staged_words(c.gemm.depth, places)
                                               : 0;
    state->strip_floats = std::max(state->strip_floats, strip);
    if (unit.scattered) extra = std::max(extra, c.gemm.blocks * 16 * places);
  }
  state->strip_floats = (state->strip_floats + 15) / 16 * 16;
  const Unit& first = state->units[0];
  int64_t rows = first.pointwise ? layer.in.h * layer.in.w / 14 : first.convolution.out_height;
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

// ---- Convolution2d --------------------------------------------------------------------------------------------------

Axis axis_of_rows(const Node& node, int64_t kernel, int64_t places) {
  return {kernel, node.integer("stride_y", 1), node.integer("dilation_y", 1), node.integer("pad_top"), places};
}

Axis axis_of_columns(const Node& node, int64_t kernel, int64_t places) {
  return {kernel, node.integer("stride_x", 1), node.integer("dilation_x", 1), node.integer("pad_left"), places};
}

Refusal within_limits(const Graph& graph, const Node& node) {
  for (const Tensor* tensor : {graph.in(node, 0), graph.in(node, 1), &graph.out(node)})
    for (int64_t extent : tensor->shape)
      if (extent > kMaxExtent) return refused("an extent of " + std::to_string(extent), IPR_REASON_RESOURCE);
  for (const char* name :
       {"pad_top", "pad_left", "pad_bottom", "pad_right", "stride_y", "stride_x", "dilation_y", "dilation_x"})
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

/// Refuse windows whose strips exceed the scratch memory.
Refusal support_window(const Layer& layer, const Axis& rows, const Axis& columns) {
  auto reach = [](const Axis& axis) { return double(axis.kernel - 1) * double(axis.dilation) + 1; };
  double phases = std::min(double(rows.stride), reach(rows)) * std::min(double(columns.stride), reach(columns));
  double across = double(columns.places) + reach(columns) / double(columns.stride);
  if ((reach(rows) / double(rows.stride) + 1) * across * phases * double(layer.inputs() + 16) > kMaxScratch)
    return refused("the window reaches over too much of the image", IPR_REASON_RESOURCE);
  return taken();
}

Refusal support_convolution(const Graph& graph, const Node& node, const Settings&) {
  FusedEpilogue fused;
  if (Refusal why = common_support(graph, node, &fused)) return why;
  const Tensor& weights = *graph.in(node, 1);
  Layer layer(graph, node);
  return support_window(layer, axis_of_rows(node, weights.extent(channels_last(node) ? 1 : 2), layer.out.h),
                        axis_of_columns(node, weights.extent(channels_last(node) ? 2 : 3), layer.out.w));
}

/// Images of few channels are read in their plain layout.
Layouts layouts_of(const Graph& graph, const Node& node, const Settings& settings) {
  Layouts found = blocked_layouts(graph, node, settings);
  bool plain = few_channels(Image(*graph.in(node, 0), channels_last(node)).c) && !is_blocked(graph.in(node, 0)->layout);
  if (plain) found.in[0] = Layout::plain;
  return found;
}

void lower_convolution(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  Layer layer(graph, node);
  if (graph.out(node).elements() == 0) return;
  const Tensor& tensor = *graph.in(node, 1);
  bool last = channels_last(node);
  Axis rows = axis_of_rows(node, tensor.extent(last ? 1 : 2), layer.out.h);
  Axis columns = axis_of_columns(node, tensor.extent(last ? 2 : 3), layer.out.w);
  std::vector<Unit> units;
  for (int64_t group = 0; group < layer.groups; ++group) {
    Weights weights = weights_of(tensor, last, layer.outputs(), layer.inputs());
    weights.data += group * layer.outputs() * weights.by_output;
    Unit unit = make_unit(layer, rows, columns, weights, builder);
    unit.convolution.gemm.bias = pack_bias(layer.bias, group * layer.outputs(), layer.outputs(), builder);
    unit.first_input = group * layer.inputs();
    unit.first_output = group * layer.outputs();
    unit.out_strides = {layer.out.h * layer.out.w * 16, layer.out.w * 16, 16};
    units.push_back(std::move(unit));
  }
  const char* name = units[0].pointwise ? "conv1x1" : "conv";
  add_step(node, name, layer, std::move(units), builder);
}

// ---- TransposeConvolution2d -----------------------------------------------------------------------------------------

/// The places of the result at a distance of `stride` from one another, from `first` on. They see the same elements of
/// the window, `cells`, whose offsets are congruent to `number` modulo the stride. Over these places, the transposed
/// convolution is a convolution with stride 1, and with a dilation because consecutive cells are
/// dilation / gcd(dilation, stride) input pixels apart. The window has no cells, and its input is not read, if none
/// falls on these places.
struct Phase {
  Phase(const Axis& axis, int64_t number) : first(((number - axis.pad) % axis.stride + axis.stride) % axis.stride) {
    for (int64_t k = axis.kernel; k-- > 0;)
      if (k * axis.dilation % axis.stride == number) cells.push_back(k);
    int64_t places = std::max<int64_t>(0, (axis.places - first + axis.stride - 1) / axis.stride);
    int64_t farthest = cells.empty() ? 0 : (cells[0] * axis.dilation - number) / axis.stride;
    dense = {std::max<int64_t>(1, int64_t(cells.size())), 1, axis.dilation / std::gcd(axis.dilation, axis.stride),
             farthest - (first + axis.pad - number) / axis.stride, places};
  }

  int64_t first;
  std::vector<int64_t> cells;  // in the order in which the convolution reads them
  Axis dense;
};

/// The weights of one group and one phase, as [output][input][cell].
std::vector<float> weights_of_phase(const Tensor& tensor, bool last, const Layer& layer, int64_t group,
                                    const Phase& down, const Phase& across) {
  int64_t all = layer.in.c, height = tensor.extent(last ? 1 : 2), width = tensor.extent(last ? 2 : 3);
  std::vector<float> made;
  for (int64_t o = 0; o < layer.outputs(); ++o)
    for (int64_t i = group * layer.inputs(); i < (group + 1) * layer.inputs(); ++i)
      for (int64_t y : down.cells)
        for (int64_t x : across.cells) {
          int64_t at = last ? ((o * height + y) * width + x) * all + i : ((o * all + i) * height + y) * width + x;
          made.push_back(tensor.values<float>()[at]);
        }
  return made;
}

Refusal support_transposed(const Graph& graph, const Node& node, const Settings&) {
  FusedEpilogue fused;
  if (Refusal why = common_support(graph, node, &fused)) return why;
  const Tensor& weights = *graph.in(node, 1);
  Layer layer(graph, node);
  Axis rows = axis_of_rows(node, weights.extent(channels_last(node) ? 1 : 2), layer.out.h);
  Axis columns = axis_of_columns(node, weights.extent(channels_last(node) ? 2 : 3), layer.out.w);
  if (Refusal why = finite_weights(graph, node, "which would be multiplied with zeros around the image")) return why;
  if (rows.stride * columns.stride > 256) return refused("strides of more than 256 cells", IPR_REASON_RESOURCE);
  return support_window(layer, rows, columns);
}

void lower_transposed(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  Layer layer(graph, node);
  const Tensor& tensor = *graph.in(node, 1);
  bool last = channels_last(node);
  Axis rows = axis_of_rows(node, tensor.extent(last ? 1 : 2), layer.out.h);
  Axis columns = axis_of_columns(node, tensor.extent(last ? 2 : 3), layer.out.w);
  std::vector<Unit> units;
  for (int64_t group = 0; group < layer.groups; ++group) {
    const float* bias = pack_bias(layer.bias, group * layer.outputs(), layer.outputs(), builder);
    for (int64_t y = 0; y < rows.stride; ++y)
      for (int64_t x = 0; x < columns.stride; ++x) {
        Phase down(rows, y), across(columns, x);
        if (down.dense.places == 0 || across.dense.places == 0) continue;
        bool sees = !down.cells.empty() && !across.cells.empty();
        int64_t inputs = sees ? layer.inputs() : 0, taps = down.dense.kernel * across.dense.kernel;
        std::vector<float> values = weights_of_phase(tensor, last, layer, group, down, across);
        Weights weights{values.data(), layer.outputs(), inputs, taps, taps * inputs, taps, 1};
        Unit unit = make_unit(layer, down.dense, across.dense, weights, builder);
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
           {"TransposeConvolution2d", "f32", support_transposed, lower_transposed, layouts_of}},
          {}};
}

}  // namespace cpuacc
