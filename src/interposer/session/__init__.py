"""Loading and calling models: `load`, `Model` and their helpers; this layer joins front ends, optimizer and runtime.

Public names are imported on first use: formats of this package are listed without importing the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interposer.core.lazy_names import lazy_names

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
    "bound": ("BoundRun",), "limits": ("Limits",), "loading": ("load",), "model": ("Model",),
    "runtimes": ("default_runtime",), "source": ("read_network",),
}  # fmt: skip
_member, __dir__ = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "FORMATS":
        from interposer.file_formats import process_formats  # noqa: PLC0415 - it changes while the process runs

        return process_formats().names
    return _member(name)
