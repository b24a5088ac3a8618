// FullyConnected and BatchMatMul of float32.

#include <algorithm>
#include <map>

#include "cpuacc/kernels/matmul_f32.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/image_f32.hpp"

namespace cpuacc {
namespace {

constexpr double kSharedBytes = 2 << 20;             // of weights that all threads read, each for some rows
constexpr int64_t kMax = 1 << 28;                    // elements of the rows and of a result
constexpr double kMostWeights = double(1ull << 31);  // elements; a large vocabulary has 2**29

/// The operands of one product of a batch: offsets in floats, and the second one in panels if it is constant.
struct Place {
  int64_t a, b;
  const float* packed = nullptr;
};

struct State {
  const MatMulKernels* kernels;
  MatMul matmul;
  std::vector<Place> batch;
  int64_t parts_of_rows;  // pieces of about the same number of rows into which each product is divided
  bool by_blocks;
};

/// Divide rows as evenly as possible: smaller tiles cost less than threads that wait.
Range rows_of(const State& state, int64_t number) {
  return split(state.matmul.rows, int(number), int(state.parts_of_rows));
}

void run_products(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  const MatMul& m = state.matmul;
  const float *a = run.at<float>(step.in[0]), *b = step.in[1] ? run.at<float>(step.in[1]) : nullptr;
  const float* residual = step.in[2] ? run.at<float>(step.in[2]) : nullptr;
  float *out = run.at<float>(step.out[0]), *scratch = run.part_scratch<float>(part);
  const int blocks = int(blocks_of(m.columns)), panel = state.kernels->panel, panels = std::max(1, blocks / panel);
  OutputRange whole{0, 0, 0, blocks};
  Range range = split(int64_t(state.batch.size()) * state.parts_of_rows, part, parts);
  if (state.by_blocks) {
    range = {0, int64_t(state.batch.size()) * state.parts_of_rows};
    Range cut = split(panels, part, parts);
    whole.block = int(cut.first) * panel;
    whole.block_end = cut.last == panels ? blocks : int(cut.last) * panel;
  }
  for (int64_t n = range.first; n < range.last && whole.block < whole.block_end; ++n) {
    int64_t at = n / state.parts_of_rows;
    Range rows = rows_of(state, n % state.parts_of_rows);
    if (rows.first == rows.last) continue;
    Place place = state.batch[size_t(at)];
    OutputRange cut{int(rows.first), int(rows.last), whole.block, whole.block_end};
    int64_t offset = at * m.rows * m.out_row;
    MatMul own = m;
    own.packed = place.packed;
    state.kernels->matmul(own, a + place.a, b ? b + place.b : nullptr, out + offset,
                          residual ? residual + offset : nullptr, scratch, cut);
  }
}

void run_gemv(const Step& step, const Run& run, int part, int parts) {
  const State& state = step.as<State>();
  Range range = split(blocks_of(state.matmul.columns), part, parts, state.matmul.panel);
  state.kernels->gemv(state.matmul, run.at<float>(step.in[0]), run.at<float>(step.out[0]),
                      step.in[2] ? run.at<float>(step.in[2]) : nullptr, {0, 1, int(range.first), int(range.last)});
}

/// Blocks of a panel of `gemv`, so that parts have about the same number of panels. No single block may remain, because
/// `pack_panels` would merge it with the panel before it.
int32_t gemv_panel(const MatMul& m, int parts) {
  int64_t blocks = blocks_of(m.columns), panels = (blocks + kMaxGemvPanel - 1) / kMaxGemvPanel;
  panels = std::max<int64_t>(1, (panels + parts - 1) / parts * parts);
  int64_t panel = std::max<int64_t>(1, (blocks + panels - 1) / panels);
  while (panel > 1 && blocks > panel && blocks % panel == 1) --panel;
  return int32_t(panel);
}

/// A matrix of the second operand, which is constant, in panels.
const float* pack_weights(const MatMul& m, const Tensor& b, int64_t offset, Builder& builder) {
  Weights weights{b.floats() + offset, m.columns, m.depth, 1, m.b_column, m.b_depth, 0, m.bfloat16};
  weights.mapped = b.is_mapped();
  return static_cast<const float*>(builder.pack(uint64_t(weights.packed()) * 4, [&](void* to) {
    pack_panels(builder, weights, m.panel, 1, static_cast<float*>(to));
  }));
}

/// Pack each matrix of the second operand, which is constant, once.
void pack_matrices(State& state, const Tensor& b, Builder& builder) {
  std::map<int64_t, const float*> packed;
  for (Place& place : state.batch) {
    auto [entry, is_new] = packed.insert({place.b, nullptr});
    if (is_new) entry->second = pack_weights(state.matmul, b, place.b, builder);
    place.packed = entry->second;
  }
  state.matmul.packed = state.batch.empty() ? nullptr : state.batch[0].packed;
}

void add_step(const Node& node, State initial_state, const FusedEpilogue& fused, const Tensor* bias, Builder& builder) {
  auto state = std::make_shared<State>(std::move(initial_state));
  const Graph& graph = builder.graph;
  MatMul& m = state->matmul;
  m.epilogue = fused.epilogue;
  m.bias = pack_bias(bias, 0, m.columns, builder);
  const Tensor& b = *graph.in(node, 1);
  const bool is_vector = b.is_constant() && m.rows == 1 && state->batch.size() == 1 && m.a_depth == 1;
  const bool constant = b.is_constant();
  state->kernels =
      &matmul_kernels_for(builder.settings.isa, builder.settings.fast_math && constant && !is_vector && m.a_depth == 1);
  m.bfloat16 = state->kernels->bfloat16 || (builder.settings.fast_math && is_vector);
  double operations = 2.0 * double(m.rows) * m.columns * m.depth * double(state->batch.size());
  double bytes = 4.0 * double(m.columns) * m.depth;
  Step step;
  step.name = std::string(is_vector ? "vector product " : "matrix product ") + node.name;
  step.fn = is_vector ? run_gemv : run_products;
  step.max_parts =
      parts_for(builder.settings, std::max(operations / cost::kOperationsPerNs, bytes / cost::kStreamedBytesPerNs));
  m.panel = is_vector ? gemv_panel(m, step.max_parts) : state->kernels->panel;
  if (constant) pack_matrices(*state, b, builder);
  const bool few_weights = bytes <= kSharedBytes && m.rows >= 48 * builder.settings.threads;
  state->by_blocks = constant && !few_weights && int64_t{m.columns} > int64_t{m.rows} &&
                     blocks_of(m.columns) >= 4 * builder.settings.threads;
  state->parts_of_rows = state->by_blocks || int64_t(state->batch.size()) >= 4 * step.max_parts ? 1 : step.max_parts;
  step.operations = operations;
  step.in = {builder.buffer(node.inputs[0]), constant ? Buffer() : builder.buffer(node.inputs[1]),
             builder.buffer(fused.residual)};
  step.out = {builder.buffer(node.outputs[0])};
  if (!is_vector) step.scratch_per_part = uint64_t(scratch_of(m)) * 4;
  step.state = state;
  builder.add(std::move(step));
}

Refusal within_limits(double rows, double columns, double depth) {
  if (rows * (depth + 128) > kMax || columns * depth > kMostWeights)
    return refused("matrices of this size", IPR_REASON_RESOURCE);
  return taken();
}

// ---- FullyConnected -------------------------------------------------------------------------------------------------

MatMul fully_connected(const Graph& graph, const Node& node) {
  const Tensor& weights = *graph.in(node, 1);
  bool transposed = node.flag("transpose_weight_matrix");
  MatMul m{};
  int64_t depth = weights.extent(transposed ? 1 : 0), columns = weights.extent(transposed ? 0 : 1);
  m.depth = int32_t(depth), m.columns = int32_t(columns);
  m.rows = int32_t(columns ? graph.out(node).elements() / columns : 0);  // 0 for operands without elements
  m.a_row = depth, m.a_depth = 1, m.out_row = columns;
  m.b_depth = transposed ? 1 : columns, m.b_column = transposed ? depth : 1;
  return m;
}

Refusal support_fully_connected(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  const Tensor* bias = bias_of(graph, node);
  if (bias && !bias->is_constant()) return refused("bias is not constant", IPR_REASON_NOT_CONSTANT);
  const Tensor& weights = *graph.in(node, 1);
  double depth = double(weights.extent(node.flag("transpose_weight_matrix") ? 1 : 0));
  double rows = double(graph.in(node, 0)->elements()) / std::max(1.0, depth);
  if (Refusal why = within_limits(rows, double(weights.elements()) / std::max(1.0, depth), depth)) return why;
  FusedEpilogue fused;
  return find_epilogue(graph, node, &fused);
}

void lower_fully_connected(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  State state{};
  state.matmul = fully_connected(graph, node);
  state.batch = {{0, 0}};
  add_step(node, std::move(state), epilogue_of(graph, node), bias_of(graph, node), builder);
}

// ---- BatchMatMul ----------------------------------------------------------------------------------------------------

/// The shape of an operand as matrices: a vector is one row on the left, and one column on the right.
Shape as_matrices(const Tensor& tensor, bool left) {
  Shape shape = tensor.shape;
  if (shape.size() == 1) shape.insert(left ? shape.begin() : shape.end(), 1);
  return shape;
}

/// The offsets of the matrices of an operand for each matrix of the result, whose batch has the dimensions `batch`.
std::vector<int64_t> places(const Shape& shape, const Shape& batch) {
  std::vector<int64_t> offsets{0};
  int64_t size = shape[shape.size() - 1] * shape[shape.size() - 2];
  std::vector<int64_t> strides(batch.size(), 0);
  for (size_t n = 0; n + 2 < shape.size(); ++n) {
    size_t axis = shape.size() - 3 - n;
    if (shape[axis] != 1) strides[batch.size() - 1 - n] = size;
    size *= shape[axis];
  }
  for (size_t axis = 0; axis < batch.size(); ++axis) {
    std::vector<int64_t> next;
    for (int64_t place : offsets)
      for (int64_t n = 0; n < batch[axis]; ++n) next.push_back(place + n * strides[axis]);
    offsets = std::move(next);
  }
  return offsets;
}

/// Very long rows are refused because the reference is faster: products here do not divide the depth into pieces that
/// stay in the cache.
Refusal support_batch_matmul(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (node.flag("adjoint_x") || node.flag("adjoint_y")) return refused("adjugate matrices", IPR_REASON_ATTRIBUTE);
  Shape a = as_matrices(*graph.in(node, 0), true), b = as_matrices(*graph.in(node, 1), false);
  size_t last_a = a.size() - 1, last_b = b.size() - 1;
  double rows = double(a[last_a - 1]), depth = double(a[last_a]),
         columns = std::max(double(b[last_b]), double(b[last_b - 1]));
  if (Refusal why = within_limits(std::max(rows, depth), columns, std::max(rows, depth))) return why;
  if (graph.out(node).elements() > kMax) return refused("a result of this size", IPR_REASON_RESOURCE);
  FusedEpilogue fused;
  return find_epilogue(graph, node, &fused);
}

void lower_batch_matmul(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& out = graph.out(node);
  if (out.elements() == 0) return;
  const Tensor &left = *graph.in(node, 0), &right = *graph.in(node, 1);
  Shape a = as_matrices(left, true), b = as_matrices(right, false);
  bool turn_a = node.flag("transpose_x") && left.rank() > 1, turn_b = node.flag("transpose_y") && right.rank() > 1;
  State state{};
  MatMul& m = state.matmul;
  int64_t a_columns = a[a.size() - 1], b_columns = b[b.size() - 1];
  m.rows = int32_t(a[a.size() - (turn_a ? 1 : 2)]), m.depth = int32_t(a[a.size() - (turn_a ? 2 : 1)]);
  m.columns = int32_t(b[b.size() - (turn_b ? 2 : 1)]);
  m.a_row = turn_a ? 1 : a_columns, m.a_depth = turn_a ? a_columns : 1;
  m.b_depth = turn_b ? 1 : b_columns, m.b_column = turn_b ? b_columns : 1;
  m.out_row = m.columns;
  Shape batch = out.shape;
  batch.resize(batch.size() - (left.rank() > 1) - (right.rank() > 1));
  std::vector<int64_t> of_a = places(a, batch), of_b = places(b, batch);
  for (size_t n = 0; n < of_a.size(); ++n) state.batch.push_back({of_a[n], of_b[n]});
  bool rows_follow = !turn_a && std::all_of(of_b.begin(), of_b.end(), [](int64_t place) { return place == 0; });
  for (size_t n = 0; n < of_a.size(); ++n) rows_follow = rows_follow && of_a[n] == int64_t(n) * m.rows * m.depth;
  if (rows_follow) {  // one product of all rows
    m.rows = int32_t(m.rows * int64_t(of_a.size()));
    state.batch.resize(1);
  }
  add_step(node, std::move(state), epilogue_of(graph, node), nullptr, builder);
}

}  // namespace

Family matmul_f32_family() {
  return {{{"FullyConnected", "f32", support_fully_connected, lower_fully_connected, nullptr},
           {"BatchMatMul", "f32", support_batch_matmul, lower_batch_matmul, nullptr}},
          {}};
}

}  // namespace cpuacc
