#include "cpuacc/lower/element_key.hpp"

#include "cpuacc/rules.hpp"

namespace cpuacc {

ElementKeys::ElementKeys(const Tensor& tensor) : item_size_(int64_t(ipr::item_size(tensor.dtype))) {
  choose(tensor.dtype);
}

void ElementKeys::choose(int32_t dtype) {
  auto set = [&](Kind kind, int bits, uint64_t infinity = ~uint64_t{0}, bool negative_zero_is_nan = false) {
    kind_ = kind, bits_ = bits, infinity_ = infinity, negative_zero_is_nan_ = negative_zero_is_nan;
  };
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return set(Kind::magnitude, 32, 0x7f800000);
    case IPR_DTYPE_FLOAT64:
      return set(Kind::magnitude, 64, 0x7ff0000000000000);
    case IPR_DTYPE_FLOAT16:
      return set(Kind::magnitude, 16, 0x7c00);
    case IPR_DTYPE_BFLOAT16:
      return set(Kind::magnitude, 16, 0x7f80);
    case IPR_DTYPE_FLOAT8_E4M3FN:
      return set(Kind::magnitude, 8, 0x7e);
    case IPR_DTYPE_FLOAT8_E5M2:
      return set(Kind::magnitude, 8, 0x7c);
    case IPR_DTYPE_FLOAT8_E4M3FNUZ:
    case IPR_DTYPE_FLOAT8_E5M2FNUZ:
      return set(Kind::magnitude, 8, 0x7f, true);
    case IPR_DTYPE_FLOAT8_E8M0FNU:
      return set(Kind::is_unsigned, 8);  // its NaN has the largest bits
    case IPR_DTYPE_FLOAT6_E2M3FN:
    case IPR_DTYPE_FLOAT6_E3M2FN:
      return set(Kind::magnitude, 6);
    case IPR_DTYPE_FLOAT4_E2M1FN:
      return set(Kind::magnitude, 4);
    case IPR_DTYPE_INT2:
      return set(Kind::is_signed, 2);
    case IPR_DTYPE_UINT2:
      return set(Kind::is_unsigned, 2);
    case IPR_DTYPE_INT4:
      return set(Kind::is_signed, 4);
    case IPR_DTYPE_UINT4:
      return set(Kind::is_unsigned, 4);
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_INT64:
      return set(Kind::is_signed, int(8 * item_size_));
    case IPR_DTYPE_BOOL:
    case IPR_DTYPE_UINT8:
    case IPR_DTYPE_UINT16:
    case IPR_DTYPE_UINT32:
    case IPR_DTYPE_UINT64:
      return set(Kind::is_unsigned, int(8 * item_size_));
    default:
      return;
  }
}

uint64_t ElementKeys::key(uint64_t bits) const {
  bits &= ~uint64_t{0} >> (64 - bits_);
  const uint64_t sign = uint64_t{1} << (bits_ - 1);
  if (kind_ == Kind::is_unsigned) return bits;
  if (kind_ == Kind::is_signed) return bits ^ sign;
  const uint64_t magnitude = bits & (sign - 1);
  if (magnitude > infinity_ || (negative_zero_is_nan_ && bits == sign)) return ~uint64_t{0};
  return bits & sign ? sign - magnitude : sign + magnitude;
}

template <class Bits>
void ElementKeys::each(const Bits* from, int64_t step, int64_t count, uint64_t* to) const {
  for (int64_t n = 0; n < count; ++n) to[n] = key(from[n * step]);
}

void ElementKeys::all(const void* from, int64_t step, int64_t count, uint64_t* to) const {
  by_item_size(item_size_, [&](auto item) { each(static_cast<const decltype(item)*>(from), step, count, to); });
}

}  // namespace cpuacc
