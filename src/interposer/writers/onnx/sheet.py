"""The model under construction: its nodes, its constants and its names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType
from interposer.ir.graph import Value
from interposer.writers.emission import Names
from interposer.writers.onnx.tensor import Tensor

__all__ = ["Node", "Sheet"]

_SHARED: Final = 64
"""Equal constants with at most this number of elements are written once."""


@dataclass(eq=False)
class Node:
    """A node to be written: the name of an ONNX operator (`kind`), of its tensors, and its attributes.

    `source` is the origin of the layer that the node is written for, which is stored as the node's doc_string.
    `domain` is that of the operator, empty for the operators of ONNX itself.
    """

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    source: str = ""
    domain: str = ""
    captured: tuple[str, ...] = ()
    """The outer tensors that subgraphs among its attributes use."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all tensors that the node depends on, those that its subgraphs use included."""
        return (*self.inputs, *self.captured)

    def rename(self, names: Callable[[str], str]) -> None:
        """Replace each name of an input or output tensor by what `names` returns for it."""
        self.inputs = [names(name) for name in self.inputs]
        self.outputs = [names(name) for name in self.outputs]


class Sheet:
    """The content of one `GraphProto` while it is written: nodes in topological order, and the constants that they use.

    `values` maps values of the network to the tensors written for them. With `exact`, a layer is refused if ONNX's
    operators would round its results differently. `domains` are those of the nodes that are not ONNX's own.
    """

    def __init__(self, opset: int, *, exact: bool) -> None:
        self.opset, self.exact = opset, exact
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.values: dict[Value, Tensor] = {}
        self.placed: dict[Tensor, str] = {}
        self.names, self.node_names = Names(), Names()
        self.domains: set[str] = set()
        self._shared: dict[tuple[Any, ...], str] = {}

    def inner(self) -> Sheet:
        """Return a sheet for a subgraph, whose names are distinct and which can access the tensors of this sheet."""
        sheet = Sheet(self.opset, exact=self.exact)
        sheet.names, sheet.node_names, sheet.domains = self.names, self.node_names, self.domains
        return sheet

    def constant(self, array: Array, wanted_name: str) -> str:
        """Add a constant with the elements of `array`, and return its name: `wanted_name`, or with a number appended.

        Small constants of equal type, shape and content share one.
        """
        if array.size > _SHARED or array.dtype == object:
            return self._added(array, wanted_name)
        key = (DataType.of(array.dtype), array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self._added(array, wanted_name)
        return self._shared[key]

    def _added(self, array: Array, wanted_name: str) -> str:
        name = self.names.free(wanted_name)
        self.constants[name] = np.asarray(array)
        return name
