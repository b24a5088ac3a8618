"""The file under construction: its tensors and its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Layer, Value
from interposer.writers.armnn.releases import Release

__all__ = ["Sheet", "Step", "Tensor"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """An output of a layer of the file, or a constant, which has an array and a name. Tensors are compared by identity.

    A constant is only written as a layer where another layer reads it; constants that belong to a layer are part of it.
    """

    info: TensorInfo
    array: Array | None = None
    name: str = ""
    scales: Quantization | None = None
    """Scales that are stored instead of those in `info`; there may be more of them than the axis has elements."""

    @property
    def dtype(self) -> DataType:
        """The data type of its elements."""
        return self.info.dtype

    @property
    def shape(self) -> TensorShape:
        """Its shape."""
        return self.info.shape


@dataclass(eq=False)
class Step:
    """A layer of Arm NN to be written: its kind, name, inputs and outputs.

    `descriptor` has the fields of its descriptor, and `constants` those of its table. `parameters` are the constants of
    a recurrent layer.
    """

    kind: str
    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    descriptor: Mapping[str, Any] | None = None
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    parameters: Mapping[str, Tensor] | None = None
    binding_id: int = 0


class Sheet:
    """The content of a file while it is written: layers in topological order, and the inputs and outputs.

    `values` maps values of the network to the tensors written for them, and `written` has layers that were written as a
    part of others. `release` is the release of Arm NN for which
    the file is written. Without `exact`, layers may round ties differently. With `weights_as_inputs`, weights are
    inputs of convolutions, not parts of them.
    """

    def __init__(self, release: Release, *, exact: bool = True) -> None:
        self.release = release
        self.exact = exact
        self.steps: list[Step] = []
        self.inputs: list[Step] = []
        self.outputs: list[Step] = []
        self.values: dict[Value, Tensor] = {}
        self.written: frozenset[Layer] = frozenset()
        self.weights_as_inputs = release.prefers("22.05")

    @property
    def weights_layout(self) -> int:
        """The layout of the weights of depthwise convolutions: 0 for [M, I, H, W], 1 for [1, H, W, I * M]."""
        return int(self.release.prefers("21.08") or self.weights_as_inputs)
