"""Converters of matrix products."""

from __future__ import annotations

from interposer.formats.armnn.schema import LAYOUTS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.convolution import bias_of, weights_of
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.rearrange import Transpose

__all__: list[str] = []


@layer("FullyConnected")
def fully_connected(node: Node) -> list[Value]:
    """Convert FullyConnected, which flattens its input after the batch."""
    op = FullyConnected(transpose_weight_matrix=node.descriptor["transposeWeightsMatrix"])
    return node.results(op, node.tensor(0), weights_of(node), bias_of(node))


@layer("BatchMatMul")
def batch_matmul(node: Node) -> list[Value]:
    """Convert BatchMatMul; the channels of images that have them last count as a batch."""
    fields = node.descriptor
    x, y = node.value(0), node.value(1)
    are_last = [_has_channels_last(node, field, value) for field, value in (("dataLayoutX", x), ("dataLayoutY", y))]
    op = BatchMatMul(fields["transposeX"], fields["transposeY"], fields["adjointX"], fields["adjointY"])
    if not any(are_last):
        return node.results(op, x, y)
    if not all(are_last):
        node.fail("one input has its channels last, the other has not, which is not supported")
    product = node.step(op, _channels_first(node, x), _channels_first(node, y), quantization=node.infos[0].quantization)
    return node.results(Transpose((0, *range(2, product.known.rank), 1)), product)


def _has_channels_last(node: Node, field: str, value: Value) -> bool:
    layout = node.layout(field, of=LAYOUTS)
    return layout.channels_last and value.known.rank > 3


def _channels_first(node: Node, x: Value) -> Value:
    rank = x.known.rank
    return node.step(Transpose((0, rank - 1, *range(1, rank - 1))), x)
