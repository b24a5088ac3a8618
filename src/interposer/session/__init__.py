"""Loading and calling models: `load`, `Model` and their helpers; this layer joins front ends, optimizer and runtime.

Public names are imported on first use: formats of this package are listed without importing the runtime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interposer.session.bound import BoundRun
    from interposer.session.limits import Limits
    from interposer.session.loading import load
    from interposer.session.model import Model
    from interposer.session.runtimes import default_runtime
    from interposer.session.source import read_network

__all__ = ["FORMATS", "BoundRun", "Limits", "Model", "default_runtime", "load", "read_network"]

FORMATS: tuple[str, ...]
"""The names of all formats that are read or written."""

_HOMES = {
    "BoundRun": "bound", "Limits": "limits", "Model": "model", "default_runtime": "runtimes", "load": "loading",
    "read_network": "source",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "FORMATS":
        from interposer.file_formats import process_formats  # noqa: PLC0415 - it changes while the process runs

        return process_formats().names
    if name not in _HOMES:
        raise AttributeError(f"module 'interposer.session' has no attribute {name!r}")
    member = getattr(import_module(f"interposer.session.{_HOMES[name]}"), name)
    globals()[name] = member
    return member
