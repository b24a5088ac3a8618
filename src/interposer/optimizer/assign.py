"""Assignment of each layer to the first preferred backend that supports it; all refusals are recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from interposer.backend import Backend, Options, SubgraphView, Support
from interposer.backend.capabilities import ALL_OR_NOTHING
from interposer.backend.contracts import checked
from interposer.core.errors import BackendContractError, InvalidArgumentError, OptionError, UnsupportedLayerError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.ir.regions import named_graphs
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.optimizer.precision import convert_layer_to_fp32, has_half_types, in_fp32
from interposer.report.optimized import AbsentBackend
from interposer.report.records import ASKING_RAISED, Message, Placement, Refusal

__all__ = ["Assigner", "Records", "query"]

MOST_LAYERS: Final = 8
"""The most layers that an `UnsupportedLayerError` describes each by itself."""

_log = logging.getLogger("interposer.optimizer")


def query(backend: Backend, view: SubgraphView, options: Options) -> list[Support]:
    """Return the answer of a backend about every layer of a view; an exception of the backend becomes a refusal.

    Layers with tensors whose shapes depend on data, or with sequences and optionals, are refused without a query if the
    backend lacks the capability for them.

    Raises:
        BackendContractError: the answer has the wrong type or length.
        InvalidArgumentError: the backend rejects the options.
    """
    refusals = _layers_beyond(backend, view)
    if refusals:
        askable = [layer for layer in view if layer not in refusals]
        answers = iter(_ask(backend, SubgraphView(view.graph, askable, view.layers), options) if askable else ())
        return [Support.no(refusals[layer]) if layer in refusals else next(answers) for layer in view]
    return _ask(backend, view, options)


def _layers_beyond(backend: Backend, view: SubgraphView) -> dict[Layer, str]:
    """Return the layers of a view that a backend cannot run because it lacks a capability, each with the reason."""
    return _late_layers(backend, view) | _layers_of_collections(backend, view)


def _layers_of_collections(backend: Backend, view: SubgraphView) -> dict[Layer, str]:
    """Return the layers of a view with sequences or optionals, each with the reason why the backend cannot run it.

    Empty if the backend has the capability for them.
    """
    if backend.capabilities.has("Sequences"):
        return {}
    layers_and_values = (
        (layer, value) for layer in view for value in _inputs_and_outputs(layer) if value.known.element is not None
    )
    text = "{0.name!r} is {0.known}, which is no tensor, and it lacks the capability Sequences"
    return {layer: text.format(value) for layer, value in layers_and_values}


def _inputs_and_outputs(layer: Layer) -> tuple[Value, ...]:
    return *layer.values, *layer.outputs


def _late_layers(backend: Backend, view: SubgraphView) -> dict[Layer, str]:
    """Return the layers of a view with shapes that depend on data, each with the reason why the backend cannot run it.

    Empty if the backend has the capability DynamicShapes.
    """
    if backend.capabilities.has("DynamicShapes"):
        return {}
    infos = {id(value.info): value.known for layer in view for value in _inputs_and_outputs(layer)}
    if all([info.shape.is_concrete for info in infos.values()]):
        return {}
    late_values = shaped_by_data(view.graph)
    first_late = {
        layer: next(filter(late_values.__contains__, (*layer.values, *layer.outputs)), None) for layer in view
    }
    text = "the shape of {0.name!r}, {0.known.shape}, depends on data, and it lacks the capability DynamicShapes"
    return {layer: text.format(value) for layer, value in first_late.items() if value is not None}


def _ask(backend: Backend, view: SubgraphView, options: Options) -> list[Support]:
    try:
        support = backend.layer_support(options)
    except InvalidArgumentError:  # an invalid option is an error of the caller
        raise
    except Exception as error:
        return _all_refused(backend, view, error)
    try:
        answer = support.query(view)
    except OptionError:
        raise
    except Exception as error:
        return _all_refused(backend, view, error)
    verdicts: list[Support] = checked(answer, list, "query", backend.id)
    for verdict in verdicts:
        if not isinstance(verdict, Support):
            checked(verdict, Support, "query", backend.id)
    if len(verdicts) != len(view):
        raise BackendContractError(
            f"query of backend {backend.id!r} gave {len(verdicts)} verdicts for {len(view)} layers", backend=backend.id
        )
    return verdicts


def _all_refused(backend: Backend, view: SubgraphView, error: Exception) -> list[Support]:
    _log.warning("backend %s could not say what it supports", backend.id, exc_info=True)
    return [Support.no(f"{ASKING_RAISED} {type(error).__name__}: {error}")] * len(view)


class Records:
    """What the optimizer records while it assigns a network's layers to backends.

    `refusals` has the refusals of layers by backends, `messages` the messages to the user, and `placements` the backend
    of every layer by name. The name of a layer in a region is preceded by the names of the layers and regions around
    it.
    """

    def __init__(self) -> None:
        self.refusals: dict[tuple[int, str], Refusal] = {}
        self.messages: list[Message] = []
        self.placements: dict[str, Placement] = {}


class Assigner:
    """Assigns the layers of one graph (the network's own or a region) to backends, and records the answers.

    Args:
        graph: the graph, whose layers get the ids of their backends.
        backends: the backends in order of preference.
        options: the model options by backend id.
        absent: requested backends that are not available, for error messages.
        records: the records to add to; None creates new ones.
        prefix: precedes the layers' names in the records; empty for the network's own graph.
        exclude: by operator name, the ids of the backends that must not run it.
    """

    def __init__(
        self,
        graph: Graph,
        backends: Sequence[Backend],
        options: Mapping[str, Options],
        absent: Iterable[AbsentBackend] = (),
        records: Records | None = None,
        prefix: str = "",
        exclude: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.graph, self.backends, self._options, self._absent = graph, tuple(backends), options, tuple(absent)
        self.records = Records() if records is None else records
        self.prefix = prefix
        self._exclude = exclude or {}

    def with_regions(self) -> list[Assigner]:
        """Return this assigner and one for every region in the graph, all with the same records."""
        subgraphs = [
            (prefix, graph) for prefix, graph in named_graphs(self.graph, self.prefix) if graph is not self.graph
        ]
        settings = self.backends, self._options, self._absent, self.records
        return [self, *(Assigner(graph, *settings, prefix, self._exclude) for prefix, graph in subgraphs)]

    def name(self, layer: Layer) -> str:
        """Return the layer's name in the records."""
        return f"{self.prefix}{layer.name}"

    def options(self, backend: Backend) -> Options:
        """Return the model options for a backend; empty if there are none."""
        return self._options.get(backend.id, {})

    def assign(self, layers: Iterable[Layer]) -> None:
        """Assign a backend to each of these layers, and insert conversion layers where necessary.

        Raises:
            UnsupportedLayerError: no backend supports some layers; has the reasons of all backends.
        """
        remaining_layers = list(layers)
        while remaining_layers:
            added_layers: list[Layer] = []
            for backend in self.backends:
                hinted_layers = [layer for layer in remaining_layers if layer.hint == backend.id]
                if backend.capabilities.has(ALL_OR_NOTHING) and len(hinted_layers) < len(remaining_layers):
                    continue  # it is asked about all layers below
                remaining_layers = self._offer(backend, hinted_layers, remaining_layers, added_layers)
            for backend in self.backends:
                remaining_layers = self._offer(backend, remaining_layers, remaining_layers, added_layers)
            if remaining_layers:
                raise self._unsupported(remaining_layers)
            remaining_layers = added_layers

    def refuse(self, backend: Backend, layers: Iterable[Layer], reason: str) -> None:
        """Record that a backend accepted these layers, but could not compile them, for this reason.

        The layers have no backend then, and can be assigned again.
        """
        for layer in layers:
            layer.backend = None
            self._record_refusal(backend, layer, (reason,), "optimize")

    def _offer(
        self, backend: Backend, offered_layers: list[Layer], remaining_layers: list[Layer], added_layers: list[Layer]
    ) -> list[Layer]:
        candidates = [layer for layer in offered_layers if self._may_have(backend, layer)]
        if not candidates:
            return remaining_layers
        view = SubgraphView(self.graph, candidates)
        verdicts = query(backend, view, self.options(backend))
        if backend.capabilities.has(ALL_OR_NOTHING):
            verdicts = self._all_or_nothing(view, verdicts)
        for layer, verdict in zip(view, verdicts, strict=True):
            if verdict:
                self._place(backend, layer)
            elif self._supports_in_fp32(backend, layer):
                added_layers += self._convert(backend, layer, verdict)
            else:
                self._record_refusal(backend, layer, verdict.reasons, "support")
        return [layer for layer in remaining_layers if layer.backend is None]

    def _all_or_nothing(self, view: SubgraphView, verdicts: list[Support]) -> list[Support]:
        """Return the answers of a backend that runs the graph only as a whole: all are refusals if it lacks a layer."""
        refused_layers = [layer for layer, verdict in zip(view, verdicts, strict=True) if not verdict]
        if not refused_layers and len(view) == sum(map(is_placed_by_a_backend, self.graph)):
            return verdicts
        cause = (
            f"it refuses layer {self.title(refused_layers[0])}" if refused_layers else "other backends run layers of it"
        )
        reason = f"it runs a network only as a whole ({ALL_OR_NOTHING}), and {cause}"
        return [Support.no(reason) if verdict else verdict for verdict in verdicts]

    def _may_have(self, backend: Backend, layer: Layer) -> bool:
        if (layer.guid, backend.id) in self.records.refusals:
            return False
        is_excluded = backend.id in self._exclude.get(layer.kind, ())
        if is_excluded:
            self._record_refusal(backend, layer, ("the options keep layers of this type from it",), "support")
        return not is_excluded

    def _place(self, backend: Backend, layer: Layer) -> None:
        layer.backend = backend.id
        name = self.name(layer)
        self.records.placements[name] = Placement(name, layer.kind, backend.id, name, layer.source, layer.replaced)

    def _supports_in_fp32(self, backend: Backend, layer: Layer) -> bool:
        if backend.capabilities.has(ALL_OR_NOTHING):
            return False
        if not has_half_types(layer) or _layers_beyond(backend, SubgraphView(self.graph, [layer], [layer])):
            return False
        view = in_fp32(layer)
        return all(query(backend, view, self.options(backend)))

    def _convert(self, backend: Backend, layer: Layer, verdict: Support) -> list[Layer]:
        self._record_message(
            "warning", f"layer {self.title(layer)} runs in float32 on {backend.id}: {'; '.join(verdict.reasons)}"
        )
        conversions = convert_layer_to_fp32(self.graph, layer)
        self._place(backend, layer)
        return conversions

    def _record_refusal(self, backend: Backend, layer: Layer, reasons: tuple[str, ...], stage: str) -> None:
        refusal = Refusal(self.name(layer), layer.kind, backend.id, reasons, stage)
        self.records.refusals[layer.guid, backend.id] = refusal
        types_text = f"{_types(layer.input_infos)} to {_types(layer.output_infos)}"
        verb = "gave back" if stage == "optimize" else "refuses"
        self._record_message(
            "warning", f"{backend.id} {verb} layer {self.title(layer)}, {types_text}: {'; '.join(reasons)}", (refusal,)
        )

    def _record_message(self, level: str, text: str, refusals: tuple[Refusal, ...] = ()) -> None:
        self.records.messages.append(Message(level, text, refusals))
        _log.info("%s", text)

    def title(self, layer: Layer) -> str:
        """Return the layer's name and kind for messages."""
        return f"{self.name(layer)!r} ({layer.kind})"

    def _unsupported(self, layers: Sequence[Layer]) -> UnsupportedLayerError:
        refusals_by_layer: dict[str, list[Refusal]] = {self.name(layer): [] for layer in layers}
        for refusal in self.records.refusals.values():
            if refusal.layer in refusals_by_layer:
                refusals_by_layer[refusal.layer].append(refusal)
        ids: list[str] = [backend.id for backend in self.backends]
        shown_layers = _examples(
            layers, lambda layer: [refusal.reasons for refusal in refusals_by_layer[self.name(layer)]]
        )
        texts = [
            _paragraph(layer, self.title(layer), refusals_by_layer[self.name(layer)], ids) for layer in shown_layers
        ]
        heading = [] if len(layers) == 1 else [f"{len(layers)} layers cannot be run"]
        other_kinds = Counter(layer.kind for layer in layers if layer not in shown_layers)
        if other_kinds:
            counts = ", ".join(f"{kind} ({count})" for kind, count in other_kinds.most_common())
            texts.append(f"no backend in {ids} can run {other_kinds.total()} other layers either: {counts}")
        absent_lines = [f"  {absent_backend.id} is absent: {absent_backend.reason}" for absent_backend in self._absent]
        all_refusals = [refusal for refusals in refusals_by_layer.values() for refusal in refusals]
        return UnsupportedLayerError("\n".join(heading + texts + absent_lines), all_refusals)

    def verdicts(self, snapshot: Graph) -> Callable[[str], Mapping[str, tuple[str, ...]]]:
        """Return a function that answers why a backend does not run layers, for explanations.

        The function takes a backend's id and returns its reasons against each layer of `snapshot`, by the layer's name;
        no reasons if it supports the layer. Each backend is asked once, when the function is first called for it.
        """
        reasons_by_backend: dict[str, dict[str, tuple[str, ...]]] = {}
        by_id: dict[str, Backend] = {backend.id: backend for backend in self.backends}

        def ask(backend_id: str) -> Mapping[str, tuple[str, ...]]:
            if backend_id not in reasons_by_backend:
                backend = by_id[backend_id]
                reasons_by_backend[backend_id] = {}
                for prefix, graph in named_graphs(snapshot):
                    reasons_by_backend[backend_id] |= self._answers(backend, graph, prefix)
            return reasons_by_backend[backend_id]

        return ask

    def _answers(self, backend: Backend, graph: Graph, prefix: str) -> dict[str, tuple[str, ...]]:
        view = SubgraphView(graph, filter(is_placed_by_a_backend, graph))
        answers = query(backend, view, self.options(backend)) if len(view) else []
        return {f"{prefix}{layer.name}": answer.reasons for layer, answer in zip(view, answers, strict=True)}


def _types(infos: Iterable[object]) -> str:
    names = dict.fromkeys(str(getattr(info, "dtype", "nothing")) for info in infos if info is not None)
    return "+".join(names) or "nothing"


def _examples(layers: Sequence[Layer], reasons: Callable[[Layer], object]) -> list[Layer]:
    """Return at most `MOST_LAYERS` of the layers in their order, which differ in operator or reasons if possible."""
    if len(layers) <= MOST_LAYERS:
        return list(layers)
    first_layers: dict[str, Layer] = {}
    for layer in layers:
        first_layers.setdefault(f"{layer.kind} {reasons(layer)}", layer)
    different_layers = list(first_layers.values())
    other_layers = [layer for layer in layers if layer not in different_layers]
    chosen_layers = set([*different_layers, *other_layers][:MOST_LAYERS])
    return [layer for layer in layers if layer in chosen_layers]


def _paragraph(layer: Layer, title: str, refusals: Iterable[Refusal], backends: list[str]) -> str:
    lines = [f"no backend in {backends} can run layer {title}"]
    for index, info in enumerate(layer.input_infos):
        lines += [] if info is None else [f"  {layer.op.operand_name(index)}: {info}"]
    lines += [f"  {refusal.backend} says: {'; '.join(refusal.reasons)}" for refusal in refusals]
    lines += [f"  imported from {layer.source}"] if layer.source else []
    return "\n".join(lines)
