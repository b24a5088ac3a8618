#include "cpuacc/lower/real_constant.hpp"

#include <cstring>

namespace cpuacc {
namespace {

template <class T>
std::vector<float> dequantized(const Tensor& tensor) {
  const T* codes = tensor.values<T>();
  const int64_t inner = tensor.has_axis() ? around(tensor.shape, tensor.axis).inner : 1;
  std::vector<float> values(size_t(tensor.elements()));
  for (size_t n = 0; n < values.size(); ++n) {
    const size_t at = tensor.scales.size() == 1 ? 0 : n / size_t(inner) % tensor.scales.size();
    const int64_t zero = tensor.zero_points.empty() ? 0 : tensor.zero_points[at % tensor.zero_points.size()];
    values[n] = float((double(codes[n]) - double(zero)) * double(float(tensor.scales[at])));
  }
  return values;
}

}  // namespace

bool is_real_constant(const Tensor& tensor) {
  if (!tensor.is_constant()) return false;
  if (is_f32(tensor)) return true;
  switch (tensor.dtype) {
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_UINT8:
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_INT32:
      return tensor.is_quantized();
    default:
      return false;
  }
}

std::vector<float> reals(const Tensor& tensor) {
  switch (tensor.dtype) {
    case IPR_DTYPE_INT8:
      return dequantized<int8_t>(tensor);
    case IPR_DTYPE_UINT8:
      return dequantized<uint8_t>(tensor);
    case IPR_DTYPE_INT16:
      return dequantized<int16_t>(tensor);
    case IPR_DTYPE_INT32:
      return dequantized<int32_t>(tensor);
    default:
      break;
  }
  std::vector<float> values(size_t(tensor.elements()));
  if (!values.empty()) std::memcpy(values.data(), tensor.floats().bytes(), values.size() * sizeof(float));
  return values;
}

}  // namespace cpuacc
