// Recurrent layers of TFLite on float32: Lstm, UnidirectionalSequenceLstm and BidirectionalSequenceLstm, Rnn,
// UnidirectionalSequenceRnn and BidirectionalSequenceRnn. Weights may be quantized constants. Each direction is
// computed by one thread: the products with the inputs of several steps at once, then the steps one by one.

#include "cpuacc/lower/recurrent.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/real_constant.hpp"
#include "cpuacc/lower/row_rounding.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

// ---- Operands -------------------------------------------------------------------------------------------------------

constexpr int kAbsent = -1;
enum Gate { kInput, kForget, kCell, kOutput, kGates };
constexpr int kPlain = kCell;  // the place of the only "gate" of a layer without gates

/// Positions of the operands and results of one direction.
struct Positions {
  int x = 0, aux = kAbsent, hidden = kAbsent, cell = kAbsent, projection = kAbsent, projection_bias = kAbsent;
  int input[kGates] = {-1, -1, -1, -1}, aux_weights[kGates] = {-1, -1, -1, -1}, recurrent[kGates] = {-1, -1, -1, -1};
  int peephole[kGates] = {-1, -1, -1, -1}, bias[kGates] = {-1, -1, -1, -1}, norm[kGates] = {-1, -1, -1, -1};
  int out = 0, hidden_out = kAbsent, cell_out = kAbsent, scratch_out = kAbsent;
  bool backward = false;
};

void number(int (&positions)[kGates], int first) {
  for (int gate = 0; gate < kGates; ++gate) positions[gate] = first + gate;
}

/// Positions of the weights of an LSTM, of which `first` is the first one.
void number_gates(Positions& all, int first) {
  number(all.input, first);
  number(all.recurrent, first + 4);
  all.peephole[kInput] = first + 8, all.peephole[kForget] = first + 9, all.peephole[kOutput] = first + 10;
  number(all.bias, first + 11);
  all.projection = first + 15, all.projection_bias = first + 16;
}

Positions of_lstm(bool is_step) {
  Positions all;
  all.hidden = 1, all.cell = 2;
  number_gates(all, 3);
  number(all.norm, 20);
  all.out = is_step ? 3 : 0;
  all.hidden_out = 1, all.cell_out = 2;
  if (is_step) all.scratch_out = 0;
  return all;
}

Positions of_both_lstms(bool backward, bool merged) {
  Positions all;
  all.backward = backward;
  number_gates(all, backward ? 18 : 1);
  all.hidden = backward ? 37 : 35, all.cell = all.hidden + 1, all.aux = 39;
  number(all.aux_weights, backward ? 44 : 40);
  number(all.norm, backward ? 52 : 48);
  all.out = backward && !merged ? 5 : 0;
  all.hidden_out = backward ? 3 : 1, all.cell_out = all.hidden_out + 1;
  return all;
}

Positions of_rnn(bool is_step) {
  Positions all;
  all.input[kPlain] = 1, all.recurrent[kPlain] = 2, all.bias[kPlain] = 3, all.hidden = 4;
  all.out = is_step ? 1 : 0, all.hidden_out = is_step ? 0 : 1;
  return all;
}

Positions of_both_rnns(bool backward, bool merged) {
  Positions all;
  const int first = backward ? 5 : 1;
  all.backward = backward;
  all.input[kPlain] = first, all.recurrent[kPlain] = first + 1, all.bias[kPlain] = first + 2, all.hidden = first + 3;
  all.aux = 9, all.aux_weights[kPlain] = backward ? 11 : 10;
  all.out = backward && !merged ? 3 : 0, all.hidden_out = backward ? 2 : 1;
  return all;
}

bool is_step(const Node& node) { return node.type == "Lstm" || node.type == "Rnn"; }
bool is_simple(const Node& node) { return node.type.substr(node.type.size() - 3) == "Rnn"; }

const Tensor* at(const Graph& graph, const Node& node, int position) {
  return position < 0 ? nullptr : graph.in(node, size_t(position));
}

/// The operands of each direction. An auxiliary input without weights is the input of the backward direction.
std::vector<Positions> directions_of(const Graph& graph, const Node& node) {
  if (node.type.compare(0, 13, "Bidirectional") != 0)
    return {is_simple(node) ? of_rnn(is_step(node)) : of_lstm(is_step(node))};
  const bool merged = node.flag("merge_outputs");
  std::vector<Positions> all;
  for (bool backward : {false, true}) {
    Positions positions = is_simple(node) ? of_both_rnns(backward, merged) : of_both_lstms(backward, merged);
    const int weights = positions.aux_weights[is_simple(node) ? kPlain : kOutput];
    if (at(graph, node, positions.aux) && !at(graph, node, weights)) {
      if (backward) positions.x = positions.aux;
      positions.aux = kAbsent;
    }
    all.push_back(positions);
  }
  return all;
}

// ---- Support --------------------------------------------------------------------------------------------------------

bool is_data(const Positions& all, int position) {
  return position == all.x || position == all.aux || position == all.hidden || position == all.cell;
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!squash_of(node.text("activation_func")))
    return refused("the function " + std::string(node.text("activation_func")) + " is not supported",
                   IPR_REASON_ATTRIBUTE);
  const std::vector<Positions> directions = directions_of(graph, node);
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    const Tensor* operand = graph.in(node, n);
    if (!operand) continue;
    auto holds = [&](const Positions& all) { return is_data(all, int(n)); };
    const bool data = n == 0 || std::any_of(directions.begin(), directions.end(), holds);
    if (data && !is_f32(*operand))
      return refused("operand " + std::to_string(n) + " is " + described(*operand) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
    if (!data && !operand->is_constant()) return refused("weights and bias are not constant", IPR_REASON_NOT_CONSTANT);
    if (!data && !is_real_constant(*operand))
      return refused("weights are " + described(*operand) + "; takes float32 and quantized integers",
                     IPR_REASON_DATA_TYPE);
  }
  for (int tensor : node.outputs)
    if (tensor >= 0 && !is_f32(graph[tensor]))
      return refused("the result is " + described(graph[tensor]) + "; takes float32", IPR_REASON_DATA_TYPE);
  return taken();
}

// ---- The layer ------------------------------------------------------------------------------------------------------

/// A matrix of weights, packed for `RecurrentKernels::multiply`; `depth` is 0 if it is absent.
struct Matrix {
  const float* packed = nullptr;
  int64_t rows = 0, depth = 0;  // rows are padded
};

/// The weights of one direction. Gates follow one another in the order input, forget, cell, output. A layer without
/// gates has one, and LSTMs with a coupled input gate have three.
struct Cell {
  int64_t units = 0, outputs = 0, gates = 0;
  bool coupled = false, backward = false;
  Matrix of_input, of_aux, recurrent, projection;
  const float *bias = nullptr, *norm = nullptr, *projection_bias = nullptr;
  const float* peephole[kGates] = {};
  int x = 0, aux = -1, hidden = -1, cell = -1;  // positions in the `in` of the step; -1: absent
  int out = 0, hidden_out = -1, cell_out = -1, scratch_out = -1;
  int64_t out_width = 0, out_offset = 0;

  int64_t width() const { return padded(units); }  // of one gate
  bool is_simple() const { return gates == 1; }
  /// The place of a gate in the sums of a sequence.
  float* gate(float* sums, Gate which) const { return sums + (int(which) - (coupled ? 1 : 0)) * width(); }
};

/// Scratch memory, of which the parts are taken one after another.
class Scratch {
 public:
  explicit Scratch(float* begin) : next_(begin) {}
  float* take(int64_t count) {
    float* taken = next_;
    if (next_) next_ += padded(count);
    count_ += padded(count);
    return taken;
  }
  uint64_t bytes() const { return uint64_t(count_) * sizeof(float); }

 private:
  float* next_;
  int64_t count_ = 0;
};

struct Layer {
  const RecurrentKernels* kernels;
  std::optional<RowRounding> rounding;
  Squash function;
  float cell_bound, projection_bound;  // infinite: none
  int64_t steps, batch, chunk;         // `chunk` steps are multiplied with the weights of inputs at once
  bool time_major;
  std::vector<Cell> cells;

  int64_t row_of(int64_t time, int64_t sequence) const {
    return time_major ? time * batch + sequence : sequence * steps + time;
  }
};

/// The memory of one direction.
struct Memory {
  float *x, *aux, *sums, *rounded, *hidden, *cell, *inner;

  Memory(const Layer& layer, const Cell& cell, Scratch& scratch)
      : x(scratch.take(layer.chunk * layer.batch * cell.of_input.depth)),
        aux(scratch.take(layer.chunk * layer.batch * cell.of_aux.depth)),
        sums(scratch.take(layer.chunk * layer.batch * cell.gates * cell.width())),
        rounded(scratch.take(layer.batch * std::max(cell.outputs, cell.units))),
        hidden(scratch.take(layer.batch * padded(cell.outputs))), cell(scratch.take(layer.batch * cell.width())),
        inner(scratch.take(layer.batch * cell.width())) {}
};

/// The computation of one direction in one run.
struct Direction {
  const Layer& layer;
  const Cell& cell;
  const Step& step;
  const Run& run;
  Memory memory;

  void all() {
    load(cell.hidden, memory.hidden, cell.outputs, padded(cell.outputs));
    if (!cell.is_simple()) load(cell.cell, memory.cell, cell.units, cell.width());
    for (int64_t first = 0; first < layer.steps; first += layer.chunk) {
      const int64_t count = std::min(layer.chunk, layer.steps - first);
      multiply_inputs(first, count);
      for (int64_t n = 0; n < count; ++n) one(first + n, memory.sums + n * layer.batch * cell.gates * cell.width());
    }
    keep(cell.hidden_out, memory.hidden, cell.outputs, padded(cell.outputs));
    if (!cell.is_simple()) keep(cell.cell_out, memory.cell, cell.units, cell.width());
  }

  int64_t time_of(int64_t number) const { return cell.backward ? layer.steps - 1 - number : number; }

  /// Read an initial state, with padding after each row.
  void load(int position, float* to, int64_t count, int64_t width) const {
    std::memset(to, 0, size_t(layer.batch * width) * sizeof(float));
    if (position < 0) return;
    const float* from = run.at<float>(step.in[size_t(position)]);
    for (int64_t b = 0; b < layer.batch; ++b) std::copy_n(from + b * count, count, to + b * width);
  }

  void keep(int position, const float* from, int64_t count, int64_t width) const {
    if (position < 0) return;
    float* to = run.at<float>(step.out[size_t(position)]);
    for (int64_t b = 0; b < layer.batch; ++b) std::copy_n(from + b * width, count, to + b * count);
  }

  /// Copy the rows of an input at some steps, rounded if the layer rounds its activations.
  void gather(int position, int64_t depth, int64_t first, int64_t count, float* to) const {
    const float* from = run.at<float>(step.in[size_t(position)]);
    for (int64_t n = first; n < first + count; ++n)
      for (int64_t b = 0; b < layer.batch; ++b, to += depth) {
        const float* row = from + layer.row_of(time_of(n), b) * depth;
        layer.rounding ? layer.rounding->row(row, to, depth) : void(std::copy_n(row, depth, to));
      }
  }

  void multiply(const Matrix& matrix, const float* in, int64_t in_step, int64_t count, float* out,
                int64_t out_step) const {
    layer.kernels->multiply(matrix.packed, in, in_step, count, matrix.depth, matrix.rows, out, out_step);
  }

  /// The products of the inputs of some steps. They include the bias, unless it is added after a normalization.
  void multiply_inputs(int64_t first, int64_t count) {
    const int64_t rows = count * layer.batch, width = cell.gates * cell.width();
    for (int64_t n = 0; n < rows; ++n)
      cell.norm ? void(std::fill_n(memory.sums + n * width, width, 0.0f))
                : void(std::copy_n(cell.bias, width, memory.sums + n * width));
    gather(cell.x, cell.of_input.depth, first, count, memory.x);
    multiply(cell.of_input, memory.x, cell.of_input.depth, rows, memory.sums, width);
    if (cell.aux < 0) return;
    gather(cell.aux, cell.of_aux.depth, first, count, memory.aux);
    multiply(cell.of_aux, memory.aux, cell.of_aux.depth, rows, memory.sums, width);
  }

  /// The rows of a state, rounded if the layer rounds its activations.
  const float* rounded(const float* from, int64_t count, int64_t& width) const {
    if (!layer.rounding) return from;
    for (int64_t b = 0; b < layer.batch; ++b) layer.rounding->row(from + b * width, memory.rounded + b * count, count);
    width = count;
    return memory.rounded;
  }

  void one(int64_t number, float* sums) {
    const int64_t width = cell.gates * cell.width();
    int64_t before_width = padded(cell.outputs);
    const float* before = rounded(memory.hidden, cell.outputs, before_width);
    multiply(cell.recurrent, before, before_width, layer.batch, sums, width);
    for (int64_t b = 0; b < layer.batch; ++b)
      cell.is_simple() ? simple(sums + b * width, memory.hidden + b * padded(cell.outputs))
                       : gated(sums + b * width, b, memory.inner + b * cell.width());
    if (!cell.is_simple()) project();
    float* out = run.at<float>(step.out[size_t(cell.out)]);
    for (int64_t b = 0; b < layer.batch; ++b)
      std::copy_n(memory.hidden + b * padded(cell.outputs), cell.outputs,
                  out + layer.row_of(time_of(number), b) * cell.out_width + cell.out_offset);
    if (cell.scratch_out >= 0) keep_gates(sums);
  }

  void simple(float* sums, float* hidden) const {
    layer.kernels->activate(sums, cell.width(), layer.function);
    std::copy_n(sums, cell.width(), hidden);
  }

  /// The argument of a gate's function: with the product of the cell state, and normalized.
  void finish(float* sums, Gate which, const float* state) const {
    const int64_t width = cell.width();
    if (cell.peephole[which]) layer.kernels->add_products(sums, cell.peephole[which], state, width);
    const int64_t place = (int(which) - (cell.coupled ? 1 : 0)) * width;
    if (cell.norm) layer.kernels->normalize(sums, cell.norm + place, cell.bias + place, cell.units);
  }

  void gated(float* sums, int64_t sequence, float* inner) const {
    const RecurrentKernels& kernels = *layer.kernels;
    const int64_t width = cell.width();
    float* state = memory.cell + sequence * width;
    float* gates[kGates];
    for (int gate = cell.coupled ? 1 : 0; gate < kGates; ++gate) {
      gates[gate] = cell.gate(sums, Gate(gate));
      if (gate != kOutput) finish(gates[gate], Gate(gate), state);
    }
    kernels.activate(gates[kForget], width, Squash::sigmoid);
    if (!cell.coupled) kernels.activate(gates[kInput], width, Squash::sigmoid);
    kernels.activate(gates[kCell], width, layer.function);
    kernels.update(gates[kForget], cell.coupled ? nullptr : gates[kInput], gates[kCell], state, width,
                   layer.cell_bound);
    finish(gates[kOutput], kOutput, state);
    kernels.activate(gates[kOutput], width, Squash::sigmoid);
    std::copy_n(state, width, inner);
    kernels.activate(inner, width, layer.function);
    kernels.scale(gates[kOutput], inner, inner, width);
  }

  /// Set the hidden states from the products of output gates and cells.
  void project() const {
    const int64_t width = padded(cell.outputs);
    if (!cell.projection.depth) {
      std::copy_n(memory.inner, layer.batch * width, memory.hidden);
      return;
    }
    int64_t inner_width = cell.width();
    const float* inner = rounded(memory.inner, cell.units, inner_width);
    for (int64_t b = 0; b < layer.batch; ++b) std::copy_n(cell.projection_bias, width, memory.hidden + b * width);
    multiply(cell.projection, inner, inner_width, layer.batch, memory.hidden, width);
    if (std::isinf(layer.projection_bound)) return;
    for (int64_t n = 0; n < layer.batch * width; ++n) {
      float& value = memory.hidden[n];
      if (value == value) value = std::clamp(value, -layer.projection_bound, layer.projection_bound);
    }
  }

  /// The values of all gates, in the order input, cell, forget, output.
  void keep_gates(float* sums) const {
    float* to = run.at<float>(step.out[size_t(cell.scratch_out)]);
    for (int64_t b = 0; b < layer.batch; ++b)
      for (Gate gate : {kInput, kCell, kForget, kOutput}) {
        if (gate == kInput && cell.coupled) continue;
        to = std::copy_n(cell.gate(sums + b * cell.gates * cell.width(), gate), cell.units, to);
      }
  }
};

void run_layer(const Step& step, const Run& run, int part, int parts) {
  const Layer& layer = step.as<Layer>();
  const Range range = split(int64_t(layer.cells.size()), part, parts);
  for (int64_t n = range.first; n < range.last; ++n) {
    const Cell& cell = layer.cells[size_t(n)];
    Scratch scratch(run.part_scratch<float>(part));
    Direction{layer, cell, step, run, Memory(layer, cell, scratch)}.all();
  }
}

// ---- Lowering -------------------------------------------------------------------------------------------------------

/// Packs the weights of one direction.
class CellMaker {
 public:
  CellMaker(const Node& node, Builder& builder, const Positions& positions)
      : node_(node), builder_(builder), positions_(positions) {}

  Cell made() {
    const Graph& graph = builder_.graph;
    const bool simple = is_simple(node_);
    for (int gate = 0; gate < kGates; ++gate)
      if (at(graph, node_, positions_.recurrent[gate])) gates_.push_back(gate);
    Cell cell;
    const Tensor& recurrent = *at(graph, node_, positions_.recurrent[simple ? kPlain : kOutput]);
    cell.units = recurrent.shape[0], cell.outputs = recurrent.shape[1];
    cell.gates = int64_t(gates_.size());
    cell.coupled = !simple && gates_.size() == 3;
    cell.backward = positions_.backward;
    units_ = cell.units;
    cell.of_input = stacked(positions_.input);
    cell.recurrent = stacked(positions_.recurrent);
    if (positions_.aux >= 0 && at(graph, node_, positions_.aux)) cell.of_aux = stacked(positions_.aux_weights);
    cell.bias = rows(positions_.bias);
    if (at(graph, node_, positions_.norm[kOutput])) cell.norm = rows(positions_.norm);
    for (int gate : gates_)
      if (at(graph, node_, positions_.peephole[gate]))
        cell.peephole[gate] = padded_row(positions_.peephole[gate], cell.units);
    if (at(graph, node_, positions_.projection)) {
      cell.projection = packed({positions_.projection}, cell.outputs);
      cell.projection_bias = padded_row(positions_.projection_bias, cell.outputs);
    }
    return cell;
  }

 private:
  Matrix stacked(const int (&positions)[kGates]) {
    std::vector<int> all;
    for (int gate : gates_) all.push_back(positions[gate]);
    return packed(all, units_);
  }

  /// Pack matrices of `rows` rows each: [matrix][block of 16 rows][k][16].
  Matrix packed(std::vector<int> positions, int64_t rows) {
    const int64_t width = padded(rows), depth = at(builder_.graph, node_, positions[0])->shape[1];
    const int64_t all = width * int64_t(positions.size());
    const void* packed = builder_.pack(uint64_t(all * depth) * sizeof(float), [&](void* to) {
      float* out = static_cast<float*>(to);
      for (size_t n = 0; n < positions.size(); ++n) {
        const std::vector<float> values = reals(*at(builder_.graph, node_, positions[n]));
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t k = 0; k < depth; ++k)
            out[((int64_t(n) * width + row) / 16 * depth + k) * 16 + row % 16] = values[size_t(row * depth + k)];
      }
    });
    return {static_cast<const float*>(packed), all, depth};
  }

  const float* rows(const int (&positions)[kGates]) {
    const int64_t width = padded(units_);
    return static_cast<const float*>(builder_.pack(uint64_t(width) * gates_.size() * sizeof(float), [&](void* to) {
      float* out = static_cast<float*>(to);
      for (size_t n = 0; n < gates_.size(); ++n)
        if (const Tensor* tensor = at(builder_.graph, node_, positions[gates_[n]])) {
          const std::vector<float> values = reals(*tensor);
          std::copy(values.begin(), values.end(), out + int64_t(n) * width);
        }
    }));
  }

  /// A row of parameters; zeros if it is absent.
  const float* padded_row(int position, int64_t count) {
    return static_cast<const float*>(builder_.pack(uint64_t(padded(count)) * sizeof(float), [&](void* to) {
      if (const Tensor* tensor = at(builder_.graph, node_, position)) {
        const std::vector<float> values = reals(*tensor);
        std::copy(values.begin(), values.end(), static_cast<float*>(to));
      }
    }));
  }

  const Node& node_;
  Builder& builder_;
  const Positions& positions_;
  std::vector<int> gates_;  // those that have weights
  int64_t units_ = 0;
};

constexpr int64_t kChunkBytes = 128 * 1024;  // of the products of inputs, so that they stay in the cache

float bound_of(const Node& node, const char* name) {
  const double bound = node.number(name);
  return bound > 0 ? float(bound) : INFINITY;
}

/// Connect a tensor with the step; return its position there, or -1 if it is absent.
int connected(std::vector<Buffer>& buffers, Builder& builder, const std::vector<int>& tensors, int position) {
  if (position < 0 || size_t(position) >= tensors.size() || tensors[size_t(position)] < 0) return -1;
  buffers.push_back(builder.buffer(tensors[size_t(position)]));
  return int(buffers.size()) - 1;
}

void connect(Cell& cell, const Positions& all, const Node& node, Builder& builder, Step& step) {
  cell.x = connected(step.in, builder, node.inputs, all.x);
  cell.aux = connected(step.in, builder, node.inputs, all.aux);
  cell.hidden = connected(step.in, builder, node.inputs, all.hidden);
  cell.cell = connected(step.in, builder, node.inputs, all.cell);
  cell.out = connected(step.out, builder, node.outputs, all.out);
  cell.hidden_out = connected(step.out, builder, node.outputs, all.hidden_out);
  cell.cell_out = connected(step.out, builder, node.outputs, all.cell_out);
  cell.scratch_out = connected(step.out, builder, node.outputs, all.scratch_out);
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const std::vector<Positions> directions = directions_of(graph, node);
  const Tensor& in = *graph.in(node, 0);
  const std::string_view rounding = node.text("activation_rounding", "NONE");
  auto layer = std::make_shared<Layer>();
  layer->kernels = &recurrent_kernels_for(builder.settings.isa);
  if (rounding != "NONE") layer->rounding.emplace(builder.settings.isa, rounding == "ASYMMETRIC");
  layer->function = *squash_of(node.text("activation_func"));
  layer->cell_bound = bound_of(node, "clipping_thres_cell");
  layer->projection_bound = bound_of(node, "clipping_thres_proj");
  layer->time_major = is_step(node) || node.flag("time_major");
  layer->steps = is_step(node) ? 1 : in.shape[layer->time_major ? 0 : 1];
  layer->batch = in.shape[is_step(node) ? 0 : layer->time_major ? 1 : 0];
  Step step;
  double products = 0;
  int64_t widest = 1;
  for (const Positions& positions : directions) {
    Cell cell = CellMaker(node, builder, positions).made();
    connect(cell, positions, node, builder, step);
    cell.out_width = graph.out(node, size_t(positions.out)).extent(-1);
    cell.out_offset = positions.backward && positions.out == 0 ? cell.out_width - cell.outputs : 0;
    widest = std::max(widest, cell.gates * cell.width());
    products += double(cell.of_input.rows * (cell.of_input.depth + cell.recurrent.depth));
    layer->cells.push_back(cell);
  }
  layer->chunk = std::clamp<int64_t>(kChunkBytes / (widest * 4 * std::max<int64_t>(layer->batch, 1)), 1,
                                     std::max<int64_t>(layer->steps, 1));
  for (const Cell& cell : layer->cells) {
    Scratch scratch(nullptr);
    Memory(*layer, cell, scratch);
    step.scratch_per_part = std::max(step.scratch_per_part, scratch.bytes());
  }
  products *= double(layer->steps * layer->batch);
  step.name = node.type + " " + node.name;
  step.fn = &run_layer;
  step.operations = 2 * products;
  step.max_parts = std::min(int(directions.size()), parts_for(builder.settings, products * cost::kRecurrentWeightNs));
  step.state = std::move(layer);
  builder.add(std::move(step));
}

}  // namespace

Family recurrent_family() {
  Family family;
  for (const char* type : {"Lstm", "UnidirectionalSequenceLstm", "BidirectionalSequenceLstm", "Rnn",
                           "UnidirectionalSequenceRnn", "BidirectionalSequenceRnn"})
    family.lowerings.push_back({type, "steps", support, lower, nullptr});
  return family;
}

}  // namespace cpuacc
