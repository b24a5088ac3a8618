#include "cpuacc/lower/encoding.hpp"

#include <cmath>
#include <cstring>

#include "common/fixed_point.hpp"

namespace cpuacc {
namespace {

/// A float of fewer bits than float32: `most` are the bits of its largest finite number.
struct SmallFloat {
  int mantissa, bias;
  uint32_t most, sign;  // `sign`: the bit of negative numbers
};

bool small_float_of(int32_t dtype, SmallFloat& format) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT16:
      return format = {10, 15, 0x7bff, 0x8000}, true;
    case IPR_DTYPE_BFLOAT16:
      return format = {7, 127, 0x7f7f, 0x8000}, true;
    case IPR_DTYPE_FLOAT8_E4M3FN:
      return format = {3, 7, 0x7e, 0x80}, true;
    case IPR_DTYPE_FLOAT8_E4M3FNUZ:
      return format = {3, 8, 0x7f, 0x80}, true;
    case IPR_DTYPE_FLOAT8_E5M2:
      return format = {2, 15, 0x7b, 0x80}, true;
    case IPR_DTYPE_FLOAT8_E5M2FNUZ:
      return format = {2, 16, 0x7f, 0x80}, true;
    case IPR_DTYPE_FLOAT6_E2M3FN:
      return format = {3, 1, 0x1f, 0x20}, true;
    case IPR_DTYPE_FLOAT6_E3M2FN:
      return format = {2, 3, 0x1f, 0x20}, true;
    case IPR_DTYPE_FLOAT4_E2M1FN:
      return format = {1, 1, 0x07, 0x08}, true;
    default:
      return false;
  }
}

/// Round to the nearest number of a type, ties to even.
bool encode_float(double value, const SmallFloat& type, char* to) {
  if (!std::isfinite(value)) return false;
  const double size = std::fabs(value);
  const int least = 1 - type.bias, exponent = size == 0 ? least : std::max(std::ilogb(size), least);
  const auto steps = uint32_t(std::nearbyint(std::ldexp(size, type.mantissa - exponent)));
  uint32_t bits = (uint32_t(exponent - least) << type.mantissa) + steps;
  if (bits > type.most) return false;
  if (std::signbit(value) && bits != 0) bits |= type.sign;
  std::memcpy(to, &bits, sizeof bits);
  return true;
}

/// Write a whole number; types of fewer than 8 bits have it in their low bits.
bool encode_integer(double whole, int32_t dtype, char* to) {
  const Limits limits = limits_of(dtype);
  if (!(whole >= limits.least && whole <= limits.most)) return false;  // NaN as well
  int64_t bits = int64_t(whole);  // little endian, so its first bytes are the element
  if (dtype == IPR_DTYPE_INT4) bits &= 15;
  if (dtype == IPR_DTYPE_INT2) bits &= 3;
  std::memcpy(to, &bits, sizeof bits);
  return true;
}

bool is_integer(int32_t dtype) {
  return (dtype >= IPR_DTYPE_INT8 && dtype <= IPR_DTYPE_UINT64) || dtype == IPR_DTYPE_INT4 ||
         dtype == IPR_DTYPE_UINT4 || dtype == IPR_DTYPE_INT2 || dtype == IPR_DTYPE_UINT2;
}

bool encode_quantized(double value, const Tensor& tensor, char* to) {
  if (tensor.has_axis() || !is_integer(tensor.dtype)) return false;
  const Limits limits = limits_of(tensor.dtype);
  const double code = native::round_half_away(value / double(float(tensor.scale()))) + double(tensor.zero_point());
  return encode_integer(std::min(std::max(code, limits.least), limits.most), tensor.dtype, to);
}

}  // namespace

Limits limits_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_BOOL:
      return {0, 1};
    case IPR_DTYPE_INT2:
      return {-2, 1};
    case IPR_DTYPE_UINT2:
      return {0, 3};
    case IPR_DTYPE_INT4:
      return {-8, 7};
    case IPR_DTYPE_UINT4:
      return {0, 15};
    case IPR_DTYPE_INT8:
      return {-128, 127};
    case IPR_DTYPE_UINT8:
      return {0, 255};
    case IPR_DTYPE_INT16:
      return {-32768, 32767};
    case IPR_DTYPE_UINT16:
      return {0, 65535};
    case IPR_DTYPE_INT32:
      return {-2147483648.0, 2147483647.0};
    case IPR_DTYPE_UINT32:
      return {0, 4294967295.0};
    case IPR_DTYPE_UINT64:
      return {0, 9007199254740992.0};  // larger numbers are not whole in float64
    default:
      return {-9007199254740992.0, 9007199254740992.0};
  }
}

bool encode(double value, const Tensor& tensor, char* to) {
  if (tensor.is_quantized()) return encode_quantized(value, tensor, to);
  SmallFloat type;
  const float single = float(value);
  switch (tensor.dtype) {
    case IPR_DTYPE_FLOAT32:
      std::memcpy(to, &single, sizeof single);
      return true;
    case IPR_DTYPE_FLOAT64:
      std::memcpy(to, &value, sizeof value);
      return true;
    case IPR_DTYPE_BOOL:
      return encode_integer(value != 0 ? 1 : 0, tensor.dtype, to);
    case IPR_DTYPE_BFLOAT16:
      return small_float_of(tensor.dtype, type) && encode_float(double(single), type, to);
    default:
      break;
  }
  if (small_float_of(tensor.dtype, type)) return encode_float(value, type, to);
  return is_integer(tensor.dtype) && encode_integer(std::trunc(value), tensor.dtype, to);
}

}  // namespace cpuacc
