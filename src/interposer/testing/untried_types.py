"""Data types that a backend accepts for an operator, although no sample tries them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from interposer.core.errors import InterposerError
from interposer.core.schema import Op
from interposer.core.types import ANY_TYPE, QUANTIZABLE, DataType, Quantization, TensorInfo
from interposer.testing.sample import Given, Sample

__all__ = ["first_kind", "untried_kinds"]

Kind = tuple[DataType, bool]
"""A data type, and whether the tensor is quantized."""


def untried_kinds(samples: Sequence[Sample], accepts: Callable[[Sample], bool], most: int) -> list[str]:
    """Return the names of data types that are accepted for an operator, but that none of its samples has.

    Args:
        samples: samples of one operator that has operands; accepted ones come first.
        accepts: returns True if the operator is accepted with the tensors of a sample.
        most: how many samples are tried in other types. They have different attributes.
    """
    with_operands = [sample for sample in samples if any(sample.inputs)]
    tried_kinds = {first_kind(sample) for sample in with_operands}
    originals = _originals(with_operands, most)
    kinds_left = [kind for kind in _kinds(type(samples[0].op)) if kind not in tried_kinds]
    return [_name(kind) for kind in kinds_left if any(accepts(sample) for sample in _retyped(originals, kind))]


def first_kind(sample: Sample) -> Kind:
    """Return the type of the first operand that is present, and whether it is quantized."""
    info = next(operand.info for operand in sample.inputs if operand is not None)
    return info.dtype, info.is_quantized


def _kinds(op: type[Op]) -> Iterator[Kind]:
    declared_types = op.operands[0].dtypes or ANY_TYPE
    can_be_quantized = any(dtype.is_float for dtype in declared_types)  # unlike indices and sizes
    for dtype in sorted(declared_types & ANY_TYPE, key=str):
        yield dtype, False
        if dtype in QUANTIZABLE and can_be_quantized:
            yield dtype, True


def _originals(samples: Sequence[Sample], max_samples: int) -> list[Sample]:
    """Return samples of different attributes, of floats if there are any."""
    floats = [sample for sample in samples if first_kind(sample)[0].is_float]
    by_attributes = {repr(sample.op): sample for sample in reversed(floats or samples)}
    return list(reversed(by_attributes.values()))[:max_samples]


def _retyped(originals: Sequence[Sample], kind: Kind) -> Iterator[Sample]:
    """Yield the samples with another type for all operands and results that have the type of the first operand."""
    dtype, is_quantized = kind
    quantization = Quantization(0.5) if is_quantized else None
    for sample in originals:
        old_type, _ = first_kind(sample)
        try:
            inputs = [_with_type(operand, old_type, dtype, quantization) for operand in sample.inputs]
            infos = [None if operand is None else operand.info for operand in inputs]
            if any(sample.op.violations(*infos)):
                continue
            inferred_infos = sample.op.infer_infos(*infos)
        except InterposerError:
            continue
        outputs = [
            info.with_quantization(quantization) if info and info.dtype is dtype else info for info in inferred_infos
        ]
        yield replace(sample, inputs=inputs, outputs=outputs, expected=None)


def _with_type(
    operand: Given | None, old_type: DataType, dtype: DataType, quantization: Quantization | None
) -> Given | None:
    if operand is None or operand.info.dtype is not old_type:
        return operand
    return Given(TensorInfo(operand.info.shape, dtype, quantization), low=0.0, high=1.0, constant=operand.constant)


def _name(kind: Kind) -> str:
    dtype, is_quantized = kind
    return f"quantized {dtype}" if is_quantized else str(dtype)
