"""ONNX converters for ONNX Runtime's operators on images whose channels are in blocks, which its optimizer writes.

Such an image has the memory order (batch, blocks, height, width, channels of a block). Here it becomes an image with
channels before height and width, whose channels are padded to whole blocks. Weights are sorted back when the model is
imported.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array
from interposer.frontends.onnx.contrib_convolution import finished_convolution
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import NCHWC
from interposer.frontends.onnx.pooling import average_pool, global_average_pool, global_max_pool, max_pool
from interposer.ir.graph import Value
from interposer.ops.rearrange import Pad, Slice, Transpose
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []

_TO_CHANNELS_FIRST: Final = Transpose((0, 3, 1, 2))
_TO_CHANNELS_LAST: Final = Transpose((0, 2, 3, 1))

operator("MaxPool", domain=NCHWC)(max_pool)
operator("AveragePool", domain=NCHWC)(average_pool)
operator("GlobalMaxPool", domain=NCHWC)(global_max_pool)
operator("GlobalAveragePool", domain=NCHWC)(global_average_pool)


@operator("Conv", domain=NCHWC)
def blocked_convolution(node: Node) -> Value:
    """Convert Conv on blocks: a convolution, to whose result an image is added, followed by an activation function."""
    weights = node.array(1, "weights")
    if weights.ndim != 4:
        raise ParseError(f"its weights have shape {list(weights.shape)}; expected rank 4")
    plain_weights = node.constant(_sorted_back(weights, node.importer.block_size))
    return finished_convolution(node, node.value(0), plain_weights)


def _sorted_back(weights: Array, block_size: int) -> Array:
    """Return weights whose channels are in blocks in the order (outputs, inputs, height, width).

    The input channels are in blocks too, unless they are fewer than a block.
    """
    outputs, inputs, height, width = weights.shape
    if outputs % block_size or (inputs > block_size and inputs % block_size):
        raise ParseError(f"its weights have shape {list(weights.shape)}; expected blocks of {block_size} channels")
    spatial = (height, width)
    if inputs < block_size:
        unblocked = weights.reshape(outputs // block_size, inputs, *spatial, block_size).transpose(0, 4, 1, 2, 3)
    else:
        unblocked = weights.reshape(
            outputs // block_size, inputs // block_size, *spatial, block_size, block_size
        ).transpose(0, 5, 1, 4, 2, 3)
    return np.ascontiguousarray(unblocked).reshape(weights.shape)


@operator("ReorderInput", domain=NCHWC)
def reorder_input(node: Node) -> Value:
    """Convert ReorderInput: zeros are added at the end of the channels up to whole blocks."""
    x, block_size = _image(node), node.importer.block_size
    x = node.step(_TO_CHANNELS_FIRST, x) if node.flag("channels_last") else x
    missing_channels = -node.known(x.known.shape[1], "number of channels") % block_size
    return node.result(Pad(((0, 0), (0, missing_channels), (0, 0), (0, 0))), x) if missing_channels else x


@operator("ReorderOutput", domain=NCHWC)
def reorder_output(node: Node) -> Value:
    """Convert ReorderOutput: select the first channels, and perhaps move them after height and width."""
    x, channels = _image(node), node.integer("channels", 0)
    if not 0 < channels <= node.known(x.known.shape[1], "number of channels"):
        raise ParseError(f"channels is {channels}, but its input has shape {x.known.shape}")
    if channels != x.known.shape[1]:
        x = node.step(Slice((0, 0, 0, 0), (-1, channels, -1, -1)), x)
    return node.result(_TO_CHANNELS_LAST, x) if node.flag("channels_last") else x


def _image(node: Node) -> Value:
    x = node.value(0)
    if x.known.rank != 4:
        raise ParseError(f"its input has shape {x.known.shape}; expected rank 4")
    return x


@operator("Upsample", domain=NCHWC)
def blocked_upsample(node: Node) -> Value:
    """Convert Upsample on blocks, by whole numbers along height and width."""
    x, scales, mode = _image(node), node.integers("scales"), node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "asymmetric")
    if len(scales) not in (2, 4) or not all(0 < scale < 2**15 for scale in scales) or math.prod(scales[:-2]) != 1:
        raise ParseError(f"scales is {list(scales)}; expected factors of height and width")
    sizes = (node.known(size, "image's size") for size in x.known.shape[2:])
    height, width = (size * scale for size, scale in zip(sizes, scales[-2:], strict=True))
    if mode == "nearest" and coordinates == "asymmetric":
        return node.result(Resize(width, height, ResizeMethod.NEAREST_NEIGHBOR), x)
    if mode != "linear" or coordinates not in ("asymmetric", "align_corners", "half_pixel"):
        node.unsupported(f"its mode is {mode} with {coordinates}")
    align_corners, half_pixel_centers = coordinates == "align_corners", coordinates == "half_pixel"
    op = Resize(
        width, height, ResizeMethod.BILINEAR, align_corners=align_corners, half_pixel_centers=half_pixel_centers
    )
    return node.result(op, x)
