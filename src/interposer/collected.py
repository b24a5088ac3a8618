"""Public names of `interposer.core.containers`: Sequences and optionals as arrays of objects."""

from interposer.core.containers import (
    as_given,
    as_stored,
    collected,
    refined,
)

__all__ = [
    "as_given",
    "as_stored",
    "collected",
    "refined",
]
