// Cumulative sums and products, reversed sequences, triangles of matrices, and updates of slices.

#include <algorithm>
#include <cstring>

#include "cpuacc/kernels/accumulate.hpp"
#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

int64_t index_at(const void* data, bool wide, int64_t n) {
  return wide ? static_cast<const int64_t*>(data)[n] : static_cast<const int32_t*>(data)[n];
}

// ---- CumSum and CumProd ---------------------------------------------------------------------------------------------

struct Accumulation {
  AccumulateColumns kernel;
  Accumulate rules;
  Around at;
  int64_t item_size;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Accumulation& self = step.as<Accumulation>();
    const Around& at = self.at;
    const char* in = run.at<char>(step.in[0]);
    char* out = run.at<char>(step.out[0]);
    const Range range = split(at.extent ? at.outer * at.inner : 0, part, parts, at.inner < 64 ? 1 : 16);
    if (at.inner == 1) return self.kernel({in, out, at.extent, 1, range.first, range.last}, self.rules);
    for (int64_t n = range.first; n < range.last;) {
      const int64_t first = n % at.inner, last = std::min(at.inner, first + range.last - n);
      const int64_t offset = n / at.inner * at.extent * at.inner * self.item_size;
      self.kernel({in + offset, out + offset, at.extent, at.inner, first, last}, self.rules);
      n += last - first;
    }
  }
};

Refusal support_accumulation(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (in.is_quantized() || graph.out(node).is_quantized())
    return refused(node.type + " of " + described(in) + " is not supported", IPR_REASON_QUANTIZATION);
  if (accumulate_kernels_for(settings.isa).accumulate(in.dtype)) return without_posts(graph, node, settings);
  return refused(node.type + " of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
}

void lower_accumulation(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Accumulation>();
  state->kernel = accumulate_kernels_for(builder.settings.isa).accumulate(in.dtype);
  state->rules = {node.type == "CumProd", node.flag("exclusive"), node.flag("reverse")};
  state->item_size = int64_t(ipr::item_size(in.dtype));
  state->at = around(in.shape, axis_of(node.integer("axis", -1), in.rank()));
  Step step;
  step.name = label(node);
  step.fn = &Accumulation::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kAccumulateNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- ReverseSequence ------------------------------------------------------------------------------------------------

/// Elements of `kBytes` bytes, or of the number of bytes that is given if that is 0.
template <int64_t kBytes>
struct Item {
  int64_t given;

  int64_t bytes() const { return kBytes ? kBytes : given; }
  void copy(char* to, const char* from) const { std::memcpy(to, from, size_t(bytes())); }
};

/// Dimensions before, between and after the two axes, which may be in either order.
struct Reversal {
  bool wide, time_first;
  int64_t outer, first, middle, second, bytes;

  /// The length of a sequence; the run is ended if it exceeds the steps.
  int64_t length(const Step& step, const Run& run, int64_t sample) const {
    const int64_t times = time_first ? first : second, found = index_at(run.at(step.in[1]), wide, sample);
    if (found >= 0 && found <= times) return found;
    run.fail(1, sample, found, 0, times);
    return 0;
  }

  /// Ends the run if a sequence without elements, of which no row is copied, exceeds the steps.
  void check_lengths(const Step& step, const Run& run) const {
    for (int64_t n = 0; n < (time_first ? second : first); ++n) length(step, run, n);
  }

  /// Elements of one row along the second axis, which is the time.
  template <class T>
  void reverse_row(T item, const char* in, char* out, int64_t length) const {
    for (int64_t n = 0; n < length; ++n) item.copy(out + n * item.bytes(), in + (length - 1 - n) * item.bytes());
    std::memcpy(out + length * item.bytes(), in + length * item.bytes(), size_t((second - length) * item.bytes()));
  }

  /// Elements of one row along the second axis, which are those of all samples at one time.
  template <class T>
  void pick_row(T item, const Step& step, const Run& run, const char* in, char* out, int64_t time) const {
    const int64_t stride = middle * second * item.bytes();
    for (int64_t n = 0; n < second; ++n) {
      const int64_t end = length(step, run, n), from = time < end ? end - 1 - time : time;
      item.copy(out + n * item.bytes(), in + n * item.bytes() + (from - time) * stride);
    }
  }

  template <int64_t kBytes>
  static void run(const Step& step, const Run& run, int part, int parts) {
    const Reversal& self = step.as<Reversal>();
    const Item<kBytes> item{self.bytes};
    if (self.outer == 0 && part == 0) self.check_lengths(step, run);
    const Range range = split(self.outer * self.first * self.middle, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t first = n / self.middle % self.first, offset = n * self.second * item.bytes();
      const char* in = run.at<char>(step.in[0]) + offset;
      char* out = run.at<char>(step.out[0]) + offset;
      if (self.time_first)
        self.pick_row(item, step, run, in, out, first);
      else
        self.reverse_row(item, in, out, self.length(step, run, first));
    }
  }

  Step::Function function() const {
    switch (bytes) {
      case 1:
        return run<1>;
      case 2:
        return run<2>;
      case 4:
        return run<4>;
      case 8:
        return run<8>;
      default:
        return run<0>;
    }
  }
};

void lower_reversal(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &lengths = *builder.graph.in(node, 1);
  const int time = axis_of(node.integer("time_axis"), in.rank());
  const int batch = axis_of(node.integer("batch_axis", 1), in.rank());
  const Around low = around(in.shape, std::min(time, batch)), high = around(in.shape, std::max(time, batch));
  auto state = std::make_shared<Reversal>();
  state->wide = lengths.dtype == IPR_DTYPE_INT64;
  state->time_first = time < batch;
  state->outer = in.elements() ? low.outer : 0;
  state->first = low.extent, state->second = high.extent;
  state->middle = in.elements() ? low.inner / (high.extent * high.inner) : 1;
  state->bytes = high.inner * int64_t(ipr::item_size(in.dtype));
  Step step;
  step.name = label(node);
  step.fn = state->function();
  step.max_parts = parts_for(builder.settings, double(in.bytes()) * cost::kGatheredByteNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Trilu ----------------------------------------------------------------------------------------------------------

struct Triangle {
  const MoveKernels* kernels;
  bool upper;
  int64_t k, matrices, rows, columns, item_size;
  char zero[8];

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Triangle& self = step.as<Triangle>();
    const Range range = split(self.matrices * self.rows, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t row = n % self.rows, at = n * self.columns * self.item_size;
      // The columns before `border` are those of the lower triangle.
      const int64_t border = std::clamp<int64_t>(row + self.k + (self.upper ? 0 : 1), 0, self.columns);
      const int64_t first_kept = self.upper ? border : 0, end = self.upper ? self.columns : border;
      const int64_t zeros = self.upper ? 0 : border, count = self.upper ? border : self.columns - border;
      char* out = run.at<char>(step.out[0]) + at;
      std::memcpy(out + first_kept * self.item_size, run.at<char>(step.in[0]) + at + first_kept * self.item_size,
                  size_t((end - first_kept) * self.item_size));
      self.kernels->fill(out + zeros * self.item_size, self.zero, self.item_size, count);
    }
  }
};

Refusal support_triangle(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& out = graph.out(node);
  if (out.has_axis() || !graph.in(node, 0)->same_quantization(out))
    return refused("Trilu of " + described(out) + " is not supported", IPR_REASON_QUANTIZATION);
  if (out.dtype > IPR_DTYPE_BFLOAT16)
    return refused("Trilu of " + described(out) + " is not supported", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_triangle(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Triangle>();
  state->kernels = &move_kernels_for(builder.settings.isa);
  state->upper = node.flag("upper", true);
  state->columns = in.extent(-1), state->rows = in.extent(-2);
  state->k = std::clamp<int64_t>(node.integer("k"), -state->rows - 1, state->columns + 1);
  state->matrices = in.elements() ? in.elements() / (state->rows * state->columns) : 0;
  state->item_size = int64_t(ipr::item_size(in.dtype));
  const int64_t zero = in.zero_point();  // little endian, so its first bytes are the element
  std::memcpy(state->zero, &zero, sizeof zero);
  Step step;
  step.name = label(node);
  step.fn = &Triangle::run;
  step.max_parts = parts_for(builder.settings, double(in.bytes()) * cost::kContiguousByteNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Updates of slices ----------------------------------------------------------------------------------------------

/// The cache (samples, middle, steps, inner), in which the new steps of each sample begin at a place of its own.
struct CacheUpdate {
  bool wide, circular;
  int64_t samples, middle, steps, added, bytes;

  /// Where the new steps of a sample begin; the run is ended if they do not fit into the cache.
  int64_t start(const Step& step, const Run& run, int64_t sample) const {
    const int64_t first = step.in[1] ? index_at(run.at(step.in[1]), wide, sample) : 0;
    if (!circular && (first < 0 || first > steps - added)) run.fail(2, sample, first, 0, steps - added);
    return first;
  }

  static void check(const Step& step, const Run& run, int, int) {
    const CacheUpdate& self = step.as<CacheUpdate>();
    for (int64_t sample = 0; sample < self.samples; ++sample) self.start(step, run, sample);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const CacheUpdate& self = step.as<CacheUpdate>();
    const char* updates = run.at<char>(step.in[0]);
    const Range range = split(self.samples * self.middle, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t first = self.start(step, run, n / self.middle);
      if (run.fault->is_reported()) return;
      char* row = run.at<char>(step.out[0]) + n * self.steps * self.bytes;
      for (int64_t i = 0; i < self.added; ++i) {
        const int64_t place = (first % self.steps + i + self.steps) % self.steps;
        std::memcpy(row + place * self.bytes, updates + (n * self.added + i) * self.bytes, size_t(self.bytes));
      }
    }
  }
};

Refusal support_cache(const Graph& graph, const Node& node, const Settings& settings) {
  if (!graph.in(node, 1)->same_quantization(graph.out(node)))
    return refused("the tensors have scales that require arithmetic", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_cache(const Node& node, Builder& builder) {
  const Tensor &updates = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  builder.add(duplicate_step(builder, node));
  const int axis = axis_of(node.integer("axis", -2), out.rank());
  const Around at = around(out.shape, axis);
  auto state = std::make_shared<CacheUpdate>();
  const Tensor* start = builder.graph.in(node, 2);
  state->wide = start && start->dtype == IPR_DTYPE_INT64;
  state->circular = node.flag("circular");
  state->samples = out.shape[0];
  state->middle = out.shape[0] ? at.outer / out.shape[0] : 0;
  state->steps = at.extent, state->added = updates.extent(axis);
  state->bytes = at.inner * int64_t(ipr::item_size(out.dtype));
  Step step;
  step.name = label(node);
  step.fn = &CacheUpdate::run;
  step.check = &CacheUpdate::check;
  step.max_parts = parts_for(builder.settings, double(updates.bytes()) * cost::kGatheredByteNs);
  step.in = {builder.buffer(node.inputs[1]), builder.buffer(node.inputs.size() > 2 ? node.inputs[2] : -1)};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

/// A box of the result that an update overwrites, at a place that is data.
struct BoxUpdate {
  const MoveKernels* kernels;
  Box box;
  bool wide;
  Shape steps, free;  // strides in elements, and the largest index of the first element along each axis
  int64_t rows;

  static void run(const Step& step, const Run& run, int, int) {
    const BoxUpdate& self = step.as<BoxUpdate>();
    int64_t offset = 0;
    for (size_t n = 0; n < self.steps.size(); ++n) {
      const int64_t start = index_at(run.at(step.in[1]), self.wide, int64_t(n));
      offset += std::clamp<int64_t>(start, 0, self.free[n]) * self.steps[n];
    }
    self.kernels->copy(self.box, run.at<char>(step.in[0]), run.at<char>(step.out[0]) + offset * self.box.item_size, 0,
                       self.rows);
  }
};

void lower_box_update(const Node& node, Builder& builder) {
  const Tensor &update = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  builder.add(duplicate_step(builder, node));
  auto state = std::make_shared<BoxUpdate>();
  state->kernels = &move_kernels_for(builder.settings.isa);
  state->wide = builder.graph.in(node, 2)->dtype == IPR_DTYPE_INT64;
  state->steps = steps_of(out.shape);
  const Shape from = steps_of(update.shape);
  state->box.rank = update.rank();
  state->box.item_size = int64_t(ipr::item_size(out.dtype));
  for (size_t n = 0; n < from.size(); ++n) {
    state->free.push_back(out.shape[n] - update.shape[n]);
    state->box.extent[n] = update.shape[n];
    state->box.from[n] = from[n] * state->box.item_size;
    state->box.to[n] = state->steps[n] * state->box.item_size;
  }
  state->rows = update.elements() ? update.elements() / update.extent(-1) : 0;
  Step step;
  step.name = label(node);
  step.fn = &BoxUpdate::run;
  step.in = {builder.buffer(node.inputs[1]), builder.buffer(node.inputs[2])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family sequence_family() {
  return {{{"CumSum", "plain", support_accumulation, lower_accumulation, nullptr},
           {"CumProd", "plain", support_accumulation, lower_accumulation, nullptr},
           {"ReverseSequence", "plain", without_posts, lower_reversal, nullptr},
           {"Trilu", "plain", support_triangle, lower_triangle, nullptr},
           {"TensorScatter", "plain", support_cache, lower_cache, nullptr},
           {"DynamicUpdateSlice", "plain", support_cache, lower_box_update, nullptr}},
          {}};
}

}  // namespace cpuacc
