"""The refusal of a layer that a format cannot express."""

from __future__ import annotations

from typing import NoReturn

from interposer.core.errors import InterposerError

__all__ = ["RefusedError", "refuse"]


class RefusedError(InterposerError):
    """The format that is written cannot express a layer.

    The writer catches and collects these errors, so that a user sees all such layers at once.
    """


def refuse(reason: str) -> NoReturn:
    """Raise `RefusedError` with the reason why the format cannot express a layer."""
    raise RefusedError(reason)
