"""The pieces of transformers, in the nodes that exporters write: attention, blocks, and windows of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .graph import Graph

__all__ = [
    "attend",
    "attention",
    "block",
    "heads",
    "merge_windows",
    "merged",
    "mlp",
    "packed_attention",
    "split_windows",
]

Shape = tuple[int, int]
"""The batch and the length of a sequence."""


def heads(g: Graph, x: str, shape: Shape, count: int, transposed: bool = False) -> str:
    """Split the features into heads: batch, head, length, features; `transposed` swaps the last two."""
    y = g.reshape(x, *shape, count, g.channels[x] // count)
    return g.transpose(y, 0, 2, 3, 1) if transposed else g.transpose(y, 0, 2, 1, 3)


def merged(g: Graph, x: str, shape: Shape, width: int) -> str:
    """Merge heads into the features of one sequence."""
    return g.reshape(g.transpose(x, 0, 2, 1, 3), *shape, width)


def attend(g: Graph, query: str, key: str, value: str, depth: int, mask: str | None = None) -> str:
    """Add scaled scores, a mask, a softmax, and the sum of values; `key` is transposed."""
    scores = g.node("Div", g.node("MatMul", query, key), g.constant(math.sqrt(depth)))
    scores = g.add(scores, mask) if mask else scores
    return str(g.node("MatMul", g.node("Softmax", scores, axis=-1), value))


def attention(g: Graph, x: str, shape: Shape, count: int, mask: str | None = None) -> str:
    """Add attention with one matrix product each for queries, keys and values."""
    width = g.channels[x]
    query, value = heads(g, g.linear(x, width), shape, count), heads(g, g.linear(x, width), shape, count)
    key = heads(g, g.linear(x, width), shape, count, transposed=True)
    return g.linear(merged(g, attend(g, query, key, value, width // count, mask), shape, width), width)


def packed_attention(g: Graph, x: str, shape: Shape, count: int, bias: str | None = None, mask: str = "") -> str:
    """Add attention whose queries, keys and values are one matrix product.

    `bias` is added to the scores. So is `mask`, which has one matrix for each of the windows of an image.
    """
    width = g.channels[x]
    packed = g.reshape(g.linear(x, 3 * width), *shape, 3, count, width // count)
    packed = g.transpose(packed, 2, 0, 3, 1, 4)
    query, key, value = (g.node("Gather", packed, g.constant(n, np.int64), axis=0) for n in range(3))
    query = g.node("Mul", query, g.constant((width // count) ** -0.5))
    scores = g.node("MatMul", query, g.transpose(key, 0, 1, 3, 2))
    scores = g.add(scores, bias) if bias else scores
    if mask:
        windows = shape[0] // g.batch
        scores = g.add(g.reshape(scores, g.batch, windows, count, shape[1], shape[1]), mask)
        scores = g.reshape(scores, shape[0], count, shape[1], shape[1])
    seen = g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    return g.linear(merged(g, seen, shape, width), width)


def mlp(g: Graph, x: str, act: str = "Gelu") -> str:
    width = g.channels[x]
    return g.linear(g.act(g.linear(x, 4 * width), act), width)


def block(
    g: Graph, x: str, shape: Shape, count: int, act: str = "Gelu", mask: str | None = None, packed: bool = False
) -> str:
    """Add a transformer layer that normalizes before attention and before the two matrix products."""
    y = g.layer_norm(x)
    x = g.add(x, packed_attention(g, y, shape, count, mask) if packed else attention(g, y, shape, count, mask))
    return g.add(x, mlp(g, g.layer_norm(x), act))


def split_windows(g: Graph, x: str, size: int, window: int, grid: bool = False) -> str:
    """Split an image in NHWC into square windows, or into grids of pixels of equal distance; each is a sequence."""
    width, count = g.channels[x], size // window
    shape: Sequence[int] = (window, count, window, count) if grid else (count, window, count, window)
    y = g.transpose(g.reshape(x, g.batch, *shape, width), *((0, 2, 4, 1, 3, 5) if grid else (0, 1, 3, 2, 4, 5)))
    return g.reshape(y, g.batch * count * count, window * window, width)


def merge_windows(g: Graph, x: str, size: int, window: int, grid: bool = False) -> str:
    """Undo `split_windows`."""
    width, count = g.channels[x], size // window
    y = g.reshape(x, g.batch, count, count, window, window, width)
    y = g.transpose(y, *((0, 3, 1, 4, 2, 5) if grid else (0, 1, 3, 2, 4, 5)))
    return g.reshape(y, g.batch, size, size, width)
