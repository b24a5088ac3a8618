"""Writers: each converts a network, a graph or a part of a graph to a model of one format. Imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interposer.writers import armnn, onnx, tflite

__all__ = ["armnn", "onnx", "tflite"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'interposer.writers' has no attribute {name!r}")
    return import_module(f"interposer.writers.{name}")
