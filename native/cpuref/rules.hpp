// Rules and iterations that all layers share.

#ifndef CPUREF_RULES_HPP
#define CPUREF_RULES_HPP

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/fixed_point.hpp"
#include "interposer/backend.hpp"

namespace cpuref {

using namespace native;  // the arithmetic of common/fixed_point.hpp

inline bool is_float32(const ipr::TensorInfo& info) { return info.dtype() == IPR_DTYPE_FLOAT32; }
inline bool is_quantized8(const ipr::TensorInfo& info) { return info.dtype() == IPR_DTYPE_INT8 && info.is_quantized(); }
inline bool has_axis(const ipr::TensorInfo& info) { return info.axis() >= 0; }
inline float scale32(const ipr::TensorInfo& info) { return float(info.scale()); }

inline bool same_quantization(const ipr::TensorInfo& a, const ipr::TensorInfo& b) {
  return a.axis() == b.axis() &&
         std::equal(a.scales().begin(), a.scales().end(), b.scales().begin(), b.scales().end()) &&
         std::equal(a.zero_points().begin(), a.zero_points().end(), b.zero_points().begin(), b.zero_points().end());
}

inline std::string described(const ipr::TensorInfo& info) {
  return std::string(ipr::dtype_name(info.dtype())) + (info.is_quantized() ? " with a scale" : "");
}

/// Supported if all tensors are float32, or all are int8 with a scale. Absent operands do not count.
inline ipr::Verdict one_kind(const ipr::Layer& layer, std::initializer_list<const char*> names, bool per_axis = false) {
  const ipr::TensorInfo output = layer.output(0);
  size_t position = 0;
  auto judged = [&](const std::string& name, const ipr::TensorInfo& info) -> ipr::Verdict {
    if (!is_float32(info) && !is_quantized8(info))
      return ipr::no(name + " is " + described(info) + "; takes float32, or int8 with a scale", IPR_REASON_DATA_TYPE);
    if (info.dtype() != output.dtype())
      return ipr::no(name + " is " + described(info) + ", but the output is " + described(output),
                     IPR_REASON_DATA_TYPE);
    if (!per_axis && has_axis(info))
      return ipr::no(name + " is quantized along an axis; takes one scale", IPR_REASON_QUANTIZATION);
    return ipr::yes();
  };
  for (const char* name : names) {
    ipr::Verdict found = judged(name, layer.input(position++));
    if (found.verdict == IPR_NO) return found;
  }
  return judged("the output", output);
}

/// The same for layers with input, weights and an optional bias.
inline ipr::Verdict weighted(const ipr::Layer& layer) {
  const ipr::TensorInfo weights = layer.input(1), bias = layer.input(2);
  ipr::Verdict found = one_kind(layer, {"input"});
  if (found.verdict == IPR_NO) return found;
  bool real = is_float32(layer.input(0));
  if (real ? !is_float32(weights) : !is_quantized8(weights))
    return ipr::no("weights are " + described(weights) + ", but the input is " + described(layer.input(0)),
                   IPR_REASON_DATA_TYPE);
  if (has_axis(weights))
    for (int64_t zero_point : weights.zero_points())
      if (zero_point != 0)
        return ipr::no("weights have a zero point for each channel; takes 0 for all", IPR_REASON_QUANTIZATION);
  int32_t wanted = real ? IPR_DTYPE_FLOAT32 : IPR_DTYPE_INT32;
  if (bias && bias.dtype() != wanted)
    return ipr::no("bias is " + described(bias) + "; takes " + std::string(ipr::dtype_name(wanted)) + " here",
                   IPR_REASON_DATA_TYPE);
  return ipr::yes();
}

/// Scales and zero points of a tensor by the index of an element.
class Scales {
 public:
  explicit Scales(const ipr::TensorInfo& info)
      : scales_(info.scales().begin(), info.scales().end()),
        zero_points_(info.zero_points().begin(), info.zero_points().end()) {
    for (int32_t axis = info.axis() + 1; has_axis(info) && axis < info.rank(); ++axis) inner_ *= info.extent(axis);
  }

  float scale(int64_t element) const { return float(scales_[index(element)]); }
  int64_t zero_point(int64_t element) const { return zero_points_[index(element)]; }

 private:
  size_t index(int64_t element) const {
    return scales_.size() == 1 ? 0 : size_t(element / inner_ % int64_t(scales_.size()));
  }

  std::vector<double> scales_;
  std::vector<int64_t> zero_points_;
  int64_t inner_ = 1;
};

/// Requantizes sums of products to the quantized values of the result.
class Requantizer {
 public:
  /// Fixed point, as for convolutions, or float64, as for FullyConnected.
  Requantizer(const ipr::Layer& layer, bool in_reals) : in_reals_(in_reals), zero_point_(layer.output(0).zero_point()) {
    for (double scale : layer.input(1).scales()) {
      double product = double(float(scale)) * double(scale32(layer.input(0)));
      ratios_.push_back(product / double(scale32(layer.output(0))));
      factors_.push_back(quantize_multiplier(ratios_.back()));
    }
  }

  int8_t operator()(int64_t sum, const int32_t* bias, int64_t channel) const {
    sum = wrapped(sum);
    if (bias) sum = wrapped(sum + bias[channel]);
    size_t index = ratios_.size() == 1 ? 0 : size_t(channel);
    if (in_reals_) return clamped(round_half_away(double(sum) * ratios_[index]) + double(zero_point_));
    return clamped(multiply(sum, factors_[index]) + zero_point_);
  }

 private:
  bool in_reals_;
  int64_t zero_point_;
  std::vector<double> ratios_;
  std::vector<FixedPoint> factors_;
};

/// Adds the bias to a float32 sum.
struct Offset {
  float operator()(float sum, const float* bias, int64_t channel) const { return bias ? sum + bias[channel] : sum; }
};

}  // namespace cpuref

#endif  // CPUREF_RULES_HPP
