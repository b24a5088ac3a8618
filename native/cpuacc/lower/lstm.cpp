// LstmSequence, GruSequence, RnnSequence. The products of the input and its weights become one FullyConnected layer for
// all time steps. The recurrent part of each direction becomes "acc.Lstm", "acc.Gru" or "acc.Rnn". An LSTM that
// quantizes its states becomes an IntegerMatMul and "acc.DynamicLstm".

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/kernels/conv_f32.hpp"
#include "cpuacc/kernels/lstm.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/gemm_q8.hpp"
#include "cpuacc/lower/lstm.hpp"
#include "cpuacc/lower/pack_f32.hpp"
#include "cpuacc/lower/row_rounding.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMaxSteps = 4096;
constexpr int64_t kManySequences =
    4;  // sequences from which on a step is a matrix product, which reads the weights once for all

bool reversed(const Node& node, int64_t direction) {
  return node.text("direction") == "REVERSE" || (node.text("direction") == "BIDIRECTIONAL" && direction == 1);
}

/// 4 for LSTM, 3 for GRU, 1 for a simple recurrent layer.
int64_t gates_of(const Node& node) {
  return node.type == "LstmSequence" ? 4 : node.type == "GruSequence" || node.type == "acc.Gru" ? 3 : 1;
}

bool usual_functions(const Node& node) {
  const Value* activations = node.find("activations");
  if (!activations || activations->texts.empty()) return true;
  const int64_t gates = gates_of(node);
  const std::vector<std::string> usual = gates == 4   ? std::vector<std::string>{"SIGMOID", "TANH", "TANH"}
                                         : gates == 3 ? std::vector<std::string>{"SIGMOID", "TANH"}
                                                      : std::vector<std::string>{"TANH"};
  for (size_t n = 0; n < activations->texts.size(); ++n)
    if (activations->texts[n] != usual[n % usual.size()]) return false;
  auto ones = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double value) { return value == 1; });
  };
  return ones(node.numbers("activation_a")) && ones(node.numbers("activation_b"));
}

/// What is supported, whatever the types are.
Refusal support_form(const Graph& graph, const Node& node) {
  if (graph.in(node, 4)) return refused("sequence lengths are not taken", IPR_REASON_OTHER);
  if (graph.in(node, 7)) return refused("peephole weights are not taken", IPR_REASON_OTHER);
  if (!node.posts.empty()) return refused("takes no post-ops");
  for (size_t n : {1, 2, 3})
    if (graph.in(node, n) && !graph.in(node, n)->is_constant())
      return refused("weights and bias are not constant", IPR_REASON_NOT_CONSTANT);
  if (node.flag("input_forget") || node.number("clip") > 0 || !usual_functions(node))
    return refused("takes no clip, no coupled gates, and only the usual functions", IPR_REASON_ATTRIBUTE);
  const Tensor& in = *graph.in(node, 0);
  if (!node.flag("time_major") && in.shape[0] != 1)
    return refused("takes the time as first axis", IPR_REASON_ATTRIBUTE);
  if (in.elements() == 0) return refused("there are no steps", IPR_REASON_SHAPE);
  int64_t steps = node.flag("time_major") ? in.shape[0] : in.shape[1];
  if (steps > kMaxSteps) return refused("more than 4096 steps", IPR_REASON_RESOURCE);
  return taken();
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (node.flag("dynamic_quantization"))
    return refused("takes no states that are quantized in each step", IPR_REASON_ATTRIBUTE);
  if (Refusal why = all_f32(graph, node)) return why;
  return support_form(graph, node);
}

/// Return whether weights are 8-bit integers with one scale, or with one for each row of each gate.
bool has_byte_weights(const Tensor& weights) {
  return (weights.dtype == IPR_DTYPE_INT8 || weights.dtype == IPR_DTYPE_UINT8) && weights.is_quantized() &&
         weights.shape[0] == 1 && (!weights.has_axis() || weights.axis == 1);
}

}  // namespace

Refusal support_dynamic_lstm(const Graph& graph, const Node& node, const Settings&) {
  if (!node.flag("dynamic_quantization")) return refused("quantizes no states", IPR_REASON_ATTRIBUTE);
  for (size_t n : {1, 2})
    if (!has_byte_weights(*graph.in(node, n)))
      return refused("weights are " + described(*graph.in(node, n)) + "; takes 8 bits and one direction",
                     IPR_REASON_DATA_TYPE);
  for (size_t n : {0, 3, 5, 6})
    if (graph.in(node, n) && !is_f32(*graph.in(node, n)))
      return refused("operand " + std::to_string(n) + " is " + described(*graph.in(node, n)) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  if (!is_f32(graph.out(node))) return refused("the result is " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  if (graph.in(node, 0)->extent(2) == 0) return refused("the input has no elements", IPR_REASON_SHAPE);
  return support_form(graph, node);
}

namespace {

void never(const Node&, Builder&) {}

// ---- The pass -------------------------------------------------------------------------------------------------------

int constant_of(Graph& graph, const Shape& shape, std::shared_ptr<std::vector<float>> values) {
  Tensor constant;
  constant.shape = shape;
  constant.data = values->data();
  constant.owner = std::move(values);
  return graph.add_tensor(constant);
}

void add_flag(Node& node, const char* name) {
  Value value;
  value.name = name;
  value.kind = IPR_KIND_BOOL;
  value.i = 1;
  node.attributes.push_back(value);
}

/// The node that multiplies the input (T, B, I) by the weights of one direction: (T, B, gates * H). It adds both
/// biases, except for the recurrent bias of the hidden gate of a GRU, which the reset gate multiplies.
Node product_of(Graph& graph, const Node& node, int64_t direction, int64_t hidden) {
  const Tensor in = *graph.in(node, 0), weights = *graph.in(node, 1);
  const int64_t gates = gates_of(node), rows = gates * hidden, depth = in.shape[2];
  const bool apart = node.flag("linear_before_reset");
  auto own = std::make_shared<std::vector<float>>(weights.values<float>() + direction * rows * depth,
                                                  weights.values<float>() + (direction + 1) * rows * depth);
  auto bias = std::make_shared<std::vector<float>>(size_t(rows), 0.0f);
  if (const Tensor* biases = graph.in(node, 3))
    for (int64_t n = 0; n < rows; ++n)
      (*bias)[size_t(n)] = biases->values<float>()[direction * 2 * rows + n] +
                           (apart && n >= 2 * hidden ? 0 : biases->values<float>()[direction * 2 * rows + rows + n]);
  Tensor result;
  result.shape = {in.shape[0], in.shape[1], rows};
  Node product;
  product.type = "FullyConnected";
  product.name = node.name;
  product.layer = node.layer;
  add_flag(product, "transpose_weight_matrix");
  add_flag(product, "keep_dims");
  int w = constant_of(graph, {rows, depth}, own), b = constant_of(graph, {rows}, bias);
  product.inputs = {node.inputs[0], w, b};
  product.outputs = {graph.add_tensor(result)};
  return product;
}

template <class T>
int constant_of(Graph& graph, const Shape& shape, int32_t dtype, std::vector<T> values) {
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  Tensor constant;
  constant.shape = shape, constant.dtype = dtype;
  constant.data = owner->data();
  constant.owner = std::move(owner);
  return graph.add_tensor(constant);
}

/// The scales of the rows of weights, or the only one.
std::vector<float> scales_of(const Tensor& weights) { return {weights.scales.begin(), weights.scales.end()}; }

std::vector<uint8_t> zeros_of(const Tensor& weights) {
  std::vector<uint8_t> zeros;
  for (int64_t zero : weights.zero_points) zeros.push_back(uint8_t(zero));
  if (zeros.empty()) zeros.push_back(0);
  return zeros;
}

Shape shape_of(size_t count) { return count == 1 ? Shape{} : Shape{int64_t(count)}; }

/// Weights (1, rows, depth) of 8 bits as a matrix of `width` columns: each gate has `width / 4` of them. Columns
/// without weights have zero points, of which the rows have one each, or all the same.
std::vector<uint8_t> transposed_bytes(const Tensor& weights, int64_t width) {
  const int64_t rows = weights.shape[1], depth = weights.shape[2], units = rows / 4;
  const std::vector<uint8_t> zeros = zeros_of(weights);
  const uint8_t* from = static_cast<const uint8_t*>(weights.data);
  std::vector<uint8_t> columns(size_t(depth * width), zeros[0]);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t column = row / units * (width / 4) + row % units;
    for (int64_t k = 0; k < depth; ++k) columns[size_t(k * width + column)] = from[row * depth + k];
  }
  return columns;
}

Node node_of(const Node& layer, const char* type, std::vector<int> inputs, std::vector<int> outputs) {
  Node node;
  node.type = type, node.name = layer.name, node.layer = layer.layer;
  node.inputs = std::move(inputs), node.outputs = std::move(outputs);
  return node;
}

int result_of(Graph& graph, const Shape& shape, int32_t dtype) {
  Tensor result;
  result.shape = shape, result.dtype = dtype;
  return graph.add_tensor(result);
}

/// Append the nodes that quantize the input of a layer, and multiply it by the weights: (T, B, 4 * hidden). Return the
/// products.
int add_dynamic_products(Graph& graph, const Node& node, std::vector<Node>& nodes) {
  const Tensor in = *graph.in(node, 0), weights = *graph.in(node, 1);
  const int64_t rows = weights.shape[1];
  const std::vector<float> scales = scales_of(weights);
  const std::vector<uint8_t> zeros = zeros_of(weights);
  const int values = result_of(graph, in.shape, IPR_DTYPE_UINT8), scale = result_of(graph, {}, IPR_DTYPE_FLOAT32),
            zero = result_of(graph, {}, IPR_DTYPE_UINT8);
  nodes.push_back(node_of(node, "DynamicQuantize", {node.inputs[0]}, {values, scale, zero}));
  const Shape by_row = shape_of(scales.size());
  const int of_weights = constant_of(graph, by_row, IPR_DTYPE_FLOAT32, scales),
            factors = result_of(graph, by_row, IPR_DTYPE_FLOAT32);
  nodes.push_back(node_of(node, "Multiplication", {scale, of_weights}, {factors}));
  const int matrix = constant_of(graph, {weights.shape[2], rows}, weights.dtype, transposed_bytes(weights, rows)),
            zero_points = constant_of(graph, shape_of(zeros.size()), weights.dtype, zeros),
            products = result_of(graph, {in.shape[0], in.shape[1], rows}, IPR_DTYPE_FLOAT32);
  nodes.push_back(node_of(node, "IntegerMatMul", {values, matrix, zero, zero_points, factors}, {products}));
  if (const Tensor* biases = graph.in(node, 3)) {
    std::vector<float> bias(static_cast<size_t>(rows));
    for (int64_t n = 0; n < rows; ++n) bias[size_t(n)] = biases->floats()[n] + biases->floats()[rows + n];
    nodes.back().inputs.push_back(constant_of(graph, {rows}, IPR_DTYPE_FLOAT32, std::move(bias)));
  }
  return products;
}

bool split_dynamic_products(Graph& graph, const Settings& settings) {
  bool changed = false;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes.take()) {
    if (node.type == "LstmSequence" && !support_dynamic_lstm(graph, node, settings)) {
      const int products = add_dynamic_products(graph, node, nodes);
      node.inputs.resize(7, -1);
      node.inputs = {products, -1, node.inputs[2], -1, -1, node.inputs[5], node.inputs[6]};
      node.type = "acc.DynamicLstm";
      changed = true;
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = Nodes(std::move(nodes));
  return changed;
}

bool split_products(Graph& graph, const Settings& settings) {
  bool changed = false;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes.take()) {
    const bool gru = node.type == "GruSequence", rnn = node.type == "RnnSequence";
    if ((gru || rnn || node.type == "LstmSequence") && !support(graph, node, settings)) {
      int64_t directions = graph.in(node, 2)->shape[0], hidden = graph.in(node, 2)->shape[2];
      node.inputs.resize(7, -1);
      for (int64_t n = 0; n < directions; ++n) {
        nodes.push_back(product_of(graph, node, n, hidden));
        node.inputs.push_back(nodes.back().outputs[0]);
      }
      node.inputs[0] = node.inputs[1] = -1;  // inputs of the FullyConnected layer
      if (!gru) node.inputs[3] = -1;
      node.type = gru ? "acc.Gru" : rnn ? "acc.Rnn" : "acc.Lstm";
      changed = true;
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = Nodes(std::move(nodes));
  return changed;
}

// ---- Steps ----------------------------------------------------------------------------------------------------------

struct Lstm {
  const LstmKernels* kernels;
  const float* weights;  // of the direction: [block][hidden unit][gate][16]
  bool bfloat16;         // recurrent weights are pairs of bfloat16
  int64_t hidden, batch, steps, directions, direction;
  bool reverse;
  const ConvKernels* products;  // for many sequences; weights have the same order of columns; else nullptr
  Gemm gemm;

  /// Words of weights for one unit and gate.
  int64_t words() const { return bfloat16 ? (hidden + 1) / 2 : hidden; }
  /// Compute the sums of one block of units over the hidden state, for `gates` gates.
  void multiply(const float* of_gates, int64_t block, const float* last_hidden, int64_t gates, float* sums) const {
    kernels->multiply[bfloat16](of_gates + block * 16 * words() * gates, last_hidden, gates, hidden, sums);
  }
};

struct Moment {
  std::shared_ptr<const Lstm> lstm;
  int64_t number;  // index of the step in order of execution
};

/// The offset of the hidden state of a sequence at a time in the output (T, D, B, H).
int64_t place_of(const Lstm& lstm, int64_t time, int64_t sequence) {
  return ((time * lstm.directions + lstm.direction) * lstm.batch + sequence) * lstm.hidden;
}

int64_t time_of(const Lstm& lstm, int64_t number) { return lstm.reverse ? lstm.steps - 1 - number : number; }

/// Operands of one step.
struct Now {
  Now(const Moment& moment, const Step& step, const Run& run)
      : input_sums(run.at<float>(step.in[0]) +
                   time_of(*moment.lstm, moment.number) * moment.lstm->batch * 4 * moment.lstm->hidden),
        last_hidden(moment.number == 0 ? run.at<float>(step.in[1]) : place(moment, moment.number - 1, step, run)),
        cells(run.at<float>(step.out[1])), out(place(moment, moment.number, step, run)) {}
  static float* place(const Moment& moment, int64_t number, const Step& step, const Run& run) {
    return run.at<float>(step.out[0]) + place_of(*moment.lstm, time_of(*moment.lstm, number), 0);
  }

  const float *input_sums, *last_hidden;
  float *cells, *out;
};

void run_moment(const Step& step, const Run& run, int part, int parts) {
  const Moment& moment = step.as<Moment>();
  const Lstm& lstm = *moment.lstm;
  const int64_t hidden = lstm.hidden;
  const Now now(moment, step, run);
  Range range = split((hidden + 15) / 16, part, parts);
  for (int64_t b = 0; b < lstm.batch; ++b)
    for (int64_t block = range.first; block < range.last; ++block)
      lstm.kernels->step[lstm.bfloat16](lstm.weights + block * lstm.words() * 64, now.input_sums + b * 4 * hidden,
                                        now.last_hidden + b * hidden, now.cells + b * hidden, now.out + b * hidden,
                                        hidden, block);
}

/// Pack the hidden states for a product: [block][sequence][16].
void pack_states(const Lstm& lstm, const float* last_hidden, float* to) {
  for (int64_t k = 0; k < lstm.hidden; k += 16)
    for (int64_t b = 0; b < lstm.batch; ++b, to += 16)
      std::copy_n(last_hidden + b * lstm.hidden + k, std::min<int64_t>(16, lstm.hidden - k), to);
}

/// Many sequences: multiply their hidden states by the weights of all gates, in blocks of units.
void run_together(const Step& step, const Run& run, int part, int parts) {
  const Moment& moment = step.as<Moment>();
  const Lstm& lstm = *moment.lstm;
  const int64_t blocks = (lstm.hidden + 15) / 16, block_step = lstm.batch * 16;
  const Now now(moment, step, run);
  float *states = run.part_scratch<float>(part), *sums = states + blocks * block_step,
        *words = sums + 4 * blocks * block_step;
  Range range = split(blocks, part, parts);
  if (range.first == range.last) return;
  pack_states(lstm, now.last_hidden, states);
  lstm.products->pointwise(lstm.gemm, states, block_step, sums, {block_step, 0, 16}, nullptr, words,
                           {0, int(lstm.batch), int(range.first) * 4, int(range.last) * 4});
  for (int64_t block = range.first; block < range.last; ++block)
    lstm.kernels->finish(sums + block * 4 * block_step, 16, block_step, now.input_sums, now.cells, now.out, lstm.hidden,
                         block, lstm.batch);
}

/// Before the first step: copy the initial states, or set them to zero.
void run_begin(const Step& step, const Run& run, int, int) {
  const Lstm& lstm = step.as<Lstm>();
  size_t size = size_t(lstm.batch * lstm.hidden), offset = size_t(lstm.direction) * size;
  for (size_t n = 0; n < 2; ++n) {
    float* to = run.at<float>(step.out[n]);
    if (step.in[n])
      std::memcpy(to, run.at<float>(step.in[n]) + offset, size * sizeof(float));
    else
      std::memset(to, 0, size * sizeof(float));
  }
}

void run_end(const Step& step, const Run& run, int, int) {
  const Lstm& lstm = step.as<Lstm>();
  size_t size = size_t(lstm.batch * lstm.hidden), offset = size_t(lstm.direction) * size;
  const float* last = run.at<float>(step.in[0]) + place_of(lstm, time_of(lstm, lstm.steps - 1), 0);
  if (step.out[0]) std::memcpy(run.at<float>(step.out[0]) + offset, last, size * sizeof(float));
  if (step.out[1]) std::memcpy(run.at<float>(step.out[1]) + offset, run.at<float>(step.in[1]), size * sizeof(float));
}

/// Pack the gates [first, last): [block][hidden unit, or pair of them][gate][16].
void pack_weights(const float* from, float* to, int64_t hidden, int64_t first, int64_t last, bool bfloat16) {
  for (int64_t block = 0; block * 16 < hidden; ++block)
    for (int64_t k = 0; k < hidden; k += bfloat16 ? 2 : 1)
      for (int64_t gate = first; gate < last; ++gate, to += 16)
        for (int64_t n = 0; n < 16 && block * 16 + n < hidden; ++n) {
          const float* of_unit = from + (gate * hidden + block * 16 + n) * hidden + k;
          to[n] = bfloat16 ? bfloat16_pair(of_unit[0], k + 1 < hidden ? of_unit[1] : 0) : of_unit[0];
        }
}

/// Pack the recurrent weights of the gates [first, last) for a product, with columns in the order of `pack_weights`:
/// [block][gate][16].
Gemm pack_product(Lstm& lstm, const float* from, int64_t first, int64_t last, Builder& builder) {
  const int64_t hidden = lstm.hidden, blocks = (hidden + 15) / 16, width = (last - first) * 16,
                columns = blocks * width;
  lstm.products = &conv_kernels_for(builder.settings.isa, builder.settings.fast_math);
  lstm.bfloat16 = lstm.products->bfloat16;
  Gemm gemm{int32_t(hidden), int32_t(columns / 16), nullptr, nullptr, {-INFINITY, INFINITY, 0, {}}};
  gemm.weights =
      static_cast<const float*>(builder.pack(uint64_t(columns * lstm.words()) * sizeof(float), [&](void* to) {
        std::vector<float> turned(size_t(columns * hidden));  // [block][hidden unit][gate][16]
        pack_weights(from, turned.data(), hidden, first, last, false);
        std::vector<float> rows(turned.size());  // [hidden unit][block][gate][16]
        for (int64_t block = 0; block < blocks; ++block)
          for (int64_t k = 0; k < hidden; ++k)
            std::copy_n(&turned[size_t((block * hidden + k) * width)], width,
                        &rows[size_t(k * columns + block * width)]);
        Weights weights{rows.data(), columns, hidden, 1, 1, columns, 0, lstm.bfloat16};
        pack_panels(builder, weights, lstm.products->panel, 1, static_cast<float*>(to));
      }));
  gemm.bias = static_cast<const float*>(builder.pack(uint64_t(columns) * sizeof(float), [](void*) {}));
  return gemm;
}

void lower_direction(const Node& node, Builder& builder, int64_t direction) {
  const Graph& graph = builder.graph;
  const Tensor &weights = *graph.in(node, 2), &input_products = *graph.in(node, size_t(7 + direction));
  int64_t hidden = weights.shape[2], blocks = (hidden + 15) / 16;
  bool time_major = node.flag("time_major");
  auto lstm = std::make_shared<Lstm>();
  lstm->kernels = &lstm_kernels_for(builder.settings.isa);
  lstm->bfloat16 = builder.settings.fast_math;
  lstm->hidden = hidden;
  lstm->steps = input_products.shape[time_major ? 0 : 1];
  lstm->batch = input_products.shape[time_major ? 1 : 0];
  lstm->directions = weights.shape[0];
  lstm->direction = direction;
  lstm->reverse = reversed(node, direction);
  const float* from = weights.values<float>() + direction * 4 * hidden * hidden;
  const bool together = lstm->batch >= kManySequences;
  if (together)
    lstm->gemm = pack_product(*lstm, from, 0, 4, builder);
  else
    lstm->weights =
        static_cast<const float*>(builder.pack(uint64_t(blocks * lstm->words()) * 64 * sizeof(float), [&](void* to) {
          pack_weights(from, static_cast<float*>(to), hidden, 0, 4, lstm->bfloat16);
        }));
  Buffer first = builder.temporary(uint64_t(lstm->batch * hidden) * sizeof(float));
  Buffer cells = builder.temporary(uint64_t(lstm->batch * hidden) * sizeof(float));
  Buffer in = builder.buffer(node.inputs[size_t(7 + direction)]), out = builder.buffer(node.outputs[0]);
  auto simple = [&](const char* prefix, Step::Function fn, std::vector<Buffer> from, std::vector<Buffer> to) {
    Step step;
    step.name = prefix + node.name;
    step.fn = fn;
    step.in = std::move(from);
    step.out = std::move(to);
    step.state = lstm;
    builder.add(std::move(step));
  };
  auto state_of = [&](size_t n) { return builder.buffer(node.outputs.size() > n ? node.outputs[n] : -1); };
  simple("begin of ", run_begin, {builder.buffer(node.inputs[5]), builder.buffer(node.inputs[6])}, {first, cells});
  for (int64_t n = 0; n < lstm->steps; ++n) {
    Step step;
    step.name = "Lstm " + node.name;
    step.fn = together ? run_together : run_moment;
    const int64_t words = lstm->bfloat16 ? staged_words(int32_t(hidden), lstm->batch) : 0;
    if (together) step.scratch_per_part = uint64_t(5 * blocks * 16 * lstm->batch + words) * sizeof(float);
    step.max_parts = std::min(
        int(blocks), parts_for(builder.settings, double(4 * hidden * hidden * lstm->batch) * cost::kRecurrentWeightNs));
    step.in = {in, first};
    step.out = {out, cells};
    step.state = std::make_shared<Moment>(Moment{lstm, n});
    builder.add(std::move(step));
  }
  simple("end of ", run_end, {out, cells}, {state_of(1), state_of(2)});
}

// ---- LSTM with quantized states -------------------------------------------------------------------------------------

/// A step in time: the hidden states are quantized, then multiplied by weights of 8 bits.
struct DynamicMoment {
  std::shared_ptr<const Lstm> lstm;
  int64_t number;
  const ElementwiseQ8Kernels* kernels;
  const float* scales;         // of the columns of the weights
  int64_t scale_count, width;  // columns: a multiple of 16 for each gate

  /// Results are the quantized states, their zero point, and the factors of the products.
  static void quantize(const Step& step, const Run& run, int, int) {
    const DynamicMoment& self = step.as<DynamicMoment>();
    const Lstm& lstm = *self.lstm;
    const float* hidden = run.at<float>(step.in[0]);
    if (self.number > 0) hidden += place_of(lstm, time_of(lstm, self.number - 1), 0);
    float range[2];
    self.kernels->find_range(hidden, lstm.batch * lstm.hidden, range);
    const Q8Quantization quantization = dynamic_quantization(range[0], range[1]);
    self.kernels->quantize(hidden, run.at<uint8_t>(step.out[0]), lstm.batch * lstm.hidden, quantization);
    *run.at<uint8_t>(step.out[1]) = uint8_t(quantization.zero);
    float* factors = run.at<float>(step.out[2]);
    for (int64_t n = 0; n < self.scale_count; ++n) factors[n] = quantization.scale * self.scales[n];
  }

  static void finish(const Step& step, const Run& run, int part, int parts) {
    const DynamicMoment& self = step.as<DynamicMoment>();
    const Lstm& lstm = *self.lstm;
    const int64_t time = time_of(lstm, self.number), blocks = (lstm.hidden + 15) / 16;
    const Range range = split(blocks, part, parts);
    for (int64_t block = range.first; block < range.last; ++block)
      lstm.kernels->finish(run.at<float>(step.in[0]) + block * 16, self.width, self.width / 4,
                           run.at<float>(step.in[1]) + time * lstm.batch * 4 * lstm.hidden, run.at<float>(step.out[1]),
                           run.at<float>(step.out[0]) + place_of(lstm, time, 0), lstm.hidden, block, lstm.batch);
  }
};

/// The weights of the hidden states as the right operand of a product with the states of all sequences.
Q8Window recurrent_window(const Tensor& matrix, const Tensor& weights, int64_t batch) {
  Q8Window window(matrix);
  window.columns = {batch, batch, 1, batch, 0, 1};
  window.taps = {{0, 0}};
  window.depth = matrix.shape[0];
  window.outputs = window.weight.outputs = matrix.shape[1];
  window.weight.by_output = 1, window.weight.by_input = window.outputs;
  window.weight.taps = {0};
  const std::vector<uint8_t> zeros = zeros_of(weights);
  const int64_t units = weights.shape[1] / 4;
  window.weight.zeros.clear();
  for (int64_t column = 0; column < (zeros.size() == 1 ? 1 : window.outputs); ++column) {
    const int64_t unit = column % (window.outputs / 4), row = column / (window.outputs / 4) * units + unit;
    const uint8_t zero = unit < units ? zeros[zeros.size() == 1 ? 0 : size_t(row)] : zeros[0];
    window.weight.zeros.push_back(window.weight.is_signed ? int32_t(int8_t(zero)) : int32_t(zero));
  }
  return window;
}

/// The scales of all columns, or the only one. Columns without weights have scales of 0.
const float* packed_scales(Builder& builder, const Tensor& weights, int64_t width, int64_t count) {
  return static_cast<const float*>(builder.pack(uint64_t(count) * sizeof(float), [&](void* to) {
    const std::vector<float> scales = scales_of(weights);
    const int64_t units = weights.shape[1] / 4;
    if (count == 1) return void(*static_cast<float*>(to) = scales[0]);
    for (int64_t row = 0; row < 4 * units; ++row)
      static_cast<float*>(to)[row / units * (width / 4) + row % units] = scales[size_t(row)];
  }));
}

std::shared_ptr<Lstm> dynamic_layer(const Node& node, const Builder& builder) {
  const Tensor &weights = *builder.graph.in(node, 2), &products = *builder.graph.in(node, 0);
  const bool time_major = node.flag("time_major");
  auto lstm = std::make_shared<Lstm>();
  lstm->kernels = &lstm_kernels_for(builder.settings.isa);
  lstm->hidden = weights.shape[2];
  lstm->steps = products.shape[time_major ? 0 : 1], lstm->batch = products.shape[time_major ? 1 : 0];
  lstm->directions = 1;
  lstm->reverse = reversed(node, 0);
  return lstm;
}

void lower_dynamic(const Node& node, Builder& builder) {
  const Tensor& weights = *builder.graph.in(node, 2);
  const std::shared_ptr<const Lstm> lstm = dynamic_layer(node, builder);
  const int64_t blocks = (lstm->hidden + 15) / 16, width = 64 * blocks, states = lstm->batch * lstm->hidden;
  const int64_t count = weights.has_axis() ? width : 1;
  const std::vector<uint8_t> bytes = transposed_bytes(weights, width);
  Tensor matrix, values;
  matrix.shape = {lstm->hidden, width}, matrix.dtype = weights.dtype, matrix.data = bytes.data();
  values.shape = {lstm->batch, lstm->hidden}, values.dtype = IPR_DTYPE_UINT8;
  auto temporary = [&](int64_t size) { return builder.temporary(uint64_t(size)); };
  const Buffer first = temporary(4 * states), cells = temporary(4 * states), quantized = temporary(states),
               zero = temporary(1), factors = temporary(4 * count), sums = temporary(4 * width * lstm->batch);
  const Buffer in = builder.buffer(node.inputs[0]), out = builder.buffer(node.outputs[0]);
  const DynamicMoment common{
      lstm,  0,    &elementwise_q8_kernels_for(builder.settings.isa), packed_scales(builder, weights, width, count),
      count, width};
  Q8Products operands;
  operands.zero = zero, operands.scale = factors, operands.scale_count = count;
  operands.low = -INFINITY, operands.high = INFINITY;
  const Step product = integer_gemm(builder, "Lstm " + node.name, recurrent_window(matrix, weights, lstm->batch),
                                    operands, values, quantized, sums);
  auto add = [&](const char* prefix, Step::Function fn, std::vector<Buffer> from, std::vector<Buffer> to,
                 std::shared_ptr<const void> state, int parts) {
    Step step;
    step.name = prefix + node.name;
    step.fn = fn;
    step.in = std::move(from), step.out = std::move(to);
    step.state = std::move(state);
    step.max_parts = parts;
    builder.add(std::move(step));
  };
  auto result = [&](size_t n) { return builder.buffer(node.outputs.size() > n ? node.outputs[n] : -1); };
  const int parts = std::min(int(blocks), parts_for(builder.settings, double(states) * 5 * cost::kActivationNs));
  add("begin of ", run_begin, {builder.buffer(node.inputs[5]), builder.buffer(node.inputs[6])}, {first, cells}, lstm,
      1);
  for (int64_t n = 0; n < lstm->steps; ++n) {
    auto moment = std::make_shared<DynamicMoment>(common);
    moment->number = n;
    add("quantize ", DynamicMoment::quantize, {n == 0 ? first : out}, {quantized, zero, factors}, moment, 1);
    builder.add(product);
    add("Lstm ", DynamicMoment::finish, {sums, in}, {out, cells}, moment, parts);
  }
  add("end of ", run_end, {out, cells}, {result(1), result(2)}, lstm, 1);
}

// ---- GRU and simple layers ------------------------------------------------------------------------------------------

/// One direction. The hidden state of a sequence is its output of the previous step.
struct Gru {
  Lstm layer;          // with recurrent weights of all gates or, without `linear_before_reset`, of the first two
  const float* fresh;  // weights of the hidden gate, without `linear_before_reset`
  Gemm fresh_gemm;     // the same for many sequences
  const float* bias;   // of the product of the hidden gate and the state
  bool simple, before_reset;
};

struct GruMoment {
  std::shared_ptr<const Gru> gru;
  int64_t number;
};

/// 16 values of a row of `size`, padded with zeros.
struct Padded {
  Padded(const float* row, int64_t first, int64_t size) {
    for (int64_t n = 0; n < 16; ++n) values[n] = first + n < size ? row[first + n] : 0;
  }
  float values[16];
};

struct Unit {
  const float *input_sums, *last_hidden;
  float* out;
  int64_t sequence, block, count;
  const float* products;  // with the state, for many sequences; else nullptr
  int64_t gate_step;      // from the products of one gate to those of the next
};

/// The sums of a block of units over the state, for some gates.
struct Sums {
  Sums(const Lstm& layer, const Unit& unit, const float* weights, const float* state, int64_t gates)
      : values(unit.products), step(unit.gate_step) {
    if (values) return;
    layer.multiply(weights, unit.block, state, gates, own_);
    values = own_, step = 16;
  }
  const float* gate(int64_t number) const { return values + number * step; }

  const float* values;
  int64_t step;

 private:
  float own_[48];
};

/// What is multiplied with the states of many sequences: weights, the states, and the number of gates.
struct Together {
  const Gemm* gemm;
  const float* states;
  int64_t gates;
};

/// Many sequences: multiply their states by the weights of the blocks of units of `range`. Return the products:
/// [block][gate][sequence][16].
const float* multiply_states(const Lstm& layer, const Together& all, Range range, float* memory) {
  const int64_t blocks = (layer.hidden + 15) / 16, block_step = layer.batch * 16;
  float *states = memory, *products = states + blocks * block_step, *words = products + 3 * blocks * block_step;
  pack_states(layer, all.states, states);
  layer.products->pointwise(*all.gemm, states, block_step, products, {block_step, 0, 16}, nullptr, words,
                            {0, int(layer.batch), int(range.first * all.gates), int(range.last * all.gates)});
  return products;
}

/// The blocks of units of a part, in whole panels of a product: panels have two blocks, and a last odd one belongs to
/// the panel before it.
Range whole_panels(int64_t blocks, int part, int parts) {
  Range range = split(blocks, part, parts, 2);
  if (blocks < 2 || blocks % 2 == 0) return range;
  if (range.last == blocks - 1) range.last = blocks;
  if (range.first == blocks - 1) range.first = blocks;
  return range;
}

/// The operands of one step of a GRU or simple layer, and the blocks of units of a part.
struct GruNow {
  GruNow(const Step& step, const Run& run, int part, int parts)
      : moment(step.as<GruMoment>()), layer(moment.gru->layer), out(run.at<float>(step.out[0])) {
    const int64_t time = time_of(layer, moment.number), blocks = (layer.hidden + 15) / 16;
    last_hidden =
        moment.number == 0 ? run.at<float>(step.in[1]) : out + place_of(layer, time_of(layer, moment.number - 1), 0);
    out += place_of(layer, time, 0);
    input_sums = run.at<float>(step.in[0]) + time * layer.batch * (moment.gru->simple ? 1 : 3) * layer.hidden;
    range = layer.products ? whole_panels(blocks, part, parts) : split(blocks, part, parts);
  }

  const GruMoment& moment;
  const Lstm& layer;
  const float *input_sums, *last_hidden;
  float* out;
  Range range;
};

/// Call work(layer, unit) for the units of a part. `states` are those that are multiplied, by `gates` gates of `gemm`
/// if there are many sequences; nullptr: the hidden states.
template <class Work>
void each_unit(const Step& step, const Run& run, int part, int parts, const Gemm& gemm, const float* states,
               int64_t gates, Work work) {
  const GruNow now(step, run, part, parts);
  const Lstm& layer = now.layer;
  const int64_t hidden = layer.hidden, rows = now.moment.gru->simple ? 1 : 3;
  if (now.range.first == now.range.last) return;
  const float* products = nullptr;
  if (layer.products)
    products = multiply_states(layer, {&gemm, states ? states : now.last_hidden, gates}, now.range,
                               run.part_scratch<float>(part));
  for (int64_t block = now.range.first; block < now.range.last; ++block)
    for (int64_t b = 0; b < layer.batch; ++b) {
      int64_t count = std::min<int64_t>(16, hidden - block * 16);
      const float* of_unit = products ? products + (block * gates * layer.batch + b) * 16 : nullptr;
      work(*now.moment.gru, Unit{now.input_sums + b * rows * hidden, now.last_hidden + b * hidden, now.out + b * hidden,
                                 b, block, count, of_unit, layer.batch * 16});
    }
}

/// Compute all gates of a GRU with `linear_before_reset`.
void run_whole_gru(const Step& step, const Run& run, int part, int parts) {
  const GruNow now(step, run, part, parts);
  const Lstm& layer = now.layer;
  if (now.range.first == now.range.last) return;
  const int64_t block_step = layer.batch * 16;
  const float* products = nullptr;
  if (layer.products)
    products = multiply_states(layer, {&layer.gemm, now.last_hidden, 3}, now.range, run.part_scratch<float>(part));
  for (int64_t block = now.range.first; block < now.range.last; ++block) {
    if (products) {
      layer.kernels->finish_gru(products + block * 3 * block_step, 16, block_step, now.input_sums, now.moment.gru->bias,
                                now.last_hidden, now.out, layer.hidden, block, layer.batch);
      continue;
    }
    for (int64_t b = 0; b < layer.batch; ++b) {
      float sums[48];
      layer.multiply(layer.weights, block, now.last_hidden + b * layer.hidden, 3, sums);
      layer.kernels->finish_gru(sums, 0, 16, now.input_sums + b * 3 * layer.hidden, now.moment.gru->bias,
                                now.last_hidden + b * layer.hidden, now.out + b * layer.hidden, layer.hidden, block, 1);
    }
  }
}

void run_rnn(const Step& step, const Run& run, int part, int parts) {
  const Gemm& gemm = step.as<GruMoment>().gru->layer.gemm;
  each_unit(step, run, part, parts, gemm, nullptr, 1, [](const Gru& gru, const Unit& unit) {
    const int64_t size = gru.layer.hidden, first = unit.block * 16;
    const Sums sums(gru.layer, unit, gru.layer.weights, unit.last_hidden, 1);
    float activated[16];
    gru.layer.kernels->gate(sums.gate(0), Padded(unit.input_sums, first, size).values, true, activated);
    std::copy_n(activated, unit.count, unit.out + first);
  });
}

/// Compute the update gate of a GRU, and the state after the reset.
void run_gates(const Step& step, const Run& run, int part, int parts) {
  const Gemm& gemm = step.as<GruMoment>().gru->layer.gemm;
  each_unit(step, run, part, parts, gemm, nullptr, 2, [&](const Gru& gru, const Unit& unit) {
    const int64_t size = gru.layer.hidden, first = unit.block * 16;
    const Sums sums(gru.layer, unit, gru.layer.weights, unit.last_hidden, 2);
    float update[16], reset[16];
    gru.layer.kernels->gate(sums.gate(0), Padded(unit.input_sums, first, size).values, false, update);
    gru.layer.kernels->gate(sums.gate(1), Padded(unit.input_sums + size, first, size).values, false, reset);
    float* updates = run.at<float>(step.out[1]) + unit.sequence * size + first;
    float* states = run.at<float>(step.out[2]) + unit.sequence * size + first;
    for (int64_t n = 0; n < unit.count; ++n) updates[n] = update[n], states[n] = reset[n] * unit.last_hidden[first + n];
  });
}

/// Compute the hidden gate from the state after the reset.
void run_fresh(const Step& step, const Run& run, int part, int parts) {
  const Gemm& gemm = step.as<GruMoment>().gru->fresh_gemm;
  const float* resets = run.at<float>(step.in[3]);
  each_unit(step, run, part, parts, gemm, resets, 1, [&](const Gru& gru, const Unit& unit) {
    const int64_t size = gru.layer.hidden, first = unit.block * 16;
    const float* updates = run.at<float>(step.in[2]) + unit.sequence * size;
    const Sums sums(gru.layer, unit, gru.fresh, resets + unit.sequence * size, 1);
    float fresh[16];
    gru.layer.kernels->gate(sums.gate(0), Padded(unit.input_sums + 2 * size, first, size).values, true, fresh);
    for (int64_t n = 0; n < unit.count; ++n)
      unit.out[first + n] = (1 - updates[first + n]) * fresh[n] + updates[first + n] * unit.last_hidden[first + n];
  });
}

void lower_gru_direction(const Node& node, Builder& builder, int64_t direction) {
  const Graph& graph = builder.graph;
  const Tensor &weights = *graph.in(node, 2), &input_products = *graph.in(node, size_t(7 + direction));
  const int64_t hidden = weights.shape[2], blocks = (hidden + 15) / 16, gates = gates_of(node);
  const bool time_major = node.flag("time_major");
  auto gru = std::make_shared<Gru>();
  gru->simple = gates == 1;
  gru->before_reset = node.flag("linear_before_reset");
  Lstm& layer = gru->layer;
  layer.kernels = &lstm_kernels_for(builder.settings.isa);
  layer.bfloat16 = builder.settings.fast_math;
  layer.hidden = hidden;
  layer.steps = input_products.shape[time_major ? 0 : 1], layer.batch = input_products.shape[time_major ? 1 : 0];
  layer.directions = weights.shape[0], layer.direction = direction;
  layer.reverse = reversed(node, direction);
  auto packed = [&](int64_t first, int64_t last) {
    return static_cast<const float*>(
        builder.pack(uint64_t(blocks * layer.words() * (last - first)) * 64, [&](void* to) {
          const float* from = weights.values<float>() + direction * gates * hidden * hidden;
          pack_weights(from, static_cast<float*>(to), hidden, first, last, layer.bfloat16);
        }));
  };
  const bool once = gru->simple || gru->before_reset;
  if (layer.batch >= kManySequences) {
    const float* from = weights.values<float>() + direction * gates * hidden * hidden;
    layer.gemm = pack_product(layer, from, 0, once ? gates : 2, builder);
    if (!once) gru->fresh_gemm = pack_product(layer, from, 2, 3, builder);
  } else {
    layer.weights = packed(0, once ? gates : 2);
    if (!once) gru->fresh = packed(2, 3);
  }
  const Tensor* bias = graph.in(node, 3);
  if (gru->before_reset && bias)
    gru->bias = static_cast<const float*>(builder.pack(uint64_t(hidden) * 4, [&](void* to) {
      std::copy_n(bias->values<float>() + direction * 6 * hidden + 5 * hidden, hidden, static_cast<float*>(to));
    }));
  const uint64_t bytes = uint64_t(layer.batch * hidden) * sizeof(float);
  Buffer first = builder.temporary(bytes), unused = builder.temporary(bytes);
  Buffer updates = builder.temporary(bytes), states = builder.temporary(bytes);
  Buffer in = builder.buffer(node.inputs[size_t(7 + direction)]), out = builder.buffer(node.outputs[0]);
  const double nanoseconds = double(gates * hidden * hidden * layer.batch) * cost::kRecurrentWeightNs;
  const int64_t words = layer.bfloat16 ? staged_words(int32_t(hidden), layer.batch) : 0;
  const uint64_t scratch = layer.products ? uint64_t(4 * blocks * 16 * layer.batch + words) * sizeof(float) : 0;
  auto add = [&](const char* prefix, Step::Function fn, std::vector<Buffer> from, std::vector<Buffer> to,
                 std::shared_ptr<const void> state) {
    Step step;
    step.name = prefix + node.name;
    step.fn = fn;
    step.in = std::move(from);
    step.out = std::move(to);
    step.state = std::move(state);
    if (fn != run_begin && fn != run_end) {
      step.max_parts = std::min(int(blocks), parts_for(builder.settings, nanoseconds));
      step.scratch_per_part = scratch;
    }
    builder.add(std::move(step));
  };
  std::shared_ptr<const Lstm> whole(gru, &gru->layer);
  add("begin of ", run_begin, {builder.buffer(node.inputs[5]), Buffer()}, {first, unused}, whole);
  for (int64_t n = 0; n < layer.steps; ++n) {
    auto moment = std::make_shared<GruMoment>(GruMoment{gru, n});
    add(gru->simple ? "Rnn " : "Gru ",
        gru->simple ? run_rnn
        : once      ? run_whole_gru
                    : run_gates,
        {in, first}, {out, updates, states}, moment);
    if (!once) add("Gru ", run_fresh, {in, first, updates, states}, {out}, moment);
  }
  Buffer last = builder.buffer(node.outputs.size() > 1 ? node.outputs[1] : -1);
  add("end of ", run_end, {out, unused}, {last, Buffer()}, whole);
}

void lower_gru(const Node& node, Builder& builder) {
  for (int64_t n = 0; n < builder.graph.in(node, 2)->shape[0]; ++n) lower_gru_direction(node, builder, n);
}

void lower(const Node& node, Builder& builder) {
  for (int64_t n = 0; n < builder.graph.in(node, 2)->shape[0]; ++n) lower_direction(node, builder, n);
}

}  // namespace

Family lstm_family() {
  return {{{"LstmSequence", "products and steps", support, never, nullptr},
           {"GruSequence", "products and steps", support, never, nullptr},
           {"RnnSequence", "products and steps", support, never, nullptr},
           {"LstmSequence", "quantized states", support_dynamic_lstm, never, nullptr},
           {"acc.Lstm", "steps", without_posts, lower, nullptr},
           {"acc.DynamicLstm", "steps", without_posts, lower_dynamic, nullptr},
           {"acc.Gru", "steps", without_posts, lower_gru, nullptr},
           {"acc.Rnn", "steps", without_posts, lower_gru, nullptr}},
          {{"lstm", split_products}, {"lstm with quantized states", split_dynamic_products}}};
}

}  // namespace cpuacc
