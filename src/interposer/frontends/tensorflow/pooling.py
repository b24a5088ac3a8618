"""TensorFlow converters for pooling."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.tensorflow.tensorflow_windows import (
    attributes,
    layout_of,
    sliding,
    spatial_sizes,
    window_size,
)
from interposer.ir.graph import Value
from interposer.ops.pooling import PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d

__all__: list[str] = []


@operator("MaxPool", "MaxPool3D")
def max_pool(node: Node) -> Value:
    """Convert pooling to the maximum."""
    return _pooled(node, PoolingAlgorithm.MAX, 3 if node.kind.endswith("3D") else 2, node.integers("ksize"))


@operator("AvgPool", "AvgPool3D")
def average_pool(node: Node) -> Value:
    """Convert pooling to the mean, without the padding."""
    return _pooled(node, PoolingAlgorithm.AVERAGE, 3 if node.kind.endswith("3D") else 2, node.integers("ksize"))


@operator("MaxPoolV2")
def max_pool_by_operands(node: Node) -> Value:
    """Convert MaxPoolV2, whose window and strides are operands."""
    sizes, strides = node.integers_of(1, "ksize"), node.integers_of(2, "strides")
    return _pooled(node, PoolingAlgorithm.MAX, 2, sizes, strides)


def _pooled(
    node: Node, algorithm: PoolingAlgorithm, axes: int, sizes: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    layout, x = layout_of(node, axes), node.value(0)
    windows = sliding(node, spatial_sizes(node, x, layout), window_size(node, sizes, layout), layout, strides)
    op_class = Pooling2d if axes == 2 else Pooling3d
    op = op_class(algorithm, **attributes(windows, layout), **windows.sizes(), padding_method=PaddingMethod.EXCLUDE)
    return node.result(op, x)
