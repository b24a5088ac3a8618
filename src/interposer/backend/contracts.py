"""Checks that a backend, and the results of its methods, comply with the plug-in interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from interposer.backend.base import API_VERSION, Backend
from interposer.backend.capabilities import Capabilities
from interposer.core.errors import BackendContractError

__all__ = ["backend_problem", "checked"]

_T = TypeVar("_T")


def checked(returned: object, kind: Callable[..., _T], method_name: str, backend: str) -> _T:
    """Return `returned` if it is an instance of `kind`.

    Args:
        returned: what a method of a backend returned.
        kind: the class that the plug-in interface requires.
        method_name: the name of the method, for the error.
        backend: the backend's id, for the error.

    Raises:
        BackendContractError: `returned` is not an instance of `kind`.
    """
    if not isinstance(returned, kind):  # type: ignore[arg-type] # a class; mypy refuses abstract ones as type[_T]
        class_name = getattr(kind, "__name__", kind)
        raise BackendContractError(
            f"{method_name} of backend {backend!r} returned {type(returned).__name__}; expected {class_name}",
            backend=backend,
        )
    return cast("_T", returned)


def backend_problem(backend_id: str, backend: object) -> str | None:
    """Return why an object cannot be registered as the backend with this id, or None if it can.

    Checked are its class, its `id`, its capabilities and its version of the plug-in interface.
    """
    if not isinstance(backend, Backend):
        return f"its factory returned {type(backend).__name__}, which is not a Backend"
    if getattr(backend, "id", None) != backend_id:
        return f"its id is {getattr(backend, 'id', None)!r}"
    if not isinstance(backend.capabilities, Capabilities):
        return f"its capabilities are {backend.capabilities!r}, which is not a Capabilities object"
    return _version_problem(backend.api_version)


def _version_problem(version: object) -> str | None:
    match version:
        case (int(major), int(minor)):
            is_compatible = major == API_VERSION[0] and minor <= API_VERSION[1]
            supported_version = ".".join(map(str, API_VERSION))
            return (
                None
                if is_compatible
                else f"it needs version {major}.{minor} of the backend interface; this is {supported_version}"
            )
    return f"its api_version is {version!r}; expected two numbers, such as {API_VERSION}"
