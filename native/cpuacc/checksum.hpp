// Checksums of bytes.

#ifndef CPUACC_CHECKSUM_HPP
#define CPUACC_CHECKSUM_HPP

#include <cstdint>

namespace cpuacc {

/// A 64-bit checksum that detects differences; not cryptographic.
uint64_t checksum(const void* data, uint64_t size, uint64_t start = 0);

/// Mix the bits of a number.
uint64_t mixed(uint64_t bits);

}  // namespace cpuacc

#endif  // CPUACC_CHECKSUM_HPP
