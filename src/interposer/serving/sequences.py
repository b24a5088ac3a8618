"""Networks with states, for clients that send requests in sequences: each sequence has states of its own."""

from __future__ import annotations

import asyncio
import heapq
import time
from abc import abstractmethod
from collections import Counter, abc
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import NamedTuple, TypeAlias

from interposer.core.errors import DeadlineExceededError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.serving.peers import crowding_client
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import Parameters, client_of, is_named
from interposer.serving.runs import Plain, Runner, awaited_to_the_end
from interposer.serving.statistics import Timing
from interposer.serving.turns import Gate, InTurns
from interposer.session import Model

__all__ = ["Names", "Places", "Sequence", "SequenceId", "SequenceRunner", "Sequences", "Step"]

SequenceId: TypeAlias = "int | str"
_Key: TypeAlias = tuple[str, SequenceId]
"""The client with a name to whom a sequence belongs, or an empty text, and the id of the sequence."""
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
    """The states of one sequence, who sends it, when it was used last, and its place if their number is limited."""

    client: str = ""
    states: dict[str, Array] = field(default_factory=dict)
    last_used: float = field(default_factory=time.monotonic)
    place: int = 0


class Places:
    """The places of the sequences that run; further sequences wait for one. Used in the event loop only.

    A place that becomes free is for the client that has the fewest, and of those for the sequence that has waited for
    longest.

    Args:
        count: the number of places. They are numbered from 0, and the lowest free one is taken first.

    Attributes:
        clients: the clients of the places that are taken, by the numbers of the places.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count))
        self.clients: dict[int, str] = {}
        self._waiting: list[tuple[str, asyncio.Future[int]]] = []

    async def take(self, seconds: float, client: str, make_room: Callable[[], object]) -> int:
        """Wait for a place for a client, and return its number.

        Args:
            seconds: how long to wait.
            client: the client.
            make_room: called if the client has to wait; it may give back the place of another one.

        Raises:
            DeadlineExceededError: no place was free within `seconds`.
        """
        if self._free:
            place = heapq.heappop(self._free)
            self.clients[place] = client
            return place
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting_entry = client, future
        self._waiting.append(waiting_entry)
        try:
            make_room()
            async with asyncio.timeout(seconds):
                return await future
        except BaseException as error:
            if future.done() and not future.cancelled():
                self.give_back(future.result())  # it came together with the end of the wait
            elif waiting_entry in self._waiting:
                self._waiting.remove(waiting_entry)
            if isinstance(error, TimeoutError):
                raise DeadlineExceededError(
                    f"the sequence waited longer than {seconds:g} seconds, as all {self.count} places are taken"
                ) from None
            raise

    def give_back(self, place: int) -> None:
        """Give a place to a sequence that waits, or to the next one that comes."""
        self.clients.pop(place, None)
        entry = self._next()
        if entry is None:
            heapq.heappush(self._free, place)
            return
        self._waiting.remove(entry)
        self.clients[place] = entry[0]
        entry[1].set_result(place)

    @property
    def next_client(self) -> str | None:
        """The client that gets the next place; None if no sequence waits."""
        entry = self._next()
        return None if entry is None else entry[0]

    def _next(self) -> tuple[str, asyncio.Future[int]] | None:
        """Return the sequence that gets the next place, by its client and its future; None if none waits."""
        waiting_entries = [entry for entry in self._waiting if not entry[1].done()]
        if not waiting_entries:
            return None
        counts = Counter(self.clients.values())
        return min(waiting_entries, key=lambda entry: counts[entry[0]])


class SequenceRunner(Runner):
    """Runs requests of sequences in their order, and counts the sequences. Used in the event loop only.

    The sequences of clients with names are their own: equal ids of two such clients are two sequences. If there is no
    room for another sequence, the client that has most of them loses the one without requests for longest, so that one
    client cannot keep the others out.

    Args:
        idle: seconds without requests after which the states of a sequence are dropped.
        most: the number of sequences that may exist at the same time; more are refused.
        places: how many sequences may exist if further ones wait instead; None does not let them wait.
    """

    def __init__(self, idle: float = 60.0, most: int = 256, places: Places | None = None) -> None:
        self._idle, self._max_sequences = idle, most
        self._places = places
        self._place_of: dict[_Key, int] = {}
        self._sequences: dict[_Key, Sequence] = {}
        self._turns: dict[_Key, Gate] = {}
        self._starting: dict[_Key, str] = {}
        """The clients of the sequences whose first request runs."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._has_dropped = False

    @property
    def sequence_idle(self) -> float | None:
        return self._idle

    def forget(self, parameters: Parameters) -> None:
        key = _key_of(parameters)
        self._sequences.pop(key, None)
        if key not in self._turns:
            self._leave(key)

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
        arrived_at = time.monotonic()
        key = _key_of(parameters)
        step = Step(key[1], _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end"))
        async with self._turn_of(key, seconds):
            seconds_left = seconds - (time.monotonic() - arrived_at)
            client = client_of(parameters)
            try:
                sequence = await self._started(key, client, seconds_left) if step.start else self._existing(key)
                seconds_waited = time.monotonic() - arrived_at
                arrays = await self.run_step(
                    step, sequence, inputs, outputs, seconds - seconds_waited, parameters, timing
                )
                timing.queue += seconds_waited
                sequence.last_used = time.monotonic()
                if step.start:
                    self._sequences[key] = sequence
                if step.end:
                    self._sequences.pop(key, None)
                return arrays
            finally:
                self._starting.pop(key, None)
                self._leave(key)
                self._make_room_for_next()

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
    async def _turn_of(self, key: _Key, seconds: float) -> AsyncIterator[None]:
        """Wait for the earlier requests of a sequence."""
        turn = self._turns.setdefault(key, Gate(1))
        try:
            await turn.enter((0, 0), seconds)
            try:
                yield
            finally:
                turn.leave()
        finally:
            if turn.is_empty and self._turns.get(key) is turn:
                del self._turns[key]
                self._leave(key)  # it may have been dropped before the next request had its turn
                self._make_room_for_next()

    async def _started(self, key: _Key, client: str, seconds: float) -> Sequence:
        """Return a new sequence, which waits for a place if the places are limited."""
        self._drop_idle()
        if self._places is None:
            self._check_number(key, client)
        elif key in self._place_of:
            self._places.clients[self._place_of[key]] = client
        else:
            self._place_of[key] = await self._places.take(seconds, client, self._make_room_for_next)
        self._starting[key] = client
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle + 0.1, self._look_for_idle)
        return Sequence(client, place=self._place_of.get(key, 0))

    def _check_number(self, key: _Key, client: str) -> None:
        """Raise `ServingError` if no further sequence may exist, and no client has to make room for this one."""
        known_keys = self._sequences.keys() | self._starting.keys()
        if key not in known_keys and len(known_keys) >= self._max_sequences and not self._makes_room(client):
            raise ServingError(
                Status.FULL, f"{self._max_sequences} sequences of the model exist already", retry_after=1
            )

    def _makes_room(self, client: str) -> bool:
        """Drop a sequence of the client that has most of them, for one of another client.

        It is the one without requests for longest. If all of its sequences have requests, one of them is dropped when
        its request that runs has ended. Returns False if no client has two sequences more than `client`.
        """
        crowding = crowding_client(Counter(self._clients()), client)
        begun_sequences = {key: sequence for key, sequence in self._sequences.items() if key not in self._starting}
        keys = [key for key, sequence in begun_sequences.items() if sequence.client == crowding]
        if not keys:
            return False
        oldest = min(keys, key=lambda key: (key in self._turns, self._sequences[key].last_used))
        del self._sequences[oldest]
        if oldest not in self._turns:
            self._leave(oldest)
        self._has_dropped = True
        return True

    def _clients(self) -> Iterable[str]:
        """Return the client of each sequence that exists, begins, or has just got its place."""
        if self._places is not None:
            return self._places.clients.values()
        return ({key: sequence.client for key, sequence in self._sequences.items()} | self._starting).values()

    def _make_room_for_next(self) -> None:
        """Let clients with most sequences make room for those that wait for places, unless a place comes anyway."""
        while self._places is not None and (client := self._places.next_client) is not None:
            is_coming = bool(self._place_of.keys() - self._sequences.keys() - self._starting.keys())
            if is_coming or not self._makes_room(client):
                return

    def _leave(self, key: _Key) -> None:
        """Give the place of a sequence to another one, if the sequence has ended."""
        place = None if key in self._sequences else self._place_of.pop(key, None)
        if place is not None and self._places is not None:
            self._places.give_back(place)

    def _existing(self, key: _Key) -> Sequence:
        sequence = self._sequences.get(key)
        if sequence is None:
            problem = f"has not begun, or had no request for {self._idle:g} seconds"
            problem += ", or had to make room for other clients" if self._has_dropped else ""
            raise ServingError(Status.INVALID, f"sequence {key[1]!r} {problem}; its first request needs sequence_start")
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
        arrived_at = time.monotonic()
        async with self._instance(seconds, parameters) as model:
            seconds_waited = time.monotonic() - arrived_at
            arrays = await self._run_with(model, sequence, inputs, outputs, seconds - seconds_waited, timing)
            timing.queue += seconds_waited
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


def _key_of(parameters: Parameters) -> _Key:
    """Return the key of the sequence of a request; raise `ServingError` if its parameters have no valid id."""
    client = client_of(parameters)
    return client if is_named(client) else "", _id_of(parameters)


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
