"""Several worker processes that listen on the same ports, and are started again when they die."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.serving.listen import Listen
from interposer.serving.metrics import forget_process
from interposer.serving.statistics import FOLDER

__all__ = ["READY", "SINCE", "WORKER", "Workers"]

_log: Final = logging.getLogger("interposer.serving")
WORKER: Final = "INTERPOSER_SERVE_WORKER"
"""Environment variable that a worker process has: its number, from 0 on."""
SINCE: Final = "INTERPOSER_SERVE_SINCE"
"""Environment variable of a worker process: when its parent was started, in seconds since 1970."""
READY: Final = "ready"
"""The line that a worker writes when its models are loaded."""
_RESTARTS, _SECONDS = 5, 60.0
_POLL: Final = 0.05


@dataclass(eq=False)
class _Worker:
    """One process, and the times at which it was started again."""

    number: int
    process: subprocess.Popen[str] | None = None
    restarts: deque[float] = field(default_factory=deque)
    is_ready: threading.Event = field(default_factory=threading.Event)


class Workers:
    """The parent of worker processes: holds their ports, starts them again, and stops them in order.

    A worker that dies is started again, at most five times within a minute.

    Args:
        count: the number of workers.
        command: returns the command of a worker, from the ports for HTTP, gRPC and metrics; None for ports not used.
        listen: the addresses. A port of 0 is chosen by the system, the same for all workers.
        drain: seconds that workers have to end.
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
        self._folder = ""
        self._started = time.time()

    def stop(self, *_: Any) -> None:
        """Stop the workers in order; called a second time, at once."""
        self._signals += 1
        self._send(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def run(self, ready: Callable[[list[int | None]], None]) -> None:
        """Run the workers until a signal stops them; `ready` is called with the ports when all are ready.

        Raises:
            InterposerError: a port is taken, a file for TLS is wrong, a worker does not start, or one dies too often.
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
            self._wait_until_ready()
            if not self._signals:
                ready(ports)
            self._watch(ports)

    def _reserved(self, stack: contextlib.ExitStack) -> list[int | None]:
        """Bind all ports without listening, so that they stay those of the workers."""
        ports: list[int | None] = []
        for port in (self._listen.port, self._listen.grpc_port, self._listen.metrics_port):
            if port is None:
                ports.append(None)
            else:
                bound_socket = stack.enter_context(self._listen.bound(port))
                ports.append(bound_socket.getsockname()[1])
        return ports

    def _start(self, worker: _Worker, ports: Sequence[int | None]) -> None:
        environment = {**os.environ, WORKER: str(worker.number), SINCE: str(self._started), FOLDER: self._folder}
        worker.is_ready = threading.Event()
        worker.process = subprocess.Popen(
            self._command(list(ports)),
            stdin=subprocess.PIPE,  # it ends when this process is gone
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal reaches this process only
        )
        threading.Thread(target=_read, args=(worker.process, worker.is_ready), daemon=True).start()

    def _wait_until_ready(self) -> None:
        while not self._signals and not all(worker.is_ready.is_set() for worker in self._workers):
            for worker in self._workers:
                if worker.process is not None and worker.process.poll() is not None:
                    raise InterposerError(f"worker {worker.number} did not start; its message is above")
            time.sleep(_POLL)

    def _watch(self, ports: Sequence[int | None]) -> None:
        while not self._signals:
            for worker in self._workers:
                status = None if worker.process is None else worker.process.poll()
                if status is not None and not self._signals:
                    self._start_again(worker, ports, status)
            time.sleep(_POLL)

    def _start_again(self, worker: _Worker, ports: Sequence[int | None], status: int) -> None:
        assert worker.process is not None
        now = time.monotonic()
        while worker.restarts and now - worker.restarts[0] > _SECONDS:
            worker.restarts.popleft()
        if len(worker.restarts) >= _RESTARTS:
            how_often = f"{_RESTARTS + 1} times within {_SECONDS:g} seconds"
            raise InterposerError(f"worker {worker.number} ended {how_often}, the last time {_how(status)}")
        worker.restarts.append(now)
        forget_process(worker.process.pid, self._folder)
        _log.warning("worker %d ended %s, and is started again", worker.number, _how(status))
        self._start(worker, ports)

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
