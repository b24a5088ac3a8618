"""Arm NN writers for poolings."""

from __future__ import annotations

from typing import Any, Final

from interposer.formats.armnn.schema import ACTIVATIONS, LAYOUTS, PADDING_METHODS, POOLINGS, ROUNDINGS
from interposer.ops.pooling import Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_L2_SINCE: Final = "20.11"
_AXES: Final = {
    "H": ("poolHeight", "strideY", "padTop", "padBottom", "pool_height", "stride_y", "pad_top", "pad_bottom"),
    "W": ("poolWidth", "strideX", "padLeft", "padRight", "pool_width", "stride_x", "pad_left", "pad_right"),
    "D": ("poolDepth", "strideZ", "padFront", "padBack", "pool_depth", "stride_z", "pad_front", "pad_back"),
}


@writer(Pooling2d, Pooling3d)
def pooling(draft: Draft, op: Pooling2d | Pooling3d) -> Tensor:
    """Write a pooling; one of the whole image has strides of 0, and the image's size as that of its window."""
    dilations = [getattr(op, name) for name in ("dilation_x", "dilation_y", "dilation_z") if hasattr(op, name)]
    if set(dilations) != {1}:
        refuse("its window is dilated, which Arm NN's are not")
    if op.pool_type is PoolingAlgorithm.L2 and not draft.release.prefers(_L2_SINCE):
        return _of_squares(draft, op)
    return draft.final(type(op).__name__, draft.operand(0), descriptor=_descriptor(draft, op, op.pool_type))


def _of_squares(draft: Draft, op: Pooling2d | Pooling3d) -> Tensor:
    """Write an L2 pooling, which release 20.08 does not read, as the root of the mean of the squares."""
    kind, x = type(op).__name__, draft.operand(0)
    if draft.is_quantized:
        draft.need(_L2_SINCE, "L2 pooling")
        return draft.final(kind, x, descriptor=_descriptor(draft, op, op.pool_type))
    squares = draft.activation(ACTIVATIONS.index("SQUARE"), x, giving=x.info)
    fields = _descriptor(draft, op, PoolingAlgorithm.AVERAGE)
    means = draft.node(kind, squares, giving=draft.result, descriptor=fields)
    return draft.activation(ACTIVATIONS.index("SQRT"), means)


def _descriptor(draft: Draft, op: Pooling2d | Pooling3d, algorithm: PoolingAlgorithm) -> dict[str, Any]:
    layout = op.data_layout.name
    fields: dict[str, Any] = {
        "poolType": POOLINGS.index(algorithm.name),
        "outputShapeRounding": ROUNDINGS.index(op.output_shape_rounding.name),
        "paddingMethod": PADDING_METHODS.index(op.padding_method.name),
        "dataLayout": LAYOUTS.index(layout),
    }
    for axis, size in zip(layout, draft.operand(0).shape, strict=True):
        if axis in _AXES:
            names = _AXES[axis]
            fields |= {field: getattr(op, name) for field, name in zip(names[:4], names[4:], strict=True)}
            fields[names[0]] = fields[names[0]] or int(size)
    return fields
