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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from interposer._version import __version__
from interposer.backend import Backend
from interposer.core.cache import LATER, cache_folder, later, make_room, mapped_cached, own_names, write_cached
from interposer.core.errors import InterposerError, LimitExceededError, LoadError
from interposer.optimizer import OptimizerOptions
from interposer.plugins.capi.caching.recording import Recording, recording
from interposer.report.estimate import Estimate
from interposer.runtime import Runtime, StateMemory
from interposer.session.fallback import Choice
from interposer.session.limits import Limits
from interposer.session.loaded import LoadedVariants
from interposer.session.model_file import ModelFile
from interposer.session.network_entry import Entry, EntryCodec, NotCachedError, package_digest, read_entry
from interposer.session.placement.origin import identity_of
from interposer.session.request import LoadRequest
from interposer.session.source import Reading, read_source
from interposer.session.variants import Blueprint, KnownBlueprint

__all__ = ["FOLDER", "NAMES", "Keeper"]

_log = logging.getLogger("interposer.session")
FOLDER: Final = "networks"
"""The name of the folder inside the cache folder."""
NAMES: Final = own_names("[0-9a-f]{32}")
"""The pattern of the file names that this module writes."""
_MOST_BYTES: Final = 1 << 31
"""The largest model file that is cached, in bytes."""
_MOST_CACHED: Final = 1 << 32
"""The limit on the bytes of all cached files together; the oldest files are deleted first."""


class Keeper:
    """Finds, reads and writes the file of the network cache that belongs to one model file, backend and options."""

    @classmethod
    def of(cls, request: LoadRequest) -> Keeper | None:
        """Return the keeper for a call of `load`, or None if such networks are not cached.

        Cached are networks of files that are completely run by one backend which can save what it compiled.
        """
        if not request.reading.is_plain or request.reading.trusted_keys is not None:  # signatures are not verified
            return None
        try:
            return cls._of(request)
        except NotCachedError as reason:
            if isinstance(request.source, str | os.PathLike):
                _log.debug("%s is not stored in the network cache: %s", request.source, reason)
            return None

    @classmethod
    def _of(cls, request: LoadRequest, *, needs_folder: bool = True) -> Keeper:
        registry, source = request.runtime.registry, request.source
        if registry.isolates_any:
            raise NotCachedError("backends run in processes of their own")
        if request.options is not None and request.options.debug:
            raise NotCachedError("a debugging option of the optimizer is set")
        ids = registry.by_default() if request.backends is None else request.backends
        absent_names = [name for name in request.backends or () if registry.reason_absent(name) is not None]
        if not ids or absent_names:
            raise NotCachedError(
                f"backend {absent_names[0]!r} is not available" if absent_names else "there is no backend"
            )
        backend = registry.get(ids[0])
        identity = identity_of(backend)
        if not identity:
            raise NotCachedError(f"backend {ids[0]!r}, which is asked first, does not save what it compiles")
        options = request.options or OptimizerOptions()
        folder, other_options = _folder_and_options(backend, options.model_options.get(ids[0], {}))
        if not folder and needs_folder:
            raise NotCachedError("there is no cache folder")
        file = ModelFile.read(source, _MOST_BYTES, folder)
        if file is None:
            raise NotCachedError(f"the file cannot be read, is empty, or has more than {_MOST_BYTES:,} bytes")
        origin = {
            "source": os.path.basename(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else "",
            "sha256": file.sha256, "format": request.reading.format,
            "options": repr(_with(options, ids[0], other_options)),
            "backends": list(ids), "backend": identity, "interposer": __version__, "code": package_digest(),
        }  # fmt: skip
        return cls(request.runtime, origin, file, EntryCodec(backend, ids, options), folder)

    def __init__(
        self, runtime: Runtime, origin: Mapping[str, Any], file: ModelFile, codec: EntryCodec, folder: str
    ) -> None:
        self._registry, self._origin, self._codec, self._folder = runtime.registry, origin, codec, folder
        self._file: ModelFile | None = file  # dropped as soon as possible, because it may be large
        self._source_name = str(origin["source"])
        lasting_facts = {name: origin[name] for name in ("source", "sha256", "format", "options", "backends")}
        self._name = f"{FOLDER}/{hashlib.sha256(json.dumps(lasting_facts).encode()).hexdigest()[:32]}"

    def check(self, source: object) -> None:
        """Raise `LoadError` if the content of the model file `source` has changed since the cache entry was read."""
        file = ModelFile.read(source, _MOST_BYTES, self._folder)
        if file is None or file.sha256 != self._origin["sha256"]:
            raise LoadError(f"the file {self._source_name!r} was changed or deleted; load the model again")

    def lookup(self, read: Callable[[], Blueprint], limits: Limits | None = None) -> KnownBlueprint | None:
        """Return the network of the model file from the cache, or None if there is no usable cache file.

        `read` reads the model file itself; it is called when layers or other shapes are requested.

        Raises:
            LimitExceededError: the network needs more than `limits` allow; None means the default limits.
        """
        content = mapped_cached(self._name, self._folder)
        if content is None or self._file is None:
            return None
        try:
            entry = read_entry(content)
            if entry.fault(self._registry) is not None:
                return None
            (limits or Limits()).check_needed(Estimate(**entry.network["needed"]))
            with recording(self._source_name, file=self._file.mapped):
                blueprint = self._codec.blueprint(entry, read, self._registry)
        except LimitExceededError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, InterposerError):
            return None
        self._file = None
        return blueprint

    @contextmanager
    def storing(self, source: object) -> Iterator[Callable[[LoadedVariants], None]]:
        """Record what backends compile while a model of the file `source` is created in a ``with`` block.

        The block gets a function that stores the first network of the model in the cache. Nothing is stored if the
        network cannot be cached. The same holds if the file was replaced or changed in the meantime, because the
        content of the model is then not certain. May be used once, after `lookup` returned None.
        """
        file, self._file = self._file, None
        assert file is not None
        with self._recording(file) as recording:
            yield lambda variants: self._store(variants, file, source, recording)

    def _store(self, variants: LoadedVariants, file: ModelFile, source: object, recording: Recording) -> None:
        if not file.is_still(source):
            return
        for save in recording.unsaved:
            save()
        try:
            entry = self._entry(variants, file)
        except NotCachedError as reason:
            _log.debug("%s is not stored in the network cache: %s", self._source_name or "a network", reason)
            return
        if file.size > LATER:
            later(self._name, lambda: self._write(entry))
        else:
            self._write(entry)

    def _recording(self, file: ModelFile) -> AbstractContextManager[Recording]:
        identity = json.dumps({**self._origin, "source": ""})
        return recording(self._source_name, whole=True, file=file.mapped, identity=identity)

    @classmethod
    def reason(cls, source: str, runtime: Runtime) -> str:
        """Return why a network would not be cached if its model file `source` was loaded now on the default backends.

        The text is empty if it would be cached. The network is loaded and unloaded again, and nothing is stored.
        """
        try:
            keeper = cls._of(LoadRequest(source, Reading(), runtime), needs_folder=False)
            assert keeper._file is not None
            with keeper._recording(keeper._file):
                blueprint, choice = Blueprint(read_source(source)), Choice(runtime, None, None, None)
                variants = LoadedVariants(blueprint, choice, Limits(), StateMemory())
                variants.prepare()
                try:
                    keeper._entry(variants, keeper._file)
                finally:
                    variants.close()
        except NotCachedError as reason:
            return str(reason)
        except InterposerError as error:
            return f"it cannot be loaded: {error}"
        return ""

    def _entry(self, variants: LoadedVariants, file: ModelFile) -> Entry:
        if not file.is_by_itself():
            raise NotCachedError("its weights are in separate files")
        return self._codec.entry(variants, self._origin)

    def _write(self, entry: Entry) -> None:
        content = entry.content()
        make_room(FOLDER, NAMES, _MOST_CACHED, sum(map(len, content)), self._folder)
        write_cached(self._name, content, self._folder)


def _folder_and_options(backend: Backend, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the folder of the cache files of a network with these model options of its backend.

    Also returns the options without the one that names this folder, which are part of the key.
    """
    try:
        return str(cache_folder(backend.cache_directory(options)) or ""), backend.without_directory(options)
    except Exception as error:
        raise NotCachedError(f"backend {backend.id!r} cannot say where its files are cached: {error}") from error


def _with(options: OptimizerOptions, backend: str, model_options: Mapping[str, Any]) -> OptimizerOptions:
    """Return the optimizer's options, with `model_options` in place of those for one backend."""
    other_options = {
        name: backend_options for name, backend_options in options.model_options.items() if name != backend
    }
    return replace(options, model_options={**other_options, **({backend: model_options} if model_options else {})})
