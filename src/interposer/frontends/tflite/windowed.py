"""TFLite converters for DILATE and REDUCE_WINDOW."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.frontends.elementwise import LOGICAL_AND, LOGICAL_OR
from interposer.frontends.tflite.interior import Values, concrete, dilated, windowed
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Maximum, Minimum, Multiplication

__all__: list[str] = []

_FUNCTIONS: Final[dict[int, Op]] = {
    1: Addition(),
    2: Multiplication(),
    3: Minimum(),
    4: Maximum(),
    5: LOGICAL_AND,
    6: LOGICAL_OR,
}


@operator("DILATE")
def dilate(node: Node) -> Value:
    """Convert DILATE: insert copies of the padding value between elements."""
    x, dilations = node.value(0), node.integers_of(1, "the dilations")
    if len(dilations) != x.known.rank or min(dilations, default=1) < 1:
        node.fail(f"the dilations are {dilations}; expected one of at least 1 for each of {x.known.rank} axes")
    return dilated(node, x, dilations, node.scalar(2))


@operator("REDUCE_WINDOW", options=True)
def reduce_window(node: Node) -> Value:
    """Convert REDUCE_WINDOW: combine the elements in each position of a window, and the initial value."""
    function = _FUNCTIONS.get(node.options["reduce_function"])
    if function is None:
        node.fail(f"the function {node.options['reduce_function']} is not known")

    def combine(first: Values, second: Values) -> Values:
        return [node.step(function, first[0], second[0])]

    x = node.value(0)
    columns = [
        node.integers_of(index, f"the window's {title}")
        for index, title in ((2, "shape"), (3, "strides"), (4, "dilations"))
    ]
    concrete(node, x.known.shape, "the input")
    if any(len(column) != x.known.rank or min(column, default=1) < 1 for column in columns):
        node.fail(f"its window is {columns}; expected numbers of at least 1 for each of {x.known.rank} axes")
    values = [x]
    for axis, window in enumerate(zip(*columns, strict=True)):
        values = windowed(node, values, axis, window, combine)
    return node.result(function, node.scalar(1), values[0])
