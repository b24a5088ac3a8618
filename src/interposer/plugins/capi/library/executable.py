"""`Executable`: a part that a plug-in has compiled."""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NoReturn

import numpy as np

from interposer.backend.queues import Event
from interposer.core.errors import BackendContractError, InterposerError, InvalidValueError
from interposer.core.types import Array
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError, ErrorBuffer
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.images import ImageGraph
from interposer.plugins.capi.library.lent_allocator import LentAllocator
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.wrong_values import invalid_value, sites_of

__all__ = ["Executable"]

MOST_WORKSPACE: Final = 1 << 40
MOST_ALIGNMENT: Final = 1 << 21


class Executable:
    """A result of ``compile`` or ``restore`` of a plug-in, which is released when nothing refers to it.

    `blob` has the bytes that it was restored from, which it may read until it is released. Unless `allocator` is None,
    the executable holds its memory in that of the allocator.

    `seconds` for one run and `memory` in bytes are estimates of the plug-in, or 0. `turn` is the lock of runs that must
    not be concurrent, or None.
    """

    def __init__(
        self,
        library: Library,
        out: abi.Executable,
        flat: FlatGraph | ImageGraph | None,
        owner: object = None,
        blob: bytes | memoryview = b"",
        allocator: LentAllocator | None = None,
    ) -> None:
        self.library, self._owner = library, owner
        self.handle = out.handle
        flags = abi.ExecutableFlag(out.flags & sum(abi.ExecutableFlag))
        keeps = abi.ExecutableFlag.KEEPS_CONSTANTS in flags or abi.Cap.KEEPS_CONSTANTS in library.info.capabilities
        self.constants = [] if keeps or flat is None else flat.constants
        blob_in_use = blob if abi.ExecutableFlag.READS_BLOB in flags else b""
        number = library.hold(out, (self.constants, blob_in_use, allocator))
        weakref.finalize(self, library.let_go, number).atexit = False
        self.concurrent = (
            abi.ExecutableFlag.CONCURRENT in flags or abi.Cap.CONCURRENT_EXECUTE in library.info.capabilities
        )
        self.workspace_size, self.workspace_alignment = _workspace(out, library.id)
        self.seconds, self.memory = out.seconds, out.memory
        self._sums = [_sum(array) for array in self.constants] if library.checking else []
        self.turn = None if self.concurrent else threading.Lock()
        self.last_event: Event | None = None
        self._call = partial(library.call, "execute", library.functions["execute"], library.self, out.handle)
        self._sites = sites_of(flat)

    def run(self, run_address: int) -> None:
        """Call the plug-in's ``execute`` with the ``ipr_run`` at an address.

        Calls are serialized if the plug-in does not support concurrent ones.

        Raises:
            InvalidValueError: the plug-in cannot use a value of the inputs.
            CallError: the function failed.
            BackendUnavailableError: the plug-in was shut down.
        """
        try:
            if self.turn is None:
                self._call(run_address)
                return
            with self.alone_in(None):
                self._call(run_address)
        except CallError as error:
            raise self.translated(error) from error.__cause__

    def fail(self, status: int, buffer: ErrorBuffer) -> NoReturn:
        """Raise the error of a run outside of `run` that gave this status, and filled in the buffer."""
        try:
            self.library.fail("execute", status, buffer)
        except CallError as error:
            raise self.translated(error) from error.__cause__

    def translated(self, error: CallError) -> CallError | InvalidValueError:
        """Return the error of a run as an `InvalidValueError` if a value of the inputs is its cause."""
        return invalid_value(error, self._sites) if error.status == abi.INVALID_VALUE else error

    @contextmanager
    def alone_in(self, queue: object) -> Iterator[None]:
        """A context manager in which one thread runs the executable, or submits it to `queue`; None is no queue.

        If the plug-in does not support concurrent runs, this first waits for a run in another queue. `last_event` is
        that of the last submission.
        """
        if self.turn is None:
            yield
            return
        with self.turn:
            event = self.last_event
            if event is not None and not event.done() and getattr(event, "queue", None) is not queue:
                with suppress(InterposerError):  # the other run has its own errors
                    event.wait()
                self.last_event = None
            yield

    def inputs_of_outputs(self, count: int) -> tuple[int, ...]:
        """Return for each of `count` outputs the index of the input whose memory it may have, or -1.

        All are -1 if the plug-in does not have the extension ``ipr.in_place/1``, or fails.
        """
        library, no_aliases = self.library, (-1,) * count
        functions = library.extension(abi.EXT_IN_PLACE, abi.InPlaceApi, {"inputs_of_outputs": "inputs_of_outputs"})
        if functions is None or not count:
            return no_aliases
        inputs = np.full(count, -1, np.int64)
        function = functions["inputs_of_outputs"]
        with library.serialized(), suppress(CallError):
            library.call("inputs_of_outputs", function, library.self, self.handle, count, inputs.ctypes.data)
            return tuple(inputs.tolist())
        return no_aliases

    def prepared(self, run_address: int, owner: object) -> Callable[[], None]:
        """Return a function that does what `run` does with the ``ipr_run`` at this address, as often as it is called.

        It keeps `owner`, which owns the ``ipr_run``, alive. It is not thread-safe.
        """
        library, function = self.library, self.library.functions["execute"]
        execute = library.prepared("execute", function, library.self, self.handle, run_address, owner=(self, owner))

        def call() -> None:
            try:
                execute()
            except CallError as error:
                raise self.translated(error) from error.__cause__

        return call if self.turn is None else partial(_call_in_turn, self.turn, call)

    def check_constants(self) -> None:
        """Raise `BackendContractError` if the plug-in has written to a constant since it was compiled.

        Changes are detected in checking mode only.
        """
        for array, sum_before in zip(self.constants, self._sums, strict=False):
            if _sum(array) != sum_before:
                raise BackendContractError("the plug-in wrote to a constant", backend=self.library.id)


def _call_in_turn(turn: threading.Lock, call: Callable[[], None]) -> None:
    with turn:
        call()


def _sum(array: Array) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def _workspace(out: abi.Executable, backend: str) -> tuple[int, int]:
    size, alignment = out.workspace_size, max(64, out.workspace_alignment)
    if size > MOST_WORKSPACE or alignment > MOST_ALIGNMENT or alignment & (alignment - 1):
        raise BackendContractError(
            f"the executable asks for a workspace of {size:,} bytes, aligned to {out.workspace_alignment:,}; expected "
            f"at most {MOST_WORKSPACE:,} bytes and a power of two up to {MOST_ALIGNMENT:,}",
            backend=backend,
        )
    return size, alignment
