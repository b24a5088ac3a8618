"""The services of the host that a plug-in receives in ``init``, and the ring buffer for its log lines."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from interposer._version import __version__
from interposer.core.records import dataclass
from interposer.plugins.capi.abi import structs as abi

__all__ = ["HostServices", "HostSettings", "LogRing"]

SLOTS: Final = 256
SLOT_BYTES: Final = 512
_HEAD: Final = ctypes.sizeof(abi.LogSlot)


def _allowed_cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class HostSettings:
    """The settings of the machine and the user that a plug-in receives.

    `cache_dir` is an existing folder to which only this plug-in writes, or empty. `threads` is the recommended maximum
    number of threads. `cpus` are the processors that the plug-in may use.
    """

    cache_dir: str = ""
    threads: int = field(default_factory=lambda: len(_allowed_cpus()))
    cpus: frozenset[int] = field(default_factory=_allowed_cpus)


class LogRing:
    """A ring buffer of lines that a plug-in logged from any thread, until the host reads them. Reading is thread-safe.

    There are unread lines if ``lines_written[0]`` differs from `lines_read`.
    """

    def __init__(self, level: int = abi.LOG_INFO) -> None:
        self._memory = ctypes.create_string_buffer(SLOTS * SLOT_BYTES + 64)
        self._start = -ctypes.addressof(self._memory) % 64
        self._reading = threading.Lock()
        self._lost_reported = 0
        self.lines_read = 0
        self.header = abi.LogRing(
            struct_size=ctypes.sizeof(abi.LogRing), slot_count=SLOTS, slot_stride=SLOT_BYTES,
            slots=ctypes.addressof(self._memory) + self._start, level=level,
        )  # fmt: skip
        words = memoryview(self.header).cast("B").cast("Q")  # quicker to read than a field of the structure
        self.lines_written = words[abi.LogRing.head.offset // 8 :]

    def drain(self, logger: logging.Logger) -> None:
        """Log all complete lines, unless another thread is doing so."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            for level, text in self._lines():
                logger.log(level, "%s", text)
            if self.header.lost != self._lost_reported:
                logger.warning("%d lines found no place in the log", self.header.lost - self._lost_reported)
                self._lost_reported = self.header.lost
        finally:
            self._reading.release()

    def after_fork(self) -> None:
        """Replace the lock in the child process, where no other thread reads the log."""
        self._reading = threading.Lock()

    def _lines(self) -> Iterator[tuple[int, str]]:
        for _ in range(SLOTS):
            number = self.header.tail
            offset = self._start + number % SLOTS * SLOT_BYTES
            slot = abi.LogSlot.from_buffer(self._memory, offset)
            if number == self.header.head or slot.sequence != number + 1:
                return
            size = min(slot.length, SLOT_BYTES - _HEAD)
            line_bytes = ctypes.string_at(ctypes.addressof(self._memory) + offset + _HEAD, size)
            level = min(max(slot.level, logging.DEBUG), logging.ERROR)
            self.header.tail = self.lines_read = number + 1
            yield level, line_bytes.decode("utf-8", "replace")


class HostServices:
    """The ``ipr_host`` that a plug-in gets in ``init``, with all the memory that it points to."""

    def __init__(self, path: str, settings: HostSettings, checking: bool, log: LogRing) -> None:
        self._retained: list[Any] = []
        libc = ctypes.CDLL(None)
        word_count = max(settings.cpus, default=-1) // 64 + 1
        mask = (ctypes.c_uint64 * max(word_count, 1))()
        for cpu in settings.cpus:
            mask[cpu // 64] |= 1 << cpu % 64
        self._retained.append(mask)
        flags = abi.HOST_LASTING_BLOBS | (abi.HOST_CHECKING if checking else 0)
        self.struct = abi.Host(
            struct_size=ctypes.sizeof(abi.Host), api_major=abi.API_VERSION[0], api_minor=abi.API_VERSION[1],
            name=self._text("interposer"), version=self._text(__version__), library_path=self._text(path),
            cache_dir=self._text(settings.cache_dir), log=ctypes.addressof(log.header),
            aligned_alloc=_address(libc.aligned_alloc), free=_address(libc.free),
            thread_count=max(1, settings.threads), flags=flags,
            cpu_mask_words=word_count, cpu_mask=ctypes.addressof(mask),
            extension_stride=ctypes.sizeof(abi.HostExtension),
        )  # fmt: skip

    def _text(self, text: str) -> abi.String:
        buffer = ctypes.create_string_buffer(os.fsencode(text))
        self._retained.append(buffer)
        return abi.String(ctypes.addressof(buffer), len(buffer) - 1)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
