"""``interposer check-backend ID --random N``: random networks on the command line."""

from __future__ import annotations

import json

import pytest

from interposer.cli.main import main

pytestmark = pytest.mark.usefixtures("warm_python")
WRONG = "tests.testing.judge.misbehaving:FlatTransposing"


@pytest.fixture
def shown(capsys, tmp_path):
    def run(*words, status=0):
        assert main(["check-backend", *words, "--folder", str(tmp_path / "made"), "--jobs", "2"]) == status
        return capsys.readouterr().out

    return run


def refused(capsys, *words):
    assert main(["check-backend", "CpuRef", *words]) == 2
    return capsys.readouterr().err


@pytest.mark.needs_cpuref
def test_a_backend_that_is_right_has_a_table_of_counts_and_status_0(shown):
    lines = shown("CpuRef", "--random", "12", "--seed", "4").splitlines()
    assert lines[0].split()[:4] == ["kind", "route", "judged", "passed"]
    assert {line.split()[0] for line in lines[1:-2]} == {"float", "quantized"}
    assert lines[-1].startswith("CpuRef: 6 float, 6 quantized networks of seed 4 in ")
    assert lines[-1].endswith(", no findings")


def test_a_finding_is_shown_with_its_smallest_network_and_is_status_1(shown, tmp_path):
    words = ["--random", "24", "--seed", "3", "--kind", "float", "--shrink", "1"]
    text = shown(WRONG, *words, status=1)
    assert "difference, the cause: FlatTransposing" in text
    assert "The smallest network that fails in the same way (Transpose):" in text
    [script] = (tmp_path / "made").glob("*.py")
    assert f"python {script} shows it again" in text


def test_one_network_is_judged_again_by_its_id(shown):
    report = json.loads(shown(WRONG, "--random", "24", "--seed", "3", "--shrink", "0", "--json", status=1))
    assert (report["ok"], report["networks"]) == (False, {"float": 12, "quantized": 12})
    finding = report["findings"][0]
    second_report = json.loads(shown(WRONG, "--random", finding["id"], "--shrink", "0", "--json", status=1))
    assert second_report["findings"][0]["text"] == finding["text"]
    assert sum(second_report["networks"].values()) == 1


@pytest.mark.needs_cpuref
def test_several_backends_are_used_in_the_order_of_their_ids(shown):
    assert "CpuRef and FlatTransposing: " in shown(f"CpuRef,{WRONG}", "--random", "4").splitlines()[-1]


@pytest.mark.needs_cpuref
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--random", "many"], "--random takes a number of networks, or an id such as float-7-123, not 'many'"),
        (["--random", "0"], "--random takes a number of networks, or an id such as float-7-123, not '0'"),
        (["--random", "-5"], "--random takes a number of networks, or an id such as float-7-123, not '-5'"),
        (["--random", "5", "--jobs", "0"], "argument --jobs: expected a whole number of 1 or more, not '0'"),
        (
            ["--random", "5", "--threads", "0"],
            "argument --threads: expected a number of threads from 1 to 4096, not '0'",
        ),
        (["--random", "5", "--seconds", "0"], "argument --seconds: expected a positive number of seconds, not '0'"),
        (["--random", "5", "--shrink", "-1"], "argument --shrink: expected a whole number of 0 or more, not '-1'"),
        (["--random", "5", "--start", "-1"], "argument --start: expected a whole number of 0 or more, not '-1'"),
        (["--random", "5", "--kind", "int"], "argument --kind: unknown choice 'int'"),
        (["--random", "5", "--only", "results/*"], "--only cannot be given with it"),
    ],
)
def test_what_cannot_be_meant_is_refused(capsys, words, text):
    assert text in refused(capsys, *words)


def test_an_unknown_backend_is_refused(capsys):
    assert main(["check-backend", "CpuAc", "--random", "3"]) == 2
    assert "unknown backend 'CpuAc'" in capsys.readouterr().err
