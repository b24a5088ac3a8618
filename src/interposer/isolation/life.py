"""`Life`: one child process, from its start to its end."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from interposer.core.errors import BackendCrashedError
from interposer.isolation.channel import ANSWER, ASK, PROBLEM, RUN, Channel, GarbageError, Message
from interposer.isolation.regions import Region
from interposer.isolation.wire import WireError, problem_from_plain, reading

__all__ = ["Life", "during"]

_log = logging.getLogger("interposer.backend.isolated")
_BOOT: Final = """
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
from interposer.isolation.server import serve
serve(settings)
"""
_EXIT_SECONDS: Final = 2.0
"""Seconds that a process has to exit by itself before it is killed."""
_MOST_QUOTED_LINES: Final = 5
"""The number of output lines of a process that an error message repeats."""
_FATAL: Final = "Fatal Python error"
_RETAINED_OUTPUT: Final = 1 << 20
"""The size of the output in bytes after which the logged part is overwritten."""
_MOST_OUTPUT: Final = 1 << 24
"""The number of bytes that a process can write during one call; further writes fail."""


def during(request_title: str, layer: str = "") -> str:
    """Return what a process was doing, for error messages: `request_title`, with the layer if it is known."""
    return f"{request_title} of layer {layer}" if layer else request_title


class Life:
    """A child process, and the connection to it. Requests are sent one at a time.

    The standard output and standard error of the process are captured in memory and logged after each call. The process
    is killed when this object is deleted; the kernel kills it if the host dies.

    Raises:
        BackendCrashedError: the process did not start.
    """

    def __init__(self, backend: str, memory_bytes: int | None, seconds: float) -> None:
        self.backend = backend
        self._unused_regions: list[int] = []
        self._mapped: set[int] = set()
        self._state_region: Region | None = Region(64, writable=True)
        self._step_counter = self._state_region.bytes.view(np.int64)
        self.last_words: deque[str] = deque(maxlen=60)
        self.ended = False
        self._reason, self._failed_request, self._layer = "was ended", "", ""
        self._number = 0
        self._output = os.memfd_create("interposer-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._output, _MOST_OUTPUT)
        fcntl.fcntl(self._output, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._read_size = 0
        self._unfinished_line = b""
        try:
            host_end, child_end = socket.socketpair()
            lifeline, lifeline_end = os.pipe()
        except OSError:
            os.close(self._output)
            raise
        self._channel, self._fds = Channel(host_end), [lifeline_end, self._output]
        try:
            self._process = self._started(child_end, lifeline, memory_bytes)
        except BaseException:
            _close(self._channel, self._fds)
            raise
        finally:
            child_end.close()
            os.close(lifeline)
        self._finalizer = weakref.finalize(self, _end, self._process, self._channel, self._fds)
        self._finalizer.atexit = (
            False  # models may still run then, and the process ends by itself when the host has ended
        )
        self.map(self._state_region, seconds)

    def _started(self, child_end: socket.socket, lifeline: int, memory_bytes: int | None) -> subprocess.Popen[bytes]:
        request = {
            "path": [path or os.getcwd() for path in sys.path],
            "socket": child_end.fileno(),
            "lifeline": lifeline,
            "memory_bytes": memory_bytes,
        }
        try:
            return _Process(
                [sys.executable or "python3", "-P", "-c", _BOOT, json.dumps(request)],  # -P: nothing from this folder
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[child_end.fileno(), lifeline],
                start_new_session=True,
            )
        except OSError as error:
            reason = f"cannot be started ({error})"
            message = f"the child process of backend {self.backend!r} {reason}"
            raise BackendCrashedError(message, backend=self.backend, reason=reason) from error

    @property
    def next_number(self) -> int:
        """The number of the next message."""
        return (self._number + 1) & 0xFFFFFFFF

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def map(self, region: Region, seconds: float | None) -> None:
        """Map a region of shared memory into the process, unless it is mapped.

        Wait at most this many seconds for the answer. The process unmaps the region after the host has deleted it.
        """
        if region.number in self._mapped:
            return
        request = {"do": "map", "region": region.number, "size": region.size, "writable": region.writable}
        self.ask(request, "the mapping of memory", seconds, fds=[region.fd])
        self._mapped.add(region.number)
        weakref.finalize(region, self._unused_regions.append, region.number).atexit = False

    def unused_regions(self) -> list[int]:
        """Return the numbers of mapped regions that the host has deleted, which the process can unmap.

        Each is returned once.
        """
        numbers = self._unused_regions[:]
        del self._unused_regions[: len(numbers)]
        self._mapped.difference_update(numbers)
        return numbers

    def ask(
        self, request: Mapping[str, Any], request_title: str, seconds: float | None, *, fds: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Send a request and return the answer.

        Args:
            request: the request as JSON-compatible data; its entry "do" names the method of `Served`.
            request_title: a description of the request, for error messages.
            seconds: the time limit; None waits without limit.
            fds: file descriptors to pass to the process.

        Raises:
            BackendCrashedError: the process ended, did not answer in time, or sent an invalid answer. It is dead now.
            OptionError: the backend does not declare an option, or a value has the wrong type.
            InvalidValueError: the backend cannot use a value of the inputs.
            LimitExceededError: sizes that follow from values of the inputs exceed a limit.
            BackendError: the backend raised another exception.
        """
        answer = self._exchange(ASK, json.dumps(request).encode(), request_title, seconds, fds)
        return self._plain(answer, request_title)

    def run(self, body: bytes, layer_of: Callable[[int], str], seconds: float | None) -> None:
        """Run a plan, a sequence of workloads, in the process; raises the exceptions of `ask`.

        Args:
            body: the numbers of the network, the plan and the tensors to copy, as 4-byte integers.
            layer_of: a function that returns the layer's name for the index of a step, for error messages.
            seconds: the time limit; None waits without limit.
        """
        self._step_counter[0] = -1
        answer = self._exchange(RUN, body, "the run", seconds, (), layer_of)
        if answer.kind != ANSWER:
            self._plain(answer, "the run", self._running(layer_of))

    def _running(self, layer_of: Callable[[int], str] | None) -> str:
        return layer_of(int(self._step_counter[0])) if layer_of is not None else ""

    def _exchange(
        self,
        kind: int,
        body: bytes,
        request_title: str,
        seconds: float | None,
        fds: Sequence[int],
        layer_of: Callable[[int], str] | None = None,
    ) -> Message:
        if self.ended:
            raise self._error()
        self._number = self.next_number
        try:
            self._channel.wait_at_most(seconds)
            self._channel.send(kind, self._number, body, fds)
            answer = self._channel.receive()
            if answer.number != self._number or answer.kind not in (ANSWER, PROBLEM):
                raise GarbageError("an answer to something else")
        except TimeoutError:
            raise self._end_with(
                f"did not answer within {seconds:g} s", request_title, self._running(layer_of)
            ) from None
        except (EOFError, OSError):
            raise self._end_with("", request_title, self._running(layer_of)) from None
        except GarbageError as error:
            raise self._end_with(f"gave {error}", request_title, self._running(layer_of)) from None
        except BaseException:  # such as KeyboardInterrupt: a late answer would be taken for the next one
            self.kill()
            raise
        self.log_output()
        return answer

    def _plain(self, answer: Message, request_title: str, layer: str = "") -> dict[str, Any]:
        try:
            content = answer.plain
        except GarbageError as error:
            raise self._end_with(f"gave {error}", request_title, layer) from None
        if answer.kind != PROBLEM:
            return content
        try:
            with reading("an error of the backend"):
                problem = problem_from_plain(content, self.backend)
        except WireError as error:
            raise self._end_with(f"gave {error}", request_title, layer) from None
        raise problem

    @property
    def step_index(self) -> int:
        """The index of the last step that the process began, in the plan that it ran last; -1 if there is none."""
        return int(self._step_counter[0])

    def garbage(self, reason: str, request_title: str) -> BackendCrashedError:
        """Kill the process, and return an error that says why its answer to a request is invalid."""
        return self._end_with(f"gave an answer that makes no sense ({reason})", request_title, "")

    def _end_with(self, reason: str, request_title: str, layer: str) -> BackendCrashedError:
        """Kill the process if it has not ended by itself, and return the error that describes its end.

        Args:
            reason: what the process did wrong; empty if it ended by itself, which the error then describes.
            request_title: the request that the process was answering.
            layer: the layer that it was running; empty if it was running none.
        """
        reason = reason or _ending(self._process)
        self.kill()
        self._reason, self._failed_request, self._layer = reason, request_title, layer
        return self._error()

    def _error(self) -> BackendCrashedError:
        """Return a new error that describes the end of the process; a shared error would keep stack frames alive."""
        selected_lines = _last_lines(self.last_words)
        quoted_output = (
            "".join(f"\n  {line}" for line in ["its last words:", *selected_lines]) if selected_lines else ""
        )
        where = f" during {during(self._failed_request, self._layer)}" if self._failed_request else ""
        return BackendCrashedError(
            f"the child process of backend {self.backend!r} {self._reason}{where}{quoted_output}",
            backend=self.backend, reason=self._reason, layer=self._layer, output=tuple(self.last_words),
        )  # fmt: skip

    def kill(self) -> None:
        """Kill the process and all processes that it started, immediately."""
        _kill(self._process)
        self.log_output()
        self._finish()

    def close(self) -> None:
        """Close the connection so that the process exits, and kill it if it does not."""
        self._channel.close()
        _wait_for_end(self._process)
        self.kill()

    def _finish(self) -> None:
        self.ended = True
        self._state_region, self._step_counter = None, np.zeros(1, np.int64)
        self._finalizer()

    def abandon(self) -> None:
        """Close the connection without ending the process, in a fork of the host: the process belongs to the parent."""
        if self._finalizer.detach() is None:
            return
        self._process.returncode = 0  # only the parent can wait for it
        _close(self._channel, self._fds)

    def log_output(self) -> None:
        """Log the output of the process since the last call."""
        if not self._finalizer.alive:
            return
        size = os.lseek(self._output, 0, os.SEEK_CUR)  # both share the position of this descriptor
        if size <= self._read_size:
            return
        output = self._unfinished_line + os.pread(self._output, size - self._read_size, self._read_size)
        self._read_size = size
        *lines, self._unfinished_line = output.split(b"\n")
        for line in lines:
            message = line.decode(errors="replace").rstrip()
            self.last_words.append(message)
            _log.info("%s: %s", self.backend, message)
        if size > _RETAINED_OUTPUT:
            os.lseek(self._output, 0, os.SEEK_SET)
            self._read_size = 0


class _Process(subprocess.Popen[bytes]):
    """A `subprocess.Popen` that raises no ResourceWarning if it is deleted while the process still runs.

    That happens when the host's interpreter exits.
    """

    def __del__(self) -> None:
        pass


def _last_lines(output: Iterable[str]) -> list[str]:
    """Select the last output lines of a process for the error message about its end.

    If a line begins with "Fatal Python error", the lines from there on are selected instead.
    """
    lines = [line for line in output if line]
    fatal_index = next((index for index, line in enumerate(lines) if line.startswith(_FATAL)), None)
    return lines[-_MOST_QUOTED_LINES:] if fatal_index is None else lines[fatal_index : fatal_index + _MOST_QUOTED_LINES]


def _ending(process: subprocess.Popen[bytes]) -> str:
    """Describe how a process ended that has closed its connection; the process is not reaped, so its id stays valid."""
    if not _wait_for_end(process):
        return "closed its connection"
    status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if status is None or status.si_code == os.CLD_EXITED:
        return f"exited with status {status.si_status if status is not None else '?'}"
    if status.si_status == signal.SIGKILL:
        return "was killed by SIGKILL, perhaps for want of memory,"
    try:
        return f"was killed by {signal.Signals(status.si_status).name}"
    except ValueError:
        return f"was killed by signal {status.si_status}"


def _wait_for_end(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of a process; return False if it is still running after `_EXIT_SECONDS` seconds."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while process.returncode is None and time.monotonic() < deadline:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        time.sleep(0.001)
    return process.returncode is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its process group; this is safe as the id cannot be reused before the process is reaped."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end(process: subprocess.Popen[bytes], channel: Channel, fds: Sequence[int]) -> None:
    channel.close()
    _wait_for_end(process)
    _kill(process)
    _close(channel, fds)


def _close(channel: Channel, fds: Sequence[int]) -> None:
    channel.close()
    for fd in fds:
        os.close(fd)
