// Convolutions of float32 images.

#ifndef CPUACC_KERNELS_CONV_F32_HPP
#define CPUACC_KERNELS_CONV_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"

namespace cpuacc {

/// Columns [first, last) of an output row, and the columns [tap, tap_end) of the window that meet the image there. The
/// other columns of the window only read padding.
struct Segment {
  int32_t first, last, tap, tap_end;
};

/// A direct convolution of an image, or of a volume. Weights: [panel][block of input channels][tap][input channel][16 *
/// blocks of the panel]. If `planar`, for few input channels: [panel][input channel][tap][16 * blocks of the panel].
struct Convolution {
  Gemm gemm;
  int32_t depth, height, width, out_depth, out_height, out_width;
  int32_t kernel_depth, kernel_height, kernel_width, stride_z, stride_y, stride_x, dilation_z, dilation_y, dilation_x;
  int32_t pad_front, pad_top, pad_left;
  int32_t strip;                 // output rows that are computed from one copy of their input in scratch memory
  bool planar;                   // images of few channels, or of any layout
  bool drops;                    // taps that only read padding are left out; not if planar
  bool in_place;                 // taps are read from the image instead of a copy; no segment reads padding
  bool row_slabs, column_slabs;  // see StripLayout
  int32_t segment_count;         // at least 1
  const Segment* segments;       // they cover a row
  const int32_t* taps;           // offsets in floats from the first pixel of a tile, see `offset_of_tap`
  const int32_t* positions;      // 0, 1, 2 ...: the numbers of the taps in the weights
};

/// The layout of a strip in scratch memory: [input channel or block][plane of the window][slot of rows][slot of
/// columns][row][column]. If the rows are dense, a slot holds the rows of the padded image that have the same remainder
/// modulo the stride (their phase), so that neighbouring outputs read neighbouring inputs; only the phases that a tap
/// reads exist. If they are slabs, a slot holds the rows that one row of the window reads: less memory for large
/// dilations. The same holds for columns, where slabs make the pixels of all output rows contiguous.
struct StripLayout {
  explicit StripLayout(const Convolution& c)
      : stride_y(c.stride_y), stride_x(c.stride_x), dilation_y(c.dilation_y), dilation_x(c.dilation_x),
        row_slabs(c.row_slabs), column_slabs(c.column_slabs),
        row_slots(slots(c.kernel_height, c.dilation_y, c.stride_y, c.row_slabs)),
        column_slots(slots(c.kernel_width, c.dilation_x, c.stride_x, c.column_slabs)),
        rows(c.strip + (c.row_slabs ? 0 : (c.kernel_height - 1) * c.dilation_y / c.stride_y)),
        columns(c.out_width + (c.column_slabs ? 0 : (c.kernel_width - 1) * c.dilation_x / c.stride_x)),
        plane(int64_t{row_slots} * column_slots * rows * columns), channel(c.kernel_depth * plane) {}

  static int slots(int kernel, int dilation, int stride, bool slabs) {
    int most = (kernel - 1) * dilation + 1;
    return slabs ? kernel : most < stride ? most : stride;
  }
  /// The offset in pixels from an output pixel to tap (z, y, x) of its window.
  int64_t tap(int z, int y, int x) const {
    int row = y * dilation_y, column = x * dilation_x;
    int64_t slot = int64_t{row_slabs ? y : row % stride_y} * column_slots + (column_slabs ? x : column % stride_x);
    return z * plane + (slot * rows + (row_slabs ? 0 : row / stride_y)) * columns +
           (column_slabs ? 0 : column / stride_x);
  }

  int stride_y, stride_x, dilation_y, dilation_x;
  bool row_slabs, column_slabs;
  int row_slots, column_slots, rows, columns;
  int64_t plane, channel;  // pixels
};

/// Pixels after the end of a planar strip that kernels may load.
constexpr int32_t kReadAhead = 3;

/// The offset in floats from the first pixel of a tile to a tap, in a strip or in the image.
static inline int64_t offset_of_tap(const Convolution& c, int channel, int z, int y, int x) {
  if (!c.in_place) {
    StripLayout strip(c);
    return (channel * strip.channel + strip.tap(z, y, x)) * (c.planar ? 1 : 16);
  }
  return ((int64_t{z} * c.dilation_z * c.height + y * c.dilation_y) * c.width + x * c.dilation_x) * 16;
}

/// Strides of the input of a convolution in floats, from one channel, row, pixel and plane to the next. In a blocked
/// image (`channel_block` is not 0), channel c begins at c / 16 * channel_block + c % 16.
struct InputStrides {
  int64_t channel, row, pixel, channel_block, first_channel, plane;
};

/// Where the lanes of a block of expanded channels come from: lane n is lane `lanes[n]` of the input's block `block`
/// where `keep[n]` is -1. The other lanes (`keep[n]` is 0) come from the next entry of the same row.
struct LaneSource {
  int32_t block;
  int32_t more;  // further entries of the same row
  int32_t lanes[16], keep[16];
};

/// A depthwise convolution of an image or a volume; weights are [block of channels][row of the window][column][16]. A
/// grouped convolution is one too: each block of output channels has `inputs` expanded images, whose channel n is an
/// input channel of the group of output channel n. The rows of a window are those of all planes, rows and expanded
/// images: [plane][row][input].
struct Depthwise {
  int32_t blocks, height, width, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  const float* weights;
  const float* bias;
  Epilogue epilogue;
  int32_t depth = 1, out_depth = 1, kernel_depth = 1, stride_z = 1, dilation_z = 1, pad_front = 0;
  int32_t inputs = 1;                // input channels of a group
  const int32_t* sources = nullptr;  // [block][input]: the first entry of a row; nullptr if channels are not expanded
  const LaneSource* lanes = nullptr;
  int32_t segment_count = 0;  // for windows without an own kernel; 0: one segment with all columns
  const Segment* segments = nullptr;
  bool exact = false;             // no segment reads padding
  OutputStrides out = {0, 0, 0};  // all 0: rows are contiguous
  int32_t last = 16;              // channels of the last block
  int64_t in_pixel = 16;          // floats from one input pixel to the next: 16 in blocks, else the number of channels
};

/// Rows of a window.
static inline int32_t window_rows(const Depthwise& d) { return d.kernel_depth * d.kernel_height * d.inputs; }

/// An inverted residual block: a depthwise convolution between two pointwise convolutions, `expand` and `project`.
/// Either is absent if its weights are nullptr. Intermediate images stay in scratch memory: some rows of the expanded
/// image, and `strip` rows of the result of the depthwise convolution.
struct Bottleneck {
  Gemm expand;
  Depthwise depthwise;
  Gemm project;
  int32_t strip;
};

/// Columns of a row of the expanded image, with its padding on both sides.
static inline int64_t ring_width(const Depthwise& d) {
  int64_t seen = int64_t{d.out_width - 1} * d.stride_x + int64_t{d.kernel_width - 1} * d.dilation_x + 1;
  int64_t image = int64_t{d.pad_left} + d.width;
  return seen > image ? seen : image;
}

/// Rows of the expanded image that one row of output reads.
static inline int64_t ring_rows(const Depthwise& d) { return int64_t{d.kernel_height - 1} * d.dilation_y + 1; }

/// Floats of the scratch memory of a depthwise convolution.
static inline int64_t ring_floats(const Depthwise& d) {
  return ring_rows(d) * ring_width(d) * d.kernel_depth * d.inputs * 16;
}

constexpr int32_t kMaxWindowRows = 256;

/// Floats of scratch memory.
static inline int64_t scratch_of(const Bottleneck& b) {
  const Depthwise& d = b.depthwise;
  int64_t strip = b.project.weights ? int64_t{b.strip} * d.out_width * d.blocks * 16 : 0;
  return strip + (b.expand.weights ? d.blocks : 1) * ring_rows(d) * ring_width(d) * 16;
}

/// Further words of scratch memory for kernels for bfloat16: the input rows that one strip reads, as pairs.
static inline int64_t staged_words(const Bottleneck& b) {
  const Depthwise& d = b.depthwise;
  int64_t strip = b.project.weights ? b.strip : d.out_height, rows = strip * d.stride_y + ring_rows(d);
  return b.expand.weights ? (rows < d.height ? rows : d.height) * d.width * 16 * ((b.expand.depth + 31) / 32) : 0;
}

struct ConvKernels {
  int32_t panel;  // blocks of a panel; if it is 2, an odd last block belongs to the panel before it
  bool bfloat16;  // weights are pairs of bfloat16
  /// A 1x1 convolution with stride 1. Rows of `range` are pixels.
  void (*pointwise)(const Gemm&, const float* in, int64_t in_block, float* out, const OutputStrides& out_strides,
                    const float* residual, float* scratch, const OutputRange& range);
  void (*direct)(const Convolution&, const float* in, const InputStrides& in_strides, float* out,
                 const OutputStrides& out_strides, const float* residual, float* scratch, const OutputRange& range);
  /// Rows [first, last) of all rows of all planes and blocks of channels. At most kMaxWindowRows rows in a window.
  void (*depthwise)(const Depthwise&, const float* in, float* out, const float* residual, float* scratch, int64_t first,
                    int64_t last);
  /// Rows of the output and blocks of the depthwise convolution; all blocks if there is `project`.
  void (*bottleneck)(const Bottleneck&, const float* in, float* out, const float* residual, float* scratch,
                     const OutputRange& range);
};

CPUACC_TABLE(ConvKernels, conv_kernels)
CPUACC_BFLOAT16_TABLE(ConvKernels, conv_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_CONV_F32_HPP
