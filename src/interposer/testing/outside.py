"""Execution of cases in a child process, so that a crash or hang fails one case and the remaining cases still run.

A backend that is named by the path of a shared object, by ``module:Class``, or by an id is created in a fresh process.
A backend that is passed as an object is used in a fork of this process. The child reports its current activity in
shared memory. A case that makes no progress for some time has failed, and the child process is terminated.
"""

from __future__ import annotations

import base64
import faulthandler
import gc
import json
import os
import pickle
import signal
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from interposer.backend import Backend
from interposer.core.child_process import Child, ForkedChild
from interposer.core.child_process import Report as Channel
from interposer.core.errors import InterposerError, PluginError
from interposer.isolation.backend import IsolatedBackend
from interposer.plugins.capi.abi.structs import Cap
from interposer.plugins.capi.loading.file_names import name_problem
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.testing.checks import SAMPLE_CHECKS
from interposer.testing.outcome import Status
from interposer.testing.progress import Progress, note, show_in
from interposer.testing.replay import is_library

__all__ = ["Outside", "check_name", "creates_survivor", "serve_cases", "survives_fork"]

START_SECONDS: Final = 300.0
MOST_CRASHES: Final = 10
MOST_HANGS: Final = 3
"""The number of crashes, or of hangs, after which the remaining cases are skipped."""
_HANGS: Final = "hangs"
_TICK: Final = 0.2
_SIGNAL: Final = signal.SIGRTMIN + 9 if sys.platform == "linux" else signal.SIGUSR1
"""The signal on which the process writes the stacks of its threads, even while none of them runs Python code."""
_MOST_FRAMES: Final = 12

Ending = tuple[Status, str]


def survives_fork(backend: Backend) -> bool:
    """Return False if a backend cannot be used in a forked process because it has its own threads or processes."""
    if isinstance(backend, DynamicBackend):
        return Cap.FORK_SAFE in backend.library.info.capabilities
    return not isinstance(backend, IsolatedBackend)


def creates_survivor(create: Callable[[], Backend]) -> bool:
    """Return True if the backend that `create` returns can be used in a forked process.

    It is created in a fork to find out. A crash or hang of that fork gives True as well, and an exception gives False:
    the caller then creates the backend itself and gets the same exception.
    """

    def main(report: Channel) -> None:
        try:
            report.send(survives=survives_fork(create()))
        except Exception:
            report.send(survives=False)

    with ForkedChild(main) as child:
        try:
            message = child.receive(time.monotonic() + START_SECONDS)
        except TimeoutError:
            return True
    return message is None or bool(message["survives"])


class Outside:
    """Runs the cases of a `Conformance` in a child process, and starts a new one after a crash. Not thread-safe.

    `close` ends the process.

    Args:
        text: the backend as passed to `check_backend`.
        settings: the `Settings` of the conformance run.
        seconds: the time without progress after which a case has failed.
        serve: a function that runs cases in a forked process; or the name of a module whose function `main` runs them
            in a fresh process, which creates the backend from `text`.
        families: the families of operators to try; none means all of them.
    """

    def __init__(
        self,
        text: str,
        settings: Any,
        seconds: float,
        serve: Callable[..., None] | str,
        families: Collection[str] = (),
    ) -> None:
        self.backend_text, self.settings, self.seconds = text, settings, seconds
        self._serve, self._families = serve, list(families)
        self.backend = self.version = ""
        self.crashes = self.hangs = 0
        self._hung_cases: dict[str, str] = {}
        self._failure_at_start = ""
        self._process: _Process | None = None
        self._is_created = False
        self._end = weakref.finalize(self, _close, processes := list[_Process]())
        self._unfinished = processes

    @property
    def is_new(self) -> bool:
        """True if the child is a fresh process, False if it is a fork of this process."""
        return isinstance(self._serve, str)

    @property
    def has_failed(self) -> bool:
        """True if the backend has crashed or hung at least once."""
        return self.crashes + self.hangs > 0

    def start(self) -> None:
        """Start the process unless it runs already; do not wait until it is ready."""
        if self._process is None:
            self._process = _Process(self.backend_text, self.settings, self._serve, self._families)
            self._unfinished.append(self._process)
            self._is_created = False

    def close(self) -> str | None:
        """End the process; return a description of its failure to end, or None."""
        process, self._process = self._process, None
        self._unfinished.clear()
        return None if process is None else process.finish(self.seconds)

    def outcomes(self, ids: Sequence[str]) -> Iterator[Ending]:
        """Run these cases in the child process; yield the status and the text of each, in order.

        Raises:
            PluginError: the backend cannot be created; or a shared object crashes or hangs while it is loaded.
        """
        remaining_ids = deque(ids)
        while remaining_ids:
            obstacle = self._why_not(remaining_ids[0])
            if obstacle:
                remaining_ids.popleft()
                yield Status.SKIP, f"not tried: {obstacle}"
                continue
            process = self._started()
            if process is None:
                remaining_ids.popleft()
                yield Status.FAIL, f"the backend {self._failure_at_start}"
                continue
            process.ask(list(remaining_ids))
            while remaining_ids:
                ending = process.receive(self.seconds)
                case_id = remaining_ids.popleft()
                if isinstance(ending, str):
                    self._crashed(ending, case_id)
                    yield Status.FAIL, f"the backend {ending}"
                    break
                yield ending

    def _why_not(self, case_id: str) -> str:
        """Return why the case with this id is not run after earlier crashes or hangs.

        An empty text if it can be run.
        """
        if self._failure_at_start:
            return f"the backend {self._failure_at_start}"
        if self.hangs >= MOST_HANGS:
            return f"the backend has hung {self.hangs} times"
        if self.crashes >= MOST_CRASHES:
            return f"the backend has crashed {self.crashes} times"
        hung_case = self._hung_cases.get(_subject(case_id))
        return f"{hung_case} has hung on the same sample" if hung_case else ""

    def _started(self) -> _Process | None:
        """Return the child process, after it has created the backend.

        None if a backend in Python crashes or hangs while it is created.
        """
        self.start()
        assert self._process is not None
        if not self._is_created:
            self._is_created = True
            description = self._process.begin()
            if isinstance(description, str):
                self._crashed(description, "")
                if self.is_new and is_library(self.backend_text):
                    raise PluginError(self.backend_text, "probe", f"the backend {description} while it is loaded")
                self._failure_at_start = f"{description} while it is created"
                return None
            if "failed" in description:
                self.close()
                raise PluginError(self.backend_text, description["check"], description["failed"])
            self.backend, self.version = description["backend"], description["version"]
        return self._process

    def _crashed(self, text: str, case_id: str) -> None:
        is_hang = text.startswith(_HANGS)
        self.hangs, self.crashes = self.hangs + is_hang, self.crashes + (not is_hang)
        if is_hang and any(case_id.startswith(f"{check.name}/") for check in SAMPLE_CHECKS):  # these look at one trial
            self._hung_cases[_subject(case_id)] = case_id
        self._unfinished.clear()
        if self._process is not None:
            self._process.kill()
        self._process = None


def _subject(case_id: str) -> str:
    return case_id.partition("/")[2]


def _close(running_processes: list[_Process]) -> None:
    for process in running_processes:
        process.kill()


class _Process:
    """One child process that runs cases, from its start to its end."""

    def __init__(self, text: str, settings: Any, serve: Callable[..., None] | str, families: Sequence[str]) -> None:
        self._endings: deque[Ending] = deque()
        self._progress, progress_fd = Progress.create()
        self._stacks = os.memfd_create("stacks")
        request_reader, self._requests = os.pipe()
        descriptors = {"requests": request_reader, "shared": progress_fd, "stacks": self._stacks}
        try:
            if isinstance(serve, str):
                encoded_settings = base64.b64encode(pickle.dumps(replace(settings, patience=None))).decode()
                arguments = {"text": text, "settings": encoded_settings, "families": families, **descriptors}
                self.child: Child = Child(serve, arguments, tuple(descriptors.values()))
            else:
                self.child = ForkedChild(partial(serve, **descriptors), (self._requests,))
        finally:
            os.close(request_reader)
            os.close(progress_fd)
        self.child.__enter__()

    def ask(self, ids: Sequence[str]) -> None:
        """Request the process to run these cases."""
        line = memoryview(json.dumps(ids).encode() + b"\n")
        with suppress(BrokenPipeError):  # the process has ended, which `receive` detects
            while line:
                line = line[os.write(self._requests, line) :]

    def begin(self) -> dict[str, Any] | str:
        """Wait until the process has created the backend; return the description of the backend, or the error.

        If the process crashed or hung instead, a text says how.
        """
        return self._message(START_SECONDS)

    def receive(self, seconds: float) -> Ending | str:
        """Return the status and text of the next requested case.

        If the process crashed or hung instead, how it failed as text. The process hangs if it makes no progress for
        `seconds`.
        """
        if not self._endings:
            message = self._message(seconds)
            if isinstance(message, str):
                return message
            self._endings += [(Status(status), text) for status, text in message["endings"]]
        return self._endings.popleft()

    def _message(self, seconds: float) -> dict[str, Any] | str:
        try:
            message = self._waited(seconds)
            if message is not None:
                return message
            ending = self.child.ending(time.monotonic() + seconds)
            return self._with_place(f"{ending or 'ends its process'}{self._wrote()}")
        except TimeoutError:
            text = self._with_place(f"{_HANGS}: nothing happened for {seconds:g} seconds{self._wrote()}")
            return "\n".join([text, *self._where()])
        except ValueError:
            return "disturbs its process"

    def _waited(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message of the process, or None if it has ended.

        Raises:
            TimeoutError: the process made no progress for this number of seconds.
        """
        count, deadline = self._progress.read()[0], time.monotonic() + seconds
        while True:
            try:
                return self.child.receive(min(deadline, time.monotonic() + _TICK))
            except TimeoutError:
                latest_count = self._progress.read()[0]
                if latest_count != count:
                    count, deadline = latest_count, time.monotonic() + seconds
                elif time.monotonic() >= deadline:
                    raise

    def _wrote(self) -> str:
        return f"; it wrote {self.child.wrote!r}" if self.child.wrote else ""

    def _with_place(self, text: str) -> str:
        _, activity = self._progress.read()
        return f"{text}\nit was {activity}" if activity else text

    def _where(self) -> Iterator[str]:
        """Yield the stack of each thread of the process, innermost calls first."""
        with suppress(ProcessLookupError):
            os.kill(self.child.pid, _SIGNAL)
        previous_size, deadline = 0, time.monotonic() + 2
        while time.monotonic() < deadline:
            time.sleep(_TICK / 2)
            size = os.fstat(self._stacks).st_size
            if size and size == previous_size:
                break
            previous_size = size
        lines = os.pread(self._stacks, 1 << 16, 0).decode("utf-8", "replace").splitlines()
        frames = 0
        for line in lines:
            frames = frames + 1 if line.startswith("  ") else 0
            if frames <= _MOST_FRAMES:
                yield line

    def finish(self, seconds: float) -> str | None:
        """Let the process end within this number of seconds; return how it failed to end properly, or None."""
        os.close(self._requests)
        self._requests = -1
        try:
            ending = self.child.ending(time.monotonic() + seconds)
            return None if ending is None else f"the backend {ending}{self._wrote()} at the end"
        except TimeoutError:
            stack_text = "\n".join(self._where())
            return f"the backend hangs at the end: it did not end within {seconds:g} seconds\n{stack_text}"
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process."""
        self.child.__exit__(None, None, None)
        for descriptor in (self._requests, self._stacks):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)
        self._requests = self._stacks = -1


# --- in the child process ---------------------------------------------------------------------------------------------


def serve_cases(report: Channel, conformance: Any, requests_fd: int, progress_fd: int, stacks_fd: int) -> None:
    """Create the backend in the child process, and run the requested cases until the parent closes the pipe.

    Args:
        report: the channel to the parent process, for outcomes.
        conformance: the `Conformance` that has the cases.
        requests_fd: the descriptor of the pipe of requests: a line each, a JSON list of case ids.
        progress_fd: the descriptor of the shared memory in which progress is reported.
        stacks_fd: the descriptor of the file to which stacks of threads are written if the process hangs.
    """
    faulthandler.register(_SIGNAL, file=stacks_fd, all_threads=True)
    show_in(Progress(progress_fd))
    try:
        backend = conformance.backend
    except InterposerError as error:
        report.send(check=getattr(error, "check", "init"), failed=getattr(error, "reason", str(error)))
        return
    report.send(backend=backend.id, version=backend.version)
    with open(requests_fd, encoding="utf-8") as lines:
        for line in lines:
            outcomes: list[Ending] = []
            cases = [conformance.case(name) for name in json.loads(line)]
            gc.freeze()  # garbage collections need not scan the samples
            for case in cases:
                if not conformance.is_settled(case):
                    _send(report, outcomes)
                note("beginning a case")
                outcomes.append(conformance.outcome(case))
            _send(report, outcomes)
    conformance.bench.close()


def _send(report: Channel, endings: list[Ending]) -> None:
    """Send the outcomes of cases to the parent process, all in one message, as there may be thousands."""
    if endings:
        report.send(endings=[(status.value, text) for status, text in endings])
        endings.clear()


def check_name(path: Path) -> None:
    """Raise `PluginError` if the file name of a shared object does not follow the naming rule of backends."""
    error = name_problem(path.name)
    if error is not None:
        raise PluginError(str(path), "name", error)
