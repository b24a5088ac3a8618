// LSTMs in integers: QLstm, UnidirectionalSequenceLstm on 8-bit tensors, and QuantizedLstm. Results equal those of
// TFLite's reference, bit for bit. Sequences of a batch are divided among threads.

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "common/fixed_point16.hpp"
#include "cpuacc/kernels/recurrent.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

using native::FixedPoint;

enum Gate { kInput, kForget, kCell, kOutput, kGates };
constexpr const char* kNames[kGates] = {"input", "forget", "cell", "output"};

constexpr int64_t kMostDepth = 65000;  // sums of more products of 8-bit integers may not fit into 32 bits

// ---- Tables of functions --------------------------------------------------------------------------------------------

/// tanh of all numbers with 0 to 6 integer bits, or their sigmoid in Q3 (the last table); made on first use.
const int16_t* table_of(int number) {
  constexpr int kSigmoid = 7;
  static std::array<std::vector<int16_t>, kSigmoid + 1> tables;
  static std::array<std::once_flag, kSigmoid + 1> table_once;
  std::call_once(table_once[size_t(number)], [number] {
    tables[size_t(number)] = native::table16(
        [number](int64_t x) { return number == kSigmoid ? native::sigmoid16(x) : native::tanh16(x, number); });
  });
  return tables[size_t(number)].data() + 32768;
}
const int16_t* tanh_table(int integer_bits) { return table_of(integer_bits); }
const int16_t* sigmoid_table() { return table_of(7); }

// ---- Weights --------------------------------------------------------------------------------------------------------

/// Weights of several matrices of the same source, one below the other: [matrix][row][k].
struct Matrix {
  const int16_t* weights = nullptr;
  int64_t depth = 0;
};

template <class T>
void widen(const Tensor& from, int64_t zero, int16_t* to) {
  const T* codes = from.values<T>();
  for (int64_t n = 0; n < from.elements(); ++n) to[n] = int16_t(codes[n] - zero);
}

Matrix packed(Builder& builder, const std::vector<const Tensor*>& matrices) {
  const int64_t depth = matrices[0]->shape[1], count = matrices[0]->elements();
  auto make = [&](void* to) {
    int16_t* out = static_cast<int16_t*>(to);
    for (const Tensor* matrix : matrices) {
      matrix->dtype == IPR_DTYPE_UINT8 ? widen<uint8_t>(*matrix, matrix->zero_point(), out)
                                       : widen<int8_t>(*matrix, matrix->zero_point(), out);
      out += count;
    }
  };
  return {static_cast<const int16_t*>(builder.pack(uint64_t(count) * matrices.size() * 2, make)), depth};
}

template <class T>
const T* copied(Builder& builder, const Tensor* tensor) {
  if (!tensor) return nullptr;
  return static_cast<const T*>(
      builder.pack(tensor->bytes(), [&](void* to) { std::memcpy(to, tensor->data, tensor->bytes()); }));
}

float scale_of(const Tensor& tensor) { return float(tensor.scale()); }

// ---- QLstm and UnidirectionalSequenceLstm ---------------------------------------------------------------------------

/// How the argument of the function of one gate follows from its products.
struct Argument {
  FixedPoint of_input, of_output, of_cell, norm;
  const int32_t* bias = nullptr;      // added to the product of the input, or after the normalization
  const int16_t* peephole = nullptr;  // nullptr: the gate does not use the cell state
  const int16_t* weights = nullptr;   // of the normalization; nullptr: none
  int64_t least_variance = 1;
};

int64_t truncated_quotient(int64_t a, int64_t b) { return a / b; }  // toward zero

/// Normalize 16-bit numbers. Mean and deviation have 10 more fractional bits.
void normalize(const Argument& gate, int64_t units, int32_t* x) {
  if (units == 0) return;
  int64_t sum = 0, squares = 0;
  for (int64_t n = 0; n < units; ++n) sum += x[n], squares += int64_t{x[n]} * x[n];
  const int64_t mean = truncated_quotient(sum * 1024, units);
  const int64_t scaled = squares * ((1 << 20) / units) - mean * mean;
  const int64_t variance = scaled < 0 ? -(-scaled >> 20) : scaled >> 20;
  const FixedPoint inverse = native::inverse_sqrt(variance < 1 ? gate.least_variance : variance);
  const FixedPoint factor{gate.norm.multiplier, gate.norm.shift + 12};
  for (int64_t n = 0; n < units; ++n) {
    const int64_t normalized = native::multiply(1024 * int64_t{x[n]} - mean, inverse);
    const int64_t weighted = native::wrapped(normalized * gate.weights[n] + gate.bias[n]);
    const int64_t rounded = weighted < 0 ? -((-weighted + 512) >> 10) : (weighted + 512) >> 10;
    x[n] = int32_t(native::saturated16(native::multiply(rounded, factor)));
  }
}

struct IntegerLstm {
  const RecurrentKernels* kernels;
  int64_t steps, batch, inputs, units, outputs;
  bool time_major, coupled;
  Matrix of_input, of_output, projection;
  Argument gates[kGates];
  int64_t input_zero, output_zero, hidden_zero, cell_bound, output_bound;  // a bound of 0: none
  int cell_exponent;
  FixedPoint hidden, projected;
  const int32_t* projection_bias;
  const int16_t *sigmoid, *tanh, *tanh_of_cell;

  int64_t first_gate() const { return coupled ? kForget : kInput; }
  int64_t rows() const { return (kGates - first_gate()) * units; }
  uint64_t scratch() const {
    return uint64_t(3 * rows() + 2 * units + outputs) * 4 + uint64_t(inputs + outputs + units + 64) * 2 + 64;
  }

  static void run(const Step& step, const Run& run, int part, int parts);
};

/// The steps of one sequence.
struct Sequence {
  const IntegerLstm& lstm;
  int32_t *of_input, *of_output, *arguments, *cell, *projected;
  int16_t *x, *before, *inner;

  Sequence(const IntegerLstm& of, char* scratch) : lstm(of) {
    int32_t* next = reinterpret_cast<int32_t*>(scratch);
    auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    of_input = take(lstm.rows()), of_output = take(lstm.rows()), arguments = take(lstm.rows());
    cell = take(lstm.units), projected = take(lstm.outputs);
    x = reinterpret_cast<int16_t*>(next);
    before = x + lstm.inputs, inner = before + lstm.outputs;
  }

  int32_t* argument(int gate) const { return arguments + (gate - lstm.first_gate()) * lstm.units; }

  void find_argument(int gate) const {
    const Argument& how = lstm.gates[gate];
    const int64_t place = (gate - lstm.first_gate()) * lstm.units;
    int32_t* out = argument(gate);
    for (int64_t n = 0; n < lstm.units; ++n) {
      const int64_t bias = how.weights ? 0 : how.bias[n];
      int64_t total = native::saturated16(native::multiply(of_input[place + n] + bias, how.of_input));
      total = native::saturated16(native::multiply(of_output[place + n], how.of_output) + total);
      if (how.peephole)
        total = native::saturated16(native::multiply(int64_t{how.peephole[n]} * cell[n], how.of_cell) + total);
      out[n] = int32_t(total);
    }
    if (how.weights) normalize(how, lstm.units, out);
  }

  void update_cell() const {
    const int32_t *input = lstm.coupled ? nullptr : argument(kInput), *forget = argument(kForget),
                  *candidate = argument(kCell);
    for (int64_t n = 0; n < lstm.units; ++n) {
      const int64_t forget_gate = lstm.sigmoid[forget[n]], fresh = lstm.tanh[candidate[n]];
      const int64_t input_gate = input ? lstm.sigmoid[input[n]] : native::kOne16 - forget_gate;
      int64_t now = native::divide_by_pot(forget_gate * cell[n], 15) +
                    native::divide_by_pot(input_gate * fresh, 30 + lstm.cell_exponent);
      now = native::saturated16(now);
      cell[n] = int32_t(lstm.cell_bound > 0 ? std::clamp(now, -lstm.cell_bound, lstm.cell_bound) : now);
    }
  }

  /// Write the output to `before`, without its zero point, and to `out`.
  void finish(int8_t* out) const {
    const int32_t* gate = argument(kOutput);
    const bool projects = lstm.projection.weights != nullptr;
    for (int64_t n = 0; n < lstm.units; ++n) {
      const int64_t gated = int64_t{lstm.sigmoid[gate[n]]} * lstm.tanh_of_cell[cell[n]];
      const int64_t code = std::clamp<int64_t>(native::multiply(gated, lstm.hidden) + lstm.hidden_zero, -128, 127);
      inner[n] = int16_t(code - (projects ? lstm.hidden_zero : 0));
    }
    if (projects) lstm.kernels->multiply_integers(lstm.projection.weights, inner, lstm.units, lstm.outputs, projected);
    for (int64_t n = 0; n < lstm.outputs; ++n) {
      const int64_t code = projects ? projected_code(n) : inner[n];
      out[n] = int8_t(code);
      before[n] = int16_t(code - lstm.output_zero);
    }
  }

  int64_t projected_code(int64_t n) const {
    const int64_t bias = lstm.projection_bias ? lstm.projection_bias[n] : 0;
    const int64_t scaled = native::multiply(projected[n] + bias, lstm.projected) + lstm.output_zero;
    const int64_t code = std::clamp<int64_t>(scaled, -128, 127);
    return lstm.output_bound > 0 ? std::clamp(code, -lstm.output_bound, lstm.output_bound) : code;
  }

  void one(const int8_t* in, int8_t* out) const {
    for (int64_t n = 0; n < lstm.inputs; ++n) x[n] = int16_t(in[n] - lstm.input_zero);
    lstm.kernels->multiply_integers(lstm.of_input.weights, x, lstm.inputs, lstm.rows(), of_input);
    lstm.kernels->multiply_integers(lstm.of_output.weights, before, lstm.outputs, lstm.rows(), of_output);
    for (int gate : {kForget, kCell}) find_argument(gate);
    if (!lstm.coupled) find_argument(kInput);
    update_cell();
    find_argument(kOutput);
    finish(out);
  }
};

void IntegerLstm::run(const Step& step, const Run& run, int part, int parts) {
  const IntegerLstm& self = step.as<IntegerLstm>();
  const Range range = split(self.batch, part, parts);
  const Sequence sequence(self, run.part_scratch<char>(part));
  for (int64_t b = range.first; b < range.last; ++b) {
    const int8_t* state = run.at<int8_t>(step.in[1]) + b * self.outputs;
    const int16_t* cell = run.at<int16_t>(step.in[2]) + b * self.units;
    for (int64_t n = 0; n < self.outputs; ++n) sequence.before[n] = int16_t(state[n] - self.output_zero);
    std::copy_n(cell, self.units, sequence.cell);
    for (int64_t t = 0; t < self.steps; ++t) {
      const int64_t row = self.time_major ? t * self.batch + b : b * self.steps + t;
      sequence.one(run.at<int8_t>(step.in[0]) + row * self.inputs, run.at<int8_t>(step.out[0]) + row * self.outputs);
    }
    int8_t* last = run.at<int8_t>(step.out[1]) + b * self.outputs;
    for (int64_t n = 0; n < self.outputs; ++n) last[n] = int8_t(sequence.before[n] + self.output_zero);
    std::copy_n(sequence.cell, self.units, run.at<int16_t>(step.out[2]) + b * self.units);
  }
}

// ---- What is taken --------------------------------------------------------------------------------------------------

struct Names {
  const Graph& graph;
  const Node& node;
  bool sequence;

  const Tensor* at(size_t position) const { return graph.in(node, position); }
  const Tensor* input_weights(int gate) const { return at(size_t(3 + gate)); }
  const Tensor* recurrent_weights(int gate) const { return at(size_t(7 + gate)); }
  const Tensor* peephole(int gate) const {
    return gate == kCell ? nullptr : at(gate == kOutput ? 13 : size_t(11 + gate));
  }
  const Tensor* bias(int gate) const { return at(size_t(14 + gate)); }
  const Tensor* projection() const { return at(18); }
  const Tensor* norm(int gate) const { return at(size_t(20 + gate)); }
  const Tensor& output() const { return graph.out(node, sequence ? 0 : 2); }
  bool coupled() const { return node.flag("cifg_enabled"); }
  double intermediate_scale(int gate) const { return node.number(std::string(kNames[gate]) + "_intermediate_scale"); }
};

bool has_one_scale(const Tensor& tensor) { return tensor.is_quantized() && !tensor.has_axis(); }

bool is_weight(const Tensor* tensor, int32_t dtype) {
  return tensor && tensor->is_constant() && tensor->dtype == dtype &&
         (dtype == IPR_DTYPE_INT32 || (has_one_scale(*tensor) && tensor->zero_point() == 0));
}

/// The base-2 logarithm of the scale of a cell state; 0 if it is no whole number.
int exponent_of(const Tensor& cell) {
  const double logarithm = double(std::log2(scale_of(cell)));
  return std::fabs(logarithm - std::nearbyint(logarithm)) < 1e-3 ? int(std::nearbyint(logarithm)) : 0;
}

bool are_weights_fit(const Names& all) {
  for (int gate = all.coupled() ? kForget : kInput; gate < kGates; ++gate) {
    if (!is_weight(all.input_weights(gate), IPR_DTYPE_INT8)) return false;
    if (!is_weight(all.recurrent_weights(gate), IPR_DTYPE_INT8)) return false;
    if (!is_weight(all.bias(gate), IPR_DTYPE_INT32)) return false;
    if (all.peephole(gate) && !is_weight(all.peephole(gate), IPR_DTYPE_INT16)) return false;
    if (all.norm(gate) && !(is_weight(all.norm(gate), IPR_DTYPE_INT16) && all.intermediate_scale(gate) > 0))
      return false;
    if (all.input_weights(gate)->shape[1] > kMostDepth || all.recurrent_weights(gate)->shape[1] > kMostDepth)
      return false;
  }
  if (!all.projection()) return true;
  return is_weight(all.projection(), IPR_DTYPE_INT8) && all.node.number("hidden_state_scale") > 0 &&
         (!all.at(19) || is_weight(all.at(19), IPR_DTYPE_INT32)) && all.projection()->shape[1] <= kMostDepth;
}

bool are_states_fit(const Names& all) {
  const Tensor *in = all.at(0), *state = all.at(1), *cell = all.at(2);
  if (!state || !cell || state->dtype != IPR_DTYPE_INT8 || cell->dtype != IPR_DTYPE_INT16) return false;
  if (!has_one_scale(*in) || !has_one_scale(*state) || !has_one_scale(*cell) || cell->zero_point() != 0) return false;
  const int exponent = exponent_of(*cell);
  if (exponent < -15 || exponent > -9) return false;
  for (int tensor : all.node.outputs) {
    const Tensor& out = all.graph[tensor];
    const Tensor& like = out.dtype == IPR_DTYPE_INT16 ? *cell : *state;
    if (out.dtype != like.dtype || !out.same_quantization(like)) return false;
  }
  return true;
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  const Names all{graph, node, node.type != "QLstm"};
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (graph.in(node, 0)->dtype != IPR_DTYPE_INT8)
    return refused("operand 0 is " + described(*graph.in(node, 0)) + "; takes int8 with a scale", IPR_REASON_DATA_TYPE);
  if (all.sequence && node.text("activation_func") != "TANH")
    return refused("takes TANH in integers", IPR_REASON_ATTRIBUTE);
  if (!are_states_fit(all)) return refused("states are quantized in another way", IPR_REASON_QUANTIZATION);
  if (!are_weights_fit(all)) return refused("weights are quantized in another way", IPR_REASON_QUANTIZATION);
  return taken();
}

// ---- Lowering -------------------------------------------------------------------------------------------------------

/// A bound in steps of `scale`, at most `largest`; 0: none.
int64_t bound_of(double clip, float scale, double largest) {
  return clip > 0 ? int64_t(std::min(double(float(clip) / scale), largest)) : 0;
}

Argument argument_of(const Names& all, int gate, Builder& builder) {
  const float scale = all.norm(gate) ? float(all.intermediate_scale(gate)) : 1.0f / 4096;
  Argument argument;
  argument.of_input = native::quantize_multiplier(scale_of(*all.input_weights(gate)) * scale_of(*all.at(0)) / scale);
  argument.of_output =
      native::quantize_multiplier(scale_of(*all.recurrent_weights(gate)) * scale_of(*all.at(1)) / scale);
  argument.bias = copied<int32_t>(builder, all.bias(gate));
  if (const Tensor* peephole = all.peephole(gate)) {
    const double cell_scale = std::ldexp(1.0, exponent_of(*all.at(2)));
    argument.of_cell = native::quantize_multiplier(float(cell_scale * double(scale_of(*peephole)) / double(scale)));
    argument.peephole = copied<int16_t>(builder, peephole);
  }
  if (const Tensor* norm = all.norm(gate)) {
    argument.norm = native::quantize_multiplier(scale_of(*norm));
    argument.weights = copied<int16_t>(builder, norm);
    argument.least_variance = std::max<int64_t>(1, int64_t(10000 * scale_of(*norm)));
  }
  return argument;
}

void set_output(IntegerLstm& lstm, const Names& all, Builder& builder) {
  const Node& node = all.node;
  const Tensor& state = *all.at(1);
  const double declared_scale = node.number("hidden_state_scale");
  const float hidden_scale = declared_scale > 0 ? float(declared_scale) : scale_of(state);
  lstm.output_zero = state.zero_point();
  lstm.hidden_zero = declared_scale > 0 ? node.integer("hidden_state_zero_point") : state.zero_point();
  lstm.hidden = native::quantize_multiplier(float(std::ldexp(std::ldexp(1.0, -15) / double(hidden_scale), -15)));
  lstm.projection_bias = nullptr;
  if (!all.projection()) return;
  lstm.hidden_zero = -lstm.hidden_zero;  // as TFLite does; it shows only if a value is clamped
  lstm.projection = packed(builder, {all.projection()});
  lstm.projection_bias = copied<int32_t>(builder, all.at(19));
  lstm.projected = native::quantize_multiplier(scale_of(*all.projection()) * hidden_scale / scale_of(state));
  const double clip = node.number(all.sequence ? "clipping_thres_proj" : "projection_clip");
  lstm.output_bound = bound_of(clip, scale_of(state), 127);
}

void lower(const Node& node, Builder& builder) {
  const Names all{builder.graph, node, node.type != "QLstm"};
  const Tensor& in = *all.at(0);
  auto lstm = std::make_shared<IntegerLstm>();
  lstm->kernels = &recurrent_kernels_for(builder.settings.isa);
  lstm->time_major = !all.sequence || node.flag("time_major");
  lstm->steps = all.sequence ? in.shape[lstm->time_major ? 0 : 1] : 1;
  lstm->batch = in.shape[!all.sequence ? 0 : lstm->time_major ? 1 : 0];
  lstm->coupled = all.coupled();
  lstm->inputs = in.extent(-1);
  lstm->units = all.at(2)->shape[1], lstm->outputs = all.at(1)->shape[1];
  lstm->input_zero = in.zero_point();
  lstm->cell_exponent = exponent_of(*all.at(2));
  lstm->cell_bound =
      bound_of(node.number(all.sequence ? "clipping_thres_cell" : "cell_clip"), scale_of(*all.at(2)), 32767);
  lstm->sigmoid = sigmoid_table(), lstm->tanh = tanh_table(3),
  lstm->tanh_of_cell = tanh_table(15 + lstm->cell_exponent);
  std::vector<const Tensor*> of_input, of_output;
  for (int gate = int(lstm->first_gate()); gate < kGates; ++gate) {
    of_input.push_back(all.input_weights(gate)), of_output.push_back(all.recurrent_weights(gate));
    lstm->gates[gate] = argument_of(all, gate, builder);
  }
  lstm->of_input = packed(builder, of_input), lstm->of_output = packed(builder, of_output);
  set_output(*lstm, all, builder);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &IntegerLstm::run;
  step.operations = 2.0 * double(lstm->steps * lstm->batch * lstm->rows()) * double(lstm->inputs + lstm->outputs);
  step.max_parts = std::min(int(std::max<int64_t>(lstm->batch, 1)),
                            parts_for(builder.settings, step.operations / 2 * cost::kRecurrentWeightNs));
  step.scratch_per_part = lstm->scratch();
  for (int position : {0, 1, 2}) step.in.push_back(builder.buffer(node.inputs[size_t(position)]));
  const size_t first = all.sequence ? 0 : 2, state = all.sequence ? 1 : 0, cell = all.sequence ? 2 : 1;
  for (size_t position : {first, state, cell}) step.out.push_back(builder.buffer(node.outputs[position]));
  step.state = std::move(lstm);
  builder.add(std::move(step));
}

// ---- QuantizedLstm --------------------------------------------------------------------------------------------------

struct QuantizedLstm {
  const RecurrentKernels* kernels;
  int64_t batch, inputs, units;
  Matrix weights;  // for the gates input, forget, cell, output
  const int32_t* bias[kGates];
  FixedPoint factor;
  const int16_t *sigmoid, *tanh;

  uint64_t scratch() const { return uint64_t(kGates * units) * 4 + uint64_t(inputs + units) * 2 + 64; }

  /// The argument of a gate's function, of which `sums` has the products.
  int64_t argument(const int32_t* sums, int gate, int64_t unit) const {
    return native::saturated16(native::multiply(int64_t{sums[gate * units + unit]} + bias[gate][unit], factor));
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const QuantizedLstm& self = step.as<QuantizedLstm>();
    const Range range = split(self.batch, part, parts);
    int32_t* sums = run.part_scratch<int32_t>(part);
    int16_t* x = reinterpret_cast<int16_t*>(sums + kGates * self.units);
    for (int64_t b = range.first; b < range.last; ++b) {
      const uint8_t *in = run.at<uint8_t>(step.in[0]) + b * self.inputs,
                    *state = run.at<uint8_t>(step.in[2]) + b * self.units;
      for (int64_t n = 0; n < self.inputs; ++n) x[n] = int16_t(in[n] - 128);
      for (int64_t n = 0; n < self.units; ++n) x[self.inputs + n] = int16_t(state[n] - 128);
      self.kernels->multiply_integers(self.weights.weights, x, self.inputs + self.units, kGates * self.units, sums);
      for (int64_t n = 0; n < self.units; ++n)
        self.unit(sums, n, run.at<int16_t>(step.in[1])[b * self.units + n],
                  run.at<int16_t>(step.out[0])[b * self.units + n], run.at<uint8_t>(step.out[1])[b * self.units + n]);
    }
  }

  void unit(const int32_t* sums, int64_t n, int16_t before, int16_t& cell, uint8_t& out) const {
    const int64_t input = sigmoid[argument(sums, kInput, n)], forget = sigmoid[argument(sums, kForget, n)];
    const int64_t candidate = tanh[argument(sums, kCell, n)], output = sigmoid[argument(sums, kOutput, n)];
    const int64_t now = native::saturated16(native::divide_by_pot(native::high_mul16(input, candidate), 4) +
                                            native::high_mul16(forget, before));
    cell = int16_t(now);
    const int64_t gated = native::high_mul16(output, tanh[native::saturated16(now * 2)]);
    out = uint8_t(std::clamp<int64_t>(native::divide_by_pot(gated, 8), -128, 127) + 128);
  }
};

bool is_prescribed(const Tensor& data) {
  return data.dtype == IPR_DTYPE_UINT8 && has_one_scale(data) && data.scale() == 1.0 / 128 && data.zero_point() == 128;
}

bool is_prescribed_cell(const Tensor& cell) {
  return cell.dtype == IPR_DTYPE_INT16 && has_one_scale(cell) && cell.zero_point() == 0 && exponent_of(cell) == -11;
}

Refusal quantized_support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  const bool prescribed = is_prescribed(*graph.in(node, 0)) && is_prescribed(*graph.in(node, 2)) &&
                          is_prescribed(graph.out(node, 1)) && is_prescribed_cell(*graph.in(node, 1)) &&
                          is_prescribed_cell(graph.out(node));
  if (!prescribed) return refused("tensors are quantized in another way", IPR_REASON_QUANTIZATION);
  for (size_t n = 3; n < 15; ++n) {
    const Tensor& weights = *graph.in(node, n);
    if (!weights.is_constant()) return refused("weights and bias are not constant", IPR_REASON_NOT_CONSTANT);
    if (n < 11 &&
        (weights.dtype != IPR_DTYPE_UINT8 || !has_one_scale(weights) || !weights.same_quantization(*graph.in(node, 3))))
      return refused("weights are quantized in another way", IPR_REASON_QUANTIZATION);
    if (n >= 11 && weights.dtype != IPR_DTYPE_INT32)
      return refused("operand " + std::to_string(n) + " is " + described(weights) + "; takes int32",
                     IPR_REASON_DATA_TYPE);
  }
  if (graph.in(node, 0)->shape[1] + graph.in(node, 2)->shape[1] > kMostDepth)
    return refused("there are too many inputs", IPR_REASON_SHAPE);
  return taken();
}

/// Pack the weights of all gates: each row of the output state's weights before that of the input's. NNAPI multiplies
/// them in this order with the input followed by the output state.
Matrix joined(const Graph& graph, const Node& node, const QuantizedLstm& lstm, Builder& builder) {
  const int64_t depth = lstm.inputs + lstm.units;
  auto make = [&](void* to) {
    int16_t* out = static_cast<int16_t*>(to);
    const int64_t zero = graph.in(node, 3)->zero_point();
    for (size_t gate = 0; gate < kGates; ++gate)
      for (int64_t unit = 0; unit < lstm.units; ++unit) {
        const uint8_t* of_input = graph.in(node, 3 + gate)->values<uint8_t>() + unit * lstm.inputs;
        const uint8_t* of_state = graph.in(node, 7 + gate)->values<uint8_t>() + unit * lstm.units;
        for (int64_t n = 0; n < lstm.units; ++n) *out++ = int16_t(of_state[n] - zero);
        for (int64_t n = 0; n < lstm.inputs; ++n) *out++ = int16_t(of_input[n] - zero);
      }
  };
  return {static_cast<const int16_t*>(builder.pack(uint64_t(kGates * lstm.units * depth) * 2, make)), depth};
}

void lower_quantized(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  auto lstm = std::make_shared<QuantizedLstm>();
  lstm->kernels = &recurrent_kernels_for(builder.settings.isa);
  lstm->batch = graph.in(node, 0)->shape[0], lstm->inputs = graph.in(node, 0)->shape[1];
  lstm->units = graph.in(node, 2)->shape[1];
  lstm->weights = joined(graph, node, *lstm, builder);
  for (size_t gate = 0; gate < kGates; ++gate) lstm->bias[gate] = copied<int32_t>(builder, graph.in(node, 11 + gate));
  const float scale = scale_of(*graph.in(node, 0)) * scale_of(*graph.in(node, 3));
  lstm->factor = native::quantize_multiplier(4096 * double(scale));
  lstm->sigmoid = sigmoid_table(), lstm->tanh = tanh_table(3);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &QuantizedLstm::run;
  step.max_parts = std::min(int(std::max<int64_t>(lstm->batch, 1)), builder.settings.threads);
  step.operations = 8.0 * double(lstm->batch * lstm->units) * double(lstm->inputs + lstm->units);
  step.max_parts =
      std::min(step.max_parts, parts_for(builder.settings, step.operations / 2 * cost::kRecurrentWeightNs));
  step.scratch_per_part = lstm->scratch();
  for (size_t n : {0, 1, 2}) step.in.push_back(builder.buffer(node.inputs[n]));
  for (int tensor : node.outputs) step.out.push_back(builder.buffer(tensor));
  step.state = std::move(lstm);
  builder.add(std::move(step));
}

}  // namespace

Family integer_lstm_family() {
  return {{{"QLstm", "integers", support, lower, nullptr},
           {"UnidirectionalSequenceLstm", "integers", support, lower, nullptr},
           {"QuantizedLstm", "integers", quantized_support, lower_quantized, nullptr}},
          {}};
}

}  // namespace cpuacc
