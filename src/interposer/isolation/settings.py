"""How a backend is run in a process of its own."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from interposer.backend.ids import listed_ids
from interposer.core.config import settings
from interposer.core.errors import InvalidArgumentError

__all__ = ["Isolation", "requested_isolations"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a backend is run in a child process.

    Args:
        deadline_seconds: how long one call may take, be it to compile a part or to run it; None waits for ever.
        start_seconds: how long the process may take to start and to make the backend.
        max_restarts: how often the process is started again after an error, before the backend is disabled in its
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
            value = getattr(self, name)
            optional = value is None and name == "deadline_seconds"
            if not optional and not (_is_number(value) and 0 < value < math.inf):
                raise InvalidArgumentError(f"{name} must be a positive number of seconds, not {value!r}")
        for name, least in (("max_restarts", 0), ("memory_bytes", 1)):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and least <= value < math.inf and value == int(value)):
                raise InvalidArgumentError(f"{name} must be None or a whole number from {least}, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def requested_isolations(value: Collection[str] | Mapping[str, Isolation] | None = None) -> dict[str, Isolation]:
    """For ids of backends how each is isolated; None means what environment or file say.

    Those of which only the id is given get the deadline and the restarts that environment or file say, if they do.

    Raises:
        InvalidArgumentError: something other than ids, or other than an `Isolation` for one.
        ConfigError: what environment or file say cannot be meant.
    """
    names: Any = settings()["isolate"].read() or () if value is None else value
    if isinstance(names, Mapping) and all(isinstance(name, str) for name in names):
        result = dict(names)
    else:
        ids = listed_ids(names, "isolate: backends", ordered=False)
        result = dict.fromkeys(ids, _usual()) if ids else {}
    for name, how in result.items():
        if not isinstance(how, Isolation):
            raise InvalidArgumentError(f"backend {name!r} is isolated by an Isolation(...), not by {how!r}")
    return result


def _usual() -> Isolation:
    usual, said = Isolation(), settings()
    deadline = said["isolation_deadline_seconds"].read()
    restarts = said["isolation_max_restarts"].read()
    return replace(
        usual,
        deadline_seconds=usual.deadline_seconds if deadline is None else deadline or None,
        max_restarts=usual.max_restarts if restarts is None else restarts,
    )
