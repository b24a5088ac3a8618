// Copies between strided views of tensors: transpositions, slices, broadcasts.

#ifndef CPUACC_STRIDED_COPY_HPP
#define CPUACC_STRIDED_COPY_HPP

#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/step.hpp"

namespace cpuacc {

/// One axis of a view: its size, and its strides in elements in the operand and in the result.
struct Axis {
  int64_t extent, from, to;
};
using Axes = std::vector<Axis>;

/// Strides in elements of a contiguous tensor.
Shape steps_of(const Shape& shape);

/// Axes of a contiguous result; the caller sets `from`.
Axes axes_of(const Shape& result);

/// The step that copies a view. `in_offset` and `out_offset` are in elements.
Step copy_step(Builder& builder, std::string name, Buffer in, Buffer out, Axes axes, uint64_t item_size,
               int64_t in_offset = 0, int64_t out_offset = 0);

/// Copy a view at once, in this thread. Offsets are in elements.
void copy_view(const MoveKernels& kernels, const char* in, char* out, Axes axes, uint64_t item_size,
               int64_t in_offset = 0, int64_t out_offset = 0);

/// The step that fills a result with one element.
Step fill_step(Builder& builder, std::string name, Buffer out, const void* value, uint64_t item_size, int64_t count);

/// The step that copies the first operand of a node to its result. It does nothing if the planner places both in the
/// same memory, because nothing else reads the operand. Further steps of the node then change the result.
Step duplicate_step(Builder& builder, const Node& node);

}  // namespace cpuacc

#endif  // CPUACC_STRIDED_COPY_HPP
