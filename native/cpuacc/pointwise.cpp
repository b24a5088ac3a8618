#include "cpuacc/pointwise.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace cpuacc {
namespace {

// clang-format off
const char* const kBinaries[] = {"add",         "div",          "maximum",    "minimum",          "mul",  "sub",
                                 "sq_diff",     "power",        "floor_div",  "mod",              "fmod", "atan2",
                                 "bitwise_and", "bitwise_or",   "bitwise_xor", "shift_left",      "shift_right",
                                 "prelu",       "equal",        "greater",    "greater_or_equal", "less",
                                 "less_or_equal", "not_equal"};

const char* const kUnaries[] = {"abs",  "exp",   "sqrt",       "rsqrt",  "neg", "logical_not", "log",   "sin",
                                "ceil", "cos",   "tan",        "floor",  "round", "sign",      "reciprocal", "square",
                                "erf",  "asin",  "acos",       "atan",   "sinh", "cosh",       "asinh", "acosh",
                                "atanh", "is_nan", "is_inf",   "is_positive_inf", "is_negative_inf", "bitwise_not"};

const char* const kFunctions[] = {"sigmoid", "tanh",   "linear",     "relu", "bounded_relu", "soft_relu", "leaky_relu",
                                  "abs",     "sqrt",   "square",     "elu",  "hard_swish",   "gelu",      "gelu_tanh",
                                  "selu",    "celu",   "softsign",   "hard_sigmoid", "swish", "mish",
                                  "thresholded_relu", "shrink"};
// clang-format on

/// The index of a name in upper case, as attributes have it, in a list of names in lower case.
template <size_t kCount>
int place_of(std::string_view name, const char* const (&names)[kCount]) {
  auto equal = [&](const char* candidate) {
    return std::string_view(candidate).size() == name.size() &&
           std::equal(name.begin(), name.end(), candidate, [](char a, char b) { return std::tolower(a) == b; });
  };
  return int(std::find_if(std::begin(names), std::end(names), equal) - std::begin(names));
}

struct Named {
  const char* type;
  Binary operation;
};

const Named kNamed[] = {{"Addition", Binary::add}, {"Subtraction", Binary::sub}, {"Multiplication", Binary::mul},
                        {"Division", Binary::div}, {"Maximum", Binary::maximum}, {"Minimum", Binary::minimum},
                        {"Prelu", Binary::prelu}};

const char* const kElementwise[] = {
    "Activation",    "Addition",    "Cast",    "Comparison",        "Dequantize",       "Division",       "Floor",
    "LogicalBinary", "Maximum",     "Minimum", "ElementwiseBinary", "ElementwiseUnary", "Multiplication", "Prelu",
    "Quantize",      "Subtraction", "Where"};

}  // namespace

Binary binary_of(const Node& node) {
  for (const Named& candidate : kNamed)
    if (node.type == candidate.type) return candidate.operation;
  if (node.type == "LogicalBinary") {
    std::string_view name = node.text("operation");
    if (name == "LOGICAL_AND") return Binary::bitwise_and;
    return name == "LOGICAL_OR" ? Binary::bitwise_or : Binary::bitwise_xor;
  }
  return Binary(place_of(node.text("operation"), kBinaries));
}

Unary unary_of(const Node& node) {
  return node.type == "Floor" ? Unary::floor : Unary(place_of(node.text("operation"), kUnaries));
}

Function function_of(std::string_view name) { return Function(place_of(name, kFunctions)); }

bool is_elementwise(const Node& node) {
  auto has_type = [&](const char* type) { return node.type == type; };
  return node.posts.empty() && node.outputs.size() == 1 &&
         std::any_of(std::begin(kElementwise), std::end(kElementwise), has_type);
}

bool only_activations(const Graph& graph, const Node& node) {
  bool real = graph.out(node).dtype == IPR_DTYPE_FLOAT32;
  return std::all_of(node.posts.begin(), node.posts.end(), [&](const Post& post) {
    return real && post.kind == Post::activation && function_of(post.function) != Function::add;
  });
}

int64_t Rows::begin(int operand, int64_t row) const {
  int64_t place = 0;
  for (size_t n = extents.size(); n-- > 0;) {
    place += row % extents[n] * steps[operand][n];
    row /= extents[n];
  }
  return place;
}

Rows rows_of(const Shape& result, const std::vector<const Shape*>& operands) {
  struct Axis {
    int64_t extent;
    int64_t step[3];
  };
  Rows rows;
  rows.operands = int(operands.size());
  std::vector<Axis> axes;
  int64_t sizes[3] = {1, 1, 1};
  for (size_t n = result.size(); n-- > 0;) {  // merge axes, from the last one on, that are contiguous in all operands
    Axis axis{result[n], {0, 0, 0}};
    for (size_t i = 0; i < operands.size(); ++i) {
      size_t missing = result.size() - operands[i]->size();
      int64_t extent = n < missing ? 1 : (*operands[i])[n - missing];
      axis.step[i] = extent == 1 ? 0 : sizes[i];
      sizes[i] *= extent;
    }
    if (axis.extent == 1) continue;
    auto joins = [&](size_t i) { return axis.step[i] == axes.back().extent * axes.back().step[i]; };
    bool all = !axes.empty();
    for (size_t i = 0; all && i < operands.size(); ++i) all = joins(i);
    if (all)
      axes.back().extent *= axis.extent;
    else
      axes.push_back(axis);
  }
  if (axes.empty()) axes.push_back({1, {1, 1, 1}});
  rows.length = axes[0].extent;
  for (size_t i = 0; i < operands.size(); ++i) rows.one[i] = axes[0].step[i] == 0;
  for (size_t n = axes.size(); n-- > 1;) {
    rows.rows *= axes[n].extent;
    rows.extents.push_back(axes[n].extent);
    for (size_t i = 0; i < operands.size(); ++i) rows.steps[i].push_back(axes[n].step[i]);
  }
  return rows;
}

void merge_short_rows(Rows& rows, int64_t least) {
  if (rows.length >= least || rows.extents.empty()) return;
  for (int i = 0; i < rows.operands; ++i) {
    const int64_t step = rows.steps[i].back();
    if (step != 0 && step != (rows.one[i] ? 1 : rows.length)) return;
  }
  for (int i = 0; i < rows.operands; ++i) {
    const bool moves = rows.steps[i].back() != 0;
    rows.periodic[i] = !rows.one[i] && !moves;
    rows.repeated[i] = rows.one[i] && moves;
    rows.one[i] = rows.one[i] && !moves;
    rows.steps[i].pop_back();
  }
  rows.period = rows.length;
  rows.length *= rows.extents.back();
  rows.rows /= std::max<int64_t>(1, rows.extents.back());
  rows.extents.pop_back();
}

}  // namespace cpuacc
