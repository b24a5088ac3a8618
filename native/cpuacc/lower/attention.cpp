// Attention of float32: the layer, and the pattern of products, softmax and transpositions by which networks express
// it.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpuacc/kernels/attention_f32.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"
#include "cpuacc/patterns.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kCachedFloats = 20 * 1024;  // floats of the rows of scores that are processed at once; they share a
                                              // second-level cache with key and value
constexpr int64_t kMax = 1 << 24;             // largest dimension
constexpr int64_t kFarthestKey = int64_t{1} << 32;  // limit of windows and of numbers of keys, beyond all dimensions

/// A tensor as (batch, heads, rows, elements): strides in elements, 0 for dimensions that are broadcast.
struct View {
  int tensor = -1;
  int64_t steps[4] = {};
};

/// The parameters of "acc.Attention". Its operands are query, key, value and mask, and for the layer the valid lengths.
struct Fused {
  int64_t batch, heads;
  AttentionHead head{};
  View query, key, value, mask, out;
  int64_t past = 0;
  int64_t shared = 1;  // heads of the query for each head of key and value
};

struct State {
  const AttentionKernels* kernels;
  Fused fused;
  const float* zeros;
  int64_t chunks;     // pieces into which the queries of a head are divided
  bool long_lengths;  // lengths are int64
};

int64_t place(const View& view, int64_t batch, int64_t head) { return batch * view.steps[0] + head * view.steps[1]; }

int64_t valid_keys(const State& state, const Step& step, const Run& run, int64_t batch) {
  if (!step.in[4]) return state.fused.head.keys;
  int64_t given = state.long_lengths ? run.at<int64_t>(step.in[4])[batch] : run.at<int32_t>(step.in[4])[batch];
  return std::clamp(given, -kFarthestKey, kFarthestKey);
}

void run_attention(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Fused& f = state.fused;
  const uint64_t mask_item = f.head.mask_is_bool ? 1 : sizeof(float);
  Range range = split(f.batch * f.heads * state.chunks, part, parts);
  const float *last_key = nullptr, *last_value = nullptr;
  for (int64_t n = range.first; n < range.last; ++n) {
    int64_t batch = n / state.chunks / f.heads, head = n / state.chunks % f.heads, chunk = n % state.chunks;
    AttentionOperands one{run.at<float>(step.in[0]) + place(f.query, batch, head),
                          run.at<float>(step.in[1]) + place(f.key, batch, head / f.shared),
                          run.at<float>(step.in[2]) + place(f.value, batch, head / f.shared),
                          nullptr,
                          state.zeros,
                          f.past,
                          0};
    if (step.in[3]) one.mask = run.at<char>(step.in[3]) + uint64_t(place(f.mask, batch, head)) * mask_item;
    int64_t valid = valid_keys(state, step, run, batch);
    if (step.in[4]) one.position = valid - f.head.queries;
    one.valid = std::min<int64_t>(valid, f.head.keys);
    Range rows = split(f.head.queries, int(chunk), int(state.chunks));
    bool same = one.key == last_key && one.value == last_value;
    last_key = one.key, last_value = one.value;
    state.kernels->attend(f.head, one, run.at<float>(step.out[0]) + place(f.out, batch, head),
                          run.part_scratch<float>(part), int(rows.first), int(rows.last), same);
  }
}

/// The number of queries whose scores fit the cache, rounded so that all passes have about the same size.
int32_t rows_per_pass(const AttentionHead& head) {
  int64_t each = int64_t{head.keys} + head.size + head.value_size + 48;
  int64_t most = std::max<int64_t>(14, kCachedFloats / each / 14 * 14), strips = (head.queries + most - 1) / most;
  return int32_t(std::max<int64_t>(1, (head.queries + strips - 1) / strips));
}

void add_attention(const Node& node, Builder& builder, Fused fused, Buffer key, Buffer value, int lengths) {
  auto state = std::make_shared<State>();
  AttentionHead& head = fused.head;
  head.rows = rows_per_pass(head);
  int64_t zeros = blocks_of(std::max(head.keys, head.value_size)) * 16;
  state->zeros = static_cast<const float*>(builder.pack(uint64_t(zeros) * 4, [](void*) {}));
  state->kernels = &attention_kernels_for(builder.settings.isa);
  state->long_lengths = lengths >= 0 && builder.graph[lengths].dtype == IPR_DTYPE_INT64;
  int64_t heads = fused.batch * fused.heads;
  Step step;
  step.operations = 2.0 * double(heads) * head.queries * head.keys * (double(head.size) + head.value_size);
  step.max_parts = parts_for(builder.settings, step.operations / cost::kOperationsPerNs);
  int64_t even = heads >= 6 * step.max_parts ? 1 : step.max_parts / std::gcd(heads, int64_t{step.max_parts});
  state->chunks = std::clamp<int64_t>(even, 1, std::max(1, head.queries));
  step.name = "attention " + node.name;
  step.fn = run_attention;
  step.in = {builder.buffer(fused.query.tensor), key, value, builder.buffer(fused.mask.tensor),
             builder.buffer(lengths)};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(scratch_of(head)) * 4;
  state->fused = fused;
  step.state = state;
  builder.add(std::move(step));
}

void compact(View& view, std::initializer_list<int64_t> extents) {
  const int64_t* shape = extents.begin();
  int64_t step = 1;
  for (int n = 3; n >= 0; --n) view.steps[n] = step, step *= shape[n];
}

/// The strides of a mask that broadcasts: 0 for dimensions of one.
View mask_view(const Graph& graph, int tensor) {
  View view;
  view.tensor = tensor;
  if (tensor < 0) return view;
  Shape steps = steps_of(graph[tensor].shape);
  int ahead = 4 - graph[tensor].rank();
  for (int n = 0; n < graph[tensor].rank(); ++n)
    view.steps[ahead + n] = graph[tensor].extent(n) == 1 ? 0 : steps[size_t(n)];
  return view;
}

void set_mask(Fused& fused, const Graph& graph) {
  if (fused.mask.tensor < 0) return;
  const Tensor& mask = graph[fused.mask.tensor];
  fused.head.mask_row = fused.mask.steps[2];
  fused.head.mask_key = fused.mask.steps[3];
  fused.head.mask_is_bool = mask.dtype == IPR_DTYPE_BOOL;
  fused.head.mask_keys = mask.rank() == 0 ? fused.head.keys : int32_t(mask.shape.back());
}

// ---- The layer ------------------------------------------------------------------------------------------------------

/// A tensor (B, heads, length, size), or (B, length, heads * size).
struct Heads {
  Heads(const Tensor& tensor, int64_t given) : flat(tensor.rank() == 3) {
    batch = tensor.extent(0);
    heads = flat ? given : tensor.extent(1);
    length = tensor.extent(-2);
    size = flat ? tensor.extent(2) / std::max<int64_t>(given, 1) : tensor.extent(3);
  }
  View view(int tensor) const {
    if (flat) return {tensor, {length * heads * size, size, heads * size, 1}};
    return {tensor, {heads * length * size, length * size, size, 1}};
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
  for (size_t n : {0, 1, 2, 4, 5})
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
                 View* view) {
  const Graph& graph = builder.graph;
  const Tensor* before = graph.in(node, past);
  int present = node.outputs.size() > result ? node.outputs[result] : -1;
  Buffer in = builder.buffer(node.inputs[operand]);
  *view = now.view(node.inputs[operand]);
  if (!before && present < 0) return in;
  int64_t old = before ? before->extent(2) : 0, all = old + now.length;
  Buffer joined = present >= 0 ? builder.buffer(present)
                               : builder.temporary(uint64_t(now.batch * now.heads * all * now.size) * sizeof(float));
  View to;
  compact(to, {now.batch, now.heads, all, now.size});
  auto copy = [&](Buffer from, const View& of, int64_t length, int64_t at) {
    Axes axes = {{now.batch, of.steps[0], to.steps[0]},
                 {now.heads, of.steps[1], to.steps[1]},
                 {length, of.steps[2], to.steps[2]},
                 {now.size, 1, 1}};
    builder.add(copy_step(builder, "keep " + node.name, from, joined, axes, sizeof(float), 0, at * now.size));
  };
  if (before && old > 0) {
    View of;
    compact(of, {now.batch, now.heads, old, now.size});
    copy(builder.buffer(node.inputs[past]), of, old, 0);
  }
  if (now.length > 0) copy(in, *view, now.length, old);
  std::copy(std::begin(to.steps), std::end(to.steps), view->steps);
  return joined;
}

void lower_attention(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  Heads query(*graph.in(node, 0), node.integer("q_num_heads")), key(*graph.in(node, 1), node.integer("kv_num_heads"));
  Heads value(*graph.in(node, 2), node.integer("kv_num_heads"));
  Fused f{};
  f.batch = query.batch, f.heads = query.heads;
  f.query = query.view(node.inputs[0]);
  Buffer keys = with_past(node, builder, 1, 4, 1, key, &f.key),
         values = with_past(node, builder, 2, 5, 2, value, &f.value);
  Heads out = query;
  out.size = value.size;
  f.out = out.view(node.outputs[0]);
  if (const Tensor* before = graph.in(node, 4)) f.past = before->extent(2);
  if (graph.out(node).elements() == 0) return;
  AttentionHead& head = f.head;
  head.queries = int32_t(query.length), head.keys = int32_t(f.past + key.length);
  head.size = int32_t(query.size), head.value_size = int32_t(value.size);
  head.query_row = f.query.steps[2], head.key_row = f.key.steps[2], head.value_row = f.value.steps[2];
  head.query_element = head.key_element = head.value_element = 1;
  head.out_row = f.out.steps[2];
  head.scale = 1;
  head.query_scale = float(node.has("scale") ? node.number("scale") : 1 / std::sqrt(double(query.size)));
  head.cap = float(node.number("softcap"));
  head.left = std::min(node.integer("left_window_size", -1), kFarthestKey);
  head.right = std::min(node.integer("right_window_size", -1), kFarthestKey);
  if (node.flag("is_causal") && (head.right < 0 || head.right > 0)) head.right = 0;
  head.zero_if_no_key = head.excludes = true;
  f.mask = mask_view(graph, node.inputs.size() > 3 ? node.inputs[3] : -1);
  set_mask(f, graph);
  f.shared = std::max<int64_t>(1, query.heads / std::max<int64_t>(1, key.heads));
  add_attention(node, builder, f, keys, values, node.inputs.size() > 6 ? node.inputs[6] : -1);
}

// ---- The pattern: softmax(scale * query key^T + mask) value ---------------------------------------------------------

/// Return whether float32 can hold the reciprocal of a factor of the scores and its products with other factors.
bool is_moderate(double factor) { return std::fabs(factor) > 1e-15 && std::fabs(factor) < 1e15; }

/// The constant by which a node multiplies its other operand; 0 if the node is something else.
double factor_of(const Graph& graph, const Node& node, int* other) {
  const bool divides = is_operation(node, "Division", "DIV");
  if (!divides && !is_operation(node, "Multiplication", "MUL")) return 0;
  for (size_t n : {1, 0}) {
    const Tensor& number = graph[node.inputs[n]];
    *other = node.inputs[1 - n];
    if (!number.is_constant() || !is_f32(number) || number.elements() != 1 || (divides && n == 0)) continue;
    if (graph[*other].shape != graph.out(node).shape) continue;
    double value = double(*number.values<float>());
    return !is_moderate(value) ? 0 : divides ? 1 / value : value;
  }
  return 0;
}

/// Describe an operand of a product by the tensor before its transposition, and before its multiplication with a
/// constant if `scale` is given. The view has the axes (batch, heads, rows, columns).
bool view_operand(Graph& graph, int tensor, bool turned, View* view, double* scale) {
  const Tensor& operand = graph[tensor];
  if (operand.rank() < 2 || operand.rank() > 4 || !is_f32(operand)) return false;
  Shape steps = steps_of(operand.shape);
  int other = -1;
  Node* from = private_producer(graph, tensor);
  if (double factor = from && scale ? factor_of(graph, *from, &other) : 0) {
    *scale *= factor;
    tensor = other;
  }
  int producer = graph[tensor].producer;
  if (producer >= 0 && graph.nodes[size_t(producer)].type == "Transpose") {
    const Node& node = graph.nodes[size_t(producer)];
    Shape before = steps_of(graph.in(node, 0)->shape);
    const std::vector<int64_t>& order = node.integers("permutation");
    for (size_t n = 0; n < order.size(); ++n) steps[n] = before[size_t(order[n])];
    tensor = node.inputs[0];
  }
  int ahead = 4 - operand.rank();
  for (int n = 0; n < operand.rank(); ++n)
    view->steps[ahead + n] = operand.extent(n) == 1 && n < operand.rank() - 2 ? 0 : steps[size_t(n)];
  if (turned) std::swap(view->steps[2], view->steps[3]);
  view->tensor = tensor;
  return true;
}

bool is_product(const Node* node) {
  return node && node->type == "BatchMatMul" && node->posts.empty() && !node->flag("adjoint_x") &&
         !node->flag("adjoint_y");
}

/// The product of query and key from which a tensor of scores is computed, with its scale and mask; nullptr if none is
/// found.
Node* find_scores(Graph& graph, int tensor, Fused* found, double* scale) {
  const Shape shape = graph[tensor].shape;
  Node* node = private_producer(graph, tensor);
  if (node && is_operation(*node, "Addition", "ADD")) {
    Node* inner = nullptr;
    for (size_t n : {0, 1}) {
      int side = node->inputs[n], mask = node->inputs[1 - n], other = -1;
      Node* from = graph[side].shape == shape ? private_producer(graph, side) : nullptr;
      if (inner || !from || (!is_product(from) && factor_of(graph, *from, &other) == 0)) continue;
      if (!is_f32(graph[mask]) || graph[mask].rank() > 4) continue;
      inner = from;
      found->mask = mask_view(graph, mask);
    }
    node = inner;
  }
  int other = -1;
  if (double factor = node ? factor_of(graph, *node, &other) : 0) {
    *scale *= factor;
    node = private_producer(graph, other);
  }
  return is_product(node) && graph.out(*node).shape == shape ? node : nullptr;
}

/// Let the result be written as a transposition after it would, if there is one.
void view_result(Graph& graph, const Node& last, Fused* found, Node** turn) {
  const Tensor& out = graph.out(last);
  Shape steps = steps_of(out.shape);
  std::vector<int> users = graph.users(last.outputs[0]);
  *turn = users.size() == 1 && !graph.is_border(last.outputs[0]) ? &graph.nodes[size_t(users[0])] : nullptr;
  if (*turn && ((*turn)->type != "Transpose" || (*turn)->integers("permutation").back() != out.rank() - 1))
    *turn = nullptr;
  if (*turn) {
    Shape after = steps_of(graph.out(**turn).shape);
    const std::vector<int64_t>& order = (*turn)->integers("permutation");
    for (size_t n = 0; n < order.size(); ++n) steps[size_t(order[n])] = after[n];
  }
  int ahead = 4 - out.rank();
  for (int n = 0; n < out.rank(); ++n) found->out.steps[ahead + n] = steps[size_t(n)];
}

void set_head(Fused* found, const Shape& scores, int64_t size, int64_t value_size, double query_scale, double scale) {
  AttentionHead& head = found->head;
  int64_t rank = int64_t(scores.size());
  found->batch = rank > 3 ? scores[0] : 1;
  found->heads = rank > 2 ? scores[size_t(rank - 3)] : 1;
  head.queries = int32_t(scores[size_t(rank - 2)]), head.keys = int32_t(scores[size_t(rank - 1)]);
  head.size = int32_t(size), head.value_size = int32_t(value_size);
  head.query_row = found->query.steps[2], head.query_element = found->query.steps[3];
  head.key_row = found->key.steps[3], head.key_element = found->key.steps[2];
  head.value_row = found->value.steps[2], head.value_element = found->value.steps[3];
  head.out_row = found->out.steps[2];
  head.query_scale = float(query_scale);
  head.scale = float(scale);
  head.left = head.right = -1;
}

bool within_limits(const Graph& graph, std::initializer_list<int> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](int tensor) {
    const Shape& shape = graph[tensor].shape;
    return graph[tensor].elements() > 0 && std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n <= kMax; });
  });
}

bool fuse_attention(Graph& graph, Node& last) {
  if (!is_product(&last) || last.flag("transpose_x") || !is_f32(graph.out(last))) return false;
  Node* softmax = private_producer(graph, last.inputs[0]);
  if (!softmax || softmax->type != "Softmax" || softmax->number("beta", 1) != 1) return false;
  const Shape shape = graph.out(*softmax).shape;
  const int rank = int(shape.size());
  if (rank < 2 || rank > 4 || axis_of(softmax->integer("axis", -1), rank) != rank - 1) return false;
  if (graph.out(last).rank() != rank) return false;
  auto found = std::make_shared<Fused>();
  double query_scale = 1, scale = 1;
  Node *scores = find_scores(graph, softmax->inputs[0], found.get(), &scale), *turn = nullptr;
  if (!scores || !within_limits(graph, {scores->inputs[0], scores->inputs[1], last.inputs[1], last.outputs[0]}))
    return false;
  if (!view_operand(graph, scores->inputs[0], scores->flag("transpose_x"), &found->query, &query_scale) ||
      !view_operand(graph, scores->inputs[1], scores->flag("transpose_y"), &found->key, &query_scale) ||
      !view_operand(graph, last.inputs[1], last.flag("transpose_y"), &found->value, nullptr))
    return false;
  const Tensor& query = *graph.in(*scores, 0);
  view_result(graph, last, found.get(), &turn);
  set_head(found.get(), shape, query.extent(scores->flag("transpose_x") ? -2 : -1), graph.out(last).shape.back(),
           query_scale, scale);
  if (found->mask.tensor >= 0) {
    found->head.mask_row = found->mask.steps[2], found->head.mask_key = found->mask.steps[3];
    found->head.mask_keys = found->head.keys;
  }
  Node fused;
  fused.type = "acc.Attention";
  fused.name = last.name;
  fused.layer = last.layer;
  fused.inputs = {found->query.tensor, found->key.tensor, found->value.tensor, found->mask.tensor};
  fused.outputs = turn ? turn->outputs : last.outputs;
  fused.extra = found;
  if (turn) turn->type.clear();
  last = std::move(fused);
  return true;
}

bool fuse_attentions(Graph& graph, const Settings&) {
  bool changed = false;
  for (Node& node : graph.nodes) changed = fuse_attention(graph, node) || changed;
  return changed;
}

Refusal support_fused(const Graph&, const Node& node, const Settings&) {
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_fused(const Node& node, Builder& builder) {
  Fused fused = *static_cast<const Fused*>(node.extra.get());
  fused.query.tensor = node.inputs[0];
  fused.mask.tensor = node.inputs[3];
  add_attention(node, builder, fused, builder.buffer(node.inputs[1]), builder.buffer(node.inputs[2]), -1);
}

}  // namespace

Family attention_family() {
  return {{{"Attention", "f32", support_attention, lower_attention, nullptr},
           {"acc.Attention", "f32", support_fused, lower_fused, nullptr}},
          {{"attention", fuse_attentions}}};
}

}  // namespace cpuacc
