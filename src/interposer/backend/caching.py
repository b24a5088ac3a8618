"""`SavedPart`: a compiled part as bytes, with which the cache of networks stores and restores what backends compile."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.records import dataclass

__all__ = ["SavedPart"]


@dataclass(frozen=True, slots=True)
class SavedPart:
    """A compiled part as bytes, from which the same backend creates the part again, also in another process.

    `pieces` are stored without a copy, and are views of a mapped file when they are restored. `digest` is a name under
    which the backend itself caches the part, so that ``interposer cache why`` lists both files; empty if there is none.
    """

    pieces: Sequence[bytes | memoryview]
    digest: str = ""
