"""What to do with an archive or a compressed file that is given instead of a model."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

__all__ = ["explained_archive"]

_ZIP: Final = rb"PK\x03\x04"
_OTHERS: Final = rb"7z\xbc\xaf|Rar!"
_TAR: Final = rb"(?s:.{257})ustar"
_COMPRESSED: Final = (
    (rb"\x1f\x8b", "gzip", "gunzip", gzip.open),
    (rb"BZh[1-9]", "bzip2", "bunzip2", bz2.open),
    (rb"\xfd7zXZ", "xz", "unxz", lzma.open),
)
_ZSTANDARD: Final = rb"\x28\xb5\x2f\xfd"
_MODELS: Final = re.compile(
    r"(?i).*\.(onnx|tflite|pt2|armnn|caffemodel|prototxt|pb|pbtxt|mlmodel|gguf|h5|keras|safetensors)|.*/model\.xml"
)
_MEMBERS: Final = 200
"""How many members of an archive are looked at."""
_UNKNOWN: Final = "the file is an archive; extract the model from it"
_DAMAGED: Final = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
                   NotImplementedError)  # fmt: skip


def explained_archive(head: bytes, source: str | bytes | bytearray | memoryview | None) -> str | None:
    """Return what to do with a file that is an archive or compressed, by its first bytes; None for any other file.

    If `source`, the path or the content of the file, is given, the message names a model that the archive has.
    """
    if re.match(_ZIP, head):
        return _archive(_zip_members(source))
    if re.match(_TAR, head):
        return _archive(_tar_members(source))
    if re.match(_OTHERS, head):
        return _UNKNOWN
    if re.match(_ZSTANDARD, head):
        return _compressed("Zstandard", "unzstd", source)
    for pattern, title, command, opener in _COMPRESSED:
        if re.match(pattern, head):
            if re.match(_TAR, _beginning(opener, source)):
                return _archive(_tar_members(source))
            return _compressed(title, command, source)
    return None


def _archive(members: Iterable[str]) -> str:
    model = next((name for name in members if _MODELS.fullmatch(name)), None)
    return _UNKNOWN if model is None else f"the file is an archive with {model!r}; extract the model from it"


def _compressed(title: str, command: str, source: Any) -> str:
    file = source if isinstance(source, str) else "FILE"
    return f"the file is compressed with {title}; decompress it first: {command} {file}"


def _zip_members(source: Any) -> list[str]:
    if source is None:
        return []
    with suppress(*_DAMAGED), zipfile.ZipFile(_opened(source)) as archive:
        return archive.namelist()
    return []


def _tar_members(source: Any) -> Iterator[str]:
    if source is None:
        return
    place: dict[str, Any] = {"name": source} if isinstance(source, str) else {"fileobj": _opened(source)}
    with suppress(*_DAMAGED), tarfile.open(mode="r:*", **place) as archive:
        yield from (member.name for member in islice(archive, _MEMBERS))


def _beginning(opener: Any, source: Any) -> bytes:
    """Return the first bytes of what a compressed file contains; empty if it is damaged."""
    if source is None:
        return b""
    with suppress(*_DAMAGED), opener(_opened(source)) as file:
        return bytes(file.read(512))
    return b""


def _opened(source: Any) -> Any:
    return source if isinstance(source, str) else io.BytesIO(source)
