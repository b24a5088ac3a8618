"""A case that crashes or hangs has failed, says where, and the next ones go on; a slow backend is given time."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

from interposer import CreationOptions, Runtime
from interposer.core.types import Array
from interposer.ops import Addition
from interposer.testing import Conformance, Report, Settings, Status, samples_of
from tests.testing import wrong

SAMPLES = samples_of(Addition)
CASES = "results/Addition-*float32"
lock = threading.Lock()


def deadlock_on_rows(a: Array, b: Array, out: Array) -> None:
    if b.ndim == 1 < a.ndim:
        with lock, lock:  # the second one waits for the first
            pass
    np.add(a, b, out=out)


class DeadlocksOnRows(wrong.Right):
    id: ClassVar = "DeadlocksOnRows"
    kernels: ClassVar = wrong.with_addition(deadlock_on_rows)


def sleep_in_c(a: Array, b: Array, out: Array) -> None:
    if b.ndim == 1 < a.ndim:
        ctypes.PyDLL(None).sleep(3600)  # which keeps the interpreter's lock
    np.add(a, b, out=out)


class HangsInNativeCode(wrong.Right):
    id: ClassVar = "HangsInNativeCode"
    kernels: ClassVar = wrong.with_addition(sleep_in_c)


def end_process(a: Array, b: Array, out: Array) -> None:
    if b.ndim == 1 < a.ndim:
        os.abort()
    np.add(a, b, out=out)


class Aborts(wrong.Right):
    id: ClassVar = "Aborts"
    kernels: ClassVar = wrong.with_addition(end_process)


def slowly(a: Array, b: Array, out: Array) -> None:
    time.sleep(0.4)
    np.add(a, b, out=out)


class Slow(wrong.Right):
    id: ClassVar = "Slow"
    kernels: ClassVar = wrong.with_addition(slowly)


def report(backend: type[wrong.Right], only: str, patience: float) -> Report:
    return Conformance(backend, only=only, samples=SAMPLES, settings=Settings(patience=patience)).report()


@pytest.mark.parametrize("backend", [DeadlocksOnRows, HangsInNativeCode])
def test_a_hang_ends_its_case_with_the_stack_of_the_thread_and_the_next_cases_go_on(backend: type[wrong.Right]) -> None:
    conformance_report = report(backend, CASES, 3.0)
    assert conformance_report.backend == backend.id
    statuses = {case.id: case.status for case in conformance_report.results}
    assert statuses["results/Addition-float32"] is Status.PASS
    assert statuses["results/Addition-scalars-float32"] is Status.PASS, "it comes after hangs"
    [first, *_] = conformance_report.failures
    lines = first.text.splitlines()
    assert lines[:2] == [
        "the backend hangs: nothing happened for 3 seconds",
        "it was running layer 'layer' (Addition)",
    ]
    kernel = "deadlock_on_rows" if backend is DeadlocksOnRows else "sleep_in_c"
    assert f"in {kernel}" in lines[3], "the innermost call of the stuck thread"


def test_after_three_hangs_the_other_cases_are_skipped_with_the_reason() -> None:
    class Deaf(wrong.Right):
        kernels: ClassVar = wrong.with_addition(lambda a, b, out: time.sleep(3600))

    conformance_report = report(Deaf, "results/Addition-*", 0.5)
    assert len(conformance_report.failures) == 3
    skipped = {case.text for case in conformance_report.results if case.status is Status.SKIP}
    assert skipped == {"not tried: the backend has hung 3 times"}


def test_other_checks_of_a_sample_that_hung_are_skipped() -> None:
    conformance_report = report(DeadlocksOnRows, "*/Addition-row-float32", 3.0)
    assert [case.status for case in conformance_report.results].count(Status.FAIL) == 1
    reasons = {case.text for case in conformance_report.results if case.status is Status.SKIP}
    assert reasons == {"not tried: support/Addition-row-float32 has hung on the same sample"}


def test_a_crash_of_a_python_backend_is_a_failed_case() -> None:
    conformance_report = report(Aborts, CASES, 30.0)
    assert any(case.status is Status.PASS for case in conformance_report.results)
    assert conformance_report.failures[0].text == (
        "the backend crashed with SIGABRT\nit was running layer 'layer' (Addition)"
    )


def test_a_slow_backend_is_given_time_as_long_as_it_makes_progress() -> None:
    """One trial takes longer than the patience, but no layer does."""
    conformance_report = report(Slow, "*/Addition-float32", 60.0)
    assert conformance_report.failures == []
    assert conformance_report.counts["pass"] == len(conformance_report.results)


def test_without_patience_the_cases_are_carried_out_in_this_process() -> None:
    numbers = []

    def noting(a: Array, b: Array, out: Array) -> None:
        numbers.append(os.getpid())
        np.add(a, b, out=out)

    class Noting(wrong.Right):
        id: ClassVar = "Noting"
        kernels: ClassVar = wrong.with_addition(noting)

    conformance = Conformance(
        Noting, only="results/Addition-float32", samples=SAMPLES, settings=Settings(patience=None)
    )
    assert conformance.report().ok
    assert set(numbers) == {os.getpid()}


def test_skips_show_in_the_line_that_says_whether_a_backend_conforms() -> None:
    with Runtime(CreationOptions(disabled_backends=["CpuAcc", "CpuRef"])) as runtime:
        conformance_report = Conformance(wrong.Right, only="random/others", samples=SAMPLES, runtime=runtime).report()
    assert conformance_report.summary() == (
        "Right conforms, but 1 check was skipped (1 because there are no other backends here): 0 cases, none\n"
        "of which failed"
    )


class DiesAtStart(wrong.Right):
    id: ClassVar = "DiesAtStart"

    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


def create_in_a_function() -> wrong.Right:
    return DiesAtStart()


@pytest.mark.parametrize("given", [DiesAtStart, create_in_a_function], ids=["class", "function"])
def test_a_backend_that_crashes_while_it_is_created_fails_the_first_case_and_skips_the_others(given) -> None:
    report = Conformance(given, only=CASES, samples=SAMPLES).report()
    first, *later_cases = report.results
    assert (first.status, first.text) == (Status.FAIL, "the backend crashed with SIGSEGV while it is created")
    assert {(case.status, case.text) for case in later_cases} == {
        (Status.SKIP, "not tried: the backend crashed with SIGSEGV while it is created")
    }


def test_a_backend_named_by_its_class_that_ends_its_process_at_start_is_reported(tmp_path, monkeypatch) -> None:
    (tmp_path / "leaving.py").write_text("import os\n\ndef create():\n    os._exit(3)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    [result] = Conformance("leaving:create", only="results/Addition-float32").report().results
    assert result.text == "the backend ended its process with status 3 while it is created"
