// Attention, as two products of matrices with the softmax of the scores between them, and rotary embeddings.

#include <cmath>

#include "gpuacc/products.hpp"
#include "gpuacc/rows.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kFarthestKey = 1 << 29;  // limit of windows and of numbers of keys; positions do not overflow

/// The sizes of a tensor (batch, heads, length, size), or (batch, length, heads * size).
struct Heads {
  Heads(const ipr::TensorInfo& info, int64_t num_heads) : flat(info.rank() == 3) {
    batch = info.extent(0);
    heads = flat ? num_heads : info.extent(1);
    length = info.extent(-2);
    size = flat ? info.extent(2) / std::max<int64_t>(num_heads, 1) : info.extent(3);
  }
  Shape shape() const { return {batch, heads, length, size}; }
  Shape strides() const {
    if (flat) return {length * heads * size, size, heads * size, 1};
    return strides_of(shape());
  }
  bool flat;
  int64_t batch, heads, length, size;
};

bool is_masked(const ipr::Layer& layer) {
  return layer.input(3) || layer.input(6) || layer.flag("is_causal") || layer.integer("left_window_size", -1) >= 0 ||
         layer.integer("right_window_size", -1) >= 0;
}

ipr::Verdict attention_support(const ipr::Layer& layer, const Target&) {
  const std::string precision(layer.text("softmax_precision"));
  if (!precision.empty() && precision != "FLOAT32")
    return ipr::no("softmax_precision is " + precision + "; computes the softmax in float32", IPR_REASON_ATTRIBUTE);
  for (size_t n : {0, 1, 2, 4, 5, 7}) {
    const ipr::TensorInfo info = layer.input(n);
    if (info && (!is_float(info) || (n < 3 && info.dtype() != layer.input(0).dtype())))
      return ipr::no("input " + std::to_string(n) + " is " + described(info) + "; takes one of float32 and float16",
                     IPR_REASON_DATA_TYPE);
  }
  const ipr::TensorInfo mask = layer.input(3);
  if (mask && !is_float(mask) && mask.dtype() != IPR_DTYPE_BOOL)
    return ipr::no("mask is " + described(mask) + "; takes bool, float32 and float16", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

/// The keys or values of all heads, (batch, heads, length, size), after those of the past.
Value joined(const ipr::Layer& layer, Plan& plan, size_t position, size_t past) {
  const Heads heads(layer.input(position), layer.integer("kv_num_heads"));
  const Value fresh = plan.plain(layer.input(position).index());
  if (!layer.input(past)) return plan.strided(fresh, 0, heads.strides(), heads.shape());
  const Value earlier = plan.plain(layer.input(past).index());
  Shape shape = heads.shape();
  shape[2] += earlier.shape[2];
  const Value all = plan.create(fresh.dtype, shape);
  const Shape to = strides_of(shape);
  plan.copy(earlier, 0, strides_of(earlier.shape), all, 0, to, earlier.shape);
  plan.copy(fresh, 0, heads.strides(), all, earlier.shape[2] * heads.size, to, heads.shape());
  return all;
}

/// The matrices of b that the heads of a use, each of which several consecutive heads share.
std::vector<int32_t> shared_heads(int64_t count, int64_t sharing) {
  std::vector<int32_t> found;
  for (int64_t n = 0; n < count; ++n) found.push_back(int32_t(n / sharing));
  return found;
}

std::vector<int32_t> multiples(int64_t count, int64_t step) {
  std::vector<int32_t> found;
  for (int64_t n = 0; n < count; ++n) found.push_back(int32_t(n * step));
  return found;
}

/// Multiply each matrix of `a`, (heads, M, K), by the one of `b` that its head uses, into `y`, (heads, M, N).
void multiply_heads(Plan& plan, const Value& a, const Value& b, Product sizes, const Matrices& matrices,
                    const Value& y) {
  if (y.elements() == 0) return;
  if (sizes.k == 0) return plan.fill(y, 0);
  const int64_t heads = a.shape[0] * a.shape[1], vectors = vectors_of(plan, sizes.n);
  const int64_t step = vectors * plan.profile.block;
  sizes.offsets_a = multiples(heads, sizes.m * sizes.k);
  sizes.offsets_b = shared_heads(heads, heads / matrices.count);
  multiply(plan, a, packed_by_kernel(plan, b, matrices, step), no_bias(plan, sizes.n, step), sizes, vectors,
           Chain(plan, plan.graph.layer(size_t(plan.layer)).output(0).index(), -1), y);
}

/// The mask as the softmax reads it: its distances between samples, heads, queries and keys, and its number of keys.
struct Mask {
  Mask(const ipr::TensorInfo& info, int64_t keys) : keys(keys), strides(4, 0) {
    if (!info) return;
    const Shape shape = shape_of(info), own = strides_of(shape);
    for (size_t n = 0; n < shape.size(); ++n) strides[4 - shape.size() + n] = shape[n] == 1 ? 0 : own[n];
    if (!shape.empty()) this->keys = shape.back();
  }
  int64_t keys;
  Shape strides;
};

/// The code of a row of scores. A key that the query does not see has the probability -0.0.
std::string softmax_code(const ipr::Layer& layer) {
  const ipr::TensorInfo mask = layer.input(3);
  const bool adds = mask && mask.dtype() != IPR_DTYPE_BOOL;
  const std::string stage(layer.text("scores"));
  std::string code = R"(
  const int q = row % Q, h = row / Q % H, sample = row / Q / H;
  const int valid = $VALID, at = q + $FIRST, masked = sample * bym.s0 + h * bym.s1 + q * bym.s2;
#define BIAS(r) $BIAS
#define SEEN(r) (r < min(valid, maskkeys) && r >= at - left && r <= at + right $MASKED)
#define SCALED(r) (X(r) * scale)
#define CAPPED(r) ($CAPPED)
#define SCORE(r) (SEEN(r) ? CAPPED(r) + BIAS(r) : -INFINITY)
  const float own = $SINK;
  ACC most = own;
  EACH most = fmax(most, (ACC)SCORE(r));
  MAX_ALL(most)
  const float top = isinf(most) && most < 0 ? 0.0f : (float)most;
  ACC sum = 0;
  EACH sum += (ACC)exp(SCORE(r) - top);
  SUM_ALL(sum)
  const float total = (float)sum + exp(own - top);
  const float by = total == 0 ? 0.0f : 1.0f / total;
  EACH {
    const float p = exp(SCORE(r) - top) * by;
    y[AT(r)] = SEEN(r) ? p : -0.0f;
    $SCORES
  }
)";
  Template text(code);
  text.set("VALID", layer.input(6) ? "(int)clamp((long)lengths[sample], -FARTHEST, FARTHEST)" : "n");
  text.set("FIRST", layer.input(6) ? "valid - Q" : "past");
  text.set("BIAS", adds ? "LD_$M(masked + (r) * bym.s3, mask)" : "0.0f");
  text.set("MASKED", !mask ? "" : adds ? "&& BIAS(r) != -INFINITY" : "&& mask[masked + (r) * bym.s3]");
  text.set("CAPPED", layer.number("softcap") > 0 ? "softcap * tanh(SCALED(r) / softcap)" : "SCALED(r)");
  text.set("SINK", layer.input(7) ? "LD_$K(h, sink)" : "-INFINITY");
  text.set("SCORES", stage == "SCALED"          ? "ST_$S(SCALED(r), AT(r), scores);"
                     : stage == "CAPPED"        ? "ST_$S(CAPPED(r), AT(r), scores);"
                     : stage == "MASKED"        ? "ST_$S(SCORE(r), AT(r), scores);"
                     : stage == "PROBABILITIES" ? "ST_$S(SEEN(r) ? p : 0.0f, AT(r), scores);"
                                                : "");
  return "#define FARTHEST " + std::to_string(kFarthestKey) + "L\n" + text.text();
}

int64_t window(const ipr::Layer& layer, const char* name) {
  const int64_t size = layer.integer(name, -1);
  return size < 0 ? kFarthestKey : std::min(size, kFarthestKey);
}

/// The probabilities of scores (batch, heads, queries, keys); `past` is the number of earlier keys.
Value probabilities(const ipr::Layer& layer, Plan& plan, const Value& scores, int64_t past, int64_t size) {
  const Value out = plan.create(IPR_DTYPE_FLOAT32, scores.shape);
  auto operand = [&](size_t position) {
    return layer.input(position) ? plan.plain(layer.input(position).index()) : scores;
  };
  const Value mask = operand(3), lengths = operand(6), sink = operand(7);
  Value returned = out;
  if (layer.output_count() > 3) {
    returned = plan.create(layer.output(3).dtype(), scores.shape);
    plan.set(layer.output(3).index(), returned);
  }
  const Mask place(layer.input(3), scores.shape[3]);
  const int64_t right = window(layer, "right_window_size");
  Template code(softmax_code(layer)),
      declarations(
          ", int Q, int H, int past, int left, int right, int maskkeys, int8 bym, float scale, float softcap, "
          "global const $M* restrict mask, global const $L* restrict lengths, global const $K* restrict sink, "
          "global $S* restrict scores");
  for (Template* text : {&code, &declarations})
    text->set("M", storage(mask.dtype))
        .set("L", storage(lengths.dtype))
        .set("K", storage(sink.dtype))
        .set("S", storage(returned.dtype));
  launch_rows(
      plan, "softmax of scores", along(scores, 3), out,
      {code.text(),
       declarations.text(),
       {number(scores.shape[2]), number(scores.shape[1]), number(past), number(window(layer, "left_window_size")),
        number(layer.flag("is_causal") ? std::min<int64_t>(right, 0) : right), number(place.keys),
        numbers(place.strides, 0), real(layer.number("scale", 1 / std::sqrt(double(size)))),
        real(layer.number("softcap")), reads(mask), reads(lengths), reads(sink), writes(returned)}});
  return out;
}

void lower_attention(const ipr::Layer& layer, Plan& plan) {
  const Heads heads(layer.input(0), layer.integer("q_num_heads"));
  const Value query = plan.strided(plan.plain(layer.input(0).index()), 0, heads.strides(), heads.shape());
  const Value keys = joined(layer, plan, 1, 4), values = joined(layer, plan, 2, 5);
  if (layer.output_count() > 1) plan.set(layer.output(1).index(), keys), plan.set(layer.output(2).index(), values);
  const int64_t groups = keys.shape[0] * keys.shape[1], length = keys.shape[2], size = values.shape[3];
  const Value scores = plan.create(IPR_DTYPE_FLOAT32, {heads.batch, heads.heads, heads.length, length});
  Product products;
  products.m = heads.length, products.k = heads.size, products.n = length;
  multiply_heads(plan, query, keys, products, {groups, heads.size, length, 1, heads.size}, scores);
  const int64_t past = layer.input(4) ? layer.input(4).extent(2) : 0;
  const Value weights = probabilities(layer, plan, scores, past, heads.size);
  products.k = length, products.n = size, products.skips_negative_zeros = is_masked(layer);
  const Value out = plan.create(query.dtype, {heads.batch, heads.heads, heads.length, size});
  multiply_heads(plan, weights, values, products, {groups, length, size, size, 1}, out);
  if (!heads.flat) return plan.set(layer.output(0).index(), out);
  const Shape by = strides_of(out.shape), merged = {heads.batch, heads.length, heads.heads, size};
  const Value flat = plan.strided(out, 0, {by[0], by[2], by[1], 1}, merged);
  plan.set(layer.output(0).index(), plan.reshaped(flat, shape_of(layer.output(0))));
}

// ---- Rotary embeddings ----------------------------------------------------------------------------------------------------

ipr::Verdict rotary_support(const ipr::Layer& layer, const Target&) {
  for (size_t n : {0, 1, 2})
    if (!is_float(layer.input(n)))
      return ipr::no("input " + std::to_string(n) + " is " + described(layer.input(n)) + "; takes float32 and float16",
                     IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

/// One work item for each element.
void lower_rotary(const ipr::Layer& layer, Plan& plan) {
  const Heads heads(layer.input(0), layer.integer("num_heads"));
  const Value x = plan.plain(layer.input(0).index());
  const Value cosine = plan.plain(layer.input(1).index()), sine = plan.plain(layer.input(2).index());
  const ipr::TensorInfo ids = layer.input(3);
  const Value positions = ids ? plan.plain(ids.index()) : x;
  if (ids) plan.check_values(positions, {layer.index(), 3, "position_ids", 0, cosine.shape[0] - 1});
  const Value out = plan.create(x.dtype, x.shape);
  Template source(R"(
kernel void k(global const $T* restrict x, global const $C* restrict cosine, global const $N* restrict sine,
              global const $P* restrict ids, global $T* restrict y, int count, int H, int S, int D, int R, int rows) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int d = i % D, sample = i / (H * S * D), s = $SEQUENCE;
  float v = LD_$T(i, x);
  if (d < 2 * R) {
    const int pair = $PAIR, second = $SECOND, row = $ROW;
    const float other = LD_$T(i + (second ? -($STEP) : ($STEP)), x);
    const float c = LD_$C(row * R + pair, cosine), t = LD_$N(row * R + pair, sine);
    v = second ? t * other + c * v : c * v - t * other;
  }
  ST_$T(v, i, y);
}
)");
  const bool interleaved = layer.flag("interleaved");
  source.set("SEQUENCE", heads.flat ? "i / (H * D) % S" : "i / D % S");
  source.set("PAIR", interleaved ? "d / 2" : "d % R").set("SECOND", interleaved ? "d % 2" : "d / R");
  source.set("STEP", interleaved ? "1" : "R");
  source.set("ROW", ids ? "clamp((int)ids[sample * S + s], 0, rows - 1)" : "sample * S + s");
  source.set("T", storage(x.dtype)).set("C", storage(cosine.dtype)).set("N", storage(sine.dtype));
  source.set("P", storage(positions.dtype));
  plan.launch_elements(
      "rotary embedding", preamble(plan.profile, plan.device.info) + source.text(),
      {reads(x), reads(cosine), reads(sine), reads(positions), writes(out), number(out.elements()), number(heads.heads),
       number(heads.length), number(heads.size), number(cosine.shape.back()), number(cosine.shape[0])},
      out.elements());
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings attention_lowerings() {
  return {{"Attention", attention_support, lower_attention}, {"RotaryEmbedding", rotary_support, lower_rotary}};
}

}  // namespace gpuacc
