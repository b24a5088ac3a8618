// Svdf on float32, perhaps with quantized weights, and in integers.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "common/fixed_point.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/real_constant.hpp"
#include "cpuacc/lower/recurrent.hpp"
#include "cpuacc/lower/row_rounding.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

/// What both forms share. Filters remember `memory` numbers each; a unit is the sum of `rank` filters.
struct Filters {
  const RecurrentKernels* kernels;
  int64_t batch, inputs, filters, memory, rank;

  int64_t units() const { return filters / rank; }

  /// Move the memory of a filter on by one step: `now` joins it, and its last place becomes free.
  template <class T>
  void move_on(const T* before, T now, T* after) const {
    if (memory == 1) {
      after[0] = 0;
      return;
    }
    for (int64_t n = 0; n + 2 < memory; ++n) after[n] = before ? before[n + 1] : T(0);
    after[memory - 2] = now;
    after[memory - 1] = 0;
  }
};

Filters filters_of(const Node& node, const Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &feature = *graph.in(node, 1), &time = *graph.in(node, 2);
  return {&recurrent_kernels_for(builder.settings.isa),
          in.shape[0],
          in.shape[1],
          feature.shape[0],
          time.shape[1],
          node.integer("rank", 1)};
}

void add_step(const Node& node, Builder& builder, Step::Function fn, const Filters& filters, uint64_t scratch,
              std::shared_ptr<const void> state) {
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = fn;
  const double products = double(filters.batch * filters.filters) * double(filters.inputs + filters.memory);
  step.operations = 2 * products;
  step.max_parts = std::min(int(std::max<int64_t>(1, filters.batch)),
                            parts_for(builder.settings, products * cost::kRecurrentWeightNs));
  step.scratch_per_part = scratch;
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs.size() > 4 ? node.inputs[4] : -1)};
  step.out = {builder.buffer(node.outputs[0]), builder.buffer(node.outputs[1])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Floats ---------------------------------------------------------------------------------------------------------

struct Svdf {
  Filters filters;
  std::optional<RowRounding> rounding;
  Squash function;
  const float *feature, *time, *bias;  // `feature` is packed, `bias` padded

  uint64_t scratch() const {
    return uint64_t(padded(filters.inputs) + padded(filters.filters) + padded(filters.units())) * sizeof(float);
  }

  void one(const float* in, const float* before, float* after, float* out, float* scratch) const {
    float *x = scratch, *projected = x + padded(filters.inputs), *sums = projected + padded(filters.filters);
    rounding ? rounding->row(in, x, filters.inputs) : void(std::copy_n(in, filters.inputs, x));
    std::memset(projected, 0, size_t(padded(filters.filters)) * sizeof(float));
    filters.kernels->multiply(feature, x, 0, 1, filters.inputs, padded(filters.filters), projected, 0);
    std::copy_n(bias, padded(filters.units()), sums);
    for (int64_t n = 0; n < filters.filters; ++n) {
      const float* old = before ? before + n * filters.memory : nullptr;
      sums[n / filters.rank] += over_time(old, projected[n], time + n * filters.memory);
      filters.move_on(old, projected[n], after + n * filters.memory);
    }
    filters.kernels->activate(sums, padded(filters.units()), function);
    std::copy_n(sums, filters.units(), out);
  }

  /// The weighted sum of what a filter remembers, and of the present number.
  float over_time(const float* old, float now, const float* weights) const {
    float sum = now * weights[filters.memory - 1];
    for (int64_t n = 0; old && n + 1 < filters.memory; ++n) sum += old[n] * weights[n];
    return sum;
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Svdf& self = step.as<Svdf>();
    const Filters& all = self.filters;
    const Range range = split(all.batch, part, parts);
    const int64_t state = all.filters * all.memory;
    for (int64_t b = range.first; b < range.last; ++b)
      self.one(run.at<float>(step.in[0]) + b * all.inputs, step.in[1] ? run.at<float>(step.in[1]) + b * state : nullptr,
               run.at<float>(step.out[0]) + b * state, run.at<float>(step.out[1]) + b * all.units(),
               run.part_scratch<float>(part));
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  for (size_t n : {size_t(0), size_t(4)})
    if (const Tensor* data = graph.in(node, n); data && !is_f32(*data))
      return refused("operand " + std::to_string(n) + " is " + described(*data) + "; takes float32",
                     IPR_REASON_DATA_TYPE);
  for (size_t n : {1, 2, 3})
    if (const Tensor* weights = graph.in(node, n); weights && !is_real_constant(*weights))
      return refused("weights and bias are not constants of float32 or quantized integers", IPR_REASON_NOT_CONSTANT);
  for (int tensor : node.outputs)
    if (!is_f32(graph[tensor]))
      return refused("the result is " + described(graph[tensor]) + "; takes float32", IPR_REASON_DATA_TYPE);
  if (graph.in(node, 2)->shape[1] < 1) return refused("there are no time steps", IPR_REASON_SHAPE);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  auto svdf = std::make_shared<Svdf>();
  Filters& filters = svdf->filters = filters_of(node, builder);
  const std::string_view rounding = node.text("activation_rounding", "NONE");
  if (rounding != "NONE") svdf->rounding.emplace(builder.settings.isa, rounding == "ASYMMETRIC");
  svdf->function = squash_of(node.text("activation_func")).value_or(Squash::none);
  const uint64_t item_size = sizeof(float);
  svdf->feature = static_cast<const float*>(
      builder.pack(uint64_t(padded(filters.filters) * filters.inputs) * item_size, [&](void* to) {
        const std::vector<float> values = reals(*graph.in(node, 1));
        for (int64_t row = 0; row < filters.filters; ++row)
          for (int64_t k = 0; k < filters.inputs; ++k)
            static_cast<float*>(to)[(row / 16 * filters.inputs + k) * 16 + row % 16] =
                values[size_t(row * filters.inputs + k)];
      }));
  svdf->time =
      static_cast<const float*>(builder.pack(uint64_t(filters.filters * filters.memory) * item_size, [&](void* to) {
        const std::vector<float> values = reals(*graph.in(node, 2));
        std::copy(values.begin(), values.end(), static_cast<float*>(to));
      }));
  svdf->bias = static_cast<const float*>(builder.pack(uint64_t(padded(filters.units())) * item_size, [&](void* to) {
    if (!graph.in(node, 3)) return;
    const std::vector<float> values = reals(*graph.in(node, 3));
    std::copy(values.begin(), values.end(), static_cast<float*>(to));
  }));
  const uint64_t scratch = svdf->scratch();
  add_step(node, builder, &Svdf::run, svdf->filters, scratch, svdf);
}

// ---- Integers -------------------------------------------------------------------------------------------------------

struct IntegerSvdf {
  Filters filters;
  const int16_t *feature, *time;
  const int32_t* bias;  // nullptr: none
  native::FixedPoint to_state, to_output;
  int64_t input_zero, output_zero, least, most;

  uint64_t scratch() const {
    return uint64_t(filters.filters) * 4 + uint64_t(filters.units()) * 8 + uint64_t(filters.inputs) * 2 + 128;
  }

  void one(const int8_t* in, const int16_t* before, int16_t* after, int8_t* out, char* scratch) const {
    int64_t* sums = reinterpret_cast<int64_t*>(scratch);
    int32_t* products = reinterpret_cast<int32_t*>(sums + filters.units());
    int16_t* x = reinterpret_cast<int16_t*>(products + filters.filters);
    for (int64_t n = 0; n < filters.inputs; ++n) x[n] = int16_t(in[n] - input_zero);
    filters.kernels->multiply_integers(feature, x, filters.inputs, filters.filters, products);
    for (int64_t unit = 0; unit < filters.units(); ++unit) sums[unit] = bias ? bias[unit] : 0;
    for (int64_t n = 0; n < filters.filters; ++n) {
      const int16_t* old = before + n * filters.memory;
      const int64_t scaled = native::multiply(products[n], to_state);
      const int16_t now = int16_t(std::clamp<int64_t>(scaled, -32768, 32767));
      sums[n / filters.rank] += over_time(old, now, time + n * filters.memory);
      filters.move_on(old, now, after + n * filters.memory);
    }
    for (int64_t unit = 0; unit < filters.units(); ++unit)
      out[unit] =
          int8_t(std::clamp(native::multiply(native::wrapped(sums[unit]), to_output) + output_zero, least, most));
  }

  int64_t over_time(const int16_t* old, int16_t now, const int16_t* weights) const {
    int64_t sum = int64_t{now} * weights[filters.memory - 1];
    for (int64_t n = 0; n + 1 < filters.memory; ++n) sum += int64_t{old[n]} * weights[n];
    return sum;
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const IntegerSvdf& self = step.as<IntegerSvdf>();
    const Filters& all = self.filters;
    const Range range = split(all.batch, part, parts);
    const int64_t state = all.filters * all.memory;
    for (int64_t b = range.first; b < range.last; ++b)
      self.one(run.at<int8_t>(step.in[0]) + b * all.inputs, run.at<int16_t>(step.in[1]) + b * state,
               run.at<int16_t>(step.out[0]) + b * state, run.at<int8_t>(step.out[1]) + b * all.units(),
               run.part_scratch<char>(part));
  }
};

bool has_one_scale(const Tensor* tensor, int32_t dtype) {
  return tensor && tensor->dtype == dtype && tensor->is_quantized() && !tensor->has_axis();
}

bool is_symmetric(const Tensor* tensor, int32_t dtype) {
  return has_one_scale(tensor, dtype) && tensor->zero_point() == 0;
}

Refusal integer_support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  const Tensor *feature = graph.in(node, 1), *time = graph.in(node, 2), *bias = graph.in(node, 3),
               *state = graph.in(node, 4);
  if (!has_one_scale(graph.in(node, 0), IPR_DTYPE_INT8))
    return refused("operand 0 is " + described(*graph.in(node, 0)) + "; takes int8 with a scale", IPR_REASON_DATA_TYPE);
  const bool quantized = is_symmetric(feature, IPR_DTYPE_INT8) && is_symmetric(time, IPR_DTYPE_INT16) &&
                         is_symmetric(state, IPR_DTYPE_INT16) && (!bias || bias->dtype == IPR_DTYPE_INT32) &&
                         has_one_scale(&graph.out(node, 1), IPR_DTYPE_INT8) &&
                         graph.out(node).dtype == IPR_DTYPE_INT16 && graph.out(node).same_quantization(*state);
  if (!quantized) return refused("tensors are quantized in another way", IPR_REASON_QUANTIZATION);
  if (!feature->is_constant() || !time->is_constant() || (bias && !bias->is_constant()))
    return refused("weights and bias are not constant", IPR_REASON_NOT_CONSTANT);
  if (node.text("activation_func") == "TANH" || node.text("activation_func") == "SIGMOID")
    return refused("only clamps are computed in integers", IPR_REASON_ATTRIBUTE);
  if (feature->shape[1] > 65000) return refused("there are too many inputs", IPR_REASON_SHAPE);
  if (time->shape[1] < 1) return refused("there are no time steps", IPR_REASON_SHAPE);
  return taken();
}

/// The code of a bound of the result.
int64_t code_of(double bound, const Tensor& out) {
  const double steps = native::round_half_away(double(float(bound) / float(out.scale())));
  return int64_t(std::clamp(steps + double(out.zero_point()), -128.0, 127.0));
}

void set_bounds(IntegerSvdf& svdf, std::string_view function, const Tensor& out) {
  svdf.least = -128, svdf.most = 127;
  if (function == "NONE") return;
  svdf.least = code_of(function == "RELU_N1_TO_1" ? -1 : 0, out);
  if (function != "RELU") svdf.most = code_of(function == "RELU6" ? 6 : 1, out);
}

void lower_integers(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &feature = *graph.in(node, 1), &time = *graph.in(node, 2),
               &out = graph.out(node, 1);
  auto svdf = std::make_shared<IntegerSvdf>();
  svdf->filters = filters_of(node, builder);
  auto single = [](const Tensor& tensor) { return double(float(tensor.scale())); };
  const double state_scale = single(graph.out(node));
  svdf->to_state = native::quantize_multiplier(single(in) * single(feature) / state_scale);
  svdf->to_output = native::quantize_multiplier(state_scale * single(time) / single(out));
  svdf->input_zero = in.zero_point(), svdf->output_zero = out.zero_point();
  set_bounds(*svdf, node.text("activation_func"), out);
  svdf->feature = static_cast<const int16_t*>(builder.pack(uint64_t(feature.elements()) * 2, [&](void* to) {
    std::copy_n(feature.values<int8_t>(), feature.elements(), static_cast<int16_t*>(to));
  }));
  svdf->time = static_cast<const int16_t*>(
      builder.pack(time.bytes(), [&](void* to) { std::memcpy(to, time.data, time.bytes()); }));
  const Tensor* bias = graph.in(node, 3);
  svdf->bias = !bias ? nullptr : static_cast<const int32_t*>(builder.pack(bias->bytes(), [&](void* to) {
    std::memcpy(to, bias->data, bias->bytes());
  }));
  const uint64_t scratch = svdf->scratch();
  add_step(node, builder, &IntegerSvdf::run, svdf->filters, scratch, svdf);
}

}  // namespace

Family svdf_family() {
  return {{{"Svdf", "integers", integer_support, lower_integers, nullptr}, {"Svdf", "floats", support, lower, nullptr}},
          {}};
}

}  // namespace cpuacc
