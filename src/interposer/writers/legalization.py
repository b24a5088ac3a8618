"""Legalization: a graph is rewritten to one that a format can express, before the layers are written one by one.

A format has a list of rewrites for its layers. Those of layouts are here: an operator on images gets the layout that
the format has, between transposes. A `Legalization` applies them, and moves the transposes until they cancel out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from interposer.core.errors import UnwritableError
from interposer.core.schema import Op
from interposer.core.types import Dim, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops import (
    ChannelShuffle,
    Constant,
    Convolution2d,
    Dequantize,
    IntegerConvolution2d,
    Permute,
    Transpose,
    TransposeConvolution2d,
)
from interposer.ops.axes import normal_axis, transposed
from interposer.rewriting.driver import Rules, apply_rewrites
from interposer.rewriting.movement import reshape_to
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
from interposer.rewriting.sinking import POINTWISE_SINKS, Sinking, if_alone

__all__ = [
    "Legalization",
    "between_transposes",
    "divide_shuffle",
    "origin",
    "to_axis",
    "to_channels_first",
    "to_channels_last",
    "transpose_before_dequantize",
]

Condition: TypeAlias = Callable[[Any, Layer], bool]
Permutation: TypeAlias = tuple[int, ...]

_WEIGHTS_IN_LAYOUT: Final = (Convolution2d, IntegerConvolution2d, TransposeConvolution2d)
"""The operators whose weights have the layout of the image."""


class Legalization:
    """Turns graphs into a form that a format can express.

    Args:
        rewrites: the rewrites that make the layers expressible.
        sinks: rewrites that move transposes down, in addition to the usual ones; None if transposes do not move.
        last: rewrites to apply when transposes have been moved.
    """

    def __init__(
        self, rewrites: Sequence[Rewrite], *, sinks: Sequence[Rewrite] | None = (), last: Sequence[Rewrite] = ()
    ) -> None:
        moving = () if sinks is None else (transpose_constant, *map(if_alone, POINTWISE_SINKS))
        self._own_rules, self._rules = Rules(rewrites), Rules((*rewrites, *moving))
        self._sink = None if sinks is None else Sinking(sinks)
        self._last_rules = Rules(last)

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph in this form; the graph itself, which must be a copy, is changed.

        The regions of its layers are changed too.

        Raises:
            UnwritableError: the rewrites undo each other, so that the graph does not get the form.
        """
        if not apply_rewrites(graph, self._rules).finished:
            raise UnwritableError("a file of this format", self._unfinished(graph), graph.name)
        graph = graph if self._sink is None else self._sink(graph)
        apply_rewrites(graph, self._last_rules)
        for layer in graph.layers_with_regions:
            layer.regions = tuple(map(self, layer.regions))
        return graph

    def _unfinished(self, graph: Graph) -> dict[str, tuple[str, str]]:
        reason = "the rewrites of the network, which make it expressible, do not end"
        return {layer.name: (layer.kind, reason) for layer in graph if self.changes(layer)}

    def without_moving(self, graph: Graph) -> Graph:
        """Return the graph with expressible layers, but without moving transposes further; it has no regions."""
        apply_rewrites(graph, self._own_rules)
        return graph

    def changes(self, layer: Layer) -> bool:
        """Return True if a layer must be changed so that the format can express it."""
        rules = self._own_rules[type(layer.op)]
        return bool(layer.regions) or any(rule(layer) is not None for rule, _ in rules)


def origin(layer: Layer) -> str:
    """Return the name of the layer of the network that a layer of the legalized graph stands for."""
    return layer.replaced[0] if layer.replaced else layer.name


def to_channels_first(*ops: type[Op], when: Condition = lambda op, layer: True) -> Rewrite:
    """Return the rewrite of layers with the channels last, for which `when` is True, to layers with the channels first.

    `ops` are their operators. The new layers are between transposes.
    """
    return _to_other_layout(ops, when, channels_last=True)


def to_channels_last(*ops: type[Op], when: Condition = lambda op, layer: True) -> Rewrite:
    """Return the rewrite of layers with the channels first, for which `when` is True, to layers with the channels last.

    `ops` are their operators. The new layers are between transposes.
    """
    return _to_other_layout(ops, when, channels_last=False)


def _to_other_layout(ops: Sequence[type[Op]], when: Condition, *, channels_last: bool) -> Rewrite:
    @rewrite(*ops)
    def change_layout(op: Any, layer: Layer) -> Replacement:
        """Run a layer on images in the other layout, between transposes."""
        if op.data_layout.channels_last is not channels_last or not when(op, layer):
            return None
        rank, moved_op = layer.values[0].known.rank, op.replace(data_layout=op.data_layout.other)
        if rank < 3:  # the channels are the same axis in both layouts
            return New(moved_op, layer.inputs)
        permutation = (0, rank - 1, *range(1, rank - 1)) if channels_last else (0, *range(2, rank), 1)
        if isinstance(op, TransposeConvolution2d) and op.output_shape is not None:
            moved_op = moved_op.replace(output_shape=tuple(op.output_shape[axis] for axis in permutation))
        images = (0, 1) if isinstance(op, _WEIGHTS_IN_LAYOUT) else (0,)
        return between_transposes(layer, moved_op, dict.fromkeys(images, permutation), [permutation])

    return change_layout


def to_axis(
    position: int, *ops: type[Op], axis_of: Callable[[Any, int], int], when: Condition = lambda op, layer: True
) -> Rewrite:
    """Return the rewrite of layers along an axis to layers along the axis `position`, between transposes.

    Args:
        position: the axis that the format has; -1 for the last.
        ops: the operators, which have an attribute `axis`.
        axis_of: returns the axis of an operator on a tensor of a rank.
        when: only layers are rewritten for which it returns True.
    """

    @rewrite(*ops)
    def move_axis(op: Any, layer: Layer) -> Replacement:
        """Run a layer along another axis, between transposes."""
        rank = layer.values[0].known.rank
        if not rank or not when(op, layer):
            return None
        axis, target_axis = axis_of(op, rank), position % rank
        kept_axes = [other_axis for other_axis in range(rank) if other_axis != axis]
        permutation = (*kept_axes[:target_axis], axis, *kept_axes[target_axis:])
        if axis == target_axis:
            return None
        return between_transposes(
            layer, op.replace(axis=target_axis), {0: permutation}, [permutation] * len(layer.outputs)
        )

    return move_axis


def between_transposes(
    layer: Layer, op: Op, operands: Mapping[int, Permutation], results: Sequence[Permutation]
) -> Replacement:
    """Return a layer that runs `op` on transposed operands of a layer, and whose results are transposed back.

    Args:
        layer: the layer that is replaced.
        op: the operator of the new layer.
        operands: the permutations of operands by their numbers; others stay.
        results: for each result, the permutation from its axes to those that the new layer gives.
    """
    inputs: list[Value | New | None] = list(layer.inputs)
    for index, axes in operands.items():
        value = layer.inputs[index] if index < len(inputs) else None
        if value is not None:
            inputs[index] = _transposed(value, axes, layer)
    return Moved(op, inputs, results)


def _transposed(value: Value, axes: Permutation, user: Layer) -> Value | New:
    """Return an operand of the layer `user` transposed by `axes`; the source of an inverse transpose is that."""
    if value.is_constant:
        return _transposed_constant(value.producer, axes, transposed(value.known, axes))
    inner = above(value, Transpose)
    if inner is not None and inner.op.permutation == inverse(axes) and keeps_codes(inner.layer):
        return inner.layer.values[0]
    return New(transpose(axes), [value], name=f"{user.name}/transposed", like=user)


def _transposed_constant(layer: Layer, axes: Permutation, info: TensorInfo) -> New:
    assert isinstance(layer.op, Constant)
    return constant(layer.op.value.transpose(axes), info.quantization, name=f"{layer.name}/transposed")


@rewrite(ChannelShuffle)
def divide_shuffle(op: ChannelShuffle, layer: Layer) -> Replacement:
    """Replace ChannelShuffle: the axis is divided into groups and members, which are exchanged and merged again."""
    shape, rank = layer.output.known.shape, layer.output.known.rank
    axis = normal_axis(op.axis, rank)
    if isinstance(shape[axis], Dim):
        return None
    groups = reshape_to(TensorShape([*shape[:axis], op.num_groups, shape[axis] // op.num_groups, *shape[axis + 1 :]]))
    merged_shape = reshape_to(shape)
    if groups is None or merged_shape is None:
        return None
    exchange = transpose((*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)))
    divided_groups = New(groups, layer.inputs, name=f"{layer.name}/groups", like=layer)
    return New(merged_shape, [New(exchange, [divided_groups], name=f"{layer.name}/transposed", like=layer)], like=layer)


@rewrite(Transpose, Permute)
def transpose_constant(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Replace a Transpose of a constant, which may be dequantized, by a constant with its elements in another order."""
    dequantized = above(layer.inputs[0], Constant, Dequantize)
    if dequantized is None:
        return None
    if isinstance(dequantized.op, Dequantize):
        integers = dequantized.layer.values[0]
        return New(dequantized.op, [_transposed(integers, op.permutation, layer)]) if integers.is_constant else None
    return _transposed_constant(dequantized.layer, op.permutation, layer.output.known)


def _dequantized_later(op: Transpose | Permute, dequantize: Layer) -> New:
    """Return the dequantization of the transposed integers that a Dequantize layer takes."""
    return New(dequantize.op, [New(op, dequantize.inputs, name=f"{dequantize.name}/transposed")])


@rewrite(Transpose, Permute)
def transpose_before_dequantize(op: Transpose | Permute, layer: Layer) -> Replacement:
    """Transpose integers instead of their dequantized form for layers on images, which more engines can fuse."""
    dequantize = above(layer.inputs[0], Dequantize)
    if dequantize is None or not all(hasattr(consumer.op, "data_layout") for consumer in layer.output.consumers):
        return None
    return _dequantized_later(op, dequantize.layer)
