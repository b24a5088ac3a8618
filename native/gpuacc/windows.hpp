// Sliding windows, as the kernels of convolutions and pooling get them.

#ifndef GPUACC_WINDOWS_HPP
#define GPUACC_WINDOWS_HPP

#include "gpuacc/pointwise.hpp"

namespace gpuacc {

/// The parameters of kernels for the movement of a window, and their values.
constexpr char kWindow[] = "int SY, int SX, int DY, int DX, int PT, int PL";
inline std::vector<Argument> window_arguments(const ipr::Layer& layer) {
  return {number(layer.integer("stride_y")),      number(layer.integer("stride_x")),
          number(layer.integer("dilation_y", 1)), number(layer.integer("dilation_x", 1)),
          number(layer.integer("pad_top")),       number(layer.integer("pad_left"))};
}

/// The weights of a convolution: sizes and distances between elements.
struct Weights {
  Weights(const ipr::Layer& layer, bool depthwise) {
    const Shape shape = shape_of(layer.input(1));
    if (depthwise) {
      o = shape[3], i = 1, h = shape[1], w = shape[2];
      by_o = 1, by_i = 0, by_x = o, by_y = o * w;
      return;
    }
    const Image image(shape, channels_last(layer));
    o = image.n, i = image.c, h = image.h, w = image.w;
    by_o = i * h * w, by_i = image.by_c, by_x = image.by_x, by_y = by_x * w;
  }
  int64_t o, i, h, w;
  int64_t by_o, by_i, by_y, by_x;
};

/// Which elements of the input, and which weights, meet in a result of one work item; parts of the kernel below.
struct Meeting {
  const char* row;     // declares iy, and leaves rows outside of the image out
  const char* column;  // the same for ix
  const char* weight;  // the index of the weight of the first channel
  const char* inside;  // whether the element is in the image; all others are 0
};

constexpr Meeting kForward = {R"(const int iy = oy * SY - PT + ky * DY;
    if (iy < 0 || iy >= H) continue;)",
                              R"(const int ix = ox * SX - PL + kx * DX;
      if (ix < 0 || ix >= W) continue;)",
                              "o * wo", "1"};
/// The same with padding, for weights that may be infinite or NaN, whose products with 0 are NaN.
constexpr Meeting kWithPadding = {"const int iy = oy * SY - PT + ky * DY;", "const int ix = ox * SX - PL + kx * DX;",
                                  "o * wo", "iy >= 0 && iy < H && ix >= 0 && ix < W"};
constexpr Meeting kTransposed = {R"(const int ty = oy + PT - ky * DY, iy = ty / SY;
    if (ty < 0 || iy * SY != ty || iy >= H) continue;)",
                                 R"(const int tx = ox + PL - kx * DX, ix = tx / SX;
      if (tx < 0 || ix * SX != tx || ix >= W) continue;)",
                                 "o % OG * wo + c0 * wi", "1"};

/// Refuse paddings, strides and dilations of images and volumes whose products may exceed 32 bits.
ipr::Verdict window_support(const ipr::Layer& layer);
/// Loads of the operands of a chain for a block of channels `cb` of the pixel `at`.
std::string loads_in_blocks(const Chain& chain);

// In lower/winograd.cpp
/// Whether a convolution can be computed by Winograd's algorithm, and has enough channels for it.
bool has_winograd_form(const ipr::Layer& layer, const Plan& plan);
/// Whether it is faster that way, by a rule that was found on processors.
bool suits_winograd(const ipr::Layer& layer, const Plan& plan);
/// Compute a convolution of this form; `bias` is a buffer of floats.
void convolve_by_winograd(const ipr::Layer& layer, Plan& plan, int bias);

/// The window of a pooling: its sizes, then as `window_arguments`, then the padding at the end.
struct PoolWindow {
  PoolWindow(const ipr::Layer& layer, const Image& in)
      : counts_padding(layer.text("padding_method") == "IGNORE_VALUE"), height(layer.integer("pool_height")),
        width(layer.integer("pool_width")), sy(std::max<int64_t>(layer.integer("stride_y"), 1)),
        sx(std::max<int64_t>(layer.integer("stride_x"), 1)), dy(layer.integer("dilation_y", 1)),
        dx(layer.integer("dilation_x", 1)), top(layer.integer("pad_top")), left(layer.integer("pad_left")),
        bottom(layer.integer("pad_bottom")), right(layer.integer("pad_right")) {
    if (height == 0) height = in.h, sy = dy = 1, top = bottom = 0;
    if (width == 0) width = in.w, sx = dx = 1, left = right = 0;
  }

  std::vector<Argument> arguments() const {
    return {number(height), number(width), number(sy),   number(sx),     number(dy),
            number(dx),     number(top),   number(left), number(bottom), number(right)};
  }

  bool counts_padding;
  int64_t height, width, sy, sx, dy, dx, top, left, bottom, right;
};

}  // namespace gpuacc

#endif  // GPUACC_WINDOWS_HPP
