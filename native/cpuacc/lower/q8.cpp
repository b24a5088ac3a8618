#include "cpuacc/lower/q8.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "cpuacc/kernels/thresholds.hpp"

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

namespace {

/// The bound of a bias that can be added to the sums of products of a channel in 32 bits.
int64_t room_for_bias(const Tensor& weights, int64_t channels) {
  const int64_t products = weights.elements() / std::max<int64_t>(channels, 1) * 255 * 255;
  return std::clamp<int64_t>(INT32_MAX - products, 0, int64_t(1) << 29);
}

/// Return whether an element of an int32 bias is not within a bound.
bool exceeds(const Tensor& bias, int64_t bound) {
  const int32_t* values = bias.values<int32_t>();
  return std::any_of(values, values + bias.elements(), [=](int64_t value) { return std::abs(value) > bound; });
}

/// What is added to the real sum of a channel: a float, or an integer in steps of the product of the scales.
double real_bias(const Tensor& bias, int64_t channel, double product) {
  return is_f32(bias) ? double(bias.values<float>()[channel]) : double(bias.values<int32_t>()[channel]) * product;
}

}  // namespace

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
  const int64_t room = bias ? room_for_bias(weights, bias->elements()) : 0;
  if (!bias || !(is_f32(*bias) || (rule.kind == even && exceeds(*bias, room)))) return rule;
  for (int64_t channel = 0; channel < bias->elements(); ++channel) {
    const double product = rule.product(channel), real = real_bias(*bias, channel, product);
    const double steps = std::nearbyint(real / product);
    rule.whole.push_back(std::fabs(steps) < double(room) ? int64_t(steps) : 0);
    rule.offsets.push_back(real - double(rule.whole.back()) * product);
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

/// Return whether the quantized result increases with all possible sums, and distances from the zero point fit int32,
/// as well as thresholds.
bool is_monotonic(const Q8Rounding& rule, int64_t channel, int64_t reach) {
  if (reach == INT32_MAX) return false;
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

/// The range of the term that is added before truncation, or before rounding half to even.
struct TermRange {
  double least, most;

  void narrow(double low, double high) { least = std::max(least, low), most = std::min(most, high); }
};

/// A panel, and the thresholds of its channels in the order in which the kernel writes them.
struct Checked {
  const Q8Panel* panel;
  int width;  // lanes
  ThresholdRules rules;
  std::unique_ptr<int32_t[]> thresholds;  // (distances, width)
  std::unique_ptr<TermRange[]> terms;     // (2, columns): for truncation, and for rounding half to even
};

/// The panels whose channels are not all in earlier panels, without thresholds.
std::vector<Checked> checked_panels(const Q8Channels& channels, int64_t count, int lanes) {
  std::vector<Checked> checked;
  std::vector<bool> seen(static_cast<size_t>(count));
  for (const Q8Panel& panel : channels.panels) {
    bool is_new = false;
    for (int64_t n = panel.first; n < panel.first + panel.channels; ++n) {
      is_new = is_new || !seen[size_t(n % count)];
      seen[size_t(n % count)] = true;
    }
    if (is_new) checked.push_back({&panel, panel.vectors * lanes, {}, nullptr, nullptr});
  }
  return checked;
}

/// How close to an integer a real threshold may be for rounding errors to move it beyond: hundreds of times the errors
/// of the kernel and of the rule.
double tolerance(const ThresholdRules& rules, int column) {
  return (rules.reach[column] + 1 + (512 + std::fabs(rules.shift[column])) * rules.inverse[column]) * 0x1p-44;
}

void set_rules(const Q8Rounding& rule, const Q8Sums& sums, Checked& checked) {
  ThresholdRules& rules = checked.rules;
  std::fill_n(rules.slope, kThresholdColumns, 1.0);
  std::fill_n(rules.inverse, kThresholdColumns, 1.0);
  for (int n = 0; n < checked.panel->channels; ++n) {
    const int64_t channel = (checked.panel->first + n) % sums.count();
    rules.slope[n] = slope(rule, channel);
    rules.shift[n] = shift(rule, channel);
    rules.inverse[n] = 1 / rules.slope[n];
    rules.reach[n] = double(reach_of(sums, channel));
    // In fixed point, a product that is rounded before its last bits are shifted out is half of its last bit higher.
    const int right = rule.kind == Q8Rounding::fixed_point ? -rule.factor(channel).shift : 0;
    if (right > 0) rules.rest[n] = std::ldexp(0.5, -right);
  }
}

constexpr TermRange kAnyTerm[2] = {{0, 1}, {-1e300, 1e300}};  // for truncation, and for rounding half to even

/// The range of the term with which a threshold is the least sum of a distance.
TermRange term_range(const ThresholdRules& rules, int column, int64_t distance, int64_t threshold, bool to_even) {
  const double own = double(distance) - (to_even ? 0.5 : 0), previous = double(distance - 1);
  const double at = double(threshold) * rules.slope[column], before = double(threshold - 1) * rules.slope[column];
  if (to_even || distance > 0) return {own - at, own - before};
  return {before - previous, at - previous};  // truncation of negative results rounds up
}

/// The range of the term with which all thresholds with these gaps are found: `term_range` for the largest and for the
/// smallest gap, from which thresholds follow.
TermRange term_range(const ThresholdRules& rules, int column, const ThresholdGaps& gaps, bool to_even) {
  const double slope = rules.slope[column], shift = rules.shift[column], rest = rules.rest[column];
  TermRange range = kAnyTerm[to_even];
  for (int positive = 0; positive < 2; ++positive) {
    const double least = gaps.least[positive][column] * slope, most = gaps.most[positive][column] * slope;
    const double own = (to_even ? 0 : 0.5) + shift + (positive ? rest : -rest);
    if (to_even || positive)
      range.narrow(own - least, own - most + slope);
    else
      range.narrow(1 - own + most - slope, 1 - own + least);
  }
  return range;
}

/// Search for the thresholds of a channel with the rule itself, and narrow the ranges of its terms.
void search_thresholds(const Q8Rounding& rule, int64_t channel, int64_t reach, Distances distances, int column,
                       Checked& checked) {
  for (int64_t row = 0; row < distances.count; ++row) {
    const int64_t distance = distances.first + row;
    const int64_t found = threshold(rule, channel, checked.rules.slope[column], reach, distance);
    checked.thresholds[size_t(row * checked.width + column)] = int32_t(found);
    if (found <= -reach || found > reach) continue;
    for (int to_even = 0; to_even < 2; ++to_even) {
      const TermRange range = term_range(checked.rules, column, distance, found, to_even);
      checked.terms[size_t(to_even * kThresholdColumns + column)].narrow(range.least, range.most);
    }
  }
}

void find_thresholds(const ThresholdKernels& kernels, const Q8Rounding& rule, const Q8Sums& sums, Distances distances,
                     Checked& checked) {
  ThresholdGaps gaps;
  set_rules(rule, sums, checked);
  checked.thresholds.reset(new int32_t[size_t(distances.count * checked.width)]);
  checked.terms.reset(new TermRange[2 * kThresholdColumns]);
  kernels.find(checked.rules, checked.width, distances, checked.thresholds.get(), gaps);
  for (int n = 0; n < checked.panel->channels; ++n) {
    const int64_t channel = (checked.panel->first + n) % sums.count();
    const double least = std::min(gaps.least[0][n], gaps.least[1][n]),
                 most = std::max(gaps.most[0][n], gaps.most[1][n]);
    const bool is_certain = std::min(least, 1 - most) > tolerance(checked.rules, n);
    for (int to_even = 0; to_even < 2; ++to_even)
      checked.terms[size_t(to_even * kThresholdColumns + n)] =
          is_certain ? term_range(checked.rules, n, gaps, to_even) : kAnyTerm[to_even];
    if (!is_certain) search_thresholds(rule, channel, reach_of(sums, channel), distances, n, checked);
  }
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

/// Move sums of consecutive channels to the lanes of a panel.
void arrange(int vectors, int lanes, const int32_t* from, int32_t* to) {
  for (int vector = 0; vector < vectors; ++vector)
    for (int lane = 0; lane < lanes; lane += 4, to += 4)
      std::memcpy(to, from + channel_of(vectors, vector, lane), 4 * sizeof(int32_t));
}

/// Return whether the kernel is exact just below and at all thresholds of a panel, and so for every sum.
bool is_exact(const GemmQ8Kernels& kernels, const ThresholdKernels& of_thresholds, const Checked& checked,
              const Q8Requantization& requantization, const Q8Limits& limits) {
  constexpr int kTogether = 8, kRow = kThresholdColumns;
  int32_t before[kRow], at[kRow], sums[2 * kTogether * kRow];
  uint8_t most[kTogether * kRow], least[kTogether * kRow], codes[2 * kTogether * kRow];
  const Q8Panel& panel = *checked.panel;
  const int32_t* thresholds = checked.thresholds.get();
  for (int32_t code = limits.low + 1; code <= limits.high; code += kTogether) {
    const int count = std::min(kTogether, limits.high - code + 1);
    for (int n = 0; n < count; ++n, thresholds += checked.width) {
      of_thresholds.neighbours(checked.rules, checked.width, thresholds, uint8_t(code + n), before, at, most + n * kRow,
                               least + n * kRow);
      arrange(panel.vectors, kernels.lanes, before, sums + n * checked.width);
      arrange(panel.vectors, kernels.lanes, at, sums + (count + n) * checked.width);
    }
    kernels.requantize(2 * count, panel.vectors, sums, requantization, panel.lane, nullptr, codes, kRow, panel.channels,
                       {nullptr, nullptr, 0});
    for (int n = 0; n < count; ++n)
      if (!of_thresholds.is_within(codes + n * kRow, codes + (count + n) * kRow, most + n * kRow, least + n * kRow,
                                   panel.channels))
        return false;
  }
  return true;
}

/// The terms of all channels that are added before rounding, half to even or half away from zero; empty if a channel
/// has none that makes it exact.
std::vector<double> chosen_halves(const std::vector<Checked>& panels, int64_t count, bool to_even) {
  std::vector<double> halves(panels.empty() ? 0 : size_t(count));
  for (const Checked& checked : panels) {
    const ThresholdRules& rules = checked.rules;
    for (int n = 0; n < checked.panel->channels; ++n) {
      const auto [least, most] = checked.terms[size_t(to_even ? kThresholdColumns + n : n)];
      if (to_even ? least > most : least >= most) return {};
      const double own = rules.shift[n], step = rules.slope[n];
      halves[size_t((checked.panel->first + n) % count)] =
          to_even ? (std::max(least, own - step / 2) + std::min(most, own + step / 2)) / 2
                  : least + std::min((most - least) / 2, 0x1p-22);
    }
  }
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

/// The mode of the arithmetic of a rule in fixed point whose shifts are all to the right, if the kernels have it.
std::optional<Q8Requantization::Mode> shift_mode(const GemmQ8Kernels& kernels, const Q8Rounding& rule,
                                                 const Tensor& result, const Q8Limits& limits) {
  const bool only_right = std::all_of(rule.factors.begin(), rule.factors.end(),
                                      [](const native::FixedPoint& factor) { return factor.shift < 0; });
  if (!kernels.has_shifts || rule.kind != Q8Rounding::fixed_point || !only_right) return {};
  return limits.low < unsigned_zero(result) ? Q8Requantization::shift_away : Q8Requantization::shift_up;
}

constexpr uint64_t kThresholdBytes =
    4096;  // cost of finding the thresholds of a channel, in bytes of a copy that takes as long

Q8Requantization::Mode chosen_mode(Builder& builder, const Arrays& arrays, const Q8Channels& channels,
                                   const Q8Rounding& rule, const Tensor& result, const Q8Limits& limits,
                                   const Q8Sums& sums) {
  const GemmQ8Kernels& kernels = gemm_q8_kernels_for(builder.settings.isa);
  const ThresholdKernels& of_thresholds = threshold_kernels_for(builder.settings.isa);
  const Distances distances{limits.low - unsigned_zero(result) + 1, std::max(0, limits.high - limits.low)};
  bool all_monotonic = true;
  for (int64_t channel = 0; all_monotonic && channel < sums.count(); ++channel)
    all_monotonic = is_monotonic(rule, channel, reach_of(sums, channel));
  std::vector<Checked> panels;
  if (all_monotonic) panels = checked_panels(channels, sums.count(), kernels.lanes);
  const uint64_t bytes = uint64_t(sums.count()) * kThresholdBytes;
  builder.divide(int64_t(panels.size()), bytes, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) find_thresholds(of_thresholds, rule, sums, distances, panels[size_t(n)]);
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
      halves[to_even] = chosen_halves(panels, sums.count(), to_even);
    if (halves[to_even].empty()) continue;
    fill_scales(arrays, channels, rule, halves[to_even]);
    arrays.header->mode = mode;
    Q8Requantization requantization = arrays.requantization(result, limits);
    requantization.flip = 0;
    std::atomic<bool> right{true};
    builder.divide(int64_t(panels.size()), bytes, [&](int64_t first, int64_t last) {
      for (int64_t n = first; right && n < last; ++n)
        if (!is_exact(kernels, of_thresholds, panels[size_t(n)], requantization, limits)) right = false;
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
    const auto shifts = shift_mode(gemm_q8_kernels_for(builder.settings.isa), rule, result, limits);
    if (shifts)
      arrays.header->mode = *shifts;
    else if (approximate)
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

/// All pairs of quantized values.
struct Pairs {
  std::vector<uint8_t> a, b;

  Pairs() : a(kPairs), b(kPairs) {
    for (size_t n = 0; n < kPairs; ++n) a[n] = uint8_t(n / 256), b[n] = uint8_t(n % 256);
  }
};

/// The results of adding all pairs of quantized values in the arithmetic of the reference.
struct AllSums {
  const ElementwiseQ8Kernels& kernels;
  const Pairs& pairs;
  std::vector<uint8_t> expected, result;

  AllSums(const ElementwiseQ8Kernels& kernels, Q8Add add)
      : kernels(kernels), pairs(all_pairs()), expected(kPairs), result(kPairs) {
    add.limit = -1;
    kernels.add(pairs.a.data(), pairs.b.data(), expected.data(), kPairs, 0, add);
  }
  /// Return whether all results are as expected. The block that was not is compared first the next time.
  bool equal(const Q8Add& add) {
    constexpr size_t block = 4096;
    for (size_t n = 0; n < kPairs; n += block) {
      const size_t first = (suspect + n) % kPairs;
      kernels.add(pairs.a.data() + first, pairs.b.data() + first, result.data(), block, 0, add);
      if (std::memcmp(result.data(), expected.data() + first, block) == 0) continue;
      suspect = first;
      return false;
    }
    return true;
  }

 private:
  size_t suspect = 0;  // first pair of a block
  static const Pairs& all_pairs() {
    static const Pairs pairs;
    return pairs;
  }
};

/// The scales and the shift with which the formula in float32 is exact.
struct ExactFormula {
  int32_t is_exact;
  float a, b, shift;
};

/// The real formula: a * `a` + b * `b` + `shift`.
struct RealFormula {
  double a, b, shift;
};

/// Search for such parameters near the accurate ones. The integer arithmetic has rounding errors of its own, so that
/// results differ if a sum is close to the middle between two integers. It rounds middles away from zero, as slightly
/// larger parameters do.
ExactFormula exact_formula(const ElementwiseQ8Kernels& kernels, Q8Add add, const RealFormula& real, double error) {
  constexpr std::pair<double, int> searches[] = {
      {0, 48}, {0x1p-16, 8}, {0x1p-15, 8}, {0x1p-14, 8}, {0x1p-13, 8}};  // enlargements, and numbers of shifts
  add.flip_b = add.flip = 0;
  AllSums sums(kernels, add);
  add.is_exact = true;
  for (const auto& [enlargement, shifts] : searches) {
    const double by = 1 + enlargement;
    add.exact_a = float(real.a * by), add.exact_b = float(real.b * by);
    for (int n = 0; n < shifts; ++n) {  // 0, 1, -1, 2, -2 ...
      add.exact_shift = float(real.shift * by + error / 8 * double(n % 2 ? n / 2 + 1 : -n / 2));
      if (sums.equal(add)) return {1, add.exact_a, add.exact_b, add.exact_shift};
    }
  }
  return {0, 0, 0, 0};
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
  // The reference saturates a sum that is infinite in float32, even if the scale of the result is as large.
  const bool is_finite = !to_even || std::isfinite(255 * (float(a.scale()) + float(b.scale())));
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
            is_finite && error < 0.02 ? float(0.5 - error) : -1.0f,
            false,
            0,
            0,
            0,
            to_even,
            {float(a.scale()), float(sign * b.scale()), float(result.scale())}};
  add.b.multiplier *= sign;
  const void* packed = builder.pack(64, [&](void* memory) {
    *static_cast<ExactFormula*>(memory) =
        exact_formula(elementwise_q8_kernels_for(builder.settings.isa), add, {of_a, of_b, shift}, size * 0x1p-23);
  });
  const ExactFormula& found = *static_cast<const ExactFormula*>(packed);
  add.is_exact = found.is_exact != 0;
  add.exact_a = found.a, add.exact_b = found.b, add.exact_shift = found.shift;
  return add;
}

}  // namespace cpuacc
