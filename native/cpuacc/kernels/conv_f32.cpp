// The kernels of float32 convolutions and matrix products for one instruction set; for avx512bf16, of pairs.

#include "cpuacc/kernels/conv_f32.hpp"

#include "cpuacc/kernels/bottleneck.hpp"
#include "cpuacc/kernels/matrix.hpp"
#include "cpuacc/kernels/window.hpp"
#include "cpuacc/kernels/winograd.hpp"
#ifndef __AVX512BF16__
#include "cpuacc/kernels/attention.hpp"
#endif

namespace cpuacc::ISA_NS {

#ifdef __AVX512BF16__
constexpr decltype(ConvKernels::attention) attention = nullptr;
#endif

extern const ConvKernels conv_kernels = {kPanelBlocks, kPairs, pointwise, convolve, depthwise, winograd, winograd_stage,
                                          winograd_weights, bottleneck, matrix, attention, vector};

}  // namespace cpuacc::ISA_NS
