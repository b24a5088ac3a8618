"""Kernels of sequences and optionals.

The elements of a sequence own their memory and are never modified, so sequences can share them. Tensors are copied
into a sequence, because their memory may be reused before the sequence is read.
"""

from __future__ import annotations

import numpy as np

from interposer.core.containers import collected
from interposer.core.errors import InvalidValueError
from interposer.core.types import Array
from interposer.kernels.operand_values import refuse_value, values_decide
from interposer.kernels.reference import kernel
from interposer.ops.axes import normal_axis
from interposer.ops.containers import (
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

__all__: list[str] = []


def _index(position: Array | None, default: int, low: int, high: int) -> int:
    """Return an index into a sequence, counted from the front, for the operand `position`, or `default` without it.

    Positions from `low` to `high` are allowed. `low` is minus the number of elements, and a negative position counts
    from the end: -1 is the last element.

    Raises:
        InvalidValueError: the position is out of range.
    """
    index = default if position is None else int(position.reshape(-1)[0])
    if not low <= index <= high:
        expectation = f"expected {low} to {high}" if low <= high else "the sequence is empty"
        refuse_value("position", index, expectation, allowed=(low, high))
    return index - low if index < 0 else index


@kernel(SequenceEmpty)
def sequence_empty(op: SequenceEmpty) -> Array:
    return collected([])


@kernel(SequenceConstruct)
def sequence_construct(op: SequenceConstruct, inputs: tuple[Array, ...]) -> Array:
    return collected(np.array(tensor) for tensor in inputs)


@kernel(SequenceInsert)
def sequence_insert(op: SequenceInsert, sequence: Array, tensor: Array, position: Array | None) -> Array:
    count = len(sequence)
    index = _index(position, count, -count, count)
    return collected([*sequence[:index], np.array(tensor), *sequence[index:]])


@kernel(SequenceErase)
def sequence_erase(op: SequenceErase, sequence: Array, position: Array | None) -> Array:
    count = len(sequence)
    index = _index(position, count - 1, -count, count - 1)
    return collected([*sequence[:index], *sequence[index + 1 :]])


@kernel(SequenceAt)
def sequence_at(op: SequenceAt, sequence: Array, position: Array) -> Array:
    count = len(sequence)
    element: Array = sequence[_index(position, 0, -count, count - 1)]
    return element


@kernel(SequenceLength)
def sequence_length(op: SequenceLength, sequence: Array) -> Array:
    return np.array(len(sequence), np.int64)


@kernel(ConcatFromSequence)
def concat_from_sequence(op: ConcatFromSequence, sequence: Array) -> Array:
    """Compute `ConcatFromSequence`; raise `InvalidValueError` if the sequence is empty or its shapes do not fit."""
    if not len(sequence):
        raise InvalidValueError("the sequence is empty", operand="sequence")
    try:
        return np.stack(list(sequence), op.axis) if op.new_axis else np.concatenate(list(sequence), op.axis)
    except ValueError as error:
        reason = f"the elements cannot be concatenated along axis {op.axis}: {error}"
        raise InvalidValueError(reason, operand="sequence") from error


@kernel(SplitToSequence)
def split_to_sequence(op: SplitToSequence, x: Array, split: Array | None) -> Array:
    axis = normal_axis(op.axis, x.ndim)
    with values_decide(("split", split)):
        sizes = op.piece_sizes(x.shape[axis], split)
    pieces = np.split(x, np.cumsum(sizes)[:-1], axis) if sizes else []
    if split is None and not op.keepdims:
        pieces = [piece.squeeze(axis) for piece in pieces]
    return collected(np.array(piece) for piece in pieces)


@kernel(OptionalConstruct)
def optional_construct(op: OptionalConstruct, x: Array) -> Array:
    return collected([np.array(x)])


@kernel(OptionalEmpty)
def optional_empty(op: OptionalEmpty) -> Array:
    return collected([])


@kernel(OptionalHasElement)
def optional_has_element(op: OptionalHasElement, x: Array) -> Array:
    return np.array(len(x) == 1)


@kernel(OptionalGetElement)
def optional_get_element(op: OptionalGetElement, x: Array) -> Array:
    if not len(x):
        raise InvalidValueError("the optional is empty", operand="input")
    element: Array = x[0]
    return element
