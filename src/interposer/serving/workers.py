"""Several worker processes that listen on the same ports, and are started again, with growing pauses, when they die."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final

from interposer.core.errors import ConfigError, InterposerError, InvalidArgumentError
from interposer.core.records import dataclass
from interposer.serving.listen import Listen
from interposer.serving.metrics import forget_process
from interposer.serving.statistics import FOLDER

__all__ = ["READY", "SINCE", "WORKER", "Workers", "parent_started"]

_log: Final = logging.getLogger("interposer.serving")
WORKER: Final = "INTERPOSER_SERVE_WORKER"
"""Environment variable that a worker process has: its number, from 0 on."""
SINCE: Final = "INTERPOSER_SERVE_SINCE"
"""Environment variable of a worker process: when its parent was started, in seconds since 1970."""
READY: Final = "ready"
"""The line that a worker writes when its models are loaded."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_STABLE: Final = 60.0
"""Seconds of life after which the deaths of a worker before are forgotten."""
_STARTS: Final = 4
"""How often a worker may be killed before any worker was ready; more of it ends the server."""
_POLL: Final = 0.05


def parent_started() -> float | None:
    """Return when the parent of this worker process was started, in seconds since 1970; None if it is no worker.

    Raises:
        ConfigError: somebody else than the parent has set the environment variables of workers.
    """
    number = os.environ.get(WORKER)
    if not number:
        return None
    since = os.environ.get(SINCE, "")
    with contextlib.suppress(ValueError):
        int(number)
        if math.isfinite(float(since)):
            return float(since)
    raise ConfigError(
        f"{WORKER} is {number!r}, and {SINCE} is {since!r}; only a server sets these environment variables, for the "
        "processes of --workers; unset both"
    )


@dataclass(eq=False)
class _Worker:
    """One process, how often it died soon after its start, and when it is started again."""

    number: int
    process: subprocess.Popen[str] | None = None
    is_ready: threading.Event = field(default_factory=threading.Event)
    started: float = 0.0
    deaths: int = 0
    next_start: float | None = None

    def died(self, now: float) -> float:
        """Count a death, and return the pause in seconds before the next start, at the time `next_start`."""
        self.deaths = 1 if now - self.started >= _STABLE else self.deaths + 1
        pause = 0.0 if self.deaths == 1 else min(_FIRST_PAUSE * 2.0 ** min(self.deaths - 2, 16), _LONGEST_PAUSE)
        self.next_start = now + pause
        return pause


class Workers:
    """The parent of worker processes: holds their ports, starts them again, and stops them in order.

    A worker that dies is started again: at once the first time, and then after pauses that double from half a second to
    a minute, until it has lived for a minute. The other workers answer during the pauses.

    Args:
        count: the number of workers.
        command: returns the command of a worker, from the ports for HTTP, gRPC, metrics and health; None for ports
            not used.
        listen: the addresses. A port of 0 is chosen by the system, the same for all workers.
        drain: seconds that workers have to end, any delay before they begin to end included.
    """

    def __init__(
        self, count: int, command: Callable[[list[int | None]], list[str]], listen: Listen, drain: float
    ) -> None:
        if not hasattr(os, "fork") or not hasattr(signal, "SIGTERM"):
            raise InvalidArgumentError("several workers need Linux or macOS; use --workers 1")
        self._command, self._drain = command, drain
        self._listen = listen
        self._workers = [_Worker(number) for number in range(count)]
        self._signals = 0
        self._last_signal: int = signal.SIGTERM
        self._folder = ""
        self._started = time.time()
        self._has_been_ready = False

    def stop(self, signal_number: int = signal.SIGTERM, *_: Any) -> None:
        """Stop the workers in order, with the same signal; called a second time, at once."""
        self._signals += 1
        self._last_signal = signal_number if self._signals == 1 else signal.SIGKILL
        self._send(self._last_signal)

    def run(self, ready: Callable[[list[int | None]], None]) -> None:
        """Run the workers until a signal stops them; `ready` is called with the ports when all are ready.

        Raises:
            InterposerError: a port is taken, a file for TLS is wrong, or a worker does not start before any is ready.
        """
        self._listen.check_tls()
        self._listen.check_free()
        with contextlib.ExitStack() as stack:
            self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interposer-metrics-"))
            ports = self._reserved(stack)
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, signal_number, signal.signal(signal_number, self.stop))
            stack.callback(self._end)
            for worker in self._workers:
                self._start(worker, ports)
            self._wait_until_ready(ports)
            if not self._signals:
                ready(ports)
            self._watch(ports)

    def _reserved(self, stack: contextlib.ExitStack) -> list[int | None]:
        """Bind all ports without listening, so that they stay those of the workers."""
        ports: list[int | None] = []
        for port in (self._listen.port, self._listen.grpc_port, self._listen.metrics_port, self._listen.health_port):
            if port is None:
                ports.append(None)
            else:
                bound_socket = stack.enter_context(self._listen.bound(port))
                ports.append(bound_socket.getsockname()[1])
        return ports

    def _start(self, worker: _Worker, ports: Sequence[int | None]) -> None:
        environment = {**os.environ, WORKER: str(worker.number), SINCE: str(self._started), FOLDER: self._folder}
        worker.is_ready = threading.Event()
        worker.started, worker.next_start = time.monotonic(), None
        worker.process = subprocess.Popen(
            self._command(list(ports)),
            stdin=subprocess.PIPE,  # it ends when this process is gone
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal reaches this process only
        )
        threading.Thread(target=_read, args=(worker.process, worker.is_ready), daemon=True).start()
        if self._signals:  # one arrived while the worker was started
            self._send(self._last_signal)

    def _wait_until_ready(self, ports: Sequence[int | None]) -> None:
        """Wait until all workers are ready, or one is and others could not start."""
        while not self._signals and not self._are_ready():
            for worker in self._workers:
                status = None if worker.process is None else worker.process.poll()
                if status is not None and not self._has_been_ready and not _may_start_again(worker, status):
                    raise InterposerError(f"worker {worker.number} did not start; its message is above")
            self._revive(ports)
            time.sleep(_POLL)

    def _are_ready(self) -> bool:
        self._has_been_ready |= any(worker.is_ready.is_set() for worker in self._workers)
        return self._has_been_ready and all(worker.is_ready.is_set() or worker.deaths for worker in self._workers)

    def _watch(self, ports: Sequence[int | None]) -> None:
        while not self._signals:
            self._revive(ports)
            time.sleep(_POLL)

    def _revive(self, ports: Sequence[int | None]) -> None:
        """Start the workers again that have died and whose pause is over."""
        for worker in self._workers:
            if worker.next_start is None:
                self._bury(worker)
            if worker.next_start is not None and time.monotonic() >= worker.next_start and not self._signals:
                self._start(worker, ports)

    def _bury(self, worker: _Worker) -> None:
        """Log the end of a worker that has died, and plan its next start."""
        status = None if worker.process is None else worker.process.poll()
        if worker.process is None or status is None or self._signals:
            return
        forget_process(worker.process.pid, self._folder)
        pause = worker.died(time.monotonic())
        when = "is started again" if not pause else f"is started again in {pause:g} seconds"
        _log.warning("worker %d ended %s, and %s", worker.number, _how(status), when)

    def _send(self, signal_number: int) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.send_signal(signal_number)

    def _end(self) -> None:
        """Stop all workers, and kill those that have not ended some seconds after the time for draining."""
        if not self._signals:
            self._send(signal.SIGTERM)
        deadline = time.monotonic() + self._drain + 10
        for worker in self._workers:
            if worker.process is None:
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()


def _may_start_again(worker: _Worker, status: int) -> bool:
    """Return True for a worker that was killed; one that ended by itself has found an error that stays."""
    return status < 0 and worker.deaths < _STARTS


def _read(process: subprocess.Popen[str], is_ready: threading.Event) -> None:
    """Read what a worker writes on standard output; it writes `READY` when its models are loaded."""
    with process.stdout or contextlib.nullcontext() as lines:
        for line in lines or ():
            if line.strip() == READY:
                is_ready.set()
            else:
                sys.stdout.write(line)


def _how(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
