"""What each method that adds a layer takes: the classes of its arguments, and the numbers of slots of the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyarmnn import _descriptors as descriptors
from pyarmnn._arguments import Kind, instance
from pyarmnn._parameters import LstmInputParams, QuantizedLstmInputParams
from pyarmnn._tensors import ConstTensor
from pyarmnn._views import ConcatDescriptor, SplitterDescriptor

__all__ = ["KINDS", "WITH_WEIGHTS_AS_INPUTS", "LayerKind", "reference", "sized", "usual"]


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


def reference(kind: type) -> Kind:
    """Return the kind of arguments that are objects of a class."""
    return instance(kind, f"armnn::{kind.__name__} const &")


def _optional(value: Any) -> ConstTensor | None:
    if value is not None and not isinstance(value, ConstTensor):
        raise TypeError
    return value


CONSTANT: Final = reference(ConstTensor)
BIASES: Final = Kind("armnn::ConstTensor const *", _optional, "armnn::ConstTensor const *")


def usual(descriptor: type | None, inputs: int, outputs: int, *constants: str) -> LayerKind:
    """Return a kind of layers whose numbers of slots are fixed."""
    first = () if descriptor is None else (reference(descriptor),)
    kinds = tuple(BIASES if name == "biases" else CONSTANT for name in constants)
    return LayerKind((*first, *kinds), constants, lambda _: (inputs, outputs))


def sized(descriptor: type, slots: Callable[[Any], tuple[int, int]]) -> LayerKind:
    """Return a kind of layers whose numbers of slots depend on the descriptor."""
    return LayerKind((reference(descriptor),), (), slots)


KINDS: Final[dict[str, LayerKind]] = {
    "Activation": usual(descriptors.ActivationDescriptor, 1, 1),
    "Addition": usual(None, 2, 1),
    "ArgMinMax": usual(descriptors.ArgMinMaxDescriptor, 1, 1),
    "BatchNormalization": usual(descriptors.BatchNormalizationDescriptor, 1, 1, "mean", "variance", "beta", "gamma"),
    "BatchToSpaceNd": usual(descriptors.BatchToSpaceNdDescriptor, 1, 1),
    "Comparison": usual(descriptors.ComparisonDescriptor, 2, 1),
    "Concat": sized(ConcatDescriptor, lambda descriptor: (descriptor.GetNumViews(), 1)),
    "Constant": usual(None, 0, 1, "input"),
    "Convolution2d": usual(descriptors.Convolution2dDescriptor, 1, 1, "weights", "biases"),
    "DepthToSpace": usual(descriptors.DepthToSpaceDescriptor, 1, 1),
    "DepthwiseConvolution2d": usual(descriptors.DepthwiseConvolution2dDescriptor, 1, 1, "weights", "biases"),
    "Dequantize": usual(None, 1, 1),
    "DetectionPostProcess": usual(descriptors.DetectionPostProcessDescriptor, 2, 4, "anchors"),
    "Division": usual(None, 2, 1),
    "ElementwiseUnary": usual(descriptors.ElementwiseUnaryDescriptor, 1, 1),
    "Fill": usual(descriptors.FillDescriptor, 1, 1),
    "Floor": usual(None, 1, 1),
    "FullyConnected": usual(descriptors.FullyConnectedDescriptor, 1, 1, "weights", "biases"),
    "Gather": usual(descriptors.GatherDescriptor, 2, 1),
    "InstanceNormalization": usual(descriptors.InstanceNormalizationDescriptor, 1, 1),
    "L2Normalization": usual(descriptors.L2NormalizationDescriptor, 1, 1),
    "LogSoftmax": usual(descriptors.SoftmaxDescriptor, 1, 1),
    "Lstm": LayerKind(
        (reference(descriptors.LstmDescriptor), reference(LstmInputParams)), ("params",), lambda _: (3, 4)
    ),
    "Maximum": usual(None, 2, 1),
    "Mean": usual(descriptors.MeanDescriptor, 1, 1),
    "Merge": usual(None, 2, 1),
    "Minimum": usual(None, 2, 1),
    "Multiplication": usual(None, 2, 1),
    "Normalization": usual(descriptors.NormalizationDescriptor, 1, 1),
    "Pad": usual(descriptors.PadDescriptor, 1, 1),
    "Permute": usual(descriptors.PermuteDescriptor, 1, 1),
    "Pooling2d": usual(descriptors.Pooling2dDescriptor, 1, 1),
    "Prelu": usual(None, 2, 1),
    "Quantize": usual(None, 1, 1),
    "QuantizedLstm": LayerKind((reference(QuantizedLstmInputParams),), ("params",), lambda _: (3, 2)),
    "Rank": usual(None, 1, 1),
    "Reshape": usual(descriptors.ReshapeDescriptor, 1, 1),
    "Resize": usual(descriptors.ResizeDescriptor, 1, 1),
    "Slice": usual(descriptors.SliceDescriptor, 1, 1),
    "Softmax": usual(descriptors.SoftmaxDescriptor, 1, 1),
    "SpaceToBatchNd": usual(descriptors.SpaceToBatchNdDescriptor, 1, 1),
    "SpaceToDepth": usual(descriptors.SpaceToDepthDescriptor, 1, 1),
    "Splitter": sized(SplitterDescriptor, lambda descriptor: (1, descriptor.GetNumViews())),
    "Stack": sized(descriptors.StackDescriptor, lambda descriptor: (descriptor.m_NumInputs, 1)),
    "StandIn": sized(
        descriptors.StandInDescriptor, lambda descriptor: (descriptor.m_NumInputs, descriptor.m_NumOutputs)
    ),
    "StridedSlice": usual(descriptors.StridedSliceDescriptor, 1, 1),
    "Subtraction": usual(None, 2, 1),
    "Switch": usual(None, 2, 2),
    "TransposeConvolution2d": usual(descriptors.TransposeConvolution2dDescriptor, 1, 1, "weights", "biases"),
}
"""The kinds of layers except Input and Output."""


def _inputs_and_output(descriptor: Any) -> tuple[int, int]:
    return 3 if descriptor.m_BiasEnabled else 2, 1


WITH_WEIGHTS_AS_INPUTS: Final[dict[str, LayerKind]] = {
    "Convolution2d": sized(descriptors.Convolution2dDescriptor, _inputs_and_output),
    "DepthwiseConvolution2d": sized(descriptors.DepthwiseConvolution2dDescriptor, _inputs_and_output),
    "FullyConnected": sized(descriptors.FullyConnectedDescriptor, _inputs_and_output),
}
"""Layers whose weights and biases are inputs, as in release 23.08."""
