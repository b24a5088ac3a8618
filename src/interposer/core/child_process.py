"""A second Python process for code that may crash or hang: it sends messages over a pipe and ends with its parent."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Final, NoReturn

__all__ = ["Child", "ForkedChild", "Report"]

_START: Final = """
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
from interposer.core import child_process
child_process.start(settings["module"], settings["report"], settings["parent"], settings["arguments"])
"""
_MAX_OUTPUT: Final = 4096  # bytes of the process's latest output that are stored
_TICK: Final = 0.05  # seconds between checks whether the process is still running
_LONGEST_MESSAGE: Final = 1 << 24
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


class Report:
    """The child's end of the pipe, which sends messages (JSON objects) to the parent process."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 - open until the process exits

    def send(self, **message: Any) -> None:
        """Send the keyword arguments as one JSON object, without buffering."""
        self._pipe.write(json.dumps(message) + "\n")
        self._pipe.flush()


def start(module: str, report: int, parent: int, arguments: Mapping[str, Any]) -> None:
    """Begin the work of a child process: import `module` and call its ``main(report, **arguments)``.

    `report` is the file descriptor of the pipe to the parent, from which a `Report` is made. Before the call, it is
    arranged that the child is killed when the process `parent` ends.
    """
    _die_with_parent(parent)
    __import__(module)
    sys.modules[module].main(Report(report), **arguments)


def _die_with_parent(parent: int) -> None:
    """Kill this child process when its parent ends, and disable core files."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Child:
    """A child process, as the parent sees it. Use it in a ``with`` block: on exit, the child's process group is killed.

    What the child writes to standard output and error is captured: `wrote` has the last line. Not thread safe.

    Args:
        module: name of the module whose ``main(report, **arguments)`` the child calls.
        arguments: JSON-compatible keyword arguments of `main`.
        descriptors: file descriptors that the child inherits.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, module: str, arguments: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        self._reports, child_end = os.pipe()
        settings = {
            "path": [*map(str, sys.path)],
            "module": module,
            "report": child_end,
            "parent": os.getpid(),
            "arguments": arguments,
        }
        try:
            self._process: subprocess.Popen[bytes] | _Fork = subprocess.Popen(
                [sys.executable or "python3", "-I", "-c", _START, json.dumps(settings)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=(child_end, *descriptors), start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(self._reports)
            raise
        finally:
            os.close(child_end)
        assert self._process.stdout is not None
        self._listen(self._process.stdout)

    def _listen(self, output: IO[bytes]) -> None:
        self._output = output
        self._received, self._captured_output = b"", b""
        self._poll = select.poll()
        self._open = {self._reports, self._output.fileno()}
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._output.close()
        os.close(self._reports)

    @property
    def pid(self) -> int:
        """The process identifier."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process and its process group at once, and wait until the process has ended."""
        if self._process.returncode is None:  # not reaped yet, so that its identifier cannot have been reused
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):  # a fork leads no group until it has called setsid()
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """Return the next message; None if the child has closed the pipe, has ended, or sends an overlong line.

        Raises:
            TimeoutError: no message arrived before `deadline`, a time of `time.monotonic`.
            ValueError: the child sent a line that is no JSON object.
        """
        while b"\n" not in self._received:
            if self._reports not in self._open or len(self._received) > _LONGEST_MESSAGE:
                return None
            has_ended = self._has_ended()
            if not self._read_available(deadline) and has_ended:
                return None  # a process that the child started may still have the pipe open
        line, _, self._received = self._received.partition(b"\n")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message is a JSON object")
        return message

    def ending(self, deadline: float) -> str | None:
        """Wait until the process ends. Return None if its exit status is 0, else a phrase that describes how it ended.

        Raises:
            TimeoutError: the process is still running at `deadline`, a time of `time.monotonic`.
        """
        while not self._has_ended():
            self._read_available(deadline)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        with suppress(TimeoutError):
            while self._open and self._read_available(time.monotonic() + _TICK):
                pass
        return None if status == 0 else _described_status(status)

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _read_available(self, deadline: float) -> bool:
        """Wait for data of the child for at most 50 ms and store it; return True if there was any.

        Also returns True if a pipe was closed. Raises TimeoutError if `deadline`, a time of `time.monotonic`, has
        passed.
        """
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError
        ready = self._poll.poll(1000 * min(seconds_left, _TICK))
        for descriptor, _ in ready:
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                self._poll.unregister(descriptor)
                self._open.remove(descriptor)
            elif descriptor == self._reports:
                self._received += chunk
            else:
                self._captured_output = (self._captured_output + chunk)[-_MAX_OUTPUT:]
        return bool(ready)

    @property
    def wrote(self) -> str:
        """The last line that the process wrote to standard output or error; at most 200 characters."""
        lines = self._captured_output.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[-200:] if lines else ""


class _Fork:
    """A process made by ``fork()``, with those methods of `subprocess.Popen` that `Child` uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


class ForkedChild(Child):
    """A child process made by ``fork()``, which calls ``main(report)`` and exits.

    It has a copy of the memory of this process, so `main` may use any object and need not be picklable. Of the threads
    of this process, only the calling one exists in the child: a lock that another thread holds is never released there.
    The child leads its own session, writes to the same standard output and error, and runs no exit handlers. Its
    exit status is 0 if `main` returns, and 1 if it raises; it prints the traceback in that case.

    Args:
        main: called in the child with the `Report` that sends messages to this object.
        unused: file descriptors that the child closes before it calls `main`.

    Raises:
        OSError: the system has no process or file descriptor left.
    """

    def __init__(self, main: Callable[[Report], None], unused: Sequence[int] = ()) -> None:
        self._reports, child_end = os.pipe()
        empty_output, unused_end = os.pipe()
        os.close(unused_end)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:
            for descriptor in (self._reports, child_end, empty_output):
                os.close(descriptor)
            raise
        if pid == 0:
            _run_forked(main, child_end, (self._reports, empty_output, *unused), parent)
        os.close(child_end)
        self._process = _Fork(pid)
        self._listen(open(empty_output, "rb", buffering=0))  # noqa: SIM115 - closed by __exit__


def _run_forked(
    main: Callable[[Report], None], report: int, unused_descriptors: Sequence[int], parent: int
) -> NoReturn:
    status = 1
    try:
        os.setsid()
        _die_with_parent(parent)
        for descriptor in unused_descriptors:
            os.close(descriptor)
        main(Report(report))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _described_status(status: int) -> str:
    if status > 0:
        return f"ended its process with status {status}"
    try:
        return f"crashed with {signal.Signals(-status).name}"
    except ValueError:
        return f"crashed with signal {-status}"
