// Numbers that are attributes of layers, as elements of tensors.

#ifndef CPUACC_LOWER_ENCODING_HPP
#define CPUACC_LOWER_ENCODING_HPP

#include "cpuacc/graph.hpp"

namespace cpuacc {

/// Write a number as an element of a tensor of any type, quantized if the tensor is. `to` has eight bytes. Return false
/// if the type has no such number, or the tensor has scales along an axis.
bool encode(double value, const Tensor& tensor, char* to);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_ENCODING_HPP
