"""`check_backend` and `conformance_tests`: run all conformance checks of a backend."""

from __future__ import annotations

import base64
import os
import pickle
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import interposer.ops  # noqa: F401 - declares the operators
from interposer.backend import Backend
from interposer.core.child_process import Report as Channel
from interposer.core.config import BACKEND_PATH, CHECK_BACKENDS
from interposer.core.errors import (
    BackendUnavailableError,
    InterposerError,
    InvalidArgumentError,
    PluginError,
    did_you_mean,
    expect_names,
)
from interposer.core.records import dataclass
from interposer.core.schema import registered_ops
from interposer.runtime import Runtime
from interposer.session import default_runtime
from interposer.testing import (  # noqa: F401 - add their checks
    claims,
    fuzz,
    guard_pages,
    memory_checks,
    profiling_checks,
    queue_checks,
    stress,
)
from interposer.testing.bench import Bench, Settings
from interposer.testing.checks import SAMPLE_CHECKS, Check
from interposer.testing.contracts import BACKEND_CHECKS
from interposer.testing.known_samples import KnownSamples, samples_of
from interposer.testing.outcome import Refused, Result, Skipped, Status
from interposer.testing.outside import Outside, check_name, creates_survivor, serve_cases, survives_fork
from interposer.testing.replay import Factory, backend_of, is_library
from interposer.testing.report import WHOLE, Report
from interposer.testing.sample import Sample

__all__ = ["Case", "Conformance", "all_cases", "all_samples", "check_backend", "conformance_tests"]

_WILDCARDS = frozenset("*?[")


@cache
def all_samples() -> tuple[Sample, ...]:
    """Return the samples of all operators."""
    return tuple(sample for op in registered_ops().values() for sample in samples_of(op))


@dataclass(frozen=True, eq=False)
class Case:
    """One check applied to one subject, which is a sample, or a variant of a check of the backend as a whole."""

    check: Check
    subject: Sample | str

    @cached_property
    def id(self) -> str:
        """The case's identifier: the check's name, a slash, and the subject's id. Patterns match against it."""
        return f"{self.check.name}/{self.subject if isinstance(self.subject, str) else self.subject.id}"

    @property
    def family(self) -> str:
        """The family of the sample's operator."""
        return WHOLE if isinstance(self.subject, str) else self.subject.op.family

    @property
    def operator(self) -> str:
        """The name of the sample's operator."""
        return "" if isinstance(self.subject, str) else self.subject.op.op_name()


def all_cases(
    families: Collection[str] = (), only: str | Collection[str] = "*", samples: Sequence[Sample] | None = None
) -> list[Case]:
    """Return the cases whose ids match one of the patterns in `only`, such as "results/*".

    If `families` is not empty, samples of other families are left out. The checks of the backend as a whole are always
    included.

    Raises:
        InvalidArgumentError: a family is unknown.
    """
    patterns = patterns_of(only)
    samples = all_samples() if samples is None else samples
    known_families = sorted({sample.op.family for sample in samples})
    for family in families:
        if family not in known_families:
            raise InvalidArgumentError(
                f"unknown family {family!r}{did_you_mean(family, known_families)} ({', '.join(known_families)})"
            )
    if "*" in patterns:
        return list(_every_case(families, samples, SAMPLE_CHECKS))
    cases = _every_case(families, samples, [check for check in SAMPLE_CHECKS if _may_match(check, patterns)])
    matches = re.compile("|".join(map(translate, patterns))).match
    return [case for case in cases if patterns and matches(case.id)]


def _may_match(check: Check, patterns: Collection[str]) -> bool:
    """Return False if no pattern matches any case of a check, as each names another check."""
    heads = {pattern.partition("/")[0] for pattern in patterns}
    return check.name in heads or any(not _WILDCARDS.isdisjoint(head) for head in heads)


def patterns_of(only: str | Collection[str]) -> tuple[str, ...]:
    """Return the list of patterns in one comma-separated text, or in several such texts."""
    if not isinstance(only, str):
        expect_names(only, "only")
    texts = (only,) if isinstance(only, str) else tuple(only)
    return tuple(pattern.strip() for text in texts for pattern in text.split(",") if pattern.strip())


def _every_case(
    families: Collection[str], samples: Sequence[Sample], sample_checks: Collection[Check]
) -> Iterator[Case]:
    for sample in samples:
        if not families or sample.op.family in families:
            yield from (Case(check, sample) for check in sample_checks)
    for check in BACKEND_CHECKS:
        yield from (Case(check, variant) for variant in check.variants)


class Conformance:
    """The conformance checks of one backend. The backend and its test bench are created when the first case runs.

    `expected_failures` maps case ids, or patterns of ids, to the reason why these cases fail. Expected failures are
    strict: a case that is expected to fail but passes counts as a failure.

    Raises:
        InvalidArgumentError: an expected failure or a pattern matches no case, or a family is unknown.
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
        self.backend_source, self.runtime, self.settings = backend, runtime, settings
        self._known_cases: dict[str, Case] = {}
        self._is_fork = False
        self.families, self.only = families, patterns_of(only)
        self.expected_failures = dict(expected_failures or {})
        self._samples = None if samples is None else tuple(samples)
        if families:
            self.cases  # noqa: B018 - raises the error about an unknown family
        self._check_expectations()

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The samples that the checks may use."""
        return all_samples() if self._samples is None else self._samples

    @cached_property
    def cases(self) -> list[Case]:
        """The selected cases."""
        return all_cases(self.families, self.only, self.samples)

    def _check_expectations(self) -> None:
        if not self.expected_failures:
            return
        ids = [case.id for case in all_cases(samples=self.samples)]
        for pattern in self.expected_failures:
            if not any(fnmatchcase(case_id, pattern) for case_id in ids):
                suggestion = did_you_mean(pattern, ids)
                raise InvalidArgumentError(f"the expected failure {pattern!r} matches no case{suggestion}")

    @cached_property
    def backend(self) -> Backend:
        """The backend under test; raises the exceptions of `backend_of`."""
        return backend_of(self.backend_source, self.runtime)

    @cached_property
    def bench(self) -> Bench:
        """The object that loads and runs networks on the backend; created on first use."""
        registry = (self.runtime or default_runtime()).registry
        other_backends = [registry.get(name) for name in registry.by_default() if name != self.backend.id]
        usable_backends = [
            other_backend for other_backend in other_backends if not self._is_fork or survives_fork(other_backend)
        ]
        bench = Bench(self.backend, self._tried(), self.settings, usable_backends)
        bench.is_partial = bool(self.families)
        bench.backend_source = (
            self.backend_source if self.runtime is None and not isinstance(self.backend_source, Backend) else None
        )
        return bench

    def _tried(self) -> Iterable[Sample]:
        if self._samples is None:
            return KnownSamples(self.families)
        return [sample for sample in self._samples if not self.families or sample.op.family in self.families]

    def case(self, name: str) -> Case:
        """Return the case with this id, selected or not. Samples of other operators are not created for it."""
        if name not in self._known_cases:
            self._known_cases.update({case.id: case for case in self._cases_beside(name)})
        return self._known_cases[name]

    def _cases_beside(self, name: str) -> Iterable[Case]:
        """Return all cases of the operator of a case; all cases of backends as a whole if it is one of these."""
        check, _, subject = name.partition("/")
        op = registered_ops().get(subject.partition("-")[0])
        if all(check != sample_check.name for sample_check in SAMPLE_CHECKS):
            return _every_case((), (), ())
        return all_cases(samples=self.samples if self._samples is not None or op is None else samples_of(op))

    @cached_property
    def outside(self) -> Outside | None:
        """The object that runs the cases in a child process; None if they run in this process.

        Cases run in this process if `Settings.patience` is None, or if the backend cannot be used in a forked process.
        """
        settings = self.settings or Settings()
        if settings.patience is None or not hasattr(os, "memfd_create"):
            return None
        if (
            isinstance(self.backend_source, str)
            and self._samples is None
            and self._is_known_anywhere(self.backend_source)
        ):
            backend_text = (
                str(Path(self.backend_source).absolute()) if is_library(self.backend_source) else self.backend_source
            )
            return Outside(backend_text, settings, settings.patience, __name__, self.families)
        if not self._survives_fork():
            return None
        title = getattr(self.backend_source, "__name__", str(self.backend_source))
        return Outside(title, settings, settings.patience, self._serve)

    def _survives_fork(self) -> bool:
        """Return True if the backend can be used in a fork. A backend is not created in this process to find out."""
        backend: object = self.backend_source
        if isinstance(backend, Backend) or "backend" in vars(self):
            return survives_fork(self.backend)
        return creates_survivor(lambda: backend_of(self.backend_source, self.runtime))

    def start(self) -> None:
        """Start the child process early, so that it imports its modules while this process imports its own.

        A child that is a fork of this process is not started yet.
        """
        if self.outside is not None and self.outside.is_new:
            self.outside.start()

    def _is_known_anywhere(self, text: str) -> bool:
        """Return True if a fresh process can create the backend with this name, path or ``module:Class``.

        It cannot if code of this process registered the backend, or the user passed a runtime.
        """
        if self.runtime is not None or ":" in text or is_library(text):
            return self.runtime is None
        source = default_runtime().registry.taken_by(text)
        return source is None or source.startswith(("entry point of ", "shared object ", "Python file "))

    def _serve(self, report: Channel, requests: int, shared: int, stacks: int) -> None:
        self._is_fork = True
        serve_cases(report, self, requests, shared, stacks)

    def groups(self) -> dict[str, list[Case]]:
        """Return the selected cases by sample id.

        A case without a sample is a group of its own, keyed by the case's id.
        """
        cases_by_group: dict[str, list[Case]] = {}
        for case in self.cases:
            cases_by_group.setdefault(case.id if isinstance(case.subject, str) else case.subject.id, []).append(case)
        return cases_by_group

    def run(self, case: Case) -> Result:
        """Run one case and return its result."""
        return self._run_all([case])[0]

    def _run_all(self, cases: Sequence[Case], progress: Callable[[Result], None] = lambda _: None) -> list[Result]:
        results = []
        for case, outcome in zip(cases, self._outcomes(cases), strict=True):
            results.append(self.judged(case, *outcome))
            progress(results[-1])
        return results

    def _outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Status, str]]:
        if self.outside is None:
            yield from map(self.outcome, cases)
            return
        try:
            yield from self.outside.outcomes([case.id for case in cases])
        except PluginError:
            if not (isinstance(self.backend_source, str) and is_library(self.backend_source)):
                self.backend.id  # noqa: B018 - raises the error itself, which the other process could only describe
            raise

    def judged(self, case: Case, status: Status, message: str) -> Result:
        """Return the result of a case that ended with this status and text, considering the expected failures."""
        if not self.expected_failures:
            return Result(case.id, case.check.name, case.family, case.operator, status, message)
        reason = next(
            (explanation for pattern, explanation in self.expected_failures.items() if fnmatchcase(case.id, pattern)),
            None,
        )
        if reason is not None and status is Status.FAIL:
            status, message = Status.XFAIL, reason
        elif reason is not None and status is Status.PASS:
            status, message = Status.XPASS, f"it was expected to fail ({reason}), but it passes"
        return Result(case.id, case.check.name, case.family, case.operator, status, message)

    def is_settled(self, case: Case) -> bool:
        """Return True if the outcome of a case is already known, so that it cannot crash the process.

        Its sample was the last one that ran, or all samples of its operator are refused.
        """
        sample = case.subject
        if isinstance(sample, str):
            return False
        ran_last = self.bench.latest is not None and self.bench.latest.sample is sample
        return ran_last or self.bench.refusals.is_known(sample)

    def outcome(self, case: Case) -> tuple[Status, str]:
        """Run one case in this process; return its status, and the errors or the reason why it was skipped."""
        bench = self.bench
        refusal = "" if isinstance(case.subject, str) else bench.refusals.of_operator(case.subject)
        if refusal:
            return Status.REFUSED, refusal
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
        """Run all cases and return the report; `progress` is called with the result of each."""
        if isinstance(self.backend_source, str) and is_library(self.backend_source):
            check_name(Path(self.backend_source))
        self.start()
        results = self._run_all(self.cases, progress)
        if self.outside is None:
            self.bench.close()
            return Report(self.backend.id, self.backend.version, results)
        error = self.outside.close()
        if error is not None:
            results.append(Result("process/end", "process", WHOLE, "", Status.FAIL, error))
        name = self.outside.backend or (self.outside.backend_text if self.outside.has_failed else self.backend.id)
        return Report(name, self.outside.version, results)


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
    """Check that a backend follows the plug-in interface and computes the same results as the reference backend.

    Args:
        backend: the id of a backend, a class written as ``"module:Class"``, a class or function that creates a backend,
            a backend object, or the path of a shared object.
        runtime: the runtime whose registry resolves `backend` and provides the other backends that it is combined with;
            None means the default runtime.
        expected_failures: reasons why cases fail, keyed by case ids or patterns such as ``"results/Softmax-*"``.
        families: the families of operators to try; none means all of them. Networks for the checks of the backend as a
            whole are built from these families only.
        only: patterns for the ids of the cases to run, as a comma-separated text or as several texts.
        samples: the samples to try, for example of the backend's custom operators; None means those of all operators.
        settings: tolerances, backend options, and the amount of testing.

    The cases run in a child process where the system allows it. A case that crashes or hangs is then reported as
    failed, and the remaining cases still run. A backend that is passed as an object is used in a forked copy of this
    process.

    Raises:
        UnknownBackendError: no backend has this id.
        BackendUnavailableError: the backend is known, but cannot be used on this machine.
        PluginError: a shared object cannot be loaded, or it crashes or hangs while it is loaded. A Python backend that
            crashes or hangs while it is created is reported as a failure of the first case.
        InvalidArgumentError: an expected failure matches no case, a family is unknown, or `backend` is not a backend.
    """
    return Conformance(
        backend, runtime=runtime, expected_failures=expected_failures, families=families, only=only, samples=samples,
        settings=settings,
    ).report()  # fmt: skip


def conformance_tests(backend: str | Factory, **options: Any) -> Callable[..., None]:
    """Return a pytest test function that is parametrized over all samples. The arguments are those of `check_backend`::

        test_conformance = conformance_tests("Custom")

    Samples that the backend refuses with a reason pass. If the backend is not available, all tests are skipped.
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
        problems = [
            f"{case_result.status.value}: {case_result.id}: {case_result.text}"
            for case_result in results
            if not case_result.status.good
        ]
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
        ending_of_status: dict[Status, Callable[[str], Any]] = {Status.XFAIL: pytest.xfail, Status.SKIP: pytest.skip}
        for status, end_test in ending_of_status.items():
            texts = [case_result.text for case_result in results if case_result.status is status]
            if texts:
                end_test("; ".join(dict.fromkeys(texts)))

    return test_conformance


def main(
    report: Channel, text: str, settings: str, families: list[str], requests: int, shared: int, stacks: int
) -> None:
    """Run cases on a backend that is given as a text. This is the entry point of a fresh child process.

    Args:
        report: the channel to the parent process.
        text: the id, ``module:Class`` or path of the backend.
        settings: the pickled `Settings`, in base64.
        families: the families of operators to try; none means all of them.
        requests: the descriptor of a pipe from which the ids of the cases to run are read.
        shared: the descriptor of the shared memory in which progress is reported.
        stacks: the descriptor of the file to which stacks of threads are written if the process hangs.
    """
    os.environ.setdefault(CHECK_BACKENDS, "yes")  # an invalid write of a plug-in is an error instead of a crash
    if is_library(text):
        os.environ[BACKEND_PATH] = ""  # only the given backend is checked
    conformance = Conformance(text, families=families, settings=pickle.loads(base64.b64decode(settings)))
    serve_cases(report, conformance, requests, shared, stacks)
