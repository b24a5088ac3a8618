// Scaled dot-product attention of float32.

#ifndef CPUACC_KERNELS_ATTENTION_F32_HPP
#define CPUACC_KERNELS_ATTENTION_F32_HPP

#include "cpuacc/kernels/gemm_f32.hpp"

namespace cpuacc {

/// A term of the scores: numbers that are added, or booleans that keep a score or replace it by a number.
struct ScoreTerm {
  bool replaces;      // the operand is bool
  bool inverted;      // scores are replaced where the operand is true
  float replacement;  // of scores that are not selected
  int64_t row, key;   // strides in elements; 0 if the operand is broadcast
};

constexpr int kMaxScoreTerms = 4;

/// One head. Strides are in elements, from one row or element of a matrix to the next. A key is visible to a query if
/// it is valid, lies within the window around the position of the query, and is not masked.
struct AttentionHead {
  int32_t queries, keys, size, value_size;
  int64_t query_row, query_element, key_row, key_element, value_row, value_element, out_row;
  float query_scale;           // factor of the query before its product with the keys
  float scale, cap;            // a score is x = scale * product, then cap * tanh(x / cap) if cap is not 0
  int64_t mask_row, mask_key;  // strides of the mask; 0 if it is broadcast
  int32_t mask_keys;           // keys that the mask covers; those after them are not visible
  bool mask_is_bool;
  bool zero_if_no_key;  // the result of a query that sees no key is 0; otherwise it is NaN
  bool excludes;        // keys that are not visible, or masked by minus infinity, do not count even if they hold NaN
  int64_t left, right;  // keys that a query sees before and after its own position; -1: all
  int32_t rows;         // queries at once
  bool zero_if_nan;     // the probabilities of a query are 0 if its scores make them NaN
  int32_t terms;        // applied in order after the cap; a head with terms has no mask, window and valid length
  int32_t past;         // for `attend_few`: keys that lie in tensors of their own, in contiguous rows; others follow
  ScoreTerm term[kMaxScoreTerms];
};

/// Operands of one head: its matrices, the position of the first query among the keys, and the number of valid keys.
struct AttentionOperands {
  const float *query, *key, *value;
  const void* mask;    // float32 or bool; nullptr if absent
  const float* zeros;  // as many as keys, and as elements of a row of values, rounded up to blocks of 16
  int64_t position, valid;
  const void* term[kMaxScoreTerms];
  const float *past_key, *past_value;
  const float* sink;  // the score of one more key, which every query sees and whose value is zero; nullptr if absent
  float factor = 1;   // of the scores of this head
};

/// The largest number of queries of `attend_few`.
constexpr int kFewQueries = 8;

/// Floats of scratch memory.
static inline int64_t scratch_of(const AttentionHead& h) {
  int64_t keys = (h.keys + 15) / 16 * 16, values = (h.value_size + 15) / 16 * 16, size = (h.size + 15) / 16 * 16;
  return keys * h.size + values * h.keys + (size + keys + values + 1) * h.rows + 2 * keys;
}

/// Floats of scratch memory of `attend_few` for `queries` queries.
static inline int64_t scratch_of_few(const AttentionHead& h, int64_t queries) {
  int64_t keys = (h.keys + 15) / 16 * 16, values = (h.value_size + 15) / 16 * 16, size = (h.size + 15) / 16 * 16;
  return (size + keys + 16 + values) * queries + 2 * (keys + 16);
}

/// Return whether `attend_few` can read the operands where they are.
static inline bool takes_few(const AttentionHead& h) {
  return (h.key_element == 1 || h.key_row == 1) && h.value_element == 1;
}

struct AttentionKernels {
  /// Queries [first, last). `same_head`: the previous call with this scratch memory had the same key and value.
  void (*attend)(const AttentionHead&, const AttentionOperands&, float* out, float* scratch, int first, int last,
                 bool same_head);
  /// All queries of `count` heads with the same key and value, which are not packed but read where they are. There are
  /// at most kFewQueries queries.
  void (*attend_few)(const AttentionHead&, const AttentionOperands* heads, float* const* outs, int count,
                     float* scratch);
  /// Copy floats. `streams`: past the caches, which is faster if the copy is not read soon and larger than the caches.
  void (*copy)(const float* from, float* to, int64_t count, bool streams);
};

CPUACC_TABLE(AttentionKernels, attention_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_ATTENTION_F32_HPP
