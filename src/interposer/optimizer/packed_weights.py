"""The pass that dequantizes weights of matrix products for backends that do not compute with quantized weights."""

from __future__ import annotations

from collections import Counter
from typing import Final

from interposer.core.records import dataclass
from interposer.ir.graph import Graph, Layer
from interposer.optimizer.preference import Preference
from interposer.optimizer.rewrites.constants import folded, is_packed_weight, products_of
from interposer.rewriting.driver import Rewritten, replace

__all__ = ["UnpackWeights"]

CAPABILITY: Final = "QuantizedWeights"
"""The capability of backends that compute matrix products with weights that stay quantized."""


@dataclass(frozen=True)
class UnpackWeights:
    """Folds the dequantization of weights, unless the first backend that supports their products keeps them quantized.

    A backend says so by the capability "QuantizedWeights". It then gets the dequantization and the product as two
    layers, and computes them as one.
    """

    preference: Preference
    name: str = "unpack weights"

    def apply(self, graph: Graph) -> Rewritten:
        """Fold the layers."""
        counts: Counter[str] = Counter()
        for layer in filter(is_packed_weight, graph.topological()):
            replacement = None if self._stays_packed(layer) else folded(layer)
            if replacement is not None:
                replace(graph, layer, replacement, by="unpack_weights")
                counts["unpack_weights"] += 1
        return Rewritten(counts)

    def _stays_packed(self, layer: Layer) -> bool:
        return all(map(self._computes_packed, products_of(layer) or ()))

    def _computes_packed(self, product: Layer) -> bool:
        rank = self.preference.rank(product.op, product.input_infos, product.output_infos)
        backends = self.preference.backends
        return rank < len(backends) and backends[rank].capabilities.has(CAPABILITY)
