// Means, sums, maxima and minima of quantized values of 8 bits and of int16, in the integer arithmetic of the
// reference.

#include <algorithm>
#include <cmath>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/table_q8.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kMax = 1 << 22;  // elements of a reduction, so that their sum fits 32 bits

constexpr int64_t kMaxWide = 1 << 15;  // the same for int16

constexpr float kFar = 4294967296;  // far out of the range of 8 bits

enum class Kind { mean, sum, most, least, none };

Kind kind_of(const Node& node) {
  std::string_view name = node.type == "Mean" ? "MEAN" : node.text("operation");
  if (name == "MEAN") return Kind::mean;
  if (name == "SUM") return Kind::sum;
  return name == "MAX" ? Kind::most : name == "MIN" ? Kind::least : Kind::none;
}

/// Offsets of elements: `first_elements` of the first element of each result, `reduced` of its elements relative to
/// that.
struct Places {
  std::vector<int64_t> first_elements = {0}, reduced = {0};

  Places(const Shape& shape, const std::vector<int64_t>& axes) {
    std::vector<char> is_reduced(shape.size(), axes.empty());
    for (int64_t axis : axes) is_reduced[size_t(axis_of(axis, int(shape.size())))] = 1;
    Shape steps = steps_of(shape);
    for (size_t n = 0; n < shape.size(); ++n) extend(is_reduced[n] ? reduced : first_elements, shape[n], steps[n]);
  }

 private:
  static void extend(std::vector<int64_t>& places, int64_t extent, int64_t step) {
    std::vector<int64_t> longer;
    for (int64_t place : places)
      for (int64_t n = 0; n < extent; ++n) longer.push_back(place + n * step);
    places = std::move(longer);
  }
};

/// The factor of a mean divided by `count`. The multiplier is shifted to the left first, as far as it fits.
native::FixedPoint factor_of(Kind kind, const Tensor& in, const Tensor& out, int64_t count) {
  native::FixedPoint factor = native::quantize_multiplier(double(scale32(in)) / double(scale32(out)));
  if (kind != Kind::mean) return factor;
  int bits = std::min(31 - native::leading_zeros(count), 31 + factor.shift);
  return {(factor.multiplier << bits) / count, factor.shift - bits};
}

constexpr int64_t kLeastWidth = 16;  // of columns that are reduced in vectors

/// A reduction of adjacent axes before others: `rows` rows of `width` values, for each of `outer` results. A width of 1
/// is a reduction of the last axes. The width is 0 if axes are not adjacent, or if rows are shorter than vectors.
struct Columns {
  int64_t outer = 0, rows = 0, width = 0;

  Columns(const Shape& shape, const std::vector<int64_t>& axes) {
    std::vector<char> is_reduced(shape.size(), axes.empty());
    for (int64_t axis : axes) is_reduced[size_t(axis_of(axis, int(shape.size())))] = 1;
    int64_t sizes[3] = {1, 1, 1};
    int stage = 0;
    for (size_t n = 0; n < shape.size(); ++n) {
      if (shape[n] == 1) continue;
      const int own = is_reduced[n] ? 1 : stage == 0 ? 0 : 2;
      if (own < stage) return;
      stage = own;
      sizes[own] *= shape[n];
    }
    if (sizes[2] == 1 || sizes[2] >= kLeastWidth) outer = sizes[0], rows = sizes[1], width = sizes[2];
  }
};

struct Reducing {
  Kind kind;
  bool is_signed;
  int64_t zero_in, zero_out;
  native::FixedPoint factor;
  float scale;  // of the input divided by that of the output
  bool to_even;
  double scale_in, scale_out;
  Places places;
  Columns columns;
  const ElementwiseQ8Kernels* kernels;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Reducing& self = step.as<Reducing>();
    const uint8_t* in = run.at<uint8_t>(step.in[0]);
    uint8_t* out = run.at<uint8_t>(step.out[0]);
    Range range = split(int64_t(self.places.first_elements.size()), part, parts, 64);
    for (int64_t n = range.first; n < range.last; ++n) out[n] = self.code(in + self.places.first_elements[size_t(n)]);
  }

  static void run_wide(const Step& step, const Run& run, int part, int parts) {
    const Reducing& self = step.as<Reducing>();
    const int16_t* in = run.at<int16_t>(step.in[0]);
    int16_t* out = run.at<int16_t>(step.out[0]);
    Range range = split(int64_t(self.places.first_elements.size()), part, parts, 32);
    for (int64_t n = range.first; n < range.last; ++n)
      out[n] = self.wide_code(in + self.places.first_elements[size_t(n)]);
  }

  /// Each part reduces some of the rows, which are contiguous.
  static void run_rows(const Step& step, const Run& run, int part, int parts) {
    const Reducing& self = step.as<Reducing>();
    const int64_t count = self.columns.rows;
    const Range range = split(self.columns.outer, part, parts, 64);
    for (int64_t n = range.first; n < range.last; ++n) {
      const uint8_t* in = run.at<uint8_t>(step.in[0]) + n * count;
      uint8_t& out = run.at<uint8_t>(step.out[0])[n];
      if (self.chooses())
        self.choose(in, 1, count, 1, &out);
      else
        out = self.rescaled(self.kernels->sum(in, count, self.is_signed), count);
    }
  }

  /// Each part reduces some of the columns.
  static void run_columns(const Step& step, const Run& run, int part, int parts) {
    const Reducing& self = step.as<Reducing>();
    const Columns& c = self.columns;
    const Range range = split(c.width, part, parts, 64);
    const int64_t width = range.last - range.first;
    uint32_t* sums = run.part_scratch<uint32_t>(part);
    for (int64_t n = 0; n < c.outer; ++n) {
      const uint8_t* in = run.at<uint8_t>(step.in[0]) + n * c.rows * c.width + range.first;
      uint8_t* out = run.at<uint8_t>(step.out[0]) + n * c.width + range.first;
      if (self.chooses()) {
        self.choose(in, width, c.rows, c.width, out);
        continue;
      }
      std::fill_n(sums, width, 0);
      self.kernels->add_rows(in, c.rows, c.width, width, self.is_signed, sums);
      for (int64_t place = 0; place < width; ++place) out[place] = self.rescaled(sums[place], c.rows);
    }
  }

 private:
  bool chooses() const { return kind == Kind::most || kind == Kind::least; }

  /// The greatest or least values of columns. Inverted bits turn the least number into the greatest.
  void choose(const uint8_t* in, int64_t width, int64_t rows, int64_t step, uint8_t* out) const {
    const uint8_t mask = uint8_t((is_signed ? 0x80 : 0) ^ (kind == Kind::least ? 0xff : 0));
    std::fill_n(out, width, uint8_t(0));
    kernels->raise(in, rows, step, width, mask, out);
    for (int64_t n = 0; n < width; ++n) out[n] ^= mask;
  }

  /// The mean or sum of `count` unsigned values.
  uint8_t rescaled(int64_t sum, int64_t count) const {
    const int64_t total = sum - (is_signed ? 128 * count : 0);
    if (to_even) return exact(total - count * zero_in, kind == Kind::mean ? count : 1);
    const bool in_floats = kind == Kind::sum && is_signed;
    int64_t result = in_floats ? rounded(total, count) : native::multiply(total - count * zero_in, factor);
    result += zero_out;
    return uint8_t(std::clamp<int64_t>(result, is_signed ? -128 : 0, is_signed ? 127 : 255));
  }

  /// A sum of distances from the zero point, divided by `count` and rounded half to even.
  uint8_t exact(int64_t distance, int64_t count) const {
    const double steps = std::nearbyint(double(distance) * scale_in / (double(count) * scale_out));
    return uint8_t(int32_t(std::clamp(steps + double(zero_out), is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0)));
  }

  /// The sum of int8 values, whose zero points are corrected in float32.
  int64_t rounded(int64_t total, int64_t count) const {
    const float correction = float(-zero_in) * scale * float(count);
    const float value = float(total) * scale + correction;
    if (!(value > -kFar)) return int64_t(-kFar);
    return int64_t(std::round(std::min(value, kFar)));
  }

  int16_t wide_code(const int16_t* in) const {
    int64_t sum = 0;
    int16_t least = 32767, most = -32768;
    for (int64_t place : places.reduced)
      sum += in[place], least = std::min(least, in[place]), most = std::max(most, in[place]);
    if (kind == Kind::most) return most;
    if (kind == Kind::least) return least;
    const int64_t count = int64_t(places.reduced.size()), distance = sum - count * zero_in;
    if (to_even) {
      const double divisor = kind == Kind::mean ? double(count) : 1;
      const double steps = std::nearbyint(double(distance) * scale_in / (divisor * scale_out)) + double(zero_out);
      return int16_t(std::clamp(steps, -32768.0, 32767.0));
    }
    const int64_t result = kind == Kind::sum ? rounded(sum, count) : native::multiply(distance, factor);
    return int16_t(std::clamp<int64_t>(result + zero_out, -32768, 32767));
  }

  uint8_t code(const uint8_t* in) const {
    int flip = is_signed ? 128 : 0;  // values as unsigned numbers
    int64_t sum = 0;
    int least = 255, most = 0;
    for (int64_t place : places.reduced) {
      int element = in[place] ^ flip;
      sum += element, least = std::min(least, element), most = std::max(most, element);
    }
    if (kind == Kind::most) return uint8_t(most ^ flip);
    if (kind == Kind::least) return uint8_t(least ^ flip);
    return rescaled(sum, int64_t(places.reduced.size()));
  }
};

bool is_wide(const Tensor& tensor) {
  return tensor.dtype == IPR_DTYPE_INT16 && tensor.is_quantized() && !tensor.has_axis();
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const bool wide = is_wide(in) && is_wide(out);
  if ((!both_quantized(in, out) && !wide) || in.dtype != out.dtype)
    return refused("takes quantized values of 8 bits and of int16 with a scale", IPR_REASON_DATA_TYPE);
  Kind kind = kind_of(node);
  bool chooses = kind == Kind::most || kind == Kind::least;
  if (kind == Kind::none || (chooses && !in.same_quantization(out)))
    return refused("takes means and sums of quantized values, and maxima and minima with the same scale",
                   IPR_REASON_ATTRIBUTE);
  int64_t results = out.elements();
  const int64_t most = wide ? kMaxWide : kMax;
  if (results <= 0 || in.elements() <= 0 || in.elements() / results > most)
    return refused("takes 1 to " + std::to_string(most) + " values for each result", IPR_REASON_SHAPE);
  return node.posts.empty() ? taken() : refused("takes no post-ops");
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  Kind kind = kind_of(node);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Reducing::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kReduceQuantizedNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  auto state = std::make_shared<Reducing>(
      Reducing{kind, is_signed(in), in.zero_point(), out.zero_point(),
               factor_of(kind, in, out, in.elements() / out.elements()), scale32(in) / scale32(out),
               rounds_to_even(node), single(in.scale()), single(out.scale()), Places(in.shape, node.integers("axis")),
               Columns(in.shape, node.integers("axis")), &elementwise_q8_kernels_for(builder.settings.isa)});
  if (is_wide(in)) {
    step.fn = &Reducing::run_wide;
  } else if (state->columns.width == 1) {
    step.fn = &Reducing::run_rows;
  } else if (state->columns.width > 1) {
    step.fn = &Reducing::run_columns;
    step.max_parts = int(std::min<int64_t>(step.max_parts, (state->columns.width + 63) / 64));
    step.scratch_per_part = uint64_t(state->columns.width) * sizeof(uint32_t);
  }
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family reduce_q8_family() {
  return {
      {{"Reduce", "quantized", support, lower, nullptr, true}, {"Mean", "quantized", support, lower, nullptr, true}},
      {}};
}

}  // namespace cpuacc
