// Constants of any type as float32: weights of layers whose weights are stored in fewer bits.

#ifndef CPUACC_LOWER_REAL_CONSTANT_HPP
#define CPUACC_LOWER_REAL_CONSTANT_HPP

#include <vector>

#include "cpuacc/rules.hpp"

namespace cpuacc {

/// Return whether `reals` can convert a tensor: a constant of float32, or of quantized integers of 8 to 32 bits.
bool is_real_constant(const Tensor& tensor);

/// The numbers of a constant, dequantized.
std::vector<float> reals(const Tensor& tensor);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_REAL_CONSTANT_HPP
