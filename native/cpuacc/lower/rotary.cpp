// Rotary position embedding: the layer, and the products, sums and concatenations by which networks express it.

#include <algorithm>
#include <cstring>

#include "cpuacc/kernels/rotary.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/patterns.hpp"
#include "cpuacc/strided_copy.hpp"
#include "cpuacc/strided_view.hpp"

namespace cpuacc {
namespace {

/// One dimension of the rows, with strides in elements. The result is contiguous.
struct RowAxis {
  int64_t extent, in, cos, sin, out;
};

/// The parameters of "acc.Rotary", whose operands are the tensor, its cosines and its sines.
struct Rotary {
  std::vector<RowAxis> axes;         // outermost first
  int64_t in = 0, cos = 0, sin = 0;  // offsets of the first row
  RotaryRow row{};
  int64_t size = 0;  // elements of a row; those after the pairs are copied
};

struct State {
  const RotaryKernels* kernels;
  Rotary rotary;
  int64_t rows;
  bool has_positions, long_positions;
  int64_t positions;  // rows of the caches

  /// The row of the caches of a position, which is an operand; 0 and an error if it is outside.
  int64_t position(const Step& step, const Run& run, int64_t at) const {
    const int64_t position = long_positions ? run.at<int64_t>(step.in[3])[at] : run.at<int32_t>(step.in[3])[at];
    if (position >= 0 && position < positions) return position;
    run.fail(3, at, position, 0, positions - 1);
    return 0;
  }
};

/// The offsets of one row in all tensors.
struct RowPlace {
  int64_t in, cos, sin, out;
};

RowPlace place_of(const Rotary& rotary, int64_t row) {
  RowPlace place{rotary.in, rotary.cos, rotary.sin, 0};
  for (size_t n = rotary.axes.size(); n-- > 0;) {
    const RowAxis& axis = rotary.axes[n];
    const int64_t index = row % axis.extent;
    row /= axis.extent;
    place.in += index * axis.in, place.cos += index * axis.cos;
    place.sin += index * axis.sin, place.out += index * axis.out;
  }
  return place;
}

void run_rotary(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const Rotary& rotary = state.rotary;
  const float *in = run.at<float>(step.in[0]), *cos = run.at<float>(step.in[1]), *sin = run.at<float>(step.in[2]);
  float* out = run.at<float>(step.out[0]);
  const int64_t rotated = 2 * rotary.row.pairs, pairs = rotary.row.pairs;
  Range range = split(state.rows, part, parts);
  for (int64_t row = range.first; row < range.last; ++row) {
    RowPlace place = place_of(rotary, row);
    if (state.has_positions) place.cos = place.sin = state.position(step, run, place.cos) * pairs;
    state.kernels->rotate(rotary.row, in + place.in, cos + place.cos, sin + place.sin, out + place.out);
    if (rotated < rotary.size)
      std::memcpy(out + place.out + rotated, in + place.in + rotated, size_t(rotary.size - rotated) * sizeof(float));
  }
}

void add_rotary(const Node& node, Builder& builder, Rotary rotary, int positions) {
  const Graph& graph = builder.graph;
  auto state = std::make_shared<State>();
  state->kernels = &rotary_kernels_for(builder.settings.isa);
  state->rows = 1;
  for (const RowAxis& axis : rotary.axes) state->rows *= axis.extent;
  if (rotary.size == 0) state->rows = 0;
  state->has_positions = positions >= 0;
  state->long_positions = positions >= 0 && graph[positions].dtype == IPR_DTYPE_INT64;
  state->positions = positions >= 0 ? graph.in(node, 1)->extent(0) : 0;
  state->rotary = std::move(rotary);
  Step step;
  step.name = "rotary embedding " + node.name;
  step.fn = run_rotary;
  step.max_parts = parts_for(builder.settings, double(state->rows) * double(state->rotary.size) * cost::kActivationNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1]), builder.buffer(node.inputs[2]),
             builder.buffer(positions)};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- The layer ------------------------------------------------------------------------------------------------------

Refusal support_rotary(const Graph& graph, const Node& node, const Settings&) {
  for (size_t n : {0, 1, 2})
    if (!is_f32(*graph.in(node, n)))
      return refused("operand " + std::to_string(n) + " is " + described(*graph.in(node, n)) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_rotary(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& in = *graph.in(node, 0);
  const bool flat = in.rank() == 3;
  const int64_t batch = in.extent(0), heads = flat ? node.integer("num_heads") : in.extent(1), length = in.extent(-2);
  const int64_t size = flat ? in.extent(2) / std::max<int64_t>(heads, 1) : in.extent(3);
  const int positions = node.inputs.size() > 3 ? node.inputs[3] : -1;
  Rotary rotary;
  rotary.size = size;
  const int64_t asked = node.integer("rotary_embedding_dim");
  rotary.row = {(asked ? asked : size) / 2, node.flag("interleaved"), 0, 1};
  const int64_t pairs = positions >= 0 ? 1 : rotary.row.pairs;  // with positions, `cos` counts positions
  const int64_t of_head = flat ? size : length * size, of_row = flat ? heads * size : size;
  rotary.axes = {{batch, heads * length * size, length * pairs, length * pairs, heads * length * size},
                 {heads, of_head, 0, 0, of_head},
                 {length, of_row, pairs, pairs, of_row}};
  add_rotary(node, builder, std::move(rotary), positions);
}

// ---- The pattern ----------------------------------------------------------------------------------------------------

/// The two tensors of elements that `merged` concatenates along the last axis, or interleaves.
struct Joined {
  int first = -1, second = -1;
  bool interleaved = false;
};

const Node* producer_of(const Graph& graph, int tensor) {
  const int producer = tensor < 0 ? -1 : graph[tensor].producer;
  if (producer < 0) return nullptr;
  const Node& node = graph.nodes[size_t(producer)];
  return node.type.empty() || !node.posts.empty() ? nullptr : &node;
}

/// The operand of a reshape that appends an axis of one element; -1 for other tensors.
int before_last_axis(const Graph& graph, int tensor) {
  const Node* node = producer_of(graph, tensor);
  if (!node || node->type != "Reshape") return -1;
  Shape expected = graph.in(*node, 0)->shape;
  expected.push_back(1);
  return graph[tensor].shape == expected ? node->inputs[0] : -1;
}

bool find_joined(const Graph& graph, int tensor, Joined* joined) {
  const Node* node = producer_of(graph, tensor);
  if (!node || !is_f32(graph[tensor]) || graph[tensor].rank() < 1) return false;
  const bool reshaped = node->type == "Reshape";
  if (reshaped) node = producer_of(graph, node->inputs[0]);
  if (!node || node->inputs.size() != 2 || (node->type != "Concat" && node->type != "Stack")) return false;
  const Tensor& whole = graph.out(*node);
  const bool stacked = node->type == "Stack";
  if (axis_of(node->integer("axis"), whole.rank()) != whole.rank() - 1 || stacked != (stacked && reshaped))
    return false;
  *joined = {node->inputs[0], node->inputs[1], reshaped};
  if (reshaped && !stacked)
    *joined = {before_last_axis(graph, node->inputs[0]), before_last_axis(graph, node->inputs[1]), true};
  if (joined->first < 0 || joined->second < 0 || graph[joined->first].shape != graph[joined->second].shape)
    return false;
  Shape expected = graph[joined->first].shape;
  if (expected.empty()) return false;
  expected.back() *= 2;
  return graph[tensor].shape == expected;
}

/// The two operands of a product with as many elements as `shape` in the first one: (x, factor).
bool find_product(const Graph& graph, int tensor, int* x, int* factor, size_t first) {
  const Node* node = producer_of(graph, tensor);
  if (!node || !is_operation(*node, "Multiplication", "MUL") || !is_f32(graph[tensor])) return false;
  *x = node->inputs[first], *factor = node->inputs[1 - first];
  return graph[*x].shape == graph[tensor].shape;
}

/// What is rotated: the views of the elements of the pairs, and the tensors of their factors.
struct Match {
  StridedView first, second;  // elements of each pair
  int cos = -1, sin = -1;
  bool interleaved = false;
  bool whole = false;  // factors for all elements, not only for the first of each pair
};

bool same_strides(const StridedView& a, const StridedView& b) {
  if (a.tensor != b.tensor || a.dimensions.size() != b.dimensions.size()) return false;
  for (size_t n = 0; n < a.dimensions.size(); ++n) {
    int64_t of_a = 0, of_b = 0;
    if (!a.stride(n, &of_a) || !b.stride(n, &of_b) || of_a != of_b) return false;
  }
  return true;
}

/// Return whether the elements of the pairs lie in one row as halves, or next to each other.
bool are_pairs(const Graph& graph, int first, int second, Match* match) {
  const Shape& shape = graph[first].shape;
  const int64_t pairs = shape.back(), distance = match->interleaved ? 1 : pairs;
  match->first = view_of(graph, first), match->second = view_of(graph, second);
  int64_t step = 0;
  if (!same_strides(match->first, match->second) || !match->first.stride(shape.size() - 1, &step)) return false;
  if (match->second.offset - match->first.offset != distance) return false;
  return pairs == 1 || step == (match->interleaved ? 2 : 1);
}

/// x * cos + rotated(x) * sin, where `rotated` joins the negated second elements and the first ones.
bool match_whole(const Graph& graph, const Node& sum, Match* match) {
  const Shape& shape = graph.out(sum).shape;
  if (!is_operation(sum, "Addition", "ADD") || shape.empty()) return false;
  for (size_t side = 0; side < 2; ++side)
    for (size_t order = 0; order < 4; ++order) {
      int x = -1, joined = -1;
      Joined parts;
      if (!find_product(graph, sum.inputs[side], &x, &match->cos, order & 1) ||
          !find_product(graph, sum.inputs[1 - side], &joined, &match->sin, order >> 1) ||
          !find_joined(graph, joined, &parts) || graph[x].shape != shape || graph[joined].shape != shape)
        continue;
      const Node* negated = producer_of(graph, parts.first);
      if (!negated || negated->type != "ElementwiseUnary" || negated->text("operation") != "NEG") continue;
      match->interleaved = parts.interleaved, match->whole = true;
      if (!are_pairs(graph, parts.second, negated->inputs[0], match)) continue;
      // The first elements have to be those of x itself.
      StridedView all = view_of(graph, x);
      int64_t step = 0;
      if (all.tensor != match->first.tensor || all.offset != match->first.offset) continue;
      if (!all.stride(shape.size() - 1, &step) || step != 1) continue;
      all.dimensions.back() = match->first.dimensions.back();
      if (same_strides(all, match->first)) return true;
    }
  return false;
}

/// Merged x * cos - y * sin and y * cos + x * sin.
bool match_pairs(const Graph& graph, const Node& last, Match* match) {
  Joined parts;
  if (!find_joined(graph, last.outputs[0], &parts)) return false;
  const Node *less = producer_of(graph, parts.first), *sum = producer_of(graph, parts.second);
  if (!less || !sum || !is_operation(*less, "Subtraction", "SUB") || !is_operation(*sum, "Addition", "ADD"))
    return false;
  match->interleaved = parts.interleaved;
  auto same = [&](int a, int b) {  // equal slices may be separate layers
    if (a == b) return true;
    const StridedView left = view_of(graph, a), right = view_of(graph, b);
    return same_strides(left, right) && left.offset == right.offset;
  };
  for (size_t order = 0; order < 32; ++order) {
    const size_t side = order >> 4;
    int x = -1, y = -1, other_x = -1, other_y = -1, cos = -1, sin = -1;
    if (!find_product(graph, less->inputs[0], &x, &match->cos, order & 1) ||
        !find_product(graph, less->inputs[1], &y, &match->sin, order >> 1 & 1) ||
        !find_product(graph, sum->inputs[side], &other_y, &cos, order >> 2 & 1) ||
        !find_product(graph, sum->inputs[1 - side], &other_x, &sin, order >> 3 & 1))
      continue;
    if (cos != match->cos || sin != match->sin || !same(x, other_x) || !same(y, other_y)) continue;
    if (are_pairs(graph, x, y, match)) return true;
  }
  return false;
}

/// The strides of factors along the rows of the result, and whether their last axis is contiguous.
bool set_factors(const Graph& graph, int tensor, const Shape& shape, int64_t RowAxis::*step, Rotary* rotary,
                 int64_t* offset, int* root) {
  for (bool follows : {true, false}) {
    StridedView view = follows ? view_of(graph, tensor) : plain_view(graph, tensor);
    if (view.dimensions.size() > shape.size()) return false;
    view.dimensions.insert(view.dimensions.begin(), shape.size() - view.dimensions.size(), Dimension());
    bool strided = true;
    int64_t last = 0;
    for (size_t n = 0; n + 1 < shape.size(); ++n) strided = strided && view.stride(n, &(rotary->axes[n].*step));
    strided = strided && view.stride(shape.size() - 1, &last);
    if (!strided || (shape.back() > 1 && last != 1)) continue;
    *offset = view.offset, *root = view.tensor;
    return true;
  }
  return false;
}

bool fuse_rotary(Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || !is_f32(graph.out(node)) || graph.out(node).elements() == 0) return false;
  Match match;
  if (!match_whole(graph, node, &match)) {
    match = Match();
    if (!match_pairs(graph, node, &match)) return false;
  }
  const Shape shape = graph.out(node).shape;
  for (int factor : {match.cos, match.sin})
    if (!is_f32(graph[factor]) || graph[factor].rank() == 0) return false;
  auto rotary = std::make_shared<Rotary>();
  const Shape steps = steps_of(shape);
  for (size_t n = 0; n + 1 < shape.size(); ++n) {
    RowAxis axis{shape[n], 0, 0, 0, steps[n]};
    if (!match.first.stride(n, &axis.in)) return false;
    rotary->axes.push_back(axis);
  }
  rotary->in = match.first.offset;
  rotary->size = shape.back();
  const int64_t pairs = shape.back() / 2;
  rotary->row = {pairs, match.interleaved, 0, 1};
  if (match.whole)
    rotary->row.second = match.interleaved ? 1 : pairs, rotary->row.factor_step = match.interleaved ? 2 : 1;
  Shape factors = shape;
  if (!match.whole) factors.back() = pairs;
  int cos = -1, sin = -1;
  if (graph[match.cos].shape.back() != factors.back() || graph[match.sin].shape.back() != factors.back()) return false;
  if (!set_factors(graph, match.cos, factors, &RowAxis::cos, rotary.get(), &rotary->cos, &cos) ||
      !set_factors(graph, match.sin, factors, &RowAxis::sin, rotary.get(), &rotary->sin, &sin))
    return false;
  Node fused;
  fused.type = "acc.Rotary";
  fused.name = node.name;
  fused.layer = node.layer;
  fused.inputs = {match.first.tensor, cos, sin};
  fused.outputs = node.outputs;
  fused.extra = std::move(rotary);
  graph.nodes.replace(node, std::move(fused));
  return true;
}

bool fuse_rotaries(Graph& graph, const Settings&) {
  bool changed = false;
  for (const Node& node : graph.nodes) changed = fuse_rotary(graph, node) || changed;
  return changed;
}

void lower_fused(const Node& node, Builder& builder) {
  add_rotary(node, builder, *static_cast<const Rotary*>(node.extra.get()), -1);
}

}  // namespace

Family rotary_family() {
  return {{{"RotaryEmbedding", "f32", support_rotary, lower_rotary, nullptr},
           {"acc.Rotary", "f32", without_posts, lower_fused, nullptr}},
          {{"rotary embeddings", fuse_rotaries}}};
}

}  // namespace cpuacc
