"""The refusal of a layer that a format cannot express."""

from __future__ import annotations

from typing import NoReturn

from interposer.core.errors import InterposerError

__all__ = ["RefusedError", "refuse"]


class RefusedError(InterposerError):
    """A layer that the format cannot express; collected, so that a user sees all of them."""


def refuse(reason: str) -> NoReturn:
    """Raise `RefusedError` with the reason why the format cannot express a layer."""
    raise RefusedError(reason)
