// Layers of quantized tensors: the arithmetic of their kernels, and lowerings that other files call.

#ifndef GPUACC_QUANTIZED_HPP
#define GPUACC_QUANTIZED_HPP

#include <utility>

#include "gpuacc/rows.hpp"

namespace gpuacc {

/// The functions of common/fixed_point.hpp in OpenCL C, and CLAMP to a type of 8 bits.
std::string arithmetic(int32_t dtype);

/// Buffers with the multipliers and the shifts of the output channels of a layer with weights. `of_singles`: the
/// product of the scales of input and weights is rounded to float32.
std::pair<int, int> channel_factors(const ipr::Layer& layer, Plan& plan, int64_t channels, bool of_singles);

inline float scale32(const ipr::TensorInfo& info) { return float(info.scale()); }

/// Refuse tensors that are not quantized to 8 bits, all of one type, with one scale each: the first `inputs` operands
/// and the first result.
ipr::Verdict one_scale(const ipr::Layer& layer, size_t inputs);

/// How a kernel makes an element of a convolution of integers, in OpenCL C.
struct IntegerConvolution {
  std::string parameters;           // of the kernel, beside those of every such convolution; each after a comma
  std::vector<Argument> arguments;  // their values
  std::string start;                // of the sum for the channel `o`
  std::string product;              // of the elements `a` and `b`
  std::string result;               // of `sum` for the channel `o`
  std::string functions = "";
};
/// Launch a convolution of the values `x` and `w` to `y`: one work item for each element of the result.
void launch_integer_convolution(const ipr::Layer& layer, Plan& plan, const char* name, bool depthwise, Value x, Value w,
                                Value y, const IntegerConvolution& element);
/// The bias of a layer with weights, or `absent` if it has none.
Value bias_of(const ipr::Layer& layer, Plan& plan, const Value& absent);

ipr::Verdict quantized_window_support(const ipr::Layer& layer, const Target& target);
void lower_quantized_window(const ipr::Layer& layer, Plan& plan);
ipr::Verdict quantized_pooling_support(const ipr::Layer& layer, const Target& target);
void lower_quantized_pooling(const ipr::Layer& layer, Plan& plan);
ipr::Verdict quantized_product_support(const ipr::Layer& layer, const Target& target);
void lower_quantized_product(const ipr::Layer& layer, Plan& plan);
ipr::Verdict quantized_binary_support(const ipr::Layer& layer);
void lower_quantized_binary(const ipr::Layer& layer, Plan& plan);
// In lower/tables.cpp
ipr::Verdict quantized_activation_support(const ipr::Layer& layer);
void lower_quantized_activation(const ipr::Layer& layer, Plan& plan);
ipr::Verdict quantized_unary_support(const ipr::Layer& layer);
void lower_quantized_unary(const ipr::Layer& layer, Plan& plan);
/// Requantize an operand of a Concat to the quantization of its result.
Value requantized(Plan& plan, const ipr::TensorInfo& from, const ipr::TensorInfo& to);
// In lower/quantized_rows.cpp; the latter two for integers without a scale
ipr::Verdict quantized_reduce_support(const ipr::Layer& layer);
void lower_quantized_reduce(const ipr::Layer& layer, Plan& plan);
ipr::Verdict integer_reduce_support(const ipr::Layer& layer);
void lower_integer_reduce(const ipr::Layer& layer, Plan& plan);
ipr::Verdict quantized_length_support(const ipr::Layer& layer);
void lower_quantized_length(const ipr::Layer& layer, Plan& plan, const Rows& rows);
// In lower/quantized_products.cpp
ipr::Verdict quantized_matrices_support(const ipr::Layer& layer);
void lower_quantized_matrices(const ipr::Layer& layer, Plan& plan);
// In lower/quantized_softmax.cpp
ipr::Verdict quantized_softmax_support(const ipr::Layer& layer);
void lower_quantized_softmax(const ipr::Layer& layer, Plan& plan);

}  // namespace gpuacc

#endif  // GPUACC_QUANTIZED_HPP
