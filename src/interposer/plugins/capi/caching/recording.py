"""Recording of the parts that plug-ins compile for a network, for the network cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING

from interposer.core.records import dataclass

if TYPE_CHECKING:
    from interposer.core.types import Array
    from interposer.plugins.capi.abi.images import Image
    from interposer.plugins.capi.library.executable import Executable

__all__ = ["Recording", "current_recording", "recording"]


@dataclass(frozen=True)
class Recording:
    """Collects the subgraphs that plug-ins compile in a block of `recording`, so that the network cache can store them.

    `parts` has a pair of executable and image of its tables for each, if `whole` is True. `source` is the name of the
    network's file, and `file` its content if it is mapped. `identity` describes the file's content and all options,
    so that equal identities give equal subgraphs; empty if this is not known. `unsaved` has functions that store the
    compiled subgraphs, which are valid only if the file was not changed in the meantime.
    """

    source: str
    whole: bool
    file: Array | None = None
    identity: str = ""
    parts: list[tuple[Executable, Image]] = field(default_factory=list)
    unsaved: list[Callable[[], None]] = field(default_factory=list)


_recording: ContextVar[Recording | None] = ContextVar("interposer_recording", default=None)


@contextmanager
def recording(
    source: str = "", *, whole: bool = False, file: Array | None = None, identity: str = ""
) -> Iterator[Recording]:
    """Record all subgraphs that plug-ins compile in a ``with`` block, which gets the `Recording`.

    Subgraphs that are cached as blobs are restored. The arguments are those of `Recording`.
    """
    new_recording = Recording(source, whole, file, identity)
    token = _recording.set(new_recording)
    try:
        yield new_recording
    finally:
        _recording.reset(token)


def current_recording() -> Recording | None:
    """Return the `Recording` of the innermost block of `recording`, or None outside of any block."""
    return _recording.get()
