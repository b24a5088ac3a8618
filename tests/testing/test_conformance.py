"""`check_backend`, its report, and the tests that pytest sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import pytest

from interposer import Runtime
from interposer.backend import Backend, LayerSupport, Options
from interposer.core.errors import BackendUnavailableError, InvalidArgumentError, UnknownBackendError
from interposer.core.schema import registered_ops
from interposer.core.types import DataType
from interposer.kernels.evaluation import reference
from interposer.ops import Activation, Addition, BatchMatMul, Multiplication, NonZero
from interposer.testing import (
    Conformance,
    Report,
    Result,
    Settings,
    Status,
    Tolerance,
    Tolerances,
    check_backend,
    samples_of,
)
from interposer.testing.checks import SAMPLE_CHECKS
from interposer.testing.conformance import all_cases
from interposer.testing.contracts import BACKEND_CHECKS
from interposer.testing.known_samples import sampled_ops
from interposer.testing.report import WHOLE
from interposer.testing.sample import Sample
from tests.plugins.install import ROOT
from tests.testing import wrong

pytestmark = pytest.mark.usefixtures("warm_python")

SAMPLES = [*samples_of(Addition), *samples_of(Multiplication)]
SOME_SAMPLES = [sample for op in (Addition, Multiplication, Activation, BatchMatMul) for sample in samples_of(op)]
QUICK = Settings(examples=10, loads=20)


class Absent(Backend):
    """A backend whose driver is missing."""

    id: ClassVar = "Absent"

    @classmethod
    def unavailable(cls) -> str | None:
        return "its driver is missing"


# --- which backend ----------------------------------------------------------------------------------------------------


def test_a_backend_is_named_by_its_id_in_a_runtime_or_given_as_a_class() -> None:
    with Runtime() as runtime:
        runtime.registry.register("Right", wrong.Right)
        for backend in ("Right", wrong.Right, wrong.Right(), "tests.testing.wrong:Right"):
            report = check_backend(backend, runtime=runtime, only="results/Addition-float32")
            assert (report.backend, report.ok, len(report.results)) == ("Right", True, 1)


def test_a_backend_that_is_unknown_or_absent_is_an_error() -> None:
    with Runtime() as runtime:
        runtime.registry.register("Absent", Absent)
        with pytest.raises(UnknownBackendError):
            check_backend("Nobody", runtime=runtime, samples=SAMPLES[:1])
        with pytest.raises(BackendUnavailableError, match="its driver is missing"):
            check_backend("Absent", runtime=runtime, samples=SAMPLES[:1])


def test_what_is_no_backend_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="which is not a Backend"):
        check_backend(dict, samples=SAMPLES[:1])


def test_what_another_backend_of_the_runtime_does_wrong_is_not_held_against_a_backend(tmp_path: Path) -> None:
    with Runtime() as runtime:
        runtime.registry.register("WrongSums", wrong.WrongSums)
        settings = Settings(folder=str(tmp_path))
        report = check_backend(wrong.Right, runtime=runtime, only="random/others", samples=SAMPLES, settings=settings)
    assert [(result.status, result.text) for result in report.results] == [(Status.PASS, "")]


def test_a_backend_that_is_wrong_fails_beside_other_backends_of_the_runtime_too(tmp_path: Path) -> None:
    with Runtime() as runtime:
        runtime.registry.register("Right", wrong.Right)
        settings = Settings(folder=str(tmp_path))
        case = "random/others"
        report = check_backend(wrong.WrongSums, runtime=runtime, only=case, samples=SAMPLES, settings=settings)
    assert [result.status for result in report.results] == [Status.FAIL]
    assert "the cause: WrongSums" in report.results[0].text


# --- which cases ------------------------------------------------------------------------------------------------------


def test_every_check_has_a_name_of_its_own_and_says_what_it_is_about() -> None:
    checks = [*SAMPLE_CHECKS, *BACKEND_CHECKS]
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.doc.endswith(".") for check in checks)


def test_ids_of_cases_are_unique() -> None:
    ids = [case.id for case in Conformance(wrong.Right).cases]
    assert len(set(ids)) == len(ids) > 25_000


def test_an_expected_failure_is_none_and_one_that_passes_is() -> None:
    expected = {"results/Addition-float32": "it adds one", "order/Addition-float32": "nobody knows"}
    report = check_backend(
        wrong.WrongSums, expected_failures=expected, only="*/Addition-float32", samples=SAMPLES, settings=QUICK
    )
    ending_of_check = {
        result_of_case.check: (result_of_case.status, result_of_case.text) for result_of_case in report.results
    }
    assert ending_of_check["results"] == (Status.XFAIL, "it adds one")
    assert ending_of_check["order"] == (Status.XPASS, "it was expected to fail (nobody knows), but it passes")
    assert [failure.id for failure in report.failures] == ["order/Addition-float32"]


def test_an_expected_failure_that_is_refused_is_no_failure() -> None:
    report = check_backend(
        wrong.Right, expected_failures={"results/Addition-int8": "later"}, only="results/Addition-int8", samples=SAMPLES
    )
    assert [result.status for result in report.results] == [Status.REFUSED]


def test_an_expectation_that_matches_no_case_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Conformance(wrong.Right, samples=SAMPLES, expected_failures={"result/Addition-float32": "why"})
    assert str(caught.value) == (
        "the expected failure 'result/Addition-float32' matches no case; did you mean 'results/Addition-float32'?"
    )


def test_tolerances_can_be_wider() -> None:
    wide = Settings(tolerances=Tolerances({DataType.FLOAT32: Tolerance(10, 10)}))
    assert check_backend(wrong.WrongSums, only="results/Addition-float32", samples=SAMPLES, settings=wide).ok


def test_cases_are_chosen_by_several_patterns() -> None:
    by_text = all_cases(only="results/Addition-float32, support/Addition-float32")
    by_list = all_cases(only=["results/Addition-float32", "support/Addition-float32"])
    ids = ["support/Addition-float32", "results/Addition-float32"]
    assert [case.id for case in by_text] == [case.id for case in by_list] == ids


def test_a_family_is_checked_with_the_backend_as_a_whole_on_networks_of_that_family() -> None:
    conformance = Conformance(wrong.Right, families=["elementwise"], settings=QUICK)
    assert {case.family for case in conformance.cases} == {"elementwise", "the whole backend"}
    assert {sample.op.family for sample in conformance.bench.samples} == {"elementwise"}
    conformance.bench.close()


def test_a_kit_run_on_a_backend_of_three_operators_fits_a_screen() -> None:
    only = [f"{check.name}/*" for check in SAMPLE_CHECKS]
    lines = str(check_backend("examples.compute_backend:TinyBackend", only=only)).splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) < 100
    assert [line.split()[0] for line in lines[2:7]] == ["family", "activation", "elementwise", "matmul", "all"]


def test_an_operator_that_is_refused_whatever_its_tensors_are_is_asked_about_once() -> None:
    class Counting(wrong.Right):
        asked: ClassVar[list[str]] = []

        def layer_support(self, options: Options) -> LayerSupport:
            support = super().layer_support(options)
            type(self).asked.append("query")
            return support

    samples = samples_of(BatchMatMul)
    report = check_backend(Counting, only="support/*", samples=samples)
    assert report.counts["refused"] == len(samples) > 100
    assert len(Counting.asked) < 10


# --- the report -------------------------------------------------------------------------------------------------------

REPORT = Report(
    "Mine",
    "1.2",
    [
        Result("results/Softmax-a", "results", "activation", "Softmax", Status.PASS),
        Result("results/Softmax-b", "results", "activation", "Softmax", Status.FAIL, "wrong\nby \x1bmuch"),
        Result("support/Rank-a", "support", "reshape", "Rank", Status.REFUSED, "no kernel for Rank"),
        Result("leaks/memory", "leaks", "the whole backend", "", Status.SKIP, "no /proc"),
    ],
)


def test_a_report_is_a_table_of_counts_and_the_failures() -> None:
    assert str(REPORT).splitlines() == [
        "backend Mine 1.2",
        "",
        "family             operators  samples  cases  pass  fail  skip",
        "activation                 1        2      2     1     1",
        "the whole backend                          1                 1",
        "all                        1        2      3     1     1     1",
        "",
        "it does not take 1 samples of Rank; --refusals lists what it refuses, and why",
        "",
        "fail: results/Softmax-b",
        "  wrong",
        "  by \x1bmuch",
        "",
        "Mine does not conform: 1 of 2 cases failed",
    ]
    assert list(REPORT.refusals()) == [("Rank", "no kernel for Rank", 1)]


def test_a_verdict_fits_on_two_lines_whatever_was_skipped() -> None:
    texts = ["the machine has no room for it", *("nobody knows why this check cannot be made " * 9, "no /proc") * 3000]
    skipped = [Result(f"leaks/{n}", "leaks", WHOLE, "", Status.SKIP, text) for n, text in enumerate(texts)]
    assert Report("Mine", "", skipped).summary().splitlines() == [
        "Mine conforms, but 6,001 checks were skipped (3,000 because nobody knows why this check cannot be",
        "made ...; 3,001 for other reasons): 0 cases, none of which failed",
    ]


def test_what_a_backend_does_not_take_or_claim_is_refused_and_not_skipped() -> None:
    class Dynamic(wrong.Right):
        """A backend with a kernel for an operator whose result has a shape that depends on data."""

        id: ClassVar = "Dynamic"
        kernels: ClassVar = reference()

    samples = [*samples_of(Activation)[:9], *samples_of(NonZero)]
    report = check_backend(Dynamic, only=["*/NonZero-*", "context/*", "composition/*"], samples=samples)
    assert (report.counts["skip"], report.counts["fail"]) == (0, 0)
    assert {result.text for result in report.results if result.operator == "NonZero"} == {
        "its shape depends on data, for which the backend lacks the capability DynamicShapes"
    }


def failed(case: str, operator: str, text: str) -> Result:
    return Result(case, case.partition("/")[0], "elementwise", operator, Status.FAIL, text)


def test_failures_with_the_same_operator_and_hint_are_one_block_with_the_worst_of_them() -> None:
    wrong_text = (
        "output 0: {} of 9 elements are wrong by more than 1e-05; the first at [{}] is 1.5 instead of 2; hint: {}"
    )
    report = Report("Mine", "", [
        failed("results/Addition-a", "Addition", wrong_text.format(3, 0, "every element is too high by 1: bias?")),
        failed("results/Addition-b", "Addition", wrong_text.format(8, 4, "every element is too high by 2.5: bias?")),
        failed("results/Addition-c", "Addition", wrong_text.format(8, 4, "padding?")),
        failed("results/Softmax-a", "Softmax", wrong_text.format(3, 0, "every element is too high by 1: bias?")),
    ])  # fmt: skip
    assert [cause.title for cause in report.causes()] == [
        "fail: results/Addition-b and 1 more like it", "fail: results/Addition-c", "fail: results/Softmax-a",
    ]  # fmt: skip
    assert len(report.failures) == 4
    assert str(report).count("hint:") == 3


def test_a_report_is_plain_data() -> None:
    plain = REPORT.to_dict()
    assert (plain["backend"], plain["version"], plain["ok"]) == ("Mine", "1.2", False)
    assert plain["counts"] == {"pass": 1, "fail": 1, "skip": 1, "refused": 1, "xfail": 0, "xpass": 0}
    assert len(plain["results"]) == 4


def test_a_report_is_xml_as_junit_writes_it() -> None:
    suite = ElementTree.fromstring(REPORT.to_junit().encode())
    assert suite.attrib == {
        "name": "conformance of Mine", "tests": "4", "failures": "1", "skipped": "2", "errors": "0",
    }  # fmt: skip
    passed, failed, refused, skipped = suite
    assert passed.attrib == {"classname": "Mine.activation", "name": "results/Softmax-a"}
    assert failed.find("failure").attrib == {"message": "wrong"}
    assert failed.find("failure").text == "wrong\nby much"
    assert refused.find("skipped").attrib == {"message": "refused: no kernel for Rank"}
    assert skipped.find("skipped").attrib == {"message": "skip: no /proc"}


# --- under pytest -----------------------------------------------------------------------------------------------------

TESTS = """
from interposer.testing import conformance_tests
from interposer.ops import Addition
from interposer.testing import samples_of
from tests.testing import wrong

SOME = [one for one in samples_of(Addition) if one.name in ("float32", "int8")]
expected = {"results/Addition-float32": "it adds one"}
test_right = conformance_tests(wrong.Right, samples=SOME, only="*/Addition-*")
test_wrong = conformance_tests(wrong.WrongSums, samples=SOME, only="*/Addition-*")
test_known = conformance_tests(wrong.WrongSums, samples=SOME, only="*/Addition-*", expected_failures=expected)
"""


def test_pytest_shows_every_sample_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(TESTS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "test_right[Addition-float32] PASSED" in done.stdout
    assert "test_right[Addition-int8] PASSED" in done.stdout
    assert "test_wrong[Addition-float32] FAILED" in done.stdout
    assert "test_known[Addition-float32] XFAIL" in done.stdout
    assert "fail: results/Addition-float32: output 0: 24 of 24 elements are wrong" in done.stdout
    assert done.stdout.splitlines()[-1].strip("= ").startswith("1 failed, 4 passed, 1 xfailed")


# --- the backends that are shipped ------------------------------------------------------------------------------------


OF_SAMPLES = [f"{check.name}/*" for check in SAMPLE_CHECKS]


def one_in(step: int) -> list[Sample]:
    """Return some samples of every operator."""
    return [sample for op in registered_ops().values() for sample in samples_of(op)[::step]]


@pytest.mark.needs_cpuref
def test_the_reference_passes_every_check_of_some_samples_of_every_operator() -> None:
    report = check_backend("CpuRef", samples=one_in(9), only=OF_SAMPLES)
    assert report.failures == []
    assert report.counts["pass"] > 2000


@pytest.mark.slow
@pytest.mark.needs_cpuref
@pytest.mark.parametrize("family", sorted({op.family for op in sampled_ops()}))
def test_the_reference_passes_every_check_of_the_samples_of(family: str) -> None:
    assert check_backend("CpuRef", families=[family], only=OF_SAMPLES).failures == []


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_the_reference_keeps_every_contract_of_a_backend(step: int) -> None:
    """These are the checks that are not made of samples; by default some variants of each, on some samples."""
    conformance = Conformance("CpuRef", samples=None if step == 1 else one_in(step), settings=QUICK)
    checks = [[case for case in conformance.cases if case.check is check] for check in BACKEND_CHECKS]
    conformance.cases = [case for cases in checks for case in cases[::step]]
    report = conformance.report()
    assert report.failures == []
    assert report.counts["pass"] > 300 / step


def test_the_example_of_a_backend_in_few_lines_conforms() -> None:
    report = check_backend("examples.compute_backend:TinyBackend", samples=SOME_SAMPLES, settings=QUICK)
    assert report.failures == []
    assert report.counts["pass"] > 400


@pytest.mark.slow
def test_the_example_with_every_class_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "custom_backend")
    report = check_backend("custom_backend:CustomBackend", samples=SOME_SAMPLES, settings=QUICK)
    assert report.failures == []
    assert report.counts["pass"] > 350
    assert report.counts["refused"] > 500
