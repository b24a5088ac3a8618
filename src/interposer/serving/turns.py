"""Turns: how many requests run at the same time, and which of those that wait runs next."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any, Final, TypeAlias

from interposer.core.errors import DeadlineExceededError
from interposer.core.types import Array, TensorInfo
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import Parameters
from interposer.serving.runs import Runner
from interposer.serving.statistics import Timing

__all__ = ["DEFAULT_PRIORITY", "Gate", "InTurns", "RateLimit", "rate_limit"]

DEFAULT_PRIORITY: Final = 5
"""The priority of a model that sets none; 1 runs first, 9 last."""
_Order: TypeAlias = tuple[int, int]


class Gate:
    """Lets a limited number of runs begin, and of those that wait the most urgent one first.

    Used from the thread of the event loop only.

    Args:
        limit: how many runs may be inside at the same time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._num_inside = 0
        self._waiting: list[tuple[_Order, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @property
    def is_empty(self) -> bool:
        """True if nothing is inside or waits."""
        return not self._num_inside

    async def enter(self, order: _Order, seconds: float) -> None:
        """Wait for a place; `leave` must be called afterwards. The lowest `order` goes first, then the earliest.

        Raises:
            DeadlineExceededError: no place was free within `seconds`.
        """
        if self._num_inside < self.limit:
            self._num_inside += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting_entry = (order, next(self._arrivals), future)
        heapq.heappush(self._waiting, waiting_entry)
        try:
            async with asyncio.timeout(seconds):
                await future
        except BaseException as error:
            if future.done() and not future.cancelled():
                self.leave()  # the place came together with the end of the wait
            elif waiting_entry in self._waiting:
                self._waiting.remove(waiting_entry)
                heapq.heapify(self._waiting)
            if isinstance(error, TimeoutError):
                raise DeadlineExceededError(
                    f"the request waited for its turn longer than {seconds:g} seconds"
                ) from None
            raise

    def leave(self) -> None:
        """Give a place back, or to the next run that waits."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[-1]
            if not future.done():
                future.set_result(None)
                return
        self._num_inside -= 1


class InTurns(Runner):
    """Runs requests as another runner does, when it is their turn.

    Args:
        inner: runs the requests.
        shared: the gate of all models of a runtime.
        instances: how many runs of this model may be active at the same time; None for the limit of `inner`.
        priority: the priority of the model, from 1 (first) on.
        levels: the number of priorities that requests may have; 1 ignores the parameter ``priority``.
    """

    def __init__(
        self,
        inner: Runner,
        shared: SharedGate | None = None,
        instances: int | None = None,
        priority: int | None = None,
        levels: int = 1,
    ) -> None:
        self.inner, self._shared, self._instances = inner, shared or SharedGate(), instances
        self._priority, self._levels = DEFAULT_PRIORITY if priority is None else priority, levels
        self._own = Gate(inner.concurrency if instances is None else instances) if instances or levels > 1 else None

    @property
    def concurrency(self) -> int:
        return self.inner.concurrency if self._instances is None else min(self._instances, self.inner.concurrency)

    def accepts(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> bool:
        return self.inner.accepts(name, info, shape)

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        self.inner.warm_up(inputs)

    def try_out(self, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float) -> Coroutine[Any, Any, None]:
        return self.inner.try_out(inputs, outputs, seconds)

    @property
    def sequence_idle(self) -> float | None:
        return self.inner.sequence_idle

    def forget(self, parameters: Parameters) -> None:
        self.inner.forget(parameters)

    def describe(self) -> str:
        texts = [self.inner.describe()]
        if self._instances is not None:
            texts.append(f"at most {self._instances} at the same time")
        if self._priority != DEFAULT_PRIORITY:
            texts.append(f"priority {self._priority}")
        return ", ".join(filter(None, texts))

    def close(self) -> None:
        self.inner.close()

    def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> Coroutine[Any, Any, list[Array]]:
        gates = self._gates()
        if not gates:
            return self.inner.run(inputs, outputs, seconds, parameters, timing)
        return self._run_in_turn(gates, inputs, outputs, seconds, parameters, timing)

    async def _run_in_turn(
        self,
        gates: list[Gate],
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        async with self._turn(gates, self._level(parameters), seconds) as seconds_waited:
            run_result = await self.inner.run(inputs, outputs, seconds - seconds_waited, parameters, timing)
            timing.queue += seconds_waited
            return run_result

    def turn(self, seconds: float, parameters: Parameters | None = None) -> AbstractAsyncContextManager[float]:
        """Wait for the turn of a run, and yield the seconds of the wait.

        Args:
            seconds: the time until the deadline.
            parameters: the parameters of the request; None for a run that several requests share, which goes first.
        """
        return self._turn(self._gates(), 0 if parameters is None else self._level(parameters), seconds)

    def _gates(self) -> list[Gate]:
        return [gate for gate in (self._own, self._shared.gate) if gate is not None]

    @asynccontextmanager
    async def _turn(self, gates: list[Gate], level: int, seconds: float) -> AsyncIterator[float]:
        arrived_at, num_entered = time.monotonic(), 0
        try:
            for gate in gates:
                await gate.enter((self._priority, level), seconds - (time.monotonic() - arrived_at))
                num_entered += 1
            yield time.monotonic() - arrived_at
        finally:
            for gate in gates[:num_entered]:
                gate.leave()

    def _level(self, parameters: Parameters) -> int:
        """Return the priority of a request: 1 is first; 0, the default, is the level in the middle."""
        level = parameters.get("priority", 0)
        if isinstance(level, str) and level.isascii() and level.isdecimal() and len(level) < 20:
            level = int(level)  # clients send large numbers as texts
        if isinstance(level, bool | float | str) or level < 0:
            raise ServingError(Status.INVALID, "the parameter priority is not a whole number from 0 on")
        return min(level, self._levels) if level else (self._levels + 1) // 2


class SharedGate:
    """The gate of all models of a runtime, which is there as soon as one of them has a priority."""

    def __init__(self) -> None:
        self.gate: Gate | None = None

    def activate(self, limit: int) -> None:
        """Let requests of all models wait here in the order of their priorities."""
        if self.gate is None:
            self.gate = Gate(limit)


class RateLimit:
    """The most requests per second of a model, with room for a burst.

    Args:
        rate: requests per second.
        burst: the number of requests that may come at once.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._last = float(burst), time.monotonic()

    def take(self, name: str) -> None:
        """Count a request of the model `name`.

        Raises:
            ServingError: there are more requests than the model may get.
        """
        seconds = self._seconds_left()
        if seconds:
            raise ServingError(
                Status.TOO_MANY,
                f"model {name!r} gets at most {self._rate:g} requests per second",
                retry_after=max(1, round(seconds + 0.5)),
            )
        self._tokens -= 1

    async def wait(self, seconds: float) -> None:
        """Count a further run of a request, when the rate allows it.

        Raises:
            DeadlineExceededError: that is not within `seconds`.
        """
        end = time.monotonic() + seconds
        while pause := self._seconds_left():
            if time.monotonic() + pause > end:
                raise DeadlineExceededError(f"the stream waits longer than {seconds:g} s for the rate of its model")
            await asyncio.sleep(pause)
        self._tokens -= 1

    def _seconds_left(self) -> float:
        """Return the seconds until the next request may come."""
        now = time.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._last) * self._rate)
        self._last = now
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._rate


def rate_limit(rate: float | None, burst: int | None, workers: int) -> RateLimit | None:
    """Return the limit of one of several worker processes that share the rate of a model; None without a rate."""
    if rate is None:
        return None
    return RateLimit(rate / workers, max(1, round(rate if burst is None else burst) // workers))
