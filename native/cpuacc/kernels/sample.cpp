#include "cpuacc/kernels/sample.hpp"

#include <math.h>
#include <string.h>

#include "cpuacc/kernels/simd.hpp"

// This file is compiled without contraction of products and sums to fused operations, because a position half-way
// between two pixels has to be rounded like the reference does (see CMakeLists.txt).

namespace cpuacc::ISA_NS {
namespace {

constexpr int kMostTaps = 4;

/// The pixels along one axis of each position: an index (-1: outside of the image) and a weight.
struct Taps {
  int count;
  int32_t index[kMostTaps][kSamplePositions];
  float weight[kMostTaps][kSamplePositions];
};

/// Mirror a position at the edges of the image, or at the centers of the outer pixels.
float reflected(float at, int64_t extent, bool align_corners) {
  const float low = align_corners ? 0.0f : -0.5f, size = float(align_corners ? extent - 1 : extent);
  if (size == 0) return 0;
  float way = at - low;
  if (!(way >= 0 && way < 2 * size)) {
    way = fmodf(way, 2 * size);
    if (way < 0) way += 2 * size;
  }
  return (way <= 2 * size - way ? way : 2 * size - way) + low;
}

/// Clip a position; NaN stays NaN.
inline float clip(float at, float low, float high) { return at < low ? low : at > high ? high : at; }

/// Convert coordinates from -1 to 1 along an axis to positions in pixels.
void locate(const GridRules& rules, int64_t axis, const float* grid, int64_t count, float* at) {
  const int64_t extent = rules.sizes[axis];
  const float size = float(extent), last = float(extent - 1);
  for (int64_t n = 0; n < count; ++n) at[n] = grid[n * rules.axes + rules.axes - 1 - axis];
  for (int64_t n = count; n < kSamplePositions; ++n) at[n] = 0;
  if (rules.align_corners)
    for (int64_t n = 0; n < kSamplePositions; ++n) at[n] = (at[n] + 1) / 2 * last;
  else
    for (int64_t n = 0; n < kSamplePositions; ++n) at[n] = ((at[n] + 1) * size - 1) / 2;
  if (rules.mode == SampleMode::nearest)
    for (int64_t n = 0; n < kSamplePositions; ++n) at[n] = rintf(at[n]);
  const float margin = rules.mode == SampleMode::cubic ? 2 : 0;  // where all four taps are the pixel of the border
  if (rules.padding == SamplePadding::border)
    for (int64_t n = 0; n < kSamplePositions; ++n) at[n] = clip(at[n], -margin, last + margin);
  if (rules.padding == SamplePadding::reflection)
    for (int64_t n = 0; n < kSamplePositions; ++n) at[n] = reflected(at[n], extent, rules.align_corners);
}

inline float inner_weight(float d) { return (1.25f * d - 2.25f) * d * d + 1; }
inline float outer_weight(float d) { return ((-0.75f * d + 3.75f) * d - 6) * d + 3; }

/// The weights of the taps, given the distance of each position from the pixel on its left.
void weigh(SampleMode mode, const float* ratio, Taps& taps) {
  for (int64_t n = 0; n < kSamplePositions; ++n) {
    const float r = ratio[n];
    if (mode == SampleMode::nearest) {
      taps.weight[0][n] = 1;
    } else if (mode == SampleMode::linear) {
      taps.weight[0][n] = 1 - r, taps.weight[1][n] = r;
    } else {
      taps.weight[0][n] = outer_weight(r + 1), taps.weight[1][n] = inner_weight(r);
      taps.weight[2][n] = inner_weight(1 - r), taps.weight[3][n] = outer_weight(2 - r);
    }
  }
}

/// The index of a pixel along an axis, inside of the image; NaN gives the first one.
inline int32_t index_of(float number, float last) {
  number = number >= 0 ? number : 0;
  return int32_t(number <= last ? number : last);
}

void find_along(const GridRules& rules, int64_t axis, const float* grid, int64_t count, Taps& taps) {
  float at[kSamplePositions], left[kSamplePositions];
  const int64_t extent = rules.sizes[axis];
  const float last = float(extent - 1);
  const bool cubic = rules.mode == SampleMode::cubic;
  taps.count = rules.mode == SampleMode::nearest ? 1 : cubic ? 4 : 2;
  locate(rules, axis, grid, count, at);
  for (int64_t n = 0; n < kSamplePositions; ++n) left[n] = floorf(at[n]), at[n] -= left[n];
  weigh(rules.mode, at, taps);
  for (int tap = 0; tap < taps.count; ++tap) {
    const float offset = float(tap - cubic);
    int32_t* index = taps.index[tap];
    if (rules.padding == SamplePadding::zeros)
      for (int64_t n = 0; n < kSamplePositions; ++n) {
        const float number = left[n] + offset;
        index[n] = (number >= 0) & (number <= last) ? index_of(number, last) : -1;
      }
    else if (rules.padding == SamplePadding::border)
      for (int64_t n = 0; n < kSamplePositions; ++n) index[n] = index_of(left[n] + offset, last);
    else
      for (int64_t n = 0; n < kSamplePositions; ++n)
        index[n] = index_of(reflected(left[n] + offset, extent, rules.align_corners), last);
  }
}

/// Combine each neighbour so far with each tap along a further axis. The last neighbours come first, so that none is
/// overwritten before it is read.
void combine(Neighbours& all, const Taps& taps, int32_t extent) {
  for (int64_t k = all.count - 1; k >= 0; --k)
    for (int tap = taps.count - 1; tap >= 0; --tap)
      for (int64_t n = 0; n < kSamplePositions; ++n) {
        const int32_t before = all.offset[k][n], index = taps.index[tap][n];
        all.offset[k * taps.count + tap][n] = (before < 0) | (index < 0) ? -1 : before * extent + index;
        const float weight = all.weight[k][n] * taps.weight[tap][n];
        all.weight[k * taps.count + tap][n] = (before < 0) | (index < 0) ? 0.0f : weight;
      }
  all.count *= taps.count;
}

void find(const GridRules& rules, const float* grid, int64_t count, Neighbours& neighbours) {
  neighbours.count = 1;
  for (int64_t n = 0; n < kSamplePositions; ++n) neighbours.offset[0][n] = 0, neighbours.weight[0][n] = 1;
  for (int64_t axis = 0; axis < rules.axes; ++axis) {
    Taps taps;
    find_along(rules, axis, grid, count, taps);
    combine(neighbours, taps, int32_t(rules.sizes[axis]));
  }
}

/// The pixel before each position along an axis (`after`: the next one) and its weight; -1 where the weight is 0.
void tap_of(const float* at, bool after, int64_t extent, int32_t* index, float* weight) {
  const float last = float(extent - 1);
  for (int64_t n = 0; n < kSamplePositions; ++n) {
    const float left = floorf(at[n]), ratio = at[n] - left, number = left + float(after);
    weight[n] = after ? ratio : 1 - ratio;
    const bool counts = (number >= 0) & (number <= last) & (weight[n] != 0);
    const int32_t inside = index_of(number, last);
    index[n] = counts ? inside : -1;
  }
}

void surround(const float* y, const float* x, const float* scale, int64_t height, int64_t width, int64_t count,
              Neighbours& neighbours) {
  float at[2][kSamplePositions] = {}, factor[kSamplePositions], weight[4][kSamplePositions];
  int32_t index[4][kSamplePositions];
  for (int64_t n = 0; n < kSamplePositions; ++n) factor[n] = 1;
  memcpy(at[0], y, size_t(count) * sizeof(float));
  memcpy(at[1], x, size_t(count) * sizeof(float));
  if (scale) memcpy(factor, scale, size_t(count) * sizeof(float));
  for (int tap = 0; tap < 4; ++tap) tap_of(at[tap / 2], tap % 2, tap / 2 ? width : height, index[tap], weight[tap]);
  neighbours.count = 4;
  for (int k = 0; k < 4; ++k) {
    const int32_t *rows = index[k / 2], *columns = index[2 + k % 2];
    const float *down = weight[k / 2], *across = weight[2 + k % 2];
    for (int64_t n = 0; n < kSamplePositions; ++n) {
      const bool outside = (rows[n] < 0) | (columns[n] < 0);
      neighbours.offset[k][n] = outside ? -1 : rows[n] * int32_t(width) + columns[n];
      neighbours.weight[k][n] = outside ? 0.0f : down[n] * across[n] * factor[n];
    }
  }
}

/// The elements at these indices; 0 where an index is negative.
CPUACC_INLINE Vec gathered(const float* from, const int32_t* index) {
#if defined(__AVX512F__)
  const __m512i at = _mm512_loadu_si512(index);
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), _mm512_cmpge_epi32_mask(at, _mm512_setzero_si512()), at, from,
                                  4);
#elif defined(__AVX2__)
  const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index));
  const __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1)));
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, at, inside, 4);
#else
  Vec gathered;
  for (int n = 0; n < kLanes; ++n) gathered[n] = index[n] < 0 ? 0.0f : from[index[n]];
  return gathered;
#endif
}

void mix(const Neighbours& neighbours, const float* in, float* out, int64_t count, int64_t channels, int64_t pixels,
         int64_t out_step) {
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* image = in + channel * pixels;
    float sum[kSamplePositions];
    for (int64_t n = 0; n < count; n += kLanes) {
      Vec total = {};
      for (int64_t k = 0; k < neighbours.count; ++k)
        total += gathered(image, neighbours.offset[k] + n) * load(neighbours.weight[k] + n);
      store(sum + n, total);
    }
    memcpy(out + channel * out_step, sum, size_t(count) * sizeof(float));
  }
}

template <class T>
void pick_items(const Neighbours& neighbours, const T* in, T* out, T zero, int64_t count, int64_t channels,
                int64_t pixels, int64_t out_step) {
  const int32_t* offset = neighbours.offset[0];
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int64_t n = 0; n < count; ++n)
      out[channel * out_step + n] = offset[n] < 0 ? zero : in[channel * pixels + offset[n]];
}

void pick(const Neighbours& neighbours, const char* in, char* out, const char* zero, int64_t item_size, int64_t count,
          int64_t channels, int64_t pixels, int64_t out_step) {
  auto all = [&](auto element) {
    using T = decltype(element);
    memcpy(&element, zero, sizeof element);
    pick_items<T>(neighbours, reinterpret_cast<const T*>(in), reinterpret_cast<T*>(out), element, count, channels,
                  pixels, out_step);
  };
  switch (item_size) {
    case 1:
      return all(uint8_t{});
    case 2:
      return all(uint16_t{});
    case 4:
      return all(uint32_t{});
    default:
      return all(uint64_t{});
  }
}

// ---- Regions --------------------------------------------------------------------------------------------------------

void bins(const float* image, int64_t width, const BinWeights* down, int64_t rows, const BinWeights* across,
          int64_t columns, float* scratch, float* out) {
  int64_t first = width, last = 0;
  for (int64_t j = 0; j < columns; ++j) {
    if (across[j].count == 0) continue;
    if (across[j].first < first) first = across[j].first;
    if (across[j].first + across[j].count > last) last = across[j].first + across[j].count;
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t x = first; x < last; ++x) scratch[x] = 0;
    for (int64_t k = 0; k < down[i].count; ++k) {
      const float weight = down[i].weights[k];
      const float* row = image + (down[i].first + k) * width;
      for (int64_t x = first; x < last; ++x) scratch[x] += weight * row[x];
    }
    for (int64_t j = 0; j < columns; ++j) {
      const float* cells = scratch + across[j].first;
      float sum = 0;
      for (int64_t k = 0; k < across[j].count; ++k) sum += across[j].weights[k] * cells[k];
      out[i * columns + j] = sum;
    }
  }
}

}  // namespace

extern const SampleKernels sample_kernels = {find, surround, mix, pick, bins};

}  // namespace cpuacc::ISA_NS
