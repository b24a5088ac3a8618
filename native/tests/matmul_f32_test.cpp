// Products of float32 matrices and attention, against sums in double.

#include <array>

#include "cpuacc/kernels/attention_f32.hpp"
#include "cpuacc/kernels/matmul_f32.hpp"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(MatMulKernel);
KERNEL_SUITE(GemvKernel);
KERNEL_SUITE(AttentionKernel);

constexpr float kNoLimit = kInfinity;

/// out (rows, columns) = a (rows, depth) * b (depth, columns) + bias.
std::vector<float> multiplied(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& bias,
                              int rows, int columns, int depth) {
  std::vector<float> out;
  for (int m = 0; m < rows; ++m)
    for (int n = 0; n < columns; ++n) {
      double sum = bias[size_t(n)];
      for (int k = 0; k < depth; ++k) sum += double(a[size_t(m * depth + k)]) * b[size_t(k * columns + n)];
      out.push_back(float(sum));
    }
  return out;
}

std::vector<float> transposed(const std::vector<float>& matrix, int rows, int columns) {
  std::vector<float> out(matrix.size());
  for (int m = 0; m < rows; ++m)
    for (int n = 0; n < columns; ++n) out[size_t(n * rows + m)] = matrix[size_t(m * columns + n)];
  return out;
}

struct Case {
  bool a_transposed = false, b_transposed = false, packed = false, residual = false, post_ops = false;
};

void check_matmul(native::Isa isa, int rows, int columns, int depth, const Case& options) {
  Random random(uint32_t(rows * 100 + columns * 10 + depth));
  // Two neighbours in depth become one word of bfloat16: the rows have to be contiguous.
  const bool pairs = options.packed && !options.a_transposed && isa >= native::Isa::avx512bf16;
  const MatMulKernels& kernels = matmul_kernels_for(isa, pairs);
  std::vector<float> a = random.reals(rows * depth), b = random.reals(depth * columns), bias = random.reals(columns);
  const std::vector<float> added = random.reals(rows * columns);
  Floats left(options.a_transposed ? transposed(a, rows, depth) : a),
      right(options.b_transposed ? transposed(b, depth, columns) : b);
  Floats packed(pack_panels(transposed(b, depth, columns), columns, depth, 1, kernels.panel, 16, pairs));
  Floats biases(padded_to_block(bias)), residual(added), out(rows * columns);
  MatMul m{};
  m.rows = rows, m.columns = columns, m.depth = depth;
  m.a_row = options.a_transposed ? 1 : depth, m.a_depth = options.a_transposed ? rows : 1;
  m.b_depth = options.b_transposed ? 1 : columns, m.b_column = options.b_transposed ? depth : 1;
  m.out_row = columns;
  m.packed = options.packed ? packed.data() : nullptr;
  m.bias = biases.data();
  m.epilogue = {-kNoLimit, kNoLimit, 0, {}};
  if (options.post_ops)
    m.epilogue = {-kNoLimit, kNoLimit, 2, {{Function::add, 0, 0}, {Function::relu, 0, 0}}};
  else if (!options.residual)
    m.epilogue.low = -0.5f;
  Floats scratch(scratch_of(m));
  const bool adds = options.residual || options.post_ops;
  const int blocks = int(blocks_of(columns)), middle = rows / 2;
  for (const OutputRange& range : {OutputRange{0, middle, 0, blocks}, OutputRange{middle, rows, 0, blocks}})
    if (range.row < range.row_end)
      kernels.matmul(m, left.data(), right.data(), out.data(), adds ? residual.data() : nullptr, scratch.data(), range);
  if (pairs) a = rounded_to_bfloat16(a), b = rounded_to_bfloat16(b);
  std::vector<float> expected = multiplied(a, b, bias, rows, columns, depth);
  for (size_t n = 0; n < expected.size(); ++n) {
    if (adds) expected[n] += added[n];
    expected[n] = std::max(expected[n], options.post_ops ? 0.0f : m.epilogue.low);
  }
  expect_near(out, expected, rows * columns, 2e-6 * (depth + 8),
              describe("rows", rows, "columns", columns, "depth", depth, "a transposed", options.a_transposed,
                       "b transposed", options.b_transposed, "packed", options.packed, "residual", options.residual));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int n = 0; n < 16; ++n) all.push_back({(n & 1) != 0, (n & 2) != 0, (n & 4) != 0, (n & 8) != 0, n % 3 == 0});
  return all;
}

TEST_P(MatMulKernel, takes_every_number_of_rows_around_a_tile) {
  for (int rows = 1; rows <= 30; ++rows) check_matmul(isa(), rows, 40, 19, cases()[size_t(rows % 16)]);
}

TEST_P(MatMulKernel, takes_every_number_of_columns_around_a_panel) {
  for (int columns = 1; columns <= 66; ++columns) check_matmul(isa(), 10, columns, 18, cases()[size_t(columns % 16)]);
}

TEST_P(MatMulKernel, takes_every_depth_around_a_block) {
  for (int depth = 1; depth <= 50; ++depth) check_matmul(isa(), 11, 37, depth, cases()[size_t(depth % 16)]);
}

TEST_P(MatMulKernel, takes_all_layouts_and_epilogues) {
  for (const Case& options : cases())
    for (int columns : {16, 32, 35}) check_matmul(isa(), 17, columns, 33, options);
}

TEST_P(MatMulKernel, packs_many_rows_in_several_passes) { check_matmul(isa(), 150, 33, 2000, {}); }

TEST_P(MatMulKernel, sums_deep_rows_in_several_passes) {
  for (const Case& options : cases()) check_matmul(isa(), 140, 100, 1030, options);
}

void check_gemv(native::Isa isa, int columns, int depth, int panel, bool pairs, int epilogue) {
  Random random(uint32_t(columns * 10 + depth));
  std::vector<float> a = random.reals(depth), b = random.reals(depth * columns), bias = random.reals(columns);
  const std::vector<float> added = random.reals(columns), by_column = transposed(b, depth, columns);
  std::vector<float> panels;
  const int blocks = int(blocks_of(columns));
  for (int block = 0; block < blocks; block += panel) {
    const int wide = std::min(panel, blocks - block), outputs = std::min(wide * 16, columns - block * 16);
    std::vector<float> own(by_column.begin() + block * 16 * depth, by_column.begin() + (block * 16 + outputs) * depth);
    auto words = pack_panels(own, outputs, depth, 1, wide, 16, pairs);
    panels.insert(panels.end(), words.begin(), words.end());
  }
  Floats left(a), packed(panels), biases(padded_to_block(bias)), residual(added), out(columns);
  MatMul m{};
  m.rows = 1, m.columns = columns, m.depth = depth, m.out_row = columns;
  m.packed = packed.data(), m.bias = biases.data(), m.panel = panel, m.bfloat16 = pairs;
  m.epilogue = {-kNoLimit, 0.75f, 0, {}};
  if (epilogue == 2) m.epilogue = {-kNoLimit, kNoLimit, 2, {{Function::add, 0, 0}, {Function::abs, 0, 0}}};
  const int middle = blocks / 2 / panel * panel;
  const float* with = epilogue ? residual.data() : nullptr;
  matmul_kernels_for(isa).gemv(m, left.data(), out.data(), with, {0, 1, 0, middle});
  matmul_kernels_for(isa).gemv(m, left.data(), out.data(), with, {0, 1, middle, blocks});
  if (pairs) b = rounded_to_bfloat16(b);
  std::vector<float> expected = multiplied(a, b, bias, 1, columns, depth);
  for (size_t n = 0; n < expected.size(); ++n) {
    if (epilogue) expected[n] += added[n];
    expected[n] = epilogue == 2 ? std::abs(expected[n]) : std::min(expected[n], 0.75f);
  }
  expect_near(out, expected, columns, 2e-6 * (depth + 8),
              describe("columns", columns, "depth", depth, "panel", panel, "pairs", pairs, "epilogue", epilogue));
}

TEST_P(GemvKernel, multiplies_one_row) {
  int n = 0;
  for (int columns : {1, 15, 16, 17, 33, 64, 127, 128, 129, 272})
    for (int depth : {1, 2, 3, 16, 65})
      for (int panel : {1, 2, 3, 8})
        for (bool pairs : {false, true}) check_gemv(isa(), columns, depth, panel, pairs, n++ % 3);
}

// ---- Attention ------------------------------------------------------------------------------------------------------

struct Heads {
  int queries, keys, size, value_size, rows;
  enum class Mask { none, one_bool, each_float } mask = Mask::none;
  int64_t left = -1, right = -1, valid = -1, position = 0;
  float cap = 0;
  bool zero_if_no_key = false, nan_in_unseen = false;
  std::vector<uint8_t> selected;  // of keys: their scores are selected, or, if inverted, replaced; not used if empty
  bool inverted = false;
  float replacement = 0;
  std::vector<float> sink = {};  // one score of a key without a value, or none
};

void check_attention(native::Isa isa, const Heads& c) {
  Random random(uint32_t(c.queries * 100 + c.keys));
  std::vector<float> query = random.reals(c.queries * c.size), key = random.reals(c.keys * c.size);
  std::vector<float> value = random.reals(c.keys * c.value_size);
  std::vector<uint8_t> shown = random.integers<uint8_t>(c.keys, 0, 1);
  std::vector<float> scores_added = random.reals(c.queries * c.keys);
  const int64_t valid = c.valid < 0 ? c.keys : c.valid;
  shown[0] = 1;
  if (c.nan_in_unseen)
    for (int n = 0; n < c.value_size; ++n) value[size_t((c.keys - 1) * c.value_size + n)] = n % 2 ? kNan : kInfinity;
  Floats q(query), k(key), v(value), zeros(std::max(blocks_of(c.keys), blocks_of(c.value_size)) * 16, 0.0f);
  Floats mask_floats(scores_added), out(c.queries * c.value_size);
  Guarded<uint8_t> mask_bools(shown);
  AttentionHead h{};
  h.queries = c.queries, h.keys = c.keys, h.size = c.size, h.value_size = c.value_size;
  h.query_row = c.size, h.query_element = 1, h.key_row = c.size, h.key_element = 1;
  h.value_row = c.value_size, h.value_element = 1, h.out_row = c.value_size;
  h.query_scale = 0.5f, h.scale = 0.8f, h.cap = c.cap;
  h.mask_row = c.mask == Heads::Mask::each_float ? c.keys : 0, h.mask_key = 1, h.mask_keys = c.keys;
  h.mask_is_bool = c.mask == Heads::Mask::one_bool, h.zero_if_no_key = c.zero_if_no_key, h.excludes = true;
  h.left = c.left, h.right = c.right, h.rows = c.rows;
  const void* mask = c.mask == Heads::Mask::none       ? nullptr
                     : c.mask == Heads::Mask::one_bool ? static_cast<const void*>(mask_bools.data())
                                                       : mask_floats.data();
  AttentionOperands run{q.data(), k.data(), v.data(), mask, zeros.data(), c.position, valid, {}};
  Floats bias(scores_added), scratch(scratch_of(h)), sink(c.sink);
  if (!c.sink.empty()) run.sink = sink.data();
  Guarded<uint8_t> selected(c.selected);
  if (!c.selected.empty()) {
    h.terms = 2;
    h.term[0] = {false, false, 0, c.keys, 1};
    h.term[1] = {true, c.inverted, c.replacement, 0, 1};
    run.term[0] = bias.data(), run.term[1] = selected.data();
  }
  const int middle = c.queries / 2;
  const AttentionKernels& kernels = attention_kernels_for(isa);
  if (middle > 0) kernels.attend(h, run, out.data(), scratch.data(), 0, middle, false);
  kernels.attend(h, run, out.data(), scratch.data(), middle, c.queries, middle > 0);

  std::vector<double> expected;
  for (int m = 0; m < c.queries; ++m) {
    std::vector<double> powers(size_t(c.keys), 0.0);
    double total = c.sink.empty() ? 0 : std::exp(double(c.sink[0]));
    for (int n = 0; n < c.keys; ++n) {
      int64_t place = m + c.position;
      bool is_seen = n < valid && (c.left < 0 || n >= place - c.left) && (c.right < 0 || n <= place + c.right) &&
                     (!h.mask_is_bool || !mask || shown[size_t(n)]);
      if (!is_seen) continue;
      double x = 0;
      for (int e = 0; e < c.size; ++e) x += 0.5 * query[size_t(m * c.size + e)] * key[size_t(n * c.size + e)];
      x *= double(0.8f);
      if (c.cap != 0) x = c.cap * std::tanh(x / c.cap);
      if (c.mask == Heads::Mask::each_float || !c.selected.empty()) x += scores_added[size_t(m * c.keys + n)];
      if (!c.selected.empty() && (c.selected[size_t(n)] != 0) == c.inverted) x = c.replacement;
      total += powers[size_t(n)] = std::exp(x);
    }
    for (int e = 0; e < c.value_size; ++e) {
      double sum = 0;
      for (int n = 0; n < c.keys; ++n)
        if (powers[size_t(n)] != 0) sum += powers[size_t(n)] / total * value[size_t(n * c.value_size + e)];
      expected.push_back(total == 0 && !c.zero_if_no_key ? kNan : sum);
    }
  }
  const std::string what =
      describe("queries", c.queries, "keys", c.keys, "size", c.size, "values", c.value_size, "rows", c.rows, "mask",
               int(c.mask), "left", c.left, "right", c.right, "valid", c.valid);
  expect_near(out, expected, out.size(), 1e-5, what);
  if (2 * c.queries > kFewQueries) return;
  Floats columns(transposed(key, c.keys, c.size)), few(scratch_of_few(h, 2 * c.queries));
  for (bool by_columns : {false, true}) {
    if (by_columns) run.key = columns.data(), h.key_row = 1, h.key_element = c.keys;
    Floats first(out.size()), second(out.size());
    const AttentionOperands heads[] = {run, run};
    float* outs[] = {first.data(), second.data()};
    kernels.attend_few(h, heads, outs, 2, few.data());
    expect_near(first, expected, out.size(), 1e-5, what + ", few queries");
    expect_near(second, expected, out.size(), 1e-5, what + ", few queries of the second head");
  }
}

TEST_P(AttentionKernel, takes_every_size_around_a_block) {
  for (int queries : {1, 2, 3, 13, 14, 15, 29})
    for (int keys : {1, 15, 16, 17, 33})
      for (int size : {1, 16, 20}) check_attention(isa(), {queries, keys, size, keys % 2 ? 16 : 19, 14});
}

TEST_P(AttentionKernel, adds_and_excludes_by_masks) {
  for (auto mask : {Heads::Mask::one_bool, Heads::Mask::each_float})
    for (int keys : {5, 16, 35}) {
      Heads c{9, keys, 8, 24, 4};
      c.mask = mask;
      check_attention(isa(), c);
    }
}

TEST_P(AttentionKernel, gives_a_sink_its_part) {
  for (float score : {-3.0f, 0.5f, 40.0f, -kInfinity})
    for (int queries : {1, 3, 15})
      for (int64_t valid : {0, 3, 17}) {
        Heads c{queries, 17, 8, 24, 4};
        c.sink = {score}, c.valid = valid, c.right = valid == 17 ? -1 : 1;
        c.zero_if_no_key = true, c.nan_in_unseen = valid == 3;
        check_attention(isa(), c);
      }
}

TEST_P(AttentionKernel, shows_a_query_the_keys_around_its_position) {
  for (auto [left, right] : {std::array<int64_t, 2>{-1, 0}, {3, 0}, {2, 2}, {0, -1}})
    for (int64_t position : {0, 4}) {
      Heads c{12, 20, 16, 16, 5};
      c.left = left, c.right = right, c.position = position;
      check_attention(isa(), c);
    }
}

TEST_P(AttentionKernel, adds_terms_and_replaces_scores) {
  for (int queries : {1, 2, 4, 9})
    for (int keys : {3, 16, 37})
      for (bool inverted : {false, true}) {
        Heads c{queries, keys, 20, 24, 14};
        c.inverted = inverted, c.replacement = -0.5f;
        for (int n = 0; n < keys; ++n) c.selected.push_back(n % 3 == 0);
        check_attention(isa(), c);
      }
}

TEST_P(AttentionKernel, caps_scores) {
  Heads c{7, 18, 16, 16, 14};
  c.cap = 0.75f;
  check_attention(isa(), c);
}

TEST_P(AttentionKernel, leaves_keys_out_that_are_not_valid_even_if_they_hold_nan) {
  for (bool zero_if_no_key : {false, true})
    for (int64_t valid : {1, 12, 17}) {
      Heads c{6, 18, 16, 16, 14};
      c.valid = valid, c.zero_if_no_key = zero_if_no_key, c.nan_in_unseen = true;
      check_attention(isa(), c);
    }
}

TEST_P(AttentionKernel, gives_zeros_if_no_key_is_visible) {
  Heads c{3, 18, 16, 16, 14};
  c.valid = 0, c.zero_if_no_key = true;
  check_attention(isa(), c);
}

}  // namespace
}  // namespace cpuacc
