"""`ServeOptions`: the limits and the behaviour of a server."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.serving.access import Client, check_token

__all__ = ["ServeOptions"]

_WHOLE: Final = (
    "queue",
    "max_body",
    "max_sequences",
    "max_values",
    "max_ratio",
    "min_rate",
    "max_connections",
    "cache",
)


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
        cache: the most bytes of results that are cached for models whose settings ask for it.
        shared_memory: whether clients may register regions of shared memory.
        token: the text that requests for control, shared memory and statistics must have in the header
            ``Authorization: Bearer TOKEN``. With None, only processes of the server's user can send them, on a Unix
            socket.
        clients: clients with names, tokens and rights. If there are any, inference is for them only.
        hosts: the names that the header ``Host`` may have; None allows all.
        origins: the origins of web pages that may use the server, such as ``https://app.example``.
        sequence_idle: seconds after which the state of a sequence without requests is dropped.
        max_sequences: the number of sequences of one model that may have states at the same time.
        max_memory: the most bytes that all requests of the process hold together: bodies, what is read from them, and
            answers that are being sent; None means eight times `max_body`.
        client_share: the part of `max_memory` that the requests of one client may hold, more than 0 and at most 1.
        max_values: the number of JSON values, strings, or elements of gRPC messages of one request. Long lists of
            numbers do not count, as they are read without an object for each number.
        max_ratio: how many times as large as its compressed form a body may be, beyond its first MiB.
        min_rate: the least bytes per second at which a body must arrive after its first seconds.
        max_connections: the number of HTTP connections, and of gRPC connections. Beyond it, the HTTP connection that
            has been idle for longest is closed, or a gRPC connection of the client with the most of them.
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
    cache: int = 64 << 20
    shared_memory: bool = False
    token: str | None = None
    clients: tuple[Client, ...] = ()
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()
    sequence_idle: float = 60.0
    max_sequences: int = 256
    max_memory: int | None = None
    client_share: float = 0.5
    max_values: int = 1 << 20
    max_ratio: int = 250
    min_rate: int = 1024
    max_connections: int = 1024

    @property
    def memory(self) -> int:
        """The most bytes that all requests hold together: `max_memory`, or its default."""
        return 8 * self.max_body if self.max_memory is None else self.max_memory

    def __post_init__(self) -> None:
        for name in _WHOLE:
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be a whole number from 1 on, not {getattr(self, name)!r}")
        for name in ("timeout", "drain", "shutdown_delay", "sequence_idle"):
            if not isinstance(getattr(self, name), int | float) or not 0 <= getattr(self, name) < 1e9:
                raise InvalidArgumentError(f"{name} must be a number of seconds, not {getattr(self, name)!r}")
        if self.poll is not None and not 0 < self.poll < 1e9:
            raise InvalidArgumentError(f"poll must be None or a number of seconds above 0, not {self.poll!r}")
        if not self.timeout:
            raise InvalidArgumentError("timeout must be more than 0 seconds")
        if self.token is not None:
            check_token(self.token)
        self._check_budget()

    def _check_budget(self) -> None:
        if type(self.memory) is not int:
            raise InvalidArgumentError(f"max_memory must be a whole number of bytes, not {self.max_memory!r}")
        if type(self.client_share) not in (int, float) or not 0 < self.client_share <= 1:
            raise InvalidArgumentError(f"client_share must be more than 0 and at most 1, not {self.client_share!r}")
        if self.memory * self.client_share < self.max_body or self.memory // 2 < self.max_body:
            raise InvalidArgumentError(
                f"max_memory must have room for two bodies of max_body, {self.max_body:,} bytes each, and the share of "
                f"a client for one; {self.memory:,} bytes and a share of {self.client_share:g} do not"
            )
