// Quantize and Dequantize of tensors of any width, with one scale or a scale for each index along an axis.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

constexpr int64_t kPiece = 256;  // elements that are converted together

/// Call `each` with the numbers below `count`. The compiler makes vectors of the loop over a whole piece.
template <class Each>
void for_piece(int64_t count, const Each& each) {
  if (count == kPiece)
    for (int64_t n = 0; n < kPiece; ++n) each(n);
  else
    for (int64_t n = 0; n < count; ++n) each(n);
}

template <class Element, class To>
void read(const void* data, int64_t first, int64_t count, To* __restrict to) {
  const Element* __restrict elements = static_cast<const Element*>(data) + first;
  for_piece(count, [&](int64_t n) { to[n] = To(elements[n]); });
}
template <class Element>
void write(const int64_t* __restrict from, void* data, int64_t first, int64_t count) {
  Element* __restrict elements = static_cast<Element*>(data) + first;
  for_piece(count, [&](int64_t n) { elements[n] = Element(from[n]); });
}

template <class To>
using Read = void (*)(const void* data, int64_t first, int64_t count, To* to);
using Write = void (*)(const int64_t* from, void* data, int64_t first, int64_t count);

template <class To>
Read<To> read_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_INT8:
      return read<int8_t, To>;
    case IPR_DTYPE_INT16:
      return read<int16_t, To>;
    case IPR_DTYPE_INT32:
      return read<int32_t, To>;
    case IPR_DTYPE_INT64:
      return read<int64_t, To>;
    case IPR_DTYPE_UINT8:
      return read<uint8_t, To>;
    case IPR_DTYPE_UINT16:
      return read<uint16_t, To>;
    case IPR_DTYPE_UINT32:
      return read<uint32_t, To>;
    default:
      return read<uint64_t, To>;
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
    default:
      return write<uint32_t>;
  }
}

/// What all conversions have in common. `first` is the index of the first element of a piece.
struct Conversion {
  Scales from, to;
  Limits limits;
  int64_t count;

  template <class State, class In, class Out>
  static void run(const Step& step, const Run& run, int part, int parts) {
    const State& self = step.as<State>();
    const Range range = split(self.count, part, parts, 64);
    for (int64_t first = range.first; first < range.last; first += kPiece)
      self.convert(run.at<In>(step.in[0]), run.at<Out>(step.out[0]), first, std::min(kPiece, range.last - first));
  }
};

/// Floats become integers.
struct Quantizing : Conversion {
  Write write;
  bool to_even;

  void convert(const float* in, void* out, int64_t first, int64_t size) const {
    int64_t codes[kPiece];
    for (int64_t n = 0; n < size; ++n) {
      const size_t at = to.of(first + n);
      const float steps = in[first + n] / float(to.scales[at]);
      const double whole = steps != steps ? 0
                           : to_even      ? std::nearbyint(double(steps))
                                          : native::round_half_away(double(steps));
      codes[n] = int64_t(std::clamp(whole + to.zeros[at], limits.least, limits.most));
    }
    write(codes, out, first, size);
  }
};

/// Integers become integers of another quantization.
struct Requantizing : Conversion {
  Read<int64_t> read;
  Write write;
  bool same;

  void convert(const void* in, void* out, int64_t first, int64_t size) const {
    int64_t codes[kPiece];
    read(in, first, size, codes);
    const auto clamp = [&](int64_t code) { return std::clamp(code, int64_t(limits.least), int64_t(limits.most)); };
    size_t before = 0, after = 0;
    native::FixedPoint factor = factor_of(before, after);
    for (int64_t n = 0; n < size && !same; ++n) {
      const size_t old = from.of(first + n), fresh = to.of(first + n);
      if (old != before || fresh != after) before = old, after = fresh, factor = factor_of(old, fresh);
      const int64_t steps = codes[n] - int64_t(from.zeros[old]);
      codes[n] = native::multiply(steps, factor) + int64_t(to.zeros[fresh]);
    }
    for (int64_t n = 0; n < size; ++n) codes[n] = clamp(codes[n]);
    write(codes, out, first, size);
  }

  native::FixedPoint factor_of(size_t before, size_t after) const {
    return native::quantize_multiplier(from.scales[before] / to.scales[after]);
  }
};

/// Integers become floats.
struct Dequantizing : Conversion {
  Read<double> read;
  Read<int32_t> read_narrow;  // nullptr: the integers have more than 16 bits

  /// The differences have at most 17 bits, so that float32 holds them, and rounds their products once.
  void convert_narrow(const void* in, float* out, int64_t first, int64_t size) const {
    int32_t codes[kPiece];
    read_narrow(in, first, size, codes);
    const int32_t zero = int32_t(from.zeros[0]);
    const float scale = float(from.scales[0]);
    float* __restrict to_real = out + first;
    for_piece(size, [&](int64_t n) { to_real[n] = float(codes[n] - zero) * scale; });
  }

  void convert(const void* in, float* out, int64_t first, int64_t size) const {
    if (read_narrow && from.scales.size() == 1) return convert_narrow(in, out, first, size);
    double codes[kPiece];
    read(in, first, size, codes);
    for (int64_t n = 0; n < size; ++n) {
      const size_t at = from.of(first + n);
      out[first + n] = float((codes[n] - from.zeros[at]) * from.scales[at]);
    }
  }
};

template <class In, class Out, class State>
void add_step(const Node& node, Builder& builder, const State& state) {
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Conversion::run<State, In, Out>;
  step.max_parts = parts_for(builder.settings, double(state.count) * cost::kRescaleNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<State>(state);
  builder.add(std::move(step));
}

Conversion conversion_of(const Node& node, const Graph& graph) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  return {Scales(in), Scales(out), limits_of(out.dtype), in.elements()};
}

Refusal quantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!out.is_quantized() || !is_integer(out, 4) || !has_scales(out))
    return refused("the result is " + described(out) + "; takes integers of 8 to 32 bits with scales",
                   IPR_REASON_DATA_TYPE);
  const bool codes = in.is_quantized() && is_integer(in, 4) && has_scales(in);
  if (!is_f32(in) && !codes)
    return refused("the operand is " + described(in) + "; takes float32, or integers of 8 to 32 bits with scales",
                   IPR_REASON_DATA_TYPE);
  if (codes && !is_integer(in, 2) && (in.has_axis() || out.has_axis()))
    return refused("takes one scale if the operand has more than 16 bits", IPR_REASON_QUANTIZATION);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_quantize(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const Conversion conversion = conversion_of(node, builder.graph);
  if (is_f32(in))
    return add_step<float, void>(node, builder,
                                 Quantizing{conversion, write_of(out.dtype), node.text("rounding") == "HALF_TO_EVEN"});
  add_step<void, void>(
      node, builder,
      Requantizing{conversion, read_of<int64_t>(in.dtype), write_of(out.dtype), in.same_quantization(out)});
}

Refusal dequantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!in.is_quantized() || !is_integer(in, 8) || !has_scales(in) || !is_f32(out))
    return refused("takes integers of 8 bits and more with scales, and gives float32", IPR_REASON_DATA_TYPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_dequantize(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  const bool narrow = is_integer(in, 2) && float(in.scales[0]) >= std::numeric_limits<float>::min();
  add_step<void, float>(node, builder,
                        Dequantizing{conversion_of(node, builder.graph), read_of<double>(in.dtype),
                                     narrow ? read_of<int32_t>(in.dtype) : nullptr});
}

}  // namespace

Family scales_family() {
  return {{{"Quantize", "any width and axis", quantize_support, lower_quantize, nullptr},
           {"Dequantize", "any width and axis", dequantize_support, lower_dequantize, nullptr}},
          {}};
}

}  // namespace cpuacc
