// 3x3 Convolution2d of float32 by Winograd's algorithm, where the cost model expects it to be faster than the direct
// convolution.

#include <algorithm>
#include <cmath>

#include "cpuacc/kernels/winograd_f32.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kChunkFloats = 150'000;  // floats of transformed input that stay in the second-level cache: 600 KB

struct State {
  const WinogradKernels* kernels;
  Winograd winograd;
  int64_t images, in_image, out_image;
  bool by_blocks;
};

void run_winograd(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Winograd& w = state.winograd;
  const float* in = run.at<float>(step.in[0]);
  const float* residual = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
  float* out = run.at<float>(step.out[0]);
  OutputRange share{0, squares_of(w), 0, w.gemm.blocks};
  if (state.by_blocks) {
    int panel = state.kernels->panel, panels = std::max(1, w.gemm.blocks / panel);
    Range cut = split(panels, part, parts);
    share.block = int(cut.first) * panel;
    share.block_end = cut.last == panels ? w.gemm.blocks : int(cut.last) * panel;
  } else {
    Range cut = split(share.row_end, part, parts);
    share.row = int(cut.first), share.row_end = int(cut.last);
  }
  if (share.row == share.row_end || share.block == share.block_end) return;
  for (int64_t image = 0; image < state.images; ++image) {
    state.kernels->convolve(w, in, out, residual, run.part_scratch<float>(part), share);
    in += state.in_image;
    out += state.out_image;
    if (residual) residual += state.out_image;
  }
}

/// One of three stages of a convolution, which threads divide by blocks of channels and elements.
struct Stage {
  const WinogradKernels* kernels;
  Winograd winograd;
  int number, count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Stage& self = step.as<Stage>();
    Range range = split(self.count, part, parts);
    auto at = [&](const Buffer& buffer) { return buffer ? run.at<float>(buffer) : nullptr; };
    float *seen = at(self.number < 2 ? step.out[0] : Buffer()), *sums = nullptr, *out = nullptr;
    const float *in = nullptr, *residual = nullptr;
    if (self.number == 0) in = at(step.in[0]);
    if (self.number == 1) seen = at(step.in[0]), sums = at(step.out[0]);
    if (self.number == 2) sums = at(step.in[0]), residual = at(step.in[1]), in = at(step.in[2]), out = at(step.out[0]);
    self.kernels->stage(self.winograd, self.number, in, out, residual, seen, sums, int(range.first), int(range.last));
  }
};

struct Sizes {
  Sizes(const Graph& graph, const Node& node)
      : in(*graph.in(node, 0), channels_last(node)), out(graph.out(node), channels_last(node)),
        rows{3, 1, 1, node.integer("pad_top"), in.h, out.h}, columns{3, 1, 1, node.integer("pad_left"), in.w, out.w} {}
  int64_t weights() const { return blocks_of(out.c) * 16 * in.c; }

  Image in, out;
  WindowAxis rows, columns;
};

/// Estimated nanoseconds for one image on one thread; `tile` 1 is the direct convolution. The estimate is the larger
/// one of computing and of reading the weights, if these exceed the first-level cache.
double nanoseconds_of(const Sizes& s, int64_t tile, bool bfloat16) {
  const double operations = bfloat16 ? cost::kWinogradBfloat16OperationsPerNs : cost::kWinogradOperationsPerNs;
  const double bytes = bfloat16 ? cost::kWinogradBfloat16BytesPerNs : cost::kWinogradBytesPerNs;
  int64_t elements = tile == 1 ? 9 : (tile + 2) * (tile + 2);
  int64_t squares = ((s.out.h + tile - 1) / tile) * ((s.out.w + tile - 1) / tile);
  double products = 2.0 * double(s.weights() * elements) * double(tile == 1 ? s.out.h * s.out.w : squares) / operations;
  if (tile == 1) products *= mean_live_taps(s.rows) * mean_live_taps(s.columns) / double(elements);
  if (tile > 1 && double(squares) < cost::kWinogradLeastSquares)
    products *= cost::kWinogradLeastSquares / double(squares);
  double transforms = tile == 1 ? 0
                                : double(squares * (blocks_of(s.in.c) + blocks_of(s.out.c))) * double(elements) *
                                      cost::kWinogradTransformNs;
  int64_t read = tile == 1 ? used_taps(s.rows).count() * used_taps(s.columns).count() : elements;
  double memory = 4.0 * double(s.weights() * read) / bytes;
  return std::max(products + transforms, s.weights() * read > 64 * 1024 ? memory : 0);
}

int64_t best_tile(const Sizes& sizes, bool bfloat16) {
  int64_t best = 1;
  for (int64_t tile : {2, 4})
    if (nanoseconds_of(sizes, tile, bfloat16) < nanoseconds_of(sizes, best, bfloat16)) best = tile;
  return best;
}

bool multiplies_bfloat16(const Settings& settings) {
  return winograd_kernels_for(settings.isa, settings.fast_math).bfloat16;
}

/// The tile that tuning selected, or the one with the least estimated cost.
int64_t tile_of(const Sizes& sizes, const Node& node, const Settings& settings) {
  int chosen = settings.choices.of(Choice::winograd, node.layer);
  return chosen == 1 || chosen == 2 || chosen == 4 ? chosen : best_tile(sizes, multiplies_bfloat16(settings));
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (Refusal why = constant_weights(graph, node)) return why;
  const Tensor& weights = *graph.in(node, 1);
  const bool last = channels_last(node);
  bool small = weights.extent(last ? 1 : 2) == 3 && weights.extent(last ? 2 : 3) == 3;
  for (const char* name : {"stride_x", "stride_y", "dilation_x", "dilation_y", "groups"})
    small = small && node.integer(name, 1) == 1;
  for (const char* name : {"pad_top", "pad_left", "pad_bottom", "pad_right"}) small = small && node.integer(name) <= 64;
  Sizes sizes(graph, node);
  if (!small || sizes.in.c < 16 || std::max({sizes.in.h, sizes.in.w, sizes.in.c, sizes.out.c}) > 1 << 14)
    return refused("another window than 3 x 3, or few channels", IPR_REASON_UNPROFITABLE);
  if (tile_of(sizes, node, settings) == 1) return refused("the direct sum is quicker", IPR_REASON_UNPROFITABLE);
  FusedEpilogue fused;
  return find_epilogue(graph, node, &fused);
}

/// Return whether the transformed weights are far from overflow, so that the original weights can be recovered. The
/// answer is packed, so that a restored program need not read the weights.
bool are_moderate(const Tensor& weights, Builder& builder) {
  auto* moderate = static_cast<const int32_t*>(builder.pack(sizeof(int32_t), [&](void* to) {
    const UnalignedFloats values = weights.floats();
    const int64_t count = weights.elements();
    bool moderate = true;
    for (int64_t n = 0; n < count; ++n) moderate &= std::fabs(values[n]) < 1e30f;
    *static_cast<int32_t*>(to) = moderate;
  }));
  return *moderate != 0;
}

/// Append three steps instead of one: there are too few squares and too few blocks to divide among threads.
void add_stages(const Node& node, const State& state, int residual, double nanoseconds, double operations,
                Builder& builder) {
  const Winograd& w = state.winograd;
  const int64_t floats = int64_t{(w.tile + 2) * (w.tile + 2)} * squares_of(w) * 16, in_blocks = blocks_of(w.gemm.depth);
  Buffer seen = builder.temporary(uint64_t(floats * in_blocks) * 4);
  Buffer sums = builder.temporary(uint64_t(floats * w.gemm.blocks) * 4);
  const int counts[] = {int(in_blocks), (w.tile + 2) * (w.tile + 2), w.gemm.blocks};
  for (int number : {0, 1, 2}) {
    Step step;
    step.name = "winograd stage " + std::to_string(number) + " " + node.name;
    step.fn = &Stage::run;
    step.max_parts = std::min(parts_for(builder.settings, nanoseconds), counts[number]);
    step.operations = number == 1 ? operations : 0;
    if (number == 0) step.in = {builder.buffer(node.inputs[0])}, step.out = {seen};
    if (number == 1) step.in = {seen}, step.out = {sums};
    if (number == 2)
      step.in = {sums, builder.buffer(residual), builder.buffer(node.inputs[0])},
      step.out = {builder.buffer(node.outputs[0])};
    step.state = std::make_shared<Stage>(Stage{state.kernels, w, number, counts[number]});
    builder.add(std::move(step));
  }
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  Sizes sizes(graph, node);
  if (!are_moderate(*graph.in(node, 1), builder)) return lower_direct_convolution(node, builder);
  FusedEpilogue fused = epilogue_of(graph, node);
  auto state = std::make_shared<State>();
  state->kernels = &winograd_kernels_for(builder.settings.isa, builder.settings.fast_math);
  state->images = sizes.in.n;
  state->in_image = sizes.in.floats();
  state->out_image = sizes.out.floats();
  Winograd& w = state->winograd;
  w.tile = int32_t(tile_of(sizes, node, builder.settings));
  w.height = int32_t(sizes.in.h), w.width = int32_t(sizes.in.w);
  w.out_height = int32_t(sizes.out.h), w.out_width = int32_t(sizes.out.w);
  w.pad_top = int32_t(node.integer("pad_top")), w.pad_left = int32_t(node.integer("pad_left"));
  int64_t elements = int64_t{w.tile + 2} * (w.tile + 2);
  Weights weights = weights_of(*graph.in(node, 1), channels_last(node), sizes.out.c, sizes.in.c);
  weights.bfloat16 = state->kernels->bfloat16;
  const float* packed =
      static_cast<const float*>(builder.pack(uint64_t(weights.packed() / 9 * elements) * 4, [&](void* to) {
        pack_winograd(builder, weights, state->kernels->panel, w.tile, state->kernels->transform_weights,
                      static_cast<float*>(to));
      }));
  const float* bias = pack_bias(bias_of(graph, node), 0, sizes.out.c, builder);
  w.gemm = {int32_t(sizes.in.c), int32_t(blocks_of(sizes.out.c)), packed, bias, fused.epilogue};
  int64_t threads = builder.settings.threads, squares = squares_of(w);
  state->by_blocks = w.gemm.blocks / state->kernels->panel >= 2 * threads &&
                     (sizes.weights() * elements > 512 * 1024 || squares < 8 * threads);
  int64_t own = state->by_blocks ? squares : (squares + threads - 1) / threads;
  int64_t most = std::max<int64_t>(14, kChunkFloats / (elements * blocks_of(sizes.in.c) * 16));
  int64_t chunks = (own + most - 1) / most;
  w.chunk = int32_t((own + chunks - 1) / chunks);
  const double nanoseconds = nanoseconds_of(sizes, w.tile, weights.bfloat16) * double(sizes.in.n);
  const double operations = 18.0 * double(sizes.in.n * sizes.in.c * sizes.out.c * sizes.out.h * sizes.out.w);
  if (!state->by_blocks && sizes.in.n == 1 && squares < 14 * threads && parts_for(builder.settings, nanoseconds) > 1)
    return add_stages(node, *state, fused.residual, nanoseconds, operations, builder);
  Step step;
  step.name = (w.tile == 4 ? "winograd4x4 " : "winograd2x2 ") + node.name;
  step.fn = run_winograd;
  step.max_parts = parts_for(builder.settings, nanoseconds);
  step.operations = operations;
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(fused.residual)};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(scratch_of(w)) * 4;
  step.state = state;
  builder.add(std::move(step));
}

}  // namespace

Family winograd_f32_family() { return {{{"Convolution2d", "winograd", support, lower, blocked_layouts}}, {}}; }

}  // namespace cpuacc
