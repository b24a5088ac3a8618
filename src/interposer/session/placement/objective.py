"""`Search`: what a placement is to be the best at, and how long it is looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.optimizer.optimizer_options import check_seconds

__all__ = ["Search"]

_OBJECTIVES: Final = ("latency", "throughput", "memory")


@dataclass(frozen=True)
class Search:
    """What to look for, and for how long.

    Args:
        budget_seconds: how long to search. One backend is tried in any case, and what has begun is finished (compiling
            cannot be interrupted); nothing begins that is expected to take longer.
        objective: "latency" (of one run), "throughput" (of runs at the same time, one for each thread) or "memory"
            (`MemoryReport.peak`: arenas, constants, and what compiled parts hold).
        most_bytes: plans that need more memory are left out; so are those with parts that do not tell how much they
            hold, also where memory is the objective.
        most_seconds: plans whose runs take longer are left out; for throughput, those whose runs together do.
        blocks: into how many blocks the network is cut at most.
        mixes: how many plans of several backends are timed whole.
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
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name == "most_bytes"):
                raise InvalidArgumentError(f"{name} must be a whole number, not {value!r}")
        if self.most_bytes is not None and self.most_bytes < 1:
            raise InvalidArgumentError(f"most_bytes must be 1 or more, not {self.most_bytes}")
        if self.blocks < 1 or self.mixes < 0:
            raise InvalidArgumentError(f"expected 1 block or more and 0 mixes or more, not {self.blocks}, {self.mixes}")
