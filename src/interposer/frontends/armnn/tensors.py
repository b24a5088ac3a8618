"""Tensor infos and constants of Arm NN files as those of Interposer."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.errors import DamagedFileError, InvalidArgumentError, ParseError
from interposer.core.types import UNRANKED, Array, DataType, Dim, Quantization, TensorInfo, TensorShape
from interposer.formats.armnn.schema import DATA_TYPES
from interposer.frontends.flatbuffer import Record

__all__ = ["constant_array", "quantization_of", "tensor_info"]

_TYPES: Final = {
    "Float16": DataType.FLOAT16,
    "Float32": DataType.FLOAT32,
    "QuantisedAsymm8": DataType.UINT8,
    "QAsymmU8": DataType.UINT8,
    "QAsymmS8": DataType.INT8,
    "QSymmS8": DataType.INT8,
    "QuantisedSymm16": DataType.INT16,
    "QSymmS16": DataType.INT16,
    "Signed32": DataType.INT32,
    "Signed64": DataType.INT64,
    "Boolean": DataType.BOOL,
}
_QUANTIZED: Final = frozenset({DataType.UINT8, DataType.INT8, DataType.INT16})
_NOT_SPECIFIED: Final = 0
_SCALAR: Final = 2
_WIDTHS: Final = {"ByteData": 1, "ShortData": 2, "IntData": 4, "LongData": 8}


def tensor_info(record: Record, where: str, *, scaled: bool = False, bare: bool = False) -> TensorInfo:
    """Return the type, shape and quantization that a file declares for a tensor; `where` is for errors.

    Dimensions that are not specified are unknown. With `scaled`, Signed32 tensors have the scale in the file, as the
    biases of quantized layers do; other Signed32 tensors are plain integers. With `bare`, all scales are left out.
    """
    quantization = None if bare else quantization_of(record, where, scaled=scaled)
    try:
        return TensorInfo(_shape(record, where), _data_type(record, where), quantization)
    except InvalidArgumentError as error:
        raise ParseError(f"a tensor info is wrong: {error}", where=where) from error


def _data_type(record: Record, where: str) -> DataType:
    number = record["dataType"]
    if not 0 <= number < len(DATA_TYPES):
        raise ParseError(f"data type {number} is not known (0 to {len(DATA_TYPES) - 1} are)", where=where)
    return _TYPES[DATA_TYPES[number]]


def _shape(record: Record, where: str) -> TensorShape:
    dimensions = () if record["dimensions"] is None else record["dimensions"].tolist()
    if record["dimensionality"] == _NOT_SPECIFIED:
        return UNRANKED
    if record["dimensionality"] == _SCALAR:
        return TensorShape(())
    specified = record["dimensionSpecificity"]
    if specified is None or len(specified) == 0:
        return TensorShape(dimensions)
    if len(specified) != len(dimensions):
        raise DamagedFileError(f"{len(specified)} dimensions are marked, but there are {len(dimensions)}", where=where)
    return TensorShape(
        size if is_known else None for size, is_known in zip(dimensions, specified.tolist(), strict=True)
    )


def quantization_of(record: Record, where: str, *, scaled: bool = False) -> Quantization | None:
    """Return the scales that a file declares for a tensor; the arguments are those of `tensor_info`.

    Their number may differ from the size of the axis that they are declared for.
    """
    try:
        return _quantization(record, _data_type(record, where), scaled)
    except InvalidArgumentError as error:
        raise ParseError(f"a tensor info is wrong: {error}", where=where) from error


def _quantization(record: Record, dtype: DataType, scaled: bool) -> Quantization | None:
    scales, offset = record["quantizationScales"], record["quantizationOffset"]
    if dtype not in _QUANTIZED and not (scaled and dtype is DataType.INT32):
        return None
    scale_list = () if scales is None else scales.tolist()
    if scale_list:
        return Quantization(scale_list, offset, record["quantizationDim"])
    scale = record["quantizationScale"]
    return Quantization(scale, offset) if scale > 0 or dtype is not DataType.INT32 else None


def constant_array(record: Record, info: TensorInfo, where: str) -> Array:
    """Return the elements of a constant with this info: a view of the file if the type allows it."""
    data_record = record["data"]
    if data_record is None:
        raise DamagedFileError("it has no data", where=where)
    if data_record.type not in _WIDTHS or _WIDTHS[data_record.type] != info.dtype.itemsize:
        raise DamagedFileError(f"it has {data_record.type} for elements of type {info.dtype}", where=where)
    values = np.empty(0, "u1") if data_record["data"] is None else data_record["data"]
    if not info.is_concrete or info.num_elements != values.size or isinstance(info.num_elements, Dim):
        raise DamagedFileError(f"it has {values.size} elements, but the shape {info.shape}", where=where)
    if info.dtype is DataType.BOOL:
        truths: Array = (values != 0).reshape(tuple(info.shape))
        return truths
    elements: Array = values.view(info.dtype.numpy).reshape(tuple(info.shape))
    return elements
