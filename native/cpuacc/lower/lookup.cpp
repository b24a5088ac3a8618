// EmbeddingLookup and OneHot.

#include <cstring>

#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

int64_t index_at(const void* data, bool wide, int64_t n) {
  return wide ? static_cast<const int64_t*>(data)[n] : static_cast<const int32_t*>(data)[n];
}

Refusal indices_only(const Graph& graph, const Node& node) {
  const int32_t dtype = graph.in(node, 0)->dtype;
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (dtype != IPR_DTYPE_INT32 && dtype != IPR_DTYPE_INT64)
    return refused("indices are of another type", IPR_REASON_DATA_TYPE);
  return taken();
}

// ---- EmbeddingLookup ------------------------------------------------------------------------------------------------

struct Lookup {
  bool wide;
  int64_t count, rows, bytes;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Lookup& self = step.as<Lookup>();
    const Range range = split(self.count, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const int64_t row = index_at(run.at(step.in[0]), self.wide, n);
      if (row < 0 || row >= self.rows) return run.fail(0, n, row, 0, self.rows - 1);
      std::memcpy(run.at<char>(step.out[0]) + n * self.bytes, run.at<char>(step.in[1]) + row * self.bytes,
                  size_t(self.bytes));
    }
  }
};

Refusal support_lookup(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &values = *graph.in(node, 1), &out = graph.out(node);
  if (values.has_axis() || !values.same_quantization(out))
    return refused("the table and the result are quantized differently", IPR_REASON_QUANTIZATION);
  return indices_only(graph, node);
}

void lower_lookup(const Node& node, Builder& builder) {
  const Tensor &lookups = *builder.graph.in(node, 0), &values = *builder.graph.in(node, 1);
  auto state = std::make_shared<Lookup>();
  state->wide = lookups.dtype == IPR_DTYPE_INT64;
  state->count = lookups.elements();
  state->rows = values.extent(0);
  state->bytes = values.elements() ? int64_t(values.bytes()) / values.extent(0) : 0;
  Step step;
  step.name = label(node);
  step.fn = &Lookup::run;
  step.max_parts = parts_for(builder.settings, double(builder.graph.out(node).bytes()) * cost::kGatheredByteNs);
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- OneHot ---------------------------------------------------------------------------------------------------------

constexpr int64_t kCachedBytes = 1 << 14;  // of the result, which are filled and then marked

struct Hot {
  const MoveKernels* kernels;
  bool wide, from_end;
  int64_t outer, depth, inner, item_size;
  char on[8], off[8];

  /// Write the value of set elements at the places of `blocks` blocks of the result.
  template <class Item, class Index>
  void mark(const Index* indices, Item* out, int64_t blocks) const {
    Item set;
    std::memcpy(&set, on, sizeof set);
    for (int64_t n = 0; n < blocks; ++n, indices += inner, out += depth * inner)
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t index = indices[i] < 0 && from_end ? indices[i] + depth : indices[i];
        if (index >= 0 && index < depth) out[index * inner + i] = set;
      }
  }

  template <class Item>
  void write(const void* indices, int64_t first, int64_t blocks, void* out) const {
    Item* to = static_cast<Item*>(out) + first * depth * inner;
    kernels->fill(reinterpret_cast<char*>(to), off, item_size, blocks * depth * inner);
    wide ? mark(static_cast<const int64_t*>(indices) + first * inner, to, blocks)
         : mark(static_cast<const int32_t*>(indices) + first * inner, to, blocks);
  }

  template <class Item>
  static void run(const Step& step, const Run& run, int part, int parts) {
    const Hot& self = step.as<Hot>();
    const Range range = split(self.outer, part, parts);
    const int64_t block_bytes = self.depth * self.inner * self.item_size;
    const int64_t together = std::max<int64_t>(1, kCachedBytes / std::max<int64_t>(1, block_bytes));
    for (int64_t n = range.first; n < range.last; n += together)
      self.write<Item>(run.at(step.in[0]), n, std::min(together, range.last - n), run.at(step.out[0]));
  }

  Step::Function function() const {
    return by_item_size(item_size, [](auto item) -> Step::Function { return run<decltype(item)>; });
  }
};

Refusal support_hot(const Graph& graph, const Node& node, const Settings&) {
  char element[8];
  const Tensor& out = graph.out(node);
  if (!encode(node.number("on_value", 1), out, element) || !encode(node.number("off_value"), out, element))
    return refused("these values of " + described(out) + " are not supported", IPR_REASON_DATA_TYPE);
  return indices_only(graph, node);
}

void lower_hot(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  const Around at = around(out.shape, axis_of(node.integer("axis", -1), out.rank()));
  auto state = std::make_shared<Hot>();
  state->kernels = &move_kernels_for(builder.settings.isa);
  state->wide = builder.graph.in(node, 0)->dtype == IPR_DTYPE_INT64;
  state->from_end = node.flag("from_end");
  state->outer = at.outer, state->depth = at.extent, state->inner = at.inner;
  state->item_size = int64_t(ipr::item_size(out.dtype));
  encode(node.number("on_value", 1), out, state->on);
  encode(node.number("off_value"), out, state->off);
  Step step;
  step.name = label(node);
  step.fn = state->function();
  step.max_parts = parts_for(builder.settings, double(out.bytes()) * cost::kContiguousByteNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family lookup_family() {
  return {{{"EmbeddingLookup", "plain", support_lookup, lower_lookup, nullptr},
           {"OneHot", "plain", support_hot, lower_hot, nullptr}},
          {}};
}

}  // namespace cpuacc
