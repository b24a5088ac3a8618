"""Writing of saved networks: the documents of a network and of its variants, and files that combine several others."""

from __future__ import annotations

import base64
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from os import PathLike
from typing import Any, Final, Protocol

import numpy as np

from interposer._version import __version__
from interposer.core.codec import info_to_plain
from interposer.core.config import thread_budget
from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.core.files import replacing
from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ir.regions import named_graphs, places
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import PreCompiled
from interposer.saved.container import Container, SectionWriter
from interposer.saved.graphs import ArrayWriter, graph_to_plain
from interposer.saved.signing import facts_of, signed

__all__ = [
    "Divided",
    "NetworkToSave",
    "Path",
    "VariantToSave",
    "combine",
    "fingerprint_of",
    "part_view",
    "save_optimized",
    "unplaced",
    "write",
]

Path = str | PathLike[str]
_COMBINED: Final = ("inputs", "outputs", "name", "needed")
"""The members of the index that files must have in common to be combined."""


class Divided(Protocol):
    """What is saved of an `OptimizedNetwork`."""

    @property
    def graph(self) -> Graph:
        """The layers as they will run."""

    @property
    def preferences(self) -> Sequence[str]:
        """The ids of the backends in order of preference."""

    @property
    def placements(self) -> Sequence[Any]:
        """The backends of the layers before the backends replaced them."""

    @property
    def refusals(self) -> Sequence[Any]:
        """The refusals of the backends."""

    @property
    def messages(self) -> Sequence[Any]:
        """The messages of the optimizer."""

    @property
    def crossings(self) -> Sequence[Any]:
        """The tensors that pass between backends."""

    @property
    def absent(self) -> Sequence[Any]:
        """The requested backends that were not available."""

    @property
    def backends(self) -> Mapping[str, Any]:
        """The backends by id."""

    @property
    def model_options(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of the backends by id."""

    @property
    def ask(self) -> Callable[[str], Mapping[str, Sequence[str]]]:
        """The function that returns the reasons of a backend against each layer."""

    @property
    def divided(self) -> Callable[[], Graph]:
        """The function that returns the graph before backends replaced parts of it."""

    @property
    def import_enabled(self) -> bool:
        """False if tensors of others are never used in place."""

    @property
    def export_enabled(self) -> bool:
        """False if outputs are never computed in arrays of the caller."""


@dataclass(frozen=True)
class VariantToSave:
    """One variant of a network: it is optimized for these shapes of the inputs, by name, and for some backends.

    `values` has the names and the fingerprints of inputs whose values decide which layers the network has. `options`
    are those of the optimizer, and `plan` is the placement, both as JSON-compatible data. `source` is the network of
    the variant, if there is none for all of them.
    """

    optimized: Divided
    shapes: Mapping[str, Sequence[int]]
    values: Sequence[tuple[str, Any]] = ()
    options: Mapping[str, Any] | None = None
    plan: str | None = None
    source: Graph | None = None


@dataclass(frozen=True)
class NetworkToSave:
    """What a file has for all variants: names, inputs, outputs, and the network before it is optimized, if known.

    `usual` has the usual shapes of inputs with open dimensions. `needed` names the inputs whose values decide which
    layers the network has. `metadata` has the description, the entries and the files of the model file.
    `signature_networks` has the networks that the model's signatures call, by the keys of the signatures.
    """

    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo | None]
    graph: Graph | None
    variants: Sequence[VariantToSave]
    needed: Sequence[str] = ()
    usual: Mapping[str, Sequence[int | str | None]] = field(default_factory=dict)
    metadata: tuple[str, Mapping[str, bytes], Mapping[str, bytes]] | None = None
    signature_networks: Mapping[str, NetworkToSave] = field(default_factory=dict)


def save_optimized(path: Path, optimized: Divided, sign_key: Path | None = None, sign_as: str | None = None) -> None:
    """Save an optimized network. The file has the network as the rewrites of the optimizer left it.

    Raises:
        FileWriteError: the file cannot be written; an existing file is unchanged.
        UnwritableError: a layer cannot be saved.
    """
    graph = unplaced(optimized.divided())
    inputs = {layer.name: layer.output.known.with_constant(None) for layer in graph.inputs}
    outputs = {layer.name: layer.values[0].known.with_constant(None) for layer in graph.outputs}
    open_inputs = [name for name, info in inputs.items() if not info.is_concrete]
    if open_inputs:
        raise InvalidArgumentError(
            f"the shape of input {open_inputs[0]!r} is not known, so that the network cannot be loaded; "
            "save the model instead, or give the network shapes before it is optimized"
        )
    shapes = {name: list(map(int, info.shape)) for name, info in inputs.items()}
    variant = VariantToSave(optimized, shapes, options=_options_of(optimized))
    write(path, NetworkToSave(graph.name, inputs, outputs, graph, [variant]), sign_key, sign_as)


def _options_of(optimized: Divided) -> dict[str, Any]:
    """Return the options of the optimizer that an optimized network knows."""
    return {
        "model_options": {name: dict(options) for name, options in optimized.model_options.items()},
        "import_enabled": optimized.import_enabled,
        "export_enabled": optimized.export_enabled,
    }


def unplaced(graph: Graph) -> Graph:
    """Return a copy of a graph whose layers have no backends."""
    copy = graph.clone()
    for place in places(copy):
        place.layer.backend = None
    return copy


def write(path: Path, network: NetworkToSave, sign_key: Path | None = None, sign_as: str | None = None) -> None:
    """Write a file, which replaces an existing one when it is complete.

    `sign_key` is the file of a private key, and `sign_as` the name, or the name and the version, that it signs for.

    Raises:
        FileWriteError: the file cannot be written; an existing file is unchanged.
        InvalidArgumentError: the key cannot be read, or options cannot be saved.
        UnwritableError: a layer cannot be saved.
    """
    sign, signed_as = signed(sign_key), facts_of(sign_as, sign_key)
    with replacing(path) as file:
        writer = SectionWriter(file)
        header = writer.finish(_Writer(writer).network(network) | signed_as)
        writer.sign(sign(header))


class _Writer:
    """Writes networks and variants as JSON sections of one saved file."""

    def __init__(self, sections: SectionWriter) -> None:
        self._sections, self._arrays = sections, ArrayWriter(sections)

    def network(self, network: NetworkToSave) -> dict[str, Any]:
        """Write a network and its variants; return the facts for the index."""
        return {
            "interposer": __version__,
            "name": network.name,
            "inputs": [[name, info_to_plain(info)] for name, info in network.inputs.items()],
            "outputs": [[name, info and info_to_plain(info)] for name, info in network.outputs.items()],
            "needed": list(network.needed),
            "usual": {name: list(shape) for name, shape in network.usual.items()},
            "network": self._graph(network.graph),
            "metadata": None if network.metadata is None else self._metadata(*network.metadata),
            "signatures": {
                key: self.network(signature_network) for key, signature_network in network.signature_networks.items()
            },
            "variants": [self._variant(variant) for variant in network.variants],
        }

    def _graph(self, graph: Graph | None) -> int | None:
        return None if graph is None else self._sections.facts("graph", graph_to_plain(graph, self._arrays))

    def _metadata(self, description: str, entries: Mapping[str, bytes], files: Mapping[str, bytes]) -> int:
        encoded_metadata = {
            key: {name: {"bytes": base64.b64encode(content).decode("ascii")} for name, content in contents.items()}
            for key, contents in (("entries", entries), ("files", files))
        }
        return self._sections.facts("metadata", {"description": description, **encoded_metadata})

    def _variant(self, variant: VariantToSave) -> dict[str, Any]:
        optimized = variant.optimized
        divided_graph = optimized.divided()
        parts = _Parts(optimized, divided_graph, self._arrays)
        graph = graph_to_plain(optimized.graph, self._arrays, parts.describe)
        layers_by_backend = Counter(placement.backend for placement in optimized.placements)
        facts = {
            "graph": graph,
            "placements": [record.to_dict() for record in optimized.placements],
            "refusals": [record.to_dict() for record in optimized.refusals],
            "messages": [_message(record) for record in optimized.messages if not record.passing],
            "crossings": [_crossing(record) for record in optimized.crossings],
            "absent": [[record.id, record.reason] for record in optimized.absent],
            "verdicts": _verdicts(optimized),
            "import_enabled": optimized.import_enabled,
            "export_enabled": optimized.export_enabled,
        }
        return {
            "section": self._sections.facts("variant", facts),
            "divided": self._graph(divided_graph),
            "network": self._graph(variant.source),
            "shapes": {name: list(shape) for name, shape in variant.shapes.items()},
            "values": [[name, _fingerprint(value)] for name, value in variant.values],
            "preferences": list(optimized.preferences),
            "options": _plain_options(variant.options),
            "plan": variant.plan,
            "layers": {name: layers_by_backend[name] for name in optimized.preferences},
            "backends": {name: _origin(optimized, name) for name in sorted(_used(optimized))},
            "interposer": __version__,
            "machine": platform.machine(),
            "threads": thread_budget(),
            "parts": parts.summary(),
        }


def _used(optimized: Divided) -> set[str]:
    """Return the ids of the backends that run a layer."""
    return {str(place.layer.backend) for place in places(optimized.graph) if place.layer.backend}


def _origin(optimized: Divided, name: str) -> dict[str, Any]:
    backend = optimized.backends[name]
    return {
        "version": str(backend.version),
        "fingerprint": fingerprint_of(backend, optimized.model_options.get(name, {})),
        "memory": list(map(str, backend.handle_factory_preferences)),
    }


def fingerprint_of(backend: Any, options: Mapping[str, Any]) -> str:
    """Return what a backend says about this machine and its options; empty if it fails, or exports nothing."""
    try:
        fingerprint = backend.fingerprint(options)
    except Exception:  # a backend that fails here exports nothing, and its parts are compiled again
        return ""
    return fingerprint if isinstance(fingerprint, str) else ""


def _verdicts(optimized: Divided) -> dict[str, dict[str, list[str]]]:
    """Return the reasons of each backend against the layers that it does not run."""
    runs = {placement.layer: placement.backend for placement in optimized.placements}
    return {
        name: {layer: list(reasons) for layer, reasons in optimized.ask(name).items() if runs.get(layer) != name}
        for name in optimized.preferences
    }


def _message(message: Any) -> dict[str, Any]:
    return {
        "level": message.level,
        "text": message.text,
        "refusals": [refusal.to_dict() for refusal in message.refusals],
    }


def _crossing(crossing: Any) -> dict[str, Any]:
    return {
        "layer": crossing.layer, "value": crossing.value, "source": crossing.source, "target": crossing.target,
        "info": info_to_plain(crossing.info), "how": crossing.how, "memory": list(crossing.memory),
    }  # fmt: skip


def _fingerprint(value: Any) -> Any:
    """Return the fingerprint of an input's value as JSON-compatible data: bytes, or nested tuples of texts."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return [_fingerprint(element) for element in value] if isinstance(value, tuple) else value


def _plain_options(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    for backend, backend_options in (options or {}).get("model_options", {}).items():
        for name, value in backend_options.items():
            if not isinstance(value, bool | int | float | str | type(None)):
                raise InvalidArgumentError(
                    f"option {name!r} of backend {backend} cannot be saved: it is {type(value).__name__}; expected a "
                    "number, a text or a boolean"
                )
    return options


class _Parts:
    """Describes the compiled parts of a network: the layers that they stand for, and their compiled form."""

    def __init__(self, optimized: Divided, divided_graph: Graph, arrays: ArrayWriter) -> None:
        self._optimized, self._arrays = optimized, arrays
        self._divided_graphs = dict(named_graphs(divided_graph))
        self._prefixes = {layer: prefix for prefix, graph in named_graphs(optimized.graph) for layer in graph}
        self._counts_of_backend: dict[str, list[int]] = {}

    def describe(self, layer: Layer) -> dict[str, Any]:
        """Return the JSON-compatible data for a compiled layer."""
        prefix = self._prefixes[layer]
        backend = str(layer.backend)
        view = self._view(layer, prefix)
        count = self._counts_of_backend.setdefault(backend, [0, 0, 0])
        blob = self._blob(layer, backend) if view is not None else None
        count[0] += 1
        count[1] += blob is not None
        count[2] += sum(piece[2] for piece in blob["pieces"]) if blob else 0
        return {
            "backend": backend,
            "graph": prefix,
            "layers": None if view is None else [part_layer.name for part_layer in view.layers],
            "blob": blob,
        }

    def _view(self, layer: Layer, prefix: str) -> SubgraphView | None:
        """Return the layers that a compiled layer stands for; None if the divided graph lacks one of them."""
        graph = self._divided_graphs.get(prefix)
        return None if graph is None else part_view(graph, layer.replaced, layer)

    def _blob(self, layer: Layer, backend: str) -> dict[str, Any] | None:
        """Return the place of the compiled form of a layer, or None if its backend does not offer it."""
        options = self._optimized.model_options.get(backend, {})
        if not fingerprint_of(self._optimized.backends[backend], options):
            return None
        assert isinstance(layer.op, PreCompiled)
        try:
            saved_pieces = self._optimized.backends[backend].export_compiled(layer.op.object, options)
        except InterposerError:
            return None
        if saved_pieces is None:
            return None
        pieces = [self._arrays.ref(np.frombuffer(piece, np.uint8)) for piece in saved_pieces.pieces]
        return {"pieces": pieces, "digest": saved_pieces.digest}

    def summary(self) -> dict[str, dict[str, int]]:
        """Return by backend how many parts it has compiled, how many of them are in the file, and their bytes."""
        names = ("parts", "compiled", "bytes")
        return {
            backend: dict(zip(names, count, strict=True)) for backend, count in sorted(self._counts_of_backend.items())
        }


def part_view(graph: Graph, names: Iterable[str], unit: Layer | None = None) -> SubgraphView | None:
    """Return the view of the layers with these names, in their order; None if it does not fit the compiled layer.

    Borders of equal layers in equal order are equal, so that the view has the inputs and outputs of `unit` in order.
    """
    layers = {layer.name: layer for layer in graph}
    if not all(name in layers for name in names):
        return None
    order = [layers[name] for name in names]
    view = SubgraphView(graph, order, order)
    if len(view.layers) != len(order):
        return None
    return view if unit is None or _fits(view, unit) else None


def _fits(view: SubgraphView, unit: Layer) -> bool:
    inputs, outputs = [value.info for value in view.inputs], [value.info for value in view.outputs]
    return inputs == [value.info for value in unit.values] and outputs == [value.info for value in unit.outputs]


# --- several files as one ---------------------------------------------------------------------------------------------


def combine(path: Path, sources: Sequence[Container], sign_key: Path | None = None, sign_as: str | None = None) -> None:
    """Write one file that has the variants of several files of the same network, in their order.

    It is signed as by `write`.

    Raises:
        InvalidArgumentError: the files are of different networks.
        ParseError: a file is damaged.
        FileWriteError: the file cannot be written; an existing file is unchanged.
    """
    first = sources[0].index
    for source in sources[1:]:
        if any(source.index[name] != first[name] for name in _COMBINED):
            raise InvalidArgumentError(f"{source.path} and {sources[0].path} are of different networks")
    sign, signed_as = signed(sign_key), facts_of(sign_as, sign_key)
    with replacing(path) as file:
        writer = SectionWriter(file)
        copiers = [_Copier(source, writer) for source in sources]
        facts = copiers[0].network(first) | signed_as
        for copier, source in zip(copiers[1:], sources[1:], strict=True):
            facts["variants"] += [copier.variant(variant_facts) for variant_facts in source.index["variants"]]
        writer.sign(sign(writer.finish(facts)))


class _Copier:
    """Copies the documents of one file to another."""

    def __init__(self, source: Container, target: SectionWriter) -> None:
        self._source, self._target = source, target

    def network(self, index: Mapping[str, Any]) -> dict[str, Any]:
        """Copy a network with its variants, and return its facts for the index."""
        facts = {name: fact for name, fact in index.items() if name != "sections"}
        return facts | {
            "network": self._section(index["network"], "graph"),
            "metadata": self._section(index["metadata"], "metadata"),
            "signatures": {key: self.network(fact) for key, fact in index["signatures"].items()},
            "variants": [self.variant(fact) for fact in index["variants"]],
        }

    def variant(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Copy a variant, and return its facts for the index."""
        return dict(facts) | {
            "section": self._section(facts["section"], "variant"),
            "divided": self._section(facts["divided"], "graph"),
            "network": self._section(facts["network"], "graph"),
        }

    def _section(self, number: int | None, kind: str) -> int | None:
        if number is None:
            return None
        return self._target.facts(kind, self._relocated(self._source.facts(number, kind)))

    def _relocated(self, plain: Any) -> Any:
        """Return JSON data with the places of data in the new file."""
        if isinstance(plain, list):
            return [self._relocated(element) for element in plain]
        if not isinstance(plain, dict):
            return plain
        return {key: self._item(key, element) for key, element in plain.items()}

    def _item(self, key: str, content: Any) -> Any:
        if key == "array" and isinstance(content, list) and content[0] != "string":
            return [content[0], content[1], self._copied_ref(content[2])]
        if key == "pieces":
            return list(map(self._copied_ref, content))
        return self._relocated(content)

    def _copied_ref(self, ref: Any) -> Any:
        return self._target.data(self._source.data(ref).data)
