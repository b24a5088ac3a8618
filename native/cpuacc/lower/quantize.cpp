// Quantize and Dequantize.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/table_q8.hpp"

namespace cpuacc {
namespace {

Refusal no_posts(const Node& node) { return node.posts.empty() ? taken() : refused("takes no post-ops"); }

void add_step(const Node& node, Builder& builder, Step::Function fn, std::shared_ptr<const void> state,
              double element_ns) {
  const Tensor& in = *builder.graph.in(node, 0);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = fn;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * element_ns);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  if (in.bytes() == builder.graph.out(node).bytes()) step.in_place = 0;
  builder.add(std::move(step));
}

/// A table that requantizes from one quantization to another.
Table rescaled(const Tensor& from, const Tensor& to) {
  native::FixedPoint factor = native::quantize_multiplier(double(scale32(from)) / double(scale32(to)));
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t found = code_of(bits, from);
    if (!from.same_quantization(to)) found = native::multiply(found - from.zero_point(), factor) + to.zero_point();
    table[size_t(bits)] = clamped(double(found), to);
  }
  return table;
}

// ---- Quantize and Dequantize ----------------------------------------------------------------------------------------

struct Quantizing {
  float scale;
  double zero, low, high;
  bool to_even;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Quantizing& self = step.as<Quantizing>();
    const float* in = run.at<float>(step.in[0]);
    uint8_t* out = run.at<uint8_t>(step.out[0]);
    Range range = split(self.count, part, parts, 64);
    for (int64_t n = range.first; n < range.last; ++n) {
      float steps = in[n] / self.scale;
      double size = self.to_even ? std::nearbyint(double(steps)) : std::floor(std::fabs(double(steps)) + 0.5);
      double code = (self.to_even || steps >= 0 ? size : -size) + self.zero;
      code = code < self.low ? self.low : code > self.high ? self.high : code;
      out[n] = uint8_t(int32_t(steps == steps ? code : self.zero));
    }
  }
};

Refusal quantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!has_one_scale(out) || scale32(out) <= 0)
    return refused("the result is " + described(out) + "; takes 8 bits and one scale", IPR_REASON_DATA_TYPE);
  double least = is_signed(out) ? -128 : 0, most = is_signed(out) ? 127 : 255;
  if (double(out.zero_point()) < least || double(out.zero_point()) > most)
    return refused("the zero point is out of range", IPR_REASON_QUANTIZATION);
  if (!is_f32(in) && !both_quantized(in, out)) return refused("the operand is " + described(in), IPR_REASON_DATA_TYPE);
  return no_posts(node);
}

void lower_quantize(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (!is_f32(in)) return add_table_step(node, builder, rescaled(in, out));
  Quantizing state{scale32(out),
                   double(out.zero_point()),
                   is_signed(out) ? -128.0 : 0.0,
                   is_signed(out) ? 127.0 : 255.0,
                   node.text("rounding") == "HALF_TO_EVEN",
                   in.elements()};
  add_step(node, builder, &Quantizing::run, std::make_shared<Quantizing>(state), cost::kQuantizeNs);
}

struct Dequantizing {
  std::array<float, 256> table;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Dequantizing& self = step.as<Dequantizing>();
    const uint8_t* in = run.at<uint8_t>(step.in[0]);
    float* out = run.at<float>(step.out[0]);
    Range range = split(self.count, part, parts, 64);
    for (int64_t n = range.first; n < range.last; ++n) out[n] = self.table[in[n]];
  }
};

Refusal dequantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!has_one_scale(in) || !is_f32(out))
    return refused("takes quantized values of 8 bits with one scale, and gives float32", IPR_REASON_DATA_TYPE);
  return no_posts(node);
}

void lower_dequantize(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Dequantizing>();
  for (int bits = 0; bits < 256; ++bits)
    state->table[size_t(bits)] = float(double(code_of(bits, in) - in.zero_point()) * double(scale32(in)));
  state->count = in.elements();
  add_step(node, builder, &Dequantizing::run, state, cost::kDequantizeNs);
}

}  // namespace

Family quantize_family() {
  return {{{"Quantize", "plain", quantize_support, lower_quantize, nullptr},
           {"Dequantize", "plain", dequantize_support, lower_dequantize, nullptr}},
          {}};
}

}  // namespace cpuacc
