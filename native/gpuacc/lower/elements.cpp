// Operations on single elements, of floats, integers and truth values.

#include "common/fixed_point.hpp"
#include "gpuacc/pointwise.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

bool is_integer(int32_t dtype) {
  return (dtype >= IPR_DTYPE_INT8 && dtype <= IPR_DTYPE_UINT64) || dtype == IPR_DTYPE_BOOL;
}

ipr::Verdict no_type(const std::string& name, const ipr::TensorInfo& info) {
  return ipr::no(name + " is " + described(info) + "; takes float32, float16, and integers without a scale",
                 IPR_REASON_DATA_TYPE);
}

/// Floats, and integers that are not quantized.
bool is_plain(const ipr::TensorInfo& info) {
  return !info.is_quantized() && (is_float(info.dtype()) || is_integer(info.dtype()));
}

// ---- Floats: chains ---------------------------------------------------------------------------------------------------

/// Compute a chain that begins with a layer, whose operand `main` is v, in blocks; false if that is not possible.
bool lower_in_blocks(const ipr::Layer& layer, Plan& plan, size_t main) {
  const int64_t tensor = layer.input(main).index();
  if (layer.output(0).rank() != 4 || !plan.is_computed(tensor)) return false;
  const Value from = plan.as_computed(tensor);
  if (from.layout != Layout::blocked) return false;
  Chain chain(plan, tensor, from.channels_last ? 3 : 1);
  chain.channel_padding = plan.profile.block;
  if (!chain.append(layer, true)) return false;
  chain.fuse(true);
  const Image image(from.shape, from.channels_last);
  const int64_t blocks = (image.c + plan.profile.block - 1) / plan.profile.block;
  const Value out = plan.create(from.dtype, from.shape, Layout::blocked, from.channels_last);
  Template source(R"(
#define F FB
kernel void k(global const $T* restrict x, global $T* restrict y, int n, int pixels, int blocks, int C$PARAMETERS) {
  int i = get_global_id(0);
  if (i >= n) return;
  int cb = i / pixels % blocks;
  FB v = LDV_$T(i, x);
$LOADS$CODE
  v = KEEP(v, C - cb * B);
  STV_$T(v, i, y);
}
)");
  source.set("T", storage(from.dtype)).set("PARAMETERS", chain.parameters());
  source.set("LOADS", chain.loads([](const Chain::Operand& operand, size_t n) {
    return operand.kind == Chain::Operand::channel ? load_of(operand, n, "cb") : load_of(operand, n, "i");
  }));
  source.set("CODE", chain.code());
  const int64_t count = image.n * blocks * image.h * image.w;
  std::vector<Argument> arguments = {reads(from),    writes(out),    number(count), number(image.h * image.w),
                                     number(blocks), number(image.c)};
  for (const Argument& argument : chain.arguments()) arguments.push_back(argument);
  plan.launch_elements("pointwise", preamble(plan.profile, plan.device.info) + source.text(), arguments, count);
  plan.set(chain.tensor(), out);
  return true;
}

/// A chain that begins with a layer, whose operand `main` is v.
void lower_chain(const ipr::Layer& layer, Plan& plan, size_t main) {
  if (lower_in_blocks(layer, plan, main)) return;
  std::vector<Value> operands;
  std::vector<std::string> types;
  for (size_t n = 0; n < layer.input_count(); ++n) {
    operands.push_back(plan.plain(layer.input(n).index()));
    types.emplace_back("float");
  }
  const bool is_prelu = layer.type() == "Prelu";
  std::string code = "  float v = o0;\n", declarations;
  std::vector<Argument> more;
  if (operands.size() == 2) {
    Template text(is_prelu ? "v = select($r * v, v, isgreaterequal(v, (F)0));" : binary_code(operation_of(layer)));
    code += text.set("l", "o0").set("r", "o1").text();
  } else {
    const char* function = layer.type() == "Activation" ? activation_code(layer.text("function"))
                           : layer.type() == "Floor"    ? unary_code("FLOOR")
                                                        : unary_code(layer.text("operation"));
    Template text(function);
    code += text.set("a", "pa").set("b", "pb").text();
    if (layer.type() == "Activation") {
      declarations = ", float pa, float pb";
      more = {real(layer.number("a")), real(layer.number("b"))};
    }
  }
  Chain chain(plan, layer.output(0).index(), -1);
  chain.fuse(false);
  std::string loads;
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  loads = chain.loads([](const Chain::Operand& operand, size_t n) {
    const std::string type = storage(operand.value.dtype);
    return "LD_" + type + "(" + (operand.kind == Chain::Operand::scalar ? "0" : "i") + ", zz" + std::to_string(n) + ")";
  });
  Template fused(loads + chain.code());
  std::string after = fused.text(), parameters = chain.parameters();
  // the operands of the chain are numbered from 0, like those of the layer
  if (!chain.empty()) {
    size_t at = 0;
    while ((at = parameters.find("* restrict z", at)) != std::string::npos)
      parameters.replace(at, 12, "* restrict zz"), at += 13;
    code += "\n  {\n" + after + "  }\n";
  }
  declarations += parameters;
  for (const Argument& argument : chain.arguments()) more.push_back(argument);
  pointwise(plan, "pointwise", operands, types, out, code, declarations, more);
  plan.set(chain.tensor(), out);
}

// ---- Integers and truth values ------------------------------------------------------------------------------------------

// A quotient by 0 is 0. That of the least number and -1 wraps around, where processors would trap.
constexpr char kQuotient[] = "v = o1 == 0 ? (T)0 : NEGATES ? (T)(0 - (U)o0) : (T)(o0 / o1);";
constexpr char kRemainder[] = "v = o1 == 0 || NEGATES ? (T)0 : (T)(o0 % o1);";
constexpr char kFlooredQuotient[] =
    "v = o1 == 0 ? (T)0 : NEGATES ? (T)(0 - (U)o0) : (T)(o0 / o1 - (o0 % o1 != 0 && (o0 < 0) != (o1 < 0)));";
constexpr char kModulus[] =
    "v = o1 == 0 || NEGATES ? (T)0 : (T)(o0 % o1); if (v != 0 && (v < 0) != (o1 < 0)) v = (T)(v + o1);";

const char* integer_code(std::string_view operation) {
  if (operation == "ADD") return "v = (T)((U)o0 + (U)o1);";
  if (operation == "SUB") return "v = (T)((U)o0 - (U)o1);";
  if (operation == "MUL") return "v = (T)((U)o0 * (U)o1);";
  if (operation == "MAXIMUM") return "v = o0 > o1 ? o0 : o1;";
  if (operation == "MINIMUM") return "v = o0 < o1 ? o0 : o1;";
  if (operation == "BITWISE_AND") return "v = o0 & o1;";
  if (operation == "BITWISE_OR") return "v = o0 | o1;";
  if (operation == "BITWISE_XOR") return "v = o0 ^ o1;";
  if (operation == "SQ_DIFF") return "v = (T)(((U)o0 - (U)o1) * ((U)o0 - (U)o1));";
  if (operation == "DIV") return kQuotient;
  if (operation == "FLOOR_DIV") return kFlooredQuotient;
  if (operation == "MOD") return kModulus;
  if (operation == "FMOD") return kRemainder;
  if (operation == "SHIFT_LEFT") return "v = o1 < 0 || o1 >= BITS ? (T)0 : (T)((U)o0 << o1);";
  if (operation == "SHIFT_RIGHT")
    return "v = o0 >> (o1 < 0 || o1 >= BITS ? BITS - 1 : o1), v = o0 < 0 || (o1 >= 0 && o1 < BITS) ? v : (T)0;";
  return nullptr;
}

void lower_integers(const ipr::Layer& layer, Plan& plan) {
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = storage(out.dtype), wide = ipr::item_size(out.dtype) == 8 ? "ulong" : "uint";
  Template code("  " + type + " v;\n  " + integer_code(operation_of(layer)));
  std::string text = code.text();
  for (size_t at = 0; (at = text.find("(T)", at)) != std::string::npos;) text.replace(at, 3, "(" + type + ")");
  for (size_t at = 0; (at = text.find("(U)", at)) != std::string::npos;) text.replace(at, 3, "(" + wide + ")");
  const std::string definitions = std::string("#define NEGATES ") + (type[0] == 'u' ? "0" : "(o1 == -1)") +
                                  "\n#define BITS " + std::to_string(8 * ipr::item_size(out.dtype)) + "\n";
  pointwise(plan, "integers", {plan.plain(layer.input(0).index()), plan.plain(layer.input(1).index())}, {type, type},
            out, text, "", {}, definitions);
  plan.set(layer.output(0).index(), out);
}

ipr::Verdict binary_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo out = layer.output(0);
  const bool is_prelu = layer.type() == "Prelu";
  const std::string operation(is_prelu ? "PRELU" : operation_of(layer));
  if (is_quantized8(out)) return is_prelu ? one_scale(layer, 2) : quantized_binary_support(layer);
  if (is_float(out) && is_float(layer.input(0)) && is_float(layer.input(1))) {
    if (layer.input(0).dtype() != layer.input(1).dtype() || layer.input(0).dtype() != out.dtype())
      return ipr::no("the operands have different types", IPR_REASON_DATA_TYPE);
    if (is_prelu || binary_code(operation)) return ipr::yes();
    return ipr::no("no kernel for " + operation + " of floats", IPR_REASON_ATTRIBUTE);
  }
  for (const ipr::TensorInfo& info : {layer.input(0), layer.input(1), out})
    if (!is_plain(info) || is_float(info))
      return no_type(info.index() == out.index() ? "the output" : "an input", info);
  if (layer.input(0).dtype() != layer.input(1).dtype() || layer.input(0).dtype() != out.dtype())
    return ipr::no("the operands have different types", IPR_REASON_DATA_TYPE);
  if (out.dtype() == IPR_DTYPE_BOOL && operation.rfind("BITWISE", 0) != 0)
    return ipr::no("no kernel for " + operation + " of bool", IPR_REASON_DATA_TYPE);
  if (!is_prelu && integer_code(operation)) return ipr::yes();
  return ipr::no("no kernel for " + operation + " of integers", IPR_REASON_ATTRIBUTE);
}

/// Operands of 8 bits with one scale each, which multiply differently above and below 0.
void lower_quantized_prelu(const ipr::Layer& layer, Plan& plan) {
  const ipr::TensorInfo in = layer.input(0), slope = layer.input(1), to = layer.output(0);
  const native::FixedPoint above = native::quantize_multiplier(double(scale32(in) / scale32(to)));
  const native::FixedPoint below = native::quantize_multiplier(double(scale32(in) * scale32(slope) / scale32(to)));
  const Value out = plan.create(to.dtype(), shape_of(to));
  const std::string type = storage(out.dtype);
  pointwise(plan, "prelu", {plan.plain(in.index()), plan.plain(slope.index())}, {"int", "int"}, out,
            "  const int distance = o0 - za;\n  const long s = distance >= 0 ? multiply(distance, ma, sa) : "
            "multiply(distance * (o1 - zb), mb, sb);\n  " +
                type + " v = (" + type + ")CLAMP(s + zc);",
            ", int za, int ma, int sa, int zb, int mb, int sb, int zc",
            {number(in.zero_point()), number(above.multiplier), number(above.shift), number(slope.zero_point()),
             number(below.multiplier), number(below.shift), number(to.zero_point())},
            arithmetic(out.dtype));
  plan.set(to.index(), out);
}

void lower_binary(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.output(0)) && layer.type() == "Prelu") return lower_quantized_prelu(layer, plan);
  if (is_quantized8(layer.output(0))) return lower_quantized_binary(layer, plan);
  if (!is_float(layer.output(0))) return lower_integers(layer, plan);
  // v is the operand in blocks, if there is one of the shape of the result
  const bool is_second =
      layer.type() != "Prelu" && !plan.is_blocked(layer.input(0).index()) && plan.is_blocked(layer.input(1).index());
  lower_chain(layer, plan, is_second ? 1 : 0);
}

ipr::Verdict floor_support(const ipr::Layer& layer, const Target&) {
  return is_quantized8(layer.output(0)) ? quantized_unary_support(layer) : all_float(layer);
}

void lower_floor(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.output(0))) return lower_quantized_unary(layer, plan);
  lower_chain(layer, plan, 0);
}

ipr::Verdict activation_support(const ipr::Layer& layer, const Target&) {
  if (is_quantized8(layer.output(0))) return quantized_activation_support(layer);
  ipr::Verdict verdict = all_float(layer);
  if (is_refused(verdict)) return verdict;
  const std::string_view function = layer.text("function");
  if (activation_code(function)) return ipr::yes();
  return ipr::no("no kernel for the function " + std::string(function), IPR_REASON_ATTRIBUTE);
}

void lower_activation(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.output(0))) return lower_quantized_activation(layer, plan);
  lower_chain(layer, plan, 0);
}

bool is_predicate(std::string_view operation) { return operation.substr(0, 3) == "IS_" || operation == "LOGICAL_NOT"; }

ipr::Verdict unary_support(const ipr::Layer& layer, const Target&) {
  if (is_quantized8(layer.output(0))) return quantized_unary_support(layer);
  const std::string operation(layer.text("operation"));
  const ipr::TensorInfo in = layer.input(0);
  if (operation == "LOGICAL_NOT") return in.dtype() == IPR_DTYPE_BOOL ? ipr::yes() : no_type("input", in);
  if (is_predicate(operation)) return is_float(in) ? ipr::yes() : no_type("input", in);
  if (is_float(in)) {
    if (unary_code(operation)) return all_float(layer);
    return ipr::no("no kernel for " + operation + " of floats", IPR_REASON_ATTRIBUTE);
  }
  if (!is_plain(in) || in.dtype() == IPR_DTYPE_BOOL) return no_type("input", in);
  if (operation == "NEG" || operation == "BITWISE_NOT") return ipr::yes();
  return ipr::no("no kernel for " + operation + " of integers", IPR_REASON_ATTRIBUTE);
}

void lower_unary(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.output(0))) return lower_quantized_unary(layer, plan);
  const std::string operation(layer.text("operation"));
  const bool is_of_floats = is_float(layer.input(0));
  if (is_of_floats && !is_predicate(operation)) return lower_chain(layer, plan, 0);
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = is_of_floats ? "float" : storage(in.dtype);
  std::string code = "  " + std::string(storage(out.dtype)) + " v = ";
  if (operation == "LOGICAL_NOT") code += "!o0;";
  if (operation == "IS_NAN") code += "isnan(o0) != 0;";
  if (operation == "IS_INF") code += "isinf(o0) != 0;";
  if (operation == "IS_POSITIVE_INF") code += "o0 == INFINITY;";
  if (operation == "IS_NEGATIVE_INF") code += "o0 == -INFINITY;";
  if (operation == "NEG") code += "-o0;";
  if (operation == "BITWISE_NOT") code += in.dtype == IPR_DTYPE_BOOL ? "!o0;" : "~o0;";
  pointwise(plan, "predicate", {in}, {type}, out, code);
  plan.set(layer.output(0).index(), out);
}

// ---- Comparisons, logic, selection ----------------------------------------------------------------------------------------

bool has_one_scale(const ipr::TensorInfo& info) { return is_quantized8(info) && info.axis() < 0; }

ipr::Verdict comparison_support(const ipr::Layer& layer, const Target&) {
  if (has_one_scale(layer.input(0)) && has_one_scale(layer.input(1))) return ipr::yes();
  for (size_t n = 0; n < 2; ++n)
    if (!is_plain(layer.input(n))) return no_type("an input", layer.input(n));
  if (layer.input(0).dtype() != layer.input(1).dtype())
    return ipr::no("the operands have different types", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

void lower_comparison(const ipr::Layer& layer, Plan& plan) {
  const std::string_view operation = layer.text("operation");
  const char* sign = operation == "EQUAL"              ? "=="
                     : operation == "GREATER"          ? ">"
                     : operation == "GREATER_OR_EQUAL" ? ">="
                     : operation == "LESS"             ? "<"
                     : operation == "LESS_OR_EQUAL"    ? "<="
                     : operation == "NOT_EQUAL"        ? "!="
                     : operation == "LOGICAL_AND"      ? "&&"
                     : operation == "LOGICAL_OR"       ? "||"
                                                       : "^";
  const Value a = plan.plain(layer.input(0).index()), b = plan.plain(layer.input(1).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  plan.set(layer.output(0).index(), out);
  if (layer.input(0).is_quantized()) {  // in steps of 1/256, as in TFLite
    std::vector<Argument> more;
    for (const ipr::TensorInfo& info : {layer.input(0), layer.input(1)}) {
      const native::FixedPoint factor = native::quantize_multiplier(double(scale32(info)));
      for (int64_t value : {info.zero_point(), int64_t(factor.multiplier), int64_t(factor.shift)})
        more.push_back(number(value));
    }
    return pointwise(
        plan, "comparison", {a, b}, {"int", "int"}, out,
        std::string("  uchar v = multiply((o0 - za) * 256, ma, sa) ") + sign + " multiply((o1 - zb) * 256, mb, sb);",
        ", int za, int ma, int sa, int zb, int mb, int sb", more, arithmetic(a.dtype));
  }
  const std::string type = is_float(a.dtype) ? "float" : storage(a.dtype);
  pointwise(plan, "comparison", {a, b}, {type, type}, out, std::string("  uchar v = o0 ") + sign + " o1;");
}

ipr::Verdict logical_support(const ipr::Layer& layer, const Target&) {
  for (size_t n = 0; n < 2; ++n)
    if (layer.input(n).dtype() != IPR_DTYPE_BOOL)
      return ipr::no("an input is " + described(layer.input(n)) + "; takes bool", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

ipr::Verdict where_support(const ipr::Layer& layer, const Target&) {
  if (layer.input(0).dtype() != IPR_DTYPE_BOOL)
    return ipr::no("condition is " + described(layer.input(0)) + "; takes bool", IPR_REASON_DATA_TYPE);
  const ipr::TensorInfo out = layer.output(0);
  for (size_t n = 1; n < 3; ++n) {
    const ipr::TensorInfo in = layer.input(n);
    if (in.dtype() != out.dtype() || !storage(in.dtype()) || !same_quantization(in, out))
      return ipr::no("an input is " + described(in) + ", but the output is " + described(out), IPR_REASON_DATA_TYPE);
  }
  return ipr::yes();
}

/// Selects bits, so that NaN and quantized values stay as they are.
void lower_where(const ipr::Layer& layer, Plan& plan) {
  Value a = plan.plain(layer.input(1).index()), b = plan.plain(layer.input(2).index());
  Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const uint64_t size = ipr::item_size(out.dtype);
  const int32_t bits = size == 1   ? IPR_DTYPE_UINT8
                       : size == 2 ? IPR_DTYPE_UINT16
                       : size == 4 ? IPR_DTYPE_UINT32
                                   : IPR_DTYPE_UINT64;
  Value chosen = out;
  a.dtype = b.dtype = chosen.dtype = bits;
  const std::string type = storage(bits);
  pointwise(plan, "where", {plan.plain(layer.input(0).index()), a, b}, {"uchar", type, type}, chosen,
            "  " + type + " v = o0 ? o1 : o2;");
  plan.set(layer.output(0).index(), out);
}

// ---- Casts ------------------------------------------------------------------------------------------------------------------

ipr::Verdict cast_support(const ipr::Layer& layer, const Target&) {
  const ipr::TensorInfo in = layer.input(0), out = layer.output(0);
  for (const ipr::TensorInfo& info : {in, out})
    if (!is_float(info.dtype()) && !is_integer(info.dtype())) return no_type("a tensor", info);
  if (is_float(in.dtype()) && is_integer(out.dtype()) && ipr::item_size(out.dtype()) == 8)
    return ipr::no("no kernel for casts of floats to integers of 64 bits", IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

void lower_cast(const ipr::Layer& layer, Plan& plan) {
  const Value in = plan.plain(layer.input(0).index());
  const Value out = plan.create(layer.output(0).dtype(), shape_of(layer.output(0)));
  const std::string type = is_float(in.dtype) ? "float" : storage(in.dtype), to = storage(out.dtype);
  std::string code;
  if (out.dtype == IPR_DTYPE_BOOL)
    code = "  uchar v = o0 != 0;";
  else if (is_float(out.dtype))
    code = "  float v = convert_float(o0);";
  else if (is_float(in.dtype))
    code = "  " + to + " v = isnan(o0) ? 0 : convert_" + to + "_sat_rtz(o0);";
  else
    code = "  " + to + " v = (" + to + ")o0;";
  pointwise(plan, "cast", {in}, {type}, out, code);
  plan.set(layer.output(0).index(), out);
}

// ---- Batch normalization -------------------------------------------------------------------------------------------------------

ipr::Verdict normalization_support(const ipr::Layer& layer, const Target&) { return all_float(layer); }

/// (x - mean) * (gamma / sqrt(variance + eps)) + beta, of plain values. The factor is computed first, as a quotient of
/// a large number would overflow.
void lower_normalization(const ipr::Layer& layer, Plan& plan) {
  if (lower_in_blocks(layer, plan, 0)) return;
  const Value in = plan.plain(layer.input(0).index());
  const int64_t rank = layer.input(0).rank();
  const std::string_view layout = layer.text("data_layout");
  const int64_t axis = !layout.empty() && layout.back() == 'C' ? rank - 1 : 1;
  std::vector<Value> operands = {in};
  for (size_t n = 1; n < 5; ++n) {
    Value per_channel = plan.plain(layer.input(n).index());
    Shape shape(size_t(rank - axis), 1);
    shape[0] = per_channel.elements();
    operands.push_back(plan.reshaped(per_channel, shape));
  }
  const Value out = plan.create(in.dtype, in.shape);
  pointwise(plan, "normalize", operands, std::vector<std::string>(5, "float"), out,
            "  float v = (o0 - o1) * (o4 / sqrt(o2 + pe)) + o3;", ", float pe", {real(layer.number("eps"))});
  plan.set(layer.output(0).index(), out);
}

}  // namespace

Lowerings element_lowerings() {
  Lowerings all = {
      {"ElementwiseUnary", unary_support, lower_unary},
      {"Floor", floor_support, lower_floor},
      {"Comparison", comparison_support, lower_comparison},
      {"LogicalBinary", logical_support, lower_comparison},
      {"Where", where_support, lower_where},
      {"Cast", cast_support, lower_cast},
      {"ConvertFp16ToFp32", cast_support, lower_cast},
      {"ConvertFp32ToFp16", cast_support, lower_cast},
      {"BatchNormalization", normalization_support, lower_normalization},
      {"Activation", activation_support, lower_activation},
  };
  for (const char* type :
       {"ElementwiseBinary", "Addition", "Subtraction", "Multiplication", "Division", "Maximum", "Minimum", "Prelu"})
    all.push_back({type, binary_support, lower_binary});
  return all;
}

}  // namespace gpuacc
