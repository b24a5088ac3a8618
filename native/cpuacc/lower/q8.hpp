// Rules, requantization and packed parameters that the lowerings of quantized layers share.

#ifndef CPUACC_LOWER_Q8_HPP
#define CPUACC_LOWER_Q8_HPP

#include <string>
#include <vector>

#include "common/fixed_point.hpp"
#include "cpuacc/kernels/q8.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {

/// A scale rounded to the float32 that model files contain.
inline double single(double scale) { return double(float(scale)); }

/// Quantized values as unsigned numbers: int8 is shifted by 128.
inline bool is_signed(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT8; }
inline uint32_t flip_of(const Tensor& tensor) { return is_signed(tensor) ? 0x80808080u : 0; }
/// Words of 4 bytes that hold so many bytes of a channel in packed weights.
inline int64_t words_of(const GemmQ8Kernels& kernels, int64_t bytes) {
  return (bytes + kernels.weight_bytes - 1) / kernels.weight_bytes * kernels.weight_bytes / 4;
}

/// What turns the values into those that kernels multiply, which are signed or not.
inline uint32_t flip_of(const Tensor& tensor, bool kernels_are_signed) {
  return is_signed(tensor) != kernels_are_signed ? 0x80808080u : 0;
}
inline int32_t unsigned_zero(const Tensor& tensor) {
  return int32_t(tensor.zero_point()) + (is_signed(tensor) ? 128 : 0);
}

/// The range of unsigned values.
struct Q8Limits {
  int32_t low = 0, high = 255;
};

/// Post-ops that were fused into a GEMM: a clamp, an optional addition of another tensor, and then another clamp.
struct Q8Posts {
  int result = -1;  // the tensor whose quantization the sums are requantized to
  Q8Limits limits;
  int other = -1;  // the tensor that is added; -1: none
  bool adds_to_even = false;
  Q8Limits limits_of_sum;
};

/// Supported are input, weights and result of 8 bits, constant weights, a constant bias of int32 or, if the node rounds
/// half to even, of float32, and the post-ops of Q8Posts.
Refusal q8_sums(const Graph& graph, const Node& node);

/// The bias of such a node; nullptr if absent.
const Tensor* q8_bias(const Graph& graph, const Node& node);

/// The post-ops of a node that `q8_sums` supports.
Q8Posts q8_posts(const Graph& graph, const Node& node);

/// The assignment of channels to panels, vectors and lanes.
struct Q8Panel {
  int64_t first;  // first channel
  int channels;
  int vectors;
  int64_t lane;      // of the first channel
  int64_t segments;  // index of its first segment in the list of segments
  int64_t offset;    // of its weights, in bytes
  bool moved;        // a multiple of the sum of the bytes has to be added to its sums
};
struct Q8Channels {
  std::vector<Q8Panel> panels;
  std::vector<int64_t> of_lane;  // the channel of each lane; -1: none

  int64_t lanes() const { return int64_t(of_lane.size()); }
  /// Append panels for channels [first, first + count). If `natural`, the lanes of a panel are consecutive channels.
  void add(int64_t first, int64_t count, int width, bool natural = false);
};

/// Return whether results of a node are rounded half to even, as ONNX does, and not in fixed point.
inline bool rounds_to_even(const Node& node) { return node.text("requantization") == "HALF_TO_EVEN"; }

/// The rule of the reference that turns sums into distances from the zero point of the result. `even` divides the exact
/// sum of real products and the bias by the scale of the result, and rounds half to even.
struct Q8Rounding {
  enum Kind { fixed_point, real, even } kind;
  std::vector<double> ratios;  // one for all channels, or one for each
  std::vector<native::FixedPoint> factors;
  std::vector<double> products;  // even: scale of the input times scale of the weights, as many as ratios
  std::vector<int64_t> whole;    // even: the part of a bias that is added to the sums; empty: all of it
  std::vector<double> offsets;   // even: the rest of the bias of each channel, as a float; empty: 0
  double divisor = 1;            // even: the scale of the result

  /// The rule of a node whose weights or second operand are `weights`: `kind`, or `even` if the node asks for it. A
  /// `bias` of floats is a part of the rule, and becomes integers as far as it is a multiple of the products. If the
  /// rule is `even`, integers that may not fit the sums of 32 bits are a part of it too.
  static Q8Rounding of(const Node& node, const Tensor& in, const Tensor& weights, const Tensor& result, Kind kind,
                       bool product_in_single, const Tensor* bias = nullptr);
  double ratio(int64_t channel) const { return ratios[ratios.size() == 1 ? 0 : size_t(channel)]; }
  double product(int64_t channel) const { return products[products.size() == 1 ? 0 : size_t(channel)]; }
  double offset(int64_t channel) const { return offsets.empty() ? 0 : offsets[size_t(channel)]; }
  const native::FixedPoint& factor(int64_t channel) const { return factors[factors.size() == 1 ? 0 : size_t(channel)]; }
  int64_t operator()(int32_t sum, int64_t channel) const;
};

/// The integers of a bias that are added to the sums of each channel.
std::vector<int64_t> q8_biases(const Q8Rounding& rule, const Tensor* bias, int64_t channels);

/// The ranges of the sums of each channel.
struct Q8Sums {
  /// The sum, and the sum of absolute values, of the weights of one channel.
  struct Weights {
    int64_t sum = 0, size = 0;

    void add(int32_t weight) {
      sum += weight;
      size += weight < 0 ? -weight : weight;
    }
  };

  std::vector<int32_t> begin,
      offset;  // initial values of the sums, and the factors of the sum of the bytes that has to be added
  std::vector<int64_t> reach, weights;  // largest absolute sums; sums of the weights

  int64_t count() const { return int64_t(begin.size()); }
  void add(const Weights& weights, int64_t bias, int64_t zero, int32_t offset_of_weights);
};

/// The packed parameters of each lane: bias, scales and the mode of the requantization.
class Q8Parameters {
 public:
  static const void* pack(Builder& builder, const Q8Channels& channels, const Q8Rounding& rule, const Tensor& result,
                          const Q8Limits& limits, const Q8Sums& sums);

  /// View packed parameters for the quantization of `result`.
  Q8Parameters(const void* packed, int64_t lanes, const Tensor& result, const Q8Limits& limits);

  const int32_t* bias;
  Q8Requantization requantization;
};

/// Return whether a tensor of 8 bits has one scale.
bool has_one_scale(const Tensor& tensor);

/// The range of a quantized tensor after RELU or BOUNDED_RELU.
Q8Limits q8_clamp(const std::string& function, double a, double b, const Tensor& tensor);

/// The addition of quantized values of `a` and `b`, or their subtraction. If it can, it finds a formula that is exact
/// for all values.
Q8Add q8_addition(Builder& builder, const Tensor& a, const Tensor& b, const Tensor& result, const Q8Limits& limits,
                  bool to_even, bool subtracts = false);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_Q8_HPP
