// Depthwise convolutions: every channel by itself, blocks of 16 channels at a time, over padded rows.

#ifndef CPUACC_KERNELS_DEPTHWISE_HPP
#define CPUACC_KERNELS_DEPTHWISE_HPP

#include <string.h>

#include "cpuacc/kernels/functions.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kMostRows = 64;  // rows of a window

/// One row of output, one block: `rows` are the padded input rows under the window, nullptr where they are all zero.
struct DepthwiseRow {
  const float* rows[kMostRows];
  const float* weights;  // [tap][16]
  const float* bias;
  const float* residual;
  float* out;
  int width;
  float low, high;
};

/// kOut neighbours of one row, one vector of channels; the columns under them are read once.
template <int kWindow, int kStride, int kOut>
CPUACC_INLINE void depthwise_tile(const DepthwiseRow& d, int kernel_height, int x, int v) {
  Vec sums[kOut];
  Vec bias = load(d.bias + v);
#pragma GCC unroll 16
  for (int i = 0; i < kOut; ++i) sums[i] = bias;
  const float* w = d.weights + v;
  for (int r = 0; r < kernel_height; ++r, w += kWindow * 16) {
    if (!d.rows[r]) continue;
    const float* p = d.rows[r] + x * kStride * 16 + v;
    Vec weights[kWindow];
#pragma GCC unroll 8
    for (int k = 0; k < kWindow; ++k) weights[k] = load(w + k * 16);
#pragma GCC unroll 32
    for (int column = 0; column < (kOut - 1) * kStride + kWindow; ++column) {
      Vec seen = load(p + column * 16);
#pragma GCC unroll 8
      for (int k = 0; k < kWindow; ++k)
        if (column >= k && (column - k) % kStride == 0 && (column - k) / kStride < kOut)
          sums[(column - k) / kStride] += seen * weights[k];
    }
  }
  float* out = d.out + x * 16 + v;
  Vec low = all(d.low), high = all(d.high);
#pragma GCC unroll 16
  for (int i = 0; i < kOut; ++i) {
    if (d.residual) sums[i] += load(d.residual + (x + i) * 16 + v);
    store(out + i * 16, at_most(at_least(sums[i], low), high));
  }
}

template <int kWindow, int kStride>
__attribute__((noinline)) void depthwise_row(const DepthwiseRow& d, int kernel_height) {
  constexpr int kMost = kRegisters == 32 ? 14 : 7;
  for (int v = 0; v < 16; v += kLanes) {
    int x = 0;
    for (; x + kMost <= d.width; x += kMost) depthwise_tile<kWindow, kStride, kMost>(d, kernel_height, x, v);
    if (kMost > 7 && x + 7 <= d.width) depthwise_tile<kWindow, kStride, 7>(d, kernel_height, x, v), x += 7;
    if (x + 4 <= d.width) depthwise_tile<kWindow, kStride, 4>(d, kernel_height, x, v), x += 4;
    for (; x < d.width; ++x) depthwise_tile<kWindow, kStride, 1>(d, kernel_height, x, v);
  }
}

/// Any window, stride and dilation.
__attribute__((noinline)) void depthwise_row_any(const DepthwiseRow& d, const Depthwise& c) {
  for (int v = 0; v < 16; v += kLanes)
    for (int x = 0; x < c.out_width; ++x) {
      Vec sum = load(d.bias + v);
      const float* w = d.weights + v;
      for (int r = 0; r < c.kernel_height; ++r) {
        if (!d.rows[r]) {
          w += c.kernel_width * 16;
          continue;
        }
        const float* p = d.rows[r] + x * c.stride_x * 16 + v;
        for (int k = 0; k < c.kernel_width; ++k, w += 16) sum += load(p + k * c.dilation_x * 16) * load(w);
      }
      if (d.residual) sum += load(d.residual + x * 16 + v);
      store(d.out + x * 16 + v, at_most(at_least(sum, all(d.low)), all(d.high)));
    }
}

inline void depthwise_row(const DepthwiseRow& d, const Depthwise& c) {
  bool dense = c.dilation_x == 1 && c.stride_x <= 2;
  if (dense && c.kernel_width == 3)
    c.stride_x == 1 ? depthwise_row<3, 1>(d, c.kernel_height) : depthwise_row<3, 2>(d, c.kernel_height);
  else if (dense && c.kernel_width == 5)
    c.stride_x == 1 ? depthwise_row<5, 1>(d, c.kernel_height) : depthwise_row<5, 2>(d, c.kernel_height);
  else
    depthwise_row_any(d, c);
}

/// Rows of one block of channels, copied as they are needed, with zeros beside them.
class Ring {
 public:
  Ring(const Depthwise& c, const float* image, float* memory, int first)
      : c_(c), image_(image), memory_(memory), width_(ring_width(c)), size_(static_cast<int>(ring_rows(c))),
        next_(first < 0 ? 0 : first) {}

  /// Not before one that was asked for; nullptr outside of the image.
  const float* row(int y) {
    if (y < 0 || y >= c_.height) return nullptr;
    for (; next_ <= y; ++next_) fill(memory_ + next_ % size_ * width_ * 16);
    return memory_ + y % size_ * width_ * 16;
  }

 private:
  void fill(float* to) const {
    float* behind = to + (c_.pad_left + c_.width) * 16;
    memset(to, 0, static_cast<size_t>(c_.pad_left) * 64);
    memcpy(to + c_.pad_left * 16, image_ + int64_t{next_} * c_.width * 16, static_cast<size_t>(c_.width) * 64);
    memset(behind, 0, static_cast<size_t>(width_ - c_.pad_left - c_.width) * 64);
  }

  const Depthwise& c_;
  const float* image_;
  float* memory_;
  int64_t width_;
  int size_, next_;
};

/// Rows [first, last) of all rows of all blocks.
void depthwise(const Depthwise& c, const float* in, float* out, const float* residual, float* scratch, int64_t first,
               int64_t last) {
  DepthwiseRow d{};
  d.width = c.out_width;
  d.low = c.finish.low;
  d.high = c.finish.high;
  const int64_t row_size = int64_t{c.out_width} * 16;
  for (int64_t done = first; done < last;) {
    int block = static_cast<int>(done / c.out_height), y = static_cast<int>(done % c.out_height);
    int end = last - done < c.out_height - y ? y + static_cast<int>(last - done) : c.out_height;
    d.weights = c.weights + int64_t{block} * c.kernel_height * c.kernel_width * 16;
    d.bias = c.bias + block * 16;
    Ring ring(c, in + int64_t{block} * c.height * c.width * 16, scratch, y * c.stride_y - c.pad_top);
    for (; y < end; ++y, ++done) {
      for (int r = 0; r < c.kernel_height; ++r) d.rows[r] = ring.row(y * c.stride_y - c.pad_top + r * c.dilation_y);
      d.out = out + done * row_size;
      const float* added = residual ? residual + done * row_size : nullptr;
      d.residual = c.finish.count ? nullptr : added;
      depthwise_row(d, c);
      if (c.finish.count) finish(c.finish, d.out, added, 0, 16, c.out_width, 1);
    }
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_DEPTHWISE_HPP
