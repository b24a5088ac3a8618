// Reshape and Concat.

#ifndef CPUREF_MOVES_HPP
#define CPUREF_MOVES_HPP

#include <cstring>

#include "rules.hpp"

namespace cpuref {

inline ipr::Verdict reshape_rule(const ipr::Layer& layer) { return one_kind(layer, {"input"}, true); }

inline ipr::Kernel reshape(const ipr::Layer& layer) {
  return [size = size_t(layer.output(0).bytes())](ipr::Tensors in, ipr::Tensors out) {
    if (size > 0) std::memcpy(out[0].data<char>(), in[0].data<char>(), size);
  };
}

inline ipr::Verdict concat_rule(const ipr::Layer& layer) {
  for (size_t n = 0; n < layer.input_count(); ++n) {
    const ipr::TensorInfo in = layer.input(n);
    std::string name = "inputs[" + std::to_string(n) + "]";
    if (in.dtype() != layer.output(0).dtype() || is_quantized8(in) != is_quantized8(layer.output(0)))
      return ipr::no(name + " is " + described(in) + ", but the output is " + described(layer.output(0)),
                     IPR_REASON_DATA_TYPE);
    if (has_axis(in)) return ipr::no(name + " is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
  }
  return one_kind(layer, {});
}

/// Requantize quantized values: round(x * scale + bias) in float32.
struct Change {
  Change(const ipr::TensorInfo& from, const ipr::TensorInfo& to)
      : none(!is_quantized8(from) || same_quantization(from, to)),
        scale(none ? 1 : scale32(from) * (1.0f / scale32(to))), bias(float(-from.zero_point()) * scale),
        zero(to.zero_point()) {}

  float operator()(float x) const { return x; }
  int8_t operator()(int8_t x) const {
    float product = float(x) * scale;
    return none ? x : clamped(round_half_away(double(product + bias)) + double(zero));
  }

  bool none;
  float scale, bias;
  int64_t zero;
};

template <class Element>
ipr::Kernel concat_of(const ipr::Layer& layer, int32_t axis) {
  const ipr::TensorInfo info = layer.output(0);
  int64_t outer = 1, inner = 1;
  for (int32_t n = 0; n < axis; ++n) outer *= info.extent(n);
  for (int32_t n = axis + 1; n < info.rank(); ++n) inner *= info.extent(n);
  std::vector<int64_t> sizes;
  std::vector<Change> changes;
  for (size_t n = 0; n < layer.input_count(); ++n) {
    sizes.push_back(layer.input(n).extent(axis) * inner);
    changes.emplace_back(layer.input(n), info);
  }
  return [=](ipr::Tensors in, ipr::Tensors out) {
    Element* next = out[0].data<Element>();
    for (int64_t block = 0; block < outer; ++block)
      for (size_t n = 0; n < in.size(); ++n)
        for (int64_t i = 0; i < sizes[n]; ++i) *next++ = changes[n](in[n].data<Element>()[block * sizes[n] + i]);
  };
}

inline ipr::Kernel concat(const ipr::Layer& layer) {
  int32_t rank = layer.output(0).rank(), axis = int32_t(layer.integer("axis"));
  if (axis < 0) axis += rank;
  return is_float32(layer.output(0)) ? concat_of<float>(layer, axis) : concat_of<int8_t>(layer, axis);
}

}  // namespace cpuref

#endif  // CPUREF_MOVES_HPP
