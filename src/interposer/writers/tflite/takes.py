"""The types that TFLite's kernels accept, and the wider types that replace the others.

With any other type, a kernel fails or computes something else: most arithmetic treats plain integers of 8 and 16 bits
as quantized values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.types import DataType, TensorInfo
from interposer.writers.widening import WIDER

__all__ = ["data_operands", "gives_others", "needs_zero", "taken", "wider"]

_BYTES: Final = "i8 u8"
_CODES: Final = "i8 u8 i16"
_SUMS: Final = "i8 u8 i16 i32 i64"
"""For sums of products: the types of data and weights, and the type of the bias."""
_SIGNED: Final = "i8 i16"
_NUMBERS: Final = "f32 i32 i64"
_WHOLE: Final = "i8 u8 i16 i32 i64 u32"
_ALL: Final = "f32 f16 bf16 f64 bool i8 u8 i16 u16 i32 u32 i64 u64"
_INTEGERS: Final = "i8 u8 i16 u16 i32 u32 i64 u64"

_TAKEN: Final[dict[str, tuple[str, str]]] = {
    "ABS": ("f32 i32", _SIGNED),
    "ADD": (_NUMBERS, _CODES),
    "ARG_MAX": ("f32 i32 bool i8 u8", ""),
    "ARG_MIN": ("f32 i32 bool i8 u8", ""),
    "ATAN2": ("f32 f64", ""),
    "AVERAGE_POOL_2D": ("f32", _CODES),
    "BATCH_MATMUL": ("f32", _SIGNED),
    "BATCH_TO_SPACE_ND": (_ALL, _INTEGERS),
    "BITCAST": (_ALL, ""),
    "BITWISE_XOR": ("i8 u8 i16 u16 i32 u32", ""),
    "BROADCAST_TO": (_ALL, _INTEGERS),
    "CAST": ("f32 f16 bf16 f64 bool i8 u8 i16 u16 i32 u32 i64", ""),
    "CEIL": ("f32", ""),
    "CONCATENATION": (f"f32 f16 bf16 bool {_WHOLE}", _SUMS),
    "CONV_2D": ("f32", _SUMS + " i4"),
    "CONV_3D": ("f32", ""),
    "COS": ("f32", ""),
    "CUMSUM": (_NUMBERS, ""),
    "DEPTHWISE_CONV_2D": ("f32", _SUMS + " i4"),
    "DEPTH_TO_SPACE": (f"{_NUMBERS} {_BYTES}", f"{_BYTES} i32 i64"),
    "DEQUANTIZE": ("f32", _CODES),
    "DIV": ("f32 i32", _CODES),
    "DYNAMIC_UPDATE_SLICE": ("f32 f16 bool i8 i16 i32 i64", _SIGNED),
    "ELU": ("f32", "i8"),
    "EQUAL": (f"{_NUMBERS} bool", _BYTES),
    "EXP": ("f32", _SIGNED),
    "EXPAND_DIMS": (_ALL, _INTEGERS),
    "FAKE_QUANT": ("f32", ""),
    "FILL": ("f32 f16 bool i8 i16 i32 i64", ""),
    "FLOOR": ("f32", ""),
    "FLOOR_DIV": ("f32 i32", ""),
    "FLOOR_MOD": (_NUMBERS, ""),
    "FULLY_CONNECTED": ("f32", _SUMS + " i4"),
    "GATHER": ("f32 f16 bf16 bool i8 u8 i16 i32 i64", _CODES),
    "GATHER_ND": ("f32 f16 bf16 bool i8 u8 i16 i32 i64", _CODES),
    "GELU": ("f32", _CODES),
    "GREATER": (_NUMBERS, _BYTES),
    "GREATER_EQUAL": (_NUMBERS, _BYTES),
    "HARD_SWISH": ("f32", _BYTES),
    "L2_NORMALIZATION": ("f32", _BYTES),
    "L2_POOL_2D": ("f32", ""),
    "LEAKY_RELU": ("f32", _CODES),
    "LESS": (_NUMBERS, _BYTES),
    "LESS_EQUAL": (_NUMBERS, _BYTES),
    "LOCAL_RESPONSE_NORMALIZATION": ("f32", ""),
    "LOG": ("f32", _SIGNED),
    "LOGICAL_AND": ("bool", ""),
    "LOGICAL_NOT": ("bool", ""),
    "LOGICAL_OR": ("bool", ""),
    "LOGISTIC": ("f32", _CODES),
    "LOG_SOFTMAX": ("f32", _BYTES),
    "MATRIX_DIAG": ("f32 i8 u8 i16 i32 i64", _CODES),
    "MATRIX_SET_DIAG": ("f32 i8 u8 i16 i32 i64", _CODES),
    "MAXIMUM": (f"{_NUMBERS} {_CODES}", _SUMS),
    "MAX_POOL_2D": (f"f32 {_CODES}", _CODES),
    "MEAN": (_NUMBERS, _CODES),
    "MINIMUM": (f"{_NUMBERS} {_CODES}", _SUMS),
    "MIRROR_PAD": (_ALL, _INTEGERS),
    "MUL": (f"{_NUMBERS} u32", _CODES),
    "NEG": ("f32 i8 i16 i32 i64", ""),
    "NOT_EQUAL": (f"{_NUMBERS} bool", _BYTES),
    "ONE_HOT": ("f32 bool i8 u8 i16 i32 i64", ""),
    "PACK": (f"f32 {_WHOLE}", f"{_CODES} i32 i64"),
    "PAD": (f"f32 f16 bf16 bool {_CODES} i32 i64", _CODES),
    "PADV2": (f"f32 f16 bf16 bool {_CODES} i32 i64", f"{_CODES} i32 i64"),
    "POW": ("f32 i32", ""),
    "PRELU": ("f32", _BYTES),
    "QUANTIZE": ("f32", _CODES + " i32"),
    "RANK": (_ALL, _INTEGERS),
    "REDUCE_ALL": ("bool", ""),
    "REDUCE_ANY": ("bool", ""),
    "REDUCE_MAX": (f"{_NUMBERS} {_CODES}", f"{_CODES} i32 i64"),
    "REDUCE_MIN": (f"{_NUMBERS} {_CODES}", f"{_CODES} i32 i64"),
    "REDUCE_PROD": (_NUMBERS, _SIGNED),
    "RELU": ("f32", _CODES),
    "RELU6": ("f32", _CODES),
    "RELU_0_TO_1": ("f32", _BYTES),
    "RELU_N1_TO_1": ("f32", _BYTES),
    "RESHAPE": (f"{_ALL} string", _INTEGERS),
    "RESIZE_BILINEAR": (f"f32 {_CODES}", _CODES),
    "RESIZE_NEAREST_NEIGHBOR": ("f32 f16 bf16 bool i8 u8 i16 u16 i32 u32", "i8 u8 i16 u16 i32 u32"),
    "REVERSE_SEQUENCE": ("f32 u8 i16 i32 i64", "u8 i16"),
    "REVERSE_V2": ("f32 bool i8 u8 i16 i32 i64", _CODES),
    "RIGHT_SHIFT": ("i8 u8 i16 u16 i32 u32", ""),
    "ROUND": ("f32", ""),
    "RSQRT": ("f32", _SIGNED),
    "SCATTER_ND": ("f32 bool i8 u8 i32 i64", ""),
    "SELECT_V2": ("f32 bool i8 u8 i16 i32 i64 u32", _CODES),
    "SHAPE": (_ALL, _INTEGERS),
    "SIGN": ("f32 f64 i32", ""),
    "SIN": ("f32", ""),
    "SLICE": (f"{_ALL} string", _INTEGERS),
    "SOFTMAX": ("f32", _CODES),
    "SPACE_TO_BATCH_ND": (_ALL, _CODES),
    "SPACE_TO_DEPTH": (f"{_NUMBERS} {_BYTES}", f"{_BYTES} i32 i64"),
    "SPLIT": (f"f32 {_CODES} i32 i64", _CODES),
    "SPLIT_V": (f"f32 {_CODES} i32 i64", f"{_CODES} i32 i64"),
    "SQRT": ("f32", _SIGNED),
    "SQUARE": ("f32", ""),
    "SQUARED_DIFFERENCE": ("f32 i32", "i8"),
    "STRIDED_SLICE": (f"{_ALL} string", _INTEGERS),
    "SUB": (_NUMBERS, _CODES),
    "SUM": (_NUMBERS, _CODES),
    "TANH": ("f32", _CODES),
    "TILE": (f"{_ALL} string", _INTEGERS),
    "TOPK_V2": ("f32 i8 u8 i16 i32 i64", _CODES),
    "TRANSPOSE": (_ALL, _INTEGERS),
    "TRANSPOSE_CONV": ("f32", _SUMS),
    "UNIQUE": ("f32 i8 u8 i16 i32 i64", ""),
    "WHERE": ("f32 bool i8 u8 i32 u32 i64", ""),
}
"""The types that each operator accepts, plain and quantized. Control-flow operators accept all types."""

_SCALES_ALONG_AN_AXIS: Final = frozenset(
    {
        "CONV_2D", "DEPTHWISE_CONV_2D", "DEQUANTIZE", "FULLY_CONNECTED", "PAD", "QUANTIZE", "RESHAPE", "SLICE",
        "SPLIT_V", "TILE", "TRANSPOSE", "TRANSPOSE_CONV",
    }
)  # fmt: skip
_SYMMETRIC_INT16: Final = frozenset(
    {
        "ABS", "ADD", "BATCH_MATMUL", "BATCH_TO_SPACE_ND", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D",
        "DEQUANTIZE", "EXP", "FULLY_CONNECTED", "LEAKY_RELU", "LOG", "LOGISTIC", "MEAN", "MIRROR_PAD", "MUL",
        "QUANTIZE", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "RELU", "RELU6", "RSQRT", "SOFTMAX",
        "SPACE_TO_BATCH_ND", "SQRT", "SUB", "SUM", "TANH", "TRANSPOSE_CONV",
    }
)  # fmt: skip
_INDICES: Final[dict[str, frozenset[int]]] = {
    **dict.fromkeys(
        (
            "ARG_MAX", "ARG_MIN", "BROADCAST_TO", "CUMSUM", "EXPAND_DIMS", "GATHER", "GATHER_ND", "MEAN", "MIRROR_PAD",
            "PAD", "PADV2", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "RESHAPE",
            "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_SEQUENCE", "REVERSE_V2", "SUM", "TILE", "TOPK_V2",
            "TRANSPOSE",
        ), frozenset({1}),
    ),
    **dict.fromkeys(("BATCH_TO_SPACE_ND", "SLICE", "SPACE_TO_BATCH_ND", "SPLIT_V"), frozenset({1, 2})),
    **dict.fromkeys(("FILL", "SELECT_V2", "SPLIT", "TRANSPOSE_CONV"), frozenset({0})),
    "DYNAMIC_UPDATE_SLICE": frozenset({2}),
    "ONE_HOT": frozenset({0, 1}),
    "SCATTER_ND": frozenset({0, 2}),
    "STRIDED_SLICE": frozenset({1, 2, 3}),
}  # fmt: skip
"""The operands that are not data: axes, shapes, indices and conditions."""
_OTHERS: Final = frozenset(
    {
        "ARG_MAX", "ARG_MIN", "BITCAST", "CAST", "DEQUANTIZE", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS",
        "LESS_EQUAL", "NOT_EQUAL", "QUANTIZE", "RANK", "SHAPE", "WHERE",
    }
)  # fmt: skip

_SHORT: Final = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "bool": "bool", "string": "string",
    "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip


def _types(names: str) -> frozenset[DataType]:
    return frozenset(DataType(_SHORT[name]) for name in names.split())


_TYPES: Final = {kind: (_types(plain), _types(quantized)) for kind, (plain, quantized) in _TAKEN.items()}


def taken(kind: str, info: TensorInfo) -> bool:
    """Return True if the TFLite operator `kind` accepts data of this type and quantization."""
    if kind not in _TYPES:
        return True
    q = info.quantization
    if q is not None and q.per_axis and kind not in _SCALES_ALONG_AN_AXIS:
        return False
    return info.dtype in _TYPES[kind][info.is_quantized]


def needs_zero(kind: str, infos: Sequence[TensorInfo]) -> bool:
    """Return True if the TFLite operator `kind` takes int16 with the zero point 0 only, and a tensor has another one.

    `infos` are those of the data and of the results. QUANTIZE between int16 and other types takes any zero point.
    """
    int16_quantizations = [info.quantization for info in infos if info.dtype is DataType.INT16]
    if kind not in _SYMMETRIC_INT16 or (kind == "QUANTIZE" and len(int16_quantizations) < len(infos)):
        return False
    return any(q is not None and any(q.zero_points) for q in int16_quantizations)


def wider(kind: str, dtype: DataType) -> DataType | None:
    """Return the narrowest type that the operator `kind` accepts and that holds all values of `dtype`; None if none."""
    return next((candidate for candidate in WIDER.get(dtype, ()) if taken(kind, TensorInfo((), candidate))), None)


def data_operands(kind: str, count: int) -> Sequence[int]:
    """Return the indices of the operands that are data, among `count`; others are indices, axes or shapes."""
    return [index for index in range(count) if index not in _INDICES.get(kind, ())]


def gives_others(kind: str) -> bool:
    """Return True if the operator's results do not have the type of its data, as those of a comparison."""
    return kind in _OTHERS
