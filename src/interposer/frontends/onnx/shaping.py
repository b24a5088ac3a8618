"""Helpers for several families: sizes of reshapes, and axes as attributes or operands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from interposer.core.types import Dim
from interposer.frontends.onnx.node import Node

__all__ = ["axes_of", "product"]


def product(sizes: Sequence[int]) -> int:
    """Return the product of sizes for a reshape; -1, so that it is inferred, if one of several is unknown."""
    if len(sizes) == 1:
        return sizes[0]
    size = math.prod(sizes)
    return -1 if isinstance(size, Dim) else size


def axes_of(node: Node, since: int, index: int = 1) -> tuple[int, ...] | None:
    """Return the axes of a node, or None if they are absent.

    They are operand `index` since opset `since`, and the attribute axes before.
    """
    if node.version < since:
        return node.integers("axes") if node.has_attribute("axes") else None
    return node.integers_of(index, "axes") if node.has(index) else None
