"""The checks of a backend in a shared object, in a process of its own, so that a crash or a hang is a failed case."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from interposer.backend.dynamic.child import Child
from interposer.backend.dynamic.child import Report as Channel
from interposer.backend.dynamic.names import name_fault
from interposer.config import BACKEND_PATH
from interposer.errors import InterposerError, PluginError
from interposer.testing.bench import Settings
from interposer.testing.conformance import Conformance
from interposer.testing.outcome import Result, Status
from interposer.testing.report import WHOLE, Report

__all__ = ["check_library", "main"]

START_SECONDS: Final = 300.0
MOST_CRASHES: Final = 10
"""After so many crashes the other cases are not tried any more."""


def check_library(
    path: Path, conformance: Conformance, seconds: float, progress: Callable[[Result], None] = lambda _: None
) -> Report:
    """Carry out the cases of `conformance` on the backend of a shared object, whatever that is of `conformance`.

    Where the process of the backend crashes, or takes longer than `seconds` for one case, the case has failed, and a
    new process goes on behind it.

    Raises:
        PluginError: the file cannot be loaded, or crashes or hangs while it is.
    """
    library = path.absolute()
    fault = name_fault(library.name)
    if fault is not None:
        raise PluginError(str(library), "name", fault)
    run = _Run(str(library), conformance, seconds, progress)
    while len(run.results) < len(conformance.cases):
        run.go_on()
    return Report(run.backend or library.name, run.version, run.results)


class _Run:
    """The results so far, and the process that makes more."""

    def __init__(
        self, library: str, conformance: Conformance, seconds: float, progress: Callable[[Result], None]
    ) -> None:
        self.library, self.conformance, self.seconds, self.progress = library, conformance, seconds, progress
        self.results: list[Result] = []
        self.backend = self.version = ""
        self.crashes = 0

    def go_on(self) -> None:
        """Let a process carry out the cases that are left, as many as it survives."""
        arguments = {
            "library": self.library,
            "families": list(self.conformance.families),
            "only": self.conformance.only,
            "examples": self.conformance.settings.examples if self.conformance.settings else Settings().examples,
            "start": len(self.results),
        }
        with Child(__name__, arguments) as child:
            ending = self._listen(child)
            wrote = f"; it wrote {child.wrote!r}" if child.wrote else ""
        if ending is not None:
            self._crashed(f"the backend {ending}{wrote}")

    def _listen(self, child: Child) -> str | None:
        deadline = time.monotonic() + START_SECONDS
        try:
            while (message := child.receive(deadline)) is not None:
                deadline = time.monotonic() + self.seconds
                self._take(message)
            return child.ending(deadline) or self._silence()
        except TimeoutError:
            return f"hangs: nothing happened for {self.seconds:g} seconds"
        except ValueError:
            return "disturbs its process"

    def _silence(self) -> str | None:
        return "ends its process" if len(self.results) < len(self.conformance.cases) else None

    def _take(self, message: dict[str, Any]) -> None:
        if "failed" in message:
            raise PluginError(self.library, message["check"], message["failed"])
        self.backend = message.get("backend", self.backend)
        self.version = message.get("version", self.version)
        if "status" in message:
            self._add(Status(message["status"]), message["text"])

    def _add(self, status: Status, text: str) -> None:
        result = self.conformance.judged(self.conformance.cases[len(self.results)], status, text)
        self.results.append(result)
        self.progress(result)

    def _crashed(self, text: str) -> None:
        self.crashes += 1
        left = len(self.conformance.cases) - len(self.results)
        if not left:
            self.results.append(Result("process/end", "process", WHOLE, "", Status.FAIL, f"{text} at the end"))
        elif not self.backend:
            raise PluginError(self.library, "probe", f"{text} while it is loaded")
        else:
            self._add(Status.FAIL, text)
        if self.crashes == MOST_CRASHES:
            for _ in range(left - 1):
                self._add(Status.SKIP, f"not tried: the backend has crashed or hung {MOST_CRASHES} times")


def main(report: Channel, library: str, families: Collection[str], only: str, examples: int, start: int) -> None:
    """In the process of the backend: carry out the cases from number `start` on, and report each."""
    os.environ.pop(BACKEND_PATH, None)  # it is this one that is checked
    conformance = Conformance(library, families=families, only=only, settings=Settings(examples=examples))
    report.send(ready=True)
    try:
        backend = conformance.backend
    except InterposerError as error:
        report.send(check=getattr(error, "check", "init"), failed=getattr(error, "reason", str(error)))
        return
    report.send(backend=backend.id, version=backend.version)
    for case in conformance.cases[start:]:
        result = conformance.run(case)
        report.send(status=result.status.value, text=result.text)
    conformance.bench.close()
