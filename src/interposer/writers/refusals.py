"""The refusal of a layer that a format cannot express."""

from __future__ import annotations

from typing import NoReturn

from interposer.core.errors import InterposerError
from interposer.ops.control_flow import If

__all__ = ["RefusedError", "refuse", "refuse_empty_branches"]


class RefusedError(InterposerError):
    """The format that is written cannot express a layer.

    The writer catches and collects these errors, so that a user sees all such layers at once.
    """


def refuse(reason: str) -> NoReturn:
    """Raise `RefusedError` with the reason why the format cannot express a layer."""
    raise RefusedError(reason)


def refuse_empty_branches(op: If) -> None:
    """Refuse an If with a branch that cannot be computed for the shapes of the network, as no format expresses it."""
    for title, failure in zip(op.region_names, op.failures, strict=True):
        if failure:
            refuse(f"its branch {title!r} cannot be computed for the shapes of the network: {failure}")
