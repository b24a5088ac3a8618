// Convolutions of float32 images for one instruction set: they share the micro-kernels for images, which are compiled
// once. For avx512bf16, the GEMMs multiply pairs of bfloat16.

#include "cpuacc/kernels/conv_f32.hpp"

#include "cpuacc/kernels/bottleneck.hpp"
#include "cpuacc/kernels/direct.hpp"
#include "cpuacc/kernels/pointwise.hpp"
#include "cpuacc/kernels/winograd.hpp"

namespace cpuacc::ISA_NS {

extern const ConvKernels conv_kernels = {kPanelBlocks, kBfloat16Pairs, pointwise, direct, depthwise, bottleneck};
extern const WinogradKernels winograd_kernels = {kPanelBlocks, kBfloat16Pairs, winograd, winograd_stage,
                                                 winograd_weights};

}  // namespace cpuacc::ISA_NS
