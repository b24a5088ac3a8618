// Inverted residual blocks. The expanded image is never written as a whole: ring buffers hold a few of its rows for
// each panel.

#ifndef CPUACC_KERNELS_BOTTLENECK_HPP
#define CPUACC_KERNELS_BOTTLENECK_HPP

#include "cpuacc/kernels/depthwise.hpp"
#include "cpuacc/kernels/gemm.hpp"
#include "cpuacc/kernels/pointwise.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Ring buffers for rows of the expanded image.
class ExpandedRows {
 public:
  ExpandedRows(const Bottleneck& b, const float* in, float* memory, float* words)
      : b_(b), image_(in), words_(words), row_(int64_t{b.depthwise.width} * 16), memory_(memory),
        width_(ring_width(b.depthwise)), size_(static_cast<int>(ring_rows(b.depthwise))) {}

  /// Set the padding on both sides of all rows to zero. Later rows do not overwrite it.
  void clear(int block, int blocks) {
    const Depthwise& d = b_.depthwise;
    float* row = at(block, 0);
    for (int n = 0; n < blocks * size_; ++n, row += width_ * 16) {
      memset(row, 0, static_cast<size_t>(d.pad_left) * 64);
      memset(row + (d.pad_left + d.width) * 16, 0, static_cast<size_t>(width_ - d.pad_left - d.width) * 64);
    }
  }

  /// Announce the rows [first, last) of the input image, which `fill` may expand until the next call.
  void see(int first, int last) {
    const int64_t image_block = b_.depthwise.height * row_;
    in_ = image_ + first * row_, in_block_ = image_block, first_ = first;
    if (!kBfloat16Pairs || first >= last) return;
    in_block_ = (last - first) * row_;
    pack_words(in_, image_block, b_.expand.depth, (last - first) * b_.depthwise.width, words_, in_block_);
    in_ = words_;
  }

  void fill(int block, int blocks, int y) {
    const Depthwise& d = b_.depthwise;
    const Gemm& p = b_.expand;
    MicroKernelArgs t{};
    t.a = in_ + (y - first_) * row_;
    t.a_block = in_block_;
    t.taps = kNoTaps;
    t.tap_count = t.window = 1;
    t.positions = kNoTaps;
    t.depth = words_of(p.depth);
    t.b = p.weights + int64_t{block} * 16 * t.depth;
    t.bias = p.bias + block * 16;
    t.c = at(block, y) + d.pad_left * 16;
    t.c_block = size_ * width_ * 16;
    t.c_pixel = 16;
    t.low = p.epilogue.low;
    t.high = p.epilogue.high;
    t.prefetch = reinterpret_cast<const char*>(t.b + int64_t{blocks} * 16 * t.depth);
    run_micro_kernels<16>(t, d.width, vectors_of_panel_at(p, block, blocks), 16, p.epilogue);
  }

  float* at(int block, int y) const { return memory_ + (int64_t{block} * size_ + y % size_) * width_ * 16; }

 private:
  const Bottleneck& b_;
  const float *image_, *in_ = nullptr;
  float* words_;
  int64_t row_, in_block_ = 0;
  int first_ = 0;
  float* memory_;
  int64_t width_;
  int size_;
};

inline void depthwise_block_rows(const Depthwise& c, DepthwiseRow& d, int block, int rows, float* out) {
  d.weights = c.weights + int64_t{block} * c.kernel_height * c.kernel_width * 16;
  d.bias = c.bias + block * 16;
  d.out = out;
  d.pixel = 16;
  d.lanes = lanes_of_block(c, block);
  depthwise_rows(d, c, rows);
  if (c.epilogue.count) apply_post_ops(c.epilogue, out, nullptr, 0, 16, rows * c.out_width, 1);
}

/// Compute rows [first, last) of the depthwise convolution of one panel. `next` is the first row that is not yet
/// expanded.
void expanded_rows(const Bottleneck& b, ExpandedRows& expanded, int block, int blocks, int first, int last, int next,
                   float* out, int64_t out_block) {
  const Depthwise& c = b.depthwise;
  DepthwiseRow d{};
  d.width = c.out_width;
  d.low = c.epilogue.low;
  d.high = c.epilogue.high;
  for (int y = first; y < last; ++y) {
    int top = y * c.stride_y - c.pad_top, bottom = top + (c.kernel_height - 1) * c.dilation_y;
    for (; next <= bottom && next < c.height; ++next) expanded.fill(block, blocks, next);
    for (int n = block; n < block + blocks; ++n) {
      for (int r = 0; r < c.kernel_height; ++r) {
        int row = top + r * c.dilation_y;
        d.rows[r] = row < 0 || row >= c.height ? nullptr : expanded.at(n, row);
      }
      depthwise_block_rows(c, d, n, 1, out + (n - block) * out_block + int64_t{y - first} * c.out_width * 16);
    }
  }
}

void copied_rows(const Depthwise& c, const float* in, float* memory, int block, int first, int last, float* out) {
  DepthwiseRow d{};
  d.width = c.out_width;
  d.low = c.epilogue.low;
  d.high = c.epilogue.high;
  RowRing ring(c, in + int64_t{block} * c.height * c.width * 16, memory, block, 0, first * c.stride_y - c.pad_top);
  for (int y = first, rows; y < last; y += rows, out += int64_t{rows} * c.out_width * 16) {
    rows = ring.see(d, y, last);
    depthwise_block_rows(c, d, block, rows, out);
  }
}

void bottleneck(const Bottleneck& b, const float* in, float* out, const float* residual, float* scratch,
                const OutputRange& range) {
  const Depthwise& c = b.depthwise;
  const bool projects = b.project.weights, expands = b.expand.weights;
  const int strip = projects ? b.strip : range.row_end - range.row;
  const int64_t row_size = int64_t{c.out_width} * 16, image = c.out_height * row_size;
  float* rows = scratch;
  float* rings = scratch + (projects ? int64_t{b.strip} * row_size * c.blocks : 0);
  ExpandedRows expanded(b, in, rings, scratch + scratch_of(b));
  if (expands) expanded.clear(range.block, range.block_end - range.block);
  int top = range.row * c.stride_y - c.pad_top, next = top < 0 ? 0 : top;
  for (int first = range.row; first < range.row_end; first += strip) {
    int last = first + strip < range.row_end ? first + strip : range.row_end;
    int64_t out_block = projects ? strip * row_size : image;
    const int bottom = (last - 1) * c.stride_y - c.pad_top + (c.kernel_height - 1) * c.dilation_y;
    if (expands) expanded.see(next, bottom + 1 < c.height ? bottom + 1 : c.height);
    for (int block = range.block; block < range.block_end;) {
      int blocks = expands ? blocks_of_panel_at(block, c.blocks) : 1;
      float* to = (projects ? rows : out + first * row_size) + block * out_block;
      if (expands)
        expanded_rows(b, expanded, block, blocks, first, last, next, to, out_block);
      else
        copied_rows(c, in, rings, block, first, last, to);
      block += blocks;
    }
    next = bottom + 1 > next ? (bottom + 1 < c.height ? bottom + 1 : c.height) : next;
    if (projects && kBfloat16Pairs)
      pack_words(rows, out_block, b.project.depth, (last - first) * c.out_width, rows, out_block);
    if (projects)
      gemm(b.project, rows, out_block, out + first * row_size, {image, row_size, 16},
           residual ? residual + first * row_size : nullptr, {0, (last - first) * c.out_width, 0, b.project.blocks});
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_BOTTLENECK_HPP
