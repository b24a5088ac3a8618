// float32 convolutions and matrix products: parameters, and the table of kernels of one instruction set.
//
// Blocked images are (channels / 16, height, width, 16), one image of the batch at a time. Channels that fill up the
// last block are never read as input; as output they get what the (zero) weights and biases there give.

#ifndef CPUACC_KERNELS_CONV_F32_HPP
#define CPUACC_KERNELS_CONV_F32_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

// Functions here are static: what is compiled for an instruction set must be nobody else's.

namespace cpuacc {

enum class Function : int32_t {
  sigmoid, tanh, linear, relu, bounded_relu, soft_relu, leaky_relu, abs, sqrt, square, elu, hard_swish, gelu,
  gelu_tanh, selu, celu, softsign, hard_sigmoid, swish, mish, thresholded_relu, shrink, add
};

/// One piece of work on a result: `add` is the residual.
struct PostOp {
  Function function;
  float a, b;
};

/// What is done with sums: the residual added and the result clamped in registers, where that is all (`count` is 0);
/// else the list, on every tile while it is in the cache.
struct Finish {
  float low, high;
  int32_t count;
  PostOp ops[4];
};

/// An image as a kernel writes it: floats from one block of channels, row and pixel to the next.
struct Grid {
  int64_t block, row, pixel;
};

/// A product of pixels and weights: out[pixel][o] = bias[o] + sum over channels of in[pixel][c] * weights[c][o].
/// Weights are packed in panels (see `first_block_of_panel`), each as [channel][16 * blocks].
/// Kernels for pairs of bfloat16 take words of two channels each instead of channels, [pair of channels][16 * blocks].
struct Product {
  int32_t depth, blocks;  // input channels; blocks of output channels
  const float* weights;
  const float* bias;
  Finish finish;
};

/// Pixels whose words are in scratch memory at once, and the words of all of these.
static inline int32_t staged_pixels(int32_t depth) {
  int32_t most = (1 << 20) / (depth + 31);
  return most < 14 ? 14 : most / 14 * 14;
}
static inline int64_t staged_words(int32_t depth, int64_t pixels) {
  int64_t most = staged_pixels(depth);
  return (depth + 31) / 32 * 16 * (pixels < most ? pixels : most);
}

/// A window that slides over an image. Weights: [panel][block of input channels][tap][channel][16 * blocks of panel].
/// `planar`: [panel][input channel][tap][16 * blocks of panel], for few input channels.
struct Convolution {
  Product product;
  int32_t height, width, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  int32_t strip;  // output rows at once
  bool planar;
  const int32_t* taps;  // offsets into the scratch memory, see `lay_out_taps`
};

/// Where the input of a planar convolution lies: floats from one channel, row and pixel to the next. In a blocked image
/// (`channel_block` not 0) channel c is at c / 16 * channel_block + c % 16.
struct Planes {
  int64_t channel, row, pixel, channel_block, first_channel;
};

struct Part {
  int32_t row, row_end;      // output rows, or pixels of a product
  int32_t block, block_end;  // blocks of output channels; panels are not cut
};

struct Depthwise {
  int32_t blocks, height, width, out_height, out_width;
  int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  const float* weights;  // [block][tap][16]
  const float* bias;
  Finish finish;
};

/// A convolution with a window of 3 x 3 and stride 1, by products of transformed squares: `tile` (2 or 4) output pixels
/// each way at once. Weights are [panel][(tile + 2)**2][channel][16 * blocks of panel], of what `winograd_weights` gives.
struct Winograd {
  Product product;
  int32_t tile, height, width, out_height, out_width, pad_top, pad_left;
  int32_t chunk;  // squares at once
};

static inline int32_t squares_across(const Winograd& w) { return (w.out_width + w.tile - 1) / w.tile; }
static inline int32_t squares_of(const Winograd& w) { return (w.out_height + w.tile - 1) / w.tile * squares_across(w); }

/// Floats of scratch memory: of transformed input and, of one panel, transformed output.
static inline int64_t scratch_of(const Winograd& w) {
  int64_t elements = int64_t{w.tile + 2} * (w.tile + 2);
  return elements * w.chunk * 16 * ((w.product.depth + 15) / 16 + 3);
}

/// A depthwise convolution with products of single pixels before and behind it (`expand` and `project`, each absent where
/// its weights are nullptr). What lies between them stays in scratch memory: some rows of the expanded image, and `strip`
/// rows of the result of the depthwise convolution.
struct Bottleneck {
  Product expand;
  Depthwise depthwise;
  Product project;
  int32_t strip;
};

/// Columns of an expanded row, with what is before and behind it.
static inline int64_t ring_width(const Depthwise& d) {
  int64_t seen = int64_t{d.out_width - 1} * d.stride_x + int64_t{d.kernel_width - 1} * d.dilation_x + 1;
  int64_t image = int64_t{d.pad_left} + d.width;
  return seen > image ? seen : image;
}

static inline int64_t ring_rows(const Depthwise& d) { return int64_t{d.kernel_height - 1} * d.dilation_y + 1; }

/// Floats of scratch memory.
static inline int64_t scratch_of(const Bottleneck& b) {
  const Depthwise& d = b.depthwise;
  int64_t strip = b.project.weights ? int64_t{b.strip} * d.out_width * d.blocks * 16 : 0;
  return strip + (b.expand.weights ? d.blocks : 1) * ring_rows(d) * ring_width(d) * 16;
}

/// And those for what kernels for pairs of bfloat16 see of the image at once.
static inline int64_t staged_words(const Bottleneck& b) {
  const Depthwise& d = b.depthwise;
  int64_t strip = b.project.weights ? b.strip : d.out_height, rows = strip * d.stride_y + ring_rows(d);
  return b.expand.weights ? (rows < d.height ? rows : d.height) * d.width * 16 * ((b.expand.depth + 31) / 32) : 0;
}

/// out[row][column] = bias[column] + sum of a[row][k] * b[k][column]. Strides are in floats. `packed` are the panels of
/// b (see Product; of `panel` blocks where there is one row), or nullptr where b comes in.
struct MatrixProduct {
  int32_t rows, columns, depth;
  int64_t a_row, a_depth, b_depth, b_column, out_row;
  const float* packed;
  const float* bias;
  Finish finish;
  int32_t panel = 0;   // blocks, where there is one row
  bool pairs = false;  // `packed` are pairs of bfloat16
};

/// So many rows of the first operand are packed at once: they stay in the second-level cache while the weights pass by.
static inline int32_t rows_at_once(const MatrixProduct& m) {
  int32_t most = 128 * 1024 / (m.depth > 0 ? m.depth : 1);
  if (most < 70) most = 70;
  return m.rows < most ? m.rows : most;
}

/// Floats of scratch memory for one product.
static inline int64_t scratch_of(const MatrixProduct& m) {
  int64_t blocks = (m.columns + 15) / 16;
  return int64_t{rows_at_once(m) | 1} * ((m.depth + 15) / 16 + 6) * 16 + (m.packed ? 0 : blocks * 16 * m.depth);
}

/// One head of attention. Steps are in elements, from a row or an element of a matrix to the next.
struct AttentionHead {
  int32_t queries, keys, size, value_size;
  int64_t query_row, query_element, key_row, key_element, value_row, value_element, out_row;
  float query_scale;            // that the query is multiplied by before the product with the keys
  float scale, cap;             // products become x = scale * product, and then cap * tanh(x / cap) where cap is not 0
  int64_t mask_row, mask_key;   // 0: one for all
  int32_t mask_keys;            // the mask knows; keys behind them are not seen
  bool mask_is_bool;
  bool unseen_is_zero;          // the result where no key is seen; else it is not a number
  bool excludes;                // keys that are not seen, or masked by minus infinity, count nothing whatever they hold
  int64_t left, right;          // how many keys before and behind its own position a query sees; -1: all
  int32_t rows;                 // queries at once
};

/// What differs from head to head: where its matrices begin, the position of the first query among the keys, and how
/// many keys count.
struct AttentionRun {
  const float *query, *key, *value;
  const void* mask;    // float or bool; nullptr where there is none
  const float* zeros;  // as many as keys, and as a row of values has elements, filled up to blocks
  int64_t position, valid;
};

/// Floats of scratch memory.
static inline int64_t scratch_of(const AttentionHead& h) {
  int64_t keys = (h.keys + 15) / 16 * 16, values = (h.value_size + 15) / 16 * 16, size = (h.size + 15) / 16 * 16;
  return keys * h.size + values * h.keys + (size + keys + values + 1) * h.rows + keys;
}

constexpr int32_t kVectorPanel = 8;  // blocks of a panel for products of one row, at most

struct ConvKernels {
  int32_t panel;  // blocks of a panel but the last, which may have one more where `panel` is 2
  bool pairs;     // weights are pairs of bfloat16, and there is no `attention`
  void (*product)(const Product&, const float* in, int64_t in_block, float* out, const Grid& grid, const float* residual,
                  float* scratch, const Part& part);
  void (*convolve)(const Convolution&, const float* in, const Planes& planes, float* out, const Grid& grid,
                   const float* residual, float* scratch, const Part& part);
  void (*depthwise)(const Depthwise&, const float* in, float* out, const float* residual, float* scratch, int64_t first,
                    int64_t last);
  /// Rows of `part` are squares.
  void (*winograd)(const Winograd&, const float* in, float* out, const float* residual, float* scratch, const Part& part);
  /// The same in three stages for few squares, which threads share out, each for [first, last): 0 transforms blocks of
  /// input channels into `seen`, 1 multiplies elements of squares into `sums`, 2 transforms blocks of output channels.
  void (*winograd_stage)(const Winograd&, int stage, const float* in, float* out, const float* residual, float* seen,
                         float* sums, int first, int last);
  /// From 3 x 3 weights, [9][16], to those of (tile + 2)**2 products, `step` floats apart.
  void (*winograd_weights)(int32_t tile, const float* taps, float* to, int64_t step);
  /// Rows of the result and blocks of the depthwise convolution; all blocks where there is `project`.
  void (*bottleneck)(const Bottleneck&, const float* in, float* out, const float* residual, float* scratch,
                     const Part& part);
  /// Rows and blocks of columns of `part`.
  void (*matrix)(const MatrixProduct&, const float* a, const float* b, float* out, const float* residual, float* scratch,
                 const Part& part);
  /// Queries [first, last). `same_head`: the last call with this scratch memory was for the same key and value.
  void (*attention)(const AttentionHead&, const AttentionRun&, float* out, float* scratch, int first, int last,
                    bool same_head);
  /// One row: `part` are blocks, cut at panels. All instruction sets take pairs, of which only the weights are rounded.
  void (*vector)(const MatrixProduct&, const float* a, float* out, const float* residual, const Part& part);
};

CPUACC_TABLE(ConvKernels, conv_kernels)

#ifndef ISA_NS
#ifdef NATIVE_BF16
namespace avx512bf16 {
extern const ConvKernels conv_kernels;
}
#endif

/// Those for pairs of bfloat16 where they are asked for and the processor has instructions for them.
inline const ConvKernels& conv_kernels_for(native::Isa isa, [[maybe_unused]] bool pairs) {
#ifdef NATIVE_BF16
  if (pairs && isa == native::Isa::avx512bf16) return avx512bf16::conv_kernels;
#endif
  return conv_kernels_for(isa);
}
#endif

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_CONV_F32_HPP
