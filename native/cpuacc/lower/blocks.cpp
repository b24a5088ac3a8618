// SpaceToBatchNd and BatchToSpaceNd: copies of a strided view for each place within a block.

#include <algorithm>

#include "cpuacc/lower/encoding.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/strided_copy.hpp"

namespace cpuacc {
namespace {

std::string label(const Node& node) { return node.type + " " + node.name; }

/// The first axis that is divided into blocks.
size_t first_axis(const Node& node) { return node.text("data_layout") == "NCHW" ? 2 : 1; }

/// Calls `make` with each place within a block, and with its number in the order of the batch.
template <class Make>
void each_place(const std::vector<int64_t>& block, const Make& make) {
  int64_t places = 1;
  for (int64_t extent : block) places *= extent;
  for (int64_t number = 0; number < places; ++number) {
    std::vector<int64_t> place(block.size());
    int64_t rest = number;
    for (size_t n = block.size(); n-- > 0;) place[n] = rest % block[n], rest /= block[n];
    make(number, place);
  }
}

/// The elements along one axis of the fine image that have this place within their blocks, and are inside of the image:
/// `count` of them, from `fine` of the image and from `coarse` of the axis of blocks on.
struct Inside {
  int64_t fine, coarse, count;
};

/// `before` is the padding, or the crop, before the image.
Inside inside(int64_t place, int64_t block, int64_t before, int64_t extent, int64_t blocks) {
  const int64_t first = std::max<int64_t>(0, (before - place + block - 1) / block);
  const int64_t fine = first * block + place - before;
  if (fine >= extent || first >= blocks) return {0, 0, 0};
  return {fine, first, std::min((extent - fine + block - 1) / block, blocks - first)};
}

/// Copy all places between the fine image and the coarse one, whose batch has all places.
void copy_places(const Node& node, Builder& builder, bool into_batch, const std::vector<int64_t>& before) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const Tensor &fine = into_batch ? in : out, &coarse = into_batch ? out : in;
  const std::vector<int64_t>& block = node.integers("block_shape");
  const Shape f = steps_of(fine.shape), c = steps_of(coarse.shape);
  const size_t first = first_axis(node);
  each_place(block, [&](int64_t number, const std::vector<int64_t>& place) {
    int64_t fine_offset = 0, coarse_offset = number * fine.shape[0] * c[0];
    Axes axes;
    for (size_t n = 0; n < fine.shape.size(); ++n) {
      if (n < first || n >= first + block.size()) {
        axes.push_back({fine.shape[n], into_batch ? f[n] : c[n], into_batch ? c[n] : f[n]});
        continue;
      }
      const size_t at = n - first;
      const Inside cells = inside(place[at], block[at], before[2 * at], fine.shape[n], coarse.shape[n]);
      axes.push_back({cells.count, into_batch ? f[n] * block[at] : c[n], into_batch ? c[n] : f[n] * block[at]});
      fine_offset += cells.fine * f[n], coarse_offset += cells.coarse * c[n];
    }
    if (std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.extent == 0; })) return;
    builder.add(copy_step(builder, label(node), builder.buffer(node.inputs[0]), builder.buffer(node.outputs[0]), axes,
                          ipr::item_size(in.dtype), into_batch ? fine_offset : coarse_offset,
                          into_batch ? coarse_offset : fine_offset));
  });
}

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  constexpr int64_t kMostPlaces = 4096;
  int64_t places = 1;
  for (int64_t extent : node.integers("block_shape")) places *= extent;
  if (places > kMostPlaces) return refused("a block has more than 4096 elements", IPR_REASON_ATTRIBUTE);
  if (graph.in(node, 0)->rank() > 8) return refused("takes tensors of up to 8 axes", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

Refusal support_padded(const Graph& graph, const Node& node, const Settings& settings) {
  char zero[8];
  if (!encode(0, *graph.in(node, 0), zero))
    return refused("a border of " + described(*graph.in(node, 0)) + " is not supported", IPR_REASON_DATA_TYPE);
  return support(graph, node, settings);
}

void lower_to_batch(const Node& node, Builder& builder) {
  const Tensor& out = builder.graph.out(node);
  const std::vector<int64_t>& pads = node.integers("pad_list");
  if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad > 0; })) {
    char zero[8];
    encode(0, *builder.graph.in(node, 0), zero);
    builder.add(fill_step(builder, "border of " + node.name, builder.buffer(node.outputs[0]), zero,
                          ipr::item_size(out.dtype), out.elements()));
  }
  copy_places(node, builder, true, pads);
}

void lower_to_space(const Node& node, Builder& builder) { copy_places(node, builder, false, node.integers("crops")); }

}  // namespace

Family blocks_family() {
  return {{{"SpaceToBatchNd", "plain", support_padded, lower_to_batch, nullptr},
           {"BatchToSpaceNd", "plain", support, lower_to_space, nullptr}},
          {}};
}

}  // namespace cpuacc
