"""TFLite converters for StableHLO's dot products and convolutions with any order of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataLayout
from interposer.frontends.tflite.interior import concrete, dilated, padded, sliced
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.stablehlo import check_padding
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.matmul import BatchMatMul
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, ReverseV2, Transpose
from interposer.ops.reshape import Reshape

__all__ = ["transposed"]


def transposed(node: Node, x: Value, order: Sequence[int]) -> Value:
    """Return `x` with its axes in this order."""
    return x if tuple(order) == tuple(range(len(order))) else node.step(Transpose(tuple(order)), x)


def _shaped(node: Node, x: Value, shape: Sequence[int]) -> Value:
    return x if tuple(x.known.shape) == tuple(shape) else node.step(Reshape(tuple(shape)), x)


def _of_output_type(node: Node, index: int) -> Value:
    x, dtype = node.value(index), node.output_info.dtype
    return x if x.known.dtype is dtype else node.step(Cast(dtype), x)


@operator("STABLEHLO_DOT_GENERAL", options=True)
def dot_general(node: Node) -> Value:
    """Convert STABLEHLO_DOT_GENERAL to a product of matrices, whose rows and columns are the dimensions that remain."""
    lhs, rhs = _of_output_type(node, 0), _of_output_type(node, 1)
    left_roles, right_roles = _Roles.of(node, "lhs", lhs), _Roles.of(node, "rhs", rhs)
    if left_roles.sizes(left_roles.batch) != right_roles.sizes(right_roles.batch) or left_roles.sizes(
        left_roles.summed
    ) != right_roles.sizes(right_roles.summed):
        node.fail(f"shapes {lhs.known.shape} and {rhs.known.shape} do not fit its dimension numbers")
    batch, depth = math.prod(left_roles.sizes(left_roles.batch)), math.prod(left_roles.sizes(left_roles.summed))
    rows, columns = (math.prod(side.sizes(side.free)) for side in (left_roles, right_roles))
    a = transposed(node, lhs, (*left_roles.batch, *left_roles.free, *left_roles.summed))
    b = transposed(node, rhs, (*right_roles.batch, *right_roles.summed, *right_roles.free))
    product = node.step(
        BatchMatMul(), _shaped(node, a, (batch, rows, depth)), _shaped(node, b, (batch, depth, columns))
    )
    shape = (
        *left_roles.sizes(left_roles.batch),
        *left_roles.sizes(left_roles.free),
        *right_roles.sizes(right_roles.free),
    )
    return node.result(Reshape(shape), product)


class _Roles(NamedTuple):
    """The dimensions of one operand of a dot product by their role."""

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    summed: tuple[int, ...]
    free: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, side: str, x: Value) -> _Roles:
        shape = concrete(node, x.known.shape, "an operand")
        batch, summed = (tuple(node.options[f"{side}_{kind}_dimensions"] or ()) for kind in ("batching", "contracting"))
        used_axes = {*batch, *summed}
        if len(used_axes) != len(batch) + len(summed) or not used_axes <= {*range(len(shape))}:
            node.fail(f"the {side} dimensions {batch} and {summed} are not different ones of shape {x.known.shape}")
        return cls(shape, batch, summed, tuple(axis for axis in range(len(shape)) if axis not in used_axes))

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of these dimensions."""
        return tuple(self.shape[axis] for axis in axes)


@operator("STABLEHLO_CONVOLUTION", options=True)
def convolution(node: Node) -> Value:
    """Convert STABLEHLO_CONVOLUTION: order the dimensions, apply dilation and negative padding, and convolve."""
    lhs, rhs, window = _of_output_type(node, 0), _of_output_type(node, 1), _Convolution.of(node)
    image = _numbers(node, "input_batch_dimension", "input_spatial_dimensions", "input_feature_dimension")
    kernel = _numbers(
        node, "kernel_output_feature_dimension", "kernel_spatial_dimensions", "kernel_input_feature_dimension"
    )
    output = _numbers(node, "output_batch_dimension", "output_spatial_dimensions", "output_feature_dimension")
    for order, rank in ((image, lhs.known.rank), (kernel, rhs.known.rank), (output, lhs.known.rank)):
        if sorted(order) != list(range(rank)) or len(order) != window.axes + 2:
            node.fail(f"the dimension numbers {order} are not those of rank {rank}")
    x, weights = transposed(node, lhs, image), transposed(node, rhs, kernel)
    y = _batch_groups(node, window, window.prepared(node, x), window.turned(node, weights))
    return node.result(Transpose(tuple(int(axis) for axis in np.argsort(output))), y)


def _numbers(node: Node, first: str, spatial: str, last: str) -> tuple[int, ...]:
    return (node.options[first], *(node.options[spatial] or ()), node.options[last])


class _Convolution(NamedTuple):
    """The window of a convolution: for each spatial axis, its numbers in the file's order."""

    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    base_dilations: tuple[int, ...]
    dilations: tuple[int, ...]
    reversed: tuple[bool, ...]

    @classmethod
    def of(cls, node: Node) -> _Convolution:
        axes = len(node.options["input_spatial_dimensions"] or ())
        if axes > 3:
            node.fail(f"it has {axes} spatial dimensions; at most 3 are supported")
        strides, base_dilations, dilations = (
            tuple(node.options[name] or (1,) * axes) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
        )
        padding = tuple(node.options["padding"] or (0,) * 2 * axes)
        flips = tuple(node.options["window_reversal"] or (False,) * axes)
        if {len(strides), len(base_dilations), len(dilations), len(flips)} != {axes} or len(padding) != 2 * axes:
            node.fail(f"its window does not have {axes} axes")
        if any(not 1 <= number < 1 << 31 for number in (*strides, *base_dilations, *dilations)):
            node.fail(f"strides {strides} and dilations {base_dilations} and {dilations}; expected at least 1")
        check_padding(node, padding)
        return cls(strides, tuple(zip(padding[::2], padding[1::2], strict=True)), base_dilations, dilations, flips)

    @property
    def axes(self) -> int:
        return len(self.strides)

    def prepared(self, node: Node, x: Value) -> Value:
        """Return the image (N, spatial, C) with its dilation, without the elements that negative padding removes."""
        zero = node.constant(np.zeros((), x.known.dtype.numpy))
        x = dilated(node, x, (1, *self.base_dilations, 1), zero)
        low, high = ([0, *(min(0, pad[side]) for pad in self.pads), 0] for side in (0, 1))
        return padded(node, x, low, high, zero)

    def turned(self, node: Node, weights: Value) -> Value:
        """Return the weights (O, spatial, I), reversed along the axes whose window is reversed."""
        axes = tuple(axis + 1 for axis, flip in enumerate(self.reversed) if flip)
        return node.step(ReverseV2(axes), weights, fold=True) if axes else weights

    def layer(self, count: int) -> dict[str, Any]:
        """Return the attributes of a layer with 2 or 3 spatial axes, the first of which this window may not have."""
        letters = (("z", "front", "back"), ("y", "top", "bottom"), ("x", "left", "right"))[-count:]
        attributes: dict[str, Any] = {}
        for (letter, before, after), axis in zip(letters[count - self.axes :], range(self.axes), strict=True):
            low, high = (max(0, pad) for pad in self.pads[axis])
            attributes |= {f"stride_{letter}": self.strides[axis], f"dilation_{letter}": self.dilations[axis]}
            attributes |= {f"pad_{before}": low, f"pad_{after}": high}
        return attributes


def _batch_groups(node: Node, window: _Convolution, x: Value, weights: Value) -> Value:
    """Return the convolutions of the groups of images with their groups of output channels, one after the other."""
    count = node.options["batch_group_count"] or 1
    images, output_channels = x.known.shape[0], weights.known.shape[0]
    if count < 1 or images % count or output_channels % count:
        node.fail(f"{images} images and {output_channels} output channels cannot be divided into {count} groups")
    if count == 1:
        return _convolved(node, window, x, weights)
    if count > _MOST_GROUPS:
        node.fail(f"it has {count} groups of images; at most {_MOST_GROUPS} are supported")
    images_per_group, channels_per_group = images // count, output_channels // count
    group_results = [
        _convolved(
            node,
            window,
            sliced(node, x, 0, i * images_per_group, images_per_group),
            sliced(node, weights, 0, i * channels_per_group, channels_per_group),
        )
        for i in range(count)
    ]
    return node.step(Concat(-1), *group_results)


_MOST_GROUPS = 1024


def _convolved(node: Node, window: _Convolution, x: Value, weights: Value) -> Value:
    """Return the convolution (N, spatial, O) of an image (N, spatial, I) with weights (O, spatial, I / groups)."""
    batch, *sizes, channels = concrete(node, x.known.shape, "the input")
    output_channels, *kernel, depth = concrete(node, weights.known.shape, "the weights")
    groups, axes = node.options["feature_group_count"] or 1, max(2, window.axes)
    if groups < 1 or depth * groups != channels or output_channels % groups:
        node.fail(
            f"{channels} channels, {depth} of the weights and {output_channels} results do not fit {groups} groups"
        )
    ones = [1] * (axes - window.axes)
    image = _shaped(node, x, (batch, *ones, *sizes, channels))
    op, filters = _layer(node, window, _shaped(node, weights, (output_channels, *ones, *kernel, depth)), groups)
    y = node.step(op, image, filters, None)
    spatial = tuple(y.known.shape[1:-1])[axes - window.axes :]
    return _shaped(node, y, (batch, *spatial, output_channels))


def _layer(node: Node, window: _Convolution, weights: Value, groups: int) -> tuple[Op, Value]:
    """Return the operator, and its weights in the order of their axes that it expects."""
    rank = weights.known.rank
    if rank == 5:
        op: Op = Convolution3d(**window.layer(3), groups=groups)
        return op, node.step(Transpose((1, 2, 3, 4, 0)), weights, fold=True)
    attributes = window.layer(2) | {"data_layout": DataLayout.NHWC}
    if groups > 1 and weights.known.shape[3] == 1:
        return DepthwiseConvolution2d(**attributes), node.step(Transpose((3, 1, 2, 0)), weights, fold=True)
    return Convolution2d(**attributes, groups=groups), weights
