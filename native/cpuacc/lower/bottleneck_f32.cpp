// Inverted residual blocks of float32: a depthwise convolution and the pointwise convolutions before and after it
// become one node, "acc.Bottleneck".

#include <algorithm>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"
#include "cpuacc/patterns.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kStripFloats =
    64 * 1024;  // floats of the output of the depthwise convolution in one strip: 256 KiB of the second-level cache

/// The nodes that were fused. The new node has the post-ops of the last one.
struct Parts {
  Node expand, depthwise, project;
  bool expands = false, projects = false;
};

const Parts& parts_of(const Node& node) { return *static_cast<const Parts*>(node.extra.get()); }

struct State {
  const ConvKernels* kernels;
  Bottleneck bottleneck;
  int64_t images, in_image, out_image;
  bool by_blocks;
};

void run_bottleneck(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Depthwise& d = state.bottleneck.depthwise;
  const float* in = run.at<float>(step.in[0]);
  const float* residual = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
  float* out = run.at<float>(step.out[0]);
  OutputRange share{0, d.out_height, 0, d.blocks};
  if (state.by_blocks) {
    int panel = state.kernels->panel, panels = std::max(1, d.blocks / panel);
    Range cut = split(panels, part, parts);
    share.block = int(cut.first) * panel;
    share.block_end = cut.last == panels ? d.blocks : int(cut.last) * panel;
  } else {
    Range cut = split(d.out_height, part, parts);
    share.row = int(cut.first), share.row_end = int(cut.last);
  }
  if (share.row == share.row_end || share.block == share.block_end) return;
  for (int64_t image = 0; image < state.images; ++image) {
    state.kernels->bottleneck(state.bottleneck, in, out, residual, run.part_scratch<float>(part), share);
    in += state.in_image;
    out += state.out_image;
    if (residual) residual += state.out_image;
  }
}

// ---- Finding them ---------------------------------------------------------------------------------------------------

bool is_pointwise(const Graph& graph, const Node& node) {
  if (node.type != "Convolution2d" || node.integer("groups", 1) != 1 || !graph.in(node, 1)->is_constant()) return false;
  const Tensor& weights = *graph.in(node, 1);
  bool last = channels_last(node), plain = weights.extent(last ? 1 : 2) == 1 && weights.extent(last ? 2 : 3) == 1;
  for (const char* name : {"stride_x", "stride_y"}) plain = plain && node.integer(name, 1) == 1;
  for (const char* name : {"pad_top", "pad_left", "pad_bottom", "pad_right"}) plain = plain && node.integer(name) == 0;
  return plain && Image(*graph.in(node, 0), last).c >= 8;
}

bool is_supported(const Graph& graph, const Node& node, const Settings& settings) {
  return !all_f32(graph, node) && find_lowering(graph, node, settings);
}

bool has_add(const Node& node) {
  return std::any_of(node.posts.begin(), node.posts.end(), [](const Post& post) { return post.kind == Post::add; });
}

bool is_depthwise(const Graph& graph, const Node& node, const Settings& settings) {
  if (node.type != "DepthwiseConvolution2d" || !is_supported(graph, node, settings)) return false;
  const Tensor& weights = *graph.in(node, 1);
  return Image(*graph.in(node, 0), channels_last(node)).c == weights.extent(3) && weights.extent(1) <= 16 &&
         node.integer("dilation_y", 1) * weights.extent(1) <= 64 && node.integer("pad_left") <= 64;
}

/// Return whether the projection is computed in the same step, strip by strip on one thread. Otherwise threads divide
/// the channels, and the projection is a step of its own, because there are too few rows for all threads.
bool projects_within(const Graph& graph, const Node& depthwise, const Settings& settings) {
  Image out(graph.out(depthwise), channels_last(depthwise));
  return settings.threads == 1 || out.h >= 8 * settings.threads;
}

bool fuse_one(Graph& graph, const Node& depthwise, const Settings& settings) {
  auto parts = std::make_shared<Parts>();
  const Tensor& in = *graph.in(depthwise, 0);
  const Node* expand = in.producer >= 0 ? &graph.nodes[size_t(in.producer)] : nullptr;
  parts->expands = expand && only_user(graph, depthwise.inputs[0]) >= 0 && is_pointwise(graph, *expand) &&
                   is_supported(graph, *expand, settings) && !has_add(*expand) &&
                   channels_last(*expand) == channels_last(depthwise);
  const int user = has_add(depthwise) ? -1 : only_user(graph, depthwise.outputs[0]);
  const Node* project = user < 0 ? nullptr : &graph.nodes[size_t(user)];
  parts->projects = project && is_pointwise(graph, *project) && is_supported(graph, *project, settings) &&
                    channels_last(*project) == channels_last(depthwise) && project->inputs[0] == depthwise.outputs[0] &&
                    projects_within(graph, depthwise, settings);
  if (!parts->expands && !parts->projects) return false;
  if (has_add(depthwise) || settings.choices.of(Choice::block, depthwise.layer) == 0) return false;
  parts->depthwise = depthwise;
  if (parts->expands) parts->expand = *expand;
  if (parts->projects) parts->project = *project;
  const Node& last = parts->projects ? *project : depthwise;
  Node merged = last;
  merged.type = "acc.Bottleneck";
  merged.inputs = {parts->expands ? expand->inputs[0] : depthwise.inputs[0]};
  if (has_add(last)) merged.inputs.push_back(last.inputs.back());
  merged.extra = parts;
  if (parts->expands) merged.fused.push_back(expand->layer);
  if (parts->projects) merged.fused.push_back(depthwise.layer);
  if (parts->expands) graph.nodes.remove(*expand);
  if (parts->projects) graph.nodes.remove(depthwise);
  graph.nodes.replace(last, std::move(merged));
  return true;
}

bool fuse(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (is_depthwise(graph, graph.nodes[n], settings)) changed = fuse_one(graph, graph.nodes[n], settings) || changed;
  return changed;
}

// ---- Lowering -------------------------------------------------------------------------------------------------------

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.extra) return refused("not created by CpuAcc");
  FusedEpilogue fused;
  if (!parts_of(node).projects && has_add(node)) return refused("adds to the result of a depthwise convolution");
  return find_epilogue(graph, node, &fused);
}

Gemm pointwise(const Node& node, const Epilogue& epilogue, Builder& builder) {
  const Graph& graph = builder.graph;
  const bool last = channels_last(node);
  const ConvKernels& kernels = kernels_for(builder.settings);
  int64_t inputs = Image(*graph.in(node, 0), last).c, outputs = Image(graph.out(node), last).c;
  Weights weights = weights_of(*graph.in(node, 1), last, outputs, inputs);
  weights.bfloat16 = kernels.bfloat16;
  Gemm gemm{int32_t(inputs), int32_t(blocks_of(outputs)), nullptr, nullptr, epilogue, last_of(outputs)};
  gemm.weights = static_cast<const float*>(builder.pack(uint64_t(weights.packed()) * 4, [&](void* to) {
    pack_panels(builder, weights, kernels.panel, 16, static_cast<float*>(to));
  }));
  gemm.bias = pack_bias(bias_of(graph, node), 0, outputs, builder);
  return gemm;
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  const Parts& parts = parts_of(node);
  const bool last = channels_last(node);
  auto state = std::make_shared<State>();
  state->kernels = &kernels_for(builder.settings);
  Bottleneck& b = state->bottleneck;
  FusedEpilogue fused = epilogue_of(graph, node);
  if (parts.expands) b.expand = pointwise(parts.expand, epilogue_of(graph, parts.expand).epilogue, builder);
  b.depthwise = make_depthwise(parts.depthwise, builder);
  if (!parts.projects) b.depthwise.epilogue = fused.epilogue;
  if (parts.projects) b.project = pointwise(parts.project, fused.epilogue, builder);
  const Depthwise& d = b.depthwise;
  Image in(*graph.in(node, 0), last), out(graph.out(node), last);
  int64_t threads = builder.settings.threads, row = int64_t{d.blocks} * 16 * d.out_width;
  int64_t own = (d.out_height + threads - 1) / threads, most = std::max<int64_t>(1, kStripFloats / row);
  int64_t strips = (own + most - 1) / most;
  b.strip = int32_t((own + strips - 1) / strips);
  state->images = in.n;
  state->in_image = in.floats();
  state->out_image = out.floats();
  state->by_blocks = !parts.projects && d.blocks / state->kernels->panel >= threads;
  double pixels = double(d.out_height) * d.out_width;
  double operations = 2.0 * d.blocks * 16 *
                      (double(b.expand.depth) * d.height * d.width +
                       pixels * (d.kernel_height * d.kernel_width + b.project.blocks * 16));
  Step step;
  step.name =
      std::string(parts.expands ? "expand " : "") + "depthwise " + (parts.projects ? "project " : "") + node.name;
  step.fn = run_bottleneck;
  step.max_parts = parts_for(builder.settings, operations * double(in.n) / cost::kOperationsPerNs);
  step.operations = operations * double(in.n);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(fused.residual)};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(scratch_of(b) + (state->kernels->bfloat16 ? staged_words(b) : 0)) * 4;
  step.state = state;
  builder.add(std::move(step));
}

}  // namespace

Family bottleneck_f32_family() {
  return {{{"acc.Bottleneck", "f32", support, lower, blocked_layouts}}, {{"bottlenecks", fuse}}};
}

}  // namespace cpuacc
