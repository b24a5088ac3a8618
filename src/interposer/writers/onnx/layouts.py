"""Cancelling out of transposes, which are moved down past elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from interposer.core.types import TensorShape
from interposer.writers.onnx.sheet import Sheet, Step

__all__ = ["without_needless_transposes"]

Order: TypeAlias = tuple[int, ...]
_ELEMENTWISE: Final = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Celu", "Clip", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu",
        "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log",
        "Max", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu",
        "Shrink", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu",
        "Where", "Xor",
    }
)  # fmt: skip
_LINEAR: Final = frozenset({"DequantizeLinear", "QuantizeLinear"})


def without_needless_transposes(sheet: Sheet, outputs: Iterable[str], shapes: Mapping[str, TensorShape]) -> list[Step]:
    """Return the sheet's nodes rewritten with fewer transposes, or unchanged if their number does not decrease.

    `outputs` are the names of tensors that must be computed, and `shapes` the known shapes of tensors by name.
    """
    result = _Layouts(sheet, set(outputs), shapes).rewritten()
    return result if _transposes(result, outputs) < _transposes(sheet.steps, outputs) else sheet.steps


def _transposes(steps: Sequence[Step], outputs: Iterable[str]) -> int:
    """Return the number of transposes among those of the nodes `steps` that the outputs depend on."""
    needed, count = set(outputs), 0
    for step in reversed(steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            count += step.kind == "Transpose"
    return count


class _Layouts:
    """Rewrites the nodes of a sheet one by one so that transposes move towards the outputs, where they may cancel out.

    It keeps the rewritten nodes so far, and knows which of their results are transposed versions of other tensors. A
    rule is a method that rewrites a node and returns True, or returns False for a node that stays unchanged.
    """

    def __init__(self, sheet: Sheet, outputs: set[str], shapes: Mapping[str, TensorShape]) -> None:
        self._sheet, self._outputs, self._shapes = sheet, outputs, shapes
        self._steps: list[Step] = []
        self._transposed: dict[str, tuple[str, Order]] = {}
        self._same: dict[str, str] = {}
        self._made: dict[tuple[str, Order], str] = {}
        self._rules: dict[str, Callable[[Step], bool]] = {
            "Concat": self._concat,
            "Pad": self._pad,
            "ReduceMean": self._reduce,
            "Reshape": self._reshape,
            "Transpose": self._transpose,
            **dict.fromkeys(_ELEMENTWISE, self._elementwise),
            **dict.fromkeys(_LINEAR, self._linear),
        }

    def rewritten(self) -> list[Step]:
        """Apply the rule for each node's operator, if there is one, and return all nodes after that."""
        for step in self._sheet.steps:
            own = replace(step, inputs=[self._same.get(name, name) for name in step.inputs])
            rule = self._rules.get(step.kind)
            if rule is None or not rule(own):
                self._steps.append(own)
        return self._steps

    def _order(self, names: Iterable[str]) -> Order | None:
        """Return the one permutation that produced those tensors among `names` that are results of a transpose.

        The result is None if none of them is, or if the permutations differ.
        """
        orders = {self._transposed[name][1] for name in names if name in self._transposed}
        return orders.pop() if len(orders) == 1 else None

    def _moved(self, step: Step, inputs: list[str], order: Order, **attributes: object) -> bool:
        """Put a node on `inputs`, the tensors before their transpose, and transpose its result by `order`; return True.

        `attributes` replace those of the node that change with the order of the axes.
        """
        [result] = step.outputs
        inner = self._sheet.free_name(f"{result}/before")
        self._steps.append(replace(step, inputs=inputs, outputs=[inner], attributes=step.attributes | attributes))
        self._put_transpose(inner, order, result)
        return True

    def _put_transpose(self, source: str, order: Order, result: str) -> None:
        name = self._sheet.free_step_name(f"{result}/Transpose")
        self._steps.append(Step("Transpose", [source], [result], {"perm": order}, name))
        self._transposed[result] = source, order

    # --- rules --------------------------------------------------------------------------------------------------------

    def _transpose(self, step: Step) -> bool:
        """Combine two transposes in a row into one, or drop both if they cancel out; return True if this was possible.

        Any other transpose is remembered as one that the following nodes may be moved before.
        """
        order, source = tuple(step.attributes["perm"]), step.inputs[0]
        if source not in self._transposed:
            return self._is_known(source, order, step.outputs[0])
        source, first = self._transposed[source]
        order = tuple(first[axis] for axis in order)
        if order != tuple(range(len(order))):
            self._put_transpose(source, order, step.outputs[0])
        elif step.outputs[0] in self._outputs:
            self._steps.append(Step("Identity", [source], list(step.outputs), {}, step.name))
        else:
            self._same[step.outputs[0]] = source
        return True

    def _is_known(self, source: str, order: Order, result: str) -> bool:
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
        if order is None:
            return False
        inputs = [self._original(name, order) for name in step.inputs]
        if None in inputs:
            return False
        return self._moved(step, [name for name in inputs if name is not None], order)

    def _original(self, name: str, order: Order) -> str | None:
        """Return a tensor that gives the tensor `name` if it is transposed by `order`; None if there is none.

        It is the source of an existing transpose, or for a constant a new constant with permuted elements.
        """
        if name in self._transposed:
            return self._transposed[name][0]
        array = self._sheet.constants.get(name)
        if not name or (array is not None and array.size == 1 and array.ndim <= 1):
            return name
        if array is None or array.ndim > len(order):
            return None
        wide = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
        return self._sheet.constant(wide.transpose(np.argsort(order)), f"{name}/before")

    def _linear(self, step: Step) -> bool:
        """Move a transpose from before a (de)quantization to after it; return True if this was possible.

        The axis of per-channel scales is adjusted.
        """
        order = self._order(step.inputs[:1])
        if order is None:
            return False
        inputs = [self._transposed[step.inputs[0]][0], *step.inputs[1:]]
        axis = step.attributes.get("axis")
        return self._moved(step, inputs, order, **({} if axis is None else {"axis": order[axis]}))

    def _concat(self, step: Step) -> bool:
        order = self._order(step.inputs)
        if order is None or not all(name in self._transposed for name in step.inputs):
            return False
        return self._moved(step, [self._transposed[name][0] for name in step.inputs], order, axis=order[_axis(step)])

    def _pad(self, step: Step) -> bool:
        order, pads = self._order(step.inputs[:1]), self._sheet.constants.get(step.inputs[1])
        if order is None or pads is None:
            return False
        pairs = np.empty((2, len(order)), np.int64)
        pairs[:, order] = pads.reshape(2, -1)
        inner = self._sheet.constant(pairs.reshape(-1), f"{step.inputs[1]}/before")
        return self._moved(step, [self._transposed[step.inputs[0]][0], inner, *step.inputs[2:]], order)

    def _reduce(self, step: Step) -> bool:
        """Drop a transpose before a reduction if the remaining axes keep their order; return True if it was dropped.

        The reduced axes are adjusted. Reductions that keep their axes are not changed.
        """
        order = self._order(step.inputs[:1])
        axes = self._sheet.constants.get(step.inputs[1]) if len(step.inputs) > 1 else None
        if order is None or axes is None:
            return False
        gone = {axis % len(order) for axis in axes.tolist()}
        left = [order[axis] for axis in range(len(order)) if axis not in gone]
        if step.attributes.get("keepdims", 1) or left != sorted(left):
            return False
        inner = self._sheet.constant(np.array([order[axis] for axis in sorted(gone)]), f"{step.inputs[1]}/before")
        self._steps.append(replace(step, inputs=[self._transposed[step.inputs[0]][0], inner]))
        return True

    def _reshape(self, step: Step) -> bool:
        """Drop a transpose before a reshape if it only moves axes of size 1; return True if it was dropped."""
        source, shape = step.inputs[0], self._shapes.get(step.inputs[0])
        if source not in self._transposed or shape is None or 0 in self._sheet.constants.get(step.inputs[1], [0]):
            return False
        order = self._transposed[source][1]
        long = [axis for axis, size in zip(order, shape, strict=True) if size != 1]
        if long != sorted(long):
            return False
        self._steps.append(replace(step, inputs=[self._transposed[source][0], *step.inputs[1:]]))
        return True


def _axis(step: Step) -> int:
    return int(step.attributes["axis"])
