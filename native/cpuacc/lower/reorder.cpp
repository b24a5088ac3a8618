// "acc.Reorder": conversion of an image to another layout. Created by the pass that chooses layouts.

#include <algorithm>

#include "cpuacc/kernels/reorder.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

struct Reorder {
  const ReorderKernels* kernels;
  bool blocks;  // plain to blocked, or blocked to plain
  int64_t images, channels, pixels, by_channel, by_pixel;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Reorder& self = step.as<Reorder>();
    int64_t blocks = (self.channels + kBlock - 1) / kBlock;
    constexpr int64_t grain = 64;
    int64_t pieces = (self.pixels + grain - 1) / grain;
    Range range = split(self.images * blocks * pieces, part, parts);
    const float* in = run.at<float>(step.in[0]);
    float* out = run.at<float>(step.out[0]);
    for (int64_t n = range.first; n < range.last;) {
      int64_t at = n / pieces, block = at % blocks, piece = n % pieces;
      int64_t more = std::min(pieces - piece, range.last - n);
      int64_t first = piece * grain, last = std::min(self.pixels, (piece + more) * grain);
      BlockCopy copy{std::min(kBlock, self.channels - block * kBlock), self.by_channel, self.by_pixel};
      int64_t plain = at / blocks * self.channels * self.pixels + block * kBlock * self.by_channel;
      int64_t blocked = at * self.pixels * kBlock;
      if (self.blocks)
        self.kernels->to_blocked(in + plain, out + blocked, copy, first, last);
      else
        self.kernels->to_plain(in + blocked, out + plain, copy, first, last);
      n += more;
    }
  }
};

Refusal support(const Graph&, const Node&, const Settings&) { return taken(); }

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  Layout layout = is_blocked(out.layout) ? out.layout : in.layout;
  bool last = layout == Layout::blocked_nhwc;
  auto state = std::make_shared<Reorder>();
  state->kernels = &reorder_kernels_for(builder.settings.isa);
  state->blocks = is_blocked(out.layout);
  state->images = in.shape[0];
  state->channels = in.extent(channel_axis_of(layout, in.rank()));
  state->pixels = in.elements() == 0 ? 0 : in.elements() / (state->images * state->channels);
  state->by_channel = last ? 1 : state->pixels;
  state->by_pixel = last ? state->channels : 1;
  if (in.elements() == 0) state->images = 0;
  bool same = state->channels % kBlock == 0 && (state->pixels == 1 || (last && state->channels == kBlock));
  if (same && builder.share(node.outputs[0], node.inputs[0])) return;
  Step step;
  step.name = "reorder " + node.name;
  step.fn = &Reorder::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kReorderNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family reorder_family() { return {{{"acc.Reorder", "plain", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
