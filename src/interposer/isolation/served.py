"""The objects in the child: the backend, and everything that the host asked it to create."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

import interposer.ops  # noqa: F401 - a graph may name any operator
from interposer.backend.base import Backend, BackendContext
from interposer.backend.contracts import backend_problem, checked
from interposer.backend.memory import ArrayHandle, MemoryManager, TensorHandle
from interposer.backend.support import Support
from interposer.backend.views import OptimizationViews, Substitution
from interposer.backend.workload import Workload, WorkloadFactory, WorkloadInfo, prepare_recording_of
from interposer.core.errors import BackendContractError
from interposer.core.room import Room, within
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.subgraph import SubgraphView
from interposer.isolation.profiled import ServedProfiling
from interposer.isolation.regions import array_at, map_region
from interposer.isolation.wire import Packer, Plain, Reader, is_described
from interposer.ops.control import PreCompiled

__all__ = ["Served"]

ABSENT: Final = -1


class Served:
    """The child's side of the connection: it answers the requests of the host.

    The method ``do_NAME`` takes the request ``NAME`` as JSON-compatible data and returns the answer in the same form.
    """

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
        self.profiling: ServedProfiling | None = None
        self.number = 0
        """The number of the message that is being answered."""

    def map(self, number: int, fd: int, size: int, writable: bool) -> None:
        """Map the region of shared memory with this number, and close `fd`.

        The first region is special: in it, the child reports the index of the running step to the host.
        """
        memory = map_region(fd, size, writable)
        os.close(fd)
        if not self.state.size:
            self.state = memory[:64].view(np.int64)
        self.regions[number] = memory

    def make(self, backend_id: str, factory: Callable[[], object]) -> None:
        """Create the backend by calling `factory`.

        Raise `BackendContractError` if the result is no valid backend with this id.
        """
        backend = factory()
        error = backend_problem(backend_id, backend)
        if error is not None or not isinstance(backend, Backend):
            raise BackendContractError(str(error))
        self.backend = backend

    def description(self) -> Plain:
        """Return the capabilities, versions and availability of the backend."""
        backend = self.backend
        return {
            "capabilities": [
                [capability.name, capability.value, capability.doc] for capability in backend.capabilities
            ],
            "api_version": list(backend.api_version),
            "version": backend.version,
            "unavailable": backend.unavailable(),
            "profiles": getattr(backend.create_backend_profiling_context, "__func__", None)
            is not Backend.create_backend_profiling_context,
        }

    # --- what messages are made of ------------------------------------------------------------------------------------

    def array(self, place: Sequence[Any]) -> Array:
        """Return the array at a location in shared memory, given as (region, offset, type, shape)."""
        region, offset, dtype, shape = place
        return array_at(self.regions[region], offset, DataType.of(dtype), shape)

    def reader(self, request: Plain, *, lenient: bool = False) -> Reader:
        """Return the decoder for the graphs and infos in a request.

        If `lenient`, operators that this process does not know are decoded to stand-ins, otherwise they are an error.
        """
        arrays = [self.array(place) for place in request.get("arrays", ())]
        return Reader(arrays, self._token, importing=True, lenient=lenient)

    def _token(self, plain: Plain) -> Op:
        compilation, number = plain["token"]
        op: Op = self.compiled[compilation][number]
        return op

    def _view(self, request: Plain, reader: Reader) -> tuple[SubgraphView, list[Layer]]:
        graph, layers = reader.graph(request["graph"])
        first, end = request["view"]
        return SubgraphView(graph, layers[first:end], layers), layers

    # --- asking and compiling -----------------------------------------------------------------------------------------

    def do_query(self, request: Plain) -> Plain:
        """Return a list of reasons for each layer of a view; empty for supported layers."""
        reader = self.reader(request, lenient=True)
        view, layers = self._view(request, reader)
        reason_of_unknown = {layers[number]: reason for number, reason in reader.unknown.items()}
        known_part = view.part([layer for layer in view if layer not in reason_of_unknown])
        supports: object = self.backend.layer_support(request["options"]).query(known_part) if len(known_part) else []
        answers: list[object] = checked(supports, list, "query", self.backend.id)
        verdicts: list[Support] = [checked(answer, Support, "query", self.backend.id) for answer in answers]
        if len(verdicts) != len(known_part):
            raise BackendContractError(f"query gave {len(verdicts)} verdicts for {len(known_part)} layers")
        remaining_verdicts = iter(verdicts)
        return {
            "verdicts": [
                [reason_of_unknown[layer]] if layer in reason_of_unknown else next(remaining_verdicts).reasons
                for layer in view
            ]
        }

    def do_optimize(self, request: Plain) -> Plain:
        """Call the backend's `optimize_subgraph` for a view and return the result.

        Compiled objects stay here, and are represented by tokens in the answer.
        """
        view, layers = self._view(request, self.reader(request))
        returned_views = self.backend.optimize_subgraph(view, request["options"])
        answer: OptimizationViews = checked(returned_views, OptimizationViews, "optimize_subgraph", self.backend.id)
        token_ops: list[Op] = []
        packer = Packer(lambda op: _token(op, token_ops))
        numbers = {layer: number for number, layer in enumerate(layers)}
        plain = {
            "substitutions": [_substitution(substitution, packer, numbers) for substitution in answer.substitutions],
            "failed": [{"part": _part(failure.part, numbers), "reason": failure.reason} for failure in answer.failed],
            "remarks": list(answer.remarks),
            "arrays": [[str(DataType.of(array.dtype)), list(array.shape)] for array in packer.arrays],
        }
        self.compiled[request["compilation"]] = token_ops
        self.results = packer.arrays
        return plain

    def do_collect(self, request: Plain) -> Plain:
        """Copy the arrays that the last request computed to the locations in shared memory that the host chose."""
        for array, (region, offset) in zip(self.results, request["places"], strict=True):
            np.copyto(array_at(self.regions[region], offset, DataType.of(array.dtype), array.shape), array)
        self.results = []
        return {}

    # --- contexts -----------------------------------------------------------------------------------------------------

    def do_context(self, request: Plain) -> Plain:
        """Create a backend context under the number in the request; return whether the backend has one."""
        backend_context = self.backend.create_backend_context(request["options"])
        if backend_context is not None:
            self.contexts[request["context"]] = checked(
                backend_context, BackendContext, "create_backend_context", self.backend.id
            )
        return {"made": backend_context is not None}

    def do_notice(self, request: Plain) -> Plain:
        """Notify a context that a network is loaded or unloaded; return whether the context agrees."""
        answer = getattr(self.contexts[request["context"]], request["notice"])(request["network"])
        return {"agrees": answer in (True, None)}

    # --- profiles -----------------------------------------------------------------------------------------------------

    def profile(self, fd: int) -> None:
        """Send the events of this process to the host by the socket `fd` while the host records."""
        self.profiling = ServedProfiling(self.backend, socket.socket(fileno=fd))

    def do_profiling_context(self, request: Plain) -> Plain:
        """Create a profiling context under the number in the request; return whether the backend has one."""
        assert self.profiling is not None
        return {"made": self.profiling.create_context(request["context"], request["options"])}

    def do_counters(self, request: Plain) -> Plain:
        """Let a profiling context register its counters, and return them."""
        assert self.profiling is not None
        return {"counters": self.profiling.register_counters(request["context"], request["greatest"])}

    # --- networks -----------------------------------------------------------------------------------------------------

    def do_factory(self, request: Plain) -> Plain:
        """Create the memory manager and the workload factory of a network under the number in the request.

        Return whether the backend has private memory, so that tensors must be copied.
        """
        served_network = ServedNetwork(self, request["options"])
        self.networks[request["network"]] = served_network
        return {"own_memory": served_network.own_memory}

    def do_workload(self, request: Plain) -> Plain:
        """Create a workload from an encoded layer, and store it under the number in the request."""
        reader = self.reader(request)
        _, layers = reader.graph(request["graph"])
        info = WorkloadInfo(tuple(map(reader.info, request["inputs"])), _infos(reader, request["outputs"]))
        workload = self.networks[request["network"]].factory.create_workload(layers[request["layer"]], info)
        self.workloads[request["workload"]] = checked(workload, Workload, "create_workload", self.backend.id)
        return {}

    def do_configure(self, request: Plain) -> Plain:
        """Call `post_allocation_configure` of a workload."""
        self.workloads[request["workload"]].post_allocation_configure()
        return {}

    def do_tensors(self, request: Plain) -> Plain:
        """Create the tensor handles and constants of a network."""
        reader = self.reader(request)
        network = self.networks[request["network"]]
        network.describe(_infos(reader, request["infos"]), request["lifetimes"])
        for slot, info in request["constants"]:
            self.constants[slot] = network.constant(reader.info(info))
        return {}

    def do_acquire(self, request: Plain) -> Plain:
        """Acquire the memory of a network's tensors."""
        self.networks[request["network"]].acquire(request["places"])
        return {}

    def do_release(self, request: Plain) -> Plain:
        """Release the memory of a network's tensors."""
        self.networks[request["network"]].release()
        return {}

    def do_plan(self, request: Plain) -> Plain:
        """Store a plan, a sequence of workloads with the tensors to run them on, which `run` executes by its number."""
        network = self.networks[request["network"]]
        if request["alone"]:
            network.plans = {0: []}
        network.plans[request["plan"]] = [
            (self.workloads[workload], tuple(map(network.handle, inputs)), tuple(map(network.handle, outputs)), outputs)
            for workload, inputs, outputs in request["steps"]
        ]
        return {}

    def run(self, body: bytes) -> None:
        """Run the plan of a network: copy tensors into the backend's memory, run the steps, and copy tensors back.

        `body` has 4-byte integers: the network, the plan, the number of tensors to copy in, their slots, and the slots
        of the tensors to copy back.
        """
        network, plan, brought_count, *slots = struct.unpack(f"<{len(body) // 4}I", body)
        self.networks[network].run(plan, slots[:brought_count], slots[brought_count:])

    def do_late(self, request: Plain) -> Plain:
        """Run a workload immediately on tensors some of which do not belong to the network.

        Return the shapes of the outputs among those; the host fetches their arrays by the request "collect".
        """
        network, reader = self.networks[request["network"]], self.reader(request)
        network.bring(request["bring"])
        inputs = [self._late_input(network, reader, operand) for operand in request["inputs"]]
        outputs = [_late_output(network, reader, operand) for operand in request["outputs"]]
        workload, is_recorded = self.workloads[request["workload"]], self.profiling is not None and self.profiling.is_on
        if is_recorded:
            prepare_recording_of(workload)
        begin = perf_counter_ns()
        with within(Room(*request["room"])):
            workload.execute(inputs, outputs)
        if self.profiling is not None and is_recorded:
            self.profiling.ran(self.number, (begin, perf_counter_ns()))
        network.fetch([slot for slot in request["outputs"] if isinstance(slot, int)])
        late_outputs = [
            output
            for output, requested_output in zip(outputs, request["outputs"], strict=True)
            if not isinstance(requested_output, int)
        ]
        self.results = [np.array(handle.map()) for handle in late_outputs]
        return {"shapes": [list(array.shape) for array in self.results]}

    def _late_input(self, network: ServedNetwork, reader: Reader, operand: Any) -> TensorHandle | None:
        if isinstance(operand, int):
            return network.handle(operand)
        [info] = _infos(reader, [operand["info"]])
        return ArrayHandle(
            info, array_at(self.regions[operand["region"]], operand["offset"], info.dtype, tuple(info.shape))
        )

    def do_drop(self, request: Plain) -> Plain:
        """Delete the objects that the host no longer uses, given as pairs of kind and number."""
        objects: Mapping[str, dict[int, Any]] = {
            "region": self.regions,
            "network": self.networks,
            "workload": self.workloads,
            "context": self.contexts,
            "compilation": self.compiled,
            "constant": self.constants,
        }
        for kind, number in request["gone"]:
            if kind == "profiling context" and self.profiling is not None:
                self.profiling.drop_context(number)
                continue
            dropped_object = objects[kind].pop(number, None)
            if isinstance(dropped_object, ServedNetwork | TensorHandle):
                dropped_object.destroy()
        return {}


def _late_output(network: ServedNetwork, reader: Reader, operand: Any) -> TensorHandle:
    if isinstance(operand, int):
        bound_handle = network.handle(operand)
        assert bound_handle is not None
        return bound_handle
    [info] = _infos(reader, [operand])
    handle = ArrayHandle(info)
    if info.is_concrete:
        handle.allocate()
    return handle


def _infos(reader: Reader, rows: Sequence[Any]) -> tuple[TensorInfo, ...]:
    infos = map(reader.info, rows)
    return tuple(info for info in infos if info is not None)


def _token(op: Op, token_ops: list[Op]) -> Plain | None:
    """Return a token for an operator that cannot be sent to the host, and append the operator to `token_ops`.

    Such operators are compiled subgraphs and operators of other packages. For all others, None is returned.
    """
    if type(op).__module__.startswith("interposer.") and is_described(op) and not isinstance(op, PreCompiled):
        return None
    token_ops.append(op)
    return {"token": len(token_ops) - 1, "outputs": op.num_results(), "title": op.op_name()}


def _part(part: SubgraphView, numbers: Mapping[Layer, int]) -> list[int]:
    return [numbers[layer] for layer in part]


def _substitution(returned_object: object, packer: Packer, numbers: Mapping[Layer, int]) -> Plain:
    substitution: Substitution = checked(returned_object, Substitution, "optimize_subgraph", "")

    def place(value: Value) -> list[int]:
        return [numbers[value.producer], value.index]

    plain = {"part": _part(substitution.part, numbers), "inputs": [place(value) for value in substitution.entering]}
    if isinstance(substitution.replacement, Graph):
        return plain | {"op": None, "graph": packer.graph(substitution.replacement)}
    return plain | {"op": packer.op(substitution.replacement)}


class ServedNetwork:
    """One network in the child: its memory manager and workload factory, tensors, and plans (sequences of steps).

    If the backend uses ordinary memory, its tensors are bound directly to the memory that the host shares. If it has
    private memory, tensors that the host needs are copied.
    """

    def __init__(self, served: Served, options: Mapping[str, Any]) -> None:
        self._served, backend = served, served.backend
        manager: object = backend.create_memory_manager()
        self.manager = None if manager is None else checked(manager, MemoryManager, "create_memory_manager", backend.id)
        workload_factory = backend.create_workload_factory(self.manager, options)
        self.factory = checked(workload_factory, WorkloadFactory, "create_workload_factory", backend.id)
        self.own_memory = not self.factory.makes_arrays
        self.plans: dict[int, list[Any]] = {0: []}
        self._handles: dict[int, TensorHandle | None] = {ABSENT: None}
        self._shared_arrays: dict[int, Array] = {}
        self._acquired = False

    def handle(self, slot: int) -> TensorHandle | None:
        """Return the handle of the tensor with this slot, the number by which the host refers to it.

        Tensors have slots from 0 on. `ABSENT` (-1) is an absent input, which has no handle, and lower slots are
        constants.
        """
        return self._handles[slot] if slot >= ABSENT else self._served.constants[slot]

    def describe(self, infos: Sequence[TensorInfo], lifetimes: Sequence[Sequence[int]]) -> None:
        """Create a handle for each tensor, numbered from slot 0, and replay the beginnings and ends of their lifetimes.

        `lifetimes` has one (slot, ended) pair for each of these moments, in order.
        """
        for slot, info in enumerate(infos):
            own_memory = self.own_memory
            self._handles[slot] = self.factory.new_handle(info, None, managed=True) if own_memory else ArrayHandle(info)
        for slot, has_ended in lifetimes if self.own_memory else ():
            handle = self._handles[slot]
            if handle is not None:
                (handle.allocate if has_ended else handle.manage)()

    def constant(self, info: TensorInfo | None) -> TensorHandle:
        """Create a constant in the backend from an info that contains its array, and return the handle."""
        assert info is not None
        assert info.constant is not None
        return checked(
            self.factory.create_constant_handle(info, info.constant), TensorHandle, "create_constant_handle", ""
        )

    def acquire(self, places: Sequence[Sequence[int]]) -> None:
        """Acquire the memory on the first call, and store where the tensors lie in shared memory.

        `places` has a triple (slot, region, offset in bytes) for each tensor. The host calls this again if a place has
        changed.
        """
        if not self._acquired and self.manager is not None:
            self.manager.acquire()
        self._acquired = True
        for slot, region, offset in places:
            handle = self._handles[slot]
            assert handle is not None
            info = handle.info
            self._shared_arrays[slot] = array_at(self._served.regions[region], offset, info.dtype, tuple(info.shape))
            if isinstance(handle, ArrayHandle) and not self.own_memory:
                handle.bind(self._shared_arrays[slot].reshape(-1).view(np.uint8))

    def release(self) -> None:
        """Release the memory."""
        if self._acquired and self.manager is not None:
            self.manager.release()
        self._acquired = False

    def destroy(self) -> None:
        """Destroy the handles of all tensors, newest first."""
        for handle in reversed(self._handles.values()):
            if handle is not None:
                handle.destroy()
        self._handles.clear()

    def run(self, plan: int, brought: Sequence[int], fetched: Sequence[int]) -> None:
        """Run the plan with this number.

        The tensors with the slots `brought` are copied into the backend's memory before it, and those with the slots
        `fetched` are copied back to shared memory after it.
        """
        state = self._served.state
        if brought:
            self.bring(brought)
        profiling = self._served.profiling
        if profiling is not None and profiling.is_on:
            self._run_timed(plan, profiling)
        else:
            for number, (workload, inputs, outputs, _) in enumerate(self.plans[plan]):
                state[0] = number
                workload.execute(inputs, outputs)
        if fetched:
            self.fetch(fetched)

    def _run_timed(self, plan: int, profiling: ServedProfiling) -> None:
        for workload, *_ in self.plans[plan]:
            prepare_recording_of(workload)
        state, times = self._served.state, [perf_counter_ns()]
        for number, (workload, inputs, outputs, _) in enumerate(self.plans[plan]):
            state[0] = number
            workload.execute(inputs, outputs)
            times.append(perf_counter_ns())
        profiling.ran(self._served.number, tuple(times))

    def bring(self, slots: Sequence[int]) -> None:
        """Copy the tensors with these slots from the shared memory into the backend's memory."""
        for slot in slots:
            handle = self._handles[slot]
            if handle is not None:
                handle.copy_in(self._shared_arrays[slot])

    def fetch(self, slots: Sequence[int]) -> None:
        """Copy the tensors with these slots from the backend's private memory, if it has any, to the shared memory."""
        for slot in slots if self.own_memory else ():
            handle = self._handles[slot]
            if handle is not None:
                handle.copy_out(self._shared_arrays[slot])
