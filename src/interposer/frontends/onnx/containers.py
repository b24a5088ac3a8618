"""ONNX converters for sequences and optionals; operators on a sequence of known tensors become tensor operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, Dim
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.tensors import data_type, element_info
from interposer.ir.graph import Value
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
from interposer.ops.rearrange import Concat, Splitter, Stack
from interposer.ops.reshape import Reshape

__all__: list[str] = []

_TRACED: Final = 256
"""Sequences of more tensors are not split into single tensors."""


# --- sequences whose tensors are known --------------------------------------------------------------------------------


def _tensors(sequence: Value) -> list[Value] | None:
    """Return the tensors that a sequence consists of, or None if they are not known during the import.

    They are known if a layer creates the sequence from tensors, and not from another sequence.
    """
    op = sequence.producer.op
    if isinstance(op, SequenceEmpty):
        return []
    return list(sequence.producer.values) if isinstance(op, SequenceConstruct) else None


def _sequence_of(node: Node, tensors: Sequence[Value], like: Value) -> Value:
    """Return a sequence of `tensors` as the node's result; `like` is a sequence whose type an empty one gets."""
    if tensors:
        return node.result(SequenceConstruct(), *tensors)
    element = like.known.element
    assert element is not None
    return node.result(SequenceEmpty(element.dtype))


def _known_position(node: Node, index: int, low: int, high: int, default: int) -> int | None:
    """Return the position in a sequence that operand `index` gives, counted from the front; `default` if it is absent.

    The result is None if the operand is not constant, or not between `low` and `high`. Negative positions count from
    the end, which is at ``-low``.
    """
    operand = node.optional(index)
    if operand is not None and (operand.constant is None or operand.constant.size != 1):
        return None
    position = default if operand is None or operand.constant is None else int(operand.constant.reshape(-1)[0])
    if not low <= position <= high:
        return None
    return position - low if position < 0 else position


@operator("SequenceEmpty", since=11)
def sequence_empty(node: Node) -> Value:
    return node.result(SequenceEmpty(data_type(node.integer("dtype", 1))))


@operator("SequenceConstruct", since=11)
def sequence_construct(node: Node) -> Value:
    return node.result(SequenceConstruct(), *node.values())


@operator("SequenceInsert", since=11)
def sequence_insert(node: Node) -> Value:
    """Convert SequenceInsert; without a position, the tensor is appended."""
    sequence, tensor, tensors = node.value(0), node.value(1), _tensors(node.value(0))
    if tensors is not None and len(tensors) < _TRACED:
        position = _known_position(node, 2, -len(tensors), len(tensors), len(tensors))
        if position is not None:
            return _sequence_of(node, [*tensors[:position], tensor, *tensors[position:]], sequence)
    return node.result(SequenceInsert(), sequence, tensor, node.optional(2))


@operator("SequenceErase", since=11)
def sequence_erase(node: Node) -> Value:
    """Convert SequenceErase; without a position, the last tensor is removed."""
    sequence, tensors = node.value(0), _tensors(node.value(0))
    if tensors:
        position = _known_position(node, 1, -len(tensors), len(tensors) - 1, len(tensors) - 1)
        if position is not None:
            return _sequence_of(node, [*tensors[:position], *tensors[position + 1 :]], sequence)
    return node.result(SequenceErase(), sequence, node.optional(1))


@operator("SequenceAt", since=11)
def sequence_at(node: Node) -> Value:
    sequence, position, tensors = node.value(0), node.value(1), _tensors(node.value(0))
    if tensors:
        index = _known_position(node, 1, -len(tensors), len(tensors) - 1, 0)
        if index is not None:
            return tensors[index]
    return node.result(SequenceAt(), sequence, position)


@operator("SequenceLength", since=11)
def sequence_length(node: Node) -> Value:
    return node.result(SequenceLength(), node.value(0))


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(node: Node) -> Value:
    axis, new_axis = node.integer("axis"), node.flag("new_axis")
    tensors = _tensors(node.value(0))
    if not tensors or not all(tensor.known.is_ranked for tensor in tensors):
        return node.result(ConcatFromSequence(axis, new_axis), node.value(0))
    return node.result(Stack(axis) if new_axis else Concat(axis), *tensors)


@operator("SplitToSequence", since=11)
def split_to_sequence(node: Node) -> Value:
    """Convert SplitToSequence; without the operand split, the pieces have size 1."""
    op = SplitToSequence(node.integer("axis", 0), node.flag("keepdims", True))
    x, split = node.value(0), node.optional(1)
    sizes = _piece_sizes(op, x, split)
    if not sizes:
        return node.result(op, x, split)
    if split is not None or op.keepdims:
        return node.step(SequenceConstruct(), *node.results(Splitter(op.axis, tuple(sizes)), x))
    axis, shape = normal_axis(op.axis, x.known.rank), x.known.shape
    piece_shape = [-1 if isinstance(dim, Dim) else dim for dim in (*shape[:axis], *shape[axis + 1 :])]
    if piece_shape.count(-1) > 1:
        return node.result(op, x, split)
    pieces = node.results(Splitter(op.axis, tuple(sizes)), x)
    return node.step(SequenceConstruct(), *(node.step(Reshape(tuple(piece_shape)), piece) for piece in pieces))


def _piece_sizes(op: SplitToSequence, x: Value, split: Value | None) -> list[int] | None:
    """Return the sizes of the pieces into which `x` is split; None if they are unknown, or too many to trace.

    `split` is the operand with the sizes, or None. `ParseError` is raised if it does not fit `x`.
    """
    if not x.known.is_ranked or (split is not None and split.constant is None):
        return None
    info = None if split is None else split.known
    for error in op.violations(x.known, info):
        raise ParseError(error)
    size = x.known.shape[op.axis]
    num_pieces, _ = op.pieces(size, info)
    is_few = not isinstance(size, Dim) and num_pieces <= _TRACED
    return op.piece_sizes(size, None if split is None else split.constant) if is_few else None


# --- optionals --------------------------------------------------------------------------------------------------------


@operator("Optional", since=15)
def optional(node: Node) -> Value:
    """Convert Optional; without an input, the attribute type gives the type of the empty optional."""
    if node.has(0):
        return node.result(OptionalConstruct(), node.value(0))
    element = element_info(node.type_proto("type"))
    if element.dtype is DataType.OPTIONAL:
        raise ParseError("an optional cannot hold an optional")
    if element.element is not None:
        return node.result(OptionalEmpty(element.element.dtype, of_sequence=True))
    return node.result(OptionalEmpty(element.dtype))


@operator("OptionalHasElement", since=15)
def optional_has_element(node: Node) -> Value:
    """Convert OptionalHasElement: true for a tensor or a sequence, false for an absent input."""
    if not node.has(0):
        return node.constant(np.array(False))
    x = node.value(0)
    if x.known.dtype is not DataType.OPTIONAL:
        return node.constant(np.array(True))
    return node.result(OptionalHasElement(), x)


@operator("OptionalGetElement", since=15)
def optional_get_element(node: Node) -> Value:
    """Convert OptionalGetElement; the element of a tensor or a sequence is the value itself."""
    x = node.value(0)
    if x.known.dtype is not DataType.OPTIONAL:
        return x
    producer = x.producer
    return producer.values[0] if isinstance(producer.op, OptionalConstruct) else node.result(OptionalGetElement(), x)
