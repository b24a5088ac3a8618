// Depthwise convolutions: each channel by itself, in blocks of 16 channels.

#ifndef CPUACC_KERNELS_DEPTHWISE_HPP
#define CPUACC_KERNELS_DEPTHWISE_HPP

#include <string.h>

#include "cpuacc/kernels/activations.hpp"
#include "cpuacc/kernels/conv_f32.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kMaxRows = 64;  // of a window

/// The operands of one row of output of one block. `rows` are the input rows under the window; nullptr stands for a row
/// of zeros. If `columns` is 0, a row begins with the first column that the first window reads, and includes the
/// padding. Otherwise it is a row of `columns` columns of the image, the first window begins `before` columns before
/// it, and columns outside of it are zero.
struct DepthwiseRow {
  const float* rows[kMaxRows + 1];
  int before, columns;
  const float* weights;  // [tap][16]
  const float* bias;
  const float* residual;
  float* out;
  int width;
  float low, high;
};

alignas(64) constexpr float kZeros[16] = {};

/// Add the products of input row `r`, counted from the first output row, to the sums of output rows [kFirst, kLast).
template <int kWindow, int kStride, int kOut, int kFirst, int kLast, int kRows>
CPUACC_INLINE void depthwise_taps(const DepthwiseRow& d, int r, int x, int v, Vec (&sums)[kRows][kOut]) {
  constexpr int kSeen = (kOut - 1) * kStride + kWindow, kMaxBeside = kWindow / 2;
  const int left = d.columns ? d.before - x * kStride : 0, right = d.columns ? left + d.columns : kSeen;
  const float* p = d.rows[r] + (x * kStride - d.before) * 16 + v;
  Vec weights[kRows][kWindow];
#pragma GCC unroll 2
  for (int y = kFirst; y < kLast; ++y)
#pragma GCC unroll 8
    for (int k = 0; k < kWindow; ++k) weights[y][k] = load(d.weights + ((r - y) * kWindow + k) * 16 + v);
#pragma GCC unroll 32
  for (int column = 0; column < kSeen; ++column) {
    const bool outside = (column < kMaxBeside && column < left) || (column >= kSeen - kMaxBeside && column >= right);
    Vec seen = load(outside ? kZeros : p + column * 16);
#pragma GCC unroll 2
    for (int y = kFirst; y < kLast; ++y)
#pragma GCC unroll 8
      for (int k = 0; k < kWindow; ++k)
        if (column >= k && (column - k) % kStride == 0 && (column - k) / kStride < kOut)
          sums[y][(column - k) / kStride] += seen * weights[y][k];
  }
}

/// Compute kOut neighbouring outputs of kRows rows for one vector of channels. Each input is loaded once. Two rows are
/// one row of the image apart.
template <int kWindow, int kStride, int kOut, int kRows = 1>
CPUACC_INLINE void depthwise_tile(const DepthwiseRow& d, int kernel_height, int x, int v) {
  Vec sums[kRows][kOut];
  Vec bias = load(d.bias + v);
#pragma GCC unroll 2
  for (int y = 0; y < kRows; ++y)
#pragma GCC unroll 16
    for (int i = 0; i < kOut; ++i) sums[y][i] = bias;
  if (kRows == 2 && d.rows[0]) depthwise_taps<kWindow, kStride, kOut, 0, 1>(d, 0, x, v, sums);
  for (int r = kRows - 1; r < kernel_height; ++r)
    if (d.rows[r]) depthwise_taps<kWindow, kStride, kOut, 0, kRows>(d, r, x, v, sums);
  if (kRows == 2 && d.rows[kernel_height])
    depthwise_taps<kWindow, kStride, kOut, kRows - 1, kRows>(d, kernel_height, x, v, sums);
  Vec low = broadcast(d.low), high = broadcast(d.high);
#pragma GCC unroll 2
  for (int y = 0; y < kRows; ++y) {
    const int64_t at = (int64_t{y} * d.width + x) * 16 + v;
#pragma GCC unroll 16
    for (int i = 0; i < kOut; ++i) {
      if (d.residual) sums[y][i] += load(d.residual + at + i * 16);
      store(d.out + at + i * 16, at_most(at_least(sums[y][i], low), high));
    }
  }
}

template <int kWindow, int kStride>
__attribute__((noinline)) void depthwise_row(const DepthwiseRow& d, int kernel_height) {
  constexpr int kMax = kRegisters == 32 ? 14 : 7;
  for (int v = 0; v < 16; v += kLanes) {
    int x = 0;
    for (; x + kMax <= d.width; x += kMax) depthwise_tile<kWindow, kStride, kMax>(d, kernel_height, x, v);
    if (kMax > 7 && x + 7 <= d.width) depthwise_tile<kWindow, kStride, 7>(d, kernel_height, x, v), x += 7;
    switch (d.width - x) {
      case 6:
        depthwise_tile<kWindow, kStride, 6>(d, kernel_height, x, v);
        break;
      case 5:
        depthwise_tile<kWindow, kStride, 5>(d, kernel_height, x, v);
        break;
      case 4:
        depthwise_tile<kWindow, kStride, 4>(d, kernel_height, x, v);
        break;
      case 3:
        depthwise_tile<kWindow, kStride, 3>(d, kernel_height, x, v);
        break;
      case 2:
        depthwise_tile<kWindow, kStride, 2>(d, kernel_height, x, v);
        break;
      case 1:
        depthwise_tile<kWindow, kStride, 1>(d, kernel_height, x, v);
    }
  }
}

/// Compute two rows of up to 7 outputs of a 3x3 window with stride 1.
__attribute__((noinline)) void depthwise_two_rows(const DepthwiseRow& d) {
  for (int v = 0; v < 16; v += kLanes) {
    switch (d.width) {
      case 7:
        depthwise_tile<3, 1, 7, 2>(d, 3, 0, v);
        break;
      case 6:
        depthwise_tile<3, 1, 6, 2>(d, 3, 0, v);
        break;
      case 5:
        depthwise_tile<3, 1, 5, 2>(d, 3, 0, v);
        break;
      case 4:
        depthwise_tile<3, 1, 4, 2>(d, 3, 0, v);
        break;
      case 3:
        depthwise_tile<3, 1, 3, 2>(d, 3, 0, v);
        break;
      case 2:
        depthwise_tile<3, 1, 2, 2>(d, 3, 0, v);
        break;
      default:
        depthwise_tile<3, 1, 1, 2>(d, 3, 0, v);
    }
  }
}

/// Compute a row for any window, stride and dilation.
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
      store(d.out + x * 16 + v, at_most(at_least(sum, broadcast(d.low)), broadcast(d.high)));
    }
}

inline bool is_dense(const Depthwise& c) {
  return c.dilation_x == 1 && c.stride_x <= 2 && (c.kernel_width == 3 || c.kernel_width == 5);
}

/// Return whether the window is 3x3 with stride 1.
inline bool is_3x3(const Depthwise& c) {
  return c.kernel_width == 3 && c.kernel_height == 3 && c.stride_x == 1 && c.stride_y == 1 && c.dilation_y == 1;
}

inline void depthwise_row(const DepthwiseRow& d, const Depthwise& c) {
  bool dense = is_dense(c);
  if (dense && c.kernel_width == 3)
    c.stride_x == 1 ? depthwise_row<3, 1>(d, c.kernel_height) : depthwise_row<3, 2>(d, c.kernel_height);
  else if (dense && c.kernel_width == 5)
    c.stride_x == 1 ? depthwise_row<5, 1>(d, c.kernel_height) : depthwise_row<5, 2>(d, c.kernel_height);
  else
    depthwise_row_any(d, c);
}

/// Provides the input rows of one block of channels. These are the rows of the image, or copies with padding in a ring
/// buffer if the kernels need these.
class RowRing {
 public:
  RowRing(const Depthwise& c, const float* image, float* memory, int first)
      : c_(c), image_(image), memory_(memory), width_(ring_width(c)), size_(static_cast<int>(ring_rows(c))),
        next_(first < 0 ? 0 : first), copies_(!is_dense(c) || beside() > c.kernel_width / 2),
        pairs_(!copies_ && kRegisters == 32 && c.out_width <= 7 && is_3x3(c)) {}

  /// Set the input rows of output row y, or of y and the next row. Return the number of output rows that are computed
  /// at once.
  int see(DepthwiseRow& to, int y, int end) {
    const int rows = pairs_ && y + 1 < end ? 2 : 1, top = y * c_.stride_y - c_.pad_top;
    for (int r = 0; r < c_.kernel_height + rows - 1; ++r) to.rows[r] = row(top + r * c_.dilation_y);
    to.before = copies_ ? 0 : c_.pad_left;
    to.columns = copies_ ? 0 : c_.width;
    return rows;
  }

 private:
  /// Return an input row, or nullptr outside of the image. Rows have to be requested in ascending order.
  const float* row(int y) {
    if (y < 0 || y >= c_.height) return nullptr;
    if (!copies_) return image_ + int64_t{y} * c_.width * 16;
    for (; next_ <= y; ++next_) fill(memory_ + next_ % size_ * width_ * 16);
    return memory_ + y % size_ * width_ * 16;
  }

  /// The largest number of columns outside of the image that a window reads on one side.
  int64_t beside() const {
    int64_t behind = int64_t{c_.out_width - 1} * c_.stride_x + c_.kernel_width - c_.pad_left - c_.width;
    return behind > c_.pad_left ? behind : c_.pad_left;
  }

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
  bool copies_, pairs_;
};

/// Compute rows [first, last), counted over all blocks.
void depthwise(const Depthwise& c, const float* in, float* out, const float* residual, float* scratch, int64_t first,
               int64_t last) {
  DepthwiseRow d{};
  d.width = c.out_width;
  d.low = c.epilogue.low;
  d.high = c.epilogue.high;
  const int64_t row_size = int64_t{c.out_width} * 16;
  for (int64_t done = first; done < last;) {
    int block = static_cast<int>(done / c.out_height), y = static_cast<int>(done % c.out_height);
    int end = last - done < c.out_height - y ? y + static_cast<int>(last - done) : c.out_height;
    d.weights = c.weights + int64_t{block} * c.kernel_height * c.kernel_width * 16;
    d.bias = c.bias + block * 16;
    RowRing ring(c, in + int64_t{block} * c.height * c.width * 16, scratch, y * c.stride_y - c.pad_top);
    for (int rows; y < end; y += rows, done += rows) {
      rows = ring.see(d, y, end);
      d.out = out + done * row_size;
      const float* added = residual ? residual + done * row_size : nullptr;
      d.residual = c.epilogue.count ? nullptr : added;
      rows == 2 ? depthwise_two_rows(d) : depthwise_row(d, c);
      if (c.epilogue.count) apply_post_ops(c.epilogue, d.out, added, 0, 16, rows * c.out_width, 1);
    }
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_DEPTHWISE_HPP
