"""`Recording`: a log of all calls to a backend and to the objects that it creates, with checks of tensor contents.

Managers, factories, handles, workloads and contexts remain the same objects, since a backend may test their classes.
Their methods are replaced in place by wrappers that log the call and forward it. Objects without writable attributes
are not watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from interposer.backend import (
    BackendContext,
    MemoryManager,
    TensorHandle,
    TensorHandleFactory,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer
from interposer.testing.contents import Contents, rubbish, unlike
from interposer.testing.tolerances import same
from interposer.testing.watched import replace_method

__all__ = ["Event", "Recording"]


class Event(NamedTuple):
    """One logged call of a method of the backend or of an object that it created.

    Its fields are the name of the method, the number of the object, and the enclosing call in the same thread (or
    empty). `inputs` and `outputs` are the numbers of the tensors that a workload was executed on.
    """

    what: str
    thing: int = -1
    inside: str = ""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


class Recording:
    """A log of all calls to a backend while networks are loaded, run and unloaded, with checks of tensor contents.

    Every watched object has a number, and `titles` describes each object by its number. `problems` lists the errors
    that were detected during a call. Memory is filled with garbage when it is acquired, so that no test passes because
    of its initial contents.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._positions: dict[tuple[str, int | None], list[int]] = {}
        self._indexed = 0
        self.titles: list[str] = []
        self.problems: list[str] = []
        self.manager_of: dict[int, int] = {}
        self.handles: dict[int, TensorHandle] = {}
        self.constants: set[int] = set()
        self.overwrites: set[tuple[int, int]] = set()
        self._numbers: dict[int, int] = {}
        self._cached: list[object] = []
        self._owned: dict[int, list[TensorHandle]] = {}
        self._contents = Contents()
        self._inside_factory: dict[int, int] = {}
        self._written: dict[int, tuple[Array, str]] = {}
        self._disturbed: dict[int, str] = {}
        self._imported: dict[int, Array] = {}
        self._threads = threading.local()
        self._turn = threading.RLock()

    # --- marks of the kit itself --------------------------------------------------------------------------------------

    def mark(self, what: str) -> None:
        """Log an action of the conformance check itself, such as "run", "ran", "unload" or "unloaded"."""
        self.events.append(Event(what))
        if what == "run":
            self._written.clear()
            self._disturbed.clear()

    def positions(self, what: str, thing: int | None = None) -> list[int]:
        """Return the positions of calls of the method `what` in the log, on any object or on the one with a number."""
        for at in range(self._indexed, len(self.events)):
            event = self.events[at]
            self._positions.setdefault((event.what, None), []).append(at)
            self._positions.setdefault((event.what, event.thing), []).append(at)
        self._indexed = len(self.events)
        return self._positions.get((what, thing), [])

    def things(self, what: str) -> list[int]:
        """Return the numbers of the objects on which the method `what` was called, without duplicates."""
        return list(dict.fromkeys(event.thing for event in self.events if event.what == what))

    # --- objects that the backend creates -----------------------------------------------------------------------------

    def manager(self, memory_manager: MemoryManager) -> None:
        """Watch a memory manager."""
        number = self._number(memory_manager, "the memory manager")
        if number is None:
            self.problems.append("it returned a memory manager a second time; every network needs one of its own")
            return
        self._watch(memory_manager, number, "acquire", after=lambda: self._spoil(number))
        self._watch(memory_manager, number, "release")

    def factory(self, workload_factory: WorkloadFactory, manager: MemoryManager | None) -> None:
        """Watch a workload factory, and everything that it creates.

        `manager` is the memory manager that it was created with.
        """
        make_handle, make_workload = workload_factory.create_tensor_handle, workload_factory.create_workload
        make_constant = workload_factory.create_constant_handle
        owner = -1 if manager is None else self._numbers.get(id(manager), -1)

        def create_tensor_handle(info: TensorInfo) -> TensorHandle:
            handle = make_handle(info)
            if isinstance(handle, TensorHandle):
                self._watch_handle(handle, info, owner, "create_tensor_handle")
            return handle

        def create_constant_handle(info: TensorInfo, array: Array) -> TensorHandle:
            handle = make_constant(info, array)
            if isinstance(handle, TensorHandle):
                self._watch_constant(handle, info, array, "create_constant_handle")
            return handle

        def create_workload(layer: Layer, info: WorkloadInfo) -> Workload:
            workload = make_workload(layer, info)
            if isinstance(workload, Workload):
                self._watch_workload(workload, layer)
            return workload

        if not workload_factory.makes_arrays:
            replace_method(workload_factory, "create_constant_handle", create_constant_handle)
        replace_method(workload_factory, "create_tensor_handle", create_tensor_handle)
        replace_method(workload_factory, "create_workload", create_workload)

    def handle_factory(self, tensor_handle_factory: TensorHandleFactory, manager: MemoryManager | None) -> None:
        """Watch a tensor handle factory, and everything that it creates."""
        title = f"the handle factory {tensor_handle_factory.id}"
        number = self._number(tensor_handle_factory, title)
        if number is None:
            return  # a stateless factory may be registered for several networks
        owner = -1 if manager is None else self._numbers.get(id(manager), -1)
        create, create_constant = tensor_handle_factory.create, tensor_handle_factory.create_constant
        create_piece, create_copy = tensor_handle_factory.create_sub_tensor, tensor_handle_factory.create_device_copy

        def watched_create(info: TensorInfo) -> TensorHandle:
            with self._alone_in(number):
                handle = create(info)
            if isinstance(handle, TensorHandle):
                self._watch_handle(handle, info, owner, f"{title}, asked for a tensor,", tensor_handle_factory)
            return handle

        def watched_constant(info: TensorInfo, array: Array) -> TensorHandle:
            with self._alone_in(number):
                handle = create_constant(info, array)
            if isinstance(handle, TensorHandle):
                self._watch_constant(handle, info, array, f"{title}, asked for a constant,", tensor_handle_factory)
            return handle

        def watched_piece(parent: TensorHandle, origin: Sequence[int], info: TensorInfo) -> TensorHandle | None:
            piece = create_piece(parent, origin, info)
            if piece is not None and id(piece) not in self._numbers:
                self._watch_handle(piece, info, owner, f"{title}, asked for a sub-tensor,", tensor_handle_factory)
            return piece

        def watched_copy() -> Workload:
            copy = create_copy()
            if self._where() != "kit":
                self._watch_copy(copy, f"the device copy of {tensor_handle_factory.id}")
            return copy

        replace_method(tensor_handle_factory, "create", watched_create)
        replace_method(tensor_handle_factory, "create_constant", watched_constant)
        replace_method(tensor_handle_factory, "create_sub_tensor", watched_piece)
        replace_method(tensor_handle_factory, "create_device_copy", watched_copy)

    @contextmanager
    def _alone_in(self, factory: int) -> Iterator[None]:
        """Watch a call of the factory with this number; record an error if another thread is calling it too.

        That happens if the backend registers one factory for several working memories.
        """
        me, inside = threading.get_ident(), self._inside_factory.get(factory)
        if inside not in (None, me):
            self.problems.append(
                f"{self.titles[factory]} was called by two threads at the same time, as it was registered for several "
                "working memories; register a new factory for each"
            )
        self._inside_factory[factory] = me
        try:
            yield
        finally:
            self._inside_factory.pop(factory, None)

    def context(self, backend_context: BackendContext) -> None:
        """Watch a backend context: log the notifications that it gets."""
        number = self._number(backend_context, "the context")
        if number is None:
            return
        for name in ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network"):
            self._watch_notice(backend_context, number, name)

    def _number(self, thing: object, title: str) -> int | None:
        """Return a number for a new object, described by `title`; None for an object that has a number already."""
        if id(thing) in self._numbers:
            return None
        self._numbers[id(thing)] = number = len(self.titles)
        self.titles.append(title)
        self._cached.append(thing)
        return number

    def _watch_handle(
        self,
        handle: TensorHandle,
        info: TensorInfo,
        owner: int,
        giver: str,
        origin: TensorHandleFactory | None = None,
    ) -> None:
        number = self._number(handle, f"the handle of {info}")
        if number is None:
            self.problems.append(f"{giver} returned a handle for a second time, for {info}")
            return
        self.manager_of[number], self.handles[number] = owner, handle
        self._owned.setdefault(owner, []).append(handle)
        if origin is not None:
            self._contents.origins[id(handle)] = origin
        for name in ("manage", "allocate", "map", "unmap", "destroy"):
            self._watch(handle, number, name)
        self._watch_sharing(handle, number)
        self._watch_copies(handle, number)
        self._watch_imports(handle, number)
        self._watch_pieces(handle, owner, origin)

    def _watch_constant(
        self,
        handle: TensorHandle,
        info: TensorInfo,
        array: Array,
        giver: str,
        origin: TensorHandleFactory | None = None,
    ) -> None:
        """Watch the handle of a constant, which has memory from its creation on.

        Args:
            handle: the handle that the backend returned.
            info: the info of the constant.
            array: its contents.
            giver: a description of the object that created the handle, for messages.
            origin: the tensor handle factory that created the handle; None if a workload factory did.
        """
        plain = info.with_constant(None)
        if id(handle) not in self._numbers:
            self._watch_handle(handle, plain, -1, giver, origin)
        elif self._numbers[id(handle)] in self.constants:
            self.problems.append(f"{giver} returned a handle for a second time, for {plain}")
        number = self._numbers[id(handle)]
        self.titles[number] = f"the handle of a constant, {plain}"
        self.manager_of[number] = -1
        self.constants.add(number)
        held = self._content(handle)
        if held is not None and not same(held, array):
            self.problems.append(f"{self.titles[number]}, does not hold the constant: {unlike(held, array)}")

    def _watch_copies(self, handle: TensorHandle, number: int) -> None:
        fill, fetch = handle.copy_in, handle.copy_out

        def copy_in(array: Array) -> None:
            with self._inside("copy_in", number), self._noting_errors(number, "copy_in"):
                fill(array)
            if self._where() == "kit":
                return
            held = self._content(handle)
            if held is not None and not same(held, array):
                said = f"holds something else after copy_in than it was given: {unlike(held, array)}"
                self.problems.append(f"{self.titles[number]} {said}")
            self._note_written(number, held, "copy_in")

        def copy_out(array: Array) -> None:
            held = None if self._where() == "kit" else self._content(handle)
            self._note_read(number, held, "the runtime")
            with self._inside("copy_out", number), self._noting_errors(number, "copy_out"):
                fetch(array)
            if held is not None and not same(array, held):
                text = f"{self.titles[number]} gave something else in copy_out than it holds: {unlike(array, held)}"
                self.problems.append(text)

        replace_method(handle, "copy_in", copy_in)
        replace_method(handle, "copy_out", copy_out)

    def _watch_imports(self, handle: TensorHandle, number: int) -> None:
        take, forget, give = handle.import_memory, handle.forget_memory, handle.export_memory

        def import_memory(array: Array) -> bool:
            with self._inside("import_memory", number), self._noting_errors(number, "import_memory"):
                agreed = take(array)
            self._written.pop(number, None)
            self._imported.pop(number, None)
            if agreed and self._where() != "kit":
                self._imported[number] = array
            return agreed

        def forget_memory() -> None:
            array = self._imported.pop(number, None)
            if array is not None and self._where() != "kit":
                held = self._content(handle)
                if held is not None and not same(held, array):
                    self.problems.append(
                        f"{self.titles[number]} agreed to import memory, but holds something else "
                        f"than that memory; is it a copy? {unlike(held, array)}"
                    )
            with self._inside("forget_memory", number), self._noting_errors(number, "forget_memory"):
                forget()

        def export_memory(source: Any) -> Array:
            with self._inside("export_memory", number), self._noting_errors(number, "export_memory"):
                array = give(source)
            if self._where() != "kit" and self._is_copy(handle, array):
                self.problems.append(f"{self.titles[number]} exported a copy, not its own memory")
            return array

        replace_method(handle, "import_memory", import_memory)
        replace_method(handle, "forget_memory", forget_memory)
        replace_method(handle, "export_memory", export_memory)

    def _is_copy(self, handle: TensorHandle, exported: Any) -> bool:
        """Return True if a change of the first element of an exported array does not appear in the tensor.

        A read-only array cannot be tried: False.
        """
        if not isinstance(exported, np.ndarray) or not exported.nbytes or not exported.flags.writeable:
            return False
        before, first = self._content(handle), (0,) * exported.ndim
        if before is None or exported.dtype.hasobject:
            return False
        cached = exported[first].copy()
        exported[first] = _other(cached)
        after = self._content(handle)
        exported[first] = cached
        return after is not None and same(before, after)

    def _watch_pieces(self, handle: TensorHandle, owner: int, origin: TensorHandleFactory | None) -> None:
        make = handle.create_sub_tensor

        def create_sub_tensor(origin_of_piece: Sequence[int], info: TensorInfo) -> TensorHandle | None:
            piece = make(origin_of_piece, info)
            if isinstance(piece, TensorHandle):
                self._watch_handle(piece, info, owner, "create_sub_tensor", origin)
            return piece

        replace_method(handle, "create_sub_tensor", create_sub_tensor)

    def _watch_copy(self, workload: Workload, title: str) -> None:
        """Watch a workload by which a device copies a tensor: both tensors must have the same contents afterwards.

        `title` describes the workload in messages.
        """
        number = self._number(workload, title)
        if number is None:
            return
        execute = workload.execute

        def watched(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            if self._where() == "kit":
                execute(inputs, outputs)
                return
            ids = [tuple(self._numbers.get(id(handle), -1) for handle in handles) for handles in (inputs, outputs)]
            with self._turn:
                source = self._content(inputs[0])
                self._note_read(ids[0][0], source, title)
                with self._inside("execute", number, ids[0], ids[1]):
                    execute(inputs, outputs)
                self.events.append(Event("executed", number, self._where(), *ids))
                target = self._content(outputs[0])
                if source is not None and target is not None and not same(target, source):
                    said = f"copied wrong values to {outputs[0].info}: {unlike(target, source)}"
                    self.problems.append(f"{title} {said}")
                self._note_written(ids[1][0], target, title)

        replace_method(workload, "execute", watched)

    # --- contents of tensors between a write and the next read --------------------------------------------------------

    def _note_written(self, number: int, held: Array | None, writer: str) -> None:
        if number >= 0 and held is not None:
            self._written[number] = held, writer
            self._disturbed.pop(number, None)

    def _note_read(self, number: int, held: Array | None, reader: str) -> None:
        """Record an error if a tensor does not hold the values that were last written to it.

        Args:
            number: the number of the tensor.
            held: its contents now; None if they cannot be read.
            reader: a description of the workload that reads it, for the message.
        """
        known = self._written.get(number)
        if known is None or held is None or same(held, known[0]):
            return
        by = self._disturbed.get(number, "something else")
        self.problems.append(
            f"{self.titles[number]} was changed by {by} after {known[1]} had written it and before {reader} read it; "
            "tensors that live at the same time must not overlap"
        )

    def _note_disturbed(self, writer: str, outputs: Sequence[int]) -> None:
        """After a workload has run, remember which tensors have changed that are not among its outputs.

        `writer` describes the workload, for messages, and `outputs` are the numbers of its outputs.
        """
        for number, (before, _) in self._written.items():
            if number in outputs or number in self._disturbed:
                continue
            held = self._content(self.handles.get(number))
            if held is not None and not same(held, before):
                self._disturbed[number] = writer

    def _watch_sharing(self, handle: TensorHandle, number: int) -> None:
        original = handle.share

        def share(source: TensorHandle) -> bool:
            agreed = original(source)
            if agreed:
                self.events.append(Event("manage", number, self._where()))
                self.overwrites.add((number, self._numbers.get(id(source), -1)))
            return agreed

        replace_method(handle, "share", share)

    def _watch_workload(self, workload: Workload, layer: Layer) -> None:
        number = self._number(workload, f"the workload of layer {layer}")
        if number is None:
            self.problems.append(f"create_workload returned a workload for a second time, for layer {layer}")
            return
        self._watch(workload, number, "post_allocation_configure")
        title = self.titles[number]
        execute = workload.execute

        def watched(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            with self._turn:
                watched_in_turn(inputs, outputs)

        def watched_in_turn(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            ids = [tuple(self._numbers.get(id(handle), -1) for handle in handles) for handles in (inputs, outputs)]
            before = [self._content(element) for element in inputs]
            for item, held in zip(ids[0], before, strict=True):
                self._note_read(item, held, title)
            with self._inside("execute", number, ids[0], ids[1]):
                execute(inputs, outputs)
            self.events.append(Event("executed", number, self._where(), *ids))
            self._note_disturbed(title, ids[1])
            for item, output in zip(ids[1], outputs, strict=True):
                self._note_written(item, self._content(output), title)
            for index, (handle, old) in enumerate(zip(inputs, before, strict=True)):
                new = self._content(handle)
                if any((out, ids[0][index]) in self.overwrites for out in ids[1]):
                    continue
                if handle is not None and old is not None and new is not None and not same(new, old):
                    shared = "" if not self._shared(handle, outputs) else "; an output lies in the same memory"
                    constant = ", a constant" if ids[0][index] in self.constants else ""
                    self.problems.append(f"{title} wrote to its input {index}{constant}{shared}")

        replace_method(workload, "execute", watched)

    def _shared(self, tensor_handle: TensorHandle, others: Sequence[TensorHandle]) -> bool:
        try:
            with self._by_the_kit(), ExitStack() as stack:
                array = stack.enter_context(tensor_handle.mapped())
                return any(np.may_share_memory(array, stack.enter_context(other.mapped())) for other in others)
        except Exception:  # such handles cannot be mapped
            return False

    # --- watching -----------------------------------------------------------------------------------------------------

    def _watch(self, thing: object, number: int, name: str, after: Callable[[], None] = lambda: None) -> None:
        original = getattr(thing, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            with self._inside(name, number), self._noting_errors(number, name):
                result = original(*arguments, **named)
            after()
            return result

        replace_method(thing, name, watched)

    def _watch_notice(self, thing: object, number: int, name: str) -> None:
        original = getattr(thing, name)

        def watched(network_id: int) -> Any:
            self.events.append(Event(name, number, inputs=(network_id,)))
            with self._noting_errors(number, name):
                agreed = original(network_id)
            if agreed not in (True, None):
                self.problems.append(f"{self.titles[number]} returned False from {name}")
            return agreed

        replace_method(thing, name, watched)

    @contextmanager
    def _noting_errors(self, number: int, name: str) -> Iterator[None]:
        """Record an exception of the method `name` of the object with this number, and raise it again.

        The runtime only logs exceptions that are raised while a network is unloaded.
        """
        try:
            yield
        except Exception as error:
            if self._where() != "kit":
                self.problems.append(f"{self.titles[number]} raised {type(error).__name__} in {name}: {error}")
            raise

    @contextmanager
    def _inside(
        self, what: str, number: int, inputs: tuple[int, ...] = (), outputs: tuple[int, ...] = ()
    ) -> Iterator[None]:
        if self._where() == "kit":
            yield
            return
        self.events.append(Event(what, number, self._where(), inputs, outputs))
        stack = self._stack()
        stack.append(what)
        try:
            yield
        finally:
            stack.pop()

    def _stack(self) -> list[str]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        names: list[str] = self._threads.stack
        return names

    def _where(self) -> str:
        stack = self._stack()
        return stack[-1] if stack else ""

    @contextmanager
    def _by_the_kit(self) -> Iterator[None]:
        self._stack().append("kit")
        try:
            yield
        finally:
            self._stack().pop()

    def _content(self, handle: TensorHandle | None) -> Array | None:
        """Return a copy of a tensor's contents; None if it cannot be mapped, which the runtime reports itself."""
        if handle is None:
            return None
        try:
            with self._by_the_kit():
                return self._contents.read(handle)
        except Exception:  # the handle will raise the same exception in the runtime
            return None

    def _spoil(self, manager: int) -> None:
        for handle in self._owned.get(manager, ()):
            if self._numbers[id(handle)] in self.constants:
                continue
            try:
                with self._by_the_kit():
                    self._contents.fill(handle, np.full(tuple(handle.info.shape), rubbish(handle.info.dtype)))
            except Exception:
                continue

    def spoil_unmanaged(self) -> None:
        """Fill the tensors that belong to no memory manager with garbage; called when a network is loaded."""
        self._spoil(-1)


def _other(value: Any) -> Any:
    """Return a different value of the same type: one bit of the last byte is flipped."""
    *head, last = value.tobytes()
    return np.frombuffer(bytes([*head, last ^ 1]), value.dtype)[0]
