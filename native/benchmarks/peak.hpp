// What a processor reaches at best at one instruction set: loops of nothing but the instruction that a kernel is made
// of.

#ifndef NATIVE_BENCHMARKS_PEAK_HPP
#define NATIVE_BENCHMARKS_PEAK_HPP

#include <stdint.h>

#include "cpuacc/isa.hpp"

namespace cpuacc {

struct PeakKernels {
  /// `count` rounds of independent multiply-adds of float32 in registers; returns the operations of all rounds. A
  /// multiply- add is two operations.
  double (*multiply_add)(int64_t count);
  /// The same for products of pairs of bfloat16, with sums in float32; returns 0 without such instructions.
  double (*multiply_add_bfloat16)(int64_t count);
  /// The same for products of four bytes, with sums in int32.
  double (*dot)(int64_t count);
  /// Copies `bytes`, a multiple of 64, in whole vectors.
  void (*copy)(const char* from, char* to, int64_t bytes);
  /// Reads `bytes`, a multiple of 64, in whole vectors.
  void (*read)(const char* from, int64_t bytes);
};

CPUACC_TABLE(PeakKernels, peak_kernels)

#ifndef ISA_NS
#ifdef NATIVE_AVX512BF16
namespace avx512bf16 {
extern const PeakKernels peak_kernels;
}
#endif
#ifdef NATIVE_AMX
namespace amx {
extern const PeakKernels peak_kernels;
}
#endif
#endif

}  // namespace cpuacc

#endif  // NATIVE_BENCHMARKS_PEAK_HPP
