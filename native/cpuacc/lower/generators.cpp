// Layers that make numbers: Range, SignalWindow, MelWeightMatrix, and random numbers, which are those of the reference.

#include <array>
#include <cmath>
#include <cstring>

#include "cpuacc/lower/dynamic_result.hpp"
#include "cpuacc/lower/reals.hpp"

namespace cpuacc {
namespace {

/// Supported if numbers of float64 can be written to the result: floats of 16 to 64 bits.
Refusal writes_floats(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& out = graph.out(node);
  const bool half = out.dtype == IPR_DTYPE_FLOAT16 || out.dtype == IPR_DTYPE_BFLOAT16;
  if (out.is_quantized() || !(half || out.dtype == IPR_DTYPE_FLOAT32 || out.dtype == IPR_DTYPE_FLOAT64))
    return refused("the result is " + described(out), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

/// Writes numbers of float64 to a result of floats.
class Rounded {
 public:
  Rounded() = default;
  Rounded(const Tensor& out, native::Isa isa)
      : item_size_(int64_t(ipr::item_size(out.dtype))),
        narrow_(element_kernels_for(isa).cast(IPR_DTYPE_FLOAT32, out.dtype)) {}

  /// Write number(n) for n in 0 .. count - 1.
  template <class Number>
  void write_all(int64_t count, char* to, const Number& number) const {
    if (item_size_ == 8) {
      for (int64_t n = 0; n < count; ++n) reinterpret_cast<double*>(to)[n] = number(n);
      return;
    }
    constexpr int64_t kPiece = 256;
    float piece[kPiece];
    for (int64_t first = 0; first < count; first += kPiece) {
      const int64_t size = std::min(kPiece, count - first);
      for (int64_t n = 0; n < size; ++n) piece[n] = float(number(first + n));
      item_size_ == 4 ? void(std::memcpy(to + first * 4, piece, size_t(size) * 4))
                      : narrow_(piece, to + first * item_size_, size);
    }
  }

 private:
  int64_t item_size_ = 8;
  OfOne narrow_ = nullptr;  // from float32
};

// ---- Range ----------------------------------------------------------------------------------------------------------

struct Numbers {
  int32_t dtype;
  native::Isa isa;
  Rounded rounded;
  DynamicResult result;

  template <class T>
  T given(const Step& step, const Run& run, size_t n) const {
    return *run.at<T>(step.in[n]);
  }

  char* memory(const Step& step, const Run& run, double length) const {
    if (!(length < 0x1p62)) return run.fail(1, 0, "the result would be larger than any memory"), nullptr;
    const Shape shape = {int64_t(length)};
    return result.takes(run, 1, shape) ? result.memory(step, run, shape) : nullptr;
  }

  template <class T, class Wide>
  void integers(const Step& step, const Run& run) const {
    const Wide start = Wide(given<T>(step, run, 0)), limit = Wide(given<T>(step, run, 1)),
               delta = Wide(given<T>(step, run, 2));
    if (delta == 0) return run.fail(2, 0, "delta is 0; expected another number");
    const __int128 distance = __int128(limit) - __int128(start), by = __int128(delta);
    const bool is_empty = by > 0 ? distance <= 0 : distance >= 0;
    const __int128 length = is_empty ? 0 : by > 0 ? (distance - 1) / by + 1 : (-distance - 1) / -by + 1;
    T* out = reinterpret_cast<T*>(memory(step, run, double(length)));
    for (int64_t n = 0; out && n < int64_t(length); ++n)
      out[n] = T(uint64_t(start) + uint64_t(n) * uint64_t(delta));  // overflow wraps around
  }

  void floats(const Step& step, const Run& run, double start, double limit, double delta) const {
    if (delta == 0) return run.fail(2, 0, "delta is 0; expected another number");
    const double length = (limit - start) / delta;
    const double count = std::isfinite(length) ? std::max(0.0, std::ceil(length)) : 0;
    if (char* out = memory(step, run, count))
      rounded.write_all(int64_t(count), out, [&](int64_t n) { return start + double(n) * delta; });
  }

  static double widened(OfOne cast, const void* from) {
    float number;
    cast(from, &number, 1);
    return double(number);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Numbers& self = step.as<Numbers>();
    switch (self.dtype) {
      case IPR_DTYPE_INT8:
        return self.integers<int8_t, int64_t>(step, run);
      case IPR_DTYPE_INT16:
        return self.integers<int16_t, int64_t>(step, run);
      case IPR_DTYPE_INT32:
        return self.integers<int32_t, int64_t>(step, run);
      case IPR_DTYPE_INT64:
        return self.integers<int64_t, int64_t>(step, run);
      case IPR_DTYPE_UINT8:
        return self.integers<uint8_t, uint64_t>(step, run);
      case IPR_DTYPE_UINT16:
        return self.integers<uint16_t, uint64_t>(step, run);
      case IPR_DTYPE_UINT32:
        return self.integers<uint32_t, uint64_t>(step, run);
      case IPR_DTYPE_UINT64:
        return self.integers<uint64_t, uint64_t>(step, run);
      case IPR_DTYPE_FLOAT64:
        return self.floats(step, run, self.given<double>(step, run, 0), self.given<double>(step, run, 1),
                           self.given<double>(step, run, 2));
      case IPR_DTYPE_FLOAT32:
        return self.floats(step, run, double(self.given<float>(step, run, 0)), double(self.given<float>(step, run, 1)),
                           double(self.given<float>(step, run, 2)));
      default:
        break;
    }
    const OfOne cast = element_kernels_for(self.isa).cast(self.dtype, IPR_DTYPE_FLOAT32);
    auto number = [&](size_t n) { return widened(cast, run.at<char>(step.in[n])); };
    self.floats(step, run, number(0), number(1), number(2));
  }
};

Refusal support_range(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor& start = *graph.in(node, 0);
  if (start.is_quantized()) return refused("operand 0 is " + described(start), IPR_REASON_DATA_TYPE);
  if (start.dtype >= IPR_DTYPE_INT8 && start.dtype <= IPR_DTYPE_UINT64) return without_posts(graph, node, settings);
  return writes_floats(graph, node, settings);
}

void lower_range(const Node& node, Builder& builder) {
  auto state = std::make_shared<Numbers>();
  state->dtype = builder.graph.in(node, 0)->dtype;
  state->isa = builder.settings.isa;
  state->rounded = Rounded(builder.graph.out(node), builder.settings.isa);
  state->result = DynamicResult(builder.graph, node, 0);
  builder.add(step_of(node, builder, state));
}

// ---- SignalWindow, MelWeightMatrix ----------------------------------------------------------------------------------

struct Window {
  Rounded rounded;
  DynamicResult result;
  Integers size;
  std::array<double, 3> weights;  // of 1, of the cosine, and of that of the double angle
  bool is_periodic;

  static void run(const Step& step, const Run& run, int, int) {
    const Window& self = step.as<Window>();
    const int64_t count = self.size.at(run, step.in[0], 0);
    if (count < 0) return run.fail(0, 0, count, 0, INT64_MAX);
    const Shape shape = {count};
    if (!self.result.takes(run, 0, shape)) return;
    const double whole = double(std::max<int64_t>(1, self.is_periodic ? count : count - 1));
    const double offset = count == 1 && !self.is_periodic ? M_PI : 0;
    auto number = [&](int64_t n) {
      const double angle = 2 * M_PI * double(n) / whole + offset;
      return self.weights[0] + self.weights[1] * std::cos(angle) + self.weights[2] * std::cos(2 * angle);
    };
    if (char* out = self.result.memory(step, run, shape)) self.rounded.write_all(count, out, number);
  }
};

void lower_window(const Node& node, Builder& builder) {
  const std::string_view function = node.text("function", "HANN");
  auto state = std::make_shared<Window>();
  state->rounded = Rounded(builder.graph.out(node), builder.settings.isa);
  state->result = DynamicResult(builder.graph, node, 0);
  state->size = Integers(*builder.graph.in(node, 0));
  state->is_periodic = node.flag("periodic", true);
  state->weights = {0.5, -0.5, 0};
  if (function == "HAMMING") state->weights = {25.0 / 46, -21.0 / 46, 0};
  if (function == "BLACKMAN") state->weights = {0.42, -0.5, 0.08};
  builder.add(step_of(node, builder, state));
}

struct Mel {
  Rounded rounded;
  DynamicResult result;
  int32_t dtypes[5];
  OfOne casts[5];  // to float64

  double number(const Step& step, const Run& run, size_t n) const {
    if (dtypes[n] == IPR_DTYPE_FLOAT64) return *run.at<double>(step.in[n]);
    if (dtypes[n] == IPR_DTYPE_INT64) return double(*run.at<int64_t>(step.in[n]));
    double found;
    casts[n](run.at<char>(step.in[n]), &found, 1);
    return found;
  }

  static double weight(double frequency, double left, double center, double right) {
    const double rising = center > left ? (frequency - left) / std::max(center - left, 1.0) : frequency >= center;
    const double falling = (right - frequency) / std::max(right - center, 1.0);
    return std::clamp(frequency <= center ? rising : falling, 0.0, 1.0);
  }

  static void run(const Step& step, const Run& run, int, int) {
    const Mel& self = step.as<Mel>();
    double given[5];
    for (size_t n = 0; n < 5; ++n) given[n] = self.number(step, run, n);
    for (int n : {0, 1})
      if (given[n] < 0) return run.fail(n, 0, int64_t(given[n]), 0, INT64_MAX);
    if (given[2] <= 0) return run.fail(2, 0, int64_t(given[2]), 1, INT64_MAX);
    const int64_t bins = int64_t(given[0]), rows = int64_t(given[1]) / 2 + 1;
    const Shape shape = {rows, bins};
    if (!self.result.takes(run, 0, shape)) return;
    char* out = self.result.memory(step, run, shape);
    if (!out) return;
    const double low = 2595 * std::log10(1 + given[3] / 700), high = 2595 * std::log10(1 + given[4] / 700);
    std::vector<double> edges;
    for (int64_t n = 0; n < bins + 2; ++n) {
      const double mel = low + double(n) * (high - low) / double(bins + 2);
      edges.push_back(std::floor((given[1] + 1) * 700 * (std::pow(10.0, mel / 2595) - 1) / given[2]));
    }
    self.rounded.write_all(rows * bins, out, [&](int64_t n) {
      const size_t bin = size_t(n % bins);
      return weight(double(n / bins), edges[bin], edges[bin + 1], edges[bin + 2]);
    });
  }
};

Refusal support_mel(const Graph& graph, const Node& node, const Settings& settings) {
  for (size_t n = 0; n < 5; ++n) {
    const Tensor& operand = *graph.in(node, n);
    const bool is_wide = operand.dtype == IPR_DTYPE_FLOAT64 || operand.dtype == IPR_DTYPE_INT64;
    if (operand.is_quantized() ||
        !(is_wide || element_kernels_for(settings.isa).cast(operand.dtype, IPR_DTYPE_FLOAT64)))
      return refused("operand " + std::to_string(n) + " is " + described(operand), IPR_REASON_DATA_TYPE);
  }
  return writes_floats(graph, node, settings);
}

void lower_mel(const Node& node, Builder& builder) {
  auto state = std::make_shared<Mel>();
  state->rounded = Rounded(builder.graph.out(node), builder.settings.isa);
  state->result = DynamicResult(builder.graph, node, 0);
  for (size_t n = 0; n < 5; ++n) {
    state->dtypes[n] = builder.graph.in(node, n)->dtype;
    state->casts[n] = element_kernels_for(builder.settings.isa).cast(state->dtypes[n], IPR_DTYPE_FLOAT64);
  }
  builder.add(step_of(node, builder, state));
}

// ---- Random numbers -------------------------------------------------------------------------------------------------

/// The Mersenne Twister with the seeding and the numbers of NumPy's RandomState.
class Twister {
 public:
  explicit Twister(uint32_t seed) {
    for (uint32_t n = 0; n < kWords; ++n) {
      state_[n] = seed;
      seed = 1812433253u * (seed ^ (seed >> 30)) + n + 1;
    }
  }

  double uniform() {
    const uint32_t high = next() >> 5, low = next() >> 6;
    return (double(high) * 67108864.0 + double(low)) / 9007199254740992.0;
  }

  /// The polar method, which gives two numbers at a time.
  double normal() {
    if (has_second_) {
      has_second_ = false;
      return second_;
    }
    double x, y, square;
    do {
      x = 2 * uniform() - 1, y = 2 * uniform() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    second_ = factor * x, has_second_ = true;
    return factor * y;
  }

 private:
  static constexpr uint32_t kWords = 624, kDistance = 397;

  uint32_t next() {
    if (at_ == kWords) refill();
    uint32_t word = state_[at_++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
  }

  void refill() {
    for (uint32_t n = 0; n < kWords - kDistance; ++n) state_[n] = mixed(n, n + 1) ^ state_[n + kDistance];
    for (uint32_t n = kWords - kDistance; n + 1 < kWords; ++n)
      state_[n] = mixed(n, n + 1) ^ state_[n + kDistance - kWords];
    state_[kWords - 1] = mixed(kWords - 1, 0) ^ state_[kDistance - 1];
    at_ = 0;
  }

  uint32_t mixed(uint32_t n, uint32_t next) const {
    const uint32_t bits = (state_[n] & 0x80000000u) | (state_[next] & 0x7fffffffu);
    return (bits >> 1) ^ ((0u - (bits & 1)) & 0x9908b0dfu);
  }

  uint32_t state_[kWords];
  uint32_t at_ = kWords;
  bool has_second_ = false;
  double second_ = 0;
};

using Words2 = std::array<uint32_t, 2>;
using Words4 = std::array<uint32_t, 4>;

/// Philox 4x32 with ten rounds.
Words4 philox(Words2 key, Words4 x) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t(x[0]) * 0xD2511F53u, high = uint64_t(x[2]) * 0xCD9E8D57u;
    x = {uint32_t(high >> 32) ^ x[1] ^ key[0], uint32_t(high), uint32_t(low >> 32) ^ x[3] ^ key[1], uint32_t(low)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return x;
}

/// Threefry 2x32 with twenty rounds.
Words2 threefry(Words2 key, Words2 counter) {
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  uint32_t x = counter[0] + keys[0], y = counter[1] + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int distance : rotations[group % 2]) {
      x += y;
      y = ((y << distance) | (y >> (32 - distance))) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + group + 1;
  }
  return {x, y};
}

float uniform32(uint32_t word) {
  const uint32_t bits = (word & 0x7fffffu) | 0x3f800000u;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number - 1.0f;
}

struct RandomNumbers {
  Rounded rounded;
  DynamicResult result;
  Integers dimensions;
  uint64_t seed, seed2;
  double a, b;
  bool is_normal, is_philox;

  static void run(const Step& step, const Run& run, int, int) {
    const RandomNumbers& self = step.as<RandomNumbers>();
    const Shape shape = self.dimensions.all(run, step.in[0]);
    for (size_t n = 0; n < shape.size(); ++n)
      if (shape[n] < 0) return run.fail(0, int64_t(n), shape[n], 0, INT64_MAX);
    if (!self.result.takes(run, 0, shape)) return;
    char* out = self.result.memory(step, run, shape);
    if (!out) return;
    self.is_philox ? self.of_philox(product_of(shape), out) : self.of_twister(product_of(shape), out);
  }

  void of_twister(int64_t count, char* out) const {
    Twister twister{uint32_t(seed)};
    rounded.write_all(count, out,
                      [&](int64_t) { return is_normal ? twister.normal() * b + a : twister.uniform() * (b - a) + a; });
  }

  /// The numbers of four words: float32, as those of TensorFlow.
  std::array<float, 4> four(uint64_t block) const {
    const Words4 words = philox({uint32_t(seed), uint32_t(seed >> 32)},
                                {uint32_t(block), uint32_t(block >> 32), uint32_t(seed2), uint32_t(seed2 >> 32)});
    std::array<float, 4> found;
    for (size_t n = 0; n < 4; ++n) found[n] = uniform32(words[n]);
    if (!is_normal) return found;
    for (size_t n = 0; n < 4; n += 2) {
      const float radius = std::sqrt(-2 * std::log(std::max(found[n], 1e-7f)));
      const float radians = float(2 * M_PI) * found[n + 1];
      found[n] = std::sin(radians) * radius, found[n + 1] = std::cos(radians) * radius;
    }
    return found;
  }

  void of_philox(int64_t count, char* out) const {
    const float factor = float(is_normal ? b : b - a), offset = float(a);
    std::array<float, 4> numbers{};
    rounded.write_all(count, out, [&](int64_t n) {
      if (n % 4 == 0) numbers = four(uint64_t(n / 4));
      return double(numbers[size_t(n % 4)] * factor + offset);
    });
  }
};

Refusal support_random(const Graph& graph, const Node& node, const Settings& settings) {
  if (!node.has("seed")) return refused("there is no seed, so each run has other numbers", IPR_REASON_ATTRIBUTE);
  const int64_t seed = node.integer("seed");
  if (node.text("generator") != "PHILOX" && (seed < 0 || seed > int64_t(UINT32_MAX)))
    return refused("the seed is not from 0 to 2**32 - 1", IPR_REASON_ATTRIBUTE);
  return writes_floats(graph, node, settings);
}

void lower_random(const Node& node, Builder& builder) {
  auto state = std::make_shared<RandomNumbers>();
  state->rounded = Rounded(builder.graph.out(node), builder.settings.isa);
  state->result = DynamicResult(builder.graph, node, 0);
  state->dimensions = Integers(*builder.graph.in(node, 0));
  state->seed = uint64_t(node.integer("seed")), state->seed2 = uint64_t(node.integer("seed2"));
  state->a = node.number("a"), state->b = node.number("b", 1);
  state->is_normal = node.text("distribution") == "NORMAL";
  state->is_philox = node.text("generator") == "PHILOX";
  builder.add(step_of(node, builder, state));
}

struct Bits {
  uint64_t bytes;
  int64_t words;  // of the state
  bool is_philox;

  static void run(const Step& step, const Run& run, int, int) {
    const Bits& self = step.as<Bits>();
    uint64_t state[3] = {0, 0, 0};
    std::memcpy(state, run.at<char>(step.in[0]), size_t(self.words) * 8);
    const uint64_t block = self.is_philox ? 16 : 8, blocks = (self.bytes + block - 1) / block;
    const Words2 key = {uint32_t(state[0]), uint32_t(state[0] >> 32)};
    const uint64_t upper = self.words == 3 ? state[2] : state[0];
    char* out = step.out[1] ? run.at<char>(step.out[1]) : nullptr;
    for (uint64_t n = 0; out && n < blocks; ++n) {
      const uint64_t counter = state[1] + n;
      Words4 words{};
      if (self.is_philox) {
        words = philox(key, {uint32_t(counter), uint32_t(counter >> 32), uint32_t(upper), uint32_t(upper >> 32)});
      } else {
        const Words2 two = threefry(key, {uint32_t(counter), uint32_t(counter >> 32)});
        words = {two[0], two[1], 0, 0};
      }
      std::memcpy(out + n * block, words.data(), size_t(std::min(block, self.bytes - n * block)));
    }
    state[1] += blocks;
    if (step.out[0]) std::memcpy(run.at<char>(step.out[0]), state, size_t(self.words) * 8);
  }
};

Refusal support_bits(const Graph& graph, const Node& node, const Settings& settings) {
  if (node.outputs.size() < 2 || node.outputs[1] < 0) return refused("nothing reads the numbers", IPR_REASON_OTHER);
  const uint64_t item_size = ipr::item_size(graph.out(node, 1).dtype);
  const int64_t words = graph.in(node, 0)->elements();
  if (item_size < 4 || words < 2 || words > 3)
    return refused("the state or the numbers have other sizes", IPR_REASON_SHAPE);
  return without_posts(graph, node, settings);
}

void lower_bits(const Node& node, Builder& builder) {
  auto state = std::make_shared<Bits>();
  state->bytes = builder.graph.out(node, 1).bytes();
  state->words = builder.graph.in(node, 0)->elements();
  state->is_philox = node.text("generator") == "PHILOX";
  Step step;
  step.name = "RandomBits " + node.name;
  step.fn = &Bits::run;
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0]), builder.buffer(node.outputs[1])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

Family generators_family() {
  return {{{"Range", "plain", support_range, lower_range, nullptr, false, true},
           {"SignalWindow", "plain", writes_floats, lower_window, nullptr, false, true},
           {"MelWeightMatrix", "plain", support_mel, lower_mel, nullptr, false, true},
           {"RandomFill", "with a seed", support_random, lower_random, nullptr, false, true},
           {"RandomBits", "plain", support_bits, lower_bits, nullptr}},
          {}};
}

}  // namespace cpuacc
