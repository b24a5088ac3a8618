"""`Search`: the objective and the budget of the search for a placement."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import InvalidArgumentError, as_int
from interposer.core.records import dataclass
from interposer.optimizer.optimizer_options import check_seconds

__all__ = ["Search"]

_OBJECTIVES: Final = ("latency", "throughput", "memory")


@dataclass(frozen=True)
class Search:
    """The objective of the search for a placement, and its limits.

    Args:
        budget_seconds: the time for the search. One backend is tried in any case, and a step that has begun is
            finished, because compiling cannot be interrupted. No step begins that is expected to exceed the budget.
        objective: "latency" (of one run), "throughput" (of concurrent runs, one per thread) or "memory"
            (`MemoryReport.peak`: arenas, constants, and the memory of compiled parts).
        most_bytes: plans that need more bytes are rejected. With this limit, or with "memory" as the objective, plans
            with parts of unknown memory are rejected too.
        most_seconds: plans whose runs take more seconds are rejected; for throughput, the time of the concurrent runs.
        blocks: the largest number of blocks into which the network is cut.
        mixes: the number of plans with several backends that are timed as a whole.
    """

    budget_seconds: float = 30.0
    objective: str = "latency"
    most_bytes: int | None = None
    most_seconds: float | None = None
    blocks: int = 8
    mixes: int = 3

    def __post_init__(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise InvalidArgumentError(
                f"the objective of a placement is one of {', '.join(_OBJECTIVES)}, not {self.objective!r}"
            )
        check_seconds("budget_seconds", self.budget_seconds)
        if self.most_seconds is not None:
            check_seconds("most_seconds", self.most_seconds)
        for name in ("most_bytes", "blocks", "mixes"):
            if self.most_bytes is not None or name != "most_bytes":
                object.__setattr__(self, name, as_int(getattr(self, name), f"{name} must be a whole number"))
        if self.most_bytes is not None and self.most_bytes < 1:
            raise InvalidArgumentError(f"most_bytes must be 1 or more, not {self.most_bytes}")
        if self.blocks < 1 or self.mixes < 0:
            raise InvalidArgumentError(f"expected 1 block or more and 0 mixes or more, not {self.blocks}, {self.mixes}")
