// Unique: distinct elements, or distinct slices along an axis. Elements become keys, which are sorted with their
// places.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "cpuacc/lower/dynamic_result.hpp"
#include "cpuacc/lower/element_key.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

/// A slice by its first key, and its place. Of equal slices, the one with the lower place comes first.
struct Entry {
  uint64_t key;
  int64_t place;
};

constexpr int64_t kFewEntries = 256;  // below this, comparisons take less time than counting bytes

/// Sort entries by their keys, byte by byte from the lowest one; those with equal keys stay in order. Bytes that are
/// the same in all keys take no time. `spare` has memory for as many entries.
void sort_by_bytes(Entry* entries, Entry* spare, int64_t count) {
  constexpr int kBytes = 8, kValues = 256;
  std::array<std::array<int64_t, kValues>, kBytes> counts{};
  auto value = [](const Entry& entry, int byte) { return size_t(entry.key >> (8 * byte) & 255); };
  for (int64_t n = 0; n < count; ++n)
    for (int byte = 0; byte < kBytes; ++byte) ++counts[size_t(byte)][value(entries[n], byte)];
  Entry *from = entries, *to = spare;
  for (int byte = 0; byte < kBytes; ++byte) {
    auto& places = counts[size_t(byte)];
    if (places[value(from[0], byte)] == count) continue;
    std::exclusive_scan(places.begin(), places.end(), places.begin(), int64_t{0});
    for (int64_t n = 0; n < count; ++n) to[places[value(from[n], byte)]++] = from[n];
    std::swap(from, to);
  }
  if (from != entries) std::copy_n(from, count, entries);
}

/// The memory of a run: the keys of all slices, the slices in order, and by group of equal slices the first place and
/// the number of slices; by slice, its group.
struct Groups {
  uint64_t* keys;
  Entry *order, *spare;
  int64_t *first, *counts, *of_slice, *rank;
  int64_t count = 0;
};

struct Distinct {
  ElementKeys keys;
  Shape shape;
  size_t axis;  // of the result
  Around at;    // outer, slices, inner
  bool is_sorted;
  int64_t item_size;
  Integers indices;  // the type of the results that are indices
  DynamicResult results[4];

  int64_t slices() const { return at.extent; }
  int64_t width() const { return at.outer * at.inner; }  // elements of a slice
  uint64_t scratch() const {
    return uint64_t(slices() * width()) * 8 + uint64_t(slices()) * (2 * sizeof(Entry) + 4 * 8);
  }

  Groups groups(char* memory) const {
    Groups all;
    all.order = reinterpret_cast<Entry*>(memory);
    all.spare = all.order + slices();
    all.first = reinterpret_cast<int64_t*>(all.spare + slices());
    all.counts = all.first + slices(), all.of_slice = all.counts + slices(), all.rank = all.of_slice + slices();
    all.keys = reinterpret_cast<uint64_t*>(all.rank + slices());
    return all;
  }

  /// Write the keys of each slice one after another.
  void read_keys(const char* in, uint64_t* to) const {
    if (at.outer == 1) return keys.all(in, 1, slices() * at.inner, to);
    for (int64_t slice = 0; slice < slices(); ++slice)
      for (int64_t outer = 0; outer < at.outer; ++outer, to += at.inner)
        keys.all(in + (outer * at.extent + slice) * at.inner * item_size, 1, at.inner, to);
  }

  int compared(const Groups& all, int64_t a, int64_t b) const {
    const uint64_t *x = all.keys + a * width(), *y = all.keys + b * width();
    for (int64_t n = 0; n < width(); ++n)
      if (x[n] != y[n]) return x[n] < y[n] ? -1 : 1;
    return 0;
  }

  void sort(const Groups& all) const {
    for (int64_t n = 0; n < slices(); ++n) all.order[n] = {width() > 0 ? all.keys[n * width()] : 0, n};
    if (slices() < kFewEntries) return sort_run(all, 0, slices());
    sort_by_bytes(all.order, all.spare, slices());
    for (int64_t n = 0, end = 0; width() > 1 && n < slices(); n = end) {
      while (end < slices() && all.order[end].key == all.order[n].key) ++end;
      sort_run(all, n, end);
    }
  }

  /// Sort entries [first, last) by comparisons.
  void sort_run(const Groups& all, int64_t first, int64_t last) const {
    std::sort(all.order + first, all.order + last, [&](const Entry& a, const Entry& b) {
      if (a.key != b.key) return a.key < b.key;
      const int order = width() > 1 ? compared(all, a.place, b.place) : 0;
      return order < 0 || (order == 0 && a.place < b.place);
    });
  }

  bool are_equal(const Groups& all, const Entry& a, const Entry& b) const {
    return a.key == b.key && (width() == 1 || compared(all, a.place, b.place) == 0);
  }

  void find_groups(Groups& all) const {
    for (int64_t n = 0; n < slices(); ++n) {
      const bool is_new = n == 0 || !are_equal(all, all.order[n - 1], all.order[n]);
      if (is_new) all.first[all.count] = all.order[n].place, all.counts[all.count] = 0, ++all.count;
      ++all.counts[all.count - 1];
      all.of_slice[all.order[n].place] = all.count - 1;
    }
  }

  /// The place of each group among the results: `order[n].place` is the group that is result n, `rank` the opposite.
  void rank(const Groups& all) const {
    for (int64_t n = 0; n < all.count; ++n) all.order[n] = {uint64_t(all.first[n]), n};
    if (!is_sorted)
      std::sort(all.order, all.order + all.count, [](const Entry& a, const Entry& b) { return a.key < b.key; });
    for (int64_t n = 0; n < all.count; ++n) all.rank[all.order[n].place] = n;
  }

  void write_values(const Groups& all, const char* in, char* out) const {
    const size_t bytes = size_t(at.inner * item_size);
    for (int64_t outer = 0; outer < at.outer; ++outer)
      for (int64_t n = 0; n < all.count; ++n, out += bytes)
        std::memcpy(out, in + (outer * at.extent + all.first[all.order[n].place]) * int64_t(bytes), bytes);
  }

  void write_indices(const Groups& all, char* first, char* inverse, char* counts) const {
    for (int64_t n = 0; first && n < all.count; ++n) indices.write(first, n, all.first[all.order[n].place]);
    for (int64_t n = 0; inverse && n < slices(); ++n) indices.write(inverse, n, all.rank[all.of_slice[n]]);
    for (int64_t n = 0; counts && n < all.count; ++n) indices.write(counts, n, all.counts[all.order[n].place]);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Distinct& self = step.as<Distinct>();
    const char* in = run.at<char>(step.in[0]);
    Groups all = self.groups(run.part_scratch<char>(0));
    self.read_keys(in, all.keys);
    self.sort(all);
    self.find_groups(all);
    self.rank(all);
    Shape values = self.shape;
    values[self.axis] = all.count;
    const Shape shapes[4] = {values, {all.count}, {self.slices()}, {all.count}};
    for (size_t n = 0; n < 4; ++n)
      if (!self.results[n].takes(run, 0, shapes[n])) return;
    char* out[4];
    for (size_t n = 0; n < 4; ++n) out[n] = self.results[n].memory(step, run, shapes[n]);
    if (out[0]) self.write_values(all, in, out[0]);
    self.write_indices(all, out[1], out[2], out[3]);
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  if (!ElementKeys(in).is_ordered())
    return refused("Unique of " + described(in) + " is not supported", IPR_REASON_DATA_TYPE);
  if (in.has_axis() || !in.same_quantization(graph.out(node)))
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& in = *graph.in(node, 0);
  auto state = std::make_shared<Distinct>();
  state->keys = ElementKeys(in);
  state->item_size = int64_t(ipr::item_size(in.dtype));
  state->is_sorted = node.flag("sorted", true);
  if (node.has("axis")) {
    state->axis = size_t(axis_of(node.integer("axis"), in.rank()));
    state->shape = in.shape;
    state->at = around(in.shape, int(state->axis));
  } else {
    state->axis = 0, state->shape = {0};
    state->at = {1, in.elements(), 1};
  }
  Step step;
  for (size_t n = 0; n < 4; ++n) {
    state->results[n] = DynamicResult(graph, node, n);
    step.out.push_back(state->results[n].buffer(builder));
    if (n > 0 && n < node.outputs.size() && node.outputs[n] >= 0) state->indices = Integers(graph.out(node, n));
  }
  step.name = "Unique " + node.name;
  step.fn = &Distinct::run;
  step.scratch_per_part = state->scratch();
  step.in = {builder.buffer(node.inputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family unique_family() { return {{{"Unique", "sorted keys", support, lower, nullptr, false, true}}, {}}; }

}  // namespace cpuacc
