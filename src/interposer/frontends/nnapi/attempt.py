"""The conversion of a document's operations one by one, where one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interposer.core.errors import InterposerError, ParseError
from interposer.frontends.nnapi.document import Operation, read_document
from interposer.frontends.nnapi.importer import Importer, Shapes
from interposer.frontends.nnapi.nnapi_converters import find
from interposer.ir.graph import Graph, Layer
from interposer.ir.inference import infer_layer
from interposer.ops.control import Constant, StandIn

__all__ = ["Attempt", "attempted"]


class Attempt(NamedTuple):
    """The result of converting one operation: its layers, or the problem (empty if there is none)."""

    operation: Operation
    layers: Sequence[Layer]
    problem: str


def attempted(document: Mapping[str, Any], shapes: Shapes | None = None) -> tuple[Graph, list[Attempt]]:
    """Convert all operations of a document; return the graph, and an attempt for each operation in their order.

    The results of an operation with a problem are those of a `StandIn` layer, so that the operations that read them can
    be converted.

    Raises:
        ParseError: the document is damaged.
        InvalidArgumentError: a shape does not fit its input.
    """
    importer = _Importer(read_document(document), shapes or {})
    importer.prepare()
    return importer.graph, [importer.attempt(operation) for operation in importer.model.operations]


class _Importer(Importer):
    def prepare(self) -> None:
        """Add the inputs of the model to the graph."""
        self._add_inputs()

    def attempt(self, operation: Operation) -> Attempt:
        """Convert an operation; if that fails, add a layer in its place."""
        before = len(list(self.graph))
        try:
            self._convert_known(operation)
        except InterposerError as error:
            self._stand_in(operation)
            return Attempt(operation, (), str(error).removeprefix(f"{operation.where}: "))
        return Attempt(operation, [item for item in list(self.graph)[before:] if not isinstance(item.op, Constant)], "")

    def _convert_known(self, operation: Operation) -> None:
        entry = find(operation.name)
        if entry is None:
            raise ParseError(f"the operation {operation.name} is not known")
        self._convert(operation, entry)

    def _stand_in(self, operation: Operation) -> None:
        operands = [self.operands[index] for index in operation.outputs]
        ranked = [index for index, operand in zip(operation.outputs, operands, strict=True) if operand.has_rank]
        infos = [self.operands[index].info() for index in ranked]
        layer = self.graph.add(StandIn(len(infos), operation.name), name=operation.name, outputs=infos)
        infer_layer(layer)
        self._values.update(zip(ranked, layer.outputs, strict=True))
