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
        shutdown_delay: seconds from SIGTERM, when the server is no longer ready, until it refuses new requests.
        strict_readiness: whether the server is ready only if all of its models are; otherwise one is enough.
        exit_on_error: whether a model that cannot be loaded ends the server; otherwise the others are served.
        poll: seconds between two looks for new, changed and removed files of models; None does not look.
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
    shutdown_delay: float = 0.0
    strict_readiness: bool = False
    exit_on_error: bool = False
    poll: float | None = None
    control: bool = False
    shared_memory: bool = False
    token: str | None = None
    sequence_idle: float = 60.0
    max_sequences: int = 256

    def __post_init__(self) -> None:
        for name in ("queue", "max_body", "max_sequences"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be a whole number from 1 on, not {getattr(self, name)!r}")
        for name in ("timeout", "drain", "shutdown_delay", "sequence_idle"):
            if not isinstance(getattr(self, name), int | float) or not 0 <= getattr(self, name) < 1e9:
                raise InvalidArgumentError(f"{name} must be a number of seconds, not {getattr(self, name)!r}")
        if self.poll is not None and not 0 < self.poll < 1e9:
            raise InvalidArgumentError(f"poll must be None or a number of seconds above 0, not {self.poll!r}")
        if not self.timeout:
            raise InvalidArgumentError("timeout must be more than 0 seconds")
