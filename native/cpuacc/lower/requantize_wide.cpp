#include "cpuacc/lower/requantize_wide.hpp"

namespace cpuacc {
namespace {

using native::FixedPoint;

double single(double scale) { return double(float(scale)); }

bool to_even(const Node& node) { return node.text("requantization") == "HALF_TO_EVEN"; }

/// The scale of the weights of a channel.
double weight_scale(const Tensor& weights, int64_t channel) {
  return single(weights.scales[weights.scales.size() == 1 ? 0 : size_t(channel) % weights.scales.size()]);
}

WideRequantization::Kind kind_of(const Graph& graph, const Node& node) {
  const Tensor &weights = *graph.in(node, 1), *bias = graph.in(node, 2);
  if (to_even(node)) return WideRequantization::exact;
  if (graph.in(node, 0)->dtype != IPR_DTYPE_INT16) return WideRequantization::fixed_point;
  if (node.type == "FullyConnected" && weights.dtype != IPR_DTYPE_INT16) return WideRequantization::real;
  const bool wide = !bias || bias->dtype != IPR_DTYPE_INT32 || weights.dtype == IPR_DTYPE_INT16;
  return wide ? WideRequantization::wide_fixed_point : WideRequantization::fixed_point;
}

FixedPoint factor_of(const Graph& graph, const Node& node, int64_t channel) {
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1);
  const double scale = weight_scale(weights, channel);
  const bool of_singles =
      node.type == "BatchMatMul" || (weights.dtype == IPR_DTYPE_UINT8 && node.type != "FullyConnected");
  const double products = of_singles ? double(float(scale) * float(in.scale())) : scale * single(in.scale());
  FixedPoint factor = native::quantize_multiplier(products / single(graph.out(node).scale()));
  if (kind_of(graph, node) == WideRequantization::wide_fixed_point)
    factor.multiplier = factor.multiplier < 0x7FFF0000 ? (factor.multiplier + (1 << 15)) >> 16 : 0x7FFF;
  return factor;
}

double integer_at(const Tensor& tensor, int64_t n) {
  switch (tensor.dtype) {
    case IPR_DTYPE_INT32:
      return tensor.values<int32_t>()[n];
    case IPR_DTYPE_INT64:
      return double(tensor.values<int64_t>()[n]);
    default:
      return double(tensor.floats()[n]);
  }
}

template <class T, class Make>
const T* made_for_channels(Builder& builder, int64_t channels, const Make& make) {
  return static_cast<const T*>(builder.pack(uint64_t(channels) * sizeof(T), [&](void* to) {
    for (int64_t n = 0; n < channels; ++n) static_cast<T*>(to)[n] = T(make(n));
  }));
}

}  // namespace

WideRequantization wide_requantization_of(const Node& node, Builder& builder, int64_t channels) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), *bias = graph.in(node, 2),
               &out = graph.out(node);
  WideRequantization requantization{};
  requantization.kind = kind_of(graph, node);
  requantization.wraps =
      in.dtype != IPR_DTYPE_INT16 || (bias && bias->dtype == IPR_DTYPE_INT32 && weights.dtype != IPR_DTYPE_INT16);
  requantization.scale = single(out.scale()), requantization.zero = out.zero_point();
  const bool exact = requantization.kind == WideRequantization::exact;
  auto products = [&](int64_t n) { return weight_scale(weights, n) * single(in.scale()); };
  requantization.ratios = made_for_channels<double>(
      builder, channels, [&](int64_t n) { return exact ? products(n) : products(n) / single(out.scale()); });
  requantization.multipliers =
      made_for_channels<int64_t>(builder, channels, [&](int64_t n) { return factor_of(graph, node, n).multiplier; });
  requantization.shifts =
      made_for_channels<int32_t>(builder, channels, [&](int64_t n) { return factor_of(graph, node, n).shift; });
  if (bias && exact)
    requantization.real_bias = made_for_channels<double>(builder, channels, [&](int64_t n) {
      return is_f32(*bias) ? integer_at(*bias, n) : integer_at(*bias, n) * products(n);
    });
  else if (bias)
    requantization.bias = made_for_channels<int64_t>(builder, channels, [&](int64_t n) {
      return bias->dtype == IPR_DTYPE_INT64 ? bias->values<int64_t>()[n] : int64_t{bias->values<int32_t>()[n]};
    });
  return requantization;
}

std::optional<WideScales> wide_scales_of(const WideRequantization& requantization, Builder& builder, int64_t channels) {
  constexpr int64_t kMostBias = int64_t(1) << 37;  // up to which the product of the sum and a multiplier is exact
  const WideRequantization& from = requantization;
  const int64_t *bias = from.bias, padded = (channels + 15) / 16 * 16;
  const auto padded_array = [&](auto none, const auto& make) {
    using T = decltype(none);
    return made_for_channels<T>(builder, padded, [&](int64_t n) { return n < channels ? T(make(n)) : none; });
  };
  WideScales scales{};
  scales.zero = int32_t(from.zero);
  if (from.kind == WideRequantization::fixed_point && from.wraps) {
    scales.bias = padded_array(int32_t(0), [&](int64_t n) { return bias ? bias[n] : 0; });
    scales.multipliers = padded_array(int32_t(0), [&](int64_t n) { return from.multipliers[n]; });
    scales.shifts = padded_array(int32_t(0), [&](int64_t n) { return from.shifts[n]; });
    return scales;
  }
  const auto is_exact = [](int64_t x) { return x >= -kMostBias && x <= kMostBias; };
  const bool fits = !bias || std::all_of(bias, bias + channels, is_exact);
  if (from.kind != WideRequantization::wide_fixed_point || !fits) return std::nullopt;
  scales.real_bias = padded_array(0.0, [&](int64_t n) { return bias ? bias[n] : 0; });
  scales.ratios =
      padded_array(0.0, [&](int64_t n) { return std::ldexp(double(from.multipliers[n]), from.shifts[n] - 15); });
  return scales;
}

bool has_too_large_scale(const Graph& graph, const Node& node) {
  for (int64_t n = 0; n < int64_t(graph.in(node, 1)->scales.size()); ++n)
    if (factor_of(graph, node, n).shift > 14 && graph.in(node, 0)->dtype == IPR_DTYPE_INT16) return true;
  return false;
}

}  // namespace cpuacc
