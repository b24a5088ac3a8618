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
    for row in placements.values():
        assert row.keys() == {"one", "row", "flight", "busy", "overlap"}
        assert min(row["one"], row["row"], row["flight"], *row["busy"]) > 0
    assert capsys.readouterr().out.startswith("| least milliseconds | one run | 2 in a row | 2 in flight |")


def test_spans_of_a_device_are_merged_before_they_are_added():
    assert devices._merged([(5, 7), (0, 3), (2, 4), (7, 8)]) == [(0, 4), (5, 8)]
