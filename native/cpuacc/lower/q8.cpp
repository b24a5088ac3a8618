#include "cpuacc/lower/q8.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace cpuacc {
namespace {

// ---- What is taken --------------------------------------------------------------------------------------------------

bool has_one_zero_point(const Tensor& tensor) {
  return std::all_of(tensor.zero_points.begin(), tensor.zero_points.end(),
                     [&](int64_t point) { return point == tensor.zero_points[0]; });
}

constexpr int64_t kMostExact = 65000;  // products of 8-bit values and weights, whose sum fits 32 bits

/// The number of sums to which each weight contributes once.
int64_t outputs_of(const Node& node, const Tensor& weights) {
  if (node.type == "FullyConnected") return weights.extent(node.flag("transpose_weight_matrix") ? 0 : 1);
  return weights.extent(node.type == "DepthwiseConvolution2d" ? 3 : 0);
}

bool is_clamp(const Post& post) {
  return post.kind == Post::activation && (post.function == "RELU" || post.function == "BOUNDED_RELU");
}

/// The tensor after a post-op.
int after(const Node& node, size_t post) {
  return post + 1 < node.posts.size() ? node.posts[post + 1].through : node.outputs[0];
}

Refusal refused_posts(const Graph& graph, const Node& node) {
  bool added = false;
  for (size_t n = 0; n < node.posts.size(); ++n) {
    const Post& post = node.posts[n];
    const Tensor &from = graph[post.through], &to = graph[after(node, n)];
    if (!has_one_scale(from) || !has_one_scale(to))
      return refused("the layers that follow have other types", IPR_REASON_DATA_TYPE);
    if (is_clamp(post) && !post.to_even && from.dtype == to.dtype && from.same_quantization(to)) continue;
    bool adds = post.kind == Post::add && !added && has_one_scale(graph[post.tensor]) && from.dtype == to.dtype &&
                graph[post.tensor].dtype == to.dtype &&
                (graph[post.tensor].shape == to.shape || is_row(graph[post.tensor], to));
    if (!adds) return refused("the layers that follow cannot be fused", IPR_REASON_NEIGHBOURS);
    added = true;
  }
  return taken();
}

/// Quantize a real bound to an unsigned value.
int32_t code_of(double real, const Tensor& tensor, int32_t unbounded) {
  if (!std::isfinite(real)) return unbounded;
  double steps = native::round_half_away(double(float(real) / float(tensor.scale())));
  return int32_t(std::clamp(steps + unsigned_zero(tensor), 0.0, 255.0));
}

void clamp(Q8Limits& limits, const Post& post, const Tensor& tensor) {
  Q8Limits to = q8_clamp(post.function, post.a, post.b, tensor);
  limits = {std::clamp(limits.low, to.low, to.high), std::clamp(limits.high, to.low, to.high)};
}

}  // namespace

bool has_one_scale(const Tensor& tensor) { return is_quantized8(tensor) && !tensor.has_axis(); }

Q8Limits q8_clamp(const std::string& function, double a, double b, const Tensor& tensor) {
  bool bounded = function == "BOUNDED_RELU";
  return {code_of(bounded ? b : 0, tensor, 0), bounded ? code_of(a, tensor, 255) : 255};
}

const Tensor* q8_bias(const Graph& graph, const Node& node) {
  size_t added = 0;  // operands of post-ops come last
  for (const Post& post : node.posts) added += post.kind == Post::add;
  return node.inputs.size() > 2 + added ? graph.in(node, 2) : nullptr;
}

Refusal q8_sums(const Graph& graph, const Node& node) {
  const Tensor *in = graph.in(node, 0), *weights = graph.in(node, 1), *bias = q8_bias(graph, node);
  int sums = node.posts.empty() ? node.outputs[0] : node.posts[0].through;
  const Tensor& result = graph[sums];
  if (!in || !weights || !has_one_scale(*in) || !is_quantized8(*weights))
    return refused("input or weights are not quantized to 8 bits with a scale", IPR_REASON_DATA_TYPE);
  if (!has_one_scale(result) || in->dtype != result.dtype)
    return refused("input is " + described(*in) + ", the result " + described(result), IPR_REASON_DATA_TYPE);
  if (!weights->is_constant() || (bias && !bias->is_constant()))
    return refused("takes constant weights and bias", IPR_REASON_NOT_CONSTANT);
  if (bias && bias->dtype != IPR_DTYPE_INT32 && !(is_f32(*bias) && rounds_to_even(node)))
    return refused("bias is " + described(*bias) + "; takes int32", IPR_REASON_DATA_TYPE);
  if (rounds_to_even(node) && weights->elements() / std::max<int64_t>(outputs_of(node, *weights), 1) > kMostExact)
    return refused("sums that may not fit 32 bits", IPR_REASON_RESOURCE);
  if (!has_one_zero_point(*weights))
    return refused("weights have several zero points; takes one", IPR_REASON_QUANTIZATION);
  return refused_posts(graph, node);
}

Q8Posts q8_posts(const Graph& graph, const Node& node) {
  Q8Posts posts;
  posts.result = node.posts.empty() ? node.outputs[0] : node.posts[0].through;
  for (const Post& post : node.posts)
    if (post.kind == Post::add)
      posts.other = post.tensor, posts.adds_to_even = post.to_even;
    else
      clamp(posts.other < 0 ? posts.limits : posts.limits_of_sum, post, graph[post.through]);
  return posts;
}

// ---- Channels -------------------------------------------------------------------------------------------------------

void Q8Channels::add(int64_t first, int64_t count, int width, bool natural) {
  while (count > 0) {
    int vectors = count > 2 * width ? 4 : count > width ? 2 : 1;
    int channels = int(std::min<int64_t>(count, vectors * width));
    panels.push_back({first, channels, vectors, lanes(), 0, 0, false});
    for (int vector = 0; vector < vectors; ++vector)
      for (int lane = 0; lane < width; ++lane) {
        int channel = natural ? vector * width + lane : channel_of(vectors, vector, lane);
        of_lane.push_back(channel < channels ? first + channel : -1);
      }
    first += channels;
    count -= channels;
  }
}

// ---- Sums -----------------------------------------------------------------------------------------------------------

void Q8Sums::add(const Weights& weights, int64_t bias, int64_t zero, int32_t offset_of_weights) {
  begin.push_back(int32_t(uint32_t(bias - zero * weights.sum)));
  offset.push_back(offset_of_weights);
  reach.push_back(std::abs(bias) + 255 * weights.size);
  this->weights.push_back(weights.sum);
}

// ---- Requantization -------------------------------------------------------------------------------------------------

Q8Rounding Q8Rounding::of(const Node& node, const Tensor& in, const Tensor& weights, const Tensor& result, Kind kind,
                          bool product_in_single, const Tensor* bias) {
  Q8Rounding rule{kind, {}, {}, {}, {}, {}};
  if (rounds_to_even(node)) rule.kind = even, product_in_single = false;
  rule.divisor = single(result.scale());
  for (double scale : weights.scales) {
    double product = product_in_single ? double(float(scale) * float(in.scale())) : single(scale) * single(in.scale());
    rule.products.push_back(product);
    rule.ratios.push_back(product / rule.divisor);
    rule.factors.push_back(native::quantize_multiplier(rule.ratios.back()));
  }
  for (int64_t channel = 0; bias && is_f32(*bias) && channel < bias->elements(); ++channel) {
    const double real = double(bias->values<float>()[channel]), steps = std::nearbyint(real / rule.product(channel));
    rule.whole.push_back(std::fabs(steps) < 0x1p29 ? int64_t(steps) : 0);
    rule.offsets.push_back(real - double(rule.whole.back()) * rule.product(channel));
  }
  return rule;
}

std::vector<int64_t> q8_biases(const Q8Rounding& rule, const Tensor* bias, int64_t channels) {
  if (!rule.whole.empty()) return rule.whole;
  std::vector<int64_t> found(size_t(channels), 0);
  if (bias && !is_f32(*bias)) std::copy_n(bias->values<int32_t>(), channels, found.begin());
  return found;
}

int64_t Q8Rounding::operator()(int32_t sum, int64_t channel) const {
  if (kind == fixed_point) return native::multiply(sum, factor(channel));
  if (kind == even) {
    const double steps = (double(sum) * product(channel) + offset(channel)) / divisor;
    return int64_t(std::nearbyint(std::clamp(steps, -1e9, 1e9)));
  }
  return int64_t(native::round_half_away(std::clamp(double(sum) * ratio(channel), -1e9, 1e9)));
}

namespace {

/// The largest absolute sum of a channel.
int64_t reach_of(const Q8Sums& sums, int64_t channel) {
  return std::min<int64_t>(sums.reach[size_t(channel)], INT32_MAX);
}

/// The slope of the rule, apart from rounding.
double slope(const Q8Rounding& rule, int64_t channel) {
  if (rule.kind != Q8Rounding::fixed_point) return rule.ratio(channel);
  return std::ldexp(double(rule.factor(channel).multiplier), rule.factor(channel).shift - 31);
}

/// The steps of the result that are added to all sums.
double shift(const Q8Rounding& rule, int64_t channel) { return rule.offset(channel) / rule.divisor; }

/// Return whether the quantized result increases with all possible sums, and distances from the zero point fit int32.
bool is_monotonic(const Q8Rounding& rule, int64_t channel, int64_t reach) {
  double left = rule.kind == Q8Rounding::fixed_point ? std::ldexp(double(reach), rule.factor(channel).shift) : 0;
  return left < 0x1p31 && slope(rule, channel) * double(reach) + std::fabs(shift(rule, channel)) < 0x1p29;
}

/// The least sum whose distance is at least `distance`: -reach if all are, reach + 1 if none is.
int64_t threshold(const Q8Rounding& rule, int64_t channel, double slope, int64_t reach, int64_t distance) {
  double estimate = std::ceil((double(distance) - 0.5 - shift(rule, channel)) / slope);
  auto reaches = [&](int64_t sum) { return rule(int32_t(sum), channel) >= distance; };
  int64_t sum = int64_t(std::clamp(estimate, double(-reach), double(reach) + 1));
  while (sum > -reach && reaches(sum - 1)) --sum;
  while (sum <= reach && !reaches(sum)) ++sum;
  return sum;
}

/// The sums at which the result reaches a distance, as float64 values. The next integer is the threshold.
class RealThresholds {
 public:
  RealThresholds(const Q8Rounding& rule, int64_t channel, double slope, int64_t reach)
      : shift_(shift(rule, channel)), inverse_(1 / slope), reach_(double(reach)) {
    const double farthest = reach_ + 1 + (512 + std::fabs(shift_)) * inverse_;
    tolerance_ = farthest * 0x1p-44;  // hundreds of times the rounding errors here and of the rule
    const int right = rule.kind == Q8Rounding::fixed_point ? -rule.factor(channel).shift : 0;
    if (right > 0) rest_ = std::ldexp(0.5, -right);
  }

  /// Set `sum` to what `threshold` finds for a distance. Return false if the float64 value is too close to an integer.
  bool find(int64_t distance, int64_t& sum) const {
    // In fixed point, a product that is rounded before its last bits are shifted out is half of its last bit higher.
    const double rest = distance > 0 ? -rest_ : rest_;
    const double real = ((double(distance) - 0.5 - shift_) + rest) * inverse_;
    const double within = std::min(std::max(real, -reach_ - 0.5), reach_ + 0.5);
    const double nearest = (within + 0x1.8p52) - 0x1.8p52;  // rounded to an integer
    sum = int64_t(nearest) + (within > nearest ? 1 : 0);
    return std::fabs(within - nearest) > tolerance_;
  }

 private:
  double shift_, inverse_, reach_, tolerance_, rest_ = 0;
};

/// Find the thresholds of a channel for the distances above `low`, as many as `thresholds` has elements.
void find_thresholds(const Q8Rounding& rule, int64_t channel, int64_t reach, int64_t low,
                     std::vector<int64_t>& thresholds) {
  const double step = slope(rule, channel);
  const RealThresholds real(rule, channel, step, reach);
  for (int64_t& sum : thresholds)
    if (!real.find(++low, sum)) sum = threshold(rule, channel, step, reach, low);
}

/// The range of the term that is added before truncation, so that all thresholds are exact. The range is empty if there
/// is no such term.
struct Half {
  double low = 0, high = 1;
};
Half half_of(const std::vector<int64_t>& thresholds, double slope, int64_t reach, int64_t low) {
  Half half;
  int64_t distance = low;
  for (int64_t sum : thresholds) {
    ++distance;
    if (sum <= -reach || sum > reach) continue;
    double at = double(sum) * slope, before = double(sum - 1) * slope;
    if (distance > 0) {
      half.low = std::max(half.low, double(distance) - at);
      half.high = std::min(half.high, double(distance) - before);
    } else {
      half.low = std::max(half.low, before - double(distance - 1));
      half.high = std::min(half.high, at - double(distance - 1));
    }
  }
  return half;
}

/// The range of the term that is added before rounding half to even, so that all thresholds are exact, ties included.
Half even_half_of(const std::vector<int64_t>& thresholds, double slope, int64_t reach, int64_t low) {
  Half half{-1e300, 1e300};
  int64_t distance = low;
  for (int64_t sum : thresholds) {
    ++distance;
    if (sum <= -reach || sum > reach) continue;
    half.low = std::max(half.low, double(distance) - 0.5 - double(sum) * slope);
    half.high = std::min(half.high, double(distance) - 0.5 - double(sum - 1) * slope);
  }
  return half;
}

/// The packed parameters: a header, then arrays with one element for each lane.
struct Header {
  int32_t mode;
  char rest[4];
  double divisor;
  char more[48];
};

struct Arrays {
  Header* header;
  int32_t *bias, *multiplier, *shift, *offset;
  float *scale, *scale_rest, *half;
  double *wide_scale, *wide_half;

  static uint64_t bytes(int64_t lanes) { return sizeof(Header) + uint64_t(lanes) * (7 * 4 + 2 * 8); }
  Arrays(void* memory, int64_t lanes) : header(static_cast<Header*>(memory)) {
    char* place = static_cast<char*>(memory) + sizeof(Header);
    auto take = [&](auto*& array) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(place);
      place += sizeof(*array) * uint64_t(lanes);
    };
    take(bias), take(multiplier), take(shift), take(offset);
    take(scale), take(scale_rest), take(half);
    take(wide_scale), take(wide_half);
  }

  Q8Requantization requantization(const Tensor& result, const Q8Limits& limits) const {
    return {Q8Requantization::Mode(header->mode),
            unsigned_zero(result),
            limits.low,
            limits.high,
            flip_of(result),
            scale,
            scale_rest,
            half,
            wide_scale,
            wide_half,
            multiplier,
            shift,
            offset,
            header->divisor};
  }
};

/// The thresholds of a lane of a panel, and the largest absolute sum of its channel.
struct Lane {
  const int64_t* thresholds;  // nullptr: no channel
  int64_t reach;
};

std::vector<Lane> lanes_of(const Q8Channels& channels, const Q8Panel& panel, int count, const Q8Sums& sums,
                           const std::vector<std::vector<int64_t>>& all) {
  std::vector<Lane> lanes(size_t(count), Lane{nullptr, 0});
  for (int lane = 0; lane < count; ++lane) {
    const int64_t channel = channels.of_lane[size_t(panel.lane + lane)];
    if (channel >= 0) lanes[size_t(lane)] = {all[size_t(channel)].data(), reach_of(sums, channel)};
  }
  return lanes;
}

/// The thresholds of the channels of a panel, in the order in which the kernel writes them.
std::vector<Lane> written_by(const Q8Panel& panel, const Q8Sums& sums, const std::vector<std::vector<int64_t>>& all) {
  std::vector<Lane> written;
  for (int n = 0; n < panel.channels; ++n) {
    const size_t channel = size_t(panel.first + n) % all.size();
    written.push_back({all[channel].data(), reach_of(sums, int64_t(channel))});
  }
  return written;
}

/// Return whether the kernel is exact just below and at all thresholds of a panel, and so for every sum.
bool is_exact_panel(const GemmQ8Kernels& kernels, const Q8Panel& panel, const std::vector<Lane>& lanes,
                    const std::vector<Lane>& written, const Q8Requantization& requantization, const Q8Limits& limits) {
  int32_t sums[2 * 64] = {};
  uint8_t codes[2 * 64];
  const size_t count = lanes.size();
  for (int64_t code = limits.low + 1; code <= limits.high; ++code) {
    const int64_t at = code - limits.low - 1;
    for (size_t lane = 0; lane < count; ++lane) {
      const auto [thresholds, reach] = lanes[lane];
      if (!thresholds) continue;
      sums[lane] = int32_t(std::max(thresholds[at] - 1, -reach));
      sums[count + lane] = int32_t(std::min(thresholds[at], reach));
    }
    kernels.requantize(2, panel.vectors, sums, requantization, panel.lane, nullptr, codes, 64, panel.channels,
                       {nullptr, nullptr, 0});
    bool right = true;
    for (size_t n = 0; n < written.size(); ++n) {
      const auto [thresholds, reach] = written[n];
      right &= thresholds[at] <= -reach || codes[n] < code;
      right &= thresholds[at] > reach || codes[64 + n] >= code;
    }
    if (!right) return false;
  }
  return true;
}

bool is_exact(const GemmQ8Kernels& kernels, const Q8Channels& channels, Range panels,
              const Q8Requantization& requantization, const Q8Limits& limits, const Q8Sums& sums,
              const std::vector<std::vector<int64_t>>& all) {
  for (int64_t number = panels.first; number < panels.last; ++number) {
    const Q8Panel& panel = channels.panels[size_t(number)];
    const std::vector<Lane> lanes = lanes_of(channels, panel, panel.vectors * kernels.lanes, sums, all);
    if (!is_exact_panel(kernels, panel, lanes, written_by(panel, sums, all), requantization, limits)) return false;
  }
  return true;
}

/// The term to add before rounding, half to even or half away from zero; false if there is none that makes a channel
/// exact.
bool choose_half(const Q8Rounding& rule, const std::vector<int64_t>& thresholds, int64_t channel, int64_t reach,
                 int64_t low, bool to_even, double* chosen) {
  const double step = slope(rule, channel), own = shift(rule, channel);
  if (to_even) {
    const Half half = even_half_of(thresholds, step, reach, low);
    *chosen = (std::max(half.low, own - step / 2) + std::min(half.high, own + step / 2)) / 2;
    return half.low <= half.high;
  }
  const Half half = half_of(thresholds, step, reach, low);
  *chosen = half.low + std::min((half.high - half.low) / 2, 0x1p-22);
  return half.low < half.high;
}

/// The terms of all channels that are added before rounding; empty if a channel has none that makes it exact.
std::vector<double> chosen_halves(const Q8Rounding& rule, const Q8Sums& sums,
                                  const std::vector<std::vector<int64_t>>& all, int64_t low, bool to_even) {
  std::vector<double> halves(all.size());
  for (size_t n = 0; n < all.size(); ++n)
    if (!choose_half(rule, all[n], int64_t(n), reach_of(sums, int64_t(n)), low, to_even, &halves[n])) return {};
  return halves;
}

/// Fill in scales for rounding in float32 or float64.
void fill_scales(const Arrays& arrays, const Q8Channels& channels, const Q8Rounding& rule,
                 const std::vector<double>& halves) {
  for (int64_t lane = 0; lane < channels.lanes(); ++lane) {
    const int64_t channel = channels.of_lane[size_t(lane)];
    if (channel < 0) continue;
    const double step = slope(rule, channel), half = halves[size_t(channel)];
    arrays.scale[lane] = float(step);
    arrays.scale_rest[lane] = float(step - double(arrays.scale[lane]));
    arrays.half[lane] = float(half);
    arrays.wide_scale[lane] = step;
    arrays.wide_half[lane] = half;
  }
}

constexpr uint64_t kThresholdBytes =
    16384;  // cost of finding the thresholds of a channel, in bytes of a copy that takes as long

Q8Requantization::Mode chosen_mode(Builder& builder, const Arrays& arrays, const Q8Channels& channels,
                                   const Q8Rounding& rule, const Tensor& result, const Q8Limits& limits,
                                   const Q8Sums& sums) {
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(builder.settings.isa);
  int64_t low = limits.low - unsigned_zero(result), high = limits.high - unsigned_zero(result);
  bool all_monotonic = true;
  for (int64_t channel = 0; all_monotonic && channel < sums.count(); ++channel)
    all_monotonic = is_monotonic(rule, channel, reach_of(sums, channel));
  const std::vector<int64_t> empty(size_t(std::max<int64_t>(0, high - low)));
  std::vector<std::vector<int64_t>> all(all_monotonic ? size_t(sums.count()) : 0, empty);
  builder.divide(int64_t(all.size()), all.size() * kThresholdBytes, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) find_thresholds(rule, n, reach_of(sums, n), low, all[size_t(n)]);
  });
  // Without ties, truncation after half a step is exact more often than rounding, as it fails on one side only.
  const Q8Requantization::Mode modes[] = {Q8Requantization::single, Q8Requantization::single_even,
                                          Q8Requantization::twofold, Q8Requantization::twofold_even};
  std::vector<double> halves[2];  // by whether rounding is half to even
  for (Q8Requantization::Mode mode : modes) {
    const bool to_even = mode == Q8Requantization::single_even || mode == Q8Requantization::twofold_even;
    if (to_even && rule.kind != Q8Rounding::even) continue;
    if (mode == Q8Requantization::twofold && rule.kind == Q8Rounding::fixed_point && kernels.has_shifts) continue;
    if (mode == Q8Requantization::single || mode == Q8Requantization::single_even)
      halves[to_even] = chosen_halves(rule, sums, all, low, to_even);
    if (halves[to_even].empty()) continue;
    fill_scales(arrays, channels, rule, halves[to_even]);
    arrays.header->mode = mode;
    Q8Requantization requantization = arrays.requantization(result, limits);
    requantization.flip = 0;
    std::atomic<bool> right{true};
    builder.divide(int64_t(channels.panels.size()), all.size() * kThresholdBytes, [&](int64_t first, int64_t last) {
      if (right && !is_exact(kernels, channels, {first, last}, requantization, limits, sums, all)) right = false;
    });
    if (right) return mode;
  }
  for (int64_t lane = 0; lane < channels.lanes(); ++lane) {
    const int64_t channel = std::max<int64_t>(channels.of_lane[size_t(lane)], 0);
    arrays.wide_scale[lane] = rule.kind == Q8Rounding::even ? rule.product(channel) : rule.ratio(channel);
    arrays.wide_half[lane] = rule.offset(channel);
  }
  if (rule.kind == Q8Rounding::even) return Q8Requantization::exact_even;
  return rule.kind == Q8Rounding::real ? Q8Requantization::real : Q8Requantization::fixed_point;
}

/// Fill in scales without a check that all results are exact.
void fill_approximate_scales(const Arrays& arrays, const Q8Channels& channels, const Q8Rounding& rule) {
  for (int64_t lane = 0; lane < channels.lanes(); ++lane) {
    int64_t channel = std::max<int64_t>(channels.of_lane[size_t(lane)], 0);
    arrays.scale[lane] = float(rule.ratio(channel));
    arrays.half[lane] = rule.kind == Q8Rounding::even ? float(shift(rule, channel)) : 0.5f;
  }
  arrays.header->mode = rule.kind == Q8Rounding::even ? Q8Requantization::single_even : Q8Requantization::single;
}

}  // namespace

const void* Q8Parameters::pack(Builder& builder, const Q8Channels& channels, const Q8Rounding& rule,
                               const Tensor& result, const Q8Limits& limits, const Q8Sums& sums) {
  return builder.pack(Arrays::bytes(channels.lanes()), [&](void* memory) {
    Arrays arrays(memory, channels.lanes());
    arrays.header->divisor = rule.divisor;
    bool approximate = builder.settings.fast_requantization;
    for (int64_t channel = 0; channel < sums.count(); ++channel)
      approximate = approximate && is_monotonic(rule, channel, reach_of(sums, channel));
    for (int64_t lane = 0; lane < channels.lanes(); ++lane) {
      int64_t channel = channels.of_lane[size_t(lane)];
      if (channel < 0) continue;
      arrays.bias[lane] = sums.begin[size_t(channel)];
      arrays.offset[lane] = sums.offset[size_t(channel)];
      arrays.multiplier[lane] = int32_t(rule.factor(channel).multiplier);
      arrays.shift[lane] = rule.factor(channel).shift;
    }
    if (approximate)
      fill_approximate_scales(arrays, channels, rule);
    else
      arrays.header->mode = chosen_mode(builder, arrays, channels, rule, result, limits, sums);
  });
}

Q8Parameters::Q8Parameters(const void* packed, int64_t lanes, const Tensor& result, const Q8Limits& limits) {
  Arrays arrays(const_cast<void*>(packed), lanes);
  bias = arrays.bias;
  requantization = arrays.requantization(result, limits);
}

// ---- Sums of two tensors --------------------------------------------------------------------------------------------

namespace {

constexpr size_t kPairs = 256 * 256;  // of quantized values

/// All pairs of quantized values, and the results of adding them in the integer arithmetic of the reference.
struct AllSums {
  const ElementwiseQ8Kernels& kernels;
  std::vector<uint8_t> a, b, expected, result;

  AllSums(const ElementwiseQ8Kernels& kernels, Q8Add add)
      : kernels(kernels), a(kPairs), b(kPairs), expected(kPairs), result(kPairs) {
    for (size_t n = 0; n < kPairs; ++n) a[n] = uint8_t(n / 256), b[n] = uint8_t(n % 256);
    add.limit = -1;
    kernels.add(a.data(), b.data(), expected.data(), kPairs, 0, add);
  }
  bool equal(const Q8Add& add) {
    kernels.add(a.data(), b.data(), result.data(), kPairs, 0, add);
    return result == expected;
  }
};

/// The shift with which the formula in float32 is exact.
struct ExactShift {
  int32_t is_exact;
  float shift;
};

/// Search for such a shift near the accurate one. The integer arithmetic has rounding errors of its own, so that
/// results differ if a sum is close to the middle between two integers.
ExactShift exact_shift(const ElementwiseQ8Kernels& kernels, Q8Add add, double shift, double error) {
  add.flip_b = add.flip = 0;
  AllSums sums(kernels, add);
  add.is_exact = true;
  for (int n = 0; n < 48; ++n) {  // 0, 1, -1, 2, -2 ...
    add.whole_shift = float(shift + error / 8 * double(n % 2 ? n / 2 + 1 : -n / 2));
    if (sums.equal(add)) return {1, add.whole_shift};
  }
  return {0, 0};
}

}  // namespace

Q8Add q8_addition(Builder& builder, const Tensor& a, const Tensor& b, const Tensor& result, const Q8Limits& limits,
                  bool to_even, bool subtracts) {
  const int sign = subtracts ? -1 : 1;
  double common = 2 * std::max(single(a.scale()), single(b.scale()));
  auto factor = [](const Tensor& tensor, double ratio) {
    native::FixedPoint multiplier = native::quantize_multiplier(ratio);
    return Q8Add::Factor{unsigned_zero(tensor), int32_t(multiplier.multiplier), multiplier.shift};
  };
  double of_a = single(a.scale()) / single(result.scale()), of_b = sign * single(b.scale()) / single(result.scale());
  // The result has six rounding errors of float32, of values up to this size; the reference rounds to 2**-20.
  double both = of_a + std::fabs(of_b), size = 255 * 2 * both, error = size * 3 * 0x1p-23 + both * 0x1p-17;
  const double shift = -of_a * unsigned_zero(a) - of_b * unsigned_zero(b);
  Q8Add add{factor(a, single(a.scale()) / common),
            factor(b, single(b.scale()) / common),
            factor(result, common / (1048576.0 * single(result.scale()))),
            limits.low,
            limits.high,
            flip_of(b),
            flip_of(result),
            float(of_a),
            float(of_b),
            float(shift),
            error < 0.02 ? float(0.5 - error) : -1.0f,
            false,
            0,
            to_even,
            {float(a.scale()), float(sign * b.scale()), float(result.scale())}};
  add.b.multiplier *= sign;
  const void* packed = builder.pack(64, [&](void* memory) {
    *static_cast<ExactShift*>(memory) = exact_shift(elementwise_q8_kernels_for(builder.settings.isa), add,
                                                    shift + unsigned_zero(result), size * 0x1p-23);
  });
  const ExactShift& found = *static_cast<const ExactShift*>(packed);
  add.is_exact = found.is_exact != 0, add.whole_shift = found.shift;
  return add;
}

}  // namespace cpuacc
