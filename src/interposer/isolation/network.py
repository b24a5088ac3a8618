"""Proxies of the factory and the workloads of one network in the child."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Final

from interposer.backend.capabilities import Options
from interposer.backend.memory import TensorHandle
from interposer.backend.workload import Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ir.subgraph import SubgraphView
from interposer.isolation.compilation import packer_for
from interposer.isolation.life import Life
from interposer.isolation.steps import Step, Steps, steps_of
from interposer.isolation.supervisor import Lasting, Supervisor
from interposer.isolation.tensors import ConstantHandle, SharedMemory
from interposer.isolation.wire import Packer, Plain, Replica

__all__ = ["RemoteFactory", "RemoteWorkload"]

_numbers: Final = itertools.count(1)


class RemoteFactory(WorkloadFactory):
    """The host's proxy of the workload factory of one network in the child process.

    It creates proxies of workloads, and tensor handles in memory that is shared with the child.
    """

    def __init__(self, supervisor: Supervisor, memory: SharedMemory | None, options: Options) -> None:
        self.memory = SharedMemory() if memory is None else memory
        super().__init__(self.memory)
        self.supervisor = supervisor
        self.number = next(_numbers)
        self.own_memory = False
        """True if the backend has private tensor memory, so that the child has to copy tensors."""
        self.steps = Steps(self)
        self.workloads: dict[int, weakref.ref[RemoteWorkload]] = {}
        self._request = {"do": "factory", "network": self.number, "options": dict(options)}
        self._constants: list[ConstantHandle] = []
        self._life: Life | None = None
        self._described = 0
        self.memory.attach(self.steps)
        supervisor.forget(self, "network", self.number)
        supervisor.call(self.ensure)

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the proxy of a workload that is created in the child."""
        workload = RemoteWorkload(self, layer, info)
        self.supervisor.call(workload.ensure)
        return workload

    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        """Return a tensor handle in shared memory."""
        return self.memory.new_handle(info)

    def create_constant_handle(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return the handle of a constant, which the child reads from shared memory."""
        handle = ConstantHandle(info, array, self.supervisor)
        self._constants.append(handle)
        return handle

    def ensure(self, life: Life) -> None:
        """Create the workload factory in the child process `life`, unless it exists there already."""
        if self._life is not life:
            answer = life.ask(self._request, "create_workload_factory", self.supervisor.how.deadline_seconds)
            self.own_memory = answer.get("own_memory") is True
            self._life, self._described = life, 0

    def configure(self, life: Life) -> None:
        """Create the factory, the workloads and their tensors in the child process `life`, and configure the workloads.

        What exists there already is left as it is.
        """
        self.ensure(life)
        workloads = [workload for reference in tuple(self.workloads.values()) if (workload := reference()) is not None]
        for workload in workloads:
            workload.ensure(life)
        self.describe(life)
        for workload in workloads:
            workload.configure(life)

    def describe(self, life: Life) -> None:
        """Send the infos and lifetimes of the network's tensors to the child process `life`, unless it has them."""
        count = len(self.memory.handles) + len(self._constants) + len(self.memory.moments)
        if self._described == count:
            return
        packer = Packer()
        request = {
            "do": "tensors",
            "network": self.number,
            "infos": [packer.info(handle.info) for handle in self.memory.handles],
            "lifetimes": self.memory.moments,
            "constants": [
                [constant.slot, packer.info(constant.info.with_constant(constant.array))]
                for constant in self._constants
            ],
        }
        places = self.supervisor.constants.placed(packer.arrays, life)
        life.ask(request | {"arrays": places}, "create_tensor_handle", self.supervisor.how.deadline_seconds)
        self._described = count


class RemoteWorkload(Workload):
    """The host's proxy of a layer's workload in the child process; concurrent runs may use it on different tensors."""

    concurrent = True

    def __init__(self, factory: RemoteFactory, layer: Layer, info: WorkloadInfo) -> None:
        self.factory, self.title, self._layer_name = factory, str(layer), layer.name
        operands = (layer.op.operand_name(index) for index in range(len(layer.inputs)))
        self._tensors = {
            operand: value.name for operand, value in zip(operands, layer.inputs, strict=True) if value is not None
        }
        self.number = next(_numbers)
        packer, needed_objects = packer_for(factory.supervisor)
        replica = Replica(SubgraphView(Graph(), [layer], [layer]), packer)
        self._request: Plain = {
            "do": "workload",
            "network": factory.number,
            "workload": self.number,
            "graph": replica.plain,
            "layer": replica.view[0],
            "inputs": [packer.info(input_info) for input_info in info.inputs],
            "outputs": [packer.info(output) for output in info.outputs],
        }
        self._arrays = packer.arrays
        self._needed_objects: list[Lasting] = [factory, *needed_objects]
        self._configured = False
        self._life: Life | None = None
        self._ready_life: Life | None = None
        self._step: Step | None = None
        factory.workloads[self.number] = weakref.ref(self)
        weakref.finalize(self, factory.workloads.pop, self.number, None).atexit = False
        factory.supervisor.forget(self, "workload", self.number)

    def located(self, error: InvalidValueError) -> InvalidValueError:
        """Return an error of the workload with the name of its layer and of the tensor, unless it has them already."""
        if error.layer:
            return error
        tensor = self._tensors.get(error.operand, "")
        return error.of_layer(self.title, layer=self._layer_name, backend=error.backend, tensor=tensor)

    def ensure(self, life: Life) -> None:
        """Create the workload in the child process `life`, unless it exists there already."""
        if self._life is life:
            return
        for dependency in self._needed_objects:
            dependency.ensure(life)
        supervisor = self.factory.supervisor
        request = self._request | {"arrays": supervisor.constants.placed(self._arrays, life)}
        life.ask(request, f"create_workload for layer {self.title}", supervisor.how.deadline_seconds)
        self._life = life

    def configure(self, life: Life) -> None:
        """Configure the workload in the child process `life`, if `post_allocation_configure` was called in the host."""
        self.ensure(life)
        if self._configured and self._ready_life is not life:
            self.factory.describe(life)
            request = {"do": "configure", "workload": self.number}
            request_title = f"post_allocation_configure for layer {self.title}"
            life.ask(request, request_title, self.factory.supervisor.how.deadline_seconds)
            self._ready_life = life

    def post_allocation_configure(self) -> None:
        """Call `post_allocation_configure` of the workload in the child."""
        self._configured = True
        self.factory.supervisor.call(self.configure)

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Enqueue a run of the workload on these tensors.

        It runs at the latest when the host accesses a tensor of the network. If a tensor belongs to no network, it runs
        immediately.
        """
        step = self._step
        if step is None or step.inputs is not inputs or step.outputs is not outputs:
            step = self._step_on(inputs, outputs)
        if step is None:
            self.factory.steps.run_late(self, inputs, outputs)
        else:
            step.owner.add(step)

    def _step_on(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Step | None:
        """Return the step that runs this workload on these tensors.

        None if the tensors do not all belong to one network.
        """
        owner = steps_of(outputs) or steps_of(inputs)
        step = None if owner is None else owner.step(self, inputs, outputs)
        self._step = step
        return step
