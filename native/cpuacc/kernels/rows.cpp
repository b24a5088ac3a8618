#include "cpuacc/kernels/rows.hpp"

#include <math.h>

#include "cpuacc/kernels/activations.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int64_t kColumns = 256;  // columns that are accumulated at once

/// The larger number; NaN if a is NaN.
CPUACC_INLINE float larger(float a, float b) { return a > b || a != a ? a : b; }
CPUACC_INLINE float smaller(float a, float b) { return a < b || a != a ? a : b; }
CPUACC_INLINE Vec larger(Vec a, Vec b) { return select((a > b) | (a != a), a, b); }
CPUACC_INLINE Vec smaller(Vec a, Vec b) { return select((a < b) | (a != a), a, b); }
CPUACC_INLINE float size_of(float x) { return fabsf(x); }
CPUACC_INLINE Vec size_of(Vec x) { return absolute(x); }

// ---- Folds: how two elements, and an element and a total, come together. T is a float or a vector -------------------

// clang-format off
struct Sum {
  template <class T> static T of(T x) { return x; }
  template <class T> static T both(T a, T b) { return a + b; }
};
struct Absolute : Sum { template <class T> static T of(T x) { return size_of(x); } };
struct Squares : Sum { template <class T> static T of(T x) { return x * x; } };
struct Product : Sum { template <class T> static T both(T a, T b) { return a * b; } };
struct Greatest : Sum { template <class T> static T both(T a, T b) { return larger(a, b); } };
struct Least : Sum { template <class T> static T both(T a, T b) { return smaller(a, b); } };
// clang-format on

/// Fold the lanes of a vector.
template <class F>
float fold_lanes(Vec v) {
  if constexpr (kLanes == 16) v = F::both(v, rotated<8>(v));
  if constexpr (kLanes >= 8) v = F::both(v, rotated<4>(v));
  v = F::both(v, rotated<2>(v));
  return F::both(v, rotated<1>(v))[0];
}

/// Accumulate a row in several totals, and combine these like a tree. Long rows are halved, so that the rounding error
/// of a sum grows with the logarithm of its length. `start` changes no total.
template <class F>
float fold_row(const float* in, int64_t count, float start) {
  constexpr int kTotals = 4, kWidth = kTotals * kLanes;
  if (count > 16 * kWidth) {
    const int64_t half = count / 2 / kWidth * kWidth;
    return F::both(fold_row<F>(in, half, start), fold_row<F>(in + half, count - half, start));
  }
  Vec totals[kTotals];
  for (Vec& total : totals) total = broadcast(start);
  int64_t n = 0;
  for (; n + kWidth <= count; n += kWidth)
    for (int k = 0; k < kTotals; ++k) totals[k] = F::both(totals[k], F::of(load(in + n + k * kLanes)));
  for (int k = 0; n < count; n += kLanes, ++k)
    totals[k] = F::both(totals[k], F::of(load_some(in + n, count - n, start)));
  return fold_lanes<F>(F::both(F::both(totals[0], totals[2]), F::both(totals[1], totals[3])));
}

template <class F>
void fold(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last, float start) {
  if (inner == 1) {
    *out = fold_row<F>(in, extent, start);
    return;
  }
  for (int64_t c0 = first; c0 < last; c0 += kColumns) {
    int64_t count = last - c0 < kColumns ? last - c0 : kColumns;
    float totals[kColumns];
    for (int64_t c = 0; c < count; ++c) totals[c] = start;
    for (int64_t e = 0; e < extent; ++e) {
      const float* row = in + e * inner + c0;
      for (int64_t c = 0; c < count; ++c) totals[c] = F::both(totals[c], F::of(row[c]));
    }
    for (int64_t c = 0; c < count; ++c) out[c0 + c] = totals[c];
  }
}

/// The greatest elements that are subtracted before exponentials, or 0 where they are infinite. NaN is ignored.
CPUACC_INLINE Vec finite_top(Vec top) { return select(absolute(top) < INFINITY, top, Vec{}); }

/// The sum of exp(x - top) of a row. Long rows are halved, as by `fold_row`.
float sum_of_powers(const float* in, int64_t count, Vec top) {
  if (count > 64 * kLanes) {
    const int64_t half = count / 2 / kLanes * kLanes;
    return sum_of_powers(in, half, top) + sum_of_powers(in + half, count - half, top);
  }
  Vec total = {};
  for (int64_t n = 0; n < count; n += kLanes) total += exponential(load_some(in + n, count - n, -INFINITY) - top);
  return sum_of_lanes(total);
}

void log_sum_exp_row(const float* in, float* out, int64_t count) {
  Vec top = broadcast(-INFINITY);
  for (int64_t n = 0; n < count; n += kLanes) top = at_least(load_some(in + n, count - n, -INFINITY), top);
  top = finite_top(broadcast(greatest_lane(top)));
  *out = logf(sum_of_powers(in, count, top)) + top[0];
}

/// The same of up to `kLanes` adjacent columns.
void log_sum_exp_columns(const float* in, float* out, int64_t extent, int64_t inner, int64_t count) {
  Vec top = broadcast(-INFINITY), total = {};
  for (int64_t e = 0; e < extent; ++e) top = at_least(load_some(in + e * inner, count, 0), top);
  top = finite_top(top);
  for (int64_t e = 0; e < extent; ++e) total += exponential(load_some(in + e * inner, count, 0) - top);
  for (int64_t c = 0; c < count; ++c) out[c] = logf(total[c]) + top[c];
}

void log_sum_exp(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last) {
  if (inner == 1) return log_sum_exp_row(in, out, extent);
  for (int64_t c = first; c < last; c += kLanes)
    log_sum_exp_columns(in + c, out + c, extent, inner, last - c < kLanes ? last - c : kLanes);
}

constexpr float kTiny = 1e-30f;  // the squares of a float below this one's root may have lost bits

/// True if a sum or product overflowed or, unless it is a sum, underflowed. The exact result may still be a float.
CPUACC_INLINE bool left_the_range(float total, bool may_underflow) {
  return !(fabsf(total) < INFINITY) || (may_underflow && fabsf(total) < kTiny);
}

/// Reduce a column in double precision, which holds the squares and long sums of all floats.
template <class F>
double fold_wide(const float* in, int64_t extent, int64_t inner, F both, double total) {
  for (int64_t e = 0; e < extent; ++e) total = both(total, double(in[e * inner]));
  return total;
}

float reduced_wide(Reduction operation, const float* in, int64_t extent, int64_t inner) {
  auto add = [](double total, double x) { return total + x; };
  auto add_size = [](double total, double x) { return total + fabs(x); };
  auto add_square = [](double total, double x) { return total + x * x; };
  auto multiply = [](double total, double x) { return total * x; };
  switch (operation) {
    case Reduction::prod:
      return float(fold_wide(in, extent, inner, multiply, 1));
    case Reduction::l1:
      return float(fold_wide(in, extent, inner, add_size, 0));
    case Reduction::sum_square:
      return float(fold_wide(in, extent, inner, add_square, 0));
    case Reduction::l2:
      return float(sqrt(fold_wide(in, extent, inner, add_square, 0)));
    case Reduction::log_sum:
      return float(log(fold_wide(in, extent, inner, add, 0)));
    case Reduction::mean:
      return float(fold_wide(in, extent, inner, add, 0) / double(extent));
    default:
      return float(fold_wide(in, extent, inner, add, 0));
  }
}

/// Compute the columns whose totals left the range of float again, in double precision.
void mend(Reduction operation, const float* in, float* out, int64_t extent, int64_t inner, int64_t first,
          int64_t last) {
  const bool may_underflow =
      operation == Reduction::prod || operation == Reduction::l2 || operation == Reduction::sum_square;
  for (int64_t c = first; c < last; ++c)
    if (__builtin_expect(left_the_range(out[c], may_underflow), 0))
      out[c] = reduced_wide(operation, in + c, extent, inner);
}

void reduce_narrow(Reduction operation, const float* in, float* out, int64_t extent, int64_t inner, int64_t first,
                   int64_t last) {
  switch (operation) {
    case Reduction::max:
      return fold<Greatest>(in, out, extent, inner, first, last, -INFINITY);
    case Reduction::min:
      return fold<Least>(in, out, extent, inner, first, last, INFINITY);
    case Reduction::prod:
      return fold<Product>(in, out, extent, inner, first, last, 1);
    case Reduction::l1:
      return fold<Absolute>(in, out, extent, inner, first, last, 0);
    case Reduction::sum_square:
      return fold<Squares>(in, out, extent, inner, first, last, 0);
    case Reduction::log_sum_exp:
      return log_sum_exp(in, out, extent, inner, first, last);
    case Reduction::l2:
      fold<Squares>(in, out, extent, inner, first, last, 0);
      for (int64_t c = first; c < last; ++c) out[c] = sqrtf(out[c]);
      return;
    case Reduction::log_sum:
      fold<Sum>(in, out, extent, inner, first, last, 0);
      for (int64_t c = first; c < last; ++c) out[c] = logf(out[c]);
      return;
    case Reduction::mean:
      fold<Sum>(in, out, extent, inner, first, last, 0);
      for (int64_t c = first; c < last; ++c) out[c] /= float(extent);
      return;
    default:
      return fold<Sum>(in, out, extent, inner, first, last, 0);
  }
}

void reduce(Reduction operation, const float* in, float* out, int64_t extent, int64_t inner, int64_t first,
            int64_t last) {
  reduce_narrow(operation, in, out, extent, inner, first, last);
  if (operation == Reduction::max || operation == Reduction::min || operation == Reduction::log_sum_exp) return;
  mend(operation, in, out, extent, inner, first, last);
}

// ---- Softmax --------------------------------------------------------------------------------------------------------

/// The first `count` lanes of a vector, the others 0.
CPUACC_INLINE Vec some(Vec v, int64_t count) {
  return count >= kLanes ? v : reinterpret_cast<Vec>(reinterpret_cast<IntVec>(v) & first_lanes(count));
}

/// Scores have the sign of beta, so that the greatest score has the greatest exponential.
template <bool kNegative>
CPUACC_INLINE Vec scores(const float* in, int64_t count, float filling) {
  if constexpr (kNegative) return -load_some(in, count, -filling);
  return load_some(in, count, filling);
}

template <bool kNegative>
float greatest_of(const float* in, int64_t count) {
  Vec top = broadcast(-INFINITY), other = top;
  int64_t n = 0;
  for (; n + 2 * kLanes <= count; n += 2 * kLanes) {
    top = at_least(scores<kNegative>(in + n, kLanes, 0), top);
    other = at_least(scores<kNegative>(in + n + kLanes, kLanes, 0), other);
  }
  for (; n < count; n += kLanes) top = at_least(scores<kNegative>(in + n, count - n, -INFINITY), top);
  return greatest_lane(at_least(other, top));
}

/// Compute exp((score - top) * size) of a row; `size` is the absolute value of beta. Store it unless `out` is nullptr,
/// and return its sum.
template <bool kNegative>
float exponentials(const float* in, float* out, int64_t count, float top, float size) {
  Vec total = {};
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) {  // without the calls of incomplete vectors, constants stay in registers
    Vec e = exponential_below_zero((scores<kNegative>(in + n, kLanes, 0) - top) * size);
    if (out) store(out + n, e);
    total += e;
  }
  if (n < count) {
    Vec score = scores<kNegative>(in + n, count - n, -INFINITY);
    Vec e = some(exponential_below_zero((score - top) * size), count - n);
    if (out) store_some(out + n, e, count - n);
    total += e;
  }
  return sum_of_lanes(total);
}

template <bool kNegative>
void softmax_row(const float* in, float* out, int64_t count, float size, bool logarithm) {
  float top = greatest_of<kNegative>(in, count);
  float total = exponentials<kNegative>(in, logarithm ? nullptr : out, count, top, size);
  if (logarithm) {
    float less = logf(total);
    for (int64_t n = 0; n < count; ++n) out[n] = ((kNegative ? -in[n] : in[n]) - top) * size - less;
    return;
  }
  float factor = 1.0f / total;
  for (int64_t n = 0; n < count; ++n) out[n] *= factor;
}

/// Compute up to one vector of columns.
template <bool kNegative>
CPUACC_INLINE void softmax_lanes(const float* in, float* out, int64_t extent, int64_t inner, int64_t count, float size,
                                 bool logarithm) {
  Vec top = broadcast(-INFINITY), total = {};
  for (int64_t e = 0; e < extent; ++e) top = at_least(scores<kNegative>(in + e * inner, count, 0), top);
  for (int64_t e = 0; e < extent; ++e) {
    Vec x = (scores<kNegative>(in + e * inner, count, 0) - top) * size, power = exponential_below_zero(x);
    total += power;
    store_some(out + e * inner, logarithm ? x : power, count);
  }
  Vec less = total;
  for (int n = 0; logarithm && n < kLanes; ++n) less[n] = logf(total[n]);
  Vec factor = 1.0f / total;
  for (int64_t e = 0; e < extent; ++e) {
    Vec x = load_some(out + e * inner, count, 0);
    store_some(out + e * inner, logarithm ? x - less : x * factor, count);
  }
}

template <bool kNegative>
void softmax_columns(const float* in, float* out, int64_t extent, int64_t inner, int64_t count, float size,
                     bool logarithm) {
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes)
    softmax_lanes<kNegative>(in + c, out + c, extent, inner, kLanes, size, logarithm);
  if (c < count) softmax_lanes<kNegative>(in + c, out + c, extent, inner, count - c, size, logarithm);
}

template <bool kNegative>
void softmax_of(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last, float size,
                bool logarithm) {
  if (inner == 1) return softmax_row<kNegative>(in, out, extent, size, logarithm);
  softmax_columns<kNegative>(in + first, out + first, extent, inner, last - first, size, logarithm);
}

void softmax(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last, float beta,
             bool logarithm) {
  if (beta < 0) return softmax_of<true>(in, out, extent, inner, first, last, -beta, logarithm);
  softmax_of<false>(in, out, extent, inner, first, last, beta, logarithm);
}

// ---- Normalisations -------------------------------------------------------------------------------------------------

/// `unit_length` in double precision, for columns whose squares leave the range of float.
void unit_length_wide(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last,
                      float eps) {
  for (int64_t c = first; c < last; ++c) {
    double total = fold_wide(
        in + c, extent, inner, [](double sum, double x) { return sum + x * x; }, 0);
    if (total < double(eps)) total = double(eps);
    const double length = sqrt(total);
    for (int64_t e = 0; e < extent; ++e) out[e * inner + c] = float(double(in[e * inner + c]) / length);
  }
}

void unit_length(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last, float eps) {
  for (int64_t c0 = first; c0 < last; c0 += kColumns) {
    int64_t count = last - c0 < kColumns ? last - c0 : kColumns;
    float totals[kColumns];
    if (inner == 1) {
      totals[0] = fold_row<Squares>(in, extent, 0);
    } else {
      for (int64_t c = 0; c < count; ++c) totals[c] = 0;
      for (int64_t e = 0; e < extent; ++e)
        for (int64_t c = 0; c < count; ++c) totals[c] += in[e * inner + c0 + c] * in[e * inner + c0 + c];
    }
    bool all_narrow = true;
    for (int64_t c = 0; c < count; ++c) all_narrow &= !left_the_range(totals[c], eps < kTiny);
    if (__builtin_expect(!all_narrow, 0)) {
      unit_length_wide(in, out, extent, inner, c0, c0 + count, eps);
      continue;
    }
    for (int64_t c = 0; c < count; ++c) totals[c] = sqrtf(larger(totals[c], eps));
    if (inner == 1) {
      for (int64_t e = 0; e < extent; e += kLanes)
        store_some(out + e, load_some(in + e, extent - e, 0) / totals[0], extent - e);
      return;
    }
    for (int64_t e = 0; e < extent; ++e)
      for (int64_t c = 0; c < count; ++c) out[e * inner + c0 + c] = in[e * inner + c0 + c] / totals[c];
  }
}

/// Divide `count` elements by (k + alpha * total)^beta. Usual exponents need square roots only.
void divide_by_response(const float* in, float* out, const float* totals, int64_t count, const ResponseParameters& by) {
  const float k = by.k, alpha = by.alpha;
  if (by.beta == 0.75f) {
    for (int64_t n = 0; n < count; ++n) {
      const float root = sqrtf(k + alpha * totals[n]);
      out[n] = in[n] / (root * sqrtf(root));
    }
  } else if (by.beta == 0.5f) {
    for (int64_t n = 0; n < count; ++n) out[n] = in[n] / sqrtf(k + alpha * totals[n]);
  } else if (by.beta == 1.0f) {
    for (int64_t n = 0; n < count; ++n) out[n] = in[n] / (k + alpha * totals[n]);
  } else {
    for (int64_t n = 0; n < count; ++n) out[n] = in[n] / powf(k + alpha * totals[n], by.beta);
  }
}

int64_t between(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/// Element `e` of a local response normalization in double precision, for sums of squares that overflow.
float response_wide(const float* in, int64_t extent, int64_t inner, int64_t e, const ResponseParameters& by) {
  const int64_t begin = between(e - by.before, 0, extent), end = between(e - by.before + by.size, 0, extent);
  double total = 0;
  for (int64_t i = begin; i < end; ++i) total += double(in[i * inner]) * double(in[i * inner]);
  return float(double(in[e * inner]) / pow(double(by.k) + double(by.alpha) * total, double(by.beta)));
}

/// Windows along a row: the squares of the row, shifted by every place in the window, are added.
void response_of_row(const float* in, float* out, int64_t extent, const ResponseParameters& by) {
  for (int64_t e0 = 0; e0 < extent; e0 += kColumns) {
    const int64_t count = extent - e0 < kColumns ? extent - e0 : kColumns;
    float totals[kColumns] = {};
    const int64_t low = -between(by.before, 0, extent), high = between(by.size - by.before, 0, extent);
    for (int64_t by_place = low; by_place < high; ++by_place) {
      const float* from = in + e0 + by_place;
      const int64_t begin = between(-(e0 + by_place), 0, count), end = between(extent - e0 - by_place, 0, count);
      for (int64_t c = begin; c < end; ++c) totals[c] += from[c] * from[c];
    }
    divide_by_response(in + e0, out + e0, totals, count, by);
    for (int64_t c = 0; c < count; ++c)
      if (__builtin_expect(!(totals[c] < INFINITY), 0)) out[e0 + c] = response_wide(in, extent, 1, e0 + c, by);
  }
}

void response(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last,
              const ResponseParameters& by) {
  if (inner == 1) {
    if (first < last) response_of_row(in, out, extent, by);
    return;
  }
  for (int64_t c0 = first; c0 < last; c0 += kColumns) {
    const int64_t count = last - c0 < kColumns ? last - c0 : kColumns;
    for (int64_t e = 0; e < extent; ++e) {
      float totals[kColumns] = {};
      const int64_t begin = between(e - by.before, 0, extent), end = between(e - by.before + by.size, 0, extent);
      for (int64_t i = begin; i < end; ++i) {
        const float* from = in + i * inner + c0;
        for (int64_t c = 0; c < count; ++c) totals[c] += from[c] * from[c];
      }
      divide_by_response(in + e * inner + c0, out + e * inner + c0, totals, count, by);
      for (int64_t c = 0; c < count; ++c)
        if (__builtin_expect(!(totals[c] < INFINITY), 0))
          out[e * inner + c0 + c] = response_wide(in + c0 + c, extent, inner, e, by);
    }
  }
}

/// Elements with the same factors are consecutive; each run of them is computed in one loop.
void affine(const float* in, float* out, int64_t count, int64_t begin, const Affine& with) {
  if (with.inner == 1 && with.period >= 16) {
    for (int64_t n = 0; n < count;) {
      int64_t at = (begin + n) % with.period, run = with.period - at;
      if (run > count - n) run = count - n;
      const float *scale = with.scale ? with.scale + at : nullptr, *shift = with.shift ? with.shift + at : nullptr;
      if (scale && shift)
        for (int64_t k = 0; k < run; ++k) out[n + k] = in[n + k] * scale[k] + shift[k];
      else if (scale)
        for (int64_t k = 0; k < run; ++k) out[n + k] = in[n + k] * scale[k];
      else
        for (int64_t k = 0; k < run; ++k) out[n + k] = in[n + k] + (shift ? shift[k] : 0.0f);
      n += run;
    }
    return;
  }
  for (int64_t n = 0; n < count;) {
    int64_t place = begin + n, at = place / with.inner % with.period, run = with.inner - place % with.inner;
    if (run > count - n) run = count - n;
    float scale = with.scale ? with.scale[at] : 1.0f, shift = with.shift ? with.shift[at] : 0.0f;
    for (int64_t k = 0; k < run; ++k) out[n + k] = in[n + k] * scale + shift;
    n += run;
  }
}

void batch(const float* in, float* out, int64_t count, int64_t begin, const BatchParameters& with) {
  if (with.inner == 1) {
    for (int64_t n = 0; n < count;) {
      const int64_t at = (begin + n) % with.channels, left = with.channels - at,
                    run = left < count - n ? left : count - n;
      for (int64_t k = 0; k < run; ++k)
        out[n + k] = (in[n + k] - with.mean[at + k]) * with.factor[at + k] * with.gamma[at + k] + with.beta[at + k];
      n += run;
    }
    return;
  }
  for (int64_t n = 0; n < count;) {
    const int64_t place = begin + n, at = place / with.inner % with.channels, left = with.inner - place % with.inner;
    const int64_t run = left < count - n ? left : count - n;
    const float mean = with.mean[at], factor = with.factor[at], gamma = with.gamma[at], beta = with.beta[at];
    for (int64_t k = 0; k < run; ++k) out[n + k] = (in[n + k] - mean) * factor * gamma + beta;
    n += run;
  }
}

void batch_block(const float* in, float* out, int64_t pixels, const BatchParameters& with, float low, float high) {
  const Vec least = broadcast(low), most = broadcast(high);
  for (int v = 0; v < 16; v += kLanes) {
    const Vec mean = load(with.mean + v), factor = load(with.factor + v), gamma = load(with.gamma + v);
    const Vec beta = load(with.beta + v);
    for (int64_t n = v; n < pixels * 16; n += 16)
      store(out + n, at_most(at_least((load(in + n) - mean) * factor * gamma + beta, least), most));
  }
}

void deviations_block(const float* in, int64_t pixels, const float* center, float* sums, float* squares) {
  constexpr int kAtOnce = 4;  // sums of pixels that do not wait for one another
  for (int v = 0; v < 16; v += kLanes) {
    const Vec middle = load(center + v);
    Vec sum[kAtOnce] = {}, square[kAtOnce] = {};
    int64_t n = 0;
    for (; n + kAtOnce <= pixels; n += kAtOnce)
      for (int k = 0; k < kAtOnce; ++k) {
        const Vec distance = load(in + (n + k) * 16 + v) - middle;
        sum[k] += distance, square[k] += distance * distance;
      }
    for (; n < pixels; ++n) {
      const Vec distance = load(in + n * 16 + v) - middle;
      sum[0] += distance, square[0] += distance * distance;
    }
    store(sums + v, load(sums + v) + ((sum[0] + sum[1]) + (sum[2] + sum[3])));
    store(squares + v, load(squares + v) + ((square[0] + square[1]) + (square[2] + square[3])));
  }
}

void clamp(float* values, int64_t count, float low, float high) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes)
    store(values + n, at_most(at_least(load(values + n), broadcast(low)), broadcast(high)));
  for (; n < count; n += kLanes)
    store_some(values + n, at_most(at_least(load_some(values + n, count - n, 0), broadcast(low)), broadcast(high)),
               count - n);
}

void affine_block(const float* in, float* out, int64_t pixels, const float* scale, const float* shift, float low,
                  float high) {
  constexpr int kVecs = 16 / kLanes;
  Vec factors[kVecs], terms[kVecs];
  for (int v = 0; v < kVecs; ++v) factors[v] = load(scale + v * kLanes), terms[v] = load(shift + v * kLanes);
  const Vec least = broadcast(low), most = broadcast(high);
  for (const float* end = in + pixels * 16; in < end; in += 16, out += 16)
    for (int v = 0; v < kVecs; ++v)
      store(out + v * kLanes, at_most(at_least(load(in + v * kLanes) * factors[v] + terms[v], least), most));
}

/// The mean of a row as `first` + `rest`, where `first` is rounded. Less `first`, nearly equal elements are exact; less
/// `rest`, they have no error in the last place of their mean, which would be divided by a small deviation.
struct Middle {
  float first, rest;

  template <class T>
  inline __attribute__((always_inline)) T below(T x) const {
    return (x - first) - rest;
  }
};

/// The elements up to which a row is not summed in halves.
constexpr int64_t kWhole = 64 * kLanes;

/// `sum_of_powers` of several rows of at most `kWhole` elements, one after the other in memory. The sums do not wait
/// for each other, as they would in turn.
template <int kPower, int kRows>
void sums_of_powers(const float* in, int64_t length, const Middle* means, float* sums) {
  Vec totals[kRows][4] = {};
  int64_t n = 0;
  auto add = [&](int row, int k, Vec x, int64_t count) {
    const Vec below = some(means[row].below(x), count);
    totals[row][k] += kPower == 1 ? below : below * below;
  };
  for (; n + 4 * kLanes <= length; n += 4 * kLanes)
    for (int row = 0; row < kRows; ++row)
      for (int k = 0; k < 4; ++k) add(row, k, load(in + row * length + n + k * kLanes), kLanes);
  for (; n < length; n += kLanes)
    for (int row = 0; row < kRows; ++row) add(row, 0, load_some(in + row * length + n, length - n, 0), length - n);
  for (int row = 0; row < kRows; ++row)
    sums[row] = sum_of_lanes((totals[row][0] + totals[row][1]) + (totals[row][2] + totals[row][3]));
}

/// The sum of (x - mean)**kPower over a row, in halves as in `fold_row`.
template <int kPower>
float sum_of_powers(const float* in, int64_t length, Middle mean) {
  if (length > kWhole) {
    const int64_t half = length / 2 / kLanes * kLanes;
    return sum_of_powers<kPower>(in, half, mean) + sum_of_powers<kPower>(in + half, length - half, mean);
  }
  float sum;
  sums_of_powers<kPower, 1>(in, length, &mean, &sum);
  return sum;
}

Middle middle_of(const float* in, int64_t length) {
  const float first = sum_of_powers<1>(in, length, {0, 0}) / float(length);
  return {first, sum_of_powers<1>(in, length, {first, 0}) / float(length)};
}

/// `standardize` in double precision, for rows whose sums or squares leave the range of float. The mean is subtracted
/// in two steps, as in `Middle`.
void standardize_wide(const float* in, float* out, int64_t length, Spread spread, float eps, const Affine& with) {
  double mean = 0, squares = 0;
  if (spread != Spread::mean_square) {
    for (int64_t n = 0; n < length; ++n) mean += double(in[n]);
    mean /= double(length);
    double rest = 0;
    for (int64_t n = 0; n < length; ++n) rest += double(in[n]) - mean;
    mean += rest / double(length);
  }
  for (int64_t n = 0; n < length; ++n) squares += (double(in[n]) - mean) * (double(in[n]) - mean);
  const double variance = squares / double(length);
  const double divisor = spread == Spread::deviation ? sqrt(variance) + double(eps) : sqrt(variance + double(eps));
  for (int64_t n = 0; n < length; ++n) out[n] = float((double(in[n]) - mean) / divisor);
  if (with.scale || with.shift) affine(out, out, length, 0, with);
}

/// Normalize a row, of which the mean and the sum of the squares are known.
void standardize_by(Middle mean, float total, const float* in, float* out, int64_t length, Spread spread, float eps,
                    const Affine& with) {
  const float variance = total / float(length);
  if (__builtin_expect(left_the_range(total, eps < kTiny), 0))
    return standardize_wide(in, out, length, spread, eps, with);
  const float divisor = spread == Spread::deviation ? sqrtf(variance) + eps : sqrtf(variance + eps);
  const float factor = 1.0f / divisor;
  if (divisor > 0 && !(factor < __builtin_inff())) {  // the reciprocal of a denormal number overflows
    for (int64_t n = 0; n < length; ++n) out[n] = mean.below(in[n]) / divisor;
    if (with.scale || with.shift) affine(out, out, length, 0, with);
    return;
  }
  if (with.inner == 1 && with.period == length && with.scale && with.shift) {
    for (int64_t n = 0; n < length; ++n) out[n] = mean.below(in[n]) * factor * with.scale[n] + with.shift[n];
    return;
  }
  if (with.inner == 1 && with.period == length && with.scale) {
    for (int64_t n = 0; n < length; ++n) out[n] = mean.below(in[n]) * factor * with.scale[n];
    return;
  }
  for (int64_t n = 0; n < length; ++n) out[n] = mean.below(in[n]) * factor;
  if (with.scale || with.shift) affine(out, out, length, 0, with);
}

template <int kRows>
void standardize_together(const float* in, float* out, int64_t length, Spread spread, float eps, const Affine& with) {
  Middle means[kRows] = {};
  float sums[kRows];
  if (spread != Spread::mean_square) {
    sums_of_powers<1, kRows>(in, length, means, sums);
    for (int row = 0; row < kRows; ++row) means[row].first = sums[row] / float(length);
    sums_of_powers<1, kRows>(in, length, means, sums);
    for (int row = 0; row < kRows; ++row) means[row].rest = sums[row] / float(length);
  }
  sums_of_powers<2, kRows>(in, length, means, sums);
  for (int row = 0; row < kRows; ++row)
    standardize_by(means[row], sums[row], in + row * length, out + row * length, length, spread, eps, with);
}

void standardize(const float* in, float* out, int64_t rows, int64_t length, Spread spread, float eps,
                 const Affine& with) {
  constexpr int kTogether = kRegisters / 8;  // each row has four vectors of sums
  for (; length <= kWhole && rows >= kTogether; rows -= kTogether, in += kTogether * length, out += kTogether * length)
    standardize_together<kTogether>(in, out, length, spread, eps, with);
  for (; rows > 0; --rows, in += length, out += length) {
    const Middle mean = spread == Spread::mean_square ? Middle{0, 0} : middle_of(in, length);
    standardize_by(mean, sum_of_powers<2>(in, length, mean), in, out, length, spread, eps, with);
  }
}

}  // namespace

extern const SoftmaxKernels softmax_kernels = {softmax};
extern const ReduceKernels reduce_kernels = {reduce};
extern const NormalizeKernels normalize_kernels = {unit_length, response, standardize,  affine,          batch,
                                                   batch_block, clamp,    affine_block, deviations_block};

}  // namespace cpuacc::ISA_NS
