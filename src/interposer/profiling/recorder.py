"""Recorders of events: a ring buffer for each thread, and the list of the recorders that are recording."""

from __future__ import annotations

import itertools
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from itertools import accumulate
from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import Any, ClassVar, Final, TypeAlias, cast

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.profiling.children import Executed, Execution, with_child_times
from interposer.profiling.events import (
    Category,
    Counter,
    ForeignThread,
    Holding,
    Instant,
    Interval,
    Sample,
    Site,
    TracedNetwork,
)
from interposer.profiling.rows import Rows

__all__ = [
    "CAPACITY",
    "Chain",
    "Fields",
    "Gauge",
    "Record",
    "Recorder",
    "Recording",
    "RunTrace",
    "Shape",
    "Together",
    "active",
    "add_interval",
    "add_rows",
    "asking_recorders",
    "begin_run",
    "current",
    "expanded",
    "foreign_thread",
    "instant",
    "interval",
    "note_lost",
    "on_this_thread",
    "recorded_runs",
    "sample",
    "sample_at",
    "when_changed",
]

CAPACITY: Final = 1 << 20
"""The number of events that a recorder holds for each thread by default; a later event replaces the oldest ones."""

Fields: TypeAlias = list[Any]
"""Events as they are recorded, as a flat list: site, begin, end and thread of each; the end of an instant is None.

The fields of a sample are its counter, the moment, the value and the thread. A flat list is faster than a list of
tuples, which the garbage collector would visit one by one.
"""
_WIDTH: Final = 4
_MIN_SHAPE_LIMIT: Final = 256
"""The number of shapes that a ring buffer holds before it looks for unused ones."""

active: Final[list[Recorder]] = []
"""The recorders that are recording. Code that can be profiled records nothing while this list is empty."""
current: Final[dict[int, RunTrace]] = {}
"""The trace of the run that each thread executes, by the id of the thread."""
_only_rings: Final[list[dict[int, _Ring] | None]] = [None]
"""The buffers of the only recorder, if there is one that records everything and has no `add_record` of its own."""
_recorders_of_all: Final[list[tuple[Recorder, ...] | None]] = [()]
"""The recorders that are recording, if each of them records everything; else None."""
_changes: Final = threading.RLock()
_runs: Final = itertools.count()
_shapes: Final = itertools.count()
_gauges: Final[weakref.WeakSet[Gauge]] = weakref.WeakSet()
_listeners: Final[list[weakref.WeakMethod[Callable[[int], object]]]] = []
_foreign_threads: Final[dict[int, ForeignThread]] = {}
_THREADS_PER_PROCESS: Final = 1 << 31
"""The number of threads of one process that have different keys."""


Record: TypeAlias = tuple[int, ...]
"""A whole run as the numbers of its `Shape`, thread, run and inference, and its times.

A tuple of integers is fast to add, and the garbage collector does not visit it.
"""
_Batch: TypeAlias = "tuple[Fields | Rows, int, int] | Record"
"""Events that were recorded together, with the numbers of their run and inference; both are -1 outside of runs."""


class Shape(ABC):
    """The sites of the events of a run that is recorded as a `Record`; `number` is unique, and `size` their count."""

    __slots__ = ("number", "size")

    def __init__(self, size: int) -> None:
        self.number, self.size = next(_shapes), size

    @abstractmethod
    def fields(self, times: Sequence[int], thread: int) -> Fields:
        """Return the events of a run on a thread with these times, the outer ones first."""


class Together(Shape):
    """Sites whose intervals have the same begin and end, the outer ones first."""

    __slots__ = ("sites",)

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(len(sites))
        self.sites = tuple(sites)

    def fields(self, times: Sequence[int], thread: int) -> Fields:
        """Return an interval of each site; `times` are the begin and the end."""
        begin, end = times
        return [field for site in self.sites for field in (site, begin, end, thread)]


class Chain(Shape):
    """The sites of a run whose layers follow each other.

    The times are the begin of the run, the end of `before` unless it is None, the end of each layer, and the end of
    `after` if it took place. A run that has failed has fewer times.
    """

    __slots__ = ("after", "before", "execute", "layers", "run")

    def __init__(self, run: Site, execute: Site, before: Site | None, layers: Sequence[Site], after: Site) -> None:
        super().__init__(len(layers) + 4)
        self.run, self.execute, self.before, self.layers, self.after = run, execute, before, tuple(layers), after

    def fields(self, times: Sequence[int], thread: int) -> Fields:
        """Return the intervals that have an end."""
        begin, end = times[0], times[-1]
        intervals: Fields = [self.run, begin, end, thread]
        if self.before is not None:
            if len(times) < 2:
                return intervals
            intervals += (self.before, begin, times[1], thread)
            times = times[1:]
        ends = times[1 : len(self.layers) + 1]
        if ends or not self.layers:
            intervals += (self.execute, times[0], ends[-1] if ends else times[0], thread)
        for site, interval_begin, interval_end in zip((*self.layers, self.after), times, times[1:], strict=False):
            intervals += (site, interval_begin, interval_end, thread)
        return intervals


class _Ring:
    """The last events of one thread, which alone adds to it, so that no lock is needed."""

    __slots__ = ("_shape_limit", "batches", "field_count", "limit", "lost", "name", "shapes")

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.limit = name, capacity * _WIDTH
        self.batches: deque[_Batch] = deque()
        self.field_count = self.lost = 0
        self.shapes: dict[int, Shape] = {}
        self._shape_limit = _MIN_SHAPE_LIMIT

    def add(self, shape: Shape, record: Record) -> None:
        """Add a record of this shape."""
        if shape.number not in self.shapes:
            self._add_shape(shape)
        self.batches.append(record)
        self.field_count += shape.size * _WIDTH
        if self.field_count > self.limit:
            self.drop()

    def _add_shape(self, shape: Shape) -> None:
        """Note a shape; now and then, forget those of which there are no records any more."""
        if len(self.shapes) >= self._shape_limit:
            used_numbers = {batch[0] for batch in self.copied()[0] if isinstance(batch[0], int)}
            self.shapes = {
                number: shape_of_number for number, shape_of_number in self.shapes.items() if number in used_numbers
            }
            self._shape_limit = max(_MIN_SHAPE_LIMIT, 2 * len(self.shapes))
        self.shapes[shape.number] = shape

    def drop(self) -> None:
        """Drop the oldest batches until the others fit."""
        while self.field_count > self.limit and self.batches:
            size, events = self._size_of(self.batches.popleft())
            self.field_count -= size
            self.lost += events

    def _size_of(self, batch: _Batch) -> tuple[int, int]:
        """Return the fields that a batch counts for, and the number of its events."""
        first = batch[0]
        if isinstance(first, int):
            size = self.shapes[first].size
            return size * _WIDTH, size
        if isinstance(first, Rows):
            return first.count * _WIDTH, first.count
        return len(first), len(first) // _WIDTH

    def take_over(self, other_ring: _Ring) -> None:
        """Add the batches of another ring, which has no thread any more."""
        self.shapes |= other_ring.shapes
        self.batches.extend(other_ring.batches)
        self.field_count += other_ring.field_count
        self.lost += other_ring.lost
        self.drop()

    def copied(self) -> tuple[list[_Batch], dict[int, Shape]]:
        """Return the batches and the shapes of the records among them; called by any thread."""
        shapes_before = dict(self.shapes)
        while True:
            try:
                return list(self.batches), shapes_before | self.shapes
            except RuntimeError:  # the ring's own thread has added a batch concurrently
                continue


def _note_rings() -> None:
    """Update `_only_rings` and `_recorders_of_all` after a change of `active` or of the buffers of a recorder."""
    with _changes:
        _recorders_of_all[0] = tuple(active) if all(recorder.wants_all for recorder in active) else None
        only_recorder = active[0] if len(active) == 1 else None
        is_plain = (
            only_recorder is not None
            and only_recorder.wants_all
            and type(only_recorder).add_record is Recorder.add_record
        )
        _only_rings[0] = only_recorder._rings if only_recorder is not None and is_plain else None


@dataclass(frozen=True)
class Recording:
    """The events of a recorder, ordered by their begin.

    `lost` is the number of events that did not fit into the ring buffers. `threads` has the names of threads by id, and
    `foreign` those of other processes. `holdings` lists what networks hold in their memory.
    """

    intervals: tuple[Interval, ...] = ()
    instants: tuple[Instant, ...] = ()
    samples: tuple[Sample, ...] = ()
    lost: int = 0
    threads: dict[int, str] = field(default_factory=dict)
    foreign: dict[int, ForeignThread] = field(default_factory=dict)
    holdings: tuple[Holding, ...] = ()


class Recorder:
    """Records the events of the process while it is active, that is between `start` and `stop` or in a ``with`` block.

    Recording never waits: each thread has a ring buffer of its own for `capacity` events. If it is full, the oldest
    events are dropped and counted in `lost`. All methods are thread-safe.

    Args:
        capacity: the number of events for each thread.
        network: record only events of this network.
        thread: record only the runs that the thread with this id (`threading.get_ident`) begins, and its other events.

    Raises:
        InvalidArgumentError: the capacity is not a positive integer.
    """

    asks_backends: ClassVar[bool] = True
    """Whether backends measure while the recorder is active."""

    def __init__(
        self, capacity: int = CAPACITY, network: TracedNetwork | None = None, thread: int | None = None
    ) -> None:
        if not _is_count(capacity):
            raise InvalidArgumentError(f"the capacity must be a positive number of events, not {capacity!r}")
        self.capacity, self.network, self.thread = capacity, network, thread
        self.wants_all = network is None and thread is None
        self._rings: dict[int, _Ring] = {}

    @property
    def is_active(self) -> bool:
        """True while the recorder records events."""
        return any(recorder is self for recorder in active)

    def start(self) -> None:
        """Begin to record, with the present values of all gauges but 0; do nothing if the recorder is active."""
        with _changes:
            if self.is_active:
                return
            active.append(self)
            for gauge in _all_gauges():
                if self.wants_all:
                    gauge.refresh()
                if gauge.value and self.wants(gauge.network, get_ident()):
                    self.add(gauge.fields())
            _note_rings()
            if self.asks_backends:
                _notify(asking_recorders())

    def stop(self) -> None:
        """End recording, and keep the events; do nothing if the recorder is not active."""
        with _changes:
            if not self.is_active:
                return
            for gauge in _all_gauges() if self.wants_all else ():
                gauge.refresh()
            if self.asks_backends:
                _notify(asking_recorders() - 1)
            active.remove(self)
            _note_rings()

    def wants(self, network: TracedNetwork | None, thread: int) -> bool:
        """Return True if events of this network (None for events of no network) that a thread begins are recorded."""
        return (self.network is None or self.network is network) and self.thread in (None, thread)

    def add(self, fields: Fields | Rows, run: int = -1, inference: int = -1) -> None:
        """Add events that the calling thread has collected, in one run if `run` is not negative.

        They are not copied, and must not be changed afterwards.
        """
        ring = self._rings.get(get_ident()) or self._new_ring()
        ring.batches.append((fields, run, inference))
        ring.field_count += len(fields) if isinstance(fields, list) else fields.count * _WIDTH
        if ring.field_count > ring.limit:
            ring.drop()

    def add_record(self, shape: Shape, record: Record, fields: Fields) -> None:
        """Add a whole run of the calling thread, and the other events that belong to it."""
        (self._rings.get(get_ident()) or self._new_ring()).add(shape, record)
        if fields:
            self.add(fields, record[2], record[3])

    def _new_ring(self, thread: int | None = None, name: str | None = None) -> _Ring:
        name = threading.current_thread().name if name is None else name
        return self._rings.setdefault(get_ident() if thread is None else thread, _Ring(name, self.capacity))

    def take_over(self, other: Recorder) -> None:
        """Add the events of another recorder that has stopped, and whose events no other thread adds to."""
        with _changes:
            for thread, other_ring in other._rings.items():
                ring = self._rings.get(thread) or self._new_ring(thread, other_ring.name)
                ring.take_over(other_ring)

    @property
    def lost(self) -> int:
        """The number of events that were dropped, because a ring buffer was full."""
        return sum(ring.lost for ring in list(self._rings.values()))

    def note_lost(self, count: int) -> None:
        """Count events that something else has lost before it could add them."""
        (self._rings.get(get_ident()) or self._new_ring()).lost += count

    def clear(self) -> None:
        """Drop all events, and count lost events from 0."""
        self._rings = {}
        _note_rings()

    def taken(self) -> Recorder:
        """Return a stopped recorder with the events until now, which this one forgets.

        Threads that add events at this moment may still do so for a short time.
        """
        taken = Recorder(self.capacity, self.network, self.thread)
        taken._rings, self._rings = self._rings, {}
        _note_rings()
        return taken

    @property
    def batches(self) -> Iterator[tuple[Fields, int, int]]:
        """The events as they were added, with the numbers of their run and inference."""
        for ring in list(self._rings.values()):
            batches, shapes = ring.copied()
            for batch in batches:
                yield _fields_of(batch, shapes)

    def recording(self) -> Recording:
        """Return the events that have been recorded until now."""
        rings = list(self._rings.items())
        events: tuple[list[Interval], list[Instant], list[Sample], list[Executed], list[Holding]] = [], [], [], [], []
        for _, ring in rings:
            batches, shapes = ring.copied()
            for batch in batches:
                fields, run, inference = _fields_of(batch, shapes)
                _expand(fields, run, inference, *events)
        intervals, instants, samples, executed, holdings = events
        intervals = _with_runs(with_child_times(intervals, executed))
        if self.thread is not None:  # devices also report what they did for runs of other threads
            intervals = [interval for interval in intervals if interval.run >= 0 or not interval.site.device]
        return Recording(
            tuple(sorted(intervals, key=lambda interval: (interval.begin, -interval.end))),  # stable for equal times
            tuple(sorted(instants, key=lambda event: event.at)),
            tuple(sorted(samples, key=lambda event: event.at)),
            sum(ring.lost for _, ring in rings),
            {ident: ring.name for ident, ring in rings},
            {
                ident: _foreign_threads[ident]
                for ident in {interval.thread for interval in intervals} & _foreign_threads.keys()
            },
            tuple(dict.fromkeys(holdings)),
        )

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _with_runs(intervals: list[Interval]) -> list[Interval]:
    """Return the intervals; kernels that were reported later get the run of the layer that they were part of."""
    layers: dict[int, list[Interval]] = {}
    layers_of_backend: dict[str, list[Interval]] = {}
    for interval in intervals:
        if interval.run >= 0 and interval.site.category is Category.LAYER:
            layers.setdefault(interval.thread, []).append(interval)
            layers_of_backend.setdefault(interval.site.backend, []).append(interval)
    for layers_of_thread in layers.values():
        layers_of_thread.sort(key=lambda layer: layer.begin)
    devices = {backend: Enclosing(layers) for backend, layers in layers_of_backend.items()}
    return [
        _with_run_of_device(interval, devices.get(interval.site.backend))
        if interval.site.device
        else _with_run(interval, layers.get(interval.thread, []))
        for interval in intervals
    ]


class Enclosing:
    """Finds the layer in which a device did something, among the layers of its backend."""

    def __init__(self, layers: Iterable[Interval]) -> None:
        self._layers = sorted(layers, key=lambda layer: layer.begin)
        self._latest_ends = list(accumulate((layer.end for layer in self._layers), max))

    def layer(self, interval: Interval) -> Interval | None:
        """Return the only layer around the middle of an interval; None if there is none, or if several overlap.

        A layer may be off by `CLOCK_ERROR`, as the clock of a device is converted to that of the host.
        """
        middle = (interval.begin + interval.end) // 2
        near_layers = list(self._near(middle))
        layers_around = [layer for layer in near_layers if layer.begin <= middle <= layer.end] or near_layers
        return layers_around[0] if len(layers_around) == 1 else None

    def _near(self, moment: int) -> Iterator[Interval]:
        index = bisect_right(self._layers, moment + CLOCK_ERROR, key=lambda layer: layer.begin) - 1
        while index >= 0 and self._latest_ends[index] >= moment - CLOCK_ERROR:
            if self._layers[index].end >= moment - CLOCK_ERROR:
                yield self._layers[index]
            index -= 1


CLOCK_ERROR: Final = 20_000
"""Nanoseconds by which the converted time of a device may be outside of the layer that it belongs to."""


def _with_run_of_device(interval: Interval, layers: Enclosing | None) -> Interval:
    is_step = interval.site.category in (Category.KERNEL, Category.COPY)
    layer = layers.layer(interval) if layers is not None and is_step and interval.run < 0 else None
    return interval if layer is None else _in_run_of(layer, interval)


def _with_run(interval: Interval, layers: list[Interval]) -> Interval:
    if interval.run >= 0 or interval.site.category is not Category.KERNEL:
        return interval
    index = bisect_right(layers, interval.begin, key=lambda layer: layer.begin) - 1
    if index < 0 or layers[index].end < interval.begin:
        return interval
    return _in_run_of(layers[index], interval)


def _in_run_of(layer: Interval, interval: Interval) -> Interval:
    site = replace(interval.site, network=layer.site.network, partition=layer.site.partition)
    return replace(interval, site=site, run=layer.run, inference=layer.inference)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _expand(
    flat_fields: Fields,
    run: int,
    inference: int,
    intervals: list[Interval],
    instants: list[Instant],
    samples: list[Sample],
    executed: list[Executed],
    holdings: list[Holding],
) -> None:
    fields = iter(flat_fields)
    for subject, begin, value, thread in zip(fields, fields, fields, fields, strict=True):
        if isinstance(subject, Counter):
            samples.append(Sample(subject, begin, value, thread))
        elif isinstance(subject, Holding):
            holdings.append(subject)
        elif isinstance(subject, Execution):
            executed.append(Executed(subject, begin, value, thread, run))
        elif value is None:
            instants.append(Instant(subject, begin, thread, run, inference))
        else:
            intervals.append(Interval(subject, begin, value, thread, run, inference))


def _fields_of(batch: _Batch, shapes: Mapping[int, Shape]) -> tuple[Fields, int, int]:
    first = batch[0]
    if isinstance(first, int):
        _, thread, run, inference, *times = cast(Record, batch)
        return shapes[first].fields(times, thread), run, inference
    _, run, inference = batch
    return first.fields if isinstance(first, Rows) else first, run, inference


def expanded(fields: Fields, run: int = -1, inference: int = -1) -> list[Interval]:
    """Return the intervals in a list of fields, which a recorder was given with these numbers, in their order."""
    intervals: list[Interval] = []
    _expand(fields, run, inference, intervals, [], [], [], [])
    return intervals


class RunTrace:
    """Collects the events of one run in `fields`, which several threads may extend, until `finish`.

    A trace without `finish` is dropped. `inferences` numbers the recorded runs of the network, in the order of their
    ends; `inference` is the number of this one, or -1 before the end. `times` are those of a `Chain`; the first one is
    the begin of the run.
    """

    __slots__ = ("fields", "inference", "inferences", "recorders", "run", "thread", "times")

    def __init__(self, recorders: Sequence[Recorder], inferences: Iterator[int], thread: int) -> None:
        self.recorders, self.inferences, self.thread = recorders, inferences, thread
        self.fields: Fields = []
        self.run = next(_runs)
        self.inference = -1
        self.times = [perf_counter_ns()]

    @property
    def begin(self) -> int:
        """The begin of the run."""
        return self.times[0]

    def restart(self) -> None:
        """Let the run begin now, after a preparation that does not count."""
        self.times = [perf_counter_ns()]

    def add_chain(self, sites: Sequence[Site], times: Sequence[int]) -> None:
        """Add intervals of this thread that follow each other; `times` has their begins, and the last end."""
        count = len(times) - 1
        chain: Fields = [None] * (_WIDTH * count)
        chain[::_WIDTH], chain[1::_WIDTH], chain[2::_WIDTH] = sites[:count], times[:-1], times[1:]
        chain[3::_WIDTH] = [get_ident()] * count
        self.fields += chain

    def add(self, site: Site, begin: int) -> int:
        """Add an interval of this thread that ends now, and return the end."""
        end = perf_counter_ns()
        self.fields += (site, begin, end, get_ident())
        return end

    def fail(self, network: TracedNetwork, error: BaseException) -> None:
        """Add the instant at which the run fails: the end of the last layer that ran, or now if none has run."""
        failure_time = self.times[-1] if len(self.times) > 1 else perf_counter_ns()
        self.fields += (_failed(network, error), failure_time, None, get_ident())

    def enter(self) -> RunTrace | None:
        """Let events that the calling thread records belong to this run until `leave`; return the run around it."""
        this_thread = get_ident()
        outer_trace = current.get(this_thread)
        current[this_thread] = self
        return outer_trace

    def leave(self, outer: RunTrace | None) -> None:
        """Let events of the calling thread belong to the run around this one, which `enter` returned."""
        if outer is None:
            current.pop(get_ident(), None)
        else:
            current[get_ident()] = outer

    def finish(self) -> None:
        """Add the events to the recorders that were active when the run began."""
        self.inference = next(self.inferences)
        for recorder in self.recorders:
            recorder.add(self.fields, self.run, self.inference)

    def finish_chain(self, chain: Chain) -> None:
        """Add the times as those of a chain, and the other events, as `finish` does; called by the run's own thread."""
        self.inference = next(self.inferences)
        record = chain.number, self.thread, self.run, self.inference, *self.times
        rings = _only_rings[0] if self.recorders is _recorders_of_all[0] else None
        ring = None if rings is None or self.fields else rings.get(self.thread)
        if ring is not None and chain.number in ring.shapes:  # as `_Ring.add` does, which is too slow here
            ring.batches.append(record)
            ring.field_count += chain.size * _WIDTH
            if ring.field_count > ring.limit:
                ring.drop()
            return
        for recorder in self.recorders:
            recorder.add_record(chain, record, self.fields)


@contextmanager
def on_this_thread(trace: RunTrace) -> Iterator[None]:
    """Let events that the calling thread records in a ``with`` block belong to the run of this trace."""
    outer_trace = trace.enter()
    try:
        yield
    finally:
        trace.leave(outer_trace)


def begin_run(network: TracedNetwork, inferences: Iterator[int], thread: int | None = None) -> RunTrace | None:
    """Return the trace of a run that begins now, or None if no recorder wants it.

    `inferences` numbers the recorded runs of the network. `thread` is the thread that asked for the run, if another one
    executes it.
    """
    this_thread, recorders = get_ident(), _recorders_of_all[0]
    if recorders is None:
        starting_thread = this_thread if thread is None else thread
        recorders = tuple(
            recorder for recorder in tuple(active) if recorder.wants_all or recorder.wants(network, starting_thread)
        )
    return RunTrace(recorders, inferences, this_thread) if recorders else None


def recorded_runs(
    call: Callable[[Any, Any], Any], sites: Callable[[], Together], network: TracedNetwork, inferences: Iterator[int]
) -> Callable[[Any, Any], Any]:
    """Return a function that makes calls of two arguments, and records each as a whole run without other events.

    A call that returns None has run nothing, and is not recorded. This is faster than a `RunTrace`. `sites` is called
    once, before the first run that is recorded.
    """
    shape: Together | None = None
    number, field_count = -1, 0
    clock, only_rings = perf_counter_ns, _only_rings

    def run(first: Any, second: Any) -> Any:
        nonlocal shape, number, field_count
        if shape is None:
            shape = sites()
        begin = clock()
        try:
            outputs = call(first, second)
        except BaseException as error:
            _record_run(shape, network, inferences, begin, error)
            raise
        if outputs is None:
            return None
        thread, rings = get_ident(), only_rings[0]
        ring = None if rings is None else rings.get(thread)
        if ring is None or number not in ring.shapes:
            number, field_count = shape.number, shape.size * _WIDTH
            _record_run(shape, network, inferences, begin)
            return outputs
        ring.batches.append((number, thread, next(_runs), next(inferences), begin, clock()))
        ring.field_count += field_count
        if ring.field_count > ring.limit:
            ring.drop()
        return outputs

    return run


def _record_run(
    shape: Shape, network: TracedNetwork, inferences: Iterator[int], begin: int, error: BaseException | None = None
) -> None:
    """Let all recorders record a whole run that ends now, and the error with which it failed."""
    end, thread = perf_counter_ns(), get_ident()
    recorders = [each for each in tuple(active) if each.wants_all or each.wants(network, thread)]
    if recorders:
        failure: Fields = [] if error is None else [_failed(network, error), end, None, thread]
        record = shape.number, thread, next(_runs), next(inferences), begin, end
        for recorder in recorders:
            recorder.add_record(shape, record, failure)


def _failed(network: TracedNetwork, error: BaseException) -> Site:
    """Return the site of the moment at which a run fails."""
    details = (("error", f"{type(error).__name__}: {error}"),)
    return Site(Category.RUN, f"failed: {type(error).__name__}", network=network, details=details)


def _record(subject: Site | Counter, begin: int, value: float | None, network: TracedNetwork | None) -> None:
    thread = get_ident()
    for recorder in tuple(active):
        if recorder.wants(network, thread):
            recorder.add([subject, begin, value, thread])


def interval(
    category: Category,
    name: str,
    *,
    network: TracedNetwork | None = None,
    layer: str = "",
    backend: str = "",
    details: tuple[tuple[str, str], ...] = (),
) -> AbstractContextManager[None]:
    """Record the time of a ``with`` block, also if it raises; the arguments are those of `Site`."""
    if not active:
        return _UNRECORDED
    return _recorded(Site(category, name, network=network, layer=layer, backend=backend, details=details))


_UNRECORDED: Final = nullcontext()


@contextmanager
def _recorded(site: Site) -> Iterator[None]:
    begin = perf_counter_ns()
    try:
        yield
    finally:
        _record(site, begin, perf_counter_ns(), site.network)


def instant(category: Category, name: str, *, network: TracedNetwork | None = None, backend: str = "") -> None:
    """Record that something happens now; the arguments are those of `Site`."""
    if active:
        site = Site(category, name, network=network, backend=backend)
        _record(site, perf_counter_ns(), None, network)


class Gauge:
    """A counter whose value is known at any time, such as the bytes in use. Thread-safe.

    A recorder gets its value when it starts, and after each change, with the `Holding` that `describe` returns. `probe`
    returns the present value of a gauge that changes by itself; it is called when recorders start and stop.
    """

    def __init__(
        self,
        counter: Counter,
        network: TracedNetwork | None = None,
        describe: Callable[[Counter], Holding | None] | None = None,
        probe: Callable[[], int] | None = None,
    ) -> None:
        self.counter, self.network = counter, network
        self.value = 0
        self._describe, self._probe = describe, probe
        self._holding: Holding | None = None
        self._lock = threading.RLock()
        _gauges.add(self)

    def fields(self) -> Fields:
        """Return the fields of an event with the present value; if known, those of what is held come before them."""
        moment, this_thread = perf_counter_ns(), get_ident()
        with self._lock:
            if self._holding is None and self._describe is not None:
                self._holding = self._describe(self.counter)
            holding_fields = [] if self._holding is None else [self._holding, moment, self.value, this_thread]
            return [*holding_fields, self.counter, moment, self.value, this_thread]

    def end(self) -> None:
        """Set the value to 0 for good."""
        self._probe = None
        self.add(-self.value)

    def refresh(self) -> None:
        """Find out the present value."""
        if self._probe is None:
            return
        with self._lock:
            self.add(self._probe() - self.value)

    def add(self, amount: int) -> None:
        """Add to the value, or subtract a negative amount."""
        if not amount:
            return
        with self._lock:
            self.value += amount
            if not active:
                return
            fields = self.fields()
        name = f"{'allocate' if amount > 0 else 'free'} {self.counter.name}"
        site = Site(Category.MEMORY, name, network=self.network, bytes=abs(amount))
        moment, this_thread = perf_counter_ns(), get_ident()
        for recorder in tuple(active):
            if recorder.wants(self.network, this_thread):
                recorder.add([*fields, site, moment, None, this_thread])


def _all_gauges() -> list[Gauge]:
    while True:
        try:
            return list(_gauges)
        except RuntimeError:  # another thread has loaded a network concurrently
            continue


def asking_recorders() -> int:
    """Return the number of active recorders for which backends measure."""
    return sum(recorder.asks_backends for recorder in tuple(active))


def when_changed(listener: Callable[[int], object]) -> None:
    """Register a bound method to be called whenever a recorder has started or is about to stop.

    It is called with the new number of active recorders for which backends measure (see `asking_recorders`). Only a
    weak reference is stored: the calls end when the method's object is deleted.
    """
    with _changes:
        _listeners[:] = [
            *(reference for reference in _listeners if reference() is not None),
            weakref.WeakMethod(listener),
        ]


def _notify(recorders: int) -> None:
    for reference in list(_listeners):
        listener = reference()
        if listener is not None:
            listener(recorders)


def add_interval(site: Site, begin: int, end: int, thread: int) -> None:
    """Record an interval that something else has measured, as part of the run that the calling thread executes.

    `thread` is the id of the thread on whose track it is shown, or 0 for none. An interval of another thread, or of a
    device, gets its run later, from the layer that was executed at that time.
    """
    this_thread = get_ident()
    trace = current.get(this_thread) if thread in (0, this_thread) else None
    if trace is not None:
        trace.fields += (site, begin, end, thread)
        return
    for recorder in tuple(active):
        owner = recorder.thread if site.device and recorder.thread is not None else thread or this_thread
        if recorder.wants(None, owner):
            recorder.add([site, begin, end, thread])


def foreign_thread(thread: ForeignThread, number: int) -> int:
    """Return the key of a thread of another process, by which events refer to it.

    `number` distinguishes the threads of one process, from 0 on.
    """
    key = thread.process * _THREADS_PER_PROCESS + number
    _foreign_threads[key] = thread
    return key


def note_lost(count: int) -> None:
    """Let all recorders count events that a backend lost before it could report them."""
    for recorder in tuple(active):
        if count > 0:
            recorder.note_lost(count)


def add_rows(rows: Rows, threads: Sequence[int]) -> None:
    """Record a table of intervals of these threads; they get their runs later, from the layers of their threads."""
    for recorder in tuple(active):
        if recorder.wants_all or any(recorder.wants(None, thread) for thread in threads):
            recorder.add(rows)


def sample_at(counter: Counter, at: int, value: float) -> None:
    """Record the value that a counter had at a moment."""
    for recorder in tuple(active):
        if recorder.wants(None, get_ident()):
            recorder.add([counter, at, value, get_ident()])


def sample(counter: Counter, value: float, network: TracedNetwork | None = None) -> None:
    """Record the present value of a counter."""
    if active:
        _record(counter, perf_counter_ns(), value, network)
