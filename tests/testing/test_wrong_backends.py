"""The kit finds what is wrong with a backend, and says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from interposer.backend import Backend
from interposer.ops import Addition, Multiplication
from interposer.testing import Conformance, Settings, Status, check_backend, samples_of
from tests.plugins.install import ROOT
from tests.testing import wrong
from tests.testing.defects import PAGE, PROBLEMS, page_with_table
from tests.testing.planted import QUICK, Planted, failures_of

SAMPLES = [*samples_of(Addition), *samples_of(Multiplication)]


def outcome(backend: type[Backend], case: str, settings: Settings = QUICK) -> tuple[Status, str]:
    conformance = Conformance(backend, only=case, samples=SAMPLES, settings=settings)
    [result] = conformance.report().results
    return result.status, result.text


@pytest.mark.parametrize(
    "planted", PROBLEMS, ids=[f"{fault.name}-{fault.case.partition('/')[0]}" for fault in PROBLEMS]
)
def test_a_planted_fault_is_found_and_named(planted: Planted) -> None:
    failures = failures_of(planted)
    assert any(map(planted.is_named_by, failures)), [failure.text for failure in failures]


def test_at_least_sixty_faults_are_planted_and_nearly_all_are_named() -> None:
    assert len({fault.name for fault in PROBLEMS}) == len(PROBLEMS) >= 60
    assert sum(fault.names_it for fault in PROBLEMS) >= max(50, 0.85 * len(PROBLEMS))


def test_at_least_twenty_faults_are_planted_in_a_device_with_its_own_memory() -> None:
    assert sum(fault.kind == "a device with its own memory" for fault in PROBLEMS) >= 20


def test_the_table_in_the_documentation_lists_every_planted_fault() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with_table(), "run python -m tests.testing.defects"


def test_a_backend_that_is_right_passes_every_case() -> None:
    report = Conformance(wrong.Right, samples=SAMPLES, settings=QUICK).report()
    assert report.failures == []
    assert report.counts["pass"] > 400


def test_a_backend_may_say_that_its_results_differ_a_little_from_run_to_run() -> None:
    assert outcome(wrong.DriftsAndSaysSo, "repetition/Addition-float32") == (Status.PASS, "")


def test_a_backend_may_name_an_option_that_it_does_not_know_in_an_error() -> None:
    assert outcome(wrong.NamesUnknownOptions, "description/unknown-options") == (Status.PASS, "")


def test_what_a_backend_gives_back_with_a_reason_counts_as_refused() -> None:
    class Reluctant(wrong.Compiling):
        parts = staticmethod(lambda view: wrong.OptimizationViews.all_failed(view, "no registers are left"))

    expected = (Status.REFUSED, "gave it back: no registers are left")
    assert outcome(Reluctant, "results/Addition-float32") == expected


def test_a_random_network_that_fails_is_made_small_and_written_as_a_script_that_shows_it_again(tmp_path) -> None:
    folder = tmp_path / "failures"
    status, text = outcome(wrong.WrongSums, "random/whole", Settings(folder=str(folder)))
    assert status is Status.FAIL
    assert "The smallest network that fails in the same way (Addition):" in text
    [line] = [line for line in text.splitlines() if line.endswith("shows it again")]
    [script] = folder.glob("*.py")
    assert line.strip() == f"python {script} shows it again"
    path = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, script], env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "elements differ" in done.stdout


def test_a_backend_must_report_wrong_values_as_such() -> None:
    case = "values/Gather-row-axis1-int32"
    wrongly = check_backend(wrong.FailsOnWrongIndices, only=case)
    assert [failure.text.partition(": layer")[0] for failure in wrongly.failures] == [
        "it reports a value that it cannot use as its own failure"
    ]
    assert check_backend(wrong.ReportsWrongIndices, only=case).ok
