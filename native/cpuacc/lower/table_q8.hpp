// Functions of single codes of 8 bits as tables of all their values.

#ifndef CPUACC_LOWER_TABLE_Q8_HPP
#define CPUACC_LOWER_TABLE_Q8_HPP

#include <algorithm>
#include <array>

#include "cpuacc/lower/q8.hpp"

namespace cpuacc {

/// The code, as its bits, for the bits of every code.
using Table = std::array<uint8_t, 256>;

inline float scale32(const Tensor& tensor) { return float(tensor.scale()); }

inline int64_t code_of(int bits, const Tensor& tensor) {
  return is_signed(tensor) ? int64_t(int8_t(uint8_t(bits))) : int64_t(bits);
}

inline int64_t least_code(const Tensor& tensor) { return is_signed(tensor) ? -128 : 0; }
inline int64_t most_code(const Tensor& tensor) { return is_signed(tensor) ? 127 : 255; }

/// A whole number, or an infinite one, as the bits of the nearest code.
inline uint8_t clamped(double code, const Tensor& tensor) {
  return uint8_t(int32_t(std::clamp(code, double(least_code(tensor)), double(most_code(tensor)))));
}

inline bool both_codes(const Tensor& in, const Tensor& out) {
  return has_one_scale(in) && has_one_scale(out) && scale32(in) > 0 && scale32(out) > 0;
}

/// The result of a node with one operand, looked up.
void add_table_step(const Node& node, Builder& builder, const Table& table);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_TABLE_Q8_HPP
