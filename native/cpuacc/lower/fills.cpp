// Layers whose results follow from shapes and attributes, and layers on diagonals of matrices: Fill, Shape, Rank,
// EyeLike, MatrixDiag, MatrixSetDiag; Bitcast, Merge, Switch and Hardmax.

#include <algorithm>
#include <cstring>

#include "cpuacc/half_precision.hpp"
#include "cpuacc/kernels/select.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

/// Fill the result of a node with a number.
void fill(const Node& node, Builder& builder, double value) {
  const Tensor& out = builder.graph.out(node);
  char element[8];
  encode(value, out, element);
  builder.add(fill_step(builder, label(node), builder.buffer(node.outputs[0]), element, ipr::item_size(out.dtype),
                        out.elements()));
}

Refusal can_encode(const Tensor& tensor, double value) {
  char element[8];
  if (encode(value, tensor, element)) return taken();
  return refused("no such number of " + described(tensor), IPR_REASON_DATA_TYPE);
}

// ---- Fill -----------------------------------------------------------------------------------------------------------

Refusal support_fill(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = can_encode(graph.out(node), node.number("value"))) return why;
  if (!graph.in(node, 0)->is_constant())
    return refused("the shape is no constant, and is not compared with the declared one", IPR_REASON_NOT_CONSTANT);
  return without_posts(graph, node, settings);
}

void lower_fill(const Node& node, Builder& builder) { fill(node, builder, node.number("value")); }

// ---- Shape, Rank ----------------------------------------------------------------------------------------------------

struct Numbers {
  const void* values;
  uint64_t bytes;

  static void run(const Step& step, const Run& run, int, int) {
    const Numbers& self = step.as<Numbers>();
    if (self.bytes > 0) std::memcpy(run.at(step.out[0]), self.values, self.bytes);
  }
};

void write_numbers(const Node& node, Builder& builder, const Shape& numbers) {
  const Tensor& out = builder.graph.out(node);
  const uint64_t item_size = ipr::item_size(out.dtype);
  auto state = std::make_shared<Numbers>();
  state->bytes = out.bytes();
  state->values = builder.pack(out.bytes(), [&](void* to) {
    for (size_t n = 0; n < numbers.size(); ++n)
      std::memcpy(static_cast<char*>(to) + n * item_size, &numbers[n], item_size);
  });
  Step step;
  step.name = label(node);
  step.fn = &Numbers::run;
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

Refusal support_numbers(const Graph& graph, const Node& node, const Settings& settings) {
  const int32_t dtype = graph.out(node).dtype;
  if (dtype != IPR_DTYPE_INT32 && dtype != IPR_DTYPE_INT64 && dtype != IPR_DTYPE_UINT32)
    return refused("the result is " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_shape(const Node& node, Builder& builder) { write_numbers(node, builder, builder.graph.in(node, 0)->shape); }

void lower_rank(const Node& node, Builder& builder) {
  write_numbers(node, builder, {int64_t(builder.graph.in(node, 0)->rank())});
}

// ---- Diagonals ------------------------------------------------------------------------------------------------------

/// The part of one diagonal of matrices: the offset of its first element, and its length.
struct Diagonal {
  int64_t offset, length;
};

/// The diagonal j - i = k.
Diagonal diagonal(int64_t rows, int64_t columns, int64_t k) {
  const int64_t length = std::max<int64_t>(0, k >= 0 ? std::min(rows, columns - k) : std::min(rows + k, columns));
  return {k >= 0 ? k : -k * columns, length};
}

struct Ones {
  Diagonal diagonal;
  int64_t step, item_size;
  char one[8];

  static void run(const Step& step, const Run& run, int, int) {
    const Ones& self = step.as<Ones>();
    char* to = run.at<char>(step.out[0]) + self.diagonal.offset * self.item_size;
    for (int64_t n = 0; n < self.diagonal.length; ++n, to += self.step * self.item_size)
      std::memcpy(to, self.one, size_t(self.item_size));
  }
};

Refusal support_eye(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& out = graph.out(node);
  if (out.is_quantized()) return refused("the result is quantized", IPR_REASON_QUANTIZATION);
  if (graph.in(node, 0)->is_quantized()) return refused("operand 0 is quantized", IPR_REASON_QUANTIZATION);
  for (double value : {0.0, 1.0})
    if (Refusal why = can_encode(out, value)) return why;
  return without_posts(graph, node, settings);
}

void lower_eye(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  fill(node, builder, 0);
  auto state = std::make_shared<Ones>();
  state->diagonal = diagonal(out.shape[0], out.shape[1], node.integer("k"));
  state->step = out.shape[1] + 1;
  state->item_size = int64_t(ipr::item_size(out.dtype));
  encode(1, out, state->one);
  Step step;
  step.name = label(node);
  step.fn = &Ones::run;
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

/// Copy rows to the diagonals of the matrices of the result.
void copy_diagonals(const Node& node, Builder& builder, int rows) {
  const Tensor &from = *builder.graph.in(node, size_t(rows)), &out = builder.graph.out(node);
  const int64_t length = from.extent(-1), matrix = out.extent(-2) * out.extent(-1);
  if (from.elements() == 0) return;
  Axes axes = {{from.elements() / length, length, matrix}, {length, 1, out.extent(-1) + 1}};
  builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[size_t(rows)]),
                        builder.buffer(node.outputs[0]), axes, ipr::item_size(out.dtype)));
}

Refusal support_diagonal(const Graph& graph, const Node& node, const Settings& settings) {
  if (!graph.in(node, 0)->same_quantization(graph.out(node)))
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  if (Refusal why = can_encode(graph.out(node), 0)) return why;
  return without_posts(graph, node, settings);
}

void lower_diagonal(const Node& node, Builder& builder) {
  fill(node, builder, 0);
  copy_diagonals(node, builder, 0);
}

Refusal support_set_diagonal(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& out = graph.out(node);
  for (size_t n : {0, 1})
    if (!graph.in(node, n)->same_quantization(out))
      return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_set_diagonal(const Node& node, Builder& builder) {
  builder.add(duplicate_step(builder, node));
  copy_diagonals(node, builder, 1);
}

// ---- The same bytes -------------------------------------------------------------------------------------------------

void copy_bytes(const Node& node, Builder& builder, int result) {
  const int in = node.inputs[0];
  if (builder.share(result, in)) return;
  const Axes axes = {{int64_t(builder.graph[result].bytes()), 1, 1}};
  builder.add(copy_step(builder, label(node), builder.buffer(in), builder.buffer(result), axes, 1));
}

/// Return whether tensors have fewer bits than the bytes that hold their elements.
bool has_unused_bits(int32_t dtype) {
  return dtype == IPR_DTYPE_BOOL || dtype == IPR_DTYPE_INT4 || dtype == IPR_DTYPE_UINT4 || dtype == IPR_DTYPE_INT2 ||
         dtype == IPR_DTYPE_UINT2 || dtype >= IPR_DTYPE_FLOAT6_E2M3FN;
}

Refusal support_bitcast(const Graph& graph, const Node& node, const Settings& settings) {
  for (const Tensor* tensor : {graph.in(node, 0), &graph.out(node)})
    if (has_unused_bits(tensor->dtype))
      return refused("not all bits are those of a " + described(*tensor), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_first(const Node& node, Builder& builder) { copy_bytes(node, builder, node.outputs[0]); }

void lower_switch(const Node& node, Builder& builder) {
  for (int result : node.outputs) copy_bytes(node, builder, result);
}

// ---- Hardmax --------------------------------------------------------------------------------------------------------

struct Hardest {
  SearchColumns search;
  const MoveKernels* moves;
  Around at;
  int64_t from_item, item_size;
  char one[8], zero[8];

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Hardest& self = step.as<Hardest>();
    const Range range = split(self.at.outer, part, parts);
    const int64_t slice = self.at.extent * self.at.inner;
    const char* in = run.at<char>(step.in[0]) + range.first * slice * self.from_item;
    char* out = run.at<char>(step.out[0]) + range.first * slice * self.item_size;
    const int64_t count = range.last - range.first;
    self.moves->fill(out, self.zero, self.item_size, count * slice);
    if (self.at.inner == 1) return self.pieces(in, out, count, self.at.extent, 1);
    for (int64_t n = 0; n < count; ++n)
      self.pieces(in + n * slice * self.from_item, out + n * slice * self.item_size, self.at.inner, 1, self.at.inner);
  }

  /// Mark the largest element of `count` columns or rows, which begin `distance` elements apart.
  void pieces(const char* in, char* out, int64_t count, int64_t distance, int64_t step) const {
    constexpr int64_t kPiece = 256;
    int32_t indices[kPiece];
    for (int64_t first = 0; first < count; first += kPiece) {
      const int64_t last = std::min(first + kPiece, count);
      search({in, at.extent, at.inner, first, last}, {false, false}, indices);
      for (int64_t n = first; n < last; ++n)
        std::memcpy(out + (indices[n - first] * step + n * distance) * item_size, one, size_t(item_size));
    }
  }
};

Refusal support_hardmax(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!select_kernels_for(settings.isa).search(in.dtype) || in.is_quantized() != out.is_quantized() || in.has_axis())
    return refused("Hardmax of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  if (!in.is_quantized() && !is_f32(in))
    return refused("Hardmax of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  if (in.is_quantized() && ipr::item_size(in.dtype) > 2)  // the reference compares float32
    return refused("Hardmax of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  for (double value : {0.0, 1.0})
    if (Refusal why = can_encode(out, value)) return why;
  return without_posts(graph, node, settings);
}

void lower_hardmax(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (in.elements() == 0) return;
  auto state = std::make_shared<Hardest>();
  state->search = select_kernels_for(builder.settings.isa).search(in.dtype);
  state->moves = &move_kernels_for(builder.settings.isa);
  state->at = around(in.shape, axis_of(node.integer("axis", -1), in.rank()));
  state->from_item = int64_t(ipr::item_size(in.dtype)), state->item_size = int64_t(ipr::item_size(out.dtype));
  encode(0, out, state->zero);
  encode(1, out, state->one);
  Step step;
  step.name = label(node);
  step.fn = &Hardest::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * (cost::kSearchNs + cost::kElementNs));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family fills_family() {
  return {{{"Fill", "plain", support_fill, lower_fill, nullptr},
           {"Shape", "plain", support_numbers, lower_shape, nullptr},
           {"Rank", "plain", support_numbers, lower_rank, nullptr},
           {"EyeLike", "plain", support_eye, lower_eye, nullptr},
           {"MatrixDiag", "plain", support_diagonal, lower_diagonal, nullptr},
           {"MatrixSetDiag", "plain", support_set_diagonal, lower_set_diagonal, nullptr},
           {"Bitcast", "plain", support_bitcast, lower_first, nullptr},
           {"Merge", "plain", without_posts, lower_first, nullptr},
           {"Switch", "plain", without_posts, lower_switch, nullptr},
           {"Hardmax", "plain", support_hardmax, lower_hardmax, nullptr}},
          {}};
}

}  // namespace cpuacc
