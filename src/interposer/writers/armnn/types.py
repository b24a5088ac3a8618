"""Data types and shapes of Arm NN, and why a tensor cannot be one of Arm NN's."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType, TensorInfo

__all__ = ["dimensions", "problem", "type_name"]

MOST_AXES: Final = 5
"""The largest rank of Arm NN's tensors."""

_TYPES: Final = {
    DataType.FLOAT16: "Float16",
    DataType.FLOAT32: "Float32",
    DataType.UINT8: "QAsymmU8",
    DataType.INT8: "QAsymmS8",
    DataType.INT16: "QSymmS16",
    DataType.INT32: "Signed32",
    DataType.INT64: "Signed64",
    DataType.BOOL: "Boolean",
}


def type_name(info: TensorInfo, *, symmetric: bool = False) -> str:
    """Return Arm NN's name for the type of a tensor; `symmetric` says that int8 is to be the symmetric type."""
    has_several_scales = info.quantization is not None and info.quantization.per_axis
    if info.dtype is DataType.INT8 and (symmetric or has_several_scales):
        return "QSymmS8"
    return _TYPES[info.dtype]


def dimensions(info: TensorInfo) -> tuple[int, ...]:
    """Return the dimensions of a tensor as Arm NN has them: those of a scalar are [1]."""
    return tuple(int(size) for size in info.shape) or (1,)


def problem(info: TensorInfo) -> str | None:
    """Return why Arm NN cannot have a tensor with this info, or None if it can."""
    if not info.is_tensor or info.dtype not in _TYPES:
        return f"Arm NN's files have no type {info.dtype}"
    if not info.is_ranked or not info.is_concrete:
        return f"a tensor has the shape {info.shape}; Arm NN's files need known dimensions"
    if info.rank > MOST_AXES:
        return f"a tensor has {info.rank} dimensions, and Arm NN's have at most {MOST_AXES}"
    return _scale_problem(info)


def _scale_problem(info: TensorInfo) -> str | None:
    q = info.quantization
    if q is None:
        return "Arm NN has no int16 that is not quantized" if info.dtype is DataType.INT16 else None
    if info.dtype is DataType.INT64:
        return "Arm NN has no quantized int64"
    if info.dtype is DataType.INT16 and any(q.zero_points):
        return f"a tensor is int16 with the zero point {q.zero_point}, and Arm NN's int16 is symmetric"
    if q.per_axis and any(q.zero_points):
        return "a tensor has several zero points, and Arm NN's have one"
    if q.per_axis and info.dtype not in (DataType.INT8, DataType.INT32):
        return f"a tensor of {info.dtype} has several scales, which Arm NN only has for int8"
    return None
