"""Growers of sequences and optionals, which take and return tensors of the network."""

from __future__ import annotations

import numpy as np

from interposer.ir.graph import Value
from interposer.ops import (
    ConcatFromSequence,
    OptionalConstruct,
    OptionalEmpty,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped

__all__: list[str] = []


def _position(growth: Growth, length: int) -> Value:
    dtype = growth.draw.one_of((np.int32, np.int64))
    return growth.constant(np.array(growth.draw.integer(-length, length - 1), dtype))


@grower(1, SequenceConstruct, SequenceInsert, SequenceErase, SequenceAt, SequenceLength, ConcatFromSequence)
def _sequence(growth: Growth, value: Value) -> None:
    """Add a sequence of values that have the same info, perhaps modify it, and read elements or its length."""
    draw, info = growth.draw, value.known
    if info.quantization is not None and info.quantization.per_axis:
        raise Skipped
    length = draw.integer(1, 3) if SequenceErase not in growth.favoured else 3
    elements = [growth.another(lambda candidate: candidate.known == info) or value for _ in range(length - 1)]
    sequence = growth.add(SequenceConstruct(), value, *elements)
    if growth.perhaps(SequenceInsert, 1, 3):
        sequence = growth.add(SequenceInsert(), sequence, value, _position(growth, length))
        length += 1
    if length > 1 and growth.perhaps(SequenceErase, 1, 3):
        sequence = growth.add(SequenceErase(), sequence, _position(growth, length))
        length -= 1
    _taken_apart(growth, sequence, length, info.rank)


def _taken_apart(growth: Growth, sequence: Value, length: int, rank: int) -> None:
    readers = (SequenceAt, SequenceLength, ConcatFromSequence)
    reader = growth.choice(readers, lambda op: op)
    if reader is SequenceAt:
        growth.add(SequenceAt(), sequence, _position(growth, length))
    elif reader is SequenceLength:
        growth.add(SequenceLength(), sequence, reach=4.0, positive=True)
    else:
        has_new_axis = rank == 0 or growth.draw.chance(1, 2)
        growth.add(
            ConcatFromSequence(growth.draw.integer(0, rank if has_new_axis else rank - 1), has_new_axis), sequence
        )


@grower(1, SplitToSequence, SequenceAt, SequenceLength, ConcatFromSequence)
def _pieces(growth: Growth, value: Value) -> None:
    """Add a SplitToSequence, and read elements of the sequence, its length, or the concatenation."""
    draw, shape = growth.draw, value.known.shape
    if not shape or 0 in shape:
        raise Skipped
    axis = draw.below(len(shape))
    sizes = [size for size in range(1, shape[axis] + 1) if shape[axis] % size == 0 and shape[axis] // size <= 9]
    size = draw.one_of(sizes)
    piece_size = growth.constant(np.array(size, np.int64))
    sequence = growth.add(SplitToSequence(axis), value, piece_size)
    _taken_apart(growth, sequence, shape[axis] // size, len(shape))


@grower(1, OptionalConstruct, OptionalEmpty, OptionalGetElement, OptionalHasElement, SequenceEmpty)
def _optional(growth: Growth, value: Value) -> None:
    """Add a full optional, an empty optional or an empty sequence for the value, and an operator that reads it."""
    info = value.known
    source = growth.choice((OptionalConstruct, OptionalConstruct, OptionalEmpty, SequenceEmpty), lambda op: op)
    if source is SequenceEmpty and not info.is_quantized:
        sequence = growth.add(SequenceInsert(), growth.add(SequenceEmpty(info.dtype)), value)
        growth.add(SequenceAt(), sequence, _position(growth, 1))
    elif source is OptionalEmpty:
        growth.add(OptionalHasElement(), growth.add(OptionalEmpty(info.dtype)), reach=1.0)
    else:
        optional = growth.add(OptionalConstruct(), value)
        growth.add(growth.choice((OptionalGetElement(), OptionalHasElement()), type), optional)
