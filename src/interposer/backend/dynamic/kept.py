"""Compiled parts that are kept between processes, as blobs in the cache folder: a file for every part and setting.

A part is found again by its tables and constants, the file and the fingerprint of the plug-in, and the options. Nothing
here fails: what cannot be restored is compiled anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from typing import Any, Final

from interposer.backend.dynamic.blobs import Blob, Blobs
from interposer.backend.dynamic.executable import Executable
from interposer.backend.dynamic.flatten import FlatGraph
from interposer.backend.dynamic.images import Image, ImageGraph
from interposer.backend.dynamic.library import Library
from interposer.backend.dynamic.options import OptionTable
from interposer.backend.registry import BackendRegistry
from interposer.cache import LARGEST, Record, cache_folder, mapped_cached, read_record, trim_cached, write_cached
from interposer.errors import InterposerError

__all__ = ["FOLDER", "TRIAL", "KeptPart", "PartKeeper", "read_part", "trial", "was_fatal"]

FOLDER: Final = "compiled"
"""The folder in the cache folder."""
TRIAL: Final = ".trial"
"""What is behind the name of a part while a plug-in saves or restores it, and stays there if that ends the process."""
MOST_KEPT: Final = 1 << 29
"""All of them together have no more bytes; the oldest go first."""
_MAGIC: Final = b"interposer compiled part 1\n"
_BEGUN: Final = b"begun\n"
_log = logging.getLogger("interposer.cache")


@dataclass(frozen=True)
class KeptPart:
    """A compiled part that is kept: `made` says by what, from what and for which options."""

    made: Mapping[str, Any]
    blob: Blob

    def fault(self, registry: BackendRegistry) -> str | None:
        """Why it is of no use here any more, or None where it is, as far as the backend tells without restoring it."""
        name = self.made["backend"]
        absent = registry.reason_absent(name) if registry.is_registered(name) else "nobody knows it"
        if absent is not None:
            return f"backend {name!r} is not available: {absent}"
        backend: Any = registry.get(name)
        if self.made["stamp"] != getattr(backend, "identity", ""):
            return f"backend {name!r} was changed since"
        blobs, options = backend.blobs, self.made["options"]
        try:
            if blobs.fingerprint(options) != self.made["fingerprint"]:
                return None  # of use with another number of threads, say
            said: str | None = blobs.fault(self.blob, options)
        except InterposerError as error:
            return str(error)
        return said

    def content(self) -> list[bytes | memoryview]:
        """What the file holds."""
        return Record({"made": self.made, "needs_graph": self.blob.needs_graph}, [self.blob.data]).content(_MAGIC)


def read_part(content: bytes | memoryview) -> KeptPart:
    """The part that a file holds; ValueError, KeyError or TypeError where it is damaged or none."""
    facts, [data] = read_record(content, _MAGIC)
    return KeptPart(facts["made"], Blob(data, bool(facts["needs_graph"])))


class PartKeeper:
    """Keeps what becomes of one part with certain options, and gives it back."""

    @classmethod
    def of(cls, library: Library, image: Image, options: OptionTable) -> PartKeeper | None:
        """The keeper of a part, or None where there is no cache folder, or the plug-in has no blobs to be used."""
        if cache_folder() is None:
            return None
        try:
            blobs = Blobs.of(library)
            fingerprint = None if blobs is None else blobs.fingerprint(options)
            stamp = library.stamp
        except (InterposerError, OSError) as error:
            _log.info("what %s compiles is not kept: %s", library.id, error)
            return None
        if blobs is None:
            return None
        made = {
            "backend": library.id, "stamp": stamp, "fingerprint": fingerprint, "part": image.digest,
            "setting": library.setting, "options": dict(options.options),
        }  # fmt: skip
        return cls(blobs, options, made)

    def __init__(self, blobs: Blobs, options: OptionTable, made: Mapping[str, Any]) -> None:
        self._blobs, self._options, self._made = blobs, options, made
        self.name = f"{FOLDER}/{hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:32]}"

    def restored(self, tables: FlatGraph | ImageGraph, owner: object) -> Executable | None:
        """The compiled part, for the tables that it was made of; None where it is not kept, or no good any more."""
        content = mapped_cached(self.name)
        if content is None:
            return None
        try:
            blob = read_part(content).blob
            with trial(self.name) as allowed:
                return self._blobs.restore_tables(blob, tables, self._options, owner) if allowed else None
        except (ValueError, KeyError, TypeError, InterposerError) as error:
            _log.info("a part that %s compiled before is compiled anew: %s", self._made["backend"], error)
            return None

    def keep(self, made: Executable, source: str) -> None:
        """Write a compiled part that `restored` did not give."""
        try:
            with trial(self.name) as allowed:
                blob = self._blobs.save(made) if allowed else None
        except (InterposerError, MemoryError) as error:
            _log.info("what %s compiled is not kept: %s", self._made["backend"], error)
            return
        if blob is None:
            return
        part = KeptPart({**self._made, "source": source, "time": time.time()}, blob)
        if len(blob.data) < LARGEST // 2:
            trim_cached(FOLDER, MOST_KEPT - len(blob.data))
            write_cached(self.name, part.content())


def was_fatal(name: str) -> bool:
    """Whether a process came to its end while a plug-in saved or restored the part of this name."""
    folder = cache_folder()
    if folder is None:
        return False
    path = folder / (name + TRIAL)
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
        there = os.stat(path).st_ino == os.fstat(descriptor).st_ino
        return there and os.read(descriptor, len(_BEGUN)) == _BEGUN
    except OSError:  # who has it is alive, or has deleted it
        return False
    finally:
        os.close(descriptor)


@contextmanager
def trial(name: str) -> Iterator[bool]:
    """True where a plug-in may be let loose on the part of this name: that has not ended a process before."""
    folder = cache_folder()
    if folder is None or was_fatal(name):
        yield False
        return
    path = folder / (name + TRIAL)
    descriptor = -1
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        flock(descriptor, LOCK_EX | LOCK_NB)
        os.write(descriptor, _BEGUN)
    try:
        yield True
    finally:
        if descriptor >= 0:
            with suppress(OSError):
                os.unlink(path)
            os.close(descriptor)
