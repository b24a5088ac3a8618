// Pad whose border repeats elements of the operand.

#include <algorithm>
#include <cstring>

#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

/// The remainder of a division, which is not negative.
int64_t remainder(int64_t number, int64_t period) { return (number % period + period) % period; }

/// The index of the element that is repeated at a place outside of an axis.
int64_t repeated(std::string_view mode, int64_t place, int64_t extent) {
  if (mode == "EDGE" || extent == 1) return std::clamp<int64_t>(place, 0, extent - 1);
  if (mode == "WRAP") return remainder(place, extent);
  const bool reflect = mode == "REFLECT";  // the element at the edge is not repeated
  const int64_t period = 2 * (reflect ? extent - 1 : extent), way = remainder(place, period);
  return way < extent ? way : period - way - (reflect ? 0 : 1);
}

/// Rows of blocks, the elements along the last axis that has a border. `inner` is the number of bytes of a block.
struct Border {
  const MoveKernels* kernels;
  std::vector<std::vector<int64_t>> offsets;  // in the operand, in bytes, for each index of the result along each axis
  int64_t rows, before, extent, after, inner;

  /// The place of a row of the result in the operand.
  int64_t place(int64_t row) const {
    int64_t found = 0;
    for (size_t axis = offsets.size() - 1; axis-- > 0;) {
      const int64_t size = int64_t(offsets[axis].size());
      found += offsets[axis][size_t(row % size)];
      row /= size;
    }
    return found;
  }

  void blocks(const char* in, char* out, const int64_t* from, int64_t count) const {
    if (inner == 1 || inner == 2 || inner == 4 || inner == 8) return kernels->pick(in, out, from, inner, count);
    for (int64_t n = 0; n < count; ++n) std::memcpy(out + n * inner, in + from[n], size_t(inner));
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Border& self = step.as<Border>();
    const int64_t* along = self.offsets.back().data();
    const int64_t count = self.before + self.extent + self.after;
    const Range range = split(self.rows, part, parts);
    for (int64_t row = range.first; row < range.last; ++row) {
      const char* in = run.at<char>(step.in[0]) + self.place(row);
      char* out = run.at<char>(step.out[0]) + row * count * self.inner;
      self.blocks(in, out, along, self.before);
      std::memcpy(out + self.before * self.inner, in, size_t(self.extent * self.inner));
      const int64_t last = self.before + self.extent;
      self.blocks(in, out + last * self.inner, along + last, self.after);
    }
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (graph.in(node, 0)->rank() == 0) return refused("a scalar has no border", IPR_REASON_SHAPE);
  if (node.text("padding_mode") == "CONSTANT") return refused("the border is constant", IPR_REASON_ATTRIBUTE);
  if (!graph.in(node, 0)->same_quantization(graph.out(node)))
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const std::vector<int64_t>& pads = node.integers("pad_list");
  const int64_t item = int64_t(ipr::item_size(in.dtype));
  const Shape steps = steps_of(in.shape);
  size_t axes = in.shape.size();
  while (axes > 1 && pads[2 * axes - 1] == 0 && pads[2 * axes - 2] == 0) --axes;
  auto state = std::make_shared<Border>();
  state->kernels = &move_kernels_for(builder.settings.isa);
  state->rows = 1;
  for (size_t axis = 0; axis < axes; ++axis) {
    std::vector<int64_t> along;
    for (int64_t n = -pads[2 * axis]; n < in.shape[axis] + pads[2 * axis + 1]; ++n)
      along.push_back(repeated(node.text("padding_mode"), n, in.shape[axis]) * steps[axis] * item);
    if (axis + 1 < axes) state->rows *= int64_t(along.size());
    state->offsets.push_back(std::move(along));
  }
  state->before = pads[2 * axes - 2], state->extent = in.shape[axes - 1], state->after = pads[2 * axes - 1];
  state->inner = steps[axes - 1] * item;
  if (out.elements() == 0) state->rows = 0;
  Step step;
  step.name = "Pad " + node.name;
  step.fn = &Border::run;
  step.max_parts = parts_for(builder.settings, double(out.bytes()) * cost::kGatheredByteNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family border_family() { return {{{"Pad", "border", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
