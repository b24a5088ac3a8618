"""The processes of engines, as the measuring process sees them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from benchmarks.engines import engine

__all__ = ["EngineError", "Process"]

ROOT: Final = Path(__file__).resolve().parents[2]


class EngineError(Exception):
    """An engine could not do what was requested; the text has the reason."""


class Process:
    """A process with one engine, which answers requests one at a time and sleeps in between.

    Raises:
        EngineError: from any request: the engine raised, its process died, or it took longer than `patience` seconds.
    """

    def __init__(self, name: str, threads: int, cache: Path, patience: float = 300.0) -> None:
        self.name, self._patience = name, patience
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        ours, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-m", "benchmarks.engines.worker", str(theirs.fileno())]
            self._child = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | engine(name).environment(threads, cache),
                pass_fds=[theirs.fileno()],
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
        self._connection = Connection(ours.detach())
        try:
            self.ask("start", name, threads, str(cache))
        except EngineError:
            self.close()
            raise

    def ask(self, request: str, *arguments: Any) -> Any:
        """Return the result of the worker's method with this name."""
        try:
            self._connection.send((request, arguments))
            if not self._connection.poll(self._patience):
                raise EngineError(f"{request} took more than {self._patience:g} s")
            is_finished, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise EngineError(f"the process died at {request}: {self._said()}") from error
        if not is_finished:
            raise EngineError(answer)
        return answer

    def _said(self) -> str:
        """Return the exit status of the process, and its last line of output, if any."""
        status = self._child.wait()
        self._log.seek(0)
        lines = self._log.read().splitlines()
        return f"status {status}" + (f", {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._child.kill()
        self._child.wait()
        self._log.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
