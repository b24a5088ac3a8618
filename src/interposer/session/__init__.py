"""Loading and calling models: `load`, `Model` and their helpers; this layer joins front ends, optimizer and runtime."""

from typing import Any

from interposer.file_formats import process_formats
from interposer.session.bound import BoundRun
from interposer.session.limits import Limits
from interposer.session.load import load
from interposer.session.model import Model
from interposer.session.runtimes import default_runtime
from interposer.session.source import read_network

__all__ = ["FORMATS", "BoundRun", "Limits", "Model", "default_runtime", "load", "read_network"]

FORMATS: tuple[str, ...]
"""The names of all formats that are read or written."""


def __getattr__(name: str) -> Any:
    if name != "FORMATS":
        raise AttributeError(f"module 'interposer.session' has no attribute {name!r}")
    return process_formats().names
