// Col2Im of float32: the sum of the columns of sliding windows, with which transposed convolutions of volumes end.

#include <algorithm>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr size_t kAxes = 3;                       // spatial axes; images have one plane
constexpr int64_t kMaxNumber = int64_t{1} << 31;  // largest stride, dilation and padding

/// The movement of the window along one axis: cell `k` at position `p` is added to element p * stride + k * dilation -
/// pad, if that is in the image.
struct Slide {
  int64_t window = 1, stride = 1, dilation = 1, pad = 0, size = 1, places = 1;

  int64_t element(int64_t cell, int64_t place) const { return place * stride + cell * dilation - pad; }
  /// The positions at which a cell is in the image.
  Range inside(int64_t cell) const {
    const int64_t start = element(cell, 0);
    const int64_t first = start < 0 ? (-start + stride - 1) / stride : 0;
    const int64_t last = size > start ? (size - start + stride - 1) / stride : 0;
    return {std::min(first, places), std::min(std::max(first, last), places)};
  }
};

struct Col2Im {
  int64_t images;  // channels of all images
  Slide axes[kAxes];

  int64_t places() const { return axes[0].places * axes[1].places * axes[2].places; }
  int64_t pixels() const { return axes[0].size * axes[1].size * axes[2].size; }
  int64_t cells() const { return axes[0].window * axes[1].window * axes[2].window; }

  /// Add the column of one cell of the window.
  void add(const float* from, float* image, int64_t z, int64_t y, int64_t x) const {
    const Range planes = axes[0].inside(z), rows = axes[1].inside(y), columns = axes[2].inside(x);
    for (int64_t d = planes.first; d < planes.last; ++d)
      for (int64_t h = rows.first; h < rows.last; ++h) {
        const float* row = from + (d * axes[1].places + h) * axes[2].places;
        float* to = image + (axes[0].element(z, d) * axes[1].size + axes[1].element(y, h)) * axes[2].size;
        for (int64_t w = columns.first; w < columns.last; ++w) to[axes[2].element(x, w)] += row[w];
      }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Col2Im& self = step.as<Col2Im>();
    Range range = split(self.images, part, parts);
    for (int64_t n = range.first; n < range.last; ++n) {
      const float* from = run.at<float>(step.in[0]) + n * self.cells() * self.places();
      float* image = run.at<float>(step.out[0]) + n * self.pixels();
      std::fill_n(image, self.pixels(), 0.0f);
      for (int64_t z = 0; z < self.axes[0].window; ++z)
        for (int64_t y = 0; y < self.axes[1].window; ++y)
          for (int64_t x = 0; x < self.axes[2].window; ++x, from += self.places()) self.add(from, image, z, y, x);
    }
  }
};

int64_t number(const std::vector<int64_t>& numbers, size_t at, int64_t absent) {
  return numbers.empty() ? absent : numbers[at];
}

/// The window of a node whose axes are the last ones of three.
Col2Im col2im_of(const Graph& graph, const Node& node) {
  const std::vector<int64_t>&window = node.integers("window_shape"), &shape = node.integers("image_shape"),
        &pads = node.integers("pad_list");
  Col2Im col2im{};
  col2im.images = graph.out(node).extent(0) * graph.out(node).extent(1);
  const size_t skipped = kAxes - shape.size();
  for (size_t n = 0; n < shape.size(); ++n) {
    Slide& axis = col2im.axes[skipped + n];
    axis.window = window[n], axis.size = shape[n];
    axis.stride = number(node.integers("strides"), n, 1), axis.dilation = number(node.integers("dilations"), n, 1);
    axis.pad = number(pads, 2 * n, 0);
    const int64_t padded = axis.size + axis.pad + number(pads, 2 * n + 1, 0);
    axis.places = std::max<int64_t>(0, (padded - (axis.window - 1) * axis.dilation - 1 + axis.stride) / axis.stride);
  }
  return col2im;
}

Refusal support(const Graph& graph, const Node& node, const Settings&) {
  if (Refusal why = all_f32(graph, node)) return why;
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (node.integers("image_shape").size() > kAxes) return refused("more than three spatial axes");
  for (const char* name : {"window_shape", "strides", "dilations", "pad_list"})
    for (int64_t value : node.integers(name))
      if (value > kMaxNumber) return refused(std::string(name) + " has a number above 2**31", IPR_REASON_RESOURCE);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  auto state = std::make_shared<Col2Im>(col2im_of(builder.graph, node));
  Step step;
  step.name = "Col2Im " + node.name;
  step.fn = &Col2Im::run;
  const double work = double(state->images) * double(state->cells() * state->places() + state->pixels());
  step.max_parts = parts_for(builder.settings, work * cost::kElementNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family col2im_family() { return {{{"Col2Im", "plain", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
