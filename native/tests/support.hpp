// What the kernel tests share: one test per instruction set, random operands, buffers with guards, comparisons, and the
// layouts of the kernels (nChw16c images, weight panels), written as plain loops.

#ifndef NATIVE_TESTS_SUPPORT_HPP
#define NATIVE_TESTS_SUPPORT_HPP

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/cpu.hpp"

namespace native::testing {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The instruction sets that this processor has and kernels are built for, in ascending order.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas = built_isas();
  isas.erase(std::upper_bound(isas.begin(), isas.end(), best_isa()), isas.end());
  return isas;
}

/// A suite whose tests run once for each instruction set. Instantiate it with KERNEL_SUITE.
class KernelTest : public ::testing::TestWithParam<Isa> {
 protected:
  Isa isa() const { return GetParam(); }
};

#define KERNEL_SUITE(Suite)                                                  \
  class Suite : public ::native::testing::KernelTest {};                     \
  INSTANTIATE_TEST_SUITE_P(                                                  \
      Isas, Suite, ::testing::ValuesIn(::native::testing::available_isas()), \
      [](const ::testing::TestParamInfo<::native::Isa>& test) { return std::string(::native::isa_name(test.param)); })

/// `count` elements, aligned to 64 bytes, between guards that the destructor checks for writes out of bounds.
/// Kernels may read the guards, which hold NaN in float buffers.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count, T value = T{}) : count_(count), bytes_((size_t(count) * sizeof(T) + 63) / 64 * 64) {
    memory_ = static_cast<char*>(std::aligned_alloc(64, bytes_ + 2 * kGuard));
    std::memset(memory_, 0xff, bytes_ + 2 * kGuard);
    std::fill_n(data(), count, value);
  }
  Guarded(const std::vector<T>& values) : Guarded(int64_t(values.size())) {
    std::copy(values.begin(), values.end(), data());
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    check(0, kGuard, "before");
    check(kGuard + size_t(count_) * sizeof(T), bytes_ + 2 * kGuard, "after");
    std::free(memory_);
  }

  T* data() { return reinterpret_cast<T*>(memory_ + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(memory_ + kGuard); }
  T& operator[](int64_t n) { return data()[n]; }
  const T& operator[](int64_t n) const { return data()[n]; }
  int64_t size() const { return count_; }

 private:
  static constexpr size_t kGuard = 1024;

  void check(size_t first, size_t last, const char* where) const {
    for (size_t n = first; n < last; ++n)
      if (memory_[n] != char(0xff)) {
        ADD_FAILURE() << "a kernel wrote " << where << " a buffer of " << count_ << " elements, at byte "
                      << int64_t(n) - int64_t(kGuard);
        return;
      }
  }

  int64_t count_;
  size_t bytes_;
  char* memory_;
};

using Floats = Guarded<float>;

/// Deterministic random operands.
class Random {
 public:
  explicit Random(uint32_t seed = 1) : engine_(seed) {}

  float real(float low = -1, float high = 1) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }

  std::vector<float> reals(int64_t count, float low = -1, float high = 1) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = real(low, high);
    return values;
  }
  template <class T>
  std::vector<T> integers(int64_t count, int64_t low = std::numeric_limits<T>::min(),
                          int64_t high = std::numeric_limits<T>::max()) {
    std::vector<T> values(static_cast<size_t>(count));
    for (T& value : values) value = T(integer(low, high));
    return values;
  }

 private:
  std::mt19937 engine_;
};

/// Equal, both NaN, or at most `tolerance` apart (times the magnitude of what is expected, if that is above 1).
inline bool is_near(double actual, double expected, double tolerance) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (actual == expected) return true;
  return std::abs(actual - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

/// Fails at the first element that differs.
template <class A, class B>
void expect_near(const A& actual, const B& expected, int64_t count, double tolerance, const std::string& what) {
  for (int64_t n = 0; n < count; ++n)
    if (!is_near(double(actual[n]), double(expected[n]), tolerance)) {
      ADD_FAILURE() << what << ": element " << n << " of " << count << " is " << double(actual[n]) << "; expected "
                    << double(expected[n]);
      return;
    }
}

template <class A, class B>
void expect_equal(const A& actual, const B& expected, int64_t count, const std::string& what) {
  expect_near(actual, expected, count, 0, what);
}

/// The name of a case from its numbers: describe("rows", 3, "depth", 16) is "rows 3 depth 16".
inline void describe_into(std::string&) {}
template <class Value, class... More>
void describe_into(std::string& text, const char* name, const Value& value, const More&... more) {
  text += (text.empty() ? "" : " ") + std::string(name) + " " + std::to_string(value);
  describe_into(text, more...);
}
template <class... Named>
std::string describe(const Named&... named) {
  std::string text;
  describe_into(text, named...);
  return text;
}

// ---- Layouts --------------------------------------------------------------------------------------------------------

inline int64_t blocks_of(int64_t channels) { return (channels + 15) / 16; }
/// Channels of the last block.
inline int32_t last_of(int64_t channels) { return static_cast<int32_t>((channels + 15) % 16 + 1); }

/// An image (channels, pixels) as nChw16c: [channel / 16][pixel][channel % 16]. Lanes past the last channel hold
/// `padding`.
inline std::vector<float> to_blocked(const std::vector<float>& image, int64_t channels, int64_t pixels, float padding) {
  std::vector<float> blocked(static_cast<size_t>(blocks_of(channels) * pixels * 16), padding);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = 0; p < pixels; ++p)
      blocked[size_t((c / 16 * pixels + p) * 16 + c % 16)] = image[size_t(c * pixels + p)];
  return blocked;
}

/// The first `channels` channels of a nChw16c image, as (channels, pixels).
template <class Blocked>
std::vector<float> from_blocked(const Blocked& blocked, int64_t channels, int64_t pixels) {
  std::vector<float> image(static_cast<size_t>(channels * pixels));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = 0; p < pixels; ++p) image[size_t(c * pixels + p)] = blocked[(c / 16 * pixels + p) * 16 + c % 16];
  return image;
}

/// Blocks in the panel that begins at `block`: `panel` of them; an odd last block belongs to the panel before it.
inline int64_t blocks_of_panel(int64_t block, int64_t blocks, int64_t panel) {
  int64_t left = blocks - block;
  return panel > 1 && left == panel + 1 ? left : std::min(left, panel);
}

/// The value as bfloat16, rounded to the nearest, ties to even.
inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float from_bfloat16(uint16_t value) {
  uint32_t bits = uint32_t{value} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline float bfloat16_pair(float low, float high) {
  uint32_t bits = to_bfloat16(low) | uint32_t{to_bfloat16(high)} << 16;
  float word;
  std::memcpy(&word, &bits, sizeof word);
  return word;
}
inline std::vector<float> rounded_to_bfloat16(std::vector<float> values) {
  for (float& x : values) x = from_bfloat16(to_bfloat16(x));
  return values;
}

/// Weights (outputs, inputs, taps) in panels: [panel][group of inputs][tap][input][16 * blocks of the panel], zero past
/// the last output. With `pairs`, inputs 2n and 2n + 1 are one word of two bfloat16.
inline std::vector<float> pack_panels(const std::vector<float>& weights, int64_t outputs, int64_t inputs, int64_t taps,
                                      int64_t panel, int64_t group, bool pairs) {
  auto at = [&](int64_t o, int64_t i, int64_t tap) {
    return o < outputs && i < inputs ? weights[size_t((o * inputs + i) * taps + tap)] : 0.0f;
  };
  const int64_t blocks = blocks_of(outputs), each = pairs ? 2 : 1;
  group *= each;
  std::vector<float> packed;
  for (int64_t block = 0, wide; block < blocks; block += wide) {
    wide = blocks_of_panel(block, blocks, panel);
    for (int64_t first = 0; first < inputs; first += group)
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t i = first; i < std::min(first + group, inputs); i += each)
          for (int64_t o = block * 16; o < (block + wide) * 16; ++o)
            packed.push_back(pairs ? bfloat16_pair(at(o, i, tap), at(o, i + 1, tap)) : at(o, i, tap));
  }
  return packed;
}

/// Weights (channels, taps) of a depthwise convolution: [channel / 16][tap][channel % 16].
inline std::vector<float> pack_depthwise(const std::vector<float>& weights, int64_t channels, int64_t taps) {
  std::vector<float> packed(static_cast<size_t>(blocks_of(channels) * taps * 16));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t tap = 0; tap < taps; ++tap)
      packed[size_t((c / 16 * taps + tap) * 16 + c % 16)] = weights[size_t(c * taps + tap)];
  return packed;
}

/// Values filled up with zeros to a multiple of 16.
inline std::vector<float> padded_to_block(std::vector<float> values) {
  values.resize((values.size() + 15) / 16 * 16);
  return values;
}

}  // namespace native::testing

#endif  // NATIVE_TESTS_SUPPORT_HPP
