"""Public names of `interposer.ir.equality`: Equality of graphs."""

from interposer.ir.equality import (
    differences,
    same_constant,
    same_graph,
)

__all__ = [
    "differences",
    "same_constant",
    "same_graph",
]
