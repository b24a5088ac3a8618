"""NNAPI converters for pooling, with explicit pads or with a padding scheme."""

from __future__ import annotations

from typing import Final

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import image_sizes, positive, sliding
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.pooling import Pooling2d, PoolingAlgorithm

__all__: list[str] = []

_TYPES: Final = {
    "AVERAGE_POOL_2D": PoolingAlgorithm.AVERAGE,
    "L2_POOL_2D": PoolingAlgorithm.L2,
    "MAX_POOL_2D": PoolingAlgorithm.MAX,
}


@operator(*_TYPES, inputs=(7, 11))
def pooling(node: Node) -> list[Value]:
    """Convert AVERAGE_POOL_2D, L2_POOL_2D and MAX_POOL_2D; padding is excluded from averages."""
    explicit = node.num_inputs > 8
    window_index = 7 if explicit else 4
    width, height = (positive(node, window_index + number, "the dimension of the window") for number in range(2))
    layout = node.layout(window_index + 3)
    window = sliding(node, 1, explicit, image_sizes(node, layout), (height, width))
    op = Pooling2d(_TYPES[node.operation.name], pool_height=height, pool_width=width, data_layout=layout, **window)
    return node.results(op, node.value(0), activation=window_index + 2)
