// ArgMinMax and TopK.

#include "cpuacc/kernels/select.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpuacc/lower/cost_model.hpp"
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
  int64_t item;

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
      Columns columns{in + slice * at.extent * at.inner * self.item, at.extent, at.inner, column, column + count};
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
  state->item = int64_t(ipr::item_size(in.dtype));
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

struct Top {
  NextBefore next_before;
  int32_t dtype;
  bool least, wide;
  Around at;
  int64_t k, item, room;

  uint64_t scratch() const {
    return uint64_t(room) * sizeof(Candidate) + (at.inner > 1 ? uint64_t(at.extent * item) : 0);
  }

  template <class T>
  void one(const Step& step, const Run& run, char* scratch, int64_t n) const {
    const int64_t outer = n / at.inner, column = n % at.inner;
    const T* in = run.at<T>(step.in[0]) + outer * at.extent * at.inner + column;
    Candidate* best = reinterpret_cast<Candidate*>(scratch);
    if (at.inner > 1) {
      T* row = reinterpret_cast<T*>(best + room);
      for (int64_t i = 0; i < at.extent; ++i) row[i] = in[i * at.inner];
      in = row;
    }
    Row<T>{in, at.extent, k, least, next_before}.select(best, room);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = (outer * k + i) * at.inner + column;
      run.at<T>(step.out[0])[to] = in[best[i].index];
      if (wide)
        run.at<int64_t>(step.out[1])[to] = best[i].index;
      else
        run.at<int32_t>(step.out[1])[to] = int32_t(best[i].index);
    }
  }

  template <class T>
  void all(const Step& step, const Run& run, char* scratch, Range range) const {
    for (int64_t n = range.first; n < range.last; ++n) one<T>(step, run, scratch, n);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Top& self = step.as<Top>();
    const Range range = split(self.k == 0 ? 0 : self.at.outer * self.at.inner, part, parts);
    char* scratch = run.part_scratch<char>(part);
    switch (self.dtype) {
      case IPR_DTYPE_FLOAT32:
        return self.all<float>(step, run, scratch, range);
      case IPR_DTYPE_FLOAT64:
        return self.all<double>(step, run, scratch, range);
      case IPR_DTYPE_INT8:
        return self.all<int8_t>(step, run, scratch, range);
      case IPR_DTYPE_INT16:
        return self.all<int16_t>(step, run, scratch, range);
      case IPR_DTYPE_UINT16:
        return self.all<uint16_t>(step, run, scratch, range);
      case IPR_DTYPE_INT32:
        return self.all<int32_t>(step, run, scratch, range);
      case IPR_DTYPE_UINT32:
        return self.all<uint32_t>(step, run, scratch, range);
      case IPR_DTYPE_INT64:
        return self.all<int64_t>(step, run, scratch, range);
      case IPR_DTYPE_UINT64:
        return self.all<uint64_t>(step, run, scratch, range);
      default:
        return self.all<uint8_t>(step, run, scratch, range);
    }
  }
};

Refusal top_support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!select_kernels_for(settings.isa).next_before(in.dtype))
    return refused("TopK of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  return taken();
}

void lower_top(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  auto state = std::make_shared<Top>();
  state->next_before = select_kernels_for(builder.settings.isa).next_before(in.dtype);
  state->dtype = in.dtype;
  state->least = !node.flag("largest", true);
  state->wide = builder.graph.out(node, 1).dtype == IPR_DTYPE_INT64;
  state->at = around(in.shape, axis_of(node.integer("axis"), in.rank()));
  state->k = node.integer("k");
  state->item = int64_t(ipr::item_size(in.dtype));
  state->room = std::min(state->at.extent, std::max<int64_t>(2 * state->k, state->k + 256));
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

}  // namespace

Family select_family() {
  return {{{"ArgMinMax", "plain", search_support, lower_search, nullptr},
           {"TopK", "plain", top_support, lower_top, nullptr}},
          {}};
}

}  // namespace cpuacc
