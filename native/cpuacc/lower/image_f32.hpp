// Helpers of the lowerings of float32 convolutions.

#ifndef CPUACC_LOWER_IMAGE_F32_HPP
#define CPUACC_LOWER_IMAGE_F32_HPP

#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/lower/epilogue_f32.hpp"
#include "cpuacc/lower/pack_f32.hpp"
#include "cpuacc/lower/window_f32.hpp"

namespace cpuacc {

inline const ConvKernels& kernels_for(const Settings& settings) {
  return conv_kernels_for(settings.isa, settings.fast_math);
}
inline bool channels_last(const Node& node) { return node.text("data_layout").back() == 'C'; }
inline Layout blocked(const Node& node) { return channels_last(node) ? Layout::blocked_nhwc : Layout::blocked_nchw; }

/// The dimensions of an image or volume by name; an image has one plane.
struct Image {
  Image(const Tensor& tensor, bool channels_last)
      : n(tensor.extent(0)), c(tensor.extent(channels_last ? -1 : 1)),
        d(tensor.rank() == 5 ? tensor.extent(channels_last ? 1 : 2) : 1), h(tensor.extent(channels_last ? -3 : -2)),
        w(tensor.extent(channels_last ? -2 : -1)), plain(tensor.layout == Layout::plain), last(channels_last) {}

  int64_t floats() const { return (plain ? c : blocks_of(c) * 16) * pixels(); }
  int64_t pixels() const { return d * h * w; }
  InputStrides strides() const {
    if (!plain) return {0, w * 16, 16, pixels() * 16, 0, h * w * 16};
    return last ? InputStrides{1, w * c, c, 0, 0, h * w * c} : InputStrides{pixels(), w, 1, 0, 0, h * w};
  }

  int64_t n, c, d, h, w;
  bool plain, last;
};

/// The dimensions of the weights of Convolution2d: (O, KH, KW, I) or, with channels first, (O, I, KH, KW); or of
/// Convolution3d: (KD, KH, KW, I, O).
struct WindowShape {
  WindowShape(const Tensor& weights, bool channels_last)
      : volume(weights.rank() == 5), d(volume ? weights.extent(0) : 1),
        h(weights.extent(volume || channels_last ? 1 : 2)), w(weights.extent(volume || channels_last ? 2 : 3)),
        i(weights.extent(volume || channels_last ? 3 : 1)) {}

  int64_t taps() const { return d * h * w; }

  bool volume;
  int64_t d, h, w, i;
};

/// The weights from all input channels of a group to `outputs` output channels.
inline Weights weights_of(const Tensor& tensor, bool channels_last, int64_t outputs, int64_t inputs) {
  const WindowShape shape(tensor, channels_last);
  const int64_t taps = shape.taps();
  Weights weights{tensor.floats(), outputs, inputs, taps, taps * shape.i, taps, 1};
  if (channels_last) weights.by_input = 1, weights.by_tap = shape.i;
  if (shape.volume)
    weights.by_output = 1, weights.by_input = tensor.extent(4), weights.by_tap = inputs * tensor.extent(4);
  weights.mapped = tensor.is_mapped();
  return weights;
}

/// The bias of some output channels, padded with zeros to blocks; zeros if there is no bias.
const float* pack_bias(const Tensor* bias, int64_t first, int64_t count, Builder& builder);

/// Refuse constant weights with infinities or NaNs. `because` completes the message "weights hold infinities or NaNs,
/// ...".
Refusal finite_weights(const Graph& graph, const Node& node, const char* because);

/// Return whether all weights are finite. The answer is packed, so that a restored program need not read the weights.
bool packed_finite(const Tensor& weights, Builder& builder);

/// The channels of one group.
struct GroupChannels {
  int64_t first_input, inputs, outputs;
};

/// Append the weights of one group of a transposed convolution at one phase, as [output][input][cell].
void append_phase(std::vector<float>& to, const Tensor& weights, bool channels_last, const GroupChannels& group,
                  const TransposedPhase& rows, const TransposedPhase& columns);

/// A copy of a table that lives as long as the program.
template <class T>
const T* packed_copy(const std::vector<T>& table, Builder& builder) {
  return static_cast<const T*>(builder.pack(
      table.size() * sizeof(T), [&](void* to) { std::memcpy(to, table.data(), table.size() * sizeof(T)); }));
}

/// Append the step of a Convolution2d of blocked images as a direct convolution.
void lower_direct_convolution(const Node& node, Builder& builder);

/// The parameters of a supported DepthwiseConvolution2d or convolution in groups, with packed weights.
Depthwise make_depthwise(const Node& node, Builder& builder);

/// The layouts of a convolution with blocked input, result and residual.
Layouts blocked_layouts(const Graph& graph, const Node& node, const Settings&);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_IMAGE_F32_HPP
