"""The errors of a server, and the status codes that clients get for them."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from interposer.core.errors import (
    BackendCrashedError,
    BindingError,
    DeadlineExceededError,
    ExecutionError,
    InterposerError,
    InvalidArgumentError,
    InvalidNetworkError,
    LimitExceededError,
    RunCancelledError,
)

__all__ = ["ServingError", "Status", "as_serving_error"]

_LONGEST: Final = 600
"""Characters of a message. Clients of gRPC refuse more than 8 KiB, and a character needs up to 12 bytes there."""


class Status(Enum):
    """The kind of an error: its HTTP status, and the name of its gRPC status code."""

    INVALID = (400, "INVALID_ARGUMENT")
    UNAUTHENTICATED = (401, "UNAUTHENTICATED")
    FORBIDDEN = (403, "PERMISSION_DENIED")
    NOT_FOUND = (404, "NOT_FOUND")
    METHOD = (405, "UNIMPLEMENTED")
    TIMEOUT_OF_BODY = (408, "DEADLINE_EXCEEDED")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    ENCODING = (415, "UNIMPLEMENTED")
    TOO_MANY = (429, "RESOURCE_EXHAUSTED")
    HEADERS = (431, "RESOURCE_EXHAUSTED")
    CANCELLED = (499, "CANCELLED")
    INTERNAL = (500, "INTERNAL")
    UNIMPLEMENTED = (501, "UNIMPLEMENTED")
    UNAVAILABLE = (503, "UNAVAILABLE")
    FULL = (503, "RESOURCE_EXHAUSTED")
    LATE = (504, "DEADLINE_EXCEEDED")

    @property
    def http(self) -> int:
        """The HTTP status code."""
        return self.value[0]

    @property
    def grpc(self) -> str:
        """The name of the gRPC status code."""
        return self.value[1]


class ServingError(InterposerError):
    """A request that is not answered with a result.

    Args:
        status: the kind of error, which decides the status code that the client gets.
        message: a sentence for the client. It has no paths of the server, and no output of other processes. The middle
            of a very long one, such as one with a long name of the client's choice, is left out.
        retry_after: seconds after which the client may send the request again; None if that would not help.
    """

    def __init__(self, status: Status, message: str, retry_after: int | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(_shortened(message))


def _shortened(message: str) -> str:
    half = _LONGEST // 2
    return message if len(message) <= _LONGEST else f"{message[: half - 5]} ... {message[5 - half :]}"


def as_serving_error(error: BaseException) -> ServingError:
    """Return the error that a client gets for an exception.

    The messages of errors that the client has caused are passed on. The message of any other error names only the layer
    and the backend that failed, because its details may have paths of the server.
    """
    if isinstance(error, ServingError):
        return error
    if isinstance(error, RunCancelledError | asyncio.CancelledError):
        return ServingError(Status.CANCELLED, "the request was cancelled")
    if isinstance(error, DeadlineExceededError | TimeoutError):
        return ServingError(Status.LATE, str(error) or "the request took longer than its deadline")
    if isinstance(error, BindingError | InvalidArgumentError | InvalidNetworkError | LimitExceededError):
        return ServingError(Status.INVALID, str(error))
    if isinstance(error, MemoryError):
        return ServingError(Status.FULL, "the server has not enough memory for this request", retry_after=1)
    return ServingError(Status.INTERNAL, _without_details(error))


def _without_details(error: BaseException) -> str:
    if not isinstance(error, ExecutionError | BackendCrashedError):
        return f"the run failed with {type(error).__name__}; the log of the server has the details"
    layer = f" in layer {error.layer!r}" if error.layer else ""
    backend = f" on backend {error.backend!r}" if error.backend else ""
    return f"the run failed{layer}{backend} with {type(error).__name__}; the log of the server has the details"
