"""`ServeOptions`: the limits and the behaviour of a server."""

from __future__ import annotations

from dataclasses import dataclass

from interposer.core.errors import InvalidArgumentError

__all__ = ["ServeOptions"]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Limits and behaviour of a server.

    Args:
        queue: the number of requests for one model that may wait for a free thread; more are refused at once.
        max_body: the largest body of a request in bytes, after decompression; also the largest gRPC message.
        timeout: the most seconds from the arrival of a request to its result, the wait included.
        drain: seconds that running requests have to end when the server stops; they are cancelled then.
        control: whether clients may load and unload models.
        shared_memory: whether clients may register regions of shared memory.
        token: the text that requests for control and shared memory must have in ``Authorization: Bearer TOKEN``; None
            allows them without it.
        sequence_idle: seconds after which the state of a sequence without requests is dropped.
        max_sequences: the number of sequences of one model that may have states at the same time.
    """

    queue: int = 64
    max_body: int = 64 << 20
    timeout: float = 30.0
    drain: float = 30.0
    control: bool = False
    shared_memory: bool = False
    token: str | None = None
    sequence_idle: float = 60.0
    max_sequences: int = 256

    def __post_init__(self) -> None:
        for name in ("queue", "max_body", "max_sequences"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be a whole number from 1 on, not {getattr(self, name)!r}")
        for name in ("timeout", "drain", "sequence_idle"):
            if not isinstance(getattr(self, name), int | float) or not 0 <= getattr(self, name) < 1e9:
                raise InvalidArgumentError(f"{name} must be a number of seconds, not {getattr(self, name)!r}")
        if not self.timeout:
            raise InvalidArgumentError("timeout must be more than 0 seconds")
