// Kernels are compiled once for each instruction set. Each kernels/<kind>.cpp becomes one object file per set, with the
// flags of the set and the macro ISA_NS (baseline, avx2, avx512, avx512vnni, neon), and exports tables of functions
// from the namespace cpuacc::ISA_NS. kernels/<kind>.hpp, which kernels and lowerings include, declares a table:
//
//     struct PoolKernels { void (*max)(const float* in, float* out, int64_t n); };
//     CPUACC_TABLE(PoolKernels, pool_kernels)
//
// kernels/<kind>.cpp defines it:
//
//     namespace cpuacc::ISA_NS {
//     static void max(...) {...}
//     extern const PoolKernels pool_kernels = {max};
//     }
//
// A lowering calls `pool_kernels_for(settings.isa).max(...)`.
//
// Everything else in kernel files is static or in an unnamed namespace. Kernels use no functions of namespace std with
// code of their own, because the linker would merge inline functions of different sets. They have no initializers at
// load time, and include only <immintrin.h>, <stdint.h>, <string.h> and <math.h>. For avx512bf16, only
// kernels/conv_f32.cpp and kernels/matmul_f32.cpp are compiled (see CPUACC_BFLOAT16_TABLE), and for amx only
// kernels/tiles_q8.cpp; other kernels use avx512vnni. Vectors of Arm are as wide at every level: for dotprod and i8mm,
// only kernels/q8.cpp is compiled (see CPUACC_Q8_TABLE); other kernels use neon. A build may leave sets out
// (instruction_sets.cmake).

#ifndef CPUACC_ISA_HPP
#define CPUACC_ISA_HPP

#if defined(__x86_64__)
#define CPUACC_X86 1
#endif

#ifdef ISA_NS

#define CPUACC_TABLE(Type, name) \
  namespace ISA_NS {             \
  extern const Type name;        \
  }
#define CPUACC_Q8_TABLE(Type, name) CPUACC_TABLE(Type, name)

#else

#include <cstdlib>

#include "common/cpu.hpp"

// CPUACC_IF_<SET>(code) is the code if the set is compiled.
#ifdef NATIVE_BASELINE
#define CPUACC_IF_BASELINE(...) __VA_ARGS__
#else
#define CPUACC_IF_BASELINE(...)
#endif
#ifdef NATIVE_AVX2
#define CPUACC_IF_AVX2(...) __VA_ARGS__
#else
#define CPUACC_IF_AVX2(...)
#endif
#ifdef NATIVE_AVX512
#define CPUACC_IF_AVX512(...) __VA_ARGS__
#else
#define CPUACC_IF_AVX512(...)
#endif
#ifdef NATIVE_AVX512VNNI
#define CPUACC_IF_AVX512VNNI(...) __VA_ARGS__
#else
#define CPUACC_IF_AVX512VNNI(...)
#endif
#ifdef NATIVE_NEON
#define CPUACC_IF_NEON(...) __VA_ARGS__
#else
#define CPUACC_IF_NEON(...)
#endif
#ifdef NATIVE_DOTPROD
#define CPUACC_IF_DOTPROD(...) __VA_ARGS__
#else
#define CPUACC_IF_DOTPROD(...)
#endif
#ifdef NATIVE_I8MM
#define CPUACC_IF_I8MM(...) __VA_ARGS__
#else
#define CPUACC_IF_I8MM(...)
#endif

// `name_for(isa)` is the table of the best compiled set up to `isa`, which `native::is_built` must accept.
#define CPUACC_TABLE(Type, name)                                                       \
  CPUACC_IF_BASELINE(namespace baseline { extern const Type name; })                   \
  CPUACC_IF_AVX2(namespace avx2 { extern const Type name; })                           \
  CPUACC_IF_AVX512(namespace avx512 { extern const Type name; })                       \
  CPUACC_IF_AVX512VNNI(namespace avx512vnni { extern const Type name; })               \
  CPUACC_IF_NEON(namespace neon { extern const Type name; })                           \
  inline const Type& name##_for([[maybe_unused]] native::Isa isa) {                    \
    CPUACC_IF_NEON(return neon::name;)                                                 \
    CPUACC_IF_AVX512VNNI(if (isa >= native::Isa::avx512vnni) return avx512vnni::name;) \
    CPUACC_IF_AVX512(if (isa >= native::Isa::avx512) return avx512::name;)             \
    CPUACC_IF_AVX2(if (isa >= native::Isa::avx2) return avx2::name;)                   \
    CPUACC_IF_BASELINE(if (isa >= native::Isa::baseline) return baseline::name;)       \
    std::abort();                                                                      \
  }

// CPUACC_Q8_TABLE(Type, name) declares a table that is compiled for every level of Arm.
#ifdef NATIVE_NEON
#define CPUACC_Q8_TABLE(Type, name)                                           \
  namespace neon {                                                            \
  extern const Type name;                                                     \
  }                                                                           \
  CPUACC_IF_DOTPROD(namespace dotprod { extern const Type name; })            \
  CPUACC_IF_I8MM(namespace i8mm { extern const Type name; })                  \
  inline const Type& name##_for([[maybe_unused]] native::Isa isa) {           \
    CPUACC_IF_I8MM(if (isa >= native::Isa::i8mm) return i8mm::name;)          \
    CPUACC_IF_DOTPROD(if (isa >= native::Isa::dotprod) return dotprod::name;) \
    return neon::name;                                                        \
  }
#else
#define CPUACC_Q8_TABLE(Type, name) CPUACC_TABLE(Type, name)
#endif

#endif

// CPUACC_BFLOAT16_TABLE(Type, name), after CPUACC_TABLE, declares a second table that is compiled for avx512bf16. It is
// the table of `name_for(isa, true)` if the processor has these instructions.
#if defined(ISA_NS)
#define CPUACC_BFLOAT16_TABLE(Type, name)
#elif defined(NATIVE_AVX512BF16)
#define CPUACC_BFLOAT16_TABLE(Type, name)                                                   \
  namespace avx512bf16 {                                                                    \
  extern const Type name;                                                                   \
  }                                                                                         \
  inline const Type& name##_for(native::Isa isa, bool bfloat16) {                           \
    return bfloat16 && isa >= native::Isa::avx512bf16 ? avx512bf16::name : name##_for(isa); \
  }
#else
#define CPUACC_BFLOAT16_TABLE(Type, name) \
  inline const Type& name##_for(native::Isa isa, bool) { return name##_for(isa); }
#endif

#endif  // CPUACC_ISA_HPP
