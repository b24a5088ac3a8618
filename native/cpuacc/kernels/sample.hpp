// Images sampled at positions that are data: grids of positions, and regions that are divided into bins.

#ifndef CPUACC_KERNELS_SAMPLE_HPP
#define CPUACC_KERNELS_SAMPLE_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

enum class SampleMode : int32_t { linear, nearest, cubic };
enum class SamplePadding : int32_t { zeros, border, reflection };

/// How the positions of a grid become pixels.
struct GridRules {
  SampleMode mode;
  SamplePadding padding;
  bool align_corners;
  int64_t axes;      // spatial dimensions of the images, 1 to 3
  int64_t sizes[3];  // their sizes; the position of the last one is the first number of a grid position
};

constexpr int64_t kSamplePositions = 64;  // positions that are processed together
constexpr int64_t kMostNeighbours = 64;   // pixels that one position mixes: 4 along each of three axes

/// The pixels of `kSamplePositions` positions: for each of `count` neighbours, an offset in the image (-1: a zero
/// outside of the image) and a weight.
struct Neighbours {
  int64_t count;
  int32_t offset[kMostNeighbours][kSamplePositions];
  float weight[kMostNeighbours][kSamplePositions];
};

/// A weighted sum of cells along one axis: the cells [first, first + count) have `weights`.
struct BinWeights {
  int32_t first, count;
  const float* weights;
};

struct SampleKernels {
  /// Find the neighbours of `count` positions, at most kSamplePositions.
  void (*find)(const GridRules& rules, const float* grid, int64_t count, Neighbours& neighbours);
  /// Find the four neighbours of `count` positions in pixels of an image of `height` rows and `width` columns, with
  /// linear weights times `scale` (nullptr: 1). A neighbour outside of the image, or whose linear weight is 0, is a
  /// zero.
  void (*surround)(const float* y, const float* x, const float* scale, int64_t height, int64_t width, int64_t count,
                   Neighbours& neighbours);
  /// Mix the neighbours in each of `channels` images of `pixels` elements; results are `out_step` apart.
  void (*mix)(const Neighbours& neighbours, const float* in, float* out, int64_t count, int64_t channels,
              int64_t pixels, int64_t out_step);
  /// The same for one neighbour whose weight is 1, for elements of 1, 2, 4 or 8 bytes.
  void (*pick)(const Neighbours& neighbours, const char* in, char* out, const char* zero, int64_t item_size,
               int64_t count, int64_t channels, int64_t pixels, int64_t out_step);
  /// out[i * columns + j] = sum of rows[i] x columns[j] of an image, whose rows are `width` elements apart. `scratch`
  /// has memory for one row.
  void (*bins)(const float* image, int64_t width, const BinWeights* down, int64_t rows, const BinWeights* across,
               int64_t columns, float* scratch, float* out);
};
CPUACC_TABLE(SampleKernels, sample_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_SAMPLE_HPP
