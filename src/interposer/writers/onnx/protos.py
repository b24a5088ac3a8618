"""Protobuf messages from arrays, infos and attributes; the only module of the writer that requires the package onnx."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.errors import MissingDependencyError
from interposer.core.types import Array, DataType, Dim, TensorInfo

__all__ = [
    "CODES",
    "Message",
    "add_node",
    "add_tensor",
    "add_value",
    "full_type_name",
    "onnx",
    "schema",
    "type_name",
    "type_of",
    "value_info",
]

Message: TypeAlias = Any
"""A protobuf message; its fields are not statically typed."""

_NUMBERED: Final = {
    "float32": (1, "float"),
    "uint8": (2, "uint8"),
    "int8": (3, "int8"),
    "uint16": (4, "uint16"),
    "int16": (5, "int16"),
    "int32": (6, "int32"),
    "int64": (7, "int64"),
    "string": (8, "string"),
    "bool": (9, "bool"),
    "float16": (10, "float16"),
    "float64": (11, "double"),
    "uint32": (12, "uint32"),
    "uint64": (13, "uint64"),
    "bfloat16": (16, "bfloat16"),
    "float8_e4m3fn": (17, "float8e4m3fn"),
    "float8_e4m3fnuz": (18, "float8e4m3fnuz"),
    "float8_e5m2": (19, "float8e5m2"),
    "float8_e5m2fnuz": (20, "float8e5m2fnuz"),
    "uint4": (21, "uint4"),
    "int4": (22, "int4"),
    "float4_e2m1fn": (23, "float4e2m1"),
    "float8_e8m0fnu": (24, "float8e8m0"),
    "uint2": (25, "uint2"),
    "int2": (26, "int2"),
    "float6_e2m3fn": (27, "float6e2m3"),
    "float6_e3m2fn": (28, "float6e3m2"),
}
"""The format's numbers and names of Interposer's data types."""
CODES: Final = {dtype: _NUMBERED[str(dtype)][0] for dtype in DataType if str(dtype) in _NUMBERED}
"""The format's numbers of the types."""

_BY_NAME: Final = {name: DataType.of(own) for own, (_, name) in _NUMBERED.items()}


def onnx() -> Any:
    """Return the package onnx.

    Raises:
        MissingDependencyError: the package is not installed.
    """
    try:
        import onnx  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise MissingDependencyError("onnx", "onnx", "writing ONNX models") from error
    return onnx


@cache
def type_name(dtype: DataType) -> str:
    """Return the name of a tensor type in ONNX schemas, such as ``tensor(float)``."""
    return f"tensor({_NUMBERED[str(dtype)][1]})" if str(dtype) in _NUMBERED else str(dtype)


def full_type_name(info: TensorInfo) -> str:
    """Return the type name of a value, which may be a sequence or an optional: ``seq(tensor(float))``."""
    if info.element is None:
        return type_name(info.dtype)
    return f"{'seq' if info.dtype is DataType.SEQUENCE else 'optional'}({full_type_name(info.element)})"


def type_of(name: str) -> DataType:
    """Return the data type for a type name of the schemas, such as ``tensor(float)``."""
    return _BY_NAME[name.removeprefix("tensor(").removesuffix(")")]


@cache
def schema(kind: str, opset: int) -> Message | None:
    """Return the schema of the ONNX operator `kind` in an opset; None if it does not exist there or is deprecated."""
    package = onnx()
    try:
        declaration = package.defs.get_schema(kind, opset, "")
    except package.defs.SchemaError:
        return None
    return None if declaration.deprecated else declaration


def add_tensor(tensors: Message, name: str, array: Array, *, external: bool = False) -> None:
    """Add a `TensorProto` with this name and the elements of an array to a repeated field.

    With `external`, it declares type and shape only; the application provides the elements when it loads the model.
    """
    proto = tensors.add(name=name, data_type=CODES[DataType.of(array.dtype)], dims=array.shape)
    if not external:
        _fill(proto, array)
        return
    proto.data_location = proto.EXTERNAL
    for key, entry in (("location", "memory"), ("offset", "0"), ("length", str(array.nbytes))):
        proto.external_data.add(key=key, value=entry)


def _fill(proto: Message, array: Array) -> None:
    """Set the elements of a `TensorProto`."""
    dtype = DataType.of(array.dtype)
    if dtype is DataType.STRING:
        proto.string_data.extend(str(text).encode() for text in array.reshape(-1))
    else:
        proto.raw_data = _raw(array, dtype)


def tensor_proto(array: Array) -> Message:
    """Return a `TensorProto` without a name that has the elements of an array."""
    proto = onnx().TensorProto(data_type=CODES[DataType.of(array.dtype)], dims=array.shape)
    _fill(proto, array)
    return proto


def _raw(array: Array, dtype: DataType) -> bytes:
    """Return the elements of an array as the raw data of a `TensorProto` of type `dtype`.

    The bytes are little-endian; elements of fewer than 8 bits are packed, lowest bits first.
    """
    if dtype is DataType.BOOL or dtype.bits >= 8:
        little = array.dtype.newbyteorder("<") if array.dtype.kind in "iuf" else array.dtype
        return array.astype(little, copy=False).tobytes()
    array = np.ascontiguousarray(array)
    elements = (array.view(np.uint8) if dtype.is_float else array.astype(np.int8).view(np.uint8)).reshape(-1, 1)
    bits = np.unpackbits(elements, axis=1, bitorder="little")[:, : dtype.bits]
    return np.packbits(bits.reshape(-1), bitorder="little").tobytes()


def add_value(values: Message, name: str, info: TensorInfo) -> None:
    """Add a `ValueInfoProto` to a repeated field: name, type and shape; an unknown dimension keeps its name, if any."""
    _describe(values.add(name=name).type, info)


def value_info(name: str, info: TensorInfo) -> Message:
    """Return a `ValueInfoProto`: name, type and shape."""
    proto = onnx().ValueInfoProto(name=name)
    _describe(proto.type, info)
    return proto


def _describe(proto: Message, info: TensorInfo) -> None:
    if info.element is not None:
        inner_type = proto.sequence_type if info.dtype is DataType.SEQUENCE else proto.optional_type
        _describe(inner_type.elem_type, info.element)
        return
    proto.tensor_type.elem_type = CODES[info.dtype]
    if not info.is_ranked:
        return
    shape = proto.tensor_type.shape
    shape.SetInParent()
    for dim in info.shape:
        dim_proto = shape.dim.add()
        if not isinstance(dim, Dim):
            dim_proto.dim_value = dim
        elif dim.name:
            dim_proto.dim_param = dim.name


def add_node(
    nodes: Message,
    kind: str,
    name: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    attributes: Mapping[str, Any],
    source: str,
    domain: str,
) -> None:
    """Add a `NodeProto` of the ONNX operator `kind` to a repeated field; `inputs` and `outputs` are names of tensors.

    Attributes are numbers, strings, types, infos, arrays, or lists of numbers or strings. `source` is the doc_string,
    and `domain` that of the operator.
    """
    proto = nodes.add(op_type=kind, name=name, input=inputs, output=outputs, doc_string=source, domain=domain)
    make = onnx().helper.make_attribute
    for key, attribute in sorted(attributes.items()):
        proto.attribute.append(make(key, _plain(attribute)))


def _plain(attribute: Any) -> Any:
    if isinstance(attribute, DataType):
        return CODES[attribute]
    if isinstance(attribute, np.ndarray):
        return tensor_proto(attribute)
    if isinstance(attribute, TensorInfo):
        return value_info("", attribute).type
    if isinstance(attribute, bool):
        return int(attribute)
    if isinstance(attribute, float) and not math.isnan(attribute):
        return float(np.float32(attribute))
    return attribute
