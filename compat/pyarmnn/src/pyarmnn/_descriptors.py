"""The descriptors of Arm NN 20.08, with its defaults. `_views` has those of Concat and Splitter."""

from __future__ import annotations

from pyarmnn._arguments import BOOL, FLOAT, INT, INT32, INTS, PAIRS, UINT, UINT32, UINTS, Kind, enumeration, instance
from pyarmnn._descriptor import Descriptor, Field
from pyarmnn._shapes import PermutationVector, TensorShape
from pyarmnn._types import (
    ActivationFunction_Sigmoid,
    ArgMinMaxFunction_Min,
    ComparisonOperation_Equal,
    DataLayout_NCHW,
    DataLayout_NHWC,
    NormalizationAlgorithmChannel_Across,
    NormalizationAlgorithmMethod_LocalBrightness,
    OutputShapeRounding_Floor,
    PaddingMethod_Exclude,
    PoolingAlgorithm_Max,
    ResizeMethod_NearestNeighbor,
    UnaryOperation_Abs,
)

__all__ = [
    "ActivationDescriptor",
    "ArgMinMaxDescriptor",
    "BatchNormalizationDescriptor",
    "BatchToSpaceNdDescriptor",
    "ComparisonDescriptor",
    "Convolution2dDescriptor",
    "DepthToSpaceDescriptor",
    "DepthwiseConvolution2dDescriptor",
    "DetectionPostProcessDescriptor",
    "ElementwiseUnaryDescriptor",
    "FakeQuantizationDescriptor",
    "FillDescriptor",
    "FullyConnectedDescriptor",
    "GatherDescriptor",
    "InstanceNormalizationDescriptor",
    "L2NormalizationDescriptor",
    "LstmDescriptor",
    "MeanDescriptor",
    "NormalizationDescriptor",
    "PadDescriptor",
    "PermuteDescriptor",
    "Pooling2dDescriptor",
    "ReshapeDescriptor",
    "ResizeDescriptor",
    "SliceDescriptor",
    "SoftmaxDescriptor",
    "SpaceToBatchNdDescriptor",
    "SpaceToDepthDescriptor",
    "StackDescriptor",
    "StandInDescriptor",
    "StridedSliceDescriptor",
    "TransposeConvolution2dDescriptor",
]

LAYOUT = enumeration("DataLayout")
EPSILON: float = FLOAT.convert(1e-12)


def _shape_copy(value: object) -> TensorShape:
    if not isinstance(value, TensorShape):
        raise TypeError
    return TensorShape._of(value)


SHAPE = Kind("armnn::TensorShape *", _shape_copy, "armnn::TensorShape const &")
PERMUTATION = instance(PermutationVector, "armnn::PermutationVector *", "armnn::PermutationVector const &")


def _no_shape() -> TensorShape:
    return TensorShape._of(())


def no_permutation() -> PermutationVector:
    return PermutationVector(())


class ActivationDescriptor(Descriptor):
    """A function of each element, with the parameters `m_A` and `m_B` of some functions."""

    m_Function = Field(enumeration("ActivationFunction"), ActivationFunction_Sigmoid)
    m_A = Field(FLOAT, 0.0)
    m_B = Field(FLOAT, 0.0)


class ArgMinMaxDescriptor(Descriptor):
    """The place of the smallest or largest element along an axis."""

    m_Function = Field(enumeration("ArgMinMaxFunction"), ArgMinMaxFunction_Min)
    m_Axis = Field(INT, -1)


class BatchNormalizationDescriptor(Descriptor):
    """A normalization with constant mean and variance; `m_Eps` is added to the variance."""

    m_Eps = Field(FLOAT, float.fromhex("0x1.a36e2ep-14"))  # 0.0001 as float32
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class BatchToSpaceNdDescriptor(Descriptor):
    """Blocks of the batch moved to height and width, which are then cropped."""

    _constructors = (("m_BlockShape", "m_Crops"),)

    m_BlockShape = Field(UINTS, [1, 1])
    m_Crops = Field(PAIRS, [(0, 0), (0, 0)])
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class ComparisonDescriptor(Descriptor):
    """A comparison of two tensors, element by element."""

    _constructors = (("m_Operation",),)

    m_Operation = Field(enumeration("ComparisonOperation"), ComparisonOperation_Equal)


class Convolution2dDescriptor(Descriptor):
    """A convolution of images. Strides are 0 by default and have to be set."""

    m_PadLeft = Field(UINT32, 0)
    m_PadRight = Field(UINT32, 0)
    m_PadTop = Field(UINT32, 0)
    m_PadBottom = Field(UINT32, 0)
    m_StrideX = Field(UINT32, 0)
    m_StrideY = Field(UINT32, 0)
    m_DilationX = Field(UINT32, 1)
    m_DilationY = Field(UINT32, 1)
    m_BiasEnabled = Field(BOOL, False)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class DepthwiseConvolution2dDescriptor(Descriptor):
    """A convolution of each channel by itself. Strides are 0 by default and have to be set."""

    m_PadLeft = Field(UINT32, 0)
    m_PadRight = Field(UINT32, 0)
    m_PadTop = Field(UINT32, 0)
    m_PadBottom = Field(UINT32, 0)
    m_StrideX = Field(UINT32, 0)
    m_StrideY = Field(UINT32, 0)
    m_DilationX = Field(UINT32, 1)
    m_DilationY = Field(UINT32, 1)
    m_BiasEnabled = Field(BOOL, False)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class DetectionPostProcessDescriptor(Descriptor):
    """The choice of boxes from the outputs of an object detector."""

    m_MaxDetections = Field(UINT32, 0)
    m_MaxClassesPerDetection = Field(UINT32, 1)
    m_DetectionsPerClass = Field(UINT32, 1)
    m_NmsScoreThreshold = Field(FLOAT, 0.0)
    m_NmsIouThreshold = Field(FLOAT, 0.0)
    m_NumClasses = Field(UINT32, 0)
    m_UseRegularNms = Field(BOOL, False)
    m_ScaleX = Field(FLOAT, 0.0)
    m_ScaleY = Field(FLOAT, 0.0)
    m_ScaleW = Field(FLOAT, 0.0)
    m_ScaleH = Field(FLOAT, 0.0)


class ElementwiseUnaryDescriptor(Descriptor):
    """A function of each element without parameters."""

    _constructors = (("m_Operation",),)

    m_Operation = Field(enumeration("UnaryOperation"), UnaryOperation_Abs)


class FakeQuantizationDescriptor(Descriptor):
    """The range of a quantization that is simulated; no layer of this interface takes this descriptor."""

    m_Min = Field(FLOAT, -6.0)
    m_Max = Field(FLOAT, 6.0)


class FillDescriptor(Descriptor):
    """A tensor whose elements all have one value."""

    _constructors = (("m_Value",),)

    m_Value = Field(FLOAT, 0.0)


class FullyConnectedDescriptor(Descriptor):
    """A product of the input with a matrix of weights."""

    m_BiasEnabled = Field(BOOL, False)
    m_TransposeWeightMatrix = Field(BOOL, False)


class GatherDescriptor(Descriptor):
    """Slices of a tensor, chosen by indices along an axis."""

    _constructors = (("m_Axis",),)

    m_Axis = Field(INT32, 0)


class InstanceNormalizationDescriptor(Descriptor):
    """A normalization of each channel of each image."""

    m_Gamma = Field(FLOAT, 1.0)
    m_Beta = Field(FLOAT, 0.0)
    m_Eps = Field(FLOAT, EPSILON)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class L2NormalizationDescriptor(Descriptor):
    """A division by the Euclidean norm over the channels; `m_Eps` is the least sum of squares."""

    m_Eps = Field(FLOAT, EPSILON)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class LstmDescriptor(Descriptor):
    """A step of an LSTM network. `m_ActivationFunc`: 0 none, 1 ReLU, 3 ReLU6, 4 tanh, 6 sigmoid."""

    m_ActivationFunc = Field(UINT32, 1)
    m_ClippingThresCell = Field(FLOAT, 0.0)
    m_ClippingThresProj = Field(FLOAT, 0.0)
    m_CifgEnabled = Field(BOOL, True)
    m_PeepholeEnabled = Field(BOOL, False)
    m_ProjectionEnabled = Field(BOOL, False)
    m_LayerNormEnabled = Field(BOOL, False)


class MeanDescriptor(Descriptor):
    """The mean over some axes; over all axes if the list is empty."""

    _constructors = (("m_Axis", "m_KeepDims"),)

    m_Axis = Field(UINTS, [])
    m_KeepDims = Field(BOOL, False)


class NormalizationDescriptor(Descriptor):
    """A local response normalization."""

    m_NormChannelType = Field(enumeration("NormalizationAlgorithmChannel"), NormalizationAlgorithmChannel_Across)
    m_NormMethodType = Field(enumeration("NormalizationAlgorithmMethod"), NormalizationAlgorithmMethod_LocalBrightness)
    m_NormSize = Field(UINT32, 0)
    m_Alpha = Field(FLOAT, 0.0)
    m_Beta = Field(FLOAT, 0.0)
    m_K = Field(FLOAT, 0.0)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class PadDescriptor(Descriptor):
    """The number of elements to add before and after each dimension, and their value."""

    _constructors = (("m_PadList", "m_PadValue"), ("m_PadList",))

    m_PadList = Field(PAIRS, [])
    m_PadValue = Field(FLOAT, 0.0)


class PermuteDescriptor(Descriptor):
    """Another order of the dimensions: dimension `i` becomes dimension ``m_DimMappings[i]``."""

    _constructors = (("m_DimMappings",),)

    m_DimMappings = Field(PERMUTATION, no_permutation)


class Pooling2dDescriptor(Descriptor):
    """The maximum, mean or L2 norm of windows of images. Both strides 0 make one window of the whole image."""

    m_PoolType = Field(enumeration("PoolingAlgorithm"), PoolingAlgorithm_Max)
    m_PadLeft = Field(UINT32, 0)
    m_PadRight = Field(UINT32, 0)
    m_PadTop = Field(UINT32, 0)
    m_PadBottom = Field(UINT32, 0)
    m_PoolWidth = Field(UINT32, 0)
    m_PoolHeight = Field(UINT32, 0)
    m_StrideX = Field(UINT32, 0)
    m_StrideY = Field(UINT32, 0)
    m_OutputShapeRounding = Field(enumeration("OutputShapeRounding"), OutputShapeRounding_Floor)
    m_PaddingMethod = Field(enumeration("PaddingMethod"), PaddingMethod_Exclude)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class ReshapeDescriptor(Descriptor):
    """Another shape with the same number of elements."""

    _constructors = (("m_TargetShape",),)

    m_TargetShape = Field(SHAPE, _no_shape)


class ResizeDescriptor(Descriptor):
    """Images of another height and width."""

    m_TargetWidth = Field(UINT32, 0)
    m_TargetHeight = Field(UINT32, 0)
    m_Method = Field(enumeration("ResizeMethod"), ResizeMethod_NearestNeighbor)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)
    m_AlignCorners = Field(BOOL, False)
    m_HalfPixelCenters = Field(BOOL, False)


class SliceDescriptor(Descriptor):
    """A part of a tensor: `m_Size` elements of each dimension, from `m_Begin`."""

    _constructors = (("m_Begin", "m_Size"),)

    m_Begin = Field(UINTS, [])
    m_Size = Field(UINTS, [])


class SoftmaxDescriptor(Descriptor):
    """Probabilities along an axis, and their logarithms for LogSoftmax; inputs are multiplied by `m_Beta`."""

    m_Beta = Field(FLOAT, 1.0)
    m_Axis = Field(INT, -1)


class SpaceToBatchNdDescriptor(Descriptor):
    """Blocks of height and width, which are padded before, moved to the batch."""

    _constructors = (("m_BlockShape", "m_PadList"),)

    m_BlockShape = Field(UINTS, [1, 1])
    m_PadList = Field(PAIRS, [(0, 0), (0, 0)])
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)


class SpaceToDepthDescriptor(Descriptor):
    """Blocks of height and width moved to the channels. The layout is NHWC by default."""

    _constructors = (("m_BlockSize", "m_DataLayout"),)

    m_BlockSize = Field(UINT, 1)
    m_DataLayout = Field(LAYOUT, DataLayout_NHWC)


class DepthToSpaceDescriptor(Descriptor):
    """Channels moved to blocks of height and width. The layout is NHWC by default."""

    _constructors = (("m_BlockSize", "m_DataLayout"),)

    m_BlockSize = Field(UINT, 1)
    m_DataLayout = Field(LAYOUT, DataLayout_NHWC)


class StackDescriptor(Descriptor):
    """Several tensors of one shape along a new axis."""

    _constructors = (("m_Axis", "m_NumInputs", "m_InputShape"),)

    m_Axis = Field(UINT32, 0)
    m_NumInputs = Field(UINT32, 0)
    m_InputShape = Field(SHAPE, _no_shape)


class StandInDescriptor(Descriptor):
    """The numbers of inputs and outputs of a layer that is not supported."""

    _constructors = (("m_NumInputs", "m_NumOutputs"),)

    m_NumInputs = Field(UINT32, 0)
    m_NumOutputs = Field(UINT32, 0)


class StridedSliceDescriptor(Descriptor):
    """A part of a tensor: elements from `m_Begin` to `m_End` in steps of `m_Stride`, as slices of NumPy.

    Bit `i` of a mask is for dimension `i`. The masks for ellipsis and new axes have no effect.
    """

    _constructors = (("m_Begin", "m_End", "m_Stride"),)

    m_Begin = Field(INTS, [])
    m_End = Field(INTS, [])
    m_Stride = Field(INTS, [])
    m_BeginMask = Field(INT32, 0)
    m_EndMask = Field(INT32, 0)
    m_ShrinkAxisMask = Field(INT32, 0)
    m_EllipsisMask = Field(INT32, 0)
    m_NewAxisMask = Field(INT32, 0)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)

    def GetStartForAxis(self, inputShape: TensorShape, axis: int) -> int:
        """Return the first index along an axis of an input of this shape."""
        size, axis = self._axis("GetStartForAxis", inputShape, axis)
        begin: int = self._values["m_Begin"][axis]
        stride: int = self._values["m_Stride"][axis]
        if self.m_BeginMask >> axis & 1:
            begin = 0 if stride > 0 else size - 1
        return min(max(begin + (size if begin < 0 else 0), 0), size - 1)

    def GetStopForAxis(self, inputShape: TensorShape, axis: int, startForAxis: int) -> int:
        """Return the index after the last along an axis of an input of this shape."""
        size, axis = self._axis("GetStopForAxis", inputShape, axis)
        start: int = INT(startForAxis, "StridedSliceDescriptor_GetStopForAxis", 4)
        end: int = self._values["m_End"][axis]
        stride: int = self._values["m_Stride"][axis]
        if self.m_ShrinkAxisMask >> axis & 1:
            return start + 1
        if self.m_EndMask >> axis & 1:
            end = size if stride > 0 else -1
        elif end < 0:
            end += size
        return min(max(end, 0), size) if stride > 0 else min(max(end, -1), size - 1)

    def _axis(self, method: str, inputShape: TensorShape, axis: int) -> tuple[int, int]:
        """Return the size of the dimension and its number."""
        shape = instance(TensorShape, "armnn::TensorShape const &")(inputShape, f"StridedSliceDescriptor_{method}", 2)
        number = UINT(axis, f"StridedSliceDescriptor_{method}", 3)
        known = min(len(self._values[name]) for name in ("m_Begin", "m_End", "m_Stride"))
        if number >= shape.GetNumDimensions():
            raise RuntimeError(
                f"Invalid dimension index: {number} (number of dimensions is {shape.GetNumDimensions()})"
            )
        if number >= known:
            raise RuntimeError(f"The descriptor has {known} dimensions, and no dimension {number}")
        return shape[number], number


class TransposeConvolution2dDescriptor(Descriptor):
    """A transposed convolution of images. Strides are 0 by default and have to be set."""

    m_PadLeft = Field(UINT32, 0)
    m_PadRight = Field(UINT32, 0)
    m_PadTop = Field(UINT32, 0)
    m_PadBottom = Field(UINT32, 0)
    m_StrideX = Field(UINT32, 0)
    m_StrideY = Field(UINT32, 0)
    m_BiasEnabled = Field(BOOL, False)
    m_DataLayout = Field(LAYOUT, DataLayout_NCHW)
    m_OutputShapeEnabled = Field(BOOL, False)
    m_OutputShape = Field(UINTS, [])
