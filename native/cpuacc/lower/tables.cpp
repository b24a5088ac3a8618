// HashtableLookup, and FakeQuantization.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/fixed_point.hpp"
#include "cpuacc/kernels/dynamic.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/dynamic_result.hpp"

namespace cpuacc {
namespace {

// ---- HashtableLookup ------------------------------------------------------------------------------------------------

/// Finds the rows of keys. Of equal keys, the last one counts.
class KeyRows {
 public:
  KeyRows(const Run& run, const Buffer& keys, const Integers& integers) {
    for (int64_t n = 0; n < integers.count; ++n) entries_.push_back({integers.at(run, keys, n), n});
    if (!std::is_sorted(entries_.begin(), entries_.end())) std::sort(entries_.begin(), entries_.end());
  }

  /// The row of a key; -1 if there is none.
  int64_t row_of(int64_t key) const {
    const auto after = std::upper_bound(entries_.begin(), entries_.end(), std::pair<int64_t, int64_t>{key, INT64_MAX});
    return after == entries_.begin() || (after - 1)->first != key ? -1 : (after - 1)->second;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> entries_;  // key and row
};

struct Lookup {
  Integers lookups, keys;
  int64_t row_bytes;

  static void run(const Step& step, const Run& run, int, int) {
    const Lookup& self = step.as<Lookup>();
    const KeyRows rows(run, step.in[1], self.keys);
    const size_t bytes = size_t(self.row_bytes);
    for (int64_t n = 0; n < self.lookups.count; ++n) {
      const int64_t row = rows.row_of(self.lookups.at(run, step.in[0], n));
      if (step.out[1]) run.at<uint8_t>(step.out[1])[n] = row >= 0;
      if (!step.out[0] || bytes == 0) continue;
      char* out = run.at<char>(step.out[0]) + n * self.row_bytes;
      row < 0 ? std::memset(out, 0, bytes) : std::memcpy(out, run.at<char>(step.in[2]) + row * self.row_bytes, bytes);
    }
  }
};

Refusal support_lookup(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& values = *graph.in(node, 2);
  for (size_t n : {0, 1}) {
    const Tensor& integers = *graph.in(node, n);
    if (integers.is_quantized() || (integers.dtype != IPR_DTYPE_INT32 && integers.dtype != IPR_DTYPE_INT64))
      return refused("operand " + std::to_string(n) + " is " + described(integers), IPR_REASON_DATA_TYPE);
  }
  if (values.dtype == IPR_DTYPE_FLOAT8_E8M0FNU) return refused("the values have no zero", IPR_REASON_DATA_TYPE);
  if (values.has_axis() || !values.same_quantization(graph.out(node)))
    return refused("the values are quantized differently", IPR_REASON_QUANTIZATION);
  if (node.outputs.size() > 1 && node.outputs[1] >= 0 && ipr::item_size(graph.out(node, 1).dtype) != 1)
    return refused("the result is " + described(graph.out(node, 1)), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_lookup(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& values = *graph.in(node, 2);
  auto state = std::make_shared<Lookup>();
  state->lookups = Integers(*graph.in(node, 0)), state->keys = Integers(*graph.in(node, 1));
  state->row_bytes = around(values.shape, 0).inner * int64_t(ipr::item_size(values.dtype));
  Step step;
  step.name = "HashtableLookup " + node.name;
  step.fn = &Lookup::run;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  for (size_t n : {0, 1}) step.out.push_back(builder.buffer(n < node.outputs.size() ? node.outputs[n] : -1));
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- FakeQuantization -----------------------------------------------------------------------------------------------

struct Rounding {
  const DynamicKernels* kernels;
  RangeSteps steps;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Rounding& self = step.as<Rounding>();
    const Range range = split(self.count, part, parts, 64);
    self.kernels->round_in_range(run.at<float>(step.in[0]) + range.first, run.at<float>(step.out[0]) + range.first,
                                 range.last - range.first, self.steps);
  }
};

/// The steps of a node, of which one is 0.
RangeSteps steps_of(const Node& node) {
  const float least = node.flag("narrow_range") ? 1.0f : 0.0f;
  const float most = float(std::ldexp(1.0, int(node.integer("num_bits", 8))) - 1);
  const float from = float(node.number("min")), to = float(node.number("max")), scale = (to - from) / (most - least);
  const auto zero = float(native::round_half_away(double(std::clamp(least - from / scale, least, most))));
  return {(least - zero) * scale, (most - zero) * scale, scale, 1 / scale};
}

Refusal support_steps(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = all_f32(graph, node)) return why;
  return without_posts(graph, node, settings);
}

void lower_steps(const Node& node, Builder& builder) {
  const int64_t count = builder.graph.out(node).elements();
  Step step;
  step.name = "FakeQuantization " + node.name;
  step.fn = &Rounding::run;
  step.max_parts = parts_for(builder.settings, double(count) * cost::kElementNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::make_shared<Rounding>(Rounding{&dynamic_kernels_for(builder.settings.isa), steps_of(node), count});
  builder.add(std::move(step));
}

}  // namespace

Family tables_family() {
  return {{{"HashtableLookup", "plain", support_lookup, lower_lookup, nullptr},
           {"FakeQuantization", "plain", support_steps, lower_steps, nullptr}},
          {}};
}

}  // namespace cpuacc
