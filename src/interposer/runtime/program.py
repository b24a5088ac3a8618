"""`Program`.

The part of a loaded graph that all runs share, for a whole network or a region of a control-flow layer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from interposer.backend import Workload, WorkloadInfo
from interposer.core.room import Room
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.ops.control import Constant, Input, Output, PreCompiled
from interposer.ops.control_flow import ControlFlow
from interposer.profiling import Category
from interposer.profiling.recorder import interval
from interposer.report.estimate import operations
from interposer.runtime.factories import Factories, guarded
from interposer.runtime.flow import flow_of
from interposer.runtime.late import LateStep
from interposer.runtime.layout import layout_of
from interposer.runtime.schedule import QueueKey, Schedule
from interposer.runtime.step import Step
from interposer.runtime.tracing import NetworkSites
from interposer.runtime.workloads import DebugCallback, DebugWorkload, TransferCounts

__all__ = ["Program", "runs"]

_log: Final = logging.getLogger("interposer.runtime")


def runs(layer: Layer) -> bool:
    """Return True for layers that have work to do at run time."""
    return not isinstance(layer.op, Input | Output | Constant)


class Program:
    """The workloads of one graph in execution order, the programs of its regions, and the memory layout of its tensors.

    `room` has the limits of each run. It is None if there are no limits, or if no size and no number of iterations is
    only known during a run. `schedule` is None unless workloads are submitted to queues.

    Raises:
        LoadError: a backend could not create a workload.
    """

    def __init__(
        self,
        graph: Graph,
        factories: Factories,
        counts: TransferCounts,
        sites: NetworkSites,
        room: Room | None = None,
    ) -> None:
        self.graph, self.sites = graph, sites
        self._counts = counts
        self.order = graph.topological()
        self.shaped_by_data = shaped_by_data(graph)
        self.regions = {
            layer: [Program(region, factories, counts, sites) for region in layer.regions]
            for layer in self.order
            if isinstance(layer.op, ControlFlow)
        }
        self.room = room if self.shaped_by_data or self.regions else None
        running_layers = [layer for layer in self.order if runs(layer)]
        self._steps = {layer: self._step(layer, factories) for layer in running_layers if layer not in self.regions}
        not_planned = self.shaped_by_data | set(filter(self.is_idle, (layer.output for layer in graph.inputs)))
        may_use_pieces, supports_pieces = self._may_use_pieces, factories.supports_sub_tensors
        self.layout = layout_of(graph, self.order, not_planned, may_use_pieces, self._may_overwrite, supports_pieces)
        self.running = [layer for layer in running_layers if layer not in self.layout.workless_layers]
        is_simple = graph.owner is None and not self.shaped_by_data and not self.regions
        self.flow = flow_of(self.running, self.layout.root) if is_simple and not factories.sequential else None
        queues = self._queues(factories) if is_simple and not factories.sequential else {}
        self.schedule = Schedule.of(self.running, queues, self.layout.root) if queues else None

    def _queues(self, factories: Factories) -> dict[Layer, QueueKey]:
        """Return the queue of each layer whose workload is submitted to one."""
        queues = {}
        for layer in self.running:
            step = self._steps[layer]
            key = factories.queue_key(layer, step.workload) if isinstance(step, Step) else None
            if key is not None:
                queues[layer] = key
        return queues

    @cached_property
    def operations(self) -> int:
        """The arithmetic operations of one run of the layers whose shapes are known, without those of their regions."""
        return sum(operations(layer) for layer in self.order if layer not in self.regions)

    def is_idle(self, value: Value) -> bool:
        """Return True for an input of a region that no layer reads, so that it needs no memory."""
        return self.graph.owner is not None and isinstance(value.producer.op, Input) and not value.uses

    def is_late(self, layer: Layer) -> bool:
        """Return True if the shape of one of a layer's inputs or outputs is only known during a run."""
        return not self.shaped_by_data.isdisjoint((*layer.values, *layer.outputs))

    def only_reads(self, layer: Layer) -> bool:
        """Return True if the layer's workload is certain not to write to the arrays of its inputs."""
        if isinstance(layer.op, Output):
            return True
        step = self._steps.get(layer)
        return isinstance(step, Step) and step.workload.only_reads

    def alias(self, value: Value) -> Value | None:
        """Return the value whose memory this one may have, because only its own layer reads that one; else None."""
        step = self._steps.get(value.producer)
        if not isinstance(step, Step) or self.shaped_by_data:
            return None
        position = step.workload.aliases.get(value.index)
        source = None if position is None else value.producer.inputs[position]
        return source if source is not None and len(source.uses) == 1 else None

    def step(self, layer: Layer) -> Step | LateStep:
        """Return the step of a layer without control flow."""
        return self._steps[layer]

    def _step(self, layer: Layer, factories: Factories) -> Step | LateStep:
        host_workload = guarded(layer, "got no workload", lambda: factories.host_workload(layer, self._counts))
        if self.is_late(layer):
            return LateStep(layer, factories.of(layer), host_workload)
        info, network, backend = WorkloadInfo.of(layer), self.sites.network, str(layer.backend)
        with interval(Category.LOAD, "create workload", network=network, layer=layer.name, backend=backend):
            return Step.of(
                layer, host_workload or guarded(layer, "got no workload", lambda: factories.workload(layer, info))
            )

    def _may_use_pieces(self, layer: Layer) -> bool:
        step = self._steps.get(layer)
        return isinstance(layer.op, Input | Output) or (isinstance(step, Step) and step.workload.strided)

    def _may_overwrite(self, layer: Layer) -> bool:
        step = self._steps.get(layer)
        return isinstance(step, Step) and step.workload.in_place

    def _programs(self) -> Iterator[Program]:
        yield self
        for regions in self.regions.values():
            for region in regions:
                yield from region._programs()

    def configure(self) -> None:
        """Notify the workloads, including those of regions, that all tensors are created and planned."""
        for program in self._programs():
            for step in program._steps.values():
                if step.workload is not None:
                    guarded(step.layer, "could not be configured", step.workload.post_allocation_configure)

    def memory_of_parts(self) -> Iterator[tuple[str, int | None, bool]]:
        """Yield for each workload that holds memory its backend, the bytes, and whether these are an estimate.

        The memory is held beyond tensors and constants, such as repacked weights. The bytes are None for a workload
        that does not report them.
        """
        for layer, held_bytes, is_estimated in self.held_by_parts():
            if held_bytes != 0 or isinstance(layer.op, PreCompiled):
                yield str(layer.backend), held_bytes or None, is_estimated

    def held_by_parts(self) -> Iterator[tuple[Layer, int | None, bool]]:
        """Yield every layer that runs with the bytes that its workload holds, and whether these are an estimate."""
        for program in self._programs():
            for layer, step in program._steps.items():
                held_bytes = 0 if step.workload is None else _bytes_of(layer, step.workload)
                yield layer, held_bytes, step.workload is not None and step.workload.estimates_memory

    def set_debug_callback(self, callback: DebugCallback | None) -> None:
        """Let Debug layers call `callback` instead of printing; None lets them print again."""
        for program in self._programs():
            for step in program._steps.values():
                if isinstance(step.workload, DebugWorkload):
                    step.workload.callback = callback


def _bytes_of(layer: Layer, workload: Workload) -> int | None:
    """Return the bytes that the workload of a layer holds; None if it does not know them, or fails to report them."""
    try:
        memory_held = workload.memory
        return None if memory_held is None else int(memory_held)
    except Exception as error:
        _log.warning("backend %s does not report the memory of layer %r: %s", layer.backend, layer.name, error)
        return None
