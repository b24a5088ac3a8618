"""The NNAPI front end: models for Android's Neural Networks API, described as plain data."""

from importlib import import_module
from typing import Any

from interposer.core.families import import_families
from interposer.frontends.nnapi.importer import build, load
from interposer.frontends.nnapi.nnapi_converters import operators

__all__ = ["OperationSupport", "build", "load", "operators", "supported"]


def __getattr__(name: str) -> Any:
    if name not in {"OperationSupport", "supported"}:
        raise AttributeError(f"module 'interposer.frontends.nnapi' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.support"), name)  # it asks backends, which nothing else here knows


import_families(__name__, but="support")  # they fill the table of converters
