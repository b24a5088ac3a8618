"""The pass that replaces float layers between Dequantize and Quantize by quantized layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.ops import Constant, Dequantize, Quantize
from interposer.optimizer.preference import Candidate, Preference
from interposer.optimizer.rewrites.quantized import INTEGERS, computing_layer, dequantize_later, integer_candidates
from interposer.rewriting.driver import Journal, Rewritten, Rules, apply_rewrites
from interposer.rewriting.pattern import New, Replacement, Rewrite, info_of

__all__ = ["ComputeInIntegers"]

_RULES: Final = Rules(INTEGERS)


@dataclass(frozen=True)
class ComputeInIntegers:
    """Applies the rewrites `INTEGERS` if no layer is moved to a less preferred backend.

    A rewrite is applied only if, for every new layer, a backend supports it that is preferred at least as much as the
    backend that supports the float layer. Usually, the first backend supports all new layers. So all rewrites are
    applied at first, and a single query is about their results. If a layer is refused, the rewrites are undone, and
    applied again with a check of each.
    """

    preference: Preference
    name: str = "compute in integers"

    def apply(self, graph: Graph) -> Rewritten:
        """Apply the rewrites to a graph, and return how often each was applied."""
        if not any(isinstance(layer.op, Dequantize) for layer in graph):
            return Rewritten()
        journal = Journal()
        rewritten = apply_rewrites(graph, _RULES, journal)
        new_layers = [layer for layer in graph if layer in journal.made and is_placed_by_a_backend(layer)]
        if journal.before is None or self.preference.is_first_for(graph, new_layers):
            return rewritten
        graph.restore(journal.before)
        return self._apply_checked(graph)

    def _apply_checked(self, graph: Graph) -> Rewritten:
        self.preference.prepare(_candidates(graph))
        return apply_rewrites(graph, [replace(rewrite, function=self._checked(rewrite)) for rewrite in INTEGERS])

    def _checked(self, integer_rewrite: Rewrite) -> Any:
        def rewrite(op: Op, layer: Layer) -> Replacement:
            replacement = integer_rewrite(layer)
            return replacement if isinstance(replacement, New) and self._is_welcome(replacement, layer) else None

        return rewrite

    def _is_welcome(self, new: New, layer: Layer) -> bool:
        ranks = [self.preference.rank(*candidate) for candidate in _computing_layers(new, layer.output.known)]
        if not any(ranks):
            return True
        inner = computing_layer(layer)
        return max(ranks) <= self.preference.rank(inner.op, inner.input_infos, inner.output_infos)


def _candidates(graph: Graph) -> Iterator[Candidate]:
    """Yield the layers that the rewrites are likely to create, so that backends are queried about all of them at once.

    Others may follow from these; backends are then queried about them one by one.
    """
    for layer in graph:
        if isinstance(layer.op, Quantize):
            for new, info in integer_candidates(layer):
                yield from _computing_layers(new, info)
        elif isinstance(moved := dequantize_later(layer), New):
            yield from _computing_layers(moved, layer.output.known)


def _computing_layers(new: New, info: TensorInfo | None) -> Iterator[Candidate]:
    """Yield the layers that a rewrite would create; constants are left out.

    `new` describes the layer that replaces the old one, and `info` its output. The others are the ones that it reads.
    """
    if isinstance(new.op, Constant):
        return
    yield Candidate(new.op, tuple(map(info_of, new.inputs)), (info,))
    for operand in new.inputs:
        if isinstance(operand, New):
            yield from _computing_layers(operand, info_of(operand))
