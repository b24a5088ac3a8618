// What the processor can do, by which kernels are chosen at run time.

#ifndef NATIVE_COMMON_CPU_HPP
#define NATIVE_COMMON_CPU_HPP

#include <string>

namespace native {

/// Instruction sets that kernels are compiled for, each a superset of the one before.
enum class Isa { baseline, avx2, avx512, avx512vnni, avx512bf16 };

/// The best that this processor and its system have, or the lower one that the environment variable
/// INTERPOSER_CPUACC_ISA names ("baseline", "avx2", "avx512", "avx512vnni", "avx512bf16").
Isa best_isa();

/// An error message if INTERPOSER_CPUACC_ISA names no instruction set that is known; else empty.
std::string unknown_isa();

const char* isa_name(Isa isa);

/// What the system calls the processor; empty where it does not say.
std::string processor();

/// Bytes of the second-level cache of one core; a usual size where it is not known.
long l2_bytes();

}  // namespace native

#endif  // NATIVE_COMMON_CPU_HPP
