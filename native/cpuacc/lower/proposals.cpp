// Layers of detectors with two stages: AxisAlignedBboxTransform, GenerateProposals, BoxWithNmsLimit. Numbers are
// float32, or float64 if the operands are.

#include <cmath>
#include <cstring>

#include "cpuacc/lower/dynamic_result.hpp"
#include "cpuacc/lower/overlap.hpp"
#include "cpuacc/lower/reals.hpp"

namespace cpuacc {
namespace {

constexpr const char* kDisordered = "a box ends before it begins";

/// A box that is shifted and scaled by deltas (dx, dy, dw, dh), and clipped to an image of this height and width.
template <class T>
Corners<T> moved(const Corners<T>& box, const T* deltas, const T* size) {
  Corners<T> moved_box;
  for (int n = 0; n < 2; ++n) {
    const T side = box.high[n] - box.low[n];
    const T center = (box.low[n] + box.high[n]) / 2 + deltas[n] * side;
    const T half = std::exp(deltas[2 + n]) * side / 2, most = size[1 - n];
    moved_box.low[n] = least_of(most_of(center - half, T(0)), most);
    moved_box.high[n] = least_of(most_of(center + half, T(0)), most);
  }
  return moved_box;
}

template <class T>
void write_box(const Corners<T>& box, T* to) {
  to[0] = box.low[0], to[1] = box.low[1], to[2] = box.high[0], to[3] = box.high[1];
}

/// Operands of a layer as numbers.
struct Numbers {
  std::vector<Reals> operands;

  Numbers() = default;
  Numbers(const Graph& graph, const Node& node, std::initializer_list<size_t> positions, native::Isa isa) {
    for (size_t n : positions) operands.emplace_back(*graph.in(node, n), isa);
  }
  bool is_double() const { return operands[0].is_double(); }

  template <class T>
  const T* read(size_t number, const Run& run, const Buffer& from, std::vector<T>& memory) const {
    memory.resize(size_t(operands[number].count()));
    return operands[number].read(run.at<void>(from), operands[number].count(), memory.data());
  }
};

/// Call State::all<float> or State::all<double>.
template <class State>
void run_typed(const Step& step, const Run& run, int, int) {
  const State& self = step.as<State>();
  self.numbers.is_double() ? self.template all<double>(step, run) : self.template all<float>(step, run);
}

// ---- AxisAlignedBboxTransform ---------------------------------------------------------------------------------------

struct Transform {
  Numbers numbers;  // boxes, deltas, images
  Reals out;
  int64_t boxes, classes, images;

  static void check(const Step& step, const Run& run, int, int) {
    const Transform& self = step.as<Transform>();
    const int32_t* batches = run.at<int32_t>(step.in[2]);
    for (int64_t n = 0; n < self.boxes; ++n)
      if (batches[n] < 0 || batches[n] >= self.images) return run.fail(2, n, batches[n], 0, self.images - 1);
  }

  template <class T>
  void all(const Step& step, const Run& run) const {
    std::vector<T> memory[3], results(size_t(boxes * classes * 4));
    const T* from = numbers.read(0, run, step.in[0], memory[0]);
    const T* deltas = numbers.read(1, run, step.in[1], memory[1]);
    const T* sizes = numbers.read(2, run, step.in[3], memory[2]);
    const int32_t* batches = run.at<int32_t>(step.in[2]);
    for (int64_t n = 0; n < boxes; ++n) {
      const Corners<T> box = Corners<T>::at(from + 4 * n);
      if (!box.is_ordered()) return run.fail(0, 4 * n, kDisordered);
      for (int64_t c = n * classes; c < (n + 1) * classes; ++c)
        write_box(moved(box, deltas + 4 * c, sizes + 2 * batches[n]), results.data() + 4 * c);
    }
    out.write(results.data(), int64_t(results.size()), run.at<void>(step.out[0]));
  }
};

bool is_int32(const Tensor& tensor) { return tensor.dtype == IPR_DTYPE_INT32 && !tensor.is_quantized(); }

Refusal support_transform(const Graph& graph, const Node& node, const Settings& settings) {
  const Refusal boxes = takes_reals(graph, node, 2, settings.isa);
  if (boxes) return boxes;
  const Reals first(*graph.in(node, 0), settings.isa), sizes(*graph.in(node, 3), settings.isa),
      out(graph.out(node), settings.isa);
  if (!sizes.is_taken() || sizes.is_double() != first.is_double() || !out.is_taken() ||
      out.is_double() != first.is_double() || !is_int32(*graph.in(node, 2)))
    return refused("the operands have several types", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

template <class State>
Step typed_step_of(const Node& node, Builder& builder, std::shared_ptr<State> state) {
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &run_typed<State>;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.state = std::move(state);
  return step;
}

void lower_transform(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  auto state = std::make_shared<Transform>();
  state->numbers = Numbers(graph, node, {0, 1, 3}, builder.settings.isa);
  state->out = Reals(graph.out(node), builder.settings.isa);
  state->boxes = graph.in(node, 0)->shape[0], state->classes = graph.in(node, 1)->shape[1] / 4;
  state->images = graph.in(node, 3)->shape[0];
  Step step = typed_step_of(node, builder, state);
  step.check = &Transform::check;
  step.out = {builder.buffer(node.outputs[0])};
  builder.add(std::move(step));
}

// ---- GenerateProposals ----------------------------------------------------------------------------------------------

/// Where the values of a feature map are: (N, H, W, C) or (N, C, H, W).
struct MapSteps {
  int64_t cell, channel;

  MapSteps() = default;
  MapSteps(bool channels_first, int64_t cells, int64_t channels)
      : cell(channels_first ? 1 : channels), channel(channels_first ? cells : 1) {}
};

struct Generate {
  Numbers numbers;  // scores, deltas, anchors, images
  Reals of_scores, of_boxes;
  DynamicResult results[3];
  int64_t images, height, width, anchors, pre_nms, post_nms;
  double row_stride, column_stride, overlap, least_size;
  MapSteps scores_at, deltas_at;

  int64_t per_image() const { return height * width * anchors; }

  template <class T>
  struct Chosen {
    std::vector<T> scores, boxes;
    std::vector<int32_t> batches;
  };

  template <class T>
  Corners<T> shifted(const T* anchor, int64_t cell) const {
    const T shift[2] = {T(double(cell % width) * column_stride), T(double(cell / width) * row_stride)};
    return {{anchor[0] + shift[0], anchor[1] + shift[1]}, {anchor[2] + shift[0], anchor[3] + shift[1]}};
  }

  template <class T>
  bool is_valid(const Corners<T>& box, const T* size) const {
    for (int n = 0; n < 2; ++n) {
      const T side = box.high[n] - box.low[n];
      if (!(side > T(least_size)) || !(box.low[n] + side / 2 < size[1 - n])) return false;
    }
    return true;
  }

  /// Select the boxes of one image. Return false if an anchor is no box.
  template <class T>
  bool one(const T* scores, const T* deltas, const T* anchor, const T* size, Chosen<T>& to, int32_t image) const {
    std::vector<T> own(static_cast<size_t>(per_image()));
    std::vector<Corners<T>> boxes(own.size());
    std::vector<int64_t> candidates(own.size());
    for (int64_t n = 0; n < per_image(); ++n) {
      const int64_t cell = n / anchors, a = n % anchors;
      const Corners<T> box = shifted(anchor + 4 * a, cell);
      if (!box.is_ordered()) return false;
      T delta[4];
      for (int64_t k = 0; k < 4; ++k) delta[k] = deltas[cell * deltas_at.cell + (4 * a + k) * deltas_at.channel];
      boxes[size_t(n)] = moved(box, delta, size);
      own[size_t(n)] = scores[cell * scores_at.cell + a * scores_at.channel];
      candidates[size_t(n)] = n;
    }
    auto score = [&](int64_t n) { return own[size_t(n)]; };
    if (pre_nms > 0 && pre_nms < per_image()) {
      sort_by_score(candidates, score);
      candidates.resize(size_t(pre_nms));
    }
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                    [&](int64_t n) { return !is_valid(boxes[size_t(n)], size); }),
                     candidates.end());
    auto drops = [&](int64_t, T ratio) { return ratio >= T(overlap); };
    const int64_t limit = post_nms > 0 ? post_nms : INT64_MAX;
    for (int64_t n : take_greedily(
             candidates, [&](int64_t m) { return boxes[size_t(m)]; }, score, limit, drops)) {
      to.scores.push_back(score(n));
      to.boxes.resize(to.boxes.size() + 4);
      write_box(boxes[size_t(n)], &to.boxes[to.boxes.size() - 4]);
      to.batches.push_back(image);
    }
    return true;
  }

  template <class T>
  void all(const Step& step, const Run& run) const {
    std::vector<T> memory[4];
    const T* data[4];
    for (size_t n = 0; n < 4; ++n) data[n] = numbers.read(n, run, step.in[n], memory[n]);
    Chosen<T> chosen;
    for (int64_t n = 0; n < images; ++n)
      if (!one(data[0] + n * per_image(), data[1] + 4 * n * per_image(), data[2], data[3] + 2 * n, chosen, int32_t(n)))
        return run.fail(2, 0, kDisordered);
    const int64_t count = int64_t(chosen.batches.size());
    const Shape shapes[3] = {{count}, {count, 4}, {count}};
    for (size_t n = 0; n < 3; ++n)
      if (!results[n].takes(run, 0, shapes[n])) return;
    if (char* to = results[0].memory(step, run, shapes[0])) of_scores.write(chosen.scores.data(), count, to);
    if (char* to = results[1].memory(step, run, shapes[1])) of_boxes.write(chosen.boxes.data(), 4 * count, to);
    if (char* to = results[2].memory(step, run, shapes[2])) std::memcpy(to, chosen.batches.data(), size_t(count) * 4);
  }
};

Refusal support_generate(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = takes_reals(graph, node, 4, settings.isa)) return why;
  for (size_t n : {0, 1})
    if (!Reals(graph.out(node, n), settings.isa).is_taken())
      return refused("the result is " + described(graph.out(node, n)), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_generate(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const native::Isa isa = builder.settings.isa;
  const Tensor& scores = *graph.in(node, 0);
  const bool first = node.text("data_layout") == "NCHW";
  auto state = std::make_shared<Generate>();
  state->numbers = Numbers(graph, node, {0, 1, 2, 3}, isa);
  state->of_scores = Reals(graph.out(node, 0), isa), state->of_boxes = Reals(graph.out(node, 1), isa);
  state->images = scores.shape[0], state->anchors = scores.extent(first ? 1 : 3);
  state->height = scores.extent(first ? 2 : 1), state->width = scores.extent(first ? 3 : 2);
  state->scores_at = MapSteps(first, state->height * state->width, state->anchors);
  state->deltas_at = MapSteps(first, state->height * state->width, 4 * state->anchors);
  state->pre_nms = node.integer("pre_nms_max", -1), state->post_nms = node.integer("post_nms_max", -1);
  state->row_stride = node.number("height_stride", 1), state->column_stride = node.number("width_stride", 1);
  state->overlap = node.number("iou_threshold"), state->least_size = node.number("min_size");
  Step step = typed_step_of(node, builder, state);
  for (size_t n = 0; n < 3; ++n) {
    state->results[n] = DynamicResult(graph, node, n);
    step.out.push_back(state->results[n].buffer(builder));
  }
  builder.add(std::move(step));
}

// ---- BoxWithNmsLimit ------------------------------------------------------------------------------------------------

struct Limit {
  enum class Kernel { hard, linear, gaussian };

  Numbers numbers;  // scores, boxes
  Reals of_scores;
  DynamicResult results[4];
  int64_t boxes, classes, most, box_item;
  double lowest, least_reduced, overlap, sigma;
  Kernel kernel;

  struct Pair {
    int64_t row, column;
  };

  template <class T>
  T factor(T ratio) const {
    if (kernel == Kernel::gaussian) return std::exp(-ratio * ratio / T(sigma));
    if (ratio < T(overlap)) return 1;
    return kernel == Kernel::linear ? 1 - ratio : 0;
  }

  int64_t limit() const { return most < 0 ? INT64_MAX : most; }

  /// Select boxes of one class among the rows [first, last) of one image. Return false if one is no box.
  template <class T>
  bool one_class(T* scores, const T* all_boxes, int64_t first, int64_t last, int64_t column,
                 std::vector<Pair>& pairs) const {
    auto score = [&](int64_t row) -> T& { return scores[row * classes + column]; };
    auto box = [&](int64_t row) { return Corners<T>::at(all_boxes + (row * classes + column) * 4); };
    std::vector<int64_t> candidates;
    for (int64_t row = first; row < last; ++row) {
      if (!(score(row) > T(lowest))) continue;
      if (!box(row).is_ordered()) return false;
      candidates.push_back(row);
    }
    auto drops = [&](int64_t row, T ratio) {
      score(row) *= factor(ratio);
      return score(row) < T(least_reduced);
    };
    for (int64_t row : take_greedily(std::move(candidates), box, score, limit(), drops)) pairs.push_back({row, column});
    return true;
  }

  /// Select boxes of one image, by class and then by falling score.
  template <class T>
  bool one_image(T* scores, const T* all_boxes, int64_t first, int64_t last, std::vector<Pair>& to) const {
    std::vector<Pair> pairs;
    for (int64_t column = 1; column < classes; ++column)
      if (!one_class(scores, all_boxes, first, last, column, pairs)) return false;
    sort_by_score(pairs, [&](const Pair& pair) { return scores[pair.row * classes + pair.column]; });
    if (int64_t(pairs.size()) > limit()) pairs.resize(size_t(limit()));
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.column < b.column; });
    to.insert(to.end(), pairs.begin(), pairs.end());
    return true;
  }

  template <class T>
  void all(const Step& step, const Run& run) const {
    std::vector<T> memory[2];
    const T* first_score = numbers.read(0, run, step.in[0], memory[0]);
    const T* all_boxes = numbers.read(1, run, step.in[1], memory[1]);
    const int32_t* batches = run.at<int32_t>(step.in[2]);
    std::vector<T> scores(first_score, first_score + boxes * classes);
    std::vector<Pair> pairs;
    for (int64_t first = 0, last; first < boxes; first = last) {
      for (last = first + 1; last < boxes && batches[last] == batches[first];) ++last;
      if (!one_image(scores.data(), all_boxes, first, last, pairs)) return run.fail(1, 0, kDisordered);
    }
    write(step, run, scores, pairs);
  }

  template <class T>
  void write(const Step& step, const Run& run, const std::vector<T>& scores, const std::vector<Pair>& pairs) const {
    const int64_t count = int64_t(pairs.size());
    const Shape shapes[4] = {{count}, {count, 4}, {count}, {count}};
    for (size_t n = 0; n < 4; ++n)
      if (!results[n].takes(run, 0, shapes[n])) return;
    char* to[4];
    for (size_t n = 0; n < 4; ++n) to[n] = results[n].memory(step, run, shapes[n]);
    for (int64_t n = 0; n < count; ++n) {
      const Pair& pair = pairs[size_t(n)];
      const int64_t at = pair.row * classes + pair.column, bytes = 4 * box_item;
      if (to[0]) of_scores.write(&scores[size_t(at)], 1, to[0], n);
      if (to[1]) std::memcpy(to[1] + n * bytes, run.at<char>(step.in[1]) + at * bytes, size_t(bytes));
      if (to[2]) reinterpret_cast<int32_t*>(to[2])[n] = int32_t(pair.column);
      if (to[3]) reinterpret_cast<int32_t*>(to[3])[n] = run.at<int32_t>(step.in[2])[pair.row];
    }
  }
};

Refusal support_limit(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = takes_reals(graph, node, 2, settings.isa)) return why;
  if (!Reals(graph.out(node), settings.isa).is_taken() || !is_int32(*graph.in(node, 2)))
    return refused("the result is " + described(graph.out(node)), IPR_REASON_DATA_TYPE);
  if (!graph.in(node, 1)->same_quantization(graph.out(node, 1)))
    return refused("the boxes are quantized differently", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_limit(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const std::string_view kernel = node.text("nms_kernel", "HARD");
  auto state = std::make_shared<Limit>();
  state->numbers = Numbers(graph, node, {0, 1}, builder.settings.isa);
  state->of_scores = Reals(graph.out(node), builder.settings.isa);
  state->boxes = graph.in(node, 0)->shape[0], state->classes = graph.in(node, 0)->shape[1];
  state->box_item = int64_t(ipr::item_size(graph.in(node, 1)->dtype));
  state->most = node.integer("max_detections", -1);
  state->lowest = node.number("score_threshold"), state->least_reduced = node.number("nms_score_threshold");
  state->overlap = node.number("iou_threshold"), state->sigma = node.number("sigma", 1);
  state->kernel = kernel == "GAUSSIAN" ? Limit::Kernel::gaussian
                  : kernel == "LINEAR" ? Limit::Kernel::linear
                                       : Limit::Kernel::hard;
  Step step = typed_step_of(node, builder, state);
  for (size_t n = 0; n < 4; ++n) {
    state->results[n] = DynamicResult(graph, node, n);
    step.out.push_back(state->results[n].buffer(builder));
  }
  builder.add(std::move(step));
}

}  // namespace

Family proposals_family() {
  return {{{"AxisAlignedBboxTransform", "plain", support_transform, lower_transform, nullptr},
           {"GenerateProposals", "plain", support_generate, lower_generate, nullptr, false, true},
           {"BoxWithNmsLimit", "plain", support_limit, lower_limit, nullptr, false, true}},
          {}};
}

}  // namespace cpuacc
