"""The benchmark of memory that several processes share."""

import json
import sys

import pytest

from benchmarks import sharing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="proportional set sizes are in /proc"),
]


@pytest.mark.usefixtures("cpuacc")
def test_processes_with_one_saved_network_share_its_packed_weights(tmp_path, capsys):
    report = tmp_path / "sharing.json"
    assert sharing.main(["--processes", "1", "2", "--backends", "CpuAcc", "--json", str(report)]) == 0
    model_file, saved = (row["pss"] for row in json.loads(report.read_text())["rows"])
    assert model_file["2"] - model_file["1"] > 105e6
    assert saved["2"] - saved["1"] < 80e6
    assert capsys.readouterr().out.startswith("| backend | file | 1 process | 2 processes, sum |\n")
