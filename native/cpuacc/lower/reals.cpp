#include "cpuacc/lower/reals.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/fixed_point.hpp"

namespace cpuacc {

Reals::Reals(const Tensor& tensor, native::Isa isa)
    : dtype_(tensor.dtype), count_(tensor.elements()), item_size_(int64_t(ipr::item_size(tensor.dtype))),
      zero_(tensor.zero_point()), scale_(double(float(tensor.scale()))) {
  if (tensor.has_axis()) return;
  switch (dtype_) {
    case IPR_DTYPE_FLOAT32:
    case IPR_DTYPE_FLOAT64:
      kind_ = tensor.is_quantized() ? Kind::none : Kind::same;
      return;
    case IPR_DTYPE_FLOAT16:
    case IPR_DTYPE_BFLOAT16:
      kind_ = Kind::half;
      widen_ = element_kernels_for(isa).cast(dtype_, IPR_DTYPE_FLOAT32);
      narrow_ = element_kernels_for(isa).cast(IPR_DTYPE_FLOAT32, dtype_);
      return;
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_UINT8:
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_UINT16:
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_UINT32:
      kind_ = tensor.is_quantized() ? Kind::quantized : Kind::none;
      return;
    default:
      return;
  }
}

template <class Code>
void Reals::dequantize(const Code* from, int64_t count, float* to) const {
  for (int64_t n = 0; n < count; ++n) to[n] = float((double(from[n]) - double(zero_)) * scale_);
}

template <class Code>
void Reals::quantize(const float* from, int64_t count, Code* to) const {
  constexpr double least = double(std::numeric_limits<Code>::min()), most = double(std::numeric_limits<Code>::max());
  for (int64_t n = 0; n < count; ++n) {
    const float steps = from[n] / float(scale_);
    const double whole = std::isnan(steps) ? 0 : native::round_half_away(double(steps));
    to[n] = Code(std::clamp(whole + double(zero_), least, most));
  }
}

const float* Reals::read(const void* from, int64_t count, float* memory) const {
  if (kind_ == Kind::same) return static_cast<const float*>(from);
  if (kind_ == Kind::half) return widen_(from, memory, count), memory;
  switch (dtype_) {
    case IPR_DTYPE_INT8:
      return dequantize(static_cast<const int8_t*>(from), count, memory), memory;
    case IPR_DTYPE_UINT8:
      return dequantize(static_cast<const uint8_t*>(from), count, memory), memory;
    case IPR_DTYPE_INT16:
      return dequantize(static_cast<const int16_t*>(from), count, memory), memory;
    case IPR_DTYPE_UINT16:
      return dequantize(static_cast<const uint16_t*>(from), count, memory), memory;
    case IPR_DTYPE_INT32:
      return dequantize(static_cast<const int32_t*>(from), count, memory), memory;
    default:
      return dequantize(static_cast<const uint32_t*>(from), count, memory), memory;
  }
}

const double* Reals::read(const void* from, int64_t, double*) const { return static_cast<const double*>(from); }

void Reals::write(const float* from, int64_t count, void* to, int64_t first) const {
  char* out = static_cast<char*>(to) + first * item_size_;
  if (kind_ == Kind::same) {
    if (count > 0) std::memcpy(out, from, size_t(count) * sizeof *from);
    return;
  }
  if (kind_ == Kind::half) return narrow_(from, out, count);
  switch (dtype_) {
    case IPR_DTYPE_INT8:
      return quantize(from, count, reinterpret_cast<int8_t*>(out));
    case IPR_DTYPE_UINT8:
      return quantize(from, count, reinterpret_cast<uint8_t*>(out));
    case IPR_DTYPE_INT16:
      return quantize(from, count, reinterpret_cast<int16_t*>(out));
    case IPR_DTYPE_UINT16:
      return quantize(from, count, reinterpret_cast<uint16_t*>(out));
    case IPR_DTYPE_INT32:
      return quantize(from, count, reinterpret_cast<int32_t*>(out));
    default:
      return quantize(from, count, reinterpret_cast<uint32_t*>(out));
  }
}

void Reals::write(const double* from, int64_t count, void* to, int64_t first) const {
  if (count > 0) std::memcpy(static_cast<double*>(to) + first, from, size_t(count) * sizeof *from);
}

Refusal takes_reals(const Graph& graph, const Node& node, size_t count, native::Isa isa) {
  for (size_t n = 0; n < count; ++n) {
    const Tensor* operand = graph.in(node, n);
    if (!operand) continue;
    const Reals reals(*operand, isa);
    if (!reals.is_taken() || reals.is_double() != (graph.in(node, 0)->dtype == IPR_DTYPE_FLOAT64))
      return refused("operand " + std::to_string(n) + " is " + described(*operand), IPR_REASON_DATA_TYPE);
  }
  return taken();
}

}  // namespace cpuacc
