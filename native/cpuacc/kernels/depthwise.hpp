// Depthwise convolutions: each channel by itself, in blocks of 16 channels.

#ifndef CPUACC_KERNELS_DEPTHWISE_HPP
#define CPUACC_KERNELS_DEPTHWISE_HPP

#include <string.h>

#include "cpuacc/kernels/activations.hpp"
#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/kernels/row_tiles.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// The operands of one row of output of one block. `rows` are the input rows under the window; nullptr stands for a row
/// of zeros. If `columns` is 0, a row begins with the first column that the first window reads, and includes the
/// padding. Otherwise it is a row of `columns` columns of the image, the first window begins `before` columns before
/// it, and columns outside of it are zero.
struct DepthwiseRow {
  const float* rows[kMaxWindowRows + 1];
  int before, columns;
  const float* weights;  // [tap][16]
  const float* bias;
  const float* residual;
  float* out;
  int64_t pixel;  // floats from one output pixel to the next
  int width;
  float low, high;
  int lanes = 16;  // of the block that are computed; the others become zero
};

/// Where a tile reads a row: from `at` floats after its beginning. Columns before `left` and from `right` on are zero.
struct SeenColumns {
  int64_t at;
  int left, right;

  SeenColumns(const DepthwiseRow& d, int first, int count, int v)
      : at((int64_t{first} - d.before) * 16 + v), left(d.columns ? d.before - first : 0),
        right(d.columns ? left + d.columns : count) {}
};

alignas(64) constexpr float kZeros[16] = {};

/// Add the products of input row `r`, counted from the first output row, to the sums of output rows [kFirst, kLast).
template <int kWindow, int kStride, int kOut, int kFirst, int kLast, int kRows>
CPUACC_INLINE void depthwise_taps(const DepthwiseRow& d, const SeenColumns& columns, int r, const float* window,
                                  Vec (&sums)[kRows][kOut]) {
  constexpr int kSeen = (kOut - 1) * kStride + kWindow, kMaxBeside = kWindow / 2;
  const float* p = d.rows[r] + columns.at;
  asm("" : "+r"(p));  // else the compiler keeps the distances of all columns from the beginning of the row in registers
  Vec weights[kRows][kWindow];
#pragma GCC unroll 2
  for (int y = kFirst; y < kLast; ++y)
#pragma GCC unroll 8
    for (int k = 0; k < kWindow; ++k) weights[y][k] = load(window + ((r - y) * kWindow + k) * 16);
#pragma GCC unroll 40
  for (int column = 0; column < kSeen; ++column) {
    const bool outside =
        (column < kMaxBeside && column < columns.left) || (column >= kSeen - kMaxBeside && column >= columns.right);
    Vec seen = load(outside ? kZeros : p + column * 16);
#pragma GCC unroll 2
    for (int y = kFirst; y < kLast; ++y)
#pragma GCC unroll 8
      for (int k = 0; k < kWindow; ++k)
        if (column >= k && (column - k) % kStride == 0 && (column - k) / kStride < kOut)
          sums[y][(column - k) / kStride] += seen * weights[y][k];
  }
}

/// Add the residual to neighbouring outputs from `x` on, clamp them and store them.
template <int kOut>
CPUACC_INLINE void store_outputs(const DepthwiseRow& d, int x, int v, Vec (&sums)[kOut]) {
  const Vec low = broadcast(d.low), high = broadcast(d.high);
  const int64_t pixel = d.pixel, at = x * pixel + v;
  if (d.residual)
#pragma GCC unroll 16
    for (int i = 0; i < kOut; ++i) sums[i] += load(d.residual + at + i * pixel);
  float* out = d.out + at;
#pragma GCC unroll 16
  for (int i = 0; i < kOut; ++i, out += pixel) store(out, at_most(at_least(sums[i], low), high));
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
  const SeenColumns columns(d, x * kStride, (kOut - 1) * kStride + kWindow, v);
  const float* window = d.weights + v;
  if (kRows == 2 && d.rows[0]) depthwise_taps<kWindow, kStride, kOut, 0, 1>(d, columns, 0, window, sums);
  for (int r = kRows - 1; r < kernel_height; ++r)
    if (d.rows[r]) depthwise_taps<kWindow, kStride, kOut, 0, kRows>(d, columns, r, window, sums);
  if (kRows == 2 && d.rows[kernel_height])
    depthwise_taps<kWindow, kStride, kOut, kRows - 1, kRows>(d, columns, kernel_height, window, sums);
#pragma GCC unroll 2
  for (int y = 0; y < kRows; ++y) store_outputs(d, x + y * d.width, v, sums[y]);
}

constexpr int kMostOutputs = kRegisters == 32 ? 14 : 7;

/// A table of the functions for 1 to 14 outputs, which begins with none.
#define CPUACC_UP_TO_14(function)                                                                                    \
  {                                                                                                                  \
    nullptr, function(1), function(2), function(3), function(4), function(5), function(6), function(7), function(8), \
        function(9), function(10), function(11), function(12), function(13), function(14)                            \
  }

template <int kWindow, int kStride, int kOut>
__attribute__((noinline)) void depthwise_columns(const DepthwiseRow& d, int kernel_height, int x) {
  for (int v = 0; v < d.lanes; v += kLanes) depthwise_tile<kWindow, kStride, kOut>(d, kernel_height, x, v);
}

using DepthwiseColumns = void (*)(const DepthwiseRow&, int kernel_height, int x);

#define CPUACC_OUTPUTS(n) depthwise_columns<kWindow, kStride, (n <= kMostOutputs ? n : 1)>
template <int kWindow, int kStride>
constexpr DepthwiseColumns kDepthwiseColumns[15] = CPUACC_UP_TO_14(CPUACC_OUTPUTS);
#undef CPUACC_OUTPUTS

template <int kWindow, int kStride>
inline void depthwise_row(const DepthwiseRow& d, int kernel_height) {
  const RowTiles tiles(d.width, kMostOutputs);
  for (int tile = 0, x = 0; tile < tiles.tiles; x += tiles.of(tile++))
    kDepthwiseColumns<kWindow, kStride>[tiles.of(tile)](d, kernel_height, x);
}

/// Compute two rows of up to 7 outputs of a 3x3 window with stride 1.
__attribute__((noinline)) void depthwise_two_rows(const DepthwiseRow& d) {
  for (int v = 0; v < d.lanes; v += kLanes) {
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

/// Compute kOut neighbouring outputs for one vector of channels, with columns [tap, tap_end) of any window. A kStride
/// of 0 stands for any stride.
template <int kStride, int kOut>
__attribute__((noinline)) void depthwise_any(const DepthwiseRow& d, const Depthwise& c, int x, int v, int tap,
                                             int tap_end) {
  const int64_t stride = (kStride ? kStride : c.stride_x) * 16, dilation = int64_t{c.dilation_x} * 16;
  const int64_t first = x * stride + tap * dilation - int64_t{d.before} * 16 + v;
  const float* weights = d.weights + tap * 16 + v;
  Vec sums[kOut];
#pragma GCC unroll 16
  for (int i = 0; i < kOut; ++i) sums[i] = load(d.bias + v);
  for (int r = 0, rows = window_rows(c); r < rows; ++r, weights += c.kernel_width * 16) {
    if (!d.rows[r]) continue;
    const float *p = d.rows[r] + first, *w = weights;
    for (int k = tap; k < tap_end; ++k, p += dilation, w += 16) {
      const Vec weight = load(w);
#pragma GCC unroll 16
      for (int i = 0; i < kOut; ++i) sums[i] += load(p + i * stride) * weight;
    }
  }
  store_outputs(d, x, v, sums);
}

using AnyDepthwise = void (*)(const DepthwiseRow&, const Depthwise&, int x, int v, int tap, int tap_end);

#define CPUACC_OUTPUTS(n) depthwise_any<kStride, (n <= kMostOutputs ? n : 1)>
template <int kStride>
constexpr AnyDepthwise kAnyDepthwise[15] = CPUACC_UP_TO_14(CPUACC_OUTPUTS);
#undef CPUACC_OUTPUTS
#undef CPUACC_UP_TO_14

/// Compute a row for any window, stride and dilation, segment by segment.
inline void depthwise_row_any(const DepthwiseRow& d, const Depthwise& c) {
  const AnyDepthwise* kernels = c.stride_x == 1   ? kAnyDepthwise<1>
                                : c.stride_x == 2 ? kAnyDepthwise<2>
                                                  : kAnyDepthwise<0>;
  const Segment whole{0, c.out_width, 0, c.kernel_width};
  const Segment* segments = c.segment_count ? c.segments : &whole;
  for (int n = 0; n < (c.segment_count ? c.segment_count : 1); ++n) {
    const Segment& s = segments[n];
    const RowTiles tiles(s.last - s.first, kMostOutputs);
    for (int v = 0; v < d.lanes; v += kLanes)
      for (int tile = 0, x = s.first; tile < tiles.tiles; x += tiles.of(tile++))
        kernels[tiles.of(tile)](d, c, x, v, s.tap, s.tap_end);
  }
}

/// Return whether rows of the window have a kernel of their own.
inline bool is_dense(const Depthwise& c) {
  return c.dilation_x == 1 && c.stride_x <= 2 &&
         (c.kernel_width == 3 || c.kernel_width == 5 || (c.kernel_width == 7 && kRegisters == 32));
}

/// Return whether the window of an image is 3x3 with stride 1 and no dilation, and output rows are contiguous.
inline bool is_3x3(const Depthwise& c) {
  return is_dense(c) && c.kernel_width == 3 && c.kernel_height == 3 && c.stride_x == 1 && c.stride_y == 1 &&
         c.dilation_y == 1 && c.kernel_depth == 1 && c.out_depth == 1 && c.inputs == 1 && c.out.pixel == 0;
}

template <int kWindow>
inline void depthwise_dense_row(const DepthwiseRow& d, const Depthwise& c) {
  c.stride_x == 1 ? depthwise_row<kWindow, 1>(d, window_rows(c)) : depthwise_row<kWindow, 2>(d, window_rows(c));
}

inline void depthwise_one_row(const DepthwiseRow& d, const Depthwise& c) {
  if (!is_dense(c)) return depthwise_row_any(d, c);
  if (c.kernel_width == 3) return depthwise_dense_row<3>(d, c);
  if (c.kernel_width == 5) return depthwise_dense_row<5>(d, c);
  if constexpr (kRegisters == 32) depthwise_dense_row<7>(d, c);
}

/// Lanes of a block that have channels, in whole vectors.
inline int lanes_of_block(const Depthwise& c, int block) {
  return block + 1 < c.blocks ? 16 : (c.last + kLanes - 1) / kLanes * kLanes;
}

/// Compute one row, or two neighbouring ones, of one block.
inline void depthwise_rows(const DepthwiseRow& d, const Depthwise& c, int rows) {
  rows == 2 ? depthwise_two_rows(d) : depthwise_one_row(d, c);
  const int64_t pixel = d.pixel;
  for (int v = d.lanes; v < 16; v += kLanes) {
    float* out = d.out + v;
    for (int left = rows * d.width; left > 0; --left, out += pixel) store(out, Vec{});
  }
}

/// Select 16 lanes of a block of channels, into vectors of expanded channels.
CPUACC_INLINE Vec selected(const float* block, const int32_t* lanes) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(_mm512_loadu_si512(lanes), load(block));
#elif defined(__AVX2__)
  const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes));
  const Vec low = _mm256_permutevar8x32_ps(load(block), from), high = _mm256_permutevar8x32_ps(load(block + 8), from);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(from, 28)));
#elif defined(__aarch64__)
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(block);
  const uint8x16x4_t table = {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  // The four bytes of lane n are bytes 4 * n to 4 * n + 3 of the block.
  const int32x4_t at = vmlaq_n_s32(vdupq_n_s32(0x03020100), vld1q_s32(lanes), 0x04040404);
  return vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_s32(at)));
#else
  Vec out = {};
  for (int n = 0; n < kLanes; ++n) out[n] = block[lanes[n]];
  return out;
#endif
}

/// Provides the input rows of one block of channels and one output plane. These are the rows of the image, or copies
/// with padding in a ring buffer if the kernels need these, if channels are expanded, or if the image has channels
/// last.
class RowRing {
 public:
  /// `in` is the whole input if channels are expanded, else its block.
  RowRing(const Depthwise& c, const float* in, float* memory, int block, int z, int first)
      : c_(c), in_(in), memory_(memory), plane_(int64_t{c.height} * c.width * c.in_pixel), width_(ring_width(c)),
        block_(block), front_(z * c.stride_z - c.pad_front), size_(static_cast<int>(ring_rows(c))),
        next_(first < 0 ? 0 : first),
        copies_(c.sources || c.in_pixel != 16 || (is_dense(c) ? beside() > c.kernel_width / 2 : !c.exact)),
        pairs_(!copies_ && kRegisters == 32 && c.out_width <= 7 && is_3x3(c)) {}

  /// Set the input rows of output row y, or of y and the next row. Return the number of output rows that are computed
  /// at once.
  int see(DepthwiseRow& to, int y, int end) {
    const int rows = pairs_ && y + 1 < end ? 2 : 1, top = y * c_.stride_y - c_.pad_top;
    const float** row = to.rows;
    for (int d = 0; d < c_.kernel_depth; ++d)
      for (int r = 0; r < c_.kernel_height + rows - 1; ++r)
        for (int k = 0; k < c_.inputs; ++k) *row++ = find(d, top + r * c_.dilation_y, k);
    to.before = copies_ ? 0 : c_.pad_left;
    to.columns = copies_ ? 0 : c_.width;
    return rows;
  }

 private:
  int plane_of(int d) const { return front_ + d * c_.dilation_z; }
  bool is_inside(int d) const { return plane_of(d) >= 0 && plane_of(d) < c_.depth; }

  /// Return a row of plane `d` of the window, or nullptr outside of the image. Rows have to be requested in ascending
  /// order; all planes of a row are copied at once.
  const float* find(int d, int y, int k) {
    if (!is_inside(d) || y < 0 || y >= c_.height) return nullptr;
    if (!copies_) return in_ + plane_of(d) * plane_ + int64_t{y} * c_.width * 16;
    for (; next_ <= y; ++next_)
      for (int n = 0; n < c_.kernel_depth; ++n)
        if (is_inside(n)) fill(n, next_);
    return at(d, y, k);
  }

  float* at(int d, int y, int k) const {
    return memory_ + ((int64_t{d} * size_ + y % size_) * c_.inputs + k) * width_ * 16;
  }

  /// The largest number of columns outside of the image that a window reads on one side.
  int64_t beside() const {
    int64_t behind = int64_t{c_.out_width - 1} * c_.stride_x + c_.kernel_width - c_.pad_left - c_.width;
    return behind > c_.pad_left ? behind : c_.pad_left;
  }

  /// Copy a row with its padding. A negative padding on the left crops the first columns of the image.
  __attribute__((noinline)) void fill(int d, int y) const {
    const int padding = c_.pad_left > 0 ? c_.pad_left : 0, before = c_.pad_left < 0 ? -c_.pad_left : 0,
              cropped = before < c_.width ? before : c_.width, columns = c_.width - cropped;
    const float* row = in_ + plane_of(d) * plane_ + (int64_t{y} * c_.width + cropped) * c_.in_pixel;
    for (int k = 0; k < c_.inputs; ++k) {
      float *to = at(d, y, k), *image = to + padding * 16, *after = image + columns * 16;
      memset(to, 0, static_cast<size_t>(padding) * 64);
      c_.sources ? expand(row, k, image, columns) : copy(row, image, columns);
      memset(after, 0, static_cast<size_t>(width_ - padding - columns) * 64);
    }
  }

  void copy(const float* row, float* to, int columns) const {
    if (c_.in_pixel == 16) return static_cast<void>(memcpy(to, row, static_cast<size_t>(columns) * 64));
    for (int x = 0; x < columns; ++x, row += c_.in_pixel, to += 16)
      for (int v = 0; v < 16; v += kLanes) store(to + v, load(row + v));
  }

  /// Copy the expanded channels of some columns of a row. `row` is the first of these columns in block 0 of the input.
  void expand(const float* row, int k, float* to, int columns) const {
    const LaneSource* sources = c_.lanes + c_.sources[block_ * c_.inputs + k];
    for (int n = 0; n <= sources->more; ++n) {
      const LaneSource& s = sources[n];
      const float* from = row + s.block * plane_ * c_.depth;
      for (int v = 0; v < 16; v += kLanes) {
        IntVec keep;
        memcpy(&keep, s.keep + v, sizeof keep);
        for (int x = 0; x < columns; ++x) {
          IntVec lanes = reinterpret_cast<IntVec>(selected(from + x * 16, s.lanes + v)) & keep;
          if (n > 0) lanes |= reinterpret_cast<IntVec>(load(to + x * 16 + v));
          store(to + x * 16 + v, reinterpret_cast<Vec>(lanes));
        }
      }
    }
  }

  const Depthwise& c_;
  const float* in_;
  float* memory_;
  int64_t plane_, width_;
  int block_, front_, size_, next_;
  bool copies_, pairs_;
};

inline OutputStrides strides_of(const Depthwise& c) {
  if (c.out.pixel) return c.out;
  const int64_t row = int64_t{c.out_width} * 16;
  return {row * c.out_height * c.out_depth, row, 16};
}

/// Compute rows [first, last), counted over all planes and blocks.
void depthwise(const Depthwise& c, const float* in, float* out, const float* residual, float* scratch, int64_t first,
               int64_t last) {
  const OutputStrides strides = strides_of(c);
  const int64_t block_size = c.in_pixel == 16 ? int64_t{c.depth} * c.height * c.width * 16 : 16,
                rows_of_block = int64_t{c.out_depth} * c.out_height;
  DepthwiseRow d{};
  d.width = c.out_width;
  d.pixel = strides.pixel;
  d.low = c.epilogue.low;
  d.high = c.epilogue.high;
  for (int64_t done = first; done < last;) {
    const int block = static_cast<int>(done / rows_of_block), row = static_cast<int>(done % rows_of_block);
    int y = row % c.out_height;
    const int z = row / c.out_height,
              end = last - done < c.out_height - y ? y + static_cast<int>(last - done) : c.out_height;
    d.weights = c.weights + int64_t{block} * window_rows(c) * c.kernel_width * 16;
    d.bias = c.bias + block * 16;
    d.lanes = lanes_of_block(c, block);
    RowRing ring(c, c.sources ? in : in + block * block_size, scratch, block, z, y * c.stride_y - c.pad_top);
    for (int rows; y < end; y += rows, done += rows) {
      rows = ring.see(d, y, end);
      const int64_t to = block * strides.block + (int64_t{z} * c.out_height + y) * strides.row;
      d.out = out + to;
      const float* added = residual ? residual + to : nullptr;
      d.residual = c.epilogue.count ? nullptr : added;
      depthwise_rows(d, c, rows);
      if (c.epilogue.count) apply_post_ops(c.epilogue, d.out, added, 0, strides.pixel, rows * c.out_width, 1);
    }
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_DEPTHWISE_HPP
