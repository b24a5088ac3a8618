"""Pooling; with one spatial axis over images of height 1."""

from __future__ import annotations

from interposer.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.registry import operator
from interposer.frontends.onnx.shaping import final_reshape
from interposer.frontends.onnx.windows import as_image, windows
from interposer.ir.graph import Value
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.reduction import Mean, Reduce, ReduceOperation

__all__: list[str] = []


@operator("MaxPool")
def max_pool(node: Node) -> Value:
    """The indices that it may give as well are not supported."""
    return _pooled(node, PoolingAlgorithm.MAX, PaddingMethod.EXCLUDE)


@operator("AveragePool")
def average_pool(node: Node) -> Value:
    """Padding may count as zeros, since 7."""
    included = node.flag("count_include_pad")
    return _pooled(node, PoolingAlgorithm.AVERAGE, PaddingMethod.IGNORE_VALUE if included else PaddingMethod.EXCLUDE)


def _pooled(node: Node, algorithm: PoolingAlgorithm, padding: PaddingMethod) -> Value:
    if node.info(0).rank < 3:
        raise ParseError(f"its input has shape {node.info(0).shape}; expected rank 3 or more")
    found = windows(node, node.integers("kernel_shape"), node.info(0).shape[2:])
    op = Pooling2d(
        algorithm,
        **found.pads(),
        **found.steps(),
        pool_height=found.kernel[0],
        pool_width=found.kernel[1],
        output_shape_rounding=OutputShapeRounding.CEILING if node.flag("ceil_mode") else OutputShapeRounding.FLOOR,
        padding_method=padding,
    )
    x = as_image(node, node.value(0))
    if node.info(0).rank == 4:
        return node.add(op, x)
    image = node.step(op, x)
    batch, channels, _, width = image.known.shape
    return final_reshape(node, image, (batch, channels, width))


@operator("GlobalMaxPool")
def global_max_pool(node: Node) -> Value:
    """The greatest element of each channel."""
    if node.info(0).rank == 4:
        return node.add(Pooling2d(PoolingAlgorithm.MAX), node.value(0))
    return node.add(Reduce(_spatial(node), keep_dims=True, operation=ReduceOperation.MAX), node.value(0))


@operator("GlobalAveragePool")
def global_average_pool(node: Node) -> Value:
    """The mean of each channel."""
    if node.info(0).rank == 4:
        return node.add(Pooling2d(PoolingAlgorithm.AVERAGE), node.value(0))
    return node.add(Mean(_spatial(node), keep_dims=True), node.value(0))


def _spatial(node: Node) -> tuple[int, ...]:
    rank = node.info(0).rank
    if rank < 3:
        raise ParseError(f"its input has shape {node.info(0).shape}; expected rank 3 or more")
    return tuple(range(2, rank))
