"""ONNX converters for ONNX Runtime's own convolutions and for pooling with channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.onnx.contrib_activation import activated
from interposer.frontends.onnx.convolution import convolved, quantized_convolution_of, transposed
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT, NHWC
from interposer.frontends.onnx.pooling import pooled
from interposer.frontends.onnx.shaping import final_reshape, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.convolution import DepthwiseConvolution2d
from interposer.ops.elementwise import Addition
from interposer.ops.pooling import PaddingMethod, PoolingAlgorithm
from interposer.ops.rearrange import Concat, Slice, Transpose

__all__ = ["finished_convolution", "first", "last"]

_SILU: Final = Activation(ActivationFunction.SWISH, 1.0)


def first(node: Node, value: Value) -> Value:
    """Return images or volumes with channels last transposed to channels before the spatial axes."""
    rank = value.known.rank
    if rank < 3:
        raise ParseError(f"its input has shape {value.known.shape}; expected rank 3 or more")
    return node.step(Transpose((0, rank - 1, *range(1, rank - 1))), value)


def last(node: Node, value: Value) -> Value:
    """Return images or volumes with the channels moved after the spatial axes."""
    rank = value.known.rank
    return node.step(Transpose((0, *range(2, rank), 1)), value)


def finished_convolution(node: Node, x: Value, weights: Value) -> Value:
    """Return a convolution, to which the operand number 3 is added if present, and then an activation function.

    The attributes activation and activation_params name the function and its parameters.
    """
    result = convolved(node, x, weights, node.optional(2))
    added = node.optional(3)
    result = result if added is None else node.step(Addition(), result, added)
    return activated(node, result, node.text("activation", ""), node.numbers("activation_params", ()))


@operator("FusedConv", domain=MICROSOFT)
def fused_convolution(node: Node) -> Value:
    """Convert FusedConv: a convolution, to whose result an image is added, followed by an activation function."""
    return finished_convolution(node, node.value(0), node.value(1))


@operator("NhwcConv", domain=MICROSOFT)
@operator("NhwcFusedConv", domain=MICROSOFT)
def convolution_with_channels_last(node: Node) -> Value:
    """Convert NhwcFusedConv: as FusedConv, for images and weights with channels last."""
    x, weights = first(node, node.value(0)), first(node, node.value(1))
    result, added = convolved(node, x, weights, node.optional(2)), node.optional(3)
    result = last(node, result)
    result = result if added is None else node.step(Addition(), result, added)
    return activated(node, result, node.text("activation", ""), node.numbers("activation_params", ()))


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
    pads = node.array_integers(2, "pads") if node.has(2) else ()
    return transposed(node.rewritten((0, 1, 3), {"pads": pads} if pads else {}))


@operator("CausalConvWithState", domain=MICROSOFT)
def causal_convolution(node: Node) -> Sequence[Value]:
    """Convert CausalConvWithState along one axis: each channel is convolved with its past, which is the second result.

    The state holds the elements before the first one of the input, by default zeros.
    """
    if node.integer("ndim", 1) != 1 or node.integer("state_window", 0):
        node.unsupported("it has several spatial axes or states (ndim, state_window)")
    name, channels_last = node.text("activation", "none"), node.flag("channels_last")
    if name not in ("none", "silu", "swish"):
        raise ParseError(f"its activation is {name!r}; expected none, silu or swish")
    x = _rows_first(node, node.value(0), channels_last)
    gap, channels, size = node.integer("dilation", 1), x.known.shape[1], _taps(node, x)
    if gap < 1:
        raise ParseError(f"dilation is {gap}; expected 1 or more")
    past = (size - 1) * gap
    if node.has(3) and past:
        state = _rows_first(node, node.value(3), channels_last)
    else:
        state = node.constant_of_zeros((*x.known.shape[:2], past), x.known.dtype)
    whole = node.step(Concat(2), state, x) if past else x
    image = reshaped(node, whole, [whole.known.shape[0], channels, 1, whole.known.shape[2]])
    weights = node.step(Transpose((1, 2, 3, 0)), reshaped(node, node.value(1), [channels, 1, 1, size]))
    image = node.step(DepthwiseConvolution2d(dilation_x=gap), image, weights, node.optional(2))
    result = reshaped(node, image, x.known.shape)
    length = node.known(whole.known.shape[2], "length")
    later = node.step(Slice((0, 0, length - past), (-1, -1, past)), whole)
    results = [node.step(_SILU, result) if name != "none" else result, later]
    return [_rows_last(node, value, channels_last) for value in results]


def _taps(node: Node, x: Value) -> int:
    shape = node.concrete(node.value(1).known.shape, "weights")
    if len(shape) != 3 or shape[1] != 1 or shape[2] < 1 or differ(shape[0], x.known.shape[1]):
        raise ParseError(
            f"its weights have shape {list(shape)}, and its input {x.known.shape}; expected (channels, 1, k)"
        )
    return shape[2]


def _rows_first(node: Node, value: Value, channels_last: bool) -> Value:
    """Return a sequence as (batch, channels, length); with channels last, it may have several axes of channels."""
    rank, shape = value.known.rank, value.known.shape
    if rank < 3 or (rank > 3 and not channels_last):
        raise ParseError(f"its input has shape {shape}; expected rank 3")
    if not channels_last:
        return value
    flat = value if rank == 3 else reshaped(node, value, [*shape[:2], -1])
    return node.step(Transpose((0, 2, 1)), flat)


def _rows_last(node: Node, value: Value, channels_last: bool) -> Value:
    if not channels_last:
        return value
    turned = node.step(Transpose((0, 2, 1)), value)
    trailing = node.info(0).shape[2:]
    return turned if len(trailing) == 1 else final_reshape(node, turned, [*turned.known.shape[:2], *trailing])
