// Elementwise layers: Addition, Multiplication, Activation, Quantize and Dequantize.

#ifndef CPUREF_POINTWISE_HPP
#define CPUREF_POINTWISE_HPP

#include <array>
#include <functional>

#include "rules.hpp"

namespace cpuref {

// ---- Two operands ---------------------------------------------------------------------------------------------------

/// Iterates over two operands that broadcast with a result.
class Broadcast {
 public:
  explicit Broadcast(const ipr::Layer& layer)
      : count_(layer.output(0).elements()), shape_(layer.output(0).shape().begin(), layer.output(0).shape().end()),
        a_(steps(layer.input(0), shape_.size())), b_(steps(layer.input(1), shape_.size())) {}

  template <class Element, class Function>
  void apply(ipr::Tensors in, ipr::Tensors out, Function function) const {
    const Element *a = in[0].data<Element>(), *b = in[1].data<Element>();
    std::vector<int64_t> at(shape_.size(), 0);
    int64_t i = 0, j = 0;
    for (int64_t n = 0; n < count_; ++n) {
      out[0].data<Element>()[n] = function(a[i], b[j]);
      for (size_t axis = shape_.size(); axis-- > 0;) {
        i += a_[axis], j += b_[axis];
        if (++at[axis] < shape_[axis]) break;
        i -= shape_[axis] * a_[axis], j -= shape_[axis] * b_[axis];
        at[axis] = 0;
      }
    }
  }

 private:
  static std::vector<int64_t> steps(const ipr::TensorInfo& operand, size_t rank) {
    std::vector<int64_t> found(rank, 0);
    int64_t size = 1;
    for (int32_t axis = operand.rank() - 1; axis >= 0; --axis) {
      if (operand.extent(axis) != 1) found[size_t(axis) + rank - size_t(operand.rank())] = size;
      size *= operand.extent(axis);
    }
    return found;
  }

  int64_t count_;
  std::vector<int64_t> shape_, a_, b_;
};

inline ipr::Verdict binary_rule(const ipr::Layer& layer) { return one_kind(layer, {"a", "b"}); }

/// Convert both operands to a common scale: twice the larger of theirs, divided by 2**20.
inline ipr::Kernel addition_of_codes(const ipr::Layer& layer) {
  double a_scale = scale32(layer.input(0)), b_scale = scale32(layer.input(1)), common = 2 * std::max(a_scale, b_scale);
  FixedPoint first = quantize_multiplier(a_scale / common), second = quantize_multiplier(b_scale / common);
  FixedPoint back = quantize_multiplier(common / (1048576.0 * double(scale32(layer.output(0)))));
  int64_t a_zero = layer.input(0).zero_point(), b_zero = layer.input(1).zero_point();
  int64_t zero = layer.output(0).zero_point();
  return [=, walk = Broadcast(layer)](ipr::Tensors in, ipr::Tensors out) {
    walk.apply<int8_t>(in, out, [&](int8_t a, int8_t b) {
      int64_t sum = multiply(shifted_left(a - a_zero, 20), first) + multiply(shifted_left(b - b_zero, 20), second);
      return clamped(multiply(sum, back) + zero);
    });
  };
}

inline ipr::Kernel addition(const ipr::Layer& layer) {
  if (is_quantized8(layer.output(0))) return addition_of_codes(layer);
  return [walk = Broadcast(layer)](ipr::Tensors in, ipr::Tensors out) {
    walk.apply<float>(in, out, [](float a, float b) { return a + b; });
  };
}

inline ipr::Kernel multiplication(const ipr::Layer& layer) {
  Broadcast walk(layer);
  if (is_float32(layer.output(0)))
    return
        [=](ipr::Tensors in, ipr::Tensors out) { walk.apply<float>(in, out, [](float a, float b) { return a * b; }); };
  float product = scale32(layer.input(0)) * scale32(layer.input(1));
  FixedPoint factor = quantize_multiplier(double(product / scale32(layer.output(0))));
  int64_t a_zero = layer.input(0).zero_point(), b_zero = layer.input(1).zero_point();
  int64_t zero = layer.output(0).zero_point();
  return [=](ipr::Tensors in, ipr::Tensors out) {
    walk.apply<int8_t>(
        in, out, [&](int8_t a, int8_t b) { return clamped(multiply((a - a_zero) * (b - b_zero), factor) + zero); });
  };
}

// ---- Activation functions -------------------------------------------------------------------------------------------

using Function = std::function<float(float x, float a, float b)>;

struct NamedFunction {
  const char* name;
  Function of_real;
};

inline float clipped(float x, float low, float high) { return std::isnan(x) ? x : std::min(std::max(x, low), high); }
inline float exp32(float x) { return float(std::exp(double(x))); }
inline float tanh32(float x) { return float(std::tanh(double(x))); }

/// Functions of float32; the first six are also computed for int8.
inline const std::array<NamedFunction, 13>& functions() {
  static const std::array<NamedFunction, 13> found = {{
      {"RELU", [](float x, float, float) { return clipped(x, 0, INFINITY); }},
      {"BOUNDED_RELU", [](float x, float a, float b) { return clipped(x, b, a); }},
      {"LEAKY_RELU", [](float x, float a, float) { return x > 0 ? x : a * x; }},
      {"ABS", [](float x, float, float) { return std::fabs(x); }},
      {"SIGMOID", [](float x, float, float) { return 1 / (1 + exp32(-x)); }},
      {"TANH", [](float x, float a, float b) { return a * tanh32(b * x); }},
      {"LINEAR", [](float x, float a, float b) { return a * x + b; }},
      {"SQRT", [](float x, float, float) { return std::sqrt(x); }},
      {"SQUARE", [](float x, float, float) { return x * x; }},
      {"ELU", [](float x, float a, float) { return x >= 0 ? x : a * float(std::expm1(double(x))); }},
      {"HARD_SWISH", [](float x, float, float) { return x >= 3 ? x : x * clipped(x + 3, 0, 6) / 6; }},
      {"HARD_SIGMOID", [](float x, float a, float b) { return clipped(a * x + b, 0, 1); }},
      {"SOFT_RELU",
       [](float x, float, float) {
         return std::isnan(x) ? x : float(std::max(double(x), 0.0) + std::log1p(std::exp(-std::fabs(double(x)))));
       }},
  }};
  return found;
}
constexpr int kFunctionsOfCodes = 6;

inline int number_of(std::string_view name) {
  for (size_t n = 0; n < functions().size(); ++n)
    if (functions()[n].name == name) return int(n);
  return -1;
}

inline ipr::Verdict activation_rule(const ipr::Layer& layer) {
  int number = number_of(layer.text("function"));
  if (number < 0) return ipr::no(std::string(layer.text("function")) + " is not computed here", IPR_REASON_ATTRIBUTE);
  if (is_quantized8(layer.input(0)) && number >= kFunctionsOfCodes)
    return ipr::no(std::string(layer.text("function")) + " of int8 is not computed here", IPR_REASON_DATA_TYPE);
  return one_kind(layer, {"input"});
}

/// The quantized value of a bound; an infinite bound does not limit.
inline int64_t bound(double real, const ipr::TensorInfo& output, int64_t unbounded) {
  if (!std::isfinite(real)) return unbounded;
  return clamped(round_half_away(double(float(real) / scale32(output))) + double(output.zero_point()));
}

/// RELU, BOUNDED_RELU, LEAKY_RELU and ABS use integers; other functions are computed on real values.
inline int64_t code_of(const ipr::Layer& layer, int64_t x) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  std::string_view name = layer.text("function");
  double a = layer.number("a"), b = layer.number("b");
  int64_t value = x - in.zero_point();
  float ratio = scale32(in) / scale32(out);
  if (name == "RELU" || name == "BOUNDED_RELU") {
    bool bounded = name == "BOUNDED_RELU";
    int64_t low = bound(bounded ? b : 0, out, -128), high = bound(bounded ? a : INFINITY, out, 127);
    int64_t same = same_quantization(in, out) ? x : multiply(value, quantize_multiplier(ratio)) + out.zero_point();
    return std::min(std::max(same, low), high);
  }
  if (name == "LEAKY_RELU" && value < 0)
    return multiply(value, quantize_multiplier(scale32(in) * float(a) / scale32(out))) + out.zero_point();
  if (name == "LEAKY_RELU" || name == "ABS")
    return multiply(std::abs(value), quantize_multiplier(ratio)) + out.zero_point();
  float real = functions()[size_t(number_of(name))].of_real(scale32(in) * float(value), float(a), float(b));
  double steps = round_half_away(double(real * (1.0f / scale32(out))));
  return clamped((std::isnan(steps) ? 0 : steps) + double(out.zero_point()));
}

inline ipr::Kernel activation(const ipr::Layer& layer) {
  int64_t count = layer.output(0).elements();
  if (is_quantized8(layer.input(0))) {
    std::array<int8_t, 256> table;
    for (int x = -128; x < 128; ++x) table[size_t(x + 128)] = clamped(code_of(layer, x));
    return [=](ipr::Tensors in, ipr::Tensors out) {
      for (int64_t n = 0; n < count; ++n) out[0].data<int8_t>()[n] = table[size_t(in[0].data<int8_t>()[n] + 128)];
    };
  }
  Function function = functions()[size_t(number_of(layer.text("function")))].of_real;
  float a = float(layer.number("a")), b = float(layer.number("b"));
  return [=](ipr::Tensors in, ipr::Tensors out) {
    for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = function(in[0].data<float>()[n], a, b);
  };
}

// ---- Softmax --------------------------------------------------------------------------------------------------------

constexpr int64_t kLongestRow =
    8191;  // longest row whose exponentials, of up to 19 bits each, can be summed in 32 bits

/// Probabilities of int8 have the quantization that TFLite prescribes.
inline ipr::Verdict softmax_rule(const ipr::Layer& layer) {
  const ipr::TensorInfo out = layer.output(0);
  if (is_quantized8(out) && !(out.scale() == 1.0 / 256 && out.zero_point() == -128))
    return ipr::no("the output's scale is not 1/256 or its zero point not -128", IPR_REASON_QUANTIZATION);
  if (is_quantized8(out) && layer.number("beta") < 0)
    return ipr::no("beta is negative, for int8", IPR_REASON_ATTRIBUTE);
  if (is_quantized8(out) && out.extent(int32_t(layer.integer("axis"))) > kLongestRow)
    return ipr::no("rows of int8 have more than " + std::to_string(kLongestRow) + " elements", IPR_REASON_SHAPE);
  return one_kind(layer, {"input"});
}

/// Elements at equal distances: a row of a softmax.
template <class Element>
struct Row {
  Element* first;
  int64_t count, step;
  Element& operator[](int64_t n) const { return first[n * step]; }
};

inline void softmax_of(Row<float> x, Row<float> y, double beta) {
  double most = -INFINITY, sum = 0;
  for (int64_t n = 0; n < x.count; ++n) most = std::max(most, double(x[n]));
  for (int64_t n = 0; n < x.count; ++n) sum += std::exp((double(x[n]) - most) * beta);
  for (int64_t n = 0; n < x.count; ++n) y[n] = float(std::exp((double(x[n]) - most) * beta) / sum);
}

inline void softmax_of(Row<int8_t> x, Row<int8_t> y, const FixedPoint& factor, int64_t least) {
  int64_t most = -128, total = 0;
  auto exponential = [&](int64_t n) {
    int64_t difference = x[n] - most;
    return difference >= least ? exp_of_negative(multiply(difference, factor), 5) : 0;
  };
  for (int64_t n = 0; n < x.count; ++n) most = std::max<int64_t>(most, x[n]);
  for (int64_t n = 0; n < x.count; ++n) total += rescaled(exponential(n), 0, 12);
  auto [inverse, exponent] = reciprocal(total, 12);
  for (int64_t n = 0; n < x.count; ++n)
    y[n] = clamped(divide_by_pot(times(inverse, exponential(n)), exponent + 31 - 8) - 128);
}

/// Call `visit(row of the input, row of the output)` for all rows along an axis.
template <class Element, class Visit>
ipr::Kernel by_row(const ipr::Layer& layer, Visit visit) {
  const ipr::TensorInfo info = layer.output(0);
  int64_t axis = layer.integer("axis"), inner = 1;
  if (axis < 0) axis += info.rank();
  for (int32_t behind = int32_t(axis) + 1; behind < info.rank(); ++behind) inner *= info.extent(behind);
  int64_t extent = info.extent(int32_t(axis)), count = info.elements();
  return [=](ipr::Tensors in, ipr::Tensors out) {
    for (int64_t start = 0; start < count; start += extent * inner)
      for (int64_t n = start; n < start + inner; ++n)
        visit(Row<Element>{in[0].data<Element>() + n, extent, inner},
              Row<Element>{out[0].data<Element>() + n, extent, inner});
  };
}

inline ipr::Kernel softmax(const ipr::Layer& layer) {
  double beta = layer.number("beta");
  if (is_float32(layer.input(0)))
    return by_row<float>(layer, [=](Row<float> x, Row<float> y) { softmax_of(x, y, beta); });
  FixedPoint factor = quantize_multiplier(std::min(beta * layer.input(0).scale() * 67108864.0, 2147483647.0));
  int64_t least = -int64_t(std::floor(31.0 * 67108864.0 / std::ldexp(1.0, factor.shift)));
  return by_row<int8_t>(layer, [=](Row<int8_t> x, Row<int8_t> y) { softmax_of(x, y, factor, least); });
}

// ---- Changing how numbers are stored --------------------------------------------------------------------------------

inline ipr::Verdict quantize_rule(const ipr::Layer& layer) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (!is_float32(in) && !is_quantized8(in))
    return ipr::no("input is " + described(in) + "; takes float32, or int8 with a scale", IPR_REASON_DATA_TYPE);
  if (!is_quantized8(out))
    return ipr::no("the output is " + described(out) + "; gives int8 with a scale", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

inline ipr::Kernel requantize(const ipr::Layer& layer) {
  int64_t count = layer.output(0).elements();
  bool same = same_quantization(layer.input(0), layer.output(0));
  return [=, from = Scales(layer.input(0)), to = Scales(layer.output(0))](ipr::Tensors in, ipr::Tensors out) {
    for (int64_t n = 0; n < count; ++n) {
      int64_t code = in[0].data<int8_t>()[n];
      FixedPoint factor = quantize_multiplier(double(from.scale(n)) / double(to.scale(n)));
      int64_t scaled = same ? code : multiply(code - from.zero_point(n), factor) + to.zero_point(n);
      out[0].data<int8_t>()[n] = clamped(scaled);
    }
  };
}

inline ipr::Kernel quantize(const ipr::Layer& layer) {
  if (is_quantized8(layer.input(0))) return requantize(layer);
  int64_t count = layer.output(0).elements();
  bool to_even = layer.text("rounding") == "HALF_TO_EVEN";
  return [=, to = Scales(layer.output(0))](ipr::Tensors in, ipr::Tensors out) {
    for (int64_t n = 0; n < count; ++n)
      out[0].data<int8_t>()[n] = quantized(in[0].data<float>()[n], to.scale(n), to.zero_point(n), to_even);
  };
}

inline ipr::Verdict dequantize_rule(const ipr::Layer& layer) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  if (!is_quantized8(in))
    return ipr::no("input is " + described(in) + "; takes int8 with a scale", IPR_REASON_DATA_TYPE);
  if (!is_float32(out)) return ipr::no("the output is " + described(out) + "; gives float32", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

inline ipr::Kernel dequantize(const ipr::Layer& layer) {
  int64_t count = layer.output(0).elements();
  return [=, from = Scales(layer.input(0))](ipr::Tensors in, ipr::Tensors out) {
    for (int64_t n = 0; n < count; ++n) {
      double steps = double(in[0].data<int8_t>()[n] - from.zero_point(n));
      out[0].data<float>()[n] = float(steps * double(from.scale(n)));
    }
  };
}

}  // namespace cpuref

#endif  // CPUREF_POINTWISE_HPP
