"""The extension ``ipr.profiling/1``: intervals and counters of a plug-in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from interposer.core.errors import BackendContractError
from interposer.core.types import Array
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.reading import read_array, read_text
from interposer.plugins.capi.library.library import Library
from interposer.profiling.backends import BackendProfiling, BackendProfilingContext, CounterTimestamp, DeviceClock
from interposer.profiling.events import Category, CounterClass, Site
from interposer.profiling.recorder import add_rows
from interposer.profiling.rows import Rows

__all__ = ["DynamicProfilingContext"]

_FUNCTIONS: Final = {
    "describe_counters": "describe_counters",
    "enable": "enable",
    "collect": "collect",
    "read_counters": "read_counters",
    "correlate": "correlate",
}
_OPTIONAL: Final = {"select_counters": "select_counters"}
_COLUMNS: Final = ctypes.sizeof(abi.Interval) // 8
_DEVICE_SIZE, _BEGIN, _END, _THREAD = (
    getattr(abi.Interval, name).offset // 8 + extra
    for name, extra in (("device", 1), ("begin_ns", 0), ("end_ns", 0), ("thread", 0))
)
_DESCRIBED: Final = [number for number in range(_COLUMNS) if number not in (_BEGIN, _END, _THREAD)]
"""The columns of a table of intervals that are the same each time that a step runs."""
_FACTORS: Final = np.array([pow(0x9E3779B97F4A7C15, number + 1, 1 << 64) for number in _DESCRIBED], np.uint64)
"""Odd numbers with which these columns are multiplied, so that their sum differs for different steps."""
_CAPACITY: Final = 4096
"""The number of intervals that are collected by one call."""
_MANY: Final = 1 << 16
_MOST_CALLS: Final = 1 << 6
"""The most calls of `collect` in turn; a plug-in that always fills the room would never end."""
_CORRELATED: Final = 1_000_000_000
"""Nanoseconds after which the clock of a device is read again, as it may drift."""
_KINDS: Final = {
    abi.COUNTER_VALUE: CounterClass.VALUE,
    abi.COUNTER_RATE: CounterClass.RATE,
    abi.COUNTER_EVENT: CounterClass.EVENT,
}
_CATEGORIES: Final = {
    abi.INTERVAL_KERNEL: Category.KERNEL,
    abi.INTERVAL_COPY: Category.COPY,
    abi.INTERVAL_BUILD: Category.OPTIMIZE,
}


class DynamicProfilingContext(BackendProfilingContext):
    """The intervals and counters of a plug-in, which are collected while something records. It keeps `owner` alive."""

    @classmethod
    def of(cls, library: Library, profiling: BackendProfiling, owner: object) -> DynamicProfilingContext | None:
        """Return a new context, or None if the plug-in does not have the extension.

        Raises:
            BackendContractError: the table of the extension is damaged.
        """
        functions = library.extension(abi.EXT_PROFILING, abi.ProfilingApi, _FUNCTIONS, _OPTIONAL)
        return None if functions is None else cls(library, functions, profiling, owner)

    def __init__(self, library: Library, functions: dict[str, Any], profiling: BackendProfiling, owner: object) -> None:
        self._library, self._functions, self._profiling, self._owner = library, functions, profiling, owner
        self._numbers: list[int] = []
        self._clocks: dict[str, DeviceClock] = {}
        self._correlated: dict[str, int] = {}
        self._texts: dict[tuple[int | None, int], str] = {}
        self._buffer: Any = (abi.Interval * _CAPACITY)()
        self._sites: dict[int, Site] = {}
        self._reversed_kernels: list[str] = []
        self.lost = 0

    def _call(self, name: str, *arguments: Any) -> None:
        self._library.call(name, self._functions[name], self._library.self, *arguments)

    def register_counters(self, current_max_counter_id: int) -> int:
        """Register the counters that the plug-in describes."""
        registration = self._profiling.counter_registration(current_max_counter_id)
        devices: dict[str, int] = {"": 0}
        categories: set[str] = set()
        for row in self._counter_rows():
            category, device = row.pop("category"), row.pop("device")
            if category not in categories:
                registration.register_category(category)
                categories.add(category)
            if device not in devices:
                devices[device] = registration.register_device(device)
            self._numbers.append(registration.register_counter(category=category, device=devices[device], **row))
        return registration.current_max_counter_id

    def _counter_rows(self) -> list[dict[str, Any]]:
        out = abi.Counters(struct_size=ctypes.sizeof(abi.Counters))
        self._call("describe_counters", ctypes.addressof(out))
        with self._library.holding(out):
            if out.counter_count > _MANY:
                raise BackendContractError(f"{out.counter_count:,} counters cannot be meant", backend=self._library.id)
            rows = read_array(abi.Counter, out.counters, out.counter_count, out.counter_stride, "the counters")
            return [_counter(row) for row in rows]

    def enable_profiling(self, enable: bool) -> bool:
        """Let the plug-in begin or end to measure."""
        self._call("enable", int(enable))
        return True

    def enable_timeline_reporting(self, enable: bool) -> bool:
        """Drop the intervals that were measured for no timeline, as the plug-in measures them with its counters."""
        if enable and self._profiling.is_measuring:
            self._collect(lambda count: None)
        return True

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        """Pass the selection on to the plug-in if it has a function for it; return its error.

        All counters are read together, and those that were selected are recorded.
        """
        if "select_counters" not in self._functions:
            return None
        active_ids = frozenset(counter_ids)
        indices = [index for index, number in enumerate(self._numbers) if number in active_ids]
        array = (ctypes.c_uint64 * len(indices))(*indices)
        try:
            self._call("select_counters", capture_period if indices else 0, len(indices), ctypes.addressof(array))
        except CallError as error:
            return str(error)
        return None

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        """Return the present values of the active counters of the plug-in."""
        if not self._numbers:
            return []
        values = (ctypes.c_double * len(self._numbers))()
        self._call("read_counters", len(values), ctypes.addressof(values))
        numbers_and_values = zip(self._numbers, values, strict=True)
        active = {
            number: value for number, value in numbers_and_values if self._profiling.counter_status(number).is_active
        }
        return [CounterTimestamp(perf_counter_ns(), active)] if active else []

    def report_intervals(self) -> None:
        """Record the intervals of the plug-in."""
        num_lost = self._collect(self._record_intervals)
        self.lost += num_lost
        self._profiling.report_lost(num_lost)

    def _collect(self, take: Callable[[int], object]) -> int:
        """Move the intervals of the plug-in to the room in portions, and return how many it has dropped.

        `take` is called with the size of each portion.
        """
        total_count = 0
        count, num_lost, size = ctypes.c_uint64(_CAPACITY), ctypes.c_uint64(), ctypes.sizeof(abi.Interval)
        for _ in range(_MOST_CALLS):
            addresses = ctypes.addressof(self._buffer), ctypes.addressof(count), ctypes.addressof(num_lost)
            self._call("collect", _CAPACITY, size, *addresses)
            if count.value > _CAPACITY:
                message = f"collect wrote {count.value:,} intervals, but had room for {_CAPACITY:,}"
                raise BackendContractError(message, backend=self._library.id)
            total_count += num_lost.value
            if count.value:
                take(count.value)
            if self._reversed_kernels:
                name, self._reversed_kernels = self._reversed_kernels[0], []
                raise BackendContractError(f"the interval {name!r} ends before it begins", backend=self._library.id)
            if count.value < _CAPACITY:
                return total_count
        message = f"collect has filled the room for {_CAPACITY:,} intervals {_MOST_CALLS} times in turn"
        raise BackendContractError(message, backend=self._library.id)

    def _record_intervals(self, count: int) -> None:
        """Record intervals, of which those of the host are stored as the plug-in wrote them, to be converted later."""
        table = np.frombuffer(memoryview(self._buffer).cast("B"), np.uint64, count * _COLUMNS).reshape(count, _COLUMNS)
        on_host = table[:, _DEVICE_SIZE] == 0
        if not on_host.all():
            for row_index in np.flatnonzero(~on_host):
                self._record(self._buffer[row_index])
        table = table[on_host]
        keys = (table[:, _DESCRIBED] * _FACTORS).sum(axis=1)
        for key, row_index in zip(*(column.tolist() for column in np.unique(keys, return_index=True)), strict=True):
            if key not in self._sites:
                self._sites[key] = self._site(table[row_index])
        if len(table):
            times = table[:, [_BEGIN, _END, _THREAD]].astype(np.int64)
            self._reversed_kernels += [self._sites[key].name for key in keys[times[:, 1] < times[:, 0]].tolist()]
            add_rows(_Table(keys, times, self._sites), np.unique(times[:, 2]).tolist())

    def _site(self, row: Array) -> Site:
        """Return the site of an interval of the host, given as integers."""
        interval = abi.Interval.from_buffer_copy(row.tobytes())
        category = _CATEGORIES.get(interval.kind, Category.BACKEND)
        return self._profiling.site(
            self._text(interval.name), category, bytes=interval.bytes or None, flops=interval.flops or None
        )

    def _text(self, text_struct: Any) -> str:
        """Return a text of an interval, which the plug-in does not change as long as the library is open."""
        key = text_struct.data, text_struct.size
        if key not in self._texts:
            self._texts[key] = read_text(text_struct, "a text of an interval") if text_struct.size else ""
        return self._texts[key]

    def _record(self, row: Any) -> None:
        name, device = self._text(row.name), self._text(row.device)
        self._profiling.interval(
            name,
            row.begin_ns,
            row.end_ns,
            clock=self._clock(device) if device else None,
            category=_CATEGORIES.get(row.kind, Category.BACKEND),
            device=device,
            bytes=row.bytes or None,
            flops=row.flops or None,
            thread=row.thread,
        )

    def _clock(self, device: str) -> DeviceClock:
        """Return the clock of a device, which is correlated when the device is first seen, and about each second."""
        clock = self._clocks.setdefault(device, DeviceClock())
        now = perf_counter_ns()
        if now - self._correlated.get(device, now - _CORRELATED) >= _CORRELATED:
            out = abi.Clock(struct_size=ctypes.sizeof(abi.Clock))
            device_text = ctypes.create_string_buffer(device.encode())
            self._call(
                "correlate", abi.String(ctypes.addressof(device_text), len(device_text) - 1), ctypes.addressof(out)
            )
            error = max(0, out.error_ns)
            clock.correlate(out.device_ns, out.host_ns - error, out.host_ns + error)
            self._correlated[device] = now
        return clock


class _Table(Rows):
    """Intervals of a plug-in: the keys of their sites, and rows of begin, end and thread."""

    def __init__(self, keys: Array, times: Array, sites: dict[int, Site]) -> None:
        super().__init__(len(keys))
        self._keys, self._times, self._sites = keys, times, sites

    def convert(self) -> list[Any]:
        """Return site, begin, end and thread of each interval, as a flat list."""
        begins, ends, threads = self._times.T
        flat_fields: list[Any] = [None] * (4 * self.count)
        flat_fields[::4] = map(self._sites.__getitem__, self._keys.tolist())
        flat_fields[1::4], flat_fields[2::4] = begins.tolist(), np.maximum(begins, ends).tolist()
        flat_fields[3::4] = threads.tolist()
        return flat_fields


def _counter(row: Any) -> dict[str, Any]:
    return {
        "name": read_text(row.name, "the name of a counter"),
        "category": read_text(row.category, "the category of a counter"),
        "units": read_text(row.units, "the units of a counter"),
        "description": read_text(row.description, "the description of a counter"),
        "device": read_text(row.device, "the device of a counter"),
        "multiplier": row.multiplier,
        "kind": _KINDS.get(row.kind, CounterClass.VALUE),
    }
