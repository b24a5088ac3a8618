// Tables of all results of a function of one quantized value of 8 bits.

#ifndef CPUACC_LOWER_TABLE_Q8_HPP
#define CPUACC_LOWER_TABLE_Q8_HPP

#include <algorithm>

#include "common/tables8.hpp"
#include "cpuacc/lower/q8.hpp"

namespace cpuacc {

/// Results by the bits of the argument.
using Table = native::Table8;

inline float scale32(const Tensor& tensor) { return float(tensor.scale()); }

inline int64_t code_of(int bits, const Tensor& tensor) {
  return is_signed(tensor) ? int64_t(int8_t(uint8_t(bits))) : int64_t(bits);
}

inline int64_t lowest_value(const Tensor& tensor) { return is_signed(tensor) ? -128 : 0; }
inline int64_t highest_value(const Tensor& tensor) { return is_signed(tensor) ? 127 : 255; }

/// Saturate an integer, or infinity, to a quantized value.
inline uint8_t clamped(double code, const Tensor& tensor) {
  return uint8_t(int32_t(std::clamp(code, double(lowest_value(tensor)), double(highest_value(tensor)))));
}

inline bool both_quantized(const Tensor& in, const Tensor& out) {
  return has_one_scale(in) && has_one_scale(out) && scale32(in) > 0 && scale32(out) > 0;
}

inline native::Quantized8 quantized8(const Tensor& tensor) {
  return {scale32(tensor), tensor.zero_point(), is_signed(tensor)};
}

/// Append the step that looks up the result of a node with one operand.
void add_table_step(const Node& node, Builder& builder, const Table& table);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_TABLE_Q8_HPP
