"""`campaign`: many random networks judged on a backend, and a report of what came of them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from interposer.backend import Options
from interposer.errors import InvalidArgumentError, did_you_mean
from interposer.schema import Op
from interposer.testing.judge.crew import Crew
from interposer.testing.judge.serving import Setup
from interposer.testing.judge.subject import Outcome, Subject, Verdict
from interposer.testing.judge.tasks import GENERATOR, Judged, One, Plan, Served, drawn, subjects_of
from interposer.testing.judge.workers import Lost, Nursery, Worker, nursery_for
from interposer.testing.random_networks import KINDS
from interposer.testing.replay import Factory
from interposer.testing.tolerances import Tolerances

__all__ = ["Campaign", "Finding", "campaign"]

SECONDS: Final = 30.0
MEMORY: Final = 2 << 30
_THREADS: Final = {"INTERPOSER_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with the backend, or with Interposer itself, on one random network.

    Args:
        id: the kind, the seed and the number of the network.
        verdict: what is wrong, under which conditions, and whose fault it is.
        note: whether it shows again when the network is run alone.
    """

    id: str
    verdict: Verdict
    note: str = ""

    def __str__(self) -> str:
        sort = self.verdict.sort.value if self.verdict.sort else ""
        title = f"{self.id} ({self.verdict.conditions.route}): {sort}, the fault of {self.verdict.culprit or 'unknown'}"
        return "\n".join([title, *(f"  {line}" for line in (self.verdict.text, self.note) if line)])


@dataclass
class Campaign:
    """What came of a campaign: counts of verdicts by kind of network, route and outcome, and the findings."""

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
        """Count what came of one network."""
        self.networks[judged.kind] += 1
        for verdict in judged.verdicts:
            self.counts[judged.kind, verdict.conditions.route, verdict.outcome] += 1

    def table(self) -> list[tuple[str, ...]]:
        """Titles, and a row of counts for every kind and route."""
        outcomes = [one for one in Outcome if any(key[2] is one for key in self.counts)]
        rows = [("kind", "route", "judged", *(one.value for one in outcomes))]
        for kind, route in sorted({key[:2] for key in self.counts}):
            numbers = [self.counts[kind, route, one] for one in outcomes]
            rows.append((kind, route, f"{sum(numbers):,}", *(f"{one:,}" for one in numbers)))
        return rows

    def summary(self) -> str:
        """One line that says how many networks were tried, and what was found."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.networks.items()))
        sorts = Counter(one.verdict.sort.value for one in self.findings if one.verdict.sort)
        found = ", ".join(f"{count} of sort {name}" for name, count in sorts.most_common()) or "no findings"
        return f"{' and '.join(self.backends)}: {kinds} networks of seed {self.seed} in {self.seconds:.0f} s: {found}"

    def __str__(self) -> str:
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *(f"\n{one}" for one in self.findings), "", self.summary()])

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-compatible data."""
        return {
            "backends": list(self.backends),
            "seed": self.seed,
            "ok": self.ok,
            "networks": dict(self.networks),
            "counts": [
                {"kind": kind, "route": route, "outcome": outcome.value, "count": count}
                for (kind, route, outcome), count in sorted(self.counts.items(), key=str)
            ],
            "findings": [
                {
                    "id": one.id,
                    "route": one.verdict.conditions.route,
                    "sort": one.verdict.sort.value if one.verdict.sort else "",
                    "culprit": one.verdict.culprit,
                    "text": one.verdict.text,
                    "note": one.note,
                }
                for one in self.findings
            ],
        }


def campaign(
    backends: str | Factory | Sequence[str | Factory],
    count: int = 1000,
    *,
    seed: int = 0,
    start: int = 0,
    kind: str | None = None,
    jobs: int | None = None,
    options: Mapping[str, Options] | None = None,
    tolerances: Tolerances | None = None,
    favoured: Collection[type[Op]] = (),
    seconds: float = SECONDS,
    memory: int = MEMORY,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[Judged], None] = lambda _: None,
) -> Campaign:
    """Judge random networks on a backend, beside the reference kernels, in child processes.

    Args:
        backends: the backend, or several in order of preference: ids, ``module:Class``, paths of shared objects, or
            functions that make one. Functions and classes need `os.fork`.
        count: how many networks.
        seed: which sequence of networks.
        start: the number of the first one.
        kind: "float" or "quantized"; None means both in turn.
        jobs: how many processes work at the same time; None means one for each processor.
        options: model options by backend id.
        tolerances: how near the results of one layer must be; by default quantized results bit for bit.
        favoured: operators that come more often than others.
        seconds: how long one network may take.
        memory: how many bytes of memory a process may use more than at its start.
        environment: environment variables for the child processes.
        progress: is shown what came of each network.

    Raises:
        UnknownBackendError, BackendUnavailableError, PluginError: a backend cannot be made.
        InvalidArgumentError: a number, kind or backend that cannot be meant.
    """
    given = (backends,) if isinstance(backends, str) or callable(backends) else tuple(backends)
    _check(given, count, start, kind)
    jobs = jobs or os.cpu_count() or 1
    setup = Setup(given, dict(options or {}), tolerances or Tolerances(steps=0), memory)
    plan = Plan(seed, kind, tuple(sorted(op.op_name() for op in favoured)))
    with nursery_for(setup, {**_threads(jobs), **(environment or {})}) as nursery:
        return _Run(nursery, plan, jobs, seconds).judge(range(start, start + count), progress)


def _check(backends: Sequence[str | Factory], count: int, start: int, kind: str | None) -> None:
    if not backends:
        raise InvalidArgumentError("no backend was given; name one, or several in order of preference")
    if count < 1 or start < 0:
        raise InvalidArgumentError(f"count is {count} and start {start}; expected at least 1 and 0")
    if kind is not None and kind not in KINDS:
        raise InvalidArgumentError(f"unknown kind of random networks {kind!r}{did_you_mean(kind, KINDS)}")


def _threads(jobs: int) -> dict[str, str]:
    """Environment variables that share the processors among the jobs, unless the environment says otherwise."""
    share = str(max(1, (os.cpu_count() or 1) // jobs))
    return {name: value or share for name, value in _THREADS.items() if name not in os.environ}


class _Run:
    """A campaign that is under way."""

    def __init__(self, nursery: Nursery, plan: Plan, jobs: int, seconds: float) -> None:
        self.nursery, self.plan, self.jobs, self.seconds = nursery, plan, jobs, seconds

    def judge(self, numbers: range, progress: Callable[[Judged], None]) -> Campaign:
        """Judge the networks with these numbers, and look again at what was found."""
        since = time.monotonic()
        report = Campaign(self._backends(), self.plan.seed)
        suspects = []
        for judged in Crew(self.nursery, self.plan, self.jobs, self.seconds).judge(numbers):
            judged = judged if judged.kind else replace(judged, kind=drawn(self.plan, judged.number).kind)
            if any(verdict.is_finding for verdict in judged.verdicts):
                suspects.append(judged)
            report.add(judged)
            progress(judged)
        for judged in sorted(suspects, key=lambda one: one.number):
            report.findings += self._findings(judged)
        report.seconds = time.monotonic() - since
        return report

    def _backends(self) -> tuple[str, ...]:
        with Worker(self.nursery, self.seconds) as worker:
            worker.give(Served())
            return tuple(name for name, _ in worker.receive())

    def _findings(self, judged: Judged) -> Iterator[Finding]:
        """The findings of one network; each is run again alone, to confirm it."""
        for verdict in judged.verdicts:
            if verdict.is_finding:
                yield self._confirmed(f"{judged.kind}-{self.plan.seed}-{judged.number}", judged.number, verdict)

    def _confirmed(self, name: str, number: int, verdict: Verdict) -> Finding:
        if verdict.culprit == GENERATOR:
            return Finding(name, verdict)
        subjects = list(subjects_of(self.plan, drawn(self.plan, number)))
        if verdict.culprit:
            subjects = [one for one in subjects if one.conditions == verdict.conditions]
        for subject in subjects:
            again = self.alone(subject)
            if again.is_finding:
                return Finding(name, again)
        return Finding(name, verdict, "it does not show again when the network is run alone in a new process")

    def alone(self, subject: Subject, ids: Sequence[str] | None = None) -> Verdict:
        """Judge one network in a process of its own."""
        with Worker(self.nursery, self.seconds) as worker:
            worker.give(One(subject, ids))
            try:
                result: Verdict = worker.receive()
            except Lost as lost:
                verdict = Verdict(Outcome.FINDING, subject.conditions, lost.sort, lost.text)
                return verdict if ids is not None else replace(verdict, culprit=self._culprit(subject, verdict))
            return result

    def _culprit(self, subject: Subject, verdict: Verdict) -> str:
        """The backend at which a worker dies when it is used alone; Interposer if it dies without any."""
        ids = self._backends()
        for alone in [(), *((one,) for one in ids)] if len(ids) > 1 else [()]:
            if self.alone(subject, alone).alike(verdict):
                return alone[0] if alone else "Interposer"
        return " and ".join(ids)
