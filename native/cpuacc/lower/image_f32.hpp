// Helpers of the lowerings of float32 convolutions.

#ifndef CPUACC_LOWER_IMAGE_F32_HPP
#define CPUACC_LOWER_IMAGE_F32_HPP

#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/lower/epilogue_f32.hpp"
#include "cpuacc/lower/pack_f32.hpp"

namespace cpuacc {

inline const ConvKernels& kernels_for(const Settings& settings) {
  return conv_kernels_for(settings.isa, settings.fast_math);
}
inline bool channels_last(const Node& node) { return node.text("data_layout") == "NHWC"; }
inline Layout blocked(const Node& node) { return channels_last(node) ? Layout::blocked_nhwc : Layout::blocked_nchw; }

/// The dimensions of an image tensor by name.
struct Image {
  Image(const Tensor& tensor, bool channels_last)
      : n(tensor.extent(0)), c(tensor.extent(channels_last ? 3 : 1)), h(tensor.extent(channels_last ? 1 : 2)),
        w(tensor.extent(channels_last ? 2 : 3)), plain(tensor.layout == Layout::plain), last(channels_last) {}

  int64_t floats() const { return (plain ? c : blocks_of(c) * 16) * h * w; }
  InputStrides strides() const {
    if (!plain) return {0, w * 16, 16, h * w * 16, 0};
    return last ? InputStrides{1, w * c, c, 0, 0} : InputStrides{h * w, w, 1, 0, 0};
  }

  int64_t n, c, h, w;
  bool plain, last;
};

/// Weights (O, KH, KW, I) or, with channels first, (O, I, KH, KW).
inline Weights weights_of(const Tensor& tensor, bool channels_last, int64_t outputs, int64_t inputs) {
  int64_t taps = channels_last ? tensor.extent(1) * tensor.extent(2) : tensor.extent(2) * tensor.extent(3);
  int64_t all_inputs = tensor.extent(channels_last ? 3 : 1);
  if (channels_last) return {tensor.values<float>(), outputs, inputs, taps, taps * all_inputs, 1, all_inputs};
  return {tensor.values<float>(), outputs, inputs, taps, taps * all_inputs, taps, 1};
}

/// The bias of some output channels, padded with zeros to blocks; zeros if there is no bias.
const float* pack_bias(const Tensor* bias, int64_t first, int64_t count, Builder& builder);

/// Refuse constant weights with infinities or NaNs. `because` completes the message "weights hold infinities or NaNs,
/// ...".
Refusal finite_weights(const Graph& graph, const Node& node, const char* because);

/// Append the step of a Convolution2d of blocked images as a direct convolution.
void lower_direct_convolution(const Node& node, Builder& builder);

/// The parameters of a supported DepthwiseConvolution2d, with packed weights.
Depthwise make_depthwise(const Node& node, Builder& builder);

/// The layouts of a convolution with blocked input, result and residual.
Layouts blocked_layouts(const Graph& graph, const Node& node, const Settings&);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_IMAGE_F32_HPP
