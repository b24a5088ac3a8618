// Non-maximum suppression of boxes.

#ifndef CPUACC_KERNELS_BOXES_HPP
#define CPUACC_KERNELS_BOXES_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

/// The boxes of an image, and their scores for one class. Scores and boxes have the same type, float32 or float64.
struct Proposals {
  const void* boxes;  // (count, 4): two opposite corners, or with `centers` the center and the size
  const void* scores;
  int64_t count, limit;  // `limit`: how many boxes are selected at most
  double overlap;        // a box with a larger intersection over union with a better box is dropped
  double score;          // only boxes with a higher score are considered
  bool centers;
};

/// Write the indices of the selected boxes to out[0 .. limit), best boxes first, and return their number. Among equal
/// scores, the first box is better.
using Suppress = int64_t (*)(const Proposals& proposals, void* scratch, int32_t* out);

struct BoxKernels {
  Suppress (*suppress)(int32_t dtype);                // nullptr if the dtype is not supported
  uint64_t (*scratch)(int64_t count, int64_t limit);  // bytes of scratch memory, aligned to 8
};
CPUACC_TABLE(BoxKernels, box_kernels)

}  // namespace cpuacc

#endif  // CPUACC_KERNELS_BOXES_HPP
