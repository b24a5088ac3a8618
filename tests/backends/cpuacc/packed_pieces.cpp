// What programs packed: the same bytes are in memory once, and stay as long as somebody has them.

#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cpuacc/packed.hpp"

using cpuacc::Packed;

namespace {

int faults = 0;

void expect(bool holds, const char* what) {
  if (!holds) ++faults, std::printf("not so: %s\n", what);
}

const char* packed(Packed& into, uint64_t bytes, char value) {
  char* taken = into.take(bytes);
  std::memset(taken, value, bytes);
  return into.add(taken, bytes);
}

bool all_are(const char* bytes, uint64_t count, char value) {
  for (uint64_t n = 0; n < count; ++n)
    if (bytes[n] != value) return false;
  return true;
}

void equal_bytes_are_there_once() {
  Packed first(nullptr), second(nullptr);
  const char* large = packed(first, 3 << 20, 'a');
  expect(packed(second, 3 << 20, 'a') == large, "a large piece of another program is used");
  const char* small = packed(first, 300'000, 'b');
  expect(packed(second, 300'000, 'b') == small, "so is one that lies in a chunk with others");
  expect(packed(first, 300'000, 'b') == small, "and one of the same program");
  expect(packed(second, 300'000, 'c') != small, "other bytes are others");
  expect(packed(second, 299'999, 'b') != small, "and fewer are");
  expect(packed(second, 10'000, 'd') != packed(first, 10'000, 'd'), "a few bytes are not looked for");
  expect(second.total() == (3 << 20) + 300'000 + 300'000 + 299'999 + 10'000, "all pieces count");
  expect(second.pieces()[0].data == large && second.pieces().size() == 5, "pieces are kept in their order");
}

void what_is_given_back_is_zero_again() {
  Packed first(nullptr), second(nullptr);
  packed(first, 1 << 20, 'x');
  packed(second, 100, 'y');
  packed(second, 1 << 20, 'x');  // given back
  expect(all_are(second.take(1 << 20), 1 << 20, 0), "memory that was given back is zero when it is taken again");
}

void pieces_outlive_who_made_them() {
  auto maker = std::make_unique<Packed>(nullptr);
  packed(*maker, 1 << 20, 'm');
  Packed user(nullptr);
  const char* used = packed(user, 1 << 20, 'm');
  maker.reset();
  expect(all_are(used, 1 << 20, 'm'), "they are there when the maker is gone");
}

/// Pack bytes that are 'p' but for one, which no sample of a checksum reads.
const char* packed_alike(Packed& into, char odd) {
  const uint64_t bytes = 300'000;
  char* taken = into.take(bytes);
  std::memset(taken, 'p', bytes);
  taken[2000] = odd;
  return into.add(taken, bytes);
}

void few_pieces_that_look_alike_are_compared() {
  Packed first(nullptr), second(nullptr);
  for (char odd : {'1', '2', '3', '4'})
    expect(packed_alike(second, odd) == packed_alike(first, odd), "a few are found");
  expect(packed_alike(second, '5') != packed_alike(first, '5'), "those beyond are not looked for");
}

void threads_pack_the_same_at_the_same_time() {
  auto work = [] {
    for (int round = 0; round < 20; ++round) {
      Packed one(nullptr);
      for (char value = 0; value < 5; ++value)
        expect(all_are(packed(one, 300'000, value), 300'000, value), "every thread sees its bytes");
    }
  };
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  equal_bytes_are_there_once();
  what_is_given_back_is_zero_again();
  pieces_outlive_who_made_them();
  few_pieces_that_look_alike_are_compared();
  threads_pack_the_same_at_the_same_time();
  return faults == 0 ? 0 : 1;
}
