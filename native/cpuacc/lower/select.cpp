// ArgMinMax, TopK and DynamicTopK.

#include "cpuacc/kernels/select.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/dynamic_result.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

// ---- ArgMinMax ------------------------------------------------------------------------------------------------------

struct Finding {
  SearchColumns kernel;
  Search search;
  bool wide;  // indices are int64
  Around at;
  int64_t item_size;

  /// Search `count` columns or rows at once, and write their indices at `n`.
  void piece(const Step& step, const Run& run, Columns columns, int64_t n) const {
    constexpr int64_t kPiece = 1024;
    int32_t found[kPiece];
    for (int64_t end = columns.last; columns.first < end; columns.first = columns.last) {
      columns.last = std::min(columns.first + kPiece, end);
      const int64_t count = columns.last - columns.first;
      kernel(columns, search, found);
      if (wide)
        std::copy_n(found, count, run.at<int64_t>(step.out[0]) + n);
      else
        std::copy_n(found, count, run.at<int32_t>(step.out[0]) + n);
      n += count;
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Finding& self = step.as<Finding>();
    const Around& at = self.at;
    Range range = split(at.outer * at.inner, part, parts, 64);
    const char* in = run.at<char>(step.in[0]);
    if (at.inner == 1) return self.piece(step, run, {in, at.extent, 1, range.first, range.last}, range.first);
    for (int64_t n = range.first; n < range.last;) {
      const int64_t slice = n / at.inner, column = n % at.inner, count = std::min(at.inner - column, range.last - n);
      Columns columns{in + slice * at.extent * at.inner * self.item_size, at.extent, at.inner, column, column + count};
      self.piece(step, run, columns, n);
      n += count;
    }
  }
};

Refusal search_support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!select_kernels_for(settings.isa).search(in.dtype))
    return refused("ArgMinMax of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  if (in.extent(axis_of(node.integer("axis"), in.rank())) > INT32_MAX)
    return refused("the axis has more than 2**31 - 1 elements", IPR_REASON_SHAPE);
  return taken();
}

void lower_search(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Finding>();
  state->kernel = select_kernels_for(builder.settings.isa).search(in.dtype);
  state->search = {node.text("function") == "MIN", node.flag("select_last_index")};
  state->wide = builder.graph.out(node).dtype == IPR_DTYPE_INT64;
  state->at = around(in.shape, axis_of(node.integer("axis"), in.rank()));
  state->item_size = int64_t(ipr::item_size(in.dtype));
  Step step;
  step.name = label(node);
  step.fn = &Finding::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kSearchNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- TopK -----------------------------------------------------------------------------------------------------------

/// A number for each element, which is larger if the element is larger. All NaNs have the largest one.
uint64_t key_of(float x) {
  uint32_t bits;
  x = x != x ? NAN : x + 0.0f;  // one NaN, and no -0
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return UINT32_MAX;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
uint64_t key_of(double x) {
  uint64_t bits;
  x += 0.0;  // no -0
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return UINT64_MAX;
  return bits >> 63 ? ~bits : bits | uint64_t(1) << 63;
}
template <class T>
uint64_t key_of(T x) {
  return uint64_t(int64_t(x)) - uint64_t(int64_t(std::numeric_limits<T>::min()));
}

/// An element and its index. The one with the larger key comes first; of equal keys, the one with the lower index.
struct Candidate {
  uint64_t key;
  int64_t index;

  bool operator<(const Candidate& other) const { return key > other.key || (key == other.key && index < other.index); }
};

/// One row of a `TopK`, gathered from a column if elements are not adjacent.
template <class T>
struct Row {
  const T* values;
  int64_t count, k;
  bool least;
  NextBefore next_before;

  Candidate candidate(int64_t n) const {
    const uint64_t key = key_of(values[n]);
    return {least ? ~key : key, n};
  }

  /// Keep the best `k` candidates in order, which takes little time if `k` is small.
  void insert(Candidate* best) const {
    for (int64_t n = 0; n < k; ++n) best[n] = candidate(n);
    std::sort(best, best + k);
    for (int64_t next = k; next < count; ++next) {
      const T threshold = values[best[k - 1].index];
      next = next_before(values, next, count, &threshold, least);
      if (next == count) return;
      const Candidate added = candidate(next);
      int64_t place = k - 1;
      for (; place > 0 && added < best[place - 1]; --place) best[place] = best[place - 1];
      best[place] = added;
    }
  }

  /// Put the best `k` candidates first, in order. `best` has memory for `room` candidates.
  void select(Candidate* best, int64_t room) const {
    constexpr int64_t kFew = 16;
    if (k <= kFew) return insert(best);
    int64_t held = std::min(count, room), next = held;
    for (int64_t n = 0; n < held; ++n) best[n] = candidate(n);
    while (next < count) {
      std::nth_element(best, best + k - 1, best + held);
      const T threshold = values[best[k - 1].index];
      for (held = k; held < room; ++held) {
        next = next_before(values, next, count, &threshold, least);
        if (next == count) break;
        best[held] = candidate(next++);
      }
    }
    if (held > k) std::nth_element(best, best + k - 1, best + held);
    std::sort(best, best + k);
  }
};

/// The operand and the results of a `TopK`.
struct TopData {
  const char* in;
  char *values, *indices;
};

struct Top {
  NextBefore next_before;
  SelectTop select_top;
  int32_t dtype;
  bool least, wide;
  Around at;
  int64_t k, item_size, room;

  /// Select `count` elements of each row.
  void choose(int64_t count) { k = count, room = std::min(at.extent, std::max<int64_t>(2 * count, count + 256)); }

  /// Columns that are gathered together, which fill a cache line.
  int64_t together() const { return at.inner > 1 ? 64 / item_size : 1; }

  uint64_t scratch() const {
    const uint64_t rows = at.inner > 1 ? uint64_t(together() * at.extent * item_size) : 0;
    const uint64_t columns =
        uint64_t(std::min(k, kMostTop) * kMostTopColumns) * (uint64_t(item_size) + sizeof(int32_t));
    return std::max(uint64_t(room) * sizeof(Candidate) + rows, at.inner >= kTopColumns ? columns : 0);
  }

  /// The columns of the piece that are searched in vectors: a multiple of `kTopColumns`; 0 if there are too few.
  int64_t beside(int64_t count) const {
    const bool fits = k <= kMostTop && at.extent <= INT32_MAX;
    return fits ? std::min(count / kTopColumns * kTopColumns, kMostTopColumns) : 0;
  }

  /// Select the elements of `count` adjacent columns of one slice, a multiple of `kTopColumns`.
  void columns(const TopData& data, char* scratch, int64_t outer, int64_t first, int64_t count) const {
    const char* in = data.in + (outer * at.extent * at.inner + first) * item_size;
    int32_t* found = reinterpret_cast<int32_t*>(scratch);
    char* values = scratch + uint64_t(k * count) * sizeof *found;
    select_top({in, at.extent, at.inner, count, k, least}, values, found);
    for (int64_t i = 0; i < k; ++i, found += count, values += count * item_size) {
      const int64_t to = (outer * k + i) * at.inner + first;
      if (data.values) std::memcpy(data.values + to * item_size, values, size_t(count * item_size));
      if (!data.indices) continue;
      if (wide)
        std::copy_n(found, count, reinterpret_cast<int64_t*>(data.indices) + to);
      else
        std::copy_n(found, count, reinterpret_cast<int32_t*>(data.indices) + to);
    }
  }

  /// Select the elements of a column, whose elements are contiguous in `row`.
  template <class T>
  void one(const TopData& data, Candidate* best, const T* row, int64_t outer, int64_t column) const {
    Row<T>{row, at.extent, k, least, next_before}.select(best, room);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = (outer * k + i) * at.inner + column;
      if (data.values) reinterpret_cast<T*>(data.values)[to] = row[best[i].index];
      if (!data.indices) continue;
      if (wide)
        reinterpret_cast<int64_t*>(data.indices)[to] = best[i].index;
      else
        reinterpret_cast<int32_t*>(data.indices)[to] = int32_t(best[i].index);
    }
  }

  /// Select the elements of up to `together` columns of one slice, of which the first is column `first`.
  template <class T>
  void some(const TopData& data, char* scratch, int64_t outer, int64_t first, int64_t count) const {
    const T* in = reinterpret_cast<const T*>(data.in) + outer * at.extent * at.inner + first;
    Candidate* best = reinterpret_cast<Candidate*>(scratch);
    T* rows_of_columns = reinterpret_cast<T*>(best + room);
    if (at.inner == 1) return one<T>(data, best, in, outer, first);
    for (int64_t i = 0; i < at.extent; ++i)
      for (int64_t c = 0; c < count; ++c) rows_of_columns[c * at.extent + i] = in[i * at.inner + c];
    for (int64_t c = 0; c < count; ++c) one<T>(data, best, rows_of_columns + c * at.extent, outer, first + c);
  }

  template <class T>
  void all(const TopData& data, char* scratch, Range range) const {
    for (int64_t n = range.first, count = 0; n < range.last; n += count) {
      const int64_t column = n % at.inner, left = std::min(at.inner - column, range.last - n);
      if ((count = beside(left)) > 0) {
        columns(data, scratch, n / at.inner, column, count);
      } else {
        count = std::min(together(), left);
        some<T>(data, scratch, n / at.inner, column, count);
      }
    }
  }

  int64_t rows() const { return k == 0 ? 0 : at.outer * at.inner; }

  void rows_of(const TopData& data, char* scratch, Range range) const {
    switch (dtype) {
      case IPR_DTYPE_FLOAT32:
        return all<float>(data, scratch, range);
      case IPR_DTYPE_FLOAT64:
        return all<double>(data, scratch, range);
      case IPR_DTYPE_INT8:
        return all<int8_t>(data, scratch, range);
      case IPR_DTYPE_INT16:
        return all<int16_t>(data, scratch, range);
      case IPR_DTYPE_UINT16:
        return all<uint16_t>(data, scratch, range);
      case IPR_DTYPE_INT32:
        return all<int32_t>(data, scratch, range);
      case IPR_DTYPE_UINT32:
        return all<uint32_t>(data, scratch, range);
      case IPR_DTYPE_INT64:
        return all<int64_t>(data, scratch, range);
      case IPR_DTYPE_UINT64:
        return all<uint64_t>(data, scratch, range);
      default:
        return all<uint8_t>(data, scratch, range);
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Top& self = step.as<Top>();
    const TopData data{run.at<char>(step.in[0]), run.at<char>(step.out[0]), run.at<char>(step.out[1])};
    self.rows_of(data, run.part_scratch<char>(part), split(self.rows(), part, parts));
  }
};

Refusal top_support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!select_kernels_for(settings.isa).next_before(in.dtype))
    return refused("TopK of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  return taken();
}

Top top_of(const Node& node, const Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  Top top{};
  top.next_before = select_kernels_for(builder.settings.isa).next_before(in.dtype);
  top.select_top = select_kernels_for(builder.settings.isa).top(in.dtype);
  top.dtype = in.dtype;
  top.least = !node.flag("largest", true);
  top.wide = builder.graph.out(node, 1).dtype == IPR_DTYPE_INT64;
  top.at = around(in.shape, axis_of(node.integer("axis", -1), in.rank()));
  top.item_size = int64_t(ipr::item_size(in.dtype));
  return top;
}

void lower_top(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Top>(top_of(node, builder));
  state->choose(node.integer("k"));
  const bool sorts = state->k > 64;
  Step step;
  step.name = label(node);
  step.fn = &Top::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * (sorts ? cost::kSortNs : cost::kSearchNs));
  step.scratch_per_part = state->scratch();
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0]), builder.buffer(node.outputs[1])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- DynamicTopK ----------------------------------------------------------------------------------------------------

struct DynamicTop {
  Top top;
  Shape shape;
  size_t axis;
  Integers k;
  DynamicResult values, indices;

  static void run(const Step& step, const Run& run, int, int) {
    const DynamicTop& self = step.as<DynamicTop>();
    Top top = self.top;
    const int64_t count = self.k.at(run, step.in[1], 0);
    if (count < 0 || count > top.at.extent) return run.fail(1, 0, count, 0, top.at.extent);
    top.choose(count);
    Shape shape = self.shape;
    shape[self.axis] = count;
    if (!self.values.takes(run, 1, shape) || !self.indices.takes(run, 1, shape)) return;
    char* values = self.values.memory(step, run, shape);
    char* indices = self.indices.memory(step, run, shape);
    top.rows_of({run.at<char>(step.in[0]), values, indices}, run.part_scratch<char>(0), {0, top.rows()});
  }
};

Refusal dynamic_top_support(const Graph& graph, const Node& node, const Settings& settings) {
  if (graph.in(node, 0)->has_axis()) return refused("scales along an axis are not taken", IPR_REASON_QUANTIZATION);
  return top_support(graph, node, settings);
}

void lower_dynamic_top(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<DynamicTop>();
  state->top = top_of(node, builder);
  state->shape = in.shape;
  state->axis = size_t(axis_of(node.integer("axis", -1), in.rank()));
  state->k = Integers(*builder.graph.in(node, 1));
  state->values = DynamicResult(builder.graph, node, 0), state->indices = DynamicResult(builder.graph, node, 1);
  state->top.choose(state->top.at.extent);  // for the most scratch memory
  Step step;
  step.name = label(node);
  step.fn = &DynamicTop::run;
  step.scratch_per_part = state->top.scratch();
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {state->values.buffer(builder), state->indices.buffer(builder)};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family select_family() {
  return {{{"ArgMinMax", "plain", search_support, lower_search, nullptr},
           {"TopK", "plain", top_support, lower_top, nullptr},
           {"DynamicTopK", "plain", dynamic_top_support, lower_dynamic_top, nullptr, false, true}},
          {}};
}

}  // namespace cpuacc
