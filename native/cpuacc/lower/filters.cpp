// Layers whose number of results follows from the data: NonZero and Compress. They set the shape of the result.

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kUnknown = -1;

/// The number of results along an axis that the network declares; kUnknown if the shape is not known.
int64_t declared_count(const Shape& shape, size_t axis) {
  const bool known = std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
  return known ? shape[axis] : kUnknown;
}

/// The memory of a result with `actual` elements along its axis, whose shape is set if it was unknown.
///
/// It is nullptr if there is no memory. A declared number that is not `actual` is reported as an error of the values.
char* result_of(const Step& step, const Run& run, int64_t declared, int64_t actual, const Shape& shape) {
  if (declared == kUnknown) return static_cast<char*>(run.resized(step.out[0], shape));
  if (declared == actual) return run.at<char>(step.out[0]);
  run.fail(int(step.in.size()) - 1, 0, "the number of results differs from that of the declared shape");
  return nullptr;
}

// ---- NonZero --------------------------------------------------------------------------------------------------------

/// The bits of an element that decide whether it is zero.
uint64_t deciding_bits(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return 0x7fffffff;
    case IPR_DTYPE_FLOAT64:
      return ~uint64_t{0} >> 1;
    case IPR_DTYPE_FLOAT16:
    case IPR_DTYPE_BFLOAT16:
      return 0x7fff;
    case IPR_DTYPE_FLOAT8_E4M3FN:
    case IPR_DTYPE_FLOAT8_E5M2:
      return 0x7f;
    case IPR_DTYPE_FLOAT6_E2M3FN:
    case IPR_DTYPE_FLOAT6_E3M2FN:
      return 0x1f;
    case IPR_DTYPE_FLOAT4_E2M1FN:
      return 7;
    case IPR_DTYPE_INT4:
    case IPR_DTYPE_UINT4:
      return 15;
    case IPR_DTYPE_INT2:
    case IPR_DTYPE_UINT2:
      return 3;
    default:
      return ~uint64_t{0};
  }
}

struct NonZeros {
  Shape shape;
  int64_t count, item_size;
  uint64_t zero, bits;
  int64_t declared;

  template <class T>
  void all(const Step& step, const Run& run) const {
    const T* in = run.at<T>(step.in[0]);
    const T expected = T(zero & bits), mask = T(bits);
    int64_t num_nonzero = 0;
    for (int64_t n = 0; n < count; ++n) num_nonzero += T(in[n] & mask) != expected;
    int64_t* out =
        reinterpret_cast<int64_t*>(result_of(step, run, declared, num_nonzero, {int64_t(shape.size()), num_nonzero}));
    if (!out) return;
    const int64_t length = shape.back();
    int64_t *last_axis = out + int64_t(shape.size() - 1) * num_nonzero, *to = last_axis, *end = to + num_nonzero;
    for (int64_t first = 0; to != end; first += length) {
      int64_t* const begin = to;
      for (int64_t n = 0; n < length && to != end; ++n) *to = n, to += T(in[first + n] & mask) != expected;
      if (to != begin) fill_row(first / length, to - begin, num_nonzero, out + (begin - last_axis));
    }
  }

  /// Write `found` times the index of a row along each axis but the last one. Axes are `step` elements apart.
  void fill_row(int64_t row, int64_t found, int64_t step, int64_t* out) const {
    for (size_t axis = shape.size() - 1; axis-- > 0; row /= shape[axis])
      std::fill_n(out + int64_t(axis) * step, found, row % shape[axis]);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const NonZeros& self = step.as<NonZeros>();
    by_item_size(self.item_size, [&](auto item) { self.all<decltype(item)>(step, run); });
  }
};

Refusal support_non_zero(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  char zero[8];
  if (!encode(0, in, zero)) return refused("NonZero of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  if (in.rank() == 0) return refused("the operand is a scalar", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

void lower_non_zero(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  auto state = std::make_shared<NonZeros>();
  state->shape = in.shape;
  state->count = in.elements();
  state->item_size = int64_t(ipr::item_size(in.dtype));
  encode(0, in, reinterpret_cast<char*>(&state->zero));
  state->bits = deciding_bits(in.dtype);
  state->declared = declared_count(out.shape, 1);
  Step step;
  step.name = "NonZero " + node.name;
  step.fn = &NonZeros::run;
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Compress -------------------------------------------------------------------------------------------------------

struct Kept {
  Shape shape;  // of the result, with a free place at `axis`
  size_t axis;
  int64_t conditions, outer, extent, bytes;  // `bytes` of the dimensions after the axis
  int64_t declared;

  static void run(const Step& step, const Run& run, int, int) {
    const Kept& self = step.as<Kept>();
    const uint8_t* conditions = run.at<uint8_t>(step.in[1]);
    const char* in = run.at<char>(step.in[0]);
    int64_t num_selected = 0;
    for (int64_t n = 0; n < self.conditions; ++n) num_selected += conditions[n] != 0;
    Shape shape = self.shape;
    shape[self.axis] = num_selected;
    char* out = result_of(step, run, self.declared, num_selected, shape);
    if (!out) return;
    for (int64_t row = 0; row < self.outer; ++row, in += self.extent * self.bytes)
      for (int64_t n = 0; n < self.conditions; ++n) {
        if (!conditions[n]) continue;
        std::memcpy(out, in + n * self.bytes, size_t(self.bytes));
        out += self.bytes;
      }
  }
};

Refusal support_compress(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &condition = *graph.in(node, 1);
  const int64_t extent = node.has("axis") ? in.extent(axis_of(node.integer("axis"), in.rank())) : in.elements();
  if (condition.dtype != IPR_DTYPE_BOOL)
    return refused("the condition is " + described(condition), IPR_REASON_DATA_TYPE);
  if (condition.elements() > extent) return refused("there are more conditions than elements", IPR_REASON_SHAPE);
  if (!in.same_quantization(graph.out(node)) || in.has_axis())
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_compress(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const int64_t item_size = int64_t(ipr::item_size(in.dtype));
  auto state = std::make_shared<Kept>();
  state->conditions = builder.graph.in(node, 1)->elements();
  if (node.has("axis")) {
    state->axis = size_t(axis_of(node.integer("axis"), in.rank()));
    const Around at = around(in.shape, int(state->axis));
    state->shape = in.shape;
    state->outer = at.outer, state->extent = at.extent, state->bytes = at.inner * item_size;
  } else {
    state->axis = 0, state->shape = {0};
    state->outer = 1, state->extent = in.elements(), state->bytes = item_size;
  }
  state->declared = declared_count(out.shape, state->axis);
  Step step;
  step.name = "Compress " + node.name;
  step.fn = &Kept::run;
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family filters_family() {
  return {{{"NonZero", "plain", support_non_zero, lower_non_zero, nullptr, false, true},
           {"Compress", "plain", support_compress, lower_compress, nullptr, false, true}},
          {}};
}

}  // namespace cpuacc
