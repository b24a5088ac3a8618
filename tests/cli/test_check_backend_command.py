"""``interposer check-backend``: what it prints, writes and ends with."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from interposer.cli.main import main

pytestmark = pytest.mark.usefixtures("warm_python")
ADDITIONS = ["--family", "elementwise", "--only", "*/Addition-*"]


@pytest.fixture
def shown(capsys):
    def run(*words, status=0):
        assert main(["check-backend", *words]) == status
        return capsys.readouterr().out

    return run


@pytest.mark.needs_cpuref
def test_a_backend_that_conforms_is_counted_by_family(shown):
    lines = shown("CpuRef", "--family", "control", "--only", "support/*,results/*", "--only", "order/*").splitlines()
    assert lines[0].split() == ["family", "operators", "samples", "cases", "pass"]
    assert lines[1].split() == ["control", "2", "84", "252", "252"]
    assert lines[2].split() == ["all", "2", "84", "252", "252"]
    assert lines[-1] == "CpuRef conforms: 252 cases, none of which failed"


@pytest.mark.usefixtures("more_backends")
def test_what_a_backend_refuses_is_counted_apart_and_listed_with_its_reasons(shown):
    lines = shown("Sums", "--only", "*/Subtraction-*", "--refusals").splitlines()
    assert lines[0].split() == ["family", "cases"]
    titles = next(number for number, line in enumerate(lines) if line.startswith("refused"))
    assert lines[titles + 1].split()[0] == "Subtraction"
    assert lines[titles + 1].endswith("  no kernel for Subtraction")


@pytest.mark.needs_cpuref
def test_a_class_can_be_checked_that_is_not_installed(shown):
    assert "Tiny conforms" in shown("examples.compute_backend:TinyBackend", *ADDITIONS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py", "'mine.py' names a file; expected MODULE:CLASS, such as mine:CLASS"),
        ("mine.py:Sums", "'mine.py:Sums' names a file; expected MODULE:CLASS, such as mine:Sums"),
        (
            "./parts/mine.py:Sums",
            "'./parts/mine.py:Sums' names a file; expected MODULE:CLASS, such as mine:Sums "
            "where the folder ./parts is searched (PYTHONPATH)",
        ),
        (
            "tests.testing.wrong:WrongSum",
            "'tests.testing.wrong:WrongSum' cannot be imported: module 'tests.testing.wrong' has no attribute "
            "'WrongSum'; did you mean 'WrongSums'?",
        ),
    ],
)
def test_a_name_that_is_almost_right_is_refused_with_the_right_one(name, message, capsys):
    assert main(["check-backend", name]) == 2
    assert capsys.readouterr().err == f"interposer: {message}\n"


def test_a_failure_is_told_and_is_status_1(shown):
    out = shown("tests.testing.wrong:WrongSums", "--only", "results/Addition-float32", status=1)
    assert "\nfail: results/Addition-float32\n  output 0: 24 of 24 elements are wrong by more than" in out
    assert out.splitlines()[-1] == "WrongSums does not conform: 1 of 1 cases failed"


def test_the_report_is_there_as_json_and_as_xml(shown, tmp_path):
    file = tmp_path / "report.xml"
    words = ["tests.testing.wrong:WrongSums", "--only", "*/Addition-float32"]
    report = json.loads(shown(*words, "--json", "--junit", str(file), status=1))
    assert (report["backend"], report["ok"], report["counts"]["fail"]) == ("WrongSums", False, 1)
    assert report["results"][0] == {
        "id": "support/Addition-float32",
        "check": "support",
        "family": "elementwise",
        "operator": "Addition",
        "status": "pass",
        "text": "",
    }
    suite = ElementTree.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["results/Addition-float32"]


def test_failures_can_be_expected_and_an_expectation_that_is_out_of_date_fails(shown, tmp_path):
    file = tmp_path / "expected.json"
    file.write_text('{"results/Addition-float32": "it adds one too much", "order/Addition-float32": "not so"}')
    words = ["tests.testing.wrong:WrongSums", "--only", "*/Addition-float32", "--expected-failures", str(file)]
    out = shown(*words, status=1)
    assert out.splitlines()[0].split() == ["family", "operators", "samples", "cases", "pass", "xfail", "xpass"]
    assert "\nxpass: order/Addition-float32\n  it was expected to fail (not so), but it passes\n" in out


def test_the_checks_are_listed_with_what_they_are_about(shown):
    lines = shown("--list").splitlines()
    assert lines[0].split() == ["check", "made", "of", "about"]
    assert lines[1].startswith(
        "support       every sample  Fails if the backend's verdict about a layer does not hold. "
    )
    listed = json.loads(shown("--list", "--json"))
    assert len(lines) == len(listed) + 1
    assert all(set(check) == {"check", "about", "variants"} and check["about"] for check in listed)


def test_cases_are_listed_by_pattern(shown):
    lines = shown("--list", "--only", "leaks/*").splitlines()
    cases = ["leaks/objects", "leaks/memory", "leaks/small"]
    assert lines == [*cases, "3 cases"]
    assert json.loads(shown("--list", "--only", "leaks/*", "--json")) == cases


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["Nobody"], "unknown backend 'Nobody' (known: "),
        (["nowhere.at_all:Backend"], "'nowhere.at_all:Backend' cannot be imported: No module named 'nowhere'"),
        (["json:dumps"], "'json:dumps' gives "),
        (["CpuRef", "--family", "elementwize"], "unknown family 'elementwize'; did you mean 'elementwise'? ("),
        (["CpuRef", "--only", "nothing/*"], "no case matches 'nothing/*'; --list --only PATTERN shows what there is"),
    ],
)
def test_what_cannot_be_meant_is_a_message_and_status_2(words, text, capsys):
    assert main(["check-backend", *words]) == 2
    assert capsys.readouterr().err.startswith(f"interposer: {text}")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", " is no JSON: "),
        ('["results/*"]', " must hold an object that gives a reason for every pattern of cases"),
        ('{"resultz/Addition-float32": "why"}', "the expected failure 'resultz/Addition-float32' matches no case; did"),
    ],
)
def test_a_file_of_expected_failures_that_makes_no_sense_is_named(content, text, tmp_path, capsys):
    file = tmp_path / "expected.json"
    file.write_text(content)
    assert main(["check-backend", "CpuRef", "--expected-failures", str(file)]) == 2
    assert text in capsys.readouterr().err
