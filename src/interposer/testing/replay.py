"""Resolution of backends from ids, classes, functions and paths of shared objects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

from interposer.backend import Backend
from interposer.backend.devices import is_address
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.plugins.capi.loading.open_libraries import backend_of_file
from interposer.runtime import Runtime
from interposer.session import default_runtime

__all__ = ["Factory", "backend_of", "imported", "is_library"]

Factory = Callable[[], Backend]


def backend_of(text: str | Factory, runtime: Runtime | None = None) -> Backend:
    """Return the backend for an id that the runtime knows, a ``module:Class``, a factory function, or a path.

    Raises:
        UnknownBackendError: no backend has this id.
        BackendUnavailableError: the backend is known, but cannot be used on this machine.
        InvalidArgumentError: the name cannot be imported, or does not yield a backend.
        PluginError: the shared object cannot be loaded.
    """
    if isinstance(text, str) and is_library(text):
        return backend_of_file(text)
    if isinstance(text, str) and _is_known(text, runtime or default_runtime()):
        return (runtime or default_runtime()).registry.get(text)
    factory = imported(text) if isinstance(text, str) else text
    try:
        backend: object = factory() if callable(factory) else factory
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"{text!r} gives no backend: {type(error).__name__}: {error}") from error
    if not isinstance(backend, Backend):
        raise InvalidArgumentError(f"{text!r} gives {backend!r}, which is not a Backend")
    return backend


def _is_known(text: str, runtime: Runtime) -> bool:
    """Return True for an id, or the address of a device; False for ``module:Class`` and for a file of Python."""
    if text.endswith(".py"):
        return False
    return ":" not in text or is_address(text) or text.partition(":")[0] in runtime.registry


def is_library(text: str) -> bool:
    """Return True if the text is the path of a shared object."""
    return ":" not in text and (os.sep in text or re.search(r"\.so(\.[0-9.]+)?\Z", text) is not None)


def imported(name: str) -> Any:
    """Return the class, function or object that ``module:name`` names.

    Raises:
        InvalidArgumentError: the text has another form, or cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if os.sep in module or module.endswith(".py"):
        folder, file = os.path.split(module)
        where = f" where the folder {folder} is searched (PYTHONPATH)" if folder else ""
        suggested_name = f"{file.removesuffix('.py')}:{attribute or 'CLASS'}"
        raise InvalidArgumentError(f"{name!r} names a file; expected MODULE:CLASS, such as {suggested_name}{where}")
    if not module or not attribute:
        raise InvalidArgumentError(f"{name!r} names no class; expected MODULE:CLASS")
    try:
        return reduce(getattr, attribute.split("."), import_module(module))
    except AttributeError as error:
        names = [known for known in dir(error.obj) if callable(getattr(error.obj, known, None))]
        hint = did_you_mean(str(error.name), names) if error.name else ""
        raise InvalidArgumentError(f"{name!r} cannot be imported: {error}{hint}") from error
    except ImportError as error:
        raise InvalidArgumentError(f"{name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error
