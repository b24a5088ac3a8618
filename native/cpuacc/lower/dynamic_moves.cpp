// Layers that move elements as their operands say: DynamicReshape, DynamicBroadcastTo, DynamicSlice, DynamicTile,
// DynamicPad; Fill with a shape that is data. They check the values, set the shape of the result, and copy.

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/border.hpp"
#include "cpuacc/lower/dynamic_result.hpp"
#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

/// A view of the operand in the shape of the result; with `why`, an error instead.
struct View {
  const char* why = nullptr;
  int operand = 1;  // of which the values are wrong
  Shape shape;
  Axes axes;
  int64_t offset = 0;  // in elements of the operand
};

View wrong(const char* why, int operand = 1) {
  View view;
  view.why = why, view.operand = operand;
  return view;
}

/// The parameters of a layer, which a function of the layer reads.
struct Moves {
  View (*view)(const Moves& moves, const Step& step, const Run& run);
  const MoveKernels* kernels;
  Shape shape;          // of the operand
  Integers numbers[3];  // the further operands
  DynamicResult result;
  bool copies_zeros;
  std::vector<int> axes;

  Shape values(const Step& step, const Run& run, size_t operand) const {
    return numbers[operand - 1].all(run, step.in[operand]);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Moves& self = step.as<Moves>();
    const View view = self.view(self, step, run);
    if (view.why) return run.fail(view.operand, 0, view.why);
    if (!self.result.takes(run, view.operand, view.shape)) return;
    char* out = self.result.memory(step, run, view.shape);
    if (out)
      copy_view(*self.kernels, run.at<char>(step.in[0]), out, view.axes, uint64_t(self.result.item_size()),
                view.offset);
  }
};

View whole(Shape shape) {
  View view;
  view.axes = {{std::max<int64_t>(0, product_of(shape)), 1, 1}};
  view.shape = std::move(shape);
  return view;
}

/// The dimensions that are not copied from the operand.
Shape not_copied(const Shape& sizes, const Shape& target, bool copies_zeros) {
  Shape sizes_not_copied;
  for (size_t n = 0; n < sizes.size(); ++n)
    if (!copies_zeros || n >= target.size() || target[n] != 0) sizes_not_copied.push_back(sizes[n]);
  return sizes_not_copied;
}

View reshaped(const Moves& moves, const Step& step, const Run& run) {
  const Shape target = moves.values(step, run, 1);
  if (std::any_of(target.begin(), target.end(), [](int64_t size) { return size < -1; }))
    return wrong("a dimension of the shape is less than -1");
  if (std::count(target.begin(), target.end(), -1) > 1) return wrong("more than one dimension of the shape is -1");
  Shape shape = target;
  for (size_t n = 0; moves.copies_zeros && n < shape.size(); ++n) {
    if (shape[n] != 0) continue;
    if (n >= moves.shape.size()) return wrong("the shape copies a dimension that the operand does not have");
    shape[n] = moves.shape[n];
  }
  const auto inferred = std::find(target.begin(), target.end(), -1);
  if (inferred != target.end()) {
    Shape others = not_copied(target, target, moves.copies_zeros);
    others.erase(std::find(others.begin(), others.end(), -1));
    const int64_t known = product_of(others), all = product_of(not_copied(moves.shape, target, moves.copies_zeros));
    if (known <= 0 || all % known != 0) return wrong("the operand cannot be reshaped to this shape");
    shape[size_t(inferred - target.begin())] = all / known;
  }
  if (product_of(shape) != product_of(moves.shape)) return wrong("the operand cannot be reshaped to this shape");
  return whole(std::move(shape));
}

View broadcast(const Moves& moves, const Step& step, const Run& run) {
  Shape target = moves.values(step, run, 1);
  if (!is_known(target)) return wrong("a dimension of the shape is negative");
  const size_t rank = std::max(target.size(), moves.shape.size());
  target.insert(target.begin(), rank - target.size(), 1);
  View view;
  for (size_t n = 0; n < rank; ++n) {
    const bool is_new = n < rank - moves.shape.size();
    const int64_t size = is_new ? 1 : moves.shape[n - (rank - moves.shape.size())];
    if (size != target[n] && size != 1 && target[n] != 1) return wrong("the operand cannot be broadcast to this shape");
    view.shape.push_back(size == 1 ? target[n] : size);
  }
  view.axes = axes_of(view.shape);
  const Shape steps = steps_of(moves.shape);
  for (size_t n = 0; n < steps.size(); ++n)
    if (moves.shape[n] != 1) view.axes[rank - steps.size() + n].from = steps[n];
  return view;
}

/// The elements of one axis from `start` to before `end`.
struct Piece {
  int64_t first, count;
};

Piece piece_of(int64_t start, int64_t end, int64_t step, int64_t size) {
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  const int64_t first_low = step < 0 ? std::min<int64_t>(0, size - 1) : 0;  // a start before the axis selects its first
  const int64_t first = start < -size ? first_low : std::min(start < 0 ? start + size : start, high);
  const int64_t last = end < -size ? low : std::min(end < 0 ? end + size : end, high);
  if (step > 0) return {first, first >= last ? 0 : (last - first - 1) / step + 1};
  return {first, first <= last ? 0 : (first - last - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1};
}

View sliced(const Moves& moves, const Step& step, const Run& run) {
  View view;
  view.shape = moves.shape;
  const Shape steps = steps_of(moves.shape);
  Shape strides = steps;
  for (size_t n = 0; n < moves.axes.size(); ++n) {
    const size_t axis = size_t(moves.axes[n]);
    const int64_t stride = step.in[3] ? moves.numbers[2].at(run, step.in[3], int64_t(n)) : 1;
    if (stride == 0) return wrong("a step is 0", 3);
    const Piece piece = piece_of(moves.numbers[0].at(run, step.in[1], int64_t(n)),
                                 moves.numbers[1].at(run, step.in[2], int64_t(n)), stride, moves.shape[axis]);
    view.shape[axis] = piece.count;
    view.offset += piece.count > 0 ? piece.first * steps[axis] : 0;
    strides[axis] = piece.count > 1 ? stride * steps[axis] : 0;
  }
  view.axes = axes_of(view.shape);
  for (size_t n = 0; n < view.axes.size(); ++n) view.axes[n].from = strides[n];
  return view;
}

View tiled(const Moves& moves, const Step& step, const Run& run) {
  const Shape multiples = moves.values(step, run, 1);
  if (!is_known(multiples)) return wrong("a multiple is negative");
  View view;
  for (size_t n = 0; n < multiples.size(); ++n) {
    int64_t size;
    if (__builtin_mul_overflow(moves.shape[n], multiples[n], &size))
      return wrong("the result would be larger than any memory");
    view.shape.push_back(size);
  }
  const Shape from = steps_of(moves.shape), to = steps_of(view.shape);
  for (size_t n = 0; n < multiples.size(); ++n) {
    if (multiples[n] != 1) view.axes.push_back({multiples[n], 0, to[n] * moves.shape[n]});
    view.axes.push_back({moves.shape[n], from[n], to[n]});
  }
  return view;
}

std::shared_ptr<Moves> moves_of(const Node& node, const Builder& builder) {
  const Graph& graph = builder.graph;
  auto moves = std::make_shared<Moves>();
  moves->kernels = &move_kernels_for(builder.settings.isa);
  moves->shape = graph.in(node, 0)->shape;
  for (size_t n = 1; n <= 3; ++n)
    if (const Tensor* tensor = graph.in(node, n)) moves->numbers[n - 1] = Integers(*tensor);
  moves->result = DynamicResult(graph, node, 0);
  moves->copies_zeros = node.flag("copy_zeros");
  for (int64_t axis : node.integers("axes")) moves->axes.push_back(axis_of(axis, int(moves->shape.size())));
  return moves;
}

template <View (*kView)(const Moves&, const Step&, const Run&)>
void lower(const Node& node, Builder& builder) {
  std::shared_ptr<Moves> moves = moves_of(node, builder);
  moves->view = kView;
  Step step = step_of(node, builder, moves);
  step.in.resize(4);
  builder.add(std::move(step));
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (in.has_axis() || !in.same_quantization(out))
    return refused("the tensors are quantized differently", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

/// A tiled axis becomes two, and kernels have a limit.
Refusal support_tile(const Graph& graph, const Node& node, const Settings& settings) {
  if (graph.in(node, 0)->rank() > kMaxAxes / 2) return refused("the rank is more than 8", IPR_REASON_SHAPE);
  return support(graph, node, settings);
}

// ---- DynamicPad -----------------------------------------------------------------------------------------------------

struct Padding {
  const MoveKernels* kernels;
  std::string mode;
  Shape shape;
  Integers pads;
  DynamicResult result;
  char value[8];

  /// The most elements that a border of an axis may have.
  int64_t most(int64_t size) const {
    if (mode == "REFLECT") return size - 1;
    return mode == "SYMMETRIC" || mode == "WRAP" ? size : mode == "EDGE" && size == 0 ? 0 : INT64_MAX;
  }

  /// Return the shape of the result; it is empty, with an error, if a width is wrong.
  bool measure(const Step& step, const Run& run, Shape& result_shape) const {
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      int64_t size = shape[axis];
      const int64_t first = pads.at(run, step.in[1], int64_t(2 * axis)),
                    last = pads.at(run, step.in[1], int64_t(2 * axis) + 1);
      const int64_t limit = first == 0 && last == 0 ? 0 : most(size);
      for (int64_t n : {0, 1}) {
        const int64_t pad = n == 0 ? first : last;
        if (pad < 0 || pad > limit) return run.fail(1, int64_t(2 * axis) + n, pad, 0, limit), false;
        if (__builtin_add_overflow(size, pad, &size))
          return run.fail(1, int64_t(2 * axis) + n, "the result would be larger than any memory"), false;
      }
      result_shape.push_back(size);
    }
    return result.takes(run, 1, result_shape);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Padding& self = step.as<Padding>();
    Shape shape;
    if (!self.measure(step, run, shape)) return;
    char* out = self.result.memory(step, run, shape);
    if (!out || product_of(shape) == 0) return;
    const std::vector<int64_t> pads = self.pads.all(run, step.in[1]);
    const char* in = run.at<char>(step.in[0]);
    if (self.mode == "CONSTANT") return self.surround(in, out, shape, pads);
    const Border border = border_of(*self.kernels, self.shape, pads, self.mode, self.result.item_size());
    border.copy(in, out, 0, border.rows);
  }

  void surround(const char* in, char* out, const Shape& padded, const std::vector<int64_t>& pads) const {
    kernels->fill(out, value, result.item_size(), product_of(padded));
    const Shape from = steps_of(shape), to = steps_of(padded);
    Axes axes;
    int64_t offset = 0;
    for (size_t n = 0; n < shape.size(); ++n) {
      axes.push_back({shape[n], from[n], to[n]});
      offset += pads[2 * n] * to[n];
    }
    copy_view(*kernels, in, out, axes, uint64_t(result.item_size()), 0, offset);
  }
};

Refusal support_pad(const Graph& graph, const Node& node, const Settings& settings) {
  char value[8];
  if (!encode(node.number("pad_value"), graph.out(node), value) && node.text("padding_mode") == "CONSTANT")
    return refused("no such number of " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  return support(graph, node, settings);
}

void lower_pad(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  auto state = std::make_shared<Padding>();
  state->kernels = &move_kernels_for(builder.settings.isa);
  state->mode = node.text("padding_mode");
  state->shape = graph.in(node, 0)->shape;
  state->pads = Integers(*graph.in(node, 1));
  state->result = DynamicResult(graph, node, 0);
  encode(node.number("pad_value"), graph.out(node), state->value);
  builder.add(step_of(node, builder, state));
}

// ---- Fill -----------------------------------------------------------------------------------------------------------

struct Filling {
  const MoveKernels* kernels;
  Integers dimensions;
  DynamicResult result;
  char value[8];

  static void run(const Step& step, const Run& run, int, int) {
    const Filling& self = step.as<Filling>();
    const Shape shape = self.dimensions.all(run, step.in[0]);
    for (size_t n = 0; n < shape.size(); ++n)
      if (shape[n] < 0) return run.fail(0, int64_t(n), shape[n], 0, INT64_MAX);
    if (!self.result.takes(run, 0, shape)) return;
    if (char* out = self.result.memory(step, run, shape))
      self.kernels->fill(out, self.value, self.result.item_size(), product_of(shape));
  }
};

Refusal support_fill(const Graph& graph, const Node& node, const Settings& settings) {
  char value[8];
  if (!encode(node.number("value"), graph.out(node), value))
    return refused("no such number of " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_fill(const Node& node, Builder& builder) {
  auto state = std::make_shared<Filling>();
  state->kernels = &move_kernels_for(builder.settings.isa);
  state->dimensions = Integers(*builder.graph.in(node, 0));
  state->result = DynamicResult(builder.graph, node, 0);
  encode(node.number("value"), builder.graph.out(node), state->value);
  builder.add(step_of(node, builder, state));
}

}  // namespace

Family dynamic_moves_family() {
  Family family;
  auto add = [&](const char* type, auto supports, auto lowers) {
    family.lowerings.push_back({type, "shaped by data", supports, lowers, nullptr, false, true});
  };
  add("DynamicReshape", support, lower<reshaped>);
  add("DynamicBroadcastTo", support, lower<broadcast>);
  add("DynamicSlice", support, lower<sliced>);
  add("DynamicTile", support_tile, lower<tiled>);
  add("DynamicPad", support_pad, lower_pad);
  add("Fill", support_fill, lower_fill);
  return family;
}

}  // namespace cpuacc
