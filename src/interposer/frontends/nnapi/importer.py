"""The conversion of a checked NNAPI document, from memory or a JSON file, to a `Network`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from interposer.core.errors import ParseError, memory_to
from interposer.core.types import UNRANKED, TensorInfo, TensorShape
from interposer.frontends.importer import input_of_region, keep_names
from interposer.frontends.nnapi.document import Model, Operation, read_document
from interposer.frontends.nnapi.nnapi_converters import Entry, find, operators
from interposer.frontends.nnapi.node import DocumentImporter, Node
from interposer.frontends.refusals import missing_operators
from interposer.frontends.resizing import Resizes, resized
from interposer.frontends.sources import Source, errors_at, read_file
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Input, Output

__all__ = ["Importer", "build", "load"]

Shapes: TypeAlias = Resizes
_MOST_OPERATIONS: Final = 1 << 16
"""The limit of converted operations per import; those of a referenced model count once per call."""


def build(document: Mapping[str, Any], *, shapes: Shapes | None = None) -> Network:
    """Return the network that a document describes: a model for Android's Neural Networks API as plain data.

    Inputs and outputs have the names of the operands; binding ids are positions in the document's lists. An input
    whose data is an empty list is an omitted optional input, and must not be bound.

    Args:
        document: a mapping with "operands", "operations", "inputs" and "outputs".
        shapes: shapes by input name. A dimension that the document fixes may get another size where the
            operations allow that; None keeps the document's size.

    Raises:
        ParseError: the document is damaged, violates NNAPI's rules, or uses something unsupported.
        UnsupportedOperatorError: operators are not known; the message lists all of them with their counts.
        InvalidArgumentError: a shape does not fit its input.
    """
    return Importer(read_document(document), shapes or {}).convert()


class Importer(DocumentImporter):
    """Converts one model of a document to a graph: its inputs, then its operations in order, then its outputs.

    A model that an operation runs has an importer of its own, whose `outer` is the importer of the running model.
    `is_resized` is True if an input has a shape that the document does not allow. Then the shapes of other operands in
    the document are ignored.
    """

    def __init__(
        self, model: Model, shapes: Shapes, outer: Importer | None = None, network: Network | None = None
    ) -> None:
        super().__init__(Network(model.name) if network is None else network, outer)
        self.model = model
        self.operands = model.operands
        self._shapes = shapes
        self.is_resized: bool = outer is not None and outer.is_resized
        self._values: dict[int, Value] = {}
        self._referenced: tuple[Model, ...] = model.referenced if outer is None else outer._referenced
        self._converted: list[int] = [0] if outer is None else outer._converted

    def convert(self) -> Network:
        """Convert the whole model, and return the network.

        `UnsupportedOperatorError` is raised first if the model has unknown operators.
        """
        self._refuse_unknown()
        self._add_inputs()
        self._convert_all()
        self._add_outputs()
        return self.network

    def region(self, number: int, infos: Sequence[TensorInfo]) -> Graph:
        """Return referenced model `number` as a region: the graph of a control-flow layer, with inputs of `infos`."""
        region_importer, indices = self._inside(number, infos, Network(f"model {number}"))
        for binding_id, (index, info) in enumerate(zip(indices, infos, strict=True)):
            name = region_importer.operands[index].name or f"input_{binding_id}"
            region_importer._values[index] = input_of_region(region_importer.network.graph, binding_id, info, name)
        region_importer._convert_all()
        region_importer._add_outputs()
        return region_importer.network.graph

    def inlined(self, number: int, values: Sequence[Value]) -> list[Value]:
        """Add the layers of referenced model `number` to this network, applied to `values`, and return its outputs."""
        inlined_importer, indices = self._inside(number, [value.known for value in values], self.network)
        inlined_importer._values.update(zip(indices, values, strict=True))
        inlined_importer._convert_all()
        return [inlined_importer._values[index] for index in inlined_importer.model.outputs]

    def _inside(self, number: int, infos: Sequence[TensorInfo], network: Network) -> tuple[Importer, Sequence[int]]:
        """Return a new importer for referenced model `number`, and the indices of the model's input operands.

        It adds layers to `network`. `ParseError` is raised if the model's inputs cannot have `infos`.
        """
        model = self._referenced[number]
        if len(model.inputs) != len(infos):
            raise ParseError(f"model {number} has {len(model.inputs)} inputs; expected {len(infos)}")
        for index, info in zip(model.inputs, infos, strict=True):
            operand = model.operands[index]
            fits = (operand.dtype, operand.quantization) == (info.dtype, info.quantization)
            has_shape = operand.has_rank and not self.is_resized
            if not fits or (has_shape and not operand.info().shape.accepts(info.shape)):
                raise ParseError(f"model {number} takes {operand.type} {list(operand.dims)}, but gets {info}")
        return Importer(model, {}, self, network), model.inputs

    def _convert_all(self) -> None:
        self._converted[0] += 1 + len(self.model.operations)
        if self._converted[0] > _MOST_OPERATIONS:
            raise ParseError(f"the models make more than {_MOST_OPERATIONS:,} operations, which is not supported")
        for operation in self.model.operations:
            entry = find(operation.name)
            assert entry is not None
            self._convert(operation, entry)

    def _add_outputs(self) -> None:
        for binding_id, index in enumerate(self.model.outputs):
            name = self.operands[index].name or f"output_{binding_id}"
            self.network.graph.add(Output(binding_id), [self._values[index]], name=name)
        value_of_name = ((self.operands[index].name, value) for index, value in self._values.items())
        keep_names(self.network.graph, ((name, value) for name, value in value_of_name if name))

    def _refuse_unknown(self) -> None:
        operations = (operation for model in (self.model, *self._referenced) for operation in model.operations)
        unknown_operations = [operation for operation in operations if find(operation.name) is None]
        if unknown_operations:
            raise missing_operators(
                ((operation.name, operation.where.partition(" ")[0]) for operation in unknown_operations), operators()
            )

    def _add_inputs(self) -> None:
        present_inputs = [(binding_id, index) for binding_id, index in enumerate(self.model.inputs)
                 if not self.operands[index].omitted]  # fmt: skip
        names = [self.operands[index].name or f"input_{binding_id}" for binding_id, index in present_inputs]
        shapes = resized(
            {name: self._declared_shape(index) for (_, index), name in zip(present_inputs, names, strict=True)},
            self._shapes,
        )
        self.is_resized = any(
            not self._declared_shape(index).accepts(shapes[name])
            for (_, index), name in zip(present_inputs, names, strict=True)
        )
        for (binding_id, index), name in zip(present_inputs, names, strict=True):
            info = self._input_info(index, name, shapes[name])
            layer = self.network.graph.add(Input(binding_id), name=name, outputs=[info], source=self._source("inputs"))
            infer_layer(layer)
            self._values[index] = layer.output

    def _declared_shape(self, index: int) -> TensorShape:
        operand = self.operands[index]
        return operand.info().shape if operand.has_rank else TensorShape(UNRANKED)

    def _input_info(self, index: int, name: str, shape: TensorShape) -> TensorInfo:
        if not shape.is_ranked:
            raise ParseError(
                f"the rank of operands[{index}] is not known; give shapes={{{name!r}: ...}}", where="inputs"
            )
        return self.operands[index].info().with_shape(shape)

    def _convert(self, operation: Operation, entry: Entry) -> None:
        problem = entry.fault(len(operation.inputs))
        if problem:
            raise ParseError(problem, where=operation.where)
        with self.conversion(operation.where):
            outputs = entry.convert(Node(self, operation, self._source(operation.where)))
            values = [outputs] if isinstance(outputs, Value) else outputs
            if len(values) != len(operation.outputs):
                raise ParseError(f"it has {len(operation.outputs)} outputs; expected {len(values)}")
            self._values.update(zip(operation.outputs, values, strict=True))

    def _source(self, place: str) -> str:
        """Return the model's name and `place` (a location in the document), as messages about a layer show it."""
        return f"{self.model.name}, {place}"

    def value(self, index: int) -> Value:
        """Return the network value of the operand with this index; a constant becomes a layer when it is first used.

        `ParseError` is raised if the operand has no value.
        """
        if index not in self._values:
            operand = self.operands[index]
            if operand.value is None:
                raise ParseError(f"operands[{index}] has no value")
            name = operand.name or f"constant_{index}"
            self._values[index] = self.constant(operand.value, name, quantization=operand.quantization)
        return self._values[index]


# --- files ------------------------------------------------------------------------------------------------------------


@memory_to("read the network")
def load(source: Source, *, shapes: Shapes | None = None) -> Network:
    """Return the network that a JSON file describes; see `build`.

    Args:
        source: a path, or the bytes of a file.
        shapes: shapes by input name, as for `build`.

    Raises:
        ParseError: the file cannot be read, or `build` refuses the document.
        InvalidArgumentError: `source` is not a path or bytes, or a shape does not fit its input.
    """
    path, content = read_file(source)
    with errors_at(path):
        return build(_document(bytes(content)), shapes=shapes)


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ParseError("the file is nested too deeply") from error
    except ValueError as error:
        raise ParseError(f"the file is truncated or damaged, or is no JSON: {error}") from error
