"""Whether the values of a run are the cause of its failure, as the reference kernels see it.

A backend that fails on an index out of range may raise any exception, or its process may end. This is the caller's
error nevertheless, so that the runtime looks at the indices and sizes of a run that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from interposer.core.errors import InvalidValueError
from interposer.core.types import Array
from interposer.ir.graph import Graph, Layer, Value, binding_id
from interposer.ir.regions import region_title
from interposer.ir.states import State, states_of
from interposer.kernels.value_checks import Budget, Refused, ValueChecks, computed
from interposer.ops.control import Constant, Input, Output
from interposer.runtime.control import control_workload
from interposer.runtime.steps import failure

if TYPE_CHECKING:
    from interposer.runtime.runs import RunControl

__all__ = ["refused_value"]


def refused_value(
    graph: Graph, arrays: Mapping[str, Array], states: Callable[[Sequence[State]], Mapping[str, Array]]
) -> InvalidValueError | None:
    """Return the error for the first value that a layer of a network cannot use, or None if there is no such value.

    None is also returned if the values cannot be computed, or not with little effort.

    Args:
        graph: the network before backends replaced parts of it.
        arrays: the inputs of the run by name.
        states: returns the values of some states by name; called only if indices or sizes depend on them.
    """
    inputs = {layer.output: layer for layer in graph if isinstance(layer.op, Input)}
    checks = ValueChecks(graph.topological(), inputs.keys(), _run_control_flow)
    needed_values = {inputs[source] for source in checks.sources}
    values = {layer.output: arrays[layer.name] for layer in needed_values if layer.name in arrays}
    needed_states = [state for state in states_of(graph) if state.source in needed_values]
    arrays_of_states = states(needed_states) if needed_states else {}
    values |= {state.source.output: arrays_of_states[state.name] for state in needed_states}
    try:
        checks.check(values)
    except Refused as refused:
        value_error = failure(refused.layer, "failed", refused.error)
        return value_error if isinstance(value_error, InvalidValueError) else None
    return None


def _run_control_flow(layer: Layer, operands: Sequence[Array | None], budget: Budget) -> list[Array]:
    """Return the results of a control flow layer, whose regions the reference kernels compute."""
    workload = control_workload(layer.op, [_Region(region, budget) for region in layer.regions])  # type: ignore[arg-type]
    return workload.compute(*layer.op.arguments(operands))


class _Region:
    """A region that the reference kernels compute."""

    def __init__(self, graph: Graph, budget: Budget) -> None:
        self._graph, self._budget = graph, budget
        self._captured: dict[int, Array] = {}

    @property
    def title(self) -> str:
        """The name of the region."""
        owner = self._graph.owner
        assert owner is not None
        return next(region_title(owner, number) for number, region in enumerate(owner.regions) if region is self._graph)

    @property
    def outputs(self) -> Sequence[Layer]:
        """The output layers of the region."""
        return self._graph.sinks

    def watch(self, control: RunControl | None) -> None:
        """Do nothing: the budget ends what takes too long."""

    def enter(self, captured_arrays: Mapping[int, Array]) -> None:
        """Set the inputs that are the same in all runs, by their binding ids."""
        self._captured = dict(captured_arrays)

    def leave(self) -> None:
        """Do nothing: a region is used once."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Compute all layers once; `arrays` are the inputs that `enter` has not set, in order.

        Raises:
            InvalidValueError: a layer cannot use a value.
        """
        arrays_by_id = {**self._captured, **dict(enumerate(arrays))}
        values: dict[Value, Array] = {}
        for layer in self._graph.topological():
            if isinstance(layer.op, Input):
                values[layer.output] = arrays_by_id[binding_id(layer)]
            elif isinstance(layer.op, Constant):
                values[layer.output] = layer.op.value
            elif not isinstance(layer.op, Output):
                values.update(zip(layer.outputs, self._computed(layer, values), strict=True))
        return [values[sink.values[0]] for sink in self.outputs]

    def _computed(self, layer: Layer, values: Mapping[Value, Array]) -> list[Array]:
        operands = [None if value is None else values[value] for value in layer.inputs]
        try:
            return computed(layer, layer.inputs, operands, self._budget, _run_control_flow)
        except InvalidValueError as error:
            raise failure(layer, "failed", error) from error
