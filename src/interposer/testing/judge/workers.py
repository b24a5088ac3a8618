"""Worker processes from the parent's side: forked, watched, and replaced when they die.

Backends that have a name are created in processes forked from a fresh interpreter (`ForkServer`), which has imported
the modules that workers need and started no threads. A backend that is an object of this process requires a fork of
this process (`OwnForks`).
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Final, Protocol

from interposer.core.errors import BackendCrashedError
from interposer.testing.judge.channel import Channel, Nothing
from interposer.testing.judge.serving import Broken, Setup, Task, restrict, serve
from interposer.testing.judge.subject import Sort
from interposer.testing.progress import note

__all__ = ["ForkServer", "Lost", "Nursery", "OwnForks", "Worker", "nursery_for"]

TICK: Final = 0.05
"""Seconds between checks of a worker's memory use."""
START_SECONDS: Final = 120.0
"""The time limit, in seconds, for starting the fork server or creating a backend."""
_OUTPUT_TAIL: Final = 2000
_GC_THRESHOLDS: Final = (20_000, 20, 20)
"""The garbage collection thresholds of workers: high, as networks have many cycles and a short lifetime."""
_PID: Final = struct.Struct("<q")
_SERVER_CODE: Final = """
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
from interposer.testing.judge import forkserver
forkserver.main(settings["control"])
"""


class Lost(Exception):  # noqa: N818 - an observation
    """Raised if a worker process died or was killed.

    `sort` is the kind of failure (crash, hang or memory), and `text` describes it.
    """

    def __init__(self, sort: Sort, text: str) -> None:
        self.sort, self.text = sort, text
        super().__init__(text)


class Nursery(Protocol):
    """The interface of objects that fork worker processes and report how they ended.

    A context manager that ends the processes on exit. `setup` describes the backends that workers create. `is_shared`
    is True if several threads may use the object.
    """

    setup: Setup
    is_shared: bool

    def fork(self, connection: socket.socket, output: IO[bytes]) -> int:
        """Fork a worker that communicates over `connection` and writes to `output`; return its process id."""

    def wait(self, pid: int) -> int:
        """Wait for the end of a worker; return its exit status, or the negative number of the signal that killed it."""

    def __enter__(self) -> Nursery: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def nursery_for(setup: Setup, environment: Mapping[str, str] | None = None) -> Nursery:
    """Return the nursery that can create the backends of a setup.

    Args:
        setup: the backends under test and their options.
        environment: variables to set in addition to those of this process; only for backends that have names.
    """
    if all(isinstance(backend, str) for backend in setup.backends):
        return ForkServer(setup, environment)
    return OwnForks(setup)


class OwnForks:
    """A `Nursery` that forks this process, for backends that are objects of this process."""

    is_shared = False

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def fork(self, connection: socket.socket, output: IO[bytes]) -> int:
        """Fork this process into a worker that communicates over `connection` and writes to `output`.

        Return its process id.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads may exist; a worker uses none of them
            pid = os.fork()
        if pid:
            return pid
        run_worker(connection, output.fileno(), self.setup)
        return 0

    def wait(self, pid: int) -> int:
        """Wait for the end of a worker; return its exit status, or the negative number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def __enter__(self) -> OwnForks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class ForkServer:
    """A `Nursery` in a fresh process, which forks the workers; several threads may call its methods."""

    is_shared = True

    def __init__(self, setup: Setup, environment: Mapping[str, str] | None = None) -> None:
        self.setup = setup
        self._environment = {**os.environ, **(environment or {})}
        self._lock = threading.Lock()

    def __enter__(self) -> ForkServer:
        self._control, child_end = socket.socketpair()
        settings = {"path": [*map(str, sys.path)], "control": child_end.fileno()}
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-P", "-c", _SERVER_CODE, json.dumps(settings)],
                stdin=subprocess.DEVNULL, pass_fds=(child_end.fileno(),), env=self._environment, start_new_session=True,
            )  # fmt: skip
        try:
            Channel(self._control).send(self.setup)
            self._answer()  # nothing may be sent before the setup has been read, as descriptors come with it
        except BaseException as error:
            self.__exit__(None, None, None)
            if not isinstance(error, Lost | OSError):
                raise
            status = self._process.returncode
            raise BackendCrashedError(f"the process that workers are forked from ends with status {status}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._control.close()

    def fork(self, connection: socket.socket, output: IO[bytes]) -> int:
        """Let the fork server fork a worker that communicates over `connection` and writes to `output`.

        Return its process id.
        """
        with self._lock:
            socket.send_fds(self._control, [_PID.pack(0)], [connection.fileno(), output.fileno()])
            return self._answer()

    def wait(self, pid: int) -> int:
        """Wait for the end of a worker; return its exit status, or the negative number of the signal that killed it."""
        with self._lock:
            self._control.sendall(_PID.pack(pid))
            return self._answer()

    def _answer(self) -> int:
        content = b""
        while len(content) < _PID.size:
            received = self._control.recv(_PID.size - len(content))
            if not received:
                raise Lost(Sort.CRASH, "the process that workers are forked from has ended")
            content += received
        return int(_PID.unpack(content)[0])


def run_worker(connection: socket.socket, output: int, setup: Setup) -> None:
    """Run tasks in a process that was just forked, and exit without the exit handlers of the parent process.

    Tasks are received and results are sent over `connection`. Standard output and error go to the descriptor `output`.
    """
    status = 1
    try:
        faulthandler.disable()  # it would write to where the process that was forked has its errors
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(output, 1)
        os.dup2(output, 2)
        restrict(setup.memory)
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        serve(Channel(connection), setup)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


class Worker:
    """A worker process. Use it in a ``with`` block, which ends the process.

    Args:
        nursery: the process that forks the worker.
        seconds: the time without a result after which the worker counts as hanging.
    """

    def __init__(self, nursery: Nursery, seconds: float) -> None:
        self.nursery, self.seconds = nursery, seconds
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the worker lives
        parent_end, child_end = socket.socketpair()
        with child_end:
            self.pid = nursery.fork(child_end, self._output)
        self.channel = Channel(parent_end)
        self._initial_memory = 0
        self._has_answered = False
        self._last_activity = time.monotonic()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process if it is still running."""
        if self.pid:
            self._end()
        self.channel.close()
        self._output.close()

    def give(self, task: Task) -> None:
        """Send a task to the worker; `receive` or `poll` return its results."""
        self._last_activity = time.monotonic()
        with suppress(OSError):  # how it ended will be seen when its results are asked for
            self.channel.send(task)

    def receive(self) -> Any:
        """Wait for the next result.

        Raises:
            Lost: the worker died, took too long, or used too much memory.
            InterposerError: the backends under test cannot be created.
        """
        while True:
            try:
                return self._taken(self.channel.receive(time.monotonic() + TICK))
            except TimeoutError:
                self.check()
            except EOFError:
                raise self._ended() from None

    def poll(self) -> list[Any]:
        """Read the available data after `select.poll` has signaled it; return the complete results.

        Raises:
            Lost: the worker died.
            InterposerError: the backends under test cannot be created.
        """
        self.channel.take_in()
        parsed_results = []
        with suppress(Nothing):
            while True:
                parsed_results.append(self._taken(self.channel.pop()))
        if not parsed_results and self.channel.ended:
            raise self._ended()
        return parsed_results

    def check(self) -> None:
        """Kill the worker and raise `Lost` if it has been silent for too long or uses too much memory."""
        note("waiting for random networks in other processes")
        limit = self.nursery.setup.memory
        if self._resident() - self._initial_memory > limit:
            self._end()
            raise Lost(Sort.MEMORY, f"it uses more than {limit / 2**20:,.0f} MiB of memory")
        patience = self.seconds if self._has_answered else max(self.seconds, START_SECONDS)
        if time.monotonic() - self._last_activity > patience:
            self._end()
            raise Lost(Sort.HANG, f"it hangs: there is no result after {patience:g} seconds")

    def _taken(self, result: Any) -> Any:
        if isinstance(result, Broken):
            raise result.error
        if not self._has_answered:
            self._has_answered, self._initial_memory = True, self._resident()
        self._last_activity = time.monotonic()
        return result

    def _resident(self) -> int:
        """Return the resident set size of the process, in bytes."""
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            return 0

    def _ended(self) -> Lost:
        status = self._end(kill=False)
        output = self.wrote()
        message = f"{_ending(status)}{f'; it output: {output}' if output else ''}"
        return Lost(Sort.MEMORY if "MemoryError" in output or "bad_alloc" in output else Sort.CRASH, message)

    def _end(self, *, kill: bool = True) -> int:
        """Wait for the end of the process and return its exit status; with `kill`, kill it first."""
        pid, self.pid = self.pid, 0
        if not pid:
            return 0
        if kill:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(Lost, OSError):
            return self.nursery.wait(pid)
        return 0

    def wrote(self) -> str:
        """Return the last output of the worker on standard output and error."""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - _OUTPUT_TAIL))
        return self._output.read().decode("utf-8", "replace").strip()


def _ending(status: int) -> str:
    if status >= 0:
        return f"it ends its process with status {status}"
    try:
        return f"it crashes with {signal.Signals(-status).name}"
    except ValueError:
        return f"it crashes with signal {-status}"
