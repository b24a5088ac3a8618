// Matrix products with weights that stay packed. A pass finds products whose weights are dequantized constants, or
// constants of 16 bits, and merges the dequantization into the product.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/epilogue_f32.hpp"
#include "cpuacc/lower/image_f32.hpp"
#include "cpuacc/packed_weights.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kFewFloatRows = 8;    // float16 and bfloat16 weights stay packed for so many rows
constexpr double kLargestScale = 1e30;  // larger scales might overflow in another order of operations
constexpr double kDecodedPerNs = 20;    // integers that are decoded in a nanosecond

// ---- The pass -------------------------------------------------------------------------------------------------------

bool is_float_type(int32_t dtype) {
  return dtype == IPR_DTYPE_FLOAT32 || dtype == IPR_DTYPE_FLOAT16 || dtype == IPR_DTYPE_BFLOAT16;
}

double scale_at(const void* data, int32_t dtype, int64_t at) {
  auto* bytes = static_cast<const char*>(data);
  if (dtype == IPR_DTYPE_FLOAT32) {
    float value;
    std::memcpy(&value, bytes + at * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + at * 2, 2);
  const int exponent_bits = dtype == IPR_DTYPE_FLOAT16 ? 5 : 8, fraction_bits = 15 - exponent_bits;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1) return INFINITY;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double number = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return std::ldexp(bits >> 15 ? -number : number, std::max(exponent, 1) - bias - fraction_bits);
}

/// Return whether all scales are so small that products can be scaled after they were summed.
bool are_moderate(const void* scales, int32_t dtype, int64_t count) {
  for (int64_t n = 0; n < count; ++n)
    if (!(std::fabs(scale_at(scales, dtype, n)) < kLargestScale)) return false;
  return true;
}

/// The constant from which a tensor is computed, and whether it is transposed on the way.
struct Origin {
  int tensor;
  const Node* dequantize;  // nullptr if the constant is a float tensor
  bool transposed;
};

bool swaps_matrix_axes(const Node& node) {
  const bool moves = node.type == "Transpose" || node.type == "Permute";
  const auto& order = node.integers(node.type == "Permute" ? "dim_mappings" : "permutation");
  return moves && order == std::vector<int64_t>{1, 0};
}

bool is_dequantization(const Node& node) { return node.type == "Dequantize" || node.type == "BlockDequantize"; }

/// Follow casts between float types and transpositions up to a constant.
Origin origin_of(const Graph& graph, int tensor) {
  Origin origin{tensor, nullptr, false};
  while (origin.tensor >= 0 && graph[origin.tensor].producer >= 0) {
    const Node& node = graph.nodes[size_t(graph[origin.tensor].producer)];
    if (is_dequantization(node)) {
      origin.dequantize = &node;
      origin.tensor = node.inputs[0];
      return origin;
    }
    const bool casts =
        node.type == "Cast" && is_float_type(graph.in(node, 0)->dtype) && is_float_type(graph.out(node).dtype);
    if (!casts && !swaps_matrix_axes(node)) return {-1, nullptr, false};
    origin.transposed ^= !casts;
    origin.tensor = node.inputs[0];
  }
  return origin;
}

/// Set the scales and zero points of a tensor with one scale, or one for each column.
bool take_tensor_scales(const Tensor& codes, int depth_axis, StoredWeights& to) {
  if (codes.has_axis() && codes.axis == depth_axis) return false;
  const size_t count = codes.has_axis() ? size_t(to.columns) : 1;
  if (codes.scales.size() != count) return false;
  for (double scale : codes.scales) to.own_scales.push_back(float(scale));
  for (int64_t zero : codes.zero_points) {
    if (zero < -100 || zero > 255) return false;
    to.zeros.push_back(int32_t(zero));
  }
  if (to.zeros.size() == 1) to.zeros.resize(count, to.zeros[0]);
  if (!to.zeros.empty() && to.zeros.size() != count) return false;
  to.scales = to.own_scales.data();
  to.block = to.depth;
  to.scale_by_column = codes.has_axis() ? 1 : 0;
  return are_moderate(to.scales, to.scale_dtype, int64_t(count));
}

/// Set the scales and zero points of blocks along the depth.
bool take_block_scales(const Graph& graph, const Node& node, int depth_axis, StoredWeights& to) {
  const Tensor *scale = graph.in(node, 1), *zero = graph.in(node, 2);
  if (axis_of(node.integer("axis", 1), 2) != depth_axis || !scale->is_constant() || !is_float_type(scale->dtype))
    return false;
  if (zero && !zero->is_constant()) return false;
  to.block = std::min(node.integer("block_size"), to.depth);
  to.scales = scale->data;  // read at any address, as an aligned copy may end before the weights are packed
  to.scale_dtype = scale->dtype;
  to.scale_by_block = depth_axis == 0 ? scale->extent(1) : 1;
  to.scale_by_column = depth_axis == 0 ? 1 : scale->extent(1);
  for (int64_t n = 0; zero && n < zero->elements(); ++n) to.zeros.push_back(integer_at(zero->data, zero->dtype, n));
  return are_moderate(to.scales, to.scale_dtype, scale->elements());
}

/// The weights of a product if they can stay packed; nullptr otherwise.
std::shared_ptr<StoredWeights> stored_weights(const Graph& graph, const Node& product) {
  const Origin origin = origin_of(graph, product.inputs[1]);
  if (origin.tensor < 0) return nullptr;
  const Tensor& codes = graph[origin.tensor];
  const bool narrow = origin.dequantize ? has_few_bits(codes.dtype)
                                        : codes.dtype == IPR_DTYPE_FLOAT16 || codes.dtype == IPR_DTYPE_BFLOAT16;
  if (!codes.is_constant() || codes.rank() != 2 || codes.elements() == 0 || !narrow) return nullptr;
  bool transposed = product.flag(product.type == "FullyConnected" ? "transpose_weight_matrix" : "transpose_y");
  if (origin.transposed) transposed = !transposed;
  const int depth_axis = transposed ? 1 : 0;
  auto weights = std::make_shared<StoredWeights>();
  weights->codes = codes.data;
  weights->dtype = codes.dtype;
  weights->depth = codes.extent(depth_axis), weights->columns = codes.extent(1 - depth_axis);
  weights->by_depth = depth_axis == 0 ? codes.extent(1) : 1;
  weights->by_column = depth_axis == 0 ? 1 : codes.extent(1);
  weights->block = weights->depth;
  if (!origin.dequantize) return weights;
  const bool blocks = origin.dequantize->type == "BlockDequantize";
  const bool taken = blocks ? take_block_scales(graph, *origin.dequantize, depth_axis, *weights)
                            : take_tensor_scales(codes, depth_axis, *weights);
  return taken ? weights : nullptr;
}

bool is_product(const Graph& graph, const Node& node) {
  if (!node.posts.empty() || node.inputs.size() < 2 || node.inputs[0] < 0 || node.inputs[1] < 0) return false;
  if (!is_float_type(graph.in(node, 0)->dtype) || !is_float_type(graph.out(node).dtype)) return false;
  if (node.type == "FullyConnected") return true;
  return node.type == "BatchMatMul" && !node.flag("adjoint_x") && !node.flag("adjoint_y") &&
         (!node.flag("transpose_x") || graph.in(node, 0)->rank() == 1);
}

bool merge_weights(Graph& graph, const Node& node) {
  if (!is_product(graph, node) || graph.out(node).elements() == 0) return false;
  const Tensor* bias = graph.in(node, 2);
  if (bias && !bias->is_constant()) return false;
  std::shared_ptr<StoredWeights> weights = stored_weights(graph, node);
  if (!weights || graph.out(node).elements() % weights->columns != 0) return false;
  const bool many = graph.out(node).elements() / weights->columns > kFewFloatRows;
  if (many && weights->is_float()) return false;  // many rows would convert them in each run
  Node packed = node;
  packed.type = kPackedMatMul;
  packed.attributes.clear();
  packed.extra = std::move(weights);
  packed.inputs[1] = -1;
  graph.nodes.replace(node, std::move(packed));
  return true;
}

/// Clear constants that nothing reads any more, so that no later pass converts them.
void drop_unread_constants(Graph& graph) {
  for (size_t n = 0; n < graph.tensors.size(); ++n)
    if (graph.tensors[n].is_constant() && !graph.is_border(int(n)) && graph.users(int(n)).empty())
      graph.tensors[n].data = nullptr;
}

bool merge_all(Graph& graph, const Settings&) {
  bool changed = false;
  for (const Node& node : graph.nodes) changed = merge_weights(graph, node) || changed;
  if (!changed) return false;
  graph.index();
  drop_unread_constants(graph);
  return true;
}

// ---- The steps ------------------------------------------------------------------------------------------------------

struct State {
  const PackedMatMulKernels* kernels;
  PackedMatMul matmul;

  static void few_rows(const Step& step, const Run& run, int part, int parts) {
    const State& self = step.as<State>();
    Range range = split(blocks_of(self.matmul.product.columns), part, parts, 4);
    if (range.first == range.last) return;
    self.kernels->few_rows(self.matmul, run.at<float>(step.in[0]), run.at<float>(step.out[0]),
                           step.in[1] ? run.at<float>(step.in[1]) : nullptr,
                           {0, self.matmul.product.rows, int(range.first), int(range.last)});
  }

  static void pack_rows(const Step& step, const Run& run, int part, int parts) {
    const State& self = step.as<State>();
    const MatMul& m = self.matmul.product;
    const RowChunks cut(m);
    const float* a = run.at<float>(step.in[0]);
    float* to = run.at<float>(step.out[0]);
    Range range = split(m.rows, part, parts, 8);
    for (int chunk = 0, first = 0; chunk < cut.chunks; ++chunk) {
      const int rows = cut.of(chunk), begin = std::max(first, int(range.first));
      const int end = std::min(first + rows, int(range.last));
      for (int row = begin; row < end; row += 8)
        self.kernels->pack_rows(m, a + row * m.a_row, to + (row - first) * 16, std::min(8, end - row), rows);
      to += floats_of_chunk(m, rows);
      first += rows;
    }
  }

  static void many_rows(const Step& step, const Run& run, int part, int parts) {
    const State& self = step.as<State>();
    const int blocks = int(blocks_of(self.matmul.product.columns)), panel = self.kernels->panel;
    const int panels = std::max(1, blocks / panel);
    Range cut = split(panels, part, parts);
    if (cut.first == cut.last) return;
    self.kernels->many_rows(
        self.matmul, run.at<float>(step.in[0]), run.at<float>(step.out[0]),
        step.in[1] ? run.at<float>(step.in[1]) : nullptr, run.part_scratch<float>(part),
        {0, self.matmul.product.rows, int(cut.first) * panel, cut.last == panels ? blocks : int(cut.last) * panel});
  }
};

const StoredWeights& stored_of(const Node& node) { return *static_cast<const StoredWeights*>(node.extra.get()); }

Refusal support_packed(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  const Tensor* bias = bias_of(graph, node);
  if (bias && (!bias->is_constant() || bias->elements() != stored_of(node).columns))
    return refused("bias is not a constant of the result's columns");
  FusedEpilogue fused;
  return find_epilogue(graph, node, &fused);
}

uint64_t bytes_of_packed_rows(const MatMul& m) {
  const RowChunks cut(m);
  int64_t floats = 0;
  for (int chunk = 0; chunk < cut.chunks; ++chunk) floats += floats_of_chunk(m, cut.of(chunk));
  return uint64_t(floats) * sizeof(float);
}

void lower_packed(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const StoredWeights& stored = stored_of(node);
  const FusedEpilogue fused = epilogue_of(graph, node);
  auto state = std::make_shared<State>();
  state->kernels = &packed_matmul_kernels_for(builder.settings.isa);
  state->matmul.weights = pack_stored_weights(stored, builder);
  MatMul& m = state->matmul.product;
  m = MatMul{};
  m.rows = int32_t(graph.out(node).elements() / stored.columns);
  m.columns = int32_t(stored.columns), m.depth = int32_t(stored.depth);
  m.a_row = stored.depth, m.a_depth = 1, m.out_row = stored.columns;
  m.epilogue = fused.epilogue;
  m.bias = pack_bias(bias_of(graph, node), 0, stored.columns, builder);
  const double weights = double(stored.columns) * double(stored.depth), operations = 2.0 * weights * m.rows;
  const double ns = std::max(operations / cost::kOperationsPerNs, weights / kDecodedPerNs);
  Buffer operand = builder.buffer(node.inputs[0]);
  const bool few = m.rows <= state->kernels->most_few_rows;
  if (!few) {
    Step pack;
    pack.name = "rows of " + node.name;
    pack.fn = &State::pack_rows;
    pack.max_parts = parts_for(builder.settings, double(m.rows) * m.depth * cost::kContiguousByteNs);
    pack.in = {operand};
    operand = builder.temporary(bytes_of_packed_rows(m));
    pack.out = {operand};
    pack.state = state;
    builder.add(std::move(pack));
  }
  Step step;
  step.name = std::string(few ? "packed vector product " : "packed matrix product ") + node.name;
  step.fn = few ? &State::few_rows : &State::many_rows;
  step.max_parts = parts_for(builder.settings, ns);
  step.operations = operations;
  step.in = {operand, builder.buffer(fused.residual)};
  step.out = {builder.buffer(node.outputs[0])};
  if (!few)
    step.scratch_per_part = uint64_t(scratch_of_many_rows(state->matmul, state->kernels->panel)) * sizeof(float);
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family packed_matmul_family() {
  return {{{kPackedMatMul, "packed", support_packed, lower_packed, nullptr}}, {{"packed weights", merge_all}}};
}

}  // namespace cpuacc
