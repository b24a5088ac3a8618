// DepthwiseConvolution2d of float32.

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMaxExtent = 1 << 20;
constexpr int64_t kMaxKernel = 64;
constexpr int64_t kMaxCells = 1 << 24;  // floats of the rows under a window

struct State {
  const ConvKernels* kernels;
  Depthwise depthwise;
  int64_t images, channels, multiplier;  // channels of the input
};

void run_depthwise(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Depthwise& d = state.depthwise;
  const float* in = run.at<float>(step.in[0]);
  const float* residual = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
  float* out = run.at<float>(step.out[0]);
  int64_t rows = int64_t{d.blocks} * d.out_height;
  Range range = split(rows, part, parts);
  for (int64_t image = 0; image < state.images; ++image) {
    state.kernels->depthwise(d, in, out, residual, run.part_scratch<float>(part), range.first, range.last);
    in += int64_t{d.blocks} * d.height * d.width * 16;
    out += rows * d.out_width * 16;
    if (residual) residual += rows * d.out_width * 16;
  }
}

/// Repeat each channel `multiplier` times in a row; both images are nChw16c.
void run_repeat(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Depthwise& d = state.depthwise;
  const float* in = run.at<float>(step.in[0]);
  float* out = run.at<float>(step.out[0]);
  const int64_t pixels = int64_t{d.height} * d.width, in_blocks = blocks_of(state.channels);
  Range range = split(state.images * d.blocks, part, parts);
  for (int64_t n = range.first; n < range.last; ++n) {
    int64_t image = n / d.blocks, block = n % d.blocks;
    for (int64_t lane = 0; lane < 16; ++lane) {
      int64_t channel = (block * 16 + lane) / state.multiplier;
      const float* from = in + (image * in_blocks + channel / 16) * pixels * 16 + channel % 16;
      float* to = out + n * pixels * 16 + lane;
      for (int64_t p = 0; p < pixels; ++p) to[p * 16] = channel < state.channels ? from[p * 16] : 0;
    }
  }
}

bool is_padded(const Node& node) {
  return node.integer("pad_top") || node.integer("pad_bottom") || node.integer("pad_left") || node.integer("pad_right");
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (Refusal why = constant_weights(graph, node)) return why;
  for (const Tensor* tensor : {graph.in(node, 0), &graph.out(node)})
    for (int64_t extent : tensor->shape)
      if (extent > kMaxExtent) return refused("an extent of " + std::to_string(extent), IPR_REASON_RESOURCE);
  for (const char* name : {"pad_top", "pad_left", "stride_y", "stride_x", "dilation_y", "dilation_x"})
    if (node.integer(name) > kMaxExtent)
      return refused(std::string(name) + " is greater than 2**20", IPR_REASON_RESOURCE);
  const Tensor& weights = *graph.in(node, 1);
  if (weights.extent(1) > kMaxKernel || weights.extent(2) > kMaxExtent)
    return refused("a window of more than 64 rows", IPR_REASON_RESOURCE);
  double rows = double(weights.extent(1)) * double(node.integer("dilation_y", 1));
  double width = double(Image(*graph.in(node, 0), channels_last(node)).w) + double(node.integer("pad_left")) +
                 double(weights.extent(2)) * double(node.integer("dilation_x", 1)) + double(node.integer("pad_right"));
  if (rows * width > kMaxCells) return refused("the window reaches over too much of the image", IPR_REASON_RESOURCE);
  if (is_padded(node))
    if (Refusal why = finite_weights(graph, node, "whose products with padding are not computed")) return why;
  FusedEpilogue fused;
  return find_epilogue(graph, node, &fused);
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& in = *graph.in(node, 0);
  if (graph.out(node).elements() == 0) return;
  auto state = std::make_shared<State>();
  state->kernels = &conv_kernels_for(builder.settings.isa);
  state->images = in.extent(0);
  state->channels = Image(in, channels_last(node)).c;
  state->multiplier = Image(graph.out(node), channels_last(node)).c / state->channels;
  state->depthwise = make_depthwise(node, builder);
  const Depthwise& d = state->depthwise;
  FusedEpilogue fused = epilogue_of(graph, node);
  Buffer source = builder.buffer(node.inputs[0]);
  double nanoseconds = double(state->images * d.blocks * d.out_height * d.out_width) *
                       (cost::kDepthwiseFixedTaps + d.kernel_height * d.kernel_width) / cost::kDepthwiseTapsPerNs;
  if (state->multiplier > 1) {
    Step repeat;
    repeat.name = "repeat channels " + node.name;
    repeat.fn = run_repeat;
    repeat.max_parts = parts_for(builder.settings, nanoseconds);
    repeat.in = {source};
    source = builder.temporary(uint64_t(state->images * d.blocks * d.height * d.width) * 64);
    repeat.out = {source};
    repeat.state = state;
    builder.add(std::move(repeat));
  }
  Step step;
  step.name = "depthwise " + node.name;
  step.fn = run_depthwise;
  step.max_parts = parts_for(builder.settings, nanoseconds);
  step.operations =
      32.0 * double(state->images * d.blocks * d.out_height * d.out_width) * d.kernel_height * d.kernel_width;
  step.in = {source, builder.buffer(fused.residual)};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(ring_rows(d) * ring_width(d)) * 64;
  step.state = state;
  builder.add(std::move(step));
}

}  // namespace

Depthwise make_depthwise(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& weights = *graph.in(node, 1);
  const Image in(*graph.in(node, 0), channels_last(node)), out(graph.out(node), channels_last(node));
  const int64_t taps = weights.extent(1) * weights.extent(2);
  Depthwise d{};
  d.blocks = int32_t(blocks_of(out.c));
  d.height = int32_t(in.h), d.width = int32_t(in.w);
  d.out_height = int32_t(out.h), d.out_width = int32_t(out.w);
  d.kernel_height = int32_t(weights.extent(1)), d.kernel_width = int32_t(weights.extent(2));
  d.stride_y = int32_t(node.integer("stride_y", 1)), d.stride_x = int32_t(node.integer("stride_x", 1));
  d.dilation_y = int32_t(node.integer("dilation_y", 1)), d.dilation_x = int32_t(node.integer("dilation_x", 1));
  d.pad_top = int32_t(node.integer("pad_top")), d.pad_left = int32_t(node.integer("pad_left"));
  d.epilogue = epilogue_of(graph, node).epilogue;
  d.weights = static_cast<const float*>(builder.pack(uint64_t(d.blocks * taps) * 64, [&](void* to) {
    pack_depthwise(weights.values<float>(), out.c, taps, static_cast<float*>(to));
  }));
  d.bias = pack_bias(bias_of(graph, node), 0, out.c, builder);
  return d;
}

Family depthwise_f32_family() { return {{{"DepthwiseConvolution2d", "f32", support, lower, blocked_layouts}}, {}}; }

}  // namespace cpuacc
