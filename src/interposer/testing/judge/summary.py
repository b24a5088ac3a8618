"""`Campaign`: the report of a campaign."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Any

from interposer.core.records import dataclass
from interposer.testing.judge.finding import Finding
from interposer.testing.judge.subject import Outcome
from interposer.testing.judge.tasks import Judged

__all__ = ["Campaign"]


@dataclass
class Campaign:
    """The result of a campaign of random networks on some backends.

    `networks` counts the judged networks by kind, and `counts` the verdicts by kind, route and outcome. `findings` are
    the failures.
    """

    backends: tuple[str, ...]
    seed: int
    seconds: float = 0.0
    networks: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, str, Outcome]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there is no finding."""
        return not self.findings

    def add(self, judged: Judged) -> None:
        """Count the result of one network."""
        self.networks[judged.kind] += 1
        for verdict in judged.verdicts:
            self.counts[judged.kind, verdict.conditions.route, verdict.outcome] += 1

    def table(self) -> list[tuple[str, ...]]:
        """Return a table as text: a row of titles, then a row of counts for every kind of network and route."""
        outcomes = [outcome for outcome in Outcome if any(key[2] is outcome for key in self.counts)]
        rows = [("kind", "route", "judged", *(outcome.value for outcome in outcomes))]
        for kind, route in sorted({key[:2] for key in self.counts}):
            numbers = [self.counts[kind, route, outcome] for outcome in outcomes]
            rows.append((kind, route, f"{sum(numbers):,}", *(f"{number:,}" for number in numbers)))
        return rows

    def summary(self) -> str:
        """Return one line with the number of judged networks and of findings."""
        kinds = ", ".join(f"{count_of_kind:,} {kind}" for kind, count_of_kind in sorted(self.networks.items()))
        sorts = Counter(finding.sort for finding in self.findings)
        sorts_text = ", ".join(f"{count} {sort}" for sort, count in sorts.most_common())
        findings = f"{len(self.findings)} findings ({sorts_text})" if sorts_text else "no findings"
        return (
            f"{' and '.join(self.backends)}: {kinds} networks of seed {self.seed} in {self.seconds:.0f} s, {findings}"
        )

    def __str__(self) -> str:
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *(f"\n{finding}" for finding in self.findings), "", self.summary()])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "backends": list(self.backends),
            "seed": self.seed,
            "ok": self.ok,
            "networks": dict(self.networks),
            "counts": [
                {"kind": kind, "route": route, "outcome": outcome.value, "count": count}
                for (kind, route, outcome), count in sorted(self.counts.items(), key=str)
            ],
            "findings": [finding.to_dict() for finding in self.findings],
        }
