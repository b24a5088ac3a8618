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

/// Load up to kLanes numbers of a term from the key `k` on, and zeros for keys that do not exist.
CPUACC_INLINE Vec load_term(const float* from, int64_t step, int k, int keys) {
  if (step == 0) return broadcast(*from);
  if (step == 1 && k + kLanes <= keys) return load(from + k);
  float own[kLanes] = {};
  for (int n = 0; n < kLanes && k + n < keys; ++n) own[n] = from[(k + n) * step];
  return load(own);
}

/// The same for booleans: all bits of the lanes that are true.
CPUACC_INLINE IntVec load_term(const uint8_t* from, int64_t step, int k, int keys) {
  typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));
  ByteVec own = {};
  if (step == 1 && k + kLanes <= keys)
    memcpy(&own, from + k, sizeof(own));
  else
    for (int n = 0; n < kLanes && k + n < keys; ++n) own[n] = from[(k + n) * step];
  return __builtin_convertvector(own, IntVec) != 0;
}

/// Write the result of all terms for one query: scores are combined with the bits of `selected`, and then `added` is
/// added.
void expand_terms(const AttentionHead& h, const AttentionOperands& run, int row, float* added, int32_t* selected) {
  const int padded = (h.keys + 15) / 16 * 16;
  for (int k = 0; k < padded; k += kLanes) {
    Vec sum = {};
    IntVec bits = IntVec{} - 1;
    for (int n = 0; n < h.terms; ++n) {
      const ScoreTerm& term = h.term[n];
      if (!term.replaces) {
        sum += load_term(static_cast<const float*>(run.term[n]) + row * term.row, term.key, k, h.keys);
        continue;
      }
      const IntVec is_true = load_term(static_cast<const uint8_t*>(run.term[n]) + row * term.row, term.key, k, h.keys);
      const IntVec keeps = term.inverted ? ~is_true : is_true;
      sum = select(keeps, sum, broadcast(term.replacement));
      bits &= keeps;
    }
    store(added + k, sum);
    memcpy(selected + k, &bits, sizeof(bits));
  }
  for (int k = h.keys; k < padded; ++k) added[k] = -__builtin_inff(), selected[k] = -1;
}

/// Write what is added to the scores of one query: the mask, and minus infinity for keys that are not visible; or the
/// result of the terms. A head has either terms, or a mask and visible keys.
void expand_mask(const AttentionHead& h, const AttentionOperands& run, int row, float* added, int32_t* selected) {
  if (h.terms) return expand_terms(h, run, row, added, selected);
  const int padded = (h.keys + 15) / 16 * 16;
  const auto [begin, end] = VisibleKeys(h, run, row);
  for (int k = 0; k < padded; ++k) added[k] = -__builtin_inff();
  if (!run.mask) {
    for (int64_t k = begin; k < end; ++k) added[k] = 0;
  } else if (h.mask_is_bool) {
    const uint8_t* mask = static_cast<const uint8_t*>(run.mask) + row * h.mask_row;
    for (int64_t k = begin; k < end; ++k) added[k] = mask[k * h.mask_key] ? 0 : -__builtin_inff();
  } else {
    const float* mask = static_cast<const float*>(run.mask) + row * h.mask_row;
    for (int64_t k = begin; k < end; ++k) added[k] = mask[k * h.mask_key];
  }
}

/// Return whether the rows of `expand_mask` are the same for all queries.
bool same_for_all_queries(const AttentionHead& h, const AttentionOperands& run) {
  for (int n = 0; n < h.terms; ++n)
    if (h.term[n].row != 0) return false;
  return h.left < 0 && h.right < 0 && (!run.mask || h.mask_row == 0);
}

/// Set the scores of the padding in the last block of keys to 0. For a query that holds infinities, the products with
/// the zeros of the padding are NaN. The mask excludes these keys afterwards.
CPUACC_INLINE void clear_padding(const AttentionHead& h, float* last_block, int rows) {
  for (int k = h.keys % 16; k != 0 && k < 16; ++k)
    for (int m = 0; m < rows; ++m) last_block[m * 16 + k] = 0;
}

/// Change scores by what `expand_mask` wrote.
struct ScoreChanges {
  const float* added;       // nullptr: nothing
  const int32_t* selected;  // nullptr: all
  const float* sink;        // nullptr: absent
};

/// Replace the scores of kRows queries, which lie in blocks of 16 keys, by exponentials. `factors` receives 1 / sum of
/// each row.
template <int kRows>
CPUACC_INLINE void softmax_rows(const AttentionHead& h, float* scores, int blocks, int64_t block_step,
                                const ScoreChanges& changes, float* factors) {
  Vec top[kRows], total[kRows] = {};
  for (int m = 0; m < kRows; ++m) top[m] = broadcast(-__builtin_inff());
  for (int n = 0; n < blocks; ++n)
    for (int v = 0; v < 16; v += kLanes)
      for (int m = 0; m < kRows; ++m) {
        float* at = scores + n * block_step + m * 16 + v;
        Vec x = h.scale == 1 ? load(at) : load(at) * h.scale;
        if (h.cap != 0) x = h.cap * hyperbolic_tangent(x / h.cap);
        if (changes.selected) {
          IntVec selected;
          memcpy(&selected, changes.selected + n * 16 + v, sizeof(selected));
          x = reinterpret_cast<Vec>(reinterpret_cast<IntVec>(x) & selected);
        }
        if (changes.added) x += load(changes.added + n * 16 + v);
        store(at, x);
        top[m] = at_least(x, top[m]);
      }
  float greatest[kRows];
  for (int m = 0; m < kRows; ++m) {
    greatest[m] = greatest_lane(top[m]);
    if (changes.sink && !(*changes.sink <= greatest[m])) greatest[m] = *changes.sink;
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
    if (changes.sink) sum += expf(*changes.sink - greatest[m]);
    factors[m] = sum == 0 && h.zero_if_no_key ? 0 : 1 / sum;
    if (!h.zero_if_nan || sum == sum) continue;
    factors[m] = 0;
    for (int n = 0; n < blocks; ++n) memset(scores + n * block_step + m * 16, 0, 16 * sizeof(float));
  }
}

/// Return whether all sums of a row are finite, including the padding after them.
CPUACC_INLINE bool is_finite(const float* sums, int blocks) {
  IntVec wrong = {};
  for (int n = 0; n < blocks * 16; n += kLanes) {
    Vec x = load(sums + n);
    wrong |= x - x != 0.0f;
  }
  return !any_lane(wrong);
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
  const float *query = run.query + row * h.query_row, query_scale = h.query_scale * run.factor;
  auto is_seen = [&](int64_t k) {
    return (!shown || shown[k * h.mask_key]) && (!added || added[k * h.mask_key] != -__builtin_inff());
  };
  float top = -__builtin_inff(), total = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (!is_seen(k)) continue;
    float x = 0;
    for (int n = 0; n < h.size; ++n)
      x += query[n * h.query_element] * query_scale * run.key[k * h.key_row + n * h.key_element];
    x *= h.scale;
    if (h.cap != 0) x = h.cap * tanhf(x / h.cap);
    if (added) x += added[k * h.mask_key];
    scores[k] = x;
    if (x > top) top = x;
  }
  if (run.sink && !(*run.sink <= top)) top = *run.sink;
  if (top == -__builtin_inff()) top = 0;
  if (run.sink) total = expf(*run.sink - top);
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
  const float query_scale = h.query_scale * run.factor;
  float* keys = scratch;
  float* values = keys + int64_t{key_blocks} * 16 * h.size;
  float* queries = values + int64_t{value_blocks} * 16 * h.keys;
  float* scores = queries + int64_t{most} * ((h.size + 15) / 16) * 16;
  float* sums = scores + int64_t{most} * key_blocks * 16;
  float* added = sums + int64_t{most} * value_blocks * 16;
  int32_t* selected = reinterpret_cast<int32_t*>(added + key_blocks * 16);
  float* factors = added + key_blocks * 32;
  MatMul left{0, h.keys, h.size, h.query_row, h.query_element, h.key_element, h.key_row, 0, nullptr, nullptr, {}};
  MatMul right{0, h.value_size, h.keys, 0, 1, h.value_row, h.value_element, 0, nullptr, nullptr, {}};
  if (!same_head) {
    pack_panels(left, run.key, keys, 0, key_blocks);
    pack_panels(right, run.value, values, 0, value_blocks);
  }
  const Epilogue nothing{-__builtin_inff(), __builtin_inff(), 0, {}};
  const bool each = !same_for_all_queries(h, run);
  const bool any = each || run.mask || h.terms || run.valid < h.keys || h.keys % 16;
  const bool excludes = h.excludes && (h.left >= 0 || h.right >= 0 || run.valid < h.keys || run.mask);
  const ScoreChanges changes{any ? added : nullptr, h.terms ? selected : nullptr, run.sink};
  if (any && !each) expand_mask(h, run, 0, added, selected);
  for (int row = first; row < last; row += most) {
    const int rows = last - row < most ? last - row : most;
    pack_rows(left, run.query + row * h.query_row, rows, queries, int64_t{rows} * 16);
    for (int n = 0; n < rows * ((h.size + 15) / 16) * 16 && query_scale != 1; n += kLanes)
      store(queries + n, load(queries + n) * query_scale);
    gemm({h.size, key_blocks, keys, run.zeros, nothing}, queries, int64_t{rows} * 16, scores,
         {int64_t{rows} * 16, 0, 16}, nullptr, {0, rows, 0, key_blocks});
    clear_padding(h, scores + int64_t{key_blocks - 1} * rows * 16, rows);
    int m = 0;
    for (; !each && m + 2 <= rows; m += 2)
      softmax_rows<2>(h, scores + m * 16, key_blocks, int64_t{rows} * 16, changes, factors + m);
    for (; m < rows; ++m) {
      if (each) expand_mask(h, run, row + m, added, selected);
      softmax_rows<1>(h, scores + m * 16, key_blocks, int64_t{rows} * 16, changes, factors + m);
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

// ---- Few queries ----------------------------------------------------------------------------------------------------

/// Load `count` floats, and zeros for the other lanes.
CPUACC_INLINE Vec load_first(const float* from, int count) {
  if (count >= kLanes) return load(from);
  float own[kLanes] = {};
  memcpy(own, from, sizeof(float) * static_cast<size_t>(count));
  return load(own);
}

/// One step of a tree that sums the lanes of vectors: lanes whose index has the bit kBit come from b.
template <int kBit>
CPUACC_INLINE Vec fold_lanes(Vec a, Vec b) {
  IntVec own, other;
#pragma GCC unroll 16
  for (int n = 0; n < kLanes; ++n) {
    own[n] = n & kBit ? kLanes + n : n;
    other[n] = own[n] ^ kBit;
  }
  return shuffled(a, b, own) + shuffled(a, b, other);
}

/// The sums of the lanes of kLanes vectors.
CPUACC_INLINE Vec sums_of_lanes(Vec (&v)[kLanes]) {
#pragma GCC unroll 8
  for (int n = 0; n < kLanes / 2; ++n) v[n] = fold_lanes<1>(v[2 * n], v[2 * n + 1]);
#pragma GCC unroll 4
  for (int n = 0; n < kLanes / 4; ++n) v[n] = fold_lanes<2>(v[2 * n], v[2 * n + 1]);
#if defined(__AVX2__)
#pragma GCC unroll 2
  for (int n = 0; n < kLanes / 8; ++n) v[n] = fold_lanes<4>(v[2 * n], v[2 * n + 1]);
#endif
#if defined(__AVX512F__)
  v[0] = fold_lanes<8>(v[0], v[1]);
#endif
  return v[0];
}

/// Products of kRows queries and up to 16 keys whose elements are contiguous. Queries are padded with zeros.
template <int kRows>
CPUACC_INLINE void products_of_rows(const AttentionHead& h, const float* queries, int64_t query_step, const float* key,
                                    int count, float* scores, int64_t score_step) {
  for (int first = 0; first < 16; first += kLanes) {
    Vec sums[kRows][kLanes] = {};
    for (int k = 0; k < kLanes && first + k < count; ++k) {
      const float* at = key + (first + k) * h.key_row;
      Vec totals[kRows] = {};
      int n = 0;
      for (; n + kLanes <= h.size; n += kLanes) {
        const Vec x = load(at + n);
        for (int m = 0; m < kRows; ++m) totals[m] += load(queries + m * query_step + n) * x;
      }
      const Vec rest = n < h.size ? load_first(at + n, h.size - n) : Vec{};
      for (int m = 0; m < kRows; ++m)
        sums[m][k] = n < h.size ? totals[m] + load(queries + m * query_step + n) * rest : totals[m];
    }
    for (int m = 0; m < kRows; ++m) store(scores + m * score_step + first, sums_of_lanes(sums[m]));
  }
}

/// Products of kRows queries and up to 16 keys that are contiguous for each of their elements.
template <int kRows>
CPUACC_INLINE void products_of_columns(const AttentionHead& h, const float* queries, int64_t query_step,
                                       const float* key, int count, float* scores, int64_t score_step) {
  for (int first = 0; first < 16; first += kLanes) {
    Vec sums[kRows] = {};
    for (int n = 0; n < h.size && first < count; ++n) {
      const Vec x = load_first(key + n * h.key_element + first, count - first);
      for (int m = 0; m < kRows; ++m) sums[m] += queries[m * query_step + n] * x;
    }
    for (int m = 0; m < kRows; ++m) store(scores + m * score_step + first, sums[m]);
  }
}

/// Products of kRows queries and `keys` keys.
template <int kRows>
__attribute__((noinline)) void score_rows(const AttentionHead& h, const float* queries, int64_t query_step,
                                          const float* key, int keys, float* scores, int64_t score_step) {
  for (int k = 0; k < keys; k += 16) {
    const float* at = key + k * h.key_row;
    const int count = keys - k < 16 ? keys - k : 16;
    if (h.key_element == 1)
      products_of_rows<kRows>(h, queries, query_step, at, count, scores + k, score_step);
    else
      products_of_columns<kRows>(h, queries, query_step, at, count, scores + k, score_step);
  }
}

/// The same for the keys of the past, whose rows are contiguous, and those that follow.
template <int kRows>
void score_all(const AttentionHead& h, const float* queries, int64_t query_step, const AttentionOperands& run,
               float* scores, int64_t score_step) {
  if (h.past > 0) {
    AttentionHead past = h;
    past.key_row = h.size, past.key_element = 1;
    score_rows<kRows>(past, queries, query_step, run.past_key, h.past, scores, score_step);
  }
  score_rows<kRows>(h, queries, query_step, run.key, h.keys - h.past, scores + h.past, score_step);
}

/// Add the products of the probabilities of kRows queries and kVecs vectors of `keys` values, `value_row` floats apart.
/// The last vector has `last` elements.
template <int kRows, int kVecs>
CPUACC_INLINE void add_values(const float* scores, int64_t score_step, const float* value, int64_t value_row, int keys,
                              int last, Vec (&totals)[kRows][kVecs]) {
  for (int k = 0; k < keys; ++k, value += value_row) {
    Vec x[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs - 1; ++v) x[v] = load(value + v * kLanes);
    x[kVecs - 1] = load_first(value + (kVecs - 1) * kLanes, last);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const Vec p = broadcast(scores[m * score_step + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) totals[m][v] += p * x[v];
    }
  }
}

/// Weigh kVecs vectors of the values by the probabilities of kRows queries, from the element `first` of each value.
template <int kRows, int kVecs>
__attribute__((noinline)) void weigh_columns(const AttentionHead& h, const float* scores, int64_t score_step,
                                             const AttentionOperands& run, int first, int last, float* sums,
                                             int64_t sum_step) {
  Vec totals[kRows][kVecs] = {};
  if (h.past > 0)
    add_values<kRows, kVecs>(scores, score_step, run.past_value + first, h.value_size, h.past, last, totals);
  add_values<kRows, kVecs>(scores + h.past, score_step, run.value + first, h.value_row, h.keys - h.past, last, totals);
  for (int m = 0; m < kRows; ++m)
    for (int v = 0; v < kVecs; ++v) store(sums + m * sum_step + first + v * kLanes, totals[m][v]);
}

constexpr int kValueVecs = kLanes == 16 ? 4 : 2;  // vectors of values whose sums fit the registers

template <int kRows>
void weigh_rows(const AttentionHead& h, const float* scores, int64_t score_step, const AttentionOperands& run,
                float* sums, int64_t sum_step) {
  int n = 0;
  for (; n + kValueVecs * kLanes <= h.value_size; n += kValueVecs * kLanes)
    weigh_columns<kRows, kValueVecs>(h, scores, score_step, run, n, kLanes, sums, sum_step);
  for (; n < h.value_size; n += kLanes)
    weigh_columns<kRows, 1>(h, scores, score_step, run, n, h.value_size - n, sums, sum_step);
}

/// Copy floats with stores that do not read the lines that they replace.
void stream(const float* from, float* to, int64_t count) {
  int64_t n = 0;
#if defined(__AVX512F__)
  for (; n < count && (reinterpret_cast<uintptr_t>(to + n) & 63) != 0; ++n) to[n] = from[n];
  for (; n + 16 <= count; n += 16) _mm512_stream_ps(to + n, _mm512_loadu_ps(from + n));
  _mm_sfence();
#elif defined(__AVX2__)
  for (; n < count && (reinterpret_cast<uintptr_t>(to + n) & 31) != 0; ++n) to[n] = from[n];
  for (; n + 8 <= count; n += 8) _mm256_stream_ps(to + n, _mm256_loadu_ps(from + n));
  _mm_sfence();
#endif
  for (; n < count; ++n) to[n] = from[n];
}

void copy_floats(const float* from, float* to, int64_t count, bool streams) {
  if (streams) return stream(from, to, count);
  memcpy(to, from, sizeof(float) * static_cast<size_t>(count));
}

void attend_few(const AttentionHead& h, const AttentionOperands* heads, float* const* outs, int count, float* scratch) {
  const int rows = count * h.queries, blocks = (h.keys + 15) / 16, value_blocks = (h.value_size + 15) / 16;
  const int64_t query_step = (h.size + 15) / 16 * 16, score_step = blocks * 16 + 16, sum_step = value_blocks * 16;
  float* queries = scratch;
  float* scores = queries + rows * query_step;
  float* sums = scores + rows * score_step;
  float* added = sums + rows * sum_step;
  int32_t* selected = reinterpret_cast<int32_t*>(added + score_step);
  memset(queries, 0, sizeof(float) * static_cast<size_t>(rows * query_step));
  memset(sums, 0, sizeof(float) * static_cast<size_t>(rows * sum_step));
  for (int r = 0; r < rows; ++r) {
    const AttentionOperands& run = heads[r / h.queries];
    const float *from = run.query + r % h.queries * h.query_row, query_scale = h.query_scale * run.factor;
    for (int n = 0; n < h.size; ++n) queries[r * query_step + n] = from[n * h.query_element] * query_scale;
  }
  int r = 0;
  for (; r + 4 <= rows; r += 4)
    score_all<4>(h, queries + r * query_step, query_step, *heads, scores + r * score_step, score_step);
  for (; r + 2 <= rows; r += 2)
    score_all<2>(h, queries + r * query_step, query_step, *heads, scores + r * score_step, score_step);
  if (r < rows) score_all<1>(h, queries + r * query_step, query_step, *heads, scores + r * score_step, score_step);
  float factors[kFewQueries];
  for (r = 0; r < rows; ++r) {
    const AttentionOperands& run = heads[r / h.queries];
    clear_padding(h, scores + r * score_step + (blocks - 1) * 16, 1);
    expand_mask(h, run, r % h.queries, added, selected);
    softmax_rows<1>(h, scores + r * score_step, blocks, 16, {added, h.terms ? selected : nullptr, run.sink},
                    factors + r);
  }
  for (r = 0; r + 4 <= rows; r += 4)
    weigh_rows<4>(h, scores + r * score_step, score_step, *heads, sums + r * sum_step, sum_step);
  for (; r + 2 <= rows; r += 2)
    weigh_rows<2>(h, scores + r * score_step, score_step, *heads, sums + r * sum_step, sum_step);
  if (r < rows) weigh_rows<1>(h, scores + r * score_step, score_step, *heads, sums + r * sum_step, sum_step);
  for (r = 0; r < rows; ++r) {
    const AttentionOperands& run = heads[r / h.queries];
    const bool excludes = h.excludes && (h.left >= 0 || h.right >= 0 || run.valid < h.keys || run.mask);
    float* to = outs[r / h.queries] + r % h.queries * h.out_row;
    for (int n = 0; n < h.value_size; ++n) to[n] = sums[r * sum_step + n] * factors[r];
    if (excludes && !is_finite(sums + r * sum_step, value_blocks))
      attend_visible_keys(h, run, r % h.queries, scores + r * score_step, to);
  }
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_ATTENTION_HPP
