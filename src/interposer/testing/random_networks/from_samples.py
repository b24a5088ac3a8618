"""The grower that attaches any sample of any operator to the network.

One of the sample's operands with random values is replaced by a value of the network. The value is reshaped, cropped or
repeated, and converted to the operand's shape, type and quantization. The other operands are constants and inputs.

Not attached are operators without samples (control flow), operators with random results, operators on sequences and
optionals (`containers` has growers for them), and samples whose output shapes depend on data.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.records import dataclass
from interposer.core.schema import Op, op_class
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Cast,
    Comparison,
    ComparisonOperation,
    Dequantize,
    Quantize,
    Reshape,
    Slice,
    Tile,
)
from interposer.testing.known_samples import sampled_ops, samples_of
from interposer.testing.random_networks.arrays import drawn, stored
from interposer.testing.random_networks.growers import GROWERS, grower
from interposer.testing.random_networks.growth import MAX_ELEMENTS, Growth, Skipped
from interposer.testing.sample import Given, Sample

__all__ = ["attachable_ops", "fitted"]

_RARE_WEIGHT: Final = 6
"""The factor on the weight of operators that no other grower adds."""


@dataclass(frozen=True, eq=False)
class _Tickets:
    """Samples of which one is chosen at random, with the checksums of their names (see `Draw.ranked`)."""

    samples: Sequence[Sample]
    checksums: NDArray[np.uint64]


def _checksums(names: Sequence[str]) -> NDArray[np.uint64]:
    return np.array([zlib.crc32(name.encode()) for name in names], np.uint64)


@cache
def attachable_ops() -> tuple[type[Op], ...]:
    """Return the operators whose samples can read a value of the network, sorted by name."""
    return tuple(sorted((op for op in sampled_ops() if _is_attachable(op)), key=lambda op: op.op_name()))


def _is_attachable(op: type[Op]) -> bool:
    dtype_sets = (slot.dtypes for slot in (*op.operands, *op.results))
    takes_tensors = all(dtypes is None or any(not dtype.is_collection for dtype in dtypes) for dtypes in dtype_sets)
    return op.pure and op.executable and takes_tensors and bool(op.operands)


@cache
def _op_tickets() -> tuple[tuple[type[Op], ...], NDArray[np.uint64]]:
    """Return the operators to draw from, and a checksum for each entry (see `Draw.ranked`).

    Operators that no other grower adds are repeated, so that they are drawn more often.
    """
    grown_ops = frozenset().union(*(other_grower.ops for other_grower in GROWERS))
    tickets = [(op, number) for op in attachable_ops() for number in range(1 if op in grown_ops else _RARE_WEIGHT)]
    return tuple(op for op, _ in tickets), _checksums([f"{op.op_name()} {number}" for op, number in tickets])


@cache
def _samples(name: str, is_quantized: bool) -> _Tickets:
    """Return the samples of the operator with this name that have quantized operands, or of those that have none.

    All samples if there are none of the requested kind.
    """
    candidates = [sample for sample in samples_of(op_class(name)) if _is_usable(sample)]
    candidates = [candidate for candidate in candidates if _places(candidate)] or candidates
    matching_candidates = [
        candidate for candidate in candidates if _is_quantized(candidate) is is_quantized
    ] or candidates
    return _Tickets(matching_candidates, _checksums([candidate.id for candidate in matching_candidates]))


def _is_usable(sample: Sample) -> bool:
    operands = [operand for operand in sample.inputs if operand is not None]
    return bool(operands) and not (sample.statistical or sample.extreme) and all(map(_is_ordinary, operands))


def _is_ordinary(operand: Given) -> bool:
    """Return True if an operand of a sample is a tensor of limited size without NaN and infinities."""
    if operand.info.dtype.is_collection or operand.info.num_elements > MAX_ELEMENTS:
        return False
    return (
        operand.values is None
        or not operand.info.dtype.is_float
        or bool(np.isfinite(operand.values.astype(np.float64)).all())
    )


def _places(sample: Sample) -> list[int]:
    """Return the positions of a sample's operands that may hold any numbers: no indices, and no specified values."""
    return [
        index
        for index, operand in enumerate(sample.inputs)
        if operand is not None and operand.values is None and (operand.info.dtype.is_float or operand.info.is_quantized)
    ]


def _is_quantized(sample: Sample) -> bool:
    return any(operand is not None and operand.info.is_quantized for operand in sample.inputs)


@grower(24, choice=attachable_ops)
def sample_of_any_operator(growth: Growth, value: Value) -> None:
    """Add the operator of a random sample, one of whose operands is `value`; favoured operators are preferred."""
    draw = growth.draw
    favoured = [op for op in attachable_ops() if op in growth.favoured]
    if favoured and draw.chance(7, 8):
        op = draw.one_of(favoured)
    else:
        ops, checksums = _op_tickets()
        op = ops[draw.ranked(checksums)]
    is_quantized = growth.kind == "quantized" if draw.chance(7, 8) else draw.chance(1, 2)
    choice = _samples(op.op_name(), is_quantized)
    if not choice.samples:
        raise Skipped
    _attach(growth, value, choice.samples[draw.ranked(choice.checksums)])


def _attach(growth: Growth, value: Value, sample: Sample) -> None:
    free_indices = _places(sample)
    input_indices = [index for index in free_indices if not _known(sample.inputs[index]).constant] or free_indices
    attached_index = growth.draw.one_of(input_indices) if input_indices else None
    operands: list[Value | None] = []
    for index, operand in enumerate(sample.inputs):
        if operand is None:
            operands.append(None)
        elif index == attached_index and (
            operand.info == value.known or not growth.favoured or growth.draw.chance(1, 10)
        ):
            operands.append(_bounded(growth, value, operand))
        else:
            operands.append(_another(growth, operand, index in free_indices))
    growth.add(sample.op, *operands, outputs=sample.outputs)


def _known(operand: Given | None) -> Given:
    assert operand is not None
    return operand


def _another(growth: Growth, operand: Given, takes_values: bool) -> Value:
    """Return a value for an operand of the sample, described by `operand`, other than the one that is attached.

    It is a value of the network with the same info (only if the operand `takes_values`), a constant, or a new input.
    """
    draw = growth.draw
    if takes_values and not operand.constant and draw.chance(1, 2):
        existing_value = growth.another(lambda value: value.known == operand.info)
        if existing_value is not None:
            return _bounded(growth, existing_value, operand)
    array = _array(growth, operand)
    if operand.constant or draw.chance(3 if operand.info.dtype.is_integer else 1, 4):
        return growth.constant(array, operand.info.quantization)
    return growth.fed(array, operand.info)


def _array(growth: Growth, operand: Given) -> Array:
    """Return an array for an operand of a sample: the specified one, or random numbers between its `low` and `high`."""
    info = operand.info
    if operand.values is not None:
        return operand.values
    if info.dtype in (DataType.STRING, DataType.BOOL):
        return drawn(growth.draw, info, 1.0)
    return stored(growth.draw.uniform(info.shape, operand.low, operand.high), info)


# --- values that are made to fit --------------------------------------------------------------------------------------


def _bounded(growth: Growth, value: Value, operand: Given) -> Value:
    """Return the value with its elements limited to the range of the operand `operand`, and converted to its info.

    A clipping layer is added only if elements may exceed the range.
    """
    too_large = growth.reach(value) > 4 * max(abs(operand.low), abs(operand.high))
    if (too_large or (operand.low >= 0 and value not in growth.positive)) and not value.known.is_quantized:
        clip = Activation(ActivationFunction.BOUNDED_RELU, operand.high, operand.low)
        value = growth.add(clip, growth.real(value), reach=operand.high, positive=operand.low >= 0)
    return fitted(growth, value, operand.info)


def fitted(growth: Growth, value: Value, info: TensorInfo) -> Value:
    """Return the value converted to the shape, type and quantization of `info` by additional layers.

    Raises:
        Skipped: the conversion is impossible, since a tensor is empty or a type is not numeric.
    """
    value = _of_shape(growth, value, tuple(info.shape))
    if value.known.dtype is info.dtype and value.known.quantization == info.quantization:
        return value
    if info.is_quantized:
        value = value if value.known.is_quantized else growth.real(value)
        return growth.add(Quantize(info.dtype), value, outputs=info.with_constant(None))
    if info.dtype is DataType.BOOL:
        reals = growth.real(value)
        zero = growth.constant(np.zeros((), reals.known.dtype.numpy))
        return growth.add(Comparison(ComparisonOperation.GREATER), reals, zero)
    if value.known.is_quantized:
        value = growth.add(Dequantize(), value)
    if value.known.dtype is not info.dtype and DataType.STRING in (value.known.dtype, info.dtype):
        raise Skipped
    return value if value.known.dtype is info.dtype else growth.add(Cast(info.dtype), value)


def _of_shape(growth: Growth, value: Value, shape: tuple[int, ...]) -> Value:
    """Return the value with another shape: its first elements, repeated if there are too few."""
    current_shape = tuple(value.known.shape)
    if current_shape == shape:
        return value
    count, new_count = math.prod(current_shape), math.prod(shape)
    if count == 0 or new_count == 0:
        raise Skipped
    if len(current_shape) == len(shape) and all(old >= new for old, new in zip(current_shape, shape, strict=True)):
        begin = tuple(growth.draw.integer(0, old - new) for old, new in zip(current_shape, shape, strict=True))
        return growth.add(Slice(begin, shape), value)
    if count != new_count:
        value = growth.add(Reshape((-1,)), value) if len(current_shape) != 1 else value
        value = growth.add(Tile((-(-new_count // count),)), value) if count < new_count else value
        value = growth.add(Slice((0,), (new_count,)), value) if value.known.num_elements > new_count else value
    return value if tuple(value.known.shape) == shape else growth.add(Reshape(shape), value)
