"""The conversion of a document's operations one by one, where one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from interposer.core.errors import InterposerError, ParseError
from interposer.core.types import MAX_RANK
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
    document, excessive_ranks = _with_small_ranks(document)
    importer = _Importer(read_document(document), shapes or {})
    importer.excessive_ranks = excessive_ranks
    importer.prepare()
    return importer.network.graph, [importer.attempt(operation) for operation in importer.model.operations]


def _with_small_ranks(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[int, int]]:
    """Return the document, and the ranks of its operands that have more axes than a tensor can have, by index.

    In the document that is returned they have one element, so that it can be read. No operation that takes or writes
    one of them is converted.
    """
    content: Any = document
    records = content.get("operands") if isinstance(content, Mapping) else None
    if not isinstance(records, Sequence):
        return document, {}
    excessive_ranks = {index: len(record["dims"]) for index, record in enumerate(records) if _is_large(record)}
    small_records = [
        _one_element(record) if index in excessive_ranks else record for index, record in enumerate(records)
    ]
    return (
        ({**document, "operands": small_records}, excessive_ranks) if excessive_ranks else (document, excessive_ranks)
    )


def _is_large(record: Any) -> bool:
    dims = record.get("dims") if isinstance(record, Mapping) else None
    if not isinstance(dims, Sequence) or len(dims) <= MAX_RANK:
        return False
    return all(isinstance(dim, int) and dim >= 0 for dim in dims)


def _one_element(record: Mapping[str, Any]) -> Mapping[str, Any]:
    elements = record.get("data")
    return {**record, "dims": [1], **({"data": elements[:1]} if isinstance(elements, Sequence) else {})}


class _Importer(Importer):
    excessive_ranks: Mapping[int, int] = MappingProxyType({})
    """The ranks of operands that have too many axes, by index."""

    def prepare(self) -> None:
        """Add the inputs of the model to the graph."""
        self._add_inputs()

    def attempt(self, operation: Operation) -> Attempt:
        """Convert an operation; if that fails, add a layer in its place."""
        mark = self.mark()
        try:
            self._convert_known(operation)
        except InterposerError as error:
            self._stand_in(operation)
            return Attempt(operation, (), str(error).removeprefix(f"{operation.where}: "))
        added_layers = list(self.network.graph)[mark:]
        return Attempt(operation, [layer for layer in added_layers if not isinstance(layer.op, Constant)], "")

    def _convert_known(self, operation: Operation) -> None:
        for index in (*operation.inputs, *operation.outputs):
            if index in self.excessive_ranks:
                raise ParseError(
                    f"operands[{index}] has rank {self.excessive_ranks[index]}; ranks 0 to {MAX_RANK} are supported"
                )
        entry = find(operation.name)
        if entry is None:
            raise ParseError(f"the operation {operation.name} is not known")
        self._convert(operation, entry)

    def _stand_in(self, operation: Operation) -> None:
        operands = [self.operands[index] for index in operation.outputs]
        ranked_outputs = [index for index, operand in zip(operation.outputs, operands, strict=True) if operand.has_rank]
        infos = [self.operands[index].info() for index in ranked_outputs]
        layer = self.network.graph.add(StandIn(len(infos), operation.name), name=operation.name, outputs=infos)
        infer_layer(layer)
        self._values.update(zip(ranked_outputs, layer.outputs, strict=True))
