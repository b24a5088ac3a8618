// DetectionPostProcess: boxes relative to anchors, of which the best ones that do not overlap are selected.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

/// How the elements of an operand become numbers.
struct Reader {
  int32_t dtype;
  double scale;
  int64_t zero;

  explicit Reader(const Tensor& tensor)
      : dtype(tensor.dtype), scale(double(float(tensor.scale()))), zero(tensor.zero_point()) {}

  /// The numbers of an operand; `to` receives them unless they are stored as float32.
  const float* read(const void* from, int64_t first, int64_t count, float* to) const {
    if (dtype == IPR_DTYPE_FLOAT32) return static_cast<const float*>(from) + first;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t code = dtype == IPR_DTYPE_INT8 ? int64_t{static_cast<const int8_t*>(from)[first + n]}
                                                   : int64_t{static_cast<const uint8_t*>(from)[first + n]};
      to[n] = float(double(code - zero) * scale);
    }
    return to;
  }
};

struct Box {
  float y1, x1, y2, x2;
  float area() const { return (y2 - y1) * (x2 - x1); }
};

float least(float a, float b) { return a < b || a != a ? a : b; }  // NaN if one is NaN
float most(float a, float b) { return a > b || a != a ? a : b; }

/// The intersection over union of two boxes; 0 for boxes without area.
float overlap(const Box& a, const Box& b) {
  const float height = most(least(a.y2, b.y2) - most(a.y1, b.y1), 0);
  const float width = most(least(a.x2, b.x2) - most(a.x1, b.x1), 0);
  const float both = height * width, either = a.area() + b.area() - both;
  return both / (either > 0 ? either : 1);
}

struct Detection {
  Reader encodings, scores, anchors;
  int64_t batch, count, width, classes, columns;  // `columns` of the scores, of which the last `classes` are used
  int64_t limit, per_box, per_class;              // the attributes max_detections, max_classes_per_detection and so on
  float least_score, most_overlap;
  double scale_y, scale_x, scale_h, scale_w;
  bool regular, isolated;  // `isolated`: boxes that were dropped exclude others, too
  int64_t first_class;
  bool whole_classes;  // class labels are int32

  int64_t rows() const { return limit * per_box; }
  int64_t pairs() const { return regular ? classes * std::min(per_class, count) : 0; }
  uint64_t scratch() const {
    return uint64_t(count) * uint64_t(width + columns + 9) * 4 +
           uint64_t(count + std::max(limit, per_class) + 3 * pairs() + classes) * 8 + uint64_t(count) + 256;
  }

  static void run(const Step& step, const Run& run, int, int);
};

/// The selection of one image.
class Image {
 public:
  Image(const Detection& rules, const Step& step, const Run& run, int64_t image) : rules_(rules) {
    char* next = run.part_scratch<char>(0);
    auto take = [&](auto*& pointer, int64_t count) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(next);
      next += (uint64_t(count) * sizeof *pointer + 15) / 16 * 16;
    };
    float *encodings, *anchors, *scores;
    const int64_t count = rules.count;
    take(encodings, rules.width * count), take(anchors, 4 * count), take(scores, count * rules.columns);
    take(best_, count), take(boxes_, count), take(candidates_, count);
    take(chosen_, std::max(rules.limit, rules.per_class)), take(pairs_, 2 * rules.pairs()), take(ranks_, rules.pairs()),
        take(order_, rules.classes);
    take(is_decoded_, count);
    const int64_t width = rules.width;
    encodings_ = rules.encodings.read(run.at(step.in[0]), image * count * width, count * width, encodings);
    scores_ = rules.scores.read(run.at(step.in[1]), image * count * rules.columns, count * rules.columns, scores);
    anchors_ = rules.anchors.read(run.at(step.in[2]), 0, 4 * count, anchors);
    std::fill_n(is_decoded_, count, false);
  }

  /// Fill the rows of the image in the results, and return the number of detections.
  int64_t select(float* boxes, void* labels, float* scores) {
    out_boxes_ = boxes, out_labels_ = labels, out_scores_ = scores;
    std::fill_n(boxes, 4 * rules_.rows(), 0.0f);
    std::memset(labels, 0, size_t(rules_.rows()) * 4);
    std::fill_n(scores, rules_.rows(), 0.0f);
    return rules_.regular ? regular() : fast();
  }

 private:
  float score(int64_t box, int64_t label) const {
    return scores_[box * rules_.columns + rules_.columns - rules_.classes + label];
  }

  const Box& box(int64_t n) {
    if (is_decoded_[n]) return boxes_[n];
    is_decoded_[n] = true;
    const float *e = encodings_ + rules_.width * n, *a = anchors_ + 4 * n;
    const float y = float(double(e[0]) / rules_.scale_y * double(a[2]) + double(a[0]));
    const float x = float(double(e[1]) / rules_.scale_x * double(a[3]) + double(a[1]));
    const float h = float(std::exp(double(e[2]) / rules_.scale_h) * double(a[2]) / 2);
    const float w = float(std::exp(double(e[3]) / rules_.scale_w) * double(a[3]) / 2);
    return boxes_[n] = {y - h, x - w, y + h, x + w};
  }

  /// Choose up to `limit` boxes by `best_`, in order of falling score, into `chosen_`; return their number.
  int64_t choose(int64_t limit) {
    int64_t count = 0, chosen = 0;
    for (int64_t n = 0; n < rules_.count; ++n)
      if (best_[n] >= rules_.least_score) candidates_[count++] = n;
    auto worse = [&](int64_t a, int64_t b) { return best_[a] < best_[b] || (best_[a] == best_[b] && a > b); };
    std::make_heap(candidates_, candidates_ + count, worse);
    for (int64_t left = count; left > 0 && chosen < limit; --left) {
      std::pop_heap(candidates_, candidates_ + left, worse);  // the boxes before are at the end, in rising order
      const int64_t candidate = candidates_[left - 1];
      if (!is_dropped(candidate, chosen, candidates_ + left, count - left)) chosen_[chosen++] = candidate;
    }
    return chosen;
  }

  /// Return whether a box overlaps one of the chosen boxes too much, or one of all better ones.
  bool is_dropped(int64_t candidate, int64_t chosen, const int64_t* better, int64_t count) {
    const Box& own = box(candidate);
    if (rules_.isolated) {
      for (int64_t n = 0; n < count; ++n)
        if (overlap(box(better[n]), own) > rules_.most_overlap) return true;
      return false;
    }
    for (int64_t n = 0; n < chosen; ++n)
      if (!(overlap(box(chosen_[n]), own) <= rules_.most_overlap)) return true;
    return false;
  }

  int64_t fast() {
    for (int64_t n = 0; n < rules_.count; ++n) {
      float greatest = -INFINITY;
      for (int64_t label = 0; label < rules_.classes; ++label) {
        const float value = score(n, label);
        greatest = value > greatest || value != value ? value : greatest;
      }
      best_[n] = greatest;
    }
    const int64_t chosen = choose(rules_.limit), labels = std::min(rules_.per_box, rules_.classes);
    for (int64_t n = 0; n < chosen; ++n) {
      rank_labels(chosen_[n], labels);
      for (int64_t rank = 0; rank < labels; ++rank) put(n * rules_.per_box + rank, chosen_[n], order_[rank]);
    }
    return chosen;
  }

  /// Put the best labels of a box first in `order_`; NaN comes last.
  void rank_labels(int64_t box, int64_t count) {
    for (int64_t label = 0; label < rules_.classes; ++label) order_[label] = label;
    auto better = [&](int64_t a, int64_t b) {
      const float score_a = score(box, a), score_b = score(box, b);
      if (score_a != score_a || score_b != score_b) return score_a == score_a || (score_b != score_b && a < b);
      return score_a > score_b || (score_a == score_b && a < b);
    };
    std::partial_sort(order_, order_ + count, order_ + rules_.classes, better);
  }

  int64_t regular() {
    int64_t count = 0;
    for (int64_t label = 0; label < rules_.classes; ++label) {
      for (int64_t n = 0; n < rules_.count; ++n) best_[n] = score(n, label);
      const int64_t chosen = choose(rules_.per_class);
      for (int64_t n = 0; n < chosen; ++n, ++count) pairs_[2 * count] = label, pairs_[2 * count + 1] = chosen_[n];
    }
    const int64_t num_detections = std::min(count, rules_.limit);
    for (int64_t n = 0; n < count; ++n) ranks_[n] = n;
    auto better = [&](int64_t a, int64_t b) {
      return pair_score(a) > pair_score(b) || (pair_score(a) == pair_score(b) && a < b);
    };
    std::partial_sort(ranks_, ranks_ + num_detections, ranks_ + count, better);
    for (int64_t row = 0; row < num_detections; ++row) put(row, pairs_[2 * ranks_[row] + 1], pairs_[2 * ranks_[row]]);
    return num_detections;
  }

  float pair_score(int64_t n) const { return score(pairs_[2 * n + 1], pairs_[2 * n]); }

  void put(int64_t row, int64_t chosen, int64_t label) {
    const Box& own = box(chosen);
    std::memcpy(out_boxes_ + 4 * row, &own, sizeof own);
    out_scores_[row] = score(chosen, label);
    const int64_t number = label + rules_.first_class;
    if (rules_.whole_classes)
      static_cast<int32_t*>(out_labels_)[row] = int32_t(number);
    else
      static_cast<float*>(out_labels_)[row] = float(number);
  }

  const Detection& rules_;
  const float *encodings_, *scores_, *anchors_;
  float* best_;
  Box* boxes_;
  int64_t *candidates_, *chosen_, *pairs_, *ranks_, *order_;
  bool* is_decoded_;
  float *out_boxes_ = nullptr, *out_scores_ = nullptr;
  void* out_labels_ = nullptr;
};

void Detection::run(const Step& step, const Run& run, int, int) {
  const Detection& self = step.as<Detection>();
  const int64_t rows = self.rows();
  for (int64_t image = 0; image < self.batch; ++image) {
    const int64_t num_detections =
        Image(self, step, run, image)
            .select(run.at<float>(step.out[0]) + image * rows * 4, run.at<char>(step.out[1]) + image * rows * 4,
                    run.at<float>(step.out[2]) + image * rows);
    if (self.whole_classes)
      run.at<int32_t>(step.out[3])[image] = int32_t(num_detections);
    else
      run.at<float>(step.out[3])[image] = float(num_detections);
  }
}

bool is_readable(const Tensor& tensor) { return is_f32(tensor) || (is_quantized8(tensor) && !tensor.has_axis()); }

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (node.text("rules") == "NNAPI") return refused("NNAPI's order of selection", IPR_REASON_ATTRIBUTE);
  for (size_t n : {0, 1, 2})
    if (!is_readable(*graph.in(node, n)))
      return refused("operand " + std::to_string(n) + " is " + described(*graph.in(node, n)) +
                         "; takes float32 and 8-bit integers with a scale",
                     IPR_REASON_DATA_TYPE);
  const int32_t labels = graph.out(node, 1).dtype;
  if (!is_f32(graph.out(node)) || !is_f32(graph.out(node, 2)) || graph.out(node, 3).dtype != labels ||
      (labels != IPR_DTYPE_FLOAT32 && labels != IPR_DTYPE_INT32))
    return refused("takes results of float32, and labels of int32 or float32", IPR_REASON_DATA_TYPE);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &encodings = *graph.in(node, 0), &scores = *graph.in(node, 1);
  auto state =
      std::make_shared<Detection>(Detection{Reader(encodings),
                                            Reader(scores),
                                            Reader(*graph.in(node, 2)),
                                            encodings.shape[0],
                                            encodings.shape[1],
                                            encodings.shape[2],
                                            node.integer("num_classes"),
                                            scores.extent(-1),
                                            node.integer("max_detections"),
                                            node.integer("max_classes_per_detection", 1),
                                            std::min(node.integer("detections_per_class", 1), encodings.shape[1]),
                                            float(node.number("nms_score_threshold")),
                                            float(node.number("nms_iou_threshold")),
                                            node.number("scale_y", 1),
                                            node.number("scale_x", 1),
                                            node.number("scale_h", 1),
                                            node.number("scale_w", 1),
                                            node.flag("use_regular_nms"),
                                            node.text("rules") == "ARMNN",
                                            node.flag("background_in_classes") ? 1 : 0,
                                            graph.out(node, 1).dtype == IPR_DTYPE_INT32});
  Step step;
  step.name = "DetectionPostProcess " + node.name;
  step.fn = &Detection::run;
  step.scratch_per_part = state->scratch();
  for (size_t n : {0, 1, 2}) step.in.push_back(builder.buffer(node.inputs[n]));
  for (int tensor : node.outputs) step.out.push_back(builder.buffer(tensor));
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family detection_family() { return {{{"DetectionPostProcess", "plain", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
