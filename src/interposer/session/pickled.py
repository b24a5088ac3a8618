"""Pickling of models: by path and digest of the model file, or by the content of the network."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, LoadError, ParseError, memory_to
from interposer.core.files import check_regular, unreadable
from interposer.core.records import dataclass
from interposer.core.types import TensorShape
from interposer.formats.tensorflow import is_saved_model, missing
from interposer.ir.network import Network
from interposer.plugins.capi.caching.recording import recording
from interposer.saved.container import HEADER_BYTES, is_saved
from interposer.session.fallback import Choice
from interposer.session.limits import Limits
from interposer.session.runtimes import default_runtime
from interposer.session.shapes import as_template
from interposer.session.variants import Blueprint

__all__ = ["Origin", "file_digest", "reduced"]

_CHUNK: Final = 1 << 20
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class Origin:
    """What a model was loaded from, so that it can be pickled and loaded again.

    `load` is the function that loads it again, which pickle stores by its name: `interposer.session.loading.load`.
    `source` is the path or the content that was passed to it, and `reading` has the arguments for reading it, such as
    the format and shapes. `stamp` identifies the version of the file, to detect changes.
    """

    load: Callable[..., Any]
    source: Any
    reading: Mapping[str, Any] = field(default_factory=dict)
    stamp: _Stamp | None = None

    @classmethod
    def of(cls, load: Callable[..., Any], source: Any, reading: Mapping[str, Any]) -> Origin:
        """Return the origin for a call of `load` with this source and these other arguments for reading it.

        Arguments that are None are left out. Paths are made absolute, for processes that run in another folder.
        """
        arguments = {name: argument for name, argument in reading.items() if argument is not None}
        if isinstance(arguments.get("weights"), str | os.PathLike):
            arguments["weights"] = os.path.abspath(os.fsdecode(arguments["weights"]))
        if not isinstance(source, str | os.PathLike):
            return cls(load, source, arguments)
        path = os.path.abspath(os.fsdecode(source))
        return cls(load, path, arguments, _stamp(path))


def reduced(
    make: Callable[..., Any], blueprint: Blueprint, choice: Choice, limits: Limits, origin: Origin | None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function and arguments with which pickle creates a model again; see `Model`.

    Args:
        make: makes a model of a network, as the class `Model` does.
        blueprint: the network of the model.
        choice: its backends.
        limits: its limits.
        origin: what it was loaded from; None if its network is enough.

    Raises:
        InvalidArgumentError: the model is not on the default runtime, was made from a template, or its file has changed
            since it was loaded.
    """
    if choice.runtime is not default_runtime():
        raise InvalidArgumentError(
            f"the model {blueprint.name!r} is on a runtime of its own, which cannot be pickled; "
            "load it on the default runtime (no runtime=), or load it again in the other process"
        )
    settings = choice.arguments | {"limits": limits}
    if origin is not None and isinstance(origin.source, str):
        digest = _unchanged(origin)
        return _from_path, (origin.load, origin.source, digest, {**origin.reading, **settings})
    if origin is not None:
        return _from_content, (origin.load, _picklable(origin.source), {**origin.reading, **settings})
    if blueprint.network is None:
        raise InvalidArgumentError(f"the model {blueprint.name!r} was made of a template, which cannot be pickled")
    return _from_network, (make, blueprint.network, blueprint.usual_shapes, settings)


def _picklable(source: Any) -> Any:
    """Return the source of a model in a form that pickle supports: other kinds of buffers become bytes.

    An exported program of PyTorch becomes the content of its file. Any other source, such as bytes or a message of
    onnx, is returned unchanged.
    """
    if type(source).__name__ == "ExportedProgram":
        from interposer.frontends.torch.archive import content_of_program  # noqa: PLC0415 - it needs PyTorch

        return content_of_program(source)
    return bytes(source) if isinstance(source, bytearray | memoryview) else source


def _unchanged(origin: Origin) -> str:
    """Return the SHA-256 digest of the model file from which a model was loaded.

    Raises `InvalidArgumentError` if the file was changed or deleted since.
    """
    if origin.stamp is None or _stamp(origin.source) != origin.stamp:
        raise InvalidArgumentError(
            f"the file {origin.source!r} was changed or deleted since the model was loaded; load the model again"
        )
    return file_digest(origin.source)


def _from_path(load: Callable[..., Any], path: str, digest: str, arguments: Mapping[str, Any]) -> Any:
    if file_digest(path) != digest:
        raise LoadError(f"the file {path!r} has another content than when the model was pickled; load the model again")
    return load(path, **arguments)


def _from_content(load: Callable[..., Any], source: Any, arguments: Mapping[str, Any]) -> Any:
    return load(source, **arguments)


def _from_network(
    make: Callable[..., Any], network: Network, usual_shapes: Mapping[str, TensorShape], settings: Mapping[str, Any]
) -> Any:
    source = as_template(network, usual_shapes) if usual_shapes else network
    with memory_to("load the network"), recording():
        return make(source, default_runtime(), **settings)


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(max(_files_in(path), key=os.path.getmtime, default=path))
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _files_in(path: str) -> list[str]:
    """Return the files in a folder, such as a SavedModel, at any depth; empty for a file."""
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sorted(paths)


def _files_of(path: str) -> list[str]:
    """Return the files of a SavedModel, or the path itself, which is then a file."""
    if os.path.isdir(path) and not is_saved_model(path):
        raise ParseError(missing(Path(path)), path=path)
    return _files_in(path) or [path]


def file_digest(path: str) -> str:
    """Return the SHA-256 digest of a file, or of the names and contents of all files in a folder, in hexadecimal.

    Of a saved network, it is the digest of the header, which has the digest of the index, which has those of all other
    bytes. `load` compares these, so that reading a large file twice is not necessary.

    Raises:
        ParseError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                head = file.read(HEADER_BYTES)
            if is_saved(head):
                return hashlib.sha256(head).hexdigest()
        for name in _files_of(path):
            check_regular(name)
            digest.update(os.path.relpath(name, path).encode() if name != path else b"")
            with open(name, "rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
    except (OSError, ValueError) as error:
        raise unreadable(error, path) from error
    return digest.hexdigest()
