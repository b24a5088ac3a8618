"""Layers that ONNX Runtime accepts, but then computes differently or fails to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.backends.engines.rules import Infos, Rules
from interposer.core.types import DataType, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    AffineGrid,
    Attention,
    BatchMatMul,
    BinaryOperation,
    Cast,
    Col2Im,
    Dft,
    DynamicQuantize,
    ElementwiseBinary,
    ElementwiseUnary,
    GridSample,
    GridSampleMode,
    GruSequence,
    IntegerConvolution2d,
    LstmSequence,
    MeanVarianceNormalization,
    MelWeightMatrix,
    OneHot,
    Quantize,
    Resize,
    ResizeMethod,
    RmsNormalization,
    ScatterElements,
    ScatterFunction,
    ScatterNd,
    Softmax,
    TfIdfVectorizer,
    TransposeConvolution2d,
    UnaryOperation,
    UnidirectionalSequenceLstm,
)

__all__ = ["RULES"]

RULES: Final = Rules()
Outputs = Sequence[TensorInfo]
_DOUBLE: Final = DataType.FLOAT64
_WRAPPED: Final = frozenset(
    {DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64, DataType.INT8, DataType.INT16}
)
_WIDE_UNSIGNED: Final = frozenset({DataType.UINT32, DataType.UINT64})
_IN_FLOAT32: Final = frozenset({ActivationFunction.GELU_TANH, ActivationFunction.SHRINK})


def _is(info: TensorInfo | None, *dtypes: DataType) -> bool:
    return info is not None and info.dtype in dtypes


@RULES(Activation)
def _rounded(op: Activation, inputs: Infos, outputs: Outputs) -> str | None:
    rounds = op.function in _IN_FLOAT32 and _is(inputs[0], _DOUBLE)
    return f"ONNX Runtime computes {op.function.name} of float64 in float32" if rounds else None


@RULES(AffineGrid)
def _few_pixels(op: AffineGrid, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime supports no dimensions below 2" if min(op.extents) < 2 else None


@RULES(Attention)
def _attention(op: Attention, inputs: Infos, outputs: Outputs) -> str | None:
    mask, past = inputs[3:5]
    if _is(inputs[0], _DOUBLE):
        return "ONNX Runtime computes attention of float64 in float32"
    if past is not None and len(outputs) == 1:
        return "ONNX Runtime supports past keys only together with present keys"
    if mask is not None and len(outputs) > 1:
        return "ONNX Runtime returns the lowest float for masked scores, not -infinity"
    if mask is not None and not _is_whole(mask, inputs, past):
        return "ONNX Runtime supports only masks that cover all queries and keys"
    return None


def _is_whole(mask: TensorInfo, inputs: Infos, past: TensorInfo | None) -> bool:
    query, key = inputs[0], inputs[1]
    assert query is not None
    assert key is not None
    keys = int(key.shape[-2]) + (0 if past is None else int(past.shape[-2]))
    return mask.rank == 2 and tuple(mask.shape) == (query.shape[-2], keys)


@RULES(BatchMatMul)
def _nothing_to_sum(op: BatchMatMul, inputs: Infos, outputs: Outputs) -> str | None:
    empty = [info for info in inputs if info is not None and info.num_elements == 0]
    if any(info.is_quantized for info in empty):
        return "ONNX Runtime returns wrong values for empty sums of quantized products"
    if any(info.dtype in _WIDE_UNSIGNED for info in empty):
        return "ONNX Runtime fails on empty sums of uint32 and uint64"
    return None


@RULES(Cast)
def _wraps(op: Cast, inputs: Infos, outputs: Outputs) -> str | None:
    from_float = inputs[0] is not None and inputs[0].dtype.is_float
    return f"ONNX Runtime wraps floats that do not fit into {op.dtype}" if from_float and op.dtype in _WRAPPED else None


@RULES(Col2Im)
def _gaps(op: Col2Im, inputs: Infos, outputs: Outputs) -> str | None:
    has_unsupported_dilation = any(step != 1 for step in op.dilations) and len(op.image_shape) != 2
    return "ONNX Runtime supports dilations only in two dimensions" if has_unsupported_dilation else None


@RULES(Dft)
def _real_signals(op: Dft, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime has no inverse of one-sided spectra" if op.inverse and op.onesided else None


@RULES(DynamicQuantize)
def _nothing_to_scale(op: DynamicQuantize, inputs: Infos, outputs: Outputs) -> str | None:
    is_empty = inputs[0] is not None and inputs[0].num_elements == 0
    return "ONNX Runtime returns the scale 1 for an empty tensor" if is_empty else None


@RULES(ElementwiseBinary)
def _floors(op: ElementwiseBinary, inputs: Infos, outputs: Outputs) -> str | None:
    is_float8 = inputs[0] is not None and inputs[0].dtype.is_float and inputs[0].dtype.bits == 8
    rounds_first = is_float8 and op.operation is BinaryOperation.FLOOR_DIV
    return "ONNX Runtime rounds quotients of float8 before the floor" if rounds_first else None


@RULES(ElementwiseUnary)
def _interpolated(op: ElementwiseUnary, inputs: Infos, outputs: Outputs) -> str | None:
    uses_table = op.operation in (UnaryOperation.EXP, UnaryOperation.LOG) and _is(inputs[0], DataType.INT16)
    return "ONNX Runtime does not interpolate in lookup tables as TFLite does" if uses_table else None


@RULES(GridSample)
def _grid(op: GridSample, inputs: Infos, outputs: Outputs) -> str | None:
    rank = outputs[0].rank
    if any(info is not None and info.num_elements == 0 for info in inputs):
        return "ONNX Runtime does not sample empty images"
    if rank not in (4, 5) or (rank == 5 and op.mode is GridSampleMode.CUBIC):
        return "ONNX Runtime samples only 2-D and 3-D images, and cubic only 2-D ones"
    return None


@RULES(GruSequence, LstmSequence)
def _no_doubles(op: GruSequence | LstmSequence, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime fails on float64" if _is(inputs[0], _DOUBLE) else None


@RULES(LstmSequence)
def _no_dynamic_quantization(op: LstmSequence, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime quantizes states otherwise if it has several threads" if op.dynamic_quantization else None


@RULES(IntegerConvolution2d)
def _zero_points(op: IntegerConvolution2d, inputs: Infos, outputs: Outputs) -> str | None:
    zero_points = inputs[3]
    has_several = zero_points is not None and zero_points.is_ranked and zero_points.num_elements != 1
    return "ONNX Runtime fails on several zero points of the weights" if has_several else None


@RULES(MelWeightMatrix)
def _edges_in_range(op: MelWeightMatrix, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime fails on edges in hertz above the highest frequency of the spectrogram"


@RULES(MeanVarianceNormalization, RmsNormalization)
def _rounds_between(op: MeanVarianceNormalization | RmsNormalization, inputs: Infos, outputs: Outputs) -> str | None:
    is_float8 = outputs[0].dtype.is_float and outputs[0].dtype.bits == 8
    return "ONNX Runtime rounds intermediate results to float8" if is_float8 else None


@RULES(OneHot)
def _no_rows(op: OneHot, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime fails on a depth of 0" if op.depth == 0 else None


@RULES(Quantize)
def _wide_codes(op: Quantize, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime has no requantization of 32 bits" if _is(outputs[0], DataType.UINT32) else None


@RULES(Resize)
def _fine_steps(op: Resize, inputs: Infos, outputs: Outputs) -> str | None:
    is_16_bit = outputs[0].is_quantized and outputs[0].dtype.bits == 16 and op.method is ResizeMethod.BILINEAR
    return "ONNX Runtime interpolates less precisely than 16-bit quantization needs" if is_16_bit else None


@RULES(ScatterElements, ScatterNd)
def _sums_of_halves(op: ScatterElements | ScatterNd, inputs: Infos, outputs: Outputs) -> str | None:
    sums_half_floats = (
        outputs[0].dtype in (DataType.FLOAT16, DataType.BFLOAT16) and op.function is not ScatterFunction.UPDATE
    )
    return f"ONNX Runtime has no {op.function.name} of {outputs[0].dtype}" if sums_half_floats else None


@RULES(Softmax)
def _tables(op: Softmax, inputs: Infos, outputs: Outputs) -> str | None:
    uses_table = outputs[0].is_quantized and outputs[0].dtype is DataType.INT16
    return "ONNX Runtime does not compute exponentials from lookup tables as TFLite does" if uses_table else None


@RULES(TfIdfVectorizer)
def _endless(op: TfIdfVectorizer, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime hangs on some sequences of this operator"


@RULES(TransposeConvolution2d)
def _beyond(op: TransposeConvolution2d, inputs: Infos, outputs: Outputs) -> str | None:
    image, weights = inputs[0], inputs[1]
    assert image is not None
    assert weights is not None
    h, w, _ = op.data_layout.axes()
    windows_and_axes = zip(op.windows(int(weights.shape[h]), int(weights.shape[w])), (h, w), strict=True)
    for window, axis in windows_and_axes:
        covered_size = (int(image.shape[axis]) - 1) * window.stride + (window.size - 1) * window.dilation + 1
        if int(outputs[0].shape[axis]) - (covered_size - window.pad_before - window.pad_after) >= window.stride > 0:
            return "ONNX Runtime supports no results larger than the windows cover"
    return None


@RULES(UnidirectionalSequenceLstm)
def _integer_gates(op: UnidirectionalSequenceLstm, inputs: Infos, outputs: Outputs) -> str | None:
    return "ONNX Runtime computes in floats what TFLite computes in integers" if outputs[0].is_quantized else None
