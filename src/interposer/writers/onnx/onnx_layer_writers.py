"""The registry of functions that write layers to ONNX files."""

from __future__ import annotations

from typing import Final

from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.registry import Registry

__all__ = ["LAYER_WRITERS", "writer"]

LAYER_WRITERS: Final = Registry[Draft, Tensor]("ONNX")
writer: Final = LAYER_WRITERS.writer
