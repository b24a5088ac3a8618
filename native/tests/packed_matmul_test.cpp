// Products with packed weights, against sums in double.

#include "cpuacc/kernels/packed_matmul.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(PackedMatMulKernel);

/// Bits of a float16 or bfloat16 that represents a small multiple of a power of two exactly, and the number.
struct Sixteen {
  uint16_t bits;
  float number;
};

Sixteen sixteen(bool brain, Random& random) {
  const uint32_t sign = uint32_t(random.integer(0, 1)), exponent = uint32_t(random.integer(-4, 0) + (brain ? 127 : 15));
  const uint32_t fraction = uint32_t(random.integer(0, brain ? 127 : 1023));
  const double number = (1 + fraction / (brain ? 128.0 : 1024.0)) * std::pow(2.0, int(exponent) - (brain ? 127 : 15));
  return {uint16_t(sign << 15 | exponent << (brain ? 7 : 10) | fraction), float(sign ? -number : number)};
}

struct Options {
  WeightForm form = WeightForm::four;
  ScaleType scale = ScaleType::single;
  bool zeros = false;  // a zero point for each scale; otherwise `zero` for all
  float zero = 0;
  bool adds = false;  // a residual, with or without a function after it
  bool post_ops = false;
};

/// Random weights, packed as packed_matmul.hpp describes, and decoded.
struct Packed {
  Packed(int depth, int columns, int block, const Options& options, Random& random)
      : decoded(size_t(depth) * size_t(columns)) {
    const int64_t blocks = blocks_of(columns);
    w.form = options.form, w.scale_type = options.scale;
    w.depth = depth, w.columns = columns, w.block = block;
    w.zero = options.zeros ? 0 : options.zero;
    const int64_t each = bytes_of_column_block(w), scales_each = scale_blocks(w) * 16;
    codes.assign(size_t(blocks * each), 0);
    singles.assign(size_t(blocks * scales_each), 0);
    halves.assign(size_t(blocks * scales_each), 0);
    zeros.assign(size_t(blocks * scales_each), 0);
    for (int64_t n = 0; n < columns; ++n)
      for (int64_t b = 0; b < scale_blocks(w); ++b) {
        const size_t at = size_t(n / 16 * scales_each + b * 16 + n % 16);
        singles[at] = random.real(0.01f, 0.1f);
        if (options.scale != ScaleType::single) {
          const Sixteen scale = sixteen(options.scale == ScaleType::brain, random);
          halves[at] = scale.bits, singles[at] = scale.number;
        }
        if (options.zeros) zeros[at] = int8_t(random.integer(-20, 20));
        const float zero = options.zeros ? zeros[at] : w.zero;
        for (int64_t k = b * block; k < std::min<int64_t>((b + 1) * block, depth); ++k)
          decoded[size_t(k * columns + n)] = put(n, k, b, each, zero, singles[at], random);
      }
    w.codes = codes.data();
    w.scales = options.scale == ScaleType::single ? static_cast<const void*>(singles.data()) : halves.data();
    w.zeros = options.zeros ? zeros.data() : nullptr;
  }

  /// Store a random weight, and return it.
  float put(int64_t n, int64_t k, int64_t b, int64_t each, float zero, float scale, Random& random) {
    uint8_t* block = codes.data() + n / 16 * each;
    if (w.form == WeightForm::four) {
      const int64_t groups = (w.block + kGroup - 1) / kGroup, inside = k - b * w.block;
      const int64_t bit = ((b * groups + inside / kGroup) * 16 + n % 16) * 32 + inside % kGroup * 4;
      const int64_t code = random.integer(0, 15);
      block[bit / 8] = uint8_t(block[bit / 8] | code << bit % 8);
      return (float(code) - zero) * scale;
    }
    if (w.form == WeightForm::eight) {
      const int64_t code = random.integer(-128, 127);
      block[k * 16 + n % 16] = uint8_t(code);
      return (float(code) - zero) * scale;
    }
    const Sixteen value = sixteen(w.form == WeightForm::brain, random);
    std::memcpy(block + (k * 16 + n % 16) * 2, &value.bits, 2);
    return value.number;
  }

  PackedWeights w{};
  std::vector<uint8_t> codes;
  std::vector<float> singles, decoded;
  std::vector<uint16_t> halves;
  std::vector<int8_t> zeros;
};

void multiply(const PackedMatMulKernels& kernels, const PackedMatMul& p, const Floats& a, Floats& out,
              const float* residual, bool many) {
  const MatMul& m = p.product;
  const int blocks = int(blocks_of(m.columns));
  if (!many) {
    const int middle = blocks / 2;
    if (middle) kernels.few_rows(p, a.data(), out.data(), residual, {0, m.rows, 0, middle});
    kernels.few_rows(p, a.data(), out.data(), residual, {0, m.rows, middle, blocks});
    return;
  }
  const RowChunks cut(m);
  int64_t floats = 0;
  for (int chunk = 0; chunk < cut.chunks; ++chunk) floats += floats_of_chunk(m, cut.of(chunk));
  Floats packed(floats), scratch(scratch_of_many_rows(p, kernels.panel));
  float* to = packed.data();
  for (int chunk = 0, first = 0; chunk < cut.chunks; first += cut.of(chunk), ++chunk) {
    const int rows = cut.of(chunk);
    for (int row = 0; row < rows; row += 8)
      kernels.pack_rows(m, a.data() + (first + row) * m.a_row, to + row * 16, std::min(8, rows - row), rows);
    to += floats_of_chunk(m, rows);
  }
  const int panels = std::max(1, blocks / kernels.panel), middle = panels / 2 * kernels.panel;
  if (middle) kernels.many_rows(p, packed.data(), out.data(), residual, scratch.data(), {0, m.rows, 0, middle});
  kernels.many_rows(p, packed.data(), out.data(), residual, scratch.data(), {0, m.rows, middle, blocks});
}

void check(native::Isa isa, int rows, int columns, int depth, int block, const Options& options, bool many = false) {
  Random random(uint32_t(rows * 1000 + columns * 100 + depth * 10 + block));
  const Packed packed(depth, columns, std::min(block, depth), options, random);
  const std::vector<float> bias = random.reals(columns), added = random.reals(rows * columns);
  Floats a(random.reals(rows * depth)), biases(padded_to_block(bias)), residual(added), out(rows * columns);
  PackedMatMul p{packed.w, {}};
  MatMul& m = p.product;
  m.rows = rows, m.columns = columns, m.depth = depth;
  m.a_row = depth, m.a_depth = 1, m.out_row = columns;
  m.bias = biases.data();
  m.epilogue = {options.adds ? -kInfinity : -0.5f, kInfinity, 0, {}};
  if (options.post_ops)
    m.epilogue = {-kInfinity, kInfinity, 2, {{Function::add, 0, 0}, {Function::leaky_relu, 0.25f, 0}}};
  multiply(packed_matmul_kernels_for(isa), p, a, out, options.adds ? residual.data() : nullptr, many);
  std::vector<double> expected;
  for (int row = 0; row < rows; ++row)
    for (int n = 0; n < columns; ++n) {
      double sum = bias[size_t(n)];
      for (int k = 0; k < depth; ++k) sum += double(a[row * depth + k]) * packed.decoded[size_t(k * columns + n)];
      if (options.adds) sum += added[size_t(row * columns + n)];
      if (options.post_ops && sum < 0) sum *= 0.25;
      expected.push_back(options.adds ? sum : std::max(sum, -0.5));
    }
  expect_near(out, expected, rows * columns, 4e-6 * (depth + 8),
              describe("rows", rows, "columns", columns, "depth", depth, "block", block, "form", int(options.form),
                       "scale", int(options.scale), "zeros", options.zeros, "zero", options.zero, "adds", options.adds,
                       "post-ops", options.post_ops));
}

const std::vector<Options> kOptions = {
    {WeightForm::four, ScaleType::single, false, 8},
    {WeightForm::four, ScaleType::single, true},
    {WeightForm::four, ScaleType::half, false, 0, true},
    {WeightForm::four, ScaleType::brain, true},
    {WeightForm::eight, ScaleType::single},
    {WeightForm::eight, ScaleType::half, true, 0, true, true},
    {WeightForm::eight, ScaleType::brain, false, 0, true},
    {WeightForm::half},
    {WeightForm::brain, ScaleType::single, false, 0, true},
};

TEST_P(PackedMatMulKernel, multiplies_a_few_rows_of_every_size_around_a_tile) {
  for (const Options& options : kOptions)
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 19})
      for (int columns : {1, 16, 17, 32, 63, 64, 65, 150}) check(isa(), rows, columns, 40, 16, options);
}

TEST_P(PackedMatMulKernel, multiplies_every_depth_around_a_block) {
  for (const Options& options : kOptions)
    for (int depth : {1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70})
      for (int block : {8, 9, 16, 32, 1000})
        for (int rows : {1, 3}) check(isa(), rows, 35, depth, block, options);
}

TEST_P(PackedMatMulKernel, has_a_scale_for_each_element_of_the_depth) {
  for (int rows : {1, 4})
    for (int block : {1, 2, 3}) check(isa(), rows, 20, 11, block, {WeightForm::eight, ScaleType::single, true});
}

TEST_P(PackedMatMulKernel, multiplies_many_rows) {
  for (const Options& options : kOptions)
    for (int rows : {1, 9, 14, 15, 30})
      for (int columns : {1, 16, 31, 32, 33, 48, 64, 80, 100}) check(isa(), rows, columns, 37, 16, options, true);
}

TEST_P(PackedMatMulKernel, multiplies_more_rows_and_columns_than_the_cache_holds) {
  check(isa(), 150, 100, 2100, 32, kOptions[1], true);
  check(isa(), 71, 50, 9000, 256, kOptions[0], true);
  check(isa(), 600, 80, 300, 32, kOptions[0], true);
}

TEST_P(PackedMatMulKernel, sums_a_large_depth_in_passes) {
  for (const Options& options : kOptions)
    for (int depth : {255, 257, 520})
      for (int block : {9, 24, 32, 1000, 2000}) check(isa(), 17, 50, depth, block, options, true);
}

TEST_P(PackedMatMulKernel, spreads_infinities_and_nans_to_their_rows_only) {
  Random random(5);
  const Packed packed(32, 20, 16, kOptions[1], random);
  for (bool many : {false, true}) {
    Floats a(random.reals(3 * 32)), bias(32), out(3 * 20);
    a[32 + 5] = kNan;
    PackedMatMul p{packed.w, {}};
    p.product.rows = 3, p.product.columns = 20, p.product.depth = 32;
    p.product.a_row = 32, p.product.a_depth = 1, p.product.out_row = 20;
    p.product.bias = bias.data();
    p.product.epilogue = {-kInfinity, kInfinity, 0, {}};
    multiply(packed_matmul_kernels_for(isa()), p, a, out, nullptr, many);
    for (int n = 0; n < 60; ++n) EXPECT_EQ(std::isnan(out[n]), n / 20 == 1) << n;
  }
}

}  // namespace
}  // namespace cpuacc
