// Einsum of few products, for hosts that do not rewrite it to matrix products, and forms that cannot be rewritten.
// NumPy has vectors for many products.

#include <algorithm>
#include <map>

#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMostProducts = 1 << 14;

/// The letters of a term by axis. Axes of an ellipsis are the letters from 0 on, counted from the last axis.
std::string axes_of(const std::string& term, int rank) {
  const size_t at = term.find("...");
  if (at == std::string::npos) return term;
  std::string letters = term.substr(0, at);
  const int more = rank - int(term.size()) + 3;
  for (int n = more; n-- > 0;) letters += char(n);
  return letters + term.substr(at + 3);
}

/// The terms of an equation, of which the last one is that of the result.
std::vector<std::string> terms_of(std::string equation) {
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const size_t arrow = equation.find("->");
  const std::string inputs = equation.substr(0, arrow);
  std::vector<std::string> terms{""};
  for (char letter : inputs) {
    if (letter == ',')
      terms.emplace_back();
    else
      terms.back().push_back(letter);
  }
  if (arrow != std::string::npos) {
    terms.push_back(equation.substr(arrow + 2));
    return terms;
  }
  std::string result = inputs.find("...") == std::string::npos ? "" : "...";
  std::map<char, int> counts;
  for (char letter : inputs)
    if (letter != ',' && letter != '.') ++counts[letter];
  for (const auto& [letter, count] : counts)
    if (count == 1) result.push_back(letter);
  terms.push_back(result);
  return terms;
}

/// One letter: its size, and its steps in elements in each operand and in the result.
struct Letter {
  int64_t size = 1;
  std::vector<int64_t> steps;
};

/// All letters, those of the result first, in its order.
std::vector<Letter> letters_of(const Graph& graph, const Node& node) {
  const std::vector<std::string> terms = terms_of(std::string(node.text("equation")));
  std::string order = axes_of(terms.back(), graph.out(node).rank());
  std::map<char, Letter> letter_of_name;
  for (size_t n = 0; n < terms.size(); ++n) {
    const Tensor& tensor = n + 1 < terms.size() ? *graph.in(node, n) : graph.out(node);
    const std::string letters = axes_of(terms[n], tensor.rank());
    int64_t step = 1;
    for (size_t axis = letters.size(); axis-- > 0; step *= tensor.shape[axis]) {
      Letter& letter = letter_of_name[letters[axis]];
      letter.steps.resize(terms.size());
      if (order.find(letters[axis]) == std::string::npos) order.push_back(letters[axis]);
      if (tensor.shape[axis] == 1) continue;
      letter.size = tensor.shape[axis];
      letter.steps[n] += step;
    }
  }
  std::vector<Letter> all;
  for (char letter : order) all.push_back(letter_of_name[letter]);
  return all;
}

int64_t products_of(const std::vector<Letter>& letters) {
  int64_t product = 1;
  for (const Letter& letter : letters)
    if (__builtin_mul_overflow(product, letter.size, &product)) return INT64_MAX;
  return product;
}

struct Sum {
  std::vector<Letter> letters;
  size_t operands;
  int32_t dtype;
  int64_t elements;

  /// Add all products of the elements that are `at` in the operands and in the result, for the letters from `n` on.
  template <class T, class Wide>
  void add(const T* const* in, T* out, size_t n, std::vector<int64_t>& at) const {
    if (n == letters.size()) {
      Wide product = 1;
      for (size_t k = 0; k < operands; ++k) product = Wide(product * Wide(in[k][at[k]]));
      out[at[operands]] = T(Wide(out[at[operands]]) + product);
      return;
    }
    const Letter& letter = letters[n];
    for (int64_t index = 0; index < letter.size; ++index) {
      add<T, Wide>(in, out, n + 1, at);
      for (size_t k = 0; k < letter.steps.size(); ++k) at[k] += letter.steps[k];
    }
    for (size_t k = 0; k < letter.steps.size(); ++k) at[k] -= letter.size * letter.steps[k];
  }

  template <class T, class Wide = T>
  void all(const Step& step, const Run& run) const {
    std::vector<const T*> in;
    for (const Buffer& operand : step.in) in.push_back(run.at<T>(operand));
    std::vector<int64_t> at(operands + 1, 0);
    std::fill_n(run.at<T>(step.out[0]), elements, T(0));
    add<T, Wide>(in.data(), run.at<T>(step.out[0]), 0, at);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Sum& self = step.as<Sum>();
    switch (self.dtype) {
      case IPR_DTYPE_FLOAT32:
        return self.all<float>(step, run);
      case IPR_DTYPE_FLOAT64:
        return self.all<double>(step, run);
      case IPR_DTYPE_INT8:
      case IPR_DTYPE_UINT8:
        return self.all<uint8_t, uint32_t>(step, run);
      case IPR_DTYPE_INT16:
      case IPR_DTYPE_UINT16:
        return self.all<uint16_t, uint32_t>(step, run);
      case IPR_DTYPE_INT32:
      case IPR_DTYPE_UINT32:
        return self.all<uint32_t>(step, run);
      default:
        return self.all<uint64_t>(step, run);
    }
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& first = *graph.in(node, 0);
  const bool integer = first.dtype >= IPR_DTYPE_INT8 && first.dtype <= IPR_DTYPE_UINT64;
  if (first.is_quantized() || graph.out(node).is_quantized() ||
      !(integer || first.dtype == IPR_DTYPE_FLOAT32 || first.dtype == IPR_DTYPE_FLOAT64))
    return refused("operand 0 is " + described(first), IPR_REASON_DATA_TYPE);
  if (products_of(letters_of(graph, node)) > kMostProducts)
    return refused("there are more than 2**14 products", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

void lower(const Node& node, Builder& builder) {
  auto state = std::make_shared<Sum>();
  state->letters = letters_of(builder.graph, node);
  state->operands = node.inputs.size();
  state->dtype = builder.graph.in(node, 0)->dtype;
  state->elements = builder.graph.out(node).elements();
  for (Letter& letter : state->letters) letter.steps.resize(state->operands + 1);
  Step step;
  step.name = "Einsum " + node.name;
  step.fn = &Sum::run;
  step.operations = 2 * double(products_of(state->letters));
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family einsum_family() { return {{{"Einsum", "few products", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
