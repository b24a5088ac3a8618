"""Placement of a network's tensors in memory: in the caller's memory, in another tensor, in place, or separate.

A `Layout` is computed once per network, from its graph, and is only a proposal. Whether a handle supports it is
decided when memory is planned: see `WorkingMemHandle`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate

from interposer.core.records import dataclass
from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Constant, Input, MemImport, Output
from interposer.ops.rearrange import Concat, Splitter

__all__ = ["Layout", "Piece", "layout_of"]

Allows = Callable[[Layer], bool]
Holds = Callable[[Layer, Value], bool]


@dataclass(frozen=True, slots=True)
class Piece:
    """The place of a tensor that is stored inside another one, `whole`: the index `origin` of its first element."""

    whole: Value
    origin: tuple[int, ...]


@dataclass
class Layout:
    """The proposed memory placement for the values of one graph.

    `border` are values in the caller's memory: inputs, and values that Output layers read. `pieces` maps values to the
    tensors that contain them, which are the `wholes`. `guests` maps values to the `lenders` whose memory they import.
    `in_place` maps values to the input of their layer whose memory they overwrite. `values_beginning_at` and
    `values_ending_at` are lists of the values whose lifetimes begin and end at each moment: at moment 0 the network's
    inputs are filled, at moment n layer n runs, and after the last moment outputs are read. The lifetime of a region's
    inputs does not end, as the region may run again.
    """

    border: set[Value] = field(default_factory=set)
    pieces: dict[Value, Piece] = field(default_factory=dict)
    guests: dict[Value, Value] = field(default_factory=dict)
    lenders: set[Value] = field(default_factory=set)
    wholes: set[Value] = field(default_factory=set)
    in_place: dict[Value, Value] = field(default_factory=dict)
    values_beginning_at: list[list[Value]] = field(default_factory=list)
    values_ending_at: list[list[Value]] = field(default_factory=list)

    def root(self, value: Value) -> Value:
        """Return the tensor in whose memory this one is stored: a tensor that contains it, or whose memory it imports.

        This is followed to the end. A tensor with memory of its own is returned itself.
        """
        while value in self.pieces or value in self.guests:
            value = self.pieces[value].whole if value in self.pieces else self.guests[value]
        return value

    @property
    def workless_layers(self) -> set[Layer]:
        """The Concat and Splitter layers that have no work to do, because their parts are stored inside the whole."""
        layers = set()
        for value, piece in self.pieces.items():
            splits = isinstance(value.producer.op, Splitter) and piece.whole in value.producer.values
            layers.add(value.producer if splits else piece.whole.producer)
        return layers


def layout_of(
    graph: Graph,
    order: Sequence[Layer],
    not_planned: set[Value],
    may_use_pieces: Allows,
    may_overwrite: Allows,
    supports_pieces: Holds,
) -> Layout:
    """Propose where the tensors of a graph are stored.

    Args:
        order: the order in which the layers run.
        not_planned: values that are not planned, such as those of unknown shape.
        may_use_pieces: whether a layer may read and write tensors that are pieces of others, with gaps between rows.
        may_overwrite: whether a layer may write its output over an input, if its operator allows that.
        supports_pieces: whether the memory of a layer's output supports sub-tensors.
    """
    layout = Layout(border=set(_border(graph)))
    layout.guests = {
        layer.output: layer.values[0]
        for layer in order
        if isinstance(layer.op, MemImport) and layer.output not in not_planned and not layer.values[0].is_constant
    }
    layout.lenders = set(layout.guests.values())
    layout.border -= layout.guests.keys()
    for layer in order:
        pieces = _pieces(layer, layout, not_planned, may_use_pieces, supports_pieces)
        layout.pieces.update(pieces)
        layout.wholes.update(piece.whole for piece in pieces.values())
    for layer in order:
        overwritten = _overwritten(layer, layout, not_planned) if may_overwrite(layer) else None
        if overwritten is not None:
            layout.in_place[layer.output] = overwritten
    _set_lifetimes(layout, graph, order, not_planned)
    return layout


def _border(graph: Graph) -> Iterator[Value]:
    """Yield the values that the caller may store: the inputs of a graph, and its outputs.

    Outputs that are also inputs or constants are left out.
    """
    for layer in graph.sources:
        yield layer.output
    for layer in graph.sinks:
        [value] = layer.values
        if not isinstance(value.producer.op, Input | Constant):
            yield value


# --- pieces -----------------------------------------------------------------------------------------------------------


def _pieces(
    layer: Layer, layout: Layout, not_planned: set[Value], may_use_pieces: Allows, supports_pieces: Holds
) -> Mapping[Value, Piece]:
    """Return the inputs of a Concat as pieces of its output, or the outputs of a Splitter as pieces of its input.

    The layer then has no work to do. The result is empty if that is not possible, or for other layers. The last three
    arguments are those of `layout_of`, and `layout` has what was decided for earlier layers.
    """
    if isinstance(layer.op, Concat):
        whole, parts, axis = layer.output, layer.values, layer.op.axis
    elif isinstance(layer.op, Splitter):
        whole, parts, axis = layer.values[0], layer.outputs, layer.op.axis
    else:
        return {}
    is_unsuitable = whole in not_planned or whole.is_constant or whole in layout.guests or len(set(parts)) != len(parts)
    if (
        is_unsuitable
        or not supports_pieces(whole.producer, whole)
        or not all(_can_be_piece(part, whole, layout, not_planned) for part in parts)
    ):
        return {}
    axis %= whole.known.rank
    affected_layers = [part.producer for part in parts] + [consumer for part in parts for consumer in part.consumers]
    if not all(
        may_use_pieces(affected_layer)
        for affected_layer in dict.fromkeys([*affected_layers, whole.producer, *whole.consumers])
    ):
        return {}
    starts = accumulate((int(part.known.shape[axis]) for part in parts), initial=0)
    leading_zeros, trailing_zeros = (0,) * axis, (0,) * (whole.known.rank - axis - 1)
    return {
        part: Piece(whole, (*leading_zeros, start, *trailing_zeros)) for part, start in zip(parts, starts, strict=False)
    }


def _can_be_piece(part: Value, whole: Value, layout: Layout, not_planned: set[Value]) -> bool:
    placed_otherwise = (not_planned, layout.border, layout.pieces, layout.guests)
    if part.is_constant or any(part in group for group in placed_otherwise):
        return False
    return part.factory == whole.factory and (part.known.dtype, part.known.quantization) == (
        whole.known.dtype,
        whole.known.quantization,
    )


# --- in place ---------------------------------------------------------------------------------------------------------


def _overwritten(layer: Layer, layout: Layout, not_planned: set[Value]) -> Value | None:
    """Return an input of the layer whose memory its output may use, because no layer reads the input afterwards.

    None if there is none. `layout` has what was decided for earlier layers, and `not_planned` the values that are not
    planned.
    """
    if len(layer.outputs) != 1 or not _is_plain(layer.output, layout, not_planned):
        return None
    operands = [layer.operand(name) for name in layer.op.in_place]
    return next(
        (operand for operand in operands if operand is not None and _is_free(operand, layer, layout, not_planned)), None
    )


def _is_free(value: Value, layer: Layer, layout: Layout, not_planned: set[Value]) -> bool:
    same_memory_kind = value.factory == layer.output.factory and _same_size(value.known, layer.output.known)
    return len(value.uses) == 1 and same_memory_kind and _is_plain(value, layout, not_planned)


def _is_plain(value: Value, layout: Layout, not_planned: set[Value]) -> bool:
    placed_otherwise = (not_planned, layout.border, layout.pieces, layout.wholes, layout.guests, layout.lenders)
    return not value.is_constant and not any(value in group for group in placed_otherwise)


def _same_size(a: TensorInfo, b: TensorInfo) -> bool:
    if (a.dtype is DataType.STRING) != (b.dtype is DataType.STRING):
        return False  # texts are objects, which a kernel must not overwrite with numbers while it reads them
    return a.dtype.itemsize == b.dtype.itemsize and math.prod(a.shape) == math.prod(b.shape)


# --- lives ------------------------------------------------------------------------------------------------------------


def _set_lifetimes(layout: Layout, graph: Graph, order: Sequence[Layer], not_planned: set[Value]) -> None:
    moment = {layer: number for number, layer in enumerate(order, 1)}
    last_moment = len(order) + 1
    layout.values_beginning_at = [[] for _ in range(last_moment + 1)]
    layout.values_ending_at = [[] for _ in range(last_moment + 1)]
    spans: dict[Value, tuple[int, int]] = {}
    for layer in order:
        for value in layer.outputs if not isinstance(layer.op, Constant) else ():
            if value in not_planned:
                continue
            begin = 0 if isinstance(layer.op, Input) else moment[layer]
            read_moments = (
                last_moment if isinstance(use.layer.op, Output) else moment[use.layer] for use in value.uses
            )
            first, last = spans.get(layout.root(value), (begin, begin))
            spans[layout.root(value)] = min(first, begin), max(last, begin, *read_moments)
    for value, (first, last) in spans.items():
        layout.values_beginning_at[first].append(value)
        if graph.owner is None or not isinstance(value.producer.op, Input):
            layout.values_ending_at[last].append(value)
