#include "common/cpu.hpp"

#include <unistd.h>
#if defined(NATIVE_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#endif
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <string_view>

namespace native {
namespace {

/// The names of all levels in the order of `Isa`.
const char* const kNames[] = {"neon",   "dotprod",    "i8mm",       "baseline", "avx2",
                              "avx512", "avx512vnni", "avx512bf16", "amx"};

/// The levels of this architecture.
#if defined(__x86_64__)
constexpr Isa kLevels[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni, Isa::avx512bf16, Isa::amx};
#elif defined(__aarch64__)
constexpr Isa kLevels[] = {Isa::neon, Isa::dotprod, Isa::i8mm};
#else
constexpr Isa kLevels[] = {Isa::baseline};
#endif

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

constexpr Isa kBuilt[] = {
#ifdef NATIVE_BASELINE
    Isa::baseline,
#endif
#ifdef NATIVE_AVX2
    Isa::avx2,
#endif
#ifdef NATIVE_AVX512
    Isa::avx512,
#endif
#ifdef NATIVE_AVX512VNNI
    Isa::avx512vnni,
#endif
#ifdef NATIVE_AVX512BF16
    Isa::avx512bf16,
#endif
#ifdef NATIVE_AMX
    Isa::amx,
#endif
#ifdef NATIVE_NEON
    Isa::neon,
#endif
#ifdef NATIVE_DOTPROD
    Isa::dotprod,
#endif
#ifdef NATIVE_I8MM
    Isa::i8mm,
#endif
};

const char kVariable[] = "INTERPOSER_CPUACC_ISA";

/// What the environment variable says; empty if it is not set.
std::string_view requested() {
  const char* text = std::getenv(kVariable);
  return text ? text : "";
}

/// The level of this architecture with a name; nullptr if there is none.
const Isa* named(std::string_view name) {
  for (const Isa& isa : kLevels)
    if (name == isa_name(isa)) return &isa;
  return nullptr;
}

/// The names of the levels of this architecture up to one of them, separated by commas.
std::string names_up_to(Isa last) {
  std::string names;
  for (Isa isa : kLevels)
    if (isa <= last) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  return names;
}

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

/// What follows the colon of a line of /proc/cpuinfo.
std::string value_of(const std::string& line) {
  const size_t colon = line.find(':');
  return colon == std::string::npos || colon + 2 > line.size() ? "" : line.substr(colon + 2);
}

std::string core_path(const std::string& folder, int core, const std::string& name) {
  return folder + "/cpu" + std::to_string(core) + "/" + name;
}

/// The number that a file begins with; 0 if there is none.
long number_in(const std::string& path) {
  long number = 0;
  std::ifstream(path) >> number;
  return number;
}

std::vector<int> online_cores() {
  std::vector<int> cores(size_t(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

}  // namespace

Isa processor_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  auto has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (!has_avx2) return Isa::baseline;
  auto has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512cd");
  if (!has_avx512) return Isa::avx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
#ifdef NATIVE_AVX512BF16
  if (__builtin_cpu_supports("avx512bf16")) return has_tiles() ? Isa::amx : Isa::avx512bf16;
#endif
  return Isa::avx512vnni;
#elif defined(__aarch64__)
  return isa_of_arm(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#else
  return Isa::baseline;
#endif
}

Isa isa_of_arm(uint64_t hwcap, uint64_t hwcap2) {
  // All that compilers may use for armv8.2-a+dotprod: HWCAP_CRC32, HWCAP_ATOMICS, HWCAP_ASIMDRDM and HWCAP_ASIMDDP.
  constexpr uint64_t kDotProducts = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20;
  constexpr uint64_t kMatrices = 1 << 13;  // HWCAP2_I8MM
  if ((hwcap & kDotProducts) != kDotProducts) return Isa::neon;
  return hwcap2 & kMatrices ? Isa::i8mm : Isa::dotprod;
}

std::vector<Isa> built_isas() { return {std::begin(kBuilt), std::end(kBuilt)}; }

bool is_built(Isa isa) { return std::find(std::begin(kBuilt), std::end(kBuilt), isa) != std::end(kBuilt); }

Isa best_isa() {
  const Isa best = processor_isa(), *asked = named(requested());
  const Isa limit = asked ? std::min(best, *asked) : best;
  const auto beyond = std::upper_bound(std::begin(kBuilt), std::end(kBuilt), limit);
  const Isa chosen = beyond == std::begin(kBuilt) ? kBuilt[0] : *(beyond - 1);
  if (chosen != Isa::amx) return chosen;
  static const bool permitted = may_use_tiles();
  return permitted ? Isa::amx : Isa::avx512bf16;
}

std::string isa_problem() {
  const std::string_view name = requested();
  const Isa best = processor_isa(), *asked = named(name);
  if (!name.empty() && !asked)
    return std::string(kVariable) + " is '" + std::string(name) + "'; expected one of " +
           names_up_to(*(std::end(kLevels) - 1)) + " (this processor has " + names_up_to(best) + ")";
  const std::string advice =
      "this CpuAcc was built for " + built_isa_names() + " only; build it with INTERPOSER_NATIVE_SETS=all";
  if (asked && *asked <= best && !is_built(*asked))
    return std::string(kVariable) + " is '" + std::string(name) + "', but " + advice;
  if (kBuilt[0] > best) return "this processor has " + names_up_to(best) + ", but " + advice;
  return "";
}

const char* isa_name(Isa isa) { return kNames[int(isa)]; }

std::string built_isa_names() {
  std::string names;
  for (Isa isa : kBuilt) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  return names;
}

std::vector<int> by_capacity(std::vector<int> cores, const std::string& folder) {
  std::map<int, long> capacities;
  for (int core : cores) capacities[core] = number_in(core_path(folder, core, "cpu_capacity"));
  std::stable_sort(cores.begin(), cores.end(), [&](int a, int b) { return capacities[a] > capacities[b]; });
  return cores;
}

std::string processor(const std::string& file, const std::string& folder) {
  std::vector<int> cores;
  std::map<int, std::string> parts;  // of Arm
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::string value = value_of(line);
    if (begins_with(line, "model name")) return value;
    if (begins_with(line, "processor")) cores.push_back(std::atoi(value.c_str()));
    if (cores.empty()) continue;
    if (begins_with(line, "CPU implementer")) parts[cores.back()] = "implementer " + value;
    if (begins_with(line, "CPU part")) parts[cores.back()] += " part " + value;
  }
  return cores.empty() ? "" : parts[by_capacity(cores, folder).front()];
}

long l2_bytes_in(const std::string& folder, int core) {
  for (int index = 0; index < 8; ++index) {
    const std::string cache = "cache/index" + std::to_string(index);
    if (number_in(core_path(folder, core, cache + "/level")) != 2) continue;
    std::ifstream file(core_path(folder, core, cache + "/size"));
    long size = 0;
    char unit = 0;
    if (file >> size >> unit) return unit == 'M' ? size << 20 : unit == 'K' ? size << 10 : size;
  }
  return 0;
}

long l2_bytes() {
  static const long bytes = [] {
    if (const long size = sysconf(_SC_LEVEL2_CACHE_SIZE); size > 0) return size;
    const long size = l2_bytes_in(kCoreFolder, by_capacity(online_cores()).front());
    return size > 0 ? size : 512L * 1024;
  }();
  return bytes;
}

}  // namespace native
