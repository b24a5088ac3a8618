"""`Profile`: what a program records with `interposer.profile`, its table of layers, and the files it is written to."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.files import write_file
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.events import Category, Site
from interposer.profiling.perfetto import perfetto_trace
from interposer.profiling.recorder import CAPACITY, Recorder, Recording

__all__ = ["SUFFIXES", "LayerTimes", "Profile", "profile"]

SUFFIXES: Final[Mapping[str, Callable[[Recording], str | bytes]]] = {
    ".json": chrome_trace,
    ".pftrace": perfetto_trace,
    ".perfetto-trace": perfetto_trace,
}
"""The functions that write a profile, by the suffix of the file."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """The times of one layer in all recorded runs, in nanoseconds; `count` is how often it ran."""

    site: Site
    count: int
    total: int
    median: float
    least: int
    most: int

    @property
    def name(self) -> str:
        """The name of the layer."""
        return self.site.name

    def to_dict(self) -> dict[str, Any]:
        """Return the times in microseconds and the facts about the layer, as JSON-compatible data."""
        times = {"total": self.total, "median": self.median, "least": self.least, "most": self.most}
        return {
            "name": self.name,
            **self.site.to_dict(),
            "count": self.count,
            **{f"{name}_us": value / 1000 for name, value in times.items()},
        }


class Profile:
    """Records everything that happens in a ``with`` block, on all threads, and writes it to a file at its end.

    The suffix of `path` chooses the format: ``.json`` is Chrome's trace format, ``.pftrace`` or ``.perfetto-trace`` is
    Perfetto's. Without a path, nothing is written; `save` writes a file at any time. A profile may be used for several
    blocks, and as the argument `profile` of `Model.run`. `capacity` is the number of events that are stored for each
    thread; older events are dropped, and counted in `lost`.

    Raises:
        InvalidArgumentError: the path has another suffix, or the capacity is not a positive integer.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, capacity: int = CAPACITY) -> None:
        self._recorder = Recorder(capacity)
        self.path = None if path is None else Path(path)
        if self.path is not None:
            _writer(self.path)

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
        durations: dict[Site, list[int]] = {}
        for item in self.recording.intervals:
            if item.site.category in (Category.LAYER, Category.COPY) and item.site.layer:
                durations.setdefault(item.site, []).append(item.duration)
        result = [_times(site, values) for site, values in durations.items()]
        return sorted(result, key=lambda item: -item.total)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a file, in the format that its suffix names.

        Raises:
            InvalidArgumentError: no format has this suffix.
            FileWriteError: the file cannot be written.
        """
        write_file(path, _writer(Path(path))(self.recording))

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Record, during a ``with`` block, the runs that the calling thread begins, and no others."""
        with Recorder(self._recorder.capacity, thread=get_ident()) as recorder:
            try:
                yield
            finally:
                recorder.stop()
                self._recorder.take_over(recorder)

    def __enter__(self) -> Profile:
        self._recorder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.stop()
        if self.path is not None:
            self.save(self.path)

    def __str__(self) -> str:
        return layer_table(self.layers(), self.lost)

    def __repr__(self) -> str:
        return f"<Profile of {len(self.recording.intervals)} intervals>"


def profile(path: str | os.PathLike[str] | None = None, *, capacity: int = CAPACITY) -> Profile:
    """Return a `Profile`, which records in a ``with`` block, and then writes `path`.

    ::

        with ip.profile("trace.pftrace") as p:
            model.run([x])
        print(p)
    """
    return Profile(path, capacity=capacity)


def _writer(path: Path) -> Any:
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        known = ", ".join(SUFFIXES)
        raise InvalidArgumentError(
            f"a profile is written to a file with the suffix {known}, not {str(path)!r}"
        ) from None


def _times(site: Site, values: Sequence[int]) -> LayerTimes:
    return LayerTimes(site, len(values), sum(values), statistics.median(values), min(values), max(values))


def layer_table(layers: Sequence[LayerTimes], lost: int = 0) -> str:
    """Return a table of text of the times of layers, in microseconds."""
    total = sum(item.total for item in layers) or 1
    lines = [
        f"{'layer':40} {'operator':24} {'backend':12} {'count':>6} {'median us':>11} {'total us':>12} {'share':>6}"
    ]
    for item in layers:
        site = item.site
        numbers = f"{item.count:6} {item.median / 1000:11.2f} {item.total / 1000:12.2f} {item.total / total:6.1%}"
        lines.append(f"{item.name[:40]:40} {site.kind[:24]:24} {site.backend[:12]:12} {numbers}")
    if lost:
        lines.append(f"{lost} events were lost, because more were recorded than a thread's buffer holds")
    return "\n".join(lines)
