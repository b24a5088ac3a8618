"""`LoadRequest`: the checked arguments of one call of `load`."""

from __future__ import annotations

from typing import Any

from interposer.core.records import dataclass
from interposer.optimizer import OptimizerOptions
from interposer.runtime import Runtime
from interposer.session.fallback import asks_to_measure
from interposer.session.limits import Limits
from interposer.session.placement.plan import Plan
from interposer.session.source import Reading

__all__ = ["LoadRequest"]


@dataclass(frozen=True)
class LoadRequest:
    """The checked arguments of one call of `load`, which documents them.

    `reading` has those that say how the source is read. The content of an open file has been read already.
    """

    source: Any
    reading: Reading
    runtime: Runtime
    backends: tuple[str, ...] | None = None
    options: OptimizerOptions | None = None
    limits: Limits | None = None
    fallback: bool | None = None
    plan: Plan | None = None

    @property
    def has_measured_placement(self) -> bool:
        """True if a measurement decides which backend runs which layer: that of a plan, or one at the load."""
        return self.plan is not None or asks_to_measure(self.backends, self.options)
