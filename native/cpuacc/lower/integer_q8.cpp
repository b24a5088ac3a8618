// Products of 8-bit integers in int32, with zero points that are known when they run: IntegerMatMul and
// IntegerConvolution2d. The layers that turn their sums to float32 are fused into them: Cast, the product with the
// scales, the addition of a bias, and a clamp.

#include <algorithm>
#include <limits>

#include "cpuacc/lower/gemm_q8.hpp"
#include "cpuacc/patterns.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

constexpr size_t kScale = 4, kBias = 5;  // operands of a node that turns its sums to float32

bool is_byte(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT8 || tensor.dtype == IPR_DTYPE_UINT8; }

bool is_convolution(const Node& node) { return node.type == "IntegerConvolution2d"; }

bool is_product(const Node& node) { return is_convolution(node) || node.type == "IntegerMatMul"; }

bool is_first(const Node& node) { return node.text("data_layout") != "NHWC"; }

/// The axis of the output channels, counted from the end of the shape.
int channel_axis(const Node& node) { return is_convolution(node) && is_first(node) ? -3 : -1; }

/// Return whether a tensor has one element for each channel of a result, along this axis.
bool is_by_channel(const Tensor& tensor, const Tensor& result, int axis) {
  const int rank = tensor.rank();
  return rank <= result.rank() && rank >= -axis && tensor.extent(axis) == tensor.elements() &&
         tensor.elements() == result.extent(axis);
}

// ---- Products with constant weights ---------------------------------------------------------------------------------

/// Return whether zero points of the weights are constant, and one or one for each output channel.
bool has_known_zeros(const Tensor& weights, const Tensor* zeros, bool convolution) {
  if (!zeros) return true;
  if (!zeros->is_constant() || zeros->dtype != weights.dtype) return false;
  const int axis = convolution ? -4 : -1;
  return zeros->elements() == 1 || (zeros->rank() >= -axis && zeros->extent(axis) == zeros->elements() &&
                                    weights.extent(axis) == zeros->elements());
}

Refusal refused_posts(const Node& node) {
  for (const Post& post : node.posts)
    if (post.kind != Post::activation || (post.function != "RELU" && post.function != "BOUNDED_RELU"))
      return refused("the layers that follow cannot be fused", IPR_REASON_NEIGHBOURS);
  if (!node.posts.empty() && node.inputs.size() <= kScale)
    return refused("clamps only products with scales", IPR_REASON_NEIGHBOURS);
  return taken();
}

Refusal support_packed(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), *zero = graph.in(node, 2);
  if (!is_byte(in) || !is_byte(weights) || !weights.is_constant())
    return refused("takes 8-bit integers, and constant weights", IPR_REASON_NOT_CONSTANT);
  if (!is_convolution(node) && weights.rank() != 2) return refused("takes a matrix of weights", IPR_REASON_SHAPE);
  if (weights.elements() == 0) return refused("takes weights with elements", IPR_REASON_SHAPE);
  if (zero && (zero->elements() != 1 || zero->dtype != in.dtype))
    return refused("takes one zero point of the input", IPR_REASON_SHAPE);
  if (!has_known_zeros(weights, graph.in(node, 3), is_convolution(node)))
    return refused("takes constant zero points of the weights, one or one for each output", IPR_REASON_NOT_CONSTANT);
  return refused_posts(node);
}

void set_zeros(Q8Weights& weights, const Tensor* zeros) {
  weights.zeros = {0};
  if (!zeros) return;
  weights.zeros.clear();
  for (int64_t n = 0; n < zeros->elements(); ++n)
    weights.zeros.push_back(weights.is_signed ? int32_t(zeros->values<int8_t>()[n])
                                              : int32_t(zeros->values<uint8_t>()[n]));
}

Q8Window matrix(const Graph& graph, const Node& node) {
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1);
  const int64_t depth = weights.shape[0], rows = in.elements() / std::max<int64_t>(depth, 1);
  Q8Window window(weights);
  window.columns = {rows, rows, 1, rows, 0, 1};
  window.taps = {{0, 0}};
  window.depth = depth;
  window.outputs = window.weight.outputs = weights.shape[1];
  window.weight.by_output = 1, window.weight.by_input = window.outputs;
  window.weight.taps = {0};
  return window;
}

Q8Products products_of(const Node& node, Builder& builder) {
  Q8Products products;
  auto operand = [&](size_t n) { return builder.buffer(n < node.inputs.size() ? node.inputs[n] : -1); };
  products.zero = operand(2), products.scale = operand(kScale), products.bias = operand(kBias);
  if (products.scale) products.scale_count = builder.graph.in(node, kScale)->elements();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  products.low = -infinity, products.high = infinity;
  for (const Post& post : node.posts) {
    const bool bounded = post.function == "BOUNDED_RELU";
    const float low = bounded ? float(post.b) : 0, high = bounded ? float(post.a) : infinity;
    products.low = std::clamp(products.low, low, high), products.high = std::clamp(products.high, low, high);
  }
  return products;
}

void lower_packed(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& in = *graph.in(node, 0);
  if (graph.out(node).elements() == 0) return;
  Q8Window window = is_convolution(node) ? convolution_q8(graph, node) : matrix(graph, node);
  set_zeros(window.weight, graph.in(node, 3));
  const Buffer from = builder.buffer(node.inputs[0]), to = builder.buffer(node.outputs[0]);
  add_integer_gemm(builder, node.type + " " + node.name, window, products_of(node, builder), in, from, to);
}

// ---- Products with computed weights ---------------------------------------------------------------------------------

/// Return whether zero points are one number, or one for each column of the second operand.
bool has_column_zeros(const Tensor& weights, const Tensor* zeros) {
  if (!zeros || zeros->elements() == 1) return true;
  return weights.rank() > 1 && zeros->elements() == weights.extent(-1) && zeros->extent(-1) == zeros->elements();
}

Refusal support_computed(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), *zero = graph.in(node, 2);
  if (!is_byte(in) || !is_byte(weights)) return refused("takes 8-bit integers", IPR_REASON_DATA_TYPE);
  if (zero && zero->elements() != 1) return refused("takes one zero point of the input", IPR_REASON_SHAPE);
  if (!has_column_zeros(weights, graph.in(node, 3)))
    return refused("takes zero points of the weights, one or one for each output", IPR_REASON_SHAPE);
  if (Refusal why = support_computed_products(graph, node)) return why;
  return refused_posts(node);
}

void lower_computed(const Node& node, Builder& builder) {
  add_computed_products(node, products_of(node, builder), builder);
}

// ---- Products of any matrices ---------------------------------------------------------------------------------------

/// One operand of a product: its matrices, and the strides of the elements and of the zero points along all axes of the
/// result's batches, its rows and its columns; 0 along axes that are broadcast.
struct Factor {
  Shape steps, zero_steps;
  int64_t rows, columns;
  bool is_signed, zero_signed;

  static int64_t value(const void* data, bool is_signed, int64_t at) {
    return is_signed ? int64_t(static_cast<const int8_t*>(data)[at]) : int64_t(static_cast<const uint8_t*>(data)[at]);
  }
  /// Write a matrix minus its zero points. `zeros` may be nullptr.
  void center(const void* data, const void* zeros, int64_t at, int64_t zero_at, int16_t* to) const {
    const size_t r = steps.size() - 2, c = r + 1;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        int64_t zero = zeros ? value(zeros, zero_signed, zero_at + row * zero_steps[r] + column * zero_steps[c]) : 0;
        *to++ = int16_t(value(data, is_signed, at + row * steps[r] + column * steps[c]) - zero);
      }
  }
};

struct Matrices {
  const ElementwiseQ8Kernels* kernels;
  Factor a, b;
  Shape batch;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Matrices& self = step.as<Matrices>();
    Range range = split(self.count, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) self.multiply(step, run, n, run.part_scratch<int16_t>(part));
  }

 private:
  void multiply(const Step& step, const Run& run, int64_t n, int16_t* scratch) const {
    int16_t* right = scratch + a.rows * a.columns;
    center(step, run, 0, n, scratch);
    center(step, run, 1, n, right);
    int32_t* out = run.at<int32_t>(step.out[0]) + n * a.rows * b.columns;
    std::fill_n(out, a.rows * b.columns, 0);
    for (int64_t row = 0; row < a.rows; ++row, out += b.columns)
      for (int64_t k = 0; k < a.columns; ++k)
        kernels->add_product(out, right + k * b.columns, scratch[row * a.columns + k], b.columns);
  }

  void center(const Step& step, const Run& run, size_t operand, int64_t n, int16_t* to) const {
    const Factor& factor = operand == 0 ? a : b;
    int64_t at = 0, zero_at = 0;
    for (size_t axis = batch.size(); axis-- > 0; n /= batch[axis]) {
      at += n % batch[axis] * factor.steps[axis];
      zero_at += n % batch[axis] * factor.zero_steps[axis];
    }
    const Buffer& zeros = step.in[2 + operand];
    factor.center(run.at(step.in[operand]), zeros ? run.at(zeros) : nullptr, at, zero_at, to);
  }
};

/// Strides for a shape whose last axes are those of `shape`; 0 where it is broadcast.
Shape broadcast_steps(const Shape& shape, size_t rank) {
  Shape steps = steps_of(shape), found(rank, 0);
  for (size_t n = 0; n < shape.size(); ++n)
    if (shape[n] != 1) found[rank - shape.size() + n] = steps[n];
  return found;
}

/// The operand at a position; vectors are a row on the left, and a column on the right.
Factor factor_of(const Graph& graph, const Node& node, size_t operand, size_t rank) {
  const Tensor &tensor = *graph.in(node, operand), *zeros = graph.in(node, 2 + operand);
  Shape shape = tensor.shape, zero_shape = zeros ? zeros->shape : Shape{};
  if (shape.size() == 1 && operand == 1) {
    shape.push_back(1);
    if (!zero_shape.empty()) zero_shape.push_back(1);
  }
  if (shape.size() == 1) shape.insert(shape.begin(), 1);
  const size_t last = shape.size() - 1;
  return {broadcast_steps(shape, rank),   broadcast_steps(zero_shape, rank),      shape[last - 1], shape[last],
          tensor.dtype == IPR_DTYPE_INT8, zeros && zeros->dtype == IPR_DTYPE_INT8};
}

constexpr int64_t kMaxElements = 1 << 26;  // of the two matrices of a product

Refusal support_any(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1);
  if (!is_byte(a) || !is_byte(b)) return refused("takes 8-bit integers", IPR_REASON_DATA_TYPE);
  const Factor left = factor_of(graph, node, 0, 10), right = factor_of(graph, node, 1, 10);
  if (double(left.rows) * double(left.columns) + double(right.rows) * double(right.columns) > kMaxElements)
    return refused("matrices of this size", IPR_REASON_RESOURCE);
  if (node.inputs.size() > kScale) return refused("takes no scales", IPR_REASON_NEIGHBOURS);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_any(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  if (out.elements() == 0) return;
  auto state = std::make_shared<Matrices>();
  state->kernels = &elementwise_q8_kernels_for(builder.settings.isa);
  state->batch = out.shape;
  for (const Tensor* operand : {&a, &b})
    if (operand->rank() > 1) state->batch.pop_back();
  const size_t rank = state->batch.size() + 2;
  state->a = factor_of(graph, node, 0, rank), state->b = factor_of(graph, node, 1, rank);
  const Factor &left = state->a, &right = state->b;
  state->count = out.elements() / (left.rows * right.columns);
  Step step;
  step.name = "IntegerMatMul " + node.name;
  step.fn = &Matrices::run;
  const double products = double(out.elements()) * double(left.columns);
  step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, products / 4), state->count));
  for (size_t n = 0; n < 4; ++n) step.in.push_back(builder.buffer(n < node.inputs.size() ? node.inputs[n] : -1));
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(left.rows * left.columns + right.rows * right.columns) * sizeof(int16_t);
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Fusion ---------------------------------------------------------------------------------------------------------

/// Fuse the conversion of the sums to float32 and their product with scales.
bool fuse_scale(Graph& graph, const Node& node, const Settings& settings) {
  if (!is_operation(node, "Multiplication", "MUL") || !is_f32(graph.out(node))) return false;
  for (size_t n = 0; n < 2; ++n) {
    const Node* cast = private_producer(graph, node.inputs[n]);
    if (!cast || cast->type != "Cast") continue;
    const Node* product = private_producer(graph, cast->inputs[0]);
    const int scale = node.inputs[1 - n];
    if (!product || !is_product(*product) || product->inputs.size() > kScale || scale < 0) continue;
    const Tensor &factor = graph[scale], &out = graph.out(node);
    if (!is_f32(factor) || out.shape != graph.out(*product).shape) continue;
    if (factor.elements() != 1 && !is_by_channel(factor, out, channel_axis(*product))) continue;
    Node fused = *product;
    fused.inputs.resize(kScale, -1);
    fused.inputs.push_back(scale);
    fused.outputs = node.outputs;
    if (!find_lowering(graph, fused, settings)) continue;
    graph.nodes.remove(*product);
    graph.nodes.remove(*cast);
    graph.nodes.replace(node, std::move(fused));
    return true;
  }
  return false;
}

/// Fuse the addition of a bias to scaled sums.
bool fuse_bias(Graph& graph, const Node& node) {
  if (!is_operation(node, "Addition", "ADD") || !is_f32(graph.out(node))) return false;
  for (size_t n = 0; n < 2; ++n) {
    const Node* product = private_producer(graph, node.inputs[n]);
    const int bias = node.inputs[1 - n];
    if (!product || !is_product(*product) || product->inputs.size() != kBias || bias < 0) continue;
    const Tensor& out = graph.out(node);
    if (!is_f32(graph[bias]) || out.shape != graph.out(*product).shape) continue;
    if (!is_by_channel(graph[bias], out, channel_axis(*product))) continue;
    Node fused = *product;
    fused.inputs.push_back(bias);
    fused.outputs = node.outputs;
    graph.nodes.remove(*product);
    graph.nodes.replace(node, std::move(fused));
    return true;
  }
  return false;
}

bool fuse_scales(Graph& graph, const Settings& settings) {
  bool changed = false;
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_product)) return false;
  for (const Node& node : graph.nodes)
    if (!node.type.empty()) changed = fuse_scale(graph, node, settings) || fuse_bias(graph, node) || changed;
  return changed;
}

}  // namespace

Family integer_q8_family() {
  return {{{"IntegerMatMul", "packed", support_packed, lower_packed, nullptr},
           {"IntegerMatMul", "computed", support_computed, lower_computed, nullptr},
           {"IntegerMatMul", "plain", support_any, lower_any, nullptr},
           {"IntegerConvolution2d", "packed", support_packed, lower_packed, nullptr}},
          {{"scaled products", fuse_scales}}};
}

}  // namespace cpuacc
