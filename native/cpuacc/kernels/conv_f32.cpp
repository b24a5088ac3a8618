// The kernels of float32 convolutions and matrix products for one instruction set.

#include "cpuacc/kernels/conv_f32.hpp"

#include "cpuacc/kernels/attention.hpp"
#include "cpuacc/kernels/bottleneck.hpp"
#include "cpuacc/kernels/matrix.hpp"
#include "cpuacc/kernels/window.hpp"
#include "cpuacc/kernels/winograd.hpp"

namespace cpuacc::ISA_NS {

extern const ConvKernels conv_kernels = {kPanelBlocks, product, convolve, depthwise, winograd, winograd_stage, winograd_weights,
                                          bottleneck, matrix, attention, vector};

}  // namespace cpuacc::ISA_NS
