"""NNAPI converters for convolutions, pooling and products; filters are stored as (O, H, W, I)."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.types import DataLayout, Dim
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import Sizes, dilations, image_sizes, positive, sizes_of, sliding
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.pooling import Pooling2d, PoolingAlgorithm

__all__: list[str] = []


@operator("CONV_2D", inputs=(7, 13))
def convolution(node: Node) -> list[Value]:
    """Convert CONV_2D.

    A boolean input 7 is the layout, which only the form with a padding scheme has at this position.
    """
    explicit_padding = node.num_inputs > 7 and not node.is_of(7, "BOOL")
    activation = 9 if explicit_padding else 6
    layout, dilation = node.layout(activation + 1), dilations(node, activation + 2)
    return _convolved(node, layout, dilation, explicit_padding, activation, groups=1)


@operator("GROUPED_CONV_2D", inputs=(9, 12))
def grouped_convolution(node: Node) -> list[Value]:
    """Convert GROUPED_CONV_2D; the number of groups is between the strides and the activation."""
    explicit_padding = node.num_inputs > 9
    groups_index = 9 if explicit_padding else 6
    groups, layout = node.integer_of(groups_index, "the groups"), node.layout(groups_index + 2)
    return _convolved(node, layout, (1, 1), explicit_padding, activation=groups_index + 1, groups=groups)


def _convolved(
    node: Node, layout: DataLayout, dilation: Sizes, explicit_padding: bool, activation: int, groups: int
) -> list[Value]:
    image, filters = image_sizes(node, layout), node.value(1, rank=4).known.shape
    window = sliding(node, 3, explicit_padding, image, filters[1:3], dilation) | _dilated(dilation)
    op = Convolution2d(**window, groups=groups, data_layout=layout)
    values = node.value(0), node.weights(1, layout), node.value(2, rank=1)
    return node.results(op, *values, activation=activation)


@operator("DEPTHWISE_CONV_2D", inputs=(8, 14))
def depthwise_convolution(node: Node) -> list[Value]:
    """Convert DEPTHWISE_CONV_2D; the channel multiplier must agree with the filter."""
    explicit_padding = node.num_inputs > 8 and not node.is_of(8, "BOOL")
    multiplier_index = 9 if explicit_padding else 6
    layout, dilation = node.layout(multiplier_index + 2), dilations(node, multiplier_index + 3)
    image, filters = image_sizes(node, layout), node.value(1, rank=4).known.shape
    multiplier = node.integer_of(multiplier_index, "the depth multiplier")
    channels = node.info(0).shape[layout.axes().channels]
    if not isinstance(channels, Dim) and multiplier * channels != filters[3]:
        node.fail(
            f"the filter has shape {filters}; expected {channels} x {multiplier} channels, as the multiplier says"
        )
    window = sliding(node, 3, explicit_padding, image, filters[1:3], dilation) | _dilated(dilation)
    op = DepthwiseConvolution2d(**window, data_layout=layout)
    return node.results(op, node.value(0), node.value(1), node.value(2, rank=1), activation=multiplier_index + 1)


def _dilated(dilation: Sizes) -> dict[str, Any]:
    return {"dilation_y": dilation[0], "dilation_x": dilation[1]}


@operator("TRANSPOSE_CONV_2D", inputs=(9, 11))
def transpose_convolution(node: Node) -> list[Value]:
    """Convert TRANSPOSE_CONV_2D; a padding scheme is that of the equivalent forward convolution."""
    explicit_padding = node.num_inputs > 9
    layout = node.layout(10 if explicit_padding else 8)
    filters = node.value(1, rank=4).known.shape
    shape = None if explicit_padding else _output_shape(node)
    image = image_sizes(node, layout) if shape is None else sizes_of(shape, layout)
    window = sliding(node, 3 if explicit_padding else 4, explicit_padding, image, filters[1:3])
    if shape is not None and not all(shape):
        shape = None  # the batch is computed at run time; height and width follow from the padding
    op = TransposeConvolution2d(**window, output_shape=shape, data_layout=layout)
    values = node.value(0), node.weights(1, layout), node.value(2, rank=1)
    return node.results(op, *values, activation=9 if explicit_padding else 7)


def _output_shape(node: Node) -> tuple[int, ...]:
    """Return the output's shape (four dimensions) that input 3 of TRANSPOSE_CONV_2D gives.

    If input 3 is computed at run time, the shape that the document declares for the output is returned.
    """
    declared_shape = node.declared_shape() if node.is_computed(3) else None
    shape = declared_shape or node.integers_of(3, "the output's shape")
    if len(shape) != 4 or min(shape) < 0:
        node.fail(f"the output's shape (input 3) is {list(shape)}; expected four dimensions")
    return shape


# --- pooling ----------------------------------------------------------------------------------------------------------


_TYPES: Final = {
    "AVERAGE_POOL_2D": PoolingAlgorithm.AVERAGE,
    "L2_POOL_2D": PoolingAlgorithm.L2,
    "MAX_POOL_2D": PoolingAlgorithm.MAX,
}


@operator(*_TYPES, inputs=(7, 11))
def pooling(node: Node) -> list[Value]:
    """Convert AVERAGE_POOL_2D, L2_POOL_2D and MAX_POOL_2D; padding is excluded from averages."""
    explicit_padding = node.num_inputs > 8
    window_index = 7 if explicit_padding else 4
    width, height = (positive(node, window_index + number, "the dimension of the window") for number in range(2))
    layout = node.layout(window_index + 3)
    window = sliding(node, 1, explicit_padding, image_sizes(node, layout), (height, width))
    op = Pooling2d(_TYPES[node.operation.name], pool_height=height, pool_width=width, data_layout=layout, **window)
    return node.results(op, node.value(0), activation=window_index + 2)


# --- matrix products --------------------------------------------------------------------------------------------------


@operator("FULLY_CONNECTED", inputs=4)
def fully_connected(node: Node) -> list[Value]:
    """Convert FULLY_CONNECTED; each row of the weights belongs to one output, and the input is flattened to rows."""
    op = FullyConnected(transpose_weight_matrix=True)
    return node.results(op, node.value(0), node.value(1, rank=2), node.value(2, rank=1), activation=3)


@operator("BATCH_MATMUL", inputs=4)
def batch_matmul(node: Node) -> list[Value]:
    """Convert BATCH_MATMUL; adjoint means transposition, as there are no complex numbers."""
    op = BatchMatMul(node.flag_of(2, "whether to transpose input 0"), node.flag_of(3, "whether to transpose input 1"))
    return node.results(op, node.value(0), node.value(1))
