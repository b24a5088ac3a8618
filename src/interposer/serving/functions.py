"""`FunctionPool`: Python functions that are steps of an ensemble, run in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from interposer.core.errors import ConfigError
from interposer.core.types import Array
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.turns import Gate

__all__ = ["FunctionPool"]

_log: Final = logging.getLogger("interposer.serving")
_PROGRAM: Final = Path(__file__).with_name("function_process.py")
_LENGTH: Final = struct.Struct("<Q")
"""As in the program."""
_PAUSE: Final = 0.02
_SECRETS: Final = ("INTERPOSER_SERVE_TOKEN",)
"""Variables of the environment that functions do not get."""


class _EndedError(Exception):
    """The process has ended before it has answered."""


class _Process:
    """A process that runs functions of the modules in a folder, one call at a time."""

    def __init__(self, folder: Path) -> None:
        environment = {name: text for name, text in os.environ.items() if name not in _SECRETS}
        self._process = subprocess.Popen(
            [sys.executable or "python3", "-P", str(_PROGRAM), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # a Ctrl-C in the terminal reaches the server only
        )
        self._is_killed = False

    @property
    def is_alive(self) -> bool:
        return not self._is_killed and self._process.poll() is None

    def kill(self) -> None:
        """End the process without waiting; a thread that asks it gets an error."""
        self._is_killed = True
        self._process.kill()

    def ask(self, function: str, inputs: Mapping[str, Array] | None, outputs: Sequence[str]) -> Any:
        """Call a function, and return the answer of the program; raise `_EndedError` if the process ends first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        call = pickle.dumps((function, None if inputs is None else dict(inputs), list(outputs)), protocol=5)
        try:
            self._process.stdin.write(_LENGTH.pack(len(call)))
            self._process.stdin.write(call)
            self._process.stdin.flush()
            head = self._process.stdout.read(_LENGTH.size)
            answer_bytes = self._process.stdout.read(_LENGTH.unpack(head)[0])
            return pickle.loads(answer_bytes)  # from code in a folder that only this user can write
        except (OSError, ValueError, EOFError, struct.error, pickle.UnpicklingError):
            self.kill()  # it has closed its pipe, and may not be found to have ended yet
            raise _EndedError from None

    def end(self) -> None:
        """End the process, and release its pipes."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError, ValueError):
                    stream.close()


class FunctionPool:
    """Runs functions in some processes, each of which runs one call at a time.

    It is created in a thread, and used in the event loop. A call that takes too long ends its process, and so does a
    function that crashes; another process takes its place.

    Args:
        folder: a private folder with the modules, which `close` removes.
        functions: the functions, as ``module:function``.
        processes: the number of processes.

    Raises:
        ConfigError: a module cannot be imported, or has no such function.
    """

    def __init__(self, folder: Path, functions: Sequence[str], processes: int) -> None:
        self._folder, self.processes = folder, processes
        self._gate = Gate(processes)
        self._threads = ThreadPoolExecutor(processes, "interposer-functions")
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        try:
            self._idle = [self._checked(functions) for _ in range(processes)]
        except BaseException:
            self.close()
            raise

    def _checked(self, functions: Sequence[str]) -> _Process:
        """Return a new process that has imported the modules of the functions."""
        process = _Process(self._folder)
        for function in functions:
            try:
                answer = process.ask(function, None, ())
            except _EndedError:
                process.end()
                raise ConfigError(
                    f"function {function!r}: its process has ended while it imported the module"
                ) from None
            if len(answer) > 1:
                process.end()
                name, message, trace, _ = answer
                _log.error("function %r cannot be imported:\n%s", function, trace)
                raise ConfigError(f"function {function!r} cannot be imported: {name}: {message}")
        return process

    async def call(
        self, function: str, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float
    ) -> dict[str, Array]:
        """Return the outputs of a function by name. A call whose client leaves goes on until its deadline.

        Raises:
            ServingError: the function raised an exception, ended its process, or took too long.
        """
        call = asyncio.ensure_future(self._call(function, inputs, outputs, seconds))
        call.add_done_callback(_retrieved)
        return await asyncio.shield(call)

    async def _call(
        self, function: str, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float
    ) -> dict[str, Array]:
        end = time.monotonic() + seconds
        await self._gate.enter((0, 0), seconds)
        place: list[_Process] = []
        try:
            loop = asyncio.get_running_loop()
            job = loop.run_in_executor(self._threads, self._ask, place, function, inputs, outputs)
            await asyncio.wait([job], timeout=max(0.0, end - time.monotonic()))
            is_late = not job.done()
            while not job.done():  # the process may not have started yet
                for process in place:
                    process.kill()
                await asyncio.wait([job], timeout=_PAUSE)
            return _result(job, function, seconds if is_late else None)
        finally:
            self._gate.leave()

    def _ask(self, place: list[_Process], function: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Any:
        """Call a function in a process, which is put into `place`, and is used again if it lives."""
        process = self._taken()
        place.append(process)
        try:
            return process.ask(function, inputs, outputs)
        finally:
            self._put_back(process)

    def _taken(self) -> _Process:
        """Return a process that nobody uses, which is started if there is none."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None and not process.is_alive:
            process.end()
            process = None
        process = _Process(self._folder) if process is None else process
        with self._lock:
            self._busy.add(process)
        return process

    def _put_back(self, process: _Process) -> None:
        with self._lock:
            self._busy.discard(process)
            is_kept = process.is_alive and not self._is_closed
            if is_kept:
                self._idle.append(process)
        if not is_kept:
            process.end()

    def close(self) -> None:
        """End all processes, and remove the folder."""
        with self._lock:
            self._is_closed = True
            idle_processes, self._idle = self._idle, []
            for process in self._busy:
                process.kill()
        for process in idle_processes:
            process.end()
        self._threads.shutdown(wait=False)
        shutil.rmtree(self._folder, ignore_errors=True)


def _result(job: asyncio.Future[Any], function: str, seconds: float | None) -> dict[str, Array]:
    """Return the outputs of a call; `seconds` is its time limit if it has exceeded it."""
    try:
        answer = job.result()
    except _EndedError:
        if seconds is not None:
            raise ServingError(Status.LATE, f"the function took longer than {seconds:.3g} seconds") from None
        raise ServingError(Status.INTERNAL, "the process of the function has ended") from None
    if len(answer) == 1:
        arrays: dict[str, Array] = answer[0]
        return arrays
    name, message, trace, is_of_value = answer
    if is_of_value:  # a value of the request that the function does not accept
        raise ServingError(Status.INVALID, f"{name}: {message}")
    _log.error("function %r failed:\n%s", function, trace)
    raise ServingError(Status.INTERNAL, f"{name}: {message}")


def _retrieved(call: asyncio.Future[Any]) -> None:
    """Take note of the error of a call for which nobody waits."""
    if not call.cancelled():
        call.exception()
