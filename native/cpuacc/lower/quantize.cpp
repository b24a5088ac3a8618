// Quantize and Dequantize, and functions of single codes of 8 bits as tables of all their values.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cpuacc/lower/q8.hpp"
#include "cpuref/fixedpoint.hpp"

namespace cpuacc {
namespace {

using Table = std::array<uint8_t, 256>;

Refusal no_posts(const Node& node) { return node.posts.empty() ? taken() : refused("takes no posts"); }

int64_t code_of(int bits, const Tensor& tensor) {
  return is_signed(tensor) ? int64_t(int8_t(uint8_t(bits))) : int64_t(bits);
}

uint8_t clamped(double code, const Tensor& tensor) {
  if (is_signed(tensor)) return uint8_t(int8_t(std::clamp(code, -128.0, 127.0)));
  return uint8_t(std::clamp(code, 0.0, 255.0));
}

float scale32(const Tensor& tensor) { return float(tensor.scale()); }

void add_step(const Node& node, Builder& builder, Step::Function fn, std::shared_ptr<const void> state, double cost) {
  const Tensor& in = *builder.graph.in(node, 0);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = fn;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  if (in.bytes() == builder.graph.out(node).bytes()) step.in_place = 0;
  builder.add(std::move(step));
}

// ---- Tables -----------------------------------------------------------------------------------------------------------

struct LookUp {
  Table table;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const LookUp& self = step.as<LookUp>();
    const uint8_t* in = run.at<uint8_t>(step.in[0]);
    uint8_t* out = run.at<uint8_t>(step.out[0]);
    Range range = split(self.count, part, parts, 64);
    for (int64_t n = range.first; n < range.last; ++n) out[n] = self.table[in[n]];
  }
};

/// The stored integers of one quantization as those of another one.
Table rescaled(const Tensor& from, const Tensor& to) {
  cpuref::FixedPoint factor = cpuref::quantize_multiplier(double(scale32(from)) / double(scale32(to)));
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t found = code_of(bits, from);
    if (!from.same_quantization(to)) found = cpuref::multiply(found - from.zero_point(), factor) + to.zero_point();
    table[size_t(bits)] = clamped(double(found), to);
  }
  return table;
}

using Function = float (*)(float x, float a, float b);

float sigmoid(float x, float, float) { return 1 / (1 + float(std::exp(double(-x)))); }
float tangent(float x, float a, float b) { return a * float(std::tanh(double(b * x))); }
float elu(float x, float a, float) { return x >= 0 ? x : a * float(std::expm1(double(x))); }

Function function_named(std::string_view name) {
  if (name == "SIGMOID") return sigmoid;
  if (name == "TANH") return tangent;
  return name == "ELU" ? elu : nullptr;
}

Table tabulated(const Node& node, const Tensor& from, const Tensor& to) {
  Function function = function_named(node.text("function"));
  float a = float(node.number("a")), b = float(node.number("b"));
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    float real = function(scale32(from) * float(code_of(bits, from) - from.zero_point()), a, b);
    float steps = real * (1.0f / scale32(to));
    double whole = std::isnan(steps) ? 0 : cpuref::round_half_away(double(steps));
    table[size_t(bits)] = clamped(whole + double(to.zero_point()), to);
  }
  return table;
}

/// RELU, BOUNDED_RELU and LEAKY_RELU between two quantizations.
Table rectified(const Node& node, const Tensor& from, const Tensor& to) {
  bool leaky = node.text("function") == "LEAKY_RELU";
  float up = scale32(from) / scale32(to), down = scale32(from) * float(node.number("a")) / scale32(to);
  cpuref::FixedPoint positive = cpuref::quantize_multiplier(double(up));
  cpuref::FixedPoint negative = cpuref::quantize_multiplier(double(leaky ? down : up));
  auto bound = [&](double real) {
    return double(cpuref::round_half_away(double(float(real) / scale32(to)))) + double(to.zero_point());
  };
  double low = leaky ? -1e9 : bound(node.text("function") == "RELU" ? 0 : node.number("b"));
  double high = node.text("function") == "BOUNDED_RELU" ? bound(node.number("a")) : 1e9;
  double least = is_signed(to) ? -128 : 0, most = is_signed(to) ? 127 : 255;
  low = std::clamp(low, least, most), high = std::clamp(high, least, most);
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t value = code_of(bits, from) - from.zero_point();
    int64_t found = cpuref::multiply(value, value >= 0 ? positive : negative) + to.zero_point();
    table[size_t(bits)] = clamped(std::min(std::max(double(found), low), high), to);
  }
  return table;
}

bool is_rectifier(std::string_view name) { return name == "RELU" || name == "BOUNDED_RELU" || name == "LEAKY_RELU"; }

bool both_codes(const Tensor& in, const Tensor& out) {
  return has_one_scale(in) && has_one_scale(out) && scale32(in) > 0 && scale32(out) > 0;
}

Refusal activation_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!both_codes(in, out)) return refused("takes codes of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  bool infinite = !std::isfinite(node.number("a")) || !std::isfinite(node.number("b"));
  bool known = is_rectifier(node.text("function")) || function_named(node.text("function"));
  if (infinite || !known)
    return refused(std::string(node.text("function")) + " of codes is not computed here", IPR_REASON_ATTRIBUTE);
  return no_posts(node);
}

void lower_activation(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  Table table = is_rectifier(node.text("function")) ? rectified(node, in, out) : tabulated(node, in, out);
  add_step(node, builder, &LookUp::run, std::make_shared<LookUp>(LookUp{table, in.elements()}), 0.5);
}

// ---- Quantize and Dequantize --------------------------------------------------------------------------------------------

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
  if (!has_one_scale(out) || scale32(out) <= 0) return refused("the result is " + described(out) + "; takes 8 bits and one scale", IPR_REASON_DATA_TYPE);
  double least = is_signed(out) ? -128 : 0, most = is_signed(out) ? 127 : 255;
  if (double(out.zero_point()) < least || double(out.zero_point()) > most)
    return refused("the zero point is none of the codes", IPR_REASON_QUANTIZATION);
  if (!is_f32(in) && !both_codes(in, out)) return refused("the operand is " + described(in), IPR_REASON_DATA_TYPE);
  return no_posts(node);
}

void lower_quantize(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (!is_f32(in))
    return add_step(node, builder, &LookUp::run, std::make_shared<LookUp>(LookUp{rescaled(in, out), in.elements()}), 0.5);
  Quantizing state{scale32(out), double(out.zero_point()), is_signed(out) ? -128.0 : 0.0, is_signed(out) ? 127.0 : 255.0,
                   node.text("rounding") == "HALF_TO_EVEN", in.elements()};
  add_step(node, builder, &Quantizing::run, std::make_shared<Quantizing>(state), 1);
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
    return refused("takes codes of 8 bits with one scale, and gives float32", IPR_REASON_DATA_TYPE);
  return no_posts(node);
}

void lower_dequantize(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Dequantizing>();
  for (int bits = 0; bits < 256; ++bits)
    state->table[size_t(bits)] = float(double(code_of(bits, in) - in.zero_point()) * double(scale32(in)));
  state->count = in.elements();
  add_step(node, builder, &Dequantizing::run, state, 0.5);
}

}  // namespace

Family quantize_family() {
  return {{{"Quantize", "plain", quantize_support, lower_quantize, nullptr},
           {"Dequantize", "plain", dequantize_support, lower_dequantize, nullptr},
           {"Activation", "table of codes", activation_support, lower_activation, nullptr}},
          {}};
}

}  // namespace cpuacc
