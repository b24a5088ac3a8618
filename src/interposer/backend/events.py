"""Events of backends: crashes, restarts and changes of placement while a runtime uses them."""

from __future__ import annotations

import time
from dataclasses import asdict, field
from typing import Any, Final

from interposer.core.records import dataclass

__all__ = ["CRASHED", "ENABLED_AGAIN", "QUARANTINED", "REPLACED", "RESTARTED", "BackendEvent"]

CRASHED: Final = "crashed"
RESTARTED: Final = "restarted"
QUARANTINED: Final = "disabled"
REPLACED: Final = "replaced"
ENABLED_AGAIN: Final = "enabled again"


@dataclass(frozen=True, slots=True)
class BackendEvent:
    """Something that happened to a backend at run time, such as a crash of its process, or that it was disabled.

    `kind` is `CRASHED`, `RESTARTED`, `QUARANTINED` (disabled), `REPLACED` (a model runs without it) or
    `ENABLED_AGAIN`. `layer` is the layer that was running, or "" if it is unknown. `when` is a Unix time
    in seconds.
    """

    backend: str
    kind: str
    text: str
    layer: str = ""
    when: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON-compatible data."""
        return asdict(self)

    def __str__(self) -> str:
        return f"backend {self.backend!r} {self.kind}: {self.text}"
