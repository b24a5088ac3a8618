// Elementwise layers with operands that broadcast.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpuacc/kernels/rows.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/pointwise.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kChunk = 2048;  // elements whose post-ops are applied while they are in the first-level cache: 8 KiB

struct Post32 {
  Function function;
  float a, b;
};

std::vector<Post32> posts_of(const Node& node) {
  std::vector<Post32> posts;
  for (const Post& post : node.posts) posts.push_back({function_of(post.function), float(post.a), float(post.b)});
  return posts;
}

void apply_posts(const ElementKernels& kernels, const std::vector<Post32>& posts, void* out, int64_t count) {
  float* values = static_cast<float*>(out);
  for (const Post32& post : posts) kernels.activation(post.function, post.a, post.b, values, values, count);
}

/// The elements that one part computes: whole rows if there are enough, otherwise a piece of each row.
struct Share {
  Range rows, columns;
};

Share share_of(const Rows& rows, int part, int parts) {
  if (rows.rows >= 4 * parts) return {split(rows.rows, part, parts), {0, rows.length}};
  return {{0, rows.rows}, split(rows.length, part, parts, rows.period ? 16 * rows.period : 64)};
}

/// The number of elements of a row that are computed together.
int64_t chunk_of(const Rows& rows) { return rows.period ? kChunk / rows.period * rows.period : kChunk; }

/// Reads pieces of one operand. Operands that are periodic or repeated in a row are expanded in `memory`.
class Operand {
 public:
  static constexpr int64_t kBytes = kChunk * 8;  // of `memory`

  Operand(const ElementKernels& kernels, const Rows& rows, int number, int64_t item_size, const char* data,
          char* memory)
      : kernels_(kernels), rows_(rows), number_(number), item_size_(item_size), data_(data), memory_(memory) {}

  /// `count` elements from column `n` of a row.
  const char* piece(int64_t row, int64_t n, int64_t count) {
    const int64_t begin = rows_.begin(number_, row), period = rows_.period;
    if (rows_.one[number_]) return data_ + begin * item_size_;
    if (rows_.repeated[number_]) {
      kernels_.spread(data_ + (begin + n / period) * item_size_, memory_, item_size_, count / period, period, false);
      return memory_;
    }
    if (!rows_.periodic[number_]) return data_ + (begin + n) * item_size_;
    if (begin != begin_ || count > count_) {
      kernels_.spread(data_ + begin * item_size_, memory_, item_size_, count / period, period, true);
      begin_ = begin, count_ = count;
    }
    return memory_;
  }

 private:
  const ElementKernels& kernels_;
  const Rows& rows_;
  int number_;
  int64_t item_size_;
  const char* data_;
  char* memory_;
  int64_t begin_ = -1, count_ = 0;  // what `memory` holds of a periodic operand
};

Refusal not_quantized(const Graph& graph, const Node& node) {
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    const Tensor* in = graph.in(node, n);
    if (in && in->is_quantized())
      return refused("operand " + std::to_string(n) + " is " + described(*in) + "; takes what has no scale here",
                     IPR_REASON_DATA_TYPE);
  }
  if (graph.out(node).is_quantized()) return refused("the result is quantized", IPR_REASON_DATA_TYPE);
  if (!only_activations(graph, node)) return refused("takes activation functions of float32 only", IPR_REASON_OTHER);
  return taken();
}

// ---- Two operands ---------------------------------------------------------------------------------------------------

struct Pair {
  const ElementKernels* kernels;
  OfTwo function;
  Rows rows;
  int64_t in_size, out_size;
  std::vector<Post32> posts;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Pair& self = step.as<Pair>();
    const Rows& rows = self.rows;
    char *out = run.at<char>(step.out[0]), *memory = run.part_scratch<char>(part);
    Operand a(*self.kernels, rows, 0, self.in_size, run.at<char>(step.in[0]), memory);
    Operand b(*self.kernels, rows, 1, self.in_size, run.at<char>(step.in[1]), memory + Operand::kBytes);
    const Share share = share_of(rows, part, parts);
    const int64_t chunk = chunk_of(rows);
    for (int64_t row = share.rows.first; row < share.rows.last; ++row)
      for (int64_t n = share.columns.first; n < share.columns.last; n += chunk) {
        const int64_t count = std::min(chunk, share.columns.last - n);
        char* to = out + (row * rows.length + n) * self.out_size;
        self.function(a.piece(row, n, count), b.piece(row, n, count), to, count, rows.one[0], rows.one[1]);
        apply_posts(*self.kernels, self.posts, to, count);
      }
  }
};

OfTwo pair_function(const Graph& graph, const Node& node, const Settings& settings) {
  Binary operation = binary_of(node);
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1);
  if (operation == Binary::none || a.dtype != b.dtype) return nullptr;
  return element_kernels_for(settings.isa).binary(operation, a.dtype);
}

Refusal binary_support(const Graph& graph, const Node& node, const Settings& settings) {
  Refusal why = not_quantized(graph, node);
  if (why) return why;
  if (pair_function(graph, node, settings)) return taken();
  return refused(std::string(node.text("operation", node.type)) + " of " + described(*graph.in(node, 0)) + " and " +
                     described(*graph.in(node, 1)) + " is not supported",
                 IPR_REASON_DATA_TYPE);
}

/// Supported are the larger and the smaller of quantized values of one scale, which are ordered like the numbers.
Refusal choice_support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  const Binary operation = binary_of(node);
  if (operation != Binary::maximum && operation != Binary::minimum)
    return refused("takes maxima and minima", IPR_REASON_ATTRIBUTE);
  const bool has_one_scale = a.is_quantized() && a.same_quantization(b) && a.same_quantization(out) && !a.has_axis();
  if (!has_one_scale || a.dtype != out.dtype)
    return refused("takes operands with the same scale", IPR_REASON_QUANTIZATION);
  const bool rounds = node.text("requantization") == "HALF_TO_EVEN";
  if (rounds && ipr::item_size(a.dtype) <= 2)
    return refused("results of up to 16 bits are rounded half to even", IPR_REASON_QUANTIZATION);
  if (!pair_function(graph, node, settings))
    return refused("maxima of " + described(a) + " are not supported", IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

/// Estimated nanoseconds for one element.
double cost_of(Binary operation) {
  switch (operation) {
    case Binary::power:
    case Binary::atan2:
    case Binary::mod:
    case Binary::fmod:
    case Binary::floor_div:
      return cost::kLibraryElementNs;
    default:
      return cost::kElementNs;
  }
}

/// The shape of an operand in memory, next to a result in a blocked layout.
Shape shape_in_memory(const Tensor& tensor, const Tensor& out) {
  if (is_blocked(tensor.layout)) return blocked_shape(tensor);
  return is_blocked(out.layout) ? beside_blocked(tensor, out.layout, out.rank()) : tensor.shape;
}

/// A blocked image to which a number for each channel is added, or with which it is multiplied.
struct Channelwise {
  const NormalizeKernels* kernels;
  const ElementKernels* elements;
  int64_t blocks, pixels, period;  // blocks of the image; blocks of numbers
  int64_t pieces;                  // pieces of a block, so that there is work for all threads
  bool adds;
  std::vector<Post32> posts;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Channelwise& self = step.as<Channelwise>();
    const float *image = run.at<float>(step.in[0]), *numbers = run.at<float>(step.in[1]);
    float* out = run.at<float>(step.out[0]);
    float other[16];
    std::fill_n(other, 16, self.adds ? 1.0f : -0.0f);
    const int64_t most = self.posts.empty() ? self.pixels : kChunk / 16;
    Range range = split(self.blocks * self.pieces, part, parts);
    for (int64_t piece = range.first; piece < range.last; ++piece) {
      const int64_t block = piece / self.pieces;
      const Range inside = split(self.pixels, int(piece % self.pieces), int(self.pieces));
      for (int64_t pixel = inside.first; pixel < inside.last; pixel += most) {
        const float* with = numbers + block % self.period * 16;
        int64_t at = (block * self.pixels + pixel) * 16, count = std::min(most, inside.last - pixel);
        self.kernels->affine_block(image + at, out + at, count, self.adds ? other : with, self.adds ? with : other,
                                   -INFINITY, INFINITY);
        apply_posts(*self.elements, self.posts, out + at, count * 16);
      }
    }
  }
};

/// Return whether `numbers` has one number for each channel of a blocked image of shape `image`.
bool is_channelwise(const Shape& image, const Shape& numbers) {
  return image.size() == 5 && numbers.size() == 5 && (numbers[0] == image[0] || numbers[0] == 1) &&
         numbers[1] == image[1] && numbers[2] == 1 && numbers[3] == 1 && numbers[4] == 16 && image[4] == 16;
}

/// `image` is the position of the operand that has the shape of the result.
void lower_channelwise(const Node& node, Builder& builder, size_t image, const Shape& shape, const Shape& numbers) {
  auto state = std::make_shared<Channelwise>();
  state->kernels = &normalize_kernels_for(builder.settings.isa);
  state->elements = &element_kernels_for(builder.settings.isa);
  state->blocks = shape[0] * shape[1], state->pixels = shape[2] * shape[3];
  state->period = numbers[0] * numbers[1];
  state->adds = binary_of(node) == Binary::add;
  state->posts = posts_of(node);
  Step step;
  step.name = node.type + " by channels " + node.name;
  step.fn = &Channelwise::run;
  step.max_parts = parts_for(builder.settings, double(state->blocks * state->pixels) * cost::kChannelwiseNs);
  state->pieces = std::min<int64_t>((step.max_parts + state->blocks - 1) / state->blocks, state->pixels);
  step.in = {builder.buffer(node.inputs[image]), builder.buffer(node.inputs[1 - image])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::move(state);
  builder.add(std::move(step));
}

/// Lower a sum or product of an image and one number for each channel. Return false for other operands.
bool lowered_by_channels(const Node& node, Builder& builder, const Shape& shape, const Shape& a, const Shape& b) {
  const Tensor& out = builder.graph.out(node);
  const bool takes = binary_of(node) == Binary::add || binary_of(node) == Binary::mul;
  if (!takes || !is_f32(out) || !is_blocked(out.layout) || out.elements() == 0) return false;
  if (a == b) return false;  // an image of a single pixel
  for (size_t image : {0, 1}) {
    const Shape &large = image == 0 ? a : b, &small = image == 0 ? b : a;
    if (large != shape || !is_channelwise(shape, small)) continue;
    lower_channelwise(node, builder, image, shape, small);
    return true;
  }
  return false;
}

void lower_binary(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor &a = *graph.in(node, 0), &b = *graph.in(node, 1), &out = graph.out(node);
  auto pair = std::make_shared<Pair>();
  pair->kernels = &element_kernels_for(builder.settings.isa);
  pair->function = pair_function(graph, node, builder.settings);
  Shape shape = shape_in_memory(out, out), shape_a = shape_in_memory(a, out), shape_b = shape_in_memory(b, out);
  if (lowered_by_channels(node, builder, shape, shape_a, shape_b)) return;
  pair->rows = rows_of(shape, {&shape_a, &shape_b});
  merge_short_rows(pair->rows);
  pair->in_size = int64_t(ipr::item_size(a.dtype));
  pair->out_size = int64_t(ipr::item_size(out.dtype));
  pair->posts = posts_of(node);
  if (out.elements() == 0) pair->rows.rows = 0;
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Pair::run;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost_of(binary_of(node)));
  step.in = {builder.buffer(node.inputs[0]), builder.buffer(node.inputs[1])};
  step.out = {builder.buffer(node.outputs[0])};
  if (pair->rows.period) step.scratch_per_part = 2 * Operand::kBytes;
  if (pair->in_size == pair->out_size) step.in_place = shape_a == shape ? 0 : shape_b == shape ? 1 : -1;
  step.state = std::move(pair);
  builder.add(std::move(step));
}

// ---- One operand ----------------------------------------------------------------------------------------------------

struct Single {
  const ElementKernels* kernels;
  OfOne function;  // nullptr: post-ops only
  int64_t count, in_size, out_size;
  std::vector<Post32> posts;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Single& self = step.as<Single>();
    Range range = split(self.count, part, parts, 64);
    for (int64_t n = range.first; n < range.last; n += kChunk) {
      int64_t count = std::min(kChunk, range.last - n);
      const char* in = run.at<char>(step.in[0]) + n * self.in_size;
      char* out = run.at<char>(step.out[0]) + n * self.out_size;
      if (self.function) {
        self.function(in, out, count);
        apply_posts(*self.kernels, self.posts, out, count);
        continue;
      }
      const Post32& first = self.posts[0];
      self.kernels->activation(first.function, first.a, first.b, reinterpret_cast<const float*>(in),
                               reinterpret_cast<float*>(out), count);
      for (size_t i = 1; i < self.posts.size(); ++i) {
        float* values = reinterpret_cast<float*>(out);
        self.kernels->activation(self.posts[i].function, self.posts[i].a, self.posts[i].b, values, values, count);
      }
    }
  }
};

void lower_single(const Node& node, Builder& builder, OfOne function, std::vector<Post32> posts, double element_ns) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  auto single = std::make_shared<Single>();
  single->kernels = &element_kernels_for(builder.settings.isa);
  single->function = function;
  single->count = int64_t(in.bytes() / ipr::item_size(in.dtype));
  single->in_size = int64_t(ipr::item_size(in.dtype));
  single->out_size = int64_t(ipr::item_size(out.dtype));
  single->posts = std::move(posts);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Single::run;
  step.max_parts = parts_for(builder.settings, double(single->count) * element_ns);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = single->in_size == single->out_size ? 0 : -1;
  step.state = std::move(single);
  builder.add(std::move(step));
}

Refusal unary_support(const Graph& graph, const Node& node, const Settings& settings) {
  Refusal why = not_quantized(graph, node);
  if (why) return why;
  if (unary_of(node) != Unary::none &&
      element_kernels_for(settings.isa).unary(unary_of(node), graph.in(node, 0)->dtype))
    return taken();
  return refused(
      std::string(node.text("operation", node.type)) + " of " + described(*graph.in(node, 0)) + " is not supported",
      IPR_REASON_DATA_TYPE);
}

double cost_of(Unary operation) {
  switch (operation) {
    case Unary::abs:
    case Unary::neg:
    case Unary::square:
    case Unary::sign:
    case Unary::sqrt:
    case Unary::reciprocal:
    case Unary::floor:
    case Unary::ceil:
    case Unary::round:
      return cost::kElementNs;
    case Unary::exp:
      return cost::kExponentialNs;
    default:
      return cost::kUnaryLibraryNs;
  }
}

void lower_unary(const Node& node, Builder& builder) {
  OfOne function = element_kernels_for(builder.settings.isa).unary(unary_of(node), builder.graph.in(node, 0)->dtype);
  lower_single(node, builder, function, posts_of(node), cost_of(unary_of(node)));
}

Refusal activation_support(const Graph& graph, const Node& node, const Settings&) {
  Refusal why = all_f32(graph, node);
  if (why) return why;
  if (!only_activations(graph, node)) return refused("takes activation functions only", IPR_REASON_OTHER);
  if (function_of(node.text("function")) != Function::add) return taken();
  return refused(std::string(node.text("function")) + " is not supported", IPR_REASON_ATTRIBUTE);
}

void lower_activation(const Node& node, Builder& builder) {
  std::vector<Post32> posts = posts_of(node);
  posts.insert(posts.begin(), {function_of(node.text("function")), float(node.number("a")), float(node.number("b"))});
  lower_single(node, builder, nullptr, std::move(posts), cost::kActivationNs);
}

/// Numbers that are not float32 within bounds: RELU of integers and float64, BOUNDED_RELU of float64.
struct Clamp {
  OfTwo larger, smaller;  // `smaller` is nullptr if there is no upper bound
  int64_t item_size, elements;
  char low[8] = {}, high[8] = {};

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Clamp& self = step.as<Clamp>();
    const Range range = split(self.elements, part, parts, 64);
    for (int64_t n = range.first; n < range.last; n += kChunk) {
      const int64_t first = n * self.item_size, count = std::min(kChunk, range.last - n);
      char* out = run.at<char>(step.out[0]) + first;
      // Of equal numbers, the kernels return the second: zeros keep their sign.
      self.larger(self.low, run.at<char>(step.in[0]) + first, out, count, true, false);
      if (self.smaller) self.smaller(self.high, out, out, count, true, false);
    }
  }
};

bool is_bounded(const Node& node) { return node.text("function") == "BOUNDED_RELU"; }

Refusal clamp_support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& in = *graph.in(node, 0);
  const bool clamps = is_bounded(node) ? in.dtype == IPR_DTYPE_FLOAT64 : node.text("function") == "RELU";
  if (clamps && !in.is_quantized() && !is_f32(in) &&
      element_kernels_for(settings.isa).binary(Binary::maximum, in.dtype))
    return without_posts(graph, node, settings);
  return refused(std::string(node.text("function")) + " of " + described(in) + " is not supported",
                 IPR_REASON_DATA_TYPE);
}

void lower_clamp(const Node& node, Builder& builder) {
  const Tensor& in = *builder.graph.in(node, 0);
  const ElementKernels& kernels = element_kernels_for(builder.settings.isa);
  auto state = std::make_shared<Clamp>();
  state->larger = kernels.binary(Binary::maximum, in.dtype);
  state->item_size = int64_t(ipr::item_size(in.dtype)), state->elements = in.elements();
  if (is_bounded(node)) {
    const double low = node.number("b"), high = node.number("a");
    state->smaller = kernels.binary(Binary::minimum, in.dtype);
    std::memcpy(state->low, &low, sizeof low), std::memcpy(state->high, &high, sizeof high);
  }
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Clamp::run;
  step.max_parts = parts_for(builder.settings, double(in.elements()) * cost::kCastNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::move(state);
  builder.add(std::move(step));
}

// ---- Conversion and choice ------------------------------------------------------------------------------------------

Refusal cast_support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (element_kernels_for(settings.isa).cast(in.dtype, out.dtype)) return taken();
  return refused("no conversion from " + described(in) + " to " + described(out), IPR_REASON_DATA_TYPE);
}

void lower_cast(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  if (in.dtype == out.dtype && builder.share(node.outputs[0], node.inputs[0])) return;
  lower_single(node, builder, element_kernels_for(builder.settings.isa).cast(in.dtype, out.dtype), {}, cost::kCastNs);
}

struct Choice {
  const ElementKernels* kernels;
  Rows rows;
  int64_t item_size;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Choice& self = step.as<Choice>();
    const Rows& rows = self.rows;
    char *out = run.at<char>(step.out[0]), *memory = run.part_scratch<char>(part);
    Operand condition(*self.kernels, rows, 0, 1, run.at<char>(step.in[0]), memory);
    Operand a(*self.kernels, rows, 1, self.item_size, run.at<char>(step.in[1]), memory + Operand::kBytes);
    Operand b(*self.kernels, rows, 2, self.item_size, run.at<char>(step.in[2]), memory + 2 * Operand::kBytes);
    const Share share = share_of(rows, part, parts);
    const int64_t chunk = chunk_of(rows);
    for (int64_t row = share.rows.first; row < share.rows.last; ++row)
      for (int64_t n = share.columns.first; n < share.columns.last; n += chunk) {
        const int64_t count = std::min(chunk, share.columns.last - n);
        self.kernels->choose(reinterpret_cast<const uint8_t*>(condition.piece(row, n, count)), a.piece(row, n, count),
                             b.piece(row, n, count), out + (row * rows.length + n) * self.item_size, self.item_size,
                             count, rows.one[0], rows.one[1], rows.one[2]);
      }
  }
};

Refusal where_support(const Graph& graph, const Node& node, const Settings&) {
  const Tensor &condition = *graph.in(node, 0), &a = *graph.in(node, 1), &b = *graph.in(node, 2);
  if (!node.posts.empty()) return refused("takes no post-ops");
  if (condition.dtype != IPR_DTYPE_BOOL)
    return refused("the condition is " + described(condition), IPR_REASON_DATA_TYPE);
  bool alike = a.dtype == b.dtype && a.same_quantization(graph.out(node)) && b.same_quantization(graph.out(node));
  return alike ? taken() : refused("the operands are quantized differently", IPR_REASON_QUANTIZATION);
}

void lower_where(const Node& node, Builder& builder) {
  const Graph& graph = builder.graph;
  const Tensor& out = graph.out(node);
  auto choice = std::make_shared<Choice>();
  choice->kernels = &element_kernels_for(builder.settings.isa);
  choice->rows = rows_of(out.shape, {&graph.in(node, 0)->shape, &graph.in(node, 1)->shape, &graph.in(node, 2)->shape});
  merge_short_rows(choice->rows);
  choice->item_size = int64_t(ipr::item_size(out.dtype));
  if (out.elements() == 0) choice->rows.rows = 0;
  Step step;
  step.name = "Where " + node.name;
  step.fn = &Choice::run;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * cost::kSelectNs);
  if (choice->rows.period) step.scratch_per_part = 3 * Operand::kBytes;
  for (int tensor : node.inputs) step.in.push_back(builder.buffer(tensor));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(choice);
  builder.add(std::move(step));
}

}  // namespace

Family elementwise_family() {
  Family family;
  for (const char* type : {"ElementwiseBinary", "Maximum", "Minimum"})
    family.lowerings.push_back({type, "quantized values", choice_support, lower_binary, nullptr, true});
  for (const char* type : {"ElementwiseBinary", "Addition", "Subtraction", "Multiplication", "Division", "Maximum",
                           "Minimum", "Prelu", "Comparison", "LogicalBinary"})
    family.lowerings.push_back({type, "plain", binary_support, lower_binary, follow_blocked});
  for (const char* type : {"ElementwiseUnary", "Floor"})
    family.lowerings.push_back({type, "plain", unary_support, lower_unary, follow_blocked});
  family.lowerings.push_back({"Activation", "clamps", clamp_support, lower_clamp, nullptr});
  family.lowerings.push_back({"Activation", "plain", activation_support, lower_activation, follow_blocked});
  family.lowerings.push_back({"Cast", "plain", cast_support, lower_cast, nullptr});
  family.lowerings.push_back({"Where", "plain", where_support, lower_where, nullptr});
  return family;
}

}  // namespace cpuacc
