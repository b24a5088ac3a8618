#include "cpuacc/kernels/boxes.hpp"

#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

constexpr int64_t kBlock = 16;  // boxes that are compared together

template <class T>
inline __attribute__((always_inline)) T least(T a, T b) {  // NaN if one is NaN
  return a < b || a != a ? a : b;
}
template <class T>
inline __attribute__((always_inline)) T most(T a, T b) {
  return a > b || a != a ? a : b;
}

// ---- Candidates in order of falling score ---------------------------------------------------------------------------

template <class T>
struct Candidate {
  T score;
  int32_t index;
};

template <class T>
bool is_better(const Candidate<T>& a, const Candidate<T>& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

/// Move the candidate at `n` down until no child in the heap is better.
template <class T>
void sink(Candidate<T>* heap, int64_t n, int64_t count) {
  const Candidate<T> moved = heap[n];
  for (int64_t child; (child = 2 * n + 1) < count; n = child) {
    if (child + 1 < count && is_better(heap[child + 1], heap[child])) ++child;
    if (!is_better(heap[child], moved)) break;
    heap[n] = heap[child];
  }
  heap[n] = moved;
}

template <class T>
int64_t collect(const Proposals& proposals, Candidate<T>* heap) {
  const T *scores = static_cast<const T*>(proposals.scores), lowest = T(proposals.score);
  int64_t count = 0;
  for (int64_t n = 0; n < proposals.count; ++n) {
    heap[count] = {scores[n], int32_t(n)};
    count += scores[n] > lowest;
  }
  for (int64_t n = count / 2; n-- > 0;) sink(heap, n, count);
  return count;
}

// ---- Overlaps -------------------------------------------------------------------------------------------------------

template <class T>
struct Corners {
  T y1, x1, y2, x2;
  T area() const { return (y2 - y1) * (x2 - x1); }
};

template <class T>
Corners<T> corners(const Proposals& proposals, int32_t index) {
  const T* box = static_cast<const T*>(proposals.boxes) + 4 * int64_t(index);
  if (!proposals.centers)
    return {least(box[0], box[2]), least(box[1], box[3]), most(box[0], box[2]), most(box[1], box[3])};
  const T half[2] = {box[2] / 2, box[3] / 2};
  return {box[0] - half[0], box[1] - half[1], box[0] + half[0], box[1] + half[1]};
}

/// Selected boxes, one array for each coordinate and one for the areas; `stride` is a multiple of `kBlock`.
template <class T>
struct Selected {
  T* memory;
  int64_t stride, count;

  void add(const Corners<T>& box, T area) {
    T* to = memory + count++;
    to[0] = box.y1, to[stride] = box.x1, to[2 * stride] = box.y2, to[3 * stride] = box.x2, to[4 * stride] = area;
  }

  /// Return whether the overlap of a box with one of the selected boxes is not within the limit.
  bool overlap(const Corners<T>& box, T area, T limit) const {
    for (int64_t first = 0; first < count; first += kBlock) {
      const T *y1 = memory + first, *x1 = y1 + stride, *y2 = x1 + stride, *x2 = y2 + stride, *areas = x2 + stride;
      int dropped = 0;
      for (int64_t n = 0; n < kBlock; ++n) {
        const T height = most(least(box.y2, y2[n]) - most(box.y1, y1[n]), T(0));
        const T width = most(least(box.x2, x2[n]) - most(box.x1, x1[n]), T(0));
        const T both = height * width, either = area + areas[n] - both;
        const bool within = both / (either > 0 ? either : T(1)) <= limit;
        dropped |= !within & (first + n < count);
      }
      if (dropped) return true;
    }
    return false;
  }
};

int64_t stride_of(int64_t limit) { return (limit + kBlock - 1) / kBlock * kBlock; }

template <class T>
int64_t suppress(const Proposals& proposals, void* scratch, int32_t* out) {
  Candidate<T>* heap = static_cast<Candidate<T>*>(scratch);
  Selected<T> selected{reinterpret_cast<T*>(heap + proposals.count + 1), stride_of(proposals.limit), 0};
  int64_t count = collect(proposals, heap);
  while (count > 0 && selected.count < proposals.limit) {
    const int32_t index = heap[0].index;
    heap[0] = heap[--count];
    sink(heap, 0, count);
    const Corners<T> box = corners<T>(proposals, index);
    const T area = box.area();
    if (selected.overlap(box, area, T(proposals.overlap))) continue;
    out[selected.count] = index;
    selected.add(box, area);
  }
  return selected.count;
}

uint64_t scratch_bytes(int64_t count, int64_t limit) {
  return uint64_t(count + 1) * sizeof(Candidate<double>) + uint64_t(5 * stride_of(limit)) * sizeof(double);
}

Suppress suppress_of(int32_t dtype) {
  if (dtype == IPR_DTYPE_FLOAT32) return suppress<float>;
  return dtype == IPR_DTYPE_FLOAT64 ? suppress<double> : nullptr;
}

}  // namespace

extern const BoxKernels box_kernels = {suppress_of, scratch_bytes};

}  // namespace cpuacc::ISA_NS
