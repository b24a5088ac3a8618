"""Workloads of control-flow layers, which run regions and carry values between iterations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from interposer.backend import TensorHandle, Workload
from interposer.core.errors import (
    BackendContractError,
    DeadlineExceededError,
    ExecutionError,
    InvalidValueError,
    RunCancelledError,
)
from interposer.core.room import current_room, temporarily
from interposer.core.types import Array, Dim, TensorInfo
from interposer.ir.graph import Layer
from interposer.kernels.table import empty
from interposer.ops.control_flow import ControlFlow, If, Loop, Scan, While

if TYPE_CHECKING:
    from interposer.runtime.runs import RunControl

__all__ = ["ControlWorkload", "Region", "control_workload"]


class Region(Protocol):
    """The body of a loop or a branch, prepared for running: what a control flow layer needs of it."""

    @property
    def title(self) -> str:
        """The name of the region in messages."""

    @property
    def outputs(self) -> Sequence[Layer]:
        """The output layers of the region."""

    def watch(self, control: RunControl | None) -> None:
        """Let `control` stop the following runs of the region; None means that they cannot be stopped."""

    def enter(self, captured: Mapping[int, Array]) -> None:
        """Set the captured inputs, which stay the same in all runs until `leave`, by their binding ids."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run the region once and return its outputs; `arrays` are the inputs that `enter` has not set, in order."""

    def leave(self) -> None:
        """Drop the inputs that `enter` has set."""


class ControlWorkload(Workload):
    """The workload of a control-flow layer, which runs its regions. Between iterations, values are host arrays."""

    def __init__(self, op: Any, regions: Sequence[Region]) -> None:
        self.op, self.regions = op, tuple(regions)

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Map the inputs, run the regions, and copy the results into the outputs."""
        with ExitStack() as stack:
            stack.enter_context(temporarily())
            stack.callback(self._leave)
            arrays = [None if handle is None else stack.enter_context(handle.mapped()) for handle in inputs]
            results = self.compute(*self.op.arguments(arrays))
            for index, (handle, array) in enumerate(zip(outputs, results, strict=True)):
                _write_output(index, handle, array)

    def watch(self, control: RunControl | None) -> None:
        """Let `control` stop the following runs; None removes the control."""
        for region in self.regions:
            region.watch(control)

    def _leave(self) -> None:
        for region in self.regions:
            region.leave()

    @abstractmethod
    def compute(self, *operands: Any) -> list[Array]:
        """Return the outputs of the layer for its operands."""


def control_workload(op: ControlFlow, regions: Sequence[Region]) -> ControlWorkload:
    """Return the workload of a control-flow layer; raise `BackendContractError` for an unknown operator."""
    for kind, workload in _WORKLOADS.items():
        if isinstance(op, kind):
            return workload(op, regions)
    raise BackendContractError(f"the runtime cannot run {op.op_name()}")


class _IfWorkload(ControlWorkload):
    def compute(self, condition: Array, inputs: Sequence[Array]) -> list[Array]:
        taken_index = 0 if _single(condition, "the condition") else 1
        region = self.regions[taken_index]
        with _inside(region):
            if self.op.failures[taken_index]:
                reason = f"it cannot be computed for these inputs: {self.op.failures[taken_index]}"
                raise InvalidValueError(reason, operand="condition", value=taken_index == 0)
            return region.run(inputs)


class _LoopWorkload(ControlWorkload):
    def compute(self, trip_count: Array | None, condition: Array | None, inputs: Sequence[Array]) -> list[Array]:
        op, [body] = self.op, self.regions
        trips = None if trip_count is None else int(_single(trip_count, "the trip count"))
        continues = condition is None or bool(_single(condition, "the condition"))
        carried_values = list(inputs[: op.num_carried])
        collected_arrays: list[list[Array]] = [[] for _ in range(op.num_scan_outputs)]
        body.enter(dict(enumerate(inputs[op.num_carried :], 2 + op.num_carried)))
        iteration = 0
        while continues and (trips is None or iteration < trips):
            with _inside(body, iteration):
                condition_after, *region_outputs = body.run(
                    [np.array(iteration, np.int64), np.array(True), *carried_values]
                )
                continues = bool(_single(condition_after, "the condition"))
            carried_values = region_outputs[: op.num_carried]
            _collect(collected_arrays, region_outputs[op.num_carried :])
            iteration += 1
        infos = [layer.values[0].known for layer in body.outputs[1 + op.num_carried :]]
        return carried_values + [_stacked(*pair, 0) for pair in zip(collected_arrays, infos, strict=True)]


class _ScanWorkload(ControlWorkload):
    def compute(self, inputs: Sequence[Array]) -> list[Array]:
        op, [body] = self.op, self.regions
        first_captured = op.num_states + op.num_scan_inputs
        carried_values, scanned = list(inputs[: op.num_states]), inputs[op.num_states : first_captured]
        slices = [np.moveaxis(array, op.axis(index, array.ndim), 0) for index, array in enumerate(scanned)]
        backwards = op.reverse_inputs or (False,) * len(slices)
        slices = [array[::-1] if reversed_ else array for array, reversed_ in zip(slices, backwards, strict=True)]
        collected_arrays: list[list[Array]] = [[] for _ in range(op.num_scan_outputs)]
        body.enter(dict(enumerate(inputs[first_captured:], first_captured)))
        for iteration in range(_length(slices)):
            with _inside(body, iteration):
                region_outputs = body.run(
                    [*carried_values, *(np.asarray(array[iteration], order="C") for array in slices)]
                )
            carried_values = region_outputs[: op.num_states]
            _collect(collected_arrays, region_outputs[op.num_states :])
        infos = [layer.values[0].known for layer in body.outputs[op.num_states :]]
        return carried_values + [self._gathered(*pair) for pair in enumerate(zip(collected_arrays, infos, strict=True))]

    def _gathered(self, index: int, slices_and_info: tuple[list[Array], TensorInfo]) -> Array:
        arrays, info = slices_and_info
        axis = self.op.output_axes[index] if self.op.output_axes else 0
        backwards = bool(self.op.reverse_outputs) and self.op.reverse_outputs[index]
        return _stacked(arrays[::-1] if backwards else arrays, info, axis)


class _WhileWorkload(ControlWorkload):
    def compute(self, inputs: Sequence[Array]) -> list[Array]:
        op, [condition, body] = self.op, self.regions
        carried_values, iteration = list(inputs[: op.num_carried]), 0
        for region in self.regions:
            region.enter(dict(enumerate(inputs[op.num_carried :], op.num_carried)))
        while self._holds(condition, carried_values, iteration):
            with _inside(body, iteration):
                carried_values = body.run(carried_values)
            iteration += 1
        return carried_values

    def _holds(self, region: Region, carried_values: Sequence[Array], iteration: int) -> bool:
        with _inside(region, iteration):
            [condition] = region.run(carried_values)
            return bool(_single(condition, "the condition"))


_WORKLOADS: dict[type[ControlFlow], type[ControlWorkload]] = {
    If: _IfWorkload,
    Loop: _LoopWorkload,
    Scan: _ScanWorkload,
    While: _WhileWorkload,
}


def _single(array: Array, title: str) -> Any:
    if array.size != 1:
        raise InvalidValueError(f"{title} has shape {list(array.shape)}; expected one element")
    return array.reshape(-1)[0]


@contextmanager
def _inside(region: Region, iteration: int | None = None) -> Iterator[None]:
    """Return a context in which an `ExecutionError` gets the names of the region and the iteration, if any.

    Both the message and the error's `layer` name them. Errors of stopped runs are unchanged.
    """
    try:
        yield
    except (RunCancelledError, DeadlineExceededError):
        raise
    except ExecutionError as error:
        place = f"region {region.title!r}" if iteration is None else f"iteration {iteration} of region {region.title!r}"
        layer, message = f"{region.title}/{error.layer}" if error.layer else region.title, f"in {place}: {error}"
        if isinstance(error, InvalidValueError):
            raise error.located(message, layer=layer, backend=error.backend) from error
        raise ExecutionError(message, layer=layer, backend=error.backend) from error


def _length(slices: Sequence[Array]) -> int:
    lengths = [len(array) for array in slices]
    if len(set(lengths)) > 1:
        counts = ", ".join(map(str, lengths))
        raise InvalidValueError(f"the scanned inputs have {counts} slices; expected the same number")
    return lengths[0]


def _collect(collected_arrays: Sequence[list[Array]], arrays: Sequence[Array]) -> None:
    for index, (earlier_arrays, array) in enumerate(zip(collected_arrays, arrays, strict=True)):
        if earlier_arrays and earlier_arrays[0].shape != array.shape:
            shapes = (
                f"{list(array.shape)} in iteration {len(earlier_arrays)} and {list(earlier_arrays[0].shape)} before"
            )
            raise InvalidValueError(f"collected output {index} has the shape {shapes}")
        current_room().take(array.nbytes)
        earlier_arrays.append(array)


def _stacked(arrays: Sequence[Array], info: TensorInfo, axis: int) -> Array:
    """Return the arrays of all iterations, stacked along a new axis.

    Without arrays, the result is empty: `info` describes one iteration, and its unknown dimensions become 0.
    """
    if arrays:
        return np.stack(arrays, axis)
    shape = [0 if isinstance(dim, Dim) else int(dim) for dim in info.shape] if info.is_ranked else []
    shape.insert(axis % (len(shape) + 1), 0)
    return empty(info.with_shape(shape))


def _write_output(index: int, handle: TensorHandle, array: Array) -> None:
    if not handle.info.is_concrete:
        handle.resize(array.shape)
    elif tuple(handle.info.shape) != array.shape:
        raise InvalidValueError(
            f"output {index} turned out to have shape {list(array.shape)}; expected {handle.info.shape}"
        )
    handle.copy_in(array)
