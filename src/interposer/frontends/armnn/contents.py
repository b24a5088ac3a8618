"""An Arm NN file as plain data: its layers with their connections; descriptors are not interpreted here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interposer.core.records import dataclass
from interposer.frontends.flatbuffer import Record

__all__ = ["Content", "Layer", "Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A connected input slot: the index of the layer whose output it reads, and the number of that output.

    `seen_as` is the tensor info that the layer sees instead of that of the output; None if it sees the same.
    """

    layer: int
    output: int
    seen_as: Record | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the file: its kind such as ``Convolution2d``, its position in the file, its index and its name.

    `inputs` has the connected input slots by their number, and `outputs` the tensor infos of the outputs. `binding_id`
    is that of an Input or Output layer. `record` is its table, empty for a kind that is not known.
    """

    kind: str
    position: int
    index: int
    name: str
    inputs: Mapping[int, Slot]
    outputs: tuple[Record, ...]
    binding_id: int
    record: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The place of the layer in the file, for messages."""
        title = f"{self.kind} {self.name!r}" if self.name else self.kind
        return f"layers[{self.position}] {title}"


@dataclass(frozen=True, slots=True)
class Content:
    """The layers of a file by their indices, in the order of the file, and its versions of the format's features.

    `inputs` and `outputs` are the indices of the Input and Output layers in the order of the network.
    """

    layers: Mapping[int, Layer]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights_layout: int
    """0 if the weights of depthwise convolutions are stored as [M, I, H, W], 1 for [1, H, W, I * M]."""
