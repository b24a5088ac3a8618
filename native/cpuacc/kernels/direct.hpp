// Direct convolutions. Strips of the padded image are copied to scratch memory, from which the micro-kernel reads all
// taps.

#ifndef CPUACC_KERNELS_DIRECT_HPP
#define CPUACC_KERNELS_DIRECT_HPP

#include <string.h>

#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/kernels/gemm.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// The layout of a strip. Rows and columns of the padded image are grouped by their remainder modulo the stride (their
/// phase), so that neighbouring outputs read neighbouring inputs. Only the phases that a tap reads exist.
struct Strip {
  explicit Strip(const Convolution& c)
      : row_phases(phases(c.kernel_height, c.dilation_y, c.stride_y)),
        column_phases(phases(c.kernel_width, c.dilation_x, c.stride_x)),
        rows(c.strip + (c.kernel_height - 1) * c.dilation_y / c.stride_y),
        columns(c.out_width + (c.kernel_width - 1) * c.dilation_x / c.stride_x) {}

  static int phases(int kernel, int dilation, int stride) {
    int most = (kernel - 1) * dilation + 1;
    return most < stride ? most : stride;
  }
  int64_t channel() const { return int64_t{row_phases} * column_phases * rows * columns; }

  int row_phases, column_phases, rows, columns;
};

/// The columns [first, last) of a phase that lie inside of the image.
struct Inside {
  Inside(int phase, int stride, int pad, int width, int columns) {
    first = pad > phase ? (pad - phase + stride - 1) / stride : 0;
    last = width + pad > phase ? (width + pad - phase + stride - 1) / stride : 0;
    if (first > columns) first = columns;
    if (last > columns) last = columns;
    if (last < first) last = first;
  }
  int first, last;
};

/// Copy floats that are `step` apart. The steps that networks commonly have are compile-time constants.
inline void copy_every(const float* from, int64_t step, int count, float* to) {
  if (step == 1) {
    for (int n = 0; n < count; ++n) to[n] = from[n];
  } else if (step == 2) {
    for (int n = 0; n < count; ++n) to[n] = from[n * 2];
  } else if (step == 6) {
    for (int n = 0; n < count; ++n) to[n] = from[n * 6];
  } else {
    for (int n = 0; n < count; ++n) to[n] = from[n * step];
  }
}

/// Set `count` pixels of a channel or a block to zero.
template <int kStep>
CPUACC_INLINE void clear(float* to, int count) {
  if (kBfloat16Pairs && kStep == 16)
    for (int n = 0; n < count; ++n) store_words(to + n * 16, Vec{});
  else
    memset(to, 0, sizeof(float) * kStep * static_cast<size_t>(count));
}

/// Copy one row of one phase. `from` is column 0 of the row of the image, or nullptr for a row of padding. `channels`
/// of the block are valid.
template <int kStep>
CPUACC_INLINE void copy_row(const Convolution& c, const float* from, int64_t pixel, int phase, int columns,
                            int channels, float* to) {
  Inside inside(phase, c.stride_x, c.pad_left, c.width, columns);
  if (!from || inside.first == inside.last) {
    clear<kStep>(to, columns);
    return;
  }
  clear<kStep>(to, inside.first);
  const float* x = from + (inside.first * c.stride_x + phase - c.pad_left) * pixel;
  if (kStep == 1) {
    copy_every(x, c.stride_x * pixel, inside.last - inside.first, to + inside.first);
  } else {
    for (int column = inside.first; column < inside.last; ++column, x += c.stride_x * pixel)
      for (int v = 0; v < kStep; v += kLanes) store_words(to + column * kStep + v, only(load(x + v), channels));
  }
  clear<kStep>(to + inside.last * kStep, columns - inside.last);
}

template <int kStep>
CPUACC_INLINE void copy_channel(const Convolution& c, const Strip& strip, const float* image, int64_t row,
                                int64_t pixel, int first_row, int channels, float* to) {
  for (int y_phase = 0; y_phase < strip.row_phases; ++y_phase)
    for (int x_phase = 0; x_phase < strip.column_phases; ++x_phase)
      for (int r = 0; r < strip.rows; ++r, to += strip.columns * kStep) {
        int y = (first_row + r) * c.stride_y + y_phase - c.pad_top;
        copy_row<kStep>(c, y >= 0 && y < c.height ? image + y * row : nullptr, pixel, x_phase, strip.columns, channels,
                        to);
      }
}

inline const float* plane(const InputStrides& p, const float* in, int channel) {
  int64_t at = p.first_channel + channel;
  return in + (p.channel_block ? at / 16 * p.channel_block + at % 16 : at * p.channel);
}

template <int kStep>
void direct_strips(const Convolution& c, const float* in, const InputStrides& in_strides, float* out,
                   const OutputStrides& out_strides, const float* residual, float* scratch, const OutputRange& range) {
  const Strip strip(c);
  const Gemm& p = c.gemm;
  const int count = c.kernel_height * c.kernel_width * (kStep == 1 ? p.depth : 1);
  const bool flat = strip.columns == c.out_width && out_strides.row == c.out_width * out_strides.pixel;
  MicroKernelArgs t{};
  t.a_block = strip.channel() * kStep;
  t.taps = c.taps;
  t.tap_count = count;
  t.depth = kStep == 1 ? 1 : words_of(p.depth);
  t.c_block = out_strides.block;
  t.c_pixel = out_strides.pixel;
  t.low = p.epilogue.low;
  t.high = p.epilogue.high;
  for (int row = range.row; row < range.row_end; row += c.strip) {
    int rows = range.row_end - row < c.strip ? range.row_end - row : c.strip;
    for (int channel = 0; channel < p.depth; channel += kStep)
      copy_channel<kStep>(c, strip, plane(in_strides, in, channel), in_strides.row, in_strides.pixel, row,
                          p.depth - channel < 16 ? p.depth - channel : 16,
                          scratch + (kStep == 1 ? channel * t.a_block : place_of_block(channel / 16, t.a_block)));
    for (int block = range.block; block < range.block_end;) {
      int blocks = blocks_of_panel_at(block, p.blocks);
      int64_t size = int64_t{blocks} * 16 * t.depth * count;
      t.b = p.weights + int64_t{block} * 16 * t.depth * count;
      t.bias = p.bias + block * 16;
      t.prefetch = reinterpret_cast<const char*>(t.b + size);
      int most = mr_of_panel(blocks),
          tiles = flat ? (rows * c.out_width + most - 1) / most : rows * ((c.out_width + most - 1) / most);
      t.prefetch_step = (blocks * 64 + tiles - 1) / tiles;
      for (int r = 0; r < rows; r += flat ? rows : 1) {
        int64_t to = block * out_strides.block + (row + r) * out_strides.row;
        t.a = scratch + int64_t{r} * strip.columns * kStep;
        t.c = out + to;
        t.residual = residual ? residual + to : nullptr;
        run_micro_kernels<kStep>(t, flat ? rows * c.out_width : c.out_width, blocks, kStep, p.epilogue);
      }
      block += blocks;
    }
  }
}

void direct(const Convolution& c, const float* in, const InputStrides& in_strides, float* out,
            const OutputStrides& out_strides, const float* residual, float* scratch, const OutputRange& range) {
  if (c.planar)
    direct_strips<1>(c, in, in_strides, out, out_strides, residual, scratch, range);
  else
    direct_strips<16>(c, in, in_strides, out, out_strides, residual, scratch, range);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_DIRECT_HPP
