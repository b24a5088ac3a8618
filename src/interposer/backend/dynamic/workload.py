"""The workload of a compiled part: it lets tensors lie where the handles do, and runs."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from interposer.backend.dynamic import abi
from interposer.backend.dynamic.arrays import address_of, aligned_empty
from interposer.backend.dynamic.calls import CallError
from interposer.backend.dynamic.executable import Executable
from interposer.backend.dynamic.guards import GuardedRun
from interposer.backend.dynamic.reading import read_integers
from interposer.backend.dynamic.tensors import TensorTable
from interposer.backend.memory import ArrayHandle, TensorHandle
from interposer.backend.workload import Workload
from interposer.errors import BackendContractError
from interposer.types import Array, TensorInfo

__all__ = ["DynamicWorkload"]


class DynamicWorkload(Workload):
    """Runs an executable. `inputs` says which operands of the layer it takes, and what they are.

    Tensors in ordinary memory are used in place. Thread safe: runs at the same time have tables of their own.
    """

    def __init__(
        self, executable: Executable, inputs: Sequence[tuple[int, TensorInfo]], outputs: Sequence[TensorInfo]
    ) -> None:
        self.executable = executable
        self._operands = tuple(position for position, _ in inputs)
        self._input_infos = tuple(info for _, info in inputs)
        self._output_infos = tuple(outputs)
        self._free: deque[_Run] = deque()

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Run on these handles."""
        try:
            run = self._free.pop()
        except IndexError:
            run = _Run(self.executable, self._input_infos, self._output_infos)
        with ExitStack() as stack:
            read = [_array(inputs[operand], stack) for operand in self._operands]
            if run.open:
                run.execute_open(read, outputs)
            else:
                run.execute(read, [_array(handle, stack) for handle in outputs])
        self._free.append(run)


def _array(handle: TensorHandle | None, stack: ExitStack) -> Array:
    assert handle is not None
    return handle.map() if type(handle) is ArrayHandle else stack.enter_context(handle.mapped())


class _Run:
    """The tables of one run after the other."""

    def __init__(self, executable: Executable, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> None:
        alignment = executable.library.info.alignment
        self._executable = executable
        self._inputs = TensorTable(inputs, alignment, inputs=True)
        self._outputs = TensorTable(outputs, alignment, inputs=False)
        self.open = not all(info.is_concrete for info in outputs)
        size = executable.workspace_size
        self._workspace = aligned_empty((size,), np.dtype(np.uint8), executable.workspace_alignment) if size else None
        self._struct = abi.Run(
            struct_size=ctypes.sizeof(abi.Run), tensor_stride=ctypes.sizeof(abi.Tensor),
            input_count=len(inputs), inputs=self._inputs.address,
            output_count=len(outputs), outputs=self._outputs.address,
            workspace=None if self._workspace is None else address_of(self._workspace), workspace_size=size,
        )  # fmt: skip
        self._address = ctypes.addressof(self._struct)
        if self.open:
            self._resize = abi.FUNCTIONS["resize"](self._resized)
            self._struct.resize = ctypes.cast(self._resize, ctypes.c_void_p)
        self._handles: Sequence[TensorHandle] = ()
        self._fault: Exception | None = None

    def execute(self, read: Sequence[Array], written: Sequence[Array]) -> None:
        """Run on arrays."""
        if self._executable.library.checking:
            with GuardedRun(self._executable, read, written, self._outputs.infos) as guarded:
                self._execute(read, guarded.outputs)
        else:
            self._execute(read, written)

    def _execute(self, read: Sequence[Array], written: Sequence[Array]) -> None:
        for index, array in enumerate(read):
            self._inputs.bind(index, array)
        for index, array in enumerate(written):
            self._outputs.bind(index, array)
        self._executable.run(self._address)
        self._outputs.finish(written)

    def execute_open(self, read: Sequence[Array], handles: Sequence[TensorHandle]) -> None:
        """Run where the shapes of some outputs are only found by running."""
        self._outputs.reset()
        for index, array in enumerate(read):
            self._inputs.bind(index, array)
        for index, handle in enumerate(handles):
            if handle.info.is_concrete:
                self._outputs.bind(index, handle.map())
        self._handles, self._fault = handles, None
        try:
            self._executable.run(self._address)
        except CallError:
            if self._fault is not None:
                raise self._fault from None
            raise
        finally:
            self._handles = ()
        self._finish_open(handles)

    def _finish_open(self, handles: Sequence[TensorHandle]) -> None:
        for index, handle in enumerate(handles):
            if not handle.info.is_concrete:
                raise BackendContractError(f"execute gave output {index}, {handle.info}, no shape by `resize`")
        arrays = [handle.map() for handle in handles]
        self._outputs.finish(arrays)
        for handle in handles:
            handle.unmap()

    def _resized(self, _: Any, output: int, shape: int | None, rank: int) -> int:
        """The host's ``resize``. What goes wrong is kept until `execute` comes back, as nothing may be raised here."""
        try:
            self._give_shape(output, shape, rank)
        except Exception as error:
            self._fault = error
            return abi.INVALID_ARGUMENT
        return abi.OK

    def _give_shape(self, output: int, shape: int | None, rank: int) -> None:
        if output >= len(self._handles):
            raise BackendContractError(f"resize was called for output {output}; there are {len(self._handles)}")
        handle = self._handles[output]
        if rank != handle.info.rank:
            raise BackendContractError(f"resize gave output {output}, {handle.info}, the rank {rank}")
        found = tuple(read_integers(shape, rank, rank, "the shape that resize was called with"))
        if min(found, default=0) < 0:
            raise BackendContractError(f"resize gave output {output}, {handle.info}, the shape {list(found)}")
        handle.resize(found)
        self._outputs.reshape(output, found)
        self._outputs.bind(output, handle.map())
