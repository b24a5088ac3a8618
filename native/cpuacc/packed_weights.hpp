// Constant weights of a matrix product that stay in few bits, as the network stores them.

#ifndef CPUACC_PACKED_WEIGHTS_HPP
#define CPUACC_PACKED_WEIGHTS_HPP

#include <vector>

#include "cpuacc/kernels/packed_matmul.hpp"
#include "cpuacc/step.hpp"

namespace cpuacc {

/// The type of nodes that multiply with packed weights. Their operands are the matrix, nothing, and perhaps a bias;
/// their `extra` is a StoredWeights.
constexpr const char* kPackedMatMul = "acc.PackedMatMul";

/// Integers with scales, or float16 or bfloat16, in the memory of the host. Strides are in elements.
struct StoredWeights {
  const void* codes = nullptr;
  int32_t dtype = IPR_DTYPE_INT8;
  int64_t depth = 0, columns = 0, by_depth = 0, by_column = 0;
  int64_t block = 1;             // elements of the depth that share a scale
  const void* scales = nullptr;  // nullptr: none
  int32_t scale_dtype = IPR_DTYPE_FLOAT32;
  int64_t scale_by_block = 0, scale_by_column = 0;
  std::vector<float> own_scales;  // `scales` if they are not a tensor of the network
  std::vector<int32_t> zeros;     // with the strides of the scales; empty: all are 0

  bool is_float() const { return dtype == IPR_DTYPE_FLOAT16 || dtype == IPR_DTYPE_BFLOAT16; }
};

/// The integer of an element of 2 to 8 bits.
inline int32_t integer_at(const void* data, int32_t dtype, int64_t at) {
  const uint8_t bits = static_cast<const uint8_t*>(data)[at];
  switch (dtype) {
    case IPR_DTYPE_INT8:
      return int8_t(bits);
    case IPR_DTYPE_INT4:
      return ((bits & 15) ^ 8) - 8;
    case IPR_DTYPE_UINT4:
      return bits & 15;
    case IPR_DTYPE_INT2:
      return ((bits & 3) ^ 2) - 2;
    case IPR_DTYPE_UINT2:
      return bits & 3;
    default:
      return bits;
  }
}

/// Return whether elements are integers of 2 to 8 bits.
bool has_few_bits(int32_t dtype);

/// Pack weights in the form of the kernels.
PackedWeights pack_stored_weights(const StoredWeights& stored, Builder& builder);

}  // namespace cpuacc

#endif  // CPUACC_PACKED_WEIGHTS_HPP
