"""Pickling of models: by path and digest of the model file, or by the content of the network."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from interposer.core.errors import InvalidArgumentError, LoadError, ParseError
from interposer.core.files import check_regular, reason_of
from interposer.core.types import TensorShape
from interposer.formats.tensorflow import is_saved_model, missing
from interposer.ir.network import Network
from interposer.saved.container import HEADER_BYTES, is_saved
from interposer.session.shapes import as_template

if TYPE_CHECKING:
    from interposer.session.model import Model

__all__ = ["Origin", "file_digest", "reduced"]

_CHUNK: Final = 1 << 20
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class Origin:
    """What a model was loaded from, so that it can be pickled and loaded again.

    `source` is the path or the content that was passed to `load`, and `reading` has the arguments for reading it, such
    as the format and shapes. `stamp` identifies the version of the file, to detect changes.
    """

    source: Any
    reading: Mapping[str, Any] = field(default_factory=dict)
    stamp: _Stamp | None = None

    @classmethod
    def of(cls, source: Any, reading: Mapping[str, Any]) -> Origin:
        """Return the origin for a call of `load` with this source and these other arguments for reading it.

        Arguments that are None are left out. Paths are made absolute, for processes that run in another folder.
        """
        value = {name: item for name, item in reading.items() if item is not None}
        if isinstance(value.get("weights"), str | os.PathLike):
            value["weights"] = os.path.abspath(os.fsdecode(value["weights"]))
        if not isinstance(source, str | os.PathLike):
            return cls(source, value)
        path = os.path.abspath(os.fsdecode(source))
        return cls(path, value, _stamp(path))


def reduced(model: Model) -> tuple[Callable[..., Model], tuple[Any, ...]]:
    """Return the function and arguments with which pickle creates the model again; see `Model`.

    Raises:
        InvalidArgumentError: the model is closed, is not on the default runtime, was made from a template, or its
            file has changed since it was loaded.
    """
    from interposer.session.load import default_runtime  # noqa: PLC0415 - it needs the model

    model._loaded.check_open()
    if model.runtime is not default_runtime():
        raise InvalidArgumentError(
            f"the model {model.name!r} is on a runtime of its own, which cannot be pickled; "
            "load it on the default runtime (no runtime=), or load it again in the other process"
        )
    how = model._choice.arguments | {"limits": model._limits}
    origin = model._origin
    if origin is not None and isinstance(origin.source, str):
        return _from_path, (origin.source, _unchanged(origin), {**origin.reading, **how})
    network = model._blueprint.network
    if network is not None and (origin is None or not (model._blueprint.templates or model.needs_origin)):
        return _from_network, (network, model._blueprint.usual_shapes, how)
    if origin is None:
        raise InvalidArgumentError(f"the model {model.name!r} was made of a template, which cannot be pickled")
    return _from_content, (_plain(origin.source), {**origin.reading, **how})


def _plain(source: Any) -> Any:
    """Return the source of a model in a form that pickle supports: other kinds of buffers become bytes.

    An exported program of PyTorch becomes the content of its file. Any other source, such as bytes or a message of
    onnx, is returned unchanged. A path is pickled elsewhere.
    """
    if type(source).__name__ == "ExportedProgram":
        from interposer.session.torch.loading import saved_program  # noqa: PLC0415 - it imports PyTorch

        return saved_program(source)
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


def _from_path(path: str, digest: str, arguments: Mapping[str, Any]) -> Model:
    from interposer.session.load import load  # noqa: PLC0415 - it needs the model

    if file_digest(path) != digest:
        raise LoadError(f"the file {path!r} has another content than when the model was pickled; load the model again")
    return load(path, **arguments)


def _from_content(source: Network | Any, arguments: Mapping[str, Any]) -> Model:
    from interposer.session.load import load  # noqa: PLC0415 - it needs the model

    return load(source, **arguments)


def _from_network(network: Network, usual: Mapping[str, TensorShape], arguments: Mapping[str, Any]) -> Model:
    from interposer.session.load import load  # noqa: PLC0415 - it needs the model

    return load(as_template(network, usual) if usual else network, **arguments)


def _stamp(path: str) -> _Stamp | None:
    try:
        result = os.stat(max(_files_in(path), key=os.path.getmtime, default=path))
    except (OSError, ValueError):
        return None
    return result.st_dev, result.st_ino, result.st_size, result.st_mtime_ns


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
        raise ParseError(f"the file cannot be read: {reason_of(error)}", path=path) from error
    return digest.hexdigest()
