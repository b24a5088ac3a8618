// Direct convolutions. The micro-kernel reads all taps of a tile from the image, or from a strip: some rows of the
// padded image that are copied to scratch memory.

#ifndef CPUACC_KERNELS_DIRECT_HPP
#define CPUACC_KERNELS_DIRECT_HPP

#include <string.h>

#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/kernels/gemm.hpp"
#include "cpuacc/kernels/transpose.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// The positions [first, last) of a slot of columns that lie inside of the image. Position p reads column p * stride +
/// `base` - pad.
struct Inside {
  Inside(int base, int stride, int pad, int width, int columns) {
    first = pad > base ? (pad - base + stride - 1) / stride : 0;
    last = width + pad > base ? (width + pad - base + stride - 1) / stride : 0;
    if (first > columns) first = columns;
    if (last > columns) last = columns;
    if (last < first) last = first;
  }
  int first, last;
};

/// The elements [first, last) of a window that meet the image from one of the positions [position, last_position].
/// Those between them may only read padding.
struct Live {
  Live(int kernel, int stride, int dilation, int pad, int size, int position, int last_position) {
    int before = pad - last_position * stride, after = size - 1 + pad - position * stride;
    first = before > 0 ? (before + dilation - 1) / dilation : 0;
    last = after < 0 ? 0 : after / dilation + 1;
    if (last > kernel) last = kernel;
    if (first > last) first = last;
  }
  int first, last;
};

inline Live live_planes(const Convolution& c, int z) {
  Live live(c.kernel_depth, c.stride_z, c.dilation_z, c.pad_front, c.depth, z, z);
  if (!c.drops) live.first = 0, live.last = c.kernel_depth;
  return live;
}

inline Live live_rows(const Convolution& c, int y, int last) {
  Live live(c.kernel_height, c.stride_y, c.dilation_y, c.pad_top, c.height, y, last);
  if (!c.drops) live.first = 0, live.last = c.kernel_height;
  return live;
}

#if defined(__aarch64__)
/// The floats 0, 6, 12 and 18 of 24: a channel of every second pixel with three channels.
CPUACC_INLINE Vec every_sixth(const float* from) {
  return vuzp1q_f32(vld3q_f32(from).val[0], vld3q_f32(from + 12).val[0]);
}
#endif

/// Copy floats that are `step` apart. The steps that networks commonly have are compile-time constants.
inline void copy_every(const float* from, int64_t step, int count, float* to) {
#if defined(__aarch64__)
  for (; step == 6 && count > 4; count -= 4, from += 24, to += 4) store(to, every_sixth(from));
#endif
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

/// Set `count` pixels of a channel or a block to zero. Padding is often one pixel.
template <int kStep>
CPUACC_INLINE void clear(float* to, int count) {
  if (kBfloat16Pairs && kStep == 16)
    for (int n = 0; n < count; ++n) store_words(to + n * 16, Vec{});
  else if (kStep == 1 && count == 1)
    *to = 0;
  else if (count > 0)
    memset(to, 0, sizeof(float) * kStep * static_cast<size_t>(count));
}

/// Copy one row of the slot of columns that begins at `base`, of which `inside` is inside of the image. `from` is
/// column 0 of the row of the image, or nullptr for a row of padding. `channels` of the block are valid.
template <int kStep>
CPUACC_INLINE void copy_row(const Convolution& c, const float* from, int64_t pixel, int base, const Inside& inside,
                            int columns, int channels, float* to) {
  if (!from || inside.first == inside.last) {
    clear<kStep>(to, columns);
    return;
  }
  clear<kStep>(to, inside.first);
  const float* x = from + (inside.first * c.stride_x + base - c.pad_left) * pixel;
  if (kStep == 1) {
    copy_every(x, c.stride_x * pixel, inside.last - inside.first, to + inside.first);
  } else {
    for (int column = inside.first; column < inside.last; ++column, x += c.stride_x * pixel)
      for (int v = 0; v < kStep; v += kLanes) store_words(to + column * kStep + v, only(load(x + v), channels));
  }
  clear<kStep>(to + inside.last * kStep, columns - inside.last);
}

/// Return whether the slots of columns of a row are the columns of a matrix, whose transpose is copied by blocks of 4 x
/// 4: windows that are as wide as a stride, such as those that divide an image into patches.
template <int kStep>
CPUACC_INLINE bool is_transposed(const Convolution& c, const StripLayout& strip, int64_t pixel) {
  return kStep == 1 && pixel == 1 && c.stride_x % 4 == 0 && !strip.column_slabs && strip.column_slots == c.stride_x;
}

/// Copy one row of all slots of columns, which are `slot` floats apart.
inline void copy_transposed(const Convolution& c, const float* from, int columns, int64_t slot, float* to) {
  const int stride = c.stride_x, end = c.pad_left + c.width;
  int first = (c.pad_left + stride - 1) / stride, last = end / stride < columns ? end / stride : columns;
  last = first + (last > first ? (last - first) / 4 * 4 : 0);  // without padding, in whole blocks
  if (!from || first >= last) first = last = columns;
  for (int p = first; p < last; p += 4)
    for (int j = 0; j < stride; j += 4)
      transpose_4x4(from + p * stride - c.pad_left + j, stride, to + j * slot + p, slot);
  for (int p = 0; p < columns; ++p) {
    if (p == first) p = last;
    for (int j = 0; j < stride && p < columns; ++j) {
      const int x = p * stride + j - c.pad_left;
      to[j * slot + p] = from && x >= 0 && x < c.width ? from[x] : 0;
    }
  }
}

/// Some output rows of one plane, and the planes and rows of the window that meet the image there.
struct OutputRows {
  OutputRows(const Convolution& c, int row, int end)
      : z(row / c.out_height), y(row % c.out_height), planes(live_planes(c, z)), window(0, 1, 1, 0, 0, 0, 0) {
    count = end - row < c.out_height - y ? end - row : c.out_height - y;
    if (count > c.strip) count = c.strip;
    window = live_rows(c, y, y + count - 1);
  }
  int z, y, count;
  Live planes, window;
};

/// Call copy(row, slot, offset) for each row of a strip and each slot of columns: the row of the image, nullptr for a
/// row of padding, and the pixel of the strip at which the copy begins.
template <class Copy>
CPUACC_INLINE void each_row(const Convolution& c, const StripLayout& strip, const float* volume, const InputStrides& in,
                            const OutputRows& rows, const Copy& copy) {
  const int over = strip.rows - c.strip;
  for (int d = rows.planes.first; d < rows.planes.last; ++d) {
    const int z = rows.z * c.stride_z + d * c.dilation_z - c.pad_front;
    const float* image = z >= 0 && z < c.depth ? volume + z * in.plane : nullptr;
    for (int i = 0; i < strip.row_slots; ++i) {
      if (strip.row_slabs && (i < rows.window.first || i >= rows.window.last)) continue;
      for (int j = 0; j < strip.column_slots; ++j)
        for (int r = 0; r < rows.count + over; ++r) {
          const int y = (rows.y + r) * c.stride_y + i * (strip.row_slabs ? c.dilation_y : 1) - c.pad_top;
          const int64_t row = int64_t{i * strip.column_slots + j} * strip.rows + r;
          copy(image && y >= 0 && y < c.height ? image + y * in.row : nullptr, j,
               d * strip.plane + row * strip.columns);
        }
    }
  }
}

/// Copy the input of some output rows, of one channel or block.
template <int kStep>
CPUACC_INLINE void copy_channel(const Convolution& c, const StripLayout& strip, const float* volume,
                                const InputStrides& in, const OutputRows& rows, int channels, float* to) {
  const int apart = strip.column_slabs ? c.dilation_x : 1;
  if (is_transposed<kStep>(c, strip, in.pixel)) {
    each_row(c, strip, volume, in, rows, [&](const float* row, int slot, int64_t offset) {
      if (slot == 0) copy_transposed(c, row, strip.columns, int64_t{strip.rows} * strip.columns, to + offset);
    });
    return;
  }
  int base = 0;
  Inside inside(base, c.stride_x, c.pad_left, c.width, strip.columns);
  each_row(c, strip, volume, in, rows, [&](const float* row, int slot, int64_t offset) {
    if (slot * apart != base)
      base = slot * apart, inside = Inside(base, c.stride_x, c.pad_left, c.width, strip.columns);
    copy_row<kStep>(c, row, in.pixel, base, inside, strip.columns, channels, to + offset * kStep);
  });
}

/// Copy four channels of a blocked image to planes of a strip, which are `channel` floats apart.
inline void copy_four_channels(const Convolution& c, const StripLayout& strip, const float* volume,
                               const InputStrides& in, const OutputRows& rows, float* to, int64_t channel) {
  const int apart = strip.column_slabs ? c.dilation_x : 1;
  const int64_t step = int64_t{c.stride_x} * 16;
  each_row(c, strip, volume, in, rows, [&](const float* row, int slot, int64_t offset) {
    const int base = slot * apart;
    const Inside inside(base, c.stride_x, c.pad_left, c.width, strip.columns);
    const float* pixels = row ? row + (inside.first * c.stride_x + base - c.pad_left) * 16 : nullptr;
    const int count = row ? (inside.last - inside.first) / 4 * 4 : 0;
    float* at = to + offset;
    for (int p = 0; p < count; p += 4) transpose_4x4(pixels + p * step, step, at + inside.first + p, channel);
    for (int n = 0; n < 4; ++n, at += channel) {
      clear<1>(at, row ? inside.first : strip.columns);
      for (int p = count; row && p < inside.last - inside.first; ++p) at[inside.first + p] = pixels[p * step + n];
      if (row) clear<1>(at + inside.last, strip.columns - inside.last);
    }
  });
}

inline const float* plane(const InputStrides& p, const float* in, int channel) {
  int64_t at = p.first_channel + channel;
  return in + (p.channel_block ? at / 16 * p.channel_block + at % 16 : at * p.channel);
}

/// Let a tile read the taps of these planes, rows and columns of the window only. `list` has room for all taps twice.
inline void select_taps(const Convolution& c, const Live& planes, const Live& rows, int column, int column_end,
                        int32_t* list, MicroKernelArgs& t) {
  const int count = (planes.last - planes.first) * (rows.last - rows.first) * (column_end - column);
  t.taps = c.taps;
  t.positions = c.positions;
  t.tap_count = count;
  if (count == t.window) return;
  int32_t *taps = list, *positions = list + t.window;
  t.taps = taps;
  t.positions = positions;
  for (int z = planes.first; z < planes.last; ++z)
    for (int y = rows.first; y < rows.last; ++y)
      for (int x = column; x < column_end; ++x) {
        const int32_t position = (z * c.kernel_height + y) * c.kernel_width + x;
        *taps++ = c.taps[position];
        *positions++ = position;
      }
}

/// The output rows from `y` on, at most `count`, that meet the same rows of the window.
inline int rows_alike(const Convolution& c, int y, int count) {
  const Live live = live_rows(c, y, y);
  int alike = 1;
  for (; alike < count; ++alike) {
    const Live next = live_rows(c, y + alike, y + alike);
    if (next.first != live.first || next.last != live.last) break;
  }
  return alike;
}

/// The operands of a convolution, and the parts of its tiles that do not change.
template <int kStep>
struct Direct {
  const Convolution& c;
  const float* in;
  const InputStrides& in_strides;
  float* out;
  const OutputStrides& out_strides;
  const float* residual;
  float* scratch;
  StripLayout strip;
  MicroKernelArgs t;
  int depth;        // words of all input channels
  int first = 0;    // the first word of the channels that are summed
  bool contiguous;  // output rows are contiguous
  bool flat;        // tiles may reach over several rows

  Direct(const Convolution& c, const float* in, const InputStrides& in_strides, float* out,
         const OutputStrides& out_strides, const float* residual, float* scratch)
      : c(c), in(in), in_strides(in_strides), out(out), out_strides(out_strides), residual(residual), scratch(scratch),
        strip(c), t{}, depth(kStep == 1 ? 1 : words_of(c.gemm.depth)),
        contiguous(out_strides.row == c.out_width * out_strides.pixel),
        flat(contiguous && c.segment_count == 1 &&
             (c.in_place ? c.out_width == c.width && c.stride_y == 1 : strip.columns == c.out_width)) {
    t.a_block = c.in_place ? in_strides.channel_block : strip.channel * kStep;
    t.window = c.kernel_depth * c.kernel_height * c.kernel_width * (kStep == 1 ? c.gemm.depth : 1);
    t.c_block = out_strides.block;
    t.c_pixel = out_strides.pixel;
  }

  void copy(const OutputRows& rows) const {
    int channel = 0;
    if (kStep == 1 && in_strides.channel_block && in_strides.first_channel % 4 == 0)
      for (; channel + 4 <= c.gemm.depth; channel += 4)
        copy_four_channels(c, strip, plane(in_strides, in, channel), in_strides, rows, scratch + channel * t.a_block,
                           t.a_block);
    for (; channel < c.gemm.depth; channel += kStep)
      copy_channel<kStep>(c, strip, plane(in_strides, in, channel), in_strides, rows,
                          c.gemm.depth - channel < 16 ? c.gemm.depth - channel : 16,
                          scratch + (kStep == 1 ? channel * t.a_block : place_of_block(channel / 16, t.a_block)));
  }

  /// Rows whose tiles have the same taps: from row `r` of the strip on.
  int rows_at_once(const OutputRows& rows, int r) const {
    if (!flat) return 1;
    return c.in_place ? rows_alike(c, rows.y + r, rows.count - r) : rows.count - r;
  }

  const float* first_input(const OutputRows& rows, int r, int x) const {
    if (!c.in_place) return scratch + (int64_t{r} * strip.columns + x) * kStep;
    const int64_t z = int64_t{rows.z} * c.stride_z - c.pad_front, y = int64_t{rows.y + r} * c.stride_y - c.pad_top;
    return plane(in_strides, in, 0) + ((z * c.height + y) * c.width + x - c.pad_left) * 16;
  }

  void select(const OutputRows& rows, int r, int count, const Segment& segment) {
    if (kStep == 1) {
      t.taps = c.taps;
      t.tap_count = t.window;
      return;
    }
    auto* list = reinterpret_cast<int32_t*>(scratch + (c.in_place ? 0 : t.a_block * word_blocks_of(c.gemm.depth)));
    select_taps(c, rows.planes, live_rows(c, rows.y + r, rows.y + r + count - 1), segment.tap, segment.tap_end, list,
                t);
  }

  /// Compute the tiles of `count` rows, from row `r` of the strip on, by one panel.
  void tiles(const OutputRows& rows, int r, int count, const Segment& segment, int block, int blocks,
             const Epilogue& epilogue) {
    const int64_t row = int64_t{rows.z} * c.out_height + rows.y + r;
    const int64_t to = block * out_strides.block + row * out_strides.row + segment.first * out_strides.pixel;
    select(rows, r, count, segment);
    t.a = first_input(rows, r, segment.first) + first / 16 * t.a_block;
    t.c = out + to;
    t.residual = residual ? residual + to : nullptr;
    run_micro_kernels<kStep>(t, count * (segment.last - segment.first), vectors_of_panel_at(c.gemm, block, blocks),
                             kStep, epilogue, first > 0);
  }

  /// The channels whose weights for one panel stay in the cache from tile to tile, in words; all of them if there is
  /// one tile, or if they are not divisible.
  int channels_per_pass(int64_t wide, int64_t tiles) const {
    const int64_t most = kCachedFloats / 2 / (wide * t.window) / 16 * 16;
    const bool stays = depth * wide * t.window <= kCachedFloats;
    if (kStep == 1 || stays || tiles == 1 || !is_divisible(residual, c.gemm.epilogue)) return depth;
    return most < 16 ? 16 : static_cast<int>(most);
  }

  void panel(const OutputRows& rows, int block, int blocks) {
    const int64_t wide = int64_t{blocks} * 16, size = wide * depth * t.window,
                  most = mr_of_panel<kStep>(vectors_of_panel_at(c.gemm, block, blocks));
    const int64_t tiles_of_row = (c.out_width + most - 1) / most,
                  count = flat ? (rows.count * c.out_width + most - 1) / most : rows.count * tiles_of_row;
    const int part = channels_per_pass(wide, count);
    t.prefetch_step = (blocks * 64 + count - 1) / count;
    first = 0;
    do {
      const int last = depth - first < part ? depth : first + part;
      const Epilogue& epilogue = begin_pass(t, first, last, depth, c.gemm.epilogue);
      t.b = c.gemm.weights + int64_t{block} * 16 * depth * t.window + first * wide * t.window;
      t.bias = first ? kNoBias : c.gemm.bias + block * 16;
      t.prefetch = reinterpret_cast<const char*>(t.b + size);
      rows_of(rows, block, blocks, epilogue);
      first += part;
    } while (first < depth);
  }

  void rows_of(const OutputRows& rows, int block, int blocks, const Epilogue& epilogue) {
    for (int r = 0, alike; r < rows.count; r += alike) {
      alike = rows_at_once(rows, r);
      for (int n = 0; n < c.segment_count; ++n) tiles(rows, r, alike, c.segments[n], block, blocks, epilogue);
    }
  }
};

template <int kStep>
void direct_strips(const Convolution& c, const float* in, const InputStrides& in_strides, float* out,
                   const OutputStrides& out_strides, const float* residual, float* scratch, const OutputRange& range) {
  Direct<kStep> direct(c, in, in_strides, out, out_strides, residual, scratch);
  for (int row = range.row; row < range.row_end;) {
    const OutputRows rows(c, row, range.row_end);
    if (!c.in_place) direct.copy(rows);
    for (int block = range.block; block < range.block_end;) {
      int blocks = blocks_of_panel_at(block, c.gemm.blocks);
      direct.panel(rows, block, blocks);
      block += blocks;
    }
    row += rows.count;
  }
}

/// Rows of `range` are the rows of all planes.
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
