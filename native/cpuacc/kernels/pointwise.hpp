// 1x1 convolutions of nChw16c images, and the conversion of such images to words of bfloat16 pairs.

#ifndef CPUACC_KERNELS_POINTWISE_HPP
#define CPUACC_KERNELS_POINTWISE_HPP

#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/kernels/gemm.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// Convert pixels of an nChw16c image to words. `to` may be `in`.
void pack_words(const float* in, int64_t in_block, int channels, int pixels, float* to, int64_t to_block) {
  for (int block = 0; block * 16 < channels; ++block)
    for (int pixel = 0; pixel < pixels; ++pixel)
      store_row(in + block * in_block + pixel * 16, channels - block * 16 < 16 ? channels - block * 16 : 16,
                to + place_of_block(block, to_block) + pixel * 16);
}

/// The GEMM of an nChw16c image. Kernels for bfloat16 convert pixels to words in scratch memory first.
void pointwise(const Gemm& p, const float* in, int64_t in_block, float* out, const OutputStrides& out_strides,
               const float* residual, float* scratch, const OutputRange& range) {
  if (!kBfloat16Pairs) return gemm(p, in, in_block, out, out_strides, residual, range);
  const int most = staged_pixels(p.depth);
  for (int row = range.row; row < range.row_end; row += most) {
    int count = range.row_end - row < most ? range.row_end - row : most;
    pack_words(in + row * 16, in_block, p.depth, count, scratch, int64_t{count} * 16);
    gemm(p, scratch, int64_t{count} * 16, out + row * out_strides.pixel, out_strides,
         residual ? residual + row * out_strides.pixel : nullptr, {0, count, range.block, range.block_end});
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_POINTWISE_HPP
