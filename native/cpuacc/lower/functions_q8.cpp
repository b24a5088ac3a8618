// Functions of single quantized values of 8 bits: Activation and ElementwiseUnary, and Concat of several quantizations.

#include <algorithm>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/table_q8.hpp"

namespace cpuacc {

// ---- Tables ---------------------------------------------------------------------------------------------------------

namespace {

struct LookUp {
  const ElementwiseQ8Kernels* kernels;
  Table table;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const LookUp& self = step.as<LookUp>();
    Range range = split(self.count, part, parts, 64);
    self.kernels->look_up(run.at<uint8_t>(step.in[0]) + range.first, run.at<uint8_t>(step.out[0]) + range.first,
                          range.last - range.first, self.table.data());
  }
};

}  // namespace

void add_table_step(const Node& node, Builder& builder, const Table& table) {
  const Tensor& in = *builder.graph.in(node, 0);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &LookUp::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kLookUpNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state =
      std::make_shared<LookUp>(LookUp{&elementwise_q8_kernels_for(builder.settings.isa), table, in.elements()});
  step.in_place = 0;
  builder.add(std::move(step));
}

// ---- Activation functions -------------------------------------------------------------------------------------------

namespace {

native::Activation8 activation_of(const Node& node) {
  return {node.text("function"), node.number("a"), node.number("b"), rounds_to_even(node)};
}

Refusal activation_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!both_quantized(in, out)) return refused("takes quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  if (!native::has_table(activation_of(node)))
    return refused(std::string(node.text("function")) + " of quantized values is not supported", IPR_REASON_ATTRIBUTE);
  if (!native::is_in_range(activation_of(node), quantized8(in), quantized8(out)))
    return refused("the result's scale is too small", IPR_REASON_QUANTIZATION);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_activation(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  add_table_step(node, builder, native::activation_table(activation_of(node), quantized8(in), quantized8(out)));
}

// ---- Functions of other layers --------------------------------------------------------------------------------------

std::string_view unary_name(const Node& node) { return node.type == "Floor" ? "FLOOR" : node.text("operation"); }

Refusal unary_support(const Graph& graph, const Node& node, const Settings&) {
  if (!both_quantized(*graph.in(node, 0), graph.out(node)))
    return refused("takes quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  if (!native::has_unary_table(unary_name(node)))
    return refused(std::string(unary_name(node)) + " of quantized values is not supported", IPR_REASON_ATTRIBUTE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_unary(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  add_table_step(node, builder, native::unary_table(unary_name(node), quantized8(in), quantized8(out)));
}

// ---- Concat of several quantizations --------------------------------------------------------------------------------

/// Rows of `width` values, which are `step` apart in the result.
struct Rescaling {
  const ElementwiseQ8Kernels* kernels;
  Table table;
  int64_t rows, width, step, offset;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Rescaling& self = step.as<Rescaling>();
    Range range = split(self.rows, part, parts);
    for (int64_t row = range.first; row < range.last; ++row) {
      const uint8_t* in = run.at<uint8_t>(step.in[0]) + row * self.width;
      uint8_t* out = run.at<uint8_t>(step.out[0]) + row * self.step + self.offset;
      self.kernels->look_up(in, out, self.width, self.table.data());
    }
  }
};

Refusal concat_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& out = graph.out(node);
  for (size_t n = 0; n < node.inputs.size(); ++n)
    if (!both_quantized(*graph.in(node, n), out) || graph.in(node, n)->dtype != out.dtype)
      return refused("operand " + std::to_string(n) + " has another quantization than the result",
                     IPR_REASON_QUANTIZATION);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower_concat(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  const ElementwiseQ8Kernels& kernels = elementwise_q8_kernels_for(builder.settings.isa);
  int axis = axis_of(node.integer("axis"), out.rank());
  Around at = around(out.shape, axis);
  int64_t offset = 0;
  for (int number : node.inputs) {
    const Tensor& in = builder.graph[number];
    int64_t width = in.shape[size_t(axis)] * at.inner;
    Step step;
    step.name = "Concat " + node.name;
    step.fn = &Rescaling::run;
    step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kLookUpNs);
    step.in = {builder.buffer(number)};
    step.out = {builder.buffer(node.outputs[0])};
    step.state =
        std::make_shared<Rescaling>(Rescaling{&kernels, native::requantization_table(quantized8(in), quantized8(out)),
                                              width > 0 ? at.outer : 0, width, at.extent * at.inner, offset});
    offset += width;
    builder.add(std::move(step));
  }
}

}  // namespace

Family functions_q8_family() {
  return {{{"Activation", "table of codes", activation_support, lower_activation, nullptr, true},
           {"ElementwiseUnary", "table of codes", unary_support, lower_unary, nullptr},
           {"Floor", "table of codes", unary_support, lower_unary, nullptr},
           {"Concat", "codes of several scales", concat_support, lower_concat, nullptr}},
          {}};
}

}  // namespace cpuacc
