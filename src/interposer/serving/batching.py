"""Dynamic batching: requests that arrive close to each other run together, as rows of one batch."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final

import numpy as np

from interposer.core.errors import DeadlineExceededError, ExecutionError, InvalidArgumentError
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.runtime import RunControl
from interposer.serving.protocol.messages import Parameters
from interposer.serving.runs import Plain, Runner, awaited
from interposer.serving.statistics import Timing
from interposer.serving.turns import InTurns
from interposer.session import Model
from interposer.session.placement.cuts import example

__all__ = [
    "Batcher",
    "SlotBatcher",
    "batch_shapes",
    "gains",
    "largest_integers",
    "seconds_of_a_row",
    "sizes_up_to",
    "why_not_batched",
]

_log: Final = logging.getLogger("interposer.serving")
_ROUNDS: Final = 2
_INTEGERS: Final = (7, 1, 0)
"""The largest integers that are tried as inputs, in this order."""
_TIMED: Final = 5
_GATHERING: Final = 50e-6
"""Processor time for each request of a batch that gathers, stacks and divides it, in seconds."""
_PROBES: Final = 8
"""Runs without an error after which integers are taken for possible inputs."""
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
"""The most that a row of a batch may differ from a single run, by the largest magnitude of the output."""


def sizes_up_to(batch: int) -> list[int]:
    """Return the batch sizes that a model is loaded for: powers of two, and the largest size itself."""
    sizes = [1 << power for power in range(1, batch.bit_length()) if 1 << power < batch]
    return [*sizes, batch]


def batch_shapes(model: Model, size: int) -> dict[str, list[int]]:
    """Return the shapes of all inputs for a batch of this size.

    Raises:
        InvalidArgumentError: the rows of an input are not along its first axis, or their shape is not known.
    """
    shapes = {}
    for name, info in model.inputs.items():
        if not info.is_tensor or not info.is_ranked or not info.shape.rank:
            raise InvalidArgumentError(f"input {name!r}, {info}, has no rows")
        batch_size, *row_sizes = info.shape
        if not isinstance(batch_size, Dim) and int(batch_size) != 1:
            raise InvalidArgumentError(
                f"the first size of input {name!r} is {int(batch_size)}; batching needs 1, or any size"
            )
        if any(isinstance(row_size, Dim) for row_size in row_sizes):
            raise InvalidArgumentError(f"the sizes of a row of input {name!r}, {info.shape}, are not all known")
        shapes[name] = [size, *map(int, row_sizes)]
    if not shapes:
        raise InvalidArgumentError("the model has no inputs")
    return shapes


def why_not_batched(single: Model, batched: Model, size: int, largest: int = _INTEGERS[0]) -> str:
    """Return why the rows of a batch are not the results of single runs; an empty text if they are.

    Both models run on random inputs, with integers of at most `largest`. Integers and texts of the outputs must be
    equal, and floats nearly so.
    """
    for seed in range(_ROUNDS):
        rows = [_row(single.inputs, seed * size + index, largest) for index in range(size)]
        single_results = [single.run(dict(row)) for row in rows]
        batch_outputs = batched.run({name: np.concatenate([row[name] for row in rows]) for name in single.inputs})
        for row_index, single_outputs in enumerate(single_results):
            for name, single_row, batch in zip(single.outputs, single_outputs, batch_outputs, strict=True):
                if batch.ndim < 1 or batch.shape[0] != size or single_row.shape != (1, *batch.shape[1:]):
                    return f"output {name!r} of {size} rows has the shape {list(batch.shape)}"
                if not _equal(single_row[0], batch[row_index]):
                    return f"row {row_index} of output {name!r} differs from that of a single run"
    return ""


def seconds_of_a_row(single: Model, batched: Model, size: int, largest: int) -> tuple[float, float]:
    """Return the seconds that a row takes in a run of its own, and in a batch of `size` rows.

    Both are the shortest of a few runs, which alternate. Integers of the inputs are at most `largest`.
    """
    row = _row(single.inputs, 0, largest)
    batch = {name: np.concatenate([array] * size) for name, array in row.items()}
    seconds_alone = seconds_together = math.inf
    for _ in range(_TIMED):
        start = time.perf_counter()
        single.run(dict(row))
        middle = time.perf_counter()
        batched.run(dict(batch))
        seconds_alone, seconds_together = (
            min(seconds_alone, middle - start),
            min(seconds_together, time.perf_counter() - middle),
        )
    return seconds_alone, seconds_together / size


def gains(alone: float, together: float) -> bool:
    """Return True if rows that take these seconds are quicker in a batch, together with the wait for each other."""
    return together + _GATHERING < alone


def largest_integers(model: Model) -> int:
    """Return the largest of some integers that the inputs of a model may be; integers may be indices of its tables.

    The model is loaded without fallback for this only, because a run with a wrong index disables its backend otherwise.
    """
    *larger_types, smallest_type = _INTEGERS
    for largest in larger_types:
        with suppress(ExecutionError):
            for seed in range(_PROBES):
                model.run(_row(model.inputs, seed, largest))
            return largest
    return smallest_type


def _row(infos: Mapping[str, TensorInfo], seed: int, largest: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed + 7)
    shapes = {name: (1, *map(int, list(info.shape)[1:])) for name, info in infos.items()}
    return {name: _random(info.with_shape(shapes[name]), generator, largest) for name, info in infos.items()}


def _random(info: TensorInfo, generator: np.random.Generator, largest: int) -> Array:
    """Return random values for a tensor: integers that are not quantized are at most `largest`.

    Texts are the decimal digits of such integers.
    """
    shape = tuple(map(int, info.shape))
    if info.dtype is DataType.STRING:
        return generator.integers(0, largest, shape, endpoint=True).astype(str).astype(object)
    if info.dtype is DataType.BOOL or (info.dtype.numpy.kind in "iu" and info.quantization is None):
        return generator.integers(0, largest, shape, endpoint=True).astype(info.dtype.numpy)
    return example(info, int(generator.integers(1 << 31)))


def _equal(a: Array, b: Array) -> bool:
    if a.dtype.kind in "biuO":
        return bool(np.array_equal(a, b))
    a_floats, b_floats = a.astype(np.float64), b.astype(np.float64)
    magnitudes = np.abs(a_floats[np.isfinite(a_floats)])
    largest = float(magnitudes.max()) if magnitudes.size else 0.0
    return bool(np.allclose(a_floats, b_floats, rtol=_RELATIVE, atol=_ABSOLUTE * largest, equal_nan=True))


@dataclass(eq=False, slots=True)
class _WaitingRequest:
    """A request that waits for others, or runs with them."""

    inputs: Mapping[str, Array]
    rows: int
    deadline: float
    result: asyncio.Future[list[Array]]
    timing: Timing
    arrived: float = field(default_factory=time.monotonic)
    slot: int = 0


class Batcher(Runner):
    """Runs requests together, as rows of a batch. Used from the thread of the event loop only.

    A request that finds no other one running runs at once. While a batch runs, requests gather until it has ended,
    until they fill the largest batch, or until the first of them has waited for `delay` seconds. A batch that fails is
    run again request by request.

    Args:
        model: runs a request that is alone.
        variants: models for batches, by the number of rows; missing rows are filled up.
        delay: the longest time in seconds that a request waits for others.
        single: runs a request that is alone, and says when a batch may run; None runs both at once.
    """

    def __init__(
        self, model: Model, variants: Mapping[int, Model], delay: float, single: InTurns | None = None
    ) -> None:
        self._single = InTurns(Plain(model)) if single is None else single
        self._variants, self._delay = dict(sorted(variants.items())), delay
        self._names = list(model.outputs)
        self._waiting: deque[_WaitingRequest] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.model, self.size = model, max(variants)

    def with_slots(self, utilization: float) -> SlotBatcher:
        """Return a batcher of the same models whose requests have slots; this one must not be used any more."""
        return SlotBatcher(self.model, self._variants, self._delay, self._single, utilization)

    @property
    def concurrency(self) -> int:
        return self._single.concurrency * self.size

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        self._single.warm_up(inputs)

    def describe(self) -> str:
        description = f"batches of up to {self.size} rows, after {self._delay * 1e3:g} ms at most"
        return ", ".join(filter(None, (description, self._single.describe())))

    def close(self) -> None:
        for variant in self._variants.values():
            variant.close()

    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        rows = {array.shape[0] for array in inputs.values()}
        row_count = rows.pop() if len(rows) == 1 else 0
        if not 0 < row_count < self.size:
            timing.rows = timing.batch = max(1, row_count)
            return await self._single.run(inputs, outputs, seconds, parameters, timing)
        return await self._run_queued(inputs, row_count, outputs, seconds, timing)

    async def _run_queued(
        self,
        inputs: Mapping[str, Array],
        row_count: int,
        outputs: Sequence[str],
        seconds: float,
        timing: Timing,
        slot: int = 0,
    ) -> list[Array]:
        """Run a request together with others that wait."""
        timing.rows = row_count
        future: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        request = _WaitingRequest(inputs, row_count, time.monotonic() + seconds, future, timing, slot=slot)
        self._waiting.append(request)
        self._start_if_possible()
        try:
            async with asyncio.timeout(seconds):
                arrays = await request.result
        except TimeoutError:
            raise DeadlineExceededError(f"the run took longer than {seconds:g} seconds") from None
        finally:
            request.result.cancel()
            if request in self._waiting:
                self._waiting.remove(request)
        array_of_output = dict(zip(self._names, arrays, strict=True))
        return [array_of_output[name] for name in outputs]

    def _start_if_possible(self) -> None:
        """Start a batch if nothing runs or enough rows wait; otherwise see to it that one is started later."""
        if not self._running or sum(request.rows for request in self._waiting) >= self.size:
            self._start()
        elif self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._delay, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests, num_rows = self._taken()
        if requests:
            task = asyncio.ensure_future(self._run_together(requests, num_rows))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _taken(self) -> tuple[list[_WaitingRequest], int]:
        """Take the requests of the next batch from those that wait, and return them and the rows of the batch."""
        requests, num_rows = [], 0
        while self._waiting and num_rows + self._waiting[0].rows <= self.size:
            request = self._waiting.popleft()
            if not request.result.done() and request.deadline > time.monotonic():
                requests.append(request)
                num_rows += request.rows
        return requests, num_rows

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._waiting:
            self._start()

    async def _run_together(self, requests: list[_WaitingRequest], num_rows: int) -> None:
        try:
            if len(requests) == 1 and requests[0].rows == num_rows:
                await self._run_alone(requests[0])
                return
            results = await self._submit(requests, num_rows)
        except Exception as error:
            _log.debug("a batch of %d rows failed, and runs again request by request: %s", num_rows, error)
            await asyncio.gather(*(self._run_alone(request) for request in requests))
            return
        for request, arrays in zip(requests, results, strict=True):
            if not request.result.done():
                request.result.set_result(arrays)

    async def _submit(self, requests: list[_WaitingRequest], num_rows: int) -> list[list[Array]]:
        size = next(size for size in self._variants if size >= num_rows)
        variant, timing = self._variants[size], Timing()
        deadline = max(request.deadline for request in requests)

        def work(controls: Callable[[], RunControl]) -> list[list[Array]]:
            seconds_left = controls().remaining
            outputs = variant.run(
                self._stacked(requests, size), deadline=None if seconds_left is None else max(seconds_left, 1e-6)
            )
            return self._divided(outputs, requests)

        async with self._single.turn(deadline - time.monotonic()):
            run = variant.runtime.workers.submit(work, max(deadline - time.monotonic(), 1e-6))
            results: list[list[Array]] = await awaited(run, timing)  # type: ignore[assignment] # a list for each item
        start = time.monotonic() - timing.compute
        for index, request in enumerate(requests):
            request.timing.queue, request.timing.compute = max(0.0, start - request.arrived), timing.compute
            request.timing.batch, request.timing.is_counted = num_rows, index == 0
        return results

    async def _run_alone(self, request: _WaitingRequest) -> None:
        if request.result.done():
            return
        try:
            seconds = request.deadline - time.monotonic()
            if seconds <= 0:
                raise DeadlineExceededError("the run took longer than its deadline; it waited for others to run with")
            arrays = await self._single.run(request.inputs, self._names, seconds, {}, request.timing)
            request.timing.batch, request.timing.is_counted = request.rows, True
        except Exception as error:
            if not request.result.done():
                request.result.set_exception(error)
            return
        if not request.result.done():
            request.result.set_result(arrays)

    def _stacked(self, requests: Sequence[_WaitingRequest], size: int) -> dict[str, Array]:
        """Return the inputs of a batch: the rows of all requests, and the last row again for those that are missing."""
        batch = {}
        for name in requests[0].inputs:
            arrays = [request.inputs[name] for request in requests]
            padding = size - sum(request.rows for request in requests)
            batch[name] = np.concatenate([*arrays, *[arrays[-1][-1:]] * padding])
        return batch

    def _divided(self, outputs: Sequence[Array], requests: Sequence[_WaitingRequest]) -> list[list[Array]]:
        ends = np.cumsum([request.rows for request in requests]).tolist()
        return [
            [np.ascontiguousarray(array[end - request.rows : end]) for array in outputs]
            for request, end in zip(requests, ends, strict=True)
        ]


class SlotBatcher(Batcher):
    """Runs one request of each slot together; the row of a request is that of its slot. Used in the event loop only.

    One batch runs at a time. Its rows are those up to the last slot with a request.

    Args:
        model: runs a request of the first slot that is alone.
        variants: models for batches, by the number of rows; the largest number is that of the slots.
        delay: the longest time in seconds that a request waits for those of other slots.
        single: runs a request that is alone, and says when a batch may run.
        utilization: the part of all slots, from 0 to 1, for whose requests a batch waits.

    Attributes:
        idle_row: the inputs of a row without a request; set before the first request.
    """

    def __init__(
        self,
        model: Model,
        variants: Mapping[int, Model],
        delay: float,
        single: InTurns,
        utilization: float = 0.0,
    ) -> None:
        super().__init__(model, variants, delay, single)
        self.idle_row: Mapping[str, Array] = {}
        self._fewest_requests = max(1, math.ceil(utilization * self.size))

    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        """Run a request that belongs to no slot alone; see `Runner.run`."""
        return await self._single.run(inputs, outputs, seconds, parameters, timing)

    async def run_in(
        self, slot: int, inputs: Mapping[str, Array], outputs: Sequence[str], seconds: float, timing: Timing
    ) -> list[Array]:
        """Run a request of one row in the row of its slot; a slot has one request at a time. See `Runner.run`."""
        return await self._run_queued(inputs, 1, outputs, seconds, timing, slot)

    def describe(self) -> str:
        return ", ".join(filter(None, (f"{self.size} slots in each batch", self._single.describe())))

    def _start_if_possible(self) -> None:
        if self._running or not self._waiting:
            return
        if len(self._waiting) >= self._fewest_requests:
            self._start()
        elif self._timer is None:
            seconds = self._waiting[0].arrived + self._delay - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._start)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_if_possible()

    def _taken(self) -> tuple[list[_WaitingRequest], int]:
        now = time.monotonic()
        requests = [request for request in self._waiting if not request.result.done() and request.deadline > now]
        self._waiting.clear()
        return requests, max((request.slot + 1 for request in requests), default=0)

    def _stacked(self, requests: Sequence[_WaitingRequest], size: int) -> dict[str, Array]:
        rows = {request.slot: request.inputs for request in requests}
        return {
            name: np.concatenate([rows.get(slot, self.idle_row)[name] for slot in range(size)])
            for name in requests[0].inputs
        }

    def _divided(self, outputs: Sequence[Array], requests: Sequence[_WaitingRequest]) -> list[list[Array]]:
        return [
            [np.ascontiguousarray(array[request.slot : request.slot + 1]) for array in outputs] for request in requests
        ]
