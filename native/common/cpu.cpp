#include "common/cpu.hpp"

#include <unistd.h>
#if defined(NATIVE_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

namespace native {
namespace {

const char* const kNames[] = {"baseline", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"};

/// Return whether the processor multiplies 8-bit integers in tile registers: bits 24 and 25 of EDX of leaf 7.
bool has_tiles() {
#if defined(NATIVE_AMX)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 3) == 3;
#else
  return false;
#endif
}

/// Ask the system to let all threads of this process use tile registers. Linux refuses if a thread has an alternate
/// signal stack that is too small for their state.
bool may_use_tiles() {
#if defined(NATIVE_AMX)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Isa of_this_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  auto has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (!has_avx2) return Isa::baseline;
  auto has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512cd");
  if (!has_avx512) return Isa::avx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
#ifdef NATIVE_BF16
  if (__builtin_cpu_supports("avx512bf16")) return has_tiles() ? Isa::amx : Isa::avx512bf16;
#endif
  return Isa::avx512vnni;
#else
  return Isa::baseline;
#endif
}

const char kVariable[] = "INTERPOSER_CPUACC_ISA";

/// What the environment variable says; empty if it is not set.
std::string_view requested() {
  const char* text = std::getenv(kVariable);
  return text ? text : "";
}

/// The names up to a level, separated by commas.
std::string names_up_to(Isa last) {
  std::string names = kNames[0];
  for (int n = 1; n <= int(last); ++n) names += std::string(", ") + kNames[n];
  return names;
}

}  // namespace

Isa best_isa() {
  const Isa best = of_this_processor();
  const auto name = std::find(std::begin(kNames), std::end(kNames), requested());
  const Isa chosen = name == std::end(kNames) ? best : std::min(best, Isa(name - kNames));
  if (chosen != Isa::amx) return chosen;
  static const bool permitted = may_use_tiles();
  return permitted ? Isa::amx : Isa::avx512bf16;
}

std::string unknown_isa() {
  const std::string_view name = requested();
  if (name.empty() || std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return "";
  return std::string(kVariable) + " is '" + std::string(name) + "'; expected one of " +
         names_up_to(Isa(std::size(kNames) - 1)) + " (this processor has " + names_up_to(of_this_processor()) + ")";
}

const char* isa_name(Isa isa) { return kNames[int(isa)]; }

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "";
}

long l2_bytes() {
  long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return size > 0 ? size : 512 * 1024;
}

}  // namespace native
