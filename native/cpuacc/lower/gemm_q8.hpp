// Sums of products of codes over the taps of a window, which slides over the rows of an image: convolutions, and with
// one tap and one row, products of matrices.

#ifndef CPUACC_LOWER_GEMM_Q8_HPP
#define CPUACC_LOWER_GEMM_Q8_HPP

#include <string>
#include <vector>

#include "cpuacc/lower/q8.hpp"

namespace cpuacc {

/// A cell of the window: where it lies in the image, seen from the place of the window.
struct Q8Tap {
  int64_t y, x;
};

/// Places of a window along one axis of the image, and of the cells of the result that are computed.
struct Q8Axis {
  int64_t extent, places, stride;  // place n lies at n * stride in the image
  int64_t result, first, step;     // and belongs to cell first + n * step of the result's
};

/// Where weights lie; what is given is without their zero point.
struct Q8Weights {
  const void* data = nullptr;
  bool is_signed = true;
  int32_t zero = 0;
  int64_t outputs = 1;  // channels of a group
  int64_t by_output = 0, by_group = 0, by_input = 0;  // steps in elements
  std::vector<int64_t> taps;                          // where each begins

  explicit Q8Weights(const Tensor& tensor)
      : data(tensor.data), is_signed(tensor.dtype == IPR_DTYPE_INT8), zero(int32_t(tensor.zero_point())) {}

  /// Where the weights of a channel and a tap begin; those of inputs follow in steps of `by_input`.
  int64_t place(int64_t channel, size_t tap) const {
    return channel % outputs * by_output + channel / outputs * by_group + taps[tap];
  }
  int32_t operator[](int64_t at) const {
    return (is_signed ? int32_t(static_cast<const int8_t*>(data)[at]) : int32_t(static_cast<const uint8_t*>(data)[at])) - zero;
  }
};

/// What is to be multiplied.
struct Q8Window {
  Q8Weights weight;
  int64_t batch = 1;
  Q8Axis rows{1, 1, 1, 1, 0, 1}, columns{1, 1, 1, 1, 0, 1};
  std::vector<Q8Tap> taps;
  int64_t depth = 1, outputs = 1, groups = 1;  // channels of the image and of the result

  explicit Q8Window(const Tensor& weights) : weight(weights) {}
};

/// Appends the step that computes it. `in` and `out` are NHWC; `other` is absent, or added as the posts say.
void add_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Rule& rule,
                 const Q8Posts& posts, const Tensor& input, const Tensor* bias, const Tensor& output, Buffer in,
                 Buffer out, Buffer other);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_GEMM_Q8_HPP
