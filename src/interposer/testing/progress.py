"""The current activity of the kit, in shared memory that a watchdog in another process can read."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["SIZE", "Progress", "circumstances", "is_watched", "note", "show_in"]

SIZE: Final = 1024
"""The size of the shared memory in bytes: a progress counter, the length of a text, and the text."""
_HEAD: Final = struct.Struct("=QI")


class Progress:
    """A counter and a text in shared memory, written by one process and read by another.

    Args:
        descriptor: a file of `SIZE` bytes that both processes have open.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._count = 0

    @classmethod
    def create(cls) -> tuple[Progress, int]:
        """Create shared memory, and return it with the file descriptor by which another process opens it."""
        descriptor = os.memfd_create("progress")
        os.ftruncate(descriptor, SIZE)
        return cls(descriptor), descriptor

    def write(self, activity: str) -> None:
        """Increment the counter, and set the text that describes the next action."""
        self._count += 1
        activity_bytes = activity.encode("utf-8", "replace")[: SIZE - _HEAD.size]
        self._memory[_HEAD.size : _HEAD.size + len(activity_bytes)] = activity_bytes
        _HEAD.pack_into(self._memory, 0, self._count, len(activity_bytes))

    def read(self) -> tuple[int, str]:
        """Return the counter and the text of the current action."""
        count, size = _HEAD.unpack_from(self._memory)
        activity_bytes = self._memory[_HEAD.size : _HEAD.size + min(size, SIZE - _HEAD.size)]
        return count, activity_bytes.decode("utf-8", "replace")

    def close(self) -> None:
        """Release the shared memory."""
        self._memory.close()


_reporting: list[Progress] = []
_circumstances: list[str] = []


def show_in(progress: Progress) -> None:
    """Let all further calls of `note` in this process write to this shared memory."""
    _reporting[:] = [progress]


def is_watched() -> bool:
    """Return True if a watchdog in another process follows this one, and reports a crash as a failure."""
    return bool(_reporting)


@contextmanager
def circumstances(text: str) -> Iterator[None]:
    """Append this text to every `note` of a ``with`` block, such as the sample that runs and its memory."""
    _circumstances.append(text)
    try:
        yield
    finally:
        _circumstances.pop()


def note(activity: str) -> None:
    """Report progress of a check to the watchdog, with a text that describes what is called next."""
    for progress in _reporting:
        progress.write(", ".join([activity, *_circumstances]))
