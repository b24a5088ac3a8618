"""Cancelling out of transposes, which are moved down past elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.types import Array, Dim, TensorInfo
from interposer.writers.tflite.sheet import Sheet, Step, Tensor, turned

__all__ = ["without_needless_transposes"]

Order: TypeAlias = tuple[int, ...]
_ELEMENTWISE: Final = frozenset(
    {
        "ABS", "ADD", "ATAN2", "BITCAST", "BITWISE_XOR", "CAST", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EQUAL",
        "EXP", "FAKE_QUANT", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "GELU", "GREATER", "GREATER_EQUAL", "HARD_SWISH",
        "LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "LOGISTIC", "MAXIMUM",
        "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "POW", "PRELU", "QUANTIZE", "RELU", "RELU6", "RELU_0_TO_1",
        "RELU_N1_TO_1", "RIGHT_SHIFT", "ROUND", "RSQRT", "SELECT_V2", "SIGN", "SIN", "SQRT", "SQUARE",
        "SQUARED_DIFFERENCE", "SUB", "TANH",
    }
)  # fmt: skip
_CHANNELS_FIRST: Final = (0, 3, 1, 2)
_PADS: Final = ("PAD", "PADV2", "MIRROR_PAD")
_REDUCTIONS: Final = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")


def without_needless_transposes(sheet: Sheet) -> None:
    """Rewrite the sheet's operators with fewer transposes; they stay unchanged if their number does not decrease."""
    result = _Layouts(sheet).rewritten()
    if _transposes(result, sheet.outputs) < _transposes(sheet.steps, sheet.outputs):
        sheet.steps = result
    _turn_weights(sheet)


def _transposes(steps: Sequence[Step], outputs: Iterable[Tensor]) -> int:
    """Return the number of transposes among those of the operators `steps` that the outputs depend on."""
    needed: set[Tensor | None] = set(outputs)
    count = 0
    for step in reversed(steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            count += step.kind == "TRANSPOSE"
    return count


class _Layouts:
    """Rewrites the operators of a sheet one by one so that transposes move towards the outputs, where they may cancel.

    It keeps the rewritten operators so far, and knows which of their results are transposed versions of other tensors.
    A rule is a method that rewrites an operator and returns True, or returns False for an operator that stays
    unchanged.
    """

    def __init__(self, sheet: Sheet) -> None:
        self._sheet, self._outputs = sheet, set(sheet.outputs)
        self._steps: list[Step] = []
        self._transposed: dict[Tensor | None, tuple[Tensor, Order]] = {}
        self._same: dict[Tensor | None, Tensor] = {}
        self._made: dict[tuple[Tensor, Order], Tensor] = {}
        self._rules: dict[str, Callable[[Step], bool]] = {
            "CONCATENATION": self._concat,
            "RESHAPE": self._reshape,
            "SLICE": self._slice,
            "SPLIT": self._split,
            "SPLIT_V": self._split,
            "TRANSPOSE": self._transpose,
            **dict.fromkeys(_ELEMENTWISE, self._elementwise),
            **dict.fromkeys(_PADS, self._pad),
            **dict.fromkeys(_REDUCTIONS, self._reduce),
        }

    def rewritten(self) -> list[Step]:
        """Apply the rule for each operator, if there is one for its kind, and return all operators after that."""
        for step in self._sheet.steps:
            own = replace(step, inputs=[self._same.get(item, item) for item in step.inputs])
            rule = self._rules.get(step.kind)
            if rule is None or not rule(own):
                self._steps.append(own)
        return self._steps

    def _order(self, tensors: Iterable[Tensor | None]) -> Order | None:
        """Return the one permutation that produced those among `tensors` that are results of a transpose.

        The result is None if none of them is, or if the permutations differ.
        """
        orders = {self._transposed[tensor][1] for tensor in tensors if tensor in self._transposed}
        return orders.pop() if len(orders) == 1 else None

    def _source(self, step: Step, index: int = 0) -> Tensor:
        return self._transposed[step.inputs[index]][0]

    def _moved(self, step: Step, inputs: Sequence[Tensor | None], order: Order, **options: Any) -> bool:
        """Put an operator on `inputs`, the tensors before their transpose, and transpose its results by `order`.

        `options` replace those of the operator that change with the order of the axes. The result is True.
        """
        back: Order = tuple(int(axis) for axis in np.argsort(order))
        inner = [
            Tensor(self._sheet.free_name(f"{output.name}/before"), turned(output.info, back)) for output in step.outputs
        ]
        self._steps.append(replace(step, inputs=list(inputs), outputs=inner, options=step.options | options))
        for before, result in zip(inner, step.outputs, strict=True):
            self._put_transpose(before, order, result, step.layer)
        return True

    def _put_transpose(self, source: Tensor, order: Order, result: Tensor, layer: str) -> None:
        axes = self._constant(np.array(order, np.int32), f"{result.name}/order")
        self._steps.append(Step("TRANSPOSE", [source, axes], [result], layer=layer))
        self._transposed[result] = source, order

    def _constant(self, array: Array, requested: str) -> Tensor:
        return self._sheet.constant(array, None, requested)

    # --- rules --------------------------------------------------------------------------------------------------------

    def _transpose(self, step: Step) -> bool:
        """Combine two transposes in a row into one, or drop both if they cancel out; return True if this was possible.

        Any other transpose is remembered as one that the following operators may be moved before.
        """
        order, source, [result] = _order_of(step), step.inputs[0], step.outputs
        if order is None or source is None:
            return False
        if source not in self._transposed:
            return self._is_known(source, order, result)
        source, first = self._transposed[source]
        order = tuple(first[axis] for axis in order)
        if order != tuple(range(len(order))):
            if not self._is_known(source, order, result):
                self._put_transpose(source, order, result, step.layer)
        elif result in self._outputs:
            self._put_identity(source, result, step.layer)
        else:
            self._same[result] = source
        return True

    def _put_identity(self, source: Tensor, result: Tensor, layer: str) -> None:
        """Add an operator that copies `source`, an unchanged tensor, to `result`, an output with a name of its own.

        `layer` is the name of the layer that the operator is written for.
        """
        if source.shape.is_concrete:
            shape = list(source.shape)
            requested = self._constant(np.array(shape, np.int32), f"{result.name}/shape")
            self._steps.append(Step("RESHAPE", [source, requested], [result], {"new_shape": shape}, layer))
            return
        axes = self._constant(np.arange(len(source.shape), dtype=np.int32), f"{result.name}/order")
        self._steps.append(Step("TRANSPOSE", [source, axes], [result], layer=layer))

    def _is_known(self, source: Tensor, order: Order, result: Tensor) -> bool:
        """Use an earlier result of the same transpose of `source` as `result`, and return True if there is one.

        Otherwise `result` is remembered as the transpose of `source` by `order`.
        """
        if (source, order) in self._made and result not in self._outputs:
            self._same[result] = self._made[source, order]
            return True
        self._transposed[result] = source, order
        self._made.setdefault((source, order), result)
        return False

    def _elementwise(self, step: Step) -> bool:
        order = self._order(step.inputs)
        if order is None or len(step.outputs[0].shape) != len(order):
            return False
        inputs = [self._original(item, order) for item in step.inputs]
        return None not in inputs and self._moved(step, inputs, order)

    def _original(self, tensor: Tensor | None, order: Order) -> Tensor | None:
        """Return a tensor that gives `tensor` if it is transposed by `order`; None if there is none.

        It is the source of an existing transpose, or for a constant a new constant with permuted elements.
        """
        if tensor in self._transposed:
            return self._transposed[tensor][0]
        array = None if tensor is None else tensor.array
        if tensor is None or array is None or array.ndim > len(order) or _several_scales(tensor.info):
            return None
        if array.size == 1 and array.ndim <= 1:
            return tensor
        wide = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
        return self._sheet.constant(
            wide.transpose(np.argsort(order)), tensor.info.quantization, f"{tensor.name}/before"
        )

    def _concat(self, step: Step) -> bool:
        order = self._order(step.inputs)
        if order is None or not all(item in self._transposed for item in step.inputs):
            return False
        inputs = [self._transposed[item][0] for item in step.inputs]
        return self._moved(step, inputs, order, axis=order[step.options["axis"]])

    def _pad(self, step: Step) -> bool:
        order, pads = self._order(step.inputs[:1]), _values(step, 1)
        if order is None or pads is None:
            return False
        return self._moved(step, [self._source(step), self._placed(pads, order, step), *step.inputs[2:]], order)

    def _placed(self, rows: Array, order: Order, step: Step) -> Tensor:
        """Return a constant with `rows`, one for each axis of a transposed tensor, in the order of the original axes.

        Such rows are the pads of PAD. The constant is named after the result of `step`.
        """
        moved = np.empty_like(rows)
        moved[list(order)] = rows
        return self._constant(moved, f"{step.outputs[0].name}/before")

    def _slice(self, step: Step) -> bool:
        order, begin, size = self._order(step.inputs[:1]), _values(step, 1), _values(step, 2)
        if order is None or begin is None or size is None:
            return False
        placed = [self._placed(rows, order, step) for rows in (begin, size)]
        return self._moved(step, [self._source(step), *placed], order)

    def _split(self, step: Step) -> bool:
        data, place = (1, 0) if step.kind == "SPLIT" else (0, 2)
        order, axis = self._order(step.inputs[data : data + 1]), _values(step, place)
        if order is None or axis is None:
            return False
        inputs = list(step.inputs)
        inputs[data] = self._source(step, data)
        moved = np.array(order[int(axis.reshape(-1)[0])], np.int32).reshape(axis.shape)
        inputs[place] = self._constant(moved, f"{step.outputs[0].name}/axis")
        return self._moved(step, inputs, order)

    def _reduce(self, step: Step) -> bool:
        """Move a transpose from before a reduction to after it, or drop it if the remaining axes keep their order.

        The result is True if either was possible.
        """
        order, axes = self._order(step.inputs[:1]), _values(step, 1)
        if order is None or axes is None:
            return False
        gone = {int(axis) % len(order) for axis in axes.reshape(-1)}
        inner = self._constant(np.array(sorted(order[axis] for axis in gone), np.int32), f"{step.outputs[0].name}/axes")
        if step.options.get("keep_dims"):
            return self._moved(step, [self._source(step), inner], order)
        left = [order[axis] for axis in range(len(order)) if axis not in gone]
        if left != sorted(left):
            return False
        self._steps.append(replace(step, inputs=[self._source(step), inner]))
        return True

    def _reshape(self, step: Step) -> bool:
        """Move a transpose from before a reshape to after it, and return True if this was possible.

        The reshape may split axes, or merge axes that are also adjacent before the transpose.
        """
        [result] = step.outputs
        if step.inputs[0] not in self._transposed or _several_scales(result.info):
            return False
        source, order = self._transposed[step.inputs[0]]
        groups = _groups([source.shape[axis] for axis in order], result.shape)
        if groups is None:
            return False
        moved = sorted(groups, key=lambda group: [order[axis] for axis in group[0]] or [-1])
        inner = tuple(order[axis] for before, _ in moved for axis in before)
        places = [axis for _, after in moved for axis in after]
        back: Order = tuple(places.index(axis) for axis in range(len(places)))
        if not _in_order(source, inner):
            if back != _CHANNELS_FIRST:
                return False
            turned_source = source.transposed(inner, self._sheet.free_name(f"{result.name}/turned"))
            self._put_transpose(source, inner, turned_source, step.layer)
            source = turned_source
        if back == tuple(range(len(back))):
            self._steps.append(replace(step, inputs=[source, *step.inputs[1:]]))
            return True
        shape = [int(result.shape[axis]) for axis in places]
        requested = self._constant(np.array(shape, np.int32), f"{result.name}/before")
        return self._moved(step, [source, requested], back, new_shape=shape)


def _in_order(tensor: Tensor, axes: Order) -> bool:
    """Return True if a transpose of `tensor` to the order `axes` moves no element, but only axes of size 1."""
    long = [axis for axis in axes if tensor.shape[axis] != 1]
    return long == sorted(long)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Return pairs of groups of adjacent axes of two shapes that have equally many elements, as small as possible.

    For example, the shapes (2, 3, 4) and (6, 4) have the pairs ([0, 1], [0]) and ([2], [1]). The result is None if a
    dimension is unknown or 0.
    """
    if any(isinstance(size, Dim) or not size for size in (*before, *after)):
        return None
    result: list[tuple[list[int], list[int]]] = []
    left, right = list(range(len(before))), list(range(len(after)))
    while left and right:
        mine, its = [left.pop(0)], [right.pop(0)]
        while (a := math.prod(before[i] for i in mine)) != (b := math.prod(after[i] for i in its)):
            mine, its = (mine + [left.pop(0)], its) if a < b else (mine, its + [right.pop(0)])
        result.append((mine, its))
    if left or right:
        rest = ([*result[-1][0], *left], [*result[-1][1], *right]) if result else (left, right)
        result[-1:] = [rest]
    return result


def _several_scales(info: TensorInfo) -> bool:
    return info.quantization is not None and info.quantization.per_axis


def _values(step: Step, index: int) -> Array | None:
    result = step.inputs[index] if index < len(step.inputs) else None
    return None if result is None else result.array


def _order_of(step: Step) -> Order | None:
    values = _values(step, 1)
    return None if values is None else tuple(values.tolist())


# --- weights ----------------------------------------------------------------------------------------------------------


def _turn_weights(sheet: Sheet) -> None:
    """Remove a transpose before a reshape and a fully connected operator by permuting the constant weights instead."""
    makers = {output: step for step in sheet.steps for output in step.outputs}
    for step in sheet.steps:
        flat = makers.get(step.inputs[0]) if step.kind == "FULLY_CONNECTED" and step.inputs[0] else None
        turn = makers.get(flat.inputs[0]) if flat is not None and flat.kind == "RESHAPE" and flat.inputs[0] else None
        if flat is not None and turn is not None and turn.kind == "TRANSPOSE":
            _turn_rows(sheet, step, flat, turn)


def _turn_rows(sheet: Sheet, product: Step, flat: Step, turn: Step) -> None:
    source, order, weights = turn.inputs[0], _order_of(turn), product.inputs[1]
    image, rows = turn.outputs[0].shape, flat.outputs[0].shape
    if source is None or order is None or weights is None or weights.array is None:
        return
    if order[0] != 0 or len(rows) != 2 or image[0] != rows[0] or not image.is_concrete:
        return
    back = [int(axis) for axis in np.argsort(order)]
    array = weights.array.reshape(-1, *image[1:]).transpose(back).reshape(weights.array.shape)
    product.inputs[1] = Tensor(sheet.free_name(f"{weights.name}/turned"), weights.info, array)
    before = Tensor(sheet.free_name(f"{flat.outputs[0].name}/before"), flat.outputs[0].info)
    sheet.steps.insert(sheet.steps.index(product), replace(flat, inputs=[source, *flat.inputs[1:]], outputs=[before]))
    product.inputs[0] = before
