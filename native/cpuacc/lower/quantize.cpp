// Quantize, Dequantize, DynamicQuantize and DynamicFakeQuantization.

#include <algorithm>
#include <cmath>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/row_rounding.hpp"
#include "cpuacc/lower/table_q8.hpp"

namespace cpuacc {
namespace {

Refusal no_posts(const Node& node) { return node.posts.empty() ? taken() : refused("takes no post-ops"); }

void add_step(const Node& node, Builder& builder, Step::Function fn, std::shared_ptr<const void> state,
              double element_ns) {
  const Tensor& in = *builder.graph.in(node, 0);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = fn;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * element_ns);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  if (in.bytes() == builder.graph.out(node).bytes()) step.in_place = 0;
  builder.add(std::move(step));
}

/// A table that requantizes from one quantization to another.
Table rescaled(const Tensor& from, const Tensor& to) {
  native::FixedPoint factor = native::quantize_multiplier(double(scale32(from)) / double(scale32(to)));
  Table table;
  for (int bits = 0; bits < 256; ++bits) {
    int64_t code = code_of(bits, from);
    if (!from.same_quantization(to)) code = native::multiply(code - from.zero_point(), factor) + to.zero_point();
    table[size_t(bits)] = clamped(double(code), to);
  }
  return table;
}

// ---- Quantize and Dequantize ----------------------------------------------------------------------------------------

struct Quantizing {
  const ElementwiseQ8Kernels* kernels;
  Q8Quantization quantization;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Quantizing& self = step.as<Quantizing>();
    Range range = split(self.count, part, parts, 64);
    self.kernels->quantize(run.at<float>(step.in[0]) + range.first, run.at<uint8_t>(step.out[0]) + range.first,
                           range.last - range.first, self.quantization);
  }
};

Refusal quantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!has_one_scale(out) || scale32(out) <= 0)
    return refused("the result is " + described(out) + "; takes 8 bits and one scale", IPR_REASON_DATA_TYPE);
  double least = is_signed(out) ? -128 : 0, most = is_signed(out) ? 127 : 255;
  if (double(out.zero_point()) < least || double(out.zero_point()) > most)
    return refused("the zero point is out of range", IPR_REASON_QUANTIZATION);
  if (!is_f32(in) && !both_quantized(in, out)) return refused("the operand is " + described(in), IPR_REASON_DATA_TYPE);
  return no_posts(node);
}

void lower_quantize(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (!is_f32(in)) return add_table_step(node, builder, rescaled(in, out));
  const int64_t zero = out.zero_point();
  Q8Quantization quantization{scale32(out),
                              int32_t(zero),
                              float(lowest_value(out) - zero),
                              float(highest_value(out) - zero),
                              0,
                              node.text("rounding") == "HALF_TO_EVEN"};
  const ElementwiseQ8Kernels* kernels = &elementwise_q8_kernels_for(builder.settings.isa);
  add_step(node, builder, &Quantizing::run,
           std::make_shared<Quantizing>(Quantizing{kernels, quantization, in.elements()}), cost::kQuantizeNs);
}

constexpr int64_t kMaxZero = 1 << 20;  // differences from such zero points are exact in float32

struct Dequantizing {
  const ElementwiseQ8Kernels* kernels;
  bool is_signed;
  float scale;
  int32_t zero;
  int64_t count;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Dequantizing& self = step.as<Dequantizing>();
    Range range = split(self.count, part, parts, 64);
    self.kernels->dequantize(run.at<uint8_t>(step.in[0]) + range.first, run.at<float>(step.out[0]) + range.first,
                             range.last - range.first, self.is_signed, self.scale, self.zero);
  }
};

Refusal dequantize_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!has_one_scale(in) || !is_f32(out))
    return refused("takes quantized values of 8 bits with one scale, and gives float32", IPR_REASON_DATA_TYPE);
  if (std::abs(in.zero_point()) > kMaxZero) return refused("the zero point is out of range", IPR_REASON_QUANTIZATION);
  return no_posts(node);
}

void lower_dequantize(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  const ElementwiseQ8Kernels* kernels = &elementwise_q8_kernels_for(builder.settings.isa);
  Dequantizing state{kernels, is_signed(in), scale32(in), int32_t(in.zero_point()), in.elements()};
  add_step(node, builder, &Dequantizing::run, std::make_shared<Dequantizing>(state), cost::kDequantizeNs);
}

// ---- DynamicQuantize ------------------------------------------------------------------------------------------------

constexpr int64_t kPiece = 1 << 14;  // elements whose range is found at once

/// The results are the quantized values, the scale and the zero point.
struct Dynamic {
  const ElementwiseQ8Kernels* kernels;
  int64_t count;

  int64_t pieces() const { return (count + kPiece - 1) / kPiece; }

  static void find_ranges(const Step& step, const Run& run, int part, int parts) {
    const Dynamic& self = step.as<Dynamic>();
    const float* in = run.at<float>(step.in[0]);
    Range range = split(self.pieces(), part, parts);
    for (int64_t n = range.first; n < range.last; ++n)
      self.kernels->find_range(in + n * kPiece, std::min(kPiece, self.count - n * kPiece),
                               run.at<float>(step.out[0]) + 2 * n);
  }

  static void quantize(const Step& step, const Run& run, int part, int parts) {
    const Dynamic& self = step.as<Dynamic>();
    const float* in = run.at<float>(step.in[0]);
    float own[2] = {0, 0};
    if (!step.in[1]) self.kernels->find_range(in, self.count, own);
    Q8Quantization q = self.quantization(step.in[1] ? run.at<float>(step.in[1]) : own, step.in[1] ? self.pieces() : 1);
    Range range = split(self.count, part, parts, 64);
    self.kernels->quantize(in + range.first, run.at<uint8_t>(step.out[0]) + range.first, range.last - range.first, q);
    if (part > 0) return;
    if (step.out[1]) *run.at<float>(step.out[1]) = q.scale;
    if (step.out[2]) *run.at<uint8_t>(step.out[2]) = uint8_t(q.zero);
  }

 private:
  /// Divide the range of the pieces into 255 steps.
  static Q8Quantization quantization(const float* ranges, int64_t pieces) {
    float low = 0, high = 0;
    for (int64_t n = 0; n < pieces; ++n) {
      if (!(ranges[2 * n] >= low)) low = ranges[2 * n];
      if (!(ranges[2 * n + 1] <= high)) high = ranges[2 * n + 1];
      if (ranges[2 * n] != ranges[2 * n]) break;
    }
    return dynamic_quantization(low, high);
  }
};

Refusal dynamic_support(const Graph& graph, const Node& node, const Settings&) {
  if (!is_f32(*graph.in(node, 0)))
    return refused("the operand is " + described(*graph.in(node, 0)), IPR_REASON_DATA_TYPE);
  return no_posts(node);
}

void lower_dynamic(const Node& node, Builder& builder) {
  const int64_t count = builder.graph.in(node, 0)->elements();
  auto state = std::make_shared<Dynamic>(Dynamic{&elementwise_q8_kernels_for(builder.settings.isa), count});
  Step step;
  step.name = node.type + " " + node.name;
  step.state = state;
  step.in = {builder.buffer(node.inputs[0])};
  step.max_parts = parts_for(builder.settings, double(count) * cost::kQuantizeNs);
  Buffer ranges;
  if (step.max_parts > 1 && state->pieces() > 1) {
    ranges = builder.temporary(uint64_t(state->pieces()) * 2 * sizeof(float));
    Step first = step;
    first.fn = &Dynamic::find_ranges;
    first.max_parts = int(std::min<int64_t>(step.max_parts, state->pieces()));
    first.out = {ranges};
    builder.add(std::move(first));
  }
  step.fn = &Dynamic::quantize;
  if (!ranges) step.max_parts = 1;
  step.in.push_back(ranges);
  for (int tensor : node.outputs) step.out.push_back(builder.buffer(tensor));
  builder.add(std::move(step));
}

// ---- DynamicFakeQuantization ----------------------------------------------------------------------------------------

/// Rows of contiguous elements that have one scale each. A row is divided into pieces, whose ranges are found first.
struct Rounding {
  RowRounding rounding;
  int64_t rows, size;

  int64_t pieces() const { return (size + kPiece - 1) / kPiece; }
  int64_t length(int64_t piece) const { return std::min(kPiece, size - piece * kPiece); }

  static void find_ranges(const Step& step, const Run& run, int part, int parts) {
    const Rounding& self = step.as<Rounding>();
    Range range = split(self.rows * self.pieces(), part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t row = n / self.pieces(), piece = n % self.pieces();
      self.rounding.elementwise->find_range(run.at<float>(step.in[0]) + row * self.size + piece * kPiece,
                                            self.length(piece), run.at<float>(step.out[0]) + 2 * n);
    }
  }

  static void round(const Step& step, const Run& run, int part, int parts) {
    const Rounding& self = step.as<Rounding>();
    Range range = split(self.rows * self.pieces(), part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t row = n / self.pieces(), piece = n % self.pieces(), from = row * self.size + piece * kPiece;
      self.round_piece(run.at<float>(step.in[0]) + from, run.at<float>(step.out[0]) + from, self.length(piece),
                       run.at<float>(step.in[1]) + 2 * row * self.pieces());
    }
  }

  static void round_rows(const Step& step, const Run& run, int part, int parts) {
    const Rounding& self = step.as<Rounding>();
    Range range = split(self.rows, part, parts);
    for (int64_t row = range.first; row < range.last; ++row) {
      const int64_t from = row * self.size;
      self.rounding.row(run.at<float>(step.in[0]) + from, run.at<float>(step.out[0]) + from, self.size);
    }
  }

 private:
  /// Round a piece of a row with these ranges of pieces.
  void round_piece(const float* in, float* out, int64_t count, const float* ranges) const {
    float low = 0, high = 0;
    for (int64_t n = 0; n < pieces(); ++n) {
      if (ranges[2 * n] != ranges[2 * n]) low = high = ranges[2 * n];
      if (ranges[2 * n] < low) low = ranges[2 * n];
      if (ranges[2 * n + 1] > high) high = ranges[2 * n + 1];
    }
    rounding.elements(in, out, count, low, high);
  }
};

/// The number of trailing axes that `axes` lists, or -1 if it lists others; no axes stand for all.
int64_t trailing_axes(const std::vector<int64_t>& axes, int64_t rank) {
  if (axes.empty()) return rank;
  std::vector<bool> listed(size_t(rank), false);
  for (int64_t axis : axes) listed[size_t(axis < 0 ? axis + rank : axis)] = true;
  const int64_t count = std::count(listed.begin(), listed.end(), true);
  return std::all_of(listed.end() - count, listed.end(), [](bool is_listed) { return is_listed; }) ? count : -1;
}

Refusal rounding_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor& in = *graph.in(node, 0);
  if (!is_f32(in)) return refused("the operand is " + described(in), IPR_REASON_DATA_TYPE);
  if (trailing_axes(node.integers("axes"), in.rank()) < 0)
    return refused("takes the last axes only", IPR_REASON_ATTRIBUTE);
  return no_posts(node);
}

/// Rows that are whole images may be blocked if all blocks are full, since a range must not include the padding.
Layouts rounding_layouts(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!is_blocked(in.layout) || trailing_axes(node.integers("axes"), in.rank()) < in.rank() - 1) return {};
  if (in.extent(channel_axis_of(in.layout, int(in.rank()))) % kBlock != 0) return {};
  return follow_blocked(graph, node, settings);
}

void lower_rounding(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  if (in.elements() == 0) return;
  const int64_t axes = trailing_axes(node.integers("axes"), in.rank());
  int64_t size = 1;
  for (int64_t axis = in.rank() - axes; axis < in.rank(); ++axis) size *= in.shape[size_t(axis)];
  const int parts = parts_for(builder.settings, double(in.elements()) * cost::kRoundToStepsNs);
  auto state = std::make_shared<Rounding>(
      Rounding{RowRounding(builder.settings.isa, node.flag("asymmetric")), in.elements() / size, size});
  Step step;
  step.name = node.type + " " + node.name;
  step.state = state;
  step.in = {builder.buffer(node.inputs[0])};
  step.max_parts = parts;
  if (step.max_parts == 1 || state->rows >= 4 * step.max_parts || state->pieces() == 1) {
    step.fn = &Rounding::round_rows;
    step.out = {builder.buffer(node.outputs[0])};
    step.in_place = 0;
    return builder.add(std::move(step));
  }
  Buffer ranges = builder.temporary(uint64_t(state->rows * state->pieces()) * 2 * sizeof(float));
  Step first = step;
  first.fn = &Rounding::find_ranges;
  first.out = {ranges};
  builder.add(std::move(first));
  step.fn = &Rounding::round;
  step.in.push_back(ranges);
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  builder.add(std::move(step));
}

}  // namespace

Family quantize_family() {
  return {{{"Quantize", "plain", quantize_support, lower_quantize, nullptr},
           {"Dequantize", "plain", dequantize_support, lower_dequantize, nullptr},
           {"DynamicQuantize", "plain", dynamic_support, lower_dynamic, nullptr},
           {"DynamicFakeQuantization", "plain", rounding_support, lower_rounding, rounding_layouts}},
          {}};
}

}  // namespace cpuacc
