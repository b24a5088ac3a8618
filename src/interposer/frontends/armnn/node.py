"""One layer of an Arm NN file during its conversion to layers of the graph, as its converter sees it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, Quantization, TensorInfo, TensorShape
from interposer.formats.armnn.schema import LAYOUTS, SCHEMA
from interposer.frontends.armnn.contents import Layer
from interposer.frontends.flatbuffer import Record
from interposer.frontends.importer import Importer
from interposer.frontends.node import Node as SharedNode
from interposer.ir.graph import Value
from interposer.ops.reshape import Reshape

__all__ = ["FileImporter", "Node"]

Member = TypeVar("Member", bound=Enum)


class FileImporter(Importer):
    """The part of the importer that converters may use.

    `weights_layout` is 0 if the weights of depthwise convolutions are stored as [M, I, H, W], and 1 for
    [1, H, W, I * M].
    """

    weights_layout: int

    @abstractmethod
    def input(self, layer: Layer, number: int) -> Value | None:
        """Return what input slot `number` of a layer reads, or None if it is not connected."""

    @abstractmethod
    def is_read(self, layer: Layer, slot: int) -> bool:
        """Return True if another layer reads output `slot` of a layer."""

    @abstractmethod
    def stored(self, record: Record, name: str, source: str, where: str, *, scaled: bool) -> Value:
        """Return a constant of the file as a layer with this name and source; `where` is for errors.

        With `scaled`, a Signed32 constant has the scale in the file.
        """

    @abstractmethod
    def raw(self, record: Record, where: str) -> tuple[Array, Quantization | None]:
        """Return the elements of a constant of the file, and its scales, which may belong to no axis of it."""


class Node(SharedNode):
    """A layer of the file while it is converted, with the values of its inputs in the graph.

    The number of an operand is that of the layer's input slot. All layers are named after `name`. `infos` are the infos
    that the file declares for the outputs.
    """

    importer: FileImporter

    def __init__(
        self, importer: FileImporter, layer: Layer, name: str, source: str, infos: Sequence[TensorInfo]
    ) -> None:
        super().__init__(importer, layer.kind, name, source)
        self.layer, self.infos = layer, infos

    @property
    def num_inputs(self) -> int:
        """The number of input slots up to the last one that is connected."""
        return max(self.layer.inputs, default=-1) + 1

    def absence(self, index: int) -> str:
        """Return the message about an input slot that must be connected."""
        return f"input slot {index} is not connected"

    def step_name(self, op: Op) -> str:
        """Return the name of a layer for an intermediate value, which is that of the file's layer."""
        return self.name

    # --- the descriptor -----------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> Mapping[str, Any]:
        """The fields of the descriptor; the defaults of the format if the file has none."""
        record = self.layer.record.get("descriptor")
        if record is not None:
            fields: Mapping[str, Any] = record.fields
            return fields
        return SCHEMA.defaults(f"{self.layer.kind}Descriptor")

    def integers(self, field: str) -> tuple[int, ...]:
        """Return a vector of the descriptor; empty if it is missing."""
        vector = self.descriptor[field]
        return () if vector is None else tuple(vector.tolist())

    def pairs(self, field: str) -> tuple[tuple[int, int], ...]:
        """Return a vector of the descriptor as pairs."""
        numbers = self.integers(field)
        if len(numbers) % 2:
            self.fail(f"{field} has {len(numbers)} numbers; expected pairs")
        return tuple(zip(numbers[::2], numbers[1::2], strict=True))

    def member(self, field: str, names: Sequence[str], kind: type[Member]) -> Member:
        """Return a field of the descriptor as the member of an enumeration; `names` has them by their numbers."""
        number = self.descriptor[field]
        if not 0 <= number < len(names):
            self.fail(f"{field} is {number}, which is not known (0 to {len(names) - 1} are)")
        return kind[names[number]]

    def layout(self, field: str = "dataLayout", *, of: Sequence[str] = ("NHWC", "NCHW")) -> DataLayout:
        """Return the data layout in the descriptor, which must be one of the names `of`."""
        layout = self.member(field, LAYOUTS, DataLayout)
        if layout.name not in of:
            self.fail(f"{field} is {layout}; expected {' or '.join(of)}")
        return layout

    # --- operands -----------------------------------------------------------------------------------------------------

    def optional(self, index: int) -> Value | None:
        """Return what an input slot reads, or None if it is not connected."""
        return self.importer.input(self.layer, index)

    def tensor(self, index: int) -> Value:
        """Return a required input; a scalar has the shape [1], as it has in Arm NN."""
        value = self.value(index)
        return self.step(Reshape((1,)), value) if value.known.is_ranked and not value.known.rank else value

    def values(self, start: int = 0) -> list[Value]:
        """Return all inputs from `start` on as tensors; the layer fails if one of them is not connected."""
        return [self.tensor(index) for index in range(start, self.num_inputs)]

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the shape of a value, which must be known."""
        if not value.known.is_concrete:
            self.fail(f"an input has the shape {value.known.shape}; its dimensions must be known")
        return tuple(int(size) for size in value.known.shape)

    def stored(self, field: str, *, scaled: bool = False, fields: Mapping[str, Any] | None = None) -> Value | None:
        """Return a constant of the layer as a value, or None if the file has none; `field` is its name.

        With `scaled`, a Signed32 constant has the scale in the file. The constants of recurrent layers are in `fields`.
        """
        record = (self.layer.record if fields is None else fields).get(field)
        if record is None:
            return None
        where = f"{self.layer.where}.{field}"
        return self.importer.stored(record, f"{self.name}/{field}", self.source, where, scaled=scaled)

    def raw(self, field: str) -> tuple[Array, Quantization | None] | None:
        """Return the elements and scales of a constant of the layer, or None if the file has none."""
        record = self.layer.record.get(field)
        return None if record is None else self.importer.raw(record, f"{self.layer.where}.{field}")

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant that is not in the file, named after the layer."""
        return super().constant(np.ascontiguousarray(array), quantization)

    # --- layers -------------------------------------------------------------------------------------------------------

    def step(self, op: Op, *operands: Value | None, quantization: Quantization | None = None) -> Value:
        """Add a layer for an intermediate value, and return its only output, which has this quantization."""
        [value] = self._add(op, operands, [quantization])
        return value

    def steps(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer with several outputs for intermediate values, and return all of them."""
        return self._add(op, operands, [None] * op.num_results())

    def results(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer whose outputs are those of the file's layer, in the same order, and return them."""
        return self.reordered(op, operands, range(op.num_results()))

    def reordered(self, op: Op, operands: Sequence[Value | None], numbers: Sequence[int]) -> list[Value]:
        """Add a layer, and return the outputs of the file's layer: number i is output ``numbers[i]`` of the layer."""
        outputs = self._with_scales(op, operands, numbers)
        return [self._agreed(outputs[number], slot) for slot, number in enumerate(numbers)]

    def outcome(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer as `results` does, but without a comparison of its outputs with the infos in the file."""
        return self._with_scales(op, operands, range(op.num_results()))

    def is_read(self, slot: int) -> bool:
        """Return True if another layer reads output `slot` of the file's layer."""
        return self.importer.is_read(self.layer, slot)

    def _with_scales(self, op: Op, operands: Sequence[Value | None], numbers: Sequence[int]) -> list[Value]:
        """Add a layer whose output ``numbers[i]`` has the quantization that the file declares for output i."""
        if len(self.infos) != len(numbers):
            self.fail(f"it has {len(self.infos)} output slots; expected {len(numbers)}")
        quantizations: list[Quantization | None] = [None] * op.num_results()
        for info, number in zip(self.infos, numbers, strict=True):
            quantizations[number] = info.quantization
        return self._add(op, operands, quantizations)

    def declared(self, op: Op, operands: Sequence[Value | None]) -> list[Value]:
        """Add a layer whose outputs have the infos that the file declares, and return them."""
        return list(self.importer.add_layer(op, operands, self.name, self.source, self.infos).outputs)

    def given(self, value: Value, slot: int = 0) -> Value:
        """Return a value that is output `slot` of the file's layer, after comparing it with the info in the file."""
        return self._agreed(value, slot)

    def _add(
        self, op: Op, operands: Sequence[Value | None], quantizations: Sequence[Quantization | None]
    ) -> list[Value]:
        infos = [None if value is None else value.known for value in operands]
        for error in op.violations(*infos):
            self.fail(error)
        infos_and_quantizations = zip(op.infer_infos(*infos), quantizations, strict=True)
        declared_infos = [
            self._declared(inferred_info, quantization) for inferred_info, quantization in infos_and_quantizations
        ]
        return list(self.importer.add_layer(op.canonical(), operands, self.name, self.source, declared_infos).outputs)

    def _declared(self, inferred_info: TensorInfo | None, quantization: Quantization | None) -> TensorInfo | None:
        """Return the info to declare for an output so that its shape can still change with the inputs' shapes."""
        if inferred_info is None or quantization is None or not inferred_info.dtype.is_integer:
            return None
        shape = TensorShape([None] * inferred_info.rank) if inferred_info.is_ranked else inferred_info.shape
        return TensorInfo(shape, inferred_info.dtype, quantization)

    def _agreed(self, value: Value, slot: int) -> Value:
        """Return a value with the shape that the file declares for output `slot`: a scalar may have the shape [1].

        The layer fails if types or shapes differ otherwise.
        """
        info, inferred_info = self.infos[slot], value.known
        if info.dtype is not inferred_info.dtype:
            self.fail(f"output slot {slot} is declared as {info.dtype}, but the layer gives {inferred_info.dtype}")
        if info.shape.accepts(inferred_info.shape):
            return value
        shapes = (
            {tuple(info.shape), tuple(inferred_info.shape)} if info.is_concrete and inferred_info.is_ranked else set()
        )
        if shapes != {(), (1,)}:
            self.fail(
                f"output slot {slot} is declared with shape {info.shape}, but the layer gives {inferred_info.shape}"
            )
        return self.step(Reshape(tuple(info.shape)), value, quantization=inferred_info.quantization)
