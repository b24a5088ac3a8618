"""Serialization of a sheet to the bytes of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.formats.armnn.schema import DATA_TYPES, LAYER_TYPES, SCHEMA
from interposer.writers.armnn.sheet import Sheet, Step, Tensor
from interposer.writers.armnn.types import dimensions, type_name
from interposer.writers.tables import LARGEST, Format, Tables

__all__ = ["serialized"]

FORMAT: Final = Format(SCHEMA, "Arm NN", "armnn")
"""The format for `Tables`. Arm NN itself writes no file identifier."""

_DATA: Final = {1: ("ByteData", 1), 2: ("ShortData", 2), 4: ("IntData", 3), 8: ("LongData", 4)}
"""The table of a constant's elements by their width in bytes, and its number in the union."""
_SYMMETRIC: Final = frozenset({"QLstm"})
"""The layers whose 8-bit weights are symmetric."""


def serialized(sheet: Sheet) -> bytes:
    """Return the bytes of the file with the layers of a sheet.

    Raises:
        InvalidArgumentError: the file would have 2 GiB or more.
    """
    return _Serializer(sheet).file()


class _Serializer:
    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._steps = _with_constants([*sheet.inputs, *sheet.steps, *sheet.outputs], len(sheet.inputs))
        tensors = (tensor for step in self._steps for tensor in _stored(step))
        size = sum(tensor.array.nbytes + 64 for tensor in tensors if tensor.array is not None)
        if size > LARGEST:
            raise InvalidArgumentError(
                f"the constants have {size:,} bytes, and an Arm NN file must have less than 2 GiB; "
                "ONNX files can have more (interposer.writers.onnx)"
            )
        self._tables = Tables(FORMAT, size)
        self._places = {
            output: (number, slot)
            for number, step in enumerate(self._steps)
            for slot, output in enumerate(step.outputs)
        }

    def file(self) -> bytes:
        """Return the bytes of the file."""
        tables, sheet = self._tables, self._sheet
        layers = [self._layer(step, index) for index, step in enumerate(self._steps)]
        versions = tables.table(
            "FeatureCompatibilityVersions",
            bindingIdsScheme=1,
            weightsLayoutScheme=sheet.weights_layout,
            constantTensorsAsInputs=int(sheet.weights_as_inputs),
        )
        root = tables.table(
            "SerializedGraph",
            layers=tables.tables(layers),
            inputIds=tables.numbers([step.binding_id for step in sheet.inputs]),
            outputIds=tables.numbers([step.binding_id for step in sheet.outputs]),
            featureVersions=versions,
        )
        return tables.finished(root)

    def _layer(self, step: Step, index: int) -> int:
        """Add the table of a layer with this index, and return the place of its AnyLayer table."""
        tables, kind = self._tables, step.kind
        is_symmetric = kind in _SYMMETRIC
        fields = {name: self._constant(tensor, is_symmetric) for name, tensor in step.constants.items()}
        if step.parameters is not None:
            parameter_tables = {name: self._constant(tensor, is_symmetric) for name, tensor in step.parameters.items()}
            table = next(field.type for field in SCHEMA.slots(f"{kind}Layer") if field and field.name == "inputParams")
            fields["inputParams"] = tables.table(table, **parameter_tables)
        if step.descriptor is not None:
            table = next(field.type for field in SCHEMA.slots(f"{kind}Layer") if field and field.name == "descriptor")
            fields["descriptor"] = self._plain(table, step.descriptor)
        layer = tables.table(f"{kind}Layer", base=self._base(step, index), **fields)
        return tables.table("AnyLayer", layer_type=SCHEMA.unions["Layer"].index(f"{kind}Layer") + 1, layer=layer)

    def _base(self, step: Step, index: int) -> int:
        tables = self._tables
        inputs = [
            tables.table("InputSlot", index=slot, connection=self._places[tensor])
            for slot, tensor in enumerate(step.inputs)
        ]
        infos = [self._info(tensor, is_constant=step.kind == "Constant") for tensor in step.outputs]
        outputs = [tables.table("OutputSlot", index=slot, tensorInfo=info) for slot, info in enumerate(infos)]
        base = tables.table(
            "LayerBase",
            index=index,
            layerName=tables.text(step.name),
            layerType=LAYER_TYPES.index(step.kind),
            inputSlots=tables.tables(inputs),
            outputSlots=tables.tables(outputs),
        )
        if step.kind not in {"Input", "Output"}:
            return base
        return tables.table("BindableLayerBase", base=base, layerBindingId=step.binding_id)

    def _plain(self, table: str, numbers_by_field: Mapping[str, Any]) -> int:
        """Add a table of numbers, vectors and other tables, such as a descriptor, and return its place."""
        fields = {field.name: field for field in SCHEMA.slots(table) if field}
        value_by_field: dict[str, Any] = {}
        for name, content in numbers_by_field.items():
            field = fields[name]
            if field.kind == "scalar":
                value_by_field[name] = content
            elif field.kind == "vector":
                value_by_field[name] = self._tables.numbers(content, {"u32": "uint32", "i32": "int32"}[field.type])
            elif field.kind == "table":
                value_by_field[name] = self._plain(field.type, content)
            else:
                value_by_field[name] = self._tables.tables([self._plain(field.type, row) for row in content])
        return self._tables.table(table, **value_by_field)

    def _info(self, tensor: Tensor, *, is_constant: bool = False, is_symmetric: bool = False) -> int:
        tables, info, q = self._tables, tensor.info, tensor.scales or tensor.info.quantization
        scales = tables.numbers(q.scales, "float32") if q is not None and q.per_axis else None
        is_per_tensor = 1.0 if type_name(info) in {"QAsymmU8", "QAsymmS8"} else 0.0
        is_symmetric = is_symmetric or scales is not None
        return tables.table(
            "TensorInfo",
            dimensions=tables.numbers(dimensions(info), "uint32"),
            dataType=DATA_TYPES.index(type_name(info, symmetric=is_symmetric)),
            quantizationScale=is_per_tensor if q is None else q.scale,
            quantizationOffset=0 if q is None else q.zero_point,
            quantizationScales=scales,
            quantizationDim=q.axis if q is not None and q.per_axis else None,
            isConstant=is_constant,
        )

    def _constant(self, tensor: Tensor, is_symmetric: bool = False) -> int:
        """Add a constant, and return the place of its ConstTensor table."""
        tables, array = self._tables, tensor.array
        assert array is not None
        name, number = _DATA[array.dtype.itemsize]
        vector = tables.constant(_bytes(array), array.dtype.itemsize)
        table = tables.table(name, data=vector)
        info = self._info(tensor, is_constant=True, is_symmetric=is_symmetric)
        return tables.table("ConstTensor", info=info, data_type=number, data=table)


def _with_constants(steps: Sequence[Step], count: int) -> list[Step]:
    """Return layers with a Constant layer for each constant that they read, after the first `count` layers."""
    constants: dict[Tensor, Step] = {}
    for tensor in (tensor for step in steps for tensor in step.inputs):
        if tensor.array is not None and tensor not in constants:
            content = Tensor(tensor.info, tensor.array, tensor.name)
            constants[tensor] = Step("Constant", tensor.name, [], [tensor], constants={"input": content})
    return [*steps[:count], *constants.values(), *steps[count:]]


def _stored(step: Step) -> list[Tensor]:
    return [*step.constants.values(), *(step.parameters or {}).values()]


def _bytes(array: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
