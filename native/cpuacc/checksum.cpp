#include "cpuacc/checksum.hpp"

#include <cstring>

namespace cpuacc {

uint64_t mixed(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15ull;
  return x ^ (x >> 29);
}

uint64_t checksum(const void* data, uint64_t size, uint64_t start) {
  constexpr int lanes =
      8;  // independent accumulators; the multiplications make the result depend on the order of the words
  uint64_t sums[lanes];
  for (int n = 0; n < lanes; ++n) sums[n] = mixed(start + uint64_t(n) + 1);
  const char* bytes = static_cast<const char*>(data);
  uint64_t at = 0;
  for (; at + 8 * lanes <= size; at += 8 * lanes)
    for (int n = 0; n < lanes; ++n) {
      uint64_t word;
      std::memcpy(&word, bytes + at + uint64_t(n) * 8, 8);
      sums[n] = (sums[n] ^ word) * 0x9e3779b97f4a7c15ull;
      sums[n] ^= sums[n] >> 32;
    }
  uint64_t total = size;
  for (; at < size; ++at) total = mixed(total ^ static_cast<unsigned char>(bytes[at])) + 1;
  for (uint64_t sum : sums) total = mixed(total ^ sum) + 1;
  return total;
}

}  // namespace cpuacc
