// Non-maximum suppression, against a plain loop.

#include "cpuacc/kernels/boxes.hpp"

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(BoxKernel);

template <class T>
T least(T a, T b) {
  return std::isnan(a) || std::isnan(b) ? T(kNan) : std::min(a, b);
}
template <class T>
T most(T a, T b) {
  return std::isnan(a) || std::isnan(b) ? T(kNan) : std::max(a, b);
}

template <class T>
struct Box {
  T y1, x1, y2, x2;
  T area() const { return (y2 - y1) * (x2 - x1); }
};

template <class T>
Box<T> box_of(const Proposals& proposals, int64_t n) {
  const T* b = static_cast<const T*>(proposals.boxes) + 4 * n;
  if (proposals.centers) return {b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2};
  return {least(b[0], b[2]), least(b[1], b[3]), most(b[0], b[2]), most(b[1], b[3])};
}

template <class T>
bool are_apart(const Box<T>& a, const Box<T>& b, T limit) {
  const T height = most(least(a.y2, b.y2) - most(a.y1, b.y1), T(0));
  const T width = most(least(a.x2, b.x2) - most(a.x1, b.x1), T(0));
  const T both = height * width, either = a.area() + b.area() - both;
  return both / (either > 0 ? either : 1) <= limit;
}

/// Take the best box, and drop all that overlap it, as often as possible.
template <class T>
std::vector<int32_t> selected(const Proposals& proposals) {
  const T* scores = static_cast<const T*>(proposals.scores);
  std::vector<int32_t> left, found;
  for (int64_t n = 0; n < proposals.count; ++n)
    if (scores[n] > T(proposals.score)) left.push_back(int32_t(n));
  std::stable_sort(left.begin(), left.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  while (!left.empty() && int64_t(found.size()) < proposals.limit) {
    const int32_t best = left[0];
    found.push_back(best);
    std::vector<int32_t> rest;
    for (size_t n = 1; n < left.size(); ++n)
      if (are_apart(box_of<T>(proposals, best), box_of<T>(proposals, left[n]), T(proposals.overlap)))
        rest.push_back(left[n]);
    left = rest;
  }
  return found;
}

template <class T>
void check_suppression(native::Isa isa, int32_t dtype, const std::vector<T>& odd) {
  Random random;
  for (int64_t count : {0, 1, 2, 15, 16, 17, 100, 333})
    for (int64_t limit : {1, 16, 17, 50})
      for (double overlap : {0.0, 0.3, 1.0})
        for (int kind = 0; kind < 4; ++kind) {
          Guarded<T> boxes(count * 4), scores(count);
          for (int64_t n = 0; n < count * 4; ++n) boxes[n] = T(random.integer(0, 40)) / 4;
          for (int64_t n = 0; n < count; ++n) scores[n] = T(random.integer(0, 60)) / 64;
          for (size_t n = 0; n < odd.size() && count > 16; ++n) {
            boxes[random.integer(0, count * 4 - 1)] = odd[n];
            scores[random.integer(0, count - 1)] = odd[n];
          }
          const double lowest = kind & 2 ? 0.4 : -std::numeric_limits<double>::infinity();
          const int64_t most = std::min(limit, count);
          const Proposals proposals{boxes.data(), scores.data(), count, most, overlap, lowest, (kind & 1) != 0};
          const BoxKernels& kernels = box_kernels_for(isa);
          Guarded<double> scratch(int64_t(kernels.scratch(count, most) + 7) / 8);
          Guarded<int32_t> out(most, -1);
          const std::vector<int32_t> expected = selected<T>(proposals);
          ASSERT_EQ(kernels.suppress(dtype)(proposals, scratch.data(), out.data()), int64_t(expected.size()))
              << describe("count", count, "limit", limit, "overlap", overlap, "kind", kind);
          for (size_t n = 0; n < expected.size(); ++n)
            ASSERT_EQ(out[int64_t(n)], expected[n]) << describe("count", count, "limit", limit, "kind", kind, "n", n);
        }
}

TEST_P(BoxKernel, selects_the_best_boxes_that_do_not_overlap) {
  check_suppression<float>(isa(), IPR_DTYPE_FLOAT32, {});
  check_suppression<double>(isa(), IPR_DTYPE_FLOAT64, {});
}

TEST_P(BoxKernel, treats_nan_and_infinity_as_the_reference_does) {
  check_suppression<float>(isa(), IPR_DTYPE_FLOAT32, {kNan, kInfinity, -kInfinity, -0.0f, 1e38f, -1e38f});
  check_suppression<double>(isa(), IPR_DTYPE_FLOAT64, {kNan, kInfinity, -kInfinity, -0.0, 1e308, -1e308});
}

}  // namespace
}  // namespace cpuacc
