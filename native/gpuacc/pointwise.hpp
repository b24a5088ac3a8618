// Operations on single elements: alone, in chains, and as post-operations in the kernels of other layers.

#ifndef GPUACC_POINTWISE_HPP
#define GPUACC_POINTWISE_HPP

#include <string>
#include <vector>

#include "gpuacc/lowering.hpp"

namespace gpuacc {

/// The code of an operation on float elements: it changes `v`, of the type F, which is float or a vector of floats.
/// Other operands are called o0, o1 ..., parameters q0, q1 ...
class Chain {
 public:
  struct Operand {
    enum Kind { same, channel, scalar, strided } kind = same;
    Value value;    // for `channel`, one element for each channel, padded with zeros
    Shape strides;  // of `strided`
  };

  /// An empty chain after a result. `axis` is the axis of the channels; -1: operands for each channel are not fused.
  Chain(Plan& plan, int64_t tensor, int axis);

  /// Fuse all following layers that can be fused, and mark them as done. `blocked`: the result is in blocks.
  void fuse(bool blocked);
  /// Append one layer, whose operand `tensor()` is `v`; false if that is not possible.
  bool append(const ipr::Layer& layer, bool blocked);

  /// The tensor that the chain computes.
  int64_t tensor() const { return tensor_; }
  bool empty() const { return code_.empty(); }
  const std::vector<Operand>& operands() const { return operands_; }
  int channel_padding = 0;  // operands for each channel are padded to a multiple of it, and by as many elements

  /// The declarations for the parameter list of the kernel, beginning with a comma.
  std::string parameters() const;
  std::vector<Argument> arguments() const;
  /// "F o0 = ...;" for each operand, given what loads one of its kind from `z0`.
  template <class Load>
  std::string loads(Load load) const {
    std::string text;
    for (size_t n = 0; n < operands_.size(); ++n)
      text += "F o" + std::to_string(n) + " = " + load(operands_[n], n) + ";\n";
    return text;
  }
  const std::string& code() const { return code_; }

 private:
  bool append_binary(const ipr::Layer& layer, bool blocked);
  bool append_normalization(const ipr::Layer& layer);
  bool append_function(const ipr::Layer& layer);
  bool take(int64_t tensor, bool blocked, Operand& out);
  Operand channels(const std::vector<float>& values) const;
  std::string add(Operand operand);
  std::string add(double parameter);

  Plan& plan_;
  int64_t tensor_;
  Shape shape_;
  int axis_;
  std::string code_;
  std::vector<Operand> operands_;
  std::vector<double> parameters_;
};

/// The load of operand `n` of a chain as a vector of B floats, at a multiple of B of its elements.
std::string load_of(const Chain::Operand& operand, size_t n, const std::string& index);

/// The code of a function of v for Activation; nullptr if it is not known. $a and $b stand for the parameters.
const char* activation_code(std::string_view function);
/// The same for ElementwiseUnary, for results of the type of the operand.
const char* unary_code(std::string_view operation);
/// For ElementwiseBinary: the left operand is $l, the right one $r.
const char* binary_code(std::string_view operation);
/// The operation of an ElementwiseBinary layer or of one of its special cases: "ADD".
std::string_view operation_of(const ipr::Layer& layer);

/// Compute one element of `out` from one element of each operand: `code` defines `v` from o0, o1 ..., of the types
/// `types`. Operands broadcast to `out`. `more` are further parameters with their declarations, `functions` the text of
/// functions that the code calls.
void pointwise(Plan& plan, const std::string& name, const std::vector<Value>& operands,
               const std::vector<std::string>& types, const Value& out, const std::string& code,
               const std::string& declarations = "", const std::vector<Argument>& more = {},
               const std::string& functions = "");

}  // namespace gpuacc

#endif  // GPUACC_POINTWISE_HPP
