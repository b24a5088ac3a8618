"""From a checked document to a `Network`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from interposer.errors import InterposerError, InvalidArgumentError, ParseError, UnsupportedOperatorError, did_you_mean
from interposer.frontends.nnapi import families  # noqa: F401 - they fill the table of operators
from interposer.frontends.nnapi.document import Model, Operation, read_document
from interposer.frontends.nnapi.node import Node
from interposer.frontends.nnapi.registry import Entry, find
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output
from interposer.types import Array, Quantization, TensorInfo, TensorShape

__all__ = ["Importer", "build"]

Shapes: TypeAlias = Mapping[str, Sequence[int] | int]


def build(document: Mapping[str, Any], *, shapes: Shapes | None = None) -> Network:
    """The network that a document describes: a model for Android's Neural Networks API as plain data.

    Inputs and outputs are called as the operands, their binding ids are their places in the document's lists. An input
    whose data is an empty list is an optional one that is left out: nothing is bound to its place.

    Args:
        document: a mapping with "operands", "operations", "inputs" and "outputs".
        shapes: for inputs by name their shapes, where the document leaves extents open.

    Raises:
        ParseError: the document is damaged, describes what NNAPI does not allow, or what is not supported.
        UnsupportedOperatorError: operators that are not known, all of them with their counts.
        InvalidArgumentError: a shape that no input can have.
    """
    return Importer(read_document(document), shapes or {}).network()


class Importer:
    """Turns a model into a graph, operation by operation."""

    def __init__(self, model: Model, shapes: Shapes) -> None:
        self.model = model
        self.operands = model.operands
        self.graph = Graph(model.name)
        self._shapes = shapes
        self._values: dict[int, Value] = {}

    def network(self) -> Network:
        """The whole network."""
        entries = [find(operation.name) for operation in self.model.operations]
        self._refuse_unknown(entries)
        self._add_inputs()
        for operation, entry in zip(self.model.operations, entries, strict=True):
            assert entry is not None
            self._convert(operation, entry)
        for binding_id, index in enumerate(self.model.outputs):
            name = self.operands[index].name or f"output_{binding_id}"
            self.graph.add(Output(binding_id), [self._values[index]], name=name)
        return Network(graph=self.graph)

    def _refuse_unknown(self, entries: Sequence[Entry | None]) -> None:
        operations = zip(self.model.operations, entries, strict=True)
        unknown = Counter(operation.name for operation, entry in operations if entry is None)
        if unknown:
            raise UnsupportedOperatorError(unknown)

    def _add_inputs(self) -> None:
        given = [(binding_id, index) for binding_id, index in enumerate(self.model.inputs)
                 if not self.operands[index].omitted]  # fmt: skip
        names = [self.operands[index].name or f"input_{binding_id}" for binding_id, index in given]
        for name in self._shapes.keys() - set(names):
            raise InvalidArgumentError(
                f"the model has no input {name!r}{did_you_mean(name, names)} (inputs: {', '.join(names) or 'none'})"
            )
        for (binding_id, index), name in zip(given, names, strict=True):
            info = self._input_info(index, name)
            layer = self.graph.add(Input(binding_id), name=name, outputs=[info], source=self._source("inputs"))
            infer_layer(layer)
            self._values[index] = layer.output

    def _input_info(self, index: int, name: str) -> TensorInfo:
        operand, shape = self.operands[index], self._shapes.get(name)
        info = operand.info()
        if shape is None and operand.has_rank:
            return info
        if shape is None:
            raise ParseError(
                f"the rank of operands[{index}] is not known; give shapes={{{name!r}: ...}}", where="inputs"
            )
        if isinstance(shape, int) or not (info.shape.accepts(TensorShape(shape)) or not operand.has_rank):
            raise InvalidArgumentError(f"the input {name!r} of shape {info.shape} cannot be given the shape {shape}")
        return info.with_shape(shape)

    def _convert(self, operation: Operation, entry: Entry) -> None:
        where = operation.where
        fault = entry.fault(len(operation.inputs))
        if fault:
            raise ParseError(fault, where=where)
        try:
            made = entry.convert(Node(self, operation, f"{operation.name}", self._source(where)))
        except ParseError:
            raise
        except (InterposerError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ParseError(str(error), where=where) from error
        values = [made] if isinstance(made, Value) else made
        if len(values) != len(operation.outputs):
            raise ParseError(f"it has {len(operation.outputs)} outputs; expected {len(values)}", where=where)
        self._values.update(zip(operation.outputs, values, strict=True))

    def _source(self, place: str) -> str:
        """Where a layer comes from."""
        return f"{self.model.name}, {place}"

    def value(self, index: int, where: str) -> Value:
        """What an operand has become; constants become layers when they are first asked for."""
        found = self._values.get(index)
        if found is not None:
            return found
        operand = self.operands[index]
        if operand.value is None:
            raise ParseError(f"operands[{index}] has no value", where=where)
        self._values[index] = self.constant(operand.value, operand.quantization, operand.name or f"constant_{index}")
        return self._values[index]

    def constant(self, array: Array, quantization: Quantization | None, name: str) -> Value:
        """A new constant layer's output."""
        layer = self.graph.add(Constant(array, quantization), name=name)
        faults = infer_layer(layer)
        if faults:
            raise ParseError("; ".join(faults), where=f"constant {name!r}")
        return layer.output
