"""The benchmark of a network over two devices."""

import json

import pytest

from benchmarks import devices


@pytest.mark.usefixtures("gpuacc")
def test_a_network_over_a_device_and_another_backend_has_its_results_and_times(tmp_path, capsys):
    report = tmp_path / "devices.json"
    words = ["--devices", "GpuAcc", "CpuRef", "--rounds", "1", "--depth", "1", "--channels", "3", "--size", "8"]
    assert devices.main([*words, "--runs", "2", "--json", str(report)]) == 0
    placements = json.loads(report.read_text())["placements"]
    assert list(placements) == ["GpuAcc", "GpuAcc and CpuRef"]
    for row, devices_used in zip(placements.values(), (1, 2), strict=True):
        assert len(row["busy"]) == devices_used
        assert row.keys() == {"one", "row", "flight", "busy", "overlap"}
        assert min(row["one"], row["row"], row["flight"], *row["busy"]) > 0
    assert capsys.readouterr().out.startswith("| least milliseconds | one run | 2 in a row | 2 in flight |")


@pytest.mark.needs_cpuref
def test_a_backend_that_names_no_device_is_busy_while_its_layers_run(tmp_path):
    report = tmp_path / "devices.json"
    words = ["--devices", "CpuRef", "CpuRef", "--rounds", "1", "--depth", "1", "--channels", "2", "--size", "4"]
    assert devices.main([*words, "--runs", "1", "--json", str(report)]) == 0
    assert [len(row["busy"]) for row in json.loads(report.read_text())["placements"].values()] == [1, 1]


@pytest.mark.parametrize("option", ["--runs", "--rounds", "--depth", "--channels", "--size"])
def test_a_number_that_is_not_positive_is_refused(option, capsys):
    with pytest.raises(SystemExit):
        devices.main([option, "0"])
    assert capsys.readouterr().err.endswith(f"error: argument {option}: expected a positive number, not '0'\n")


@pytest.mark.needs_cpuref
def test_a_device_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit):
        devices.main(["--devices", "CpuRef", "Nowhere", "--depth", "1"])
    assert "run.py devices: error: unknown backend 'Nowhere' (known: " in capsys.readouterr().err


def test_spans_of_a_device_are_merged_before_they_are_added():
    assert devices._merged([(5, 7), (0, 3), (2, 4), (7, 8)]) == [(0, 4), (5, 8)]
