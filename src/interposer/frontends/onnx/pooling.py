"""ONNX converters for pooling, whose inputs with one spatial axis become images of height 1, and for unpooling."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import TensorShape
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.onnx_windows import Windows, as_image, windows, windows_along
from interposer.frontends.reshaping import final_reshape
from interposer.frontends.windows import lowest
from interposer.ir.graph import Value
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.ops.rearrange import Pad
from interposer.ops.reduction import Mean, Reduce, ReduceOperation
from interposer.ops.windowed import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling

__all__ = ["average_pool", "global_average_pool", "global_max_pool", "max_pool", "pooled"]


@operator("MaxPool")
def max_pool(node: Node) -> Value | Sequence[Value]:
    """Convert MaxPool; if the second output is used, an operator that returns the indices computes both."""
    if not node.wants(1):
        return pooled(node, node.value(0), PoolingAlgorithm.MAX, PaddingMethod.EXCLUDE)
    node_windows = _clipped(node, windows_along(node, node.integers("kernel_shape"), _spatial(node)), _spatial(node))
    op = MaxPoolingWithIndices(
        **node_windows.lists(), output_shape_rounding=_rounding(node), column_major=node.flag("storage_order")
    )
    return node.results(op, node.value(0))


@operator("AveragePool")
def average_pool(node: Node) -> Value:
    """Convert AveragePool; since opset 7, padding may count as zeros."""
    counts_padding = node.flag("count_include_pad")
    padding = PaddingMethod.IGNORE_VALUE if counts_padding else PaddingMethod.EXCLUDE
    return pooled(node, node.value(0), PoolingAlgorithm.AVERAGE, padding)


@operator("LpPool", since=2)
def lp_pool(node: Node) -> Value:
    """Convert LpPool: the norm of the elements in the window."""
    node_windows = _clipped(node, windows_along(node, node.integers("kernel_shape"), _spatial(node)), _spatial(node))
    op = LpPooling(**node_windows.lists(), output_shape_rounding=_rounding(node), p=node.integer("p", 2))
    return node.result(op, node.value(0))


def _rounding(node: Node) -> OutputShapeRounding:
    return OutputShapeRounding.CEILING if node.flag("ceil_mode") else OutputShapeRounding.FLOOR


def pooled(node: Node, x: Value, algorithm: PoolingAlgorithm, padding: PaddingMethod) -> Value:
    """Return the result of pooling `x`, whose channels are before the spatial axes, with the windows of a node."""
    spatial_shape = _spatial_of(x)
    image = (1,) * (len(spatial_shape) == 1) + tuple(spatial_shape)
    node_windows, rounding = (
        _clipped(node, windows(node, node.integers("kernel_shape"), spatial_shape), image),
        _rounding(node),
    )
    if algorithm is PoolingAlgorithm.MAX and node_windows.miss(image):
        if node.flag("ceil_mode"):
            node.concrete(spatial_shape, "image")
        enclosed_windows, rounding = (
            node_windows.enclosed(image, rounded_up=node.flag("ceil_mode")),
            OutputShapeRounding.FLOOR,
        )
        x, node_windows = _bordered(node, x, enclosed_windows), node_windows.unpadded()
    op_class = Pooling3d if node_windows.axes == 3 else Pooling2d
    op = op_class(
        algorithm,
        **node_windows.pooling(),
        output_shape_rounding=rounding,
        padding_method=padding,
    )
    if len(spatial_shape) != 1:
        return node.result(op, x)
    result_image = node.step(op, as_image(node, x))
    batch, channels, _, width = result_image.known.shape
    return final_reshape(node, result_image, (batch, channels, width), 2)


def _bordered(node: Node, x: Value, enclosed_windows: Windows) -> Value:
    """Return images with the padding of windows, as elements that have the lowest number of the type.

    This number is the maximum of a window that contains nothing else.
    """
    image = as_image(node, x)
    pads = tuple(zip(enclosed_windows.before, enclosed_windows.after, strict=True))
    return node.step(Pad(((0, 0), (0, 0), *pads), lowest(image.known)), image)


@operator("GlobalMaxPool")
def global_max_pool(node: Node) -> Value:
    """Convert GlobalMaxPool: the maximum of each channel."""
    if node.info(0).rank == 4:
        return node.result(Pooling2d(PoolingAlgorithm.MAX), node.value(0))
    return node.result(Reduce(_spatial_axes(node), keep_dims=True, operation=ReduceOperation.MAX), node.value(0))


@operator("GlobalAveragePool")
def global_average_pool(node: Node) -> Value:
    """Convert GlobalAveragePool: the mean of each channel."""
    if node.info(0).rank == 4:
        return node.result(Pooling2d(PoolingAlgorithm.AVERAGE), node.value(0))
    return node.result(Mean(_spatial_axes(node), keep_dims=True), node.value(0))


@operator("GlobalLpPool", since=2)
def global_lp_pool(node: Node) -> Value:
    """Convert GlobalLpPool: the norm of each channel."""
    operation = {1: ReduceOperation.L1, 2: ReduceOperation.L2}.get(node.integer("p", 2))
    if operation is not None:
        return node.result(Reduce(_spatial_axes(node), keep_dims=True, operation=operation), node.value(0))
    image = node.concrete(_spatial(node), "image")
    return node.result(LpPooling(image, p=node.integer("p", 2)), node.value(0))


@operator("MaxUnpool", since=9)
def max_unpool(node: Node) -> Value:
    """Convert MaxUnpool; a larger output_shape adds zeros at the end."""
    node_windows = windows_along(node, node.integers("kernel_shape"), _spatial(node))
    image = node.concrete(_spatial(node), "input")
    axes = zip(image, node_windows.kernel, node_windows.strides, node_windows.before, node_windows.after, strict=True)
    op = MaxUnpooling(tuple((n - 1) * stride + size - first - last for n, size, stride, first, last in axes))
    if not node.has(2):
        return node.result(op, node.value(0), node.value(1))
    unpooled = node.step(op, node.value(0), node.value(1))
    pads = [(0, target - n) for target, n in zip(node.integers_of(2, "output_shape")[2:], op.extents, strict=True)]
    return node.result(Pad(((0, 0), (0, 0), *pads)), unpooled)


@operator("Col2Im", since=18)
def col2im(node: Node) -> Value:
    """Convert Col2Im; the shapes of image and block must be constant operands."""
    image, block = node.integers_of(1, "image_shape"), node.integers_of(2, "block_shape")
    return node.result(Col2Im(**windows_along(node, block, image).lists(), image_shape=image), node.value(0))


def _clipped(node: Node, node_windows: Windows, image: Sequence[int]) -> Windows:
    """Return the windows, of which a single one that exceeds the padded image is clipped to it with ceil_mode."""
    return node_windows.clipped(image) if node.flag("ceil_mode") else node_windows


def _spatial(node: Node) -> TensorShape:
    return _spatial_of(node.value(0))


def _spatial_of(x: Value) -> TensorShape:
    if x.known.rank < 3:
        raise ParseError(f"its input has shape {x.known.shape}; expected rank 3 or more")
    return TensorShape(x.known.shape[2:])


def _spatial_axes(node: Node) -> tuple[int, ...]:
    return tuple(range(2, 2 + len(_spatial(node))))
