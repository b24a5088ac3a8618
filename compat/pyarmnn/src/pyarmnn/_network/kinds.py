"""What each method that adds a layer takes: the classes of its arguments, and the numbers of slots of the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyarmnn import _descriptors as descriptors
from pyarmnn._arguments import Kind, instance
from pyarmnn._parameters import LstmInputParams, QuantizedLstmInputParams
from pyarmnn._tensors import ConstTensor
from pyarmnn._views import ConcatDescriptor, SplitterDescriptor

__all__ = ["KINDS", "LayerKind"]


class LayerKind(NamedTuple):
    """The arguments of a method that adds layers of a kind.

    Attributes:
        arguments: the C types of the arguments before the name.
        constants: the names of the arguments that are constant tensors; those in `optional` may be None.
        slots: returns the numbers of input and output slots for a descriptor.
    """

    arguments: tuple[Kind, ...]
    constants: tuple[str, ...]
    slots: Callable[[Any], tuple[int, int]]


def _reference(kind: type) -> Kind:
    return instance(kind, f"armnn::{kind.__name__} const &")


def _optional(value: Any) -> ConstTensor | None:
    if value is not None and not isinstance(value, ConstTensor):
        raise TypeError
    return value


CONSTANT: Final = _reference(ConstTensor)
BIASES: Final = Kind("armnn::ConstTensor *", _optional, "armnn::ConstTensor *")


def _kind(descriptor: type | None, inputs: int, outputs: int, *constants: str) -> LayerKind:
    first = () if descriptor is None else (_reference(descriptor),)
    kinds = tuple(BIASES if name == "biases" else CONSTANT for name in constants)
    return LayerKind((*first, *kinds), constants, lambda _: (inputs, outputs))


def _sized(descriptor: type, slots: Callable[[Any], tuple[int, int]]) -> LayerKind:
    return LayerKind((_reference(descriptor),), (), slots)


KINDS: Final[dict[str, LayerKind]] = {
    "Activation": _kind(descriptors.ActivationDescriptor, 1, 1),
    "Addition": _kind(None, 2, 1),
    "ArgMinMax": _kind(descriptors.ArgMinMaxDescriptor, 1, 1),
    "BatchNormalization": _kind(descriptors.BatchNormalizationDescriptor, 1, 1, "mean", "variance", "beta", "gamma"),
    "BatchToSpaceNd": _kind(descriptors.BatchToSpaceNdDescriptor, 1, 1),
    "Comparison": _kind(descriptors.ComparisonDescriptor, 2, 1),
    "Concat": _sized(ConcatDescriptor, lambda descriptor: (descriptor.GetNumViews(), 1)),
    "Constant": _kind(None, 0, 1, "input"),
    "Convolution2d": _kind(descriptors.Convolution2dDescriptor, 1, 1, "weights", "biases"),
    "DepthToSpace": _kind(descriptors.DepthToSpaceDescriptor, 1, 1),
    "DepthwiseConvolution2d": _kind(descriptors.DepthwiseConvolution2dDescriptor, 1, 1, "weights", "biases"),
    "Dequantize": _kind(None, 1, 1),
    "DetectionPostProcess": _kind(descriptors.DetectionPostProcessDescriptor, 2, 4, "anchors"),
    "Division": _kind(None, 2, 1),
    "ElementwiseUnary": _kind(descriptors.ElementwiseUnaryDescriptor, 1, 1),
    "Fill": _kind(descriptors.FillDescriptor, 1, 1),
    "Floor": _kind(None, 1, 1),
    "FullyConnected": _kind(descriptors.FullyConnectedDescriptor, 1, 1, "weights", "biases"),
    "Gather": _kind(descriptors.GatherDescriptor, 2, 1),
    "InstanceNormalization": _kind(descriptors.InstanceNormalizationDescriptor, 1, 1),
    "L2Normalization": _kind(descriptors.L2NormalizationDescriptor, 1, 1),
    "LogSoftmax": _kind(descriptors.SoftmaxDescriptor, 1, 1),
    "Lstm": LayerKind(
        (_reference(descriptors.LstmDescriptor), _reference(LstmInputParams)), ("params",), lambda _: (3, 4)
    ),
    "Maximum": _kind(None, 2, 1),
    "Mean": _kind(descriptors.MeanDescriptor, 1, 1),
    "Merge": _kind(None, 2, 1),
    "Minimum": _kind(None, 2, 1),
    "Multiplication": _kind(None, 2, 1),
    "Normalization": _kind(descriptors.NormalizationDescriptor, 1, 1),
    "Pad": _kind(descriptors.PadDescriptor, 1, 1),
    "Permute": _kind(descriptors.PermuteDescriptor, 1, 1),
    "Pooling2d": _kind(descriptors.Pooling2dDescriptor, 1, 1),
    "Prelu": _kind(None, 2, 1),
    "Quantize": _kind(None, 1, 1),
    "QuantizedLstm": LayerKind((_reference(QuantizedLstmInputParams),), ("params",), lambda _: (3, 2)),
    "Rank": _kind(None, 1, 1),
    "Reshape": _kind(descriptors.ReshapeDescriptor, 1, 1),
    "Resize": _kind(descriptors.ResizeDescriptor, 1, 1),
    "Slice": _kind(descriptors.SliceDescriptor, 1, 1),
    "Softmax": _kind(descriptors.SoftmaxDescriptor, 1, 1),
    "SpaceToBatchNd": _kind(descriptors.SpaceToBatchNdDescriptor, 1, 1),
    "SpaceToDepth": _kind(descriptors.SpaceToDepthDescriptor, 1, 1),
    "Splitter": _sized(SplitterDescriptor, lambda descriptor: (1, descriptor.GetNumViews())),
    "Stack": _sized(descriptors.StackDescriptor, lambda descriptor: (descriptor.m_NumInputs, 1)),
    "StandIn": _sized(
        descriptors.StandInDescriptor, lambda descriptor: (descriptor.m_NumInputs, descriptor.m_NumOutputs)
    ),
    "StridedSlice": _kind(descriptors.StridedSliceDescriptor, 1, 1),
    "Subtraction": _kind(None, 2, 1),
    "Switch": _kind(None, 2, 2),
    "TransposeConvolution2d": _kind(descriptors.TransposeConvolution2dDescriptor, 1, 1, "weights", "biases"),
}
"""The kinds of layers except Input and Output."""
