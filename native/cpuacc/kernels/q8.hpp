// Kernels on quantized values of 8 bits. Sums of products of unsigned activations and signed weights are int32, and are
// requantized to 8 bits. Signed activations become unsigned by inverting their highest bit (`flip`), which adds 128 to
// their zero point. Arm multiplies signed activations instead (`is_signed`): unsigned ones become signed by the same
// inversion, which subtracts 128 from their zero point.
//
// A vector of sums has `lanes` int32 lanes, and a panel has 1, 2 or 4 vectors. The channels of a panel are in the order
// in which the saturating pack instructions restore them; see channel_of().

#ifndef CPUACC_KERNELS_Q8_HPP
#define CPUACC_KERNELS_Q8_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// The channel, relative to the first of its panel, of lane `lane` of vector `vector` in a panel of `vectors` vectors.
constexpr int channel_of(int vectors, int vector, int lane) { return lane / 4 * 4 * vectors + vector * 4 + lane % 4; }

/// The offset of word `k` of 4 bytes in the packed weights of a lane, of `lanes` of a panel. Channels alternate after
/// `weight_bytes` bytes, of which a segment has a multiple.
constexpr int64_t place_of_word(int weight_bytes, int64_t lanes, int64_t lane, int64_t k) {
  const int64_t words = weight_bytes / 4;
  return (k / words * lanes + lane) * weight_bytes + k % words * 4;
}

/// The bytes of the left operand: pixel m begins `offset + m * step` bytes after the beginning of each segment.
struct Q8Rows {
  const uint8_t* const* segments;
  int64_t segment_count;
  int64_t words;  // of 4 bytes, in a segment: a multiple of those of packed weights
  int64_t offset, step;
  uint32_t flip;       // 0x80808080 if the bytes are not as the kernel multiplies them, else 0
  bool small = false;  // no weight is -128, which is quicker at some levels
};

/// Requantization of sums: value = zero + trunc(sum * scale + copysign(half, sum)), clamped to [low, high]. `single`
/// computes in float32 with the scale split into two parts, and `twofold` in float64. Both are used only if they were
/// shown to give the result of the reference for every possible sum. `fixed_point` and `real` are the arithmetic of the
/// reference. `shift_away` is `fixed_point` if all shifts are to the right by at least one bit. `shift_up` is the same,
/// but rounds ties up, which no result shows if `low` is not below the zero point. Only kernels with `has_shifts` have
/// these two modes.
///
/// In the modes with `even`, value = zero + round(sum * scale + half), rounded half to even, where `half` is the bias
/// in steps of the result. `exact_even` is the arithmetic of the reference: round((sum * scale + half) / divisor), with
/// the product of the scales and the bias as they are.
struct Q8Requantization {
  enum Mode : int32_t {
    single,
    twofold,
    fixed_point,
    real,
    shift_up,
    shift_away,
    single_even,
    twofold_even,
    exact_even
  };
  Mode mode;
  int32_t zero, low, high;                 // of unsigned values
  uint32_t flip;                           // 0x80808080 if the result is int8, else 0
  const float *scale, *scale_rest, *half;  // for each lane of each panel
  const double *wide_scale, *wide_half;    // twofold; real: the factor
  const int32_t *multiplier, *shift;       // fixed_point and shifts; a positive shift is to the left
  const int32_t* weight_offset;            // nullptr, or the factor of the sum of the bytes that is added to a sum
  double divisor = 1;                      // exact_even: the scale of the result

  /// Whether a sum is requantized within its lane, and without a branch.
  bool is_simple() const { return mode == single || mode == single_even || mode == shift_up || mode == shift_away; }
};

/// Float32 arithmetic of two quantized values, whose result is divided by the scale of the result and rounded half to
/// even: the scales of both operands and of the result.
struct Q8Scales {
  float a, b, out;
};

/// The sum of two quantized tensors in the integer arithmetic of the reference. Each operand is shifted left by 20 bits
/// and rescaled to a common scale. Their sum is rescaled to the scale of the result. All values are unsigned.
struct Q8Add {
  struct Factor {
    int32_t zero, multiplier, shift;
  } a, b, out;
  int32_t low, high;
  uint32_t flip_b, flip;  // of operand b, and of the result
  // In float32, the result is a * scale_a + b * scale_b + shift plus the zero point, with a small error. A value at
  // most `limit` away from an integer is rounded to it; other values are computed in integers. A negative `limit`
  // selects integers for all values.
  float scale_a, scale_b, shift, limit;
  // If true, a * exact_a + b * exact_b + exact_shift, rounded to an integer, plus the zero point was shown to be the
  // result for all values of a and b, before the clamp.
  bool is_exact;
  float exact_a, exact_b, exact_shift;
  bool to_even;     // the arithmetic of the reference is that of `scales`, not of integers
  Q8Scales scales;  // as ONNX computes it
};

/// The product of two quantized values: zero + (a - zero_a) * (b - zero_b) * factor. All values are unsigned.
struct Q8Multiply {
  int32_t zero_a, zero_b, zero, multiplier, shift;
  uint32_t flip_a, flip_b, flip;
  bool one_a, one_b;  // one value for all elements
  bool to_even;       // the product is computed with `scales`, as ONNX does, not in integers
  Q8Scales scales;
};

enum class Q16Operation { sum, product, quotient };

/// An operation on two quantized values of int16. In integers, all zero points of sums and products are 0: the operands
/// of a sum are shifted left by 15 bits and rescaled to a common scale, and only the result of a product is rescaled. A
/// quotient is that of `native::quotient`.
struct Q16Pair {
  Q8Add::Factor a, b, out;
  bool one_a, one_b;  // one value for all elements
  Q16Operation operation;
  bool to_even;  // computed with `scales`, as ONNX does, not in integers
  Q8Scales scales;
  const int32_t* inverses;  // `native::Reciprocals`, for quotients in integers
};

/// A residual that is added to the result of a panel; `add` is nullptr if there is none.
struct Q8Residual {
  const Q8Add* add;
  const uint8_t* codes;
  int64_t step;
};

/// Conversion of sums to int32, or to float32 if `scale` is present: clamp(sum * scale + bias, low, high).
struct Q8Conversion {
  const int32_t* weight_offset;  // for each lane of each panel: the factor of the sum of the bytes that is added
  const float *scale, *bias;     // by channel; nullptr if absent
  bool many_scales;              // a scale for each channel instead of one
  float low, high;
};

/// Quantization of floats: zero + clamp(round(x / scale), low, high), and zero + none for NaN.
struct Q8Quantization {
  float scale;
  int32_t zero;
  float low, high, none;  // in steps
  bool to_even;           // halves are rounded to even integers, else away from zero
};

/// The product of the distances of bytes from their zero point and a factor in fixed point: a distance is shifted to
/// the left, multiplied by (high * 2**15 + low) / 2**31, and shifted to the right. Both products are rounded like those
/// of native::multiply. Results are distances from 128.
struct Q8Factor {
  int32_t left;       // at most 7, so that the products fit into 32 bits
  int32_t high, low;  // of 16 and of 15 bits
  int32_t right;
};

/// Weights of a depthwise convolution. Each group multiplies the bytes of 4 taps for `rows` rows of output.
struct Q8Depthwise {
  int64_t groups;
  int64_t sets;           // number of int8 summands of each weight minus its zero point: 3 only for a difference of 255
  int64_t period;         // vectors of bytes after which the channels repeat
  int64_t rows;           // 1 or 2
  const int8_t* weights;  // (period, groups, rows, sets, 4 vectors)
  const int32_t* bias;    // (period, 4 vectors)
};

/// The product of one contiguous pixel and consecutive panels of weights, whose requantization is simple.
struct Q8GemvPanel {
  int64_t first;  // first channel
  int32_t channels, vectors;
  int64_t lane;    // of the first channel, in the arrays of the requantization
  int64_t offset;  // of the weights, in bytes
};
struct Q8Gemv {
  const Q8GemvPanel* panels;
  int64_t words;
  uint32_t flip;
  const int8_t* weights;
  const int32_t* bias;
  const Q8Requantization* requantization;
};

struct GemmQ8Kernels {
  int lanes;
  bool is_signed;    // the kernels multiply signed bytes of activations
  int weight_bytes;  // consecutive bytes of a channel in packed weights: 4 or 8; see place_of_word()
  bool has_shifts;   // requantization in fixed point is quicker than in float64, and by shifts than in float32
  int max_rows[5];   // MR: the rows of a tile, by the number of vectors
  /// sums[m][n] = bias[n] + the products of pixel m and the panel; sums are (rows, vectors, lanes).
  void (*tile)(int rows, int vectors, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums);
  /// The same for one vector, if a segment is three neighbouring pixels and the next row begins one pixel later.
  /// nullptr if this is not faster.
  void (*row_tile)(int rows, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums);
  /// The same for one contiguous pixel.
  void (*gemv_tile)(int vectors, const uint8_t* from, int64_t words, uint32_t flip, const int8_t* weights,
                    const int32_t* bias, int32_t* sums);
  /// Compute panels [first, last) of one pixel.
  void (*gemv)(const Q8Gemv& vector, const uint8_t* from, uint8_t* out, int64_t first, int64_t last);
  /// Requantize the sums of one panel to `channels` values in each row. `lane` is the first lane of the panel in the
  /// arrays of `requantization`. `byte_sums` has the sum of the bytes of each row, or is nullptr if no sum is needed.
  void (*requantize)(int rows, int vectors, const int32_t* sums, const Q8Requantization& requantization, int64_t lane,
                     const int32_t* byte_sums, uint8_t* out, int64_t step, int channels, const Q8Residual& residual);
  /// Convert the sums of one panel, whose lanes are consecutive channels from `channel` on, to 4 bytes each. Rows of
  /// the result are `step` bytes apart.
  void (*convert)(int rows, int vectors, const int32_t* sums, const Q8Conversion& conversion, int64_t lane,
                  int64_t channel, const int32_t* byte_sums, uint8_t* out, int64_t step, int channels);
};

struct DepthwiseQ8Kernels {
  int lanes;
  bool is_signed;  // the taps are signed bytes
  /// Compute `bytes` values in each row; sums have the lanes of a panel of 4 vectors.
  void (*convolve)(const Q8Depthwise& weights, const uint8_t* const* taps, const Q8Requantization& requantization,
                   uint8_t* const* out, int64_t bytes);
};

struct ElementwiseQ8Kernels {
  void (*copy)(uint8_t* to, const uint8_t* from, int64_t bytes, uint32_t flip);
  /// Copy pixels of `channels` bytes that are `step` bytes apart to contiguous memory; repeat each byte `times` times.
  void (*gather)(uint8_t* to, const uint8_t* from, int64_t pixels, int64_t channels, int64_t step, int64_t times,
                 uint32_t flip);
  void (*add)(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t bytes, uint32_t flip_a, const Q8Add& add);
  void (*multiply)(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t bytes, const Q8Multiply& multiply);
  /// Add rows of bytes, with their highest bit inverted if `flip`, to `sums`. Rows are `step` bytes apart.
  void (*add_rows)(const uint8_t* from, int64_t rows, int64_t step, int64_t bytes, bool flip, uint32_t* sums);
  /// Let the bytes of four rows of `bytes` alternate, with their highest bit inverted if `flip`. Of `rows` fewer than
  /// four, the others are zero bytes. Rows are `step` bytes apart.
  void (*weave)(const uint8_t* from, int64_t rows, int64_t step, int64_t bytes, bool flip, uint8_t* to);
  /// The sum of at most 2**24 bytes, with their highest bit inverted if `flip`.
  uint32_t (*sum)(const uint8_t* from, int64_t count, bool flip);
  /// Replace elements of `most` by the bytes of rows, combined with `mask` by exclusive or, that are greater.
  void (*raise)(const uint8_t* from, int64_t rows, int64_t step, int64_t bytes, uint8_t mask, uint8_t* most);
  void (*clamp)(const uint8_t* from, uint8_t* to, int64_t bytes, uint32_t flip, int low, int high);
  void (*look_up)(const uint8_t* from, uint8_t* to, int64_t bytes, const uint8_t* table);
  /// Write the least number, or 0 if that is less, and the greatest, or 0 if that is greater; NaN if any number is NaN.
  void (*find_range)(const float* from, int64_t count, float* range);
  void (*quantize)(const float* from, uint8_t* to, int64_t count, const Q8Quantization& quantization);
  /// sums[n] += row[n] * factor.
  void (*add_product)(int32_t* sums, const int16_t* row, int32_t factor, int64_t count);
  /// to = (from - zero) * scale.
  void (*dequantize)(const uint8_t* from, float* to, int64_t count, bool is_signed, float scale, int32_t zero);
  /// The sum of the squares of at most 2**15 distances of unsigned bytes from their zero point.
  int32_t (*sum_squares)(const uint8_t* from, int64_t count, uint32_t flip, int32_t zero);
  /// Multiply the distances of unsigned bytes from their zero point by a factor.
  void (*scale)(const uint8_t* from, uint8_t* to, int64_t count, uint32_t flip, int32_t zero, const Q8Factor& factor);
  void (*combine_shorts)(const int16_t* a, const int16_t* b, int16_t* out, int64_t count, const Q16Pair& pair);
};
CPUACC_Q8_TABLE(GemmQ8Kernels, gemm_q8_kernels)
CPUACC_Q8_TABLE(DepthwiseQ8Kernels, depthwise_q8_kernels)
CPUACC_Q8_TABLE(ElementwiseQ8Kernels, elementwise_q8_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_Q8_HPP
