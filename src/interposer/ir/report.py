"""What the optimizer found out and did, as data: refusals, messages, and the crossing of every border."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Message", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One backend's no to one layer, with its reasons.

    `stage` says when: "support" (it was asked), "optimize" (it failed to take a part), or "fallback" (a conversion
    was needed). `layer` is the layer's name, `kind` its operator.
    """

    layer: str
    kind: str
    backend: str
    reasons: tuple[str, ...]
    stage: str = "support"

    def __str__(self) -> str:
        return f"{self.backend} refuses {self.layer!r} ({self.kind}): {'; '.join(self.reasons)}"

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-compatible data."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "backend": self.backend,
            "reasons": list(self.reasons),
            "stage": self.stage,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that the optimizer has to say; `level` is "info", "warning" or "error"."""

    level: str
    text: str
    layer: str = ""
    refusals: tuple[Refusal, ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.level.upper()}: {self.text}"


def texts(messages: Iterable[Message]) -> list[str]:
    """The messages as lines."""
    return [str(message) for message in messages]
