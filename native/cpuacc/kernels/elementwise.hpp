// Elementwise functions on runs of elements.

#ifndef CPUACC_KERNELS_ELEMENTWISE_HPP
#define CPUACC_KERNELS_ELEMENTWISE_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"
#include "cpuacc/kernels/gemm_f32.hpp"

namespace cpuacc {

// clang-format off
enum class Binary : int32_t {
  add, div, maximum, minimum, mul, sub, sq_diff, power, floor_div, mod, fmod, atan2, bitwise_and, bitwise_or,
  bitwise_xor, shift_left, shift_right, prelu, equal, greater, greater_or_equal, less, less_or_equal, not_equal, none
};

enum class Unary : int32_t {
  abs, exp, sqrt, rsqrt, neg, logical_not, log, sin, ceil, cos, tan, floor, round, sign, reciprocal, square, erf, asin,
  acos, atan, sinh, cosh, asinh, acosh, atanh, is_nan, is_inf, is_positive_inf, is_negative_inf, bitwise_not, none
};
// clang-format on

/// `a_one`: the operand is a single element, which is broadcast. Results may overwrite an operand.
using OfTwo = void (*)(const void* a, const void* b, void* out, int64_t count, bool a_one, bool b_one);
using OfOne = void (*)(const void* in, void* out, int64_t count);

struct ElementKernels {
  OfTwo (*binary)(Binary operation, int32_t dtype);  // nullptr if the dtype is not supported
  OfOne (*unary)(Unary operation, int32_t dtype);
  void (*activation)(Function function, float a, float b, const float* in, float* out, int64_t count);
  /// Select elements of `item_size` bytes: from `a` if the condition is true, otherwise from `b`.
  void (*choose)(const uint8_t* condition, const void* a, const void* b, void* out, int64_t item_size, int64_t count,
                 bool condition_one, bool a_one, bool b_one);
  /// Write `rows` rows of `length` elements of `item_size` bytes: each is the operand (`periodic`), or row n repeats
  /// element n.
  void (*spread)(const void* in, void* out, int64_t item_size, int64_t rows, int64_t length, bool periodic);
  /// Conversion between two dtypes; nullptr if it is not supported.
  OfOne (*cast)(int32_t from, int32_t to);
};
CPUACC_TABLE(ElementKernels, element_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_ELEMENTWISE_HPP
