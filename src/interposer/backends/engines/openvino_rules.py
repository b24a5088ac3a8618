"""Layers that OpenVINO accepts, but then computes differently, fails to run, or crashes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.backend import Op
from interposer.backends.engines.rules import Infos, Rules
from interposer.core.types import DataType, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BidirectionalSequenceLstm,
    Cast,
    Compress,
    Convolution2d,
    Dft,
    ElementwiseBinary,
    ElementwiseUnary,
    LstmSequence,
    MaxPoolingWithIndices,
    Multiplication,
    OutputShapeRounding,
    Pooling2d,
    PoolingAlgorithm,
    Quantize,
    Reshape,
    RoiAlign,
    Subtraction,
    Svdf,
    UnidirectionalSequenceLstm,
)

__all__ = ["RULES"]

RULES: Final = Rules()
Outputs = Sequence[TensorInfo]
_SMALL: Final = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16})
_WIDE: Final = frozenset({DataType.INT64, DataType.UINT64})
_CEILING: Final = OutputShapeRounding.CEILING
_WITH_DEFAULTS: Final = frozenset({ActivationFunction.SELU, ActivationFunction.HARD_SIGMOID})


@RULES()
def _nothing(op: Op, inputs: Infos, outputs: Outputs) -> str | None:
    """Refuse a layer with an empty tensor, as some of OpenVINO's kernels then divide by zero and crash the process."""
    has_empty_tensor = any(info is not None and info.num_elements == 0 for info in (*inputs, *outputs))
    return "OpenVINO crashes on some empty tensors, so all of them are refused" if has_empty_tensor else None


@RULES(Compress, MaxPoolingWithIndices)
def _wrong(op: Op, inputs: Infos, outputs: Outputs) -> str | None:
    return f"OpenVINO crashes on some layers {op.op_name()}, or gives other indices"


@RULES(Dft, LstmSequence, RoiAlign, Svdf)
def _otherwise(op: Op, inputs: Infos, outputs: Outputs) -> str | None:
    return f"OpenVINO computes some layers {op.op_name()} differently"


@RULES(BidirectionalSequenceLstm)
def _keeps_states(op: BidirectionalSequenceLstm, inputs: Infos, outputs: Outputs) -> str | None:
    return "OpenVINO begins later runs of some layers BidirectionalSequenceLstm with the states of the run before"


@RULES(Activation)
def _no_zeros(op: Activation, inputs: Infos, outputs: Outputs) -> str | None:
    has_zero = op.function in _WITH_DEFAULTS and 0 in (op.a, op.b)
    return f"OpenVINO takes a parameter of 0 of {op.function.name} for none" if has_zero else None


@RULES(Cast)
def _floats_to_integers(op: Cast, inputs: Infos, outputs: Outputs) -> str | None:
    is_lossy = inputs[0] is not None and inputs[0].dtype.is_float and not op.dtype.is_float
    return (
        "OpenVINO converts floats that do not fit into integers, and fractions to bool, differently"
        if is_lossy
        else None
    )


@RULES(ElementwiseBinary, ElementwiseUnary, Addition, Subtraction, Multiplication)
def _saturates(op: Op, inputs: Infos, outputs: Outputs) -> str | None:
    wraps = not outputs[0].is_quantized and outputs[0].dtype in _SMALL
    return f"OpenVINO clamps results of {outputs[0].dtype} instead of wrapping them" if wraps else None


@RULES()
def _narrow(op: Op, inputs: Infos, outputs: Outputs) -> str | None:
    """Refuse quantized integers of 64 bits; for other integers, `Recording` has what OpenVINO computes wrongly."""
    wide_info = next(
        (info for info in (*inputs[:1], *outputs) if info and info.is_quantized and info.dtype in _WIDE), None
    )
    return f"OpenVINO computes quantized {wide_info.dtype} in 32 bits" if wide_info else None


@RULES(Convolution2d)
def _padded_points(op: Convolution2d, inputs: Infos, outputs: Outputs) -> str | None:
    height, width, _ = op.data_layout.axes()
    weights = inputs[1]
    is_pointwise = weights is not None and weights.shape[height] == weights.shape[width] == 1
    has_padding = max(op.pad_left, op.pad_right, op.pad_top, op.pad_bottom) > 0
    is_affected = outputs[0].is_quantized and is_pointwise and has_padding
    return (
        "OpenVINO crashes on quantized 1x1 convolutions with padding, or gives another shape" if is_affected else None
    )


@RULES(Reshape)
def _scalars(op: Op, inputs: Infos, outputs: Outputs) -> str | None:
    is_scalar = outputs[0].is_ranked and outputs[0].rank == 0
    return "OpenVINO crashes if the product of two matrices is reshaped to a scalar" if is_scalar else None


@RULES(Pooling2d)
def _padded_means(op: Pooling2d, inputs: Infos, outputs: Outputs) -> str | None:
    pads = max(op.pad_left, op.pad_right, op.pad_top, op.pad_bottom) or op.output_shape_rounding is _CEILING
    padded = outputs[0].is_quantized and op.pool_type is PoolingAlgorithm.AVERAGE and pads
    return "OpenVINO pads quantized images with values other than 0 in average pooling" if padded else None


@RULES(Quantize)
def _codes_to_codes(op: Quantize, inputs: Infos, outputs: Outputs) -> str | None:
    is_requantized = inputs[0] is not None and inputs[0].is_quantized
    return "OpenVINO drops a change of scale between some types" if is_requantized else None


@RULES(UnidirectionalSequenceLstm)
def _integer_gates(op: UnidirectionalSequenceLstm, inputs: Infos, outputs: Outputs) -> str | None:
    return "OpenVINO computes in floats what TFLite computes in integers" if outputs[0].is_quantized else None
