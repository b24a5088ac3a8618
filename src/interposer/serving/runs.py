"""How a served model runs for a request: each request alone, in a thread of the model's runtime unless it is quick."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from interposer.core.errors import DeadlineExceededError
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.runtime import PendingRun
from interposer.serving.protocol.messages import Parameters
from interposer.serving.quick import QuickShapes, shapes_of
from interposer.serving.statistics import Timing
from interposer.session import Model

__all__ = ["Plain", "Runner", "awaited", "awaited_to_the_end"]

_SHORT: Final = 0.1
"""Seconds of the first run of a model up to which it runs a few times more, to know how long it takes."""
_TRIES: Final = 4


class Runner(ABC):
    """Runs one model for requests."""

    @abstractmethod
    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        """Return the arrays of these outputs, and set the times of the run in `timing`.

        Args:
            inputs: the inputs by name, which fit the model.
            outputs: names of outputs.
            seconds: the time until the deadline.
            parameters: the parameters of the request.
            timing: where to put the times.

        Raises:
            InterposerError: the run failed, or exceeded its deadline.
        """

    def accepts(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> bool:
        """Return True if the input with this name and info may have this shape."""
        return info.shape.accepts(TensorShape(shape))

    @abstractmethod
    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        """Run the model once; called in another thread, before the first request."""

    async def try_out(self, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float) -> None:
        """Run the model once while it is served, to see whether it can run; no request sees an effect.

        Raises:
            InterposerError: the run failed, or took longer than `seconds`.
        """
        await self.run(inputs, outputs, seconds, {}, Timing())

    @property
    def concurrency(self) -> int:
        """How many requests run at the same time; more of them wait."""
        return 1

    @property
    def sequence_idle(self) -> float | None:
        """Seconds after which the states of a sequence without requests are dropped; None without sequences."""
        return None

    def forget(self, parameters: Parameters) -> None:
        """Drop the states of the sequence of a request with these parameters, if there are any."""

    def describe(self) -> str:
        """Return a sentence about how requests are run, or an empty text if each of them runs alone."""
        return ""

    def close(self) -> None:
        """Release what the runner holds; the model itself stays open."""


class Plain(Runner):
    """Runs each request alone, in a thread of the model's runtime. Quick runs are in the thread of the event loop.

    Args:
        model: the model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._names = list(model.outputs)
        self._quick = QuickShapes(model)

    @property
    def concurrency(self) -> int:
        return self.model.runtime.workers.limit

    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        names = None if outputs == self._names else list(outputs)
        shapes = shapes_of(inputs)
        if self._quick.has(shapes, seconds):
            results = self._run_at_once(shapes, inputs, names, timing)
            if timing.compute > seconds:
                raise DeadlineExceededError(f"the run took longer than {seconds:g} seconds")
            if results is not None:
                return results
            seconds -= timing.compute
        run = self.model.submit(inputs, names, deadline=seconds)
        arrays = await awaited(run, timing)
        self._quick.ran(shapes, timing.compute)
        return arrays

    def _run_at_once(
        self, shapes: tuple[tuple[int, ...], ...], inputs: Mapping[str, Array], names: list[str] | None, timing: Timing
    ) -> list[Array] | None:
        """Run in this thread; return None if the run must be in another one.

        That is so if a network must be built first, or if a backend has failed: then the other thread disables it.
        """
        start = time.monotonic()
        try:
            arrays = self.model.run_if_loaded(inputs, names)
        except BaseException:
            self._quick.failed(shapes)
            raise
        finally:
            timing.compute = time.monotonic() - start
        if arrays is None:
            self._quick.failed(shapes)
        else:
            self._quick.ran(shapes, timing.compute)
        return arrays

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        start = time.monotonic()
        self.model.run(dict(inputs))
        for _ in range(_TRIES if time.monotonic() - start < _SHORT else 0):
            start = time.monotonic()
            self.model.run(dict(inputs))
            self._quick.ran(shapes_of(inputs), time.monotonic() - start)


async def awaited(run: PendingRun, timing: Timing) -> list[Array]:
    """Return the result of a submitted run, and set its times in `timing`; cancel the run if this task is cancelled."""
    submitted_at = time.monotonic()
    try:
        arrays: list[Array] = await asyncio.wrap_future(run)
        return arrays
    finally:
        end = time.monotonic()
        start = run.began or end
        timing.queue, timing.compute = max(0.0, start - submitted_at), max(0.0, end - start)


async def awaited_to_the_end(run: PendingRun, timing: Timing) -> list[Array]:
    """Like `awaited`, but if this task is cancelled, return only after the run has really ended."""
    waiting_task = asyncio.ensure_future(awaited(run, timing))
    try:
        return await asyncio.shield(waiting_task)
    except asyncio.CancelledError:
        run.cancel()
        await asyncio.wait([waiting_task])
        if not waiting_task.cancelled():
            waiting_task.exception()  # it is not raised, as nobody waits for it
        raise
