// Softmax of float32, and reductions of float32 and integers.

#include <algorithm>

#include "cpuacc/kernels/accumulate.hpp"
#include "cpuacc/kernels/rows.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

Refusal plain_f32(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  return all_f32(graph, node);
}

/// Slices of `inner` columns. Parts are whole slices, or columns if there are few slices.
struct Slices {
  int64_t outer, extent, inner;

  template <class Function>
  void each(int part, int parts, Function function) const {
    if (outer >= parts || inner < 64) {
      Range range = split(outer, part, parts);
      for (int64_t n = range.first; n < range.last; ++n) function(n, 0, inner);
      return;
    }
    Range columns = split(inner, part, parts, 16);
    if (columns.first == columns.last) return;
    for (int64_t n = 0; n < outer; ++n) function(n, columns.first, columns.last);
  }
};

// ---- Softmax --------------------------------------------------------------------------------------------------------

struct Softmax {
  const SoftmaxKernels* kernels;
  Slices slices;
  float beta;
  bool logarithm;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Softmax& self = step.as<Softmax>();
    const Slices& at = self.slices;
    const float* in = run.at<float>(step.in[0]);
    float* out = run.at<float>(step.out[0]);
    at.each(part, parts, [&](int64_t n, int64_t first, int64_t last) {
      int64_t place = n * at.extent * at.inner;
      self.kernels->softmax(in + place, out + place, at.extent, at.inner, first, last, self.beta, self.logarithm);
    });
  }
};

void lower_softmax(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  Around at = around(in.shape, axis_of(node.integer("axis", -1), in.rank()));
  auto state = std::make_shared<Softmax>();
  state->kernels = &softmax_kernels_for(builder.settings.isa);
  state->slices = {at.extent == 0 ? 0 : at.outer, at.extent, at.inner};
  state->beta = float(node.number("beta", 1));
  state->logarithm = node.type == "LogSoftmax";
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Softmax::run;
  step.max_parts =
      parts_for(builder.settings, double(in.elements()) *
                                      (state->logarithm || at.inner > 1 ? cost::kSoftmaxColumnsNs : cost::kSoftmaxNs));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Reductions -----------------------------------------------------------------------------------------------------

struct Named {
  const char* name;
  Reduction operation;
};

const Named kNamed[] = {{"SUM", Reduction::sum},
                        {"MAX", Reduction::max},
                        {"MEAN", Reduction::mean},
                        {"MIN", Reduction::min},
                        {"PROD", Reduction::prod},
                        {"L1", Reduction::l1},
                        {"L2", Reduction::l2},
                        {"LOG_SUM", Reduction::log_sum},
                        {"LOG_SUM_EXP", Reduction::log_sum_exp},
                        {"SUM_SQUARE", Reduction::sum_square}};

Reduction reduction_of(const Node& node) {
  if (node.type == "Mean") return Reduction::mean;
  for (const Named& candidate : kNamed)
    if (node.text("operation") == candidate.name) return candidate.operation;
  return Reduction::none;
}

/// Return whether a reduction computes with the stored numbers: those of unquantized tensors, and the extremes of wide
/// quantized values that keep their quantization.
bool takes_stored_numbers(const Node& node, const Tensor& in, const Tensor& out) {
  if (!in.is_quantized() && !out.is_quantized()) return true;
  const Reduction operation = reduction_of(node);
  return (operation == Reduction::max || operation == Reduction::min) && ipr::item_size(in.dtype) >= 4 &&
         in.dtype == out.dtype && in.same_quantization(out);
}

/// The kernel for integers, truth values and float64; nullptr if there is none.
ReduceColumns reduction_in_type(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (is_f32(in) || !takes_stored_numbers(node, in, graph.out(node))) return nullptr;
  Reduction operation = reduction_of(node);
  if (node.text("operation") == "ANY") operation = Reduction::max;
  if (node.text("operation") == "ALL") operation = Reduction::min;
  return accumulate_kernels_for(settings.isa).reduce(operation, in.dtype);
}

struct Reducing {
  const ReduceKernels* kernels;
  ReduceColumns columns;  // of the other types; nullptr: float32
  int64_t item_size;
  Reduction operation;
  Slices slices;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Reducing& self = step.as<Reducing>();
    const Slices& at = self.slices;
    const char* in = run.at<char>(step.in[0]);
    char* out = run.at<char>(step.out[0]);
    at.each(part, parts, [&](int64_t n, int64_t first, int64_t last) {
      const char* from = in + n * at.extent * at.inner * self.item_size;
      char* to = out + n * at.inner * self.item_size;
      if (self.columns) return self.columns(from, to, at.extent, at.inner, first, last);
      self.kernels->reduce(self.operation, reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to),
                           at.extent, at.inner, first, last);
    });
  }
};

Refusal reduce_support(const Graph& graph, const Node& node, const Settings& settings) {
  if (node.posts.empty() && reduction_in_type(graph, node, settings)) return taken();
  Refusal why = plain_f32(graph, node, settings);
  if (why) return why;
  if (reduction_of(node) != Reduction::none) return taken();
  return refused(std::string(node.text("operation")) + " of float32 is not supported", IPR_REASON_ATTRIBUTE);
}

/// Adjacent axes that are all reduced or all retained, merged.
struct Group {
  bool reduced;
  int64_t extent;
};

std::vector<Group> groups_of(const Tensor& in, const std::vector<int64_t>& axes) {
  std::vector<char> reduced(in.shape.size(), axes.empty());
  for (int64_t axis : axes) reduced[size_t(axis_of(axis, in.rank()))] = 1;
  std::vector<Group> groups;
  for (size_t n = 0; n < in.shape.size(); ++n) {
    if (in.shape[n] == 1) continue;
    if (!groups.empty() && groups.back().reduced == bool(reduced[n]))
      groups.back().extent *= in.shape[n];
    else
      groups.push_back({bool(reduced[n]), in.shape[n]});
  }
  return groups;
}

/// Transpose retained groups before reduced ones if they alternate.
Buffer turned(const Node& node, Builder& builder, const std::vector<Group>& groups, int64_t item_size) {
  Shape shape, result;
  for (const Group& group : groups) shape.push_back(group.extent);
  Shape steps = steps_of(shape);
  std::vector<size_t> order;
  for (bool reduced : {false, true})
    for (size_t n = 0; n < groups.size(); ++n)
      if (groups[n].reduced == reduced) order.push_back(n), result.push_back(groups[n].extent);
  Axes axes = axes_of(result);
  for (size_t n = 0; n < order.size(); ++n) axes[n].from = steps[order[n]];
  Buffer copy = builder.temporary(uint64_t(builder.graph.in(node, 0)->elements() * item_size));
  builder.add(
      copy_step(builder, "turn for " + node.name, builder.buffer(node.inputs[0]), copy, axes, uint64_t(item_size)));
  return copy;
}

void lower_reduce(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  std::vector<Group> groups = groups_of(in, node.integers("axis"));
  int64_t num_results = out.elements(), count = 1;
  int reduced = 0;
  for (const Group& group : groups)
    if (group.reduced) count *= group.extent, ++reduced;
  auto state = std::make_shared<Reducing>();
  state->kernels = &reduce_kernels_for(builder.settings.isa);
  state->operation = reduction_of(node);
  state->columns = reduction_in_type(builder.graph, node, builder.settings);
  state->item_size = int64_t(ipr::item_size(in.dtype));
  state->slices = {num_results, count, 1};
  Buffer from = builder.buffer(node.inputs[0]);
  if (reduced > 1) {
    from = turned(node, builder, groups, state->item_size);
  } else if (reduced == 1 && !groups.back().reduced) {
    state->slices.inner = groups.back().extent;
    state->slices.outer = groups.front().reduced ? 1 : groups.front().extent;
  }
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Reducing::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kReduceNs);
  step.in = {from};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family reduce_family() {
  Family family;
  family.lowerings = {
      {"Softmax", "plain", plain_f32, lower_softmax, nullptr},
      {"LogSoftmax", "plain", plain_f32, lower_softmax, nullptr},
      {"Reduce", "plain", reduce_support, lower_reduce, nullptr},
      {"Mean", "plain", reduce_support, lower_reduce, nullptr},
  };
  return family;
}

}  // namespace cpuacc
