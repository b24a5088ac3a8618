"""Reshapes to shapes of which some dimensions are unknown."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import Dim, TensorShape
from interposer.ops.reshape import Reshape

__all__ = ["reshape_to"]


def reshape_to(shape: TensorShape, sizes: Sequence[int]) -> Reshape | None:
    """Return the operator that reshapes a tensor of shape `shape` to `sizes`, of which some may be unknown (`Dim`).

    An unknown size is copied if the input has it at the same axis; at most one other unknown size is inferred. The
    result is None if more of them are unknown.
    """
    copied = [i for i, dim in enumerate(sizes) if _is_copied(shape, sizes, i)]
    target = [0 if i in copied else -1 if isinstance(dim, Dim) else dim for i, dim in enumerate(sizes)]
    if len(copied) == 1 and -1 not in target:
        return Reshape(tuple(-1 if i in copied else dim for i, dim in enumerate(sizes)))
    zeros = any(dim == 0 and i not in copied for i, dim in enumerate(target))
    if target.count(-1) > 1 or (copied and zeros):
        return None
    return Reshape(tuple(target), copy_zeros=bool(copied))


def _is_copied(shape: TensorShape, sizes: Sequence[int], axis: int) -> bool:
    """Return True if the requested size along `axis` is the input's unknown dimension, so that it is copied.

    `shape` is the input's shape and `sizes` the requested one. A dimension without a name only counts if the axes
    before it are the same too.
    """
    dim = sizes[axis]
    if not isinstance(dim, Dim) or axis >= len(shape) or shape[axis] is not dim:
        return False
    return dim.name is not None or all(a is b or a == b for a, b in zip(shape[:axis], sizes[:axis], strict=True))
