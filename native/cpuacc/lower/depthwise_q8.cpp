// Quantized DepthwiseConvolution2d. A row of pixels with all their channels is one line of bytes. With stride 1, the
// bytes that a tap multiplies are at a constant distance from those of the result. With other strides, columns are
// first grouped by their remainder modulo the stride. With a channel multiplier, input channels are repeated.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/q8.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kSlack = 128;  // bytes that kernels may read after the last copied row

struct Depthwise {
  const DepthwiseQ8Kernels* kernels;
  const ElementwiseQ8Kernels* elementwise;
  Q8Depthwise weights;
  Q8Requantization requantization;
  int64_t batch, in_h, in_w, in_c, times, out_h, out_w, channels;
  int64_t stride_y, stride_x, top, left;
  int64_t height;             // rows that one window reads, or two windows if two rows of output share their loads
  int64_t plane, planes;      // bytes of the columns of one remainder, and the number of remainders
  int64_t chunk;              // output rows that are computed from one copy of the input
  std::vector<int64_t> taps;  // 4 for each group: offsets in bytes from the first row of the window
  uint8_t zero;
  uint32_t flip;

  int64_t row() const { return plane * planes; }
};

/// Copy one row of the image as lines of bytes, including its padding.
void copy_row(const Depthwise& d, const uint8_t* image, int64_t row, uint8_t* to) {
  if (row < 0 || row >= d.in_h) {
    memset(to, d.zero, size_t(d.row()));
    return;
  }
  int64_t columns = d.plane / d.channels;
  for (int64_t phase = 0; phase < d.planes; ++phase, to += d.plane) {
    int64_t first = phase - d.left;  // the column of the image that comes first
    int64_t begin = first < 0 ? std::min((-first + d.stride_x - 1) / d.stride_x, columns) : 0;
    int64_t inside = first < d.in_w ? (d.in_w - 1 - first) / d.stride_x + 1 : 0;
    int64_t end = std::clamp(inside, begin, columns);
    const uint8_t* from = image + (row * d.in_w + first + begin * d.stride_x) * d.in_c;
    memset(to, d.zero, size_t(begin * d.channels));
    uint8_t* at = to + begin * d.channels;
    if (d.stride_x == 1 && d.times == 1)
      d.elementwise->copy(at, from, (end - begin) * d.channels, d.flip);
    else
      d.elementwise->gather(at, from, end - begin, d.in_c, d.stride_x * d.in_c, d.times, d.flip);
    memset(to + end * d.channels, d.zero, size_t((columns - end) * d.channels));
  }
}

void run_rows(const Depthwise& d, const uint8_t* in, uint8_t* out, Range rows, const uint8_t** taps, uint8_t* copy) {
  int64_t together = d.weights.rows, bytes = d.out_w * d.channels;
  uint8_t* spare = copy + ((d.chunk - 1) * d.stride_y + d.height) * d.row() +
                   kSlack;  // receives the second row of output if there is none
  for (int64_t first = rows.first; first < rows.last; first += d.chunk) {
    int64_t count = std::min(d.chunk, rows.last - first), done = (count + together - 1) / together * together;
    int64_t seen = (done - together) * d.stride_y + d.height;
    for (int64_t n = 0; n < seen; ++n) copy_row(d, in, first * d.stride_y - d.top + n, copy + n * d.row());
    for (int64_t n = 0; n < count; n += together) {
      for (size_t tap = 0; tap < d.taps.size(); ++tap) taps[tap] = copy + n * d.stride_y * d.row() + d.taps[tap];
      uint8_t* to = out + (first + n) * bytes;
      uint8_t* results[2] = {to, n + 1 < count ? to + bytes : spare};
      d.kernels->convolve(d.weights, taps, d.requantization, results, bytes);
    }
  }
}

uint64_t taps_bytes(const Depthwise& d) { return (d.taps.size() * sizeof(void*) + 63) / 64 * 64; }

void run_depthwise(const Step& step, const Run& run, int part, int parts) {
  const Depthwise& d = step.as<Depthwise>();
  Range range = split(d.batch * d.out_h, part, parts, d.batch == 1 ? d.weights.rows : 1);
  char* scratch = run.part_scratch<char>(part);
  for (int64_t image = range.first / d.out_h; image * d.out_h < range.last; ++image) {
    Range own{std::max(range.first - image * d.out_h, int64_t(0)), std::min(range.last - image * d.out_h, d.out_h)};
    run_rows(d, run.at<uint8_t>(step.in[0]) + image * d.in_h * d.in_w * d.in_c,
             run.at<uint8_t>(step.out[0]) + image * d.out_h * d.out_w * d.channels, own,
             reinterpret_cast<const uint8_t**>(scratch), reinterpret_cast<uint8_t*>(scratch) + taps_bytes(d));
  }
}

// ---- Packing --------------------------------------------------------------------------------------------------------

/// The tap of the window that multiplies byte n of a group, for each row of output; -1: none.
struct Group {
  int64_t cells[2][4];
};

struct Cells {
  int64_t height, width, dilation_y, dilation_x;
};

/// Return whether the image is a small column, which is computed as a row.
bool is_column(const Depthwise& d, const Cells& cells) {
  return d.in_w == 1 && d.out_w == 1 && cells.width == 1 && d.left == 0 && d.in_h * d.in_c * d.times < 16 * 1024;
}

void transpose_column(Depthwise& d, Cells& cells) {
  std::swap(d.in_h, d.in_w);
  std::swap(d.out_h, d.out_w);
  std::swap(d.top, d.left);
  std::swap(d.stride_y, d.stride_x);
  cells = {cells.width, cells.height, cells.dilation_x, cells.dilation_y};
}

/// Return whether two rows of output share their loads: the rows of the window are adjacent.
bool shares_rows(const Cells& cells, int64_t stride_y) {
  return stride_y == 1 && cells.dilation_y == 1 && cells.height <= 3;
}

std::vector<Group> groups_of(const Cells& cells, bool shared) {
  std::vector<Group> groups;
  if (shared) {
    for (int64_t x = 0; x < cells.width; ++x) {
      Group group;
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t n = 0; n < 4; ++n)
          group.cells[row][n] = n >= row && n - row < cells.height ? (n - row) * cells.width + x : -1;
      groups.push_back(group);
    }
    return groups;
  }
  int64_t count = cells.height * cells.width;
  for (int64_t first = 0; first < count; first += 4) {
    Group group;
    for (int64_t n = 0; n < 4; ++n) group.cells[0][n] = group.cells[1][n] = first + n < count ? first + n : -1;
    groups.push_back(group);
  }
  return groups;
}

/// The offsets of the bytes of each group.
std::vector<int64_t> taps_of(const Depthwise& d, const Cells& cells, const std::vector<Group>& groups, bool shared) {
  std::vector<int64_t> taps;
  auto place = [&](int64_t y, int64_t x) {
    int64_t column = x * cells.dilation_x;
    return y * cells.dilation_y * d.row() + column % d.stride_x * d.plane + column / d.stride_x * d.channels;
  };
  for (size_t g = 0; g < groups.size(); ++g)
    for (int64_t n = 0; n < 4; ++n) {
      int64_t cell = groups[g].cells[0][n];
      if (shared)
        taps.push_back(place(std::min(n, cells.height), int64_t(g)));
      else
        taps.push_back(cell < 0 ? taps.back() : place(cell / cells.width, cell % cells.width));
    }
  return taps;
}

/// The weights minus their zero point.
std::vector<int32_t> weights_of(const Tensor& weights) {
  std::vector<int32_t> all(static_cast<size_t>(weights.elements()));
  const int32_t zero = int32_t(weights.zero_point());
  auto shifted = [zero](int32_t code) { return code - zero; };
  if (is_signed(weights))
    std::transform(weights.values<int8_t>(), weights.values<int8_t>() + all.size(), all.begin(), shifted);
  else
    std::transform(weights.values<uint8_t>(), weights.values<uint8_t>() + all.size(), all.begin(), shifted);
  return all;
}

Q8Sums sums_of(const std::vector<int32_t>& weights, const std::vector<int64_t>& biases, size_t channels, int64_t zero) {
  std::vector<Q8Sums::Weights> all(channels);
  for (size_t first = 0; first < weights.size(); first += channels)
    for (size_t channel = 0; channel < channels; ++channel) all[channel].add(weights[first + channel]);
  Q8Sums sums;
  for (size_t channel = 0; channel < channels; ++channel) sums.add(all[channel], biases[channel], zero, 0);
  return sums;
}

/// The number of int8 weights whose sum is each weight minus its zero point, which is between -255 and 255.
int64_t summands_of(const std::vector<int32_t>& weights) {
  int32_t lowest = 0, highest = 0;
  for (int32_t weight : weights) lowest = std::min(lowest, weight), highest = std::max(highest, weight);
  return std::max<int64_t>({1, (highest + 126) / 127, (-lowest + 127) / 128});
}

void pack_weights(const Q8Depthwise& d, const Q8Channels& lanes, const std::vector<Group>& groups,
                  const std::vector<int32_t>& weights, int64_t channels, int width, int8_t* to) {
  for (int64_t phase = 0; phase < d.period; ++phase)
    for (const Group& group : groups)
      for (int64_t row = 0; row < d.rows; ++row)
        for (int64_t set = 0; set < d.sets; ++set)
          for (int64_t lane = 0; lane < 4 * width; ++lane)
            for (int64_t n = 0; n < 4; ++n, ++to) {
              int64_t cell = group.cells[row][n];
              if (cell < 0) continue;
              const int64_t channel = lanes.of_lane[size_t(phase * 4 * width + lane)];
              int32_t weight = weights[size_t(cell * channels + channel)];
              for (int64_t before = 0; before < set; ++before) weight -= std::clamp(weight, -128, 127);
              *to = int8_t(std::clamp(weight, -128, 127));
            }
}

/// The channel of each lane of each vector, until the channels repeat.
Q8Channels lanes_of(int64_t period, int64_t channels, int width) {
  Q8Channels lanes;
  for (int64_t phase = 0; phase < period; ++phase) {
    lanes.panels.push_back({phase * 4 * width % channels, 4 * width, 4, phase * 4 * width, 0, 0, false});
    for (int vector = 0; vector < 4; ++vector)
      for (int lane = 0; lane < width; ++lane)
        lanes.of_lane.push_back((phase * 4 * width + channel_of(4, vector, lane)) % channels);
  }
  return lanes;
}

Refusal supports(const Graph& graph, const Node& node, const Settings&) {
  Refusal why = q8_sums(graph, node);
  if (why) return why;
  if (q8_posts(graph, node).other >= 0) return refused("takes no addition as a post-op", IPR_REASON_NEIGHBOURS);
  return taken();
}

void lower(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &in = *graph.in(node, 0), &weights = *graph.in(node, 1), *bias = q8_bias(graph, node),
               &out = graph.out(node);
  if (out.elements() == 0) return;
  auto state = std::make_shared<Depthwise>();
  Depthwise& d = *state;
  d.kernels = &depthwise_q8_kernels_for(builder.settings.isa);
  d.elementwise = &elementwise_q8_kernels_for(builder.settings.isa);
  d.batch = in.shape[0], d.in_h = in.shape[1], d.in_w = in.shape[2], d.in_c = in.shape[3];
  d.out_h = out.shape[1], d.out_w = out.shape[2], d.channels = out.shape[3];
  d.times = d.channels / d.in_c;
  d.stride_y = node.integer("stride_y"), d.stride_x = node.integer("stride_x");
  d.top = node.integer("pad_top"), d.left = node.integer("pad_left");
  const int32_t zero = unsigned_zero(in) - (d.kernels->is_signed ? 128 : 0);
  d.zero = uint8_t(zero);
  d.flip = flip_of(in, d.kernels->is_signed);

  Cells cells{weights.shape[1], weights.shape[2], node.integer("dilation_y"), node.integer("dilation_x")};
  if (is_column(d, cells)) transpose_column(d, cells);
  bool shared = d.out_h > 1 && shares_rows(cells, d.stride_y);
  int64_t last_column = (cells.width - 1) * cells.dilation_x;
  d.planes = std::min(d.stride_x, last_column + 1);
  d.plane = (d.out_w + last_column / d.stride_x) * d.channels;
  d.height = (cells.height - 1) * cells.dilation_y + 1 + (shared ? 1 : 0);
  std::vector<Group> groups = groups_of(cells, shared);
  d.taps = taps_of(d, cells, groups, shared);

  int width = d.kernels->lanes;
  int64_t most = (d.out_w * d.channels + 4 * width - 1) / (4 * width);
  int64_t period = std::min(std::lcm(d.channels, int64_t(4 * width)) / (4 * width), most);
  Q8Channels lanes = lanes_of(period, d.channels, width);
  const std::vector<int32_t> distances = weights_of(weights);
  d.weights = {int64_t(groups.size()), summands_of(distances), period, shared ? 2 : 1, nullptr, nullptr};
  int64_t bytes = period * d.weights.groups * d.weights.rows * d.weights.sets * 16 * width;
  d.weights.weights = static_cast<const int8_t*>(builder.pack(uint64_t(bytes), [&](void* to) {
    pack_weights(d.weights, lanes, groups, distances, d.channels, width, static_cast<int8_t*>(to));
  }));

  Q8Posts posts = q8_posts(graph, node);
  const Tensor& result = graph[posts.result];
  Q8Rounding rule = Q8Rounding::of(node, in, weights, result, Q8Rounding::fixed_point, !is_signed(weights), bias);
  const Q8Sums sums = sums_of(distances, q8_biases(rule, bias, d.channels), size_t(d.channels), zero);
  Q8Parameters parameters(Q8Parameters::pack(builder, lanes, rule, result, posts.limits, sums), lanes.lanes(), result,
                          posts.limits);
  d.weights.bias = parameters.bias;
  d.requantization = parameters.requantization;

  int64_t rows = (24 * 1024 / std::max<int64_t>(d.row(), 1) - d.height) / d.stride_y;
  d.chunk = std::clamp(rows / d.weights.rows * d.weights.rows, d.weights.rows, (d.out_h + 1) / 2 * 2);
  Step step;
  step.name = "DepthwiseConvolution2d " + node.name;
  step.fn = run_depthwise;
  double vectors = double(out.elements()) / (4 * width);
  step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, vectors * (cost::kQuantizedDepthwiseVectorNs +
                                                                                double(groups.size() * d.weights.rows) *
                                                                                    cost::kQuantizedDepthwiseGroupNs)),
                                         d.batch * d.out_h));
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.scratch_per_part = taps_bytes(d) + uint64_t(((d.chunk - 1) * d.stride_y + d.height) * d.row() + kSlack) +
                          uint64_t(d.out_w * d.channels);
  step.state = state;
  builder.add(std::move(step));
}

}  // namespace

Family depthwise_q8_family() {
  Family family;
  family.lowerings = {{"DepthwiseConvolution2d", "quantized", supports, lower, nullptr, true}};
  return family;
}

}  // namespace cpuacc
