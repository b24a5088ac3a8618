"""The format's enumerations and tables; the only module of the writer that imports `tflite` and `flatbuffers`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError, MissingDependencyError
from interposer.core.types import Array, DataType

__all__ = ["LARGEST", "Tables", "code_of", "operator_code", "options_of", "type_code"]

LARGEST: Final = 2**31 - 2**20
"""The largest size of all constants in bytes, as offsets in the file are signed 32-bit integers."""
_ALIGNMENT: Final = 16
"""The alignment in bytes of constants in the file."""
_FREE: Final = 1 << 16

_OPTIONS: Final = """
ADD AddOptions | ARG_MAX ArgMaxOptions | ARG_MIN ArgMinOptions | AVERAGE_POOL_2D Pool2DOptions
| BATCH_MATMUL BatchMatMulOptions | BATCH_TO_SPACE_ND BatchToSpaceNDOptions | CAST CastOptions
| CONCATENATION ConcatenationOptions | CONV_2D Conv2DOptions | CONV_3D Conv3DOptions | CUMSUM CumsumOptions
| DEPTHWISE_CONV_2D DepthwiseConv2DOptions | DEPTH_TO_SPACE DepthToSpaceOptions | DEQUANTIZE DequantizeOptions
| DIV DivOptions | EXPAND_DIMS ExpandDimsOptions | FAKE_QUANT FakeQuantOptions | FULLY_CONNECTED FullyConnectedOptions
| GATHER GatherOptions | GELU GeluOptions | IF IfOptions | L2_NORMALIZATION L2NormOptions | L2_POOL_2D Pool2DOptions
| LEAKY_RELU LeakyReluOptions | LOCAL_RESPONSE_NORMALIZATION LocalResponseNormalizationOptions
| LOG_SOFTMAX LogSoftmaxOptions | MAX_POOL_2D Pool2DOptions | MEAN ReducerOptions | MIRROR_PAD MirrorPadOptions
| MUL MulOptions | ONE_HOT OneHotOptions | PACK PackOptions | PAD PadOptions | PADV2 PadV2Options
| QUANTIZE QuantizeOptions | REDUCE_ALL ReducerOptions | REDUCE_ANY ReducerOptions | REDUCE_MAX ReducerOptions
| REDUCE_MIN ReducerOptions | REDUCE_PROD ReducerOptions | RESHAPE ReshapeOptions
| RESIZE_BILINEAR ResizeBilinearOptions | RESIZE_NEAREST_NEIGHBOR ResizeNearestNeighborOptions
| REVERSE_SEQUENCE ReverseSequenceOptions | REVERSE_V2 ReverseV2Options | SHAPE ShapeOptions | SLICE SliceOptions
| SOFTMAX SoftmaxOptions | SPACE_TO_BATCH_ND SpaceToBatchNDOptions | SPACE_TO_DEPTH SpaceToDepthOptions
| SPLIT SplitOptions | SPLIT_V SplitVOptions | STRIDED_SLICE StridedSliceOptions | SUB SubOptions
| SUM ReducerOptions | TILE TileOptions | TRANSPOSE TransposeOptions | TRANSPOSE_CONV TransposeConvOptions
| UNIQUE UniqueOptions | UNPACK UnpackOptions | WHILE WhileOptions
"""
_OPTIONS_BY_KIND: Final = dict(entry.split() for entry in _OPTIONS.split("|"))


@cache
def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"tflite.{name}")
    except ImportError as error:
        raise MissingDependencyError("tflite", "tflite", "writing TFLite files") from error


def code_of(enumeration: str, name: str) -> int | None:
    """Return the number of a name in an enumeration of the format; None if the package does not know it."""
    result = getattr(getattr(_module(enumeration), enumeration), name, None)
    return None if result is None else int(result)


def operator_code(kind: str) -> int | None:
    """Return the number of an operator; None if the package `tflite` does not know it."""
    return code_of("BuiltinOperator", kind)


def type_code(dtype: DataType) -> int | None:
    """Return the number of an element type; None if the format does not have it."""
    return code_of("TensorType", dtype.name)


def options_of(kind: str) -> str | None:
    """Return the table name of an operator's options; None if it has no options."""
    return _OPTIONS_BY_KIND.get(kind)


class Tables:
    """A FlatBuffers file under construction; methods return the offsets of new objects for references to them."""

    def __init__(self, size: int) -> None:
        """Reserve space for `size` bytes of constants."""
        try:
            flatbuffers = importlib.import_module("flatbuffers")
        except ImportError as error:
            raise MissingDependencyError("flatbuffers", "tflite", "writing TFLite files") from error
        self._builder: Any = flatbuffers.Builder(size + _FREE)

    def table(self, name: str, /, **fields: Any) -> int:
        """Add a table and return its offset; fields that are None are omitted."""
        module, builder = _module(name), self._builder
        getattr(module, f"{name}Start")(builder)
        for field, value in fields.items():
            if value is not None:
                getattr(module, f"{name}Add{_capitalized(field)}")(builder, value)
        return int(getattr(module, f"{name}End")(builder))

    def numbers(self, values: Sequence[Any], dtype: str = "int32") -> int:
        """Add a vector of numbers and return its offset."""
        return int(self._builder.CreateNumpyVector(np.asarray(values, dtype)))

    def tables(self, places: Sequence[int]) -> int:
        """Add a vector of tables and return its offset."""
        self._builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self._builder.PrependUOffsetTRelative(place)
        return int(self._builder.EndVector())

    def text(self, text: str) -> int:
        """Add a string and return its offset."""
        return int(self._builder.CreateString(text))

    def constant(self, data: Array) -> int:
        """Add a vector of bytes, aligned for elements of any type, and return its offset."""
        builder = self._builder
        builder.StartVector(1, data.size, _ALIGNMENT)
        builder.head -= data.size
        np.frombuffer(builder.Bytes, np.uint8)[builder.head : builder.head + data.size] = data
        return int(builder.EndVector())

    def finished(self, root: int) -> bytes:
        """Return the bytes of the whole file."""
        self._builder.Finish(root, file_identifier=b"TFL3")
        result = bytes(memoryview(self._builder.Bytes)[self._builder.head :])
        if len(result) >= 2**31:
            raise InvalidArgumentError(f"the file would have {len(result):,} bytes; TFLite has room for {2**31 - 1:,}")
        return result


def _capitalized(field: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in field.split("_"))
