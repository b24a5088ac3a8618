// Tables of all results of a function of one quantized value of 8 bits, bit for bit those of the reference.

#ifndef NATIVE_COMMON_TABLES8_HPP
#define NATIVE_COMMON_TABLES8_HPP

#include <array>
#include <cstdint>
#include <string_view>

namespace native {

/// The quantization of a tensor of 8 bits with one scale.
struct Quantized8 {
  float scale;
  int64_t zero_point;
  bool is_signed;

  int64_t lowest() const { return is_signed ? -128 : 0; }
  int64_t highest() const { return is_signed ? 127 : 255; }
  /// The quantized value with these bits.
  int64_t value(int bits) const { return is_signed ? int64_t(int8_t(uint8_t(bits))) : int64_t(bits); }
  /// Saturate an integer, or infinity, to a quantized value.
  uint8_t saturated(double value) const;
};

/// Results by the bits of the argument.
using Table8 = std::array<uint8_t, 256>;

/// An activation function with its parameters. `to_even`: results are rounded half to even, as in ONNX.
struct Activation8 {
  std::string_view function;
  double a, b;
  bool to_even;
};

/// Return whether a function has a table; its parameters have to be finite.
bool has_table(const Activation8& activation);
/// Return whether the scale of the result is large enough for the arithmetic of the function.
bool is_in_range(const Activation8& activation, const Quantized8& from, const Quantized8& to);
Table8 activation_table(const Activation8& activation, const Quantized8& from, const Quantized8& to);

/// The same for an operation of ElementwiseUnary, such as "EXP".
bool has_unary_table(std::string_view operation);
Table8 unary_table(std::string_view operation, const Quantized8& from, const Quantized8& to);

/// Requantize in float32, as the reference does for Concat.
Table8 requantization_table(const Quantized8& from, const Quantized8& to);

}  // namespace native

#endif  // NATIVE_COMMON_TABLES8_HPP
