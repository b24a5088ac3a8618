// What the layers on codes of 8 bits have in common: which they take, how sums become codes, and packed parameters.

#ifndef CPUACC_LOWER_Q8_HPP
#define CPUACC_LOWER_Q8_HPP

#include <string>
#include <vector>

#include "cpuacc/kernels/q8.hpp"
#include "cpuacc/rules.hpp"
#include "common/fixed_point.hpp"

namespace cpuacc {

/// A scale as the float32 that files hold.
inline double single(double scale) { return double(float(scale)); }

/// Codes as unsigned numbers: those of int8 are greater by 128.
inline bool is_signed(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT8; }
inline uint32_t flip_of(const Tensor& tensor) { return is_signed(tensor) ? 0x80808080u : 0; }
inline int32_t unsigned_zero(const Tensor& tensor) {
  return int32_t(tensor.zero_point()) + (is_signed(tensor) ? 128 : 0);
}

/// Limits of unsigned codes.
struct Q8Limits {
  int32_t low = 0, high = 255;
};

/// What was fused into a sum of products: a clamp, perhaps the addition of another tensor and then another clamp.
struct Q8Posts {
  int result = -1;  // the tensor that the sums become codes of; its quantization, not its place
  Q8Limits limits;
  int other = -1;  // the tensor that is added, or -1
  Q8Limits limits_of_sum;
};

/// Input, weights and result of 8 bits, constant weights and bias of int32, and posts that can be done.
Refusal q8_sums(const Graph& graph, const Node& node);

/// The bias of such a node; nullptr where there is none.
const Tensor* q8_bias(const Graph& graph, const Node& node);

/// What the posts of a node that `q8_sums` takes come to.
Q8Posts q8_posts(const Graph& graph, const Node& node);

/// Where channels lie: in the vectors of panels, lane by lane.
struct Q8Panel {
  int64_t first;  // channel
  int channels;
  int vectors;
  int64_t lane;      // of the first channel
  int64_t segments;  // from `source` on, in the list of segments
  int64_t offset;    // of its weights, in bytes
  bool moved;        // its sums lack something times the sum of all bytes
};
struct Q8Channels {
  std::vector<Q8Panel> panels;
  std::vector<int64_t> of_lane;  // the channel, or -1

  int64_t lanes() const { return int64_t(of_lane.size()); }
  /// Panels for channels [first, first + count).
  void add(int64_t first, int64_t count, int width);
};

/// The rule by which sums become distances from the zero point of the result.
struct Q8Rule {
  enum Kind { fixed_point, real } kind;
  std::vector<double> ratios;  // one for all, or one for every channel
  std::vector<native::FixedPoint> factors;

  static Q8Rule of(const Tensor& in, const Tensor& weights, const Tensor& result, Kind kind, bool product_in_single);
  double ratio(int64_t channel) const { return ratios[ratios.size() == 1 ? 0 : size_t(channel)]; }
  const native::FixedPoint& factor(int64_t channel) const { return factors[factors.size() == 1 ? 0 : size_t(channel)]; }
  int64_t operator()(int32_t sum, int64_t channel) const;
};

/// What is known of the sums of every channel.
struct Q8Sums {
  /// The weights of one channel added up, without and with their signs taken off.
  struct Weights {
    int64_t sum = 0, size = 0;

    void add(int32_t weight) {
      sum += weight;
      size += weight < 0 ? -weight : weight;
    }
  };

  std::vector<int32_t> begin, offset;  // what a sum begins with, and what times the sum of all bytes it lacks
  std::vector<int64_t> reach;          // the largest size of a sum

  int64_t count() const { return int64_t(begin.size()); }
  void add(const Weights& weights, int64_t bias, int64_t zero, int32_t offset_of_weights);
};

/// What belongs to every lane, packed: bias, scales and how they are to be used.
class Q8Parameters {
 public:
  static const void* pack(Builder& builder, const Q8Channels& channels, const Q8Rule& rule, const Tensor& result,
                          const Q8Limits& limits, const Q8Sums& sums);

  /// As packed, for codes of `result`.
  Q8Parameters(const void* packed, int64_t lanes, const Tensor& result, const Q8Limits& limits);

  const int32_t* bias;
  Q8Requantization requantization;
};

/// One scale for a tensor of 8 bits.
bool has_one_scale(const Tensor& tensor);

/// Limits of the codes of a tensor after RELU or BOUNDED_RELU.
Q8Limits q8_clamp(const std::string& function, double a, double b, const Tensor& tensor);

/// Images with channels first as ones with channels last, and back, for kernels that know only these. A temporary copy
/// is made where `turns`; else buffers are those of the tensors.
class Q8Images {
 public:
  Q8Images(Builder& builder, const Node& node, bool turns);
  void finish();

  Buffer in, out;

 private:
  Builder& builder_;
  const Node& node_;
  bool turns_;
};

/// The addition of codes of `a` and `b`.
Q8Add q8_addition(const Tensor& a, const Tensor& b, const Tensor& result, const Q8Limits& limits);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_Q8_HPP
