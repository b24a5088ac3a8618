"""Vision transformers for images of 224 x 224 with reduced depth: ViT, Swin, MaxViT, and the encoders of CLIP."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .graph import Graph, squeeze_excite
from .transformer import block, merge_windows, mlp, packed_attention, split_windows

__all__ = ["clip_image", "clip_text", "maxvit", "swin", "vit"]

SIZE = 224
WINDOW = 7
TOKENS = 77
"""The length of a text in CLIP."""


def vit(batch: int = 1) -> onnx.ModelProto:
    """Return four layers of ViT-S/16."""
    g = Graph("vit", batch)
    x = _patches(g, 384, 16)
    for _ in range(4):
        x = block(g, x, (batch, 197), 6, packed=True)
    return g.finish(g.gemm(_first(g, g.layer_norm(x)), 1000))


def clip_image(batch: int = 1) -> onnx.ModelProto:
    """Return three layers of the image encoder of CLIP with ViT-B/32."""
    g = Graph("clip_image", batch)
    x = g.layer_norm(_patches(g, 768, 32))
    for _ in range(3):
        x = block(g, x, (batch, 50), 12, act="QuickGelu")
    return g.finish(_unit(g, g.linear(g.layer_norm(_first(g, x)), 512, bias=False)))


def clip_text(batch: int = 1) -> onnx.ModelProto:
    """Return four layers of the text encoder of CLIP; the result is that of the token with the largest id."""
    g = Graph("clip_text", batch)
    ids = g.input("ids", (TOKENS,), TensorProto.INT64)
    x = g.add(g.embedding(ids, 4096, 512), g.weights((TOKENS, 512), 100))
    mask = g.constant(np.triu(np.full((TOKENS, TOKENS), -1e9), 1))
    for _ in range(4):
        x = block(g, x, (batch, TOKENS), 8, act="QuickGelu", mask=mask)
    last = g.node("ArgMax", ids, axis=-1, keepdims=1)
    rows = g.constant(np.arange(batch)[:, None], np.int64)
    y = g.node("GatherND", g.layer_norm(x), g.node("Concat", rows, last, axis=1))
    g.channels[y] = 512
    return g.finish(_unit(g, g.linear(y, 512, bias=False)))


def _patches(g: Graph, width: int, patch: int) -> str:
    """Return a sequence of a class token and the patches of an image, with positions."""
    count = (SIZE // patch) ** 2
    x = g.conv(g.image(SIZE), width, patch, patch, act=None, pad=0)
    x = g.transpose(g.node("Reshape", x, g.constant([g.batch, width, count], np.int64)), 0, 2, 1)
    token = g.node("Expand", g.weights((1, 1, width), 1), g.constant([g.batch, 1, width], np.int64))
    x = g.add(g.node("Concat", token, x, axis=1), g.weights((1, count + 1, width), 10))
    g.channels[x] = width
    return x


def _first(g: Graph, x: str) -> str:
    return str(g.node("Gather", x, g.constant(0, np.int64), axis=1))


def _unit(g: Graph, x: str) -> str:
    return str(g.node("Div", x, g.node("ReduceL2", x, axes=[-1], keepdims=1)))


# --- windows ----------------------------------------------------------------------------------------------------------


def swin(batch: int = 1) -> onnx.ModelProto:
    """Return Swin-T with two layers in each stage; the windows of every second layer are shifted."""
    g = Graph("swin", batch)
    size, x = SIZE // 4, g.conv(g.image(SIZE), 96, 4, 4, act=None, pad=0)
    x = g.layer_norm(g.transpose(x, 0, 2, 3, 1))
    for stage in range(4):
        if stage:
            x, size = _merged_patches(g, x), size // 2
        for number in range(2):
            x = _swin_block(g, x, size, 3 << stage, WINDOW // 2 if number and size > WINDOW else 0)
    x = g.transpose(g.layer_norm(x), 0, 3, 1, 2)
    return g.finish(g.classify(x))


def _swin_block(g: Graph, x: str, size: int, count: int, shift: int) -> str:
    y = _rolled(g, g.layer_norm(x), shift, size)
    y = _windowed(g, y, size, count, mask=_shift_mask(g, size, shift) if shift else "")
    x = g.add(x, _rolled(g, y, size - shift if shift else 0, size))
    return g.add(x, mlp(g, g.layer_norm(x)))


def _windowed(g: Graph, x: str, size: int, count: int, grid: bool = False, mask: str = "") -> str:
    """Add attention within each window, with a bias for relative positions."""
    y = split_windows(g, x, size, WINDOW, grid)
    bias = g.weights((1, count, WINDOW**2, WINDOW**2), 10)
    y = packed_attention(g, y, (g.batch * (size // WINDOW) ** 2, WINDOW**2), count, bias, mask)
    return merge_windows(g, y, size, WINDOW, grid)


def _rolled(g: Graph, x: str, shift: int, size: int) -> str:
    """Rotate the height and the width of an image in NHWC."""
    for axis in (1, 2) if shift else ():
        x, width = g.node("Concat", g.slice(x, axis, shift, size), g.slice(x, axis, 0, shift), axis=axis), g.channels[x]
        g.channels[x] = width
    return x


def _shift_mask(g: Graph, size: int, shift: int) -> str:
    """Return a mask that separates pixels which are neighbours only because the image was rotated."""
    part = np.zeros(size, np.int64)
    part[-WINDOW:-shift], part[-shift:] = 1, 2
    regions = (3 * part[:, None] + part).reshape(size // WINDOW, WINDOW, size // WINDOW, WINDOW)
    regions = regions.transpose(0, 2, 1, 3).reshape(-1, WINDOW**2)
    hidden = regions[:, :, None] != regions[:, None, :]
    return g.constant(np.where(hidden, -100.0, 0.0)[None, :, None])


def _merged_patches(g: Graph, x: str) -> str:
    """Concatenate the features of 2 x 2 pixels, and halve their number by a matrix product."""
    width = g.channels[x]
    corners = [g.slice(g.slice(x, 1, row, SIZE, 2), 2, column, SIZE, 2) for column in (0, 1) for row in (0, 1)]
    y = g.node("Concat", *corners, axis=-1)
    g.channels[y] = 4 * width
    return g.linear(g.layer_norm(y), 2 * width, bias=False)


def maxvit(batch: int = 1) -> onnx.ModelProto:
    """Return four stages of one block: an inverted residual, attention in windows, and attention in grids."""
    g = Graph("maxvit", batch)
    x, size = g.conv(g.conv(g.image(SIZE), 64, 3, 2, act="Gelu"), 64, 3, act=None), SIZE // 2
    for stage in range(4):
        size //= 2
        x = g.transpose(_inverted(g, x, 64 << stage), 0, 2, 3, 1)
        g.channels[x] = 64 << stage
        for grid in (False, True):
            x = g.add(x, _windowed(g, g.layer_norm(x), size, 2 << stage, grid))
            x = g.add(x, mlp(g, g.layer_norm(x)))
        x = g.transpose(x, 0, 3, 1, 2)
    return g.finish(g.classify(x))


def _inverted(g: Graph, x: str, channels: int) -> str:
    """Add an inverted residual with squeeze and excite that halves the image."""
    y = g.conv(x, 4 * channels, act="Gelu")
    y = squeeze_excite(g, g.depthwise(y, 3, 2, "Gelu"), channels // 4, "Swish")
    return g.add(g.conv(g.average_pool(x), channels, act=None), g.conv(y, channels, act=None))
