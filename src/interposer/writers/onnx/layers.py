"""Writing one layer to the sheet: directly or, if it is quantized, in integers or through float values."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops.quantization import Requantization
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.forms import has_type
from interposer.writers.onnx.onnx_layer_writers import LAYER_WRITERS
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import RefusedError, refuse
from interposer.writers.registry import Entry, Function, called

__all__ = ["written"]

_INEXACT: Final = "exact=False writes it with float values between DequantizeLinear and QuantizeLinear"


def written(draft: Draft) -> list[Tensor]:
    """Add the nodes of a layer to the draft, and return the layer's results.

    Raises:
        RefusedError: the format cannot express the layer.
    """
    for info in (*draft.infos, *draft.results):
        if info is not None and info.element is None and not has_type(info.dtype, draft.opset):
            refuse(f"opset {draft.opset} has no type {info.dtype}")
    entry = LAYER_WRITERS.find(type(draft.layer.op))
    if entry is None or entry.write is None:
        refuse("ONNX has no operators to make it of")
    if entry.moves and (not draft.is_quantized or draft.keeps_scales):
        return called(entry.write, draft)
    if not draft.is_quantized:
        return _of_one_rounding(entry.write, draft)
    return _quantized(entry, draft)


def _of_one_rounding(function: Function[Draft, Tensor], draft: Draft) -> list[Tensor]:
    """Call `function` to write a layer, so that its results in float16 or bfloat16 are rounded only once, at the end.

    If exact results are requested and several nodes compute, the operands are cast to float32 first and the results
    back.
    """
    if not draft.exact or not any(map(_is_narrow, (*draft.infos, *draft.results))):
        return called(function, draft)
    trial = draft.again(draft.operands)
    written_results = called(function, trial)
    if trial.arithmetic < 2:
        draft.take_over(trial)
        return written_results
    wide_draft = draft.again([operand and _widened(draft, operand) for operand in draft.operands])
    wide_draft.infos = tuple(info and _wide(info) for info in draft.infos)
    wide_draft.results = tuple(_wide(info) for info in draft.results)
    written_results = called(function, wide_draft)
    draft.take_over(wide_draft)
    return [draft.cast(tensor, info.dtype) for tensor, info in zip(written_results, draft.results, strict=True)]


def _is_narrow(info: TensorInfo | None) -> bool:
    return info is not None and info.dtype.is_float and info.dtype.bits < 32


def _widened(draft: Draft, tensor: Tensor) -> Tensor:
    return draft.cast(tensor, DataType.FLOAT32) if tensor.dtype.is_float and tensor.dtype.bits < 32 else tensor


def _wide(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.shape, DataType.FLOAT32) if _is_narrow(info) else info


def _quantized(entry: Entry[Draft, Tensor], draft: Draft) -> list[Tensor]:
    assert entry.write is not None
    if _rounds_as_onnx(draft):
        return _by_reals(entry.write, draft)
    if entry.exact is not None and (draft.exact or not entry.computes):
        try:
            return called(entry.exact, draft)
        except RefusedError as error:
            if draft.exact:
                raise RefusedError(f"{error}; {_INEXACT}") from error
    if draft.exact and not all(info.dtype.is_float for info in draft.results):
        refuse(f"ONNX rounds quantized results otherwise; {_INEXACT}")
    return _by_reals(entry.write, draft)


def _rounds_as_onnx(draft: Draft) -> bool:
    """Return True if a layer computes what ONNX does between DequantizeLinear and QuantizeLinear."""
    requantization = getattr(draft.layer.op, "requantization", Requantization.FIXED_POINT)
    return requantization is not Requantization.FIXED_POINT


def _by_reals(function: Function[Draft, Tensor], draft: Draft) -> list[Tensor]:
    """Call `function` to write a quantized layer in float, and return the layer's results.

    Quantized operands are dequantized before it, and its results are quantized after it.
    """
    operands = [operand and _real(draft, index, operand) for index, operand in enumerate(draft.operands)]
    reals = draft.again(operands)
    operands_and_infos = zip(operands, draft.infos, strict=True)
    reals.infos = tuple(
        info and TensorInfo(info.shape, real.dtype) if real else info for real, info in operands_and_infos
    )
    reals.results = tuple(
        TensorInfo(info.shape, DataType.FLOAT32) if info.is_quantized else info for info in draft.results
    )
    results = called(function, reals)
    draft.take_over(reals)
    return [
        real if info.quantization is None else draft.quantized(real, info.quantization, info.dtype)
        for real, info in zip(results, draft.results, strict=True)
    ]


def _real(draft: Draft, index: int, operand: Tensor) -> Tensor:
    info = draft.info(index)
    q = info.quantization or _implied(draft, index)
    if q is None:
        return operand
    if operand.array is not None and operand.quantization is None:
        return _dequantized_constant(operand.name, operand.array, q)
    return draft.dequantized(operand, q)


def _dequantized_constant(name: str, array: Array, q: Quantization) -> Tensor:
    """Return the dequantized form of a constant of integers.

    DequantizeLinear takes no integers of 64 bits. They become integers of 32 bits if all of them fit, else floats.
    """
    if array.dtype.itemsize < 8:
        return Tensor(name, DataType.FLOAT32, array, q)
    narrow = array.astype(np.int32)
    if np.array_equal(narrow, array):
        return Tensor(name, DataType.FLOAT32, narrow, q)
    shape = [-1 if axis == q.axis else 1 for axis in range(array.ndim)] if q.per_axis else []
    scales, points = np.reshape(q.scales, shape), np.reshape(q.zero_points, shape)
    return Tensor(name, DataType.FLOAT32, (scales * (array - points)).astype(np.float32))


def _implied(draft: Draft, index: int) -> Quantization | None:
    """Return the quantization of operand `index` if it is an integer bias, else None.

    Its scale is the product of the scales of input and weights. The result is also None if one of these is not
    quantized.
    """
    names = [declared_operand.name for declared_operand in draft.layer.op.operands]
    if names[index : index + 1] != ["bias"] or "weights" not in names or draft.info(index).dtype.is_float:
        return None
    source, weights = (draft.info(names.index(name)).quantization for name in ("input", "weights"))
    if source is None or weights is None:
        return None
    return Quantization([source.scale * scale for scale in weights.scales], 0, 0 if weights.per_axis else None)
