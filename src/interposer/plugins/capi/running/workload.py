"""The workload of a compiled part: it binds tensors to the memory of handles, and runs."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np

from interposer.backend.allocator import CustomAllocator, allocated
from interposer.backend.memory import ArrayHandle, TensorHandle
from interposer.backend.workload import Workload
from interposer.core.addresses import address_of, aligned_empty
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, TensorInfo
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError, ErrorBuffer
from interposer.plugins.capi.abi.reading import read_integers
from interposer.plugins.capi.abi.tensors import TensorTable
from interposer.plugins.capi.library.executable import Executable
from interposer.plugins.capi.running.guards import GuardedRun
from interposer.plugins.capi.running.handles import NativeHandle

__all__ = ["DynamicWorkload", "RunTables"]


class DynamicWorkload(Workload):
    """The workload that runs a compiled part on tensors.

    `inputs` has the operands of the layer that the part reads, with their infos. With `strided`, tensors may be
    sub-tensors: in memory of the plug-in, or in ordinary memory with strides if it declares ``IPR_CAP_STRIDED``.
    Tensors in ordinary memory are used in place. Workspaces come from `allocator`, unless it is None. Thread-safe:
    concurrent runs have separate tables, and `Executable.run` serializes them if the plug-in requires it.
    """

    concurrent = only_reads = True  # what a plug-in writes to, no flag of an array could forbid

    def __init__(
        self,
        executable: Executable,
        inputs: Sequence[tuple[int, TensorInfo]],
        outputs: Sequence[TensorInfo],
        allocator: CustomAllocator | None = None,
        *,
        strided: bool = False,
        asynchronous: bool = False,
    ) -> None:
        self.executable = executable
        self._allocator = allocator
        self.strided = strided
        self.asynchronous = asynchronous and all(info.is_concrete for info in outputs)
        self.operands = tuple(position for position, _ in inputs)
        self._input_infos = tuple(info for _, info in inputs)
        self._output_infos = tuple(outputs)
        self.free: deque[RunTables] = deque()

    @cached_property
    def aliases(self) -> Mapping[int, int]:
        """The outputs that may have the memory of an operand of the same size, by position; the plug-in says which."""
        aliases: dict[int, int] = {}
        for output, index in enumerate(self.executable.inputs_of_outputs(len(self._output_infos))):
            if index in range(len(self.operands)) and self.operands[index] not in aliases.values():
                input_and_output = self._input_infos[index], self._output_infos[output]
                if (
                    all(info.is_concrete for info in input_and_output)
                    and input_and_output[0].num_bytes == input_and_output[1].num_bytes
                ):
                    aliases[output] = self.operands[index]
        return aliases

    @property
    def memory(self) -> int | None:
        """The bytes that the part holds according to the plug-in, plus a workspace for each concurrent run."""
        if not self.executable.memory:
            return None
        runs = max(1, len(self.free))
        return int(self.executable.memory) + runs * self.executable.workspace_size

    def new_tables(self) -> RunTables:
        """Return tables for one more concurrent run; a run puts them into `free` when it has ended."""
        return RunTables(self.executable, self._input_infos, self._output_infos, self._allocator)

    def bound_tables(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> RunTables | None:
        """Return tables with the tensors of these handles for a submission; put them into `free` when it is over.

        None if the plug-in cannot use the memory of a tensor without a copy, or a shape is only known in the run.
        """
        try:
            tables = self.free.pop()
        except IndexError:
            tables = self.new_tables()
        if not tables.is_open and tables.bind_handles([inputs[operand] for operand in self.operands], outputs):
            return tables
        self.free.append(tables)
        return None

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Run the compiled part on the tensors of these handles."""
        try:
            run = self.free.pop()
        except IndexError:
            run = self.new_tables()
        mapped_handles: list[TensorHandle] = []
        try:
            handles = [inputs[operand] for operand in self.operands]
            if run.is_open:
                run.execute_open(handles, outputs, mapped_handles)
            elif run.private(handles, outputs):
                run.execute_private(handles, outputs, mapped_handles)
            else:
                input_arrays = [_map(handle, mapped_handles) for handle in handles]
                run.execute(input_arrays, [_map(handle, mapped_handles) for handle in outputs])
        finally:
            for handle in mapped_handles:
                handle.unmap()
        self.free.append(run)

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        """Return a function that runs the compiled part on the tensors of these handles, as often as it is called.

        If all tensors are in ordinary memory that the plug-in can use, the C structs are filled in only once.
        """
        input_handles = [inputs[operand] for operand in self.operands]
        run = RunTables(self.executable, self._input_infos, self._output_infos, workspace=False)
        arrays = [_mapped_array(handle) for handle in (*input_handles, *outputs) if type(handle) is ArrayHandle]
        if run.is_open or self.executable.library.checking or len(arrays) < len(input_handles) + len(outputs):
            return super().prepare(inputs, outputs)
        if not run.bind(arrays[: len(input_handles)], arrays[len(input_handles) :]):
            return super().prepare(inputs, outputs)
        call = self.executable.prepared(run.address, run)
        return call if not self.executable.workspace_size else partial(self._call_borrowing, run, call)

    def _call_borrowing(self, run: RunTables, call: Callable[[], None]) -> None:
        """Perform `call`, which executes the prepared `run`, with the workspace of other tables that are not in use."""
        try:
            lender = self.free.pop()
        except IndexError:
            lender = self.new_tables()
        run.borrow(lender)
        call()
        self.free.append(lender)


def _map(handle: TensorHandle | None, mapped_handles: list[TensorHandle]) -> Array:
    assert handle is not None
    array = handle.map()
    mapped_handles.append(handle)
    if type(handle) is not ArrayHandle and not _fits(array, handle.info):
        raise BackendContractError(f"the handle of {handle.info} maps to something else")
    return array


def _mapped_array(handle: ArrayHandle) -> Array:
    """Return the mapped array of a handle.

    The same object is returned as long as the handle's memory does not change.
    """
    with handle.mapped() as array:
        return array


def _fits(array: object, info: TensorInfo) -> bool:
    return isinstance(array, np.ndarray) and (array.shape, array.dtype) == (tuple(info.shape), info.dtype.numpy)


class RunTables:
    """The C structs with which one thread executes a compiled part again and again.

    `address` is that of the ``ipr_run``. Concurrent runs have separate tables. Unless `workspace` is False, they have a
    workspace of their own, from `allocator` if it is not None.
    """

    def __init__(
        self,
        executable: Executable,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        allocator: CustomAllocator | None = None,
        *,
        workspace: bool = True,
    ) -> None:
        alignment = executable.library.info.alignment
        self._executable = executable
        strided = abi.Cap.STRIDED in executable.library.info.capabilities
        self._inputs = TensorTable(inputs, alignment, inputs=True, strided=strided)
        self._outputs = TensorTable(outputs, alignment, inputs=False, strided=strided)
        self.is_open = not all(info.is_concrete for info in outputs)
        size = executable.workspace_size if workspace else 0
        self._workspace = self._new_workspace(allocator) if size else None
        self._struct = abi.Run(
            struct_size=ctypes.sizeof(abi.Run), tensor_stride=ctypes.sizeof(abi.Tensor),
            input_count=len(inputs), inputs=self._inputs.address,
            output_count=len(outputs), outputs=self._outputs.address,
            workspace=None if self._workspace is None else address_of(self._workspace), workspace_size=size,
        )  # fmt: skip
        self.address = ctypes.addressof(self._struct)
        if self.is_open:
            self._resize = abi.FUNCTIONS["resize"](self._resized)
            self._struct.resize = ctypes.cast(self._resize, ctypes.c_void_p)
        self._lender: RunTables | None = None
        self._handles: Sequence[TensorHandle] = ()
        self._mapped: list[TensorHandle] = []
        self._written: dict[int, Array] = {}
        self._problem: BaseException | None = None

    def _new_workspace(self, allocator: CustomAllocator | None) -> Array:
        """Return a workspace of the system or of an allocator, to which it goes back with the tables."""
        executable = self._executable
        size, alignment = executable.workspace_size, executable.workspace_alignment
        if allocator is None:
            return aligned_empty((size,), np.dtype(np.uint8), alignment)
        workspace = allocated(allocator, size, alignment, executable.library.id)
        weakref.finalize(self, allocator.free, workspace).atexit = False
        return workspace

    @cached_property
    def _error(self) -> ErrorBuffer:
        return ErrorBuffer()

    @cached_property
    def error_address(self) -> int:
        """The address of an ``ipr_error`` for a direct call with these tables."""
        return self._error.address

    def fail(self, status: int) -> NoReturn:
        """Raise the error of a direct call that gave this status; see `ErrorBuffers.fail`."""
        self._executable.fail(status, self._error)

    def bind(self, read: Sequence[Array], written: Sequence[Array]) -> bool:
        """Bind the inputs `read` and the outputs `written` for all following runs, without a copy.

        Returns False, and binds nothing, if the plug-in cannot use one of the arrays directly.
        """
        if not (self._inputs.takes(read) and self._outputs.takes(written)):
            return False
        self._bound_arrays = (*read, *written)
        for table, arrays in ((self._inputs, read), (self._outputs, written)):
            for index, array in enumerate(arrays):
                table.bind(index, array)
        return True

    def bind_handles(self, read: Sequence[TensorHandle | None], written: Sequence[TensorHandle]) -> bool:
        """Bind handles in memory of the plug-in or in ordinary memory that it can use directly, without a copy.

        Returns False if one of them is in other memory.
        """
        tables_and_handles = ((self._inputs, read), (self._outputs, written))
        return all(
            self._bind_handle(table, index, handle)
            for table, handles in tables_and_handles
            for index, handle in enumerate(handles)
        )

    def _bind_handle(self, table: TensorTable, index: int, handle: TensorHandle | None) -> bool:
        if isinstance(handle, NativeHandle) and handle.library is self._executable.library:
            table.bind_private(index, handle.number)
            return True
        if type(handle) is not ArrayHandle:
            return False
        array = _mapped_array(handle)
        if not table.accepts(index, array):
            return False
        table.bind(index, array)
        return True

    def set_deadline(self, deadline: float | None) -> None:
        """Set the time of `time.monotonic` after which a submission with these tables may give up; None for none."""
        self._struct.deadline_ns = 0 if deadline is None else max(1, int(deadline * 1e9))

    def borrow(self, lender: RunTables) -> None:
        """Use the workspace of the tables `lender` for the next run; these must not be running."""
        if lender is self._lender:
            return
        self._lender = lender
        self._struct.workspace, self._struct.workspace_size = lender._struct.workspace, lender._struct.workspace_size

    def private(self, read: Sequence[TensorHandle | None], written: Sequence[TensorHandle]) -> bool:
        """Return True if some of the inputs `read` and the outputs `written` are in private memory of a plug-in."""
        return any(isinstance(handle, NativeHandle) for handle in (*read, *written))

    def execute_private(
        self, read: Sequence[TensorHandle | None], written: Sequence[TensorHandle], mapped: list[TensorHandle]
    ) -> None:
        """Execute the part once with inputs `read` and outputs `written`, some of them in the plug-in's private memory.

        Handles that had to be mapped are appended to `mapped`, so that the caller unmaps them.
        """
        self._bind_all(self._inputs, read, mapped)
        output_arrays = self._bind_all(self._outputs, written, mapped)
        self._executable.run(self.address)
        self._outputs.finish(output_arrays)

    def _bind_all(
        self, table: TensorTable, handles: Sequence[TensorHandle | None], mapped_handles: list[TensorHandle]
    ) -> dict[int, Array]:
        """Bind the tensors of a table to handles, except tensors in ordinary memory whose shape is unknown.

        Returns the bound arrays in ordinary memory by index. Handles that had to be mapped are appended to
        `mapped_handles`, so that the caller unmaps them.
        """
        arrays: dict[int, Array] = {}
        for index, handle in enumerate(handles):
            if isinstance(handle, NativeHandle) and handle.library is self._executable.library:
                table.bind_private(index, handle.number)
            elif handle is None or handle.info.is_concrete:
                arrays[index] = _map(handle, mapped_handles)
                table.bind(index, arrays[index])
        return arrays

    def execute(self, read: Sequence[Array], written: Sequence[Array]) -> None:
        """Execute the part once, with the inputs `read` and the outputs `written`.

        Checking mode detects stray writes.
        """
        if self._executable.library.checking:
            with GuardedRun(self._executable, read, written, self._outputs.infos) as guarded_run:
                self._execute(read, guarded_run.outputs)
        else:
            self._execute(read, written)

    def _execute(self, arrays_read: Sequence[Array], arrays_written: Sequence[Array]) -> None:
        for index, array in enumerate(arrays_read):
            self._inputs.bind(index, array)
        for index, array in enumerate(arrays_written):
            self._outputs.bind(index, array)
        self._executable.run(self.address)
        self._outputs.finish(arrays_written)

    def execute_open(
        self,
        read: Sequence[TensorHandle | None],
        handles: Sequence[TensorHandle],
        mapped: list[TensorHandle],
    ) -> None:
        """Execute the part once, with the inputs `read`, if the plug-in determines shapes of outputs during the run.

        `handles` are those of the outputs. Handles that had to be mapped are appended to `mapped`, so that the caller
        unmaps them.

        Raises:
            CallError: the plug-in failed.
            BackendContractError: the plug-in gave an output no shape.
        """
        self._outputs.reset()
        self._bind_all(self._inputs, read, mapped)
        self._handles, self._mapped, self._problem = handles, mapped, None
        self._written = self._bind_all(self._outputs, handles, mapped)
        try:
            self._executable.run(self.address)
        except CallError:
            if self._problem is None:
                raise
        finally:
            self._handles = ()
        if self._problem is not None:
            raise self._problem
        for index, handle in enumerate(handles):
            if index not in self._written and not handle.info.is_concrete:
                raise BackendContractError(
                    f"execute did not give output {index}, {handle.info}, a shape: call `resize` for it"
                )
        self._outputs.finish(self._written)

    def _resized(self, _: Any, output: int, shape: int | None, rank: int) -> int:
        """Give an output the shape that the plug-in computed.

        This is the host's ``resize`` callback, called during a run.

        Args:
            output: the index of the output.
            shape: the address of its dimensions, `rank` elements of int64.
            rank: the number of dimensions.

        Returns a status code. Exceptions are stored for `execute_open`, as C code cannot propagate them.
        """
        try:
            self._give_shape(output, shape, rank)
        except BaseException as error:
            self._problem = error
            return abi.INVALID_ARGUMENT
        return abi.OK

    def _give_shape(self, output: int, shape: int | None, rank: int) -> None:
        if output >= len(self._handles):
            raise BackendContractError(f"resize was called for output {output}; there are {len(self._handles)}")
        handle = self._handles[output]
        if rank != handle.info.rank:
            raise BackendContractError(f"resize gave output {output}, {handle.info}, the rank {rank}")
        new_shape = tuple(read_integers(shape, rank, rank, "the shape that resize was called with"))
        if min(new_shape, default=0) < 0:
            raise BackendContractError(f"resize gave output {output}, {handle.info}, the shape {list(new_shape)}")
        if handle.info.is_concrete:
            raise BackendContractError(f"resize was called for output {output}, which is {handle.info} already")
        handle.resize(new_shape)
        self._written[output] = array = _map(handle, self._mapped)
        self._outputs.reshape(output, new_shape)
        self._outputs.bind(output, array)
