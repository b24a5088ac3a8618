"""ONNX converters for ONNX Runtime's own convolutions and for pooling with channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.contrib_activation import activated
from interposer.frontends.onnx.convolution import convolved, quantized_convolution_of, transposed
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT, NHWC
from interposer.frontends.onnx.pooling import pooled
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition
from interposer.ops.pooling import PaddingMethod, PoolingAlgorithm
from interposer.ops.rearrange import Transpose

__all__ = ["finished_convolution", "first", "last"]

_SILU: Final = Activation(ActivationFunction.SWISH, 1.0)


def first(node: Node, channels_last_tensor: Value) -> Value:
    """Return images or volumes with channels last transposed to channels before the spatial axes."""
    rank = channels_last_tensor.known.rank
    if rank < 3:
        raise ParseError(f"its input has shape {channels_last_tensor.known.shape}; expected rank 3 or more")
    return node.step(Transpose((0, rank - 1, *range(1, rank - 1))), channels_last_tensor)


def last(node: Node, channels_first_tensor: Value) -> Value:
    """Return images or volumes with the channels moved after the spatial axes."""
    rank = channels_first_tensor.known.rank
    return node.step(Transpose((0, *range(2, rank), 1)), channels_first_tensor)


def finished_convolution(node: Node, x: Value, weights: Value) -> Value:
    """Return a convolution, to which the operand number 3 is added if present, and then an activation function.

    The attributes activation and activation_params name the function and its parameters.
    """
    output = convolved(node, x, weights, node.optional(2))
    addend = node.optional(3)
    output = output if addend is None else node.step(Addition(), output, addend)
    return activated(node, output, node.text("activation", ""), node.numbers("activation_params", ()))


@operator("FusedConv", domain=MICROSOFT)
def fused_convolution(node: Node) -> Value:
    """Convert FusedConv: a convolution, to whose result an image is added, followed by an activation function."""
    return finished_convolution(node, node.value(0), node.value(1))


@operator("NhwcConv", domain=MICROSOFT)
@operator("NhwcFusedConv", domain=MICROSOFT)
def convolution_with_channels_last(node: Node) -> Value:
    """Convert NhwcFusedConv: as FusedConv, for images and weights with channels last."""
    x, weights = first(node, node.value(0)), first(node, node.value(1))
    output, addend = convolved(node, x, weights, node.optional(2)), node.optional(3)
    output = last(node, output)
    output = output if addend is None else node.step(Addition(), output, addend)
    return activated(node, output, node.text("activation", ""), node.numbers("activation_params", ()))


@operator("QLinearConv", domain=MICROSOFT)
@operator("QLinearConv", domain=NHWC)
def quantized_convolution_with_channels_last(node: Node) -> Value:
    """Convert QLinearConv of ONNX Runtime, whose images may have channels last."""
    return _by_layout(node, quantized_convolution_of)


def _by_layout(node: Node, convert: Callable[[Node, Value], Value]) -> Value:
    """Return the result of `convert` on images with channels first, moved back if the node has them last."""
    if not node.flag("channels_last"):
        return convert(node, node.value(0))
    return last(node, convert(node, first(node, node.value(0))))


@operator("NhwcMaxPool", domain=MICROSOFT)
def max_pool_with_channels_last(node: Node) -> Value:
    """Convert NhwcMaxPool: the maximum of the elements in a window."""
    x = first(node, node.value(0))
    return last(node, pooled(node, x, PoolingAlgorithm.MAX, PaddingMethod.EXCLUDE))


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def transpose_convolution_with_pads(node: Node) -> Value:
    """Convert ConvTransposeWithDynamicPads: ConvTranspose with pads as an operand, which must be constant."""
    pads = node.integers_of(2, "pads") if node.has(2) else ()
    return transposed(node.rewritten((0, 1, 3), {"pads": pads} if pads else {}))
