#include "gpuacc/pointwise.hpp"

#include <cmath>
#include <limits>
#include <map>

#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

/// erf(x) as x * P(x * x) / Q(x * x), fitted for |x| <= 4, with an absolute error below 4e-7, as CpuAcc computes it.
/// Devices without an instruction for it take much longer for the function of OpenCL.
#define GPUACC_ERF(x)                                                                                               \
  "const F x = " x                                                                                                  \
  ", near = select(select(x, (F)4, isgreater(x, (F)4)), (F)-4, isless(x, (F)-4)), s = near * near;"                 \
  "const F p = ((((F)1.97482536e-6f * s + (F)2.88037915e-4f) * s + (F)4.00356081e-3f) * s + (F)5.34672274e-2f) * s" \
  " + (F)1.96247207e-1f;"                                                                                           \
  "const F q = ((((F)3.74806245e-5f * s + (F)1.21633594e-3f) * s + (F)1.54442592e-2f) * s + (F)1.16475677e-1f) * s" \
  " + (F)5.07250719e-1f;"                                                                                           \
  "const F e = select(near * (p * s + (F)1.12837898f) / (q * s + (F)1), copysign((F)1, x),"                         \
  " isgreaterequal(fabs(x), (F)4));"

constexpr char kErf[] = "{" GPUACC_ERF("v") "v = e; }";
/// Below -2.7, the distribution function is exp(-v * v / 2) / |v| * P(1 / (v * v)), whose relative error is below 5e-6.
/// GELU of -infinity is NaN, as in the reference: the product of infinity and 0.
constexpr char kGelu[] =
    "{" GPUACC_ERF("v * (F)0.70710678118654752f")
    "const F t = (F)1 / (v * v), tail = exp(v * v * (F)-0.5f) * ((((((F)-29.198675f * t + (F)16.573282f) * t"
    " - (F)4.7548237f) * t + (F)1.1648006f) * t - (F)0.39860401f) * t + (F)0.39894155f);"
    "v = select(v * ((F)0.5f * e + (F)0.5f), -tail, isless(v, (F)-2.7f) && isfinite(v)); }";

const std::map<std::string_view, const char*>& activations() {
  static const std::map<std::string_view, const char*> codes = {
      {"SIGMOID", "v = (F)1 / ((F)1 + exp(-v));"},
      {"TANH", "v = $a * tanh($b * v);"},
      {"LINEAR", "v = $a * v + $b;"},
      {"RELU", "v = select(v, (F)0, isless(v, (F)0));"},
      {"BOUNDED_RELU", "v = select(v, (F)$b, isless(v, (F)$b)); v = select(v, (F)$a, isgreater(v, (F)$a));"},
      {"SOFT_RELU", "v = fmax(v, (F)0) + log1p(exp(-fabs(v)));"},
      {"LEAKY_RELU", "v = select($a * v, v, isgreater(v, (F)0));"},
      {"ABS", "v = fabs(v);"},
      {"SQRT", "v = sqrt(v);"},
      {"SQUARE", "v = v * v;"},
      {"ELU", "v = select($a * expm1(v), v, isgreaterequal(v, (F)0));"},
      {"HARD_SWISH", "v = v * (fmin((F)6, fmax((F)0, v + (F)3)) / (F)6);"},
      {"GELU", kGelu},
      {"GELU_TANH", "v = v / ((F)1 + exp(v * ((F)1 + (F)0.044715f * v * v) * (F)-1.5957691216057308f));"},
      {"SELU", "v = $b * select($a * expm1(v), v, isgreater(v, (F)0));"},
      {"CELU", "v = select($a * expm1(v / $a), v, isgreater(v, (F)0));"},
      {"SOFTSIGN", "v = v / ((F)1 + fabs(v));"},
      {"HARD_SIGMOID",
       "v = $a * v + $b; v = select(v, (F)0, isless(v, (F)0)); v = select(v, (F)1, isgreater(v, (F)1));"},
      {"SWISH", "v = v / ((F)1 + exp(-$a * v));"},
      {"MISH", "v = v * tanh(fmax(v, (F)0) + log1p(exp(-fabs(v))));"},
      {"THRESHOLDED_RELU", "v = select((F)0, v, isgreater(v, (F)$a));"},
      {"SHRINK", "v = select(select((F)0, v + $b, isless(v, -(F)$a)), v - $b, isgreater(v, (F)$a));"},
  };
  return codes;
}

const std::map<std::string_view, const char*>& unary_functions() {
  static const std::map<std::string_view, const char*> codes = {
      {"ABS", "v = fabs(v);"},
      {"EXP", "v = exp(v);"},
      {"SQRT", "v = sqrt(v);"},
      {"RSQRT", "v = (F)1 / sqrt(v);"},
      {"NEG", "v = -v;"},
      {"LOG", "v = log(v);"},
      {"SIN", "v = sin(v);"},
      {"CEIL", "v = ceil(v);"},
      {"COS", "v = cos(v);"},
      {"TAN", "v = tan(v);"},
      {"FLOOR", "v = floor(v);"},
      {"ROUND", "v = rint(v);"},
      {"ERF", kErf},
      {"SQUARE", "v = v * v;"},
      {"RECIPROCAL", "v = (F)1 / v;"},
      {"ASIN", "v = asin(v);"},
      {"ACOS", "v = acos(v);"},
      {"ATAN", "v = atan(v);"},
      {"SINH", "v = sinh(v);"},
      {"COSH", "v = cosh(v);"},
      {"ASINH", "v = asinh(v);"},
      {"ACOSH", "v = acosh(v);"},
      {"ATANH", "v = atanh(v);"},
      {"SIGN", "v = select(sign(v), v, isnan(v));"},
  };
  return codes;
}

const std::map<std::string_view, const char*>& binary_functions() {
  static const std::map<std::string_view, const char*> codes = {
      {"ADD", "v = $l + $r;"},
      {"SUB", "v = $l - $r;"},
      {"MUL", "v = $l * $r;"},
      {"DIV", "v = $l / $r;"},
      {"MAXIMUM", "v = select(select($r, $l, isgreater($l, $r)), $l, isnan($l));"},
      {"MINIMUM", "v = select(select($r, $l, isless($l, $r)), $l, isnan($l));"},
      {"SQ_DIFF", "v = ($l - $r) * ($l - $r);"},
      {"POWER", "v = pow($l, $r);"},
      {"ATAN2", "v = atan2($l, $r);"},
  };
  return codes;
}

const char* found(const std::map<std::string_view, const char*>& codes, std::string_view name) {
  auto at = codes.find(name);
  return at == codes.end() ? nullptr : at->second;
}

bool is_binary(std::string_view type) {
  return type == "ElementwiseBinary" || type == "Addition" || type == "Subtraction" || type == "Multiplication" ||
         type == "Division" || type == "Maximum" || type == "Minimum" || type == "Prelu";
}

/// The shape without leading axes of size 1, padded in front with 1 to a rank.
Shape aligned(Shape shape, size_t rank) {
  while (shape.size() > rank && shape[0] == 1) shape.erase(shape.begin());
  if (shape.size() < rank) shape.insert(shape.begin(), rank - shape.size(), 1);
  return shape;
}

}  // namespace

const char* activation_code(std::string_view function) { return found(activations(), function); }
const char* unary_code(std::string_view operation) { return found(unary_functions(), operation); }
const char* binary_code(std::string_view operation) { return found(binary_functions(), operation); }

std::string_view operation_of(const ipr::Layer& layer) {
  const std::string_view type = layer.type();
  if (type == "Addition") return "ADD";
  if (type == "Subtraction") return "SUB";
  if (type == "Multiplication") return "MUL";
  if (type == "Division") return "DIV";
  if (type == "Maximum") return "MAXIMUM";
  if (type == "Minimum") return "MINIMUM";
  return layer.text("operation");
}

Chain::Chain(Plan& plan, int64_t tensor, int axis)
    : plan_(plan), tensor_(tensor), shape_(shape_of(plan.graph.tensor(tensor))), axis_(axis) {}

void Chain::fuse(bool blocked) {
  while (plan_.readers[size_t(tensor_)] == 1) {
    const int64_t next = plan_.only_reader[size_t(tensor_)];
    if (next < 0 || plan_.lowered_before[size_t(next)]) return;
    const ipr::Layer layer = plan_.graph.layer(size_t(next));
    if (!append(layer, blocked)) return;
    plan_.lowered_before[size_t(next)] = true;
  }
}

bool Chain::append(const ipr::Layer& layer, bool blocked) {
  const ipr::TensorInfo out = layer.output(0);
  if (!is_float(out) || out.dtype() != plan_.graph.tensor(tensor_).dtype()) return false;
  if (shape_of(out) != shape_) return false;
  const std::string_view type = layer.type();
  const bool was_appended = is_binary(type)                ? append_binary(layer, blocked)
                            : type == "BatchNormalization" ? append_normalization(layer)
                                                           : append_function(layer);
  if (was_appended) tensor_ = out.index();
  return was_appended;
}

bool Chain::append_function(const ipr::Layer& layer) {
  const std::string_view type = layer.type();
  const char* code = type == "Activation"         ? activation_code(layer.text("function"))
                     : type == "ElementwiseUnary" ? unary_code(layer.text("operation"))
                     : type == "Floor"            ? unary_code("FLOOR")
                                                  : nullptr;
  if (!code) return false;
  Template text(code);
  if (text.text().find("$a") != std::string::npos) text.set("a", add(layer.number("a")));
  if (text.text().find("$b") != std::string::npos) text.set("b", add(layer.number("b")));
  code_ += text.text() + "\n";
  return true;
}

bool Chain::append_binary(const ipr::Layer& layer, bool blocked) {
  const bool is_left = layer.input(0).index() == tensor_;
  const ipr::TensorInfo other = layer.input(is_left ? 1 : 0);
  const bool is_prelu = layer.type() == "Prelu";
  const char* code = is_prelu ? "v = select($r * v, v, isgreaterequal(v, (F)0));" : binary_code(operation_of(layer));
  if (!code || (is_prelu && !is_left)) return false;
  if (!is_float(other) || other.dtype() != layer.output(0).dtype()) return false;
  Operand operand;
  if (!take(other.index(), blocked, operand)) return false;
  const std::string name = add(operand);
  Template text(code);
  text.set("l", is_left ? "v" : name).set("r", is_left ? name : "v");
  code_ += text.text() + "\n";
  return true;
}

bool Chain::append_normalization(const ipr::Layer& layer) {
  const int64_t rank = int64_t(shape_.size());
  const std::string_view layout = layer.text("data_layout");
  const int64_t axis = !layout.empty() && layout.back() == 'C' ? rank - 1 : std::min<int64_t>(1, rank - 1);
  if (axis != axis_) return false;
  std::vector<std::vector<float>> values;
  for (size_t n = 1; n < 5; ++n) {
    if (!layer.input(n).is_constant() || !is_float(layer.input(n))) return false;
    values.push_back(constant_floats(layer.input(n)));
  }
  std::vector<float> scale, offset;
  bool may_overflow = false;  // a product with the scale that the offset would bring back into the range
  for (size_t c = 0; c < values[0].size(); ++c) {
    const double factor = double(values[3][c]) / std::sqrt(double(values[1][c]) + layer.number("eps"));
    const double center = double(values[0][c]) * factor;
    scale.push_back(float(factor));
    offset.push_back(float(double(values[2][c]) - center));
    may_overflow |= std::abs(factor) > 1 && std::abs(center) > double(std::numeric_limits<float>::max()) / 16;
  }
  const std::string factor = add(channels(scale));
  if (may_overflow) {
    const std::string mean = add(channels(values[0])), beta = add(channels(values[2]));
    code_ += "v = (v - " + mean + ") * " + factor + " + " + beta + ";\n";
  } else {
    code_ += "v = v * " + factor + " + " + add(channels(offset)) + ";\n";
  }
  return true;
}

Chain::Operand Chain::channels(const std::vector<float>& values) const {
  Operand operand;
  operand.kind = Operand::channel;
  std::vector<float> padded = values;
  if (channel_padding > 0) padded.resize((padded.size() / size_t(channel_padding) + 2) * size_t(channel_padding));
  operand.value.buffer = plan_.floats(padded);
  operand.value.dtype = IPR_DTYPE_FLOAT32;
  operand.value.shape = {int64_t(values.size())};
  return operand;
}

bool Chain::take(int64_t tensor, bool blocked, Operand& out) {
  const ipr::TensorInfo info = plan_.graph.tensor(tensor);
  if (!info.is_constant() && !plan_.is_computed(tensor)) return false;
  const Shape shape = aligned(shape_of(info), shape_.size());
  if (shape.size() > shape_.size()) return false;
  if (product(shape) == 1) {
    out.kind = Operand::scalar;
    out.value = plan_.plain(tensor);
    return true;
  }
  Shape per_channel(shape_.size(), 1);
  if (axis_ >= 0) per_channel[size_t(axis_)] = shape_[size_t(axis_)];
  if (axis_ >= 0 && info.is_constant() && shape == per_channel && (shape != shape_ || blocked)) {
    out = channels(constant_floats(info));
    return true;
  }
  if (shape != shape_ || shape_of(info) != shape_) return false;
  out.value = blocked ? plan_.blocked(tensor, axis_ == 3) : plan_.plain(tensor);
  return true;
}

std::string Chain::add(Operand operand) {
  operands_.push_back(std::move(operand));
  return "o" + std::to_string(operands_.size() - 1);
}

std::string Chain::add(double parameter) {
  parameters_.push_back(parameter);
  return "q" + std::to_string(parameters_.size() - 1);
}

std::string Chain::parameters() const {
  std::string text;
  for (size_t n = 0; n < operands_.size(); ++n)
    text += std::string(", global const ") + storage(operands_[n].value.dtype) + "* restrict z" + std::to_string(n);
  for (size_t n = 0; n < parameters_.size(); ++n) text += ", float q" + std::to_string(n);
  return text;
}

std::vector<Argument> Chain::arguments() const {
  std::vector<Argument> all;
  for (const Operand& operand : operands_) all.push_back(reads(operand.value));
  for (double parameter : parameters_) all.push_back(real(parameter));
  return all;
}

std::string load_of(const Chain::Operand& operand, size_t n, const std::string& index) {
  const std::string type = storage(operand.value.dtype), from = "z" + std::to_string(n);
  if (operand.kind == Chain::Operand::scalar) return "(F)LD_" + type + "(0, " + from + ")";
  return "LDV_" + type + "(" + index + ", " + from + ")";
}

void pointwise(Plan& plan, const std::string& name, const std::vector<Value>& operands,
               const std::vector<std::string>& types, const Value& out, const std::string& code,
               const std::string& declarations, const std::vector<Argument>& more, const std::string& functions) {
  std::string parameters, index, loads;
  std::vector<Argument> arguments = {writes(out), number(out.elements())};
  std::vector<Shape> strides;
  std::vector<size_t> strided;
  for (size_t n = 0; n < operands.size(); ++n) {
    const std::string k = std::to_string(n), type = storage(operands[n].dtype);
    parameters += ", global const " + type + "* restrict z" + k;
    arguments.push_back(reads(operands[n]));
    const bool same = operands[n].elements() == out.elements(), one = operands[n].elements() == 1;
    if (!same && !one) strided.push_back(n), strides.push_back(broadcast_strides(operands[n].shape, out.shape));
    loads += "  " + types[n] + " o" + k + " = LD_" + type + "(" +
             (same  ? "i"
              : one ? "0"
                    : "j" + k) +
             ", z" + k + ");\n";
  }
  Shape shape = out.shape;
  std::vector<Shape*> changed;
  for (Shape& stride : strides) changed.push_back(&stride);
  if (!strided.empty()) {
    collapse(shape, changed);
    parameters += ", int8 d";
    arguments.push_back(numbers(shape, 1));
    index += "  int r = i;\n";
  }
  for (size_t n = 0; n < strided.size(); ++n) {
    const std::string k = std::to_string(strided[n]);
    parameters += ", int8 e" + k;
    arguments.push_back(numbers(strides[n], 0));
    index += "  int j" + k + " = 0;\n";
  }
  for (size_t axis = shape.size(); !strided.empty() && axis-- > 0;) {
    const std::string s = ".s" + std::to_string(axis);
    index += "  { int c = r % d" + s + "; r /= d" + s + ";";
    for (size_t n : strided) index += " j" + std::to_string(n) + " += c * e" + std::to_string(n) + s + ";";
    index += " }\n";
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  Template source(R"(
#define F float
kernel void k(global $T* restrict y, int n$PARAMETERS) {
  int i = get_global_id(0);
  if (i >= n) return;
$INDEX$LOADS$CODE
  ST_$T(v, i, y);
}
)");
  source.set("T", storage(out.dtype)).set("PARAMETERS", parameters + declarations);
  source.set("INDEX", index).set("LOADS", loads).set("CODE", code);
  plan.launch_elements(name, preamble(plan.profile, plan.device.info) + functions + source.text(), arguments,
                       out.elements());
}

}  // namespace gpuacc
