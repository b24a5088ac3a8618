"""Saved networks: optimized networks in files, with their constants and compiled parts, and what the files contain.

`Model.save` and `OptimizedNetwork.save` write such a file, and `interposer.load` reads it. `describe` reads the index,
and `check` verifies the whole file. docs/reference/saved-format.md describes the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interposer.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from interposer.saved.description import SavedNetwork, SavedVariant, check, describe
    from interposer.saved.signing import SignedAs

__all__ = ["SavedNetwork", "SavedVariant", "SignedAs", "check", "describe"]

_HOMES = {"description": ("SavedNetwork", "SavedVariant", "check", "describe"), "signing": ("SignedAs",)}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
