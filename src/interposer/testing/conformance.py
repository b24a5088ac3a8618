"""`check_backend`: every check on every sample, and the checks of a backend as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import interposer.ops  # noqa: F401 - declares the operators
from interposer.backend import Backend
from interposer.core.child_process import Report as Channel
from interposer.core.errors import (
    BackendUnavailableError,
    InterposerError,
    InvalidArgumentError,
    PluginError,
    did_you_mean,
)
from interposer.core.schema import registered_ops
from interposer.runtime import Runtime
from interposer.session import default_runtime
from interposer.testing import claims, fuzz, memory_checks, stress  # noqa: F401 - add their checks
from interposer.testing.bench import Bench, Settings
from interposer.testing.checks import SAMPLE_CHECKS, Check
from interposer.testing.contracts import BACKEND_CHECKS
from interposer.testing.outcome import Refused, Result, Skipped, Status
from interposer.testing.outside import Outside, check_name, serve_cases, survives_fork
from interposer.testing.replay import Factory, backend_of, is_library
from interposer.testing.report import WHOLE, Report
from interposer.testing.sample import Sample, samples_of

__all__ = ["Case", "Conformance", "all_cases", "all_samples", "check_backend", "conformance_tests"]


@cache
def all_samples() -> tuple[Sample, ...]:
    """Return the samples of all operators."""
    return tuple(sample for op in registered_ops().values() for sample in samples_of(op))


@dataclass(frozen=True, eq=False)
class Case:
    """One check on one thing: a sample, or a variant of a check of the backend as a whole."""

    check: Check
    subject: Sample | str

    @cached_property
    def id(self) -> str:
        """The check's name and the subject's, by which a case is chosen and expected to fail."""
        return f"{self.check.name}/{self.subject if isinstance(self.subject, str) else self.subject.id}"

    @property
    def family(self) -> str:
        """The family of the sample's operator."""
        return WHOLE if isinstance(self.subject, str) else self.subject.op.family

    @property
    def operator(self) -> str:
        """The sample's operator."""
        return "" if isinstance(self.subject, str) else self.subject.op.op_name()


def all_cases(
    families: Collection[str] = (), only: str | Collection[str] = "*", samples: Sequence[Sample] | None = None
) -> list[Case]:
    """Return the cases whose ids match one of the patterns in `only`, such as "results/*".

    With `families`, samples of other families are left out. The checks of the backend as a whole are always there.

    Raises:
        InvalidArgumentError: a family is unknown.
    """
    patterns = patterns_of(only)
    samples = all_samples() if samples is None else samples
    known = sorted({sample.op.family for sample in samples})
    for family in families:
        if family not in known:
            raise InvalidArgumentError(f"unknown family {family!r}{did_you_mean(family, known)} ({', '.join(known)})")
    cases = _every_case(families, samples)
    if "*" in patterns:
        return list(cases)
    return [case for case in cases if any(fnmatchcase(case.id, pattern) for pattern in patterns)]


def patterns_of(only: str | Collection[str]) -> tuple[str, ...]:
    """Return the patterns in a text, separated by commas, or in several such texts."""
    texts = (only,) if isinstance(only, str) else tuple(only)
    return tuple(pattern.strip() for text in texts for pattern in text.split(",") if pattern.strip())


def _every_case(families: Collection[str], samples: Sequence[Sample]) -> Iterator[Case]:
    for sample in samples:
        if not families or sample.op.family in families:
            yield from (Case(check, sample) for check in SAMPLE_CHECKS)
    for check in BACKEND_CHECKS:
        yield from (Case(check, variant) for variant in check.variants)


class Conformance:
    """The checks of one backend. The backend and what it needs are made when the first case runs.

    `expected_failures` gives, for ids of cases or patterns of them, why they fail. They are strict: a case that was
    expected to fail and does not is a failure.

    Raises:
        InvalidArgumentError: an expected failure that matches no case, or a pattern or family that there is not.
    """

    def __init__(
        self,
        backend: str | Factory,
        *,
        runtime: Runtime | None = None,
        expected_failures: Mapping[str, str] | None = None,
        families: Collection[str] = (),
        only: str | Collection[str] = "*",
        samples: Sequence[Sample] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.given, self.runtime, self.settings = backend, runtime, settings
        self._is_fork = False
        self.families, self.only = families, patterns_of(only)
        self.expected_failures = dict(expected_failures or {})
        self._samples = None if samples is None else tuple(samples)
        if families:
            self.cases  # noqa: B018 - raises the error about an unknown family
        self._check_expectations()

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples that may be tried."""
        return all_samples() if self._samples is None else self._samples

    @cached_property
    def cases(self) -> list[Case]:
        """The cases that were chosen."""
        return all_cases(self.families, self.only, self.samples)

    def _check_expectations(self) -> None:
        if not self.expected_failures:
            return
        ids = [case.id for case in all_cases(samples=self.samples)]
        for pattern in self.expected_failures:
            if not any(fnmatchcase(item, pattern) for item in ids):
                near = did_you_mean(pattern, ids)
                raise InvalidArgumentError(f"the expected failure {pattern!r} matches no case{near}")

    @cached_property
    def backend(self) -> Backend:
        """The backend under test; raises what `backend_of` raises."""
        return backend_of(self.given, self.runtime)

    @cached_property
    def bench(self) -> Bench:
        """Where it is tried."""
        registry = (self.runtime or default_runtime()).registry
        others = [registry.get(name) for name in registry.by_default() if name != self.backend.id]
        usable = [other for other in others if not self._is_fork or survives_fork(other)]
        tried = [sample for sample in self.samples if not self.families or sample.op.family in self.families]
        bench = Bench(self.backend, tried, self.settings, usable)
        bench.given = self.given if self.runtime is None and not isinstance(self.given, Backend) else None
        return bench

    @property
    def every_case(self) -> list[Case]:
        """The cases of all samples, also those that were not chosen."""
        return all_cases(samples=self.samples)

    @cached_property
    def outside(self) -> Outside | None:
        """The process in which the cases are run; None if that is this process.

        That is so without patience, and for backends that cannot be used in a forked process.
        """
        settings = self.settings or Settings()
        if settings.patience is None or not hasattr(os, "memfd_create"):
            return None
        if isinstance(self.given, str) and self._samples is None and self._is_known_anywhere(self.given):
            value = str(Path(self.given).absolute()) if is_library(self.given) else self.given
            return Outside(value, settings, settings.patience, families=self.families)
        if not survives_fork(self.backend):
            return None
        return Outside(str(self.given), settings, settings.patience, self._serve)

    def start(self) -> None:
        """Begin the other process, if it is a new one, so that both import what they need at the same time."""
        if self.outside is not None and self.outside.is_new:
            self.outside.start()

    def _is_known_anywhere(self, text: str) -> bool:
        """Return whether a new process can make the backend: not one that code of this process has registered."""
        if self.runtime is not None or ":" in text or is_library(text):
            return self.runtime is None
        source = default_runtime().registry.taken_by(text)
        return source is None or source.startswith(("entry point of ", "shared object "))

    def _serve(self, report: Channel, requests: int, shared: int, stacks: int) -> None:
        self._is_fork = True
        serve_cases(report, self, requests, shared, stacks)

    def groups(self) -> dict[str, list[Case]]:
        """Return the cases of each sample under its id; every other case by itself."""
        result: dict[str, list[Case]] = {}
        for case in self.cases:
            result.setdefault(case.id if isinstance(case.subject, str) else case.subject.id, []).append(case)
        return result

    def run(self, case: Case) -> Result:
        """Carry out one case."""
        return self._run_all([case])[0]

    def _run_all(self, cases: Sequence[Case], progress: Callable[[Result], None] = lambda _: None) -> list[Result]:
        results = []
        for case, ending in zip(cases, self._outcomes(cases), strict=True):
            results.append(self.judged(case, *ending))
            progress(results[-1])
        return results

    def _outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Status, str]]:
        if self.outside is None:
            yield from map(self.outcome, cases)
            return
        try:
            yield from self.outside.outcomes([case.id for case in cases])
        except PluginError:
            if not (isinstance(self.given, str) and is_library(self.given)):
                self.backend.id  # noqa: B018 - raises the error itself, which the other process could only describe
            raise

    def judged(self, case: Case, status: Status, text: str) -> Result:
        """Return the result of a case that has ended so, with regard to what was expected."""
        if not self.expected_failures:
            return Result(case.id, case.check.name, case.family, case.operator, status, text)
        reason = next((why for key, why in self.expected_failures.items() if fnmatchcase(case.id, key)), None)
        if reason is not None and status is Status.FAIL:
            status, text = Status.XFAIL, reason
        elif reason is not None and status is Status.PASS:
            status, text = Status.XPASS, f"it was expected to fail ({reason}), but it passes"
        return Result(case.id, case.check.name, case.family, case.operator, status, text)

    def is_settled(self, case: Case) -> bool:
        """Return True if a case ends without a call of the backend: its sample was tried, or is refused as a whole."""
        sample = case.subject
        if isinstance(sample, str):
            return False
        tried = self.bench.latest is not None and self.bench.latest.sample is sample
        return tried or self.bench.refusals.is_known(sample)

    def outcome(self, case: Case) -> tuple[Status, str]:
        """Carry out one case in this process; gives how it ended, and what is wrong or why it was not tried."""
        bench = self.bench
        why = "" if isinstance(case.subject, str) else bench.refusals.of_operator(case.subject)
        if why:
            return Status.REFUSED, why
        try:
            errors = list(case.check.run(bench, case.subject))
        except Skipped as skipped:
            return Status.SKIP, str(skipped)
        except Refused as refused:
            return Status.REFUSED, str(refused)
        except InterposerError as error:
            return Status.FAIL, str(error)
        except Exception as error:
            return Status.FAIL, f"raised {type(error).__name__}: {error}"
        return (Status.FAIL, "\n".join(dict.fromkeys(errors))) if errors else (Status.PASS, "")

    def report(self, progress: Callable[[Result], None] = lambda _: None) -> Report:
        """Carry out all cases; `progress` is told of each."""
        if isinstance(self.given, str) and is_library(self.given):
            check_name(Path(self.given))
        self.start()
        results = self._run_all(self.cases, progress)
        if self.outside is None:
            self.bench.close()
            return Report(self.backend.id, self.backend.version, results)
        error = self.outside.close()
        if error is not None:
            results.append(Result("process/end", "process", WHOLE, "", Status.FAIL, error))
        return Report(self.outside.backend or self.backend.id, self.outside.version, results)


def check_backend(
    backend: str | Factory,
    *,
    runtime: Runtime | None = None,
    expected_failures: Mapping[str, str] | None = None,
    families: Collection[str] = (),
    only: str | Collection[str] = "*",
    samples: Sequence[Sample] | None = None,
    settings: Settings | None = None,
) -> Report:
    """Check that a backend does what the plug-in interface asks for, and computes what the reference computes.

    Args:
        backend: the id of a backend, a class written as ``"module:Class"``, a class or function that makes one, or the
            path of a shared object.
        runtime: whose backends `backend` names, and which others it is run beside; None means the default runtime.
        expected_failures: for ids of cases, or patterns such as ``"results/Softmax-*"``, why they fail.
        families: the families of operators to try; none means all of them. Networks for the checks of the backend as a
            whole are put together from these families alone.
        only: patterns for the ids of the cases to carry out, as a text separated by commas or as several texts.
        samples: what to try, such as samples of operators of the backend's own; None means those of all operators.
        settings: tolerances, options of the backend, and how much is tried.

    The cases are run in another process where the system allows that: a case that crashes or hangs has failed,
    and the next ones go on. A backend that is given as an object is used in a copy of this process.

    Raises:
        UnknownBackendError: nobody knows the id.
        BackendUnavailableError: it is known, but cannot be used here.
        PluginError: a shared object cannot be loaded, or crashes or hangs while it is.
        InvalidArgumentError: an expected failure or family that there is not, or something that is no backend.
    """
    return Conformance(
        backend, runtime=runtime, expected_failures=expected_failures, families=families, only=only, samples=samples,
        settings=settings,
    ).report()  # fmt: skip


def conformance_tests(backend: str | Factory, **options: Any) -> Callable[..., None]:
    """Return a test function for pytest, which stands for a test of every sample. Takes what `check_backend` takes::

        test_conformance = conformance_tests("Custom")

    What the backend refuses, saying why, passes. Where the backend is not available, all tests are skipped.
    """
    import pytest  # noqa: PLC0415 - only for those who have it

    conformance = Conformance(backend, **options)
    groups = conformance.groups()

    @pytest.mark.parametrize("cases", groups.values(), ids=groups.keys())
    def test_conformance(cases: list[Case]) -> None:
        try:
            results = [conformance.run(case) for case in cases]
        except BackendUnavailableError as error:
            pytest.skip(str(error))
        bad = [f"{result.status.value}: {result.id}: {result.text}" for result in results if not result.status.good]
        if bad:
            pytest.fail("\n".join(bad), pytrace=False)
        leave: dict[Status, Callable[[str], Any]] = {Status.XFAIL: pytest.xfail, Status.SKIP: pytest.skip}
        for status, ending in leave.items():
            texts = [result.text for result in results if result.status is status]
            if texts:
                ending("; ".join(dict.fromkeys(texts)))

    return test_conformance
