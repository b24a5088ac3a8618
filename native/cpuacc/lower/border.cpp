// Pad whose border repeats elements of the operand.

#include "cpuacc/lower/border.hpp"

#include <algorithm>
#include <cstring>

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

void run_border(const Step& step, const Run& run, int part, int parts) {
  const Border& border = step.as<Border>();
  const Range range = split(border.rows, part, parts);
  border.copy(run.at<char>(step.in[0]), run.at<char>(step.out[0]), range.first, range.last);
}

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
  auto state =
      std::make_shared<Border>(border_of(move_kernels_for(builder.settings.isa), in.shape, node.integers("pad_list"),
                                         node.text("padding_mode"), int64_t(ipr::item_size(in.dtype))));
  if (out.elements() == 0) state->rows = 0;
  Step step;
  step.name = "Pad " + node.name;
  step.fn = &run_border;
  step.max_parts = parts_for(builder.settings, double(out.bytes()) * cost::kGatheredByteNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

/// The place of a row of the result in the operand.
int64_t Border::place(int64_t row) const {
  int64_t offset = 0;
  for (size_t axis = offsets.size() - 1; axis-- > 0;) {
    const int64_t size = int64_t(offsets[axis].size());
    offset += offsets[axis][size_t(row % size)];
    row /= size;
  }
  return offset;
}

void Border::blocks(const char* in, char* out, const int64_t* from, int64_t count) const {
  if (inner == 1 || inner == 2 || inner == 4 || inner == 8) return kernels->pick(in, out, from, inner, count);
  for (int64_t n = 0; n < count; ++n) std::memcpy(out + n * inner, in + from[n], size_t(inner));
}

void Border::copy(const char* in, char* out, int64_t first, int64_t last) const {
  const int64_t* along = offsets.back().data();
  const int64_t count = before + extent + after, behind = before + extent;
  for (int64_t row = first; row < last; ++row) {
    const char* from = in + place(row);
    char* to = out + row * count * inner;
    blocks(from, to, along, before);
    std::memcpy(to + before * inner, from, size_t(extent * inner));
    blocks(from, to + behind * inner, along + behind, after);
  }
}

Border border_of(const MoveKernels& kernels, const Shape& shape, const std::vector<int64_t>& pads,
                 std::string_view mode, int64_t item_size) {
  const Shape steps = steps_of(shape);
  size_t axes = shape.size();
  while (axes > 1 && pads[2 * axes - 1] == 0 && pads[2 * axes - 2] == 0) --axes;
  Border border{&kernels, {}, 1, pads[2 * axes - 2], shape[axes - 1], pads[2 * axes - 1], steps[axes - 1] * item_size};
  for (size_t axis = 0; axis < axes; ++axis) {
    std::vector<int64_t> along;
    for (int64_t n = -pads[2 * axis]; n < shape[axis] + pads[2 * axis + 1]; ++n)
      along.push_back(repeated(mode, n, shape[axis]) * steps[axis] * item_size);
    if (axis + 1 < axes) border.rows *= int64_t(along.size());
    border.offsets.push_back(std::move(along));
  }
  return border;
}

Family border_family() { return {{{"Pad", "border", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
