// LstmSequence, GruSequence and RnnSequence in their general form: sequence lengths, peepholes, clips, all activation
// functions, coupled gates, both orders of the axes, and weights that are not constant. One step computes all steps in
// time; sequences and directions are divided among threads. lower/lstm.cpp has faster forms of the usual layers.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/kernels/recurrent.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/lstm.hpp"
#include "cpuacc/lower/recurrent.hpp"
#include "cpuacc/pointwise.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

// Positions of operands, which the layers share as far as they have them.
enum Operand : size_t { kX, kWeights, kRecurrent, kBias, kLengths, kHidden, kCell, kPeephole, kOperands };

constexpr int64_t kGroup = 8;  // sequences that are computed together, so that weights are read once for all
constexpr int64_t kChunkBytes = 128 * 1024;  // of the products of inputs, so that they stay in the cache

struct Squashing {
  Function function;
  float a, b;
};

/// The parameters of a function of `Activation` if they are not given.
Squashing with_defaults(Function function) {
  switch (function) {
    case Function::tanh:
      return {function, 1, 1};
    case Function::bounded_relu:
      return {function, 6, 0};
    case Function::leaky_relu:
      return {function, 0.01f, 0};
    case Function::selu:
      return {function, 1.67326319217681884765625f, 1.05070102214813232421875f};
    case Function::hard_sigmoid:
      return {function, 0.2f, 0.5f};
    case Function::shrink:
      return {function, 0.5f, 0};
    case Function::linear:
    case Function::elu:
    case Function::celu:
    case Function::swish:
    case Function::thresholded_relu:
      return {function, 1, 0};
    default:
      return {function, 0, 0};
  }
}

enum class Kind { simple, gru, lstm };

Kind kind_of(const Node& node) {
  if (node.type == "LstmSequence") return Kind::lstm;
  return node.type == "GruSequence" ? Kind::gru : Kind::simple;
}

int64_t gates_of(Kind kind) { return kind == Kind::lstm ? 4 : kind == Kind::gru ? 3 : 1; }

/// The activation functions of all directions.
std::vector<Squashing> functions_of(const Node& node, int64_t directions) {
  std::vector<std::string> names;
  if (const Value* activations = node.find("activations")) names = activations->texts;
  const std::vector<std::string> usual = kind_of(node) == Kind::lstm
                                             ? std::vector<std::string>{"SIGMOID", "TANH", "TANH"}
                                         : kind_of(node) == Kind::gru ? std::vector<std::string>{"SIGMOID", "TANH"}
                                                                      : std::vector<std::string>{"TANH"};
  for (size_t n = names.size(); n < usual.size() * size_t(directions); ++n) names.push_back(usual[n % usual.size()]);
  const std::vector<double>&a = node.numbers("activation_a"), &b = node.numbers("activation_b");
  std::vector<Squashing> functions;
  for (size_t n = 0; n < names.size(); ++n) {
    functions.push_back(with_defaults(function_of(names[n])));
    if (n < a.size()) functions[n].a = float(a[n]);
    if (n < b.size()) functions[n].b = float(b[n]);
  }
  return functions;
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  if (node.flag("dynamic_quantization"))  // what runs at all, lstm_family takes
    return support_dynamic_lstm(graph, node, settings);
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    const Tensor* operand = graph.in(node, n);
    if (operand && n != kLengths && !is_f32(*operand))
      return refused("operand " + std::to_string(n) + " is " + described(*operand) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  }
  if (!is_f32(graph.out(node))) return refused("the result is " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  for (const Squashing& squashing : functions_of(node, graph.in(node, kRecurrent)->shape[0]))
    if (squashing.function == Function::add) return refused("an activation function is unknown", IPR_REASON_ATTRIBUTE);
  return without_posts(graph, node, settings);
}

// ---- The layer ------------------------------------------------------------------------------------------------------

struct Layer {
  const RecurrentKernels* kernels;
  const ElementKernels* elements;
  Kind kind;
  int64_t steps, batch, directions, depth, units, chunk;
  bool time_major, before_reset, coupled, wide_lengths;
  float clip;  // infinite: none
  std::vector<char> backward;
  std::vector<Squashing> functions;
  bool has_bias, has_peephole;

  int64_t gates() const { return gates_of(kind); }
  int64_t width() const { return padded(units); }  // of one gate
  int64_t row() const { return gates() * width(); }
  int64_t function_count() const { return int64_t(functions.size()) / directions; }

  // Packed parameters of one direction: weights of the input, recurrent weights, the bias of the products of the input,
  // the bias of the product of the hidden gate and the state, and peephole weights.
  int64_t recurrent_at() const { return row() * depth; }
  int64_t bias_at() const { return recurrent_at() + row() * units; }
  int64_t hidden_bias_at() const { return bias_at() + row(); }
  int64_t peephole_at() const { return hidden_bias_at() + width(); }
  int64_t packed_size() const { return peephole_at() + 3 * width(); }

  int64_t groups() const { return (batch + kGroup - 1) / kGroup; }  // of each direction
  int64_t group() const { return std::min(batch, kGroup); }         // sequences in a group
  int64_t x_size() const { return padded(chunk * group() * depth); }
  int64_t sums_size() const { return chunk * group() * row(); }
  int64_t states_size() const { return group() * width(); }
  int64_t scratch() const { return x_size() + sums_size() + 4 * states_size(); }

  int64_t input_at(int64_t time, int64_t sequence) const {
    return (time_major ? time * batch + sequence : sequence * steps + time) * depth;
  }
  int64_t output_at(int64_t time, int64_t direction, int64_t sequence) const {
    return time_major ? ((time * directions + direction) * batch + sequence) * units
                      : ((sequence * steps + time) * directions + direction) * units;
  }
  int64_t state_at(int64_t direction, int64_t sequence) const {
    return (time_major ? direction * batch + sequence : sequence * directions + direction) * units;
  }
};

/// The operands of a layer that hold parameters; nullptr if absent.
struct Parameters {
  UnalignedFloats weights, recurrent, bias, peephole;
};

/// Pack rows of weights of each gate: [gate][block of 16 rows][k][16]. `to` is zero.
void pack_rows(UnalignedFloats from, int64_t gates, int64_t units, int64_t depth, float* to) {
  const int64_t width = padded(units);
  for (int64_t gate = 0; gate < gates; ++gate, to += width * depth)
    for (int64_t row = 0; row < units; ++row)
      for (int64_t k = 0; k < depth; ++k, from += 1) to[(row / 16 * depth + k) * 16 + row % 16] = from[0];
}

/// Pack the biases of a direction. Both are added to the products of the input, except the one of the product that a
/// reset gate multiplies.
void pack_biases(const Layer& layer, UnalignedFloats from, float* to) {
  const int64_t rows = layer.gates() * layer.units;
  for (int64_t gate = 0; gate < layer.gates(); ++gate)
    for (int64_t n = 0; n < layer.units; ++n) {
      const float of_state = from[rows + gate * layer.units + n];
      const bool apart = layer.before_reset && gate == 2;
      to[layer.bias_at() + gate * layer.width() + n] = from[gate * layer.units + n] + (apart ? 0 : of_state);
      if (apart) to[layer.hidden_bias_at() + n] = of_state;
    }
}

void pack_direction(const Layer& layer, const Parameters& parameters, int64_t direction, float* to) {
  const int64_t rows = layer.gates() * layer.units;
  std::fill_n(to, layer.packed_size(), 0.0f);
  pack_rows(parameters.weights + direction * rows * layer.depth, layer.gates(), layer.units, layer.depth, to);
  pack_rows(parameters.recurrent + direction * rows * layer.units, layer.gates(), layer.units, layer.units,
            to + layer.recurrent_at());
  if (layer.has_bias) pack_biases(layer, parameters.bias + direction * 2 * rows, to);
  for (int64_t n = 0; layer.has_peephole && n < 3 * layer.units; ++n)
    to[layer.peephole_at() + n / layer.units * layer.width() + n % layer.units] =
        parameters.peephole[direction * 3 * layer.units + n];
}

/// Packs parameters that are not constant.
struct Packing {
  std::shared_ptr<const Layer> layer;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Layer& layer = *step.as<Packing>().layer;
    auto at = [&](size_t n) { return step.in[n] ? UnalignedFloats(run.at<float>(step.in[n])) : UnalignedFloats(); };
    const Range range = split(layer.directions, part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      pack_direction(layer, {at(0), at(1), at(2), at(3)}, n, run.at<float>(step.out[0]) + n * layer.packed_size());
  }
};

/// The computation of some sequences in one direction. Each has rows of `width` floats for its states.
struct Group {
  const Layer& layer;
  const float* packed;
  int64_t direction, first, count;
  int64_t lengths[kGroup];
  float *x, *sums, *hidden, *cell, *inner, *reset;

  void activate(int64_t index, float* values, int64_t size) const {
    const Squashing& squashing = layer.functions[size_t(direction * layer.function_count() + index)];
    if (index < 2 && !std::isinf(layer.clip))
      layer.elements->activation(Function::bounded_relu, layer.clip, -layer.clip, values, values, size);
    layer.elements->activation(squashing.function, squashing.a, squashing.b, values, values, size);
  }

  /// Add the products of recurrent weights of some gates and states; `to` is `step` floats apart between sequences.
  void multiply(int64_t first_gate, int64_t gates, const float* states, float* to, int64_t step) const {
    layer.kernels->multiply(packed + layer.recurrent_at() + first_gate * layer.width() * layer.units, states,
                            layer.width(), count, layer.units, gates * layer.width(), to, step);
  }

  int64_t time_of(int64_t number, int64_t sequence) const {
    return layer.backward[size_t(direction)] ? lengths[sequence] - 1 - number : number;
  }

  /// The products of the inputs of some steps. Sequences that have ended get the bias alone.
  void multiply_inputs(const float* in, int64_t begin, int64_t steps) const {
    for (int64_t n = 0; n < steps * count; ++n) {
      const int64_t number = begin + n / count, sequence = n % count;
      std::copy_n(packed + layer.bias_at(), layer.row(), sums + n * layer.row());
      if (number < lengths[sequence])
        std::copy_n(in + layer.input_at(time_of(number, sequence), first + sequence), layer.depth, x + n * layer.depth);
      else
        std::fill_n(x + n * layer.depth, layer.depth, 0.0f);
    }
    layer.kernels->multiply(packed, x, layer.depth, steps * count, layer.depth, layer.row(), sums, layer.row());
  }

  void all(const float* in, float* out) const {
    const int64_t longest = *std::max_element(lengths, lengths + count);
    for (int64_t begin = 0; begin < longest; begin += layer.chunk) {
      const int64_t steps = std::min(layer.chunk, longest - begin);
      multiply_inputs(in, begin, steps);
      for (int64_t n = 0; n < steps; ++n) one(begin + n, sums + n * count * layer.row(), out);
    }
    for (int64_t s = 0; s < count; ++s)
      for (int64_t time = lengths[s]; time < layer.steps; ++time)
        std::fill_n(out + layer.output_at(time, direction, first + s), layer.units, 0.0f);
  }

  void one(int64_t number, float* gates, float* out) const {
    layer.kind == Kind::gru ? multiply(0, 2, hidden, gates, layer.row())
                            : multiply(0, layer.gates(), hidden, gates, layer.row());
    if (layer.kind == Kind::gru) reset_states(gates);
    for (int64_t s = 0; s < count; ++s) {
      if (number >= lengths[s]) continue;
      float *own = gates + s * layer.row(), *state = hidden + s * layer.width();
      if (layer.kind == Kind::lstm) lstm(own, state, cell + s * layer.width());
      if (layer.kind == Kind::gru) gru(own, state);
      if (layer.kind == Kind::simple) simple(own, state);
      std::copy_n(state, layer.units, out + layer.output_at(time_of(number, s), direction, first + s));
    }
  }

  void simple(float* sums_of_state, float* state) const {
    activate(0, sums_of_state, layer.width());
    std::copy_n(sums_of_state, layer.width(), state);
  }

  /// Gates in the order i, o, f, c.
  void lstm(float* gates, float* state, float* cells) const {
    const int64_t width = layer.width();
    float *input = gates, *output = gates + width, *forget = gates + 2 * width, *candidate = gates + 3 * width;
    add_peephole(input, 0, cells);
    if (layer.has_peephole || layer.coupled) {
      activate(0, input, width);
      forget_gate(forget, input, cells);
    } else {
      activate(0, gates, 3 * width);
    }
    activate(1, candidate, width);
    for (int64_t n = 0; n < width; ++n) cells[n] = forget[n] * cells[n] + input[n] * candidate[n];
    add_peephole(output, 1, cells);
    if (layer.has_peephole || layer.coupled) activate(0, output, width);
    std::copy_n(cells, width, inner);
    activate(2, inner, width);
    layer.kernels->scale(output, inner, state, width);
  }

  void forget_gate(float* forget, const float* input, const float* cells) const {
    if (layer.coupled) {
      for (int64_t n = 0; n < layer.width(); ++n) forget[n] = 1 - input[n];
      return;
    }
    add_peephole(forget, 2, cells);
    activate(0, forget, layer.width());
  }

  void add_peephole(float* gate, int64_t number, const float* cells) const {
    if (layer.has_peephole)
      layer.kernels->add_products(gate, packed + layer.peephole_at() + number * layer.width(), cells, layer.width());
  }

  /// Compute the update and reset gates of all sequences, and the argument of the hidden gate. Gates have the order z,
  /// r, h.
  void reset_states(float* gates) const {
    const int64_t width = layer.width();
    float* fresh = gates + 2 * width;
    for (int64_t s = 0; s < count; ++s) activate(0, gates + s * layer.row(), 2 * width);
    if (layer.before_reset) {
      for (int64_t s = 0; s < count; ++s) std::copy_n(packed + layer.hidden_bias_at(), width, reset + s * width);
      multiply(2, 1, hidden, reset, width);
      for (int64_t s = 0; s < count; ++s)
        layer.kernels->add_products(fresh + s * layer.row(), gates + s * layer.row() + width, reset + s * width, width);
      return;
    }
    for (int64_t s = 0; s < count; ++s)
      layer.kernels->scale(gates + s * layer.row() + width, hidden + s * width, reset + s * width, width);
    multiply(2, 1, reset, fresh, layer.row());
  }

  void gru(float* gates, float* state) const {
    const int64_t width = layer.width();
    float *update = gates, *fresh = gates + 2 * width;
    activate(1, fresh, width);
    for (int64_t n = 0; n < width; ++n) state[n] = (1 - update[n]) * fresh[n] + update[n] * state[n];
  }
};

// ---- The step -------------------------------------------------------------------------------------------------------

// Operands of the step: the input, the packed parameters unless they are constant, lengths, and initial states.
enum Connection : size_t { kInput, kPacked, kCounts, kFirstHidden, kFirstCell };

struct Whole {
  std::shared_ptr<const Layer> layer;
  const float* packed;  // nullptr: an operand of the step

  int64_t length_of(const Step& step, const Run& run, int64_t sequence) const {
    if (!step.in[kCounts]) return layer->steps;
    return layer->wide_lengths ? run.at<int64_t>(step.in[kCounts])[sequence]
                               : run.at<int32_t>(step.in[kCounts])[sequence];
  }

  static void check(const Step& step, const Run& run, int, int) {
    const Whole& self = step.as<Whole>();
    for (int64_t n = 0; step.in[kCounts] && n < self.layer->batch; ++n) {
      const int64_t length = self.length_of(step, run, n);
      if (length < 0 || length > self.layer->steps) run.fail(kLengths, n, length, 0, self.layer->steps);
    }
  }

  void load(const Step& step, const Run& run, size_t which, int64_t at, float* to) const {
    std::fill_n(to, layer->width(), 0.0f);
    if (step.in[which]) std::copy_n(run.at<float>(step.in[which]) + at, layer->units, to);
  }

  void keep(const Step& step, const Run& run, size_t which, int64_t at, const float* from) const {
    if (which < step.out.size() && step.out[which])
      std::copy_n(from, layer->units, run.at<float>(step.out[which]) + at);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Whole& self = step.as<Whole>();
    const Range range = split(self.layer->directions * self.layer->groups(), part, parts);
    for (int64_t n = range.first; n < range.last; ++n) self.group(step, run, n, run.part_scratch<float>(part));
  }

  void group(const Step& step, const Run& run, int64_t number, float* x) const {
    const Layer& self = *layer;
    float *sums = x + self.x_size(), *states = sums + self.sums_size();
    const int64_t direction = number / self.groups(), first = number % self.groups() * kGroup;
    const float* all = packed ? packed : run.at<float>(step.in[kPacked]);
    Group group{self,
                all + direction * self.packed_size(),
                direction,
                first,
                std::min(kGroup, self.batch - first),
                {},
                x,
                sums,
                states,
                states + self.states_size(),
                states + 2 * self.states_size(),
                states + 3 * self.states_size()};
    for (int64_t s = 0; s < group.count; ++s) {
      group.lengths[s] = length_of(step, run, first + s);
      load(step, run, kFirstHidden, self.state_at(direction, first + s), group.hidden + s * self.width());
      load(step, run, kFirstCell, self.state_at(direction, first + s), group.cell + s * self.width());
    }
    group.all(run.at<float>(step.in[kInput]), run.at<float>(step.out[0]));
    for (int64_t s = 0; s < group.count; ++s) {
      keep(step, run, 1, self.state_at(direction, first + s), group.hidden + s * self.width());
      keep(step, run, 2, self.state_at(direction, first + s), group.cell + s * self.width());
    }
  }
};

std::shared_ptr<const Layer> layer_of(const Node& node, const Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, kX), &recurrent = *graph.in(node, kRecurrent);
  auto layer = std::make_shared<Layer>();
  layer->kernels = &recurrent_kernels_for(builder.settings.isa);
  layer->elements = &element_kernels_for(builder.settings.isa);
  layer->kind = kind_of(node);
  layer->time_major = node.flag("time_major", true);
  layer->steps = in.shape[layer->time_major ? 0 : 1], layer->batch = in.shape[layer->time_major ? 1 : 0];
  layer->depth = in.shape[2], layer->units = recurrent.shape[2], layer->directions = recurrent.shape[0];
  layer->before_reset = node.flag("linear_before_reset"), layer->coupled = node.flag("input_forget");
  layer->wide_lengths = graph.in(node, kLengths) && graph.in(node, kLengths)->dtype == IPR_DTYPE_INT64;
  layer->clip = node.number("clip") > 0 ? float(node.number("clip")) : INFINITY;
  layer->functions = functions_of(node, layer->directions);
  layer->has_bias = graph.in(node, kBias), layer->has_peephole = graph.in(node, kPeephole);
  for (int64_t n = 0; n < layer->directions; ++n)
    layer->backward.push_back(node.text("direction") == "REVERSE" ||
                              (node.text("direction") == "BIDIRECTIONAL" && n == 1));
  layer->chunk =
      std::clamp<int64_t>(kChunkBytes / 4 / std::max<int64_t>(1, layer->group() * (layer->row() + layer->depth)), 1,
                          std::max<int64_t>(1, layer->steps));
  return layer;
}

/// Pack constant parameters when the network is loaded.
const float* packed_constants(const Node& node, Builder& builder, const Layer& layer) {
  const uint64_t bytes = uint64_t(layer.directions * layer.packed_size()) * sizeof(float);
  return static_cast<const float*>(builder.pack(bytes, [&](void* to) {
    auto floats = [&](size_t n) {
      const Tensor* tensor = builder.graph.in(node, n);
      return tensor ? tensor->floats() : UnalignedFloats();
    };
    for (int64_t n = 0; n < layer.directions; ++n)
      pack_direction(layer, {floats(kWeights), floats(kRecurrent), floats(kBias), floats(kPeephole)}, n,
                     static_cast<float*>(to) + n * layer.packed_size());
  }));
}

/// Add the step that packs parameters in each run; return where.
Buffer packed_at_run(const Node& node, Builder& builder, const std::shared_ptr<const Layer>& layer) {
  const Buffer packed = builder.temporary(uint64_t(layer->directions * layer->packed_size()) * sizeof(float));
  Step step;
  step.name = "pack weights of " + node.name;
  step.fn = &Packing::run;
  step.max_parts = int(layer->directions);
  for (size_t n : {kWeights, kRecurrent, kBias, kPeephole})
    step.in.push_back(builder.buffer(n < node.inputs.size() ? node.inputs[n] : -1));
  step.out = {packed};
  step.state = std::make_shared<Packing>(Packing{layer});
  builder.add(std::move(step));
  return packed;
}

bool has_constant_parameters(const Graph& graph, const Node& node) {
  for (size_t n : {kWeights, kRecurrent, kBias, kPeephole})
    if (graph.in(node, n) && !graph.in(node, n)->is_constant()) return false;
  return true;
}

void lower(const Node& node, Builder& builder) {
  const std::shared_ptr<const Layer> layer = layer_of(node, builder);
  auto whole = std::make_shared<Whole>(Whole{layer, nullptr});
  Buffer packed;
  if (has_constant_parameters(builder.graph, node))
    whole->packed = packed_constants(node, builder, *layer);
  else
    packed = packed_at_run(node, builder, layer);
  auto operand = [&](size_t n) { return builder.buffer(n < node.inputs.size() ? node.inputs[n] : -1); };
  const double products =
      double(layer->directions * layer->batch * layer->steps * layer->row()) * double(layer->depth + layer->units);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Whole::run;
  step.check = &Whole::check;
  step.in = {operand(kX), packed, operand(kLengths), operand(kHidden),
             layer->kind == Kind::lstm ? operand(kCell) : Buffer()};
  for (int result : node.outputs) step.out.push_back(builder.buffer(result));
  step.max_parts = int(std::clamp<int64_t>(layer->directions * layer->groups(), 1,
                                           parts_for(builder.settings, products * cost::kRecurrentWeightNs)));
  step.scratch_per_part = uint64_t(layer->scratch()) * sizeof(float);
  step.operations = 2 * products;
  step.state = std::move(whole);
  builder.add(std::move(step));
}

}  // namespace

Family recurrent_sequence_family() {
  return {{{"LstmSequence", "all forms", support, lower, nullptr},
           {"GruSequence", "all forms", support, lower, nullptr},
           {"RnnSequence", "all forms", support, lower, nullptr}},
          {}};
}

}  // namespace cpuacc
