"""Backends by the names that people give them: ids, classes, functions and paths of shared objects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

from interposer.backend import Backend
from interposer.core.errors import InvalidArgumentError
from interposer.plugins.capi.loading.open_libraries import backend_of_file
from interposer.runtime import Runtime
from interposer.session import default_runtime

__all__ = ["Factory", "backend_of", "is_library"]

Factory = Callable[[], Backend]


def backend_of(text: str | Factory, runtime: Runtime | None = None) -> Backend:
    """The backend of an id that the runtime knows, of a class written as ``module:Class``, of a factory, or of a path.

    Raises:
        UnknownBackendError: nobody knows the id.
        BackendUnavailableError: it is known, but cannot be used here.
        InvalidArgumentError: it cannot be imported, or gives no backend.
        PluginError: the shared object cannot be loaded.
    """
    if isinstance(text, str) and is_library(text):
        return backend_of_file(text)
    if isinstance(text, str) and ":" not in text:
        return (runtime or default_runtime()).registry.get(text)
    factory = _imported(text) if isinstance(text, str) else text
    try:
        value: object = factory() if callable(factory) else factory
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"{text!r} gives no backend: {type(error).__name__}: {error}") from error
    if not isinstance(value, Backend):
        raise InvalidArgumentError(f"{text!r} gives {value!r}, which is no Backend")
    return value


def is_library(text: str) -> bool:
    """Return whether a backend is given by the path of a shared object."""
    return ":" not in text and (os.sep in text or re.search(r"\.so(\.[0-9.]+)?\Z", text) is not None)


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidArgumentError(f"{name!r} names no class; expected MODULE:CLASS")
    try:
        return reduce(getattr, attribute.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"{name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error
