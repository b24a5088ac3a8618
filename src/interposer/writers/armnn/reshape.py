"""Arm NN writers for operators about shapes."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.formats.armnn.schema import COMPARISONS
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(Reshape, moves=True)
def reshape(draft: Draft, op: Reshape) -> Tensor:
    """Write Reshape."""
    return draft.reshape(draft.operand(0), (), final=True)


@writer(Rank, moves=True)
def rank(draft: Draft, op: Rank) -> Tensor:
    """Write Rank as a constant, which it is."""
    return draft.constant([draft.rank], draft.result.dtype, "value")


@writer(Shape, moves=True)
def shape(draft: Draft, op: Shape) -> Tensor:
    """Write Shape as a constant, which it is, as all dimensions are known."""
    return draft.constant(np.array(draft.info(0).shape, np.int64), draft.result.dtype, "value")


@writer(Fill)
def fill(draft: Draft, op: Fill) -> Tensor:
    """Write Fill, or the constant that it computes: the reader of 20.08 takes 1 for every value."""
    if draft.result.is_quantized:
        refuse("Arm NN has no Fill of quantized values")
    if draft.result.dtype not in (DataType.FLOAT32, DataType.FLOAT16, DataType.INT32):
        refuse(f"Arm NN has no Fill of {draft.result.dtype}")
    number = float(np.float32(op.value))
    if draft.result.dtype is DataType.INT32 and number != op.value:
        refuse(f"its value {op.value:g} has more digits than float32")
    if not draft.release.prefers("20.11"):
        return draft.constant(np.full(dimensions(draft.result), number), draft.result.dtype, "value")
    dims = draft.constant(dimensions(draft.result), DataType.INT32, "dims")
    return draft.final("Fill", dims, descriptor={"value": number})


@writer(BroadcastTo, moves=True)
def broadcast(draft: Draft, op: BroadcastTo) -> Tensor:
    """Write BroadcastTo, which files do not have, as Tile or as an operation that changes no element."""
    x, shape = draft.operand(0), dimensions(draft.result)
    own_shape = dimensions(x.info)
    own_shape = (1,) * (len(shape) - len(own_shape)) + own_shape
    if own_shape == shape:
        return draft.reshape(x, (), final=True)
    x = draft.reshape(x, own_shape)
    if draft.release.prefers("23.08"):
        multiples = [size if own_size == 1 else 1 for own_size, size in zip(own_shape, shape, strict=True)]
        return draft.final("Tile", x, descriptor={"m_Multiples": multiples})
    return _neutral(draft, x, shape)


def _neutral(draft: Draft, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the result of an operation with a constant of the requested shape that changes no element."""
    q, info = x.info.quantization, draft.result
    if x.dtype is DataType.BOOL:
        truths = draft.constant(np.ones(shape), DataType.BOOL, "true")
        return draft.final("Comparison", x, truths, descriptor={"operation": COMPARISONS.index("EQUAL")})
    if q is not None and (q.per_axis or info.quantization != q):
        refuse("its input has several scales, or its output another one")
    if q is None and x.dtype in (DataType.UINT8, DataType.INT8):
        q = Quantization(1.0)
    ones = draft.constant(np.ones(shape), x.dtype, "ones", None if q is None else Quantization(1.0))
    x = Tensor(TensorInfo(x.shape, x.dtype, q), x.array, x.name) if x.array is not None else x
    return draft.final("Multiplication", x, ones)
