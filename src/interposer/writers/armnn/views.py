"""The views of Concat and Splitter layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["origins", "views"]


def origins(axis: int, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Return the descriptor of views that follow each other along an axis."""
    vectors, begin = [], 0
    for shape in shapes:
        vectors.append({"data": [begin if at == axis else 0 for at in range(len(shape))]})
        begin += shape[axis]
    rank = len(shapes[0])
    return {"concatAxis": axis, "numViews": len(shapes), "numDimensions": rank, "viewOrigins": vectors}


def views(axis: int, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Return the descriptor of a Splitter whose views divide an axis."""
    return {"origins": origins(axis, shapes), "viewSizes": [{"data": shape} for shape in shapes]}
