"""TFLite converters for pooling."""

from __future__ import annotations

from typing import Final

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.frontends.tflite.tflite_windows import sliding
from interposer.ir.graph import Value
from interposer.ops.pooling import Pooling2d, PoolingAlgorithm

__all__: list[str] = []

_TYPES: Final = {
    "AVERAGE_POOL_2D": PoolingAlgorithm.AVERAGE,
    "MAX_POOL_2D": PoolingAlgorithm.MAX,
    "L2_POOL_2D": PoolingAlgorithm.L2,
}


@operator(*_TYPES, options=True)
def pooling(node: Node) -> Value:
    """Convert AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D; padding is excluded from averages."""
    x = node.value(0, rank=4)
    height, width = node.options["filter_height"], node.options["filter_width"]
    if height < 1 or width < 1:
        node.fail(f"a window of height {height} and width {width}; expected at least 1")
    window = sliding(node, x.known.shape[1:3], (height, width))
    op = Pooling2d(pool_type=_TYPES[node.kind], pool_height=height, pool_width=width, **window)
    return node.result(op, x, activation=node.options["fused_activation_function"])
