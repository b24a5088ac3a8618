// Attention of float32: the layer, and the pattern of products, softmax and transpositions by which networks express
// it.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cpuacc/kernels/attention_f32.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"
#include "cpuacc/patterns.hpp"
#include "cpuacc/strided_copy.hpp"
#include "cpuacc/strided_view.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kCachedFloats = 20 * 1024;  // floats of the rows of scores that are processed at once; they share a
                                              // second-level cache with key and value
constexpr int64_t kMax = 1 << 24;             // largest dimension
constexpr int64_t kMaxHeads = 1 << 20;        // heads of all sequences
constexpr int64_t kFarthestKey = int64_t{1} << 32;  // limit of windows and of numbers of keys, beyond all dimensions

/// The offsets of the operands of one head, in elements.
struct Place {
  int64_t query, key, value, mask, out;
  int64_t term[kMaxScoreTerms];
  int64_t past_key, past_value, present_key, present_value;  // with a cache; `key` and `value` are those of new rows
  bool keeps_cache;                                          // it is the first head with its keys
  float factor;                                              // of the scores of this head

  /// Return whether two heads of a sequence read the same rows. Caches may share their new rows and differ in the past.
  bool same_keys(const Place& other) const {
    return key == other.key && value == other.value && past_key == other.past_key && past_value == other.past_value;
  }
};

/// Heads that are computed in one call, [first, last).
struct Group {
  int64_t first, last;
};

/// The parameters of "acc.Attention". Its operands are query, key, value, the terms of the scores, and, with a cache,
/// the past keys and values. Its results are the output and, with a cache, the present keys and values. The step has
/// query, key, value, mask and the valid lengths before the terms.
struct Fused {
  AttentionHead head{};
  std::vector<Place> places;  // of all heads, sequence by sequence
  int64_t heads = 1;          // of each sequence
  int64_t past = 0;
};

struct State {
  const AttentionKernels* kernels;
  Fused fused;
  const float* zeros;
  std::vector<Group> groups;  // if all heads have few queries; otherwise empty
  int64_t chunks;             // pieces into which the queries of a head are divided
  bool long_lengths;          // lengths are int64
  bool streams;               // the cache is larger than the caches of the processor
  size_t sink;                // position of the sink among the operands of the step; 0 if there is none
};

constexpr size_t kFirstTerm = 5;              // position of the terms among the operands of a step
constexpr uint64_t kStreamedBytes = 8 << 20;  // of a cache; more does not stay in the processor's caches

int64_t valid_keys(const State& state, const Step& step, const Run& run, int64_t batch) {
  if (!step.in[4]) return state.fused.head.keys;
  int64_t keys = state.long_lengths ? run.at<int64_t>(step.in[4])[batch] : run.at<int32_t>(step.in[4])[batch];
  return std::clamp(keys, -kFarthestKey, kFarthestKey);
}

AttentionOperands operands_of(const State& state, const Step& step, const Run& run, int64_t n) {
  const Fused& f = state.fused;
  const Place& place = f.places[size_t(n)];
  AttentionOperands operands{run.at<float>(step.in[0]) + place.query,
                             run.at<float>(step.in[1]) + place.key,
                             run.at<float>(step.in[2]) + place.value,
                             nullptr,
                             state.zeros,
                             f.past,
                             0,
                             {},
                             nullptr,
                             nullptr,
                             nullptr,
                             place.factor};
  if (state.sink != 0) operands.sink = run.at<float>(step.in[state.sink]) + n % f.heads;
  if (step.in[3])
    operands.mask = run.at<char>(step.in[3]) + place.mask * (f.head.mask_is_bool ? 1 : int64_t(sizeof(float)));
  for (int i = 0; i < f.head.terms; ++i)
    operands.term[i] = run.at<char>(step.in[kFirstTerm + size_t(i)]) +
                       place.term[i] * (f.head.term[i].replaces ? 1 : int64_t(sizeof(float)));
  if (f.head.past > 0) {
    const size_t first = kFirstTerm + size_t(f.head.terms);
    operands.past_key = run.at<float>(step.in[first]) + place.past_key;
    operands.past_value = run.at<float>(step.in[first + 1]) + place.past_value;
  }
  int64_t valid = valid_keys(state, step, run, n / f.heads);
  if (step.in[4]) operands.position = valid - f.head.queries;
  operands.valid = std::min<int64_t>(valid, f.head.keys);
  return operands;
}

/// The keys that some query of a head sees by its position and by their number, at least one.
Range seen_keys(const AttentionHead& h, const AttentionOperands& operands) {
  int64_t begin = 0, end = std::min<int64_t>(operands.valid, h.keys);
  if (h.left >= 0) begin = std::max<int64_t>(begin, operands.position - h.left);
  if (h.right >= 0) end = std::min(end, operands.position + h.queries + h.right);
  if (operands.mask) end = std::min<int64_t>(end, h.mask_keys);
  return begin < end ? Range{begin, end} : Range{0, 1};
}

/// Leave out keys before and after those that any query sees. The keys of a cache may be many more.
void crop(AttentionHead& h, AttentionOperands* heads, int64_t count) {
  if (!h.excludes || h.terms || h.past > 0 || h.keys == 0) return;
  const Range seen = seen_keys(h, heads[0]);
  if (seen.first == 0 && seen.last == h.keys) return;
  for (int64_t n = 0; n < count; ++n) {
    AttentionOperands& head = heads[n];
    head.key += seen.first * h.key_row, head.value += seen.first * h.value_row;
    head.position -= seen.first, head.valid = std::min(head.valid, seen.last) - seen.first;
    if (head.mask) head.mask = static_cast<const char*>(head.mask) + seen.first * h.mask_key * (h.mask_is_bool ? 1 : 4);
  }
  h.keys = int32_t(seen.last - seen.first);
  h.mask_keys = int32_t(std::min<int64_t>(h.mask_keys, seen.last) - seen.first);
}

void run_attention(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Fused& f = state.fused;
  Range range = split(int64_t(f.places.size()) * state.chunks, part, parts);
  const float *last_key = nullptr, *last_value = nullptr;
  for (int64_t n = range.first; n < range.last; ++n) {
    int64_t head = n / state.chunks, chunk = n % state.chunks;
    AttentionOperands operands = operands_of(state, step, run, head);
    AttentionHead size = f.head;
    crop(size, &operands, 1);
    Range rows = split(f.head.queries, int(chunk), int(state.chunks));
    bool same = operands.key == last_key && operands.value == last_value;
    last_key = operands.key, last_value = operands.value;
    state.kernels->attend(size, operands, run.at<float>(step.out[0]) + f.places[size_t(head)].out,
                          run.part_scratch<float>(part), int(rows.first), int(rows.last), same);
  }
}

/// Write the present keys or values of one head, right after they were read: the past rows, and the new ones.
void keep_rows(const State& state, const float* past, const float* fresh, int64_t fresh_row, int64_t size, float* to) {
  const AttentionHead& h = state.fused.head;
  state.kernels->copy(past, to, h.past * size, state.streams);
  for (int64_t n = 0; n < h.keys - h.past; ++n)
    state.kernels->copy(fresh + n * fresh_row, to + (h.past + n) * size, size, false);
}

void keep_cache(const State& state, const Step& step, const Run& run, const Place& place,
                const AttentionOperands& operands) {
  const AttentionHead& h = state.fused.head;
  keep_rows(state, operands.past_key, operands.key, h.key_row, h.size, run.at<float>(step.out[1]) + place.present_key);
  keep_rows(state, operands.past_value, operands.value, h.value_row, h.value_size,
            run.at<float>(step.out[2]) + place.present_value);
}

void run_few_queries(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  Range range = split(int64_t(state.groups.size()), part, parts);
  for (int64_t n = range.first; n < range.last; ++n) {
    const Group group = state.groups[size_t(n)];
    AttentionOperands heads[kFewQueries];
    float* outs[kFewQueries];
    for (int64_t head = group.first; head < group.last; ++head) {
      heads[head - group.first] = operands_of(state, step, run, head);
      outs[head - group.first] = run.at<float>(step.out[0]) + state.fused.places[size_t(head)].out;
    }
    AttentionHead size = state.fused.head;
    crop(size, heads, group.last - group.first);
    state.kernels->attend_few(size, heads, outs, int(group.last - group.first), run.part_scratch<float>(part));
    const Place& first = state.fused.places[size_t(group.first)];
    if (first.keeps_cache) keep_cache(state, step, run, first, heads[0]);
  }
}

/// Group consecutive heads with the same keys, of at most kFewQueries queries in all. Several groups for each part keep
/// all parts busy.
std::vector<Group> groups_of(const Fused& fused, int64_t parts) {
  const int64_t heads = int64_t(fused.places.size());
  int64_t most = std::max<int64_t>(1, kFewQueries / fused.head.queries);
  while (most > 1 && heads / most < parts) most /= 2;
  std::vector<Group> groups;
  for (int64_t n = 0; n < heads; ++n) {
    const bool joins = !groups.empty() && n - groups.back().first < most && n % fused.heads != 0 &&
                       fused.places[size_t(n)].same_keys(fused.places[size_t(groups.back().first)]);
    if (joins)
      groups.back().last = n + 1;
    else
      groups.push_back({n, n + 1});
  }
  return groups;
}

/// The number of queries whose scores fit the cache, rounded so that all passes have about the same size.
int32_t rows_per_pass(const AttentionHead& head) {
  int64_t each = int64_t{head.keys} + head.size + head.value_size + 48;
  int64_t most = std::max<int64_t>(14, kCachedFloats / each / 14 * 14), strips = (head.queries + most - 1) / most;
  return int32_t(std::max<int64_t>(1, (head.queries + strips - 1) / strips));
}

/// `operands` are the buffers of query, key, value, mask, lengths and terms. A layer may have a sink after them.
void add_attention(const Node& node, Builder& builder, Fused fused, std::vector<Buffer> operands, int lengths,
                   bool has_sink = false) {
  auto state = std::make_shared<State>();
  state->sink = has_sink ? operands.size() - 1 : 0;
  AttentionHead& head = fused.head;
  head.rows = rows_per_pass(head);
  int64_t zeros = blocks_of(std::max(head.keys, head.value_size)) * 16;
  state->zeros = static_cast<const float*>(builder.pack(uint64_t(zeros) * 4, [](void*) {}));
  state->kernels = &attention_kernels_for(builder.settings.isa);
  state->long_lengths = lengths >= 0 && builder.graph[lengths].dtype == IPR_DTYPE_INT64;
  int64_t heads = int64_t(fused.places.size());
  Step step;
  step.operations = 2.0 * double(heads) * head.queries * head.keys * (double(head.size) + head.value_size);
  double bytes = 4.0 * double(heads) * head.keys * (double(head.size) + head.value_size);
  step.max_parts = parts_for(builder.settings,
                             std::max(step.operations / cost::kOperationsPerNs, bytes / cost::kStreamedBytesPerNs));
  int64_t even = heads >= 6 * step.max_parts ? 1 : step.max_parts / std::gcd(heads, int64_t{step.max_parts});
  state->chunks = std::clamp<int64_t>(even, 1, std::max(1, head.queries));
  step.name = "attention " + node.name;
  const bool few = head.queries <= kFewQueries && takes_few(head);
  if (few) state->groups = groups_of(fused, step.max_parts);
  step.fn = few ? run_few_queries : run_attention;
  step.in = std::move(operands);
  for (int tensor : node.type == "Attention" ? std::vector<int>{node.outputs[0]} : node.outputs)
    step.out.push_back(builder.buffer(tensor));
  state->streams = node.outputs.size() > 1 && builder.graph.out(node, 1).bytes() > kStreamedBytes / 2;
  step.scratch_per_part = uint64_t(few ? scratch_of_few(head, kFewQueries) : scratch_of(head)) * 4;
  state->fused = std::move(fused);
  step.state = state;
  builder.add(std::move(step));
}

// ---- The layer ------------------------------------------------------------------------------------------------------

/// Strides in elements from one sequence, head and row to the next.
struct Strides {
  int64_t batch, head, row;
};

/// A tensor (B, heads, length, size), or (B, length, heads * size).
struct Heads {
  Heads(const Tensor& tensor, int64_t num_heads) : flat(tensor.rank() == 3) {
    batch = tensor.extent(0);
    heads = flat ? num_heads : tensor.extent(1);
    length = tensor.extent(-2);
    size = flat ? tensor.extent(2) / std::max<int64_t>(num_heads, 1) : tensor.extent(3);
  }
  /// Strides from one sequence, head and row to the next.
  Strides strides() const {
    if (flat) return {length * heads * size, size, heads * size};
    return {heads * length * size, length * size, size};
  }
  bool flat;
  int64_t batch, heads, length, size;
};

Refusal support_attention(const Graph& graph, const Node& node, const Settings&) {
  if (node.text("scores", "NONE") != "NONE")
    return refused("the output of scores is not supported", IPR_REASON_ATTRIBUTE);
  std::string_view precision = node.text("softmax_precision");
  if (!precision.empty() && precision != "FLOAT32")
    return refused("computes the softmax in float32", IPR_REASON_ATTRIBUTE);
  if (!node.posts.empty()) return refused("takes no post-ops");
  for (size_t n : {0, 1, 2, 4, 5, 7})
    if (graph.in(node, n) && !is_f32(*graph.in(node, n)))
      return refused("operand " + std::to_string(n) + " is " + described(*graph.in(node, n)) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  const Tensor* mask = graph.in(node, 3);
  if (mask && !is_f32(*mask) && mask->dtype != IPR_DTYPE_BOOL)
    return refused("the mask is " + described(*mask) + "; takes float32 and bool", IPR_REASON_DATA_TYPE);
  for (size_t n : {0, 1, 2})
    for (int64_t extent : graph.in(node, n)->shape)
      if (extent > kMax) return refused("matrices of this size", IPR_REASON_RESOURCE);
  return taken();
}

/// Concatenate keys or values with those of the past. Return the operand itself if there is no past and no output for
/// it.
Buffer with_past(const Node& node, Builder& builder, size_t operand, size_t past, size_t result, const Heads& now,
                 Strides* strides) {
  const Graph& graph = builder.graph;
  const Tensor* before = graph.in(node, past);
  int present = node.outputs.size() > result ? node.outputs[result] : -1;
  Buffer in = builder.buffer(node.inputs[operand]);
  const Strides new_strides = *strides = now.strides();
  if (!before && present < 0) return in;
  int64_t old = before ? before->extent(2) : 0, all = old + now.length;
  Buffer joined = present >= 0 ? builder.buffer(present)
                               : builder.temporary(uint64_t(now.batch * now.heads * all * now.size) * sizeof(float));
  *strides = {now.heads * all * now.size, all * now.size, now.size};
  auto copy = [&](Buffer from, const Strides& of, int64_t length, int64_t at) {
    Axes axes = {{now.batch, of.batch, strides->batch},
                 {now.heads, of.head, strides->head},
                 {length, of.row, strides->row},
                 {now.size, 1, 1}};
    builder.add(copy_step(builder, "keep " + node.name, from, joined, axes, sizeof(float), 0, at * now.size));
  };
  if (before && old > 0)
    copy(builder.buffer(node.inputs[past]), {now.heads * old * now.size, old * now.size, now.size}, old, 0);
  if (now.length > 0) copy(in, new_strides, now.length, old);
  return joined;
}

/// The mask of the layer, whose strides are 0 for dimensions of one. Return the strides of sequences and heads.
Strides set_mask(AttentionHead& head, const Tensor* mask) {
  int64_t steps[4] = {};
  if (mask == nullptr) return {};
  Shape own = steps_of(mask->shape);
  const int ahead = 4 - mask->rank();
  for (int n = 0; n < mask->rank(); ++n) steps[ahead + n] = mask->extent(n) == 1 ? 0 : own[size_t(n)];
  head.mask_row = steps[2], head.mask_key = steps[3];
  head.mask_is_bool = mask->dtype == IPR_DTYPE_BOOL;
  head.mask_keys = mask->rank() == 0 ? head.keys : int32_t(mask->shape.back());
  return {steps[0], steps[1], 0};
}

void lower_attention(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  Heads query(*graph.in(node, 0), node.integer("q_num_heads")), key(*graph.in(node, 1), node.integer("kv_num_heads"));
  Heads value(*graph.in(node, 2), node.integer("kv_num_heads"));
  Fused f;
  Strides of_query = query.strides(), of_key, of_value;
  Buffer keys = with_past(node, builder, 1, 4, 1, key, &of_key),
         values = with_past(node, builder, 2, 5, 2, value, &of_value);
  Heads out = query;
  out.size = value.size;
  const Strides of_out = out.strides();
  if (const Tensor* before = graph.in(node, 4)) f.past = before->extent(2);
  if (graph.out(node).elements() == 0) return;
  AttentionHead& head = f.head;
  head.queries = int32_t(query.length), head.keys = int32_t(f.past + key.length);
  head.size = int32_t(query.size), head.value_size = int32_t(value.size);
  head.query_row = of_query.row, head.key_row = of_key.row, head.value_row = of_value.row;
  head.query_element = head.key_element = head.value_element = 1;
  head.out_row = of_out.row;
  head.scale = 1;
  head.query_scale = float(node.has("scale") ? node.number("scale") : 1 / std::sqrt(double(query.size)));
  head.cap = float(node.number("softcap"));
  head.left = std::min(node.integer("left_window_size", -1), kFarthestKey);
  head.right = std::min(node.integer("right_window_size", -1), kFarthestKey);
  if (node.flag("is_causal") && (head.right < 0 || head.right > 0)) head.right = 0;
  head.zero_if_no_key = head.excludes = true;
  const Strides of_mask = set_mask(head, graph.in(node, 3));
  const int64_t shared = std::max<int64_t>(1, query.heads / std::max<int64_t>(1, key.heads));
  f.heads = query.heads;
  for (int64_t b = 0; b < query.batch; ++b)
    for (int64_t h = 0; h < query.heads; ++h)
      f.places.push_back({b * of_query.batch + h * of_query.head,
                          b * of_key.batch + h / shared * of_key.head,
                          b * of_value.batch + h / shared * of_value.head,
                          b * of_mask.batch + h * of_mask.head,
                          b * of_out.batch + h * of_out.head,
                          {},
                          0,
                          0,
                          0,
                          0,
                          false,
                          1});
  auto input = [&](size_t n) { return node.inputs.size() > n ? node.inputs[n] : -1; };
  std::vector<Buffer> operands = {builder.buffer(node.inputs[0]), keys, values, builder.buffer(input(3)),
                                  builder.buffer(input(6))};
  if (input(7) >= 0) operands.push_back(builder.buffer(input(7)));
  add_attention(node, builder, std::move(f), std::move(operands), input(6), input(7) >= 0);
}

// ---- The pattern: softmax(scale * query key^T, with terms) value ----------------------------------------------------

bool is_product(const Node* node) {
  return node && node->type == "BatchMatMul" && node->posts.empty() && !node->flag("adjoint_x") &&
         !node->flag("adjoint_y");
}

/// A term of the scores in a network, with the shape of the scores that it changes.
struct Term {
  int tensor;
  ScoreTerm how;
  Shape scores;
};

/// What is done to the scores, from the softmax to the product.
struct Scores {
  std::vector<Term> terms;
  double scale = 1, cap = 0;
  int factors = -1;  // a constant with one factor for each head, which multiplies scores of the shape `of_factors`
  Shape of_factors;

  /// Return whether the next node towards the product may do more than multiply.
  bool are_unscaled() const { return scale == 1 && factors < 0; }
};

const Node* find_product(Graph& graph, int tensor, Scores* scores);

/// Follow one operand of a node that changes the scores by the other operand.
const Node* find_behind_term(Graph& graph, int operand, const Term& term, Scores* scores) {
  if (graph[operand].shape != term.scores || scores->cap != 0 || !scores->are_unscaled()) return nullptr;
  if (scores->terms.size() == size_t(kMaxScoreTerms)) return nullptr;
  const Scores before = *scores;
  scores->terms.push_back(term);
  const Node* product = find_product(graph, operand, scores);
  if (product == nullptr) *scores = before;
  return product;
}

/// Follow an addition to the scores.
const Node* find_behind_addition(Graph& graph, const Node& node, Scores* scores) {
  const Shape shape = graph.out(node).shape;
  for (size_t n : {0, 1}) {
    const int mask = node.inputs[1 - n];
    if (!is_f32(graph[mask]) || mask == node.inputs[n]) continue;
    if (const Node* product = find_behind_term(graph, node.inputs[n], {mask, {}, shape}, scores)) return product;
  }
  return nullptr;
}

/// Follow a selection between the scores and one constant number.
const Node* find_behind_selection(Graph& graph, const Node& node, Scores* scores) {
  for (size_t n : {1, 2}) {
    const Tensor& number = *graph.in(node, 3 - n);
    if (!number.is_constant() || number.elements() != 1 || !is_f32(number)) continue;
    const ScoreTerm how{true, n == 2, *number.values<float>(), 0, 0};
    if (const Node* product =
            find_behind_term(graph, node.inputs[n], {node.inputs[0], how, graph.out(node).shape}, scores))
      return product;
  }
  return nullptr;
}

/// Follow a hyperbolic tangent whose result is multiplied with a constant: a soft cap.
const Node* find_behind_cap(Graph& graph, const Node& node, Scores* scores) {
  const double outer = scores->scale * node.number("a"), inner = node.number("b");
  if (scores->cap != 0 || scores->factors >= 0 || !(outer > 0) || !(inner > 0)) return nullptr;
  const Scores before = *scores;
  scores->cap = outer, scores->scale = outer * inner;
  const Node* product = find_product(graph, node.inputs[0], scores);
  if (product == nullptr) *scores = before;
  return product;
}

/// Return whether a tensor is a constant that multiplies all scores of a head by the same number.
bool is_factor_of_heads(const Graph& graph, int tensor, const Shape& scores) {
  const Tensor& factors = graph[tensor];
  if (!factors.is_constant() || !is_f32(factors) || factors.rank() > int(scores.size())) return false;
  return factors.rank() > 0 && factors.extent(-1) == 1 && (factors.rank() == 1 || factors.extent(-2) == 1);
}

/// Follow a product of the scores with one factor for each head.
const Node* find_behind_factors(Graph& graph, const Node& node, Scores* scores) {
  if (scores->factors >= 0) return nullptr;
  for (size_t n : {0, 1}) {
    const Shape shape = graph.out(node).shape;
    if (graph.in(node, n)->shape != shape || !is_factor_of_heads(graph, node.inputs[1 - n], shape)) continue;
    const Scores before = *scores;
    scores->factors = node.inputs[1 - n], scores->of_factors = shape;
    if (const Node* product = find_product(graph, node.inputs[n], scores)) return product;
    *scores = before;
  }
  return nullptr;
}

/// Return whether a reshape leaves matrices, the last two dimensions, as they are.
bool keeps_matrices(const Graph& graph, const Node& node) {
  const Shape &from = graph.in(node, 0)->shape, &to = graph.out(node).shape;
  return from.size() > 1 && to.size() > 1 && std::equal(from.end() - 2, from.end(), to.end() - 2);
}

/// Find the product of query and key from which a tensor of scores is computed; nullptr if there is none.
const Node* find_product(Graph& graph, int tensor, Scores* scores) {
  const Node* producer = private_producer(graph, tensor);
  if (producer == nullptr || !is_f32(graph[tensor])) return nullptr;
  const Node& node = *producer;
  if (is_product(producer)) return producer;
  if (is_operation(node, "Addition", "ADD")) return find_behind_addition(graph, node, scores);
  if (node.type == "Where") return find_behind_selection(graph, node, scores);
  if (node.type == "Activation" && node.text("function") == "TANH") return find_behind_cap(graph, node, scores);
  if (node.type == "Reshape")
    return keeps_matrices(graph, node) ? find_product(graph, node.inputs[0], scores) : nullptr;
  int other = -1;
  const double factor = factor_of(graph, node, &other);
  if (factor == 0)
    return is_operation(node, "Multiplication", "MUL") ? find_behind_factors(graph, node, scores) : nullptr;
  const Scores before = *scores;
  scores->scale *= factor;
  const Node* product = find_product(graph, other, scores);
  if (product == nullptr) *scores = before;
  return product;
}

/// Follow probabilities to the softmax that computes them, also through a reshape of the heads and a selection of 0 for
/// those that are NaN.
const Node* find_softmax(Graph& graph, int tensor, bool* zero_if_nan) {
  const Node* node = private_producer(graph, tensor);
  if (node && node->type == "Reshape" && node->posts.empty() && keeps_matrices(graph, *node))
    node = private_producer(graph, node->inputs[0]);
  if (node && node->type == "Where") {
    const Node& choice = *node;
    const Tensor& zero = *graph.in(choice, 1);
    const Node* test = private_producer(graph, choice.inputs[0]);
    const int probabilities = choice.inputs[2];
    const bool is_test = test && test->type == "ElementwiseUnary" && test->text("operation") == "IS_NAN" &&
                         test->inputs[0] == probabilities;
    if (!is_test || !zero.is_constant() || zero.elements() != 1 || !is_f32(zero) || *zero.values<float>() != 0)
      return nullptr;
    if (graph[probabilities].producer < 0 || graph.is_border(probabilities)) return nullptr;
    if (graph.users(probabilities).size() != 2 || graph.out(choice).shape != graph[probabilities].shape) return nullptr;
    *zero_if_nan = true;
    node = &graph.nodes[size_t(graph[probabilities].producer)];
    if (!node->posts.empty()) return nullptr;
  }
  if (!node || node->type != "Softmax" || node->number("beta", 1) != 1) return nullptr;
  const int rank = graph.out(*node).rank();
  return rank >= 2 && axis_of(node->integer("axis", -1), rank) == rank - 1 ? node : nullptr;
}

/// The two last dimensions of a view, which have to have one stride each.
struct MatrixView {
  StridedView view;
  int64_t row = 0, element = 0;

  bool set(StridedView of) {
    view = std::move(of);
    const size_t rank = view.dimensions.size();
    return rank >= 2 && view.stride(rank - 2, &row) && view.stride(rank - 1, &element);
  }
};

/// View an operand of a product where it lies. `turned`: its last two dimensions are exchanged in the product.
bool view_operand(const Graph& graph, int tensor, bool turned, double* scale, MatrixView* matrix) {
  if (graph[tensor].rank() < 2 || !is_f32(graph[tensor])) return false;
  double product = 1;
  if (matrix->set(view_of(graph, tensor, scale ? &product : nullptr)))
    scale ? void(*scale *= product) : void();
  else if (!matrix->set(plain_view(graph, tensor)))
    return false;
  if (turned) {
    std::swap(matrix->row, matrix->element);
    std::swap(*(matrix->view.dimensions.end() - 2), *(matrix->view.dimensions.end() - 1));
  }
  return true;
}

/// The view of the result of a product in the memory of a tensor that the following transpositions and reshapes compute
/// from it. `chain` receives these nodes.
bool view_result(Graph& graph, const Node& last, MatrixView* matrix, std::vector<int>* chain) {
  int tensor = last.outputs[0];
  std::vector<int> followed;
  const Shape shape = graph[tensor].shape;
  matrix->set(plain_view(graph, tensor));
  for (int at = tensor; !graph.is_border(at);) {
    std::vector<int> users = graph.users(at);
    if (users.size() != 1) break;
    const Node& next = graph.nodes[size_t(users[0])];
    if ((next.type != "Transpose" && next.type != "Reshape") || !next.posts.empty()) break;
    followed.push_back(users[0]);
    at = next.outputs[0];
    if (next.type == "Reshape") continue;
    StridedView from = view_of(graph, at);
    if (from.tensor != tensor) break;
    // Each factor of `from` has a stride in the result, and one in the memory of `at`.
    std::vector<std::pair<int64_t, Factor>> factors;
    int64_t step = graph[at].elements();
    for (const Dimension& dimension : from.dimensions)
      for (const Factor& factor : dimension)
        step /= factor.extent, factors.push_back({factor.step, {factor.extent, step}});
    std::stable_sort(factors.begin(), factors.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    StridedView to;
    to.tensor = at;
    to.dimensions.emplace_back();
    for (const auto& factor : factors)
      if (factor.second.extent != 1) to.dimensions[0].push_back(factor.second);
    MatrixView result;
    if (!reshape(to, shape) || !result.set(std::move(to)) || (shape.back() != 1 && result.element != 1)) continue;
    *matrix = result;
    *chain = followed;
  }
  return true;
}

bool within_limits(const Graph& graph, std::initializer_list<int> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](int tensor) {
    const Shape& shape = graph[tensor].shape;
    return graph[tensor].elements() > 0 && std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n <= kMax; });
  });
}

/// Add dimensions of one element in front.
void extend(StridedView& view, size_t rank) {
  if (view.dimensions.size() < rank) view.dimensions.insert(view.dimensions.begin(), rank - view.dimensions.size(), {});
}

/// Set the parameters of the terms, and the offsets of each head in them.
bool set_terms(const Graph& graph, const Scores& scores, Fused* fused, std::vector<int>* tensors) {
  AttentionHead& head = fused->head;
  for (auto term = scores.terms.rbegin(); term != scores.terms.rend(); ++term) {
    MatrixView view;
    StridedView all = view_of(graph, term->tensor);
    const size_t rank = term->scores.size();
    extend(all, rank);
    if (!view.set(all)) {
      all = plain_view(graph, term->tensor);
      extend(all, rank);
      if (!view.set(std::move(all))) return false;
    }
    const Shape batch(term->scores.begin(), term->scores.end() - 2);
    const std::vector<int64_t> offsets = view.view.offsets(batch, 2);
    if (offsets.size() != fused->places.size()) return false;
    const int number = head.terms++;
    head.term[number] = term->how;
    head.term[number].row = view.row, head.term[number].key = view.element;
    for (size_t n = 0; n < offsets.size(); ++n) fused->places[n].term[number] = offsets[n];
    tensors->push_back(view.view.tensor);
  }
  return true;
}

/// Set the factors of the scores of each head.
bool set_factors(const Graph& graph, const Scores& scores, Fused* fused) {
  if (scores.factors < 0) return true;
  StridedView view = plain_view(graph, scores.factors);
  extend(view, scores.of_factors.size());
  const std::vector<int64_t> offsets = view.offsets(Shape(scores.of_factors.begin(), scores.of_factors.end() - 2), 2);
  if (offsets.size() != fused->places.size()) return false;
  const UnalignedFloats values = graph[scores.factors].floats();
  for (size_t n = 0; n < offsets.size(); ++n) {
    const float factor = fused->places[n].factor = values[offsets[n]];
    if (!(std::fabs(factor) > 1e-15f && std::fabs(factor) < 1e15f)) return false;  // queries are multiplied by it
  }
  return true;
}

/// Return whether only these nodes read a tensor, also through nodes that move or scale its elements, whose results are
/// added to `moved`.
bool is_read_only_by(const Graph& graph, int tensor, const Node* first, const Node* last, std::vector<int>* moved) {
  moved->push_back(tensor);
  for (int user : graph.users(tensor)) {
    const Node& node = graph.nodes[size_t(user)];
    if (&node == first || &node == last) continue;
    int other = -1;
    const bool moves = node.type == "Reshape" || node.type == "Transpose" || node.type == "BroadcastTo" ||
                       node.type == "Tile" || factor_of(graph, node, &other) != 0;
    if (!moves || !is_read_only_by(graph, node.outputs[0], first, last, moved)) return false;
  }
  return true;
}

/// Keys or values that are concatenated from those of the past and new ones: (..., past + new rows, size).
struct Cache {
  int node = -1, past = -1, present = -1;
  int64_t past_rows = 0, size = 0;
  MatrixView fresh;
  std::vector<int64_t> offsets;  // of the new rows of each head
  std::vector<int> moved;        // the present tensor, and tensors with its elements

  bool find(const Graph& graph, const MatrixView& rows, const Node* first, const Node* last) {
    present = rows.view.tensor;
    node = graph[present].producer;
    if (node < 0 || !graph.is_border(present)) return false;
    const Node& concat = graph.nodes[size_t(node)];
    const Tensor& whole = graph[present];
    if (concat.type != "Concat" || concat.inputs.size() != 2 || !concat.posts.empty() || whole.rank() < 2) return false;
    if (axis_of(concat.integer("axis"), whole.rank()) != whole.rank() - 2) return false;
    past = concat.inputs[0], size = whole.extent(-1), past_rows = graph[past].extent(-2);
    if (rows.row != size || rows.element != 1 || past_rows == 0 || past_rows == whole.extent(-2)) return false;
    if (!is_read_only_by(graph, present, first, last, &moved)) return false;
    if (!fresh.set(view_of(graph, concat.inputs[1])) || fresh.element != 1) return false;
    offsets = fresh.view.offsets(Shape(whole.shape.begin(), whole.shape.end() - 2), 2);
    return true;
  }
};

/// Return whether an operand of a node has elements of the present tensors, which the node itself is to compute.
bool reads_itself(const Node& node, const Cache& keys, const Cache& values) {
  auto is_among = [](const std::vector<int>& moved, int tensor) {
    return std::find(moved.begin(), moved.end(), tensor) != moved.end();
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](int tensor) { return is_among(keys.moved, tensor) || is_among(values.moved, tensor); });
}

/// Let attention with few queries read past and new keys and values where they are, and write the present ones. They
/// are read once for both.
bool use_caches(Graph& graph, const Cache& keys, const Cache& values, Fused* fused) {
  AttentionHead& head = fused->head;
  if (keys.offsets.size() != values.offsets.size() || keys.present == values.present ||
      keys.past_rows != values.past_rows || keys.past_rows >= head.keys)
    return false;
  if (graph[keys.present].extent(-2) != head.keys || graph[values.present].extent(-2) != head.keys) return false;
  const int64_t of_key = head.keys * keys.size, of_value = head.keys * values.size;
  for (const Place& place : fused->places)
    if (place.key % of_key != 0 || place.value % of_value != 0 || place.key / of_key != place.value / of_value)
      return false;
  std::vector<char> seen(keys.offsets.size(), 0);
  for (Place& place : fused->places) {
    const size_t cache = size_t(place.key / of_key);
    place.present_key = place.key, place.present_value = place.value;
    place.past_key = int64_t(cache) * keys.past_rows * keys.size;
    place.past_value = int64_t(cache) * values.past_rows * values.size;
    place.key = keys.offsets[cache], place.value = values.offsets[cache];
    place.keeps_cache = !seen[cache];
    seen[cache] = 1;
  }
  if (std::find(seen.begin(), seen.end(), 0) != seen.end()) return false;
  head.past = int32_t(keys.past_rows);
  head.key_row = keys.fresh.row, head.key_element = keys.fresh.element;
  head.value_row = values.fresh.row, head.value_element = values.fresh.element;
  graph.nodes.remove(graph.nodes[size_t(keys.node)]);
  graph.nodes.remove(graph.nodes[size_t(values.node)]);
  return true;
}

bool fuse_attention(Graph& graph, const Node& last) {
  if (!is_product(&last) || last.flag("transpose_x") || !is_f32(graph.out(last))) return false;
  const Node& product = last;
  auto fused = std::make_shared<Fused>();
  AttentionHead& head = fused->head;
  const Node* softmax = find_softmax(graph, product.inputs[0], &head.zero_if_nan);
  if (!softmax || graph.out(last).rank() != graph[product.inputs[0]].rank()) return false;
  Scores scores;
  const Node* first = find_product(graph, softmax->inputs[0], &scores);
  if (!first || !within_limits(graph, {first->inputs[0], first->inputs[1], product.inputs[1], product.outputs[0]}))
    return false;
  const Shape shape = graph[product.inputs[0]].shape, inner = graph.out(*first).shape, result = graph.out(last).shape;
  if (!std::equal(shape.end() - 2, shape.end(), inner.end() - 2)) return false;
  const Shape batch(shape.begin(), shape.end() - 2), inner_batch(inner.begin(), inner.end() - 2);
  if (!std::equal(batch.begin(), batch.end(), result.begin())) return false;
  MatrixView query, key, value, out;
  std::vector<int> chain, terms;
  double query_scale = 1;
  if (!view_operand(graph, first->inputs[0], first->flag("transpose_x"), &query_scale, &query) ||
      !view_operand(graph, first->inputs[1], !first->flag("transpose_y"), &query_scale, &key) ||
      !view_operand(graph, product.inputs[1], product.flag("transpose_y"), nullptr, &value))
    return false;
  view_result(graph, last, &out, &chain);
  std::vector<int64_t> at[4] = {query.view.offsets(inner_batch, 2), key.view.offsets(inner_batch, 2),
                                value.view.offsets(batch, 2), out.view.offsets(batch, 2)};
  const size_t heads = at[3].size();
  if (int64_t(heads) > kMaxHeads || at[0].size() != heads || at[1].size() != heads || at[2].size() != heads)
    return false;
  for (size_t n = 0; n < heads; ++n)
    fused->places.push_back({at[0][n], at[1][n], at[2][n], 0, at[3][n], {}, 0, 0, 0, 0, false, 1});
  fused->heads = int64_t(heads);
  if (!set_factors(graph, scores, fused.get()) || !set_terms(graph, scores, fused.get(), &terms)) return false;
  const Tensor& of_query = graph[first->inputs[0]];
  head.queries = int32_t(shape[shape.size() - 2]), head.keys = int32_t(shape.back());
  head.size = int32_t(of_query.extent(first->flag("transpose_x") ? -2 : -1)), head.value_size = int32_t(result.back());
  head.query_row = query.row, head.query_element = query.element;
  head.key_row = key.row, head.key_element = key.element;
  head.value_row = value.row, head.value_element = value.element;
  head.out_row = out.row;
  head.query_scale = float(query_scale), head.scale = float(scores.scale), head.cap = float(scores.cap);
  head.left = head.right = -1;
  Node node;
  node.type = "acc.Attention";
  node.name = last.name;
  node.layer = last.layer;
  node.inputs = {query.view.tensor, key.view.tensor, value.view.tensor};
  node.outputs = {out.view.tensor};
  for (int tensor : terms) node.inputs.push_back(tensor);
  Cache keys, values;
  const bool has_cache =
      head.queries <= kFewQueries && keys.find(graph, key, first, &last) && values.find(graph, value, first, &last);
  Fused with_cache = *fused;
  Node cached = node;
  if (has_cache) {
    cached.inputs[1] = keys.fresh.view.tensor, cached.inputs[2] = values.fresh.view.tensor;
    for (int tensor : {keys.past, values.past}) cached.inputs.push_back(tensor);
    for (int tensor : {keys.present, values.present}) cached.outputs.push_back(tensor);
  }
  if (has_cache && !reads_itself(cached, keys, values) && use_caches(graph, keys, values, &with_cache)) {
    *fused = std::move(with_cache);
    node = std::move(cached);
  }
  node.extra = fused;
  for (int n : chain) graph.nodes.remove(graph.nodes[size_t(n)]);
  graph.nodes.replace(last, std::move(node));
  return true;
}

bool fuse_attentions(Graph& graph, const Settings&) {
  bool changed = false;
  for (const Node& node : graph.nodes) changed = fuse_attention(graph, node) || changed;
  return changed;
}

void lower_fused(const Node& node, Builder& builder) {
  std::vector<Buffer> operands;
  for (size_t n = 0; n < 3; ++n) operands.push_back(builder.buffer(node.inputs[n]));
  operands.resize(kFirstTerm);
  for (size_t n = 3; n < node.inputs.size(); ++n) operands.push_back(builder.buffer(node.inputs[n]));
  add_attention(node, builder, *static_cast<const Fused*>(node.extra.get()), std::move(operands), -1);
}

}  // namespace

Family attention_family() {
  return {{{"Attention", "f32", support_attention, lower_attention, nullptr},
           {"acc.Attention", "f32", without_posts, lower_fused, nullptr}},
          {{"attention", fuse_attentions}}};
}

}  // namespace cpuacc
