// Quantized GEMMs over the taps of a window that slides over an image: convolutions, and matrix products as windows of
// one tap.

#ifndef CPUACC_LOWER_GEMM_Q8_HPP
#define CPUACC_LOWER_GEMM_Q8_HPP

#include <string>
#include <vector>

#include "cpuacc/lower/q8.hpp"

namespace cpuacc {

/// A tap: its offset in the image, relative to the position of the window.
struct Q8Tap {
  int64_t y, x;
};

/// Positions of a window along one axis of the image, and the elements of the result that they compute.
struct Q8Axis {
  int64_t extent, places, stride;  // position n is at n * stride in the image
  int64_t result, first, step;     // and computes element first + n * step of the result
};

/// Weights and their zero points.
struct Q8Weights {
  const void* data = nullptr;
  bool is_signed = true;
  std::vector<int32_t> zeros;                         // one, or one for each channel
  int64_t outputs = 1;                                // channels of a group
  int64_t by_output = 0, by_group = 0, by_input = 0;  // strides in elements
  std::vector<int64_t> taps;                          // offset of each tap

  explicit Q8Weights(const Tensor& tensor)
      : data(tensor.data), is_signed(tensor.dtype == IPR_DTYPE_INT8), zeros{int32_t(tensor.zero_point())} {}

  /// The offset of the weights of a channel and a tap; those of consecutive inputs are `by_input` apart.
  int64_t place(int64_t channel, size_t tap) const {
    return channel % outputs * by_output + channel / outputs * by_group + taps[tap];
  }
  int32_t zero(int64_t channel) const { return zeros[zeros.size() == 1 ? 0 : size_t(channel)]; }
  /// The stored value at an offset.
  int32_t operator[](int64_t at) const {
    return is_signed ? int32_t(static_cast<const int8_t*>(data)[at]) : int32_t(static_cast<const uint8_t*>(data)[at]);
  }
};

/// The operands of a GEMM.
struct Q8Window {
  Q8Weights weight;
  int64_t batch = 1;
  Q8Axis rows{1, 1, 1, 1, 0, 1}, columns{1, 1, 1, 1, 0, 1};
  std::vector<Q8Tap> taps;
  int64_t depth = 1, outputs = 1, groups = 1;  // channels of the image and of the result

  explicit Q8Window(const Tensor& weights) : weight(weights) {}
};

/// The window of a convolution of an image with channels last.
Q8Window convolution_q8(const Graph& graph, const Node& node);

/// Append the step of a GEMM. `in` and `out` are NHWC. `other` is added if the post-ops contain an addition.
void add_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Rounding& rule,
              const Q8Posts& posts, const Tensor& input, const Tensor* bias, const Tensor& output, Buffer in,
              Buffer out, Buffer other);

/// The operands of a GEMM whose input has a zero point, and whose result has a scale, that are known when it runs.
struct Q8Products {
  Buffer zero;              // the zero point of the input; absent: 0
  Buffer scale, bias;       // absent scale: the result is int32, else float32: clamp(sum * scale + bias, low, high)
  int64_t scale_count = 1;  // one scale, or one for each channel
  float low, high;
};

/// The step of such a GEMM whose result has elements; these have 4 bytes. It may be added several times.
Step integer_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Products& products,
                  const Tensor& input, Buffer in, Buffer out);

/// Append the step of such a GEMM.
void add_integer_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Products& products,
                      const Tensor& input, Buffer in, Buffer out);

/// Supported are products of two 8-bit matrices of which none is constant, if these are not too large. Zero points of
/// the columns are the operand 3.
Refusal support_computed_products(const Graph& graph, const Node& node);

/// Append the step of such products; elements of the result have 4 bytes.
void add_computed_products(const Node& node, const Q8Products& products, Builder& builder);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_GEMM_Q8_HPP
