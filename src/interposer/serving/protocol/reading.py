"""`Reading`: the limits under which one request is read from its bytes."""

from __future__ import annotations

import time
from collections.abc import Callable

from interposer.core.records import dataclass
from interposer.serving.protocol.errors import ServingError, Status

__all__ = ["UNLIMITED", "Reading"]


def _forget(size: int) -> None:
    """Accept any number of bytes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The limits under which one request is read. May be used in any thread.

    Args:
        max_values: the number of JSON values, strings, or elements of gRPC messages that may become objects.
        deadline: the time of `time.monotonic` at which the request is late.
        take: called with the bytes that objects or arrays are about to need; raises `ServingError` if there is no room.
    """

    max_values: int = 1 << 62
    deadline: float = float("inf")
    take: Callable[[int], None] = _forget

    def check_time(self) -> None:
        """Raise `ServingError` if the request is late."""
        if time.monotonic() > self.deadline:
            raise ServingError(Status.LATE, "the deadline of the request passed while it was read")

    def check_values(self, count: int) -> None:
        """Raise `ServingError` if a request has so many values that are objects."""
        if count > self.max_values:
            raise ServingError(
                Status.TOO_LARGE,
                f"the request has more than {self.max_values:,} values, beside long lists of numbers; send tensors as "
                "binary data",
            )


UNLIMITED = Reading()
"""No limits, for requests of this process."""
