"""Networks with states, for clients that send requests in sequences: each sequence has states of its own."""

from __future__ import annotations

import asyncio
import heapq
import time
from abc import abstractmethod
from collections import abc, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from interposer.core.errors import DeadlineExceededError
from interposer.core.types import Array
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import Parameters
from interposer.serving.runs import Plain, Runner, awaited_to_the_end
from interposer.serving.statistics import Timing
from interposer.serving.turns import Gate, InTurns
from interposer.session import Model

__all__ = ["Names", "Places", "Sequence", "SequenceId", "SequenceRunner", "Sequences", "Step"]

SequenceId: TypeAlias = "int | str"
Names: TypeAlias = abc.Sequence[str]


class Step(NamedTuple):
    """A request of a sequence: the id of the sequence, and whether the request is its first or its last one.

    `ready` is False for a row of a batch that has no request.
    """

    sequence_id: SequenceId
    start: bool
    end: bool
    ready: bool = True


@dataclass(slots=True)
class Sequence:
    """The states of one sequence, when it was used last, and its place if the places of sequences are limited."""

    states: dict[str, Array] = field(default_factory=dict)
    last_used: float = field(default_factory=time.monotonic)
    place: int = 0


class Places:
    """The places of the sequences that run; further sequences wait for one in their order. Used in the event loop only.

    Args:
        count: the number of places. They are numbered from 0, and the lowest free one is taken first.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count))
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def take(self, seconds: float) -> int:
        """Wait for a place, and return its number.

        Raises:
            DeadlineExceededError: no place was free within `seconds`.
        """
        if self._free:
            return heapq.heappop(self._free)
        place: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(seconds):
                return await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.give_back(place.result())  # it came together with the end of the wait
            elif place in self._waiting:
                self._waiting.remove(place)
            if isinstance(error, TimeoutError):
                raise DeadlineExceededError(
                    f"the sequence waited longer than {seconds:g} seconds, as all {self.count} places are taken"
                ) from None
            raise

    def give_back(self, place: int) -> None:
        """Give a place to the sequence that has waited for longest, or to the next one that comes."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(place)
                return
        heapq.heappush(self._free, place)


class SequenceRunner(Runner):
    """Runs requests of sequences in their order, and counts the sequences. Used in the event loop only.

    Args:
        idle: seconds without requests after which the states of a sequence are dropped.
        most: the number of sequences that may exist at the same time; more are refused.
        places: how many sequences may exist if further ones wait instead; None does not let them wait.
    """

    def __init__(self, idle: float = 60.0, most: int = 256, places: Places | None = None) -> None:
        self._idle, self._max_sequences = idle, most
        self._places = places
        self._place_of: dict[SequenceId, int] = {}
        self._sequences: dict[SequenceId, Sequence] = {}
        self._turns: dict[SequenceId, Gate] = {}
        self._starting: set[SequenceId] = set()
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def sequence_idle(self) -> float | None:
        return self._idle

    def forget(self, sequence_id: SequenceId) -> None:
        self._sequences.pop(sequence_id, None)
        if sequence_id not in self._turns:
            self._leave(sequence_id)

    def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._sequences.clear()

    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Names,
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
        step = Step(sequence_id, _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end"))
        async with self._turn_of(sequence_id, seconds):
            remaining = seconds - (time.monotonic() - arrived)
            sequence = await self._started(sequence_id, remaining) if step.start else self._existing(sequence_id)
            waited = time.monotonic() - arrived
            try:
                arrays = await self.run_step(step, sequence, inputs, outputs, seconds - waited, parameters, timing)
                timing.queue += waited
                sequence.last_used = time.monotonic()
                if step.start:
                    self._sequences[sequence_id] = sequence
                if step.end:
                    self._sequences.pop(sequence_id, None)
                return arrays
            finally:
                self._starting.discard(sequence_id)
                if sequence_id not in self._sequences:
                    self._leave(sequence_id)

    @abstractmethod
    async def run_step(
        self,
        step: Step,
        sequence: Sequence,
        inputs: Mapping[str, Array],
        outputs: Names,
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        """Run one request of a sequence, and update its states if the run succeeds; see `Runner.run`."""

    @asynccontextmanager
    async def _turn_of(self, sequence_id: SequenceId, seconds: float) -> AsyncIterator[None]:
        """Wait for the earlier requests of a sequence."""
        turn = self._turns.setdefault(sequence_id, Gate(1))
        await turn.enter((0, 0), seconds)
        try:
            yield
        finally:
            turn.leave()
            if turn.is_empty:
                self._turns.pop(sequence_id, None)

    async def _started(self, sequence_id: SequenceId, seconds: float) -> Sequence:
        """Return a new sequence, which waits for a place if the places are limited."""
        self._drop_idle()
        known_ids = self._sequences.keys() | self._starting
        if self._places is None and sequence_id not in known_ids and len(known_ids) >= self._max_sequences:
            raise ServingError(
                Status.FULL, f"{self._max_sequences} sequences of the model exist already", retry_after=1
            )
        if self._places is not None and sequence_id not in self._place_of:
            self._place_of[sequence_id] = await self._places.take(seconds)
        self._starting.add(sequence_id)
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle + 0.1, self._look_for_idle)
        return Sequence(place=self._place_of.get(sequence_id, 0))

    def _leave(self, sequence_id: SequenceId) -> None:
        """Give the place of a sequence that has ended to another one."""
        place = self._place_of.pop(sequence_id, None)
        if place is not None and self._places is not None:
            self._places.give_back(place)

    def _existing(self, sequence_id: SequenceId) -> Sequence:
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
        if self._sequences or self._place_of:
            oldest = min((sequence.last_used for sequence in self._sequences.values()), default=time.monotonic())
            seconds = max(oldest + self._idle - time.monotonic(), 0.0) + 0.1
            self._idle_timer = asyncio.get_running_loop().call_later(seconds, self._look_for_idle)

    def _drop_idle(self) -> None:
        """Drop the sequences that had no request for too long; those with a request that runs or waits stay."""
        oldest = time.monotonic() - self._idle
        idle_ids = [
            key for key, sequence in self._sequences.items() if sequence.last_used < oldest and key not in self._turns
        ]
        for key in idle_ids:
            del self._sequences[key]
            self._leave(key)


class Sequences(SequenceRunner):
    """Runs a model with states, whose values belong to the sequence of a request. Used in the event loop only.

    As many requests run at the same time as there are instances of the model, because each has its states once; the
    values of the states are exchanged without copies. The requests of one sequence run one after another. A request
    that fails leaves the states of its sequence as they were.

    Args:
        model: the model; nothing else runs it.
        idle: seconds without requests after which the states of a sequence are dropped.
        most: the number of sequences that may exist at the same time.
        copies: further instances of the model, which `close` closes.
        places: see `SequenceRunner`.
        turns: limits the runs to the instances, once their sequences have places; None orders them by arrival.
    """

    def __init__(
        self,
        model: Model,
        idle: float = 60.0,
        most: int = 256,
        copies: Iterable[Model] = (),
        places: Places | None = None,
        turns: InTurns | None = None,
    ) -> None:
        super().__init__(idle, most, places)
        self.model, self._copies = model, tuple(copies)
        self._free = [model, *self._copies]
        self._in_turns = InTurns(Plain(model), instances=len(self._free)) if turns is None else turns

    @property
    def concurrency(self) -> int:
        return 1 + len(self._copies)

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        for model in (self.model, *self._copies):
            model.run(dict(inputs))
            model.reset_state()

    def describe(self) -> str:
        return f"{len(self._sequences)} sequences with states of their own, {self._in_turns.describe()}"

    def close(self) -> None:
        super().close()
        for model in self._copies:
            model.close()

    async def run_step(
        self,
        step: Step,
        sequence: Sequence,
        inputs: Mapping[str, Array],
        outputs: Names,
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        arrived = time.monotonic()
        async with self._instance(seconds, parameters) as model:
            waited = time.monotonic() - arrived
            arrays = await self._run_with(model, sequence, inputs, outputs, seconds - waited, timing)
            timing.queue += waited
            return arrays

    @asynccontextmanager
    async def _instance(self, seconds: float, parameters: Parameters | None = None) -> AsyncIterator[Model]:
        """Wait for an instance of the model, which is yielded."""
        async with self._in_turns.turn(seconds, parameters):
            model = self._free.pop()
            try:
                yield model
            finally:
                self._free.append(model)

    async def _run_with(
        self,
        model: Model,
        sequence: Sequence,
        inputs: Mapping[str, Array],
        outputs: Names,
        seconds: float,
        timing: Timing,
    ) -> list[Array]:
        initial_state = model.exchange_state(sequence.states)
        try:
            run = model.submit(inputs, list(outputs), deadline=max(seconds, 1e-6))
            return await awaited_to_the_end(run, timing)
        finally:
            sequence.states = model.exchange_state(initial_state)

    async def try_out(self, inputs: Mapping[str, Array], outputs: Names, seconds: float) -> None:
        async with self._instance(seconds) as model:
            await self._run_with(model, Sequence(), inputs, outputs, seconds, Timing())


def _id_of(parameters: Parameters) -> SequenceId:
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
