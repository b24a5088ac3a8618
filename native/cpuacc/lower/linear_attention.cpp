// LinearAttention: each head of key and value keeps a matrix as its state, which is updated step by step. Heads and
// batches are divided among threads.

#include "cpuacc/kernels/linear_attention.hpp"

#include <cmath>
#include <cstring>

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

enum Operand : size_t { kQuery, kKey, kValue, kPast, kDecay, kBeta, kOperands };

void run_step(const LinearAttentionKernels& kernels, const LinearStep<float>& step, float* state, float* memory,
              float* out) {
  kernels.step32(step, state, memory, out);
}
void run_step(const LinearAttentionKernels& kernels, const LinearStep<double>& step, double* state, double* memory,
              double* out) {
  kernels.step64(step, state, memory, out);
}

void exponentials(OfOne exp, const float* in, float* out, int64_t count) { exp(in, out, count); }
void exponentials(OfOne, const double* in, double* out, int64_t count) {
  for (int64_t n = 0; n < count; ++n) out[n] = std::exp(in[n]);
}

template <class T>
struct Heads {
  const LinearAttentionKernels* kernels;
  OfOne exp;
  int64_t batch, steps, groups, queries, keys, values, decay_width, beta_width;
  T scale;

  int64_t decays() const { return decay_width == groups ? 1 : keys; }  // of each head
  uint64_t scratch() const { return uint64_t(keys * values + 2 * values + keys + 64) * sizeof(T); }

  const T* at(const Step& step, const Run& run, size_t operand) const {
    return step.in[operand] ? run.at<T>(step.in[operand]) : nullptr;
  }

  void run_head(const Step& step, const Run& run, int64_t image, int64_t group, T* scratch) const {
    const int64_t state_at = (image * groups + group) * keys * values;
    T *state = scratch, *memory = state + keys * values, *factors = memory + values;
    const T *past = at(step, run, kPast), *decay = at(step, run, kDecay), *beta = at(step, run, kBeta);
    past ? void(std::memcpy(state, past + state_at, size_t(keys * values) * sizeof(T)))
         : void(std::fill_n(state, keys * values, T(0)));
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t row = image * steps + t, key_row = row * groups + group;
      if (decay) exponentials(exp, decay + row * decay_width + group * decays(), factors, decays());
      const LinearStep<T> now{keys,
                              values,
                              queries,
                              at(step, run, kKey) + key_row * keys,
                              at(step, run, kValue) + key_row * values,
                              at(step, run, kQuery) + key_row * queries * keys,
                              decay ? factors : nullptr,
                              decays() == keys && decay_width != groups ? 1 : 0,
                              beta ? beta + row * beta_width + (beta_width == 1 ? 0 : group) : nullptr,
                              scale};
      run_step(*kernels, now, state, memory, run.at<T>(step.out[0]) + key_row * queries * values);
    }
    if (step.out[1]) std::memcpy(run.at<T>(step.out[1]) + state_at, state, size_t(keys * values) * sizeof(T));
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Heads& self = step.as<Heads>();
    const Range range = split(self.batch * self.groups, part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      self.run_head(step, run, n / self.groups, n % self.groups, run.part_scratch<T>(part));
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const int32_t dtype = graph.in(node, kQuery)->dtype;
  if (dtype != IPR_DTYPE_FLOAT32 && dtype != IPR_DTYPE_FLOAT64)
    return refused("operand 0 is " + described(*graph.in(node, kQuery)), IPR_REASON_DATA_TYPE);
  for (size_t n = 1; n < node.inputs.size(); ++n)
    if (graph.in(node, n) && graph.in(node, n)->dtype != dtype)
      return refused("the operands have several types", IPR_REASON_DATA_TYPE);
  for (int tensor : node.outputs)
    if (tensor >= 0 && graph[tensor].dtype != dtype)
      return refused("the results have another type", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

template <class T>
void lower_of(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &query = *graph.in(node, kQuery), &key = *graph.in(node, kKey), &value = *graph.in(node, kValue);
  auto state = std::make_shared<Heads<T>>();
  state->kernels = &linear_attention_kernels_for(builder.settings.isa);
  state->exp = element_kernels_for(builder.settings.isa).unary(Unary::exp, IPR_DTYPE_FLOAT32);
  state->batch = query.shape[0], state->steps = query.shape[1];
  state->groups = node.integer("kv_num_heads"), state->queries = node.integer("q_num_heads") / state->groups;
  state->keys = key.shape[2] / state->groups, state->values = value.shape[2] / state->groups;
  state->decay_width = graph.in(node, kDecay) ? graph.in(node, kDecay)->shape[2] : state->groups;
  state->beta_width = graph.in(node, kBeta) ? graph.in(node, kBeta)->shape[2] : 1;
  state->scale = T(node.has("scale") ? node.number("scale") : 1 / std::sqrt(double(state->keys)));
  const double products =
      double(state->batch * state->groups * state->steps) * double(state->keys * state->values * (state->queries + 3));
  Step step;
  step.name = "LinearAttention " + node.name;
  step.fn = &Heads<T>::run;
  step.max_parts = int(std::clamp<int64_t>(state->batch * state->groups, 1,
                                           parts_for(builder.settings, products * cost::kRecurrentWeightNs)));
  step.scratch_per_part = state->scratch();
  step.operations = 2 * products;
  for (size_t n = 0; n < kOperands; ++n)
    step.in.push_back(builder.buffer(n < node.inputs.size() ? node.inputs[n] : -1));
  step.out = {builder.buffer(node.outputs[0]), builder.buffer(node.outputs.size() > 1 ? node.outputs[1] : -1)};
  step.state = std::move(state);
  builder.add(std::move(step));
}

void lower(const Node& node, Builder& builder) {
  builder.graph.in(node, kQuery)->dtype == IPR_DTYPE_FLOAT64 ? lower_of<double>(node, builder)
                                                             : lower_of<float>(node, builder);
}

}  // namespace

Family linear_attention_family() { return {{{"LinearAttention", "step by step", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
