"""Explanations: for every layer the backend that has it, and for every other backend why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from interposer.ir.report import Crossing, Placement, Refusal

if TYPE_CHECKING:
    from interposer.ir.optimized import OptimizedNetwork

__all__ = ["Explanation", "Verdict"]

COULD: Final = "could, ranked lower"
CALLER: Final = "the caller"
_HOW: Final = {
    "direct": "passed from {source} to {target} without a copy",
    "import": "used by {target} where {source} has it, without a copy",
    "device copy": "copied by the device from {source} to {target}",
    "copy": "copied from {source} to {target}",
}
LATE: Final = ("was not asked, as the layer came in while others were given back",)
_TITLES: Final = ("layer", "operator", "backend", "runs in", "stands also for", "refused by")
_ALWAYS: Final = 3


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
    crossings: tuple[Crossing, ...]
    absent: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """Those of the notes that tell more than refusals."""

    @classmethod
    def of(cls, optimized: OptimizedNetwork) -> Explanation:
        """The explanation of an optimized network."""
        refusals: dict[tuple[str, str], Refusal] = {(one.layer, one.backend): one for one in optimized.refusals}
        rows = tuple((one, tuple(_verdicts(one, optimized, refusals))) for one in optimized.placements)
        return cls(
            optimized.name,
            optimized.preferences,
            rows,
            optimized.crossings,
            tuple((one.id, one.reason) for one in optimized.absent),
            tuple(map(str, optimized.messages)),
            tuple(one.text for one in optimized.messages if not one.refusals),
        )

    @property
    def copies(self) -> tuple[Crossing, ...]:
        """The crossings where a tensor is copied in every run."""
        return tuple(one for one in self.crossings if one.is_copy)

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
            "crossings": [crossing.to_dict() for crossing in self.crossings],
            "messages": list(self.notes),
        }

    def refusals(self) -> dict[Verdict, Counter[str]]:
        """Every no that was given, once, with the operators it was given for; in order of preference."""
        found: dict[Verdict, Counter[str]] = {}
        for placement, verdicts in self.rows:
            for verdict in filter(_is_refusal, verdicts):
                found.setdefault(verdict, Counter())[placement.kind] += 1
        return dict(sorted(found.items(), key=lambda item: self.preferences.index(item[0].backend)))

    def table(self) -> list[tuple[str, ...]]:
        """A row for every layer under a row of titles. Numbers in brackets are those that `summary` gives to reasons.

        Columns that would be empty are left out.
        """
        numbers = {verdict: number for number, verdict in enumerate(self.refusals(), 1)}
        cells = [_TITLES, *(_cells(placement, verdicts, numbers) for placement, verdicts in self.rows)]
        kept = [column for column in range(len(_TITLES)) if column < _ALWAYS or any(row[column] for row in cells[1:])]
        return [tuple(row[column] for column in kept) for row in cells]

    def summary(self) -> Iterator[str]:
        """What there is to say of the whole, of each backend with its refusals, and of what crosses, line by line."""
        several = len(self.preferences) > 1
        count = len(self.copies)
        copied = f", {_counted(count, 'copy', 'copies') if count else 'no copies'} between backends" if several else ""
        yield f"network {self.network!r}: {_counted(len(self.rows), 'layer')}{copied}"
        for backend, count in self.counts().items():
            yield from self._standing(backend, count)
        yield from self._crossings()
        for remark in self.remarks:
            yield f"  {remark}"

    def _standing(self, backend: str, count: int) -> Iterator[str]:
        others = [verdict for _, verdicts in self.rows for verdict in verdicts if verdict.backend == backend]
        refused = sum(map(_is_refusal, others))
        parts = [_counted(count, "layer")]
        parts += [f"refuses {refused}"] if refused else []
        parts += [f"could run {len(others) - refused} more"] if len(others) > refused else []
        yield f"  {backend}: {', '.join(parts)}"
        for number, (verdict, kinds) in enumerate(self.refusals().items(), 1):
            if verdict.backend == backend:
                named = ", ".join(f"{kind} ({times})" for kind, times in kinds.most_common())
                yield f"    [{number}] {named}: {'; '.join(verdict.reasons)}"

    def _crossings(self) -> Iterator[str]:
        groups: dict[tuple[str, str, str], list[Crossing]] = {}
        for one in self.crossings:
            groups.setdefault((one.how, one.source or CALLER, one.target or CALLER), []).append(one)
        for (how, source, target), together in groups.items():
            size = sum(one.num_bytes for one in together)
            names = ", ".join(one.value for one in together)
            yield f"  {_HOW[how].format(source=source, target=target)} ({size:,} bytes): {names}"

    def lines(self) -> Iterator[str]:
        """The explanation as lines of text: the summary, and the table of layers."""
        yield from self.summary()
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield f"  {'  '.join(map(str.ljust, row, widths))}".rstrip()

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _is_refusal(verdict: Verdict) -> bool:
    return bool(verdict.reasons)


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def _cells(placement: Placement, verdicts: tuple[Verdict, ...], numbers: Mapping[Verdict, int]) -> tuple[str, ...]:
    inside = "" if placement.runs_in == placement.layer else placement.runs_in
    refused = ", ".join(f"{one.backend} [{numbers[one]}]" for one in filter(_is_refusal, verdicts))
    merged = ", ".join(name for name in placement.replaced if name != placement.layer)
    return placement.layer, placement.kind, placement.backend, inside, merged, refused


def _verdicts(
    placement: Placement, optimized: OptimizedNetwork, refusals: Mapping[tuple[str, str], Refusal]
) -> Iterator[Verdict]:
    for backend in optimized.preferences:
        if backend == placement.backend:
            continue
        refusal = refusals.get((placement.layer, backend))
        reasons = refusal.reasons if refusal is not None else optimized.ask(backend).get(placement.layer, LATE)
        yield Verdict(backend, reasons)
