"""Backends in Python that are one file in a folder of backends, without an installed package."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Final

from interposer.backend.base import Backend, BackendId
from interposer.core.errors import InvalidArgumentError, PluginError

__all__ = ["ENDING", "backend_class", "backend_of_python_file"]

ENDING: Final = "_backend.py"
"""The end of the names of such files."""
_lock = threading.RLock()
"""Held while a file runs: another thread must not see the module before, and a file may create a runtime itself."""


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - a thread that is not here may hold it
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def backend_class(path: str, content: bytes) -> type[Backend]:
    """Run the content of a Python file, and return the backend class that it defines.

    Args:
        path: the absolute path of the file, for tracebacks, and for the name of its module.
        content: the bytes of the file.

    Raises:
        PluginError: the file does not define exactly one subclass of `Backend` with a valid id of its own.
        Exception: the file raises it.
    """
    with _lock:
        module = _module_of(path, content)
    classes: list[type[Backend]] = list(
        dict.fromkeys(value for value in vars(module).values() if _is_own_backend(value, module))
    )
    if len(classes) != 1:
        names = ", ".join(sorted(class_.__name__ for class_ in classes)) or "none"
        reason = f"it has to define one subclass of Backend with an id, and defines {names}"
        raise PluginError(path, "file", reason)
    try:
        BackendId(classes[0].id)
    except InvalidArgumentError as error:
        raise PluginError(path, "id", f"class {classes[0].__name__}: {error}") from error
    return classes[0]


def _module_of(path: str, content: bytes) -> ModuleType:
    """Return the module of a file; a module of the same path and content is run once."""
    digest = hashlib.sha256(path.encode() + b"\0" + content).hexdigest()[:16]
    name = f"interposer_{Path(path).stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # classes look their module up
    try:
        exec(compile(content, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_own_backend(member: object, module: ModuleType) -> bool:
    is_backend = isinstance(member, type) and issubclass(member, Backend) and member.__module__ == module.__name__
    return is_backend and "id" in vars(member)


def backend_of_python_file(path: str, sha256: str = "") -> Backend:
    """Return a new backend of the class that a Python file defines, also in another process.

    If `sha256` is given, the content of the file must have this digest.

    Raises:
        PluginError: the file has other content, or does not define one backend.
        OSError: the file cannot be read.
        Exception: the file, or the class, raises it.
    """
    content = Path(path).read_bytes()
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise PluginError(path, "allow-list", f"its SHA-256 is not {sha256} any more")
    return backend_class(path, content)()
