"""Entries of the network cache: an optimized network as JSON values and saved compiled parts, and back."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from interposer._version import __version__
from interposer.backend import DEFAULT_FACTORY, Backend, SavedPart
from interposer.core.cache import Piece, Record, read_record
from interposer.core.codec import array_from_plain, array_to_plain
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Dim, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output, PreCompiled
from interposer.optimizer import OptimizerOptions, optimize
from interposer.plugins.device_spec import DeviceSpec
from interposer.plugins.registry import BackendRegistry
from interposer.report.estimate import operations_of
from interposer.report.optimized import OptimizedNetwork
from interposer.report.records import Placement
from interposer.session.loaded import LoadedVariants
from interposer.session.placement.origin import identity_of
from interposer.session.variants import Blueprint, KnownBlueprint

__all__ = ["Entry", "EntryCodec", "NotCachedError", "package_digest", "read_entry"]

_log = logging.getLogger("interposer.session")
_MAGIC: Final = b"interposer network 7\n"


class NotCachedError(Exception):
    """Raised if a network cannot be cached; the text is the reason."""


@dataclass(frozen=True)
class Entry:
    """The content of one file of the network cache: an optimized network that a backend runs completely.

    `origin` has the versions and the options with which it was created, `network` the network as JSON values, and
    `parts` what the backend has compiled and saved.
    """

    origin: Mapping[str, Any]
    network: Mapping[str, Any]
    parts: tuple[SavedPart, ...]

    def fault(self, registry: BackendRegistry) -> str | None:
        """Return why the entry can no longer be used here, or None if it can.

        Possible reasons are that its backend is missing, or that the backend or this package has changed.
        """
        backend = self.origin["backends"][0]
        absence = registry.reason_absent(backend) if registry.is_registered(backend) else "it is not registered"
        if absence is not None:
            return f"backend {backend!r} is not available: {absence}"
        if self.origin["interposer"] != __version__:
            return f"it was made by version {self.origin['interposer']} of interposer; this is {__version__}"
        if self.origin["code"] != package_digest():
            return "the package has changed since"
        if self.origin["backend"] != identity_of(registry.get(backend)):
            return f"backend {backend!r} has changed since"
        return None

    def content(self) -> list[Piece]:
        """Return the content of the cache file, in pieces to write one after the other.

        These are the facts as JSON, then what the backend has saved.
        """
        parts = [(len(part.pieces), part.digest) for part in self.parts]
        facts = {"made": self.origin, "network": self.network, "parts": parts}
        return Record(facts, [piece for part in self.parts for piece in part.pieces]).content(_MAGIC)


def read_entry(content: bytes | memoryview) -> Entry:
    """Return the entry that the content of a cache file describes.

    Raises ValueError if the content is damaged or not an entry.
    """
    facts, pieces = read_record(content, _MAGIC)
    unread_pieces = iter(pieces)
    parts = tuple(SavedPart(tuple(islice(unread_pieces, count)), digest) for count, digest in facts["parts"])
    return Entry(facts["made"], facts["network"], parts)


class EntryCodec:
    """Makes entries of loaded networks, and networks of entries, which the backend `backend` runs completely.

    `ids` are the backends of the load in order of preference, the first of which is `backend`, and `options` are those
    of the optimizer.
    """

    def __init__(self, backend: Backend, ids: tuple[str, ...], options: OptimizerOptions) -> None:
        self._backend, self._ids, self._options = backend, ids, options

    def entry(self, variants: LoadedVariants, origin: Mapping[str, Any]) -> Entry:
        """Return the entry for the first network of a model; `origin` says how it was created.

        Raises:
            NotCachedError: the network cannot be cached; has the reason.
        """
        optimized, inputs, outputs = _cacheable(variants), variants.blueprint.inputs, variants.blueprint.outputs
        saved_parts: list[SavedPart] = []
        layers = []
        number_of_value: dict[Value, int] = {}
        for layer in optimized.graph.topological():
            if isinstance(layer.op, Constant):  # constants of compiled parts are saved with the parts
                continue
            facts = self._layer_facts(layer, number_of_value, saved_parts)
            if facts is None:
                raise NotCachedError(f"layer {layer.name!r} is not a compiled part that its backend saves")
            layers.append(facts)
            for value in layer.outputs:
                number_of_value[value] = len(number_of_value)
        placements = [placement.to_dict() for placement in optimized.placements]
        estimate = variants.estimate
        assert estimate is not None
        network = {
            "name": optimized.name, "layers": layers, "placements": placements, "needed": asdict(estimate),
            "operations": operations_of(optimized.divided()),
            "inputs": [(name, _plain(info)) for name, info in inputs.items()],
            "outputs": [(name, None if info is None else _plain(info)) for name, info in outputs.items()],
        }  # fmt: skip
        return Entry({**origin, "time": time.time()}, network, tuple(saved_parts))

    def _layer_facts(
        self, layer: Layer, number_of_value: Mapping[Value, int], parts: list[SavedPart]
    ) -> dict[str, Any] | None:
        """Return a layer as JSON values, and add its compiled part to `parts`; None if it cannot be saved."""
        is_plain = all(value.known.is_tensor and value.known.is_concrete for value in layer.outputs)
        if (
            not is_plain
            or any(value not in number_of_value for value in layer.values)
            or any(value.factory not in (None, DEFAULT_FACTORY) for value in layer.outputs)
        ):
            return None
        facts = {
            "kind": layer.kind, "name": layer.name, "backend": layer.backend, "replaced": layer.replaced,
            "inputs": [number_of_value[value] for value in layer.values],
            "outputs": [_plain(value.known) for value in layer.outputs],
        }  # fmt: skip
        if isinstance(layer.op, Input | Output):
            array = layer.op.initial if isinstance(layer.op, Input) else None
            plain_array = None if array is None else array_to_plain(array)
            return facts | {"binding": layer.op.binding_id, "state": layer.op.state, "initial": plain_array}
        part = self._saved(layer.op.object) if isinstance(layer.op, PreCompiled) else None
        if part is None:
            return None
        parts.append(part)
        return facts | {"part": len(parts) - 1}

    def _saved(self, compiled: object) -> SavedPart | None:
        backend = self._backend
        try:
            part = backend.save_compiled(compiled)
        except Exception as error:
            raise NotCachedError(f"backend {backend.id!r} cannot save what it compiled: {error}") from error
        if part is None:
            return None
        if not isinstance(part, SavedPart):
            raise NotCachedError(f"backend {backend.id!r} saved a part as {part!r}; expected a SavedPart or None")
        try:
            return SavedPart(tuple(map(_as_bytes, part.pieces)), str(part.digest or ""))
        except (TypeError, ValueError, BufferError) as error:
            reason = f"saved a part whose pieces are not contiguous bytes: {error}"
            raise NotCachedError(f"backend {backend.id!r} {reason}") from error

    def blueprint(self, entry: Entry, read: Callable[[], Blueprint], registry: BackendRegistry) -> KnownBlueprint:
        """Return the blueprint of an entry; `read` reads the model file when its layers are requested.

        Raises:
            InterposerError, ValueError, KeyError, TypeError, IndexError: the entry cannot be used.
        """
        inputs = {name: _info(plain) for name, plain in entry.network["inputs"]}
        outputs = {name: None if plain is None else _info(plain) for name, plain in entry.network["outputs"]}
        optimized = self._optimized(entry, lambda: blueprint.first().network(), registry)
        shapes = {layer.name: layer.output.known.shape for layer in optimized.inputs}
        if shapes.keys() != inputs.keys() or any(not inputs[name].shape.accepts(shapes[name]) for name in shapes):
            raise ValueError("its inputs do not fit")
        blueprint = KnownBlueprint(optimized, inputs, outputs, read)
        return blueprint

    def _optimized(self, entry: Entry, network: Callable[[], Network], registry: BackendRegistry) -> OptimizedNetwork:
        placements = tuple(
            Placement(**facts | {"replaced": tuple(facts["replaced"])}) for facts in entry.network["placements"]
        )
        options, graph = self._options, self._graph(entry)
        divided_graph = _divided(network, self._ids, registry, options)
        return OptimizedNetwork(
            graph=graph, preferences=self._ids, placements=placements, refusals=(), messages=(), crossings=(),
            absent=(), backends={name: registry.get(name) for name in self._ids},
            model_options=dict(options.model_options), ask=lambda backend: divided_graph().ask(backend),
            divided=lambda: divided_graph().divided(), import_enabled=options.import_enabled,
            export_enabled=options.export_enabled, known_operations=dict(entry.network["operations"]),
        )  # fmt: skip

    def _graph(self, entry: Entry) -> Graph:
        graph = Graph(entry.network["name"])
        values: list[Value] = []
        for facts in entry.network["layers"]:
            layer = graph.add(
                self._op(facts, entry), [values[number] for number in facts["inputs"]], name=facts["name"],
                outputs=list(map(_info, facts["outputs"])),
            )  # fmt: skip
            if infer_layer(layer):
                raise ValueError("its layers do not fit")
            layer.backend, layer.replaced = facts["backend"], tuple(facts["replaced"])
            for value in layer.outputs:
                value.factory = DEFAULT_FACTORY
            values += layer.outputs
        return graph

    def _op(self, facts: Mapping[str, Any], entry: Entry) -> Op:
        if facts["kind"] != "PreCompiled":
            initial_array = None if facts["initial"] is None else array_from_plain(facts["initial"])
            binding, state = facts["binding"], facts["state"]
            return Input(binding, state, initial_array) if facts["kind"] == "Input" else Output(binding, state)
        options = self._options.model_options.get(self._backend.id, {})
        try:
            compiled = self._backend.restore_compiled(entry.parts[facts["part"]], options)
        except Exception as error:
            source = entry.origin["source"]
            _log.info("backend %r cannot restore a part of %s: %s", self._backend.id, source, error)
            raise ValueError("a part cannot be restored") from error
        return PreCompiled(num_outputs=len(facts["outputs"]), object=compiled)


def _cacheable(variants: LoadedVariants) -> OptimizedNetwork:
    """Return the network that a model has loaded; raise `NotCachedError` if such a network is not cached."""
    if variants.current is None or variants.estimate is None:
        raise NotCachedError("shapes or values of its inputs are open, and are known only when it is called")
    optimized = variants.current.optimized
    if optimized.refusals or optimized.messages or optimized.crossings:
        raise NotCachedError(f"backend {optimized.preferences[0]!r} does not run all of its layers")
    inputs, outputs = variants.blueprint.inputs, variants.blueprint.outputs
    if not all(info is None or info.is_tensor for info in (*inputs.values(), *outputs.values())):
        raise NotCachedError("some of its inputs or outputs are not tensors")
    return optimized


def _as_bytes(piece: bytes | memoryview) -> bytes | memoryview:
    """Return a view of the bytes of an object with contiguous memory, without a copy.

    Raises TypeError for other objects.
    """
    view = memoryview(piece)
    return view.cast("B") if view.nbytes else b""


def _plain(info: TensorInfo) -> list[Any]:
    """Return a tensor info as JSON values: its type, its shape (see `_plain_shape`) and its quantization."""
    tensor_quantization = info.quantization
    quantization = (
        None
        if tensor_quantization is None
        else [tensor_quantization.scales, tensor_quantization.zero_points, tensor_quantization.axis]
    )
    return [str(info.dtype), _plain_shape(info.shape), quantization]


def _plain_shape(shape: TensorShape) -> list[int | str | None] | None:
    """Return the sizes of the dimensions; an open dimension is its name or None, a shape of unknown rank is None."""
    return [size.name if isinstance(size, Dim) else size for size in shape] if shape.is_ranked else None


def _info(plain: list[Any]) -> TensorInfo:
    dtype, shape, quantization = plain
    q = None if quantization is None else Quantization(*quantization)
    return TensorInfo(... if shape is None else shape, dtype, q)


def _divided(
    network: Callable[[], Network], ids: tuple[str, ...], registry: BackendRegistry, options: OptimizerOptions
) -> Callable[[], OptimizedNetwork]:
    """Return a function that divides a cached network among backends as if it was not cached, for explanations.

    `network` returns the network, and `ids` are the backends in order of preference. The result is cached.
    """

    @cache
    def divided() -> OptimizedNetwork:
        optimized = optimize(network(), ids, DeviceSpec(registry), options)
        optimized.free_after_last_use()
        return optimized

    return divided


@cache
def package_digest() -> str:
    """Return a digest of the source files in a checkout, to detect changes without a new version; else empty."""
    root = Path(__file__).parents[1]
    if {"site-packages", "dist-packages"} & set(root.parts):
        return ""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted(files):
            status = os.stat(os.path.join(folder, name))
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
