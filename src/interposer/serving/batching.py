"""Dynamic batching: requests that arrive close to each other run together, as rows of one batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from interposer.core.errors import DeadlineExceededError, ExecutionError, InvalidArgumentError
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.runtime import RunControl
from interposer.serving.protocol.messages import Parameters
from interposer.serving.runs import Plain, Runner, awaited
from interposer.serving.statistics import Timing
from interposer.session import Model
from interposer.session.placement.cuts import example

__all__ = ["Batcher", "batch_shapes", "largest_integers", "sizes_up_to", "why_not_batched"]

_log: Final = logging.getLogger("interposer.serving")
_ROUNDS: Final = 2
_INTEGERS: Final = (7, 1, 0)
"""The largest integers that are tried as inputs, in this order."""
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
        first, *rest = info.shape
        if not isinstance(first, Dim) and int(first) != 1:
            raise InvalidArgumentError(
                f"the first size of input {name!r} is {int(first)}; batching needs 1, or any size"
            )
        if any(isinstance(item, Dim) for item in rest):
            raise InvalidArgumentError(f"the sizes of a row of input {name!r}, {info.shape}, are not all known")
        shapes[name] = [size, *map(int, rest)]
    if not shapes:
        raise InvalidArgumentError("the model has no inputs")
    return shapes


def why_not_batched(single: Model, batched: Model, size: int, most: int = _INTEGERS[0]) -> str:
    """Return why the rows of a batch are not the results of single runs; an empty text if they are.

    Both models run on random inputs, with integers of at most `most`. Integers and texts of the outputs must be equal,
    and floats nearly so.
    """
    for seed in range(_ROUNDS):
        rows = [_row(single.inputs, seed * size + row, most) for row in range(size)]
        results = [single.run(dict(row)) for row in rows]
        together = batched.run({name: np.concatenate([row[name] for row in rows]) for name in single.inputs})
        for number, result in enumerate(results):
            for name, alone, batch in zip(single.outputs, result, together, strict=True):
                if batch.ndim < 1 or batch.shape[0] != size or alone.shape != (1, *batch.shape[1:]):
                    return f"output {name!r} of {size} rows has the shape {list(batch.shape)}"
                if not _equal(alone[0], batch[number]):
                    return f"row {number} of output {name!r} differs from that of a single run"
    return ""


def largest_integers(model: Model) -> int:
    """Return the largest of some integers that the inputs of a model may be; integers may be indices of its tables.

    The model is loaded without fallback for this only, because a run with a wrong index disables its backend otherwise.
    """
    *larger, smallest = _INTEGERS
    for most in larger:
        with suppress(ExecutionError):
            for seed in range(_PROBES):
                model.run(_row(model.inputs, seed, most))
            return most
    return smallest


def _row(infos: Mapping[str, TensorInfo], seed: int, most: int) -> dict[str, Array]:
    draw = np.random.default_rng(seed + 7)
    shapes = {name: (1, *map(int, list(info.shape)[1:])) for name, info in infos.items()}
    return {name: _random(info.with_shape(shapes[name]), draw, most) for name, info in infos.items()}


def _random(info: TensorInfo, draw: np.random.Generator, most: int) -> Array:
    """Return random numbers, with integers of at most `most` that are not quantized; texts are such integers too."""
    shape = tuple(map(int, info.shape))
    if info.dtype is DataType.STRING:
        return draw.integers(0, most, shape, endpoint=True).astype(str).astype(object)
    if info.dtype is DataType.BOOL or (info.dtype.numpy.kind in "iu" and info.quantization is None):
        return draw.integers(0, most, shape, endpoint=True).astype(info.dtype.numpy)
    return example(info, int(draw.integers(1 << 31)))


def _equal(a: Array, b: Array) -> bool:
    if a.dtype.kind in "biuO":
        return bool(np.array_equal(a, b))
    wide, other = a.astype(np.float64), b.astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    largest = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(wide, other, rtol=_RELATIVE, atol=_ABSOLUTE * largest, equal_nan=True))


@dataclass(eq=False, slots=True)
class _Item:
    """A request that waits for others, or runs with them."""

    inputs: Mapping[str, Array]
    rows: int
    stops: float
    result: asyncio.Future[list[Array]]
    timing: Timing
    arrived: float = field(default_factory=time.monotonic)


class Batcher(Runner):
    """Runs requests together, as rows of a batch. Used from the thread of the event loop only.

    A request that finds no other one running runs at once. While a batch runs, requests gather until it has ended,
    until they fill the largest batch, or until the first of them has waited for `delay` seconds. A batch that fails is
    run again request by request.

    Args:
        model: runs a request that is alone.
        variants: models for batches, by the number of rows; missing rows are filled up.
        delay: the longest time in seconds that a request waits for others.
    """

    def __init__(self, model: Model, variants: Mapping[int, Model], delay: float) -> None:
        self._single, self._variants, self._delay = Plain(model), dict(sorted(variants.items())), delay
        self._names = list(model.outputs)
        self._waiting: deque[_Item] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.model, self.size = model, max(variants)

    @property
    def concurrency(self) -> int:
        return self._single.concurrency * self.size

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        self._single.warm_up(inputs)

    def describe(self) -> str:
        return f"batches of up to {self.size} rows, after {self._delay * 1e3:g} ms at most"

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
        count = rows.pop() if len(rows) == 1 else 0
        if not 0 < count < self.size:
            timing.rows = timing.batch = max(1, count)
            return await self._single.run(inputs, outputs, seconds, parameters, timing)
        timing.rows = count
        future: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        item = _Item(inputs, count, time.monotonic() + seconds, future, timing)
        self._waiting.append(item)
        self._look()
        try:
            async with asyncio.timeout(seconds):
                arrays = await item.result
        except TimeoutError:
            raise DeadlineExceededError(f"the run took longer than {seconds:g} seconds") from None
        finally:
            item.result.cancel()
            if item in self._waiting:
                self._waiting.remove(item)
        result = dict(zip(self._names, arrays, strict=True))
        return [result[name] for name in outputs]

    def _look(self) -> None:
        """Start a batch if nothing runs or enough rows wait; otherwise see to it that one is started later."""
        if not self._running or sum(item.rows for item in self._waiting) >= self.size:
            self._start()
        elif self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._delay, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        items, rows = [], 0
        while self._waiting and rows + self._waiting[0].rows <= self.size:
            item = self._waiting.popleft()
            if not item.result.done() and item.stops > time.monotonic():
                items.append(item)
                rows += item.rows
        if items:
            task = asyncio.ensure_future(self._run_together(items, rows))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._waiting:
            self._start()

    async def _run_together(self, items: list[_Item], rows: int) -> None:
        try:
            if len(items) == 1:
                await self._run_alone(items[0])
                return
            results = await self._submit(items, rows)
        except Exception as error:
            _log.debug("a batch of %d rows failed, and runs again request by request: %s", rows, error)
            await asyncio.gather(*(self._run_alone(item) for item in items))
            return
        for item, arrays in zip(items, results, strict=True):
            if not item.result.done():
                item.result.set_result(arrays)

    async def _submit(self, items: list[_Item], rows: int) -> list[list[Array]]:
        size = next(size for size in self._variants if size >= rows)
        variant, timing = self._variants[size], Timing()
        seconds = max(item.stops for item in items) - time.monotonic()

        def work(controls: Callable[[], RunControl]) -> list[list[Array]]:
            left = controls().remaining
            outputs = variant.run(_stacked(items, size), deadline=None if left is None else max(left, 1e-6))
            return _divided(outputs, items)

        run = variant.runtime.workers.submit(work, max(seconds, 1e-6))
        results: list[list[Array]] = await awaited(run, timing)  # type: ignore[assignment] # a list for each item
        began = time.monotonic() - timing.compute
        for number, item in enumerate(items):
            item.timing.queue, item.timing.compute = max(0.0, began - item.arrived), timing.compute
            item.timing.batch, item.timing.is_counted = rows, number == 0
        return results

    async def _run_alone(self, item: _Item) -> None:
        if item.result.done():
            return
        try:
            seconds = item.stops - time.monotonic()
            if seconds <= 0:
                raise DeadlineExceededError("the run took longer than its deadline; it waited for others to run with")
            arrays = await self._single.run(item.inputs, self._names, seconds, {}, item.timing)
            item.timing.batch, item.timing.is_counted = item.rows, True
        except Exception as error:
            if not item.result.done():
                item.result.set_exception(error)
            return
        if not item.result.done():
            item.result.set_result(arrays)


def _stacked(items: Sequence[_Item], size: int) -> dict[str, Array]:
    """Return the inputs of a batch: the rows of all requests, and the last row again for those that are missing."""
    result = {}
    for name in items[0].inputs:
        parts = [item.inputs[name] for item in items]
        missing = size - sum(item.rows for item in items)
        result[name] = np.concatenate([*parts, *[parts[-1][-1:]] * missing])
    return result


def _divided(outputs: Sequence[Array], items: Sequence[_Item]) -> list[list[Array]]:
    ends = np.cumsum([item.rows for item in items]).tolist()
    return [
        [np.ascontiguousarray(array[end - item.rows : end]) for array in outputs]
        for item, end in zip(items, ends, strict=True)
    ]
