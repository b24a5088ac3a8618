// Recurrent layers over sequences: one product with all inputs, then a launch or two for each step in time. A work item
// computes B units of a sequence.

#include <cmath>
#include <cstdio>

#include "gpuacc/products.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kMostSteps = 4096;  // each is a launch

/// An activation function with its parameters.
struct Squashing {
  std::string function;
  double a, b;
};

/// The parameters of a function of `Activation` if they are not given.
Squashing with_defaults(const std::string& function) {
  static const Squashing all[] = {{"TANH", 1, 1},
                                  {"LINEAR", 1, 0},
                                  {"ELU", 1, 0},
                                  {"CELU", 1, 0},
                                  {"SWISH", 1, 0},
                                  {"THRESHOLDED_RELU", 1, 0},
                                  {"BOUNDED_RELU", 6, 0},
                                  {"LEAKY_RELU", 0.01, 0},
                                  {"HARD_SIGMOID", 0.2, 0.5},
                                  {"SHRINK", 0.5, 0},
                                  {"SELU", 1.67326319217681884765625, 1.05070102214813232421875}};
  for (const Squashing& known : all)
    if (function == known.function) return known;
  return {function, 0, 0};
}

bool is_lstm(const ipr::Layer& layer) { return layer.type() == "LstmSequence"; }
bool is_gru(const ipr::Layer& layer) { return layer.type() == "GruSequence"; }

/// The activation functions of all directions.
std::vector<Squashing> functions_of(const ipr::Layer& layer) {
  const std::vector<std::string> usual = is_lstm(layer)  ? std::vector<std::string>{"SIGMOID", "TANH", "TANH"}
                                         : is_gru(layer) ? std::vector<std::string>{"SIGMOID", "TANH"}
                                                         : std::vector<std::string>{"TANH"};
  std::vector<std::string> names;
  const ipr_attribute* activations = layer.find("activations");
  for (uint64_t n = 0; activations && activations->texts && n < activations->count; ++n)
    names.emplace_back(ipr::view(activations->texts[n]));
  const size_t count = usual.size() * size_t(layer.input(2).extent(0));
  for (size_t n = names.size(); n < count; ++n) names.push_back(usual[n % usual.size()]);
  const ipr::Span<const double> a = layer.numbers("activation_a"), b = layer.numbers("activation_b");
  std::vector<Squashing> functions;
  for (size_t n = 0; n < names.size(); ++n) {
    functions.push_back(with_defaults(names[n]));
    if (n < a.size()) functions[n].a = a[n];
    if (n < b.size()) functions[n].b = b[n];
  }
  return functions;
}

ipr::Verdict support(const ipr::Layer& layer, const Target&) {
  if (layer.flag("dynamic_quantization"))
    return ipr::no("takes no states that are quantized in each step", IPR_REASON_ATTRIBUTE);
  for (size_t n = 0; n < layer.input_count(); ++n) {
    const ipr::TensorInfo info = layer.input(n);
    if (info && n != 4 && !is_float(info))
      return ipr::no("input " + std::to_string(n) + " is " + described(info) + "; takes float32 and float16",
                     IPR_REASON_DATA_TYPE);
  }
  for (const Squashing& squashing : functions_of(layer))
    if (!activation_code(squashing.function))
      return ipr::no("no kernel for the function " + squashing.function, IPR_REASON_ATTRIBUTE);
  if (layer.input(0).extent(layer.flag("time_major", true) ? 0 : 1) > kMostSteps)
    return ipr::no("sequences have more than " + std::to_string(kMostSteps) + " steps", IPR_REASON_SHAPE);
  return ipr::yes();
}

std::string literal(double value) {
  if (std::isinf(value)) return value > 0 ? "INFINITY" : "-INFINITY";
  char text[40];
  std::snprintf(text, sizeof text, "(%.9ef)", value);
  return text;
}

/// The sizes and operands of a layer.
struct Recurrent {
  Recurrent(const ipr::Layer& layer, Plan& plan) : layer(layer), plan(plan), functions(functions_of(layer)) {
    const ipr::TensorInfo x = layer.input(0);
    time_major = layer.flag("time_major", true);
    steps = x.extent(time_major ? 0 : 1), batch = x.extent(time_major ? 1 : 0), depth = x.extent(2);
    directions = layer.input(2).extent(0), units = layer.input(2).extent(2);
    gates = is_lstm(layer) ? 4 : is_gru(layer) ? 3 : 1;
    panels = (units + plan.profile.block - 1) / plan.profile.block;
    by_state = time_major ? Shape{batch * units, units} : Shape{units, directions * units};  // direction, sequence
  }
  bool is_reversed(int64_t direction) const { return direction == 1 || layer.text("direction") == "REVERSE"; }
  Shape state_shape() const { return {batch, units}; }

  const ipr::Layer& layer;
  Plan& plan;
  std::vector<Squashing> functions;
  bool time_major;
  int64_t steps, batch, depth, directions, units, gates, panels;
  Shape by_state;
  Value products;     // of all inputs: (directions, steps and sequences, gates, units)
  int recurrent = 0;  // packed: (directions, gates, panels, units, B)
  Value lengths;      // of the sequences
  Value output;       // of the first result
};

Value converted(Plan& plan, const Value& value, int32_t dtype) {
  if (value.dtype == dtype) return value;
  const Value out = plan.create(dtype, value.shape);
  pointwise(plan, "convert", {value}, {"float"}, out, "  float v = o0;");
  return out;
}

/// The initial state of a direction, (batch, units).
Value initial_state(const Recurrent& all, size_t position, int64_t direction) {
  const Shape shape = all.state_shape();
  if (!all.layer.input(position)) {
    const Value zeros = all.plan.create(IPR_DTYPE_FLOAT32, shape);
    all.plan.fill(zeros, 0);
    return zeros;
  }
  const Value given = all.plan.plain(all.layer.input(position).index());
  const Value own = all.plan.strided(given, direction * all.by_state[0], {all.by_state[1], 1}, shape);
  return converted(all.plan, own, IPR_DTYPE_FLOAT32);
}

/// The code of function number `index` of a direction, which changes v.
std::string squashed(const Recurrent& all, int64_t direction, size_t index, const std::string& from,
                     const std::string& to) {
  const size_t count = all.functions.size() / size_t(all.directions);
  const Squashing& squashing = all.functions[size_t(direction) * count + index];
  const double clip = all.layer.number("clip");
  std::string text = "  { FB v = " + from + "; ";
  if (clip > 0 && index < 2)
    text += "v = select(v, (FB)" + literal(clip) + ", isgreater(v, (FB)" + literal(clip) + ")); v = select(v, (FB)" +
            literal(-clip) + ", isless(v, (FB)" + literal(-clip) + ")); ";
  Template code(activation_code(squashing.function));
  return text + code.set("a", literal(squashing.a)).set("b", literal(squashing.b)).text() + " " + to + " = v; }\n";
}

/// Sums of gates: the products of the inputs with their bias as x0, x1 ..., those of the state with theirs as h0 ...
std::string sums(int64_t first, int64_t last) {
  std::string start, loop;
  for (int64_t n = first; n < last; ++n) {
    const std::string g = std::to_string(n);
    start += "  FB x" + g + " = PART(products + (row * G + " + g + ") * H) + PART(bias + " + g + " * H), h" + g +
             " = PART(bias + (G + " + g + ") * H);\n";
    loop += "    h" + g + " = MAD(s, CAT(vload, B)((" + g + " * panels + panel) * H + k, recurrent), h" + g + ");\n";
  }
  return start + "  for (int k = 0; k < H; ++k) {\n    const FB s = (FB)state[own + k];\n" + loop + "  }\n";
}

/// The code of a step: it defines o, the new state, from the sums.
std::string step_code(const Recurrent& all, int64_t direction) {
  auto squash = [&](size_t index, const std::string& from, const std::string& to) {
    return squashed(all, direction, index, from, to);
  };
  if (!is_lstm(all.layer) && !is_gru(all.layer)) return sums(0, 1) + "  FB o;\n" + squash(0, "x0 + h0", "o");
  if (is_gru(all.layer))
    return sums(0, 3) + "  FB z, r, o;\n" + squash(0, "x0 + h0", "z") + squash(0, "x1 + h1", "r") +
           squash(1, "x2 + r * h2", "o") + "  o = (1 - z) * o + z * PART(state + own);\n";
  return sums(0, 4) + "  FB i, f, g, q, o, c = PART(cell + own);\n" + squash(0, "x0 + h0 + PART(peephole) * c", "i") +
         (all.layer.flag("input_forget") ? "  f = 1 - i;\n" : squash(0, "x2 + h2 + PART(peephole + 2 * H) * c", "f")) +
         squash(1, "x3 + h3", "g") + "  c = f * c + i * g;\n" + squash(2, "c", "q") +
         squash(0, "x1 + h1 + PART(peephole + H) * c", "o") + "  o = o * q;\n  KEEP_PART(c, cell + own);\n";
}

/// The first half of a step of a GRU that resets the state before its product: o is the state times r; z is stored.
std::string reset_code(const Recurrent& all, int64_t direction) {
  return sums(0, 2) + "  FB z, r, o;\n" + squashed(all, direction, 0, "x0 + h0", "z") +
         squashed(all, direction, 0, "x1 + h1", "r") + "  KEEP_PART(z, cell + own);\n  o = r * PART(state + own);\n";
}

/// The second half: `state` is the one times r, `before` the one before the step.
std::string hidden_code(const Recurrent& all, int64_t direction) {
  return sums(2, 3) + "  FB o, z = PART(cell + own);\n" + squashed(all, direction, 1, "x2 + h2", "o") +
         "  o = (1 - z) * o + z * PART(before + own);\n";
}

/// The kernel of a step. PART loads B units, KEEP_PART stores them; `own` is where those of a sequence begin.
std::string step_source(const Recurrent& all, int64_t direction, const std::string& code, const char* lengths) {
  Template source(R"(
#define F FB
#define G $GATES
inline FB load_part(global const float* p, int m) {
  if (m == B) return CAT(vload, B)(0, p);
  float t[B];
  for (int n = 0; n < B; ++n) t[n] = n < m ? p[n] : 0;
  return CAT(vload, B)(0, t);
}
inline void store_part(FB v, global float* p, int m) {
  float t[B];
  CAT(vstore, B)(v, 0, t);
  for (int n = 0; n < m; ++n) p[n] = t[n];
}
#define PART(p) load_part((p) + unit, m)
#define KEEP_PART(v, p) store_part(v, (p) + unit, m)
kernel void k(global const float* restrict products, global const float* restrict recurrent,
              global const float* restrict bias, global const float* restrict peephole, global const float* state,
              global const float* before, global float* cell, global float* next, global const $L* restrict lengths,
              global $Y* restrict y, int step, int T, int H, int panels, int rowt, int rown, int y0, int yt, int yn) {
  const int panel = get_global_id(0), sequence = get_global_id(1), unit = panel * B, m = min(B, H - unit);
  const int length = (int)clamp((long)lengths[sequence], 0L, (long)T), runs = step < length;
  const int own = sequence * H, time = $TIME, row = time * rowt + sequence * rown;
  global $Y* to = y + y0 + time * yt + sequence * yn + unit;
  if (!runs) {
    KEEP_PART(PART(state + own), next + own);
    for (int n = 0; n < m; ++n) ST_$Y(0.0f, n, to);
    return;
  }
$CODE  KEEP_PART(o, next + own);
  float all[B];
  CAT(vstore, B)(o, 0, all);
  for (int n = 0; n < m; ++n) ST_$Y(all[n], n, to);
}
)");
  source.set("GATES", all.gates).set("CODE", code).set("L", lengths).set("Y", storage(all.output.dtype));
  source.set("TIME", all.is_reversed(direction) ? "runs ? length - 1 - step : step" : "step");
  return preamble(all.plan.profile, all.plan.device.info) + source.text();
}

/// The elements of an optional operand that belong to a direction, as floats; zeros if it is absent.
Value row_of(const Recurrent& all, size_t position, int64_t direction, int64_t width) {
  Plan& plan = all.plan;
  if (position >= all.layer.input_count() || !all.layer.input(position)) {
    const Value zeros = plan.create(IPR_DTYPE_FLOAT32, {width});
    plan.fill(zeros, 0);
    return zeros;
  }
  const Value given = plan.plain(all.layer.input(position).index());
  return converted(plan, plan.strided(given, direction * width, {1}, {width}), IPR_DTYPE_FLOAT32);
}

/// The lengths of all sequences.
Value lengths_of(const Recurrent& all) {
  if (all.layer.input(4)) {
    const Value lengths = all.plan.plain(all.layer.input(4).index());
    all.plan.check_values(lengths, {all.layer.index(), 4, "sequence_lengths", 0, all.steps});
    return lengths;
  }
  Value lengths;
  lengths.dtype = IPR_DTYPE_INT32;
  lengths.shape = {all.batch};
  lengths.buffer = all.plan.integers(std::vector<int32_t>(size_t(all.batch), int32_t(all.steps)));
  return lengths;
}

/// The first elements of the parameters of a direction, as a part of a buffer.
Value part_of(Plan& plan, int buffer, int64_t first, int64_t count) {
  Value whole;
  whole.buffer = buffer;
  whole.shape = {first + count};
  return plan.strided(whole, first, {1}, {count});
}

/// Compute a direction; return its last states: the hidden one, and the one of the cell.
std::array<Value, 2> run_direction(const Recurrent& all, int64_t direction) {
  Plan& plan = all.plan;
  const bool resets = is_gru(all.layer) && !all.layer.flag("linear_before_reset");
  auto made = [&] { return plan.create(IPR_DTYPE_FLOAT32, all.state_shape()); };
  const int64_t of_products = all.steps * all.batch * all.gates * all.units;
  const int64_t of_weights = all.gates * all.panels * all.units * plan.profile.block;
  const Value products = part_of(plan, all.products.buffer, direction * of_products, of_products);
  const Value recurrent = part_of(plan, all.recurrent, direction * of_weights, of_weights);
  const Value bias = row_of(all, 3, direction, 2 * all.gates * all.units);
  const Value peephole = row_of(all, 7, direction, 3 * all.units);
  Value hidden = initial_state(all, 5, direction), next = made(), reset = resets ? made() : next;
  Value cell = made();
  if (is_lstm(all.layer)) {
    const Value given = initial_state(all, 6, direction);
    plan.copy(given, 0, {1}, cell, 0, {1}, {cell.elements()});
  }
  Value spare = made();
  const int64_t width = all.units, yn = all.time_major ? width : all.steps * all.directions * width;
  const int64_t yt = all.time_major ? all.directions * all.batch * width : all.directions * width;
  const int64_t y0 = direction * (all.time_major ? all.batch * width : width);
  auto launch = [&](const std::string& source, const Value& state, const Value& before, const Value& to, int64_t step) {
    plan.launch("step", source,
                {reads(products), reads(recurrent), reads(bias), reads(peephole), reads(state), reads(before),
                 writes(cell), writes(to), reads(all.lengths), writes(all.output), number(step), number(all.steps),
                 number(all.units), number(all.panels), number(all.time_major ? all.batch : 1),
                 number(all.time_major ? 1 : all.steps), number(y0), number(yt), number(yn)},
                {all.panels, all.batch, 1});
  };
  const char* type = storage(all.lengths.dtype);
  const std::string first =
      step_source(all, direction, resets ? reset_code(all, direction) : step_code(all, direction), type);
  const std::string second = resets ? step_source(all, direction, hidden_code(all, direction), type) : "";
  for (int64_t step = 0; step < all.steps; ++step) {
    launch(first, hidden, hidden, resets ? reset : next, step);
    if (resets) launch(second, reset, hidden, next, step);
    if (step == 0) hidden = spare;
    std::swap(hidden, next);
  }
  return {hidden, cell};
}

void lower(const ipr::Layer& layer, Plan& plan) {
  Recurrent all(layer, plan);
  all.lengths = lengths_of(all);
  all.output = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const int64_t columns = all.gates * all.units, rows = all.steps * all.batch;
  const int64_t vectors = vectors_of(plan, columns), step = vectors * plan.profile.block;
  all.products = plan.create(IPR_DTYPE_FLOAT32, {all.directions, rows, columns});
  Product sizes;
  sizes.m = rows, sizes.k = all.depth, sizes.n = columns;
  for (int64_t n = 0; n < all.directions; ++n) sizes.offsets_a.push_back(0), sizes.offsets_b.push_back(int32_t(n));
  if (all.depth == 0)
    plan.fill(all.products, 0);
  else
    multiply(plan, plan.plain(layer.input(0).index()),
             packed(plan, layer.input(1), {all.directions, all.depth, columns, 1, all.depth}, step),
             no_bias(plan, columns, step), sizes, vectors, Chain(plan, layer.output(0).index(), -1), all.products);
  all.recurrent = packed(plan, layer.input(2), {all.directions * all.gates, all.units, all.units, 1, all.units},
                         plan.profile.block);
  std::vector<Value> states;
  for (size_t n = 1; n < layer.output_count(); ++n)
    states.push_back(plan.create(layer.output(n).dtype(), shape_of(layer.output(n))));
  for (int64_t direction = 0; direction < all.directions; ++direction) {
    const std::array<Value, 2> last = run_direction(all, direction);
    for (size_t n = 0; n < states.size(); ++n)
      plan.copy(converted(plan, last[n], states[n].dtype), 0, {all.units, 1}, states[n], direction * all.by_state[0],
                {all.by_state[1], 1}, all.state_shape());
  }
  plan.set(layer.output(0).index(), all.output);
  for (size_t n = 0; n < states.size(); ++n) plan.set(layer.output(n + 1).index(), states[n]);
}

}  // namespace

Lowerings recurrent_lowerings() {
  return {{"LstmSequence", support, lower}, {"GruSequence", support, lower}, {"RnnSequence", support, lower}};
}

}  // namespace gpuacc
