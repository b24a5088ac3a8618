"""A pool of workers that judge random networks concurrently; a worker that dies is replaced."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from interposer.testing.judge.serving import DONE
from interposer.testing.judge.subject import Conditions, Outcome, Verdict
from interposer.testing.judge.tasks import Judged, Numbers, Plan
from interposer.testing.judge.workers import TICK, Lost, Nursery, Worker

__all__ = ["Crew"]

CHUNK: Final = 50
"""The maximum number of networks that a worker receives at once."""
FEW: Final = 16
"""The number of networks up to which a single worker is used."""


class Crew:
    """A pool of worker processes that judge the networks of a plan concurrently; a worker that dies is replaced.

    Args:
        nursery: the object that forks workers.
        plan: the networks to judge.
        jobs: the number of workers.
        seconds: the time limit for one network.
        idle: idle workers; the pool takes workers from this list, and returns all of them at the end.
    """

    def __init__(self, nursery: Nursery, plan: Plan, jobs: int, seconds: float, idle: list[Worker]) -> None:
        self.nursery, self.plan, self.jobs, self.seconds, self.idle = nursery, plan, jobs, seconds, idle
        self._remaining_ranges: deque[range] = deque()
        self._busy: dict[int, _Busy] = {}

    def judge(self, numbers: range) -> Iterator[Judged]:
        """Judge these networks; yield the result of each as soon as it is known, in no particular order."""
        chunk_size = max(FEW // 2, min(CHUNK, len(numbers) // (2 * self.jobs)))
        self._remaining_ranges = deque(
            numbers[start : start + chunk_size] for start in range(0, len(numbers), chunk_size)
        )
        with ExitStack() as stack:
            stack.callback(self._dismiss)
            for _ in range(min(self.jobs, -(-len(numbers) // FEW))):
                self._begin(self._hired(), self._remaining_ranges.popleft())
            while self._busy:
                yield from self._listen()

    def _hired(self) -> Worker:
        return self.idle.pop() if self.idle else Worker(self.nursery, self.seconds)

    def _dismiss(self) -> None:
        for busy_worker in self._busy.values():
            busy_worker.worker.close()
        self._busy.clear()

    def _begin(self, worker: Worker, numbers: range) -> None:
        self._busy[worker.channel.fileno()] = _Busy(worker, numbers)
        worker.give(Numbers(self.plan, numbers.start, numbers.stop))

    def _listen(self) -> Iterator[Judged]:
        poll = select.poll()
        for descriptor in self._busy:
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(1000 * TICK)}
        for descriptor in list(self._busy):
            yield from self._attend(descriptor, descriptor in ready)

    def _attend(self, descriptor: int, is_ready: bool) -> Iterator[Judged]:
        """Yield a worker's new results if there are any (`is_ready`), and replace the worker if it crashed or hangs.

        The worker is identified by the file descriptor of its connection. Results are read before the limits are
        checked, so that a loss is attributed to the network being judged.
        """
        busy_worker = self._busy[descriptor]
        try:
            results = busy_worker.worker.poll() if is_ready else []
        except Lost as lost:
            yield from self._replaced(descriptor, lost)
            return
        yield from (result for result in results if result != DONE)
        busy_worker.done += sum(result != DONE for result in results)
        if DONE in results:
            self._next(descriptor)
            return
        try:
            busy_worker.worker.check()
        except Lost as lost:
            yield from self._replaced(descriptor, lost)

    def _next(self, descriptor: int) -> None:
        worker = self._busy.pop(descriptor).worker
        if self._remaining_ranges:
            self._begin(worker, self._remaining_ranges.popleft())
        else:
            self.idle.append(worker)

    def _replaced(self, descriptor: int, lost: Lost) -> Iterator[Judged]:
        """Yield a failure for the network at which a worker was lost.

        Another worker continues with the networks after it. The worker is identified by the file descriptor of its
        connection; `lost` describes its end. A worker that is lost after its last result, by a thread of the backend,
        is reported for its last network.
        """
        busy_worker = self._busy.pop(descriptor)
        busy_worker.worker.close()
        number, numbers_left = (
            busy_worker.numbers[min(busy_worker.done, len(busy_worker.numbers) - 1)],
            busy_worker.numbers[busy_worker.done + 1 :],
        )
        if numbers_left:
            self._remaining_ranges.appendleft(numbers_left)
        if self._remaining_ranges:
            self._begin(self._hired(), self._remaining_ranges.popleft())
        verdict = Verdict(Outcome.FINDING, Conditions(), lost.sort, lost.text)
        yield Judged(number, self.plan.kind or "", (verdict,))


class _Busy:
    """A worker that is judging networks, the numbers of these networks, and how many of them are done."""

    def __init__(self, worker: Worker, numbers: range) -> None:
        self.worker, self.numbers, self.done = worker, numbers, 0
