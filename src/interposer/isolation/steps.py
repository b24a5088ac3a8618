"""Batching of the steps that a child runs, and a log for repeating them after a restart.

Queued steps are sent to the child in one message when the host next accesses a tensor of the network. The steps since
the host last overwrote one of their inputs are logged, so that a restarted child can repeat them.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np

from interposer.backend.memory import TensorHandle
from interposer.core.errors import BackendError, InvalidValueError
from interposer.core.room import current_room
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.isolation.life import Life
from interposer.isolation.profiling import Mark, mark
from interposer.isolation.regions import Region, aligned, array_at, info_bytes
from interposer.isolation.supervisor import Supervisor
from interposer.isolation.tensors import GIVEN, MADE, ConstantHandle, SharedHandle, SharedMemory
from interposer.isolation.wire import Packer, Plain, reading
from interposer.profiling.recorder import active

__all__ = ["Step", "Steps", "steps_of"]

MOST_STEPS: Final = 4096
"""The largest number of queued steps."""
MOST_PLANS: Final = 256
"""The largest number of cached plans per network."""
LONGEST_LATE: Final = 1 << 36
"""The largest size in bytes of a tensor whose shape the child determines."""
ABSENT: Final = -1
"""The slot number of an absent optional input. Constants have lower slot numbers."""


class Network(Protocol):
    """The interface that `Steps` needs of the `RemoteFactory` of a network: its number in the child, and its tensors.

    `own_memory` is True if the backend has private memory, so that tensors must be copied.
    """

    number: int
    memory: SharedMemory
    supervisor: Supervisor
    own_memory: bool

    def configure(self, life: Life) -> None:
        """Create the missing objects of the network in the child process `life`: factory, workloads and tensors."""


class Work(Protocol):
    """The interface that `Steps` needs of a `RemoteWorkload`: its number in the child, and its layer as `title`."""

    number: int
    title: str

    def located(self, error: InvalidValueError) -> InvalidValueError:
        """Return an error of the workload with the name of its layer and of the tensor."""

    @property
    def factory(self) -> Network:
        """The factory of the network that the workload belongs to."""


class Step:
    """One execution of a workload in the child, on certain tensors.

    `reads` and `writes` are the slots of its inputs and outputs: the numbers of these tensors in their network.
    """

    __slots__ = ("inputs", "number", "outputs", "owner", "reads", "workload", "writes")

    def __init__(
        self, owner: Steps, number: int, workload: Work, reads: tuple[int, ...], writes: tuple[int, ...]
    ) -> None:
        self.owner, self.number, self.workload = owner, number, workload
        self.reads, self.writes = reads, writes
        self.inputs: Sequence[TensorHandle | None] = ()
        self.outputs: Sequence[TensorHandle] = ()


class Plan:
    """A sequence of steps that the child stores under a number and runs with one message.

    `reads` are the slots of the tensors that must have contents before it, and `writes` those of all its results.
    """

    def __init__(self, number: int, steps: Sequence[Step]) -> None:
        self.number, self.steps = number, steps
        self.numbers = frozenset(step.number for step in steps)
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        for step in steps:
            self.reads.update(slot for slot in step.reads if slot >= 0 and slot not in self.writes)
            self.writes.update(step.writes)

    @property
    def plain(self) -> list[Any]:
        """The plan as the child gets it: for each step, the number of the workload and the slots of its tensors."""
        return [[step.workload.number, step.reads, step.writes] for step in self.steps]

    def layer_of(self, index: int) -> str:
        """Return the layer of a step by its index; an empty string if the index is out of range."""
        return self.steps[index].workload.title if 0 <= index < len(self.steps) else ""

    def located(self, error: InvalidValueError, index: int) -> InvalidValueError:
        """Return the error of a step by its index, with the name of its layer."""
        return self.steps[index].workload.located(error) if 0 <= index < len(self.steps) else error


class Steps:
    """Runs the workloads of one network in the child process, with as few messages as possible.

    Executions are queued as steps, and run together when the host accesses a tensor. Steps that have run are logged, so
    that a restarted child can repeat them.
    """

    def __init__(self, factory: Network) -> None:
        self._factory, self._memory = factory, factory.memory
        self._queue: deque[tuple[Step, Mark | None]] = deque()  # with marks while something records
        self._turn = threading.RLock()  # held while steps run, so that no branch uses tensors before they are computed
        self._steps: dict[tuple[Any, ...], Step] = {}
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._sent_plans: set[int] = set()
        self._numbers = itertools.count(1)
        self._log: list[Plan] = []
        self._logged_reads: set[int] = set()
        self._logged_steps: set[int] = set()
        self._life: Life | None = None
        self._version = -1
        self._child_has: dict[
            int, Life
        ] = {}  # only for backends with private memory: which process has a tensor's content
        self._host_lacks: set[int] = set()  # slots whose content the host does not have
        self._scratch: Region | None = None
        _all_steps.add(self)

    # --- gathering ----------------------------------------------------------------------------------------------------

    def step(
        self, workload: Work, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]
    ) -> Step | None:
        """Return the step that executes a workload on these tensors, the same object for the same tensors.

        None if some of the tensors belong to another network.
        """
        if not all(self._is_own(handle) for handle in (*inputs, *outputs)):
            return None
        reads, writes = tuple(map(self._slot, inputs)), tuple(map(self._slot, outputs))
        for handle in outputs:
            if isinstance(handle, SharedHandle) and handle.mode != MADE:
                self._memory.sort(handle, MADE)
        for input_handle in inputs:
            if isinstance(input_handle, SharedHandle) and input_handle.mode not in (GIVEN, MADE):
                self._memory.sort(input_handle, GIVEN)
        key = (workload.number, reads, writes)
        if key not in self._steps:
            self._steps[key] = Step(self, len(self._steps), workload, reads, writes)
        step = self._steps[key]
        step.inputs, step.outputs = inputs, outputs
        return step

    def _is_own(self, handle: TensorHandle | None) -> bool:
        if isinstance(handle, ConstantHandle):
            return handle.supervisor is self._factory.supervisor
        return handle is None or (isinstance(handle, SharedHandle) and handle.memory is self._memory)

    def _slot(self, handle: TensorHandle | None) -> int:
        return handle.slot if isinstance(handle, SharedHandle | ConstantHandle) else ABSENT

    def add(self, step: Step) -> None:
        """Enqueue a step."""
        self._queue.append((step, mark() if active else None))
        if len(self._queue) >= MOST_STEPS:
            self.flush()

    def before_host(self, handle: SharedHandle, writing: bool) -> None:
        """Run all queued steps before the host reads a tensor or, if `writing`, changes it."""
        with self._taking_turn():
            if self._queue:
                self.flush()
            if self._factory.own_memory:
                if handle.slot in self._host_lacks:
                    self._fetch(handle.slot)
                self._child_has.pop(handle.slot, None)  # the host may change what it maps
            if writing and handle.slot in self._logged_reads:
                self._forget_log()

    @contextmanager
    def _taking_turn(self) -> Iterator[None]:
        """Hold the lock; a recorded run has the time in which another branch lets the child run steps."""
        if not self._turn.acquire(blocking=False):
            begin = perf_counter_ns() if active else 0
            self._turn.acquire()
            if begin:
                self._factory.supervisor.stream.waited(begin)
        try:
            yield
        finally:
            self._turn.release()

    def _forget_log(self) -> None:
        self._log.clear()
        self._logged_reads.clear()
        self._logged_steps.clear()

    # --- running ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Let the child run the queued steps, and log them for a repetition after a restart.

        Raises:
            BackendCrashedError: the child failed, and must not be restarted.
            BackendError: the backend raised an exception.
        """
        with self._turn:
            queued_steps = [self._queue.popleft() for _ in range(len(self._queue))]
            if not queued_steps:  # another thread has run them
                return
            plan, marks = self._plan([step for step, _ in queued_steps]), [mark for _, mark in queued_steps]
            self._factory.supervisor.call(lambda life: self._run(life, plan, marks))
            if not self._logged_steps.isdisjoint(plan.numbers):
                self._forget_log()
            self._log.append(plan)
            self._logged_steps |= plan.numbers
            self._logged_reads |= plan.reads

    def _plan(self, steps: Sequence[Step]) -> Plan:
        key = tuple([step.number for step in steps])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
                self._sent_plans.clear()
            plan = self._plans[key] = Plan(next(self._numbers), steps)
        return plan

    def _run(self, life: Life, plan: Plan, marks: Sequence[Mark | None]) -> None:
        self._catch_up(life)
        self._execute(life, plan, marks)

    def _catch_up(self, life: Life) -> None:
        """Send changed locations of tensors to the child process `life`.

        If the process is new, let it repeat the logged steps.
        """
        if self._life is life and self._version == self._memory.version:
            return
        self._prepare(life)
        if self._life is not life:
            for logged_plan in self._log:
                self._execute(life, logged_plan)
            self._life = life

    def _prepare(self, life: Life) -> None:
        factory, memory = self._factory, self._memory
        factory.configure(life)
        if self._life is not life:
            self._sent_plans.clear()
        seconds = factory.supervisor.how.deadline_seconds
        version = memory.version  # before the places: a thread of another branch may change one of them from here on
        places = [
            (handle.slot, region, handle.place)
            for handle in memory.handles
            if (region := memory.region(handle)) is not None
        ]
        for _, region, _ in places:
            life.map(region, seconds)
        request: Plain = {"do": "acquire", "network": factory.number}
        request["places"] = [[slot, region.number, place] for slot, region, place in places]
        life.ask(request, "the getting of memory", seconds)
        self._version = version

    def _execute(self, life: Life, plan: Plan, marks: Sequence[Mark | None] = ()) -> None:
        seconds = self._factory.supervisor.how.deadline_seconds
        if plan.number not in self._sent_plans:
            for factory in {step.workload.factory for step in plan.steps}:
                factory.configure(life)
            request = {"do": "plan", "network": self._factory.number, "plan": plan.number, "steps": plan.plain}
            life.ask(request | {"alone": not self._sent_plans}, "the run", seconds)
            self._sent_plans.add(plan.number)
        brought_slots = self._to_bring(life, plan.reads)
        with self._factory.supervisor.stream.message(life, marks):
            try:
                life.run(_body(self._factory.number, plan.number, brought_slots, ()), plan.layer_of, seconds)
            except InvalidValueError as error:
                raise plan.located(error, life.step_index) from error.__cause__
        if self._factory.own_memory:
            self._child_has |= dict.fromkeys([*brought_slots, *plan.writes], life)
            self._host_lacks |= plan.writes

    def _to_bring(self, life: Life, slots: set[int]) -> list[int]:
        """Return the slots whose tensors the child must copy from shared memory into the backend's private memory.

        Empty if the backend has no private memory.

        Raises:
            BackendError: the only copy of a tensor was lost with an earlier child process.
        """
        if not self._factory.own_memory:
            return []
        missing_slots = [slot for slot in slots if self._child_has.get(slot) is not life]
        lost_slots = [slot for slot in missing_slots if slot in self._host_lacks]
        if lost_slots:
            message = "the child process was lost together with tensors that only it had"
            raise BackendError(message, backend=self._factory.supervisor.backend)
        return missing_slots

    def _fetch(self, slot: int) -> None:
        """Let the child copy the tensor with this slot from the backend's private memory to shared memory."""

        def action(life: Life) -> None:
            self._catch_up(life)
            self._to_bring(life, {slot})  # it is there, or lost
            body = _body(self._factory.number, 0, (), (slot,))
            life.run(body, lambda index: "", self._factory.supervisor.how.deadline_seconds)

        self._factory.supervisor.call(action)
        self._host_lacks.discard(slot)

    # --- memory -------------------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Let the child acquire the memory of the network's tensors, and send it their locations."""
        self._factory.supervisor.call(self._catch_up)

    def release(self) -> None:
        """Release the memory in the child, if it is running; queued steps are dropped."""
        self._queue.clear()
        self._forget_log()
        self._child_has.clear()
        self._host_lacks.clear()
        life, self._life = self._life, None
        supervisor, request = self._factory.supervisor, {"do": "release", "network": self._factory.number}
        if life is not None and not life.ended:
            supervisor.once(lambda _: life.ask(request, "the release of memory", supervisor.how.deadline_seconds))

    # --- tensors of unknown shape -------------------------------------------------------------------------------------

    def run_late(self, workload: Work, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Run a workload immediately on tensors some of which belong to no network, after all queued steps.

        Such tensors are copied to memory that the child can access, and the results are copied back.
        """
        with self._turn:
            if self._queue:
                self.flush()
            late_outputs = self._factory.supervisor.call(lambda life: self._run_late(life, workload, inputs, outputs))
        for handle, array in late_outputs:
            if not handle.info.is_concrete:
                handle.resize(array.shape)
            handle.copy_in(array)

    def _run_late(
        self,
        life: Life,
        workload: Work,
        inputs: Sequence[TensorHandle | None],
        outputs: Sequence[TensorHandle],
    ) -> list[tuple[TensorHandle, Array]]:
        for output in outputs:
            if isinstance(output, SharedHandle) and self._is_own(output) and output.mode != MADE:
                self._memory.sort(output, MADE)
        self._catch_up(life)
        workload.factory.configure(life)
        seconds, request_title = self._factory.supervisor.how.deadline_seconds, f"the run of layer {workload.title}"
        other_inputs = [handle for handle in inputs if handle is not None and not self._is_own(handle)]
        brought_tensors = self._bring_in(life, other_inputs)
        request: Plain = {
            "do": "late",
            "network": self._factory.number,
            "workload": workload.number,
            "inputs": [brought_tensors.get(id(handle), self._slot(handle)) for handle in inputs],
            "outputs": [self._late_output(handle) for handle in outputs],
        }
        own_slots = {handle.slot for handle in inputs if isinstance(handle, SharedHandle) and self._is_own(handle)}
        request["bring"] = self._to_bring(life, own_slots)
        room = current_room()
        request["room"] = [room.limit, room.used]
        with self._factory.supervisor.stream.message(life, [mark()] if active else ()):
            try:
                answer = life.ask(request, request_title, seconds)
            except InvalidValueError as error:
                raise workload.located(error) from error.__cause__
        self._forget_late(
            [handle.slot for handle in outputs if isinstance(handle, SharedHandle) and self._is_own(handle)]
        )
        late_outputs = [handle for handle in outputs if not self._is_own(handle)]
        with reading(f"the answer of layer {workload.title}"):
            infos = [
                _actual_info(handle.info, shape) for handle, shape in zip(late_outputs, answer["shapes"], strict=True)
            ]
        return list(zip(late_outputs, self._collect(life, infos), strict=True))

    def _forget_late(self, written_slots: Sequence[int]) -> None:
        """Record that `run_late` has brought the tensors with these slots up to date in the host.

        The log of steps is deleted, since repeating them would not give these contents.
        """
        for slot in written_slots:
            self._forget_log()
            self._host_lacks.discard(slot)
            self._child_has.pop(slot, None)

    def _late_output(self, handle: TensorHandle) -> Any:
        if not self._is_own(handle):
            return Packer().info(handle.info.with_constant(None))
        return self._slot(handle)

    def _bring_in(self, life: Life, handles: Sequence[TensorHandle]) -> dict[int, Plain]:
        """Copy tensors to scratch memory that the child `life` can read.

        Returns what the child needs to find each tensor (its info, region and offset), by the `id` of the handle.
        """
        packer, located_tensors = Packer(), dict[int, Plain]()
        scratch, offset = self._scratch_region(life, [handle.info for handle in handles]), 0
        with ExitStack() as stack:
            for handle in handles:
                info = handle.info.with_constant(None)
                array = stack.enter_context(handle.mapped())
                np.copyto(array_at(scratch.bytes, offset, info.dtype, array.shape), array)
                located_tensors[id(handle)] = {"info": packer.info(info), "region": scratch.number, "offset": offset}
                offset += aligned(info_bytes(info))
        return located_tensors

    def _collect(self, life: Life, infos: Sequence[TensorInfo]) -> list[Array]:
        """Return copies of the arrays that the child `life` computed in the last request, whose infos are given."""
        scratch, offset, places, arrays = self._scratch_region(life, infos), 0, list[list[int]](), list[Array]()
        for info in infos:
            places.append([scratch.number, offset])
            arrays.append(array_at(scratch.bytes, offset, info.dtype, tuple(info.shape)))
            offset += aligned(info_bytes(info))
        seconds = self._factory.supervisor.how.deadline_seconds
        life.ask({"do": "collect", "places": places}, "the giving of results", seconds)
        return [array.copy() for array in arrays]

    def _scratch_region(self, life: Life, infos: Sequence[TensorInfo]) -> Region:
        size = sum(aligned(info_bytes(info)) for info in infos)
        if self._scratch is None or self._scratch.size < size:
            self._scratch = Region(size, writable=True)
        life.map(self._scratch, self._factory.supervisor.how.deadline_seconds)
        return self._scratch


def steps_of(handles: Iterable[TensorHandle | None]) -> Steps | None:
    """Return the `Steps` of the network to which the first shared tensor among the handles belongs.

    None without such a tensor.
    """
    shared_handle = next((handle for handle in handles if isinstance(handle, SharedHandle)), None)
    users = None if shared_handle is None else shared_handle.memory.users
    assert isinstance(users, Steps | None)
    return users


def _body(network: int, plan: int, brought_slots: Sequence[int], fetched_slots: Sequence[int]) -> bytes:
    numbers = (network, plan, len(brought_slots), *brought_slots, *fetched_slots)
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _actual_info(declared_info: TensorInfo, shape: Sequence[int]) -> TensorInfo:
    tensor_shape = TensorShape([int(size) for size in shape])
    if not tensor_shape.is_concrete or not declared_info.shape.accepts(tensor_shape):
        raise ValueError(f"the shape {list(shape)} was found for {declared_info}")
    info = declared_info.with_constant(None).with_shape(tensor_shape)
    if info_bytes(info) > LONGEST_LATE:
        raise ValueError(f"the shape {list(shape)} takes {info_bytes(info)} bytes")
    return info


_all_steps: weakref.WeakSet[Steps] = weakref.WeakSet()


def _after_fork() -> None:
    for steps in _all_steps:
        steps._turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
