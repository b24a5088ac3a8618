"""The pass that removes the rounding of activations where it is not wanted or would cost a change of the backend."""

from __future__ import annotations

from collections import Counter

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.ir.graph import Graph, Layer
from interposer.ops.quantization import DynamicFakeQuantization
from interposer.ops.recurrent import without_rounding
from interposer.optimizer.preference import Preference
from interposer.rewriting.driver import Rewritten, replace

__all__ = ["DropActivationRounding"]


@dataclass(frozen=True)
class DropActivationRounding:
    """Removes DynamicFakeQuantization layers, and the rounding of recurrent layers, which then compute with floats.

    With `keep`, a layer stays if the backend that supports it is preferred at least as much as those of its readers.
    A recurrent layer keeps its rounding, unless a more preferred backend supports the layer without it.
    """

    preference: Preference
    keep: bool = True
    name: str = "drop activation rounding"

    def apply(self, graph: Graph) -> Rewritten:
        """Remove the layers."""
        counts: Counter[str] = Counter()
        for layer in [layer for layer in graph.topological() if isinstance(layer.op, DynamicFakeQuantization)]:
            if not (self.keep and self._is_welcome(layer)):
                replace(graph, layer, layer.values[0], by="drop_activation_rounding")
                counts["drop_activation_rounding"] += 1
        for layer in graph:
            op_without_rounding = without_rounding(layer.op)
            if op_without_rounding is not None and not (
                self.keep and self._rank(layer) <= self._rank(layer, op_without_rounding)
            ):
                layer.op = op_without_rounding
                counts["drop_activation_rounding"] += 1
        return Rewritten(counts)

    def _is_welcome(self, layer: Layer) -> bool:
        rank = self._rank(layer)
        return all(rank <= self._rank(use.layer) for use in layer.output.uses if use.layer.op.executable)

    def _rank(self, layer: Layer, op: Op | None = None) -> int:
        return self.preference.rank(op or layer.op, layer.input_infos, layer.output_infos)
