"""Settings of isolation: how a backend runs in a separate process."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from interposer.backend.ids import listed_ids
from interposer.core.config import settings
from interposer.core.errors import InvalidArgumentError, as_float
from interposer.core.records import dataclass

__all__ = ["Isolation", "requested_isolations"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a backend runs in a child process.

    Args:
        deadline_seconds: the time limit of one call, such as compiling or running a part; None means no limit.
        start_seconds: the time limit for starting the process and creating the backend.
        max_restarts: the number of restarts after failures before the backend is disabled in its runtime; None means no
            limit. A single call that fails four times in a row is given up in any case.
        memory_bytes: the limit on the address space of the process, without tensors shared with the host; None means
            no limit.
    """

    deadline_seconds: float | None = 120.0
    start_seconds: float = 60.0
    max_restarts: int | None = 3
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "start_seconds"):
            value = getattr(self, name)
            requirement = f"{name} must be a positive number of seconds"
            is_unlimited = value is None and name == "deadline_seconds"
            if not is_unlimited and not 0 < as_float(value, requirement) < math.inf:
                raise InvalidArgumentError(f"{requirement}, not {value!r}")
        for name, minimum in (("max_restarts", 0), ("memory_bytes", 1)):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and minimum <= value < math.inf and value == int(value)):
                raise InvalidArgumentError(f"{name} must be None or a whole number from {minimum}, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def requested_isolations(value: Collection[str] | Mapping[str, Isolation] | None = None) -> dict[str, Isolation]:
    """Return the `Isolation` of each backend that the user wants to run in a child process, by backend id.

    `value` is a collection of ids, or a mapping of ids to `Isolation`; None uses the environment or the configuration
    file. Backends given only by id get the deadline and the number of restarts of the environment or the file, if set.

    Raises:
        InvalidArgumentError: an element is not a backend id, or a value is not an `Isolation`.
        ConfigError: the environment or the file has an invalid setting.
    """
    requested_settings: Any = settings()["isolate"].read() or () if value is None else value
    if isinstance(requested_settings, Mapping) and all(isinstance(name, str) for name in requested_settings):
        isolations = dict(requested_settings)
    else:
        ids = listed_ids(requested_settings, "isolate: backends", ordered=False)
        isolations = dict.fromkeys(ids, _configured_default()) if ids else {}
    for name, isolation in isolations.items():
        if not isinstance(isolation, Isolation):
            raise InvalidArgumentError(f"backend {name!r} is isolated by an Isolation(...), not by {isolation!r}")
    return isolations


def _configured_default() -> Isolation:
    defaults, configured_settings = Isolation(), settings()
    deadline = configured_settings["isolation_deadline_seconds"].read()
    restarts = configured_settings["isolation_max_restarts"].read()
    return replace(
        defaults,
        deadline_seconds=defaults.deadline_seconds if deadline is None else deadline or None,
        max_restarts=defaults.max_restarts if restarts is None else restarts,
    )
