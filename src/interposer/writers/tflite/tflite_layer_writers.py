"""The registry of functions that write layers to TFLite files."""

from __future__ import annotations

from typing import Final

from interposer.writers.registry import Registry
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor

__all__ = ["LAYER_WRITERS", "writer"]

LAYER_WRITERS: Final = Registry[Draft, Tensor]("TFLite")
writer: Final = LAYER_WRITERS.writer
