#include "common/tables8.hpp"

#include <algorithm>
#include <cmath>

#include "common/fixed_point.hpp"

namespace native {
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

Table8 tabulated(Function function, float a, float b, const Quantized8& from, const Quantized8& to) {
  Table8 table;
  for (int bits = 0; bits < 256; ++bits) {
    float real = function(from.scale * float(from.value(bits) - from.zero_point), a, b);
    float steps = real * (1.0f / to.scale);
    double whole = std::isnan(steps) ? 0 : round_half_away(double(steps));
    table[size_t(bits)] = to.saturated(whole + double(to.zero_point));
  }
  return table;
}

/// A table of a function that is computed in float32, as ONNX does: the result is divided and rounded half to even.
Table8 tabulated_to_even(Function function, float a, float b, const Quantized8& from, const Quantized8& to) {
  Table8 table;
  for (int bits = 0; bits < 256; ++bits) {
    const float steps = function(from.scale * float(from.value(bits) - from.zero_point), a, b) / to.scale;
    table[size_t(bits)] = to.saturated((std::isnan(steps) ? 0 : std::nearbyint(double(steps))) + double(to.zero_point));
  }
  return table;
}

/// A table of a function of the distance from the zero point; the zero point of the result is added afterwards.
template <class OfDistance>
Table8 table_of_distances(const Quantized8& from, const Quantized8& to, OfDistance function) {
  Table8 table;
  for (int bits = 0; bits < 256; ++bits)
    table[size_t(bits)] = to.saturated(double(function(from.value(bits) - from.zero_point) + to.zero_point));
  return table;
}

/// RELU, BOUNDED_RELU and LEAKY_RELU between two quantizations.
Table8 rectified(const Activation8& activation, const Quantized8& from, const Quantized8& to) {
  bool leaky = activation.function == "LEAKY_RELU";
  float up = from.scale / to.scale, down = from.scale * float(activation.a) / to.scale;
  FixedPoint positive = quantize_multiplier(double(up));
  FixedPoint negative = quantize_multiplier(double(leaky ? down : up));
  auto bound = [&](double real) {
    return double(round_half_away(double(float(real) / to.scale))) + double(to.zero_point);
  };
  double low = leaky ? -1e9 : bound(activation.function == "RELU" ? 0 : activation.b);
  double high = activation.function == "BOUNDED_RELU" ? bound(activation.a) : 1e9;
  double least = to.is_signed ? -128 : 0, most = to.is_signed ? 127 : 255;
  low = std::clamp(low, least, most), high = std::clamp(high, least, most);
  Table8 table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t value = from.value(bits) - from.zero_point;
    int64_t rescaled = multiply(value, value >= 0 ? positive : negative) + to.zero_point;
    table[size_t(bits)] = to.saturated(std::min(std::max(double(rescaled), low), high));
  }
  return table;
}

/// The absolute distance from the zero point.
Table8 absolute(const Quantized8& from, const Quantized8& to) {
  FixedPoint factor = quantize_multiplier(double(from.scale / to.scale));
  return table_of_distances(from, to, [&](int64_t value) { return multiply(std::abs(value), factor); });
}

/// A factor with a multiplier of 15 bits.
FixedPoint short_factor(float real) {
  FixedPoint found = quantize_multiplier(double(real));
  return {std::min<int64_t>((found.multiplier + 32768) >> 16, 32767), found.shift};
}

int64_t short_product(int64_t a, int64_t b) { return std::min<int64_t>((a * b + 16384) >> 15, 32767); }

/// x * relu6(x + 3) / 6 in 16-bit arithmetic.
Table8 hard_swish(const Quantized8& from, const Quantized8& to) {
  float fine = 1.0f / 128 * from.scale;
  FixedPoint outer = short_factor(fine / to.scale), inner = short_factor(fine / (3.0f / 32768));
  auto saturated = [](int64_t x) { return std::clamp<int64_t>(x, -32768, 32767); };
  return table_of_distances(from, to, [&](int64_t value) {
    int64_t moved = value * 128, rescaled = short_product(moved, outer.multiplier);
    int64_t gate = saturated(shifted_left(moved, std::max(inner.shift - 1, 0)));
    gate = short_product(gate, inner.multiplier);
    gate = inner.shift > 0 ? saturated(gate * 2) : divide_by_pot(gate, -inner.shift);
    int64_t product = ((gate + 32768) >> 1) * rescaled;
    return divide_by_pot(product < 0 ? -(-product >> 15) : product >> 15, -outer.shift);
  });
}

/// Return whether HARD_SWISH is computed in integers.
bool is_integer_swish(const Activation8& activation, const Quantized8& from, const Quantized8& to) {
  return activation.function == "HARD_SWISH" && from.scale < 128 * to.scale;
}

bool is_rectifier(std::string_view name) { return name == "RELU" || name == "BOUNDED_RELU" || name == "LEAKY_RELU"; }

/// The square root in float32, truncated; 0 for negative numbers.
Table8 root(const Quantized8& from, const Quantized8& to) {
  return table_of_distances(from, to, [&](int64_t value) {
    return int64_t(std::min(std::sqrt(std::max(from.scale * float(value), 0.0f)) / to.scale, 1e9f));
  });
}

/// The natural logarithm; the lowest quantized value for arguments that are not positive.
Table8 logarithm(const Quantized8& from, const Quantized8& to) {
  float lowest = float(to.lowest() - to.zero_point) * to.scale;
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

Function unary_named(std::string_view name) {
  for (const Named& candidate : kUnaries)
    if (name == candidate.name) return candidate.function;
  return nullptr;
}

}  // namespace

uint8_t Quantized8::saturated(double value) const {
  return uint8_t(int32_t(std::clamp(value, double(lowest()), double(highest()))));
}

bool has_table(const Activation8& activation) {
  if (!std::isfinite(activation.a) || !std::isfinite(activation.b)) return false;
  return is_rectifier(activation.function) || function_named(activation.function) != nullptr;
}

bool is_in_range(const Activation8& activation, const Quantized8& from, const Quantized8& to) {
  if (activation.to_even || !is_integer_swish(activation, from, to)) return true;
  return short_factor(1.0f / 128 * from.scale / to.scale).shift <= 0;
}

Table8 activation_table(const Activation8& activation, const Quantized8& from, const Quantized8& to) {
  const Function function = function_named(activation.function);
  const float a = float(activation.a), b = float(activation.b);
  if (activation.to_even) return tabulated_to_even(function, a, b, from, to);
  if (is_rectifier(activation.function)) return rectified(activation, from, to);
  if (activation.function == "ABS") return absolute(from, to);
  if (is_integer_swish(activation, from, to)) return hard_swish(from, to);
  return tabulated(function, a, b, from, to);
}

bool has_unary_table(std::string_view operation) {
  return operation == "ABS" || operation == "SQRT" || operation == "LOG" || unary_named(operation) != nullptr;
}

Table8 unary_table(std::string_view operation, const Quantized8& from, const Quantized8& to) {
  if (operation == "ABS") return absolute(from, to);
  if (operation == "SQRT") return root(from, to);
  if (operation == "LOG") return logarithm(from, to);
  return tabulated(unary_named(operation), 0, 0, from, to);
}

Table8 requantization_table(const Quantized8& from, const Quantized8& to) {
  float scale = from.scale * (1.0f / to.scale), bias = -float(from.zero_point) * scale;
  const bool is_same = from.scale == to.scale && from.zero_point == to.zero_point;
  Table8 table;
  for (int bits = 0; bits < 256; ++bits) {
    const int64_t value = from.value(bits);
    const double moved = round_half_away(double(float(value) * scale + bias)) + double(to.zero_point);
    table[size_t(bits)] = to.saturated(is_same ? double(value) : moved);
  }
  return table;
}

}  // namespace native
