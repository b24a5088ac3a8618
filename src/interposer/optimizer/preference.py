"""The position of the first backend that supports a layer, from queries about the layer alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import NamedTuple

from interposer.backend import Backend, Options, SubgraphView
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ops.control import Constant, Input
from interposer.optimizer.assign import query
from interposer.report.records import ASKING_RAISED

__all__ = ["Candidate", "Preference"]


class Candidate(NamedTuple):
    """A layer about which backends are queried: its operator, and the infos of its inputs and outputs.

    None is an absent input, or an output whose info is inferred.
    """

    op: Op
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo | None, ...]


_Key = tuple[Candidate, tuple[bool, ...]]


@dataclass(frozen=True)
class Preference:
    """Queries backends in order of preference, and caches the answers."""

    backends: Sequence[Backend]
    options: Mapping[str, Options]
    _ranks: dict[_Key, int] = field(default_factory=dict)

    def rank(self, op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo | None]) -> int:
        """Return the position in the order of preference of the first backend that supports a layer.

        The layer has this operator and tensors with these infos. The number of backends is returned if none supports
        it.
        """
        candidate = Candidate(op, tuple(inputs), tuple(outputs))
        key = _key(candidate)
        if key not in self._ranks:
            self.prepare([candidate])
        return self._ranks[key]

    def is_first_for(self, graph: Graph, layers: Sequence[Layer]) -> bool:
        """Return True if the first backend supports all these layers of a graph, which it is asked about at once."""
        first, options = self.backends[0], self.options.get(self.backends[0].id, {})
        return not layers or all(query(first, SubgraphView(graph, layers), options))

    def prepare(self, candidates: Iterable[Candidate]) -> None:
        """Query the backends about several layers at once, so that `rank` finds its answers in the cache.

        Every backend gets one query, about the layers that no backend before it supports. The layers are not connected
        to each other.
        """
        pending_candidates = {key: candidate for key, candidate in map(_with_key, candidates) if key not in self._ranks}
        for position, backend in enumerate(self.backends):
            are_supported = self._supported(backend, list(pending_candidates.values()))
            for key, is_supported in zip(list(pending_candidates), are_supported, strict=True):
                if is_supported:
                    self._ranks[key] = position
                    del pending_candidates[key]
        self._ranks.update(dict.fromkeys(pending_candidates, len(self.backends)))

    def _supported(self, backend: Backend, candidates: Sequence[Candidate]) -> list[bool]:
        """Return for each layer whether a backend supports it.

        If the backend raises an exception, it is queried about each layer alone.
        """
        if not candidates:
            return []
        verdicts = query(backend, _view_of(candidates), self.options.get(backend.id, {}))
        if len(candidates) > 1 and any(reason.startswith(ASKING_RAISED) for reason in verdicts[0].reasons):
            return [is_supported for candidate in candidates for is_supported in self._supported(backend, [candidate])]
        return list(map(bool, verdicts))


def _with_key(candidate: Candidate) -> tuple[_Key, Candidate]:
    return _key(candidate), candidate


def _key(candidate: Candidate) -> _Key:
    """Return the key of the cached answer; equal infos of a constant and of another tensor give different keys."""
    return candidate, tuple([info is not None and info.constant is not None for info in candidate.inputs])


def _view_of(candidates: Iterable[Candidate]) -> SubgraphView:
    """Return a view of layers in a new graph that has no others but their inputs and constants."""
    graph = Graph("alone")
    layers = [_added(graph, candidate) for candidate in candidates]
    return SubgraphView(graph, layers, layers)


def _added(graph: Graph, candidate: Candidate) -> Layer:
    operands = [None if info is None else _operand(graph, info) for info in candidate.inputs]
    layer = graph.add(candidate.op.canonical(), operands, outputs=candidate.outputs)
    if None in candidate.outputs:
        infer_layer(layer)
    for value, info in zip(layer.outputs, candidate.outputs, strict=True):
        value.info = info or value.info
    return layer


def _operand(graph: Graph, info: TensorInfo) -> Value:
    if info.constant is None:
        layer = graph.add(_input(len(graph)), outputs=[info])
    else:
        layer = graph.add(Constant(info.constant, info.quantization))
    layer.output.info = info
    return layer.output


@cache
def _input(binding_id: int) -> Input:
    return Input(binding_id)
