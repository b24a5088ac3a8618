"""The registry of functions that write layers to Arm NN files."""

from __future__ import annotations

from typing import Final

from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.registry import Registry

__all__ = ["LAYER_WRITERS", "writer"]

LAYER_WRITERS: Final = Registry[Draft, Tensor]("Arm NN")
writer: Final = LAYER_WRITERS.writer
