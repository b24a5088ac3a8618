// The movement of windows over an image: which elements of a window meet the image, and where.

#ifndef CPUACC_LOWER_WINDOW_F32_HPP
#define CPUACC_LOWER_WINDOW_F32_HPP

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cpuacc/kernels/conv_f32.hpp"

namespace cpuacc {

/// The movement of a window along one axis of an image of `size` elements: tap `k` at position `p` reads element p *
/// stride + k * dilation - pad.
struct WindowAxis {
  int64_t kernel, stride, dilation, pad, size, places;
};

/// A range of taps, which may be empty.
struct Taps {
  int64_t first, last;
  int64_t count() const { return std::max<int64_t>(0, last - first); }
};

/// The taps that read the image at a position.
inline Taps live_taps(const WindowAxis& axis, int64_t position) {
  int64_t before = axis.pad - position * axis.stride, after = axis.size - 1 + axis.pad - position * axis.stride;
  int64_t first = before > 0 ? (before + axis.dilation - 1) / axis.dilation : 0;
  int64_t last = after < 0 ? 0 : std::min(axis.kernel, after / axis.dilation + 1);
  return {std::min(first, last), last};
}

/// Taps that read the image at any position; at least one.
inline Taps used_taps(const WindowAxis& axis) {
  Taps used{axis.kernel, 0};
  for (int64_t p = 0; p < axis.places; ++p) {
    Taps live = live_taps(axis, p);
    if (live.count() == 0) continue;
    used = {std::min(used.first, live.first), std::max(used.last, live.last)};
  }
  return used.count() > 0 ? used : Taps{0, 1};
}

/// The axis without the taps before and after the used ones.
inline WindowAxis cropped(const WindowAxis& axis, const Taps& used) {
  WindowAxis cropped_axis = axis;
  cropped_axis.kernel = used.count();
  cropped_axis.pad = axis.pad - used.first * axis.dilation;
  return cropped_axis;
}

/// The average number of taps that read the image.
inline double mean_live_taps(const WindowAxis& axis) {
  int64_t sum = 0;
  for (int64_t p = 0; p < axis.places; ++p) sum += live_taps(axis, p).count();
  return axis.places == 0 ? 0 : double(sum) / double(axis.places);
}

/// Pixels that a tile of the micro-kernel has at most, and the pixels whose time it takes in addition.
constexpr int64_t kTilePixels = 14, kTileOverhead = 3;

inline int64_t cost_of(const Segment& s) {
  int64_t pixels = s.last - s.first, tiles = (pixels + kTilePixels - 1) / kTilePixels;
  return (pixels + tiles * kTileOverhead) * (s.tap_end - s.tap);
}

inline Segment united(const Segment& a, const Segment& b) {
  if (a.tap == a.tap_end) return {a.first, b.last, b.tap, b.tap_end};
  if (b.tap == b.tap_end) return {a.first, b.last, a.tap, a.tap_end};
  return {a.first, b.last, std::min(a.tap, b.tap), std::max(a.tap_end, b.tap_end)};
}

/// One segment with all taps.
inline std::vector<Segment> one_segment(const WindowAxis& axis) {
  return {{0, int32_t(axis.places), 0, int32_t(axis.kernel)}};
}

constexpr int64_t kMaxSegmented = 256;  // taps of the widest windows whose rows are divided into segments

/// Divide a row into segments, so that few taps that read padding are multiplied and tiles are not too small.
inline std::vector<Segment> segments_of(const WindowAxis& axis) {
  if (axis.kernel > kMaxSegmented) return one_segment(axis);
  std::vector<Segment> segments;
  for (int64_t p = 0; p < axis.places; ++p) {
    Taps live = live_taps(axis, p);
    Segment next{int32_t(p), int32_t(p + 1), int32_t(live.first), int32_t(live.last)};
    if (!segments.empty() && segments.back().tap == next.tap && segments.back().tap_end == next.tap_end)
      segments.back().last = next.last;
    else
      segments.push_back(next);
  }
  while (segments.size() > 1) {
    size_t best = 0;
    int64_t most = -1;
    for (size_t n = 0; n + 1 < segments.size(); ++n) {
      int64_t saved = cost_of(segments[n]) + cost_of(segments[n + 1]) - cost_of(united(segments[n], segments[n + 1]));
      if (saved > most) most = saved, best = n;
    }
    if (most < 0) break;
    segments[best] = united(segments[best], segments[best + 1]);
    segments.erase(segments.begin() + int64_t(best) + 1);
  }
  return segments;
}

/// Return whether no position of any segment reads padding.
inline bool are_exact(const std::vector<Segment>& segments, const WindowAxis& axis) {
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& s) {
    for (int64_t p = s.first; p < s.last; ++p) {
      Taps live = live_taps(axis, p);
      if (live.count() == 0 ? s.tap != s.tap_end : live.first != s.tap || live.last != s.tap_end) return false;
    }
    return true;
  });
}

/// The places of the result at a distance of `stride` from one another, from `first` on. They see the same elements of
/// the window, `cells`, whose offsets are congruent to `number` modulo the stride. Over these places, the transposed
/// convolution is a convolution with stride 1, and with a dilation because consecutive cells are
/// dilation / gcd(dilation, stride) input pixels apart. The window has no cells, and its input is not read, if none
/// falls on these places.
struct TransposedPhase {
  TransposedPhase(const WindowAxis& axis, int64_t number)
      : first(((number - axis.pad) % axis.stride + axis.stride) % axis.stride) {
    for (int64_t k = axis.kernel; k-- > 0;)
      if (k * axis.dilation % axis.stride == number) cells.push_back(k);
    int64_t places = std::max<int64_t>(0, (axis.places - first + axis.stride - 1) / axis.stride);
    int64_t farthest = cells.empty() ? 0 : (cells[0] * axis.dilation - number) / axis.stride;
    dense = {std::max<int64_t>(1, int64_t(cells.size())),
             1,
             axis.dilation / std::gcd(axis.dilation, axis.stride),
             farthest - (first + axis.pad - number) / axis.stride,
             axis.size,
             places};
  }

  int64_t first;
  std::vector<int64_t> cells;  // in the order in which the convolution reads them
  WindowAxis dense;
};

/// Offsets of all taps, [input channel][tap] if planar.
inline std::vector<int32_t> make_taps(const Convolution& c) {
  std::vector<int32_t> taps;
  for (int channel = 0; channel < (c.planar ? c.gemm.depth : 1); ++channel)
    for (int z = 0; z < c.kernel_depth; ++z)
      for (int y = 0; y < c.kernel_height; ++y)
        for (int x = 0; x < c.kernel_width; ++x) taps.push_back(int32_t(offset_of_tap(c, channel, z, y, x)));
  return taps;
}

}  // namespace cpuacc

#endif  // CPUACC_LOWER_WINDOW_F32_HPP
