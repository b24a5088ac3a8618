// Packing of float32 weights in the order in which the kernels read them.

#ifndef CPUACC_LOWER_PACK_F32_HPP
#define CPUACC_LOWER_PACK_F32_HPP

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/pages.hpp"
#include "cpuacc/step.hpp"

namespace cpuacc {

inline int64_t blocks_of(int64_t channels) { return (channels + 15) / 16; }
/// Channels of the last block.
inline int32_t last_of(int64_t channels) { return int32_t((channels + 15) % 16 + 1); }

/// Two numbers as bfloat16 in one word, rounded to the nearest, ties to even.
inline float bfloat16_pair(float low, float high) {
  auto brain = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  };
  uint32_t both = brain(low) | brain(high) << 16;
  float word;
  std::memcpy(&word, &both, sizeof word);
  return word;
}

/// Weights of the network: strides in elements from one output channel, input channel and tap to the next.
struct Weights {
  UnalignedFloats data;
  int64_t outputs, inputs, taps;
  int64_t by_output, by_input, by_tap;
  bool bfloat16 = false;             // pack them as pairs of bfloat16
  const int64_t* numbers = nullptr;  // the numbers of the taps in the network's window; nullptr: 0, 1, 2 ...
  bool mapped = false;               // they are mapped from a file, whose pages are released once they are packed

  float at(int64_t output, int64_t input, int64_t tap) const {
    return data[output * by_output + input * by_input + (numbers ? numbers[tap] : tap) * by_tap];
  }
  /// Words of a column: one for each input channel, or for each pair of them.
  int64_t words() const { return bfloat16 ? (inputs + 1) / 2 : inputs; }
  /// Release the pages of some output channels, if these are contiguous in a mapped file.
  void release(int64_t first, int64_t count) const {
    if (!mapped || numbers || by_output < inputs * taps) return;
    native::release_pages(data.bytes() + first * by_output * 4, uint64_t(count * by_output) * 4);
  }
  int64_t packed() const { return blocks_of(outputs) * 16 * words() * taps; }
  /// Copy the words of one input channel and one tap for `count` output channels.
  void column(int64_t first, int64_t count, int64_t input, int64_t tap, float* to) const {
    if (bfloat16) {
      for (int64_t o = 0; o < count; ++o) to[o] = word(first + o, input, tap);
      return;
    }
    const UnalignedFloats from =
        data + (first * by_output + input * by_input + (numbers ? numbers[tap] : tap) * by_tap);
    for (int64_t o = 0; o < count; ++o) to[o] = from[o * by_output];
  }
  float word(int64_t output, int64_t input, int64_t tap) const {
    if (!bfloat16) return at(output, input, tap);
    return bfloat16_pair(at(output, input, tap), input + 1 < inputs ? at(output, input + 1, tap) : 0);
  }
};

/// Blocks of the panel that begins at `block`: `panel` of them; an odd last block belongs to the panel before it.
inline int64_t blocks_of_panel(int64_t block, int64_t blocks, int64_t panel) {
  int64_t left = blocks - block;
  return panel > 1 && left == panel + 1 ? left : std::min(left, panel);
}

/// Call one(block, blocks of the panel) for each panel, on several threads.
template <class One>
void for_panels(Builder& builder, const Weights& w, int64_t panel, uint64_t bytes, const One& pack_block) {
  int64_t blocks = blocks_of(w.outputs);
  builder.divide(blocks, bytes, [&](int64_t first, int64_t last) {
    for (int64_t block = 0; block < last;) {
      int64_t wide = blocks_of_panel(block, blocks, panel);
      if (block >= first) pack_block(block, wide);
      block += wide;
    }
  });
}

/// Pack weights as [panel][group of input channels][tap][input channel][output channel of the panel]. `group` is 16 for
/// nChw16c images and 1 for planar input. `to` is zeroed. With bfloat16, the same holds for pairs of input channels.
inline void pack_panels(Builder& builder, const Weights& w, int64_t panel, int64_t group, float* to) {
  const int64_t each = w.bfloat16 ? 2 : 1;
  group *= each;
  for_panels(builder, w, panel, uint64_t(w.packed()) * 8, [&](int64_t block, int64_t wide) {
    int64_t first = block * 16, outputs = std::min(wide * 16, w.outputs - first);
    float* at = to + first * w.words() * w.taps;
    for (int64_t input = 0; input < w.inputs; input += group)
      for (int64_t tap = 0; tap < w.taps; ++tap)
        for (int64_t i = input; i < std::min(input + group, w.inputs); i += each, at += wide * 16)
          w.column(first, outputs, i, tap, at);
    w.release(first, outputs);
  });
}

/// Pack weights for Winograd's convolution as [panel][element][input channel, or pair of them][output channel of the
/// panel]. `transform` is WinogradKernels::transform_weights.
inline void pack_winograd(Builder& builder, const Weights& w, int64_t panel, int32_t tile,
                          void (*transform)(int32_t tile, const float* taps, float* to, int64_t step), float* to) {
  const int64_t elements = (tile + 2) * (tile + 2), each = w.bfloat16 ? 2 : 1;
  for_panels(builder, w, panel, uint64_t(w.packed()) * 8, [&](int64_t block, int64_t wide) {
    const int64_t step = w.words() * wide * 16;
    float* blocks_of_panel_at = to + elements * w.words() * block * 16;
    for (int64_t b = 0; b < wide; ++b) {
      int64_t first = (block + b) * 16, outputs = std::min<int64_t>(16, w.outputs - first);
      auto transformed = [&](int64_t i, float* at, int64_t by) {
        float taps[9 * 16] = {};
        for (int64_t tap = 0; tap < 9; ++tap)
          for (int64_t o = 0; o < outputs; ++o) taps[tap * 16 + o] = w.at(first + o, i, tap);
        transform(tile, taps, at, by);
      };
      for (int64_t i = 0; i < w.inputs; i += each) {
        float* at = blocks_of_panel_at + (i / each * wide + b) * 16;
        if (!w.bfloat16) {
          transformed(i, at, step);
          continue;
        }
        float pair[2][36 * 16] = {};
        for (int64_t n = i; n < std::min(i + 2, w.inputs); ++n) transformed(n, pair[n - i], 16);
        for (int64_t n = 0; n < elements * 16; ++n) at[n / 16 * step + n % 16] = bfloat16_pair(pair[0][n], pair[1][n]);
      }
    }
  });
}

/// Pack weights as [block of output channels][row of the window][input channel][column of the window][16]. Rows have
/// `columns` taps.
inline void pack_depthwise(const Weights& w, int64_t columns, float* to) {
  for (int64_t o = 0; o < w.outputs; ++o)
    for (int64_t tap = 0; tap < w.taps; ++tap)
      for (int64_t i = 0; i < w.inputs; ++i) {
        const int64_t row = tap / columns * w.inputs + i;
        to[((o / 16 * (w.taps / columns) * w.inputs + row) * columns + tap % columns) * 16 + o % 16] = w.at(o, i, tap);
      }
}

}  // namespace cpuacc

#endif  // CPUACC_LOWER_PACK_F32_HPP
