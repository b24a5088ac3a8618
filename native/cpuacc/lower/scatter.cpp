// Elements at indices that are data: GatherNd, GatherElements, ScatterNd and ScatterElements.

#include <algorithm>
#include <cstring>
#include <optional>

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

/// An operand of indices, int32 or int64.
struct Indices {
  const void* data;
  bool wide;

  int64_t operator[](int64_t n) const {
    return wide ? static_cast<const int64_t*>(data)[n] : static_cast<const int32_t*>(data)[n];
  }
};

constexpr int kIndices = 1;  // the operand of indices, of all layers of this family

/// Return the index `index` of the element `at`, counted from the front; end the run and return 0 if it is out of
/// range.
inline int64_t checked(int64_t index, int64_t at, int64_t extent, const Run& run) {
  const int64_t from_front = index < 0 ? index + extent : index;
  if (uint64_t(from_front) < uint64_t(extent)) return from_front;
  run.fail(kIndices, at, index, -extent, extent - 1);
  return 0;
}

bool is_index(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT32 || tensor.dtype == IPR_DTYPE_INT64; }
bool is_wide(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT64; }

int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t elements = 1;
  for (size_t n = first; n < last; ++n) elements *= shape[n];
  return elements;
}

/// Tuples of indices along leading axes, such as those of GatherNd.
struct Tuples {
  bool wide;
  Shape extents, steps;  // of the axes that are indexed; steps are in rows

  /// The row that a tuple refers to.
  int64_t row(const Indices& indices, int64_t tuple, const Run& run) const {
    int64_t found = 0;
    const int64_t depth = int64_t(extents.size());
    for (int64_t n = 0; n < depth; ++n)
      found += checked(indices[tuple * depth + n], tuple * depth + n, extents[size_t(n)], run) * steps[size_t(n)];
    return found;
  }

  /// The row of a tuple whose indices are known to be in range.
  template <class Index>
  int64_t row_of(const Index* tuple) const {
    int64_t found = 0;
    for (size_t n = 0; n < extents.size(); ++n) found += (tuple[n] < 0 ? tuple[n] + extents[n] : tuple[n]) * steps[n];
    return found;
  }

  /// The row outside of runs; nothing if an index is out of range.
  std::optional<int64_t> known_row(const Indices& indices, int64_t tuple) const {
    int64_t found = 0;
    const int64_t depth = int64_t(extents.size());
    for (int64_t n = 0; n < depth; ++n) {
      const int64_t index = indices[tuple * depth + n], extent = extents[size_t(n)];
      if (index < -extent || index >= extent) return std::nullopt;
      found += (index < 0 ? index + extent : index) * steps[size_t(n)];
    }
    return found;
  }
};

Tuples tuples_of(const Tensor& indices, const Shape& shape, size_t batch) {
  Tuples found;
  found.wide = is_wide(indices);
  const size_t depth = size_t(indices.extent(-1));
  found.extents.assign(shape.begin() + long(batch), shape.begin() + long(batch + depth));
  found.steps = steps_of(found.extents);
  return found;
}

/// Consecutive tuples, from `first` on, that refer to consecutive rows.
struct Stretch {
  int64_t first, row, count;
};

/// The stretches of `count` constant tuples, of which each batch has `per_batch` and refers to `batch_rows` rows. Empty
/// if the indices are no constant, if most stretches are short, or if an index is out of range.
std::vector<Stretch> stretches_of(const Tuples& tuples, const Tensor& indices, int64_t count, int64_t per_batch,
                                  int64_t batch_rows) {
  constexpr int64_t kLeastLength = 4;  // on average
  if (!indices.is_constant()) return {};
  const Indices all{indices.aligned(ipr::item_size(indices.dtype)), tuples.wide};
  std::vector<Stretch> found;
  for (int64_t n = 0; n < count; ++n) {
    const std::optional<int64_t> row = tuples.known_row(all, n);
    if (!row) return {};
    const int64_t place = n / per_batch * batch_rows + *row;
    if (!found.empty() && found.back().row + found.back().count == place)
      ++found.back().count;
    else
      found.push_back({n, place, 1});
    if (int64_t(found.size()) * kLeastLength > count + kLeastLength) return {};
  }
  return found;
}

Refusal plain(const Graph& graph, const Node& node) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!is_index(*graph.in(node, 1))) return refused("indices are of another type", IPR_REASON_DATA_TYPE);
  if (graph.in(node, 0)->elements() == 0 && graph.in(node, 1)->elements() > 0)
    return refused("there are indices, but no elements", IPR_REASON_SHAPE);
  return taken();
}

// ---- GatherNd -------------------------------------------------------------------------------------------------------

struct GatherRows {
  Tuples tuples;
  int64_t count, per_batch, batch_rows, bytes;  // tuples, tuples and rows of one batch, bytes of a row
  std::vector<Stretch> stretches;               // of constant indices, which the step does not read then

  static void run_stretches(const Step& step, const Run& run, int part, int parts) {
    const GatherRows& self = step.as<GatherRows>();
    const Range own = split(self.count, part, parts);
    for (const Stretch& stretch : self.stretches) {
      const int64_t first = std::max(stretch.first, own.first);
      const int64_t last = std::min(stretch.first + stretch.count, own.last);
      if (first >= last) continue;
      std::memcpy(run.at<char>(step.out[0]) + first * self.bytes,
                  run.at<char>(step.in[0]) + (stretch.row + first - stretch.first) * self.bytes,
                  size_t((last - first) * self.bytes));
    }
  }

  template <int64_t kBytes>
  void pick(const Step& step, const Run& run, Range range) const {
    const int64_t size = kBytes ? kBytes : bytes;
    const char* in = run.at<char>(step.in[0]);
    char* out = run.at<char>(step.out[0]);
    const Indices indices{run.at(step.in[1]), tuples.wide};
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t row = n / per_batch * batch_rows + tuples.row(indices, n, run);
      std::memcpy(out + n * size, in + row * size, size_t(size));
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const GatherRows& self = step.as<GatherRows>();
    const Range range = split(self.count, part, parts);
    switch (self.bytes) {
      case 1:
        return self.pick<1>(step, run, range);
      case 2:
        return self.pick<2>(step, run, range);
      case 4:
        return self.pick<4>(step, run, range);
      case 8:
        return self.pick<8>(step, run, range);
      default:
        return self.pick<0>(step, run, range);
    }
  }
};

Refusal support_gather(const Graph& graph, const Node& node, const Settings&) { return plain(graph, node); }

void lower_gather_nd(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &indices = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  const size_t batch = size_t(node.integer("batch_dims")), depth = size_t(indices.extent(-1));
  auto state = std::make_shared<GatherRows>();
  state->tuples = tuples_of(indices, in.shape, batch);
  const int64_t batches = product(indices.shape, 0, batch);
  state->count = out.elements() ? product(indices.shape, 0, indices.shape.size() - 1) : 0;
  state->per_batch = std::max<int64_t>(1, batches ? state->count / batches : 0);
  state->batch_rows = product(in.shape, batch, batch + depth);
  state->bytes = product(in.shape, batch + depth, in.shape.size()) * int64_t(ipr::item_size(in.dtype));
  Step step;
  step.name = label(node);
  state->stretches = stretches_of(state->tuples, indices, state->count, state->per_batch, state->batch_rows);
  const bool known = !state->stretches.empty();
  const double moved = double(known ? state->stretches.size() : size_t(state->count));
  step.fn = known ? &GatherRows::run_stretches : &GatherRows::run;
  step.max_parts = parts_for(builder.settings, double(out.bytes()) * cost::kGatheredByteNs + moved * cost::kIndexedNs);
  step.in = {builder.buffer(node.inputs[0])};
  if (!known) step.in.push_back(builder.buffer(node.inputs[1]));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Elements along an axis -----------------------------------------------------------------------------------------

/// Elements (i, j, k) of indices, whose places in another tensor are (i, indices[i, j, k], k). Its other dimensions may
/// be larger than those of the indices.
class Elements {
 public:
  bool wide;
  Shape shape, steps;  // dimensions of the indices, and strides of the other tensor
  size_t axis;
  int64_t extent;

  /// Call function(n, place) for the elements [first, last) of the indices.
  template <class Function>
  void each(const void* indices, const Run& run, Range range, Function function) const {
    if (wide)
      each_of(static_cast<const int64_t*>(indices), run, range, function);
    else
      each_of(static_cast<const int32_t*>(indices), run, range, function);
  }

 private:
  template <class Index, class Function>
  void each_of(const Index* indices, const Run& run, Range range, Function function) const {
    const int64_t row = shape.back(), by_index = steps[axis];
    const int64_t along = axis + 1 == shape.size() ? 0 : steps.back();
    for (int64_t n = range.first; n < range.last;) {
      int64_t place = 0, rest = n / row;
      for (size_t at = shape.size() - 1; at-- > 0; rest /= shape[at])
        if (at != axis) place += rest % shape[at] * steps[at];
      const int64_t end = std::min(range.last, (n / row + 1) * row);
      place += n % row * along;
      for (; n < end; ++n, place += along) {
        const int64_t signed_index = indices[n], index = signed_index + (signed_index < 0 ? extent : 0);
        const bool wrong = uint64_t(index) >= uint64_t(extent);
        if (wrong) run.fail(kIndices, n, signed_index, -extent, extent - 1);
        function(n, place + (wrong ? 0 : index) * by_index);
      }
    }
  }
};

Elements elements_of(const Node& node, const Tensor& tensor, const Tensor& indices) {
  Elements found;
  found.wide = is_wide(indices);
  found.shape = indices.shape;
  found.steps = steps_of(tensor.shape);
  found.axis = size_t(axis_of(node.integer("axis"), tensor.rank()));
  found.extent = tensor.shape[found.axis];
  return found;
}

struct GatherElements {
  Elements elements;
  int64_t count, item_size;

  template <class T>
  void pick(const Step& step, const Run& run, Range range) const {
    const T* in = run.at<T>(step.in[0]);
    T* out = run.at<T>(step.out[0]);
    elements.each(run.at(step.in[1]), run, range, [&](int64_t n, int64_t at) { out[n] = in[at]; });
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const GatherElements& self = step.as<GatherElements>();
    const Range range = split(self.count, part, parts);
    by_item_size(self.item_size, [&](auto item) { self.pick<decltype(item)>(step, run, range); });
  }
};

void lower_gather_elements(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &indices = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  auto state = std::make_shared<GatherElements>();
  state->elements = elements_of(node, in, indices);
  state->count = out.elements();
  state->item_size = int64_t(ipr::item_size(in.dtype));
  Step step;
  step.name = label(node);
  step.fn = &GatherElements::run;
  step.max_parts = parts_for(builder.settings, double(state->count) * cost::kIndexedNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Scatter --------------------------------------------------------------------------------------------------------

enum class Combine { update, add, sub, max, min, mul, none };

Combine combine_of(const Node& node) {
  const std::string_view names[] = {"UPDATE", "ADD", "SUB", "MAX", "MIN", "MUL"};
  const std::string_view name = node.text("function");
  return Combine(std::find(std::begin(names), std::end(names), name) - std::begin(names));
}

// clang-format off
template <class T> struct Wrapped { using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>; };
template <> struct Wrapped<float> { using U = float; };
template <> struct Wrapped<double> { using U = double; };
// clang-format on

template <Combine kCombine, class T>
T combined(T old, T change) {
  using U = typename Wrapped<T>::U;
  if constexpr (kCombine == Combine::update) return change;
  if constexpr (kCombine == Combine::add) return T(U(old) + U(change));
  if constexpr (kCombine == Combine::sub) return T(U(old) - U(change));
  if constexpr (kCombine == Combine::mul) return T(U(old) * U(change));
  if constexpr (kCombine == Combine::max) return old > change || old != old ? old : change;
  if constexpr (kCombine == Combine::min) return old < change || old != old ? old : change;
}

/// Combine `count` adjacent elements of the result with updates.
using Write = void (*)(char* out, const char* updates, int64_t count);

template <Combine kCombine, class T>
void write(char* out, const char* updates, int64_t count) {
  T* to = reinterpret_cast<T*>(out);
  const T* from = reinterpret_cast<const T*>(updates);
  for (int64_t n = 0; n < count; ++n) to[n] = combined<kCombine>(to[n], from[n]);
}

template <class T>
Write writer_of(Combine combine) {
  switch (combine) {
    case Combine::add:
      return write<Combine::add, T>;
    case Combine::sub:
      return write<Combine::sub, T>;
    case Combine::max:
      return write<Combine::max, T>;
    case Combine::min:
      return write<Combine::min, T>;
    case Combine::mul:
      return write<Combine::mul, T>;
    default:
      return nullptr;
  }
}

Write copier(uint64_t item_size) {
  return by_item_size(int64_t(item_size), [](auto item) -> Write { return write<Combine::update, decltype(item)>; });
}

/// nullptr if elements of this dtype are not combined this way.
Write writer_of(Combine combine, int32_t dtype) {
  if (combine == Combine::update) return copier(ipr::item_size(dtype));
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return writer_of<float>(combine);
    case IPR_DTYPE_FLOAT64:
      return writer_of<double>(combine);
    case IPR_DTYPE_INT8:
      return writer_of<int8_t>(combine);
    case IPR_DTYPE_UINT8:
      return writer_of<uint8_t>(combine);
    case IPR_DTYPE_INT32:
      return writer_of<int32_t>(combine);
    case IPR_DTYPE_INT64:
      return writer_of<int64_t>(combine);
    default:
      return nullptr;
  }
}

/// The same in vectors, for many adjacent elements; nullptr if there is no such kernel.
OfTwo vectors_of(Combine combine, int32_t dtype, const Settings& settings) {
  const ElementKernels& kernels = element_kernels_for(settings.isa);
  switch (combine) {
    case Combine::add:
      return kernels.binary(Binary::add, dtype);
    case Combine::sub:
      return kernels.binary(Binary::sub, dtype);
    case Combine::max:
      return kernels.binary(Binary::maximum, dtype);
    case Combine::min:
      return kernels.binary(Binary::minimum, dtype);
    case Combine::mul:
      return kernels.binary(Binary::mul, dtype);
    default:
      return nullptr;
  }
}

bool is_on_zeros(const Node& node) { return !node.flag("input_enabled", true); }

Refusal support_scatter(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = plain(graph, node)) return why;
  const Tensor &updates = *graph.in(node, 2), &out = graph.out(node);
  const Combine combine = combine_of(node);
  if (!writer_of(combine, out.dtype))
    return refused(std::string(node.text("function")) + " of " + described(out) + " is not supported",
                   IPR_REASON_DATA_TYPE);
  const bool alike = updates.same_quantization(out) && (is_on_zeros(node) || graph.in(node, 0)->same_quantization(out));
  const bool arithmetic = combine == Combine::add || combine == Combine::sub || combine == Combine::mul;
  if (!alike || out.has_axis() || (arithmetic && out.is_quantized()))
    return refused("the tensors have scales that require arithmetic", IPR_REASON_QUANTIZATION);
  return taken();
}

void add_zeros(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  const int64_t zero = out.zero_point();  // little endian, so its first bytes are the element
  const Buffer to = builder.buffer(node.outputs[0]);
  builder.add(fill_step(builder, "zeros for " + node.name, to, &zero, ipr::item_size(out.dtype), out.elements()));
}

/// Rows at tuples of indices. Each part owns a range of rows, so the updates of a row are applied in order.
struct ScatterRows {
  Tuples tuples;
  Write write;
  OfTwo vectors;  // instead of `write`, unless it is nullptr
  bool copies;    // updates replace the elements
  int64_t count, rows, inner, item_size;
  std::vector<Stretch> stretches;  // of constant indices, which the step does not read then

  static void check(const Step& step, const Run& run, int, int) {
    const ScatterRows& self = step.as<ScatterRows>();
    const Indices indices{run.at(step.in[0]), self.tuples.wide};
    for (int64_t n = 0; n < self.count; ++n) self.tuples.row(indices, n, run);
  }

  /// Combine adjacent elements of the result with updates.
  void put(char* to, const char* updates, int64_t elements) const {
    if (vectors)
      vectors(to, updates, to, elements, false, false);
    else if (copies)
      std::memcpy(to, updates, size_t(elements * item_size));
    else
      write(to, updates, elements);
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const ScatterRows& self = step.as<ScatterRows>();
    const Range own = split(self.rows, part, parts);
    const Indices indices{run.at(step.in[0]), self.tuples.wide};
    const char* updates = run.at<char>(step.in[1]);
    const int64_t bytes = self.inner * self.item_size;
    for (int64_t n = 0; n < self.count; ++n) {
      const int64_t row = self.tuples.row(indices, n, run);
      if (row < own.first || row >= own.last) continue;
      self.put(run.at<char>(step.out[0]) + row * bytes, updates + n * bytes, self.inner);
    }
  }

  /// Replace single elements.
  template <class Item, class Index>
  void replace(const Index* tuple, const Item* updates, Item* out) const {
    for (int64_t n = 0; n < count; ++n, tuple += tuples.extents.size()) out[tuples.row_of(tuple)] = updates[n];
  }

  template <class Item>
  static void run_items(const Step& step, const Run& run, int, int) {
    const ScatterRows& self = step.as<ScatterRows>();
    const Item* updates = run.at<Item>(step.in[1]);
    Item* out = run.at<Item>(step.out[0]);
    self.tuples.wide ? self.replace(run.at<int64_t>(step.in[0]), updates, out)
                     : self.replace(run.at<int32_t>(step.in[0]), updates, out);
  }

  /// The function for indices that are data.
  Step::Function function() const {
    if (!copies || inner != 1) return run;
    return by_item_size(item_size, [](auto item) -> Step::Function { return run_items<decltype(item)>; });
  }

  static void run_stretches(const Step& step, const Run& run, int part, int parts) {
    const ScatterRows& self = step.as<ScatterRows>();
    const Range own = split(self.rows, part, parts);
    const int64_t bytes = self.inner * self.item_size;
    for (const Stretch& stretch : self.stretches) {
      const int64_t first = std::max(stretch.row, own.first), last = std::min(stretch.row + stretch.count, own.last);
      if (first >= last) continue;
      const int64_t update = stretch.first + first - stretch.row;
      self.put(run.at<char>(step.out[0]) + first * bytes, run.at<char>(step.in[0]) + update * bytes,
               (last - first) * self.inner);
    }
  }
};

void lower_scatter_nd(const Node& node, Builder& builder) {
  const Tensor &indices = *builder.graph.in(node, 1), &updates = *builder.graph.in(node, 2);
  const Tensor& out = builder.graph.out(node);
  if (is_on_zeros(node))
    add_zeros(node, builder);
  else
    builder.add(duplicate_step(builder, node));
  const size_t depth = size_t(indices.extent(-1));
  auto state = std::make_shared<ScatterRows>();
  state->tuples = tuples_of(indices, out.shape, 0);
  state->write = writer_of(combine_of(node), out.dtype);
  state->copies = combine_of(node) == Combine::update;
  state->vectors = vectors_of(combine_of(node), out.dtype, builder.settings);
  state->count = product(indices.shape, 0, indices.shape.size() - 1);
  state->rows = product(out.shape, 0, depth);
  state->inner = product(out.shape, depth, out.shape.size());
  state->item_size = int64_t(ipr::item_size(out.dtype));
  Step step;
  step.name = label(node);
  state->stretches = stretches_of(state->tuples, indices, state->count, std::max<int64_t>(state->count, 1), 0);
  const bool known = !state->stretches.empty();
  step.fn = known ? &ScatterRows::run_stretches : state->function();
  if (!known) step.check = &ScatterRows::check;
  const bool is_divided = state->inner >= 32 || known;
  step.max_parts = is_divided ? parts_for(builder.settings, double(updates.elements()) * cost::kElementNs) : 1;
  if (!known) step.in.push_back(builder.buffer(node.inputs[1]));
  step.in.push_back(builder.buffer(node.inputs[2]));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

/// Single elements along an axis, written in order.
struct ScatterElements {
  Elements elements;
  Write write;
  int64_t count, item_size;

  static void check(const Step& step, const Run& run, int, int) {
    const ScatterElements& self = step.as<ScatterElements>();
    self.elements.each(run.at(step.in[0]), run, {0, self.count}, [](int64_t, int64_t) {});
  }

  template <class Item>
  static void replace(const Step& step, const Run& run, int, int) {
    const ScatterElements& self = step.as<ScatterElements>();
    const Item* updates = run.at<Item>(step.in[1]);
    Item* out = run.at<Item>(step.out[0]);
    self.elements.each(run.at(step.in[0]), run, {0, self.count},
                       [&](int64_t n, int64_t place) { out[place] = updates[n]; });
  }

  Step::Function function(Combine combine) const {
    if (combine != Combine::update) return run;
    return by_item_size(item_size, [](auto item) -> Step::Function { return replace<decltype(item)>; });
  }

  static void run(const Step& step, const Run& run, int, int) {
    const ScatterElements& self = step.as<ScatterElements>();
    const char* updates = run.at<char>(step.in[1]);
    char* out = run.at<char>(step.out[0]);
    self.elements.each(run.at(step.in[0]), run, {0, self.count}, [&](int64_t n, int64_t place) {
      self.write(out + place * self.item_size, updates + n * self.item_size, 1);
    });
  }
};

void lower_scatter_elements(const Node& node, Builder& builder) {
  const Tensor &indices = *builder.graph.in(node, 1), &out = builder.graph.out(node);
  builder.add(duplicate_step(builder, node));
  auto state = std::make_shared<ScatterElements>();
  state->elements = elements_of(node, out, indices);
  state->write = writer_of(combine_of(node), out.dtype);
  state->count = indices.elements();
  state->item_size = int64_t(ipr::item_size(out.dtype));
  Step step;
  step.name = label(node);
  step.fn = state->function(combine_of(node));
  step.check = &ScatterElements::check;
  step.in = {builder.buffer(node.inputs[1]), builder.buffer(node.inputs[2])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family scatter_family() {
  return {{{"GatherNd", "plain", support_gather, lower_gather_nd, nullptr},
           {"GatherElements", "plain", support_gather, lower_gather_elements, nullptr},
           {"ScatterNd", "plain", support_scatter, lower_scatter_nd, nullptr},
           {"ScatterElements", "plain", support_scatter, lower_scatter_elements, nullptr}},
          {}};
}

}  // namespace cpuacc
