"""`campaign`: judges many random networks on a backend, and reports the results."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final

from interposer.backend import Options
from interposer.core.errors import InvalidArgumentError, as_int
from interposer.core.schema import Op
from interposer.testing.judge.crew import Crew
from interposer.testing.judge.finding import Finding
from interposer.testing.judge.inspecting import Inspection, inspect
from interposer.testing.judge.opinions import installed_engines
from interposer.testing.judge.replaying import MEMORY, SECONDS
from interposer.testing.judge.serving import Setup, check_limits, named_backends
from interposer.testing.judge.solo import Solo
from interposer.testing.judge.subject import Sort, Verdict
from interposer.testing.judge.summary import Campaign
from interposer.testing.judge.tasks import GENERATOR, Judged, Plan, drawn, subjects_of
from interposer.testing.judge.workers import Worker, nursery_for
from interposer.testing.random_networks import KINDS, check_favoured, check_kind
from interposer.testing.replay import Factory
from interposer.testing.tolerances import Tolerances

__all__ = ["Campaigns", "campaign"]

_THREADS: Final = {"INTERPOSER_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def campaign(
    backends: str | Factory | Sequence[str | Factory],
    count: int = 1000,
    *,
    seed: int = 0,
    start: int = 0,
    kind: str | None = None,
    favoured: Collection[type[Op]] = (),
    jobs: int | None = None,
    options: Mapping[str, Options] | None = None,
    tolerances: Tolerances | None = None,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    environment: Mapping[str, str] | None = None,
    shrink: int = 10,
    shrink_seconds: float = 30.0,
    engines: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[Judged], None] = lambda _: None,
) -> Campaign:
    """Judge random networks on a backend by comparing it with the reference kernels, in child processes.

    Args:
        backends: the backend, or several in order of preference: ids, ``module:Class``, paths of shared objects, or
            functions that create a backend. Functions and classes need `os.fork`.
        count: the number of networks.
        seed: the seed that identifies the sequence of networks.
        start: the number of the first network.
        kind: "float" or "quantized"; None alternates between both.
        favoured: operators that occur more often than others.
        jobs: the number of concurrent processes; None means one per processor.
        options: model options by backend id.
        tolerances: the allowed differences for one layer; by default quantized results must be equal bit by bit.
        seconds: the time limit for one network.
        memory: the bytes of memory that a process may use beyond its use at the start.
        environment: environment variables for the child processes.
        shrink: how many findings are reduced, located and run on the installed engines.
        shrink_seconds: the time limit for reducing each of them.
        engines: ids of the engines that run these findings too; None means all that are installed.
        folder: the folder for scripts that reproduce the findings; None writes none.
        progress: a function that is called with the result of each network.

    Raises:
        UnknownBackendError, BackendUnavailableError, PluginError: a backend cannot be created.
        BackendCrashedError: a process ends or hangs while it creates a backend.
        InvalidArgumentError: a number, kind, operator or backend is invalid, or a backend is given twice.
    """
    factories = named_backends(backends)
    _check(count, seed, start, kind, jobs)
    check_limits(seconds, memory)
    check_favoured(favoured)
    setup = Setup(factories, dict(options or {}), tolerances or Tolerances(steps=0), memory)
    plan = Plan(seed, kind, favoured=tuple(sorted(op.op_name() for op in favoured)))
    with Campaigns(setup, jobs=jobs, seconds=seconds, environment=environment) as campaigns:
        campaigns.shrink, campaigns.shrink_seconds = shrink, shrink_seconds
        campaigns.engines = None if engines is None else tuple(engines)
        campaigns.folder = None if folder is None else Path(folder)
        return campaigns.run(plan, range(start, start + count), progress)


def _check(count: int, seed: int, start: int, kind: str | None, jobs: int | None) -> None:
    for name, number in {"count": count, "seed": seed, "start": start}.items():
        as_int(number, f"{name} must be an integer")
    if jobs is not None:
        as_int(jobs, "jobs must be an integer or None")
    if count < 1 or start < 0:
        raise InvalidArgumentError(f"count is {count} and start {start}; expected at least 1 and 0")
    if jobs is not None and jobs < 1:
        raise InvalidArgumentError(f"jobs is {jobs}; expected at least 1")
    if kind is not None:
        check_kind(kind)


def _threads(jobs: int) -> dict[str, str]:
    """Return environment variables that divide the processors among the jobs, unless the environment sets them."""
    share = str(max(1, (os.cpu_count() or 1) // jobs))
    return {name: value or share for name, value in _THREADS.items() if name not in os.environ}


class Campaigns:
    """Several campaigns with the same backends, which share the processes that fork workers. A context manager.

    `shrink`, `shrink_seconds`, `engines` and `folder` are those of `campaign`.

    Args:
        setup: the backends, their options and tolerances.
        jobs: the number of concurrent processes; None means one per processor.
        seconds: the time limit for one network.
        environment: environment variables for the child processes.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        jobs: int | None = None,
        seconds: float = SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.setup, self.jobs, self.seconds = setup, jobs or os.cpu_count() or 1, seconds
        self.environment = {**_threads(self.jobs), **(environment or {})}
        self.shrink, self.shrink_seconds = 10, 30.0
        self.folder: Path | None = None
        self.engines: tuple[str, ...] | None = None
        self.nursery = nursery_for(setup, self.environment)
        self.idle: list[Worker] = []

    def __enter__(self) -> Campaigns:
        self.nursery.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self.idle:
            self.idle.pop().close()
        self.nursery.__exit__(kind, error, trace)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of the setup's backends; propagates the errors of creating them."""
        with Solo(self.nursery, self.seconds) as solo:
            return solo.ids

    def run(self, plan: Plan, numbers: range, progress: Callable[[Judged], None] = lambda _: None) -> Campaign:
        """Judge the networks of a plan with these numbers, and inspect the findings."""
        ids = self.ids if plan.ids is None else plan.ids
        backends = dict(zip(self.ids, self.setup.backends, strict=True))
        engines = installed_engines(without=ids) if self.engines is None else self.engines
        inspection = Inspection(
            [backends[name] for name in ids], ids, self.seconds, self.shrink_seconds, engines, self.folder,
            self.environment,
        )  # fmt: skip
        return _Run(self, plan, inspection).judge(numbers, Campaign(ids, plan.seed), progress)


class _Run:
    """One run of a plan of random networks, with the processes of a `Campaigns`."""

    def __init__(self, campaigns: Campaigns, plan: Plan, inspection: Inspection) -> None:
        self.nursery, self.jobs, self.shrink = campaigns.nursery, campaigns.jobs, campaigns.shrink
        self.idle = campaigns.idle
        self.plan, self.inspection = plan, inspection

    def judge(self, numbers: range, report: Campaign, progress: Callable[[Judged], None]) -> Campaign:
        """Judge the networks with these numbers and inspect the findings; add the results to `report` and return it.

        `progress` is called with the result of each network.
        """
        start, suspects = time.monotonic(), list[tuple[int, Verdict]]()
        crew = Crew(self.nursery, self.plan, self.jobs, self.inspection.seconds, self.idle)
        for judged in crew.judge(numbers):
            complete_judged = judged if judged.kind else replace(judged, kind=drawn(self.plan, judged.number).kind)
            suspects += [
                (complete_judged.number, verdict) for verdict in complete_judged.verdicts if verdict.is_finding
            ]
            report.add(complete_judged)
            progress(complete_judged)
        report.findings += self._findings(sorted(suspects, key=lambda suspect: suspect[0]))
        report.seconds = time.monotonic() - start
        return report

    def _findings(self, suspects: Sequence[tuple[int, Verdict]]) -> Iterator[Finding]:
        """Yield a finding for each failure in `suspects`, the numbers and verdicts of networks.

        At most `shrink` of them are reduced and analyzed: one failure of every sort first, then further ones.
        """
        thorough_indices = set(_varied(suspects)[: self.shrink])
        indices = range(len(suspects))
        if not self.nursery.is_shared:  # and so forks this process, which only the main thread should do
            yield from (self._finding(*suspects[index], is_thorough=index in thorough_indices) for index in indices)
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            yield from pool.map(
                lambda index: self._finding(*suspects[index], is_thorough=index in thorough_indices), indices
            )

    def _finding(self, number: int, verdict: Verdict, *, is_thorough: bool) -> Finding:
        kind = self.plan.kind or KINDS[number % len(KINDS)]
        name = f"{kind}-{self.plan.seed}-{number}"
        if verdict.culprit == GENERATOR:
            return Finding(name, verdict)
        if not is_thorough and (verdict.culprit or verdict.sort is Sort.HANG):
            return Finding(name, verdict)
        subjects = list(subjects_of(self.plan, drawn(self.plan, number)))
        if verdict.culprit:
            subjects = [subject for subject in subjects if subject.conditions == verdict.conditions]
        return inspect(self.nursery, self.inspection, subjects, verdict, thorough=is_thorough)


def _varied(suspects: Sequence[tuple[int, Verdict]]) -> list[int]:
    """Return the indices of failures, ordered so that different failures come first.

    The first one of each combination of sort, culprit and route precedes the second one of any combination.
    """
    count_of_key: Counter[tuple[object, ...]] = Counter()
    ranked_findings = []
    for index, (_, verdict) in enumerate(suspects):
        combination = verdict.sort, verdict.culprit, verdict.conditions.route
        ranked_findings.append((count_of_key[combination], index))
        count_of_key[combination] += 1
    return [index for _, index in sorted(ranked_findings)]
