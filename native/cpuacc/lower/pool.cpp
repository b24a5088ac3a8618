// Pooling of images and volumes, plain and blocked.

#include <algorithm>

#include "cpuacc/kernels/pool.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

struct Names {
  const char *size, *stride, *dilation, *before, *after;
};

const Names kAxes[] = {{"pool_depth", "stride_z", "dilation_z", "pad_front", "pad_back"},
                       {"pool_height", "stride_y", "dilation_y", "pad_top", "pad_bottom"},
                       {"pool_width", "stride_x", "dilation_x", "pad_left", "pad_right"}};

bool channels_last(const Node& node) { return node.text("data_layout").back() == 'C'; }

PoolKind kind_of(const Node& node) {
  std::string_view name = node.text("pool_type");
  return name == "MAX" ? PoolKind::max : name == "AVERAGE" ? PoolKind::average : PoolKind::l2;
}

bool is_int16_with_scale(const Tensor& tensor) {
  return tensor.dtype == IPR_DTYPE_INT16 && tensor.is_quantized() && !tensor.has_axis();
}

/// Return whether a node computes averages of quantized values that are rounded half to even.
bool averages_to_even(const Node& node, const Tensor& in, const Tensor& out) {
  auto averages = [](const Tensor& tensor) { return has_one_scale(tensor) || is_int16_with_scale(tensor); };
  return rounds_to_even(node) && kind_of(node) == PoolKind::average && averages(in) && averages(out);
}

/// The window over an image; an image is a volume of one plane.
Pool pool_of(const Node& node, const Tensor& in, const Tensor& out) {
  Pool pool{};
  bool volume = node.type == "Pooling3d";
  size_t first = channels_last(node) ? 1 : 2;
  pool.kind = kind_of(node);
  pool.count_padding = node.text("padding_method") == "IGNORE_VALUE";
  pool.zero = int32_t(in.zero_point()), pool.zero_out = int32_t(out.zero_point());
  pool.to_even = averages_to_even(node, in, out);
  if (pool.to_even) pool.scale = single(in.scale()), pool.scale_out = single(out.scale());
  for (int axis = 0; axis < 3; ++axis) {
    pool.extent[axis] = pool.places[axis] = pool.size[axis] = pool.stride[axis] = pool.dilation[axis] = 1;
    if (axis == 0 && !volume) continue;
    size_t at = first + size_t(axis) - (volume ? 0 : 1);
    const Names& names = kAxes[axis];
    pool.extent[axis] = in.shape[at];
    pool.places[axis] = out.shape[at];
    pool.size[axis] = node.integer(names.size);
    if (pool.size[axis] == 0) {
      pool.size[axis] = in.shape[at];
      continue;
    }
    pool.stride[axis] = std::max<int64_t>(1, node.integer(names.stride));
    pool.dilation[axis] = std::max<int64_t>(1, node.integer(names.dilation, 1));
    pool.pad[axis] = node.integer(names.before);
    pool.pad_after[axis] = node.integer(names.after);
  }
  return pool;
}

int64_t taps_of(const Pool& pool) { return pool.size[0] * pool.size[1] * pool.size[2]; }

/// The numbers by which averages along one axis are divided.
std::vector<int64_t> divisors(const Pool& pool, int axis) {
  std::vector<char> found(size_t(pool.size[axis]) + 1, 0);
  for (int64_t place = 0; place < pool.places[axis]; ++place) found[size_t(counted(pool, axis, place))] = 1;
  std::vector<int64_t> all;
  for (size_t count = 1; count < found.size(); ++count)
    if (found[count]) all.push_back(int64_t(count));
  return all;
}

/// Return whether averages of `count` values that are multiplied in float32 are rounded like the reference rounds them.
bool is_exact(const Pool& pool, int64_t count, float factor, double low) {
  const double high = low + 255;
  for (int64_t sum = -255 * count; sum <= 255 * count; ++sum) {
    const double steps = std::nearbyint(double(sum) * pool.scale / (double(count) * pool.scale_out));
    if (std::clamp(steps, low, high) != std::nearbyint(std::clamp(double(float(sum) * factor), low, high)))
      return false;
  }
  return true;
}

/// The factors of averages of 8 bits; see Pool::factors.
std::vector<float> exact_factors(const Pool& pool, bool is_signed) {
  std::vector<float> factors(kMostWithFactor + 1, 0);
  for (int64_t planes : divisors(pool, 0))
    for (int64_t rows : divisors(pool, 1))
      for (int64_t columns : divisors(pool, 2)) {
        const int64_t count = planes * rows * columns;
        if (count > kMostWithFactor || factors[size_t(count)] > 0) continue;
        const float factor = float(pool.scale / (double(count) * pool.scale_out));
        if (is_exact(pool, count, factor, (is_signed ? -128 : 0) - pool.zero_out)) factors[size_t(count)] = factor;
      }
  return factors;
}

struct Pooling {
  PoolKernels::Row row;
  Pool pool;
  std::vector<float> factors, column_counts;
  int64_t images, in_bytes, row_bytes;  // bytes of an input image, and of a row of the result

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Pooling& self = step.as<Pooling>();
    int64_t rows = self.pool.places[1], planes = self.pool.places[0];
    Range range = split(self.images * planes * rows, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const char* in = run.at<char>(step.in[0]) + n / (planes * rows) * self.in_bytes;
      self.row(self.pool, in, run.at<char>(step.out[0]) + n * self.row_bytes, n / rows % planes, n % rows,
               run.part_scratch<char>(part));
    }
  }
};

bool one_quantization(const Tensor& in, const Tensor& out) { return in.same_quantization(out) && !in.has_axis(); }

bool takes_scales(const Node& node, const Tensor& in, const Tensor& out) {
  return one_quantization(in, out) || averages_to_even(node, in, out);
}

/// Return whether sums of a window of int16 fit into 32 bits.
bool has_narrow_sums(const Node& node, const Tensor& in, const Tensor& out) {
  return taps_of(pool_of(node, in, out)) <= 32767;
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (in.dtype != out.dtype || in.is_quantized() != out.is_quantized() || !takes_scales(node, in, out))
    return refused("the result is " + described(out) + " and the operand " + described(in) + "; takes one quantization",
                   IPR_REASON_QUANTIZATION);
  if (!is_f32(in) && !in.is_quantized() && kind_of(node) != PoolKind::max)
    return refused("takes quantized values with a scale, or floats", IPR_REASON_DATA_TYPE);
  if (node.type == "Pooling3d" && !is_f32(in) && kind_of(node) != PoolKind::max)
    return refused("means of volumes are taken of float32 only", IPR_REASON_DATA_TYPE);
  if (in.dtype == IPR_DTYPE_INT16 && kind_of(node) == PoolKind::average && !has_narrow_sums(node, in, out))
    return refused("a window has more than 32767 elements of int16", IPR_REASON_SHAPE);
  if (pool_kernels_for(settings.isa).row(kind_of(node), in.dtype, 0)) return taken();
  return refused(std::string(node.text("pool_type")) + " of " + described(in) + " is not supported",
                 IPR_REASON_DATA_TYPE);
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (out.elements() == 0) return;
  int64_t item_size = int64_t(ipr::item_size(in.dtype));
  auto state = std::make_shared<Pooling>();
  Pool& pool = state->pool = pool_of(node, in, out);
  int64_t channels = channels_last(node) ? in.shape.back() : in.shape[1];
  pool.inner = is_blocked(in.layout) ? kBlock : channels_last(node) ? channels : 1;
  pool.row_item = std::max<int64_t>(4, item_size);
  state->row = pool_kernels_for(builder.settings.isa).row(pool.kind, in.dtype, taps_of(pool));
  if (pool.to_even && item_size == 1) state->factors = exact_factors(pool, in.dtype == IPR_DTYPE_INT8);
  pool.factors = state->factors.data();
  if (is_f32(in) && has_near_windows(pool)) {
    state->column_counts.resize(size_t(column_count_items(pool)));
    fill_column_counts(pool, state->column_counts.data());
    pool.column_counts = state->column_counts.data();
  }
  state->in_bytes = pool.extent[0] * pool.extent[1] * pool.extent[2] * pool.inner * item_size;
  state->row_bytes = pool.places[2] * pool.inner * item_size;
  state->images = in.elements() == 0 ? in.shape[0] * channels / pool.inner : int64_t(in.bytes()) / state->in_bytes;
  double work = double(out.elements()) * double(pool.size[0] * pool.size[1] + pool.size[2]) * cost::kPoolTapNs;
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Pooling::run;
  step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, work),
                                         std::max<int64_t>(1, state->images * pool.places[0] * pool.places[1])));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = uint64_t(scratch_items(pool) * pool.row_item);
  step.state = std::move(state);
  builder.add(std::move(step));
}

Layouts layouts(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& in = *graph.in(node, 0);
  bool blocked = agree_on_channels(in.layout, node.text("data_layout")) && is_f32(in);
  Layout layout = blocked ? in.layout : Layout::plain;
  return {{layout}, {layout}};
}

}  // namespace

Family pool_family() {
  Family family;
  family.lowerings = {{"Pooling2d", "plain", support, lower, layouts, true},
                      {"Pooling3d", "plain", support, lower, layouts}};
  return family;
}

}  // namespace cpuacc
