// The index of the largest element of each column, the largest elements of each column, and the next element that
// passes a threshold, against plain loops.

#include "cpuacc/kernels/select.hpp"

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(SearchKernel);

template <class T>
std::vector<T> few_values(Random& random, int64_t count) {
  std::vector<T> values;
  for (int64_t n = 0; n < count; ++n) values.push_back(T(random.integer(0, 5)));
  return values;
}

template <>
std::vector<float> few_values(Random& random, int64_t count) {
  const float choices[] = {-1, 0, -0.0f, 1, kInfinity, -kInfinity, 0.5f, 2, 2, 2, 2, kNan};
  std::vector<float> values;
  const int64_t most = random.integer(9, 11);  // with and without NaN
  for (int64_t n = 0; n < count; ++n) values.push_back(choices[random.integer(0, most)]);
  return values;
}

template <class T>
bool is_better(T v, T best, Search search) {
  if (best != best) return v != v && search.last;
  if (v != v) return true;
  if (v == best) return search.last;
  return search.least ? v < best : v > best;
}

template <class T>
void check_search(native::Isa isa, int32_t dtype) {
  Random random;
  for (int64_t extent : {1, 2, 21, 127, 128, 129, 191, 192, 255, 256, 300})
    for (int64_t inner : {1, 2, 3, 33, 63, 64, 65, 130})
      for (int kind = 0; kind < 8; ++kind) {
        const Search search{(kind & 1) != 0, (kind & 2) != 0};
        const int64_t columns = inner > 1 ? inner : kind < 4 ? 70 : 100, count = extent * columns;
        Guarded<T> in(few_values<T>(random, count));
        Guarded<int32_t> out(columns, -1);
        select_kernels_for(isa).search(dtype)({in.data(), extent, inner, 1, columns}, search, out.data());
        for (int64_t c = 1; c < columns; ++c) {
          auto at = [&](int64_t n) { return inner == 1 ? in[c * extent + n] : in[n * inner + c]; };
          int64_t expected = 0;
          for (int64_t n = 1; n < extent; ++n)
            if (is_better(at(n), at(expected), search)) expected = n;
          ASSERT_EQ(out[c - 1], expected) << describe("extent", extent, "inner", inner, "kind", kind, "column", c);
        }
      }
}

TEST_P(SearchKernel, finds_the_index_of_the_largest_element) {
  check_search<float>(isa(), IPR_DTYPE_FLOAT32);
  check_search<int8_t>(isa(), IPR_DTYPE_INT8);
  check_search<uint8_t>(isa(), IPR_DTYPE_UINT8);
  check_search<int16_t>(isa(), IPR_DTYPE_INT16);
  check_search<int32_t>(isa(), IPR_DTYPE_INT32);
  check_search<int64_t>(isa(), IPR_DTYPE_INT64);
}

TEST_P(SearchKernel, finds_the_next_element_that_passes_a_threshold) {
  Random random;
  for (int64_t count : {0, 1, 63, 64, 65, 200})
    for (float threshold : {-kInfinity, 0.0f, 2.0f, kInfinity, kNan})
      for (bool least : {false, true}) {
        Floats in(few_values<float>(random, count));
        for (int64_t first = 0; first <= count; first += 7) {
          int64_t expected = first;
          auto passes = [&](float v) {
            if (v != v || threshold != threshold)
              return least ? v == v && threshold != threshold : v != v && threshold == threshold;
            return least ? v < threshold : v > threshold;
          };
          while (expected < count && !passes(in[expected])) ++expected;
          ASSERT_EQ(
              select_kernels_for(isa()).next_before(IPR_DTYPE_FLOAT32)(in.data(), first, count, &threshold, least),
              expected)
              << describe("count", count, "threshold", threshold, "least", int(least), "first", first);
        }
      }
}

/// The rows of a column in the order in which elements are selected.
template <class T>
std::vector<int32_t> ordered_rows(const Guarded<T>& in, int64_t length, int64_t inner, int64_t column, bool least) {
  std::vector<int32_t> rows;
  for (int64_t n = 0; n < length; ++n) rows.push_back(int32_t(n));
  std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    const T v = in[a * inner + column], other = in[b * inner + column];
    if (v != v || other != other) return least ? v == v && other != other : v != v && other == other;
    return least ? v < other : v > other;
  });
  return rows;
}

template <class T>
void check_top(native::Isa isa, int32_t dtype) {
  Random random;
  for (int64_t count : {64, 192})
    for (int64_t k : {1, 2, 5, 16})
      for (int64_t length : {k, k + 1, int64_t{40}})
        for (bool least : {false, true}) {
          const int64_t inner = count + 3;
          const Guarded<T> in(few_values<T>(random, length * inner));
          Guarded<T> values(k * count);
          Guarded<int32_t> indices(k * count, -1);
          select_kernels_for(isa).top(dtype)({in.data() + 2, length, inner, count, k, least}, values.data(),
                                             indices.data());
          for (int64_t c = 0; c < count; ++c) {
            const std::vector<int32_t> expected = ordered_rows(in, length, inner, c + 2, least);
            for (int64_t i = 0; i < k; ++i) {
              const T value = values[i * count + c], sought = in[expected[size_t(i)] * inner + c + 2];
              ASSERT_EQ(indices[i * count + c], expected[size_t(i)]) << describe("k", k, "length", length, "column", c);
              ASSERT_TRUE(std::memcmp(&value, &sought, sizeof value) == 0) << describe("k", k, "column", c);
            }
          }
        }
}

TEST_P(SearchKernel, selects_the_first_elements_of_columns) {
  check_top<float>(isa(), IPR_DTYPE_FLOAT32);
  check_top<int8_t>(isa(), IPR_DTYPE_INT8);
  check_top<uint8_t>(isa(), IPR_DTYPE_BOOL);
  check_top<uint16_t>(isa(), IPR_DTYPE_UINT16);
  check_top<int32_t>(isa(), IPR_DTYPE_INT32);
  check_top<int64_t>(isa(), IPR_DTYPE_INT64);
}

}  // namespace
}  // namespace cpuacc
