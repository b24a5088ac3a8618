// Attention of one head: both products and the softmax between them, for as many queries at once as fit the cache.

#ifndef CPUACC_KERNELS_ATTENTION_HPP
#define CPUACC_KERNELS_ATTENTION_HPP

#include <math.h>

#include "cpuacc/kernels/attention_f32.hpp"
#include "cpuacc/kernels/matmul.hpp"

namespace cpuacc::ISA_NS {
namespace {

/// The keys [begin, end) that are visible to one query by its position and the number of valid keys.
struct VisibleKeys {
  VisibleKeys(const AttentionHead& h, const AttentionOperands& run, int row) : begin(0), end(run.valid) {
    int64_t position = row + run.position;
    if (h.left >= 0 && position - h.left > begin) begin = position - h.left;
    if (h.right >= 0 && position + h.right + 1 < end) end = position + h.right + 1;
    if (run.mask && h.mask_keys < end) end = h.mask_keys;
    if (end < begin) end = begin;
  }
  int64_t begin, end;
};

/// Write the term that is added to the scores of one query: the mask, and minus infinity for keys that are not visible.
void expand_mask(const AttentionHead& h, const AttentionOperands& run, int row, float* to) {
  const int padded = (h.keys + 15) / 16 * 16;
  const auto [begin, end] = VisibleKeys(h, run, row);
  for (int k = 0; k < padded; ++k) to[k] = -__builtin_inff();
  if (!run.mask) {
    for (int64_t k = begin; k < end; ++k) to[k] = 0;
  } else if (h.mask_is_bool) {
    const uint8_t* mask = static_cast<const uint8_t*>(run.mask) + row * h.mask_row;
    for (int64_t k = begin; k < end; ++k) to[k] = mask[k * h.mask_key] ? 0 : -__builtin_inff();
  } else {
    const float* mask = static_cast<const float*>(run.mask) + row * h.mask_row;
    for (int64_t k = begin; k < end; ++k) to[k] = mask[k * h.mask_key];
  }
}

/// Set the scores of the padding in the last block of keys to 0. For a query that holds infinities, the products with
/// the zeros of the padding are NaN. The mask excludes these keys afterwards.
CPUACC_INLINE void clear_padding(const AttentionHead& h, float* last_block, int rows) {
  for (int k = h.keys % 16; k != 0 && k < 16; ++k)
    for (int m = 0; m < rows; ++m) last_block[m * 16 + k] = 0;
}

/// Replace the scores of kRows queries, which lie in blocks of 16 keys, by exponentials. `factors` receives 1 / sum of
/// each row.
template <int kRows>
CPUACC_INLINE void softmax_rows(const AttentionHead& h, float* scores, int64_t block_step, const float* added,
                                float* factors) {
  const int blocks = (h.keys + 15) / 16;
  Vec top[kRows], total[kRows] = {};
  for (int m = 0; m < kRows; ++m) top[m] = broadcast(-__builtin_inff());
  for (int n = 0; n < blocks; ++n)
    for (int v = 0; v < 16; v += kLanes)
      for (int m = 0; m < kRows; ++m) {
        float* at = scores + n * block_step + m * 16 + v;
        Vec x = h.scale == 1 ? load(at) : load(at) * h.scale;
        if (h.cap != 0) x = h.cap * hyperbolic_tangent(x / h.cap);
        if (added) x += load(added + n * 16 + v);
        store(at, x);
        top[m] = at_least(x, top[m]);
      }
  float greatest[kRows];
  for (int m = 0; m < kRows; ++m) {
    greatest[m] = greatest_lane(top[m]);
    if (greatest[m] == -__builtin_inff() && h.zero_if_no_key) greatest[m] = 0;
  }
  for (int n = 0; n < blocks; ++n)
    for (int v = 0; v < 16; v += kLanes)
      for (int m = 0; m < kRows; ++m) {
        float* at = scores + n * block_step + m * 16 + v;
        Vec e = exponential_below_zero(load(at) - greatest[m]);
        store(at, e);
        total[m] += e;
      }
  for (int m = 0; m < kRows; ++m) {
    float sum = sum_of_lanes(total[m]);
    factors[m] = sum == 0 && h.zero_if_no_key ? 0 : 1 / sum;
  }
}

/// Return whether all sums of a row are finite, including the padding after them.
CPUACC_INLINE bool is_finite(const float* sums, int blocks) {
  IntVec wrong = {};
  for (int n = 0; n < blocks * 16; n += kLanes) {
    Vec x = load(sums + n);
    wrong |= x - x != 0.0f;
  }
  int any = 0;
  for (int n = 0; n < kLanes; ++n) any |= wrong[n];
  return any == 0;
}

/// Compute one row of the result from the visible keys only. The fast path multiplies all keys, with a probability of 0
/// for those that are not visible, which turns their infinities and NaNs into NaN. `scores` holds one element for each
/// key.
__attribute__((noinline)) void attend_visible_keys(const AttentionHead& h, const AttentionOperands& run, int row,
                                                   float* scores, float* out) {
  const auto [begin, end] = VisibleKeys(h, run, row);
  const uint8_t* shown =
      run.mask && h.mask_is_bool ? static_cast<const uint8_t*>(run.mask) + row * h.mask_row : nullptr;
  const float* added = run.mask && !h.mask_is_bool ? static_cast<const float*>(run.mask) + row * h.mask_row : nullptr;
  const float* query = run.query + row * h.query_row;
  auto is_seen = [&](int64_t k) {
    return (!shown || shown[k * h.mask_key]) && (!added || added[k * h.mask_key] != -__builtin_inff());
  };
  float top = -__builtin_inff(), total = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (!is_seen(k)) continue;
    float x = 0;
    for (int n = 0; n < h.size; ++n)
      x += query[n * h.query_element] * h.query_scale * run.key[k * h.key_row + n * h.key_element];
    x *= h.scale;
    if (h.cap != 0) x = h.cap * tanhf(x / h.cap);
    if (added) x += added[k * h.mask_key];
    scores[k] = x;
    if (x > top) top = x;
  }
  if (top == -__builtin_inff()) top = 0;
  for (int n = 0; n < h.value_size; ++n) out[n] = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (!is_seen(k)) continue;
    float e = expf(scores[k] - top);
    total += e;
    for (int n = 0; n < h.value_size; ++n) out[n] += e * run.value[k * h.value_row + n * h.value_element];
  }
  for (int n = 0; n < h.value_size && total != 0; ++n) out[n] /= total;
}

void attention(const AttentionHead& h, const AttentionOperands& run, float* out, float* scratch, int first, int last,
               bool same_head) {
  const int key_blocks = (h.keys + 15) / 16, value_blocks = (h.value_size + 15) / 16, most = h.rows;
  float* keys = scratch;
  float* values = keys + int64_t{key_blocks} * 16 * h.size;
  float* queries = values + int64_t{value_blocks} * 16 * h.keys;
  float* scores = queries + int64_t{most} * ((h.size + 15) / 16) * 16;
  float* sums = scores + int64_t{most} * key_blocks * 16;
  float* added = sums + int64_t{most} * value_blocks * 16;
  float* factors = added + key_blocks * 16;
  MatMul left{0, h.keys, h.size, h.query_row, h.query_element, h.key_element, h.key_row, 0, nullptr, nullptr, {}};
  MatMul right{0, h.value_size, h.keys, 0, 1, h.value_row, h.value_element, 0, nullptr, nullptr, {}};
  if (!same_head) {
    pack_panels(left, run.key, keys, 0, key_blocks);
    pack_panels(right, run.value, values, 0, value_blocks);
  }
  const Epilogue nothing{-__builtin_inff(), __builtin_inff(), 0, {}};
  const bool each = h.left >= 0 || h.right >= 0 || (run.mask && h.mask_row != 0);
  const bool any = each || run.mask || run.valid < h.keys || h.keys % 16;
  const bool excludes = h.excludes && (h.left >= 0 || h.right >= 0 || run.valid < h.keys || run.mask);
  if (any && !each) expand_mask(h, run, 0, added);
  for (int row = first; row < last; row += most) {
    const int rows = last - row < most ? last - row : most;
    pack_rows(left, run.query + row * h.query_row, rows, queries, int64_t{rows} * 16);
    for (int n = 0; n < rows * ((h.size + 15) / 16) * 16 && h.query_scale != 1; n += kLanes)
      store(queries + n, load(queries + n) * h.query_scale);
    gemm({h.size, key_blocks, keys, run.zeros, nothing}, queries, int64_t{rows} * 16, scores,
         {int64_t{rows} * 16, 0, 16}, nullptr, {0, rows, 0, key_blocks});
    clear_padding(h, scores + int64_t{key_blocks - 1} * rows * 16, rows);
    int m = 0;
    for (; !each && m + 2 <= rows; m += 2)
      softmax_rows<2>(h, scores + m * 16, int64_t{rows} * 16, any ? added : nullptr, factors + m);
    for (; m < rows; ++m) {
      if (each) expand_mask(h, run, row + m, added);
      softmax_rows<1>(h, scores + m * 16, int64_t{rows} * 16, any ? added : nullptr, factors + m);
    }
    gemm({h.keys, value_blocks, values, run.zeros, nothing}, scores, int64_t{rows} * 16, sums,
         {16, 0, value_blocks * 16}, nullptr, {0, rows, 0, value_blocks});
    for (m = 0; m < rows; ++m) {
      float* to = out + (row + m) * h.out_row;
      const float* from = sums + int64_t{m} * value_blocks * 16;
      for (int n = 0; n < h.value_size; ++n) to[n] = from[n] * factors[m];
      if (excludes && !is_finite(from, value_blocks)) attend_visible_keys(h, run, row + m, scores, to);
    }
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_ATTENTION_HPP
