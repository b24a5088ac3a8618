"""The step in which backends optimize their own parts: they replace layers, return them, or leave them unchanged."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from interposer.backend import Backend, Failure, OptimizationViews, SubgraphView, Substitution
from interposer.backend.capabilities import ALL_OR_NOTHING
from interposer.backend.contracts import checked
from interposer.core.errors import BackendContractError, InterposerError
from interposer.core.schema import Op
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.subgraph import is_placed_by_a_backend, select
from interposer.ops.control import Input, Output, PreCompiled
from interposer.optimizer.assign import Assigner
from interposer.optimizer.overlap import Neighbors, neighbors_of_layers
from interposer.profiling import Category
from interposer.profiling.recorder import interval
from interposer.report.records import COMPILING_RAISED, Message

__all__ = ["let_backends_optimize"]

_log = logging.getLogger("interposer.optimizer")


def let_backends_optimize(assigner: Assigner) -> None:
    """Let every backend replace the parts of the graph that are assigned to it, until nothing is left to offer.

    Layers that a backend returns are assigned to other backends, and offered to them. A layer is offered to each
    backend at most once, and each backend returns it at most once.

    Raises:
        BackendContractError: the answer of a backend is invalid.
        UnsupportedLayerError: a backend returned a layer, and no other backend supports it.
    """
    offered: set[tuple[int, str]] = set()
    neighbors = neighbors_of_layers(assigner.graph, assigner.backends)
    while any([_offer_parts(assigner, backend, offered, neighbors) for backend in assigner.backends]):
        pass


def _offer_parts(
    assigner: Assigner, backend: Backend, offered: set[tuple[int, str]], neighbors: dict[int, Neighbors]
) -> bool:
    """Offer a backend its layers that are new to it, and return True if there are any.

    `offered` and `neighbors` are updated. Layers that the backend gives back move to other backends, which changes what
    can compute concurrently with what.
    """

    def waiting(layer: Layer) -> Hashable | None:
        is_new = layer.backend == backend.id and (layer.guid, backend.id) not in offered
        return (backend.id, neighbors.get(layer.guid)) if is_new and is_placed_by_a_backend(layer) else None

    parts = select(assigner.graph, waiting)
    given_back: list[Layer] = []
    for answer in _answers(assigner, backend, parts):
        offered |= {(layer.guid, backend.id) for layer in answer.view}
        given_back += _apply(assigner, backend, answer, offered)
    if given_back:
        assigner.assign(given_back)
        neighbors.clear()
        neighbors.update(neighbors_of_layers(assigner.graph, assigner.backends))
    return bool(parts)


def _answers(assigner: Assigner, backend: Backend, parts: Sequence[SubgraphView]) -> Iterable[OptimizationViews]:
    """Return the answer of a backend for each part; one with the capability AllOrNothing gives back all parts, or none.

    Each part is offered as the replacements of the earlier parts left it, so the answers must be applied one by one.
    """
    in_turn = (_ask(assigner, backend, part.part(part.layers)) for part in parts)
    if not backend.capabilities.has(ALL_OR_NOTHING):
        return in_turn
    answers = [_ask(assigner, backend, part) for part in parts]
    failures = [failure for answer in answers for failure in answer.failed]
    if failures:
        first = assigner.title(failures[0].part.layers[0])
        reason = f"it runs a network only as a whole ({ALL_OR_NOTHING}), and it gave back layer {first}"
        return [_without_all(answer, reason) for answer in answers]
    return answers if len(parts) == 1 else in_turn


def _without_all(answer: OptimizationViews, reason: str) -> OptimizationViews:
    """Return the answer that the backend runs no layer; `reason` is for those that it did not give back itself."""
    failed_guids = {layer.guid for failure in answer.failed for layer in failure.part}
    other_layers = [layer for layer in answer.view if layer.guid not in failed_guids]
    other_failures = [Failure(answer.view.part(other_layers), reason)] if other_layers else []
    return OptimizationViews(answer.view, failed=[*answer.failed, *other_failures])


def _ask(assigner: Assigner, backend: Backend, view: SubgraphView) -> OptimizationViews:
    try:
        with interval(Category.OPTIMIZE, "optimize_subgraph", backend=backend.id):
            answer = backend.optimize_subgraph(view, assigner.options(backend))
    except Exception as error:
        has_failed_before = any(
            refusal.is_problem for refusal in assigner.records.refusals.values() if refusal.backend == backend.id
        )
        level = logging.DEBUG if has_failed_before else logging.WARNING  # once for each network
        _log.log(level, "backend %s could not optimize a part", backend.id, exc_info=True)
        return OptimizationViews.all_failed(view, f"{COMPILING_RAISED} {type(error).__name__}: {error}")
    views: OptimizationViews = checked(answer, OptimizationViews, "optimize_subgraph", backend.id)
    if views.view is not view:
        raise BackendContractError(
            f"backend {backend.id!r}: optimize_subgraph gave an answer for another view", backend=backend.id
        )
    with _as_contract_errors(backend):
        views.validate()
    return views


@contextmanager
def _as_contract_errors(backend: Backend) -> Iterator[None]:
    try:
        yield
    except InterposerError as error:
        raise BackendContractError(f"backend {backend.id!r}: {error}", backend=backend.id) from error
    except Exception as error:
        message = f"the answer of optimize_subgraph cannot be read, {type(error).__name__}: {error}"
        raise BackendContractError(f"backend {backend.id!r}: {message}", backend=backend.id) from error


def _apply(
    assigner: Assigner, backend: Backend, answer: OptimizationViews, offered: set[tuple[int, str]]
) -> list[Layer]:
    """Replace the parts for which a backend returned substitutions, and remove the assignment of its failed layers.

    Returns the failed layers. `offered` has the pairs of layer guid and backend id that are not offered again; the new
    layers are added to it.
    """
    stands_for: dict[Value, Value] = {}
    for substitution in answer.substitutions:
        with _as_contract_errors(backend):
            new_layers = _substitute(assigner.graph, backend, substitution, stands_for)
        offered |= {(layer.guid, backend.id) for layer in new_layers}
        placements, unit = assigner.records.placements, assigner.name(new_layers[0]) if len(new_layers) == 1 else ""
        for layer in substitution.part if unit else ():
            placement = placements[assigner.name(layer)]
            placements[placement.layer] = placement.running_in(unit)
    for failure in answer.failed:
        assigner.refuse(backend, failure.part, failure.reason)
    assigner.records.messages += [Message("info", f"{backend.id}: {remark}") for remark in answer.remarks]
    return [layer for failure in answer.failed for layer in failure.part]


def _substitute(
    graph: Graph, backend: Backend, substitution: Substitution, stands_for: dict[Value, Value]
) -> list[Layer]:
    part = substitution.part
    entering = [stands_for.get(value, value) for value in substitution.entering]
    if isinstance(substitution.replacement, Graph):
        new_layers, outputs = _graph_in_place(graph, substitution.replacement, entering)
    else:
        new_layers, outputs = _layer_in_place(graph, substitution.replacement, entering, part)
    for layer in new_layers:
        layer.backend = backend.id
        layer.replaced = tuple(part_layer.name for part_layer in part)
    for old_value, new_value in zip(part.outputs, outputs, strict=True):
        _check_same_info(old_value, new_value)
        graph.replace_uses(old_value, new_value, lambda use: use.layer not in part)
        stands_for[old_value] = new_value
    for layer in reversed(part.layers):
        graph.erase(layer)
    if isinstance(substitution.replacement, Op):
        graph.rename(new_layers[0], _name(substitution))
    return new_layers


def _name(substitution: Substitution) -> str:
    layers, op = substitution.part.layers, substitution.replacement
    return f"{op.op_name()}:{layers[0].name}" if isinstance(op, PreCompiled) else layers[-1].name


def _layer_in_place(
    graph: Graph, op: Op, entering: list[Value], part: SubgraphView
) -> tuple[list[Layer], tuple[Value, ...]]:
    layer = graph.add(op, entering, outputs=[value.info for value in part.outputs])
    errors = infer_layer(layer)
    if errors:
        raise BackendContractError(f"the substitution {op!r} does not fit: {'; '.join(errors)}")
    return [layer], layer.outputs


def _graph_in_place(graph: Graph, body: Graph, entering: list[Value]) -> tuple[list[Layer], tuple[Value, ...]]:
    bound_inputs: Mapping[Value, Value] = {
        layer.output: value for layer, value in zip(body.inputs, entering, strict=True)
    }
    inner_layers = [layer for layer in body.topological() if not isinstance(layer.op, Input | Output)]
    copies = graph.absorb(inner_layers, bound_inputs)
    layers = [
        layer
        for layer in dict.fromkeys(copies[v].producer for inner_layer in inner_layers for v in inner_layer.outputs)
    ]
    for layer in layers:
        errors = infer_layer(layer)
        if errors:
            raise BackendContractError(f"in the substituted graph, layer {layer} does not fit: {'; '.join(errors)}")
    return [inner_layer for inner_layer in layers if is_placed_by_a_backend(inner_layer)], tuple(
        copies[output.values[0]] for output in body.outputs
    )


def _check_same_info(old_value: Value, new_value: Value) -> None:
    if old_value.known != new_value.known:
        raise BackendContractError(f"the tensor {old_value.name!r}, {old_value.info}, is replaced by {new_value.info}")
