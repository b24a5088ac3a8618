"""Samples of operators on sequences and optionals."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Final

import numpy as np

from interposer.core.containers import collected
from interposer.core.types import Array, DataType, Quantization, TensorInfo
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
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import PLAIN, f32, plain, retyped, typed

__all__: list[str] = []

INT32, INT64 = DataType.INT32, DataType.INT64
ROWS: Final = (f32([[1, 2]]), f32([[3, 4], [5, 6]]), f32([[7, 8]]))


def _sequence(*elements: Array, quantization: Quantization | None = None) -> Given:
    """Return an operand that is a sequence of these tensors."""
    infos = [TensorInfo(element.shape, element.dtype, quantization) for element in elements]
    element = reduce(TensorInfo.joined, infos) if infos else TensorInfo(...)
    return Given(TensorInfo((len(elements),), DataType.SEQUENCE, element=element), collected(elements))


def _optional(element: Given | None) -> Given:
    info = TensorInfo(...) if element is None else element.info
    optional_info = TensorInfo((0 if element is None else 1,), DataType.OPTIONAL, element=info)
    return Given(optional_info, collected([] if element is None else [element.array(np.random.default_rng(1))]))


def _of_types() -> Iterator[tuple[str, Given]]:
    """Yield a named sequence for every type, with three elements of which two have the same shape."""
    for label, operand in typed((2, 3)):
        arrays = (operand.array(np.random.default_rng(seed)) for seed in (1, 2))
        yield label, _sequence(*arrays, quantization=operand.info.quantization)


def _position(number: int, dtype: DataType = INT64, *, constant: bool = False) -> Given:
    return of(number, dtype, constant=constant)


@samples(SequenceEmpty)
def sequence_empty() -> Iterator[Sample]:
    """Yield SequenceEmpty samples: empty sequences of every element type."""
    for dtype in PLAIN:
        yield Sample(SequenceEmpty(dtype), [], name=str(dtype), expected=[collected([])])


@samples(SequenceConstruct)
def sequence_construct() -> Iterator[Sample]:
    """Yield SequenceConstruct samples.

    They cover sequences of every type: one element, elements of equal and different shapes, and of different ranks.
    """
    for label, operand in typed((2, 3)):
        yield Sample(SequenceConstruct(), [operand, retyped(operand, (2, 3))], name=f"type-{label}")
    yield Sample(SequenceConstruct(), [given(())], name="one")
    yield Sample(SequenceConstruct(), [given((2, 3)), given((0, 3)), given((1, 3))], name="other-shapes")
    yield Sample(SequenceConstruct(), [given(()), given((2,)), given((1, 2, 3))], name="other-ranks")
    yield Sample(SequenceConstruct(), [of(row) for row in ROWS], name="worked", expected=[collected(ROWS)])


@samples(SequenceInsert)
def sequence_insert() -> Iterator[Sample]:
    """Yield SequenceInsert samples.

    They cover every type and every position, constant or not, in sequences of known and unknown length. One of the
    sequences is empty.
    """
    for label, sequence in _of_types():
        element = sequence.info.element
        assert element is not None
        yield Sample(SequenceInsert(), [sequence, Given(element)], name=f"type-{label}")
    for number in range(-3, 4):
        for constant in (False, True):
            position = _position(number, INT32 if number % 2 else INT64, constant=constant)
            yield Sample(
                SequenceInsert(), [_sequence(*ROWS), given((4, 2)), position],
                name=f"{'constant' if constant else 'position'}-{number}",
            )  # fmt: skip
    yield Sample(SequenceInsert(), [_sequence(), given((4, 2))], name="into-nothing")
    expected = [collected([ROWS[0], ROWS[2], ROWS[1]])]
    pair = _sequence(*ROWS[:2])
    yield Sample(SequenceInsert(), [pair, of(ROWS[2]), _position(-1)], name="worked", expected=expected)


@samples(SequenceErase)
def sequence_erase() -> Iterator[Sample]:
    """Yield SequenceErase samples: every type and every position, and the removal of the only element."""
    for label, sequence in _of_types():
        yield Sample(SequenceErase(), [sequence], name=f"type-{label}")
    for number in range(-3, 3):
        yield Sample(SequenceErase(), [_sequence(*ROWS), _position(number)], name=f"position-{number}")
    yield Sample(SequenceErase(), [_sequence(ROWS[0])], name="only", expected=[collected([])])
    yield Sample(SequenceErase(), [_sequence(*ROWS), _position(0)], name="worked", expected=[collected(ROWS[1:])])


@samples(SequenceAt)
def sequence_at() -> Iterator[Sample]:
    """Yield SequenceAt samples.

    They cover every type for elements of equal shape, every position for different shapes, and elements of two ranks.
    """
    for label, sequence in _of_types():
        yield Sample(SequenceAt(), [sequence, _position(1)], name=f"type-{label}")
    for number in range(-3, 3):
        for constant in (False, True):
            position = _position(number, INT32 if number % 2 else INT64, constant=constant)
            yield Sample(
                SequenceAt(), [_sequence(*ROWS), position], name=f"{'constant' if constant else 'position'}-{number}"
            )
    ranks = _sequence(f32(1), f32([1, 2]))
    yield Sample(SequenceAt(), [ranks, _position(0)], name="scalar", expected=[f32(1)])
    yield Sample(SequenceAt(), [ranks, _position(1)], name="row", expected=[f32([1, 2])])


@samples(SequenceLength)
def sequence_length() -> Iterator[Sample]:
    """Yield SequenceLength samples: sequences of no, one and several elements, of every type."""
    for label, sequence in _of_types():
        yield Sample(SequenceLength(), [sequence], name=f"type-{label}")
    for count in range(4):
        expected = [np.array(count, np.int64)]
        yield Sample(SequenceLength(), [_sequence(*ROWS[:count])], name=str(count), expected=expected)


@samples(ConcatFromSequence)
def concat_from_sequence() -> Iterator[Sample]:
    """Yield ConcatFromSequence samples: every type, and existing and new axes, counted from either end."""
    for label, sequence in _of_types():
        yield Sample(ConcatFromSequence(0), [sequence], name=f"type-{label}")
    equal_shapes = _sequence(*(np.arange(6, dtype=np.float32).reshape(1, 2, 3) + offset for offset in range(3)))
    for axis in range(-3, 3):
        yield Sample(ConcatFromSequence(axis), [equal_shapes], name=f"axis{axis}")
    for axis in range(-4, 4):
        yield Sample(ConcatFromSequence(axis, new_axis=True), [equal_shapes], name=f"new-axis{axis}")
    scalars = _sequence(f32(1), f32(2))
    yield Sample(ConcatFromSequence(0, new_axis=True), [scalars], name="scalars", expected=[f32([1, 2])])
    yield Sample(ConcatFromSequence(0), [_sequence(*ROWS)], name="worked", expected=[np.concatenate(ROWS)])


@samples(SplitToSequence)
def split_to_sequence() -> Iterator[Sample]:
    """Yield SplitToSequence samples.

    They cover every type and axis: pieces of size 1, of sizes that divide the axis or do not, and of given sizes.
    """
    for label, operand in typed((2, 3)):
        yield Sample(SplitToSequence(1), [operand], name=f"type-{label}")
    for axis in range(-2, 2):
        for keepdims in (False, True):
            yield Sample(SplitToSequence(axis, keepdims), [given((4, 3))], name=f"axis{axis}-keepdims{keepdims}")
    sizes = {"ones": 1, "even": 2, "uneven": 3, "whole": 4, "larger": 9, "some": [1, 3], "none": [0, 4, 0]}
    for label, split_sizes in sizes.items():
        for constant in (False, True):
            split = of(split_sizes, INT32 if constant else INT64, constant=constant)
            yield Sample(
                SplitToSequence(0), [given((4, 3)), split], name=f"{'constant' if constant else 'split'}-{label}"
            )
    yield Sample(SplitToSequence(), [given((0, 3))], name="empty", expected=[collected([])])
    expected = [collected([f32([1, 2]), f32([3])])]
    yield Sample(SplitToSequence(), [of([1, 2, 3]), _position(2)], name="worked", expected=expected)


@samples(OptionalConstruct)
def optional_construct() -> Iterator[Sample]:
    """Yield OptionalConstruct samples: optionals that hold tensors of every type, and a sequence."""
    for label, operand in typed((2, 3)):
        yield Sample(OptionalConstruct(), [operand], name=f"type-{label}")
    yield Sample(OptionalConstruct(), [_sequence(*ROWS)], name="sequence")
    yield Sample(OptionalConstruct(), [_sequence()], name="empty-sequence")


@samples(OptionalEmpty)
def optional_empty() -> Iterator[Sample]:
    """Yield OptionalEmpty samples: empty optionals of every type, of tensors and of sequences."""
    for dtype in PLAIN:
        for of_sequence in (False, True):
            name = f"{dtype}-sequence" if of_sequence else str(dtype)
            yield Sample(OptionalEmpty(dtype, of_sequence), [], name=name, expected=[collected([])])


def _optionals() -> Iterator[tuple[str, Given]]:
    for label, operand in typed((2, 3)):
        yield f"type-{label}", _optional(operand)
    yield "scalar", _optional(plain(()))
    yield "sequence", _optional(_sequence(*ROWS))
    yield "empty-sequence", _optional(_sequence())


@samples(OptionalHasElement)
def optional_has_element() -> Iterator[Sample]:
    """Yield OptionalHasElement samples: an optional with an element and an empty one."""
    for label, optional in _optionals():
        yield Sample(OptionalHasElement(), [optional], name=label, expected=[np.array(True)])
    yield Sample(OptionalHasElement(), [_optional(None)], name="none", expected=[np.array(False)])


@samples(OptionalGetElement)
def optional_get_element() -> Iterator[Sample]:
    """Yield OptionalGetElement samples: optionals that hold tensors of every type, and sequences."""
    for label, optional in _optionals():
        yield Sample(OptionalGetElement(), [optional], name=label)
