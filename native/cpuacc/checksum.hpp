// Numbers that stand for bytes.

#ifndef CPUACC_CHECKSUM_HPP
#define CPUACC_CHECKSUM_HPP

#include <cstdint>

namespace cpuacc {

/// A number that is another one for other bytes, for all practical purposes.
uint64_t checksum(const void* data, uint64_t size, uint64_t start = 0);

/// The same bits, mixed.
uint64_t mixed(uint64_t bits);

}  // namespace cpuacc

#endif  // CPUACC_CHECKSUM_HPP
