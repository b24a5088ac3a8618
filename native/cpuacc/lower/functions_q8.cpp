// Functions of single quantized values of 8 bits: Activation and ElementwiseUnary, and Concat of several quantizations.

#include <algorithm>
#include <cmath>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/table_q8.hpp"

namespace cpuacc {

// ---- Tables ---------------------------------------------------------------------------------------------------------

namespace {

struct LookUp {
  const ElementwiseQ8Kernels* kernels;
  Table table;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const LookUp& self = step.as<LookUp>();
    Range range = split(self.count, part, parts, 64);
    self.kernels->look_up(run.at<uint8_t>(step.in[0]) + range.first, run.at<uint8_t>(step.out[0]) + range.first,
                          range.last - range.first, self.table.data());
  }
};

}  // namespace

void add_table_step(const Node& node, Builder& builder, const Table& table) {
  const Tensor& in = *builder.graph.in(node, 0);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &LookUp::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kLookUpNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state =
      std::make_shared<LookUp>(LookUp{&elementwise_q8_kernels_for(builder.settings.isa), table, in.elements()});
  step.in_place = 0;
  builder.add(std::move(step));
}

// ---- Activation functions -------------------------------------------------------------------------------------------

namespace {

using Function = float (*)(float x, float a, float b);

float exponential(float x) { return float(std::exp(double(x))); }
float tangent(float x) { return float(std::tanh(double(x))); }
float power_less_one(float x) { return float(std::expm1(double(x))); }
float softplus(float x) { return float(std::max(double(x), 0.0) + std::log1p(std::exp(-std::fabs(double(x))))); }
float shrunk(float x, float a, float b) { return x > a ? x - b : x < -a ? x + b : 0; }

struct Named {
  const char* name;
  Function function;
};

/// Functions that are computed in float32; the exponential and the like are computed in float64 and rounded once.
const Named kFunctions[] = {
    {"SIGMOID", [](float x, float, float) { return 1 / (1 + exponential(-x)); }},
    {"TANH", [](float x, float a, float b) { return a * tangent(b * x); }},
    {"LINEAR", [](float x, float a, float b) { return a * x + b; }},
    {"SOFT_RELU", [](float x, float, float) { return softplus(x); }},
    {"SQRT", [](float x, float, float) { return std::sqrt(x); }},
    {"SQUARE", [](float x, float, float) { return x * x; }},
    {"ELU", [](float x, float a, float) { return x >= 0 ? x : a * power_less_one(x); }},
    {"GELU", [](float x, float, float) { return x * (0.5f * float(std::erfc(double(-x / float(std::sqrt(2.0)))))); }},
    {"GELU_TANH",
     [](float x, float, float) {
       return x / (1 + exponential(float(-2 * std::sqrt(2 / M_PI)) * (x + 0.044715f * (x * x * x))));
     }},
    {"SELU", [](float x, float a, float b) { return b * (x > 0 ? x : a * power_less_one(x)); }},
    {"CELU", [](float x, float a, float) { return std::max(x, 0.0f) + std::min(a * power_less_one(x / a), 0.0f); }},
    {"SOFTSIGN", [](float x, float, float) { return x / (1 + std::fabs(x)); }},
    {"HARD_SIGMOID", [](float x, float a, float b) { return std::min(std::max(a * x + b, 0.0f), 1.0f); }},
    {"SWISH", [](float x, float a, float) { return x / (1 + exponential(-a * x)); }},
    {"MISH", [](float x, float, float) { return x * tangent(softplus(x)); }},
    {"THRESHOLDED_RELU", [](float x, float a, float) { return x > a ? x : 0; }},
    {"SHRINK", shrunk},
    {"HARD_SWISH", [](float x, float, float) { return x * std::min(std::max(x + 3, 0.0f), 6.0f) / 6; }},
    {"RELU", [](float x, float, float) { return std::max(x, 0.0f); }},
    {"BOUNDED_RELU", [](float x, float a, float b) { return std::min(std::max(x, b), a); }},
    {"LEAKY_RELU", [](float x, float a, float) { return x >= 0 ? x : a * x; }},
    {"ABS", [](float x, float, float) { return std::fabs(x); }},
};

Function function_named(std::string_view name) {
  for (const Named& candidate : kFunctions)
    if (name == candidate.name) return candidate.function;
  return nullptr;
}

Table tabulated(Function function, float a, float b, const Tensor& from, const Tensor& to) {
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    float real = function(scale32(from) * float(code_of(bits, from) - from.zero_point()), a, b);
    float steps = real * (1.0f / scale32(to));
    double whole = std::isnan(steps) ? 0 : native::round_half_away(double(steps));
    table[size_t(bits)] = clamped(whole + double(to.zero_point()), to);
  }
  return table;
}

/// A table of a function that is computed in float32, as ONNX does: the result is divided and rounded half to even.
Table tabulated_to_even(Function function, float a, float b, const Tensor& from, const Tensor& to) {
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    const float steps = function(scale32(from) * float(code_of(bits, from) - from.zero_point()), a, b) / scale32(to);
    table[size_t(bits)] =
        clamped((std::isnan(steps) ? 0 : std::nearbyint(double(steps))) + double(to.zero_point()), to);
  }
  return table;
}

/// A table of a function of the distance from the zero point; the zero point of the result is added afterwards.
template <class OfDistance>
Table table_of_distances(const Tensor& from, const Tensor& to, OfDistance function) {
  Table table;
  for (int bits = 0; bits < 256; ++bits)
    table[size_t(bits)] = clamped(double(function(code_of(bits, from) - from.zero_point()) + to.zero_point()), to);
  return table;
}

/// RELU, BOUNDED_RELU and LEAKY_RELU between two quantizations.
Table rectified(const Node& node, const Tensor& from, const Tensor& to) {
  bool leaky = node.text("function") == "LEAKY_RELU";
  float up = scale32(from) / scale32(to), down = scale32(from) * float(node.number("a")) / scale32(to);
  native::FixedPoint positive = native::quantize_multiplier(double(up));
  native::FixedPoint negative = native::quantize_multiplier(double(leaky ? down : up));
  auto bound = [&](double real) {
    return double(native::round_half_away(double(float(real) / scale32(to)))) + double(to.zero_point());
  };
  double low = leaky ? -1e9 : bound(node.text("function") == "RELU" ? 0 : node.number("b"));
  double high = node.text("function") == "BOUNDED_RELU" ? bound(node.number("a")) : 1e9;
  double least = is_signed(to) ? -128 : 0, most = is_signed(to) ? 127 : 255;
  low = std::clamp(low, least, most), high = std::clamp(high, least, most);
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t value = code_of(bits, from) - from.zero_point();
    int64_t rescaled = native::multiply(value, value >= 0 ? positive : negative) + to.zero_point();
    table[size_t(bits)] = clamped(std::min(std::max(double(rescaled), low), high), to);
  }
  return table;
}

/// The absolute distance from the zero point.
Table absolute(const Tensor& from, const Tensor& to) {
  native::FixedPoint factor = native::quantize_multiplier(double(scale32(from) / scale32(to)));
  return table_of_distances(from, to, [&](int64_t value) { return native::multiply(std::abs(value), factor); });
}

/// A factor with a multiplier of 15 bits.
native::FixedPoint short_factor(float real) {
  native::FixedPoint found = native::quantize_multiplier(double(real));
  return {std::min<int64_t>((found.multiplier + 32768) >> 16, 32767), found.shift};
}

int64_t short_product(int64_t a, int64_t b) { return std::min<int64_t>((a * b + 16384) >> 15, 32767); }

/// x * relu6(x + 3) / 6 in 16-bit arithmetic.
Table hard_swish(const Tensor& from, const Tensor& to) {
  float fine = 1.0f / 128 * scale32(from);
  native::FixedPoint outer = short_factor(fine / scale32(to)), inner = short_factor(fine / (3.0f / 32768));
  auto saturated = [](int64_t x) { return std::clamp<int64_t>(x, -32768, 32767); };
  return table_of_distances(from, to, [&](int64_t value) {
    int64_t moved = value * 128, rescaled = short_product(moved, outer.multiplier);
    int64_t gate = saturated(native::shifted_left(moved, std::max(inner.shift - 1, 0)));
    gate = short_product(gate, inner.multiplier);
    gate = inner.shift > 0 ? saturated(gate * 2) : native::divide_by_pot(gate, -inner.shift);
    int64_t product = ((gate + 32768) >> 1) * rescaled;
    return native::divide_by_pot(product < 0 ? -(-product >> 15) : product >> 15, -outer.shift);
  });
}

bool is_rectifier(std::string_view name) { return name == "RELU" || name == "BOUNDED_RELU" || name == "LEAKY_RELU"; }

Refusal activation_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!both_quantized(in, out)) return refused("takes quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  bool infinite = !std::isfinite(node.number("a")) || !std::isfinite(node.number("b"));
  std::string_view name = node.text("function");
  if (infinite || !(is_rectifier(name) || name == "ABS" || function_named(name)))
    return refused(std::string(node.text("function")) + " of quantized values is not supported", IPR_REASON_ATTRIBUTE);
  if (!rounds_to_even(node) && name == "HARD_SWISH" && in.scale() < 128 * out.scale() &&
      short_factor(1.0f / 128 * scale32(in) / scale32(out)).shift > 0)
    return refused("the result's scale is too small", IPR_REASON_QUANTIZATION);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

Table activation_table(const Node& node, const Tensor& in, const Tensor& out) {
  std::string_view name = node.text("function");
  if (rounds_to_even(node))
    return tabulated_to_even(function_named(name), float(node.number("a")), float(node.number("b")), in, out);
  if (is_rectifier(name)) return rectified(node, in, out);
  if (name == "ABS") return absolute(in, out);
  if (name == "HARD_SWISH" && in.scale() < 128 * out.scale()) return hard_swish(in, out);
  return tabulated(function_named(name), float(node.number("a")), float(node.number("b")), in, out);
}

void lower_activation(const Node& node, Builder& builder) {
  add_table_step(node, builder, activation_table(node, *builder.graph.in(node, 0), builder.graph.out(node)));
}

// ---- Functions of other layers --------------------------------------------------------------------------------------

/// The square root in float32, truncated; 0 for negative numbers.
Table root(const Tensor& from, const Tensor& to) {
  return table_of_distances(from, to, [&](int64_t value) {
    return int64_t(std::min(std::sqrt(std::max(scale32(from) * float(value), 0.0f)) / scale32(to), 1e9f));
  });
}

/// The natural logarithm; the lowest quantized value for arguments that are not positive.
Table logarithm(const Tensor& from, const Tensor& to) {
  float lowest = float(lowest_value(to) - to.zero_point()) * scale32(to);
  auto function = [](float x, float least, float) { return x > 0 ? float(std::log(double(x))) : least; };
  return tabulated(function, lowest, 0, from, to);
}

/// Functions whose float32 results are the same on every platform.
const Named kUnaries[] = {
    {"EXP", [](float x, float, float) { return exponential(x); }},
    {"NEG", [](float x, float, float) { return -x; }},
    {"SIGN", [](float x, float, float) { return x > 0   ? 1.0f
                                                : x < 0 ? -1.0f
                                                        : 0.0f; }},
    {"SQUARE", [](float x, float, float) { return x * x; }},
    {"CEIL", [](float x, float, float) { return std::ceil(x); }},
    {"FLOOR", [](float x, float, float) { return std::floor(x); }},
    {"ROUND", [](float x, float, float) { return std::nearbyint(x); }},
    {"RECIPROCAL", [](float x, float, float) { return 1 / x; }},
    {"ERF", [](float x, float, float) { return float(std::erf(double(x))); }},
};

std::string_view unary_name(const Node& node) { return node.type == "Floor" ? "FLOOR" : node.text("operation"); }

Function unary_named(std::string_view name) {
  for (const Named& candidate : kUnaries)
    if (name == candidate.name) return candidate.function;
  return nullptr;
}

Refusal unary_support(const Graph& graph, const Node& node, const Settings&) {
  if (!both_quantized(*graph.in(node, 0), graph.out(node)))
    return refused("takes quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  std::string_view name = unary_name(node);
  if (name != "ABS" && name != "SQRT" && name != "LOG" && !unary_named(name))
    return refused(std::string(name) + " of quantized values is not supported", IPR_REASON_ATTRIBUTE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

Table unary_table(std::string_view name, const Tensor& in, const Tensor& out) {
  if (name == "ABS") return absolute(in, out);
  if (name == "SQRT") return root(in, out);
  if (name == "LOG") return logarithm(in, out);
  return tabulated(unary_named(name), 0, 0, in, out);
}

void lower_unary(const Node& node, Builder& builder) {
  add_table_step(node, builder, unary_table(unary_name(node), *builder.graph.in(node, 0), builder.graph.out(node)));
}

// ---- Concat of several quantizations --------------------------------------------------------------------------------

/// Rows of `width` values, which are `step` apart in the result.
struct Rescaling {
  const ElementwiseQ8Kernels* kernels;
  Table table;
  int64_t rows, width, step, offset;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Rescaling& self = step.as<Rescaling>();
    Range range = split(self.rows, part, parts);
    for (int64_t row = range.first; row < range.last; ++row) {
      const uint8_t* in = run.at<uint8_t>(step.in[0]) + row * self.width;
      uint8_t* out = run.at<uint8_t>(step.out[0]) + row * self.step + self.offset;
      self.kernels->look_up(in, out, self.width, self.table.data());
    }
  }
};

/// Requantize in float32, as the reference does for Concat.
Table requantized_in_float(const Tensor& from, const Tensor& to) {
  float scale = scale32(from) * (1.0f / scale32(to)), bias = -float(from.zero_point()) * scale;
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t code = code_of(bits, from);
    double moved = native::round_half_away(double(float(code) * scale + bias)) + double(to.zero_point());
    table[size_t(bits)] = clamped(from.same_quantization(to) ? double(code) : moved, to);
  }
  return table;
}

Refusal concat_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& out = graph.out(node);
  for (size_t n = 0; n < node.inputs.size(); ++n)
    if (!both_quantized(*graph.in(node, n), out) || graph.in(node, n)->dtype != out.dtype)
      return refused("operand " + std::to_string(n) + " has another quantization than the result",
                     IPR_REASON_QUANTIZATION);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_concat(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  const ElementwiseQ8Kernels& kernels = elementwise_q8_kernels_for(builder.settings.isa);
  int axis = axis_of(node.integer("axis"), out.rank());
  Around at = around(out.shape, axis);
  int64_t offset = 0;
  for (int number : node.inputs) {
    const Tensor& in = builder.graph[number];
    int64_t width = in.shape[size_t(axis)] * at.inner;
    Step step;
    step.name = "Concat " + node.name;
    step.fn = &Rescaling::run;
    step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kLookUpNs);
    step.in = {builder.buffer(number)};
    step.out = {builder.buffer(node.outputs[0])};
    step.state = std::make_shared<Rescaling>(Rescaling{&kernels, requantized_in_float(in, out),
                                                       width > 0 ? at.outer : 0, width, at.extent * at.inner, offset});
    offset += width;
    builder.add(std::move(step));
  }
}

}  // namespace

Family functions_q8_family() {
  return {{{"Activation", "table of codes", activation_support, lower_activation, nullptr, true},
           {"ElementwiseUnary", "table of codes", unary_support, lower_unary, nullptr},
           {"Floor", "table of codes", unary_support, lower_unary, nullptr},
           {"Concat", "codes of several scales", concat_support, lower_concat, nullptr}},
          {}};
}

}  // namespace cpuacc
