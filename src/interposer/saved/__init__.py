"""Saved networks: optimized networks in files, with their constants and compiled parts, and what the files contain.

`Model.save` and `OptimizedNetwork.save` write such a file, and `interposer.load` reads it. `describe` reads the index,
and `check` verifies the whole file. docs/reference/saved-format.md describes the format.
"""

from interposer.saved.describe import SavedNetwork, SavedVariant, check, describe
from interposer.saved.signing import SignedAs

__all__ = ["SavedNetwork", "SavedVariant", "SignedAs", "check", "describe"]
