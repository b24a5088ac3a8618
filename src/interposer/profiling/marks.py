"""Marks for other profilers: ranges of NVTX, and lines in the trace of the Linux kernel."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, MissingDependencyError

__all__ = ["Marks", "NvtxRanges", "TraceMarks", "active_marks", "call_marked", "is_unmarked", "marked"]

active_marks: Final[list[Marks]] = []
"""What marks runs now. `Model.run` marks nothing while this list is empty."""
_changes: Final = threading.Lock()
_marking: Final[set[int]] = set()
_FILES: Final = ("/sys/kernel/tracing/trace_marker", "/sys/kernel/debug/tracing/trace_marker")


class Marks(ABC):
    """Marks the begin and the end of each run of a model and of its layers, on all threads.

    It does so while it is started, or in a ``with`` block. A compiled partition is one layer. All methods are
    thread-safe. A failure to mark never reaches the program.
    """

    def start(self) -> None:
        """Begin to mark; do nothing if it marks already."""
        with _changes:
            if self not in active_marks:
                active_marks.append(self)

    def stop(self) -> None:
        """Mark no more runs. Those that have begun are marked until their end."""
        with _changes:
            if self in active_marks:
                active_marks.remove(self)

    @abstractmethod
    def begin(self, name: str) -> None:
        """Mark the begin of a range on the calling thread; ranges nest."""

    @abstractmethod
    def end(self) -> None:
        """Mark the end of the range that has begun last on the calling thread."""

    def __enter__(self) -> Marks:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class NvtxRanges(Marks):
    """Shows runs and their layers as NVTX ranges of the domain "interposer", such as in Nsight Systems.

    Raises:
        MissingDependencyError: the package nvtx is not installed.
    """

    def __init__(self) -> None:
        try:
            import nvtx  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            raise MissingDependencyError("nvtx", "nvtx", "NVTX") from error
        self._nvtx: Any = nvtx

    def begin(self, name: str) -> None:
        """Push a range."""
        self._nvtx.push_range(name, domain="interposer")

    def end(self) -> None:
        """Pop the range."""
        self._nvtx.pop_range(domain="interposer")


class TraceMarks(Marks):
    """Shows runs and layers in traces of the Linux kernel, between the switches of threads and interrupts, as slices.

    Each mark is a line in the kernel's trace buffer, in the format of Android's atrace. Perfetto and trace-cmd read it.

    Args:
        path: the file ``trace_marker``; None finds that of this system.

    Raises:
        InvalidArgumentError: the file does not exist or cannot be written; says what is needed.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        marker = next((Path(name) for name in _FILES if Path(name).exists()), Path(_FILES[0])) if path is None else path
        try:
            self._file = os.open(marker, os.O_WRONLY | os.O_CLOEXEC | os.O_APPEND)
        except OSError as error:
            raise InvalidArgumentError(
                f"the trace of the kernel cannot be written: {os.fspath(marker)}: {error.strerror}; it needs Linux "
                "with tracefs mounted, and permission to write to this file"
            ) from error

    def begin(self, name: str) -> None:
        """Write the line of a begin, without line breaks and bars in the name."""
        safe_name = "".join("_" if character in "|\n\r\0" else character for character in name)
        self._write(f"B|{os.getpid()}|{safe_name}")

    def end(self) -> None:
        """Write the line of an end."""
        self._write(f"E|{os.getpid()}")

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode(errors="replace")[:1000])

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._file)


def is_unmarked() -> bool:
    """Return True if the calling thread is in no block of `marked`."""
    return get_ident() not in _marking


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Mark the time of a ``with`` block with all active marks; in such a block, do nothing."""
    if not is_unmarked():
        yield
        return
    _marking.add(get_ident())
    try:
        with _range(name):
            yield
    finally:
        _marking.discard(get_ident())


@contextmanager
def _range(name: str) -> Iterator[None]:
    """Mark the time of a ``with`` block with all active marks."""
    begun_marks = []
    for mark in tuple(active_marks):
        with suppress(Exception):
            mark.begin(name)
            begun_marks.append(mark)
    try:
        yield
    finally:
        for mark in reversed(begun_marks):
            with suppress(Exception):
                mark.end()


def call_marked(name: str, call: Callable[..., object], *arguments: object) -> None:
    """Make a call, such as that of a layer, and mark its time with all active marks."""
    with _range(name):
        call(*arguments)
