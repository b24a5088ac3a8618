"""Checks of indices and sizes in a graph: whether the reference kernels refuse the values that a run has.

A backend that fails may not say whether the caller's values are the cause, and an engine may compute something from an
index out of range. The checks compute only what the indices and sizes depend on, such as the conversion of an input
from int64 to int32, and let the reference kernels of the layers look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.errors import InterposerError, InvalidValueError
from interposer.core.records import dataclass
from interposer.core.room import Room, within
from interposer.core.schema import Op
from interposer.core.traits import Role
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import infos_for
from interposer.kernels.evaluation import evaluate
from interposer.ops.control import Constant, Input, Output
from interposer.ops.control_flow import ControlFlow, If
from interposer.ops.embedding import EmbeddingLookup
from interposer.ops.gather import Gather, GatherElements, GatherNd
from interposer.ops.scatter import ScatterElements
from interposer.ops.sequence import ReverseSequence

__all__ = ["Budget", "BudgetError", "Refused", "ValueChecks", "computed", "decisive_operands"]

_COST_OF_LAYER: Final = 20_000
_MOST_COST: Final = 500_000_000
_MOST_BYTES: Final = 1 << 30
Values: TypeAlias = dict[Value, Array]
RunsControlFlow: TypeAlias = "Callable[[Layer, Sequence[Array | None], Budget], list[Array]]"


class BudgetError(Exception):
    """The checks of one run would cost too much."""


class Refused(Exception):  # noqa: N818 - it carries an error
    """A layer refused values of its operands with `error`; `tensor` is the name of the operand's tensor, or empty."""

    def __init__(self, layer: Layer, error: InvalidValueError, tensor: str) -> None:
        super().__init__(layer, error, tensor)
        self.layer, self.error, self.tensor = layer, error, tensor


class Budget:
    """What the checks of one run may still cost: arithmetic operations, of which every layer counts at least some."""

    def __init__(self) -> None:
        self._cost_left = _MOST_COST

    def spend(self, operations: int) -> None:
        """Count one layer with this number of operations; raise `BudgetError` if too many have been counted."""
        self._cost_left -= operations + _COST_OF_LAYER
        if self._cost_left < 0:
            raise BudgetError


def decisive_operands(op: Op, count: int) -> list[int]:
    """Return the positions of the operands whose values an operator may refuse, of `count` operands.

    These are the operands that have indices and sizes.
    """
    roles = [op.operands[min(index, len(op.operands) - 1)].role for index in range(count)]
    return [index for index, role in enumerate(roles) if role in (Role.INDICES, Role.SIZES)]


@dataclass(frozen=True)
class _Step:
    """A layer to compute, or only to check: then only the operands at the positions `exact` have their true values.

    `inputs` are the inputs of the layer when the step was created; a backend that replaces the layer disconnects it.
    """

    layer: Layer
    inputs: tuple[Value | None, ...]
    exact: frozenset[int]
    is_computed: bool


class ValueChecks:
    """The checks of the indices and sizes of some layers.

    Thread-safe. The attribute `sources` has the values whose arrays `check` needs.

    Args:
        layers: the layers in topological order.
        sources: the values that are known before a run, such as inputs. Constants need not be among them.
        run_control_flow: runs a control flow layer on the arrays of its operands; None if there are no such layers.
        most_elements: the most elements that a layer may have which is computed; the values that depend on larger ones
            are not checked. None means no limit.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        sources: Collection[Value],
        run_control_flow: RunsControlFlow | None = None,
        most_elements: int | None = None,
    ) -> None:
        self._run_control_flow = run_control_flow
        needed_values: set[Value] = set()
        steps = [step for layer in reversed(layers) if (step := _step(layer, needed_values, most_elements)) is not None]
        self._steps = tuple(reversed(steps))
        self.sources = tuple(source for source in sources if source in needed_values)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def check(self, arrays: Mapping[Value, Array]) -> None:
        """Check the values of one run, of which `arrays` has those of `sources`.

        Returns without a complaint if the checks cannot find out, or would cost too much.

        Raises:
            Refused: a layer cannot use a value.
        """
        values: Values = dict(arrays)
        budget = Budget()
        with within(Room(_MOST_BYTES)):
            for step in self._steps:
                try:
                    self._try(step, values, budget)
                except BudgetError:
                    return

    def _try(self, step: _Step, values: Values, budget: Budget) -> None:
        """Compute or check one layer; add its results to `values`, unless something that it needs is unknown."""
        operands = _operands(step, values)
        if operands is None:
            return
        try:
            if not step.is_computed and _is_in_range(step.layer, operands):
                return
            results = computed(step.layer, step.inputs, operands, budget, self._run_control_flow)
        except InvalidValueError as error:
            if _is_certain(step, error):
                raise Refused(step.layer, error, _tensor(step, error.operand)) from error
        except BudgetError:
            raise
        except Exception:
            return
        else:
            if step.is_computed:
                values.update(zip(step.layer.outputs, results, strict=True))


def _tensor(step: _Step, operand: str) -> str:
    """Return the name of the tensor that is passed for an operand, or an empty text."""
    names = {step.layer.op.operand_name(index): value.name for index, value in enumerate(step.inputs) if value}
    return names.get(operand, "")


def _is_certain(step: _Step, error: InvalidValueError) -> bool:
    """Return True if a layer refused a true value, and not one of the zeros that stand for the other operands."""
    names = {step.layer.op.operand_name(index) for index in step.exact}
    return not error.operand or error.operand in names or isinstance(step.layer.op, ControlFlow)


def _step(layer: Layer, needed_values: set[Value], most_elements: int | None) -> _Step | None:
    """Return how to check or compute a layer, or None if that is not necessary; add what it reads to `needed_values`.

    A layer with more than `most_elements` elements is not computed; None means no limit.
    """
    if isinstance(layer.op, Input | Output | Constant):
        return None
    is_computed = not needed_values.isdisjoint(layer.outputs) and (
        most_elements is None or _is_small(layer, most_elements)
    )
    positions = range(len(layer.inputs)) if is_computed or _runs_regions(layer) else _checked_operands(layer)
    exact_positions = frozenset(positions)
    inputs = {layer.inputs[index] for index in exact_positions}
    values_read = {value for value in inputs if value is not None and not value.is_constant}
    if not (is_computed or values_read):
        return None
    needed_values |= values_read
    return _Step(layer, tuple(layer.inputs), exact_positions, is_computed)


def _is_small(layer: Layer, most_elements: int) -> bool:
    infos = [value.known for value in (*layer.values, *layer.outputs)]
    return (
        all(info.is_concrete for info in infos)
        and sum(int(np.prod(tuple(info.shape))) for info in infos) <= most_elements
    )


def _is_in_range(layer: Layer, operands: Sequence[Array | None]) -> bool:
    """Return True if all indices are certain to be in range, so that the reference kernel need not look at them."""
    for kind, (position, limits) in _RANGES.items():
        if isinstance(layer.op, kind):
            indices = operands[position]
            low, high = limits(layer.op, [() if array is None else array.shape for array in operands])
            return indices is not None and bool(not indices.size or (indices.min() >= low and indices.max() <= high))
    return False


def _both_ways(size: int) -> tuple[int, int]:
    """Return the range of indices into an axis of this size, where negative ones count from the end."""
    return -size, size - 1


_Limits: TypeAlias = Callable[[Any, Sequence[tuple[int, ...]]], tuple[int, int]]
_RANGES: Final[Mapping[type[Op], tuple[int, _Limits]]] = {
    Gather: (1, lambda op, shapes: _both_ways(shapes[0][op.axis])),
    GatherElements: (1, lambda op, shapes: _both_ways(shapes[0][op.axis])),
    ScatterElements: (1, lambda op, shapes: _both_ways(shapes[0][op.axis])),
    GatherNd: (
        1,
        lambda op, shapes: _both_ways(min(shapes[0][op.batch_dims : op.batch_dims + shapes[1][-1]], default=0)),
    ),
    EmbeddingLookup: (0, lambda op, shapes: (0, shapes[1][0] - 1)),
    ReverseSequence: (1, lambda op, shapes: (0, shapes[0][op.time_axis])),
}
"""The position of the indices or lengths, and the range in which all of them are valid, by operator."""


def _runs_regions(layer: Layer) -> bool:
    """Return True for a control flow layer that may refuse values, in a layer of its regions or by itself."""
    has_failures = isinstance(layer.op, If) and any(layer.op.failures)
    return has_failures or any(map(_may_refuse, _inner(layer)))


def _inner(layer: Layer) -> Iterator[Layer]:
    for region in layer.regions:
        for inner_layer in region:
            yield inner_layer
            yield from _inner(inner_layer)


def _may_refuse(layer: Layer) -> bool:
    return bool(decisive_operands(layer.op, len(layer.inputs)))


def _checked_operands(layer: Layer) -> list[int]:
    """Return the operands whose values a check of a layer needs: its indices and sizes, and those of unknown shape."""
    decisive_indices = [
        index for index in decisive_operands(layer.op, len(layer.inputs)) if layer.inputs[index] is not None
    ]
    if all(_is_constant(layer.inputs[index]) for index in decisive_indices):
        return []
    unknown_indices = [
        index
        for index, value in enumerate(layer.inputs)
        if value is not None and not (value.known.is_tensor and value.known.is_concrete)
    ]
    return sorted({*decisive_indices, *unknown_indices})


def _is_constant(value: Value | None) -> bool:
    return value is None or value.is_constant


def _operands(step: _Step, values: Values) -> list[Array | None] | None:
    """Return the operands of a layer; zeros stand for those that do not matter. None if one is unknown."""
    operands: list[Array | None] = []
    for index, value in enumerate(step.inputs):
        if value is None:
            operands.append(None)
        elif value.is_constant:
            operands.append(value.producer.op.value)  # type: ignore[attr-defined] # it is a Constant
        elif value in values:
            operands.append(values[value])
        elif index in step.exact:
            return None
        else:
            operands.append(_zeros(value.known))
    return operands


def _zeros(info: TensorInfo) -> Array:
    """Return zeros in the shape of a tensor, which use the memory of a single element."""
    return np.broadcast_to(np.zeros((), info.dtype.numpy), tuple(map(int, info.shape)))


def computed(
    layer: Layer,
    inputs: Sequence[Value | None],
    operands: Sequence[Array | None],
    budget: Budget,
    run_control_flow: RunsControlFlow | None,
) -> list[Array]:
    """Return the results of a layer with these inputs, which its reference kernel computes from the arrays `operands`.

    Raises:
        InvalidValueError: the layer cannot use values of its operands.
        BudgetError: the budget is spent.
        NotImplementedError: the results of the layer are random.
        InterposerError: there is no reference kernel for the layer.
    """
    if isinstance(layer.op, ControlFlow):
        if run_control_flow is None:
            raise NotImplementedError
        budget.spend(0)
        return run_control_flow(layer, operands, budget)
    if not layer.op.pure:
        raise NotImplementedError
    infos = [_info(value, array) for value, array in zip(inputs, operands, strict=True)]
    outputs = _output_infos(layer, infos)
    budget.spend(_operations(layer.op, infos, outputs))
    return evaluate(layer.op, operands, infos, outputs)


def _info(value: Value | None, array: Array | None) -> TensorInfo | None:
    if value is None or array is None:
        return None
    return value.known if value.known.is_concrete else value.known.with_shape(array.shape)


def _output_infos(layer: Layer, infos: Sequence[TensorInfo | None]) -> list[TensorInfo]:
    """Return the infos of the outputs for the actual infos of the inputs.

    Raises:
        InvalidValueError: shapes that are computed from values do not fit the operator.
    """
    try:
        return list(infos_for(layer, infos))
    except InterposerError as error:
        raise InvalidValueError(str(error)) from error


def _operations(op: Op, inputs: Sequence[TensorInfo | None], outputs: Iterable[TensorInfo]) -> int:
    output_infos = tuple(outputs)
    if not all(info is None or info.is_concrete for info in (*inputs, *output_infos)):
        return 0
    elements = sum(int(np.prod(tuple(info.shape))) for info in output_infos)
    return max(elements, int(op.operations(tuple(inputs), output_infos)))
