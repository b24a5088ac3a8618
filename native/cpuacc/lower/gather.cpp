// Gather and Pad.

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

// ---- Gather ---------------------------------------------------------------------------------------------------------

struct Gather {
  int64_t batches, outer, extent, indices, bytes;  // `bytes` of the dimensions after the axis
  bool wide;                                       // indices are int64

  int64_t index(const Step& step, const Run& run, int64_t at) const {
    int64_t index = wide ? run.at<int64_t>(step.in[1])[at] : run.at<int32_t>(step.in[1])[at];
    if (index < -extent || index >= extent) {
      run.fail(1, at, index, -extent, extent - 1);
      return 0;
    }
    return index < 0 ? index + extent : index;
  }

  /// Copy `count` elements or rows of `kBytes`, or of `bytes` if that is 0. `at` is the position of the first index.
  template <int64_t kBytes>
  void copy(const Step& step, const Run& run, const char* from, int64_t at, int64_t count, char* to) const {
    const int64_t size = kBytes ? kBytes : bytes;
    for (int64_t n = 0; n < count; ++n)
      std::memcpy(to + n * size, from + index(step, run, at + n) * size, size_t(size));
  }

  /// A constant number of bytes needs no call of a function.
  decltype(&Gather::copy<0>) copy_of_size() const {
    if (bytes == 1) return &Gather::copy<1>;
    if (bytes == 2) return &Gather::copy<2>;
    if (bytes == 4) return &Gather::copy<4>;
    if (bytes == 8) return &Gather::copy<8>;
    return bytes == 16 ? &Gather::copy<16> : &Gather::copy<0>;
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Gather& self = step.as<Gather>();
    const Range range = split(self.batches * self.outer * self.indices, part, parts);
    if (self.extent == 0) {  // each index is out of range, and there is nothing to copy
      if (range.first < range.last) self.index(step, run, range.first / self.indices / self.outer * self.indices);
      return;
    }
    const char* in = run.at<char>(step.in[0]);
    char* out = run.at<char>(step.out[0]);
    const auto copy = self.copy_of_size();
    for (int64_t n = range.first; n < range.last;) {
      const int64_t row = n / self.indices, first = n % self.indices;
      const int64_t count = std::min(self.indices - first, range.last - n);
      (self.*copy)(step, run, in + row * self.extent * self.bytes, row / self.outer * self.indices + first, count,
                   out + n * self.bytes);
      n += count;
    }
  }
};

void lower_gather(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &indices = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  int axis = axis_of(node.integer("axis"), in.rank());
  size_t batch = size_t(node.integer("batch_dims"));
  auto state = std::make_shared<Gather>();
  Around at = around(in.shape, axis);
  state->batches = 1;
  for (size_t n = 0; n < batch; ++n) state->batches *= in.shape[n];
  state->outer = state->batches ? at.outer / state->batches : 0;
  state->extent = at.extent;
  state->indices = state->batches ? indices.elements() / state->batches : 0;
  state->bytes = at.inner * int64_t(ipr::item_size(in.dtype));
  state->wide = indices.dtype == IPR_DTYPE_INT64;
  Step step;
  step.name = label(node);
  step.fn = &Gather::run;
  step.max_parts = parts_for(builder.settings, double(out.bytes()) * cost::kGatheredByteNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

Refusal gather_support(const Graph& graph, const Node& node, const Settings& settings) {
  int32_t dtype = graph.in(node, 1)->dtype;
  if (dtype != IPR_DTYPE_INT32 && dtype != IPR_DTYPE_INT64)
    return refused("indices are of another type", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

// ---- Pad ------------------------------------------------------------------------------------------------------------

Refusal pad_support(const Graph& graph, const Node& node, const Settings& settings) {
  char element[8];
  const Tensor& out = graph.out(node);
  if (node.text("padding_mode") != "CONSTANT")
    return refused(std::string(node.text("padding_mode")) + " is not done here", IPR_REASON_ATTRIBUTE);
  if (!encode(node.number("pad_value"), out, element))
    return refused("a border of " + described(out) + " is not done here", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_pad(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  char element[8];
  encode(node.number("pad_value"), out, element);
  uint64_t item_size = ipr::item_size(out.dtype);
  Buffer to = builder.buffer(node.outputs[0]);
  builder.add(fill_step(builder, "border of " + node.name, to, element, item_size, out.elements()));
  if (in.elements() == 0) return;
  Shape steps = steps_of(in.shape), result = steps_of(out.shape);
  const std::vector<int64_t>& pads = node.integers("pad_list");
  Axes axes;
  int64_t offset = 0;
  for (size_t n = 0; n < in.shape.size(); ++n) {
    axes.push_back({in.shape[n], steps[n], result[n]});
    offset += pads[2 * n] * result[n];
  }
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), to, axes, item_size, 0, offset));
}

}  // namespace

Family gather_family() {
  return {
      {{"Gather", "plain", gather_support, lower_gather, nullptr}, {"Pad", "plain", pad_support, lower_pad, nullptr}},
      {}};
}

}  // namespace cpuacc
