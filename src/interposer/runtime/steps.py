"""One graph made ready to run: a network's own, or a region of a layer with control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from interposer.backend import ArrayHandle, TensorHandle, Workload, WorkloadInfo
from interposer.errors import ExecutionError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.ir.regions import region_title
from interposer.ops.control import Constant, Input, Output
from interposer.ops.control_flow import ControlFlow
from interposer.runtime.control import ControlWorkload, control_workload
from interposer.runtime.factories import Factories, constant_of, guarded, said
from interposer.runtime.late import LateHandles, LateStep
from interposer.runtime.workloads import DebugCallback, DebugWorkload, runtime_workload
from interposer.types import Array, TensorInfo

__all__ = ["Steps", "guarded_run"]


@dataclass(frozen=True, slots=True)
class _Step:
    layer: Layer
    workload: Workload
    inputs: tuple[TensorHandle | None, ...]
    outputs: tuple[TensorHandle, ...]

    def execute(self, late: LateHandles) -> None:
        self.workload.execute(self.inputs, self.outputs)


class Steps:
    """The workloads of one graph in running order, and the handles of its tensors.

    Of a region, `enter` fills the inputs that are the same in every iteration, and `run` runs it once with the others.
    Inputs that nobody takes are left out. Not safe to run from two threads at a time.

    Raises:
        LoadError: a backend could not make a workload or a handle.
    """

    def __init__(self, graph: Graph, factories: Factories) -> None:
        self.graph, self._factories = graph, factories
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.order = graph.topological()
        self._handles: dict[Value, TensorHandle] = {}
        self._captured: LateHandles = {}
        self._late = shaped_by_data(graph)
        for layer in self.order:
            for value in layer.outputs if not isinstance(layer.op, Constant) else ():
                if value not in self._late and not self._is_idle(value):
                    self._handles[value] = factories.handle(layer, value)
        self.steps = [self._step(layer) for layer in self.order if not isinstance(layer.op, Input | Output | Constant)]

    @property
    def title(self) -> str:
        """What the region is called."""
        owner = self.graph.owner
        assert owner is not None
        return next(region_title(owner, i) for i, region in enumerate(owner.regions) if region is self.graph)

    def _is_idle(self, value: Value) -> bool:
        return self.graph.owner is not None and isinstance(value.producer.op, Input) and not value.uses

    def _step(self, layer: Layer) -> _Step | LateStep:
        own = self._own_workload(layer)
        if not self._late.isdisjoint((*layer.values, *layer.outputs)):
            return LateStep(layer, self._factories.of(layer), self._fixed_handles(layer), own)
        info = WorkloadInfo.of(layer)
        workload = own or guarded(layer, "got no workload", lambda: self._factories.workload(layer, info))
        inputs = tuple(None if value is None else self._input_handle(layer, value) for value in layer.inputs)
        return _Step(layer, workload, inputs, tuple(self._handles[value] for value in layer.outputs))

    def _own_workload(self, layer: Layer) -> Workload | None:
        if isinstance(layer.op, ControlFlow):
            return control_workload(layer.op, [Steps(region, self._factories) for region in layer.regions])
        return runtime_workload(layer)

    def _fixed_handles(self, layer: Layer) -> dict[Value, TensorHandle]:
        fixed = {value: self._input_handle(layer, value) for value in layer.values if value not in self._late}
        return fixed | {value: self._handles[value] for value in layer.outputs if value not in self._late}

    def _input_handle(self, layer: Layer, value: Value) -> TensorHandle:
        return self._factories.constant(layer, value) if value.is_constant else self._handles[value]

    # --- memory -------------------------------------------------------------------------------------------------------

    def plan_memory(self) -> None:
        """Tell every handle, in running order, when its tensor begins to live and when it was read for the last time.

        At first the inputs are filled, then the layers run, and after the last one outputs are read. What a region
        needs is planned at the moment of its layer.
        """
        self._begin_inputs()
        self._plan_layers()

    def _begin_inputs(self) -> None:
        for layer in self.inputs:
            if layer.output in self._handles:
                guarded(layer, "got no memory", self._handles[layer.output].manage)

    def _plan_layers(self) -> None:
        ends = self._last_readers()
        regions = {step.layer.guid: list(_regions(step)) for step in self.steps}
        for layer in self.order:
            for value in layer.outputs if not isinstance(layer.op, Input) else ():
                if value in self._handles:
                    guarded(layer, "got no memory", self._handles[value].manage)
            _plan_regions(regions.get(layer.guid, ()))
            self._end(ends.get(layer.guid, ()))
        for layer in self.outputs:
            self._end(ends.get(-layer.guid, ()))

    def _last_readers(self) -> dict[int, list[Value]]:
        """What ends with a layer, by its guid; what an Output gives, which is read in the end, by the guid negated.

        The inputs of a region are left out, as they may serve several iterations: see `_plan_regions`.
        """
        moment = {layer.guid: number for number, layer in enumerate((*self.order, *self.outputs))}
        ends: dict[int, list[Value]] = {}
        for value in self._handles:
            if self.graph.owner is not None and isinstance(value.producer.op, Input):
                continue
            last = max((use.layer for use in value.uses), key=lambda one: moment[one.guid], default=value.producer)
            ends.setdefault(-last.guid if isinstance(last.op, Output) else last.guid, []).append(value)
        return ends

    def _end(self, values: Iterable[Value]) -> None:
        for value in values:
            guarded(value.producer, "got no memory", self._handles[value].allocate)

    def _end_inputs(self) -> None:
        self._end(layer.output for layer in self.inputs if layer.output in self._handles)

    def configure(self) -> None:
        """Tell the workloads that all is made and planned."""
        for step in self.steps:
            for region in _regions(step):
                region.configure()
            if step.workload is not None:
                guarded(step.layer, "could not be configured", step.workload.post_allocation_configure)

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call this instead of printing."""
        for step in self.steps:
            if isinstance(step.workload, DebugWorkload):
                step.workload.callback = callback
            for region in _regions(step):
                region.set_debug_callback(callback)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def fill(self, layer: Layer, array: Array, late: LateHandles) -> None:
        """Let an input have this value."""
        value = layer.output
        if value in self._handles:
            guarded_run(layer, "could not take in its data", lambda: self._handles[value].copy_in(array))
        elif value in self._late:
            late[value] = ArrayHandle(value.known.with_shape(array.shape), array)

    def execute(self, late: LateHandles) -> None:
        """Run all layers once; `ExecutionError` where one fails."""
        for step in self.steps:
            guarded_run(step.layer, "failed", partial(step.execute, late))

    def handle(self, value: Value, late: Mapping[Value, TensorHandle]) -> TensorHandle:
        """The handle of a value that is no constant."""
        return late[value] if value in late else self._handles[value]

    def enter(self, captured: Mapping[int, Array]) -> None:
        """Give a region the inputs, by their binding ids, that stay the same in all runs until the next `enter`."""
        self._captured = {}
        for index, array in captured.items():
            self._fill_checked(index, array, self._captured)

    def leave(self) -> None:
        """Let go of what `enter` was given."""
        self._captured = {}

    def run(self, given: Sequence[Array], first: int = 0) -> list[Array]:
        """Run a region once with these inputs, beginning at that binding id; returns what it gives.

        Raises:
            ExecutionError: a layer failed, or an input does not fit.
        """
        late = dict(self._captured)
        for index, array in enumerate(given, first):
            self._fill_checked(index, array, late)
        self.execute(late)
        return [self._given(layer, late) for layer in self.outputs]

    def _fill_checked(self, index: int, array: Array, late: LateHandles) -> None:
        layer = self.inputs[index]
        wanted = layer.output.known
        if not wanted.shape.accepts(TensorInfo(array.shape).shape):
            raise ExecutionError(
                f"layer {layer} takes {wanted}, but gets a tensor of shape {list(array.shape)}", layer=layer.name
            )
        self.fill(layer, array, late)

    def _given(self, layer: Layer, late: LateHandles) -> Array:
        [value] = layer.values
        if value.is_constant:
            return constant_of(value)
        with self.handle(value, late).mapped() as array:
            return array if value in late else np.array(array)


def _regions(step: _Step | LateStep) -> Iterator[Steps]:
    if isinstance(step.workload, ControlWorkload):
        yield from step.workload.regions


def _plan_regions(regions: Sequence[Steps]) -> None:
    """Inputs of all regions of a layer live together, as those of one are kept while another one runs."""
    for region in regions:
        region._begin_inputs()
    for region in regions:
        region._plan_layers()
    for region in regions:
        region._end_inputs()


def guarded_run(layer: Layer, what: str, call: Callable[[], Any]) -> None:
    """Call `call`; an `ExecutionError` that names the layer, and the one in a region that it failed in."""
    try:
        call()
    except Exception as error:
        inside = isinstance(error, ExecutionError) and error.layer
        raise ExecutionError(
            f"layer {layer} {what} on backend {layer.backend}: {said(error)}",
            layer=f"{layer.name}/{inside}" if inside else layer.name,
            backend=error.backend if isinstance(error, ExecutionError) and inside else str(layer.backend),
        ) from error
