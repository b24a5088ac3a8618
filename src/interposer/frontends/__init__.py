"""Front ends: each converts a model file, or plain data, into a `Network`. Front ends are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interposer.frontends import armnn, caffe, nnapi, onnx, tensorflow, tflite, torch

__all__ = ["armnn", "caffe", "nnapi", "onnx", "tensorflow", "tflite", "torch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'interposer.frontends' has no attribute {name!r}")
    return import_module(f"interposer.frontends.{name}")
