"""Options of the external profiling of a runtime."""

from __future__ import annotations

import os

from interposer.core.errors import InvalidArgumentError, as_int, expect
from interposer.core.records import dataclass

__all__ = ["DEFAULT_SOCKET", "LEAST_PERIOD", "ExternalProfilingOptions"]

DEFAULT_SOCKET = "@gatord_namespace"
"""The socket on which Arm's collectors listen: an abstract one of Unix domain, which "@" stands for."""
LEAST_PERIOD = 10_000
"""The shortest period of captures in microseconds; shorter ones are lengthened to it."""


@dataclass(frozen=True)
class ExternalProfilingOptions:
    """Options with which a `Runtime` sends counters and timelines in Arm NN's external profiling protocol.

    Without files, the runtime connects to a collector on a socket. With files, it also writes what it sends and
    receives to them. With `file_only` it does not connect, and behaves as if a collector had accepted it.

    Args:
        enable_profiling: whether anything is sent.
        timeline_enabled: whether the timeline is sent from the beginning; otherwise a collector can ask for it.
        outgoing_capture_file: the file for everything that is sent.
        incoming_capture_file: the file for everything that is received.
        file_only: write to the files only, and connect to no collector. Without files, it has no effect.
        capture_period: accepted for programs that were written for Arm NN, which does not use it either: a collector
            sets the period when it selects counters.
        file_format: the format of the files; "binary" is the only one.
        socket: the path of the Unix domain socket of the collector; "@" at its beginning stands for an abstract one.

    Raises:
        InvalidArgumentError: the timeline is enabled without profiling, or an argument has the wrong type.
    """

    enable_profiling: bool = False
    timeline_enabled: bool = False
    outgoing_capture_file: str | os.PathLike[str] = ""
    incoming_capture_file: str | os.PathLike[str] = ""
    file_only: bool = False
    capture_period: int = LEAST_PERIOD
    file_format: str = "binary"
    socket: str = DEFAULT_SOCKET

    def __post_init__(self) -> None:
        for name in ("enable_profiling", "timeline_enabled", "file_only"):
            expect(getattr(self, name), bool, f"{name} must be True or False")
        for name in ("outgoing_capture_file", "incoming_capture_file", "socket"):
            expect(getattr(self, name), str | os.PathLike, f"{name} must be a path")
        if self.timeline_enabled and not self.enable_profiling:
            raise InvalidArgumentError(
                "It is not possible to enable timeline reporting without profiling being enabled"
            )
        period = as_int(self.capture_period, "capture_period must be a number of microseconds")
        object.__setattr__(self, "capture_period", period)
        if self.capture_period < 0:
            raise InvalidArgumentError(f"capture_period must not be negative, as {self.capture_period} is")
