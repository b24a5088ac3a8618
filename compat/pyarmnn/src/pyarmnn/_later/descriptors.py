"""Descriptors that later releases added, with their defaults."""

from __future__ import annotations

from pyarmnn._arguments import BOOL, FLOAT, INT32, UINT32, UINTS, enumeration
from pyarmnn._descriptor import Descriptor, Field
from pyarmnn._descriptors import LAYOUT, PERMUTATION, no_permutation
from pyarmnn._later.constants import (
    BinaryOperation_Add,
    DataLayout_NCDHW,
    DataLayout_NDHWC,
    LogicalBinaryOperation_LogicalAnd,
    ReduceOperation_Sum,
    ScatterNdFunction_Update,
)
from pyarmnn._types import DataLayout_NCHW, OutputShapeRounding_Floor, PaddingMethod_Exclude, PoolingAlgorithm_Max

__all__ = [
    "BatchMatMulDescriptor",
    "ChannelShuffleDescriptor",
    "Convolution3dDescriptor",
    "ElementwiseBinaryDescriptor",
    "LogicalBinaryDescriptor",
    "Pooling3dDescriptor",
    "QLstmDescriptor",
    "ReduceDescriptor",
    "ScatterNdDescriptor",
    "TileDescriptor",
    "TransposeDescriptor",
    "UnidirectionalSequenceLstmDescriptor",
]


class BatchMatMulDescriptor(Descriptor):
    """A product of matrices, the last two dimensions of two tensors. Release 22.11."""

    _constructors = (("m_TransposeX", "m_TransposeY", "m_AdjointX", "m_AdjointY", "m_DataLayoutX", "m_DataLayoutY"),)

    m_TransposeX = Field(BOOL, False)
    m_TransposeY = Field(BOOL, False)
    m_AdjointX = Field(BOOL, False)
    m_AdjointY = Field(BOOL, False)
    m_DataLayoutX = Field(LAYOUT, DataLayout_NCHW)
    m_DataLayoutY = Field(LAYOUT, DataLayout_NCHW)


class ChannelShuffleDescriptor(Descriptor):
    """An axis divided into groups, whose elements are interleaved. Release 21.11."""

    _constructors = (("m_NumGroups", "m_Axis"),)

    m_NumGroups = Field(UINT32, 0)
    m_Axis = Field(UINT32, 0)


class Convolution3dDescriptor(Descriptor):
    """A convolution of volumes, whose weights and biases are inputs of the layer. Release 21.11."""

    m_PadLeft = Field(UINT32, 0)
    m_PadRight = Field(UINT32, 0)
    m_PadTop = Field(UINT32, 0)
    m_PadBottom = Field(UINT32, 0)
    m_PadFront = Field(UINT32, 0)
    m_PadBack = Field(UINT32, 0)
    m_StrideX = Field(UINT32, 1)
    m_StrideY = Field(UINT32, 1)
    m_StrideZ = Field(UINT32, 1)
    m_DilationX = Field(UINT32, 1)
    m_DilationY = Field(UINT32, 1)
    m_DilationZ = Field(UINT32, 1)
    m_BiasEnabled = Field(BOOL, False)
    m_DataLayout = Field(LAYOUT, DataLayout_NDHWC)


class ElementwiseBinaryDescriptor(Descriptor):
    """A function of two elements; shapes are broadcast. Release 23.05."""

    _constructors = (("m_Operation",),)

    m_Operation = Field(enumeration("BinaryOperation"), BinaryOperation_Add)


class LogicalBinaryDescriptor(Descriptor):
    """A logical function of two Boolean elements. Release 20.11."""

    _constructors = (("m_Operation",),)

    m_Operation = Field(enumeration("LogicalBinaryOperation"), LogicalBinaryOperation_LogicalAnd)


class Pooling3dDescriptor(Descriptor):
    """The maximum, mean or L2 norm of windows of volumes. Release 22.02."""

    m_PoolType = Field(enumeration("PoolingAlgorithm"), PoolingAlgorithm_Max)
    m_PadLeft = Field(UINT32, 0)
    m_PadRight = Field(UINT32, 0)
    m_PadTop = Field(UINT32, 0)
    m_PadBottom = Field(UINT32, 0)
    m_PadFront = Field(UINT32, 0)
    m_PadBack = Field(UINT32, 0)
    m_PoolWidth = Field(UINT32, 0)
    m_PoolHeight = Field(UINT32, 0)
    m_PoolDepth = Field(UINT32, 0)
    m_StrideX = Field(UINT32, 0)
    m_StrideY = Field(UINT32, 0)
    m_StrideZ = Field(UINT32, 0)
    m_OutputShapeRounding = Field(enumeration("OutputShapeRounding"), OutputShapeRounding_Floor)
    m_PaddingMethod = Field(enumeration("PaddingMethod"), PaddingMethod_Exclude)
    m_DataLayout = Field(LAYOUT, DataLayout_NCDHW)


class QLstmDescriptor(Descriptor):
    """A step of a quantized LSTM network. Arm NN 20.08 has the layer, but PyArmNN 22.0.0 does not wrap it."""

    m_CellClip = Field(FLOAT, 0.0)
    m_ProjectionClip = Field(FLOAT, 0.0)
    m_CifgEnabled = Field(BOOL, True)
    m_PeepholeEnabled = Field(BOOL, False)
    m_ProjectionEnabled = Field(BOOL, False)
    m_LayerNormEnabled = Field(BOOL, False)
    m_InputIntermediateScale = Field(FLOAT, 0.0)
    m_ForgetIntermediateScale = Field(FLOAT, 0.0)
    m_CellIntermediateScale = Field(FLOAT, 0.0)
    m_OutputIntermediateScale = Field(FLOAT, 0.0)
    m_HiddenStateZeroPoint = Field(INT32, 0)
    m_HiddenStateScale = Field(FLOAT, 0.0)


class ReduceDescriptor(Descriptor):
    """The sum, maximum, mean, minimum or product over some axes; over all axes if the list is empty. Release 21.02."""

    m_KeepDims = Field(BOOL, False)
    m_vAxis = Field(UINTS, [])
    m_ReduceOperation = Field(enumeration("ReduceOperation"), ReduceOperation_Sum)


class ScatterNdDescriptor(Descriptor):
    """How updates change the elements of a tensor. Release 24.05."""

    m_Function = Field(enumeration("ScatterNdFunction"), ScatterNdFunction_Update)
    m_InputEnabled = Field(BOOL, True)
    m_Axis = Field(INT32, 0)
    m_AxisEnabled = Field(BOOL, False)


class TileDescriptor(Descriptor):
    """How often each dimension is repeated. Release 23.08."""

    _constructors = (("m_Multiples",),)

    m_Multiples = Field(UINTS, [])


class TransposeDescriptor(Descriptor):
    """Another order of the dimensions: dimension `i` of the result is ``m_DimMappings[i]`` of the input.

    Arm NN 20.08 has the layer, but PyArmNN 22.0.0 does not wrap it.
    """

    _constructors = (("m_DimMappings",),)

    m_DimMappings = Field(PERMUTATION, no_permutation)


class UnidirectionalSequenceLstmDescriptor(Descriptor):
    """An LSTM network over a sequence. Release 21.08.

    `m_ActivationFunc`: 0 none, 1 ReLU, 3 ReLU6, 4 tanh, 6 sigmoid.
    """

    m_ActivationFunc = Field(UINT32, 1)
    m_ClippingThresCell = Field(FLOAT, 0.0)
    m_ClippingThresProj = Field(FLOAT, 0.0)
    m_CifgEnabled = Field(BOOL, True)
    m_PeepholeEnabled = Field(BOOL, False)
    m_ProjectionEnabled = Field(BOOL, False)
    m_LayerNormEnabled = Field(BOOL, False)
    m_TimeMajor = Field(BOOL, False)
