// Kernels of float32 that are limited by multiply-adds; weights are of a constant, as speed does not depend on values.

#include <numeric>

#include "bench.hpp"
#include "cpuacc/kernels/attention_f32.hpp"
#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/kernels/lstm.hpp"
#include "cpuacc/kernels/matmul_f32.hpp"
#include "cpuacc/kernels/winograd_f32.hpp"
#include "cpuacc/lower/window_f32.hpp"

namespace native::bench {
namespace {

using namespace cpuacc;

constexpr float kInfinity = __builtin_inff();
constexpr Epilogue kNoEpilogue{-kInfinity, kInfinity, 0, {}};

int64_t blocks_of(int64_t channels) { return (channels + 15) / 16; }

const ConvKernels& kernels_of(Isa isa) { return conv_kernels_for(isa, true); }

template <class Kernels>
Limit limit_of(const Kernels& kernels) {
  return kernels.bfloat16 ? Limit::multiply_add_bfloat16 : Limit::multiply_add;
}

/// Operands of one layer: an input, an output, weights, a bias of zeros, scratch memory.
struct Operands {
  Operands(int64_t inputs, int64_t outputs, int64_t weights, int64_t scratch)
      : in(buffer<float>(inputs, 0.5f)), out(buffer<float>(outputs)), weights(buffer<float>(weights, 0.25f)),
        bias(buffer<float>(4096)), scratch(buffer<float>(scratch)) {}

  std::shared_ptr<float[]> in, out, weights, bias, scratch;
};

std::string shape(int64_t height, int64_t width, int64_t channels, int64_t outputs) {
  return std::to_string(height) + "x" + std::to_string(width) + "x" + std::to_string(channels) + "->" +
         std::to_string(outputs);
}

Case pointwise(int32_t size, int32_t depth, int32_t outputs) {
  return {"conv_f32/pointwise/" + shape(size, size, depth, outputs), [=](Isa isa) -> Call {
            const ConvKernels& kernels = kernels_of(isa);
            const int32_t pixels = size * size, blocks = int32_t(blocks_of(outputs));
            Operands of(blocks_of(depth) * 16 * pixels, int64_t{blocks} * 16 * pixels, int64_t{blocks} * 16 * depth,
                        staged_words(depth, pixels));
            return {limit_of(kernels), 2.0 * pixels * depth * outputs, [=, &kernels] {
                      const Gemm gemm{depth, blocks, of.weights.get(), of.bias.get(), kNoEpilogue};
                      const int64_t block = int64_t{pixels} * 16;
                      kernels.pointwise(gemm, of.in.get(), block, of.out.get(), {block, block, 16}, nullptr,
                                        of.scratch.get(), {0, pixels, 0, blocks});
                    }};
          }};
}

Depthwise make_depthwise(int32_t blocks, int32_t size, int32_t kernel, int32_t stride, const float* weights,
                         const float* bias) {
  const int32_t out = (size + stride - 1) / stride, pad = kernel / 2;
  return {blocks, size, size, out, out, kernel, kernel, stride, stride, 1, 1, pad, pad, weights, bias, kNoEpilogue};
}

Case window(int32_t size, int32_t channels, int32_t outputs, int32_t kernel, int32_t stride) {
  const bool planar = channels < 8;
  const std::string window_name = std::to_string(kernel) + "x" + std::to_string(kernel) + "s" + std::to_string(stride);
  return {"conv_f32/window_" + window_name + "/" + shape(size, size, channels, outputs), [=](Isa isa) -> Call {
            const ConvKernels& kernels = kernels_of(isa);
            const int32_t out_size = (size + stride - 1) / stride, taps = kernel * kernel,
                          blocks = int32_t(blocks_of(outputs));
            const int64_t input = int64_t{size} * size * (planar ? channels : blocks_of(channels) * 16);
            Convolution c{};
            c.gemm = {channels, blocks, nullptr, nullptr, kNoEpilogue};
            c.depth = c.out_depth = c.kernel_depth = c.stride_z = c.dilation_z = 1;
            c.height = c.width = size, c.out_height = c.out_width = out_size, c.kernel_height = c.kernel_width = kernel;
            c.stride_y = c.stride_x = stride, c.dilation_y = c.dilation_x = 1, c.pad_top = c.pad_left = kernel / 2;
            c.strip = std::min(8, out_size), c.planar = planar;
            const WindowAxis columns{kernel, stride, 1, kernel / 2, size, out_size};
            auto segments = std::make_shared<std::vector<Segment>>(one_segment(columns));
            auto offsets = std::make_shared<std::vector<int32_t>>(make_taps(c));
            auto positions = std::make_shared<std::vector<int32_t>>(offsets->size());
            std::iota(positions->begin(), positions->end(), 0);
            c.segment_count = 1;
            Operands of(input, int64_t{blocks} * 16 * out_size * out_size, int64_t{blocks} * 16 * channels * taps,
                        StripLayout(c).channel * (planar ? channels : blocks_of(channels) * 16));
            c.gemm.weights = of.weights.get(), c.gemm.bias = of.bias.get();
            const InputStrides strides = planar ? InputStrides{int64_t{size} * size, size, 1, 0, 0, 0}
                                                : InputStrides{0, size * 16, 16, int64_t{size} * size * 16, 0, 0};
            return {planar ? Limit::multiply_add : limit_of(kernels),
                    2.0 * out_size * out_size * channels * outputs * taps, [=, &kernels] {
                      Convolution convolution = c;
                      convolution.taps = offsets->data(), convolution.positions = positions->data();
                      convolution.segments = segments->data();
                      kernels.direct(convolution, of.in.get(), strides, of.out.get(),
                                     {int64_t{out_size} * out_size * 16, out_size * 16, 16}, nullptr, of.scratch.get(),
                                     {0, out_size, 0, blocks});
                    }};
          }};
}

Case depthwise(int32_t size, int32_t channels, int32_t kernel, int32_t stride) {
  const std::string window_name = std::to_string(kernel) + "x" + std::to_string(kernel) + "s" + std::to_string(stride);
  return {"conv_f32/depthwise_" + window_name + "/" + shape(size, size, channels, channels), [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            const ConvKernels& kernels = kernels_of(isa);
            const int32_t blocks = int32_t(blocks_of(channels)), out_size = (size + stride - 1) / stride;
            Operands of(int64_t{blocks} * 16 * size * size, int64_t{blocks} * 16 * out_size * out_size,
                        int64_t{blocks} * 16 * kernel * kernel, 1 << 16);
            const Depthwise d = make_depthwise(blocks, size, kernel, stride, of.weights.get(), of.bias.get());
            return {Limit::multiply_add, 2.0 * out_size * out_size * channels * kernel * kernel, [=, &kernels] {
                      kernels.depthwise(d, of.in.get(), of.out.get(), nullptr, of.scratch.get(), 0,
                                        int64_t{blocks} * out_size);
                    }};
          }};
}

/// Counts the operations of the direct sum, so that the percentage may exceed 100.
Case winograd(int32_t tile, int32_t size, int32_t channels, int32_t outputs) {
  return {
      "conv_f32/winograd_" + std::to_string(tile) + "x" + std::to_string(tile) + "/" +
          shape(size, size, channels, outputs),
      [=](Isa isa) -> Call {
        const WinogradKernels& kernels = winograd_kernels_for(isa, true);
        const int32_t blocks = int32_t(blocks_of(outputs));
        Winograd w{{channels, blocks, nullptr, nullptr, kNoEpilogue}, tile, size, size, size, size, 1, 1, 28};
        Operands of(blocks_of(channels) * 16 * size * size, int64_t{blocks} * 16 * size * size,
                    int64_t{blocks} * 16 * channels * (tile + 2) * (tile + 2), scratch_of(w));
        w.gemm.weights = of.weights.get(), w.gemm.bias = of.bias.get();
        return {
            limit_of(kernels), 2.0 * size * size * channels * outputs * 9, [=, &kernels] {
              kernels.convolve(w, of.in.get(), of.out.get(), nullptr, of.scratch.get(), {0, squares_of(w), 0, blocks});
            }};
      }};
}

Case bottleneck(int32_t size, int32_t inputs, int32_t channels, int32_t outputs) {
  return {"conv_f32/bottleneck/" + shape(size, size, inputs, channels) + "->" + std::to_string(outputs),
          [=](Isa isa) -> Call {
            const ConvKernels& kernels = kernels_of(isa);
            const int32_t blocks = int32_t(blocks_of(channels)), out_blocks = int32_t(blocks_of(outputs)),
                          pixels = size * size;
            Bottleneck b{};
            Operands of(blocks_of(inputs) * 16 * pixels, int64_t{out_blocks} * 16 * pixels,
                        int64_t{blocks} * 16 * (inputs + outputs + 32), int64_t{blocks} * 16 * pixels * 4);
            b.expand = {inputs, blocks, of.weights.get(), of.bias.get(), kNoEpilogue};
            b.depthwise = make_depthwise(blocks, size, 3, 1, of.weights.get(), of.bias.get());
            b.project = {channels, out_blocks, of.weights.get(), of.bias.get(), kNoEpilogue};
            b.strip = std::min(size, 4);
            return {limit_of(kernels), 2.0 * pixels * channels * (inputs + 9 + outputs), [=, &kernels] {
                      kernels.bottleneck(b, of.in.get(), of.out.get(), nullptr, of.scratch.get(), {0, size, 0, blocks});
                    }};
          }};
}

MatMul make_product(int32_t rows, int32_t columns, int32_t depth, const Operands& of, bool packed) {
  MatMul m{rows,          columns,    depth, depth, 1, columns, 1, columns, packed ? of.weights.get() : nullptr,
           of.bias.get(), kNoEpilogue};
  return m;
}

Case matmul(int32_t rows, int32_t columns, int32_t depth, bool packed) {
  const std::string size = std::to_string(rows) + "x" + std::to_string(depth) + "x" + std::to_string(columns);
  return {std::string("matmul_f32/") + (packed ? "packed/" : "unpacked/") + size, [=](Isa isa) -> Call {
            if (!packed && isa == Isa::avx512bf16) return {};
            const MatMulKernels& kernels = matmul_kernels_for(isa, packed);
            Operands of(int64_t{rows} * depth, int64_t{rows} * columns, int64_t{columns + 16} * depth,
                        int64_t{rows + 16} * (depth + 128) + int64_t{columns + 16} * depth);
            const MatMul m = make_product(rows, columns, depth, of, packed);
            return {limit_of(kernels), 2.0 * rows * columns * depth, [=, &kernels] {
                      kernels.matmul(m, of.in.get(), of.weights.get(), of.out.get(), nullptr, of.scratch.get(),
                                     {0, rows, 0, (columns + 15) / 16});
                    }};
          }};
}

Case gemv(int32_t columns, int32_t depth, bool pairs) {
  return {std::string("matmul_f32/gemv") + (pairs ? "_bfloat16/" : "/") + std::to_string(depth) + "x" +
              std::to_string(columns),
          [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            Operands of(depth, columns, int64_t{columns + 16} * depth, 16);
            MatMul m = make_product(1, columns, depth, of, true);
            m.panel = 8, m.bfloat16 = pairs;
            return {
                Limit::copy, double(columns) * depth * (pairs ? 2 : 4), [=] {
                  matmul_kernels_for(isa).gemv(m, of.in.get(), of.out.get(), nullptr, {0, 1, 0, (columns + 15) / 16});
                }};
          }};
}

Case attention(int32_t queries, int32_t keys, int32_t size) {
  return {"attention_f32/" + std::to_string(queries) + "x" + std::to_string(keys) + "x" + std::to_string(size),
          [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            AttentionHead h{};
            h.queries = queries, h.keys = keys, h.size = h.value_size = size;
            h.query_row = h.key_row = h.value_row = h.out_row = size;
            h.query_element = h.key_element = h.value_element = 1;
            h.query_scale = 0.125f, h.scale = 1, h.left = h.right = -1, h.rows = 28;
            Operands of(int64_t{queries + 2 * keys} * size, int64_t{queries} * size, 16, scratch_of(h));
            return {Limit::multiply_add, 4.0 * queries * keys * size, [=] {
                      const float* in = of.in.get();
                      const AttentionOperands run{
                          in, in + queries * size, in + (queries + keys) * size, nullptr, of.bias.get(), 0, keys};
                      attention_kernels_for(isa).attend(h, run, of.out.get(), of.scratch.get(), 0, queries, false);
                    }};
          }};
}

Case lstm(int64_t size, bool pairs) {
  return {std::string("lstm_f32/step") + (pairs ? "_bfloat16/" : "/") + std::to_string(size), [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            Operands of(size, size, 4 * size * size, size);
            return {Limit::copy, 4.0 * double(size) * double(size) * (pairs ? 2 : 4), [=] {
                      for (int64_t block = 0; block < size / 16; ++block)
                        lstm_kernels_for(isa).step[pairs](of.weights.get() + block * (pairs ? size / 2 : size) * 64,
                                                          of.bias.get(), of.in.get(), of.scratch.get(), of.out.get(),
                                                          size, block);
                    }};
          }};
}

}  // namespace

std::vector<Case> cases_f32() {
  return {pointwise(56, 64, 64),
          pointwise(14, 384, 64),
          pointwise(7, 960, 160),
          window(112, 3, 32, 3, 2),
          window(28, 128, 128, 3, 1),
          window(28, 128, 128, 3, 2),
          depthwise(56, 144, 3, 1),
          depthwise(14, 384, 3, 1),
          depthwise(28, 192, 3, 2),
          depthwise(14, 384, 5, 1),
          winograd(2, 28, 128, 128),
          winograd(4, 28, 128, 128),
          bottleneck(28, 32, 192, 32),
          bottleneck(14, 64, 384, 64),
          matmul(128, 768, 768, true),
          matmul(128, 128, 64, false),
          gemv(1000, 1280, false),
          gemv(1000, 1280, true),
          attention(128, 128, 64),
          attention(512, 512, 64),
          lstm(128, false),
          lstm(128, true)};
}

}  // namespace native::bench
