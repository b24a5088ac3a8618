"""Infos of tensors in Interposer's form, and back."""

from __future__ import annotations

import math
from typing import Final

from interposer import DataType, Quantization
from interposer import TensorInfo as CoreInfo
from interposer.core.errors import InvalidArgumentError
from pyarmnn import _types as types
from pyarmnn._shapes import TensorInfo, TensorShape

__all__ = ["core_type", "info_from_core", "info_to_core"]

_CORE_TYPES: Final = {
    types.DataType_Float16: DataType.FLOAT16,
    types.DataType_Float32: DataType.FLOAT32,
    types.DataType_QAsymmU8: DataType.UINT8,
    types.DataType_Signed32: DataType.INT32,
    types.DataType_Boolean: DataType.BOOL,
    types.DataType_QSymmS16: DataType.INT16,
    types.DataType_QuantizedSymm8PerAxis: DataType.INT8,
    types.DataType_QSymmS8: DataType.INT8,
    types.DataType_QAsymmS8: DataType.INT8,
    types.DataType_BFloat16: DataType.BFLOAT16,
    types.DataType_Signed64: DataType.INT64,
}
_NUMBERS: Final = {
    **{core: number for number, core in _CORE_TYPES.items()},
    DataType.INT8: types.DataType_QAsymmS8,
}


def core_type(number: int) -> DataType:
    """Return the storage type of a data type of Arm NN.

    Raises:
        RuntimeError: there is no such data type.
    """
    if number not in _CORE_TYPES:
        raise RuntimeError(f"{number} is no data type; use one of the constants DataType_...")
    return _CORE_TYPES[number]


def info_to_core(info: TensorInfo) -> CoreInfo:
    """Return an info in Interposer's form; a tensor without a positive scale is not quantized.

    Raises:
        RuntimeError: the quantization offset is outside the range of the data type, or there is no such data type.
    """
    dtype, scale = core_type(info.GetDataType()), info.GetQuantizationScale()
    is_quantized = info.IsQuantized() and 0 < scale < math.inf
    try:
        quantization = Quantization(scale, info.GetQuantizationOffset()) if is_quantized else None
        return CoreInfo(tuple(info.GetShape()), dtype, quantization)
    except InvalidArgumentError as error:
        raise RuntimeError(f"{info} is not supported: {error}") from error


def info_from_core(info: CoreInfo) -> TensorInfo:
    """Return an info in Arm NN's form, in which a scalar has the shape (1,), and a tensor only its first scale.

    Raises:
        RuntimeError: Arm NN has no data type for it, the shape is not known, or it has more than 5 dimensions.
    """
    if info.dtype not in _NUMBERS or not info.is_concrete or info.rank > types.MaxNumOfTensorDimensions:
        raise RuntimeError(f"Arm NN's interface has no tensors of the kind {info}")
    sizes = [int(size) for size in info.shape] or [1]
    tensor_info = TensorInfo(TensorShape._of(sizes), _NUMBERS[info.dtype])
    if info.quantization is not None:
        tensor_info.SetQuantizationScale(info.quantization.scales[0])
        tensor_info.SetQuantizationOffset(info.quantization.zero_points[0])
    return tensor_info
