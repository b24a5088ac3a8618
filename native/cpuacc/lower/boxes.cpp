// Layers of detectors: non-maximum suppression, whose number of results depends on the data.

#include "cpuacc/kernels/boxes.hpp"

#include <algorithm>
#include <limits>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

/// The indices of the selected boxes of each class of each image (`limit` places for each), and their numbers.
struct Select {
  Suppress suppress;
  Proposals rule;  // without the tensors
  int64_t pairs, classes, item_size;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Select& self = step.as<Select>();
    const Range range = split(self.pairs, part, parts);
    int32_t* indices = run.at<int32_t>(step.out[0]);
    int64_t* counts = run.at<int64_t>(step.out[1]);
    for (int64_t pair = range.first; pair < range.last; ++pair) {
      Proposals own = self.rule;
      own.boxes = run.at<char>(step.in[0]) + pair / self.classes * own.count * 4 * self.item_size;
      own.scores = run.at<char>(step.in[1]) + pair * own.count * self.item_size;
      counts[pair] = self.suppress(own, run.part_scratch<char>(part), indices + pair * own.limit);
    }
  }
};

/// Rows (image, class, box) of all that was selected. The shape of the result is set here.
struct Collect {
  int64_t pairs, classes, limit;

  static void run(const Step& step, const Run& run, int, int) {
    const Collect& self = step.as<Collect>();
    const int32_t* indices = run.at<int32_t>(step.in[0]);
    const int64_t* counts = run.at<int64_t>(step.in[1]);
    int64_t rows = 0;
    for (int64_t pair = 0; pair < self.pairs; ++pair) rows += counts[pair];
    int64_t* out = static_cast<int64_t*>(run.resized(step.out[0], {rows, 3}));
    if (!out) return;
    for (int64_t pair = 0; pair < self.pairs; ++pair)
      for (int64_t n = 0; n < counts[pair]; ++n) {
        *out++ = pair / self.classes;
        *out++ = pair % self.classes;
        *out++ = indices[pair * self.limit + n];
      }
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& boxes = *graph.in(node, 0);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (!box_kernels_for(settings.isa).suppress(boxes.dtype))
    return refused("suppression of " + described(boxes) + " is not supported", IPR_REASON_DATA_TYPE);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Tensor &boxes = *builder.graph.in(node, 0), &scores = *builder.graph.in(node, 1);
  const int64_t limit = node.integer("max_output_boxes_per_class");
  if (limit == 0) return;  // the result is known to be empty
  const BoxKernels& kernels = box_kernels_for(builder.settings.isa);
  auto state = std::make_shared<Select>();
  state->suppress = kernels.suppress(boxes.dtype);
  state->classes = scores.shape[1];
  state->pairs = scores.shape[0] * scores.shape[1];
  state->item_size = int64_t(ipr::item_size(boxes.dtype));
  Proposals& rule = state->rule;
  rule.count = scores.shape[2];
  rule.limit = std::min(limit, rule.count);
  rule.overlap = node.number("iou_threshold");
  rule.score = node.number("score_threshold", -std::numeric_limits<double>::infinity());
  rule.centers = node.flag("center_point_box");
  auto collect = std::make_shared<Collect>();
  collect->pairs = state->pairs, collect->classes = state->classes, collect->limit = rule.limit;
  const Buffer indices = builder.temporary(uint64_t(std::max<int64_t>(1, state->pairs * rule.limit)) * 4);
  const Buffer counts = builder.temporary(uint64_t(std::max<int64_t>(1, state->pairs)) * 8);
  Step select;
  select.name = "select boxes " + node.name;
  select.fn = &Select::run;
  select.max_parts = parts_for(builder.settings, double(scores.elements()) * cost::kSortNs);
  select.scratch_per_part = kernels.scratch(rule.count, rule.limit);
  select.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  select.out = {indices, counts};
  select.state = std::move(state);
  builder.add(std::move(select));
  Step rows;
  rows.name = "NonMaxSuppression " + node.name;
  rows.fn = &Collect::run;
  rows.in = {indices, counts};
  rows.out = {builder.buffer(node.outputs[0])};
  rows.state = std::move(collect);
  builder.add(std::move(rows));
}

}  // namespace

Family boxes_family() { return {{{"NonMaxSuppression", "plain", support, lower, nullptr, false, true}}, {}}; }

}  // namespace cpuacc
