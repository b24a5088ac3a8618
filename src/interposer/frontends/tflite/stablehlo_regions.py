"""TFLite converters for StableHLO's operators that compute with a subgraph: reductions, windows and sorting."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR
from interposer.frontends.tflite.interior import Combine, Values, concrete, dilated, padded, sliced, strided, windowed
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.stablehlo import check_padding
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.gather import GatherElements
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import BroadcastTo, Reshape
from interposer.ops.scatter import ScatterElements

__all__ = ["single_operator"]

_NAMES: Final = """
ABS ADD ATAN2 BITWISE_XOR CAST CEIL COS DIV EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL
LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW RELU RIGHT_SHIFT RSQRT SELECT
SELECT_V2 SIGN SIN SQRT SQUARE SUB TANH STABLEHLO_ABS STABLEHLO_ADD STABLEHLO_AND STABLEHLO_CBRT STABLEHLO_CLAMP
STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_COSINE STABLEHLO_DIVIDE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR
STABLEHLO_LOG STABLEHLO_LOGISTIC STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY STABLEHLO_NEGATE STABLEHLO_OR
STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SHIFT_LEFT STABLEHLO_SUBTRACT
STABLEHLO_TANH
"""
_ELEMENTWISE: Final = frozenset(_NAMES.split())
"""Operators that may be applied to whole tensors if they are those of a computation on scalars."""

_REDUCTIONS: Final = {
    "ADD": ReduceOperation.SUM,
    "MULTIPLY": ReduceOperation.PROD,
    "MUL": ReduceOperation.PROD,
    "MAXIMUM": ReduceOperation.MAX,
    "MINIMUM": ReduceOperation.MIN,
}
_OF_BOOLS: Final = {
    "ADD": ReduceOperation.ANY,
    "MAXIMUM": ReduceOperation.ANY,
    "OR": ReduceOperation.ANY,
    "LOGICAL_OR": ReduceOperation.ANY,
    "MULTIPLY": ReduceOperation.ALL,
    "MINIMUM": ReduceOperation.ALL,
    "AND": ReduceOperation.ALL,
    "LOGICAL_AND": ReduceOperation.ALL,
}
_GREATER, _LESS = 3, 5
_INDEX: Final = DataType.INT32
_MOST_PAIRS: Final = 1 << 12
"""The largest size of an axis that is sorted by comparing all pairs of elements."""


def single_operator(node: Node, number: int) -> str:
    """Return the name of the only operator of a computation on two scalars, without the prefix of StableHLO.

    It is empty if the computation returns its second input, and "other" for all other computations.
    """
    subgraph = node.importer.called_subgraph(number)
    if len(subgraph.inputs) != 2 or len(subgraph.outputs) != 1:
        return "other"
    if not subgraph.operators:
        return "" if subgraph.outputs[0] == subgraph.inputs[1] else "other"
    operator, *other_operators = subgraph.operators
    if other_operators or {*operator.inputs} != {*subgraph.inputs} or operator.outputs != subgraph.outputs:
        return "other"
    if operator.attributes.get("fused_activation_function"):
        return "other"
    return operator.name.removeprefix("STABLEHLO_")


def _combination(node: Node, subgraph_number: int) -> Combine:
    """Return a function that applies a computation on scalars to the elements of tensors."""
    _check_elementwise(node, subgraph_number)

    def combine(first: Values, second: Values) -> Values:
        results = node.importer.inlined(subgraph_number, [*first, *second])
        if len(results) != len(first):
            node.fail(f"its computation gives {len(results)} results; expected {len(first)}")
        shape = concrete(node, first[0].known.shape, "an operand")
        return [_of_shape(node, result, shape) for result in results]

    return combine


def _of_shape(node: Node, value: Value, shape: tuple[int, ...]) -> Value:
    return value if tuple(value.known.shape) == shape else node.step(BroadcastTo(shape), value)


def _check_elementwise(node: Node, number: int) -> None:
    names = {operator.name for operator in node.importer.called_subgraph(number).operators}
    for name in sorted(names - _ELEMENTWISE):
        node.fail(f"its computation has {name}; only elementwise operators are supported")


def _halves(node: Node) -> tuple[Values, Values]:
    """Return the operands and their initial values, which are the first and the second half of the inputs."""
    values, count = node.values(), node.num_inputs // 2
    if node.num_inputs != 2 * count or not count:
        node.fail(f"it has {node.num_inputs} inputs; expected operands and an initial value for each")
    if len({tuple(concrete(node, operand.known.shape, "an operand")) for operand in values[:count]}) > 1:
        node.fail("its operands have different shapes")
    return values[:count], [node.scalar(index) for index in range(count, 2 * count)]


@operator("STABLEHLO_REDUCE", options=True)
def reduce(node: Node) -> list[Value]:
    """Convert STABLEHLO_REDUCE: a reduction if its computation is a single operator, else a tree of computations."""
    values, starts = _halves(node)
    subgraph_number, axes = node.options["body_subgraph_index"], tuple(sorted(node.options["dimensions"] or ()))
    rank = values[0].known.rank
    if not {*axes} <= {*range(rank)} or len({*axes}) < len(axes):
        node.fail(f"the dimensions are {axes}; expected different ones of {rank}")
    combine = _combination(node, subgraph_number)
    shape = tuple(size for axis, size in enumerate(values[0].known.shape) if axis not in axes)
    start_values = [_of_shape(node, tensor, shape) for tensor in starts]
    if 0 in values[0].known.shape:
        return start_values
    kind = _reduction(values[0], single_operator(node, subgraph_number))
    if kind is not None:
        return combine(start_values, [node.step(Reduce(axes, operation=kind), values[0])] if axes else values)
    for axis in axes:
        values = _folded(node, values, axis, combine)
    return combine(start_values, [node.step(Reshape(shape), tensor) for tensor in values])


def _reduction(x: Value, name: str) -> ReduceOperation | None:
    return (_OF_BOOLS if x.known.dtype is DataType.BOOL else _REDUCTIONS).get(name)


def _folded(node: Node, values: Values, axis: int, combine: Combine) -> Values:
    """Return the combination of all elements along an axis, which gets size 1; neighbors are combined first."""
    while (size := values[0].known.shape[axis]) > 1:
        even_elements = [sliced(node, strided(node, tensor, axis, 0, 2), axis, 0, size // 2) for tensor in values]
        combined = combine(even_elements, [strided(node, tensor, axis, 1, 2) for tensor in values])
        if size % 2:
            last_elements = [sliced(node, tensor, axis, size - 1, 1) for tensor in values]
            combined = [node.step(Concat(axis), *pair) for pair in zip(combined, last_elements, strict=True)]
        values = combined
    return values


@operator("STABLEHLO_REDUCE_WINDOW", options=True)
def reduce_window(node: Node) -> list[Value]:
    """Convert STABLEHLO_REDUCE_WINDOW: dilate and pad with the initial value, then combine along each axis."""
    values, starts = _halves(node)
    rank, options = values[0].known.rank, node.options
    names = ("window_dimensions", "window_strides", "window_dilations", "base_dilations")
    sizes, strides, dilations, base_dilations = (tuple(options[name] or (1,) * rank) for name in names)
    padding = tuple(options["padding"] or (0,) * 2 * rank)
    columns = (sizes, strides, dilations, base_dilations)
    if (
        {*map(len, columns)} != {rank}
        or len(padding) != 2 * rank
        or any(min(column, default=1) < 1 for column in columns)
    ):
        node.fail(f"its window is {columns} with padding {padding}; expected numbers for {rank} axes")
    check_padding(node, (*padding, *sizes, *strides, *dilations, *base_dilations))
    combine = _combination(node, options["body_subgraph_index"])
    values = [
        padded(node, dilated(node, operand, base_dilations, start), padding[::2], padding[1::2], start)
        for operand, start in zip(values, starts, strict=True)
    ]
    for axis, window in enumerate(zip(sizes, strides, dilations, strict=True)):
        values = windowed(node, values, axis, window, combine)
    shape = concrete(node, values[0].known.shape, "the result")
    return combine([_of_shape(node, start, shape) for start in starts], values)


@operator("STABLEHLO_SORT", options=True)
def sort(node: Node) -> list[Value]:
    """Convert STABLEHLO_SORT: sort by one operand if the comparator compares only that, else compare all pairs."""
    values = node.values()
    rank, axis = values[0].known.rank, node.options["dimension"]
    if not -rank <= axis < rank:
        node.fail(f"the dimension is {axis}, but the inputs have rank {rank}")
    axis %= rank
    shapes = {concrete(node, operand.known.shape, "an operand") for operand in values}
    if len(shapes) > 1:
        node.fail("its operands have different shapes")
    subgraph_number, size = node.options["comparator_subgraph_index"], values[0].known.shape[axis]
    if size < 2:
        return values
    key = _key(node, subgraph_number)
    if key is not None:
        order = node.steps(TopK(size, axis, largest=key[1]), values[key[0]])[1]
        return [node.step(GatherElements(axis), operand, order) for operand in values]
    places = _places(node, values, axis, subgraph_number)
    return [node.step(ScatterElements(axis), operand, places, operand) for operand in values]


def _key(node: Node, number: int) -> tuple[int, bool] | None:
    """Return the operand by which a comparator sorts, and whether the greatest comes first; None for other ones."""
    subgraph = node.importer.called_subgraph(number)
    if len(subgraph.operators) != 1 or subgraph.operators[0].outputs != subgraph.outputs:
        return None
    [comparison_operator] = subgraph.operators
    is_greater = (
        comparison_operator.name == "GREATER" or comparison_operator.attributes.get("comparison_direction") == _GREATER
    )
    is_less = comparison_operator.name == "LESS" or comparison_operator.attributes.get("comparison_direction") == _LESS
    pairs_of_inputs = list(zip(subgraph.inputs[::2], subgraph.inputs[1::2], strict=False))
    if not (is_greater or is_less) or comparison_operator.inputs not in pairs_of_inputs:
        return None
    return pairs_of_inputs.index(comparison_operator.inputs), is_greater


def _places(node: Node, values: Values, axis: int, subgraph_number: int) -> Value:
    """Return the place of each element in a stable sort: how many elements come before it.

    Element j comes before element i if the comparator says so, or if it does not say the opposite and j is less than i.
    """
    shape = concrete(node, values[0].known.shape, "an operand")
    size = shape[axis]
    if size > _MOST_PAIRS:
        node.fail(f"it sorts {size} elements by its comparator; at most {_MOST_PAIRS} are supported")
    _check_elementwise(node, subgraph_number)
    row_operands = [node.step(Reshape((*shape[: axis + 1], 1, *shape[axis + 1 :])), operand) for operand in values]
    column_operands = [node.step(Reshape((*shape[:axis], 1, *shape[axis:])), operand) for operand in values]
    is_before = _compared(node, subgraph_number, column_operands, row_operands)
    is_after = _compared(node, subgraph_number, row_operands, column_operands)
    lower_triangle = np.tril(np.ones((size, size), np.bool_), -1).reshape(size, size, *[1] * (len(shape) - axis - 1))
    is_tied = node.step(LOGICAL_NOT, is_after)
    is_first = node.step(LOGICAL_AND, is_tied, node.constant(lower_triangle))
    precedes = node.step(LOGICAL_OR, is_before, is_first)
    return node.step(Reduce((axis + 1,)), node.step(Cast(_INDEX), precedes))


def _compared(node: Node, number: int, first: Values, second: Values) -> Value:
    operands = [element for pair in zip(first, second, strict=True) for element in pair]
    results = node.importer.inlined(number, operands)
    if len(results) != 1 or results[0].known.dtype is not DataType.BOOL:
        node.fail("its comparator does not give one bool")
    return results[0]
