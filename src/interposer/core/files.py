"""Output files: every file is first written under a temporary name beside its target, which it then replaces.

A reader sees either the old file or the whole new one. If writing fails, the old file stays unchanged, and the
temporary file is deleted.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import BinaryIO, Final

from interposer.core.errors import FileReadError, FileWriteError, did_you_mean, expect

__all__ = [
    "check_regular",
    "download_hint",
    "is_same_file",
    "missing_hint",
    "reason_of",
    "replacing",
    "similar_file",
    "synchronize",
    "unreadable",
    "write_file",
]

_LONGEST_PREFIX: Final = 200
"""Bytes of the target's name in the name of its temporary file; file systems allow 255 bytes for a name."""


_COMPARED_NAMES: Final = 1000
"""Names in a folder that `similar_file` compares, since a comparison takes microseconds."""


def write_file(path: str | os.PathLike[str], content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write a whole file atomically; a text is encoded as UTF-8.

    Raises:
        FileWriteError: the file cannot be written. Its previous content is unchanged.
    """
    with replacing(path) as file:
        if isinstance(content, str):
            content = content.encode()
        file.writelines([content] if isinstance(content, bytes) else content)


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True, permissions: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, which replaces `path` when the block ends without an exception.

    A symbolic link stays unchanged, and the file that it points to is replaced. The new file has the same permissions.
    A device, a pipe or a socket (such as ``/dev/stdout``) is written to directly.

    Args:
        path: the file to write.
        durable: whether to flush the content to disk before the file is replaced (`os.fsync`).
        permissions: permissions of a new file, before the umask is applied.

    Raises:
        InvalidArgumentError: `path` is no path.
        FileWriteError: the file cannot be written. Every `OSError` in the block is converted to this error.
    """
    expect(path, str | os.PathLike, "a path must be a text or a path object")
    try:
        if _is_special(path):
            with open(path, "wb") as file:
                yield file
        else:
            with _temporary(os.path.realpath(path), durable, permissions) as file:
                yield file
    except FileWriteError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        if isinstance(error, ValueError) and "null" not in str(error):
            raise
        raise FileWriteError(os.fspath(path), reason_of(error)) from error


def synchronize(file: BinaryIO) -> None:
    """Flush a file's buffered content to disk."""
    file.flush()
    os.fsync(file.fileno())


def reason_of(error: OSError | ValueError) -> str:
    """Return the cause of a failure as text, without the error number and the path that `OSError` adds."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def unreadable(error: OSError | ValueError, path: str | os.PathLike[str] | None = None) -> FileReadError:
    """Return the error to raise for a model file that cannot be opened or read; `path` is the file if it is known."""
    name = None if path is None else os.fsdecode(path)
    is_missing = name is not None and isinstance(error, FileNotFoundError)
    address = download_hint(name) if name is not None and is_missing else None
    hint = missing_hint(name) if name is not None and is_missing else ""
    return FileReadError.of(error, address or f"the file cannot be read: {reason_of(error)}{hint}", name)


def missing_hint(path: str) -> str:
    """Return a hint for a file that does not exist: what a symbolic link or "~" leads to, or `similar_file`."""
    if os.path.islink(path):
        return f"; it is a symbolic link to {os.path.realpath(path)!r}, which does not exist"
    expanded = os.path.expanduser(path)
    if expanded != path and os.path.exists(expanded):
        return f"; '~' is expanded by shells only; give {expanded!r}"
    return similar_file(path)


def similar_file(path: str) -> str:
    """Return a hint such as ``"; did you mean 'models/net.onnx'?"`` with a file whose name is almost that of `path`.

    A file that has the same name and a suffix comes first. Returns "" if the folder of `path` has no such file. In a
    large folder, only the first thousand names are compared.
    """
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, _COMPARED_NAMES) if entry.name != name]
    except OSError:
        return ""
    with_suffix = next((entry for entry in sorted(names) if os.path.splitext(entry)[0] == name), None)
    hint = f"; did you mean {with_suffix!r}?" if with_suffix else did_you_mean(name, names, cutoff=0.85)
    return hint.replace("'", f"'{folder}/", 1) if folder and hint else hint


def download_hint(path: str) -> str | None:
    """Return what to do with an address that is given as a path; None for a path."""
    match = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/{1,3}(?=[^/])", path)
    if match is None:
        return None
    scheme, place = match[1].lower(), path[match.end() :]
    if scheme == "file":
        return f"this is an address; give the path of the file: /{place}"
    command = _COMMANDS.get(scheme, "").format(address=f"{scheme}://{place}", place=_repository_and_file(place))
    command_text = f", for example with: {command}" if command else ""
    return f"this is an address, and files are not downloaded; download the file{command_text}, and give its path"


def _repository_and_file(place: str) -> str:
    """Return ``organization/name/folder/file`` of Hugging Face as ``organization/name folder/file``."""
    organization, name, file = [*place.split("/", 2), "", ""][:3]
    return " ".join(filter(None, (f"{organization}/{name}", file)))


_COMMANDS: Final = {
    "http": "curl -LO {address}",
    "https": "curl -LO {address}",
    "hf": "hf download {place}",
    "s3": "aws s3 cp {address} .",
    "gs": "gcloud storage cp {address} .",
}
"""The command that downloads an address of each scheme."""


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` if the path is not a regular file: a pipe would block, and files are read more than once."""
    expect(path, str | os.PathLike, "a path must be a text or a path object")
    if not os.fspath(path):
        raise OSError(errno.ENOENT, "the path is empty", path)
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", path)


def is_same_file(path_a: str | os.PathLike[str], path_b: str | os.PathLike[str]) -> bool:
    """Return True if both paths lead to the same file, also through links.

    If a file does not exist yet, the resolved paths are compared.
    """
    with suppress(OSError, ValueError):
        return os.path.samefile(path_a, path_b)
    return os.path.realpath(path_a) == os.path.realpath(path_b)


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Return True if the path exists and is neither a regular file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _temporary(target: str, durable: bool, permissions: int) -> Iterator[BinaryIO]:
    _check_target(target)
    temporary_path = _name_beside(target)
    descriptor = os.open(temporary_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, permissions)
    try:
        with open(descriptor, "w+b") as file:
            _keep_permissions(descriptor, target)
            yield file
            if durable:
                synchronize(file)
        os.replace(temporary_path, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary_path)
        raise


def _check_target(target: str) -> None:
    """Check that the file may be replaced: raise OSError for a folder, and for a file without permission to write.

    Renaming a temporary file would replace a write-protected file without an error.
    """
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be written to")


def _name_beside(target: str) -> str:
    folder, name = os.path.split(target)
    prefix = os.fsdecode(os.fsencode(name)[:_LONGEST_PREFIX])
    return os.path.join(folder, f".{prefix}.{os.urandom(4).hex()}")


def _keep_permissions(descriptor: int, target: str) -> None:
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))
