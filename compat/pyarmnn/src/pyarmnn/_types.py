"""The enumerations of Arm NN 20.08 as constants, and what they mean for memory.

The values are those of Arm NN 20.08. Later releases of Arm NN number the data types otherwise.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pyarmnn._arguments import enumeration

ActivationFunction_Sigmoid: Final = 0
ActivationFunction_TanH: Final = 1
ActivationFunction_Linear: Final = 2
ActivationFunction_ReLu: Final = 3
ActivationFunction_BoundedReLu: Final = 4
ActivationFunction_SoftReLu: Final = 5
ActivationFunction_LeakyReLu: Final = 6
ActivationFunction_Abs: Final = 7
ActivationFunction_Sqrt: Final = 8
ActivationFunction_Square: Final = 9
ActivationFunction_Elu: Final = 10
ActivationFunction_HardSwish: Final = 11

ArgMinMaxFunction_Min: Final = 0
ArgMinMaxFunction_Max: Final = 1

ComparisonOperation_Equal: Final = 0
ComparisonOperation_Greater: Final = 1
ComparisonOperation_GreaterOrEqual: Final = 2
ComparisonOperation_Less: Final = 3
ComparisonOperation_LessOrEqual: Final = 4
ComparisonOperation_NotEqual: Final = 5

DataLayout_NCHW: Final = 1
DataLayout_NHWC: Final = 2

DataType_Float16: Final = 0
DataType_Float32: Final = 1
DataType_QAsymmU8: Final = 2
DataType_Signed32: Final = 3
DataType_Boolean: Final = 4
DataType_QSymmS16: Final = 5
DataType_QuantizedSymm8PerAxis: Final = 6
DataType_QSymmS8: Final = 7
DataType_QAsymmS8: Final = 8
DataType_BFloat16: Final = 9
DataType_Signed64: Final = 10  # not in 20.08; release 23.11 has it under another number
DataType_QuantisedAsymm8: Final = DataType_QAsymmU8
DataType_QuantisedSymm16: Final = DataType_QSymmS16

Dimensionality_NotSpecified: Final = 0
Dimensionality_Specified: Final = 1
Dimensionality_Scalar: Final = 2

NormalizationAlgorithmChannel_Across: Final = 0
NormalizationAlgorithmChannel_Within: Final = 1
NormalizationAlgorithmMethod_LocalBrightness: Final = 0
NormalizationAlgorithmMethod_LocalContrast: Final = 1

OutputShapeRounding_Floor: Final = 0
OutputShapeRounding_Ceiling: Final = 1
PaddingMethod_IgnoreValue: Final = 0
PaddingMethod_Exclude: Final = 1
PoolingAlgorithm_Max: Final = 0
PoolingAlgorithm_Average: Final = 1
PoolingAlgorithm_L2: Final = 2

ResizeMethod_Bilinear: Final = 0
ResizeMethod_NearestNeighbor: Final = 1

ShapeInferenceMethod_ValidateOnly: Final = 0
ShapeInferenceMethod_InferAndValidate: Final = 1
Status_Success: Final = 0
Status_Failure: Final = 1

UnaryOperation_Abs: Final = 0
UnaryOperation_Exp: Final = 1
UnaryOperation_Sqrt: Final = 2
UnaryOperation_Rsqrt: Final = 3
UnaryOperation_Neg: Final = 4

LOWEST_CAPTURE_PERIOD: Final = 10000
MIN_STATIC_GUID: Final = 1 << 63
MaxNumOfTensorDimensions: Final = 5

__all__ = [name for name in globals() if name[0].isupper() and name not in ("Any", "Final")]
__all__ += ["NUMPY_TYPES", "QUANTIZED", "GetDataTypeName", "GetDataTypeSize"]

QUANTIZED = frozenset(
    {
        DataType_QAsymmU8,
        DataType_QSymmS16,
        DataType_QuantizedSymm8PerAxis,
        DataType_QSymmS8,
        DataType_QAsymmS8,
    }
)
"""The data types that a scale and an offset belong to."""

NUMPY_TYPES: Final[dict[int, type[np.generic]]] = {
    DataType_Float16: np.float16,
    DataType_Float32: np.float32,
    DataType_QAsymmU8: np.uint8,
    DataType_QSymmS8: np.int8,
    DataType_QAsymmS8: np.int8,
    DataType_QSymmS16: np.int16,
    DataType_Signed32: np.int32,
    DataType_Signed64: np.int64,
}
"""The types of the arrays that tensors share memory with; tensors of other data types cannot be created."""

_NAMES: Final = {
    DataType_Float16: ("Float16", 2),
    DataType_Float32: ("Float32", 4),
    DataType_QAsymmU8: ("QAsymmU8", 1),
    DataType_Signed32: ("Signed32", 4),
    DataType_Boolean: ("Boolean", 1),
    DataType_QSymmS16: ("QSymm16", 2),
    DataType_QuantizedSymm8PerAxis: ("QSymm8PerAxis", 1),
    DataType_QSymmS8: ("QSymmS8", 1),
    DataType_QAsymmS8: ("QAsymmS8", 1),
    DataType_BFloat16: ("BFloat16", 2),
    DataType_Signed64: ("Signed64", 8),
}

_DATA_TYPE = enumeration("DataType")


def GetDataTypeName(dataType: int) -> str:
    """Return the name of a data type as messages spell it, or ``"Unknown"``."""
    number: Any = _DATA_TYPE(dataType, "GetDataTypeName", 1)
    return _NAMES.get(number, ("Unknown", 0))[0]


def GetDataTypeSize(dataType: int) -> int:
    """Return the number of bytes of an element, or 0 if there is no such data type."""
    number: Any = _DATA_TYPE(dataType, "GetDataTypeSize", 1)
    return _NAMES.get(number, ("", 0))[1]
