// Kernels on codes of 8 bits: sums of products of unsigned activations and signed weights in int32, and the way back to
// codes. Signed activations become unsigned by turning their highest bit (`flip`), which adds 128 to their zero point.
//
// Sums come in vectors of `lanes` int32. A panel is 1, 2 or 4 vectors; channels lie in it in the order in which packing
// instructions put them back into their own: channel_of() tells which one a lane holds.

#ifndef CPUACC_KERNELS_Q8_HPP
#define CPUACC_KERNELS_Q8_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// The channel, counted from the first of its panel, that lane `lane` of vector `vector` of `vectors` holds.
constexpr int channel_of(int vectors, int vector, int lane) { return lane / 4 * 4 * vectors + vector * 4 + lane % 4; }

/// Where the bytes to be multiplied lie: pixel m begins `offset + m * step` behind every segment.
struct Q8Rows {
  const uint8_t* const* segments;
  int64_t segment_count;
  int64_t words;  // of 4 bytes, in a segment
  int64_t offset, step;
  uint32_t flip;  // 0x80808080 for int8
};

/// code = zero + trunc(sum * scale + copysign(half, sum)), clamped: in float32 (with the scale in two parts) or in
/// float64 where it was shown that this is what the reference computes for every sum; else as the reference does.
struct Q8Requantization {
  enum Mode : int32_t { single, twofold, fixed_point, real };
  Mode mode;
  int32_t zero, low, high;  // of unsigned codes
  uint32_t flip;            // 0x80808080 where the result is int8
  const float *scale, *scale_rest, *half;                   // for every lane of every panel
  const double *wide_scale, *wide_half;                     // twofold; real: the factor
  const int32_t *multiplier, *shift;                        // fixed_point; shift is to the left
  const int32_t* weight_offset;  // nullptr, or what times the sum of the bytes is to be added to a sum
};

/// The sum of two tensors of codes, in integers as the reference has it: each operand is shifted left by 20 bits and
/// rescaled to a common scale, their sum is rescaled to the result's. All codes are unsigned.
struct Q8Add {
  struct Factor {
    int32_t zero, multiplier, shift;
  } a, b, out;
  int32_t low, high;
  uint32_t flip_b, flip;  // of the operand b as it is loaded, and of the result
  // Distance from zero = a * scale_a + b * scale_b + shift, nearly. What is at most `limit` away from a whole number is
  // rounded to it; the rest is computed in integers, everything where `limit` is negative.
  float scale_a, scale_b, shift, limit;
};

/// Something to be added to the result of a panel; `add` is nullptr where there is nothing.
struct Q8Residual {
  const Q8Add* add;
  const uint8_t* codes;
  int64_t step;
};

/// Depthwise: every group multiplies 4 bytes of each lane, from 4 pointers, for `rows` rows of the output.
struct Q8Depthwise {
  int64_t groups;
  int64_t sets;    // a weight minus its zero point is the sum of so many int8 values: 3 only for 255
  int64_t period;  // after so many vectors of bytes the channels begin anew
  int64_t rows;    // 1 or 2
  const int8_t* weights;  // (period, groups, rows, sets, 4 vectors)
  const int32_t* bias;    // (period, 4 vectors)
};

/// One pixel that lies in one piece, times weights whose panels lie one behind the other, to codes (of mode `single`).
struct Q8GemvPanel {
  int64_t first;  // channel
  int32_t channels, vectors;
  int64_t lane;    // of the first channel, in the arrays of the finish
  int64_t offset;  // of its weights
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
  int max_rows[5];  // pixels of a tile, by the number of vectors
  /// sums[m][n] = bias[n] + the products of pixel m and panel; (rows, vectors, lanes) sums.
  void (*tile)(int rows, int vectors, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums);
  /// The same for one vector, where segments are three pixels and the next one is the pixel behind the first. nullptr
  /// where that is no quicker.
  void (*row_tile)(int rows, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums);
  /// The same for one pixel that lies in one piece.
  void (*gemv_tile)(int vectors, const uint8_t* from, int64_t words, uint32_t flip, const int8_t* weights,
                      const int32_t* bias, int32_t* sums);
  /// Panels [first, last) of one pixel.
  void (*gemv)(const Q8Gemv& vector, const uint8_t* from, uint8_t* out, int64_t first, int64_t last);
  /// Sums of one panel to `channels` codes in each row. `lane` is the panel's first in the arrays of `finish`;
  /// `byte_sums` has the sum of the bytes of each row, or is nullptr where there is nothing to be added.
  void (*requantize)(int rows, int vectors, const int32_t* sums, const Q8Requantization& requantization, int64_t lane,
                 const int32_t* byte_sums, uint8_t* out, int64_t step, int channels, const Q8Residual& residual);
};

struct DepthwiseQ8Kernels {
  int lanes;
  /// `bytes` codes in each row; sums are of 4 vectors as in a panel.
  void (*convolve)(const Q8Depthwise& weights, const uint8_t* const* taps, const Q8Requantization& requantization, uint8_t* const* out,
                    int64_t bytes);
};

struct ElementwiseQ8Kernels {
  void (*copy)(uint8_t* to, const uint8_t* from, int64_t bytes, uint32_t flip);
  /// Pixels of `channels` bytes that lie `step` bytes apart, put together; each byte `times` times.
  void (*gather)(uint8_t* to, const uint8_t* from, int64_t pixels, int64_t channels, int64_t step, int64_t times,
                 uint32_t flip);
  void (*add)(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t bytes, uint32_t flip_a, const Q8Add& add);
  void (*clamp)(const uint8_t* from, uint8_t* to, int64_t bytes, uint32_t flip, int low, int high);
  void (*look_up)(const uint8_t* from, uint8_t* to, int64_t bytes, const uint8_t* table);
};
CPUACC_TABLE(GemmQ8Kernels, gemm_q8_kernels)
CPUACC_TABLE(DepthwiseQ8Kernels, depthwise_q8_kernels)
CPUACC_TABLE(ElementwiseQ8Kernels, elementwise_q8_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_Q8_HPP
