"""Which operations of an NNAPI document the backends support, as a driver answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from interposer.backend import Backend, SubgraphView, Support
from interposer.core.records import dataclass
from interposer.frontends.nnapi.attempt import Attempt, attempted
from interposer.frontends.nnapi.importer import Shapes
from interposer.ir.graph import Graph, Layer
from interposer.ir.regions import named_graphs
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.optimizer.assign import query
from interposer.optimizer.optimizer_options import choose_backends
from interposer.plugins import DeviceSpec

__all__ = ["OperationSupport", "supported"]


@dataclass(frozen=True, slots=True)
class OperationSupport:
    """Whether an operation of a document is supported, and by which backends.

    `where` is the place of the operation in the document. `problem` says why the operation is invalid or unknown; it is
    empty if it can be converted. `backends` has the ids of the backends that run all of the operation's layers, and
    `reasons` the reasons of the others by id. The object is true if the operation is supported, which includes that
    several backends share its layers.
    """

    name: str
    where: str
    is_supported: bool
    backends: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def __bool__(self) -> bool:
        return self.is_supported


def supported(
    document: Mapping[str, Any],
    backends: Iterable[str] | None = None,
    *,
    shapes: Shapes | None = None,
    device_spec: DeviceSpec | None = None,
) -> list[OperationSupport]:
    """Return for each operation of a document whether the backends support it, in the order of the document.

    An operation that is not supported does not affect the answers about the others.

    Args:
        document: the document, as for `build`.
        backends: backend ids; None means all that are available.
        shapes: shapes by input name, as for `build`.
        device_spec: the registry of the backends, usually ``runtime.device_spec``; None means that of the process.

    Raises:
        ParseError: the document itself is damaged.
        UnknownBackendError: no backend has one of the ids.
        BackendUnavailableError: none of the backends is available.
        InvalidArgumentError: a shape does not fit its input.
    """
    chosen_backends, _ = choose_backends(backends, DeviceSpec.default() if device_spec is None else device_spec)
    graph, attempts = attempted(document, shapes)
    verdicts = {backend.id: _verdicts(backend, graph) for backend in chosen_backends}
    order = {id(operation): number for number, operation in enumerate(_in_order(attempts))}
    return [
        _answer(attempt, verdicts) for attempt in sorted(attempts, key=lambda attempt: order[id(attempt.operation)])
    ]


def _in_order(attempts: Sequence[Attempt]) -> list[Any]:
    """Return the operations sorted by their number in the document, which their places contain: ``operations[3]``."""
    operations = [attempt.operation for attempt in attempts]
    return sorted(operations, key=lambda operation: int(operation.where.partition("[")[2].partition("]")[0]))


def _verdicts(backend: Backend, graph: Graph) -> dict[Layer, Support]:
    """Return the answers of a backend about all layers of a graph and of its regions."""
    verdicts = dict[Layer, Support]()
    for _, subgraph in named_graphs(graph):
        layers = [layer for layer in subgraph if is_placed_by_a_backend(layer)]
        view = SubgraphView(subgraph, layers)
        verdicts |= dict(zip(view, query(backend, view, {}), strict=True))
    return verdicts


def _answer(attempt: Attempt, verdicts: Mapping[str, Mapping[Layer, Support]]) -> OperationSupport:
    operation = attempt.operation
    if attempt.problem:
        return OperationSupport(operation.name, operation.where, False, problem=attempt.problem)
    layers = [layer for layer in _with_regions(attempt.layers) if is_placed_by_a_backend(layer)]
    reasons = {backend: _reason(layers, verdict_of_layer) for backend, verdict_of_layer in verdicts.items()}
    supporting_backends = tuple(backend for backend, reason in reasons.items() if not reason)
    is_supported = all(
        any(_is_yes(layer, verdict_of_layer) for verdict_of_layer in verdicts.values()) for layer in layers
    )
    refusals = {backend: reason for backend, reason in reasons.items() if reason}
    return OperationSupport(operation.name, operation.where, is_supported, supporting_backends, refusals)


def _with_regions(layers: Iterable[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield layer
        for region in layer.regions:
            yield from _with_regions(region)


def _is_yes(layer: Layer, verdict_of_layer: Mapping[Layer, Support]) -> bool:
    return bool(verdict_of_layer.get(layer, Support.yes()))


def _reason(layers: Iterable[Layer], verdict_of_layer: Mapping[Layer, Support]) -> str:
    """Return why a backend does not support some of the layers; empty if it supports all of them."""
    reasons = (
        f"{layer.kind}: {'; '.join(verdict_of_layer[layer].reasons)}"
        for layer in layers
        if not _is_yes(layer, verdict_of_layer)
    )
    return "; ".join(dict.fromkeys(reasons))
