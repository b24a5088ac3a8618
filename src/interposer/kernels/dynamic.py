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
    """Compute by the kernel of Reshape, BroadcastTo, Tile or Pad, with `value` as its attribute."""
    return _settled(op, info, x, value)[0]


@kernel(DynamicSlice)
def dynamic_slice(
    op: DynamicSlice, x: Array, starts: Array, ends: Array, steps: Array | None, *, info: KernelInfo
) -> Array:
    """Compute by the kernel of StridedSlice, with the tensors as its attributes."""
    return _settled(op, info, x, starts, ends, steps)[0]


@kernel(DynamicTopK, dtypes={"input": ANY_TYPE - STORED_FLOATS - {DataType.STRING}})
def dynamic_top_k(op: DynamicTopK, x: Array, k: Array, *, info: KernelInfo) -> tuple[Array, Array]:
    """Compute by the kernel of TopK, with the tensor `k` as its attribute."""
    values, indices = _settled(op, info, x, k)
    return values, indices
