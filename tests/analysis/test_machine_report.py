"""The report of a machine: its processor, and what the fixed set of networks gives there."""

from __future__ import annotations

import json

import numpy as np
import pytest

import interposer.analysis.machine_report as machine_report_module
from interposer.analysis.machine_report import Measurement, fixed_networks, machine_report, processor_name
from interposer.cli.main import main

ARM = """\
processor	: {0}
Features	: fp asimd asimddp
CPU implementer	: 0x41
CPU architecture: 8
CPU part	: {1}

"""


def test_the_name_of_a_processor_is_what_the_system_calls_it():
    assert processor_name("processor\t: 0\nmodel name\t: A Processor @ 2 GHz\n") == "A Processor @ 2 GHz"


def test_cores_of_arm_are_named_by_their_numbers():
    text = "".join(ARM.format(core, "0xd05" if core < 4 else "0xd0b") for core in range(6))
    assert processor_name(text) == "4 x Cortex-A55 and 2 x Cortex-A76"


def test_cores_that_are_not_known_keep_their_numbers():
    assert processor_name(ARM.format(0, "0xfff")) == "1 x 0x41 0xfff"


def test_a_system_that_names_no_processor_is_named_by_its_kind():
    assert processor_name("")


def test_the_fixed_set_is_the_same_each_time():
    first, second = list(fixed_networks()), list(fixed_networks())
    assert [name for name, _, _ in first] == [name for name, _, _ in second]
    for (_, _, data), (_, _, again) in zip(first, second, strict=True):
        np.testing.assert_array_equal(data, again)


def test_all_results_on_this_machine_are_right(cpuacc):
    report = machine_report(seconds=0)
    assert report.is_right, report
    assert len(report.measurements) == 6
    assert {each.refused for each in report.measurements} == {0}
    assert report.machine["level"] in report.machine["levels"]


def test_the_command_prints_the_report_and_writes_it(cpuacc, tmp_path, capsys):
    path = tmp_path / "report.json"
    assert main(["bench", "--report", str(path), "--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert "mobile int8" in said
    assert f"written to {path}" in said
    written = json.loads(path.read_text())
    assert [each["network"] for each in written["measurements"]][:2] == ["mobile float32", "mobile int8"]


def test_a_wrong_result_is_reported_with_the_status_1(cpuacc, tmp_path, capsys, monkeypatch):
    wrong = Measurement("mobile int8", (1.0, 1.0), 0.5, False, 0)
    monkeypatch.setattr("interposer.analysis.machine_report._measured", lambda *words: wrong)
    assert main(["bench", "--report", str(tmp_path / "report.json")]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_results_on_one_thread_are_compared_too(cpuacc, monkeypatch):
    differences = iter([float("nan"), 0.0])
    monkeypatch.setattr("interposer.analysis.machine_report._difference", lambda *arrays: next(differences))
    name, network, data = next(fixed_networks())
    assert not machine_report_module._measured(name, network, data, seconds=0).is_right


def test_the_report_never_replaces_a_network(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"a network")
    assert main(["bench", "--report", str(path)]) == 2
    assert "does not end with .json" in capsys.readouterr().err
    assert path.read_bytes() == b"a network"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "bench needs the file of a network, or --report, which measures a fixed set"),
        (
            ["net.onnx", "--report", "report.json"],
            "--report measures a fixed set, so 'net.onnx' cannot be measured too",
        ),
    ],
)
def test_a_network_or_a_report_is_measured(words, said, capsys):
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--plot", "times.svg"],
        ["--mix", "CpuAcc,CpuRef"],
        ["--threshold", "5"],
        ["--threads", "2"],
        ["--backends", "CpuRef"],
        ["--limit-bytes", "1G"],
        ["--option", "CpuAcc.NumberOfThreads=1"],
    ],
    ids=lambda words: words[0],
)
def test_options_that_the_fixed_set_does_not_obey_are_refused(tmp_path, capsys, words):
    path = tmp_path / "report.json"
    assert main(["bench", "--report", str(path), *words]) == 2
    assert f"so {words[0]} would have no effect; it takes only --seconds and --json" in capsys.readouterr().err
    assert not path.exists()


def test_defaults_of_a_settings_file_do_not_concern_the_fixed_set(cpuacc, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interposer.toml").write_text("[cli.bench]\nthreshold = 1e-9\nmix = 'CpuAcc,CpuRef'\n")
    right = Measurement("mobile int8", (1.0, 1.0), 0.0, True, 0)
    monkeypatch.setattr("interposer.analysis.machine_report._measured", lambda *words: right)
    assert main(["bench", "--report"]) == 0
    assert (tmp_path / "interposer-report.json").exists()
