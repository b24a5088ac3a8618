"""Rewrites that remove sequences and optionals with known elements: their readers read the elements directly."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import InvalidNetworkError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ops import (
    Concat,
    ConcatFromSequence,
    Input,
    OptionalConstruct,
    OptionalGetElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    Stack,
)
from interposer.rewriting.driver import Rewritten, apply_rewrites
from interposer.rewriting.pattern import New, Replacement, above, rewrite

__all__ = ["CONTAINERS", "take_apart"]

_MOST: Final = 256
"""The maximum number of tensors of a sequence for these rewrites, as each layer that constructs one lists them all."""


def _tensors(sequence: Value | None) -> list[Value] | None:
    """Return the tensors of a sequence that a `SequenceConstruct` or a `SequenceEmpty` creates.

    None if another layer produces the sequence, or it has more than 256 tensors.
    """
    if above(sequence, SequenceEmpty):
        return []
    construct = above(sequence, SequenceConstruct)
    return list(construct.layer.values) if construct and len(construct.layer.values) <= _MOST else None


def _place(position: Value | None, low: int, high: int, default: int) -> int | None:
    """Return a position in a sequence, counted from the front; None if it is not constant or out of range.

    `low` and `high` are the least and the largest position; negative ones count from the end. An absent position is
    `default`.
    """
    constant = None if position is None else position.constant
    if position is not None and (constant is None or constant.size != 1):
        return None
    index = default if constant is None else int(constant.reshape(-1)[0])
    if not low <= index <= high:
        return None
    return index - low if index < 0 else index


@rewrite(SequenceAt)
def take_known_tensor(op: SequenceAt, layer: Layer) -> Replacement:
    """Replace the reading of an element of a known sequence by the element itself."""
    tensors = _tensors(layer.inputs[0]) or []
    index = _place(layer.inputs[1], -len(tensors), len(tensors) - 1, 0)
    return None if index is None else tensors[index]


@rewrite(ConcatFromSequence)
def join_known_tensors(op: ConcatFromSequence, layer: Layer) -> Replacement:
    """Replace the concatenation of a sequence of known tensors by a Concat of these tensors."""
    tensors = _tensors(layer.inputs[0])
    if not tensors or not all(value.known.is_ranked for value in tensors):
        return None
    return New(Stack(op.axis) if op.new_axis else Concat(op.axis), tensors)


@rewrite(SequenceInsert)
def insert_into_known_tensors(op: SequenceInsert, layer: Layer) -> Replacement:
    """Replace an insertion into a sequence of known tensors by the construction of the longer sequence."""
    tensors, tensor = _tensors(layer.inputs[0]), layer.inputs[1]
    if tensors is None or tensor is None or len(tensors) == _MOST:
        return None
    index = _place(layer.inputs[2] if len(layer.inputs) > 2 else None, -len(tensors), len(tensors), len(tensors))
    return None if index is None else New(SequenceConstruct(), [*tensors[:index], tensor, *tensors[index:]])


@rewrite(SequenceErase)
def erase_from_known_tensors(op: SequenceErase, layer: Layer) -> Replacement:
    """Replace an erasure from a sequence of known tensors by the construction of the shorter sequence."""
    tensors = _tensors(layer.inputs[0])
    if not tensors or len(tensors) == 1:
        return None
    position = layer.inputs[1] if len(layer.inputs) > 1 else None
    index = _place(position, -len(tensors), len(tensors) - 1, len(tensors) - 1)
    return None if index is None else New(SequenceConstruct(), [*tensors[:index], *tensors[index + 1 :]])


@rewrite(OptionalGetElement)
def take_known_element(op: OptionalGetElement, layer: Layer) -> Replacement:
    """Replace the reading of an optional that was constructed from a known element by the element itself."""
    construct = above(layer.inputs[0], OptionalConstruct)
    return construct.layer.inputs[0] if construct else None


CONTAINERS: Final = (
    take_known_tensor,
    join_known_tensors,
    insert_into_known_tensors,
    erase_from_known_tensors,
    take_known_element,
)


def take_apart(graph: Graph) -> Rewritten:
    """Remove sequences and optionals whose elements are known: apply the rewrites of this module to a graph.

    The infos of the following layers are then inferred again, because the info of a tensor says more than the common
    info of a sequence's elements. Returns how often each rewrite was applied.

    Raises:
        InvalidNetworkError: dimensions that became known do not fit a layer.
    """
    rewritten = apply_rewrites(graph, CONTAINERS)
    for layer in graph.topological() if rewritten.counts else ():
        errors = [] if isinstance(layer.op, Input) else infer_layer(layer)
        if errors:
            raise InvalidNetworkError([f"layer {layer}: {error}" for error in errors], graph.name)
    return rewritten
