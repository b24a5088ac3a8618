"""Messages of the protocol from arrays, infos and attributes; the one place that needs the package onnx."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.errors import MissingDependencyError
from interposer.types import Array, DataType, Dim, TensorInfo

__all__ = ["CODES", "Message", "node_proto", "onnx", "schema", "tensor_proto", "type_name", "value_info"]

Message: TypeAlias = Any
"""A protobuf message; the fields' types are the protocol's business."""

CODES: Final = {
    DataType.FLOAT32: 1,
    DataType.UINT8: 2,
    DataType.INT8: 3,
    DataType.UINT16: 4,
    DataType.INT16: 5,
    DataType.INT32: 6,
    DataType.INT64: 7,
    DataType.STRING: 8,
    DataType.BOOL: 9,
    DataType.FLOAT16: 10,
    DataType.FLOAT64: 11,
    DataType.UINT32: 12,
    DataType.UINT64: 13,
    DataType.BFLOAT16: 16,
    DataType.FLOAT8_E4M3FN: 17,
    DataType.FLOAT8_E4M3FNUZ: 18,
    DataType.FLOAT8_E5M2: 19,
    DataType.FLOAT8_E5M2FNUZ: 20,
    DataType.UINT4: 21,
    DataType.INT4: 22,
}
"""The format's numbers of the types."""

_NAMES: Final = {DataType.FLOAT32: "float", DataType.FLOAT64: "double"}


def onnx() -> Any:
    """The package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import onnx  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise MissingDependencyError("onnx", "onnx", "writing ONNX models") from error
    return onnx


def type_name(dtype: DataType) -> str:
    """The type as the format's operator sets write it: ``tensor(float)``."""
    return f"tensor({_NAMES.get(dtype) or str(dtype).replace('_', '')})"


@cache
def schema(kind: str, opset: int) -> Message | None:
    """The declaration of an operator as that opset has it; None where it has not."""
    package = onnx()
    try:
        found = package.defs.get_schema(kind, opset, "")
    except package.defs.SchemaError:
        return None
    return None if found.deprecated else found


def tensor_proto(name: str, array: Array) -> Message:
    """An array as a tensor of the format, named so."""
    dtype = DataType.of(array.dtype)
    proto = onnx().TensorProto(name=name, data_type=CODES[dtype], dims=array.shape)
    if dtype is DataType.STRING:
        proto.string_data.extend(str(text).encode() for text in array.reshape(-1))
    else:
        proto.raw_data = _raw(np.ascontiguousarray(array), dtype)
    return proto


def _raw(array: Array, dtype: DataType) -> bytes:
    """Little-endian bytes; two 4-bit elements in each, the lower half first."""
    if dtype.bits == 4:
        halves = array.astype(np.int8).reshape(-1).view(np.uint8) & 15
        halves = np.append(halves, np.zeros(len(halves) % 2, np.uint8))
        return bytes(halves[::2] | halves[1::2] << 4)
    return array.astype(array.dtype.newbyteorder("<") if array.dtype.kind in "iuf" else array.dtype).tobytes()


def value_info(name: str, info: TensorInfo) -> Message:
    """Name, type and shape of a tensor; an extent that is not known keeps its name, if it has one."""
    proto = onnx().ValueInfoProto(name=name)
    proto.type.tensor_type.elem_type = CODES[info.dtype]
    shape = proto.type.tensor_type.shape
    shape.SetInParent()
    for dim in info.shape:
        added = shape.dim.add()
        if not isinstance(dim, Dim):
            added.dim_value = dim
        elif dim.name:
            added.dim_param = dim.name
    return proto


def node_proto(
    kind: str, name: str, inputs: Iterable[str], outputs: Iterable[str], attributes: Mapping[str, Any]
) -> Message:
    """A node; attributes are numbers, texts, types, arrays, or lists of numbers or texts."""
    proto = onnx().NodeProto(op_type=kind, name=name, input=list(inputs), output=list(outputs))
    make = onnx().helper.make_attribute
    for key, value in sorted(attributes.items()):
        proto.attribute.append(make(key, _plain(value)))
    return proto


def _plain(value: Any) -> Any:
    if isinstance(value, DataType):
        return CODES[value]
    if isinstance(value, np.ndarray):
        return tensor_proto("", value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and not math.isnan(value):
        return float(np.float32(value))
    return value
