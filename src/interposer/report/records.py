"""Records of the optimizer as data: refusals, placements, crossings and messages."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.records import dataclass
from interposer.core.types import Dim, TensorInfo

__all__ = ["ASKING_RAISED", "COMPILING_RAISED", "Crossing", "Message", "Placement", "Refusal"]

ASKING_RAISED: Final = "asking it raised"
"""The beginning of a refusal's reason if the backend raised an exception when it was queried."""
COMPILING_RAISED: Final = "optimize_subgraph raised"
"""The beginning of a refusal's reason if the backend raised an exception when it optimized an accepted layer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of one layer by one backend, with the reasons.

    `stage` is "support" if the backend refused when it was queried, or "optimize" if it first accepted the layer and
    then returned it unchanged. `layer` is the layer's name, and `kind` its operator.
    """

    layer: str
    kind: str
    backend: str
    reasons: tuple[str, ...]
    stage: str = "support"

    @property
    def is_problem(self) -> bool:
        """True if the backend raised an exception when it was asked or compiled the layer, instead of refusing it."""
        return any(reason.startswith((ASKING_RAISED, COMPILING_RAISED)) for reason in self.reasons)

    def __str__(self) -> str:
        return f"{self.backend} refuses {self.layer!r} ({self.kind}): {'; '.join(self.reasons)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "backend": self.backend,
            "reasons": list(self.reasons),
            "stage": self.stage,
        }


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of one layer on `backend`.

    `runs_in` is the name of the layer that the backend substituted for it, or empty. `replaced` has the names of layers
    of the original network that rewrites merged into this layer. `source` is the layer's origin in a model file.
    """

    layer: str
    kind: str
    backend: str
    runs_in: str
    source: str = ""
    replaced: tuple[str, ...] = ()

    def running_in(self, layer: str) -> Placement:
        """Return the same placement, with `layer` as the layer that the backend substituted."""
        return Placement(self.layer, self.kind, self.backend, layer, self.source, self.replaced)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "backend": self.backend,
            "runs_in": self.runs_in,
            "source": self.source,
            "replaced": list(self.replaced),
        }


@dataclass(frozen=True, slots=True)
class Crossing:
    """A tensor that passes from one backend to another, or between a backend's memory and the caller's.

    `how` is "direct" (both work on the same memory), "import" (the target uses the source's memory in place), "device
    copy" (a device copies the tensor) or "copy" (the host copies it). `layer` is the layer that copies or imports,
    empty for "direct". `memory` has the tensor handle factories of both ends. `source` or `target` is "" for the
    caller.
    """

    layer: str
    value: str
    source: str
    target: str
    info: TensorInfo
    how: str = "copy"
    memory: tuple[str, str] = ("", "")

    @property
    def is_copy(self) -> bool:
        """True if the tensor is copied in every run."""
        return self.how in ("copy", "device copy")

    @property
    def num_bytes(self) -> int:
        """The size of the tensor in bytes; 0 if it is unknown before running."""
        size = self.info.num_bytes
        return 0 if isinstance(size, Dim) else int(size)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        return {
            "layer": self.layer,
            "value": self.value,
            "from": self.source,
            "to": self.target,
            "how": self.how,
            "memory": list(self.memory),
            "bytes": self.num_bytes,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the optimizer to the user, such as a warning that a layer fell back to another backend.

    `level` is "info", "warning" or "error". `passing` is True for what happened when a saved network was loaded here:
    such a message is not saved with the network.
    """

    level: str
    text: str
    refusals: tuple[Refusal, ...] = ()
    passing: bool = False

    def __str__(self) -> str:
        return f"{self.level.upper()}: {self.text}"
