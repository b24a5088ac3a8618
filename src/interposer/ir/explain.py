"""Explanations: for every layer the backend that has it, and for every other backend why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from interposer.ir.report import Copy, Placement, Refusal

if TYPE_CHECKING:
    from interposer.ir.optimized import OptimizedNetwork

__all__ = ["Explanation", "Verdict"]

COULD: Final = "could, ranked lower"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one backend that has not got a layer says of it: reasons for its no, or none where it could run it."""

    backend: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.backend}: {'; '.join(self.reasons) or COULD}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The placement of a whole network with the verdicts of all its backends. ``print`` shows a table for people."""

    network: str
    preferences: tuple[str, ...]
    rows: tuple[tuple[Placement, tuple[Verdict, ...]], ...]
    copies: tuple[Copy, ...]
    absent: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, optimized: OptimizedNetwork) -> Explanation:
        """The explanation of an optimized network."""
        refusals: dict[tuple[str, str], Refusal] = {(one.layer, one.backend): one for one in optimized.refusals}
        rows = tuple((one, tuple(_verdicts(one, optimized, refusals))) for one in optimized.placements)
        return cls(
            optimized.name,
            optimized.preferences,
            rows,
            optimized.copies,
            tuple((one.id, one.reason) for one in optimized.absent),
            tuple(map(str, optimized.messages)),
        )

    def counts(self) -> dict[str, int]:
        """How many layers each backend has, in order of preference."""
        counted = Counter(placement.backend for placement, _ in self.rows)
        return {backend: counted[backend] for backend in self.preferences}

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-compatible data."""
        return {
            "network": self.network,
            "backends": list(self.preferences),
            "absent": [{"id": backend, "reason": reason} for backend, reason in self.absent],
            "layers": [
                placement.to_dict() | {"others": {one.backend: list(one.reasons) or [COULD] for one in verdicts}}
                for placement, verdicts in self.rows
            ],
            "counts": self.counts(),
            "copies": [copy.to_dict() for copy in self.copies],
            "messages": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """The explanation as lines of text: a summary, the table, the copies, and who was absent."""
        shares = ", ".join(f"{backend} {count}" for backend, count in self.counts().items())
        yield f"network {self.network!r}: {len(self.rows)} layers ({shares})"
        yield from self._table()
        for copy in self.copies:
            yield f"copy of {copy.value!r} ({copy.info}): {copy.source} -> {copy.target}"
        for backend, reason in self.absent:
            yield f"{backend} is absent: {reason}"

    def _table(self) -> Iterator[str]:
        cells = [("layer", "operator", "backend", "runs in", "the others")]
        cells += [_cells(placement, verdicts) for placement, verdicts in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        for row in cells:
            padded = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False))
            yield f"  {padded}  {row[4]}".rstrip()

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _cells(placement: Placement, verdicts: tuple[Verdict, ...]) -> tuple[str, str, str, str, str]:
    inside = "" if placement.runs_in == placement.layer else placement.runs_in
    others = " | ".join(map(str, verdicts))
    return placement.layer, placement.kind, placement.backend, inside, others


def _verdicts(
    placement: Placement, optimized: OptimizedNetwork, refusals: Mapping[tuple[str, str], Refusal]
) -> Iterator[Verdict]:
    for backend in optimized.preferences:
        if backend == placement.backend:
            continue
        refusal = refusals.get((placement.layer, backend))
        reasons = refusal.reasons if refusal is not None else optimized.ask(backend).get(placement.layer, ())
        yield Verdict(backend, reasons)
