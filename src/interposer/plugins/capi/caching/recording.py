"""What plug-ins compile for a network, recorded for those who keep it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interposer.plugins.capi.abi.images import Image
    from interposer.plugins.capi.library.executable import Executable

__all__ = ["Recording", "current_recording", "recording"]


@dataclass(frozen=True)
class Recording:
    """What was compiled, in pairs with copies of the tables that it was made of, where `whole` asks for them.

    `source` is the name of the network's file.
    """

    source: str
    whole: bool
    parts: list[tuple[Executable, Image]] = field(default_factory=list)


_recording: ContextVar[Recording | None] = ContextVar("interposer_recording", default=None)


@contextmanager
def recording(source: str = "", *, whole: bool = False) -> Iterator[Recording]:
    """Keep all parts that are compiled in this block; what was compiled before is restored from the cache folder."""
    result = Recording(source, whole)
    token = _recording.set(result)
    try:
        yield result
    finally:
        _recording.reset(token)


def current_recording() -> Recording | None:
    """That of the innermost block, or None outside."""
    return _recording.get()
