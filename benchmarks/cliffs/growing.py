"""Larger versions of the conformance kit's samples.

A sample is grown by doubling dimensions. Which dimensions of other operands, and which numbers in attributes, have to
grow with a dimension of the largest operand is not declared anywhere. So it is tried: the smallest set for which the
operator is still valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.errors import InterposerError
from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo
from interposer.testing.sample import Given, Sample

__all__ = ["bytes_of", "grown"]

Dimension: TypeAlias = tuple[int | str, int]
"""The position of an operand and an axis of it, or the name of an attribute and an index into its numbers."""
MOST_COUPLED: Final = 4
"""How many dimensions may have to grow together."""
MOST_TRIALS: Final = 100
"""How many sets of dimensions are tried; operators with dozens of operands have too many."""
MOST_DOUBLINGS: Final = 40


def bytes_of(sample: Sample) -> int:
    """Return the size of all operands in bytes."""
    return sum(_size(operand) for operand in sample.inputs if operand is not None)


def grown(sample: Sample, target: int) -> Sample | None:
    """Return the sample with operands of about `target` bytes; None if it cannot grow that far.

    Dimensions are doubled in turns, the last axis of the largest operand first. New random values are drawn, and given
    values are repeated.
    """
    position, rank = _largest(sample)
    failures = 0
    for number in range(MOST_DOUBLINGS):
        if failures == rank or 4 * bytes_of(sample) > 3 * target:
            break
        axis = rank - 1 - number % rank
        larger = _coupled(sample, (position, axis))
        failures, sample = (failures + 1, sample) if larger is None else (0, larger)
        if axis == 0:
            sample = _with_more_results(sample)
    return sample if 2 * bytes_of(sample) > target else None


def _size(operand: Given) -> int:
    return int(operand.info.num_elements) * operand.info.dtype.numpy.itemsize


def _largest(sample: Sample) -> tuple[int, int]:
    """Return the position and the rank of the largest input of the network; (0, 0) if nothing can grow."""
    inputs = [(n, operand) for n, operand in enumerate(sample.inputs) if operand is not None and not operand.constant]
    if not inputs or any(operand.info.element is not None for _, operand in inputs):  # sequences and the like
        return 0, 0
    position, operand = max(inputs, key=lambda pair: _size(pair[1]))
    return position, operand.info.rank


def _with_more_results(sample: Sample) -> Sample:
    """Return the sample with a dimension of its weights doubled that doubles the results, such as output channels."""
    matrices = [
        (n, axis)
        for n, operand in enumerate(sample.inputs)
        if operand is not None and operand.constant and operand.info.rank > 1
        for axis in range(operand.info.rank)
    ]
    for first in matrices:
        larger = _coupled(sample, first)
        if larger is not None and _results(larger) == 2 * _results(sample):
            return larger
    return sample


def _results(sample: Sample) -> int:
    """Return the number of elements of all results; 0 if it is not known."""
    infos = sample.op.infer_infos(*(operand and operand.info for operand in sample.inputs))
    return sum(int(info.num_elements) for info in infos if info is not None and info.shape.is_concrete)


def _coupled(sample: Sample, first: Dimension) -> Sample | None:
    """Return the sample with `first` and as few others as possible doubled; None if the operator is never valid."""
    others = [dimension for dimension in _candidates(sample, first) if dimension != first]
    sets = chain.from_iterable(combinations(others, count) for count in range(MOST_COUPLED))
    trials = (_doubled(sample, (first, *chosen)) for chosen in islice(sets, MOST_TRIALS))
    return next((larger for larger in trials if larger is not None), None)


def _candidates(sample: Sample, first: Dimension) -> Iterator[Dimension]:
    """Yield the dimensions of the same size as `first`, then all positive numbers in attributes that are tuples."""
    operands = [operand for operand in sample.inputs]
    chosen_operand = operands[int(first[0])]
    assert chosen_operand is not None
    for n, operand in enumerate(operands):
        if operand is not None:
            yield from (
                (n, axis) for axis, size in enumerate(operand.info.shape) if size == chosen_operand.info.shape[first[1]]
            )
    for name in sample.op.attributes:
        numbers = getattr(sample.op, name)
        if isinstance(numbers, tuple):
            yield from ((name, n) for n, number in enumerate(numbers) if isinstance(number, int) and number > 0)


def _doubled(sample: Sample, dimensions: Sequence[Dimension]) -> Sample | None:
    """Return the sample with these dimensions doubled; None if the operator is not valid then."""
    inputs, op = list(sample.inputs), sample.op
    try:
        for place, index in dimensions:
            if isinstance(place, str):
                op = _doubled_attribute(op, place, index)
            else:
                inputs[place] = _doubled_operand(inputs[place], index)
        infos = [operand and operand.info for operand in inputs]
        inferred = () if op.violations(*infos) else op.infer_infos(*infos)
    except (InterposerError, ValueError):
        return None
    if not inferred or None in inferred:
        return None
    declared = [_declared(info, before) for info, before in zip(inferred, sample.outputs, strict=False)]
    return replace(sample, op=op, inputs=inputs, outputs=declared, expected=None)


def _doubled_attribute(op: Op, name: str, index: int) -> Op:
    numbers: tuple[Any, ...] = getattr(op, name)
    return op.replace(**{name: tuple(2 * number if n == index else number for n, number in enumerate(numbers))})


def _doubled_operand(operand: Given | None, axis: int) -> Given:
    assert operand is not None
    shape = [int(size) * (2 if n == axis else 1) for n, size in enumerate(operand.info.shape)]
    info = TensorInfo(shape, operand.info.dtype, _doubled_quantization(operand.info.quantization, axis))
    values = operand.values
    return replace(operand, info=info, values=None if values is None else np.concatenate([values, values], axis))


def _doubled_quantization(quantization: Quantization | None, axis: int) -> Quantization | None:
    if quantization is None or quantization.axis != axis:
        return quantization
    return Quantization(quantization.scales * 2, quantization.zero_points * 2, axis)


def _declared(inferred: TensorInfo | None, before: TensorInfo | None) -> TensorInfo | None:
    """Return the inferred info with the quantization that was declared for the smaller sample."""
    if inferred is None or before is None:
        return None
    quantization = before.quantization
    if quantization is not None and quantization.axis is not None:
        size = int(inferred.shape[quantization.axis])
        repeats = max(1, size // len(quantization.scales))
        quantization = Quantization(
            quantization.scales * repeats, quantization.zero_points * repeats, quantization.axis
        )
    return TensorInfo(inferred.shape, before.dtype, quantization)
