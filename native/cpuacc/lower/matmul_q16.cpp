// BatchMatMul of quantized tensors of 16 bits, and of 8 bits in forms that lower/matmul_q8.cpp does not take: vectors,
// two types, scales of columns. Sums are exact. Elements of 16 bits are multiplied in two halves of 8 bits, whose
// products vectors sum in 32 bits.

#include "cpuacc/kernels/wide.hpp"

#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/matrices.hpp"
#include "cpuacc/lower/requantize_wide.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kColumns = 8;          // that are gathered and multiplied together
constexpr int64_t kMostBytes = 1 << 26;  // of the rows of a matrix

/// One operand, minus its zero point.
struct Operand {
  std::vector<int64_t> places;  // of its matrices, for each matrix of the result
  int64_t by_outer, by_depth;   // steps between rows of the first operand or columns of the second, and along them
  int32_t dtype;
  int64_t zero;

  template <class T>
  void read(const T* from, int64_t depth, int16_t* to) const {
    for (int64_t k = 0; k < depth; ++k) to[k] = int16_t(from[k * by_depth] - zero);
  }

  /// Copy row or column number `n` of a matrix.
  void copy(const char* data, int64_t place, int64_t n, int64_t depth, int16_t* to) const {
    const int64_t at = place + n * by_outer;
    if (dtype == IPR_DTYPE_INT16) return read(reinterpret_cast<const int16_t*>(data) + at, depth, to);
    if (dtype == IPR_DTYPE_INT8) return read(reinterpret_cast<const int8_t*>(data) + at, depth, to);
    read(reinterpret_cast<const uint8_t*>(data) + at, depth, to);
  }
};

struct Product {
  const WideKernels* kernels;
  WideRequantization requantization;
  Operand a, b;
  int64_t rows, depth, columns;
  int32_t out_dtype;

  int64_t padded() const { return (depth + kWideGrain - 1) / kWideGrain * kWideGrain; }
  bool is_wide() const { return a.dtype == IPR_DTYPE_INT16; }
  int64_t halves() const { return is_wide() ? 2 : 1; }
  uint64_t scratch() const {
    return uint64_t(halves() * rows + kColumns) * uint64_t(padded()) * 2 + uint64_t(halves() * kColumns * rows) * 8 +
           64;
  }

  /// Copy the rows of a matrix: the high halves of all rows, which have a sign, then the low ones.
  void copy_rows(const char* data, int64_t place, int16_t* to) const {
    const int64_t size = padded(), all = rows * size;
    std::memset(to, 0, size_t(halves() * all) * sizeof *to);
    for (int64_t row = 0; row < rows; ++row) {
      int16_t* high = to + row * size;
      a.copy(data, place, row, depth, high);
      for (int64_t k = 0; is_wide() && k < depth; ++k) {
        high[all + k] = int16_t(high[k] & 255);
        high[k] = int16_t(high[k] >> 8);
      }
    }
  }

  void write(char* out, int64_t place, int64_t code) const {
    if (out_dtype == IPR_DTYPE_INT16)
      reinterpret_cast<int16_t*>(out)[place] = int16_t(code);
    else if (out_dtype == IPR_DTYPE_INT8)
      reinterpret_cast<int8_t*>(out)[place] = int8_t(std::clamp<int64_t>(code, -128, 127));
    else
      reinterpret_cast<uint8_t*>(out)[place] = uint8_t(std::clamp<int64_t>(code, 0, 255));
  }

  void one_matrix(const int16_t* row, const char* b_data, int64_t place, char* out, int64_t first,
                  char* scratch) const {
    const int64_t size = padded();
    int64_t* sums = reinterpret_cast<int64_t*>(scratch);
    int64_t* low = sums + kColumns * rows;
    int16_t* column = reinterpret_cast<int16_t*>(sums + halves() * kColumns * rows);
    std::memset(column, 0, size_t(kColumns * size) * sizeof *column);
    for (int64_t c = 0; c < columns; c += kColumns) {
      const int64_t count = std::min(kColumns, columns - c);
      for (int64_t n = 0; n < count; ++n) b.copy(b_data, place, c + n, depth, column + n * size);
      kernels->multiply(row, column, size, count, size, rows, true, sums, rows);
      if (is_wide()) kernels->multiply(row + rows * size, column, size, count, size, rows, true, low, rows);
      for (int64_t n = 0; n < count; ++n)
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t at = n * rows + r, sum = is_wide() ? sums[at] * 256 + low[at] : sums[at];
          write(out, first + r * columns + c + n, requantization.code(sum, c + n));
        }
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Product& self = step.as<Product>();
    const Range range = split(int64_t(self.a.places.size()), part, parts);
    int16_t* rows = run.part_scratch<int16_t>(part);
    char* rest = reinterpret_cast<char*>(rows + self.halves() * self.rows * self.padded());
    int64_t copied = -1;
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t place = self.a.places[size_t(n)];
      if (place != copied) self.copy_rows(run.at<char>(step.in[0]), place, rows);
      copied = place;
      self.one_matrix(rows, run.at<char>(step.in[1]), self.b.places[size_t(n)], run.at<char>(step.out[0]),
                      n * self.rows * self.columns, rest);
    }
  }
};

bool is_taken(const Tensor& tensor) {
  if (tensor.dtype == IPR_DTYPE_INT16) return tensor.is_quantized() && tensor.zero_point() == 0;
  return (tensor.dtype == IPR_DTYPE_INT8 || tensor.dtype == IPR_DTYPE_UINT8) && tensor.is_quantized();
}

/// Scales along an axis have to be those of the columns of the second operand, with one zero point.
bool has_scales_of_columns(const Tensor& b, const Matrices& sizes) {
  if (!b.has_axis()) return true;
  const std::vector<int64_t>& zeros = b.zero_points;
  return b.rank() > 1 && b.axis == (sizes.is_b_turned ? b.rank() - 2 : b.rank() - 1) &&
         std::all_of(zeros.begin(), zeros.end(), [&](int64_t zero) { return zero == zeros[0]; });
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  if (!is_taken(a) || a.has_axis()) return refused("operand 0 is " + described(a), IPR_REASON_DATA_TYPE);
  if (!is_taken(b)) return refused("operand 1 is " + described(b), IPR_REASON_DATA_TYPE);
  if (!is_taken(out) || out.has_axis()) return refused("the result is " + described(out), IPR_REASON_DATA_TYPE);
  if (a.dtype != IPR_DTYPE_INT16 && b.dtype == IPR_DTYPE_INT16)
    return refused("operand 1 has more bits than operand 0", IPR_REASON_DATA_TYPE);
  if (node.flag("adjoint_x") || node.flag("adjoint_y")) return refused("adjugate matrices", IPR_REASON_ATTRIBUTE);
  const Matrices sizes = matrices_of(graph, node);
  if (!has_scales_of_columns(b, sizes))
    return refused("the scales of operand 1 are not those of its columns", IPR_REASON_QUANTIZATION);
  if (has_too_large_scale(graph, node)) return refused("a scale is too large", IPR_REASON_QUANTIZATION);
  if (double(sizes.rows + kColumns) * double(sizes.depth + kWideGrain) * 4 > double(kMostBytes))
    return refused("matrices of this size", IPR_REASON_RESOURCE);
  return without_posts(graph, node, settings);
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  if (out.elements() == 0) return;
  const Matrices sizes = matrices_of(graph, node);
  auto state = std::make_shared<Product>();
  state->kernels = &wide_kernels_for(builder.settings.isa);
  state->rows = sizes.rows, state->depth = sizes.depth, state->columns = sizes.columns;
  state->a = {sizes.a_places, sizes.a_by_row, sizes.a_by_depth, a.dtype, a.zero_point()};
  state->b = {sizes.b_places, sizes.b_by_column, sizes.b_by_depth, b.dtype, b.zero_point()};
  state->out_dtype = out.dtype;
  state->requantization = wide_requantization_of(node, builder, sizes.columns);
  const int64_t matrices = int64_t(sizes.a_places.size());
  const double products = double(matrices * sizes.rows * sizes.columns) * double(sizes.depth);
  Step step;
  step.name = "BatchMatMul " + node.name;
  step.fn = &Product::run;
  step.max_parts =
      int(std::min<int64_t>(parts_for(builder.settings, products / cost::kQuantizedProductsPerNs * 8), matrices));
  step.scratch_per_part = state->scratch();
  step.operations = 2 * products;
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family matmul_q16_family() { return {{{"BatchMatMul", "exact sums", support, lower, nullptr, true}}, {}}; }

}  // namespace cpuacc
