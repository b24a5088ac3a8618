// Numbers that are attributes of layers, as elements of tensors.

#ifndef CPUACC_LOWER_ENCODING_HPP
#define CPUACC_LOWER_ENCODING_HPP

#include "cpuacc/graph.hpp"

namespace cpuacc {

/// The least and the most of the whole numbers that a type has, of which all are whole in float64.
struct Limits {
  double least, most;
};

/// Return the limits of bool, or of an integer type.
Limits limits_of(int32_t dtype);

/// Write a number as an element of a tensor of any type, quantized if the tensor is. `to` has eight bytes. Return false
/// if the type has no such number, or the tensor has scales along an axis.
bool encode(double value, const Tensor& tensor, char* to);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_ENCODING_HPP
