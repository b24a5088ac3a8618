"""Reshapes to shapes of which some dimensions are unknown."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import Dim, TensorShape
from interposer.ops.reshape import Reshape

__all__ = ["known_sizes", "reshape_to"]


def reshape_to(shape: TensorShape, sizes: Sequence[int], leading: int = 0) -> Reshape | None:
    """Return the operator that reshapes a tensor of shape `shape` to `sizes`, of which some may be unknown (`Dim`).

    An unknown size is copied from the input if it is along one of the first `leading` axes, or if it has a name and the
    input has the same name at the same axis. At most one other unknown size is inferred. The result is None if more of
    them are unknown: all dimensions without a name are the same `Dim`, even if their sizes will differ.
    """
    copied = [i for i, dim in enumerate(sizes) if isinstance(dim, Dim) and _is_copied(shape, dim, i, leading)]
    target = [0 if i in copied else -1 if isinstance(dim, Dim) else dim for i, dim in enumerate(sizes)]
    if len(copied) == 1 and -1 not in target:
        return Reshape(tuple(-1 if i in copied else dim for i, dim in enumerate(sizes)))
    zeros = any(dim == 0 and i not in copied for i, dim in enumerate(target))
    if target.count(-1) > 1 or (copied and zeros):
        return None
    return Reshape(tuple(target), copy_zeros=bool(copied))


def known_sizes(sizes: Sequence[int]) -> Reshape | None:
    """Return the operator that states the known ones of a tensor's sizes, and leaves the unknown ones as they are.

    The result is None if there is nothing to state, or if a size is 0, which means a copy.
    """
    known = [dim for dim in sizes if not isinstance(dim, Dim) and dim != -1]
    if not known or 0 in known:
        return None
    return Reshape(tuple(dim if not isinstance(dim, Dim) and dim > 0 else 0 for dim in sizes), copy_zeros=True)


def _is_copied(shape: TensorShape, dim: Dim, axis: int, leading: int) -> bool:
    """Return True if the unknown size `dim` along `axis` is the input's dimension at the same axis."""
    return axis < len(shape) and shape[axis] is dim and (dim.name is not None or axis < leading)
