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

    `action` is the name of the method or of a mark, `number` that of the object (-1 for a mark), and `inside` the
    enclosing call in the same thread, or empty. `inputs` and `outputs` are the numbers of the tensors that a workload
    was executed on.
    """

    action: str
    number: int = -1
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
        self._kept_alive: list[object] = []
        self._handles_of_manager: dict[int, list[TensorHandle]] = {}
        self._contents = Contents()
        self._thread_in_factory: dict[int, int] = {}
        self._last_writes: dict[int, tuple[Array, str]] = {}
        self._disturbers: dict[int, str] = {}
        self._imported: dict[int, Array] = {}
        self._thread_state = threading.local()
        self._execution_lock = threading.RLock()

    # --- marks of the kit itself --------------------------------------------------------------------------------------

    def mark(self, action: str) -> None:
        """Log an action of the conformance check itself, such as "run", "ran", "unload" or "unloaded"."""
        self.events.append(Event(action))
        if action == "run":
            self._last_writes.clear()
            self._disturbers.clear()

    def positions(self, action: str, number: int | None = None) -> list[int]:
        """Return the positions of the calls of a method in the log, on any object or on the one with this number."""
        for position in range(self._indexed, len(self.events)):
            event = self.events[position]
            self._positions.setdefault((event.action, None), []).append(position)
            self._positions.setdefault((event.action, event.number), []).append(position)
        self._indexed = len(self.events)
        return self._positions.get((action, number), [])

    def objects(self, action: str) -> list[int]:
        """Return the numbers of the objects on which the method `action` was called, without duplicates."""
        return list(dict.fromkeys(event.number for event in self.events if event.action == action))

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
            if self._innermost_call() != "kit":
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
        this_thread, thread_inside = threading.get_ident(), self._thread_in_factory.get(factory)
        if thread_inside not in (None, this_thread):
            self.problems.append(
                f"{self.titles[factory]} was called by two threads at the same time, as it was registered for several "
                "working memories; register a new factory for each"
            )
        self._thread_in_factory[factory] = this_thread
        try:
            yield
        finally:
            self._thread_in_factory.pop(factory, None)

    def context(self, backend_context: BackendContext) -> None:
        """Watch a backend context: log the notifications that it gets."""
        number = self._number(backend_context, "the context")
        if number is None:
            return
        for name in ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network"):
            self._watch_notice(backend_context, number, name)

    def _number(self, watched_object: object, title: str) -> int | None:
        """Return a number for a new object, described by `title`; None for an object that has a number already."""
        if id(watched_object) in self._numbers:
            return None
        self._numbers[id(watched_object)] = number = len(self.titles)
        self.titles.append(title)
        self._kept_alive.append(watched_object)
        return number

    def _watch_handle(
        self,
        handle: TensorHandle,
        info: TensorInfo,
        owner: int,
        creator: str,
        origin: TensorHandleFactory | None = None,
    ) -> None:
        number = self._number(handle, f"the handle of {info}")
        if number is None:
            self.problems.append(f"{creator} returned a handle for a second time, for {info}")
            return
        self.manager_of[number], self.handles[number] = owner, handle
        self._handles_of_manager.setdefault(owner, []).append(handle)
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
        creator: str,
        origin: TensorHandleFactory | None = None,
    ) -> None:
        """Watch the handle of a constant, which has memory from its creation on.

        Args:
            handle: the handle that the backend returned.
            info: the info of the constant.
            array: its contents.
            creator: a description of the object that created the handle, for messages.
            origin: the tensor handle factory that created the handle; None if a workload factory did.
        """
        info_without_constant = info.with_constant(None)
        if id(handle) not in self._numbers:
            self._watch_handle(handle, info_without_constant, -1, creator, origin)
        elif self._numbers[id(handle)] in self.constants:
            self.problems.append(f"{creator} returned a handle for a second time, for {info_without_constant}")
        number = self._numbers[id(handle)]
        self.titles[number] = f"the handle of a constant, {info_without_constant}"
        self.manager_of[number] = -1
        self.constants.add(number)
        contents = self._content(handle)
        if contents is not None and not same(contents, array):
            self.problems.append(f"{self.titles[number]}, does not hold the constant: {unlike(contents, array)}")

    def _watch_copies(self, handle: TensorHandle, number: int) -> None:
        fill, fetch = handle.copy_in, handle.copy_out

        def copy_in(array: Array) -> None:
            with self._inside("copy_in", number), self._noting_errors(number, "copy_in"):
                fill(array)
            if self._innermost_call() == "kit":
                return
            contents = self._content(handle)
            if contents is not None and not same(contents, array):
                problem = f"holds something else after copy_in than it was given: {unlike(contents, array)}"
                self.problems.append(f"{self.titles[number]} {problem}")
            self._note_written(number, contents, "copy_in")

        def copy_out(array: Array) -> None:
            contents = None if self._innermost_call() == "kit" else self._content(handle)
            self._note_read(number, contents, "the runtime")
            with self._inside("copy_out", number), self._noting_errors(number, "copy_out"):
                fetch(array)
            if contents is not None and not same(array, contents):
                message = (
                    f"{self.titles[number]} gave something else in copy_out than it holds: {unlike(array, contents)}"
                )
                self.problems.append(message)

        replace_method(handle, "copy_in", copy_in)
        replace_method(handle, "copy_out", copy_out)

    def _watch_imports(self, handle: TensorHandle, number: int) -> None:
        original_import, original_export = handle.import_memory, handle.export_memory
        original_forget = handle.forget_memory

        def import_memory(array: Array) -> bool:
            with self._inside("import_memory", number), self._noting_errors(number, "import_memory"):
                is_imported = original_import(array)
            self._last_writes.pop(number, None)
            self._imported.pop(number, None)
            if is_imported and self._innermost_call() != "kit":
                self._imported[number] = array
            return is_imported

        def forget_memory() -> None:
            array = self._imported.pop(number, None)
            if array is not None and self._innermost_call() != "kit":
                contents = self._content(handle)
                if contents is not None and not same(contents, array):
                    self.problems.append(
                        f"{self.titles[number]} agreed to import memory, but holds something else "
                        f"than that memory; is it a copy? {unlike(contents, array)}"
                    )
            with self._inside("forget_memory", number), self._noting_errors(number, "forget_memory"):
                original_forget()

        def export_memory(source: Any) -> Array:
            with self._inside("export_memory", number), self._noting_errors(number, "export_memory"):
                array = original_export(source)
            if self._innermost_call() != "kit" and self._is_copy(handle, array):
                self.problems.append(f"{self.titles[number]} exported a copy, not its own memory")
            return array

        replace_method(handle, "import_memory", import_memory)
        replace_method(handle, "forget_memory", forget_memory)
        replace_method(handle, "export_memory", export_memory)

    def _is_copy(self, handle: TensorHandle, exported_array: Any) -> bool:
        """Return True if a change of the first element of an exported array does not appear in the tensor.

        A read-only array cannot be tried: False.
        """
        if (
            not isinstance(exported_array, np.ndarray)
            or not exported_array.nbytes
            or not exported_array.flags.writeable
        ):
            return False
        contents_before, first_index = self._content(handle), (0,) * exported_array.ndim
        if contents_before is None or exported_array.dtype.hasobject:
            return False
        original_element = exported_array[first_index].copy()
        exported_array[first_index] = _with_flipped_bit(original_element)
        contents_after = self._content(handle)
        exported_array[first_index] = original_element
        return contents_after is not None and same(contents_before, contents_after)

    def _watch_pieces(self, handle: TensorHandle, manager_number: int, origin: TensorHandleFactory | None) -> None:
        make = handle.create_sub_tensor

        def create_sub_tensor(origin_of_piece: Sequence[int], info: TensorInfo) -> TensorHandle | None:
            piece = make(origin_of_piece, info)
            if isinstance(piece, TensorHandle):
                self._watch_handle(piece, info, manager_number, "create_sub_tensor", origin)
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

        def watched_execute(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            if self._innermost_call() == "kit":
                execute(inputs, outputs)
                return
            handle_numbers = [
                tuple(self._numbers.get(id(handle), -1) for handle in handles) for handles in (inputs, outputs)
            ]
            with self._execution_lock:
                source = self._content(inputs[0])
                self._note_read(handle_numbers[0][0], source, title)
                with self._inside("execute", number, handle_numbers[0], handle_numbers[1]):
                    execute(inputs, outputs)
                self.events.append(Event("executed", number, self._innermost_call(), *handle_numbers))
                target = self._content(outputs[0])
                if source is not None and target is not None and not same(target, source):
                    problem = f"copied wrong values to {outputs[0].info}: {unlike(target, source)}"
                    self.problems.append(f"{title} {problem}")
                self._note_written(handle_numbers[1][0], target, title)

        replace_method(workload, "execute", watched_execute)

    # --- contents of tensors between a write and the next read --------------------------------------------------------

    def _note_written(self, number: int, contents: Array | None, writer: str) -> None:
        if number >= 0 and contents is not None:
            self._last_writes[number] = contents, writer
            self._disturbers.pop(number, None)

    def _note_read(self, number: int, contents: Array | None, reader: str) -> None:
        """Record an error if a tensor does not hold the values that were last written to it.

        Args:
            number: the number of the tensor.
            contents: its contents now; None if they cannot be read.
            reader: a description of the workload that reads it, for the message.
        """
        last_write = self._last_writes.get(number)
        if last_write is None or contents is None or same(contents, last_write[0]):
            return
        disturber = self._disturbers.get(number, "something else")
        self.problems.append(
            f"{self.titles[number]} was changed by {disturber} after {last_write[1]} had written it and before "
            f"{reader} read it; "
            "tensors that live at the same time must not overlap"
        )

    def _note_disturbed(self, writer: str, outputs: Sequence[int]) -> None:
        """After a workload has run, remember which tensors have changed that are not among its outputs.

        `writer` describes the workload, for messages, and `outputs` are the numbers of its outputs.
        """
        for number, (written_contents, _) in self._last_writes.items():
            if number in outputs or number in self._disturbers:
                continue
            contents = self._content(self.handles.get(number))
            if contents is not None and not same(contents, written_contents):
                self._disturbers[number] = writer

    def _watch_sharing(self, handle: TensorHandle, number: int) -> None:
        original_share = handle.share

        def share(source: TensorHandle) -> bool:
            is_shared = original_share(source)
            if is_shared:
                self.events.append(Event("manage", number, self._innermost_call()))
                self.overwrites.add((number, self._numbers.get(id(source), -1)))
            return is_shared

        replace_method(handle, "share", share)

    def _watch_workload(self, workload: Workload, layer: Layer) -> None:
        number = self._number(workload, f"the workload of layer {layer}")
        if number is None:
            self.problems.append(f"create_workload returned a workload for a second time, for layer {layer}")
            return
        self._watch(workload, number, "post_allocation_configure")
        title = self.titles[number]
        execute = workload.execute

        def watched_execute(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            with self._execution_lock:
                execute_in_turn(inputs, outputs)

        def execute_in_turn(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            ids = [tuple(self._numbers.get(id(handle), -1) for handle in handles) for handles in (inputs, outputs)]
            contents_before = [self._content(operand) for operand in inputs]
            for handle_number, contents in zip(ids[0], contents_before, strict=True):
                self._note_read(handle_number, contents, title)
            with self._inside("execute", number, ids[0], ids[1]):
                execute(inputs, outputs)
            self.events.append(Event("executed", number, self._innermost_call(), *ids))
            self._note_disturbed(title, ids[1])
            for handle_number, output in zip(ids[1], outputs, strict=True):
                self._note_written(handle_number, self._content(output), title)
            for index, (handle, old_contents) in enumerate(zip(inputs, contents_before, strict=True)):
                new_contents = self._content(handle)
                if any((output_number, ids[0][index]) in self.overwrites for output_number in ids[1]):
                    continue
                if (
                    handle is not None
                    and old_contents is not None
                    and new_contents is not None
                    and not same(new_contents, old_contents)
                ):
                    overlap_text = "" if not self._shared(handle, outputs) else "; an output lies in the same memory"
                    constant = ", a constant" if ids[0][index] in self.constants else ""
                    self.problems.append(f"{title} wrote to its input {index}{constant}{overlap_text}")

        replace_method(workload, "execute", watched_execute)

    def _shared(self, tensor_handle: TensorHandle, other_handles: Sequence[TensorHandle]) -> bool:
        try:
            with self._by_the_kit(), ExitStack() as stack:
                array = stack.enter_context(tensor_handle.mapped())
                return any(
                    np.may_share_memory(array, stack.enter_context(other_handle.mapped()))
                    for other_handle in other_handles
                )
        except Exception:  # such handles cannot be mapped
            return False

    # --- watching -----------------------------------------------------------------------------------------------------

    def _watch(self, watched_object: object, number: int, name: str, after: Callable[[], None] = lambda: None) -> None:
        original_method = getattr(watched_object, name)

        def watched(*arguments: Any, **keywords: Any) -> Any:
            if self._innermost_call() == "kit":
                returned = original_method(*arguments, **keywords)
            else:
                with self._inside(name, number), self._noting_errors(number, name):
                    returned = original_method(*arguments, **keywords)
            after()
            return returned

        replace_method(watched_object, name, watched)

    def _watch_notice(self, watched_object: object, number: int, name: str) -> None:
        original_method = getattr(watched_object, name)

        def watched(network_id: int) -> Any:
            self.events.append(Event(name, number, inputs=(network_id,)))
            with self._noting_errors(number, name):
                answer = original_method(network_id)
            if answer not in (True, None):
                self.problems.append(f"{self.titles[number]} returned False from {name}")
            return answer

        replace_method(watched_object, name, watched)

    @contextmanager
    def _noting_errors(self, number: int, name: str) -> Iterator[None]:
        """Record an exception of the method `name` of the object with this number, and raise it again.

        The runtime only logs exceptions that are raised while a network is unloaded.
        """
        try:
            yield
        except Exception as error:
            if self._innermost_call() != "kit":
                self.problems.append(f"{self.titles[number]} raised {type(error).__name__} in {name}: {error}")
            raise

    @contextmanager
    def _inside(
        self, action: str, number: int, input_numbers: tuple[int, ...] = (), outputs: tuple[int, ...] = ()
    ) -> Iterator[None]:
        if self._innermost_call() == "kit":
            yield
            return
        self.events.append(Event(action, number, self._innermost_call(), input_numbers, outputs))
        stack = self._stack()
        stack.append(action)
        try:
            yield
        finally:
            stack.pop()

    def _stack(self) -> list[str]:
        if not hasattr(self._thread_state, "stack"):
            self._thread_state.stack = []
        names: list[str] = self._thread_state.stack
        return names

    def _innermost_call(self) -> str:
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

    def _spoil(self, manager_number: int) -> None:
        for handle in self._handles_of_manager.get(manager_number, ()):
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


def _with_flipped_bit(element: Any) -> Any:
    """Return a different value of the same type: one bit of the last byte is flipped."""
    *first_bytes, last_byte = element.tobytes()
    return np.frombuffer(bytes([*first_bytes, last_byte ^ 1]), element.dtype)[0]
