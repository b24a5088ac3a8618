"""Small TFLite files made by hand: plain dicts, in the schema's own words, encoded with the `flatbuffers` builder.

A table is a dict by field name, a union a pair of its member's name and a dict.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np

from interposer.formats.tflite.schema import OPERATORS, SCALARS, TENSOR_TYPES, UNIONS, Field, slots

_SLOTS = {
    "bool": "Bool", "i8": "Int8", "u8": "Uint8", "u16": "Uint16", "i32": "Int32", "u32": "Uint32", "i64": "Int64",
    "u64": "Uint64", "f32": "Float32",
}  # fmt: skip


def encode(model: dict[str, Any]) -> bytes:
    """Return the file; if the same `Shared` vector appears twice, both tables point to the same place."""
    encoder = _Encoder()
    encoder.builder.Finish(encoder.table("Model", model), file_identifier=b"TFL3")
    return bytes(encoder.builder.Output())


def code(name: str, **more: Any) -> dict[str, Any]:
    """An operator code, written as today's converters do."""
    number = OPERATORS.index(name)
    return {"deprecated_builtin_code": min(number, 127), "builtin_code": number, "version": 1, **more}


def tensor(name: str, shape: list[int], dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "type": TENSOR_TYPES.index(dtype), **more}


def operator(inputs: list[int], outputs: list[int], **more: Any) -> dict[str, Any]:
    return {"inputs": inputs, "outputs": outputs, **more}


def convolution_model() -> dict[str, Any]:
    """A quantized convolution with weights and bias, then a reshape: buffers, per-axis scales, two kinds of options."""
    weights = np.arange(2 * 3 * 3 * 3, dtype=np.int8)
    bias = np.array([100, -100], np.int32)
    convolution = {"stride_w": 2, "stride_h": 1, "fused_activation_function": 3}
    tensors = [
        tensor("x", [1, 8, 8, 3], "int8", shape_signature=[-1, 8, 8, 3], quantization=_scaled([0.5], [-3])),
        tensor("w", [2, 3, 3, 3], "int8", buffer=1, quantization=_scaled([0.25, 0.125], [0, 0])),
        tensor("b", [2], "int32", buffer=2),
        tensor("y", [1, 8, 4, 2], "int8", quantization=_scaled([2.0], [7])),
        tensor("z", [64], "int8", quantization=_scaled([2.0], [7])),
    ]
    return {
        "version": 3,
        "description": "made by hand",
        "operator_codes": [code("CONV_2D", version=3), code("RESHAPE")],
        "buffers": [{}, {"data": weights.tobytes()}, {"data": bias.tobytes()}, {"data": b"1.5.0\0\0\0"}],
        "metadata": [{"name": "min_runtime_version", "buffer": 3}],
        "signature_defs": [
            {
                "signature_key": "serving_default",
                "inputs": [{"name": "image", "tensor_index": 0}],
                "outputs": [{"name": "scores", "tensor_index": 4}],
            }
        ],
        "subgraphs": [
            {
                "name": "main",
                "inputs": [0],
                "outputs": [4],
                "tensors": tensors,
                "operators": [
                    operator([0, 1, 2], [3], opcode_index=0, builtin_options=("Conv2DOptions", convolution)),
                    operator([3, -1], [4], opcode_index=1, builtin_options=("ReshapeOptions", {"new_shape": [64]})),
                ],
            }
        ],
    }


def _scaled(scale: list[float], zero_point: list[int]) -> dict[str, Any]:
    return {"scale": scale, "zero_point": zero_point}


class Shared(list[Any]):
    """A vector that is written once, however many tables have it."""


class _Encoder:
    def __init__(self) -> None:
        self.builder: Any = flatbuffers.Builder(1024)
        self.shared: dict[int, int] = {}

    def table(self, table: str, values: dict[str, Any]) -> int:
        layout = slots(table)
        known = {field.name: field for field in layout if field}
        kinds = {f"{n}_type": _member(known[n].type, v[0]) for n, v in values.items() if known[n].kind == "union"}
        values = kinds | values
        offsets = {n: self.object(known[n], v) for n, v in values.items() if known[n].kind != "scalar"}
        self.builder.StartObject(len(layout))
        for slot, field in enumerate(layout):
            if field and field.name in offsets:
                self.builder.PrependUOffsetTRelativeSlot(slot, offsets[field.name], 0)
            elif field and field.name in values:
                prepend = getattr(self.builder, f"Prepend{_SLOTS[field.type]}Slot")
                prepend(slot, values[field.name], field.default)
        return int(self.builder.EndObject())

    def object(self, field: Field, value: Any) -> int:
        """The offset of anything that lies outside of its table."""
        if isinstance(value, Shared):
            if id(value) not in self.shared:
                self.shared[id(value)] = self.object(field, list(value))
            return self.shared[id(value)]
        if isinstance(value, str):
            return int(self.builder.CreateString(value))
        if isinstance(value, bytes):
            return int(self.builder.CreateByteVector(value))
        if field.kind == "union":
            return self.table(*value)
        if field.kind == "table":
            return self.table(field.type, value)
        if field.kind == "vector":
            return int(self.builder.CreateNumpyVector(np.array(value, np.dtype(SCALARS[field.type]))))
        return self.tables(field.type, value)

    def tables(self, table: str, values: list[dict[str, Any]]) -> int:
        offsets = [self.table(table, value) for value in values]
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())


def _member(union: str, name: str) -> int:
    return UNIONS[union].index(name) + 1
