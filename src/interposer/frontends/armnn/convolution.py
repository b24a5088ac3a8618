"""Converters of convolutions, pooling and products. Weights and biases are constants, or inputs since release 22.05."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interposer.core.types import Quantization, TensorInfo
from interposer.formats.armnn.schema import LAYOUTS, PADDING_METHODS, POOLINGS, ROUNDINGS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape

__all__ = ["bias_of", "pads", "weights_of", "window"]


def weights_of(node: Node) -> Value:
    """Return the weights of a layer: a constant of the layer, or input slot 1."""
    weights = node.stored("weights")
    return weights if weights is not None else node.value(1)


def bias_of(node: Node) -> Value | None:
    """Return the bias of a layer if its descriptor enables it: a constant of the layer, or input slot 2."""
    if not node.descriptor["biasEnabled"]:
        return None
    bias = node.stored("biases", scaled=True)
    return bias if bias is not None else node.value(2)


@layer("Convolution2d")
def convolution(node: Node) -> list[Value]:
    """Convert Convolution2d, whose weights have the layout of the images."""
    op = Convolution2d(**window(node), data_layout=node.layout())
    return node.results(op, node.value(0), weights_of(node), bias_of(node))


@layer("DepthwiseConvolution2d")
def depthwise_convolution(node: Node) -> list[Value]:
    """Convert DepthwiseConvolution2d; the layout of its weights depends on the version of the file."""
    op = DepthwiseConvolution2d(**window(node), data_layout=node.layout())
    return node.results(op, node.value(0), _depthwise_weights(node), bias_of(node))


def _depthwise_weights(node: Node) -> Value:
    """Return weights of the shape [1, H, W, I * M], whose scales belong to the last axis."""
    stored_weights = node.raw("weights")
    if stored_weights is None:
        weights = node.value(1)
        return weights if node.importer.weights_layout else _from_multipliers_first(node, weights)
    array, quantization = stored_weights
    if not node.importer.weights_layout:
        array = array.transpose(2, 3, 1, 0).reshape(_merged(node, array.shape))
    quantization = (
        Quantization(quantization.scales, quantization.zero_points, 3)
        if quantization is not None and quantization.per_axis
        else quantization
    )
    return node.constant(array, quantization)


def _merged(node: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape [1, H, W, I * M] for weights of the shape [M, I, H, W]."""
    if len(shape) != 4:
        node.fail(f"the weights have the shape {list(shape)}; expected [M, I, H, W]")
    multiplier, inputs, height, width = shape
    return (1, height, width, inputs * multiplier)


def _from_multipliers_first(node: Node, weights: Value) -> Value:
    """Return weights of the layout [M, I, H, W], which are an input, as [1, H, W, I * M]."""
    shape = _merged(node, node.shape(weights))
    return node.step(Reshape(shape), node.step(Transpose((2, 3, 1, 0)), weights))


@layer("TransposeConvolution2d")
def transpose_convolution(node: Node) -> list[Value]:
    """Convert TransposeConvolution2d.

    Files do not store the shape of the output, which its output slot has, unless the padding determines it.
    """
    info = node.infos[0] if node.infos else node.fail("it has no output slot")
    shape = tuple(info.shape) if info.is_concrete and 0 not in info.shape else None
    x, weights, bias = node.value(0), weights_of(node), bias_of(node)
    op = TransposeConvolution2d(**window(node), data_layout=node.layout())
    [inferred_info] = _inferred(op, x, weights, bias)
    if shape is not None and (inferred_info is None or tuple(inferred_info.shape) != shape):
        op = op.replace(output_shape=shape)
    return node.results(op, x, weights, bias)


def _inferred(op: TransposeConvolution2d, *values: Value | None) -> Sequence[TensorInfo | None]:
    """Return the infos of an operator's results, or None if it does not accept its operands."""
    infos = [None if value is None else value.known for value in values]
    return [None] if op.violations(*infos) else op.infer_infos(*infos)


@layer("Convolution3d")
def convolution_3d(node: Node) -> list[Value]:
    """Convert Convolution3d, whose weights are always an input."""
    op = Convolution3d(**window(node), data_layout=node.layout(of=("NDHWC", "NCDHW")))
    bias = node.value(2) if node.descriptor["biasEnabled"] else None
    return node.results(op, node.value(0), node.value(1), bias)


# --- windows ----------------------------------------------------------------------------------------------------------


_NAMES: Final = {
    "padLeft": "pad_left",
    "padRight": "pad_right",
    "padTop": "pad_top",
    "padBottom": "pad_bottom",
    "padFront": "pad_front",
    "padBack": "pad_back",
    "strideX": "stride_x",
    "strideY": "stride_y",
    "strideZ": "stride_z",
    "dilationX": "dilation_x",
    "dilationY": "dilation_y",
    "dilationZ": "dilation_z",
}


def window(node: Node) -> dict[str, Any]:
    """Return the pads, strides and dilations of a layer's descriptor as attributes of an operator."""
    return {_NAMES[field]: value for field, value in node.descriptor.items() if field in _NAMES}


def pads(node: Node) -> dict[str, Any]:
    """Return the pads of a layer's descriptor as attributes of an operator."""
    return {name: value for name, value in window(node).items() if name.startswith("pad_")}


# --- pooling ----------------------------------------------------------------------------------------------------------


_AXES: Final = {
    "H": ("y", "pool_height", "pad_top", "pad_bottom"),
    "W": ("x", "pool_width", "pad_left", "pad_right"),
    "D": ("z", "pool_depth", "pad_front", "pad_back"),
}


@layer("Pooling2d")
def pooling(node: Node) -> list[Value]:
    """Convert Pooling2d."""
    layout = node.layout()
    return node.results(Pooling2d(**_attributes(node, layout.name), data_layout=layout), node.value(0))


@layer("Pooling3d")
def pooling_3d(node: Node) -> list[Value]:
    """Convert Pooling3d."""
    layout = node.layout(of=("NDHWC", "NCDHW"))
    return node.results(Pooling3d(**_attributes(node, layout.name), data_layout=layout), node.value(0))


def _attributes(node: Node, layout: str) -> dict[str, Any]:
    """Return the attributes that poolings of two and three axes have.

    Strides of 0 stand for a single window at the start of each axis.
    """
    fields = node.descriptor
    attributes = window(node) | {
        "pool_type": node.member("poolType", POOLINGS, PoolingAlgorithm),
        "output_shape_rounding": node.member("outputShapeRounding", ROUNDINGS, OutputShapeRounding),
        "padding_method": node.member("paddingMethod", PADDING_METHODS, PaddingMethod),
        "pool_width": fields["poolWidth"],
        "pool_height": fields["poolHeight"],
    }
    attributes |= {"pool_depth": fields["poolDepth"]} if "poolDepth" in fields else {}
    strides = {axis: attributes[f"stride_{_AXES[axis][0]}"] for axis in layout if axis in _AXES}
    for axis in strides:
        if not attributes[_AXES[axis][1]]:
            node.fail(f"{_AXES[axis][1]} is 0; expected a positive size")
    if not any(strides.values()):
        attributes |= _single_window(node, layout, attributes)
    return attributes


def _single_window(node: Node, layout: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return strides that reach beyond the image, with which there is one window along each axis."""
    sizes = dict(zip(layout, node.shape(node.value(0)), strict=True))
    parameters: dict[str, Any] = {"output_shape_rounding": OutputShapeRounding.FLOOR}
    for axis, (name, size, before, after) in _AXES.items():
        if axis in layout:
            room = sizes[axis] + attributes[before] + attributes[after] - attributes[size]
            parameters[f"stride_{name}"] = max(1, room + 1)
    return parameters


# --- matrix products --------------------------------------------------------------------------------------------------


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
