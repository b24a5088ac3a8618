"""Networks with states, for clients that send requests in sequences: each sequence has states of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from interposer.core.types import Array
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import Parameters
from interposer.serving.runs import Runner, awaited_to_the_end
from interposer.serving.statistics import Timing
from interposer.session import Model

__all__ = ["Sequences"]

_Id: TypeAlias = "int | str"


@dataclass(slots=True)
class _Sequence:
    """The states of one sequence, and when it was used last."""

    states: dict[str, Array] = field(default_factory=dict)
    last_used: float = field(default_factory=time.monotonic)


class Sequences(Runner):
    """Runs a model with states, whose values belong to the sequence of a request. Used in the event loop only.

    The requests of all sequences of a model run one after another, because a model has its states once; the values of
    the states are exchanged without copies. A request that fails leaves the states of its sequence as they were.

    Args:
        model: the model; nothing else runs it.
        idle: seconds without requests after which the states of a sequence are dropped.
        most: the number of sequences that may exist at the same time.
    """

    def __init__(self, model: Model, idle: float = 60.0, most: int = 256) -> None:
        self.model, self._idle, self._max_sequences = model, idle, most
        self._sequences: dict[_Id, _Sequence] = {}
        self._lock = asyncio.Lock()
        self._idle_timer: asyncio.TimerHandle | None = None

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        self.model.run(dict(inputs))
        self.model.reset_state()

    def describe(self) -> str:
        return f"{len(self._sequences)} sequences with states of their own"

    def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._sequences.clear()

    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        """Run a request of the sequence with the id in the parameter ``sequence_id``; see `Runner.run`.

        ``sequence_start`` begins it with initial values, and ``sequence_end`` drops its states afterwards.

        Raises:
            ServingError: there is no id, the sequence has not begun, or too many sequences exist.
        """
        arrived = time.monotonic()
        sequence_id = _id_of(parameters)
        start, end = _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end")
        try:
            async with asyncio.timeout(seconds):
                await self._lock.acquire()
        except TimeoutError:
            raise ServingError(Status.LATE, "the request waited too long for other requests of the model") from None
        try:
            waited = time.monotonic() - arrived
            sequence = self._started(sequence_id) if start else self._existing(sequence_id)
            arrays = await self._run_with(sequence, inputs, outputs, seconds - waited, timing)
            sequence.last_used = time.monotonic()
            timing.queue += waited
            if start:
                self._sequences[sequence_id] = sequence
            if end:
                self._sequences.pop(sequence_id, None)
            return arrays
        finally:
            self._lock.release()

    async def _run_with(
        self, sequence: _Sequence, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float, timing: Timing
    ) -> list[Array]:
        initial_state = self.model.exchange_state(sequence.states)
        try:
            run = self.model.submit(inputs, list(outputs), deadline=max(seconds, 1e-6))
            return await awaited_to_the_end(run, timing)
        finally:
            sequence.states = self.model.exchange_state(initial_state)

    async def try_out(self, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._lock.acquire()
        try:
            await self._run_with(_Sequence(), inputs, outputs, seconds, Timing())
        finally:
            self._lock.release()

    def _started(self, sequence_id: _Id) -> _Sequence:
        self._drop_idle()
        if sequence_id not in self._sequences and len(self._sequences) >= self._max_sequences:
            raise ServingError(
                Status.FULL, f"{self._max_sequences} sequences of the model exist already", retry_after=1
            )
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle + 0.1, self._look_for_idle)
        return _Sequence()

    def _existing(self, sequence_id: _Id) -> _Sequence:
        sequence = self._sequences.get(sequence_id)
        if sequence is None:
            problem = f"has not begun, or had no request for {self._idle:g} seconds"
            raise ServingError(
                Status.INVALID, f"sequence {sequence_id!r} {problem}; its first request needs sequence_start"
            )
        return sequence

    def _look_for_idle(self) -> None:
        self._idle_timer = None
        self._drop_idle()
        if self._sequences:
            self._idle_timer = asyncio.get_running_loop().call_later(max(self._idle, 0.1), self._look_for_idle)

    def _drop_idle(self) -> None:
        now = time.monotonic()
        self._sequences = {
            key: sequence for key, sequence in self._sequences.items() if now - sequence.last_used <= self._idle
        }


def _id_of(parameters: Parameters) -> _Id:
    sequence_id = parameters.get("sequence_id", 0)
    is_large = not -(1 << 63) <= sequence_id < 1 << 64 if isinstance(sequence_id, int) else len(str(sequence_id)) > 128
    if isinstance(sequence_id, bool | float) or sequence_id in (0, "") or is_large:
        raise ServingError(
            Status.INVALID,
            "the model has states, so the parameter sequence_id must be a whole number of 64 bits other than 0, or a "
            "text of at most 128 characters",
        )
    return sequence_id


def _flag(parameters: Parameters, name: str) -> bool:
    flag = parameters.get(name, False)
    if not isinstance(flag, bool):
        raise ServingError(Status.INVALID, f"the parameter {name} is neither true nor false")
    return flag
