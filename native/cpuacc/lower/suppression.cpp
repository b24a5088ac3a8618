// DetectionOutput, which selects boxes relative to prior boxes, and PaddedNonMaxSuppression with soft suppression.

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cpuacc/lower/dynamic_result.hpp"
#include "cpuacc/lower/overlap.hpp"
#include "cpuacc/lower/reals.hpp"

namespace cpuacc {
namespace {

// ---- DetectionOutput ------------------------------------------------------------------------------------------------

enum class Code { corner, center_size, corner_size };

struct Output {
  Reals in, out;
  DynamicResult result;
  int64_t batch, priors, prior_batch, classes, locations, background, top_k, keep_top_k;
  bool variance_in_target;
  Code code;
  double lowest, overlap;

  struct Found {
    int64_t label, box;
  };

  /// The box that a location describes relative to a prior box with variances.
  template <class T>
  Corners<T> decoded(const T* location, const T* prior, const T* variances) const {
    T offset[4];
    for (int n = 0; n < 4; ++n) offset[n] = variance_in_target ? location[n] : location[n] * variances[n];
    Corners<T> box;
    for (int n = 0; n < 2; ++n) {
      const T side = prior[2 + n] - prior[n];
      if (code == Code::center_size) {
        const T center = offset[n] * side + (prior[n] + prior[2 + n]) / 2, half = std::exp(offset[2 + n]) * side / 2;
        box.low[n] = center - half, box.high[n] = center + half;
      } else {
        const T unit = code == Code::corner_size ? side : T(1);
        box.low[n] = prior[n] + offset[n] * unit, box.high[n] = prior[2 + n] + offset[2 + n] * unit;
      }
    }
    return box;
  }

  /// The boxes of one image: (priors, locations).
  template <class T>
  std::vector<Corners<T>> boxes_of(int64_t image, const T* location, const T* prior) const {
    const T* own = prior + (prior_batch == 1 ? 0 : image) * 8 * priors;
    std::vector<Corners<T>> boxes;
    for (int64_t p = 0; p < priors; ++p)
      for (int64_t l = 0; l < locations; ++l)
        boxes.push_back(
            decoded(location + ((image * priors + p) * locations + l) * 4, own + 4 * p, own + 4 * (priors + p)));
    return boxes;
  }

  template <class T>
  const Corners<T>& box_at(const std::vector<Corners<T>>& boxes, int64_t label, int64_t p) const {
    return boxes[size_t(p * locations + (locations > 1 ? label : 0))];
  }

  /// Append the boxes of a class that are selected, in order of falling score.
  template <class T>
  void one_class(int64_t label, const std::vector<Corners<T>>& boxes, const T* scores,
                 std::vector<Found>& selected) const {
    auto score = [&](int64_t p) { return scores[p * classes + label]; };
    std::vector<int64_t> ranked;
    for (int64_t p = 0; p < priors; ++p)
      if (score(p) > T(lowest)) ranked.push_back(p);
    sort_by_score(ranked, score);
    if (top_k >= 0 && top_k < int64_t(ranked.size())) ranked.resize(size_t(top_k));
    std::vector<int64_t> chosen;
    for (int64_t p : ranked) {
      auto fits = [&](int64_t better) {
        return overlap_of(box_at(boxes, label, better), box_at(boxes, label, p)) <= T(overlap);
      };
      if (!std::all_of(chosen.begin(), chosen.end(), fits)) continue;
      chosen.push_back(p);
      selected.push_back({label, p});
    }
  }

  template <class T>
  std::vector<Found> one_image(const std::vector<Corners<T>>& boxes, const T* scores) const {
    std::vector<Found> selected;
    for (int64_t label = 0; label < classes; ++label)
      if (label != background) one_class(label, boxes, scores, selected);
    if (keep_top_k < 0 || keep_top_k >= int64_t(selected.size())) return selected;
    std::vector<size_t> order(selected.size());
    std::iota(order.begin(), order.end(), size_t(0));
    sort_by_score(order, [&](size_t n) { return scores[selected[n].box * classes + selected[n].label]; });
    order.resize(size_t(keep_top_k));
    std::sort(order.begin(), order.end());
    std::vector<Found> best;
    for (size_t n : order) best.push_back(selected[n]);
    return best;
  }

  template <class T>
  void all(const Step& step, const Run& run) const {
    std::vector<T> memory[3];
    const T* data[3];
    const int64_t counts[3] = {batch * priors * locations * 4, batch * priors * classes, prior_batch * priors * 8};
    for (size_t n = 0; n < 3; ++n) {
      memory[n].resize(size_t(counts[n]));
      data[n] = in.read(run.at<void>(step.in[n]), counts[n], memory[n].data());
    }
    std::vector<T> rows;
    for (int64_t image = 0; image < batch; ++image) {
      const std::vector<Corners<T>> boxes = boxes_of(image, data[0], data[2]);
      const T* scores = data[1] + image * priors * classes;
      for (const Found& found : one_image(boxes, scores)) {
        const Corners<T>& box = box_at(boxes, found.label, found.box);
        rows.insert(rows.end(), {T(image), T(found.label), scores[found.box * classes + found.label], box.low[0],
                                 box.low[1], box.high[0], box.high[1]});
      }
    }
    if (rows.empty()) {
      rows.assign(size_t(7 * batch), T(-1));
      for (int64_t image = 0; image < batch; ++image) rows[size_t(7 * image)] = T(image);
    }
    const Shape shape = {1, 1, int64_t(rows.size()) / 7, 7};
    if (!result.takes(run, 0, shape)) return;
    if (char* to = result.memory(step, run, shape)) out.write(rows.data(), int64_t(rows.size()), to);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Output& self = step.as<Output>();
    self.in.is_double() ? self.all<double>(step, run) : self.all<float>(step, run);
  }
};

Refusal support_output(const Graph& graph, const Node& node, const Settings& settings) {
  if (Refusal why = takes_reals(graph, node, 3, settings.isa)) return why;
  if (graph.in(node, 0)->is_quantized()) return refused("the operands are quantized", IPR_REASON_QUANTIZATION);
  return without_posts(graph, node, settings);
}

void lower_output(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &locations = *graph.in(node, 0), &priors = *graph.in(node, 2);
  const std::string_view code = node.text("code", "CORNER");
  auto state = std::make_shared<Output>();
  state->in = Reals(locations, builder.settings.isa), state->out = Reals(graph.out(node), builder.settings.isa);
  state->result = DynamicResult(graph, node, 0);
  state->batch = locations.shape[0], state->prior_batch = priors.shape[0], state->priors = priors.shape[2] / 4;
  state->classes = node.integer("num_classes");
  state->locations = node.flag("share_location", true) ? 1 : state->classes;
  state->background = node.integer("background_label");
  state->top_k = node.integer("top_k", -1), state->keep_top_k = node.integer("keep_top_k", -1);
  state->variance_in_target = node.flag("variance_encoded_in_target");
  state->code = code == "CORNER" ? Code::corner : code == "CORNER_SIZE" ? Code::corner_size : Code::center_size;
  state->lowest = node.number("confidence_threshold", -std::numeric_limits<double>::infinity());
  state->overlap = node.number("nms_threshold");
  Step step;
  step.name = "DetectionOutput " + node.name;
  step.fn = &Output::run;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.out = {state->result.buffer(builder)};
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- PaddedNonMaxSuppression ----------------------------------------------------------------------------------------

/// A box that may still be selected; boxes that were selected before number `begin` have lowered its score.
struct Candidate {
  float score;
  int32_t box;
  int64_t begin;
};

/// A binary heap whose root has the greatest score. Candidates move as in the heap of the C++ library, so that equal
/// scores are taken in the same order.
class Heap {
 public:
  int64_t size() const { return int64_t(all_.size()); }

  void push(const Candidate& added) {
    all_.push_back(added);
    rise(all_.size() - 1);
  }

  Candidate pop() {
    const Candidate root = all_[0], last = all_.back();
    all_.pop_back();
    if (all_.empty()) return root;
    size_t gap = 0;
    for (size_t child; 2 * gap + 1 < all_.size(); gap = child) {
      child = std::min(2 * gap + 2, all_.size() - 1);
      if (all_[child].score < all_[2 * gap + 1].score) child = 2 * gap + 1;
      all_[gap] = all_[child];
    }
    all_[gap] = last;
    rise(gap);
    return root;
  }

 private:
  void rise(size_t at) {
    const Candidate moved = all_[at];
    for (; at > 0 && all_[(at - 1) / 2].score < moved.score; at = (at - 1) / 2) all_[at] = all_[(at - 1) / 2];
    all_[at] = moved;
  }

  std::vector<Candidate> all_;
};

struct Padded {
  DynamicResult indices, scores;
  int64_t count;

  /// The thresholds of a run.
  struct Rule {
    float overlap, lowest, decay;  // `decay`: -0.5 / sigma; 0 for hard suppression
  };

  static Corners<float> box_of(const float* at) {
    Corners<float> box;
    for (int n = 0; n < 2; ++n) box.low[n] = least_of(at[n], at[2 + n]), box.high[n] = most_of(at[n], at[2 + n]);
    return box;
  }

  /// The score of a candidate after suppression by the boxes that were selected since; NaN if it is dropped.
  float lowered(const Rule& rule, const float* boxes, const Candidate& candidate,
                const std::vector<Candidate>& chosen) const {
    float score = candidate.score;
    for (size_t n = chosen.size(); n-- > size_t(candidate.begin);) {
      const float ratio = overlap_of(box_of(boxes + 4 * candidate.box), box_of(boxes + 4 * chosen[n].box));
      if (ratio >= rule.overlap) return NAN;
      if (rule.decay != 0) score = score * std::exp(rule.decay * ratio * ratio);
      if (score <= rule.lowest) break;
    }
    return score;
  }

  std::vector<Candidate> selected(const Rule& rule, const float* boxes, const float* scores, int64_t limit) const {
    Heap heap;
    for (int64_t n = 0; n < count; ++n)
      if (scores[n] > rule.lowest) heap.push({scores[n], int32_t(n), 0});
    limit = std::min(limit, heap.size());
    std::vector<Candidate> chosen;
    while (heap.size() > 0 && int64_t(chosen.size()) < limit) {
      const Candidate candidate = heap.pop();
      const float score = lowered(rule, boxes, candidate, chosen);
      if (std::isnan(score)) continue;
      const bool same = score == candidate.score;
      if (same) chosen.push_back(candidate);
      if (score > rule.lowest) heap.push({score, candidate.box, int64_t(chosen.size()) - (same ? 1 : 0)});
    }
    return chosen;
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Padded& self = step.as<Padded>();
    const int64_t limit = run.at<int32_t>(step.in[2])[0];
    if (limit < 0) return run.fail(2, 0, limit, 0, INT32_MAX);
    const float sigma = step.in[5] ? run.at<float>(step.in[5])[0] : 0;
    const Rule rule{run.at<float>(step.in[3])[0], run.at<float>(step.in[4])[0],
                    sigma > 0 ? float(-0.5 / double(sigma)) : 0};
    const Shape shape = {limit};
    if (!self.indices.takes(run, 2, shape) || !self.scores.takes(run, 2, shape)) return;
    const std::vector<Candidate> chosen =
        self.selected(rule, run.at<float>(step.in[0]), run.at<float>(step.in[1]), limit);
    int32_t* indices = reinterpret_cast<int32_t*>(self.indices.memory(step, run, shape));
    float* scores = reinterpret_cast<float*>(self.scores.memory(step, run, shape));
    for (int64_t n = 0; n < limit; ++n) {
      const bool is_chosen = n < int64_t(chosen.size());
      if (indices) indices[n] = is_chosen ? chosen[size_t(n)].box : 0;
      if (scores) scores[n] = is_chosen ? chosen[size_t(n)].score : 0;
    }
    if (step.out[2]) run.at<int32_t>(step.out[2])[0] = int32_t(chosen.size());
  }
};

Refusal support_padded(const Graph& graph, const Node& node, const Settings& settings) {
  for (size_t n : {0, 1, 3, 4, 5})
    if (graph.in(node, n) && !is_f32(*graph.in(node, n)))
      return refused("operand " + std::to_string(n) + " is " + described(*graph.in(node, n)), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower_padded(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  auto state = std::make_shared<Padded>();
  state->indices = DynamicResult(graph, node, 0), state->scores = DynamicResult(graph, node, 1);
  state->count = graph.in(node, 1)->elements();
  Step step;
  step.name = "PaddedNonMaxSuppression " + node.name;
  step.fn = &Padded::run;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.in.resize(6);
  step.out = {state->indices.buffer(builder), state->scores.buffer(builder),
              builder.buffer(node.outputs.size() > 2 ? node.outputs[2] : -1)};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family suppression_family() {
  return {{{"DetectionOutput", "plain", support_output, lower_output, nullptr, false, true},
           {"PaddedNonMaxSuppression", "plain", support_padded, lower_padded, nullptr, false, true}},
          {}};
}

}  // namespace cpuacc
