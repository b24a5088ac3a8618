"""Events of backends: crashes, restarts and changes of placement while a runtime uses them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

__all__ = ["CRASHED", "PLACED_ANEW", "QUARANTINED", "RESTARTED", "TAKEN_BACK", "BackendEvent"]

CRASHED: Final = "crashed"
RESTARTED: Final = "restarted"
QUARANTINED: Final = "disabled"
PLACED_ANEW: Final = "placed again"
TAKEN_BACK: Final = "taken back"


@dataclass(frozen=True, slots=True)
class BackendEvent:
    """Something that happened to a backend at run time, such as a crash of its process, or that it was disabled.

    `kind` is `CRASHED`, `RESTARTED`, `QUARANTINED` (disabled), `PLACED_ANEW` (a network runs without it) or
    `TAKEN_BACK` (enabled again). `layer` is the layer that was running, or "" if it is unknown. `when` is a Unix time
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
