// Kernels that read and write memory rather than multiply, on working sets that fit the second-level cache.

#include "bench.hpp"
#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/kernels/packed_matmul.hpp"
#include "cpuacc/kernels/pool.hpp"
#include "cpuacc/kernels/reorder.hpp"
#include "cpuacc/kernels/resize.hpp"
#include "cpuacc/kernels/rows.hpp"
#include "interposer/backend.h"

namespace native::bench {
namespace {

using namespace cpuacc;

constexpr int64_t kCount = 32768;

/// Inputs and an output of kCount floats; `bytes` are those of one element that are read and written.
using Floats = std::shared_ptr<float[]>;

Case floats(const std::string& name, double bytes,
            const std::function<void(Isa, const Floats&, const Floats&, const Floats&)>& run) {
  return {name, [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            auto a = buffer<float>(kCount, 0.75f), b = buffer<float>(kCount, 0.5f), out = buffer<float>(kCount);
            return {Limit::copy, double(kCount) * bytes, [=] { run(isa, a, b, out); }};
          }};
}

Case binary(const char* name, Binary operation) {
  return floats(std::string("elementwise/") + name, 12,
                [=](Isa isa, const Floats& a, const Floats& b, const Floats& out) {
                  element_kernels_for(isa).binary(operation, IPR_DTYPE_FLOAT32)(a.get(), b.get(), out.get(), kCount,
                                                                                false, false);
                });
}

Case unary(const char* name, Unary operation) {
  return floats(std::string("elementwise/") + name, 8, [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
    element_kernels_for(isa).unary(operation, IPR_DTYPE_FLOAT32)(a.get(), out.get(), kCount);
  });
}

Case activation(const char* name, Function function) {
  return floats(std::string("activation/") + name, 8, [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
    element_kernels_for(isa).activation(function, 1, 1, a.get(), out.get(), kCount);
  });
}

Case cast(const char* name, int32_t from, int32_t to, double bytes) {
  return floats(std::string("cast/") + name, bytes, [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
    element_kernels_for(isa).cast(from, to)(a.get(), out.get(), kCount);
  });
}

Case softmax(int64_t extent, int64_t inner) {
  return floats("softmax/" + std::to_string(extent) + "x" + std::to_string(inner), 8,
                [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
                  for (int64_t n = 0; n + extent * inner <= kCount; n += extent * inner)
                    softmax_kernels_for(isa).softmax(a.get() + n, out.get() + n, extent, inner, 0, inner, 1, false);
                });
}

Case reduce(const char* name, Reduction operation, int64_t extent, int64_t inner) {
  return floats(std::string("reduce/") + name + "/" + std::to_string(extent) + "x" + std::to_string(inner), 4,
                [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
                  for (int64_t n = 0; n + extent * inner <= kCount; n += extent * inner)
                    reduce_kernels_for(isa).reduce(operation, a.get() + n, out.get(), extent, inner, 0, inner);
                });
}

Case layer_normalization(int64_t length) {
  return floats("normalize/layer/" + std::to_string(length), 8,
                [=](Isa isa, const Floats& a, const Floats& b, const Floats& out) {
                  normalize_kernels_for(isa).standardize(a.get(), out.get(), kCount / length, length, Spread::variance,
                                                         1e-5f, {b.get(), b.get(), 1, length});
                });
}

Case unit_length(int64_t length) {
  return floats("normalize/unit_length/" + std::to_string(length), 8,
                [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
                  for (int64_t n = 0; n + length <= kCount; n += length)
                    normalize_kernels_for(isa).unit_length(a.get() + n, out.get() + n, length, 1, 0, 1, 1e-6f);
                });
}

Case affine_block() {
  return floats("normalize/affine_block", 8, [](Isa isa, const Floats& a, const Floats& b, const Floats& out) {
    normalize_kernels_for(isa).affine_block(a.get(), out.get(), kCount / 16, b.get(), b.get(), 0, 6);
  });
}

Case reorder(const char* name, bool blocked, bool channels_last) {
  return floats(std::string("reorder/") + name, 8, [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
    const BlockCopy copy{16, channels_last ? 1 : kCount / 16, channels_last ? 16 : 1};
    const ReorderKernels& kernels = reorder_kernels_for(isa);
    (blocked ? kernels.to_blocked : kernels.to_plain)(a.get(), out.get(), copy, 0, kCount / 16);
  });
}

Case transpose(int64_t item_size) {
  return floats("moves/transpose_" + std::to_string(item_size) + "_bytes", double(2 * item_size),
                [=](Isa isa, const Floats& a, const Floats&, const Floats& out) {
                  const int64_t side = 128, rows = side / (item_size / 4 > 1 ? item_size / 4 : 1);
                  Box box{2, item_size, {rows, side}, {item_size, rows * item_size}, {side * item_size, item_size}};
                  for (int64_t n = 0; n < kCount / (rows * side); ++n)
                    move_kernels_for(isa).copy(box, reinterpret_cast<char*>(a.get()),
                                               reinterpret_cast<char*>(out.get()), 0, rows);
                });
}

template <class T>
Case pool(const char* name, PoolKind kind, int32_t dtype, int64_t size, int64_t inner) {
  return {std::string("pool/") + name + "/" + std::to_string(size) + "x" + std::to_string(size) + "x" +
              std::to_string(inner),
          [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            Pool pool{};
            pool.kind = kind, pool.inner = inner, pool.row_item = 4;
            for (int axis = 0; axis < 3; ++axis) {
              const bool is_window = axis > 0;
              pool.extent[axis] = is_window ? size : 1, pool.places[axis] = is_window ? size / 2 : 1;
              pool.size[axis] = is_window ? 3 : 1, pool.stride[axis] = is_window ? 2 : 1, pool.dilation[axis] = 1;
              pool.pad[axis] = pool.pad_after[axis] = is_window;
            }
            auto in = buffer<T>(size * size * inner, T(3)), out = buffer<T>(size * size * inner / 4);
            auto scratch = buffer<int32_t>(scratch_items(pool));
            const PoolKernels::Row row = pool_kernels_for(isa).row(kind, dtype, 9);
            return {Limit::copy, double(size * size * inner) * 1.25 * sizeof(T), [=] {
                      for (int64_t y = 0; y < size / 2; ++y)
                        row(pool, in.get(), out.get() + y * (size / 2) * inner, 0, y, scratch.get());
                    }};
          }};
}

Case resize(int64_t width, int64_t inner) {
  return {"resize/linear/" + std::to_string(width) + "x" + std::to_string(inner), [=](Isa isa) -> Call {
            if (isa == Isa::avx512bf16) return {};
            auto in = buffer<float>(2 * width * inner, 1.0f), out = buffer<float>(2 * width * inner),
                 weight = buffer<float>(2 * width, 0.25f);
            auto low = buffer<int32_t>(2 * width), high = buffer<int32_t>(2 * width);
            for (int32_t x = 0; x < 2 * width; ++x)
              low[x] = x / 2, high[x] = std::min<int32_t>(x / 2 + 1, int32_t(width) - 1);
            return {Limit::copy, 4.0 * double(4 * width * inner), [=] {
                      const Places columns{low.get(), high.get(), weight.get(), nullptr};
                      resize_kernels_for(isa).linear(in.get(), in.get() + width * inner, out.get(), 0.5f, columns,
                                                     {width * inner, 2 * width, inner});
                    }};
          }};
}

/// A product of some rows with packed weights; reads of integers and scales.
Case packed_matmul(const char* name, WeightForm form, int32_t rows, int32_t depth, int32_t columns) {
  return {
      std::string("packed_matmul/") + name + "/" + std::to_string(rows) + "x" + std::to_string(depth) + "x" +
          std::to_string(columns),
      [=](Isa isa) -> Call {
        if (isa > Isa::avx512vnni) return {};
        PackedMatMul p{};
        p.weights.form = form, p.weights.depth = p.product.depth = depth;
        p.weights.columns = p.product.columns = columns, p.weights.block = form >= WeightForm::half ? depth : 32;
        p.product.rows = rows, p.product.a_row = depth, p.product.a_depth = 1, p.product.out_row = columns;
        p.product.epilogue = {-__builtin_inff(), __builtin_inff(), 0, {}};
        const int64_t blocks = (columns + 15) / 16, codes = blocks * bytes_of_column_block(p.weights);
        const int64_t scales = form >= WeightForm::half ? 0 : blocks * scale_blocks(p.weights) * 16;
        auto weights = buffer<uint8_t>(codes, 0x35);
        auto scale = buffer<float>(scales, 0.01f), bias = buffer<float>(blocks * 16);
        auto in = buffer<float>(int64_t{rows} * depth, 0.5f), out = buffer<float>(int64_t{rows} * columns);
        p.weights.codes = weights.get(), p.weights.scales = scale.get(), p.product.bias = bias.get();
        return {
            Limit::read, double(codes + 4 * scales), [=] {
              (void)weights, (void)scale, (void)bias;  // keep them
              packed_matmul_kernels_for(isa).few_rows(p, in.get(), out.get(), nullptr, {0, rows, 0, int32_t(blocks)});
            }};
      }};
}

/// The same with weights of float32.
Case gemv(int32_t depth, int32_t columns) {
  return {"matmul_f32/gemv_read/" + std::to_string(depth) + "x" + std::to_string(columns), [=](Isa isa) -> Call {
            if (isa > Isa::avx512vnni) return {};
            MatMul m{};
            m.rows = 1, m.depth = depth, m.columns = columns, m.panel = kMaxGemvPanel, m.a_depth = 1;
            m.epilogue = {-__builtin_inff(), __builtin_inff(), 0, {}};
            const int64_t blocks = (columns + 15) / 16, count = blocks * 16 * depth;
            auto weights = buffer<float>(count, 0.5f), bias = buffer<float>(blocks * 16);
            auto in = buffer<float>(depth, 0.5f), out = buffer<float>(columns);
            m.packed = weights.get(), m.bias = bias.get();
            return {Limit::read, 4.0 * double(count), [=] {
                      (void)weights, (void)bias;
                      matmul_kernels_for(isa).gemv(m, in.get(), out.get(), nullptr, {0, 1, 0, int32_t(blocks)});
                    }};
          }};
}

}  // namespace

std::vector<Case> cases_memory() {
  return {binary("add", Binary::add),
          binary("div", Binary::div),
          unary("exp", Unary::exp),
          unary("erf", Unary::erf),
          unary("sqrt", Unary::sqrt),
          activation("relu", Function::relu),
          activation("sigmoid", Function::sigmoid),
          activation("tanh", Function::tanh),
          activation("gelu", Function::gelu),
          activation("hard_swish", Function::hard_swish),
          cast("float32_to_int8", IPR_DTYPE_FLOAT32, IPR_DTYPE_INT8, 5),
          cast("float16_to_float32", IPR_DTYPE_FLOAT16, IPR_DTYPE_FLOAT32, 6),
          softmax(128, 1),
          softmax(16, 64),
          reduce("sum", Reduction::sum, 1024, 1),
          reduce("max", Reduction::max, 64, 512),
          layer_normalization(768),
          unit_length(512),
          affine_block(),
          reorder("nchw_to_nChw16c", true, false),
          reorder("nChw16c_to_nchw", false, false),
          reorder("nhwc_to_nChw16c", true, true),
          transpose(1),
          transpose(4),
          pool<float>("max_f32", PoolKind::max, IPR_DTYPE_FLOAT32, 56, 16),
          pool<uint8_t>("average_u8", PoolKind::average, IPR_DTYPE_UINT8, 28, 64),
          resize(64, 16),
          packed_matmul("int4", WeightForm::four, 1, 4096, 4096),
          packed_matmul("int4", WeightForm::four, 1, 4096, 11008),
          packed_matmul("int4", WeightForm::four, 1, 11008, 4096),
          packed_matmul("int4", WeightForm::four, 1, 768, 3072),
          packed_matmul("int4", WeightForm::four, 4, 4096, 4096),
          packed_matmul("int4", WeightForm::four, 8, 4096, 4096),
          packed_matmul("int4", WeightForm::four, 32, 4096, 4096),
          packed_matmul("int8", WeightForm::eight, 1, 4096, 4096),
          packed_matmul("int8", WeightForm::eight, 1, 768, 3072),
          packed_matmul("float16", WeightForm::half, 1, 4096, 4096),
          packed_matmul("bfloat16", WeightForm::brain, 1, 4096, 4096),
          gemv(4096, 4096),
          gemv(768, 3072)};
}

}  // namespace native::bench
