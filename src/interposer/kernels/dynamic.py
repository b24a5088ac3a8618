"""Kernels of the operators whose attributes are tensors; they call the kernels of the equivalent operators."""

from __future__ import annotations

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType, TensorInfo
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.dynamic import (
    DynamicBroadcastTo,
    DynamicOp,
    DynamicPad,
    DynamicReshape,
    DynamicSlice,
    DynamicTile,
    DynamicTopK,
)

__all__: list[str] = []


def _settled(op: DynamicOp, info: KernelInfo, x: Array, *values: Array | None) -> list[Array]:
    value = info.inputs[0]
    assert value is not None
    value = value.with_shape(x.shape).with_constant(None)
    static = op.settle(value.shape, *values)
    if errors := static.violations(value):
        raise InvalidArgumentError("; ".join(errors))
    pairs = zip(static.infer_infos(value), info.outputs, strict=True)
    outputs = [TensorInfo(result.shape, result.dtype, requested.quantization) for result, requested in pairs if result]
    return kernel.evaluate(static, [x], [value], outputs)


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


@kernel(DynamicTopK, dtypes={"input": ANY_TYPE - STORED_FLOATS - {DataType.STRING}})
def dynamic_top_k(op: DynamicTopK, x: Array, k: Array, *, info: KernelInfo) -> tuple[Array, Array]:
    """Compute `DynamicTopK` by the kernel of `TopK`, whose attribute is the value of `k`; return values and indices."""
    values, indices = _settled(op, info, x, k)
    return values, indices
