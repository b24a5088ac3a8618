"""The cache of compiled parts, as blobs in the cache folder: one file per part and setting.

The key of a part consists of its tables and constants, the file and the fingerprint of the plug-in, and the options.
The cache never fails: a part that cannot be restored is compiled again. If a plug-in declares the option
`CACHE_DIRECTORY`, users can choose another folder instead of the cache folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from interposer.backend.allocator import CustomAllocator
from interposer.backend.capabilities import Options
from interposer.core.cache import (
    LARGEST,
    LATER,
    Piece,
    Record,
    cache_folder,
    has_cached,
    is_listed,
    keep_listing,
    later,
    make_room,
    mapped_cached,
    own_names,
    read_record,
    settle,
    write_cached,
)
from interposer.core.errors import InterposerError
from interposer.core.records import dataclass
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.images import Image, ImageGraph
from interposer.plugins.capi.caching.blobs import Blob, Blobs
from interposer.plugins.capi.library.executable import Executable
from interposer.plugins.capi.library.information import DeclaredOption
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable
from interposer.plugins.registry import BackendRegistry

__all__ = [
    "CACHE_DIRECTORY",
    "FOLDER",
    "NAMES",
    "TRIAL",
    "CachedPart",
    "Mark",
    "PartKeeper",
    "cache_directory",
    "keeps_parts",
    "read_mark",
    "read_part",
    "trial",
    "without_directory",
]

FOLDER: Final = "compiled"
"""The name of the folder inside the cache folder."""
TRIAL: Final = ".trial"
"""The suffix of a part's mark file, which exists during saving or restoring and remains if the process crashes."""
NAMES: Final = own_names(r"[0-9a-f]{32}\.\d+(-\d+){4}(\.trial)?")
"""The pattern of the file names that this module writes."""
CACHE_DIRECTORY: Final = "CacheDirectory"
"""The string option that names the folder; it is not a part of the cache key."""
LONGEST_TRIAL: Final = 24 * 3600
"""Seconds after which the mark of a crashed process is ignored."""
MOST_CACHED: Final = 1 << 32
"""The limit on the bytes of all cached files together; the oldest files are deleted first."""
_FIRST: Final = b"saves it for the first time\n"
_MAGIC: Final = b"interposer compiled part 4\n"
_log = logging.getLogger("interposer.cache")


@dataclass(frozen=True)
class CachedPart:
    """The content of a cache file: a compiled subgraph as a blob.

    `origin` maps names to what the subgraph was compiled with: the backend, its version and file, and all options.
    """

    origin: Mapping[str, Any]
    blob: Blob

    def fault(self, registry: BackendRegistry) -> str | None:
        """Return why the backends of this registry cannot restore the compiled part, or None if they probably can."""
        name = self.origin["backend"]
        reason = registry.reason_absent(name) if registry.is_registered(name) else "nobody knows it"
        if reason is not None:
            return f"backend {name!r} is not available: {reason}"
        backend: Any = registry.get(name)
        if self.origin["stamp"] != backend.identity:
            return f"backend {name!r} was changed since"
        blobs, options = backend.blobs, self.origin["options"]
        try:
            if blobs.fingerprint(options) != self.origin["fingerprint"]:
                return None  # of use with another number of threads, say
            problem: str | None = blobs.fault(self.blob, options)
        except InterposerError as error:
            return str(error)
        return problem

    def content(self) -> list[Piece]:
        """Return the content of the cache file, in pieces."""
        return _content(self.origin, self.blob.data, self.blob.needs_graph)


def _content(origin: Mapping[str, Any], blob_bytes: Piece, needs_graph: bool) -> list[Piece]:
    return Record({"made": origin, "needs_graph": needs_graph}, [blob_bytes]).content(_MAGIC)


def read_part(content: bytes | memoryview) -> CachedPart:
    """Return the part in the content of a file; raise ValueError, KeyError or TypeError if it is damaged."""
    facts, [blob_bytes] = read_record(content, _MAGIC)
    return CachedPart(facts["made"], Blob(blob_bytes, bool(facts["needs_graph"])))


def cache_directory(library: Library, options: Options) -> str:
    """Return the folder for compiled parts that these options or the plug-in's settings name.

    Empty if they name none, so that the cache folder is used.
    """
    declared_directory = _declared_directory(library)
    if declared_directory is None:
        return ""
    directory = options.get(CACHE_DIRECTORY, library.setting[1].get(CACHE_DIRECTORY, declared_directory.default))
    return directory if isinstance(directory, str) else ""  # the check of options reports a value of another type


def without_directory(library: Library, options: Options) -> Options:
    """Return the options without the one that names the folder for compiled parts, which does not affect them."""
    if _declared_directory(library) is None:
        return dict(options)
    return {name: value for name, value in options.items() if name != CACHE_DIRECTORY}


def _declared_directory(library: Library) -> DeclaredOption | None:
    options = library.info.options
    return next((option for option in options if option.name == CACHE_DIRECTORY and option.kind is str), None)


def keeps_parts(library: Library, options: OptionTable) -> bool:
    """Return True if a plug-in's compiled parts can be cached: these options or the settings name a folder for them."""
    return cache_folder(cache_directory(library, options.options)) is not None


class PartKeeper:
    """Stores one compiled part in the cache folder, and restores it, for certain options of the plug-in."""

    @classmethod
    def of(cls, library: Library, image: Image, outline: str, options: OptionTable) -> PartKeeper | None:
        """Return the keeper of a part; None if there is no cache folder, or the plug-in has no usable blobs.

        Args:
            library: the plug-in.
            image: the tables of the part.
            outline: their `outline`, which becomes the last part of the file name.
            options: the options that the part is compiled with.
        """
        folder = cache_folder(cache_directory(library, options.options))
        if folder is None:
            return None
        try:
            blobs = Blobs.of(library)
            fingerprint = None if blobs is None else blobs.fingerprint(options)
            stamp = library.stamp
        except (InterposerError, OSError) as error:
            _log.info("compiled parts of %s are not cached: %s", library.id, error)
            return None
        if blobs is None:
            return None
        setting = {
            "backend": library.id, "stamp": stamp, "fingerprint": fingerprint,
            "setting": (library.setting[0], without_directory(library, library.setting[1])),
            "options": without_directory(library, options.options),
        }  # fmt: skip
        return cls(blobs, options, setting, image, outline, str(folder))

    def __init__(
        self, blobs: Blobs, options: OptionTable, setting: Mapping[str, Any], image: Image, outline: str, folder: str
    ) -> None:
        self._blobs, self._options, self._setting, self._folder = blobs, options, setting, folder
        self._image, self._outline = image, f".{outline}"
        self._job_name = f"{folder}/{FOLDER}/*{self._outline}"  # without the digest of all constants, which is slow

    @cached_property
    def _origin(self) -> Mapping[str, Any]:
        return {**self._setting, "part": self._image.digest}

    @cached_property
    def name(self) -> str:
        """The name of the cache file of the part, which is a digest of everything that it was compiled from."""
        digest = hashlib.sha256(json.dumps(self._origin, sort_keys=True).encode()).hexdigest()
        return f"{FOLDER}/{digest[:32]}{self._outline}"

    def restored(
        self, tables: FlatGraph | ImageGraph, owner: object, allocator: CustomAllocator | None = None
    ) -> Executable | None:
        """Return the compiled part from the cache; None if it is not cached or no longer usable.

        `tables` are those of the part, and the result keeps `owner` alive.
        """
        settle(self._job_name)
        if not has_cached(FOLDER, self._outline, self._folder):
            return None  # found without the digest of all constants
        content = mapped_cached(self.name, self._folder)
        if content is None:
            return None
        try:
            blob = read_part(content).blob
            with trial(self.name, self._folder) as is_allowed:
                return self._blobs.restore_tables(blob, tables, self._options, owner, allocator) if is_allowed else None
        except (ValueError, KeyError, TypeError, InterposerError) as error:
            _log.info("a part that %s compiled before is compiled again: %s", self._origin["backend"], error)
            return None

    def keep(self, executable: Executable, source: str) -> None:
        """Store a compiled part that was not cached; large parts are stored in the background if possible.

        `source` is the name of the network's file, which is stored with the part.
        """
        if executable.concurrent and executable.memory > LATER:
            later(self._job_name, lambda: self._keep(executable, source))
        else:
            self._keep(executable, source)

    def _keep(self, executable: Executable, source: str) -> None:
        try:
            with trial(self.name, self._folder, saves=True) as is_allowed, ExitStack() as stack:
                blob = stack.enter_context(self._blobs.saved(executable)) if is_allowed else None
                if blob is not None and len(blob.data) < LARGEST // 2:
                    origin = {**self._origin, "source": source, "time": time.time()}
                    make_room(FOLDER, NAMES, MOST_CACHED, len(blob.data), self._folder)
                    write_cached(self.name, _content(origin, blob.data, blob.needs_graph), self._folder)
        except (InterposerError, MemoryError) as error:
            _log.info("a part that %s compiled is not cached: %s", self._origin["backend"], error)


class Mark(Enum):
    """What the mark file of a part says about earlier attempts to save or restore it.

    The file is created before a plug-in saves or restores the part, and deleted afterwards. If it is still there, the
    process has ended in between, probably because the plug-in crashed.
    """

    NONE = "there is none, or its process is alive"
    ONCE = "a process ended while a backend saved this part, which is tried once more"
    FATAL = "a process ended while a backend restored or saved this part"
    PAST = "a process ended while a backend restored or saved this part, more than a day ago or before the last start"


def read_mark(name: str, folder: str = "") -> Mark:
    """Return what the mark file of a cached part says.

    `name` is the part's file in `folder`, or in the cache folder.
    """
    directory = cache_folder(folder)
    if directory is None:
        return Mark.NONE
    descriptor, mark = _locked(directory / (name + TRIAL))
    if descriptor >= 0:
        os.close(descriptor)
    return mark


def _locked(path: Path) -> tuple[int, Mark]:
    """Open and lock a mark file whose process has ended; return its descriptor and what it says.

    If there is no file, or the process that created it is alive, the result is (-1, `Mark.NONE`).
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except (OSError, ValueError):
        return -1, Mark.NONE
    with suppress(OSError):  # who has it is alive, or has deleted it
        flock(descriptor, LOCK_EX | LOCK_NB)
        status, content = os.fstat(descriptor), os.read(descriptor, 256)
        if os.stat(path).st_ino == status.st_ino and content.startswith(b"begun"):
            is_recent = content.removesuffix(_FIRST) == _begun() and abs(time.time() - status.st_mtime) < LONGEST_TRIAL
            return descriptor, (Mark.ONCE if content.endswith(_FIRST) else Mark.FATAL) if is_recent else Mark.PAST
    os.close(descriptor)
    return -1, Mark.NONE


@cache
def _begun() -> bytes:
    """Return the content of a new mark file: a text with the id of this machine's present boot."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        boot_id = b"some time"
    return b"begun on the machine that runs since " + boot_id + b"\n"


@contextmanager
def trial(name: str, folder: str = "", *, saves: bool = False) -> Iterator[bool]:
    """Mark a cached part as being saved or restored in a ``with`` block, which gets False if it must not be tried.

    It must not be tried if doing so has crashed a process recently; `name` is the part's file in `folder`, or in the
    cache folder. A process that ends while a part is saved (`saves`) may have been killed by a user, because saving
    takes place after `load` returns. Therefore only the second such end counts.
    """
    directory = cache_folder(folder)
    if directory is None:
        yield False
        return
    path = directory / (name + TRIAL)
    was_listed = is_listed(path.parent)
    mark = _claimed_mark(path)
    if mark is Mark.FATAL:
        yield False
        return
    descriptor = -1
    with suppress(OSError, ValueError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        flock(descriptor, LOCK_EX | LOCK_NB)
        os.write(descriptor, _begun() + (_FIRST if saves and mark is not Mark.ONCE else b""))
    try:
        yield True
    finally:
        if descriptor >= 0:
            with suppress(OSError):
                os.unlink(path)
            os.close(descriptor)
        if was_listed:
            keep_listing(path.parent)


def _claimed_mark(path: Path) -> Mark:
    """Return what the mark file at `path` says, and delete it unless it forbids another attempt (`Mark.FATAL`)."""
    descriptor, mark = _locked(path)
    if descriptor >= 0:
        if mark is not Mark.FATAL:
            with suppress(OSError):
                os.unlink(path)
        os.close(descriptor)
    return mark
