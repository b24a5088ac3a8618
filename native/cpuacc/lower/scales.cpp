// Quantize and Dequantize of tensors of any width, with one scale or a scale for each index along an axis.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/fixed_point.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

/// Scales and zero points, and the index of the scale of an element.
struct Scales {
  std::vector<double> scales, zeros;
  int64_t inner = 1;

  explicit Scales(const Tensor& tensor) : zeros(tensor.zero_points.begin(), tensor.zero_points.end()) {
    for (double scale : tensor.scales) scales.push_back(double(float(scale)));
    zeros.resize(scales.size(), 0.0);
    if (tensor.has_axis()) inner = around(tensor.shape, tensor.axis).inner;
  }
  size_t of(int64_t element) const { return scales.size() == 1 ? 0 : size_t(element / inner) % scales.size(); }
};

/// Return whether a tensor has all scales that it needs, and none is zero.
bool has_scales(const Tensor& tensor) {
  size_t count = tensor.has_axis() ? size_t(tensor.extent(tensor.axis)) : 1;
  return tensor.scales.size() == count &&
         std::all_of(tensor.scales.begin(), tensor.scales.end(), [](double scale) { return float(scale) > 0; });
}

bool is_integer(const Tensor& tensor, uint64_t widest) {
  bool whole = tensor.dtype >= IPR_DTYPE_INT8 && tensor.dtype <= IPR_DTYPE_UINT64;
  return whole && ipr::item_size(tensor.dtype) <= widest;
}

template <class Element>
double read(const void* data, int64_t n) {
  return double(static_cast<const Element*>(data)[n]);
}
template <class Element>
void write(void* data, int64_t n, double value) {
  static_cast<Element*>(data)[n] = Element(value);
}

using Read = double (*)(const void* data, int64_t n);
using Write = void (*)(void* data, int64_t n, double value);

Read read_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_INT8:
      return read<int8_t>;
    case IPR_DTYPE_INT16:
      return read<int16_t>;
    case IPR_DTYPE_INT32:
      return read<int32_t>;
    case IPR_DTYPE_INT64:
      return read<int64_t>;
    case IPR_DTYPE_UINT8:
      return read<uint8_t>;
    case IPR_DTYPE_UINT16:
      return read<uint16_t>;
    case IPR_DTYPE_UINT32:
      return read<uint32_t>;
    case IPR_DTYPE_UINT64:
      return read<uint64_t>;
    default:
      return read<float>;
  }
}

Write write_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_INT8:
      return write<int8_t>;
    case IPR_DTYPE_INT16:
      return write<int16_t>;
    case IPR_DTYPE_INT32:
      return write<int32_t>;
    case IPR_DTYPE_UINT8:
      return write<uint8_t>;
    case IPR_DTYPE_UINT16:
      return write<uint16_t>;
    case IPR_DTYPE_UINT32:
      return write<uint32_t>;
    default:
      return write<float>;
  }
}

/// Conversion of elements; `n` is the index of the element.
struct Conversion {
  Read read;
  Write write;
  Scales from, to;
  Limits limits;
  bool to_even, same;
  int64_t count;

  template <double (Conversion::*kConvert)(double, int64_t) const>
  static void run(const Step& step, const Run& run, int part, int parts) {
    const Conversion& self = step.as<Conversion>();
    const void* in = run.at(step.in[0]);
    void* out = run.at(step.out[0]);
    Range range = split(self.count, part, parts, 64);
    for (int64_t n = range.first; n < range.last; ++n) self.write(out, n, (self.*kConvert)(self.read(in, n), n));
  }

  double quantized(double real, int64_t n) const {
    size_t at = to.of(n);
    float steps = float(real) / float(to.scales[at]);
    double whole = steps != steps ? 0
                   : to_even      ? std::nearbyint(double(steps))
                                  : native::round_half_away(double(steps));
    return std::clamp(whole + to.zeros[at], limits.least, limits.most);
  }

  double requantized(double code, int64_t n) const {
    size_t at = to.of(n), before = from.of(n);
    if (same) return std::clamp(code, limits.least, limits.most);
    native::FixedPoint factor = native::quantize_multiplier(from.scales[before] / to.scales[at]);
    int64_t scaled = native::multiply(int64_t(code - from.zeros[before]), factor);
    return std::clamp(double(scaled) + to.zeros[at], limits.least, limits.most);
  }

  double dequantized(double code, int64_t n) const {
    size_t at = from.of(n);
    return (code - from.zeros[at]) * from.scales[at];
  }
};

void add_step(const Node& node, Builder& builder, Step::Function fn) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  bool same = in.is_quantized() && out.is_quantized() && in.same_quantization(out);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = fn;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kRescaleNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Conversion>(Conversion{read_of(in.dtype), write_of(out.dtype), Scales(in), Scales(out),
                                                       limits_of(out.dtype), node.text("rounding") == "HALF_TO_EVEN",
                                                       same, in.elements()});
  builder.add(std::move(step));
}

Refusal quantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!out.is_quantized() || !is_integer(out, 4) || !has_scales(out))
    return refused("the result is " + described(out) + "; takes integers of 8 to 32 bits with scales",
                   IPR_REASON_DATA_TYPE);
  bool codes = in.is_quantized() && is_integer(in, 2) && has_scales(in);
  if (!is_f32(in) && !codes)
    return refused("the operand is " + described(in) + "; takes float32, or codes of 8 or 16 bits",
                   IPR_REASON_DATA_TYPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_quantize(const Node& node, Builder& builder) {
  bool real = is_f32(*builder.graph.in(node, 0));
  add_step(node, builder, real ? &Conversion::run<&Conversion::quantized> : &Conversion::run<&Conversion::requantized>);
}

Refusal dequantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!in.is_quantized() || !is_integer(in, 8) || !has_scales(in) || !is_f32(out))
    return refused("takes integers of 8 bits and more with scales, and gives float32", IPR_REASON_DATA_TYPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_dequantize(const Node& node, Builder& builder) {
  add_step(node, builder, &Conversion::run<&Conversion::dequantized>);
}

}  // namespace

Family scales_family() {
  return {{{"Quantize", "any width and axis", quantize_support, lower_quantize, nullptr},
           {"Dequantize", "any width and axis", dequantize_support, lower_dequantize, nullptr}},
          {}};
}

}  // namespace cpuacc
