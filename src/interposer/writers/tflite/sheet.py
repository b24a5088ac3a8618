"""The model under construction: its tensors and its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Value
from interposer.ops.axes import transposed
from interposer.writers.emission import Names

__all__ = ["Operator", "Sheet", "Tensor"]

_SHARED: Final = 64
"""Equal constants with at most this number of elements are written once."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the file: its name, its info, and for a constant its array. Tensors are compared by identity.

    A variable tensor is a state that a recurrent operator reads and updates. A handle stands for a variable.
    """

    name: str
    info: TensorInfo
    array: Array | None = None
    is_variable: bool = False
    is_handle: bool = False

    @property
    def dtype(self) -> DataType:
        """The data type of its elements."""
        return self.info.dtype

    @property
    def shape(self) -> TensorShape:
        """Its shape."""
        return self.info.shape

    def transposed(self, order: tuple[int, ...], name: str) -> Tensor:
        """Return a tensor under `name` with its axes in the order `order`; a constant's elements are permuted too."""
        return Tensor(name, transposed(self.info, order), None if self.array is None else self.array.transpose(order))


@dataclass(eq=False)
class Operator:
    """A TFLite operator to be written: its name (`kind`), tensors and options. Sheets in these become subgraphs."""

    kind: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    layer: str = ""
    """The layer that the operator is written for."""
    intermediates: list[Tensor] = field(default_factory=list)
    """The tensors that only have the scales of values inside of the operator."""

    @property
    def reads(self) -> list[Tensor | None]:
        """The tensors that the operator depends on."""
        return self.inputs

    @property
    def has_effect(self) -> bool:
        """True if the operator sets a variable, so that it is needed even if nothing uses its results."""
        return not self.outputs or any(tensor is not None and tensor.is_variable for tensor in self.inputs)

    def with_tensors(self, tensors: Mapping[Tensor, Tensor]) -> Operator:
        """Return the same operator with each input or output that is a key of `tensors` replaced by its value."""
        inputs = [tensor and tensors.get(tensor, tensor) for tensor in self.inputs]
        return replace(self, inputs=inputs, outputs=[tensors.get(output, output) for output in self.outputs])


class Sheet:
    """The content of one subgraph while it is written: operators in topological order, and the inputs and outputs.

    `values` maps values of the network to the tensors written for them. Sheets of called subgraphs have a name.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.operators: list[Operator] = []
        self.values: dict[Value, Tensor] = {}
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.names = Names()
        self._shared: dict[tuple[Any, ...], Tensor] = {}

    def constant(self, array: Array, quantization: Quantization | None, wanted_name: str) -> Tensor:
        """Return a constant tensor with the elements of `array` under the requested name, or with a number appended.

        Small constants of equal type, shape, quantization and content share one tensor.
        """
        info = TensorInfo(array.shape, array.dtype, quantization)
        if array.size > _SHARED or array.dtype == object:
            return Tensor(self.names.free(wanted_name), info, np.asarray(array))
        key = (info.dtype, array.shape, quantization, array.tobytes())
        if key not in self._shared:
            self._shared[key] = Tensor(self.names.free(wanted_name), info, np.asarray(array))
        return self._shared[key]
