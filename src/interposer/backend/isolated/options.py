"""How a backend is run in a process of its own, and what is written down of it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from interposer.errors import InvalidArgumentError

__all__ = ["BackendEvent", "Isolation", "isolations"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a backend is run in a child process.

    Args:
        deadline_seconds: how long one call may take, be it to compile a part or to run it; None waits for ever.
        start_seconds: how long the process may take to start and to make the backend.
        max_restarts: how often the process is started again after a fault, before the backend is put aside in its
            runtime; None sets no bound. One call that fails four times in a row is given up in any case.
        memory_bytes: how much address space the process may take beside the tensors that it shares with the host;
            None sets no bound.
    """

    deadline_seconds: float | None = 120.0
    start_seconds: float = 60.0
    max_restarts: int | None = 3
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "start_seconds"):
            given = getattr(self, name)
            optional = given is None and name == "deadline_seconds"
            if not optional and not (_is_number(given) and 0 < given < math.inf):
                raise InvalidArgumentError(f"{name} must be a positive number of seconds, not {given!r}")
        for name, least in (("max_restarts", 0), ("memory_bytes", 1)):
            given = getattr(self, name)
            if given is not None and not (_is_number(given) and given >= least and given == int(given)):
                raise InvalidArgumentError(f"{name} must be None or a whole number from {least}, not {given!r}")


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def isolations(given: Collection[str] | Mapping[str, Isolation]) -> dict[str, Isolation]:
    """For ids of backends how each is isolated; ids without anything else mean the defaults.

    Raises:
        InvalidArgumentError: something other than ids, or other than an `Isolation` for one.
    """
    names: Any = (given,) if isinstance(given, str) else given
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"isolate must be ids of backends, or a mapping from id to Isolation, not {given!r}")
    found = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, Isolation())
    for name, how in found.items():
        if not isinstance(how, Isolation):
            raise InvalidArgumentError(f"backend {name!r} is isolated by an Isolation(...), not by {how!r}")
    return found


@dataclass(frozen=True, slots=True)
class BackendEvent:
    """Something that happened to a backend: `kind` is "crashed", "restarted", "put aside" or "placed anew".

    `layer` is the one that was running, where that is known; `when` is in seconds since 1970.
    """

    backend: str
    kind: str
    text: str
    layer: str = ""
    when: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-compatible data."""
        return asdict(self)

    def __str__(self) -> str:
        return f"backend {self.backend!r} {self.kind}: {self.text}"
