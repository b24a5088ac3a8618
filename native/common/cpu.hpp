// What the processor supports. Kernels are chosen by it at run time.

#ifndef NATIVE_COMMON_CPU_HPP
#define NATIVE_COMMON_CPU_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace native {

/// Instruction sets that kernels are compiled for. The levels of an architecture are in ascending order, each a
/// superset of the one before: `baseline` to `amx` are those of x86, `neon` to `i8mm` those of 64-bit Arm, and other
/// processors have `baseline` only. A build may leave some of them out.
enum class Isa { neon, dotprod, i8mm, baseline, avx2, avx512, avx512vnni, avx512bf16, amx };

/// The best instruction set that the processor supports, whether or not kernels are built for it.
Isa processor_isa();

/// The best level of 64-bit Arm if Linux reports these features in AT_HWCAP and AT_HWCAP2. It reports what all cores of
/// the machine have.
Isa isa_of_arm(uint64_t hwcap, uint64_t hwcap2);

/// The levels of this architecture that kernels are built for, in ascending order.
std::vector<Isa> built_isas();

/// Return whether this build has kernels for an instruction set.
bool is_built(Isa isa);

/// The best instruction set that the processor and the operating system support, and that kernels are built for. The
/// environment variable INTERPOSER_CPUACC_ISA selects a lower one by its name. If the result is `amx`, the system was
/// asked to let this process use tile registers, and agreed. Valid only if `isa_problem` is empty.
Isa best_isa();

/// An error message if INTERPOSER_CPUACC_ISA names no instruction set of this architecture, or one that is not built,
/// or if none of the built sets runs on this processor; else empty.
std::string isa_problem();

const char* isa_name(Isa isa);

/// The names of the instruction sets that kernels are built for, with ", " between them, in ascending order.
std::string built_isa_names();

/// The folder of Linux with a folder `cpu<number>` for each core.
constexpr char kCoreFolder[] = "/sys/devices/system/cpu";

/// The cores in descending order of their capacities, as Linux reports them in `folder`, such as 1024 for big cores and
/// 400 for little ones. The order stays as it is among equal ones, and where the system reports none.
std::vector<int> by_capacity(std::vector<int> cores, const std::string& folder = kCoreFolder);

/// The model name of the processor. On Arm, Linux reports numbers instead: the implementer and the part of the core
/// with the highest capacity, such as "implementer 0x41 part 0xd0c". Empty if the system reports neither.
std::string processor(const std::string& file = "/proc/cpuinfo", const std::string& folder = kCoreFolder);

/// Bytes of the second-level cache of a core, as Linux reports them in `folder`; 0 if it does not.
long l2_bytes_in(const std::string& folder, int core);

/// Bytes of the second-level cache of the core with the highest capacity; 512 KiB if the system does not report it.
long l2_bytes();

}  // namespace native

#endif  // NATIVE_COMMON_CPU_HPP
