#include "gpuacc/lowering.hpp"

#include <map>

namespace gpuacc {
namespace {

std::map<std::string_view, Lowering> all_lowerings() {
  std::map<std::string_view, Lowering> all;
  for (const Lowerings& family :
       {element_lowerings(), move_lowerings(), window_lowerings(), product_lowerings(), row_lowerings(),
        quantized_lowerings(), gather_lowerings(), resize_lowerings(), attention_lowerings(), recurrent_lowerings(),
        dynamic_lowerings(), volume_lowerings(), scan_lowerings(), scatter_lowerings(), block_lowerings(),
        sampling_lowerings(), lookup_lowerings()})
    for (const Lowering& lowering : family) all.emplace(lowering.type, lowering);
  return all;
}

float of_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(float(fraction), -24);
  return sign * std::ldexp(float(fraction + 1024), exponent - 25);
}

}  // namespace

const Lowering* find_lowering(std::string_view type) {
  static const std::map<std::string_view, Lowering> all = all_lowerings();
  auto entry = all.find(type);
  return entry == all.end() ? nullptr : &entry->second;
}

bool same_quantization(const ipr::TensorInfo& a, const ipr::TensorInfo& b) {
  return a.axis() == b.axis() && a.scales().size() == b.scales().size() &&
         std::equal(a.scales().begin(), a.scales().end(), b.scales().begin()) &&
         std::equal(a.zero_points().begin(), a.zero_points().end(), b.zero_points().begin());
}

std::string described(const ipr::TensorInfo& info) {
  return std::string(ipr::dtype_name(info.dtype())) + (info.is_quantized() ? " with a scale" : "");
}

ipr::Verdict all_float(const ipr::Layer& layer) {
  const ipr::TensorInfo out = layer.output(0);
  if (!is_float(out))
    return ipr::no("the output is " + described(out) + "; takes float32 and float16", IPR_REASON_DATA_TYPE);
  for (size_t n = 0; n < layer.input_count(); ++n) {
    const ipr::TensorInfo in = layer.input(n);
    if (in && (in.is_quantized() || in.dtype() != out.dtype()))
      return ipr::no("input " + std::to_string(n) + " is " + described(in) + ", but the output is " + described(out),
                     IPR_REASON_DATA_TYPE);
  }
  return ipr::yes();
}

std::vector<float> constant_floats(const ipr::TensorInfo& info) {
  std::vector<float> values(static_cast<size_t>(info.elements()));
  const char* data = static_cast<const char*>(info.constant().data);
  for (size_t n = 0; n < values.size(); ++n) {
    uint16_t half = 0;
    if (info.dtype() == IPR_DTYPE_FLOAT32)
      std::memcpy(&values[n], data + 4 * n, 4);
    else
      std::memcpy(&half, data + 2 * n, 2), values[n] = of_half(half);
  }
  return values;
}

}  // namespace gpuacc
