// What the processor supports. Kernels are chosen by it at run time.

#ifndef NATIVE_COMMON_CPU_HPP
#define NATIVE_COMMON_CPU_HPP

#include <string>

namespace native {

/// Instruction sets that kernels are compiled for, each a superset of the one before.
enum class Isa { baseline, avx2, avx512, avx512vnni, avx512bf16, amx };

/// The best instruction set that the processor and the operating system support. The environment variable
/// INTERPOSER_CPUACC_ISA selects a lower one: "baseline", "avx2", "avx512", "avx512vnni", "avx512bf16" or "amx".
/// If the result is `amx`, the system was asked to let this process use tile registers, and agreed.
Isa best_isa();

/// An error message if INTERPOSER_CPUACC_ISA names no instruction set that is known; else empty.
std::string unknown_isa();

const char* isa_name(Isa isa);

/// The model name of the processor; empty if the system does not report it.
std::string processor();

/// Bytes of the second-level cache of one core; 512 KiB if the system does not report it.
long l2_bytes();

}  // namespace native

#endif  // NATIVE_COMMON_CPU_HPP
