"""Kernels of the operators whose attributes are tensors; they call the kernels of the equivalent operators."""

from __future__ import annotations

from interposer.core.errors import InvalidArgumentError
from interposer.core.room import check_room
from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType, TensorInfo
from interposer.kernels.operand_values import values_decide
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.dynamic import (
    DynamicBroadcastTo,
    DynamicOp,
    DynamicPad,
    DynamicReshape,
    DynamicSlice,
    DynamicSplitter,
    DynamicTile,
    DynamicTopK,
)

__all__: list[str] = []


def _settled(op: DynamicOp, info: KernelInfo, x: Array, *values: Array | None) -> list[Array]:
    input_info = info.inputs[0]
    assert input_info is not None
    input_info = input_info.with_shape(x.shape).with_constant(None)
    with values_decide(*zip((operand.name for operand in op.operands[1:]), values, strict=True)):
        static_op = op.settle(input_info.shape, *values)
        if errors := static_op.violations(input_info):
            raise InvalidArgumentError("; ".join(errors))
    inferred_and_declared = zip(static_op.infer_infos(input_info), info.outputs, strict=True)
    outputs = [
        TensorInfo(inferred_info.shape, inferred_info.dtype, declared_info.quantization)
        for inferred_info, declared_info in inferred_and_declared
        if inferred_info
    ]
    for output in outputs:
        check_room(tuple(map(int, output.shape)), output.dtype.itemsize)
    return kernel.evaluate(static_op, [x], [input_info], outputs)


@kernel(DynamicReshape, DynamicBroadcastTo, DynamicTile, DynamicPad)
def dynamic(op: DynamicOp, x: Array, value: Array, *, info: KernelInfo) -> Array:
    """Compute `DynamicReshape`, `DynamicBroadcastTo`, `DynamicTile` or `DynamicPad` by the static operator's kernel.

    `value` becomes the attribute of that operator: the shape, the multiples or the pads.
    """
    return _settled(op, info, x, value)[0]


@kernel(DynamicSlice)
def dynamic_slice(
    op: DynamicSlice, x: Array, starts: Array, ends: Array, steps: Array | None, *, info: KernelInfo
) -> Array:
    """Compute `DynamicSlice` by the kernel of `StridedSlice`, whose attributes are the values of the other operands."""
    return _settled(op, info, x, starts, ends, steps)[0]


@kernel(DynamicSplitter)
def dynamic_splitter(op: DynamicSplitter, x: Array, sizes: Array, *, info: KernelInfo) -> tuple[Array, ...]:
    """Compute `DynamicSplitter` by the kernel of `Splitter`, whose attribute is the value of `sizes`."""
    return tuple(_settled(op, info, x, sizes))


@kernel(DynamicTopK, dtypes={"input": ANY_TYPE - STORED_FLOATS - {DataType.STRING}})
def dynamic_top_k(op: DynamicTopK, x: Array, k: Array, *, info: KernelInfo) -> tuple[Array, Array]:
    """Compute `DynamicTopK` by the kernel of `TopK`, whose attribute is the value of `k`; return values and indices."""
    values, indices = _settled(op, info, x, k)
    return values, indices
