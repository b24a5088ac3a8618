// BlockDequantize, and Dequantize of integers of less than 8 bits.

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/packed_weights.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr uint64_t kMostFoldedBytes = uint64_t{1} << 25;  // larger constants are dequantized in each run

/// The place of scales: those of element (o, i, n) of the tensor [outer][size][inner] are at (o, i / block, n), each
/// multiplied by its stride.
struct Blocks {
  int32_t dtype;
  int64_t outer, size, inner, block;
  int64_t scale_outer, scale_block, scale_inner;

  /// Dequantize the elements of `outer` in [first, last).
  void run(const void* codes, const float* scales, const void* zeros, float* out, int64_t first, int64_t last) const {
    switch (dtype) {
      case IPR_DTYPE_INT8:
        return of_whole<int8_t>(codes, scales, zeros, out, first, last);
      case IPR_DTYPE_UINT8:
        return of_whole<uint8_t>(codes, scales, zeros, out, first, last);
      case IPR_DTYPE_INT16:
        return of_whole<int16_t>(codes, scales, zeros, out, first, last);
      case IPR_DTYPE_UINT16:
        return of_whole<uint16_t>(codes, scales, zeros, out, first, last);
      default:
        of_few_bits(codes, scales, zeros, out, first, last);
    }
  }

 private:
  /// Elements whose scales and zero points are `step` elements apart.
  template <class T>
  static void of_row(const T* codes, const float* scales, const T* zeros, int64_t step, float* out, int64_t count) {
    for (int64_t n = 0; n < count; ++n)
      out[n] = float(int32_t(codes[n]) - (zeros ? int32_t(zeros[n * step]) : 0)) * scales[n * step];
  }

  /// Integers of whole bytes. The elements of a block are adjacent if `inner` is 1.
  template <class T>
  void of_whole(const void* codes, const float* scales, const void* zeros, float* out, int64_t first,
                int64_t last) const {
    const T *from = static_cast<const T*>(codes), *zero = static_cast<const T*>(zeros);
    const bool joins = inner == 1 || scale_inner == 0;
    const int64_t length = joins ? block : 1;
    for (int64_t o = first; o < last; ++o)
      for (int64_t i = 0; i < size; i += length) {
        const int64_t at = (o * size + i) * inner, scale = o * scale_outer + i / block * scale_block;
        const int64_t count = std::min(length, size - i) * inner;
        of_row(from + at, scales + scale, zero ? zero + scale : nullptr, joins ? 0 : scale_inner, out + at, count);
      }
  }

  void of_few_bits(const void* codes, const float* scales, const void* zeros, float* out, int64_t first,
                   int64_t last) const {
    for (int64_t o = first; o < last; ++o)
      for (int64_t i = 0; i < size; ++i) {
        const int64_t at = (o * size + i) * inner, scale = o * scale_outer + i / block * scale_block;
        for (int64_t n = 0; n < inner; ++n) {
          const int64_t from = scale + n * scale_inner;
          const int32_t zero = zeros ? integer_at(zeros, dtype, from) : 0;
          out[at + n] = float(integer_at(codes, dtype, at + n) - zero) * scales[from];
        }
      }
  }
};

Blocks blocks_of_node(const Graph& graph, const Node& node) {
  const Tensor& in = *graph.in(node, 0);
  const Around at = around(in.shape, axis_of(node.integer("axis", 1), in.rank()));
  const int64_t block = std::clamp<int64_t>(node.integer("block_size"), 1, std::max<int64_t>(at.extent, 1));
  const int64_t count = (at.extent + block - 1) / block;
  return {in.dtype, at.outer, at.extent, at.inner, block, count * at.inner, at.inner, 1};
}

struct Dequantization {
  Blocks blocks;
  // of Dequantize, which has no operands for them; the integers of zero points have the type of the tensor
  std::vector<float> scales;
  std::vector<uint8_t> zeros;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Dequantization& self = step.as<Dequantization>();
    Range range = split(self.blocks.outer, part, parts);
    const float* scales = self.scales.empty() ? run.at<float>(step.in[1]) : self.scales.data();
    const void* zeros = !self.zeros.empty() ? self.zeros.data() : step.in[2] ? run.at(step.in[2]) : nullptr;
    self.blocks.run(run.at(step.in[0]), scales, zeros, run.at<float>(step.out[0]), range.first, range.last);
  }
};

void add_step(const Node& node, Dequantization dequantization, Builder& builder) {
  auto operand = [&](size_t n) { return builder.buffer(n < node.inputs.size() ? int(node.inputs[n]) : -1); };
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Dequantization::run;
  step.max_parts = parts_for(builder.settings, double(builder.graph.out(node).elements()) * cost::kQuantizeNs);
  step.in = {operand(0), operand(1), operand(2)};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Dequantization>(std::move(dequantization));
  builder.add(std::move(step));
}

bool has_at_most_16_bits(int32_t dtype) {
  return has_few_bits(dtype) || dtype == IPR_DTYPE_INT16 || dtype == IPR_DTYPE_UINT16;
}

Refusal support_blocks(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &scale = *graph.in(node, 1), *zero = graph.in(node, 2);
  if (!has_at_most_16_bits(in.dtype) || (zero && zero->dtype != in.dtype) || !is_f32(scale) || !is_f32(graph.out(node)))
    return refused("takes integers of at most 16 bits with float32 scales, and gives float32", IPR_REASON_DATA_TYPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_blocks(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  add_step(node, {blocks_of_node(builder.graph, node), {}, {}}, builder);
}

/// The scales of a tensor, as blocks of one index of its axis.
bool dequantization_of(const Tensor& in, Dequantization& dequantization) {
  const Around at = in.has_axis() ? around(in.shape, in.axis) : Around{1, in.elements(), 1};
  const size_t count = in.has_axis() ? size_t(at.extent) : 1;
  if (in.scales.size() != count || (in.zero_points.size() > 1 && in.zero_points.size() != count)) return false;
  dequantization.blocks = {in.dtype, at.outer, at.extent, at.inner, in.has_axis() ? 1 : std::max<int64_t>(1, at.extent),
                           0,        1,        0};
  for (double scale : in.scales) dequantization.scales.push_back(float(scale));
  for (size_t n = 0; n < count && !in.zero_points.empty(); ++n) {
    const int64_t zero = in.zero_points[in.zero_points.size() > 1 ? n : 0];
    dequantization.zeros.push_back(uint8_t(zero));
    if (integer_at(dequantization.zeros.data(), in.dtype, int64_t(n)) != zero) return false;
  }
  return true;
}

Refusal support_few_bits(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& in = *graph.in(node, 0);
  Dequantization dequantization;
  const bool bytes = in.dtype == IPR_DTYPE_INT8 || in.dtype == IPR_DTYPE_UINT8;  // other kernels are faster
  if (bytes || !has_few_bits(in.dtype) || !is_f32(graph.out(node)) || !dequantization_of(in, dequantization))
    return refused("takes integers of less than 8 bits with scales, and gives float32", IPR_REASON_DATA_TYPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_few_bits(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  Dequantization dequantization;
  dequantization_of(*builder.graph.in(node, 0), dequantization);
  add_step(node, std::move(dequantization), builder);
}

// ---- Constants ------------------------------------------------------------------------------------------------------

bool are_constant(const Graph& graph, const Node& node) {
  for (size_t n = 0; n < node.inputs.size(); ++n)
    if (graph.in(node, n) && !graph.in(node, n)->is_constant()) return false;
  return true;
}

/// Return whether Dequantize gives float32 for integers of few bits, and set their scales.
bool is_foldable(const Graph& graph, const Node& node, Dequantization& dequantization) {
  const Tensor& in = *graph.in(node, 0);
  return has_few_bits(in.dtype) && is_f32(graph.out(node)) && dequantization_of(in, dequantization);
}

/// Replace the dequantization of a constant by a constant.
bool fold(Graph& graph, const Node& node, const Settings& settings) {
  const bool blocks = node.type == "BlockDequantize";
  if ((!blocks && node.type != "Dequantize") || !are_constant(graph, node) || !node.posts.empty()) return false;
  const int result = node.outputs[0];
  if (graph.is_border(result) || graph[result].elements() == 0 || graph[result].bytes() > kMostFoldedBytes)
    return false;
  Dequantization dequantization;
  if (blocks ? bool(support_blocks(graph, node, settings)) : !is_foldable(graph, node, dequantization)) return false;
  if (blocks) dequantization.blocks = blocks_of_node(graph, node);
  auto values = std::make_shared<std::vector<float>>(size_t(graph[result].elements()));
  const Tensor* zero = blocks ? graph.in(node, 2) : nullptr;
  const void* zeros = zero ? zero->data : dequantization.zeros.empty() ? nullptr : dequantization.zeros.data();
  dequantization.blocks.run(graph.in(node, 0)->data,
                            blocks ? graph.in(node, 1)->values<float>() : dequantization.scales.data(), zeros,
                            values->data(), 0, dequantization.blocks.outer);
  graph[result].data = values->data();
  graph[result].owner = std::move(values);
  graph.nodes.replace(node, Node());
  return true;
}

bool fold_all(Graph& graph, const Settings& settings) {
  bool changed = false;
  for (const Node& node : graph.nodes) changed = fold(graph, node, settings) || changed;
  return changed;
}

}  // namespace

Family block_dequantize_family() {
  return {{{"BlockDequantize", "blocks", support_blocks, lower_blocks, nullptr},
           {"Dequantize", "few bits", support_few_bits, lower_few_bits, nullptr}},
          {{"dequantized constants", fold_all}}};
}

}  // namespace cpuacc
