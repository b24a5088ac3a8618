"""Loading of saved networks: the choice of a variant, what fits this machine, and what must be compiled again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

from interposer._version import __version__
from interposer.backend import SavedPart
from interposer.core.codec import info_from_plain
from interposer.core.errors import (
    InterposerError,
    InvalidArgumentError,
    ParseError,
    UnboundInputError,
)
from interposer.core.types import TensorInfo, TensorShape
from interposer.frontends.template import Metadata, Template, Values
from interposer.ir.graph import Graph
from interposer.ir.inference import inferences_remembered
from interposer.ir.network import Network
from interposer.ir.regions import named_graphs, places
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import PreCompiled
from interposer.optimizer import OptimizerOptions
from interposer.plugins.registry import BackendRegistry
from interposer.report.optimized import AbsentBackend, OptimizedNetwork
from interposer.report.records import Crossing, Message, Placement, Refusal
from interposer.runtime import Runtime
from interposer.saved.documents import SavedFile, Variant, reading_facts
from interposer.saved.graphs import GraphReader
from interposer.saved.writing import fingerprint_of, part_view
from interposer.session.limits import Limits
from interposer.session.placement.plan import Plan
from interposer.session.shapes import Shapes, bound
from interposer.session.values import with_values
from interposer.session.variants import Blueprint, FirstVariant, Key, LaterBlueprint, fingerprint

__all__ = ["SavedBlueprint", "Target", "read_saved", "target_of"]

_log: Final = logging.getLogger("interposer.session")
_LONGEST_NUMBER: Final = 12


# --- the network of a file --------------------------------------------------------------------------------------------


def read_saved(
    source: Any, shapes: Shapes | None = None, signature: str | None = None, trusted_keys: Any = None
) -> Network | Template:
    """Return the network of a saved network as it was before it was optimized.

    Raises:
        ParseError: the file is damaged, or has no such network.
        UntrustedFileError: no key of `trusted_keys` has signed it; or there are no such keys, and another user could
            have written the file.
    """
    file = SavedFile(source, trusted_keys)
    file.check_owner()
    with reading_facts(file.path):
        return _source(file, shapes, signature)


def _source(file: SavedFile, shapes: Shapes | None, signature: str | None) -> Template:
    index = file.index
    if signature is not None:
        signatures = index["signatures"]
        if signature not in signatures:
            names = ", ".join(signatures) or "none"
            raise InvalidArgumentError(f"signature: the file has no signature {signature!r} (it has: {names})")
        index = signatures[signature]
    template = _template(file, index)
    if not shapes:
        return template
    return replace(template, build=lambda other_shapes, values: template.network({**shapes, **other_shapes}, values))


def _template(file: SavedFile, index: Mapping[str, Any]) -> Template:
    signatures = {
        key: partial(_template, file, signature_index) for key, signature_index in index["signatures"].items()
    }
    usual_sizes = {str(name): tuple(shape) for name, shape in index["usual"].items()}
    inputs, outputs = _inputs_of(index), _outputs_of(index)
    metadata = None if index["metadata"] is None else partial(_metadata, file, index["metadata"])
    network = None if index["network"] is None else _network(file, index["network"])

    def build(shapes: Shapes, values: Values) -> Network:
        if network is None:
            return _network_of_variant(file, index, shapes, values)
        return with_values(bound(network, shapes) if shapes else network, values)

    return Template(str(index["name"]), inputs, outputs, build, usual_sizes, signatures, metadata)


def _network(file: SavedFile, number: Any) -> Network:
    with inferences_remembered():
        graph = GraphReader(file.data, None, file.path).graph(file.facts(number, "graph"))
    return Network(graph=graph)


def _network_of_variant(file: SavedFile, index: Mapping[str, Any], shapes: Shapes, values: Values) -> Network:
    """Return the network for some shapes and values of a file that has a network for each variant only."""
    if values.keys() < set(index["needed"]):
        missing_names = tuple(name for name in index["needed"] if name not in values)
        raise UnboundInputError({}, missing_names, path=file.path)
    fingerprints = {name: fingerprint(values[name]) for name in index["needed"]}
    for variant in file.variants(index):
        fits = all(TensorShape(shape) == shapes[name] for name, shape in variant.shapes.items() if name in shapes)
        if fits and dict(variant.values) == fingerprints and variant.network is not None:
            return _network(file, variant.network)
    known_variants = "; ".join(
        ", ".join(f"{name} {shape}" for name, shape in saved_variant.shapes.items())
        for saved_variant in file.variants(index)
    )
    raise InvalidArgumentError(
        f"the saved network has no variant for these shapes and values (it has: {known_variants})"
    )


def _metadata(file: SavedFile, number: int) -> Metadata:
    return Metadata(*file.metadata(number))


def _inputs_of(index: Mapping[str, Any]) -> dict[str, TensorInfo]:
    return {str(name): info_from_plain(info) for name, info in index["inputs"]}


def _outputs_of(index: Mapping[str, Any]) -> dict[str, TensorInfo | None]:
    return {str(name): info and info_from_plain(info) for name, info in index["outputs"]}


# --- the choice of a variant ------------------------------------------------------------------------------------------


class Target:
    """The variants of a file for the same backends, options and plan, of which one per set of shapes fits best."""

    def __init__(self, file: SavedFile, variants: Sequence[Variant], registry: BackendRegistry) -> None:
        self.file, self.variants, self._registry = file, tuple(variants), registry
        first = variants[0]
        self.preferences = first.preferences
        self.options = _options(file, first.options)
        self.plan = None if first.plan is None else Plan.from_json(first.plan, "the plan of the saved network")

    @cached_property
    def differences(self) -> tuple[str, ...]:
        """Sentences about why the compiled network cannot be used here as it is; empty if it can."""
        return tuple(_differences(self.variants[0], self._registry))

    @cached_property
    def score(self) -> int:
        """How little fits: 0 if everything does, 1 if parts must be compiled again, 2 if a backend is missing."""
        if self.differences:
            return 2
        return min(int(bool(_stale(variant, self._registry))) for variant in self.variants)

    def fits(self, backends: Iterable[str] | None, options: OptimizerOptions | None, plan: Plan | None) -> bool:
        """Return True if the arguments of a call of `load` do not contradict the target."""
        ids = None if backends is None else tuple(backends)
        return (
            (ids is None or ids == self.preferences)
            and (options is None or options == self.options)
            and (plan is None or plan == self.plan)
        )


def _options(file: SavedFile, plain: Any) -> OptimizerOptions | None:
    try:
        return None if plain is None else OptimizerOptions(**plain)
    except (TypeError, InterposerError) as error:
        raise ParseError(f"the options in the file are damaged: {error}", path=file.path) from error


def _differences(variant: Variant, registry: BackendRegistry) -> Iterator[str]:
    """Yield a sentence for each reason why a variant must be optimized again as a whole."""
    if variant.interposer != __version__:
        yield f"it was saved by interposer {variant.interposer}, and this is {__version__}"
    for name, origin in variant.backends.items():
        absence = registry.reason_absent(name) if registry.is_registered(name) else "it is not registered"
        if absence is not None:
            yield f"backend {name!r} is not available here: {absence}"
        elif list(registry.get(name).handle_factory_preferences) != origin["memory"]:
            yield f"backend {name!r} has its tensors in other memory here"


def _stale(variant: Variant, registry: BackendRegistry) -> list[str]:
    """Return a sentence for each backend whose compiled parts in the file do not fit this machine."""
    return [text for name in variant.compiled if (text := _stale_of(variant, name, registry))]


def _stale_of(variant: Variant, name: str, registry: BackendRegistry) -> str:
    current_fingerprint, saved_fingerprint = (
        _fingerprint(variant, name, registry),
        variant.backends[name]["fingerprint"],
    )
    if current_fingerprint == saved_fingerprint:
        return ""
    count = variant.compiled[name]
    title = f"its {count} compiled parts" if count > 1 else "its compiled part"
    return f"backend {name!r} has compiled {title} again: {_compared(saved_fingerprint, current_fingerprint)}"


def _fingerprint(variant: Variant, name: str, registry: BackendRegistry) -> str:
    return fingerprint_of(registry.get(name), variant.model_options.get(name, {}))


def _compared(saved_fingerprint: str, current_fingerprint: str) -> str:
    """Return a text about what differs between two fingerprints, word by word if they have the same form."""
    saved_words, current_words = saved_fingerprint.split(), current_fingerprint.split()
    if not current_fingerprint:
        return "it takes no compiled parts here"
    if len(saved_words) != len(current_words):
        return f"the file is for {saved_fingerprint!r}, and this is {current_fingerprint!r}"
    changed_positions = [
        number for number, pair in enumerate(zip(saved_words, current_words, strict=True)) if pair[0] != pair[1]
    ]
    there_text, here_text = (_words(words, changed_positions) for words in (saved_words, current_words))
    return f"the file is for {there_text!r}, and this is {here_text!r}"


def _words(words: Sequence[str], positions: Sequence[int]) -> str:
    """Return the words at these positions; a version or a small number comes with the word before it."""
    shown_words = []
    for position in positions:
        follows_word = position > 0 and words[position][0].isdigit() and len(words[position]) < _LONGEST_NUMBER
        shown_words.append(" ".join(words[position - follows_word : position + 1]))
    return ", ".join(shown_words)


def target_of(
    file: SavedFile,
    registry: BackendRegistry,
    backends: Iterable[str] | None,
    options: OptimizerOptions | None,
    plan: Plan | None,
) -> Target | None:
    """Return the target of a file that fits the arguments of `load` and this machine best; None if none fits.

    The first target of the file is preferred among those that fit equally well.
    """
    groups: dict[str, list[Variant]] = {}
    with reading_facts(file.path):
        for variant in file.variants():
            groups.setdefault(variant.target, []).append(variant)
        targets = [Target(file, group, registry) for group in groups.values()]
        fitting_targets = [target for target in targets if target.fits(backends, options, plan)]
        return min(fitting_targets, key=lambda target: target.score, default=None)


# --- the blueprint ----------------------------------------------------------------------------------------------------


class _UnfitError(Exception):
    """Raised if a saved variant cannot be restored here; the text is the reason."""


class SavedBlueprint(LaterBlueprint):
    """A blueprint of a saved network, whose variants are restored on demand, and optimized again if they do not fit.

    `notes` says what is different from when the network was saved.
    """

    def __init__(self, target: Target, runtime: Runtime, limits: Limits) -> None:
        self._target, self._runtime, self._limits = target, runtime, limits
        index = target.file.index
        with reading_facts(target.file.path):
            self.name = str(index["name"])
            self.inputs, self.outputs = _inputs_of(index), _outputs_of(index)
            self.needed = tuple(map(str, index["needed"]))
            if not set(self.needed) <= self.inputs.keys():
                raise ValueError(f"it needs the values of {self.needed}, and its inputs are {list(self.inputs)}")
            self._keys = {variant: _key(variant, self.inputs) for variant in target.variants}
        self._shapes = {}
        self._restored: dict[Key, OptimizedNetwork | None] = {}
        self._notes: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about why the network was optimized again; empty if it was not."""
        return tuple(self._notes)

    def forked(self) -> SavedBlueprint:
        """Return a blueprint of the same network for another model; it restores the compiled parts once more."""
        return SavedBlueprint(self._target, self._runtime, self._limits)

    def _read(self) -> Blueprint:
        with reading_facts(self._target.file.path):
            return Blueprint(_template(self._target.file, self._target.file.index))

    def _forget(self) -> None:
        self._restored.clear()

    @property
    def usual_shapes(self) -> dict[str, TensorShape]:
        """The shapes, by name, that inputs with open dimensions have in the first variant."""
        first_shapes = self._target.variants[0].shapes
        return {name: TensorShape(first_shapes[name]) for name, info in self.inputs.items() if not info.is_concrete}

    def first(self) -> FirstVariant | None:
        """Return the first variant of the file as the one to prepare."""
        return self.known(self._keys[self._target.variants[0]])

    def known(self, key: Key) -> FirstVariant | None:
        """Return the variant of the file for these shapes and values, or None if it has none.

        Its optimized network is None if it does not fit this machine; `notes` then has the reasons.
        """
        variant = self._best(key)
        if variant is None:
            return None
        if key not in self._restored:
            self._restored[key] = self._optimized(variant)
        return FirstVariant(key, partial(self._network_for, key, variant), self._restored[key])

    def _best(self, key: Key) -> Variant | None:
        """Return the variant for these shapes and values whose compiled parts fit best."""
        registry = self._runtime.registry
        variants = [variant for variant in self._target.variants if self._keys[variant] == key]
        return min(variants, key=lambda variant: bool(_unfit(variant, registry)), default=None)

    def _network_for(self, key: Key, variant: Variant) -> Network:
        if variant.network is not None:
            return _network(self._target.file, variant.network)
        network = self._whole.network
        if network is None:
            raise ParseError("the file has no network for a variant", path=self._target.file.path)
        return bound(network, {name: tuple(map(int, sizes)) for name, sizes in variant.shapes.items()})

    def _optimized(self, variant: Variant) -> OptimizedNetwork | None:
        differences = list(_differences(variant, self._runtime.registry))
        try:
            if not differences:
                with reading_facts(self._target.file.path):
                    return _Restorer(self._target, variant, self._runtime.registry, self._limits).optimized()
        except _UnfitError as reason:
            differences = [str(reason)]
        self._notes += [f"the saved network was optimized again: {reason}" for reason in differences]
        return None


def _unfit(variant: Variant, registry: BackendRegistry) -> list[str]:
    return list(_differences(variant, registry)) or _stale(variant, registry)


def _key(variant: Variant, inputs: Mapping[str, TensorInfo]) -> Key:
    return Key(tuple(TensorShape(variant.shapes[name]) for name in inputs), tuple(variant.values))


# --- restoring --------------------------------------------------------------------------------------------------------


class _Restorer:
    """Creates the optimized network of a variant: its graph, its records, and its compiled parts."""

    def __init__(self, target: Target, variant: Variant, registry: BackendRegistry, limits: Limits) -> None:
        self._file, self._variant, self._registry, self._limits = target.file, variant, registry, limits
        self._options = target.options
        self._notes = _stale(variant, registry)
        self._stale = {name for name in variant.compiled if _stale_of(variant, name, registry)}

    @cached_property
    def _divided(self) -> Graph:
        reader = GraphReader(self._file.data, None, self._file.path)
        with inferences_remembered():
            return reader.graph(self._file.facts(self._variant.divided, "graph"))

    @cached_property
    def _graphs(self) -> dict[str, Graph]:
        return dict(named_graphs(self._divided))

    def optimized(self) -> OptimizedNetwork:
        """Return the optimized network.

        Raises:
            _UnfitError: a compiled part can neither be restored nor compiled again.
            ParseError: the file is damaged.
            LimitExceededError: the network needs more than the limits allow.
        """
        self._limits.check(self._divided)
        facts = self._variant.facts
        reader = GraphReader(self._file.data, self._restored, self._file.path)
        with inferences_remembered():
            graph = reader.graph(facts["graph"], placed=True)
        optimized = self._network(graph, facts)
        used_backends = {str(place.layer.backend) for place in places(graph) if place.layer.backend}
        if used_backends - optimized.backends.keys():
            raise ValueError(
                f"layers are placed on {sorted(used_backends)}, and the backends are {list(optimized.backends)}"
            )
        for note in self._notes:
            _log.warning("%s: %s", self._file.title, note)
        return optimized

    def _network(self, graph: Graph, facts: Mapping[str, Any]) -> OptimizedNetwork:
        ids = self._variant.preferences
        notes = tuple(Message("warning", note, passing=True) for note in self._notes)
        verdicts = {
            str(name): {layer: _texts(reasons) for layer, reasons in refusals.items()}
            for name, refusals in facts["verdicts"].items()
        }
        return OptimizedNetwork(
            graph=graph,
            preferences=ids,
            placements=tuple(map(_placement, facts["placements"])),
            refusals=tuple(map(_refusal, facts["refusals"])),
            messages=tuple(map(_message, facts["messages"])) + notes,
            crossings=tuple(map(_crossing, facts["crossings"])),
            absent=tuple(AbsentBackend(*_texts(absent_backend)) for absent_backend in facts["absent"]),
            backends={name: self._registry.get(name) for name in ids if self._is_here(name)},
            model_options=self._variant.model_options,
            ask=lambda name: verdicts.get(name, {}),
            divided=lambda: self._divided,
            import_enabled=bool(facts["import_enabled"]),
            export_enabled=bool(facts["export_enabled"]),
        )

    def _is_here(self, name: str) -> bool:
        return self._registry.is_registered(name) and self._registry.reason_absent(name) is None

    def _restored(self, plain: Mapping[str, Any], infos: Sequence[TensorInfo]) -> Any:
        name = str(plain["backend"])
        if name not in self._variant.backends:
            raise ValueError(f"a compiled part is of backend {name!r}, which the file does not name")
        view = self._view(plain)
        if [value.known for value in view.outputs] != list(infos):
            raise ValueError("a compiled part has other outputs than its layers")
        if plain["blob"] is not None and name not in self._stale:
            try:
                return self._imported(name, plain["blob"], view)
            except ParseError:
                raise
            except Exception as error:
                self._note_once(f"backend {name!r} has compiled a part again, as it could not restore it: {error}")
        return self._compiled(name, view)

    def _note_once(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def _view(self, plain: Mapping[str, Any]) -> SubgraphView:
        graph = self._graphs.get(plain["graph"])
        view = None if graph is None or plain["layers"] is None else part_view(graph, list(plain["layers"]))
        if view is None:
            raise _UnfitError(f"backend {plain['backend']!r} compiled layers of which the file has no copy")
        return view

    def _imported(self, name: str, blob: Mapping[str, Any], view: SubgraphView) -> Any:
        pieces = [self._file.data(section).data for section in blob["pieces"]]
        backend = self._registry.get(name)
        return backend.import_compiled(SavedPart(pieces, str(blob["digest"])), view, self._options_of(name))

    def _options_of(self, name: str) -> Mapping[str, Any]:
        return self._variant.model_options.get(name, {})

    def _compiled(self, name: str, view: SubgraphView) -> Any:
        """Return the object of the layer that replaces the layers of `view`, which the backend compiles again."""
        try:
            answer = self._registry.get(name).optimize_subgraph(view, self._options_of(name))
        except Exception as error:
            raise _UnfitError(f"backend {name!r} cannot compile a part of it: {error}") from error
        if answer.failed:
            raise _UnfitError(f"backend {name!r} cannot compile a part of it: {answer.failed[0].reason}")
        parts = answer.substitutions
        op = parts[0].replacement if len(parts) == 1 else None
        is_whole_view = op is not None and parts[0].part.layers == view.layers and parts[0].entering == view.inputs
        if not isinstance(op, PreCompiled) or not is_whole_view or op.num_outputs != len(view.outputs):
            raise _UnfitError(f"backend {name!r} divides a part of it otherwise")
        return op.object


def _texts(texts: Any) -> tuple[str, ...]:
    """Return a list of texts as a tuple; raise TypeError for anything else."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{texts!r} is no list of texts")
    return tuple(texts)


def _members(plain: Mapping[str, Any], *names: str) -> dict[str, str]:
    """Return the members of JSON data that must be texts, by name."""
    return dict(zip(names, _texts([plain[name] for name in names]), strict=True))


def _placement(plain: Mapping[str, Any]) -> Placement:
    members = _members(plain, "layer", "kind", "backend", "runs_in", "source")
    return Placement(**members, replaced=_texts(plain["replaced"]))


def _refusal(plain: Mapping[str, Any]) -> Refusal:
    return Refusal(**_members(plain, "layer", "kind", "backend", "stage"), reasons=_texts(plain["reasons"]))


def _message(plain: Mapping[str, Any]) -> Message:
    level, text = _texts([plain["level"], plain["text"]])
    return Message(level, text, tuple(map(_refusal, plain["refusals"])))


def _crossing(plain: Mapping[str, Any]) -> Crossing:
    source, target = _texts(plain["memory"])
    members = _members(plain, "layer", "value", "source", "target", "how")
    return Crossing(**members, info=info_from_plain(plain["info"]), memory=(source, target))
