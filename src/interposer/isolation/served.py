"""What the child has for its host: the backend, and everything that the host asked it to make."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

import interposer.ops  # noqa: F401 - a graph may name any operator
from interposer.backend.base import Backend, BackendContext
from interposer.backend.contracts import backend_fault, checked
from interposer.backend.memory import ArrayHandle, MemoryManager, TensorHandle
from interposer.backend.support import Support
from interposer.backend.views import OptimizationViews, Substitution
from interposer.backend.workload import Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import BackendContractError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.subgraph import SubgraphView
from interposer.isolation.regions import array_at, map_region
from interposer.isolation.wire import Packer, Plain, Reader, is_described
from interposer.ops.control import PreCompiled

__all__ = ["Served"]

ABSENT: Final = -1


class Served:
    """Answers one question after the other; methods called ``do_...`` take what the host told and give the answer."""

    def __init__(self) -> None:
        self.backend = Backend()
        self.regions: dict[int, Array] = {}
        self.state: Array = np.zeros(0, np.int64)
        self.networks: dict[int, ServedNetwork] = {}
        self.workloads: dict[int, Workload] = {}
        self.contexts: dict[int, BackendContext] = {}
        self.compiled: dict[int, list[Op]] = {}
        self.constants: dict[int, TensorHandle] = {}
        self.results: list[Array] = []

    def map(self, number: int, fd: int, size: int, writable: bool) -> None:
        """Have a region of shared memory; the first one is for telling the host which step runs."""
        memory = map_region(fd, size, writable)
        os.close(fd)
        if not self.state.size:
            self.state = memory[:64].view(np.int64)
        self.regions[number] = memory

    def make(self, backend_id: str, factory: Callable[[], object]) -> None:
        """Make the backend; the error says what is wrong with it."""
        made = factory()
        fault = backend_fault(backend_id, made)
        if fault is not None or not isinstance(made, Backend):
            raise BackendContractError(str(fault))
        self.backend = made

    def description(self) -> Plain:
        """What the backend says of itself."""
        backend = self.backend
        return {
            "capabilities": [[one.name, one.value, one.doc] for one in backend.capabilities],
            "api_version": list(backend.api_version),
            "version": backend.version,
            "unavailable": backend.unavailable(),
        }

    # --- what messages are made of ------------------------------------------------------------------------------------

    def array(self, place: Sequence[Any]) -> Array:
        """The array at a place in shared memory."""
        region, offset, dtype, shape = place
        return array_at(self.regions[region], offset, DataType.of(dtype), shape)

    def reader(self, told: Plain, *, lenient: bool = False) -> Reader:
        """What reads the graphs and infos in a message."""
        arrays = [self.array(place) for place in told.get("arrays", ())]
        return Reader(arrays, self._token, importing=True, lenient=lenient)

    def _token(self, plain: Plain) -> Op:
        compilation, number = plain["token"]
        found: Op = self.compiled[compilation][number]
        return found

    def _view(self, told: Plain, reader: Reader) -> tuple[SubgraphView, list[Layer]]:
        graph, layers = reader.graph(told["graph"])
        first, end = told["view"]
        return SubgraphView(graph, layers[first:end], layers), layers

    # --- asking and compiling -----------------------------------------------------------------------------------------

    def do_query(self, told: Plain) -> Plain:
        """Reasons for each layer of a view, none for a yes."""
        reader = self.reader(told, lenient=True)
        view, layers = self._view(told, reader)
        strange = {layers[number]: reason for number, reason in reader.unknown.items()}
        asked = view.part([layer for layer in view if layer not in strange])
        found: object = self.backend.layer_support(told["options"]).query(asked) if len(asked) else []
        answers: list[object] = checked(found, list, "query", self.backend.id)
        verdicts: list[Support] = [checked(one, Support, "query", self.backend.id) for one in answers]
        if len(verdicts) != len(asked):
            raise BackendContractError(f"query gave {len(verdicts)} verdicts for {len(asked)} layers")
        given = iter(verdicts)
        return {"verdicts": [[strange[layer]] if layer in strange else next(given).reasons for layer in view]}

    def do_optimize(self, told: Plain) -> Plain:
        """What the backend makes of a view; objects of its own stay here, under tokens."""
        view, layers = self._view(told, self.reader(told))
        found = self.backend.optimize_subgraph(view, told["options"])
        answer: OptimizationViews = checked(found, OptimizationViews, "optimize_subgraph", self.backend.id)
        kept: list[Op] = []
        packer = Packer(lambda op: _kept(op, kept))
        numbers = {layer: number for number, layer in enumerate(layers)}
        plain = {
            "substitutions": [_substitution(one, packer, numbers) for one in answer.substitutions],
            "failed": [{"part": _part(one.part, numbers), "reason": one.reason} for one in answer.failed],
            "arrays": [[str(DataType.of(array.dtype)), list(array.shape)] for array in packer.arrays],
        }
        self.compiled[told["compilation"]] = kept
        self.results = packer.arrays
        return plain

    def do_collect(self, told: Plain) -> Plain:
        """Copy the results of the last question to where the host wants them."""
        for array, (region, offset) in zip(self.results, told["places"], strict=True):
            np.copyto(array_at(self.regions[region], offset, DataType.of(array.dtype), array.shape), array)
        self.results = []
        return {}

    # --- contexts -----------------------------------------------------------------------------------------------------

    def do_context(self, told: Plain) -> Plain:
        """Make a context."""
        made = self.backend.create_backend_context(told["options"])
        if made is not None:
            self.contexts[told["context"]] = checked(made, BackendContext, "create_backend_context", self.backend.id)
        return {"made": made is not None}

    def do_notice(self, told: Plain) -> Plain:
        """Tell a context of a network."""
        answer = getattr(self.contexts[told["context"]], told["notice"])(told["network"])
        return {"agrees": answer in (True, None)}

    # --- networks -----------------------------------------------------------------------------------------------------

    def do_factory(self, told: Plain) -> Plain:
        """Make the memory manager and the workload factory of a network."""
        made = ServedNetwork(self, told["options"])
        self.networks[told["network"]] = made
        return {"own_memory": made.own_memory}

    def do_workload(self, told: Plain) -> Plain:
        """Make a workload."""
        reader = self.reader(told)
        _, layers = reader.graph(told["graph"])
        info = WorkloadInfo(tuple(map(reader.info, told["inputs"])), _infos(reader, told["outputs"]))
        made = self.networks[told["network"]].factory.create_workload(layers[told["layer"]], info)
        self.workloads[told["workload"]] = checked(made, Workload, "create_workload", self.backend.id)
        return {}

    def do_configure(self, told: Plain) -> Plain:
        """Let a workload configure itself."""
        self.workloads[told["workload"]].post_allocation_configure()
        return {}

    def do_tensors(self, told: Plain) -> Plain:
        """Know the tensors of a network."""
        reader = self.reader(told)
        network = self.networks[told["network"]]
        network.describe(_infos(reader, told["infos"]), told["lifetimes"])
        for slot, info in told["constants"]:
            self.constants[slot] = network.constant(reader.info(info))
        return {}

    def do_acquire(self, told: Plain) -> Plain:
        """Have the memory of a network's tensors."""
        self.networks[told["network"]].acquire(told["places"])
        return {}

    def do_release(self, told: Plain) -> Plain:
        """Let the memory go."""
        self.networks[told["network"]].release()
        return {}

    def do_plan(self, told: Plain) -> Plain:
        """Know an order of steps."""
        network = self.networks[told["network"]]
        if told["alone"]:
            network.plans = {0: []}
        network.plans[told["plan"]] = [
            (self.workloads[workload], tuple(map(network.handle, inputs)), tuple(map(network.handle, outputs)), outputs)
            for workload, inputs, outputs in told["steps"]
        ]
        return {}

    def run(self, body: bytes) -> None:
        """Run a plan: bring tensors into the backend's memory, run the steps, give tensors to the host."""
        network, plan, brought, *slots = struct.unpack(f"<{len(body) // 4}I", body)
        self.networks[network].run(plan, slots[:brought], slots[brought:])

    def do_late(self, told: Plain) -> Plain:
        """Run a workload on tensors that are partly no tensors of the network."""
        network, reader = self.networks[told["network"]], self.reader(told)
        network.bring(told["bring"])
        inputs = [self._late_input(network, reader, one) for one in told["inputs"]]
        outputs = [_late_output(network, reader, one) for one in told["outputs"]]
        self.workloads[told["workload"]].execute(inputs, outputs)
        network.fetch([slot for slot in told["outputs"] if isinstance(slot, int)])
        found = [one for one, told_of in zip(outputs, told["outputs"], strict=True) if not isinstance(told_of, int)]
        self.results = [np.array(handle.map()) for handle in found]
        return {"shapes": [list(array.shape) for array in self.results]}

    def _late_input(self, network: ServedNetwork, reader: Reader, told: Any) -> TensorHandle | None:
        if isinstance(told, int):
            return network.handle(told)
        [info] = _infos(reader, [told["info"]])
        return ArrayHandle(info, array_at(self.regions[told["region"]], told["offset"], info.dtype, tuple(info.shape)))

    def do_drop(self, told: Plain) -> Plain:
        """Forget what the host has no use for any more."""
        kept: Mapping[str, dict[int, Any]] = {
            "region": self.regions,
            "network": self.networks,
            "workload": self.workloads,
            "context": self.contexts,
            "compilation": self.compiled,
            "constant": self.constants,
        }
        for kind, number in told["gone"]:
            gone = kept[kind].pop(number, None)
            if isinstance(gone, ServedNetwork | TensorHandle):
                gone.destroy()
        return {}


def _late_output(network: ServedNetwork, reader: Reader, told: Any) -> TensorHandle:
    if isinstance(told, int):
        found = network.handle(told)
        assert found is not None
        return found
    [info] = _infos(reader, [told])
    handle = ArrayHandle(info)
    if info.is_concrete:
        handle.allocate()
    return handle


def _infos(reader: Reader, told: Sequence[Any]) -> tuple[TensorInfo, ...]:
    found = map(reader.info, told)
    return tuple(info for info in found if info is not None)


def _kept(op: Op, kept: list[Op]) -> Plain | None:
    """The token for an operator that the host cannot know; it is kept."""
    if type(op).__module__.startswith("interposer.") and is_described(op) and not isinstance(op, PreCompiled):
        return None
    kept.append(op)
    return {"token": len(kept) - 1, "outputs": op.num_results(), "title": op.op_name()}


def _part(part: SubgraphView, numbers: Mapping[Layer, int]) -> list[int]:
    return [numbers[layer] for layer in part]


def _substitution(given: object, packer: Packer, numbers: Mapping[Layer, int]) -> Plain:
    one: Substitution = checked(given, Substitution, "optimize_subgraph", "")

    def place(value: Value) -> list[int]:
        return [numbers[value.producer], value.index]

    plain = {"part": _part(one.part, numbers), "inputs": [place(value) for value in one.entering]}
    if isinstance(one.replacement, Graph):
        return plain | {"op": None, "graph": packer.graph(one.replacement)}
    return plain | {"op": packer.op(one.replacement)}


class ServedNetwork:
    """One network: its manager and factory, its tensors, and its plans.

    Where the backend's handles lie in ordinary memory, they are made to lie in the memory that the host shares.
    Otherwise they are the backend's own, and what the host needs is copied.
    """

    def __init__(self, served: Served, options: Mapping[str, Any]) -> None:
        self._served, backend = served, served.backend
        manager: object = backend.create_memory_manager()
        self.manager = None if manager is None else checked(manager, MemoryManager, "create_memory_manager", backend.id)
        made = backend.create_workload_factory(self.manager, options)
        self.factory = checked(made, WorkloadFactory, "create_workload_factory", backend.id)
        self.own_memory = type(self.factory).create_tensor_handle is not WorkloadFactory.create_tensor_handle
        self.plans: dict[int, list[Any]] = {0: []}
        self._handles: dict[int, TensorHandle | None] = {ABSENT: None}
        self._shared: dict[int, Array] = {}
        self._acquired = False

    def handle(self, slot: int) -> TensorHandle | None:
        """The handle of a tensor; None for an input that is absent. Constants have numbers below that one's."""
        return self._handles[slot] if slot >= ABSENT else self._served.constants[slot]

    def describe(self, infos: Sequence[TensorInfo], lifetimes: Sequence[Sequence[int]]) -> None:
        """Make a handle for each tensor, and let them live and die in this order."""
        make = self.factory.create_tensor_handle if self.own_memory else ArrayHandle
        self._handles |= {slot: make(info) for slot, info in enumerate(infos)}
        for slot, ended in lifetimes if self.own_memory else ():
            handle = self._handles[slot]
            if handle is not None:
                (handle.allocate if ended else handle.manage)()

    def constant(self, info: TensorInfo | None) -> TensorHandle:
        """The handle of a constant."""
        assert info is not None
        assert info.constant is not None
        return checked(
            self.factory.create_constant_handle(info, info.constant), TensorHandle, "create_constant_handle", ""
        )

    def acquire(self, places: Sequence[Sequence[int]]) -> None:
        """Get the memory; where a tensor lies in shared memory may be told again."""
        if not self._acquired and self.manager is not None:
            self.manager.acquire()
        self._acquired = True
        for slot, region, offset in places:
            handle = self._handles[slot]
            assert handle is not None
            info = handle.info
            self._shared[slot] = array_at(self._served.regions[region], offset, info.dtype, tuple(info.shape))
            if isinstance(handle, ArrayHandle) and not self.own_memory:
                handle.bind(self._shared[slot].reshape(-1).view(np.uint8))

    def release(self) -> None:
        """Let the memory go."""
        if self._acquired and self.manager is not None:
            self.manager.release()
        self._acquired = False

    def destroy(self) -> None:
        """Destroy the handles of all tensors, the newest first."""
        for handle in reversed(self._handles.values()):
            if handle is not None:
                handle.destroy()
        self._handles.clear()

    def run(self, plan: int, brought: Sequence[int], fetched: Sequence[int]) -> None:
        """Run a plan between copying tensors in and out."""
        state = self._served.state
        if brought:
            self.bring(brought)
        for number, (workload, inputs, outputs, _) in enumerate(self.plans[plan]):
            state[0] = number
            workload.execute(inputs, outputs)
        if fetched:
            self.fetch(fetched)

    def bring(self, slots: Sequence[int]) -> None:
        """Copy tensors from the host into the backend's memory."""
        for slot in slots:
            handle = self._handles[slot]
            if handle is not None:
                handle.copy_in(self._shared[slot])

    def fetch(self, slots: Sequence[int]) -> None:
        """Copy tensors from the backend's memory to the host."""
        for slot in slots if self.own_memory else ():
            handle = self._handles[slot]
            if handle is not None:
                handle.copy_out(self._shared[slot])
