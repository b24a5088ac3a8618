// Results whose shapes a step computes from the values of its operands.

#ifndef CPUACC_LOWER_DYNAMIC_RESULT_HPP
#define CPUACC_LOWER_DYNAMIC_RESULT_HPP

#include "cpuacc/rules.hpp"

namespace cpuacc {

/// The elements of integers, which are int32 or int64.
class Integers {
 public:
  Integers() = default;
  explicit Integers(const Tensor& tensor) : count(tensor.elements()), is_wide_(tensor.dtype == IPR_DTYPE_INT64) {}

  int64_t at(const Run& run, const Buffer& buffer, int64_t n) const {
    return is_wide_ ? run.at<int64_t>(buffer)[n] : run.at<int32_t>(buffer)[n];
  }
  Shape all(const Run& run, const Buffer& buffer) const;
  void write(void* to, int64_t n, int64_t value) const {
    is_wide_ ? static_cast<int64_t*>(to)[n] = value : static_cast<int32_t*>(to)[n] = int32_t(value);
  }

  int64_t count = 0;

 private:
  bool is_wide_ = true;
};

/// A result of a step. Steps with such results have one part.
class DynamicResult {
 public:
  DynamicResult() = default;
  DynamicResult(const Graph& graph, const Node& node, size_t position);

  /// Return whether the result may have this shape. If not, an error for the values of `operand` is reported: the
  /// network declares another shape, or no machine has as much memory.
  bool takes(const Run& run, int operand, const Shape& shape) const;

  /// The memory of the result, with this shape; nullptr if nothing reads it.
  char* memory(const Step& step, const Run& run, const Shape& shape) const;

  /// The buffer of the result, for Step::out at its position.
  Buffer buffer(Builder& builder) const { return is_read_ ? builder.buffer(tensor_) : Buffer(); }

  int64_t item_size() const { return item_size_; }

 private:
  Shape declared_;
  size_t position_ = 0;
  int tensor_ = -1;
  int64_t item_size_ = 1;
  bool is_known_ = false, is_read_ = false;
};

/// A step that runs `State::run` with the operands of the node, and with `State::result` as its only result.
template <class State>
Step step_of(const Node& node, Builder& builder, std::shared_ptr<State> state) {
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &State::run;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.out = {state->result.buffer(builder)};
  step.state = std::move(state);
  return step;
}

/// The product of the dimensions; -1 if it exceeds int64.
int64_t product_of(const Shape& shape);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_DYNAMIC_RESULT_HPP
