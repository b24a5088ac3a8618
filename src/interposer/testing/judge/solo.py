"""A worker that judges networks one after the other, and is replaced when it crashes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from interposer.core.errors import BackendCrashedError
from interposer.testing.judge.judging import culprit
from interposer.testing.judge.serving import DONE, Task
from interposer.testing.judge.subject import Outcome, Subject, Verdict
from interposer.testing.judge.tasks import One, Served
from interposer.testing.judge.workers import Lost, Nursery, Worker

__all__ = ["Solo"]


class Solo:
    """A worker that judges networks one by one. Use it in a ``with`` block, which ends the worker.

    Args:
        nursery: the process that forks the worker.
        seconds: the time limit for one network.
        ids: the backends to use, in order of preference; None means all of the nursery's setup.
    """

    def __init__(self, nursery: Nursery, seconds: float, ids: Sequence[str] | None = None) -> None:
        self.nursery, self.seconds = nursery, seconds
        self._worker: Worker | None = None
        self._ids = None if ids is None else tuple(ids)

    def __enter__(self) -> Solo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.renew()

    def renew(self) -> None:
        """End the worker, so that a new worker judges the next network."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def do(self, task: Task) -> Any:
        """Let the worker run a task, and return its only result.

        Raises:
            Lost: the worker crashed during the task.
            InterposerError: the backends under test cannot be created.
        """
        if self._worker is None:
            self._worker = Worker(self.nursery, self.seconds)
        try:
            self._worker.give(task)
            result = self._worker.receive()
            if result == DONE:
                return None
            self._worker.receive()
            return result
        except Lost:
            self.renew()
            raise

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the backends to use.

        Raises:
            BackendCrashedError: the process ends, or hangs, while it creates the backends under test.
            InterposerError: the backends under test cannot be created.
        """
        if self._ids is None:
            self._ids = self._served()
        return self._ids

    def _served(self) -> tuple[str, ...]:
        try:
            return tuple(name for name, _ in self.do(Served()))
        except Lost as lost:
            names = " or ".join(str(backend) for backend in self.nursery.setup.backends)
            raise BackendCrashedError(f"{names} cannot be created: {lost.text}", reason=lost.sort.value) from lost

    def judge(self, subject: Subject) -> Verdict:
        """Judge a network in the worker and return the verdict.

        If the worker crashes, the network is judged again with fewer backends, to determine the culprit.
        """
        try:
            verdict: Verdict = self.do(One(subject, self.ids))
        except Lost as lost:
            verdict = _lost(subject, lost)
            return verdict.blaming(culprit(verdict, self.ids, lambda ids: self._judged(subject, ids)))
        return verdict

    def _judged(self, subject: Subject, ids: Sequence[str]) -> Verdict:
        try:
            verdict: Verdict = self.do(One(subject, ids, blame=False))
        except Lost as lost:
            return _lost(subject, lost)
        return verdict


def _lost(subject: Subject, lost: Lost) -> Verdict:
    return Verdict(Outcome.FINDING, subject.conditions, lost.sort, lost.text)
