"""The cache of optimized networks on disk, which lets a second `load` skip reading and dividing the network.

The cache has networks that a single backend has compiled completely, in the form in which the backend saves its parts
(`Backend.save_compiled`). A plug-in in a shared object saves the tables that it reads, and compiles them again or
restores its own cached result (`plugins.capi.caching.part_cache`). The model file is read only when its layers are
requested.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from interposer._version import __version__
from interposer.backend import DEFAULT_FACTORY, Backend, SavedPart
from interposer.core.cache import (
    LATER,
    Piece,
    Record,
    cache_folder,
    later,
    make_room,
    mapped_cached,
    own_names,
    read_record,
    write_cached,
)
from interposer.core.codec import array_from_plain, array_to_plain
from interposer.core.errors import InterposerError, LimitExceededError, LoadError
from interposer.core.schema import Op
from interposer.core.types import Dim, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output, PreCompiled
from interposer.optimizer import OptimizerOptions
from interposer.plugins.capi.caching.recording import Recording, recording
from interposer.plugins.registry import BackendRegistry
from interposer.report.estimate import Estimate
from interposer.report.optimized import OptimizedNetwork
from interposer.report.records import Placement
from interposer.session.limits import Limits
from interposer.session.model import Model
from interposer.session.model_file import ModelFile
from interposer.session.placement.origin import identity_of
from interposer.session.variants import Blueprint, KnownBlueprint

__all__ = ["FOLDER", "NAMES", "Entry", "Keeper", "read_entry"]

_log = logging.getLogger("interposer.session")
FOLDER: Final = "networks"
"""The name of the folder inside the cache folder."""
NAMES: Final = own_names("[0-9a-f]{32}")
"""The pattern of the file names that this module writes."""
MAGIC: Final = b"interposer network 7\n"
MOST_BYTES: Final = 1 << 31
"""The largest model file that is cached, in bytes."""
MOST_CACHED: Final = 1 << 32
"""The limit on the bytes of all cached files together; the oldest files are deleted first."""


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
        name = self.origin["backends"][0]
        absent = registry.reason_absent(name) if registry.is_registered(name) else "it is not registered"
        if absent is not None:
            return f"backend {name!r} is not available: {absent}"
        if self.origin["interposer"] != __version__:
            return f"it was made by version {self.origin['interposer']} of interposer; this is {__version__}"
        if self.origin["code"] != _code():
            return "the package has changed since"
        if self.origin["backend"] != identity_of(registry.get(name)):
            return f"backend {name!r} has changed since"
        return None

    def content(self) -> list[Piece]:
        """Return the content of the cache file, in pieces to write one after the other.

        These are the facts as JSON, then what the backend has saved.
        """
        parts = [(len(part.pieces), part.digest) for part in self.parts]
        facts = {"made": self.origin, "network": self.network, "parts": parts}
        return Record(facts, [piece for part in self.parts for piece in part.pieces]).content(MAGIC)


def read_entry(content: bytes | memoryview) -> Entry:
    """Return the entry that the content of a cache file describes.

    Raises ValueError if the content is damaged or not an entry.
    """
    facts, pieces = read_record(content, MAGIC)
    rest = iter(pieces)
    parts = tuple(SavedPart(tuple(islice(rest, count)), digest) for count, digest in facts["parts"])
    return Entry(facts["made"], facts["network"], parts)


class _NotCachedError(Exception):
    """Raised if a network cannot be cached; the text is the reason."""


class Keeper:
    """Finds, reads and writes the file of the network cache that belongs to one model file, backend and options."""

    @classmethod
    def of(
        cls,
        source: object,
        format: str | None,
        backends: Iterable[str] | None,
        options: OptimizerOptions | None,
        registry: BackendRegistry,
    ) -> Keeper | None:
        """Return the keeper for a call of `load` with these arguments, or None if such networks are not cached.

        Cached are networks of files that are completely run by one backend which can save what it compiled.
        """
        try:
            return cls._of(source, format, backends, options, registry)
        except _NotCachedError as reason:
            if isinstance(source, str | os.PathLike):
                _log.debug("%s is not stored in the network cache: %s", source, reason)
            return None

    @classmethod
    def _of(
        cls,
        source: object,
        format: str | None,
        backends: Iterable[str] | None,
        options: OptimizerOptions | None,
        registry: BackendRegistry,
        *,
        has_folder: bool = False,
    ) -> Keeper:
        if registry.isolates_any:
            raise _NotCachedError("backends run in processes of their own")
        if options is not None and options.debug:
            raise _NotCachedError("a debugging option of the optimizer is set")
        ids = registry.by_default() if backends is None else tuple(backends)
        absent = [name for name in ids if registry.reason_absent(name) is not None]
        if not ids or absent:
            raise _NotCachedError(f"backend {absent[0]!r} is not available" if absent else "there is no backend")
        backend = registry.get(ids[0])
        identity = identity_of(backend)
        if not identity:
            raise _NotCachedError(f"backend {ids[0]!r}, which is asked first, does not save what it compiles")
        options = options or OptimizerOptions()
        folder, own = _folder_and_options(backend, options.model_options.get(ids[0], {}))
        if not folder and not has_folder:
            raise _NotCachedError("there is no cache folder")
        file = ModelFile.read(source, MOST_BYTES, folder)
        if file is None:
            raise _NotCachedError(f"the file cannot be read, is empty, or has more than {MOST_BYTES:,} bytes")
        created = {
            "source": os.path.basename(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else "",
            "sha256": file.sha256, "format": format,
            "options": repr(_with(options, ids[0], own)),
            "backends": list(ids), "backend": identity, "interposer": __version__, "code": _code(),
        }  # fmt: skip
        return cls(created, file, backend, options, folder)

    def __init__(
        self, created: Mapping[str, Any], file: ModelFile, backend: Backend, options: OptimizerOptions, folder: str
    ) -> None:
        self._made, self._backend, self._options = created, backend, options
        self._file: ModelFile | None = file  # dropped as soon as possible, because it may be large
        self._folder = folder
        self._mapped = file.mapped
        self.name_of_source = str(created["source"])
        lasting = {name: created[name] for name in ("source", "sha256", "format", "options", "backends")}
        self.name = f"{FOLDER}/{hashlib.sha256(json.dumps(lasting).encode()).hexdigest()[:32]}"

    def check(self, source: object) -> None:
        """Raise `LoadError` if the content of the model file `source` has changed since the cache entry was read."""
        file = ModelFile.read(source, MOST_BYTES, self._folder)
        if file is None or file.sha256 != self._made["sha256"]:
            raise LoadError(f"the file {self.name_of_source!r} was changed or deleted; load the model again")

    def kept(
        self, read: Callable[[], Blueprint], registry: BackendRegistry, limits: Limits | None = None
    ) -> KnownBlueprint | None:
        """Return the network of the model file from the cache, or None if there is no usable cache file.

        `read` reads the model file itself; it is called when layers or other shapes are requested. `registry` has the
        backends.

        Raises:
            LimitExceededError: the network needs more than `limits` allow; None means the default limits.
        """
        content = mapped_cached(self.name, self._folder)
        if content is None:
            return None
        try:
            entry = read_entry(content)
            if entry.fault(registry) is not None:
                return None
            (limits or Limits()).check_needed(Estimate(**entry.network["needed"]))
            with recording(self.name_of_source, file=self._mapped):
                known = self._known(entry, read, registry)
        except LimitExceededError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, InterposerError):
            return None
        self._file = self._mapped = None
        return known

    def _known(self, entry: Entry, read: Callable[[], Blueprint], registry: BackendRegistry) -> KnownBlueprint:
        inputs = {name: _info(info) for name, info in entry.network["inputs"]}
        outputs = {name: None if info is None else _info(info) for name, info in entry.network["outputs"]}
        optimized = self._restored(entry, lambda: known.first().network(), registry)
        shapes = {layer.name: layer.output.known.shape for layer in optimized.inputs}
        if shapes.keys() != inputs.keys() or any(not inputs[name].shape.accepts(shapes[name]) for name in shapes):
            raise ValueError("its inputs do not fit")
        known = KnownBlueprint(optimized, inputs, outputs, read)
        return known

    def _restored(self, entry: Entry, network: Callable[[], Network], registry: BackendRegistry) -> OptimizedNetwork:
        facts = entry.network
        graph = Graph(facts["name"])
        values: list[Any] = []
        for fact in facts["layers"]:
            layer = graph.add(
                self._op(fact, entry), [values[at] for at in fact["inputs"]], name=fact["name"],
                outputs=list(map(_info, fact["outputs"])),
            )  # fmt: skip
            if infer_layer(layer):
                raise ValueError("its layers do not fit")
            layer.backend, layer.replaced = fact["backend"], tuple(fact["replaced"])
            for value in layer.outputs:
                value.factory = DEFAULT_FACTORY
            values += layer.outputs
        placements = tuple(Placement(**item | {"replaced": tuple(item["replaced"])}) for item in facts["placements"])
        ids = tuple(self._made["backends"])
        divided = _divided(network, ids, registry, self._options)
        return OptimizedNetwork(
            graph=graph, preferences=ids, placements=placements, refusals=(), messages=(), crossings=(), absent=(),
            backends={name: registry.get(name) for name in ids}, model_options=dict(self._options.model_options),
            ask=lambda backend: divided().ask(backend), divided=lambda: divided().divided(),
            import_enabled=self._options.import_enabled, export_enabled=self._options.export_enabled,
        )  # fmt: skip

    def _op(self, fact: Mapping[str, Any], entry: Entry) -> Op:
        if fact["kind"] != "PreCompiled":
            initial = None if fact["initial"] is None else array_from_plain(fact["initial"])
            state = fact["state"]
            return Input(fact["binding"], state, initial) if fact["kind"] == "Input" else Output(fact["binding"], state)
        options = self._options.model_options.get(self._backend.id, {})
        try:
            created = self._backend.restore_compiled(entry.parts[fact["part"]], options)
        except Exception as error:
            _log.info("backend %r cannot restore a part of %s: %s", self._backend.id, self.name_of_source, error)
            raise ValueError("a part cannot be restored") from error
        return PreCompiled(num_outputs=len(fact["outputs"]), object=created)

    def keeping(self, source: object, make: Callable[[], Model]) -> Model:
        """Create a model of the file `source` with `make`, store its first network in the cache, and return the model.

        Nothing is stored if the network cannot be cached. The same holds if the file was replaced or changed in the
        meantime, because the content of the model is then not certain. May be called once, after the cache lookup
        returned None.
        """
        file, self._file, self._mapped = self._file, None, None
        assert file is not None
        with self._recording(file) as recorded:
            model = make()
            if not file.is_still(source):
                return model
            for save in recorded.unsaved:
                save()
            try:
                entry = self._entry(model, file)
            except _NotCachedError as reason:
                _log.debug("%s is not stored in the network cache: %s", self.name_of_source or "a network", reason)
                return model
        if file.size > LATER:
            later(self.name, lambda: self._write(entry))
        else:
            self._write(entry)
        return model

    def _recording(self, file: ModelFile) -> AbstractContextManager[Recording]:
        identity = json.dumps({**self._made, "source": ""})
        return recording(self.name_of_source, whole=True, file=file.mapped, identity=identity)

    @classmethod
    def reason(cls, source: str, registry: BackendRegistry, make: Callable[[], Model]) -> str:
        """Return why a network would not be cached if its model file `source` was loaded now on the default backends.

        The text is empty if it would be cached. `make` loads the file; the model is closed afterwards, and nothing is
        stored.
        """
        try:
            keeper = cls._of(source, None, None, None, registry, has_folder=True)
            assert keeper._file is not None
            with keeper._recording(keeper._file), make() as model:
                keeper._entry(model, keeper._file)
        except _NotCachedError as reason:
            return str(reason)
        except InterposerError as error:
            return f"it cannot be loaded: {error}"
        return ""

    def _write(self, entry: Entry) -> None:
        content = entry.content()
        make_room(FOLDER, NAMES, MOST_CACHED, sum(map(len, content)), self._folder)
        write_cached(self.name, content, self._folder)

    def _entry(self, model: Model, file: ModelFile) -> Entry:
        if not file.is_by_itself():
            raise _NotCachedError("its weights are in separate files")
        estimate = model._loaded.estimate
        if not model.is_prepared or estimate is None:
            raise _NotCachedError("shapes or values of its inputs are open, and are known only when it is called")
        optimized = model.optimized
        if optimized.refusals or optimized.messages or optimized.crossings:
            raise _NotCachedError(f"backend {optimized.preferences[0]!r} does not run all of its layers")
        if not all(info is None or info.is_tensor for info in (*model.inputs.values(), *model.outputs.values())):
            raise _NotCachedError("some of its inputs or outputs are not tensors")
        parts: list[SavedPart] = []
        layers = []
        index: dict[Any, int] = {}
        for layer in optimized.graph.topological():
            if isinstance(layer.op, Constant):  # constants of compiled parts are saved with the parts
                continue
            fact = self._layer(layer, index, parts)
            if fact is None:
                raise _NotCachedError(f"layer {layer.name!r} is not a compiled part that its backend saves")
            layers.append(fact)
            for value in layer.outputs:
                index[value] = len(index)
        placements = [placement.to_dict() for placement in optimized.placements]
        network = {
            "name": optimized.name, "layers": layers, "placements": placements, "needed": asdict(estimate),
            "inputs": [(name, _plain(info)) for name, info in model.inputs.items()],
            "outputs": [(name, None if info is None else _plain(info)) for name, info in model.outputs.items()],
        }  # fmt: skip
        return Entry({**self._made, "time": time.time()}, network, tuple(parts))

    def _layer(self, layer: Layer, index: Mapping[Any, int], parts: list[SavedPart]) -> dict[str, Any] | None:
        plain = all(value.known.is_tensor and value.known.is_concrete for value in layer.outputs)
        if (
            not plain
            or any(value not in index for value in layer.values)
            or any(value.factory not in (None, DEFAULT_FACTORY) for value in layer.outputs)
        ):
            return None
        fact = {
            "kind": layer.kind, "name": layer.name, "backend": layer.backend, "replaced": layer.replaced,
            "inputs": [index[value] for value in layer.values],
            "outputs": [_plain(value.known) for value in layer.outputs],
        }  # fmt: skip
        if isinstance(layer.op, Input | Output):
            value = layer.op.initial if isinstance(layer.op, Input) else None
            initial = None if value is None else array_to_plain(value)
            return fact | {"binding": layer.op.binding_id, "state": layer.op.state, "initial": initial}
        saved = self._saved(layer.op.object) if isinstance(layer.op, PreCompiled) else None
        if saved is None:
            return None
        parts.append(saved)
        return fact | {"part": len(parts) - 1}

    def _saved(self, compiled: object) -> SavedPart | None:
        try:
            saved = self._backend.save_compiled(compiled)
        except Exception as error:
            raise _NotCachedError(f"backend {self._backend.id!r} cannot save what it compiled: {error}") from error
        if saved is None:
            return None
        if not isinstance(saved, SavedPart):
            reason = f"saved a part as {saved!r}; expected a SavedPart or None"
            raise _NotCachedError(f"backend {self._backend.id!r} {reason}")
        try:
            return SavedPart(tuple(map(_as_bytes, saved.pieces)), str(saved.digest or ""))
        except (TypeError, ValueError, BufferError) as error:
            reason = f"saved a part whose pieces are not contiguous bytes: {error}"
            raise _NotCachedError(f"backend {self._backend.id!r} {reason}") from error


def _as_bytes(piece: bytes | memoryview) -> bytes | memoryview:
    """Return a view of the bytes of an object with contiguous memory, without a copy.

    Raises TypeError for other objects.
    """
    view = memoryview(piece)
    return view.cast("B") if view.nbytes else b""


def _folder_and_options(backend: Backend, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the folder of the cache files of a network with these model options of its backend.

    Also returns the options without the one that names this folder, which are part of the key.
    """
    try:
        return str(cache_folder(backend.cache_directory(options)) or ""), backend.without_directory(options)
    except Exception as error:
        raise _NotCachedError(f"backend {backend.id!r} cannot say where its files are cached: {error}") from error


def _with(options: OptimizerOptions, backend: str, own: Mapping[str, Any]) -> OptimizerOptions:
    """Return the optimizer's options, with `own` in place of the model options for one backend."""
    others = {name: item for name, item in options.model_options.items() if name != backend}
    return replace(options, model_options={**others, **({backend: own} if own else {})})


def _plain(info: TensorInfo) -> list[Any]:
    """Return a tensor info as JSON values: its type, its shape (see `_plain_shape`) and its quantization."""
    item = info.quantization
    scales = None if item is None else [item.scales, item.zero_points, item.axis]
    return [str(info.dtype), _plain_shape(info.shape), scales]


def _plain_shape(shape: TensorShape) -> list[int | str | None] | None:
    """Return the sizes of the dimensions; an open dimension is its name or None, a shape of unknown rank is None."""
    return [item.name if isinstance(item, Dim) else item for item in shape] if shape.is_ranked else None


def _info(plain: list[Any]) -> TensorInfo:
    dtype, shape, scales = plain
    return TensorInfo(... if shape is None else shape, dtype, None if scales is None else Quantization(*scales))


def _divided(
    network: Callable[[], Network], ids: tuple[str, ...], registry: BackendRegistry, options: OptimizerOptions
) -> Callable[[], OptimizedNetwork]:
    """Return a function that divides a cached network among backends as if it was not cached, for explanations.

    `network` returns the network, and `ids` are the backends in order of preference. The result is cached.
    """

    @cache
    def divided() -> OptimizedNetwork:
        from interposer.optimizer import optimize  # noqa: PLC0415
        from interposer.plugins.device_spec import DeviceSpec  # noqa: PLC0415

        return optimize(network(), ids, DeviceSpec(registry), options)

    return divided


@cache
def _code() -> str:
    """Return a digest of the source files in a checkout, to detect changes without a new version; else empty."""
    root = Path(__file__).parents[1]
    if {"site-packages", "dist-packages"} & set(root.parts):
        return ""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted(files):
            result = os.stat(os.path.join(folder, name))
            digest.update(f"{name} {result.st_size} {result.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
