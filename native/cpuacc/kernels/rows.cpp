#include "cpuacc/kernels/rows.hpp"

#include <math.h>

#include "cpuacc/kernels/functions.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int64_t kColumns = 256;  // columns that are worked on at once

float horizontal_sum(Vec v) {
  float total = 0;
  for (int n = 0; n < kLanes; ++n) total += v[n];
  return total;
}

/// The larger one, and what is not a number.
CPUACC_INLINE float larger(float a, float b) { return a > b || a != a ? a : b; }
CPUACC_INLINE float smaller(float a, float b) { return a < b || a != a ? a : b; }

// ---- Folds: how two elements, and an element and a total, come together -------------------------------------------------

struct Sum { static float of(float x) { return x; } static float both(float a, float b) { return a + b; } };
struct Absolute { static float of(float x) { return fabsf(x); } static float both(float a, float b) { return a + b; } };
struct Squares { static float of(float x) { return x * x; } static float both(float a, float b) { return a + b; } };
struct Product { static float of(float x) { return x; } static float both(float a, float b) { return a * b; } };
struct Greatest { static float of(float x) { return x; } static float both(float a, float b) { return larger(a, b); } };
struct Least { static float of(float x) { return x; } static float both(float a, float b) { return smaller(a, b); } };

/// Several totals side by side, so that the order of additions is that of a tree.
template <class F>
float fold_row(const float* in, int64_t count, float start) {
  constexpr int width = 4 * kLanes;
  float totals[width];
  for (int n = 0; n < width; ++n) totals[n] = start;
  int64_t n = 0;
  for (; n + width <= count; n += width)
    for (int k = 0; k < width; ++k) totals[k] = F::both(totals[k], F::of(in[n + k]));
  for (int half = width / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) totals[k] = F::both(totals[k], totals[k + half]);
  float total = totals[0];
  for (; n < count; ++n) total = F::both(total, F::of(in[n]));
  return total;
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

void log_sum_exp(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last) {
  for (int64_t c = first; c < last; ++c) {
    float top = -INFINITY, total = 0;
    for (int64_t e = 0; e < extent; ++e) top = larger(top, in[e * inner + c]);
    if (!(fabsf(top) < INFINITY)) top = 0;
    for (int64_t e = 0; e < extent; ++e) total += expf(in[e * inner + c] - top);
    out[c] = logf(total) + top;
  }
}

void reduce(Reduction operation, const float* in, float* out, int64_t extent, int64_t inner, int64_t first,
            int64_t last) {
  switch (operation) {
    case Reduction::max: return fold<Greatest>(in, out, extent, inner, first, last, -INFINITY);
    case Reduction::min: return fold<Least>(in, out, extent, inner, first, last, INFINITY);
    case Reduction::prod: return fold<Product>(in, out, extent, inner, first, last, 1);
    case Reduction::l1: return fold<Absolute>(in, out, extent, inner, first, last, 0);
    case Reduction::sum_square: return fold<Squares>(in, out, extent, inner, first, last, 0);
    case Reduction::log_sum_exp: return log_sum_exp(in, out, extent, inner, first, last);
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
    default: return fold<Sum>(in, out, extent, inner, first, last, 0);
  }
}

// ---- Softmax ----------------------------------------------------------------------------------------------------------

/// exp((x - top) * beta) of a row, and their sum.
float exponentials(const float* in, float* out, int64_t count, float top, float beta) {
  Vec total = {};
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) {
    Vec e = exponential((load(in + n) - top) * beta);
    store(out + n, e);
    total += e;
  }
  float sum = horizontal_sum(total);
  if (n < count) {
    Vec rest = all(-INFINITY);
    for (int64_t k = n; k < count; ++k) rest[k - n] = (in[k] - top) * beta;
    rest = exponential(rest);
    for (int64_t k = n; k < count; ++k) out[k] = rest[k - n], sum += rest[k - n];
  }
  return sum;
}

void softmax_row(const float* in, float* out, int64_t count, float beta, bool logarithm) {
  float top = fold_row<Greatest>(in, count, -INFINITY);
  if (logarithm) {
    double total = 0;
    for (int64_t n = 0; n < count; ++n) total += expf((in[n] - top) * beta);
    float less = logf(float(total));
    for (int64_t n = 0; n < count; ++n) out[n] = (in[n] - top) * beta - less;
    return;
  }
  float factor = 1.0f / exponentials(in, out, count, top, beta);
  for (int64_t n = 0; n < count; ++n) out[n] *= factor;
}

void softmax_columns(const float* in, float* out, int64_t extent, int64_t inner, int64_t c0, int64_t count, float beta,
                     bool logarithm) {
  float top[kColumns], total[kColumns];
  for (int64_t c = 0; c < count; ++c) top[c] = -INFINITY, total[c] = 0;
  for (int64_t e = 0; e < extent; ++e)
    for (int64_t c = 0; c < count; ++c) top[c] = larger(top[c], in[e * inner + c0 + c]);
  for (int64_t e = 0; e < extent; ++e) {
    const float* row = in + e * inner + c0;
    float* to = out + e * inner + c0;
    for (int64_t c = 0; c < count; ++c) {
      float x = (row[c] - top[c]) * beta, power = expf(x);
      total[c] += power;
      to[c] = logarithm ? x : power;
    }
  }
  for (int64_t c = 0; c < count; ++c) total[c] = logarithm ? logf(total[c]) : 1.0f / total[c];
  for (int64_t e = 0; e < extent; ++e) {
    float* to = out + e * inner + c0;
    for (int64_t c = 0; c < count; ++c) to[c] = logarithm ? to[c] - total[c] : to[c] * total[c];
  }
}

void softmax(const float* in, float* out, int64_t extent, int64_t inner, int64_t first, int64_t last, float beta,
             bool logarithm) {
  if (inner == 1) return softmax_row(in, out, extent, beta, logarithm);
  for (int64_t c0 = first; c0 < last; c0 += kColumns)
    softmax_columns(in, out, extent, inner, c0, last - c0 < kColumns ? last - c0 : kColumns, beta, logarithm);
}

// ---- Normalisations ---------------------------------------------------------------------------------------------------

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
    for (int64_t c = 0; c < count; ++c) totals[c] = sqrtf(larger(totals[c], eps));
    if (inner == 1) {
      for (int64_t e = 0; e < extent; ++e) out[e] = in[e] / totals[0];
      return;
    }
    for (int64_t e = 0; e < extent; ++e)
      for (int64_t c = 0; c < count; ++c) out[e * inner + c0 + c] = in[e * inner + c0 + c] / totals[c];
  }
}

/// Elements that share a number follow one another; runs of them are scaled alike.
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

void standardize(const float* in, float* out, int64_t length, Spread spread, float eps, const Affine& with) {
  float mean = spread == Spread::mean_square ? 0.0f : fold_row<Sum>(in, length, 0) / float(length);
  for (int64_t n = 0; n < length; ++n) out[n] = in[n] - mean;
  float variance = fold_row<Squares>(out, length, 0) / float(length);
  float factor = spread == Spread::deviation ? 1.0f / (sqrtf(variance) + eps) : 1.0f / sqrtf(variance + eps);
  if (with.inner == 1 && with.period == length && with.scale && with.shift) {
    for (int64_t n = 0; n < length; ++n) out[n] = out[n] * factor * with.scale[n] + with.shift[n];
    return;
  }
  for (int64_t n = 0; n < length; ++n) out[n] *= factor;
  if (with.scale || with.shift) affine(out, out, length, 0, with);
}

}  // namespace

extern const RowKernels row_kernels = {softmax, reduce, unit_length, standardize, affine};

}  // namespace cpuacc::ISA_NS
