// Elementwise layers on quantized values of 8 bits: clamps, and sums of two tensors.

#include <algorithm>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"

namespace cpuacc {
namespace {

struct Clamp {
  const ElementwiseQ8Kernels* kernels;
  uint32_t flip;
  Q8Limits limits;
  int64_t count;
};

void run_clamp(const Step& step, const Run& run, int part, int parts) {
  const Clamp& c = step.as<Clamp>();
  Range range = split(c.count, part, parts, 64);
  c.kernels->clamp(run.at<uint8_t>(step.in[0]) + range.first, run.at<uint8_t>(step.out[0]) + range.first,
                   range.last - range.first, c.flip, c.limits.low, c.limits.high);
}

Refusal clamps(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  std::string function(node.text("function"));
  if (function != "RELU" && function != "BOUNDED_RELU")
    return refused(function + " of quantized values is not supported", IPR_REASON_ATTRIBUTE);
  if (rounds_to_even(node)) return refused("takes bounds that are rounded half away from zero", IPR_REASON_ATTRIBUTE);
  if (!has_one_scale(in) || in.dtype != out.dtype || !in.same_quantization(out) || !node.posts.empty())
    return refused("operand is " + described(in) + "; takes quantized values of 8 bits and a result of the same scale",
                   IPR_REASON_QUANTIZATION);
  return taken();
}

void lower_clamp(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  Q8Limits limits = q8_clamp(std::string(node.text("function")), node.number("a"), node.number("b"), out);
  Step step;
  step.name = "Activation " + node.name;
  step.fn = run_clamp;
  step.max_parts = parts_for(builder.settings, double(out.elements()) / cost::kClampedPerNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Clamp>(
      Clamp{&elementwise_q8_kernels_for(builder.settings.isa), flip_of(out), limits, out.elements()});
  step.in_place = 0;
  builder.add(std::move(step));
}

struct Sum {
  const ElementwiseQ8Kernels* kernels;
  Q8Add add;
  uint32_t flip;
  int64_t count;
};

void run_sum(const Step& step, const Run& run, int part, int parts) {
  const Sum& s = step.as<Sum>();
  Range range = split(s.count, part, parts, 64);
  s.kernels->add(run.at<uint8_t>(step.in[0]) + range.first, run.at<uint8_t>(step.in[1]) + range.first,
                 run.at<uint8_t>(step.out[0]) + range.first, range.last - range.first, s.flip, s.add);
}

Refusal sums(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  bool adds = node.type != "ElementwiseBinary" || node.text("operation") == "ADD";
  if (!adds || !has_one_scale(a) || !has_one_scale(b) || !has_one_scale(out))
    return refused("takes sums of quantized values of 8 bits with a scale", IPR_REASON_DATA_TYPE);
  if (a.dtype != b.dtype || a.dtype != out.dtype) return refused("the operands differ in type", IPR_REASON_DATA_TYPE);
  if (a.shape != b.shape) return refused("takes operands of the same shape", IPR_REASON_SHAPE);
  for (const Post& post : node.posts)
    if (post.kind != Post::activation || (post.function != "RELU" && post.function != "BOUNDED_RELU") ||
        !graph[post.through].same_quantization(out))
      return refused("the layer that follows is not a clamp", IPR_REASON_NEIGHBOURS);
    else if (post.to_even)
      return refused("the bounds that follow are rounded half to even", IPR_REASON_NEIGHBOURS);
  return taken();
}

void lower_sum(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  Q8Limits limits;
  for (const Post& post : node.posts) {
    Q8Limits to = q8_clamp(post.function, post.a, post.b, out);
    limits = {std::clamp(limits.low, to.low, to.high), std::clamp(limits.high, to.low, to.high)};
  }
  Step step;
  step.name = "Addition " + node.name;
  step.fn = run_sum;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost::kAddQuantizedNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Sum>(Sum{&elementwise_q8_kernels_for(builder.settings.isa),
                                         q8_addition(builder, a, b, out, limits, rounds_to_even(node)), flip_of(a),
                                         out.elements()});
  builder.add(std::move(step));
}

}  // namespace

Family elementwise_q8_family() {
  Family family;
  family.lowerings = {{"Activation", "quantized clamp", clamps, lower_clamp, nullptr},
                      {"Addition", "quantized", sums, lower_sum, nullptr, true},
                      {"ElementwiseBinary", "quantized sum", sums, lower_sum, nullptr, true}};
  return family;
}

}  // namespace cpuacc
