"""`Profile`: what a program records with `interposer.profile`, its table of layers, and the files it is written to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Protocol

from interposer.core.errors import InvalidArgumentError, expect
from interposer.core.files import write_file
from interposer.profiling.memory import MemoryProfile, memory_of
from interposer.profiling.recorder import CAPACITY, Recorder, Recording
from interposer.profiling.summary import (
    CounterTotal,
    LayerTimes,
    counter_totals,
    layer_times,
    step_times,
    summary_text,
)

__all__ = ["SUFFIXES", "CounterTotal", "Explained", "LayerTimes", "Profile", "profile", "writer_of"]

SUFFIXES: Final = {
    ".json": "chrome.chrome_trace",
    ".pftrace": "perfetto.perfetto_trace",
    ".perfetto-trace": "perfetto.perfetto_trace",
    ".html": "page.profile_page",
}
"""The functions that write a profile, by the suffix of the file; their modules are imported when they are used."""


class Explained(Protocol):
    """An explanation of a network: `interposer.report.Explanation`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the network, its layers and its parts."""


class Profile:
    """Records everything that happens in a ``with`` block, on all threads, and writes it to a file at its end.

    The suffix of `path` chooses the format: ``.json`` is Chrome's trace format, ``.pftrace`` or ``.perfetto-trace`` is
    Perfetto's, and ``.html`` is a page that any browser shows. Without a path, nothing is written; `save` writes a file
    at any time. A profile may be used for several blocks, and as the argument `profile` of `Model.run`. Blocks of one
    profile may overlap, also on several threads: the end of the last one ends recording. `capacity` is the number of
    events that are stored for each thread; older events are dropped, and counted in `lost`.

    Raises:
        InvalidArgumentError: the path has another suffix, or the capacity is not a positive integer.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, capacity: int = CAPACITY) -> None:
        self._recorder = Recorder(capacity)
        self._num_blocks = 0
        self._lock = threading.Lock()
        self.path = None if path is None else Path(path)
        if self.path is not None:
            _suffix(self.path)

    @property
    def recording(self) -> Recording:
        """The events that have been recorded until now."""
        return self._recorder.recording()

    @property
    def lost(self) -> int:
        """The number of events that were dropped because a thread's buffer was full."""
        return self._recorder.lost

    def clear(self) -> None:
        """Drop all events."""
        self._recorder.clear()

    def layers(self) -> list[LayerTimes]:
        """Return the times of the layers and copies of all networks, those with the largest total first."""
        return layer_times(self.recording)

    def steps(self) -> list[LayerTimes]:
        """Return the times of the steps that backends and engines have measured, those with the largest total first.

        Their `site` has the device, the bytes and the operations, as far as the backend reports them.
        """
        return step_times(self.recording)

    def counters(self) -> list[CounterTotal]:
        """Return the totals of all counters that have samples: those of backends, and those of memory."""
        return counter_totals(self.recording)

    def memory(self) -> MemoryProfile:
        """Return the bytes that networks held over time, and the tensors and layers that held them at the peak."""
        return memory_of(self.recording)

    def save(self, path: str | os.PathLike[str], *, explanations: Iterable[Explained] = ()) -> None:
        """Write the profile to a file, in the format that its suffix names.

        Args:
            path: the file.
            explanations: for a page (``.html``), the results of `Model.explain` of networks, with all facts about their
                layers. Other networks are drawn as they were recorded. Other formats do not use them.

        Raises:
            InvalidArgumentError: no format has this suffix.
            FileWriteError: the file cannot be written.
        """
        expect(path, str | os.PathLike, "a path must be a text or a path object")
        suffix = _suffix(Path(path))
        write_file(path, writer_of(suffix)(self.recording, *([explanations] if suffix == ".html" else [])))

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Record, during a ``with`` block, the runs that the calling thread begins.

        No others are recorded, except in a block of the profile itself, which records everything.
        """
        if self._recorder.is_active:
            yield
            return
        with Recorder(self._recorder.capacity, thread=get_ident()) as recorder:
            try:
                yield
            finally:
                recorder.stop()
                self._recorder.take_over(recorder)

    def __enter__(self) -> Profile:
        with self._lock:
            self._num_blocks += 1
            self._recorder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._num_blocks -= 1
            if self._num_blocks:
                return
            self._recorder.stop()
        if self.path is not None:
            self.save(self.path)

    def __str__(self) -> str:
        return summary_text(self.recording)

    def __repr__(self) -> str:
        return f"<Profile of {len(self.recording.intervals)} intervals>"


def profile(path: str | os.PathLike[str] | None = None, *, capacity: int = CAPACITY) -> Profile:
    """Return a `Profile`, which records in a ``with`` block, and then writes `path`.

    Args:
        path: the file that is written at the end of the block; its suffix chooses the format (see `Profile.save`).
            None writes no file.
        capacity: the most events that each thread stores; older ones are dropped and counted.

    Raises:
        InvalidArgumentError: the suffix of `path` is unknown.

    Example:
        >>> import interposer as ip
        >>> network = ip.Network("twice")
        >>> x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
        >>> y = network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
        >>> model = ip.load(network, backends=["CpuRef"])
        >>> with ip.profile() as p:
        ...     results = [model.run([[1.0, 2.0]]) for _ in range(3)]
        >>> [(layer.name, layer.site.backend, layer.count) for layer in p.layers()]
        [('sum', 'CpuRef', 3)]
    """
    return Profile(path, capacity=capacity)


def writer_of(suffix: str) -> Callable[..., str | bytes]:
    """Return the function that writes a recording to files with a suffix in `SUFFIXES`."""
    module, _, name = SUFFIXES[suffix].partition(".")
    writer: Callable[..., str | bytes] = getattr(import_module(f"interposer.profiling.{module}"), name)
    return writer


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        suffixes = ", ".join(SUFFIXES)
        raise InvalidArgumentError(f"a profile is written to a file with the suffix {suffixes}, not {str(path)!r}")
    return suffix
