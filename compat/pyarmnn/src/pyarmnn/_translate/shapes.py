"""Shapes that Arm NN infers or checks where Interposer's operators leave them to the caller."""

from __future__ import annotations

import math
from itertools import combinations

from pyarmnn import _types as types
from pyarmnn._network.slots import IConnectableLayer

__all__ = ["check_fill", "check_views", "mismatch", "transpose_convolution_shape"]

_WITHOUT_SUFFIX = frozenset(
    ("Addition", "Division", "ElementwiseUnary", "Maximum", "Minimum", "Multiplication", "Subtraction")
)
"""Kinds of layers whose classes have no ``Layer`` at the end of their names."""


def mismatch(kind: str, declared: object, inferred: object) -> RuntimeError:
    """Return the error for an output whose shape is another than the inferred one."""
    name = kind if kind in _WITHOUT_SUFFIX else f"{kind}Layer"
    return RuntimeError(
        f"{name}: TensorShape set on OutputSlot[0] does not match the inferred shape. : {declared} != {inferred}"
    )


def transpose_convolution_shape(layer: IConnectableLayer) -> tuple[int, ...]:
    """Return the shape of the result of a transposed convolution; an empty one if it cannot be inferred."""
    descriptor, image = layer._descriptor, _input_shape(layer, 0)
    if descriptor.m_OutputShapeEnabled:
        return tuple(descriptor.m_OutputShape)
    weights = layer._constants["weights"].array.shape
    if len(image) != 4 or len(weights) != 4:
        return ()
    is_last = descriptor.m_DataLayout == types.DataLayout_NHWC
    height, width, channels = (1, 2, 3) if is_last else (2, 3, 1)
    shape = [image[0], 0, 0, 0]
    pads = (descriptor.m_PadTop + descriptor.m_PadBottom, descriptor.m_PadLeft + descriptor.m_PadRight)
    strides = (descriptor.m_StrideY, descriptor.m_StrideX)
    for axis, stride, pad in zip((height, width), strides, pads, strict=True):
        shape[axis] = (image[axis] - 1) * stride + weights[axis] - pad
    shape[channels] = weights[0]
    return tuple(shape)


def check_fill(layer: IConnectableLayer) -> None:
    """Raise RuntimeError if the input of a Fill layer is a shape with another number of dimensions than its result."""
    dimensions, shape = layer._outputs[0]._info.GetNumDimensions(), _input_shape(layer, 0)
    if math.prod(shape) != dimensions:
        raise mismatch("Fill", dimensions, math.prod(shape))


def check_views(layer: IConnectableLayer) -> None:
    """Raise RuntimeError if inputs of a Concat layer overlap in its result."""
    origins = layer._descriptor._origins
    shapes = [_input_shape(layer, number) for number in range(len(layer._inputs))]
    boxes = [
        [(begin, begin + size) for begin, size in zip(origin, shape, strict=False)]
        for origin, shape in zip(origins, shapes, strict=True)
    ]
    for first, second in combinations(boxes, 2):
        if all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(first, second, strict=False)):
            raise RuntimeError("ConcatLayer: Some views overlap.")


def _input_shape(layer: IConnectableLayer, number: int) -> list[int]:
    source = layer._inputs[number]._source
    return [] if source is None else list(source._info.GetShape())
