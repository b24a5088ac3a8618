"""`ModelFile`: the content of a model file when it was read, and whether it is still the same."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from interposer.core.cache import make_room, own_names, read_cached, write_cached
from interposer.core.constants import LEAST_MAPPED, mapped, place_of
from interposer.core.files import check_regular
from interposer.core.types import Array
from interposer.formats.caffe import is_caffe_text

__all__ = ["FOLDER", "NAMES", "ModelFile"]

FOLDER: Final = "digests"
"""The name of the folder inside the cache folder."""
NAMES: Final = own_names("[0-9a-f]{32}")
"""The pattern of the file names that this module writes."""
LEAST_NOTED: Final = 1 << 23
"""Size in bytes from which on the digest of a file is cached; smaller files are read again."""
_MOST_CACHED: Final = 1 << 20
UNCERTAIN: Final = 2.0
"""Seconds after a write during which a second write may leave the file's modification time unchanged."""
_STEP: Final = 1 << 20
_EXTERNAL: Final = b"location"
"""The key with which an ONNX file refers to files of weights."""


class _Identity(NamedTuple):
    """The identity and state of a file; times are in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @property
    def is_certain(self) -> bool:
        """True if any later change of the file changes its identity."""
        return time.time() - max(self.modified, self.changed) / 1e9 > UNCERTAIN

    @property
    def name(self) -> str:
        """The name under which the digest of the file is cached."""
        return f"{FOLDER}/{hashlib.sha256(json.dumps(self).encode()).hexdigest()[:32]}"


class ModelFile:
    """The content of a model file. Large files are mapped; `mapped` is None for small files and for bytes.

    The pages of a mapping do not become a part of the process's memory, because its bytes are read from the file. The
    digests of very large files are cached in `folder`, by the identity of the file.
    """

    def __init__(self, content: bytes | Array, identity: _Identity | None, folder: str = "") -> None:
        self._content, self._identity, self._folder = content, identity, folder
        self.mapped = content if isinstance(content, np.ndarray) else None
        self.size = content.nbytes if isinstance(content, np.ndarray) else len(content)

    @classmethod
    def read(cls, source: object, most: int, folder: str = "") -> ModelFile | None:
        """Return the file, or None if it cannot be read, is empty, or has more than `most` bytes."""
        identity = _identity(source)  # read before the content, so that a concurrent write is detected
        try:
            content = _content(source, most)
        except (OSError, ValueError):
            return None
        return None if content is None or not len(content) else cls(content, identity, folder)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        identity = self._identity
        if identity is None or self.size < LEAST_NOTED or not identity.is_certain:
            return self._computed()
        known_digest = _known_digest(identity, self._folder)
        if known_digest is None:
            known_digest = self._computed()
            _note_digest(identity, known_digest, self._folder)
        return known_digest

    def _computed(self) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
        return digest.hexdigest()

    def is_by_itself(self) -> bool:
        """Return whether the file is certain to have no external weights."""
        last_bytes = b""
        for number, piece in enumerate(self._pieces()):
            if number == 0 and piece[4:8] == b"TFL3":
                from interposer.formats.tflite.external import may_have_external_buffers  # noqa: PLC0415

                return not may_have_external_buffers(piece)
            if number == 0 and is_caffe_text(piece[:4096]):
                return False
            content = last_bytes + piece
            if _EXTERNAL in content:
                return False
            last_bytes = content[1 - len(_EXTERNAL) :]
        return True

    def is_still(self, source: object) -> bool:
        """Return whether the source still has this content; a recently modified file is read again to be sure."""
        if not isinstance(source, str | os.PathLike):
            return True
        now = _identity(source)
        if now is None or now != self._identity:
            return False
        if now.is_certain:
            return True
        again = ModelFile.read(source, self.size)
        return again is not None and again.sha256 == self.sha256

    def _pieces(self) -> Iterator[bytes]:
        """Yield the content in pieces."""
        if isinstance(self._content, bytes):
            yield self._content
            return
        place = place_of(self._content)
        assert place is not None
        for offset in range(0, self.size, _STEP):
            yield os.pread(place.fd, min(_STEP, self.size - offset), offset)


def _known_digest(identity: _Identity, folder: str) -> str | None:
    """Return the cached digest of a file, or None."""
    try:
        facts = json.loads(read_cached(identity.name, folder) or b"")
        return str(facts["sha256"]) if facts["identity"] == list(identity) else None
    except (ValueError, KeyError, TypeError):
        return None


def _note_digest(identity: _Identity, sha256: str, folder: str) -> None:
    content = json.dumps({"identity": identity, "sha256": sha256}).encode()
    make_room(FOLDER, NAMES, _MOST_CACHED, len(content), folder)
    write_cached(identity.name, content, folder)


def _identity(source: object) -> _Identity | None:
    """Return the identity of a file; None for bytes or if the file is missing."""
    if not isinstance(source, str | os.PathLike):
        return None
    try:
        status = os.stat(source)
    except (OSError, ValueError):
        return None
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _content(source: object, max_bytes: int) -> bytes | Array | None:
    if isinstance(source, bytes | bytearray):
        return bytes(source) if len(source) <= max_bytes else None
    if not isinstance(source, str | os.PathLike):
        return None
    check_regular(source)  # a pipe would block
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            return None
        return mapped(source) if size >= LEAST_MAPPED else file.read()
