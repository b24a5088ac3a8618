// Overlaps of boxes, and suppression in the order of NNAPI's reference. Numbers are float32 or float64.

#ifndef CPUACC_LOWER_OVERLAP_HPP
#define CPUACC_LOWER_OVERLAP_HPP

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cpuacc {

/// The lesser number; NaN if one of them is NaN.
template <class T>
T least_of(T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
T most_of(T a, T b) {
  return a > b || a != a ? a : b;
}

/// Two opposite corners.
template <class T>
struct Corners {
  T low[2], high[2];

  static Corners at(const T* from) { return {{from[0], from[1]}, {from[2], from[3]}}; }
  T area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
  bool is_ordered() const { return !(low[0] > high[0]) && !(low[1] > high[1]); }
};

/// The intersection over union of two boxes; 0 for boxes without area.
template <class T>
T overlap_of(const Corners<T>& a, const Corners<T>& b) {
  T sides[2];
  for (int n = 0; n < 2; ++n) sides[n] = most_of(least_of(a.high[n], b.high[n]) - most_of(a.low[n], b.low[n]), T(0));
  const T both = sides[0] * sides[1], either = a.area() + b.area() - both;
  return both / (either > 0 ? either : T(1));
}

/// Sort indices by falling score; of equal scores, the lower position comes first.
template <class T, class Score>
void sort_by_score(std::vector<T>& indices, const Score& score) {
  std::stable_sort(indices.begin(), indices.end(), [&](T a, T b) { return score(a) > score(b); });
}

/// Select up to `limit` candidates. After each selection, `drops(index, overlap)` may lower the score of a remaining
/// candidate, and returns whether the candidate is dropped. Of equal scores, the first in the list wins. The selected
/// candidate and the first one change places, and the last one moves to the place of a dropped one.
template <class Boxes, class Scores, class Drops>
std::vector<int64_t> take_greedily(std::vector<int64_t> remaining, const Boxes& box, const Scores& score, int64_t limit,
                                   const Drops& drops) {
  std::vector<int64_t> chosen;
  while (!remaining.empty() && int64_t(chosen.size()) < limit) {
    size_t best = 0;
    for (size_t n = 1; n < remaining.size() && score(remaining[best]) == score(remaining[best]); ++n) {
      const auto value = score(remaining[n]);
      if (value > score(remaining[best]) || value != value) best = n;
    }
    std::swap(remaining[0], remaining[best]);
    const int64_t selected = remaining[0];
    chosen.push_back(selected);
    std::vector<char> dropped(remaining.size() - 1);
    const auto own = box(selected);
    for (size_t n = 1; n < remaining.size(); ++n)
      dropped[n - 1] = drops(remaining[n], overlap_of(own, box(remaining[n])));
    remaining.erase(remaining.begin());
    for (size_t n = 0; n < remaining.size();) {
      if (!dropped[n]) {
        ++n;
        continue;
      }
      remaining[n] = remaining.back(), dropped[n] = dropped.back();
      remaining.pop_back(), dropped.pop_back();
    }
  }
  return chosen;
}

}  // namespace cpuacc

#endif  // CPUACC_LOWER_OVERLAP_HPP
