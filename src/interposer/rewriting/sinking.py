"""Rewrites that move a transpose from the inputs of a layer to its outputs, where it may meet one that undoes it.

They are the opposite of `movement.move_transpose_up`, so that the two never run together. Moved down, one transpose can
become several; `Sinking` therefore only changes a graph that has fewer transposes afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from interposer.core.schema import Op
from interposer.core.traits import Trait
from interposer.core.types import Dim
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops import Concat, Mean, Pad, Permute, Reduce, Reshape, Slice, Splitter, Transpose
from interposer.ops.axes import normal_axis
from interposer.ops.reduction import reduced_axes
from interposer.rewriting.driver import Rules, apply_rewrites
from interposer.rewriting.movement import join_transposes, reshape_to
from interposer.rewriting.pattern import (
    Moved,
    New,
    Replacement,
    Rewrite,
    above,
    constant,
    inverse,
    keeps_codes,
    rewrite,
    transpose,
)

__all__ = ["POINTWISE_SINKS", "Sinking", "if_alone", "sunk_past_images"]

Permutation: TypeAlias = tuple[int, ...]
_CHANNELS_FIRST: Final = (0, 3, 1, 2)


class Sinking:
    """Moves the transposes of graphs down until they cancel out.

    `more` are further rewrites that move transposes down.
    """

    def __init__(self, more: Sequence[Rewrite] = ()) -> None:
        self._sinks = (*SINKS, *more)
        self._rules = Rules((*REMOVALS, *self._sinks))

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph, or a copy of it with fewer transposes.

        Transposes that can be removed where they are, are removed in any case. Regions are not changed.
        """
        apply_rewrites(graph, _REMOVALS)
        transposes = [layer for layer in graph if isinstance(layer.op, Transpose | Permute)]
        if not any(self._can_sink(layer) for layer in transposes):
            return graph
        sunk_graph = graph.clone()
        apply_rewrites(sunk_graph, self._rules)
        return (
            sunk_graph
            if sum(isinstance(layer.op, Transpose | Permute) for layer in sunk_graph) < len(transposes)
            else graph
        )

    def _can_sink(self, transpose: Layer) -> bool:
        return any(sink(user) is not None for user in transpose.output.consumers for sink in self._sinks)


def if_alone(sink: Rewrite) -> Rewrite:
    """Return a rewrite that moves a transpose like `sink`, but only if there are no more transposes afterwards.

    The layer must have a single output, and a transpose among its operands that no other layer uses.
    """

    def moved(op: Any, layer: Layer) -> Replacement:
        return sink.function(op, layer) if len(layer.outputs) == 1 and _has_transpose_alone(layer) else None

    return replace(sink, function=moved)


def _has_transpose_alone(layer: Layer) -> bool:
    return any([_transpose_of(value) is not None and len(value.consumers) == 1 for value in layer.values])


# --- where a transpose comes from -------------------------------------------------------------------------------------


def _transpose_of(value: Value | None) -> Permutation | None:
    """Return the permutation of the transpose that computes a value; None if another layer computes it."""
    inner = above(value, Transpose, Permute)
    return inner.op.permutation if inner is not None and keeps_codes(inner.layer) else None


def _common_transpose(values: Iterable[Value | None]) -> Permutation | None:
    """Return the permutation of all transposes among the producers of `values`; None if there is none, or several."""
    permutations = {axes for value in values if (axes := _transpose_of(value)) is not None}
    return permutations.pop() if len(permutations) == 1 else None


def _source(layer: Layer) -> Value:
    """Return the input of the transpose that computes the first input of a layer."""
    return layer.values[0].producer.values[0]


def _sunk(layer: Layer, op: Any, sources: Sequence[Value | New | None], axes: Permutation) -> Moved:
    """Return the layer with `op` on the values `sources`, before their transpose; its results are transposed."""
    return Moved(op, sources, [inverse(axes)] * len(layer.outputs))


# --- rewrites ---------------------------------------------------------------------------------------------------------


@rewrite(Transpose, Permute)
def merge_equal_transposes(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Replace a Transpose by an earlier Transpose of the same value that gives the same."""
    transposes = (transpose for transpose in layer.values[0].consumers if isinstance(transpose.op, Transpose | Permute))
    equal_transposes = (transpose for transpose in transposes if transpose.op.permutation == op.permutation)  # type: ignore[attr-defined]
    first = next(transpose for transpose in equal_transposes if transpose.output.info == layer.output.info)
    return None if first is layer else first.output


@rewrite(Reshape)
def drop_transpose_of_small_axes(op: Reshape, layer: Layer) -> Replacement:
    """Remove a transpose before a Reshape if it only moves axes of size 1."""
    axes, new = _common_transpose(layer.inputs[:1]), reshape_to(layer.output.known.shape)
    if axes is None or new is None or not keeps_codes(layer) or not _keeps_order(_source(layer).known.shape, axes):
        return None
    return New(new, [_source(layer)], like=layer)


@rewrite(having=Trait.POINTWISE)
def sink_past_pointwise(op: Any, layer: Layer) -> Replacement:
    """Move the common transpose of an elementwise layer's operands to its result; constants are transposed back."""
    axes = _common_transpose(layer.inputs)
    if axes is None or layer.output.known.rank != len(axes):
        return None
    sources = [_untransposed(value, axes) for value in layer.inputs]
    return None if None in sources else _sunk(layer, op, sources, axes)


def _untransposed(value: Value | None, axes: Permutation) -> Value | New | None:
    """Return what gives an elementwise operand if it is transposed by `axes`; None if nothing is known to do so.

    It is the source of a transpose, a constant with permuted elements, or a value that has a single element.
    """
    if value is None or _transpose_of(value) == axes:
        return value and value.producer.values[0]
    info, array = value.known, value.constant if value.is_constant else None
    if info.num_elements == 1 and info.rank <= 1:
        return value
    if array is None or array.ndim > len(axes) or (info.quantization is not None and info.quantization.per_axis):
        return None
    wide_array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return constant(wide_array.transpose(inverse(axes)), info.quantization, name=f"{value.name}/before")


@rewrite(Concat)
def sink_past_concat(op: Concat, layer: Layer) -> Replacement:
    """Move a transpose of all operands of a Concat to its result."""
    axes = _common_transpose(layer.inputs)
    if axes is None or any(_transpose_of(value) is None for value in layer.values):
        return None
    sources = [value.producer.values[0] for value in layer.values]
    return _sunk(layer, op.replace(axis=axes[normal_axis(op.axis, len(axes))]), sources, axes)


@rewrite(Splitter)
def sink_past_splitter(op: Splitter, layer: Layer) -> Replacement:
    """Move a transpose from the input of a Splitter to its outputs."""
    axes = _common_transpose(layer.inputs[:1])
    if axes is None or not layer.outputs:
        return None
    return _sunk(layer, op.replace(axis=axes[normal_axis(op.axis, len(axes))]), [_source(layer)], axes)


@rewrite(Pad)
def sink_past_pad(op: Pad, layer: Layer) -> Replacement:
    """Move a transpose from the input of a Pad to its result."""
    axes = _common_transpose(layer.inputs[:1])
    if axes is None:
        return None
    pads = tuple(op.pad_list[axis] for axis in inverse(axes))
    return _sunk(layer, op.replace(pad_list=pads), [_source(layer)], axes)


@rewrite(Slice)
def sink_past_slice(op: Slice, layer: Layer) -> Replacement:
    """Move a transpose from the input of a Slice to its result."""
    axes = _common_transpose(layer.inputs[:1])
    if axes is None:
        return None
    begin, size = (tuple(numbers[axis] for axis in inverse(axes)) for numbers in (op.begin, op.size))
    return _sunk(layer, op.replace(begin=begin, size=size), [_source(layer)], axes)


@rewrite(Mean, Reduce)
def sink_past_reduction(op: Mean | Reduce, layer: Layer) -> Replacement:
    """Move a transpose from the input of a reduction to its result; drop it if the axes that are left keep their order.

    A transpose of fewer axes would be another one, so that the layer stays if they do not.
    """
    axes = _common_transpose(layer.inputs[:1])
    if axes is None:
        return None
    axes_removed = reduced_axes(op.axis, len(axes))
    new_op = op.replace(axis=tuple(sorted(axes[axis] for axis in axes_removed)))
    if op.keep_dims:
        return _sunk(layer, new_op, [_source(layer)], axes)
    axes_left = [axis for number, axis in enumerate(axes) if number not in axes_removed]
    return New(new_op, [_source(layer)], like=layer) if axes_left == sorted(axes_left) else None


@rewrite(Reshape)
def sink_past_reshape(op: Reshape, layer: Layer) -> Replacement:
    """Move a transpose from the input of a Reshape to its result.

    The Reshape may split axes, or merge axes that are also adjacent before the transpose.
    """
    axes, info = _common_transpose(layer.inputs[:1]), layer.output.known
    if axes is None or (info.quantization is not None and info.quantization.per_axis):
        return None
    source: Value | New = _source(layer)
    sizes = _source(layer).known.shape
    groups = _groups([sizes[axis] for axis in axes], info.shape)
    if groups is None:
        return None
    ordered_groups = sorted(groups, key=lambda group: [axes[axis] for axis in group[0]] or [-1])
    source_order = tuple(axes[axis] for source_axes, _ in ordered_groups for axis in source_axes)
    result_order = tuple(axis for _, result_axes in ordered_groups for axis in result_axes)
    if not _keeps_order(sizes, source_order):
        if inverse(result_order) != _CHANNELS_FIRST:
            return None
        source = New(transpose(source_order), [source], name=f"{layer.name}/transposed")
    moved_reshape = Reshape(tuple(int(info.shape[axis]) for axis in result_order))
    if result_order == tuple(range(len(result_order))):
        return New(moved_reshape, [source], like=layer)
    return _sunk(layer, moved_reshape, [source], inverse(result_order))


def _keeps_order(sizes: Sequence[int], axes: Permutation) -> bool:
    """Return True if a transpose of a tensor with these sizes moves no element, but only axes of size 1."""
    long_axes = [axis for axis in axes if sizes[axis] != 1]
    return long_axes == sorted(long_axes)


def _groups(first: Sequence[int], second: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Return pairs of groups of adjacent axes of two shapes that have equally many elements, as small as possible.

    For example, the shapes (2, 3, 4) and (6, 4) have the pairs ([0, 1], [0]) and ([2], [1]). The result is None if a
    dimension is unknown or 0.
    """
    if any(isinstance(size, Dim) or not size for size in (*first, *second)):
        return None
    group_pairs: list[tuple[list[int], list[int]]] = []
    first_axes, second_axes = list(range(len(first))), list(range(len(second)))
    while first_axes and second_axes:
        first_group, second_group = [first_axes.pop(0)], [second_axes.pop(0)]
        while (a := math.prod(first[i] for i in first_group)) != (b := math.prod(second[i] for i in second_group)):
            first_group, second_group = (
                (first_group + [first_axes.pop(0)], second_group)
                if a < b
                else (first_group, second_group + [second_axes.pop(0)])
            )
        group_pairs.append((first_group, second_group))
    if first_axes or second_axes:
        last_pair = group_pairs[-1] if group_pairs else ([], [])
        group_pairs[-1:] = [([*last_pair[0], *first_axes], [*last_pair[1], *second_axes])]
    return group_pairs


def sunk_past_images(*ops: type[Op]) -> Rewrite:
    """Return the rewrite that moves a transpose between layouts past layers of operators that exist in both layouts."""

    @rewrite(*ops)
    def sink_past_image(op: Any, layer: Layer) -> Replacement:
        """Move a transpose to the layout of a layer on images from its input to its result, as the layout changes."""
        axes = _common_transpose(layer.inputs[:1])
        rank = 0 if axes is None else len(axes)
        to_channels_first, to_channels_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
        if (
            axes is None
            or rank < 3
            or axes != (to_channels_last if op.data_layout.channels_last else to_channels_first)
        ):
            return None
        return _sunk(layer, op.replace(data_layout=op.data_layout.other), [_source(layer), *layer.inputs[1:]], axes)

    return sink_past_image


REMOVALS: Final = (merge_equal_transposes, join_transposes, drop_transpose_of_small_axes)
_REMOVALS: Final = Rules(REMOVALS)
POINTWISE_SINKS: Final = (sink_past_pointwise, sink_past_concat)
SINKS: Final = (
    *POINTWISE_SINKS,
    sink_past_splitter,
    sink_past_pad,
    sink_past_slice,
    sink_past_reduction,
    sink_past_reshape,
)
