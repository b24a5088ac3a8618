// Col2Im of floats and of integers, which wrap around: the sum of the columns of sliding windows, with which transposed
// convolutions of volumes end.

#include <algorithm>
#include <utility>
#include <vector>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr size_t kAxes = 3;                       // spatial axes; images have one plane
constexpr int64_t kShortRow = 5;                  // fewer places along the last axis are added by a list
constexpr int64_t kMostListed = 1 << 14;          // elements of a column in this list
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
  std::vector<std::pair<int32_t, int32_t>> pairs;  // empty if rows of places are long

  int64_t places() const { return axes[0].places * axes[1].places * axes[2].places; }
  int64_t pixels() const { return axes[0].size * axes[1].size * axes[2].size; }
  int64_t cells() const { return axes[0].window * axes[1].window * axes[2].window; }

  /// Call visit(source, target, first, last) for each cell and row of places: the elements from `source + first` on are
  /// added to the pixels from `target + first * stride` on.
  template <class Visit>
  void each_row(Visit visit) const {
    int64_t source = 0;
    for (int64_t z = 0; z < axes[0].window; ++z)
      for (int64_t y = 0; y < axes[1].window; ++y)
        for (int64_t x = 0; x < axes[2].window; ++x, source += places()) {
          const Range planes = axes[0].inside(z), rows = axes[1].inside(y), columns = axes[2].inside(x);
          for (int64_t d = planes.first; d < planes.last; ++d)
            for (int64_t h = rows.first; h < rows.last; ++h) {
              const int64_t row = axes[0].element(z, d) * axes[1].size + axes[1].element(y, h);
              visit(source + (d * axes[1].places + h) * axes[2].places, row * axes[2].size + axes[2].element(x, 0),
                    columns.first, columns.last);
            }
        }
  }

  /// List the elements of the column and the pixels that they are added to, if rows of places are short.
  void list_pairs() {
    if (axes[2].places >= kShortRow || cells() * places() > kMostListed || pixels() > INT32_MAX) return;
    each_row([&](int64_t source, int64_t target, int64_t first, int64_t last) {
      for (int64_t w = first; w < last; ++w)
        pairs.push_back({int32_t(source + w), int32_t(target + w * axes[2].stride)});
    });
  }

  template <class T>
  void add(const T* from, T* image) const {
    if (!pairs.empty()) {
      for (const auto& [source, target] : pairs) image[target] = T(image[target] + from[source]);
      return;
    }
    const int64_t stride = axes[2].stride;
    each_row([&](int64_t source, int64_t target, int64_t first, int64_t last) {
      const T* row = from + source;
      T* to = image + target;
      if (stride == 1)
        for (int64_t w = first; w < last; ++w) to[w] = T(to[w] + row[w]);
      else
        for (int64_t w = first; w < last; ++w) to[w * stride] = T(to[w * stride] + row[w]);
    });
  }

  template <class T>
  static void run(const Step& step, const Run& run, int part, int parts) {
    const Col2Im& self = step.as<Col2Im>();
    const Range range = split(self.images, part, parts);
    const int64_t elements = self.cells() * self.places(), pixels = self.pixels();
    std::fill(run.at<T>(step.out[0]) + range.first * pixels, run.at<T>(step.out[0]) + range.last * pixels, T(0));
    for (int64_t n = range.first; n < range.last; ++n)
      self.add(run.at<T>(step.in[0]) + n * elements, run.at<T>(step.out[0]) + n * pixels);
  }
};

Step::Function function_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return Col2Im::run<float>;
    case IPR_DTYPE_FLOAT64:
      return Col2Im::run<double>;
    case IPR_DTYPE_INT8:
    case IPR_DTYPE_UINT8:
      return Col2Im::run<uint8_t>;
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_UINT16:
      return Col2Im::run<uint16_t>;
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_UINT32:
      return Col2Im::run<uint32_t>;
    case IPR_DTYPE_INT64:
    case IPR_DTYPE_UINT64:
      return Col2Im::run<uint64_t>;
    default:
      return nullptr;
  }
}

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
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!function_of(in.dtype) || in.dtype != out.dtype || in.is_quantized() || out.is_quantized())
    return refused("operand 0 is " + described(in), IPR_REASON_DATA_TYPE);
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
  state->list_pairs();
  Step step;
  step.name = "Col2Im " + node.name;
  step.fn = function_of(builder.graph.out(node).dtype);
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
