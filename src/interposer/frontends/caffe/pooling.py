"""Caffe converters for pooling."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.types import DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.caffe.schema import ENUMS
from interposer.frontends.caffe.windows import Windows, windows
from interposer.ir.graph import Value
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat
from interposer.ops.window import Window
from interposer.ops.windowed import MaxPoolingWithIndices

__all__: list[str] = []

_METHODS: Final = {
    ENUMS["PoolMethod"]["MAX"]: PoolingAlgorithm.MAX,
    ENUMS["PoolMethod"]["AVE"]: PoolingAlgorithm.AVERAGE,
}
_FLOOR: Final = ENUMS["RoundMode"]["FLOOR"]


@layer("Pooling")
def pooling(node: Node) -> list[Value]:
    """Convert Pooling by maximum or average; averages include the padding, and sizes are rounded up.

    The fields ``ceil_mode`` and ``round_mode`` of forks choose the rounding. The second top of a maximum has the place
    of each maximum in its plane, as a float.
    """
    parameters = node.parameters("pooling_param")
    x, rounding = node.image(), _rounding(parameters)
    if parameters.global_pooling:
        return [node.add(Pooling2d(pool_type=_method(node, parameters.pool)), x)]
    window = windows(node, parameters, 2)
    for size, along in zip(node.shape(x)[2:], window.along(), strict=True):
        _check(node, size, along, rounding)
    if len(node.layer.tops) == 2:
        return _with_places(node, x, window, rounding)
    return [node.add(_pooling(node, parameters.pool, window, rounding), x)]


def _pooling(node: Node, method: int, window: Windows, rounding: OutputShapeRounding) -> Pooling2d:
    attributes: dict[str, Any] = {"pool_height": window.kernel[0], "pool_width": window.kernel[1]}
    return Pooling2d(
        pool_type=_method(node, method),
        **attributes,
        **window.attributes(),
        output_shape_rounding=rounding,
        padding_method=PaddingMethod.IGNORE_VALUE,
    )


def _method(node: Node, method: int) -> PoolingAlgorithm:
    if method not in _METHODS:
        node.fail("stochastic pooling is not supported; pooling by maximum (MAX) and average (AVE) is")
    return _METHODS[method]


def _rounding(parameters: Message) -> OutputShapeRounding:
    down = not parameters.ceil_mode or parameters.round_mode == _FLOOR
    return OutputShapeRounding.FLOOR if down else OutputShapeRounding.CEILING


def _check(node: Node, size: int, window: Window, rounding: OutputShapeRounding) -> None:
    """Refuse windows that do not fit, and a last window without an element, for which Caffe defines no result."""
    if window.reach > size + 2 * window.pad_before:
        node.fail(f"its window of {window.size} exceeds the image of size {size}")
    up = -(-(size + 2 * window.pad_before - window.reach) // window.stride) + 1
    if rounding is OutputShapeRounding.CEILING and not window.pad_before and (up - 1) * window.stride >= size:
        node.fail(f"its last window of {window.size}, with stride {window.stride}, is outside the image of size {size}")


def _with_places(node: Node, x: Value, window: Windows, rounding: OutputShapeRounding) -> list[Value]:
    if node.parameters("pooling_param").pool != ENUMS["PoolMethod"]["MAX"]:
        node.fail("only pooling by maximum has a second top")
    op = MaxPoolingWithIndices(
        window.kernel, window.strides, pad_list=tuple((pad, pad) for pad in window.pads), output_shape_rounding=rounding
    )
    values, places = node.pieces(op, x)
    return [values, node.add(Cast(DataType.FLOAT32), places)]


@layer("SPP")
def pyramid_pooling(node: Node) -> Value:
    """Convert SPP, spatial pyramid pooling: concatenate the results of pooling in 1, 4, 16, ... bins."""
    parameters, x = node.parameters("spp_param"), node.image()
    batch, *image = node.shape(x)
    levels = parameters.pyramid_height
    if not 1 <= levels <= 16 or 2 ** (levels - 1) > min(image[1:]):
        node.fail(f"pyramid_height is {levels}, and its bottom has the shape {[batch, *image]}")
    pieces = [_level(node, x, parameters.pool, 2**level) for level in range(levels)]
    return node.add(Concat(axis=1), *(node.reshaped(piece, (batch, -1)) for piece in pieces))


def _level(node: Node, x: Value, method: int, bins: int) -> Value:
    kernel = tuple(-(-size // bins) for size in node.shape(x)[2:])
    pads = tuple((k * bins - size + 1) // 2 for k, size in zip(kernel, node.shape(x)[2:], strict=True))
    return node.add(_pooling(node, method, Windows(kernel, kernel, pads, (1, 1)), OutputShapeRounding.CEILING), x)
