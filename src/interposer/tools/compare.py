"""Public names of `interposer.analysis.compare`: Comparison of two backends, layer by layer."""

from interposer.analysis.compare import (
    Comparison,
    Culprit,
    Cut,
    LayerComparison,
    compare,
)

__all__ = [
    "Comparison",
    "Culprit",
    "Cut",
    "LayerComparison",
    "compare",
]
