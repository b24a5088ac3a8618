// BatchMatMul and FullyConnected of float64 and of unquantized integers. Results of integers wrap around.

#include "cpuacc/kernels/plain_products.hpp"

#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/matrices.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr double kOperationsPerNs = 16;  // of float64; the other types have about the same rate
constexpr int64_t kFewRows = 8;          // turning the second operand takes as long as several of them

struct Products {
  MultiplyPlain multiply;
  PlainProduct product;
  int64_t size, rows;                   // of an element in bytes; of a matrix
  bool is_b_turned;                     // the columns of the second operand are contiguous, not its rows
  bool turns_b, is_b_packed, is_float;  // to have its rows, or its columns for dot products
  const void* packed;
  std::vector<int64_t> a_places, b_places;

  uint64_t bytes_of_b() const { return uint64_t(product.depth * product.columns * size); }

  /// Copy a matrix of columns to rows, or one of rows to columns.
  template <class T>
  void turn(const void* from, void* to) const {
    const T* in = static_cast<const T*>(from);
    T* out = static_cast<T*>(to);
    const int64_t rows = is_b_turned ? product.columns : product.depth;
    const int64_t length = is_b_turned ? product.depth : product.columns;
    for (int64_t n = 0; n < length; ++n)
      for (int64_t row = 0; row < rows; ++row) out[n * rows + row] = in[row * length + n];
  }

  void turn(const void* from, void* to) const {
    by_item_size(size, [&](auto item) { turn<decltype(item)>(from, to); });
  }

  /// The second operand of matrix `n`, as the kernel reads it; a turned one is in `scratch`.
  const char* read_b(const Step& step, const Run& run, int64_t n, char* scratch) const {
    if (is_b_packed) return static_cast<const char*>(packed);
    const char* b = run.at<char>(step.in[1]) + b_places[size_t(n)] * size;
    if (!turns_b) return b;
    turn(b, scratch);
    return scratch;
  }

  template <class T>
  void add_bias(const void* bias, void* out, int64_t first, int64_t last) const {
    const T* added = static_cast<const T*>(bias);
    T* to = static_cast<T*>(out);
    for (int64_t row = first; row < last; ++row)
      for (int64_t n = 0; n < product.columns; ++n)
        to[row * product.columns + n] = T(to[row * product.columns + n] + added[n]);
  }

  void add_bias(const void* bias, void* out, int64_t first, int64_t last) const {
    is_float    ? add_bias<double>(bias, out, first, last)
    : size == 1 ? add_bias<uint8_t>(bias, out, first, last)
    : size == 2 ? add_bias<uint16_t>(bias, out, first, last)
    : size == 4 ? add_bias<uint32_t>(bias, out, first, last)
                : add_bias<uint64_t>(bias, out, first, last);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Products& self = step.as<Products>();
    const Range range = split(int64_t(self.a_places.size()) * self.rows, part, parts);
    for (int64_t row = range.first; row < range.last;) {
      const int64_t n = row / self.rows, first = row % self.rows;
      const int64_t last = std::min(self.rows, first + range.last - row);
      const char* b = self.read_b(step, run, n, run.part_scratch<char>(part));
      char* out = run.at<char>(step.out[0]) + n * self.rows * self.product.columns * self.size;
      self.multiply(self.product, run.at<char>(step.in[0]) + self.a_places[size_t(n)] * self.size, b, out, first, last);
      if (step.in[2]) self.add_bias(run.at(step.in[2]), out, first, last);
      row += last - first;
    }
  }
};

/// Return whether dot products are faster: for columns that fill no vector, and for few rows if the columns of the
/// second operand are contiguous and would be turned in each run.
bool prefers_dots(const Products& products, const PlainProductFunctions& functions, bool is_packable) {
  if (products.product.a_by_depth != 1) return false;
  const bool saves_turns = products.is_b_turned && !is_packable && products.rows <= kFewRows;
  return saves_turns || products.product.columns < functions.vector_columns;
}

/// Choose the kernel, and turn the second operand for it.
void choose_kernel(const Tensor& b, Products& products, Builder& builder) {
  const PlainProductFunctions& functions = *plain_product_kernels_for(builder.settings.isa).of(b.dtype);
  const bool is_packable = b.is_constant() && b.rank() == 2, are_dots = prefers_dots(products, functions, is_packable);
  products.multiply = are_dots ? functions.dot : functions.multiply;
  products.turns_b = products.is_b_turned != are_dots && products.product.columns > 1;
  products.is_b_packed = products.turns_b && is_packable;
  if (products.is_b_packed)
    products.packed = builder.pack(products.bytes_of_b(), [&](void* to) { products.turn(b.values<uint64_t>(), to); });
}

void add_step(const Node& node, Products products, Builder& builder) {
  const Tensor& b = *builder.graph.in(node, 1);
  const double operations = 2 * double(products.a_places.size()) * double(products.rows) *
                            double(products.product.columns) * double(products.product.depth);
  auto state = std::make_shared<Products>(std::move(products));
  state->size = int64_t(ipr::item_size(b.dtype));
  state->is_float = b.dtype == IPR_DTYPE_FLOAT64;
  choose_kernel(b, *state, builder);
  Step step;
  step.name = "plain product " + node.name;
  step.fn = &Products::run;
  step.operations = operations;
  step.max_parts = parts_for(builder.settings, operations / kOperationsPerNs);
  step.scratch_per_part = state->turns_b && !state->is_b_packed ? state->bytes_of_b() : 0;
  step.in = {builder.buffer(node.inputs[0]), state->is_b_packed ? Buffer() : builder.buffer(node.inputs[1]),
             builder.buffer(node.inputs.size() > 2 ? node.inputs[2] : -1)};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

bool is_integer(const Tensor& tensor) { return tensor.dtype >= IPR_DTYPE_INT8 && tensor.dtype <= IPR_DTYPE_UINT64; }

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  if ((a.dtype != IPR_DTYPE_FLOAT64 && !is_integer(a)) || a.is_quantized() || b.is_quantized() || out.is_quantized() ||
      b.dtype != a.dtype || out.dtype != a.dtype)
    return refused("operand 0 is " + described(a) + ", operand 1 " + described(b), IPR_REASON_DATA_TYPE);
  if (node.flag("adjoint_x") || node.flag("adjoint_y")) return refused("adjugate matrices", IPR_REASON_ATTRIBUTE);
  const Tensor* bias = graph.in(node, 2);
  if (bias && bias->dtype != a.dtype) return refused("bias is " + described(*bias), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_batch_matmul(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  if (graph.out(node).elements() == 0) return;
  Matrices matrices = matrices_of(graph, node);
  Products products{};
  products.rows = matrices.rows;
  products.product = {matrices.columns, matrices.depth, matrices.a_by_row, matrices.a_by_depth};
  products.is_b_turned = matrices.is_b_turned;
  products.a_places = std::move(matrices.a_places), products.b_places = std::move(matrices.b_places);
  add_step(node, std::move(products), builder);
}

void lower_fully_connected(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& weights = *graph.in(node, 1);
  if (graph.out(node).elements() == 0) return;
  Products products{};
  products.is_b_turned = node.flag("transpose_weight_matrix");
  const int64_t depth = weights.extent(products.is_b_turned ? 1 : 0);
  const int64_t columns = weights.extent(products.is_b_turned ? 0 : 1);
  products.rows = graph.out(node).elements() / columns;
  products.product = {columns, depth, depth, 1};
  products.a_places = products.b_places = {0};
  add_step(node, std::move(products), builder);
}

}  // namespace

Family plain_products_family() {
  return {{{"BatchMatMul", "plain", support, lower_batch_matmul, nullptr},
           {"FullyConnected", "plain", support, lower_fully_connected, nullptr}},
          {}};
}

}  // namespace cpuacc
